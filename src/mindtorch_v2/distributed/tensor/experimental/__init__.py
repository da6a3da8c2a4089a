"""torch.distributed.tensor.experimental: implicit_replication, local_map and context_parallel."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.tensor import _op_dispatch
from mindtorch_v2.distributed.tensor._api import DTensor
from mindtorch_v2.distributed.tensor.experimental._attention import context_parallel

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A with block in which plain tensors count as the same on every rank."""
    before, _op_dispatch.implicit_replication = _op_dispatch.implicit_replication, True
    try:
        yield
    finally:
        _op_dispatch.implicit_replication = before


def local_map(func: Callable[..., Any] | None = None, out_placements: Any = None, in_placements: Any = None,
              in_grad_placements: Any = None, device_mesh: Any = None, *, redistribute_inputs: bool = False) -> Any:
    """func, which computes on parts, as a function of distributed tensors."""
    if func is None:
        return partial(local_map, out_placements=out_placements, in_placements=in_placements,
                       in_grad_placements=in_grad_placements, device_mesh=device_mesh, redistribute_inputs=redistribute_inputs)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        mesh, given = device_mesh, []
        for i, x in enumerate(args):
            wanted = None if in_placements is None else in_placements[i]
            if isinstance(x, DTensor):
                mesh = mesh or x.device_mesh
                if wanted is not None and tuple(wanted) != x.placements:
                    if not redistribute_inputs:
                        raise ValueError(f"arg {x} in local_map has a mismatched placements: arg placements is {x.placements} "
                                         f"but the input placements is {wanted}! If redistribute_inputs is wanted, set "
                                         "redistribute_inputs=True to local_map.")
                    x = x.redistribute(placements=wanted)
                x = x.to_local(grad_placements=None if in_grad_placements is None else in_grad_placements[i])
            given.append(x)
        result = func(*given, **kwargs)
        leaves, tree = torch.utils._pytree.tree_flatten(result)
        placed = out_placements if isinstance(out_placements, tuple) else (out_placements,) * len(leaves)
        if len(placed) != len(leaves):
            raise AssertionError("local_map requires one PlacementType for each output value, received "
                                 f"{len(placed)} out_placements but {len(leaves)} is expected!")
        made = [DTensor.from_local(x, mesh, p, run_check=False) if isinstance(x, torch.Tensor) and p is not None else x
                for x, p in zip(leaves, placed, strict=True)]
        return torch.utils._pytree.tree_unflatten(made, tree)
    return mapped


_WHY = "mindtorch_v2 does not offer this part of torch.distributed.tensor"
register_sharding = torch._facade.refusal("torch.distributed.tensor.experimental.register_sharding", _WHY)
