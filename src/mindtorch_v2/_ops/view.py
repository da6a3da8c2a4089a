"""Rows of the view ops: the same memory in another shape; and their relatives that copy only when they must."""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.table import alias, composite, op, ops
from mindtorch_v2._shape import Size
from mindtorch_v2._tensor import Tensor

_CONTIGUOUS = _C._named_constant("contiguous_format")

_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
_VIEW_BYTES = 256                      # of one more view of a tensor, or a little more

op("view(Tensor(a) self, SymInt[] size) -> Tensor(a)", batch=batching.resized, view="view", variants="method",
   grad={"self": lambda g, self_shape: g.reshape(self_shape)})
op("view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
   batch=batching.as_it_is, view="view_dtype", variants="method", grad={})
op("alias(Tensor(a) self) -> Tensor(a)",
   batch=batching.as_it_is, view="alias", variants="", grad={"self": lambda g: g})
op("detach(Tensor(a) self) -> Tensor(a)", batch=batching.as_it_is, out=False, view="detach")
op("transpose(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
   batch=batching.transposed, out=False, view="transpose",
   grad={"self": lambda g, dim0, dim1: g.transpose(dim0, dim1)})
alias("swapdims", "transpose")
op("t(Tensor(a) self) -> Tensor(a)",
   batch=batching.matrix_transposed, out=False, view="t", grad={"self": lambda g: g.t()})
op("permute(Tensor(a) self, int[] dims) -> Tensor(a)", batch=batching.permuted, out=False, view="permute",
   grad={"self": lambda g, dims: g.permute(_inverse(dims))})
op("expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
   batch=batching.expanded, view="expand", variants="method",
   grad={"self": lambda g: g})   # the engine sums what was expanded
op("squeeze(Tensor(a) self) -> Tensor(a)", batch=batching.squeezed, out=False, view="squeeze",
   grad={"self": lambda g, self_shape: g.reshape(self_shape)})
op("squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", batch=batching.squeezed, out=False, view="squeeze_dim",
   grad={"self": lambda g, self_shape: g.reshape(self_shape)})
op("squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", batch=batching.squeezed, out=False, view="squeeze_dim",
   grad={"self": lambda g, self_shape: g.reshape(self_shape)})
op("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", batch=batching.unsqueezed, out=False, view="unsqueeze",
   grad={"self": lambda g, self_shape: g.reshape(self_shape)})
op("select(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", batch=batching.along, out=False, view="select",
   grad={"self": lambda g, self_shape, dim, index: ops.select_backward(g, self_shape, dim, index)})
op("slice(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
   batch=batching.along,
   view="slice", variants="",
   grad={"self": lambda g, self_shape, dim, start, end, step: ops.slice_backward(g, self_shape, dim, start, end, step)})
op("as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
   batch=batching.strided, out=False,
   view="as_strided",
   grad={"self": lambda g, self_geometry, size, stride, storage_offset:
         _as_strided_grad(g, self_geometry, size, stride, storage_offset)})
op("unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
   batch=batching.windows, view="unfold", variants="method",
   grad={"self": lambda g, self_shape, dimension, size, step:
         ops.unfold_backward(g, self_shape, dimension, size, step)})
op("diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
   batch=batching.between, out=False, view="diagonal",
   grad={"self": lambda g, self_shape, offset, dim1, dim2: _diagonal_grad(g, self_shape, offset, dim1, dim2)})
op("view_as_real(Tensor(a) self) -> Tensor(a)",
   batch=batching.as_it_is, out=False, view="view_as_real", variants="function",
   grad={"self": lambda g: ops.view_as_complex(g.clone(memory_format=_CONTIGUOUS))})   # a dim of size 1 has any stride
op("view_as_complex(Tensor(a) self) -> Tensor(a)", batch=batching.as_it_is, autocast={"cpu": "float32"}, out=False,
   view="view_as_complex", variants="function",
   grad={"self": lambda g: ops.view_as_real(g)})
op("_conj(Tensor(a) self) -> Tensor(a)", batch=batching.as_it_is, out=False, view="conj",
   grad={"self": lambda g: ops.conj_physical(g)})
