"""Rows of ordering: sort, topk, medians and modes, unique, and searches in what is sorted."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.index import INT32
from mindtorch_v2._ops.reduce import (
    BOOL,
    INT64,
    _shared,
    is_float,
    picked,
    reduced,
    refuse_complex,
    refuse_empty,
    word,
)
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor


# ---- sort --------------------------------------------------------------------------------------------------------
def _sort_rule(self: Tensor, dim: int, descending: bool, stable: bool | None) -> Sequence[Spec]:
    wrap(dim, self.dim())
    if self.is_complex():
        raise RuntimeError(" Sort does not support complex dtypes on CPU")
    return [(self.shape, self.dtype), (self.shape, INT64)]


def _topk_rule(self: Tensor, k: int, dim: int, largest: bool, sorted: bool) -> Sequence[Spec]:
    dim = wrap(dim, self.dim())
    size = self.size(dim) if self.dim() else 1
    if not 0 <= k <= size:
        raise RuntimeError("selected index k out of range")
    if self.is_complex() or self.dtype is BOOL:
        raise RuntimeError("topk does not support bool dtypes on CPU" if self.dtype is BOOL else
                           " topk does not support complex dtypes on CPU")
    shape = tuple(k if d == dim else n for d, n in enumerate(self.shape))
    return [(shape, self.dtype), (shape, INT64)]


def _kthvalue_rule(self: Tensor, k: int, dim: int, keepdim: bool) -> Sequence[Spec]:
    refuse_complex("kthvalue_cpu", self)
    shape = reduced(self.shape, dim, keepdim)
    refuse_empty("kthvalue", self, dim)
    if not 1 <= k <= (self.size(dim) if self.dim() else 1):
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {wrap(dim, self.dim())}")
    return [(shape, self.dtype), (shape, INT64)]


def _sorted_grad(g: Tensor, shape: tuple[int, ...], dim: int, indices: Tensor) -> Tensor:
    return picked(g, shape, dim, True, indices)


op("sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None) -> (Tensor values, Tensor indices)",
   batch=batching.dims, format="=self",
   rule=_sort_rule, npu="aclnnSort(self, stable=False, dim, descending, values, indices)",
   grad={"self": lambda g, self_shape, dim, result1: _sorted_grad(g, self_shape, dim, result1)})
op("topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
   batch=batching.dims,
   rule=_topk_rule, npu="aclnnTopk(self, k, dim, largest, sorted, values, indices)",
   grad={"self": lambda g, self_shape, dim, result1: _sorted_grad(g, self_shape, dim, result1)})
op("kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)", out="apart",
   batch=batching.dims,
   rule=_kthvalue_rule, npu="aclnnKthvalue(self, k, dim, keepdim, values, indices)",
   grad={"self": lambda g, self_shape, dim, keepdim, result1: picked(g, self_shape, dim, keepdim, result1)})


def _argsort_rule(self: Tensor, dim: int, descending: bool) -> Any:
    """CANN's op says nothing of the order of equal items."""
    wrap(dim, self.dim())
    return None if self.dim() == 0 else (self.shape, INT64)


@composite("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", out=False,
           npu="aclnnArgsort(self, dim, descending, out)", rule=_argsort_rule)
def _argsort(self: Tensor, dim: int, descending: bool) -> Tensor:
    """The indices that sort self along dim."""
    return ops.sort(self.detach(), dim, descending)[1]


@composite("argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor")
def _argsort_stable(self: Tensor, stable: bool, dim: int, descending: bool) -> Tensor:
    return ops.sort(self.detach(), dim, descending, stable=stable)[1]


@composite("msort(Tensor self) -> Tensor", out="exact")
def _msort(self: Tensor) -> Tensor:
    """self sorted along its first dim."""
    return ops.sort(self, 0)[0]


# ---- middle and most frequent ------------------------------------------------------------------------------------
def _middle_rule(self: Tensor) -> Spec:
    if self.is_complex() or self.dtype is BOOL:
        raise NotImplementedError(f'"median_cpu" not implemented for \'{word(self.dtype)}\'')
    return (), self.dtype


def _middle_dim_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int, keepdim: bool = False) -> Sequence[Spec]:
        refuse_complex(name, self)
        shape = reduced(self.shape, dim, keepdim)
        refuse_empty(name.removesuffix("_cpu"), self, dim)
        return [(shape, self.dtype), (shape, INT64)]
    return rule


