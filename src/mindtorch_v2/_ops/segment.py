"""Rows of reductions over runs of neighbours, and of gathers whose masked indices may lie outside."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import forward
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

INT32, INT64 = _C._dtype_named("int32"), _C._dtype_named("int64")
_START = dict(sum=0.0, mean=0.0, prod=1.0, max=float("-inf"), min=float("inf"))
_EXTREMES = {"a" + name: name for name in ("max", "min")}
_SCATTERED = {"mean": "sum"} | {name: scattered for scattered, name in _EXTREMES.items()}   # as scatter_reduce names them


def _offsets(data: Tensor, lengths: Any, offsets: Tensor | None, axis: int, unsafe: bool) -> Tensor:
    """Where each segment begins, and the last one ends; checked as torch does, and that every row of data has them."""
    given, which = (lengths, "lengths") if offsets is None else (offsets, "offsets")
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if axis != given.dim() - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of {which} but got {axis}.")
    if tuple(given.shape[:-1]) != tuple(data.shape[:axis]):
        raise RuntimeError(f"segment_reduce(): expected {which} for every row of data, {list(data.shape[:axis])}, got those of "
                           f"{list(given.shape[:-1])}")
    if given.dtype is not INT64 and given.dtype is not INT32:
        raise NotImplementedError(f'"segment_reduce" not implemented for \'{_C.TYPE_WORDS[given.dtype._id]}\'')
    if offsets is not None:
        if not offsets.size(-1):
            raise RuntimeError("segment_reduce(): expected an offset for the end of the last segment, got none")
        return offsets.to(INT64)
    if not unsafe:
        if (lengths < 0).any()._known():
            raise RuntimeError("lengths contains negative value!")
        if (lengths.sum(-1) != data.size(axis)).any()._known():
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) "
                               "when !unsafe.")
    ends = lengths.to(INT64).cumsum(-1)
    return ops.cat([ends.new_zeros((*ends.shape[:-1], 1)), ends], -1)


class _Segments:
    """Which segment every item of data is in; one behind the last has the items that are in none."""

    def __init__(self, data: Tensor, offsets: Tensor, axis: int) -> None:
        self.axis, self.count = axis, offsets.size(-1) - 1
        self.shape = (*data.shape[:axis], self.count + 1, *data.shape[axis + 1:])
        places = ops.arange(data.size(axis), device=data.device).expand(data.shape[:axis + 1]).contiguous()
        where = ops.searchsorted(offsets.narrow(-1, 1, self.count).contiguous(), places, right=True)
        where = ops.where(places < offsets.narrow(-1, 0, 1), self.count, where)
        self.where = where.reshape((*where.shape, *(1,) * (data.dim() - axis - 1))).expand(data.shape)
        self.outside = self.where == self.count
        sizes = offsets.diff(dim=-1)
        self.sizes = sizes.reshape((*sizes.shape, *(1,) * (data.dim() - sizes.dim())))

    def reduced(self, data: Tensor, how: str, start: float) -> Tensor:
        """What the items of each segment come to."""
        made = ops.full(self.shape, start, dtype=data.dtype, device=data.device)
        if data.numel():
            made = made.scatter_reduce(self.axis, self.where, data, how, include_self=True)
        return made.narrow(self.axis, 0, self.count)

    def __call__(self, x: Tensor) -> Tensor:
        """For every item that of x which belongs to its segment; 0 for an item in none."""
        outside = x.new_zeros((*x.shape[:self.axis], 1, *x.shape[self.axis + 1:]))
        return ops.cat([x, outside], self.axis).gather(self.axis, self.where)


def _run(outs: tuple[Tensor, ...], args: tuple[Tensor, Tensor, str, int, int | None]) -> None:
    data, offsets, reduce, axis, initial = args
    segments = _Segments(data.detach(), offsets, axis)
    made = segments.reduced(data.detach(), _SCATTERED.get(reduce, reduce), _START[reduce] if initial is None else initial)
    if reduce == "mean":
        sizes = segments.sizes
        made = ops.where(sizes > 0, made / ops.where(sizes > 0, sizes, 1), made if initial is not None else float("nan"))
    outs[0].copy_(made)


def _run_rule(data: Tensor, offsets: Tensor, reduce: str, axis: int, initial: float | None) -> Spec:
    return (*data.shape[:axis], offsets.size(-1) - 1, *data.shape[axis + 1:]), data.dtype


def _sum_slope(g: Tensor, data: Tensor, segment: Any, result: Tensor, reduce: str, initial: int) -> Tensor:
    return segment(g)


def _mean_slope(g: Tensor, data: Tensor, segment: Any, result: Tensor, reduce: Any, initial: Any) -> Any:
    return segment(g / ops.where(segment.sizes > 0, segment.sizes, 1))


def _product_slope(g: Tensor, data: Tensor, segment: Any, result: Tensor, reduce: Any, initial: Any) -> Any:
    """By an item that is 0 or NaN a product cannot be divided: its slope is the product of the others in the segment."""
    zero, nan = data == 0, data.isnan()
    alone = zero | nan
    others = segment(segment.reduced(ops.where(alone, 1, data), reduce, _START[reduce] if initial is None else initial))
    zeros, nans = (segment(segment.reduced(which.to(data.dtype), "sum", 0.0)) - which.to(data.dtype) for which in (zero, nan))
    others = ops.where(nans > 0, float("nan"), ops.where(zeros > 0, 0, others))
    return ops.where(segment.outside, 0, segment(g) * ops.where(alone, others, segment(result) / ops.where(alone, 1, data)))


def _extreme_slope(g: Tensor, data: Tensor, segment: Any, result: Tensor, reduce: str, initial: int) -> Tensor:
    """In equal parts to the items that have the extreme's value."""
    whole = segment(result)
    equal = ((data == whole) | data.isnan() & whole.isnan()) & ~segment.outside
    alike = segment(segment.reduced(equal.to(data.dtype), "sum", 0.0))
    return ops.where(equal, segment(g) / ops.where(equal, alike, 1), 0)


