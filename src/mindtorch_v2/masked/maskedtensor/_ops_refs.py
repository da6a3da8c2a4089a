"""The remaining ops of a MaskedTensor: layouts, copies, where, softmax, and what is asked of one item."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import (
    DISPATCH,
    FUNCTIONS,
    MaskedTensor,
    _get_data,
    _masks_match,
    _maybe_get_mask,
    is_masked_tensor,
)

__all__: list[str] = []


def answers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function answers these ops of ATen."""
    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        DISPATCH.update(dict.fromkeys(names, function))
        return function
    return note


def _counted(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], positional: int, named: int | None = None) -> None:
    if len(args) != positional:
        raise ValueError(f"__torch_dispatch__, {fn}: len(args) must be {positional} but got {len(args)}")
    if named is not None and len(kwargs) != named:
        raise ValueError(f"__torch_dispatch__, {fn}: len(kwargs) must be {named} but got {len(kwargs)}")


# ---- other layouts: the gradient goes back to the layout of the input
class _Contiguous(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if not is_masked_tensor(x):
            raise ValueError("MaskedContiguous forward: input must be a MaskedTensor.")
        return x if x.is_contiguous() else MaskedTensor(x.get_data().contiguous(), x.get_mask().contiguous())

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return grad_output


class _ToDense(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if not is_masked_tensor(x):
            raise ValueError("MaskedToDense forward: input must be a MaskedTensor.")
        ctx.layout = x.layout
        return x if x.layout is torch.strided else MaskedTensor(x.get_data().to_dense(), x.get_mask().to_dense())

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        if ctx.layout is torch.sparse_coo:
            return _ToSparse.apply(grad_output)
        return _ToSparseCsr.apply(grad_output) if ctx.layout is torch.sparse_csr else grad_output


class _ToSparse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if not is_masked_tensor(x):
            raise ValueError("MaskedToSparse forward: input must be a MaskedTensor.")
        if x.layout is torch.sparse_coo:
            return x
        mask = x.get_mask().to_sparse_coo().coalesce()
        return MaskedTensor(x.get_data().sparse_mask(mask), mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return _ToDense.apply(grad_output)


class _ToSparseCsr(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        if not is_masked_tensor(x):
            raise ValueError("MaskedToSparseCsr forward: input must be a MaskedTensor.")
        if x.dim() != 2:
            raise ValueError(f"Only 2D tensors can be converted to the SparseCsr layout but got shape: {x.size()}")
        if x.layout is torch.sparse_csr:
            return x
        mask = x.get_mask().to_sparse_csr()
        return MaskedTensor(x.get_data().sparse_mask(mask), mask)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        return _ToDense.apply(grad_output)


def _masked_out(x: Any) -> Any:
    return MaskedTensor(x.get_data(), torch.zeros_like(x.get_mask()))


class _Where(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cond: Any, x: Any, other: Any) -> Any:
        ctx.mark_non_differentiable(cond)
        ctx.save_for_backward(cond)
        return torch.ops.aten.where(cond, x, other)

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        (cond,) = ctx.saved_tensors
        out = _masked_out(grad_output)
        return None, torch.ops.aten.where(cond, grad_output, out), torch.ops.aten.where(cond, out, grad_output)


def _where_function(*args: Any, **kwargs: Any) -> Any:
    for what, given, expected in (("args", args, 3), ("kwargs", kwargs, 0)):
        if len(given) != expected:
            raise ValueError(f"__torch_function__, torch.where: len({what}) must be {expected} but got {len(given)}")
    return _Where.apply(*args)


FUNCTIONS.update(dict.fromkeys((torch.where, torch.Tensor.where), _where_function))
for _name, _function in (("contiguous", _Contiguous), ("to_dense", _ToDense), ("to_sparse", _ToSparse),
                         ("to_sparse_coo", _ToSparse), ("to_sparse_csr", _ToSparseCsr)):
    FUNCTIONS[getattr(torch.Tensor, _name)] = lambda x, *args, _function=_function, **kwargs: _function.apply(x)


# ---- ops
@answers("where")
def _where(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 3, 0)
    cond, *both = args
    if not torch.is_tensor(cond):
        raise ValueError(f"__torch_dispatch__, {fn}: expected args[0] to be a tensor")
    x, y = (b if is_masked_tensor(b) else MaskedTensor(b, torch.ones_like(b, dtype=torch.bool)) for b in both)
    return MaskedTensor(fn(cond, x.get_data(), y.get_data()), fn(cond, x.get_mask(), y.get_mask()))


@answers("detach", "clone")
def _same(fn: Any, *args: Any, **kwargs: Any) -> Any:
    return MaskedTensor(fn(_get_data(args[0])), _maybe_get_mask(args[0]))


@answers("ones_like", "zeros_like")
def _filled_like(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 1)
    return MaskedTensor(fn(_get_data(args[0]), **kwargs), _maybe_get_mask(args[0]))


@answers("_to_copy")
def _to_copy(fn: Any, *args: Any, **kwargs: Any) -> Any:
    data, mask = _get_data(args[0]), _maybe_get_mask(args[0])
    return MaskedTensor(fn(data, *args[1:], **kwargs), fn(mask, *args[1:], **{**kwargs, "dtype": torch.bool}))


@answers("new_empty_strided")
def _new_empty_strided(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 3)
    data = _get_data(args[0])
    for at, expected in ((1, "size"), (2, "stride")):
        if tuple(args[at]) != tuple(getattr(data, expected)()):
            raise ValueError(f"__torch_dispatch__, {fn}: args[{at}] expected to be the same as data.{expected}()")
    return MaskedTensor(fn(data, args[1], args[2], **kwargs), _maybe_get_mask(args[0]))


@answers("copy_")
def _copy_(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 2)
    if not _masks_match(*args):
        raise ValueError("args[0] mask and args[1] mask must match but do not")
    fn(_get_data(args[0]), _get_data(args[1]))
    return args[0]


@answers("softmax", "_softmax")
def _softmax(fn: Any, x: Any, dim: int, *rest: Any, **kwargs: Any) -> Any:
    mask = x.get_mask()
    found = torch.softmax(_get_data(x).masked_fill(~mask, float("-inf")), dim)
    return MaskedTensor(found.masked_fill(~mask.any(dim, keepdim=True), 0), mask)


@answers("_softmax_backward_data")
def _softmax_backward(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 4)
    grad, output, dim, dtype = args
    if not is_masked_tensor(grad) or not is_masked_tensor(output):
        raise ValueError(f"__torch_dispatch__, {fn}: grad and output must both be MaskedTensors")
    if not _masks_match(grad, output):
        raise ValueError(f"__torch_dispatch__, {fn}: expected the masks of grad and output to match")
    mask = grad.get_mask()
    found = fn(_get_data(grad).masked_fill(~mask, 0), _get_data(output).masked_fill(~mask, 0), dim, dtype)
    return MaskedTensor(found, mask)


@answers("_indices", "_values")
def _sparse_part(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 1, 0)
    part = getattr(_get_data(args[0]), fn.__name__[1:])()
    return MaskedTensor(part, torch.ones_like(part).bool())


@answers("is_same_size")
def _is_same_size(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 2)
    return _get_data(args[0]).is_same_size(_get_data(args[1]))


@answers("_is_any_true")
def _is_any_true(fn: Any, *args: Any, **kwargs: Any) -> Any:
    _counted(fn, args, kwargs, 1, 0)
    data, mask = _get_data(args[0]), _maybe_get_mask(args[0])
    if data.dtype != torch.bool:
        raise ValueError(f"__torch_dispatch__, {fn}: expected a boolean tensor")
    if data.layout is not torch.strided:
        raise ValueError(f"MaskedTensors with sparse data do not have {fn}")
    return MaskedTensor(fn(data & mask), torch.tensor(True))
