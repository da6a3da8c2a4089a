"""Joining, splitting and rearranging: cat, stack, split, movedim, repeat and their relatives."""
from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching_nn, forward
from mindtorch_v2._ops.table import Spec, alias, composite, op, ops, publish_plain
from mindtorch_v2._ops.view import broadcast_shapes, check_parts, check_tensors, is_plain, wrap
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor


# ---- joining --------------------------------------------------------------------------------------------------------
def _is_legacy_empty(t: Tensor) -> bool:
    """A 1-D tensor without items is skipped by cat, whatever the others' shapes."""
    return t.dim() == 1 and t.numel() == 0


def _cat_rule(tensors: tuple[Tensor, ...], dim: int) -> Spec:
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for i, t in enumerate(tensors):
        if t.dim() == 0:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    real = [t for t in tensors if not _is_legacy_empty(t)]
    dtype = functools.reduce(_C.promote_types, (t.dtype for t in tensors))
    if not real:
        return (0,), dtype
    first = tuple(real[0].shape)
    dim = wrap(dim, len(first))
    total = 0
    for t in real:
        shape = tuple(t.shape)
        if len(shape) != len(first):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(first)} and {len(shape)}")
        for d, (a, b) in enumerate(zip(first, shape)):
            if d != dim and a != b:
                at = next(i for i, x in enumerate(tensors) if x is t)
                raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected size {a} but got "
                                   f"size {b} for tensor number {at} in the list.")
        total += shape[dim]
    return first[:dim] + (total,) + first[dim + 1:], dtype


def _cat_grad(g: Tensor, shapes: list[tuple[int, ...]], dim: int) -> list[Tensor]:
    """The slices of g that belong to each tensor."""
    full = max(shapes, key=len)
    dim, start, parts = wrap(dim, max(len(full), 1)), 0, []
    for shape in shapes:
        if shape == (0,) and len(full) != 1:
            parts.append(g.new_zeros(shape))
            continue
        parts.append(ops.slice(g, dim, start, start + shape[dim]))
        start += shape[dim]
    return parts


def _cat_out(out: Tensor, tensors: tuple[Tensor, ...], dim: int) -> Tensor:
    made = ops.cat(tensors, dim)
    if not _C.can_cast(made.dtype, out.dtype):
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {_C.TYPE_WORDS[out.dtype._id]}")
    return made


op("cat(Tensor[] tensors, int dim=0) -> Tensor", out=("apart", _cat_out),
   batch=batching_nn.stacked, forward=forward.linear, autocast={"cpu": "widest"}, rule=_cat_rule, variants="function",
   format="tensors", npu="aclnnCat(tensors, dim, out)",
   grad={"tensors": lambda g, tensors_shape, dim: _cat_grad(g, tensors_shape, dim)})
alias("concat", "cat", "function")
alias("concatenate", "cat", "function")


def _stack_rule(tensors: tuple[Tensor, ...], dim: int) -> Spec | None:
    """CANN joins tensors of one dtype."""
    _check_stacked(tensors)
    first, dtype = tuple(tensors[0].shape), tensors[0].dtype
    dim = wrap(dim, len(first) + 1)
    if any(t.dtype is not dtype for t in tensors) or len(first) == 8:
        return None
    return (*first[:dim], len(tensors), *first[dim:]), dtype


def _check_stacked(tensors: tuple[Tensor, ...]) -> None:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    for i, t in enumerate(tensors):
        if t.shape != tensors[0].shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry "
                               f"0 and {list(t.shape)} at entry {i}")


@composite("stack(Tensor[] tensors, int dim=0) -> Tensor", out="apart", autocast={"cpu": "widest"},
           variants="function", rule=_stack_rule,
           npu="aclnnStack(tensors, dim, out)", node=True, grad={"tensors": lambda g, dim: list(g.unbind(dim))})
def _stack(tensors: tuple[Tensor, ...], dim: int) -> Tensor:
    """Joins tensors of one shape along a new dim."""
    _check_stacked(tensors)
    shape = tuple(tensors[0].shape)
    dim = wrap(dim, len(shape) + 1)
    if dim == len(shape) or tensors[0].is_contiguous():
        return ops.cat([t.unsqueeze(dim) for t in tensors], dim)
    return ops.cat(tensors, dim).view(*shape[:dim], len(tensors), *shape[dim:])      # which keeps channels last, as torch


