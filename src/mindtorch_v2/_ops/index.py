"""Rows of indexing: x[…], gather and scatter, and the index_* ops along one dim. Masks are in index_mask.py."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.reduce import BOOL, INT64, word
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import is_plain, wrap
from mindtorch_v2._tensor import Tensor

UINT8, INT32 = _C._dtype_named("uint8"), _C._dtype_named("int32")


# ---- x[…] --------------------------------------------------------------------------------------------------------
def broadcast(shapes: Sequence[Sequence[int] | list[int] | tuple[Any, ...]]) -> tuple[int, ...] | None:
    """The common shape, or None."""
    rank = max([len(s) for s in shapes], default=0)
    common = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if n != 1 and common[d] not in (1, n):
                return None
            common[d] = n if n != 1 else common[d]
    return tuple(common)


def _indexed_shape(self: Tensor, indices: Any) -> tuple[int, ...]:
    """The shape of self[indices]: adjacent indices leave their dims in place, others put them first."""
    shape = tuple(self.shape)
    if len(indices) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(indices)})")
    given = [d for d, i in enumerate(indices) if i is not None]
    shapes = [tuple(indices[d].shape) for d in given]
    common = broadcast(shapes)
    if common is None:
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes "
                         + ", ".join(str(list(s)) for s in shapes))
    rest = [d for d in range(len(shape)) if d not in given]
    if 0 in [shape[d] for d in given] and 0 not in common:
        raise IndexError("index is out of bounds for dimension with size 0")
    lead = [d for d in rest if given and d < given[0]] if given and given[-1] - given[0] + 1 == len(given) else []
    return tuple(shape[d] for d in lead) + common + tuple(shape[d] for d in rest if d not in lead)


def _put_rule(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> None:
    shape = _indexed_shape(self, indices)
    if broadcast([shape, tuple(values.shape)]) != shape:
        raise RuntimeError(f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to "
                           f"indexing result of shape {list(shape)}")
    if self.dtype is not values.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match, got "
                           f"{word(self.dtype)} for the destination and {word(values.dtype)} for the source.")


op("index(Tensor self, Tensor?[] indices) -> Tensor", format="[indices]",
   batch=batching_nn.indexed, forward=forward.linear, variants="", npu="aclnnIndex(self, indices, out)",
   rule=lambda self, indices: (_indexed_shape(self, indices), self.dtype),
   grad={"self": lambda g, self_shape, indices: g.new_zeros(self_shape).index_put(indices, g, True)})
op("_index_put_list_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
   batch=batching_nn.index_assigned,
   variants="", kernel="index_put_list", rule=_put_rule, guard="put",
   npu="aclnnIndexPutImpl(self, indices, values, accumulate, False)",
   grad={"self": lambda g, indices, accumulate: g if accumulate else g.index_put(indices, g.new_zeros(())),
         "values": lambda g, indices: ops.index(g, indices)})


def _plain_indices(self: Tensor, indices: tuple[Tensor | None, ...]) -> tuple[list[Tensor | None], bool]:
    """Masks as the indices of their true items, and other integers as int64; and whether every 0-dim mask is true."""
    if len(indices) > self.dim():
        raise IndexError(f"too many indices for tensor of dimension {self.dim()} (got {len(indices)})")
    if not indices:
        raise RuntimeError("at least one index must be provided")
    any_place = True
    plain: list[Any] = []
    for index in indices:
        if index is None:
            plain.append(None)
        elif index.dtype in (BOOL, UINT8):
            for d, n in enumerate(index.shape):
                at = len(plain) + d
                if at >= self.dim() or self.size(at) != n:
                    raise IndexError(f"The shape of the mask {list(index.shape)} at index {d} does not match the shape "
                                     f"of the indexed tensor {list(self.shape)} at index {at}")
            any_place = any_place and (index.dim() > 0 or bool(index))
            plain.extend(index.nonzero().to(self.device).unbind(1))
        elif index.dtype is not INT64 and index.dtype is not INT32:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        else:
            plain.append(index.to(self.device, INT64))
    return plain, any_place


def _fills(indices: Any, values: Any) -> Any:
    """Whether torch fills a mask with a number, which may be of another dtype."""
    return (len(indices) == 1 and indices[0] is not None and indices[0].dtype is BOOL and values.numel() == 1
            and values.device.type == "cpu" and values._readable)


@composite("index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)")
def _index_put_(self: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool) -> Tensor:
    """self[indices] = values, or += values."""
    if values.dtype is not self.dtype and not accumulate and _fills(indices, values):
        core._check_fits(values.item(), self.dtype)
        values = values.to(self.dtype)
    if not accumulate and _fills(indices, values) and is_plain(self, values) and self.is_cpu and self.is_contiguous():
        mask: Any = indices[0]
        if mask.shape == self.shape and self.dim() and mask.is_cpu and mask._readable:
            return self.masked_fill_(mask, values.item())
    if self.is_meta and any(i is not None and i.is_meta and i.dtype is BOOL for i in indices):
        return self                                  # how many values there are only the mask's values say
    plain, any_place = _plain_indices(self, indices)
    if any_place:
        return ops._index_put_list_(self, plain, values, accumulate)
    _put_rule(self, plain, values, accumulate)
    return self


@composite("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
           autocast={"npu": "widest"}, out=False, forward=forward.linear)
def _index_put(self: Tensor, indices: tuple[Tensor | None, ...], values: Tensor, accumulate: bool) -> Tensor:
    """A copy of self with values at indices."""
    tensors = [i for i in indices if i is not None]
    return ops.index_put_(batching.copied_beside(self, values, *tensors), indices, values, accumulate)


# ---- along one dim, an index for every item ----------------------------------------------------------------------
def _check_index(name: str, index: Tensor) -> None:
    if index.dtype is not INT64 and index.dtype is not INT32 and index.numel():
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")


def _shape1(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape) or (1,)


def _gather_rule(self: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> Spec:
    dim = wrap(dim, self.dim())
    _check_index("gather", index)
    if index.numel():
        if len(_shape1(index)) != len(_shape1(self)):
            raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
        for d, (n, m) in enumerate(zip(_shape1(index), _shape1(self))):
            if d != dim and n > m:
                raise RuntimeError(f"Size does not match at dimension {d} expected index {list(index.shape)} to be no "
                                   f"larger than self {list(self.shape)} apart from dimension {dim}")
    return index.shape, self.dtype


op("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", out="apart",
   lacks="complex32", batch=batching.picked, forward=forward.linear, rule=_gather_rule,
   npu="aclnnGather(self, dim, index, out)",
   grad={"self": lambda g, self, dim, index: g.new_zeros(self.shape).scatter_add(dim, index, g)})


def _scatter_check(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor | None = None) -> None:
    dim = wrap(dim, self.dim())
    _check_index(name, index)
    if src is not None and src.dtype is not self.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if not index.numel():
        return
    if len(_shape1(index)) != len(_shape1(self)):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    if src is not None and len(_shape1(index)) != len(_shape1(src)):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    for d, (n, m) in enumerate(zip(_shape1(index), _shape1(self))):
        if (d != dim and n > m) or (src is not None and n > _shape1(src)[d]):
            apart = "" if src is None else f" and to be no larger size than src {list(src.shape)}"
            raise RuntimeError(f"Expected index {list(index.shape)} to be no larger than self {list(self.shape)} apart "
                               f"from dimension {dim}{apart}")
    if not self.numel() and not self.is_meta:    # no kernel runs that would look at the indices
        raise RuntimeError(f"index {index.reshape(-1)[0].item()} is out of bounds for dimension {dim} with size 0")


def _scatter_value_check(self: Tensor, dim: int, index: Tensor, value: float) -> None:
    _scatter_check("scatter", self, dim, index)
    if index.numel():
        core._check_fits(value, self.dtype)


op("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", out="apart", lacks="complex32",
   batch=batching.dims, kernel="scatter", copies_self=True,
   inplace="method",
   rule=lambda self, dim, index, src: _scatter_check("scatter", self, dim, index, src),
   npu="aclnnScatter(self, dim, index, src, 0, out)",
   grad={"self": lambda g, dim, index: g.scatter(dim, index, 0), "src": lambda g, dim, index, src_shape:
         _cover(g.gather(dim, index), src_shape)})
op("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", out="apart", lacks="complex32",
   batch=batching.dims, kernel="scatter_value", copies_self=True,
   rule=lambda self, dim, index, value: _scatter_value_check(self, dim, index, value),
   npu="aclnnScatterValue(self, dim, index, value, 0, out)",
   grad={"self": lambda g, dim, index: g.scatter(dim, index, 0)})
op("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", out="apart",
   batch=batching.dims, autocast={"npu": "widest"},
   copies_self=True, inplace="method",
   rule=lambda self, dim, index, src: _scatter_check("scatter", self, dim, index, src),
   npu="aclnnScatterAdd(self, dim, index, src, out)",
   grad={"self": lambda g: g,
         "src": lambda g, dim, index, src_shape: _cover(g.gather(dim, index), src_shape)})


def _cover(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A gradient for the front of src, with zeros for what the index did not reach."""
    if tuple(g.shape) == tuple(shape):
        return g
    if not shape:                                            # a src without dims beside an index of one item
        return g.reshape(())
    whole = g.new_zeros(shape)
    part = whole
    for d, n in enumerate(g.shape):
        part = part.narrow(d, 0, n)
    part.copy_(g)
    return whole