op("_neg_view(Tensor(a) self) -> Tensor(a)", batch=batching.as_it_is, out=False, view="neg_view",
   grad={"self": lambda g: -g})


def _inverse(dims: Sequence[int]) -> list[int]:
    order = [0] * len(dims)
    for i, d in enumerate(dims):
        order[d] = i
    return order


@composite("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor", variants="", out=False,
           whole=True, rule=lambda grad_output, input_sizes, dim, index: (input_sizes, grad_output.dtype),
           grad={"grad_output": lambda g, dim, index: g.select(dim, index)})
def _select_backward(grad_output: Tensor, input_sizes: tuple[int, ...], dim: int, index: int) -> Tensor:
    whole = grad_output.new_zeros(input_sizes)
    return _fill(whole.select(dim, index), grad_output, whole)


@composite("slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt? start, SymInt? end, SymInt step) -> Tensor",
           variants="", out=False, whole=True,
           rule=lambda grad_output, input_sizes, dim, start, end, step: (input_sizes, grad_output.dtype),
           grad={"grad_output": lambda g, dim, start, end, step: ops.slice(g, dim, start, end, step)})
def _slice_backward(grad_output: Tensor, input_sizes: tuple[int, ...], dim: int, start: int | None, end: int | None,
                    step: int) -> Tensor:
    whole = grad_output.new_zeros(input_sizes)
    return _fill(ops.slice(whole, dim, start, end, step), grad_output, whole)


def _diagonal_grad(g: Tensor, shape: tuple[int, ...], offset: int, dim1: int, dim2: int) -> Tensor:
    whole = g.new_zeros(shape)
    if g.requires_grad:
        return whole.diagonal_scatter(g, offset, dim1, dim2)
    return _fill(whole.diagonal(offset, dim1, dim2), g, whole)


def _fill(place: Tensor, value: Tensor, whole: Tensor) -> Tensor:
    place.copy_(value)
    return whole


def _as_strided_grad(g: Tensor, geometry: tuple[tuple[int, ...], tuple[int, ...], int], size: tuple[int, ...],
                     stride: tuple[int, ...], offset: int | None) -> Tensor:
    """Adds g to the places it was read from; self's own places may overlap, which is refused as ambiguous."""
    shape, strides, start = geometry
    offset = start if offset is None else offset
    low = min(offset, start)
    reach = max(_reach(size, stride, offset), _reach(shape, strides, start), low)
    flat = g.new_zeros((reach - low,))
    places = ops.arange(reach - low, device=g.device)
    index = places.as_strided(size, stride, offset - low).reshape(-1)
    flat = flat.index_add(0, index, g.reshape(-1))
    return flat.as_strided(shape, strides, start - low)