op("_stack(Tensor[] tensors, int dim=0) -> Tensor", variants="function",
   body=lambda tensors, dim: ops.stack(tensors, dim), doc="Joins tensors of one shape along a new dim.")


def _at_least(t: Any, rank: int) -> Any:
    """t with dims of size 1 added as NumPy's atleast_Nd adds them."""
    if rank == 1:
        return t.reshape(1) if t.dim() == 0 else t
    if rank == 2:
        return t.reshape(1, 1) if t.dim() == 0 else t.unsqueeze(0) if t.dim() == 1 else t
    return t.unsqueeze(-1) if t.dim() == 2 else _at_least(t, 2).unsqueeze(-1) if t.dim() < 2 else t


def _at_least_function(rank: int) -> Callable[..., Any]:
    def at_least(*tensors: Tensor | list[Tensor]) -> Tensor | Sequence[Tensor | list[Tensor]]:
        items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        check_tensors(items)
        found = tuple(_at_least(t, rank) for t in items)
        return found[0] if len(tensors) == 1 and not isinstance(tensors[0], (tuple, list)) else found
    at_least.__name__ = f"atleast_{rank}d"
    at_least.__doc__ = f"The tensors with at least {rank} dims."
    return at_least


atleast_1d, atleast_2d, atleast_3d = (_at_least_function(rank) for rank in (1, 2, 3))


@composite("hstack(Tensor[] tensors) -> Tensor", variants="function")
def _hstack(tensors: tuple[Tensor, ...]) -> Tensor:
    """Joins along the second dim (the first for 1-D tensors)."""
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    items = [_at_least(t, 1) for t in tensors]
    return ops.cat(items, 0 if items[0].dim() == 1 else 1)


@composite("vstack(Tensor[] tensors) -> Tensor", variants="function")
def _vstack(tensors: tuple[Tensor, ...]) -> Tensor:
    """Joins along the first dim; 1-D tensors are rows."""
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return ops.cat([_at_least(t, 2) for t in tensors], 0)


alias("row_stack", "vstack", "function")


@composite("dstack(Tensor[] tensors) -> Tensor", variants="function")
def _dstack(tensors: tuple[Tensor, ...]) -> Tensor:
    """Joins along the third dim."""
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return ops.cat([_at_least(t, 3) for t in tensors], 2)


@composite("column_stack(Tensor[] tensors) -> Tensor", variants="function")
def _column_stack(tensors: tuple[Tensor, ...]) -> Tensor:
    """Joins along the second dim; 1-D tensors are columns."""
    if not tensors:
        raise RuntimeError("column_stack expects a non-empty TensorList")
    return ops.hstack([t if t.dim() > 1 else t.reshape(-1, 1) for t in tensors])


