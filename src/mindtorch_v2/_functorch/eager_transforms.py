"""torch._functorch.eager_transforms: torch.func's derivatives by their names there."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_func = torch.func
grad, grad_and_value, hessian, jacfwd, jacrev = _func.grad, _func.grad_and_value, _func.hessian, _func.jacfwd, _func.jacrev
jvp, vjp, linearize, functionalize = _func.jvp, _func.vjp, _func.linearize, _func.functionalize


def _slice_argnums(args: tuple, argnums: Any, as_tuple: bool = True) -> Any:
    """The arguments of these numbers; of one number as a tuple too, unless that is not wanted."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    _func._check_argnums(argnums, len(args))
    if isinstance(argnums, int):
        return (args[argnums],) if as_tuple else args[argnums]
    return tuple(args[n] for n in argnums)
