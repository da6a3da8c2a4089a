"""Ops on parts whose arguments change with the part: embeddings along the vocabulary."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.tensor.placement_types import Shard

Tensor = Any


def _embedding(func: Any, args: tuple, kwargs: dict[str, Any], plan: Any, tensors: list[Tensor]) -> Tensor:
    """Rows of other ranks are zeros: the results are summands."""
    weight, indices, *rest = args
    outside, length, begin = None, tensors[0].shape[0], 0
    for i, placement in enumerate(plan.tensors[0]):
        if placement.is_shard(0):
            length, offset = Shard.local_shard_size_and_offset(length, plan.mesh.size(i), plan.mesh.get_local_rank(i))
            begin += offset
            outside = (indices < begin) | (indices >= begin + length)
    if outside is None:
        return func(weight, indices, *rest, **kwargs)
    if not length:
        return torch.zeros(*indices.shape, weight.shape[1], dtype=weight.dtype, device=weight.device)
    return func(weight, torch.where(outside, 0, indices - begin)).masked_fill(outside.unsqueeze(-1), 0)


COMPUTE: dict[str, Callable[..., Any]] = {"embedding": _embedding}
