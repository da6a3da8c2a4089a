"""Helpers over the dims of nested tensors, as PyTorch's own programs import them."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


def is_contiguous_general(func: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a nested tensor has its sequences one after the other."""
    return args[0].is_contiguous()


def raggedness_matches(nt: Any, size: Any) -> bool:
    """Whether a size begins with the batch of a nested tensor and has its ragged size, or -1, in the same place."""
    end = nt._ragged_idx + 1
    return len(size) >= end and all(a == b or isinstance(b, int) and b == -1 for a, b in zip(nt.shape[:end], size[:end]))


def extract_kwargs(arg: Any) -> dict[str, Any]:
    """What makes another nested tensor of the same sequences."""
    return {"offsets": arg.offsets(), "lengths": arg.lengths(), "_ragged_idx": arg._ragged_idx}


jagged_unary_pointwise = torch._facade.refusal(
    "torch.nested._internal.ops.jagged_unary_pointwise", "ops of nested tensors are found by their rows")