_SLOPES = dict(sum=_sum_slope, mean=_mean_slope, prod=_product_slope, max=_extreme_slope, min=_extreme_slope)


def _run_grad(g: Tensor, data: Tensor, offsets: Tensor, reduce: str, axis: int, initial: float | None,
              result: Tensor) -> Tensor:
    return _SLOPES[reduce](g, data, _Segments(data, offsets, axis), result, reduce, initial)


op("_segment_run(Tensor data, Tensor offsets, str reduce, int axis, Scalar? initial) -> Tensor", variants="", kernel=_run,
   rule=_run_rule, grad={"data": _run_grad})


def _segment_reduce(data: Tensor, reduce: str, lengths: Tensor | None, indices: Tensor | None, offsets: Tensor | None,
                    axis: int, unsafe: bool, initial: float | None) -> Tensor:
    """Each run of `lengths` neighbours along an axis as one value: their sum, mean, product, largest or smallest."""
    axis = wrap(axis, data.dim())
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    offsets = _offsets(data, lengths, offsets, axis, unsafe)
    reduce = _EXTREMES.get(reduce, reduce)
    if reduce not in _START:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if not data.is_floating_point():
        raise NotImplementedError(f'"_segment_reduce_cpu" not implemented for \'{_C.TYPE_WORDS[data.dtype._id]}\'')
    return ops._segment_run(data, offsets, reduce, axis, initial)


for _name in ("segment_reduce", "_segment_reduce"):
    op(f"{_name}(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, "
       "bool unsafe=False, Scalar? initial=None) -> Tensor", variants="function", out=False,
       forward=forward.refused(_name), body=_segment_reduce)


def _inside(self: Tensor, indices: tuple[Tensor, ...]) -> list[Tensor]:
    """Indices moved to the nearest item that exists."""
    return [i if i is None else i.clamp(-self.size(d), self.size(d) - 1) for d, i in enumerate(indices)]


@composite("_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor",
           out=False, variants="function")
def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: tuple[Tensor, ...], fill: complex) -> Tensor:
    """self[indices] where the mask is true, fill elsewhere; there an index may lie outside."""
    if self.numel() == 0:
        return ops.full(_indexed_shape(self, indices), fill, dtype=self.dtype, device=self.device) + self.sum()
    return self[tuple(slice(None) if i is None else i for i in _inside(self, indices))].masked_fill(mask.logical_not(), fill)


def _indexed_shape(self: Tensor, indices: Any) -> Any:
    """The shape of self[indices], of a tensor without items in which every index would be out of range."""
    chosen = [i is not None for i in indices] + [False] * (self.dim() - len(indices))
    one = ops.empty([1 if c else n for c, n in zip(chosen, self.shape)], device=self.device)
    return one[tuple(slice(None) if i is None else i.new_zeros(i.shape) for i in indices)].shape


@composite("_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
           out=False,
           variants="function")
def _unsafe_masked_index_put_accumulate(self: Tensor, mask: Tensor, indices: tuple[Tensor, ...],
                                        values: Tensor) -> Tensor:
    """self with values added at the indices where the mask is true."""
    if self.numel() == 0:
        return self.clone()
    return self.index_put(_inside(self, indices), values.masked_fill(mask.logical_not(), 0), accumulate=True)
