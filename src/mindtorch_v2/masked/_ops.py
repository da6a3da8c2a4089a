"""The functions of torch.masked: an element that the mask leaves out counts as the op's identity value."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.masked.maskedtensor.core import MaskedTensor

_SUMS = (torch.uint8, torch.bool, torch.int8, torch.int16, torch.int32)     # sums and products of them are int64


def _of_masked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a MaskedTensor is that of its data and its mask; gradients come back with the mask."""
    @functools.wraps(function)
    def of_both(input: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(input, MaskedTensor):
            input, kwargs = input.get_data(), {**kwargs, "mask": input.get_mask()}
        if function.__name__ not in _OF_SPARSE:
            _check_strided(function.__name__, input)
        return function(input, *args, **kwargs)
    return of_both


_OF_SPARSE = frozenset(("sum", "prod", "amax", "amin"))


def _check_strided(name: str, x: Any) -> None:
    if x.layout != torch.strided:
        raise ValueError(f"masked {name} expects strided tensor (got {x.layout} tensor)")


def _data_and_mask(input: Any, mask: Any) -> tuple[Any, Any]:
    """The same where the mask that was given counts too: without one every item of a MaskedTensor does, as in torch."""
    return (input.get_data(), input.get_mask()) if isinstance(input, MaskedTensor) else (input, mask)


def _identity(name: str, x: Any) -> Any:
    """The value that changes nothing in the named reduction."""
    if name == "median":
        return float("nan")                                  # nanmedian leaves it out
    if name in ("sum", "cumsum", "prod", "cumprod"):
        return 0 if name.endswith("sum") else 1
    if x.dtype is torch.bool:
        raise NotImplementedError(f"identity of {name} on {x.dtype} input")
    least = name in ("amax", "argmax", "logaddexp", "logsumexp")
    if x.dtype.is_floating_point or x.dtype.is_complex and name == "logsumexp":
        return float("-inf") if least else float("inf")
    limits = torch.iinfo(x.dtype)
    return limits.min if least else limits.max


def _expanded(mask: Any, x: Any) -> Any:
    """The mask in the input's shape, as bool."""
    if mask.shape == x.shape:
        return mask.to(torch.bool)
    if mask.dim() > x.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return torch.broadcast_to(mask, x.shape).to(torch.bool)


def _input_mask(input: Any, *args: Any, mask: Any = None, **kwargs: Any) -> Any:
    """The mask of an input in its canonical form: of its shape and layout, bool."""
    if input.layout not in _WITH_MASKS:
        raise ValueError(f"_input_mask expects strided or sparse COO or sparse CSR tensor but got {input.layout}")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if input.layout != torch.strided:
        return torch._sparse.masked.mask_like(mask, input)
    return _expanded(mask if mask.layout == torch.strided else mask.to_dense(), input)


_WITH_MASKS = (torch.strided, torch.sparse_coo, torch.sparse_csr)


def _where(mask: Any, input: Any, fill_value: Any) -> Any:
    """The input where the mask is True and fill_value elsewhere; of sparse tensors of one layout the places of the mask."""
    if mask.layout == torch.strided:
        return torch.where(mask, input, fill_value)
    if mask.layout not in _WITH_MASKS:
        raise ValueError(f"_where expects strided or sparse COO or sparse CSR tensor but got {mask.layout}")
    if input.layout != mask.layout:
        raise AssertionError(f"input.layout must be {str(mask.layout).rpartition('.')[2]}, got {input.layout}")
    return torch._sparse.masked.kept(input, mask, fill_value.item())


def _reduction_identity(op_name: str, input: Any, *args: Any) -> Any:
    """The value that changes nothing in the named reduction, a tensor without dims; None where there is none."""
    name = op_name.rpartition(".")[2]
    if name in ("mean", "var", "std"):
        return None
    if name in _EACH and not name.startswith("cum") or name not in _REDUCTIONS | _EACH | {"logaddexp"}:
        raise NotImplementedError(f"identity of {op_name} on {input.dtype} input")
    if name == "norm":
        name = "amin" if (args[0] if args else 2) == float("-inf") else "sum"
    dtype = input.dtype if name != "median" or input.dtype.is_floating_point else torch.get_default_dtype()
    return torch.tensor(_identity(name, input), dtype=dtype, device=input.device)


def _combine_input_and_mask(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """The input with the op's identity where the mask is False."""
    if mask is None:
        return input
    name = op if isinstance(op, str) else op.__name__
    return _where(_input_mask(input, mask=mask), input, _reduction_identity(name, input, *args))


_REDUCTIONS = frozenset("sum prod amax amin argmax argmin mean median norm var std logsumexp".split())
_EACH = frozenset("softmax log_softmax softmin normalize cumsum cumprod".split())


def _output_mask(op: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Which results of a masked function come from at least one kept item."""
    name = op.__name__
    if name in _EACH:
        return _input_mask(input, *args, **kwargs)
    if name == "logaddexp":
        return _input_mask(input, mask=kwargs["input_mask"]) | _input_mask(input, mask=kwargs["other_mask"])
    if name not in _REDUCTIONS:
        raise ValueError(f"_output_mask expected masked operation (got callable {op.__module__}.{name})")
    at = 1 if name == "norm" else 0              # its order comes first
    dim = kwargs.get("dim", args[at] if len(args) > at else -1 if name == "median" else None)
    kept = _input_mask(input, *args, **kwargs)
    for d in reversed(_dims(dim, input)):
        kept = kept.any(d, bool(kwargs.get("keepdim")))
    return kept


def _filled(x: Any, mask: Any, name: str) -> Any:
    """x with the named op's identity where the mask is False; without a mask there may be none."""
    if mask is None:
        return x
    return torch.where(_expanded(mask, x), x, torch.full((), _identity(name, x), dtype=x.dtype, device=x.device))


def _dims(dim: Any, x: Any) -> tuple[int, ...]:
    """The reduced dims, sorted; all where None or an empty tuple is given."""
    rank = x.dim()
    if dim is None or dim == ():
        return tuple(range(rank))
    given = dim if isinstance(dim, (tuple, list)) else (dim,)
    found: list[int] = []
    for d in given:
        if d in found:                                       # as in torch before it is wrapped: the ops refuse the rest
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        if not -max(rank, 1) <= d < max(rank, 1):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(rank, 1)}, {max(rank, 1) - 1}], but "
                             f"got {d})")
        found.append(d % max(rank, 1))
    return tuple(sorted(found)) if rank or len(found) > 1 else ()