def _reach(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> int:
    return 0 if 0 in size else offset + sum((n - 1) * s for n, s in zip(size, stride)) + 1


# ---- copies when they must ---------------------------------------------------------------------------------------
op("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)",
   batch=batching.reshape, forward=forward.linear, out=False, native="reshape")
op("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
   batch=batching.cloned, forward=forward.linear, out=False,
   native="clone", grad={"self": lambda g: g})
op("_lazy_clone(Tensor self) -> Tensor",
   batch=batching.leading, forward=forward.linear, out=False, native="_lazy_clone", grad={"self": lambda g: g},
   doc="A copy that is made when this tensor or the copy is first written to; until then both read the same memory. "
       "On an npu, and where others may write to the memory (NumPy, other processes), it is made at once.")
op("contiguous(Tensor(a) self, *, MemoryFormat? memory_format=None) -> Tensor(a)", out=False,
   batch=batching.contiguous, forward=forward.linear, native="contiguous",
   variants="method")
op("_to_copy(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
   "bool non_blocking=False, MemoryFormat? memory_format=None) -> Tensor",
   batch=batching.leading, forward=forward.linear, native="_to_copy", variants="",
   grad={"self": lambda g, self_dtype, self_device: g.to(self_device, self_dtype)})
op("copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
   batch=batching_nn.copied, native="copy", variants="method",
   npu="aclnnInplaceCopy(self, src)", numbers=True, grad={"self": lambda g: ops.zeros_like(g), "src": lambda g: g})
op("zero_(Tensor(a!) self) -> Tensor(a!)", batch=batching.leading, native="zero_", npu="aclnnInplaceZero(self)",
   grad={"self": lambda g: ops.zeros_like(g)})


@composite("view_as(Tensor(a) self, Tensor other) -> Tensor(a)", variants="method")
def _view_as(self: Tensor, other: Tensor) -> Tensor:
    return self.view(other.shape)


@composite("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)", variants="method")
def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    return self.reshape(other.shape)


@composite("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", variants="method")
def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    return self.expand(other.shape)


@composite("flatten(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)", out=False)
def _flatten(self: Tensor, start_dim: int, end_dim: int) -> Tensor:
    rank = self.dim()
    first, last = wrap(start_dim, rank), wrap(end_dim, rank)
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if rank == 0:
        return self.reshape(1)
    if first == last:
        return self
    shape = tuple(self.shape)
    size = 1
    for n in shape[first:last + 1]:
        size *= n
    return self.reshape(shape[:first] + (size,) + shape[last + 1:])


def broadcast_shapes(*shapes: int | tuple[int, ...]) -> tuple[int, ...]:
    """The shape that the given shapes broadcast to."""
    rank = max((1 if isinstance(s, int) else len(s) for s in shapes), default=0)
    result = [1] * rank
    for at, shape in enumerate(shapes):
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for i, n in reversed([*enumerate(shape, rank - len(shape))]):
            if n < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            if n != 1 and result[i] not in (1, n):
                raise RuntimeError(f"Attempting to broadcast a dimension of length {n} at {i - rank}! Mismatching argument at "
                                   f"index {at} had {shape}; but expected shape should be broadcastable to {result}")
            result[i] = n if n != 1 else result[i]
    return Size(result)


ops.broadcast_shapes = broadcast_shapes


def wrap(dim: int, rank: int) -> int:
    """A dim counted from the front."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size - 1}], but got {dim})")
    return dim + size if dim < 0 else dim


@composite("narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)", out=False)
def _narrow_tensor(self: Tensor, dim: int, start: Tensor, length: int) -> Tensor:
    if start.dim() != 0 or start.is_floating_point() or start.is_complex() or start.dtype._name == "bool":
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    return ops.narrow(self, dim, int(start), length)


@composite("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", out=False)
def _narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    if self.dim() == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    size = self.size(dim)
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return ops.slice(self, dim, start, start + length)


def is_plain(*tensors: Tensor) -> bool:
    """Whether nothing is recorded of ops on these, so that a part of a result can be written in place."""
    return all(t._readable for t in tensors) and not (_C._is_grad_enabled() and any(t.requires_grad for t in tensors))


def check_tensors(items: Iterable[Any], argument: int = 0) -> None:
    """That the items of a list are tensors."""
    for i, item in enumerate(items):
        if not isinstance(item, _C.TensorBase):
            raise TypeError(f"expected Tensor as element {i} in argument {argument}, but got {_C._said_type(item)}")


def check_parts(name: str, count: int) -> None:
    """That so many views fit into memory: sizes of expanded tensors, and numbers of parts, may be anything."""
    if count * _VIEW_BYTES > _MEMORY:
        raise RuntimeError(f"[{name}] expected at most {_MEMORY // _VIEW_BYTES} parts, got {count}")


@composite("swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)", out=False)
def _swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
    """transpose(), with NumPy's names."""
    return self.transpose(axis0, axis1)


@composite("unbind(Tensor(a) self, int dim=0) -> Tensor(a)[]", out=False,
           grad={"self": lambda gs, dim: ops.stack(gs, dim)})
def _unbind(self: Tensor, dim: int) -> tuple[Tensor, ...]:
    check_parts("unbind", self.size(dim))
    return _C._many_views(tuple([self.select(dim, i) for i in range(self.size(dim))]))