_REDUCE = {"add": "sum", "multiply": "prod"}


@composite("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor")
def _scatter_src(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str) -> Tensor:
    if reduce not in _REDUCE:
        raise RuntimeError("reduce argument must be either add or multiply.")
    warnings.warn("The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch "
                  "release. Use torch.scatter_reduce instead for more reduction options.", stacklevel=2)
    return ops.scatter_reduce(self, dim, index, src, _REDUCE[reduce])


@composite("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor")
def _scatter_value(self: Tensor, dim: int, index: Tensor, value: float, reduce: str) -> Tensor:
    core._check_fits(value, self.dtype)
    src = ops.full(index.shape, value, dtype=self.dtype, device=self.device)
    if reduce not in _REDUCE:
        raise RuntimeError("reduce argument must be either add or multiply.")
    return ops.scatter_reduce(self, dim, index, src, _REDUCE[reduce])


ops.scatter.doc = "A copy of self with src (or value) written at index along dim."


# ---- reductions into indexed places ------------------------------------------------------------------------------
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


def _scatter_reduce_rule(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool) -> None:
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    _scatter_check("scatter", self, dim, index, src)
    if reduce in _REDUCTIONS[3:] and self.is_complex() or reduce == "mean" and self.dtype._name == "bool":
        raise NotImplementedError(f'"scatter_gather_tensor_cpu_reduce_{reduce}" not implemented for '
                                  f"'{_C.TYPE_WORDS[self.dtype._id]}'")