def _canonical_dim(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dims that are meant, sorted; all where None or an empty tuple is given."""
    return _dims(dim, torch.empty((1,) * ndim)) or (0,)


def _one(dim: Any, x: Any) -> int:
    """The dim of a function over one: None is the first."""
    found = _dims(dim, x)
    return found[0] if found else 0


def _checked_float(name: str, x: Any, dtype: Any) -> Any:
    if dtype is None and not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise ValueError(f"{name}(): Could not infer output dtype. Input dtype must be either a floating point or complex "
                         f"dtype. Got: {x.dtype}")
    return dtype or x.dtype


def _sum_dtype(x: Any, dtype: Any) -> Any:
    return dtype or (torch.int64 if x.dtype in _SUMS else x.dtype)


def _sparse_reduction(name: str, input: Any, dim: Any, keepdim: bool | None, dtype: Any, mask: Any) -> Any:
    identity = None if mask is None or name == "mean" else _identity(name, input)
    return torch._sparse.masked.reduction(name, input, _dims(dim, input), bool(keepdim), dtype, mask, identity)


@_of_masked
def sum(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The sum of what the mask keeps; 0 where it keeps nothing."""
    dtype = _sum_dtype(input, dtype)
    if input.layout != torch.strided:
        return _sparse_reduction("sum", input, dim, keepdim, dtype, mask)
    return torch.sum(_filled(input, mask, "sum"), _dims(dim, input), bool(keepdim), dtype=dtype)


@_of_masked
def prod(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The product of what the mask keeps; 1 where it keeps nothing."""
    dtype = _sum_dtype(input, dtype)
    if input.layout != torch.strided:
        return _sparse_reduction("prod", input, dim, keepdim, dtype, mask)
    result = _filled(input, mask, "prod").to(dtype)
    for d in reversed(_dims(dim, input)):
        result = result.prod(dim=d, keepdim=bool(keepdim))
    return result


def _extreme(name: str, input: Any, dim: Any, keepdim: bool | None, dtype: Any, mask: Any) -> Any:
    dtype = dtype or input.dtype
    if input.layout != torch.strided:
        return _sparse_reduction(name, input, dim, keepdim, dtype, mask)
    filled = _filled(input, mask, name)
    return getattr(torch, name)(filled, _dims(dim, input), bool(keepdim)).to(dtype)


@_of_masked
def amax(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The largest of what the mask keeps; the dtype's least value where it keeps nothing."""
    return _extreme("amax", input, dim, keepdim, dtype, mask)


@_of_masked
def amin(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The smallest of what the mask keeps; the dtype's largest value where it keeps nothing."""
    return _extreme("amin", input, dim, keepdim, dtype, mask)


def _place(name: str, input: Any, dim: Any, keepdim: bool | None, dtype: Any, mask: Any) -> Any:
    dtype = dtype or input.dtype
    filled = _filled(input, mask, name)
    return getattr(torch, name)(filled, dim, bool(keepdim)).to(dtype)


@_of_masked
def argmax(input: Any, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """Where the largest of what the mask keeps is."""
    return _place("argmax", input, dim, keepdim, dtype, mask)


@_of_masked
def argmin(input: Any, dim: int | None = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """Where the smallest of what the mask keeps is."""
    return _place("argmin", input, dim, keepdim, dtype, mask)


def _count(input: Any, dims: tuple[int, ...], keepdim: bool, mask: Any) -> Any:
    """How many elements the mask keeps."""
    kept = torch.ones(input.shape, dtype=torch.int64, device=input.device) if mask is None else _expanded(mask, input)
    return torch.sum(kept, dims, keepdim, dtype=torch.int64)


def mean(input: Any, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The mean of what the mask keeps; nan where it keeps nothing."""
    given = mask
    input, mask = _data_and_mask(input, mask)
    dtype = _checked_float("mean", input, dtype)
    if input.dtype is torch.bool:
        input = input.to(dtype)
    dims = _dims(dim, input)
    if input.layout != torch.strided:
        return _sparse_reduction("mean", input, dim, keepdim, dtype, mask)
    if mask is None:
        return torch.mean(input, dims, bool(keepdim), dtype=dtype)
    return sum(input, dims, keepdim=keepdim, dtype=dtype, mask=mask) / _count(input, dims, bool(keepdim), given)


@_of_masked
def median(input: Any, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """The lower median of what the mask keeps; nan where it keeps nothing."""
    dtype = dtype or input.dtype
    d, floating = _one(dim, input), input.dtype.is_floating_point
    source = input if floating else input.to(torch.float32)
    found = _filled(source, mask, "median").nanmedian(d, keepdim).values
    if floating:
        return found                                         # torch does not look at dtype either
    if bool(torch.isnan(found).any()):
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    return found.to(dtype)


@_of_masked
def logsumexp(input: Any, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None) -> Any:
    """log of the sum of exp of what the mask keeps."""
    dtype = dtype or input.dtype
    return torch.logsumexp(_filled(input, mask, "logsumexp"), _dims(dim, input), keepdim).to(dtype)


def logaddexp(input: Any, other: Any, *, dtype: Any = None, input_mask: Any = None, other_mask: Any = None) -> Any:
    """log(exp(input) + exp(other)), each with a mask of its own."""
    dtype = dtype or input.dtype
    if isinstance(input, MaskedTensor):
        input, input_mask = input.get_data(), input.get_mask()
    if isinstance(other, MaskedTensor):
        other, other_mask = other.get_data(), other.get_mask()
    left = _filled(input, input_mask, "logaddexp")
    return torch.logaddexp(left, _filled(other, other_mask, "logaddexp")).to(dtype)


@_of_masked
def norm(input: Any, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool | None = False, dtype: Any = None,
         mask: Any = None) -> Any:
    """The vector norm of what the mask keeps."""
    order = 2.0 if ord is None else float(ord)
    filled = _filled(input, mask, "amin" if order == float("-inf") else "sum")
    return torch.linalg.vector_norm(filled, order, _dims(dim, input), bool(keepdim),
                                    dtype=dtype or input.dtype)


def _spread(input: Any, dim: Any, unbiased: bool | None, correction: Any, keepdim: bool | None, dtype: Any, mask: Any,
            root: bool) -> Any:
    """var, or std, of what the mask keeps."""
    given = mask
    input, mask = _data_and_mask(input, mask)
    _check_strided("std/var", input)
    if correction is not None and unbiased is not None:
        raise ValueError("Only one of 'correction' and 'unbiased' may be given")
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    if dtype is None:
        dtype = input.dtype if input.dtype.is_floating_point or input.dtype.is_complex else torch.float32
    dims = _dims(dim, input)
    compute = dtype if input.dtype in _SUMS + (torch.int64,) else torch.promote_types(input.dtype, dtype)
    count = _count(input, dims, True, given)
    centre = sum(input, dims, keepdim=True, dtype=dtype, mask=mask) / count
    away = torch.subtract(input, centre)
    total = sum(away * away.conj(), dims, keepdim=keepdim, dtype=compute, mask=mask)
    if not keepdim:
        count = count.reshape(total.shape)
    if correction != 0:
        count = torch.clamp_min(count.to(compute if not compute.is_complex else torch.float64) - correction, 0)
    found = torch.divide(total, count).to(dtype)
    return torch.sqrt(found) if root else found


def var(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None,
        keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The variance of what the mask keeps."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, False)


def std(input: Any, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None,
        keepdim: bool | None = False, dtype: Any = None, mask: Any = None) -> Any:
    """The standard deviation of what the mask keeps."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, True)


@_of_masked
def cumsum(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Sums up to each place, of what the mask keeps."""
    return torch.cumsum(_filled(input, mask, "sum"), _one(dim, input), dtype=dtype or input.dtype)


@_of_masked
def cumprod(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Products up to each place, of what the mask keeps."""
    return torch.cumprod(_filled(input, mask, "prod"), _one(dim, input), dtype=dtype or input.dtype)


@_of_masked
def softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """Softmax over what the mask keeps; 0 elsewhere, nan in a row of which it keeps nothing."""
    filled = _filled(input, mask, "amax")
    return torch.softmax(filled, _one(dim, input), dtype=dtype or input.dtype)


@_of_masked
def log_softmax(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """The log of softmax()."""
    filled = _filled(input, mask, "amax")
    return torch.log_softmax(filled, _one(dim, input), dtype=dtype or input.dtype)


@_of_masked
def softmin(input: Any, dim: int, *, dtype: Any = None, mask: Any = None) -> Any:
    """softmax(-input)"""
    filled = _filled(input, mask, "amin")
    return torch.nn.functional.softmin(filled, _one(dim, input), dtype=dtype or input.dtype)


@_of_masked
def normalize(input: Any, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None) -> Any:
    """What the mask keeps, divided by its norm; 0 elsewhere."""
    length = norm(input, ord, _dims(dim, input), keepdim=True, dtype=dtype, mask=mask)
    return torch.divide(_filled(input, mask, "sum"), torch.clamp_min(length, eps))