def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix with the given matrices on its diagonal."""
    check_tensors(tensors)
    parts = [_at_least(t, 2) for t in tensors] or [ops.empty((1, 0))]
    for i, t in enumerate(parts):
        if t.dim() != 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                               f"{t.dim()} dimensions")
    width = sum(t.size(1) for t in parts)
    if is_plain(*parts) and all(t.dtype is parts[0].dtype and t.device == parts[0].device for t in parts):
        made, top, left = parts[0].new_zeros((sum(t.size(0) for t in parts), width)), 0, 0
        for t in parts:
            height, length = t.shape
            made[top:top + height, left:left + length] = t
            top, left = top + height, left + length
        return made
    rows, left = [], 0
    for t in parts:
        rows.append(ops.constant_pad_nd(t, (left, width - left - t.size(1))))
        left += t.size(1)
    return ops.cat(rows, 0)


# ---- splitting --------------------------------------------------------------------------------------------------------
def split_sizes(self: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """Views of the given sizes along dim."""
    total, start, parts = self.size(dim), 0, []
    check_parts("split", len(sizes))
    if any(n < 0 for n in sizes):
        raise RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, but got "
                           f"split_sizes={list(sizes)}")
    if sum(sizes) != total:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at "
                           f"dimension {dim}), but got split_sizes={list(sizes)}")
    for n in sizes:
        parts.append(ops.slice(self, dim, start, start + n))
        start += n
    return tuple(parts)


_JOINED = {"self": lambda gs, dim: ops.cat(gs, dim)}         # the gradients of all parts at once


@composite("split_with_sizes(Tensor(a) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]", out=False, grad=_JOINED)
def _split_with_sizes(self: Tensor, sizes: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """Views of the given sizes along dim."""
    if self.dim() == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    return _C._many_views(split_sizes(self, sizes, dim))


def _split_size(self: Tensor, size: int, dim: int) -> tuple[Tensor, ...]:
    """Views of at most split_size items along dim."""
    if self.dim() == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    total = self.size(dim)
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if total:
            raise RuntimeError("split_size can only be 0 if dimension size is 0, but got dimension size of "
                               f"{total}")
        return (ops.alias(self),)
    count = int(max(-(-total // size), 1))       # a symbolic size stays one but for the number of parts
    check_parts("split", count)
    return _C._many_views(tuple([ops.slice(self, dim, i * size, min(i * size + size, total)) for i in range(count)]))


op("split(Tensor(a) self, SymInt split_size_or_sections, int dim=0) -> Tensor(a)[]", out=False,
   body=_split_size, grad=_JOINED)
op("split.sizes(Tensor(a) self, SymInt[] split_size_or_sections, int dim=0) -> Tensor(a)[]", out=False,
   body=lambda self, sizes, dim: ops.split_with_sizes(self, sizes, dim))
op("split.named(Tensor(a) self, SymInt split_size, int dim=0) -> Tensor(a)[]", out=False,
   body=lambda self, size, dim: ops.split(self, size, dim))


@composite("chunk(Tensor(a) self, int chunks, int dim=0) -> Tensor(a)[]", out=False)
def _chunk(self: Tensor, chunks: int, dim: int) -> tuple[Tensor, ...]:
    """Views of at most `chunks` nearly equal parts along dim."""
    if self.dim() == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    total = self.size(dim)
    size = -(-total // chunks)
    if size == 0:
        check_parts("chunk", chunks)
        return ops.split_with_sizes(self, (0,) * chunks, dim)
    return ops.split(self, size, dim)


def _tensor_split(self: Tensor, where: int | Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """Views along dim: `where` equal parts, or parts that begin at the given indices."""
    if self.dim() == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    total = self.size(dim)
    if isinstance(where, int):
        if where <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {where}")
        check_parts("tensor_split", where)
        small, extra = divmod(total, where)
        return split_sizes(self, [small + (i < extra) for i in range(where)], dim)
    edges = [0, *where, total]
    return tuple(ops.slice(self, dim, a, b) for a, b in zip(edges, edges[1:]))


def _tensor_split_at(self: Tensor, where: Tensor, dim: int) -> tuple[Tensor, ...]:
    if where.dim() > 1:
        raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, "
                           f"but got a tensor with {where.dim()} dims")
    if where.dtype._name != "int64":
        raise RuntimeError("tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                           f"{_C.TYPE_WORDS[where.dtype._id]}")
    return _tensor_split(self, where.tolist(), dim)


op("tensor_split.tensor(Tensor(a) self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]", out=False,
   body=_tensor_split_at, doc=_tensor_split.__doc__)
op("tensor_split.sections(Tensor(a) self, SymInt sections, int dim=0) -> Tensor(a)[]", out=False, body=_tensor_split)
op("tensor_split.indices(Tensor(a) self, SymInt[] indices, int dim=0) -> Tensor(a)[]", out=False, body=_tensor_split)
op("tensor_split.named(Tensor(a) self, SymInt indices_or_sections, int dim=0) -> Tensor(a)[]", out=False,
   body=_tensor_split)
op("tensor_split.names(Tensor(a) self, SymInt[] indices_or_sections, int dim=0) -> Tensor(a)[]", out=False,
   body=_tensor_split)


def _np_split(name: str, rank: int, dim_of: Callable[..., Any]) -> None:
    def body(self: Tensor, where: int | list[int]) -> tuple[Tensor, ...]:
        if self.dim() < rank:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {rank} dimension"
                               f", but got a tensor with {self.dim()} dimensions!")
        dim = dim_of(self)
        if isinstance(where, int) and (where <= 0 or self.size(dim) % where):
            raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension "
                               f"{self.size(dim)} is not divisible by the split_size {where}!")
        return _tensor_split(self, where, dim)
    op(f"{name}(Tensor(a) self, int sections) -> Tensor(a)[]", out=False, body=body)
    op(f"{name}.array(Tensor(a) self, int[] indices) -> Tensor(a)[]", out=False, body=body)


_np_split("hsplit", 1, lambda x: 0 if x.dim() == 1 else 1)
_np_split("vsplit", 2, lambda x: 0)
_np_split("dsplit", 3, lambda x: 2)
alias("unsafe_split", "split")
alias("unsafe_chunk", "chunk")
alias("unsafe_split_with_sizes", "split_with_sizes")


# ---- moving dims --------------------------------------------------------------------------------------------------------
def _movedim(self: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Moves dims to new places; the others keep their order."""
    source = [source] if isinstance(source, int) else list(source)
    destination = [destination] if isinstance(destination, int) else list(destination)
    rank = self.dim()
    if len(source) != len(destination):
        raise RuntimeError("movedim: Invalid source or destination dims: source "
                           f"({source} dims) should contain the same number of dims as destination ({destination} dims)")
    a, b = [wrap(d, rank) for d in source], [wrap(d, rank) for d in destination]
    for which, dims, given in (("source", a, source), ("destination", b, destination)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{which}` ({given})")
    if rank == 0:
        return self.alias() if hasattr(self, "alias") else self
    order = [-1] * rank
    for s, d in zip(a, b):
        order[d] = s
    rest = iter(d for d in range(rank) if d not in a)
    return self.permute([d if d >= 0 else next(rest) for d in order])


op("movedim(Tensor(a) self, int[1] source, int[1] destination) -> Tensor(a)", out=False, body=_movedim)
alias("moveaxis", "movedim")


@composite("adjoint(Tensor(a) self) -> Tensor(a)", out=False)
def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of the last two dims."""
    if self.dim() == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return self.mT.conj()


@composite("unflatten(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)", out=False)
def _unflatten(self: Tensor, dim: int, sizes: Any) -> Tensor:
    """Splits one dim into several."""
    dim = wrap(dim, self.dim())
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    sizes, shape = list(sizes), tuple(self.shape)
    known = functools.reduce(operator.mul, (n for n in sizes if n != -1), 1)
    if sizes.count(-1) == 1 and known and shape[dim] % known == 0:
        sizes[sizes.index(-1)] = shape[dim] // known
    if functools.reduce(operator.mul, sizes, 1) != shape[dim]:
        raise RuntimeError(f"unflatten: Provided sizes {sizes} don't multiply up to the size of dim {dim} "
                           f"({shape[dim]}) in the input tensor")
    return self.view(shape[:dim] + tuple(sizes) + shape[dim + 1:])


@composite("ravel(Tensor(a) self) -> Tensor(a)", out=False)
def _ravel(self: Tensor) -> Tensor:
    """A contiguous 1-D form."""
    return self.contiguous().view(-1)


# ---- repeating --------------------------------------------------------------------------------------------------------
def _repeat_rule(self: Tensor, repeats: tuple[int, ...]) -> Spec:
    if len(repeats) < self.dim():
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    if any(n < 0 for n in repeats):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(repeats)}")
    shape = (1,) * (len(repeats) - self.dim()) + tuple(self.shape)
    return tuple(n * r for n, r in zip(shape, repeats)), self.dtype


def _repeat_grad(g: Tensor, shape: tuple[int, ...], repeats: tuple[int, ...]) -> Tensor:
    lead = len(repeats) - len(shape)
    if 0 in repeats:
        return g.new_zeros(shape)
    split = []
    for n, r in zip((1,) * lead + tuple(shape), repeats):
        split += [r, n]
    return g.reshape(split).sum(list(range(0, len(split), 2))).reshape(shape) if split else g


op("repeat(Tensor self, SymInt[] repeats) -> Tensor",
   batch=batching_nn.repeated, forward=forward.linear, rule=_repeat_rule, variants="method",
   npu="aclnnRepeat(self, repeats, out)",
   grad={"self": lambda g, self_shape, repeats: _repeat_grad(g, self_shape, repeats)})


@composite("tile(Tensor self, SymInt[] dims) -> Tensor", out=False)
def _tile(self: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Repeats the tensor along each dim; missing leading counts are 1."""
    return self.repeat((1,) * (self.dim() - len(dims)) + tuple(dims))


# ---- broadcasting -------------------------------------------------------------------------------------------------------
@composite("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", out=False)
def _broadcast_to(self: Tensor, size: tuple[int, ...]) -> Tensor:
    """A view of self in the given shape."""
    return self.expand(size)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of the tensors in their common shape; what has it already is the same tensor."""
    check_tensors(tensors)
    shape: tuple[int, ...] = ()
    for t in tensors:
        shape = broadcast(shape, t.shape)
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-D tensors."""
    items = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if not items:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    check_tensors(items)
    for t in items:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}")
        if t.dtype != items[0].dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    if indexing is None:
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.", stacklevel=2)
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: {indexing}")
    swap = indexing == "xy" and len(items) > 1
    places = [1, 0, *range(2, len(items))] if swap else range(len(items))   # the dim along which each one varies
    shape = [0] * len(items)
    for t, d in zip(items, places):
        shape[d] = t.numel()
    return tuple(t.reshape((1,) * d + (-1,) + (1,) * (len(items) - d - 1)).expand(shape)
                 for t, d in zip(items, places))


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of items of 1-D tensors, a row each."""
    check_tensors(tensors)
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return ops.stack([g.reshape(-1) for g in meshgrid(*tensors, indexing="ij")], 1)


@composite("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor", out=False, variants="function")
def _combinations(self: Tensor, r: int, with_replacement: bool) -> Tensor:
    """Every choice of r items, a row each."""
    if self.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(self.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return self.new_empty((0,))
    n = self.numel()
    places = meshgrid(*[ops.arange(n)] * r, indexing="ij")
    keep = ops.ones((n,) * r, dtype=_C._dtype_named("bool"))
    for a, b in zip(places, places[1:]):
        keep = keep & (a <= b if with_replacement else a < b)
    return ops.stack([self[p[keep]] for p in places], 1)


# ---- diagonals --------------------------------------------------------------------------------------------------------
@composite("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor", out=False)
def _diag_embed(self: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """A tensor whose diagonals over two new dims are self."""
    rank, n = self.dim() + 1, self.size(-1) + abs(offset)
    a, b = wrap(dim1, rank), wrap(dim2, rank)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = list(self.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, n)
    made = self.new_zeros(shape)
    if not is_plain(self):
        return made.diagonal_scatter(self, offset, a, b)
    made.diagonal(offset, a, b).copy_(self)
    return made


@composite("diag(Tensor self, int diagonal=0) -> Tensor", out="exact")
def _diag(self: Tensor, diagonal: int) -> Tensor:
    """The diagonal of a matrix, or a matrix with that diagonal."""
    if self.dim() == 1:
        return ops.diag_embed(self, diagonal)
    if self.dim() == 2:
        return self.diagonal(diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {self.dim()}D")


@composite("diagflat(Tensor self, int offset=0) -> Tensor", out=False)
def _diagflat(self: Tensor, offset: int) -> Tensor:
    """A matrix with the items of self on its diagonal."""
    return ops.diag_embed(self.reshape(-1), offset)


@composite("vander(Tensor x, int? N=None, bool increasing=False) -> Tensor", out=False, variants="function")
def _vander(x: Tensor, N: int | None, increasing: bool) -> Tensor:
    """Powers of x as columns."""
    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x.size(0) if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    powers = ops.arange(n, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))


publish_plain(atleast_1d, atleast_2d, atleast_3d, block_diag, broadcast_shapes, broadcast_tensors, cartesian_prod,
              meshgrid)