def _index_reduce_rule(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool) -> None:
    if reduce not in _REDUCTIONS[1:]:
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    _check_source("index_reduce_", self, dim, index, source)
    _config.warn_once("index_reduce() is in beta and the API may change at any time.")
    if self.is_complex() or self.dtype._name == "bool":
        raise NotImplementedError(f'"index_func_" not implemented for \'{_C.TYPE_WORDS[self.dtype._id]}\'')


class _Into:
    """How a reduction into indexed places reads, adds and fills there: scatter's way or index_add's."""

    def __init__(self, dim: int, index: Tensor, wide: bool) -> None:
        self.dim, self.index, self.wide = dim, index, wide

    def take(self, x: Tensor) -> Tensor:
        return x.gather(self.dim, self.index) if self.wide else x.index_select(self.dim, self.index)

    def add(self, x: Tensor, src: Tensor) -> Tensor:
        src = src.to(x.dtype)
        return (x.scatter_add if self.wide else x.index_add)(self.dim, self.index, src)

    def fill(self, x: Tensor, value: int) -> Tensor:
        return (x.scatter if self.wide else x.index_fill)(self.dim, self.index, value)

    def reduce(self, x: Tensor, src: Tensor, how: str, include_self: bool) -> Tensor:
        into = x.scatter_reduce if self.wide else x.index_reduce
        return into(self.dim, self.index, src, how, include_self=include_self)