for _name, _camel in (("median", "Median"), ("nanmedian", "NanMedian")):
    op(f"_{_name}(Tensor self) -> Tensor", batch=batching.flat_or_dims, rule=_middle_rule, kernel=_name, variants="",
       npu=f"aclnn{_camel}(self, out)",
       grad={"self": lambda g, self, result: _shared(g, self, None, False, result)})

    def _middle(self: Tensor, _kernel: _C.Op = getattr(ops, "_" + _name)) -> Tensor:
        if self.numel():
            return _kernel(self)
        return ops.full((), math.nan if is_float(self.dtype) else -2 ** 63, device=self.device).to(self.dtype)

    op(f"{_name}(Tensor self) -> Tensor", out=False, body=_middle)
    op(f"{_name}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
       batch=batching.dims,
       kernel=_name + "_dim", rule=_middle_dim_rule(_name),
       npu=f"aclnn{_camel}Dim(self, dim, keepdim, values, indices)",
       grad={"self": lambda g, self_shape, dim, keepdim, result1: picked(g, self_shape, dim, keepdim, result1)})
ops.median.doc = "The middle item, the lower of two; NaN if any is. With dim, also where it stands."
ops.nanmedian.doc = "The middle item of those that are not NaN. With dim, also where it stands."
op("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
   batch=batching.dims, kernel="mode_dim",
   rule=_middle_dim_rule("mode_cpu"),
   grad={"self": lambda g, self_shape, dim, keepdim, result1: picked(g, self_shape, dim, keepdim, result1)})


# ---- unique ------------------------------------------------------------------------------------------------------
op("_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> "
   "(Tensor, Tensor, Tensor)", variants="function", forward=forward.refused("_unique2"), batch=batching.dynamic)
op("_unique_runs(Tensor self, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
   variants="")
op("_unique_slices(Tensor self, int dim, bool consecutive) -> (Tensor, Tensor, Tensor)", variants="")  # on the npu only
op("_order_rows(Tensor self) -> Tensor", variants="", rule=lambda self: ((self.size(0),), INT64))


def _wanted(found: tuple[Tensor, ...], return_inverse: bool, return_counts: bool) -> Tensor | tuple[Tensor, ...]:
    """One tensor, or a tuple of those that were asked for."""
    values, inverse, counts = found
    results = (values,) + ((inverse,) if return_inverse else ()) + ((counts,) if return_counts else ())
    return results[0] if len(results) == 1 else results


@composite("unique(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None) "
           "-> Tensor", out=False)
def _unique(self: Tensor, sorted: bool, return_inverse: bool, return_counts: bool,
            dim: int | None) -> Tensor | tuple[Tensor, ...]:
    """The distinct items (or slices along dim), on request with each item's place among them and their counts."""
    if dim is None:
        found = ops._unique2(self.detach(), True, return_inverse, return_counts)
    else:
        found = ops.unique_dim(self.detach(), dim, True, return_inverse, return_counts)
    return _wanted(found, return_inverse, return_counts)


@composite("unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) "
           "-> Tensor", out=False, batch=batching.dynamic)
def _unique_consecutive(self: Tensor, return_inverse: bool, return_counts: bool,
                        dim: int | None) -> Tensor | tuple[Tensor, ...]:
    """The first of each run of equal items (or slices along dim)."""
    if dim is None:
        found = ops._unique_runs(self.detach(), return_inverse, return_counts)
    elif _has_slices(self):
        found = ops._unique_slices(self.detach(), wrap(dim, self.dim()), True)
    else:
        _check_dims(self, dim)
        rows = _slices(self.detach(), dim)
        found = _runs(self.detach(), dim, rows, None)
    return _wanted(found, return_inverse, return_counts)


def _check_dims(self: Tensor, dim: int) -> None:
    if not self.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")


def _has_slices(self: Tensor) -> bool:
    """Whether CANN finds the distinct slices in one op."""
    return self.is_npu and self.dim() > 0 and self.numel() > 0 and not self.is_complex()


