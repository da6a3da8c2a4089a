"""Reductions of a MaskedTensor: torch.masked's, with a mask that says where anything was kept."""
from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import (
    DISPATCH,
    FUNCTIONS,
    UNSUPPORTED,
    MaskedTensor,
    _get_data,
    is_masked_tensor,
)

__all__: list[str] = []

REDUCE_NAMES = ["sum", "mean", "amin", "amax", "argmin", "argmax", "prod", "all", "norm", "var", "std"]


class _WithMask(torch.autograd.Function):
    """A result with its mask; the reduction's own formula gets the data of the gradient."""

    @staticmethod
    def forward(ctx: Any, data: Any, mask: Any) -> Any:
        return MaskedTensor(data, mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return _get_data(grad_output), None


def _masked_all(data: Any, mask: Any, **options: Any) -> Any:
    return torch.all(data.masked_fill(~mask, True), **options)


def _any(mask: Any, dim: int | tuple[int, ...] | list[int], keepdim: bool) -> Any:
    for d in sorted([dim] if isinstance(dim, int) else dim, reverse=True):
        mask = torch.any(mask, dim=d, keepdim=keepdim)
    return mask


def _place(name: str, data: Any, mask: Any) -> Any:
    """Where the extreme value of a sparse tensor lies among all its items."""
    found = getattr(torch.masked, name)(data.values(), mask=mask).to(torch.int64)
    place = data.indices()[:, found]
    strides = [data.shape[d + 1:].numel() for d in range(data.dim())]
    return torch.sum(place * torch.tensor(strides, dtype=torch.float32))


def _reduce_all(name: str, x: Any) -> Any:
    data, mask = x.get_data(), x.get_mask()
    if x.is_sparse:
        mask = mask.values()
        if name in ("argmin", "argmax") and x.is_sparse_coo():
            return _WithMask.apply(_place(name, data, mask), torch.any(mask))
        data = data.values()
    reduce = _masked_all if name == "all" else getattr(torch.masked, name)
    return _WithMask.apply(reduce(data, mask=mask), torch.any(mask))


def _reduce_dim(name: str, x: Any, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.is_sparse:
        warnings.warn(f"The sparse version of {name} is not implemented in reductions.\n{UNSUPPORTED}", stacklevel=2)
        return NotImplemented
    if not is_masked_tensor(x):
        raise TypeError("Input to reduce_dim must be a MaskedTensor")
    data, mask = x.get_data(), x.get_mask()
    if name == "all":
        result = _masked_all(data, mask, dim=dim, keepdim=keepdim)
    else:
        result = getattr(torch.masked, name)(data, dim=dim, keepdim=keepdim, dtype=dtype, mask=mask)
    return _WithMask.apply(result, _any(mask, dim, keepdim))


def _reduce(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    return _reduce_dim(name, x, *args, **kwargs) if args or kwargs else _reduce_all(name, x)


def _apply_reduction(fn: Any, *args: Any, **kwargs: Any) -> Any:
    return _reduce(fn.__name__, *args, **kwargs)


NATIVE_REDUCE_FNS = [getattr(torch.ops.aten, name) for name in REDUCE_NAMES]
TORCH_REDUCE_FNS = [getattr(torch, name) for name in REDUCE_NAMES]
TENSOR_REDUCE_FNS = [getattr(torch.Tensor, name) for name in REDUCE_NAMES]
DISPATCH.update(dict.fromkeys(REDUCE_NAMES, _apply_reduction))
for _name in REDUCE_NAMES:
    FUNCTIONS.update(dict.fromkeys((getattr(torch, _name), getattr(torch.Tensor, _name)), partial(_reduce, _name)))


def _is_reduction(fn: Any) -> bool:
    return fn in NATIVE_REDUCE_FNS or fn in TORCH_REDUCE_FNS or fn in TENSOR_REDUCE_FNS