def _reduced_into(g: Tensor, into: Any, self: Tensor, src: Tensor, how: str, include_self: bool,
                  result: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of self and src of scatter_reduce and index_reduce."""
    if into.wide and not into.index.numel():     # which may have any rank
        return g, ops.zeros_like(src)
    if into.wide:
        full = src.shape
        for d, n in enumerate(into.index.shape):
            src = src.narrow(d, 0, n) if src.dim() else src
    if how == "sum":
        to_self, to_src = g, into.take(g)
    elif how == "mean":
        count = into.add(ops.full_like(g, int(include_self)), ops.ones_like(src))
        share = g / count.masked_fill(count == 0, 1)
        to_self, to_src = share, into.take(share)
    elif how == "prod":
        to_self, to_src = _prod_into(g, into, self, src, include_self, result)
    else:
        self_wins, src_wins = (self == result).to(g.dtype), (src == into.take(result)).to(g.dtype)
        share = g / into.add(self_wins, src_wins)
        to_self, to_src = self_wins * share, src_wins * into.take(share)
    if not include_self:
        to_self = into.fill(to_self, 0)
    return to_self, _cover(to_src, full) if into.wide else to_src


def _prod_into(g: Tensor, into: Any, self: Tensor, src: Tensor, include_self: bool,
               result: Tensor) -> tuple[Tensor, Tensor]:
    no_zero = self.masked_fill(self == 0, 1)
    to_self = g * into.reduce(no_zero, src, "prod", include_self) / no_zero
    zero = src == 0
    zeros = into.take(into.add(ops.zeros_like(self), zero))
    single = zero & (zeros == 1)
    others = into.reduce(self, src.masked_fill(single, 1), "prod", include_self)
    to_src = ops.where(single, into.take(g * others), into.take(g * result) / src.masked_fill(zero, 1))
    return to_self, to_src


op("scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor", out="apart",
   batch=batching.dims,
   copies_self=True, inplace="method", rule=_scatter_reduce_rule,
   grad={"self, src": lambda g, self, dim, index, src, reduce, include_self, result:
         _reduced_into(g, _Into(dim, index, True), self, src, reduce, include_self, result)})
op("index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor", out="apart",
   batch=batching.along_index,
   forward=forward.refused("index_reduce"), copies_self=True, inplace="method", rule=_index_reduce_rule,
   grad={"self, source": lambda g, self, dim, index, source, reduce, include_self, result:
         _reduced_into(g, _Into(dim, index, False), self, source, reduce, include_self, result)})


# ---- along one dim, one index for a slice ------------------------------------------------------------------------
def _index_select_rule(self: Tensor, dim: int, index: Tensor) -> Spec:
    dim = wrap(dim, self.dim())
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype is not INT64 and index.dtype is not INT32:
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    if self.dim() == 0:
        if index.numel() != 1:
            raise RuntimeError("index_select(): Index to scalar can have only 1 value, got "
                               f"{index.numel()} value(s)")
        return (), self.dtype
    return tuple(self.shape[:dim]) + (index.numel(),) + tuple(self.shape[dim + 1:]), self.dtype


def _check_source(name: str, self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    dim = wrap(dim, self.dim())
    if index.dim() > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.dim()} with type: "
                         f"{word(index.dtype)} and size: {list(index.shape)}")
    if index.dtype is not INT64 and index.dtype is not INT32:
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {word(index.dtype)}")
    if self.dtype is not source.dtype:
        raise RuntimeError(f"{name}(): self ({word(self.dtype)}) and source ({word(source.dtype)}) must have the same "
                           "scalar type")
    if source.dim() and self.dim() and source.dim() != self.dim():
        if name == "index_add_":
            raise RuntimeError("source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                               f"self.shape = {list(self.shape)} source.shape = {list(source.shape)}")
        raise RuntimeError(f"{name}(): When source and destination are not scalars, their dimensionality must match. "
                           f"Source dimensionality ({source.dim()}), destination dimensionality ({self.dim()})")
    if self.dim() and not source.dim():
        raise RuntimeError("source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                           f"self.shape = {list(self.shape)} source.shape = []")
    count = source.size(dim) if source.dim() else 1
    if index.numel() != count:
        raise RuntimeError(f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
                           f"({count}), for dim: {dim}")
    without = [tuple(n for d, n in enumerate(x.shape) if d != dim) for x in (self, source)]
    if without[0] != without[1]:
        raise RuntimeError("source tensor shape must match self tensor shape, excluding the specified "
                           f"dimension. Got self.shape = {list(self.shape)} source.shape = {list(source.shape)}")


def _index_copy_rule(self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    wrap(dim, self.dim())
    if index.dim() > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.dim()})")
    if index.dtype is not INT64:
        raise RuntimeError("index_copy_(): Expected a long tensor for index, but got " + word(index.dtype))
    if self.dtype is not source.dtype:
        raise RuntimeError("index_copy_(): self and source expected to have the same dtype, but got (self) "
                           f"{word(self.dtype)} and (source) {word(source.dtype)}")
    count = index.numel()
    if source.dim() == 0 and count != 1:
        raise IndexError("index_copy_(): When source is scalar, index should have one element (got "
                         f"{count})")
    if source.dim() and self.dim() and source.dim() != self.dim():
        raise IndexError("index_copy_(): When source and destination are not scalars, their dimensionality must match. "
                         f"Source dimensionality ({source.dim()}), destination dimensionality ({self.dim()})")
    at = wrap(dim, self.dim())
    shapes = [tuple(n for d, n in enumerate(x.shape) if d != at) for x in (self, source)]
    if shapes[0] != shapes[1]:
        raise RuntimeError("index_copy_(): Source/destination tensor must have same slice shapes. Destination slice "
                           f"shape: {' '.join(map(str, shapes[0]))} at dimension {at} and source slice shape: "
                           f"{' '.join(map(str, shapes[1]))} at dimension 0.")
    if source.dim() and source.size(at) != count:
        raise IndexError(f"index_copy_(): Number of indices ({count}) should be equal to source.size(dim) "
                         f"({source.size(at)})")
    if count and not self.numel() and not self.is_meta and not _shape1(self)[at]:       # no kernel runs that would look
        raise IndexError(f"index_copy_(): index {index.reshape(-1)[0].item()} is out of bounds for dimension {at} with size 0")


def _index_fill_rule(self: Tensor, dim: int, index: Tensor, value: complex) -> None:
    wrap(dim, self.dim())
    if index.dtype is not INT64:
        raise IndexError("index_fill_(): Expected dtype int64 for index.")
    if isinstance(value, complex) and not self.is_complex():
        raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
    if index.dim() > 1:
        raise RuntimeError("Index has to be a vector/scalar")
    core._check_fits(value, self.dtype)
    if index.numel() and not self.is_meta and not _shape1(self)[wrap(dim, self.dim())]:
        raise IndexError(f"index {index.reshape(-1)[0].item()} is out of bounds for dimension {wrap(dim, self.dim())} "
                         "with size 0")


op("index_select(Tensor self, int dim, Tensor index) -> Tensor",
   out=("apart", "index_select(): self and result must have the same scalar type"),
   batch=batching_nn.selected, forward=forward.linear, rule=_index_select_rule,
   npu="aclnnIndexSelect(self, dim, index, out)",
   grad={"self": lambda g, self_shape, dim, index: g.new_zeros(self_shape).index_add(dim, index, g)})
op("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", out="apart",
   batch=batching.along_index, copies_self=True,
   inplace="method", rule=lambda self, dim, index, source, alpha: _check_source("index_add_", self, dim, index, source),
   npu="aclnnIndexAdd(self, dim, index, source, alpha, out)",
   grad={"self": lambda g: g, "source": lambda g, dim, index, source, alpha:
         (g.index_select(dim, index) * alpha).reshape(source.shape)})
op("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", out="apart",
   batch=batching.along_index, autocast={"cpu": "widest"},
   copies_self=True, inplace="method",
   rule=_index_copy_rule, npu="aclnnIndexCopy(self, dim, index, source, out)",
   grad={"self": lambda g, dim, index: g.index_fill(dim, index, 0),
         "source": lambda g, dim, index, source: g.index_select(dim, index).reshape(source.shape)})


@composite("index_fill.Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor", out=False, inplace="method")
def _index_fill_tensor(self: Tensor, dim: int, index: Tensor, value: Tensor) -> Tensor:
    """A copy of self with value at every index along dim."""
    if value.dim() != 0:
        raise RuntimeError("index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                           f"{value.dim()} dimension(s).")
    if not value.requires_grad and value.device.type == "cpu" and value._readable:
        return self.index_fill(dim, index, value.item())
    _index_fill_rule(self, dim, index, 1j if value.is_complex() else 0)
    dim, shape = wrap(dim, self.dim()), [1] * self.dim()
    filled = ops.zeros(_shape1(self)[dim:dim + 1], dtype=BOOL, device=self.device).index_fill(0, index, True)
    if shape:
        shape[dim] = -1
    return ops.where(filled.view(shape), value.to(self.dtype), self)


op("index_fill.Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
   batch=batching.along_index, out=False, copies_self=True, format="=self",
   rule=_index_fill_rule, guard="fill", npu="aclnnInplaceIndexFillTensor(out, dim, index, value)",
   grad={"self": lambda g, dim, index: g.index_fill(dim, index, 0)})


# ---- as if flat --------------------------------------------------------------------------------------------------
def _take_rule(self: Tensor, index: Tensor) -> Spec:
    if index.dtype is not INT64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {word(index.dtype)}")
    if self.numel() == 0 and index.numel():
        raise IndexError("take(): tried to take from an empty tensor")
    return index.shape, self.dtype


def _put_flat_rule(self: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> None:
    if index.dtype is not INT64:
        raise RuntimeError(f"put_(): Expected a long tensor for index, but got {word(index.dtype)}")
    if self.dtype is not source.dtype:
        raise RuntimeError("put_(): self and source expected to have the same dtype, but got self.dtype = "
                           f"{word(self.dtype)} and source.dtype = {word(source.dtype)}")
    if index.numel() != source.numel():
        raise IndexError("put_(): Expected source and index to have the same number of elements, but got "
                           f"source.numel() = {source.numel()}, index.numel() = {index.numel()}")
    if self.numel() == 0 and index.numel():
        raise IndexError("put_(): Tried to put elements into an empty tensor")


op("take(Tensor self, Tensor index) -> Tensor", lacks="complex32",
   out=("apart", "take(): self and out expected to have the same dtype, but got self.dtype = {result} and out.dtype = {out}"),
   batch=batching.take, rule=_take_rule, npu="aclnnTake(self, index, out)",
   grad={"self": lambda g, self, index: g.new_zeros(self.shape).put(index, g, True)})
op("_put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", out=False,
   copies_self=True, variants="", kernel="put", format="=self",
   rule=_put_flat_rule, npu="aclnnInplacePut(out, index, source, accumulate)",
   grad={"self": lambda g, index, accumulate: g if accumulate else g.put(index, ops.zeros_like(index, dtype=g.dtype)),
         "source": lambda g, index, source: g.take(index).reshape(source.shape)})


@composite("put_(Tensor(a!) self, Tensor index, Tensor source, bool accumulate=False) -> Tensor(a!)", variants="method", whole=True)
def _put_(self: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """Writes the items of source where the index says, as if self had one dim."""
    for t in (index, source):
        if t._readable and self._readable:
            _C._check_apart(self, t)
    return self.copy_(ops.put(self, index, source, accumulate))


@composite("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", out=False, whole=True)
def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool) -> Tensor:
    """A copy of self, as if it had one dim, with the items of source where the index says."""
    if not accumulate:
        _config.alert_not_deterministic("put_")
    return ops._put(self, index, source, accumulate)


@composite("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", out="exact")
def _take_along_dim(self: Tensor, indices: Tensor, dim: int | None) -> Tensor:
    """gather(), with self and indices broadcast against each other along the other dims."""
    if indices.dtype is not INT64 and (dim is not None or indices.dtype._name != "int32"):
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {word(indices.dtype)}")
    if dim is None:
        return self.reshape(-1).gather(0, indices.reshape(-1))
    if self.dim() != indices.dim():
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, but "
                           f"got {self.dim()} dimensions for input, and {indices.dim()} dimensions for indices")
    dim = wrap(dim, self.dim())
    shapes = [[1 if d == dim else n for d, n in enumerate(x.shape)] for x in (self, indices)]
    common = broadcast(shapes)
    if common is None:
        raise RuntimeError(f"The size of tensor a ({list(self.shape)}) must match the size of tensor b "
                           f"({list(indices.shape)}) apart from dimension {dim}")
    full = [common[:dim] + (x.size(dim),) + common[dim + 1:] for x in (self, indices)]
    return self.expand(full[0]).gather(dim, (indices % max(self.size(dim), 1)).expand(full[1]))