def _slices(self: Tensor, dim: int) -> Tensor:
    """The slices along dim, each as one row."""
    wrap(dim, self.dim())
    if self.dim() == 0:
        return self.reshape(1, 1)
    n = self.size(dim)
    if self.numel() == 0 and any(size == 0 for d, size in enumerate(self.shape) if d != dim % self.dim()):
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")
    first = self.unsqueeze(0).transpose(0, dim % self.dim() + 1)
    return first.reshape(n, self.numel() // n if n else 0)


def _runs(self: Tensor, dim: int, rows: Tensor, order: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Runs of equal rows; order says where each row stood."""
    n, device = rows.size(0), self.device
    if n == 0:
        none = ops.empty((0,), dtype=INT64, device=device)
        return self.clone(), none, none.clone()
    new = ops.cat([ops.zeros((1,), dtype=INT64, device=device), (rows[1:] != rows[:-1]).any(1).to(INT64)])
    place = new.cumsum(0)
    starts = ops.cat([ops.zeros((1,), dtype=INT64, device=device), ops._nonzero(new).reshape(-1)])
    counts = ops.cat([starts[1:], ops.full((1,), n, dtype=INT64, device=device)]) - starts
    inverse = place if order is None else ops.empty_like(place).scatter(0, order, place)
    first = starts if order is None else order.index_select(0, starts)
    found = self.movedim(dim, 0).index_select(0, first).movedim(0, dim) if self.dim() else self.reshape(1)
    return found, inverse, counts


@composite("unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) "
           "-> (Tensor, Tensor, Tensor)", variants="")
def _unique_dim(self: Tensor, dim: int, sorted: bool, return_inverse: bool,
                return_counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct slices along dim, in lexicographic order."""
    if _has_slices(self):
        return ops._unique_slices(self.detach(), wrap(dim, self.dim()), False)
    _check_dims(self, dim)
    rows = _slices(self, dim)
    order = ops._order_rows(rows) if rows.numel() else ops.arange(rows.size(0), device=self.device)
    return _runs(self, dim, rows.index_select(0, order), order)


# ---- searches ----------------------------------------------------------------------------------------------------
op("_searchsorted(Tensor sorted_sequence, Tensor values, Tensor? sorter, bool right, bool out_int32) -> Tensor",
   batch=batching_nn.searched,
   kernel="searchsorted", variants="",
   rule=lambda sorted_sequence, values, sorter, right, out_int32: (values.shape, INT32 if out_int32 else INT64),
   npu="aclnnSearchSorted(sorted_sequence, values, out_int32, right, sorter, out)")


def _search(sequence: Tensor, values: Tensor, sorter: Tensor | None, right: bool, out_int32: bool) -> Tensor:
    for name, tensor in (("boundary", sequence), ("input value", values), ("sorter", sorter)):
        if tensor is not None and not tensor.is_contiguous():
            _config.warn_once(f"torch.searchsorted(): {name} tensor is non-contiguous, this will lower the performance due to "
                              f"extra data copy when converting non-contiguous tensor to contiguous, please use contiguous {name} "
                              "tensor if possible. This message will only appear once per program.")
    for tensor in (sequence, values):
        refuse_complex("searchsorted_out_cpu", tensor)
    if sequence.dtype is not values.dtype:
        common = ops.result_type(sequence, values)
        sequence, values = sequence.to(common), values.to(common)
    return ops._searchsorted(sequence, values, sorter, right, out_int32)


def _check_search(sequence: Tensor, values: Tensor, right: bool, side: str | None, sorter: Tensor | None) -> None:
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while "
                           "right was True")
    if sequence.dim() == 0:
        raise RuntimeError("torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension")
    if sequence.dim() > 1 and tuple(sequence.shape[:-1]) != tuple(values.shape[:-1]) or \
            sequence.dim() > 1 and values.dim() != sequence.dim():
        raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                           "dimensions of boundaries tensor and input value tensor must match, but we got "
                           f"boundaries tensor {list(sequence.shape)} and input value tensor {list(values.shape)}")
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise RuntimeError("torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
                               f"tensor {list(sequence.shape)}and got sorter tensor {list(sorter.shape)}")
        if sorter.dtype is not INT64:
            raise RuntimeError(f"torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
                               f"{word(sorter.dtype)}")


