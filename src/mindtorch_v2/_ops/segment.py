"""Rows of reductions over runs of neighbours, and of gathers whose masked indices may lie outside."""
from __future__ import annotations

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import alias, composite, ops

INT64 = _C._dtype_named("int64")
_START = dict(sum=0.0, mean=0.0, prod=1.0, max=float("-inf"), min=float("inf"))


def _lengths(data, lengths, offsets, axis, unsafe):
    """How long each segment is, checked where asked."""
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if offsets is not None:
        return offsets.diff(dim=-1)
    if axis != lengths.dim() - 1:
        raise RuntimeError(f"segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}.")
    if not unsafe:
        if bool((lengths < 0).any()):
            raise RuntimeError("lengths contains negative value!")
        if not bool((lengths.sum(-1) == data.size(axis)).all()):
            raise RuntimeError("segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) "
                               "when !unsafe.")
    return lengths


@composite("segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, "
           "int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor", variants="function")
def _segment_reduce(data, reduce, lengths, indices, offsets, axis, unsafe, initial):
    """Each run of `lengths` neighbours along an axis as one value: their sum, mean, product, largest or smallest."""
    if reduce not in _START:
        raise RuntimeError(f"unsupported reduction given! {reduce}")
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet.")
    axis = axis + data.dim() if axis < 0 else axis
    size = _lengths(data, lengths, offsets, axis, unsafe).to(INT64)
    shape = (*data.shape[:axis], size.size(-1) + 1, *data.shape[axis + 1:])      # one more for what no segment has
    made = ops.full(shape, _START[reduce] if initial is None else initial, dtype=data.dtype, device=data.device)
    if data.numel():
        places = ops.arange(data.size(axis), device=data.device).expand(data.shape[:axis + 1])
        where = ops.searchsorted(size.cumsum(-1).contiguous(), places.contiguous(), right=True)
        where = where.reshape((*where.shape, *(1,) * (data.dim() - axis - 1))).expand(data.shape)
        how = "sum" if reduce == "mean" else "a" + reduce if reduce in ("max", "min") else reduce
        made = made.scatter_reduce(axis, where, data, how, include_self=True)
    made = made.narrow(axis, 0, size.size(-1))
    if reduce != "mean":
        return made
    count = size.reshape((*size.shape, *(1,) * (data.dim() - axis - 1)))
    empty = made if initial is not None else float("nan")
    return ops.where(count > 0, made / ops.where(count > 0, count, 1), empty)


alias("_segment_reduce", "segment_reduce", "function")


def _inside(self, indices):
    """Indices moved to the nearest item that exists."""
    return [i if i is None else i.clamp(-self.size(d), self.size(d) - 1) for d, i in enumerate(indices)]


@composite("_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor", variants="function")
def _unsafe_masked_index(self, mask, indices, fill):
    """self[indices] where the mask is true, fill elsewhere; there an index may lie outside."""
    if self.numel() == 0:
        return ops.full(self[_broadcast_only(self, indices)].shape, fill, dtype=self.dtype, device=self.device)
    return self[tuple(slice(None) if i is None else i for i in _inside(self, indices))].masked_fill(mask.logical_not(), fill)


def _broadcast_only(self, indices):
    return tuple(slice(None) if i is None else i.new_zeros(i.shape) for i in indices)


@composite("_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor",
           variants="function")
def _unsafe_masked_index_put_accumulate(self, mask, indices, values):
    """self with values added at the indices where the mask is true."""
    if self.numel() == 0:
        return self.clone()
    return self.index_put(_inside(self, indices), values.masked_fill(mask.logical_not(), 0), accumulate=True)