def _into_places(out: Tensor, sorted_sequence: Tensor, self: Any, out_int32: bool, *rest: Any) -> Tensor:
    """What serves out= of searchsorted."""
    if out.dtype is not (INT32 if out_int32 else INT64):
        raise RuntimeError("torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) "
                           f"depending on whether out_int32 flag is True, but we got output tensor's dtype {word(out.dtype)} "
                           f"and out_int32 flag is {out_int32}")
    right, side, sorter = rest
    return ops.searchsorted(sorted_sequence, self, out_int32=out_int32, right=right, side=side, sorter=sorter)


@composite("searchsorted(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, "
           "str? side=None, Tensor? sorter=None) -> Tensor", variants="function", out=_into_places)
def _searchsorted(sorted_sequence: Tensor, self: Tensor, out_int32: bool, right: bool, side: str | None,
                  sorter: Tensor | None) -> Tensor:
    """Where each value would be inserted to keep the sequence (along its last dim) sorted."""
    _check_search(sorted_sequence, self, right, side, sorter)
    return _search(sorted_sequence.detach(), self.detach(), sorter, right or side == "right", out_int32)


@composite("searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, "
           "str? side=None, Tensor? sorter=None) -> Tensor", variants="function", out=_into_places)
def _searchsorted_number(sorted_sequence: Tensor, self: float, out_int32: bool, right: bool, side: str | None,
                         sorter: Tensor | None) -> Tensor:
    if sorted_sequence.dim() != 1:
        raise RuntimeError("torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension "
                           f"is 1, but we got boundaries tensor dim({sorted_sequence.dim()}) and input value's dim(0) numel(1)")
    value = _like_number(self, sorted_sequence)
    return ops.searchsorted(sorted_sequence, value, out_int32=out_int32, right=right, side=side, sorter=sorter)


def _like_number(number: float, tensor: Tensor) -> Tensor:
    """A number as a 0-dim tensor, of the other tensor's dtype where that can hold it."""
    whole = isinstance(number, int) or is_float(tensor.dtype)
    return ops.scalar_tensor(number, dtype=tensor.dtype if whole else _C.get_default_dtype(), device=tensor.device)


@composite("bucketize(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
           variants="function")
def _bucketize(self: Tensor, boundaries: Tensor, out_int32: bool, right: bool) -> Tensor:
    """The number of the bucket between boundaries that each value falls into."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")
    return _search(boundaries.detach(), self.detach(), None, right, out_int32)


@composite("bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
           variants="function")
def _bucketize_number(self: float, boundaries: Tensor, out_int32: bool, right: bool) -> Tensor:
    return ops.bucketize(_like_number(self, boundaries), boundaries, out_int32=out_int32, right=right)


_FEW = 16                                        # test items up to which comparing all pairs is faster


@composite("isin(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
           variants="function", numbers=True, out="exact")
def _isin(elements: Tensor, test_elements: Tensor, assume_unique: bool, invert: bool) -> Tensor:
    """Where an item is among the test elements."""
    if not hasattr(elements, "dtype") and not hasattr(test_elements, "dtype"):
        raise TypeError("isin() received an invalid combination of arguments - got (Number, Number), but expected one of them to "
                        "be a Tensor")
    for tensor in (elements, test_elements):
        if hasattr(tensor, "dtype") and (tensor.is_complex() or tensor.dtype._name == "bool"):
            raise RuntimeError(f"Unsupported input type encountered for isin(): {word(tensor.dtype)}")
    if not hasattr(test_elements, "dtype"):
        return elements != test_elements if invert else elements == test_elements
    if not hasattr(elements, "dtype"):
        found = (test_elements == elements).any()
        return ~found if invert else found
    tests = test_elements.detach().reshape(-1)
    if tests.numel() <= _FEW or elements.dtype is BOOL or tests.dtype is BOOL:
        found = (elements.unsqueeze(-1) == tests).any(-1) if tests.numel() else \
            ops.zeros(elements.shape, dtype=BOOL, device=elements.device)
    else:
        common = ops.result_type(elements, tests)
        tests, values = tests.to(common), elements.detach().to(common)
        ordered = ops.sort(tests, 0)[0]
        if common.is_floating_point:             # a search takes NaN, which is last and equals nothing, for small
            ordered = ordered.masked_fill(ordered.isnan(), math.inf)
        last = (tests == tests).sum() - 1        # what is at or before it is a number; of none the first is taken
        place = ops.minimum(ops._searchsorted(ordered, values, None, False, False), last.clamp(min=0))
        found = (ordered.take(place) == values) & (last >= 0)
    return ~found if invert else found
