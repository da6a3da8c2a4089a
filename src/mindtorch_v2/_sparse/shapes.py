"""Shapes of sparse tensors: transpose, permute, select, index_select, narrow_copy, cat, unsqueeze, resizing."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._sparse.convert import coalesce, compressed_to_coo
from mindtorch_v2._sparse.pattern import BSC, BSR, COO, CSC, CSR, INT64, WORDS, Compressed, Coo
from mindtorch_v2._sparse.tensor import (
    body,
    check_inplace,
    from_values,
    is_coo,
    is_recorded,
    is_sparse,
    make,
    record,
    refusal,
    values_of,
)
from mindtorch_v2._tensor import Tensor


def wrap(dim: int, rank: int) -> int:
    """A dim counted from the front."""
    n = max(rank, 1)
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def _source(x: Any) -> Any:
    """x as values_of() takes it."""
    return coalesce(x) if is_recorded(x) else x


# ---- the order of dims ---------------------------------------------------------------------------------------------
def _permuted(self: Any, dims: list[int]) -> Any:
    pattern = self._pattern
    n = pattern.sparse_dim
    order = dims[:n]
    moved = order != list(range(n))
    indices = pattern.indices.index_select(0, int_list(order, pattern.indices.device)) if moved else pattern.indices
    values = self._dense.permute([0, *(d - n + 1 for d in dims[n:])])
    still = pattern.coalesced and not moved
    back = [dims.index(d) for d in range(len(dims))]
    made = make(Coo(indices, tuple(self.shape[d] for d in dims), still), values)
    return made, back


def int_list(items: list[int], device: Any) -> Any:
    return _C._from_data(items, INT64, False).to(device)


@body(ops.permute, of="coo")
def permute(self: Any, dims: Any) -> Any:
    rank, n = self.dim(), self._pattern.sparse_dim
    given = [wrap(d, rank) for d in dims] if len(dims) == rank else list(dims)
    if len(dims) != rank:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                           f"desired ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {len(dims)}")
    if len(set(given)) != len(given):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    if any((d < n) != (k < n) for k, d in enumerate(given)):
        raise RuntimeError("permute(sparse_coo): transpositions between sparse and dense dimensions are not allowed.Only "
                           "transpositions within sparse and dense dimensions are supported.")
    made, back = _permuted(self, given)
    return record(made, (self,), lambda g: (g.permute(back),), "PermuteBackward0")


@body(ops.transpose, of="coo")
def transpose(self: Any, dim0: int, dim1: int) -> Any:
    rank, n = self.dim(), self._pattern.sparse_dim
    a, b = wrap(dim0, rank), wrap(dim1, rank)
    if a != b and max(a, b) >= n:
        raise RuntimeError(f"sparse transpose: transposed dimensions must be sparse Got sparse_dim: {n}, d0: {a}, d1: {b}")
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    made, _ = _permuted(self, order)
    if made._pattern.nnz < 2:
        made._pattern = Coo(made._pattern.indices, made._pattern.size, True)
    return record(made, (self,), lambda g: (g.transpose(a, b),), "TransposeBackward0")


@body(ops.t)
def t(self: Any) -> Any:
    if self.dim() > 2 or self.layout is COO and self._pattern.dense_dim:
        raise RuntimeError(f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {self.sparse_dim()} sparse "
                           f"and {self.dense_dim()} dense dimensions")
    if self.dim() < 2:
        return self
    return transpose(self, 0, 1) if self.layout is COO else _transpose_compressed(self, 0, 1)


_FLIPPED = {CSR: CSC, CSC: CSR, BSR: BSC, BSC: BSR}


@body(ops.transpose, of="compressed")
def _transpose_compressed(self: Any, dim0: int, dim1: int) -> Any:
    pattern, rank = self._pattern, self.dim()
    a, b = sorted((wrap(dim0, rank), wrap(dim1, rank)))
    at = pattern.batch_dim
    if a == b:
        return self
    if pattern.dense_dim:
        raise RuntimeError("transpose(): hybrid sparse compressed tensors with dense dimensions are not supported")
    sizes = list(self.shape)
    sizes[a], sizes[b] = sizes[b], sizes[a]
    if (a, b) == (at, at + 1):
        values = values_of(self)
        values = values.transpose(at + 1, at + 2) if pattern.blocked else values
        made = Compressed(_FLIPPED[pattern.layout], pattern.compressed, pattern.plain, tuple(sizes), pattern.blocksize[::-1])
        return from_values(made, values, "TransposeBackward0")
    if b < at:
        compressed, plain = (part.transpose(a, b) for part in pattern.parts())
        made = Compressed(pattern.layout, compressed, plain, tuple(sizes), pattern.blocksize)
        return from_values(made, values_of(self).transpose(a, b), "TransposeBackward0")
    kinds = ["Batch" if d < at else "Sparse" if d < at + 2 else "Dense" for d in (dim0 % rank, dim1 % rank)]
    raise RuntimeError("transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), got "
                       f"{dim0 % rank}({kinds[0]}) and {dim1 % rank}({kinds[1]})")


def _inplace(name: str) -> None:
    """transpose_ and t_: the shape changes with the contents."""
    function = {"transpose_": transpose, "t_": t, "swapaxes_": transpose, "swapdims_": transpose}[name]

    @body(name, of="coo")
    def change(self: Any, *dims: int, **named: int) -> Any:
        check_inplace(self)
        made = function(self, *dims, *named.values())
        _C._take_wrapper(self, made)
        self._pattern, self._dense = made._pattern, made._dense
        return self


for _name in ("transpose_", "t_", "swapaxes_", "swapdims_"):
    _inplace(_name)


# ---- taking parts --------------------------------------------------------------------------------------------------
@body(ops.select, of="coo")
def select(self: Any, dim: int, index: int) -> Any:
    if self.dim() == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap(dim, self.dim())
    size = self.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(self.shape)} at dimension {dim}")
    index %= max(size, 1)
    x = _source(self)
    pattern, values = x._pattern, values_of(x)
    rest = tuple(n for d, n in enumerate(self.shape) if d != dim)
    if dim >= pattern.sparse_dim:
        values = values.select(dim - pattern.sparse_dim + 1, index)
        return from_values(Coo(pattern.indices, rest, pattern.nnz < 2), values, "SelectBackward0")
    where = (pattern.indices[dim] == index).nonzero().reshape(-1)
    values = values.index_select(0, where)
    if pattern.sparse_dim == 1:                  # nothing sparse is left
        dtype = self.dtype
        return (values.any(0) if dtype._name == "bool" else values.sum(0, dtype=dtype)) if values.shape[0] else \
            values.new_zeros(rest)
    keep = [d for d in range(pattern.sparse_dim) if d != dim]
    indices = pattern.indices.index_select(1, where).index_select(0, int_list(keep, where.device))
    return from_values(Coo(indices, rest, indices.shape[1] < 2), values, "SelectBackward0")


@body(ops.select, of="compressed")
def _select_compressed(self: Any, dim: int, index: int) -> Any:
    pattern = self._pattern
    dim = wrap(dim, self.dim())
    if dim < pattern.batch_dim:
        size = self.shape[dim]
        if not -size <= index < size:
            raise IndexError(f"select(): index {index} out of range for tensor of size {list(self.shape)} at dimension {dim}")
        compressed, plain = (part.select(dim, index) for part in pattern.parts())
        rest = tuple(n for d, n in enumerate(self.shape) if d != dim)
        made = Compressed(pattern.layout, compressed, plain, rest, pattern.blocksize)
        return from_values(made, values_of(self).select(dim, index), "SelectBackward0")
    if dim >= pattern.batch_dim + 2:
        size = self.shape[dim]
        if not -size <= index < size:
            raise IndexError(f"select(): index {index} out of range for tensor of size {list(self.shape)} at dimension {dim}")
        rest = tuple(n for d, n in enumerate(self.shape) if d != dim)
        made = Compressed(pattern.layout, pattern.compressed, pattern.plain, rest, pattern.blocksize)
        values = values_of(self).select(dim - 1 + 2 * pattern.blocked, index)
        return from_values(made, values, "SelectBackward0")
    if pattern.batch_dim:
        raise RuntimeError("select(): selecting sparse dimensions is not supported for batched sparse compressed tensors.")
    taken = select(compressed_to_coo(self), dim, index)
    return coalesce(taken) if is_sparse(taken) else taken


@body(ops.unbind)
def unbind(self: Any, dim: int = 0) -> tuple[Any, ...]:
    dim = wrap(dim, self.dim())
    return tuple(self.select(dim, i) for i in range(self.shape[dim]))


@body(ops.index_select, of="coo")
def index_select(self: Any, dim: int, index: Any) -> Any:
    dim = wrap(dim, self.dim())
    size = self.shape[dim]
    if index.dim() != 1 or index.dtype is not INT64 or is_sparse(index):
        raise IndexError("index_select() argument index must be 1-D strided (non-sparse) long-tensor.")
    if index.numel():
        low, high = int(index.min().item()), int(index.max().item())
        if low < -size or high >= size:
            raise IndexError(f"index_select(): index contains {low if low < -size else high} that is out of range for tensor "
                             f"of size {list(self.shape)} at dimension {dim}")
    index = ops.where(index < 0, index + size, index)
    x = _source(self)
    pattern, values = x._pattern, values_of(x)
    sizes = tuple(index.shape[0] if d == dim else n for d, n in enumerate(self.shape))
    if dim >= pattern.sparse_dim:
        values = values.index_select(dim - pattern.sparse_dim + 1, index)
        return from_values(Coo(pattern.indices, sizes, pattern.nnz < 2), values, "IndexSelectBackward0")
    order = pattern.indices[dim].argsort(stable=True)                # entries by their index in that dim
    sorted_index = pattern.indices[dim].index_select(0, order)
    first = ops.searchsorted(sorted_index, index)
    count = ops.searchsorted(sorted_index, index, right=True) - first
    where = ops.arange(index.shape[0], dtype=INT64, device=index.device).repeat_interleave(count)
    starts = count.cumsum(0) - count
    step = ops.arange(where.shape[0], dtype=INT64, device=index.device) - starts.index_select(0, where)
    entry = order.index_select(0, first.index_select(0, where) + step)
    rows = [where if d == dim else pattern.indices[d].index_select(0, entry) for d in range(pattern.sparse_dim)]
    made = Coo(ops.stack(rows), sizes, entry.shape[0] < 2)
    return from_values(made, values.index_select(0, entry), "IndexSelectBackward0")


@body("embedding", of="coo")
def _embedding(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    """Rows of a sparse weight."""
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    if indices.dim() != 1:
        raise refusal("view", weight)
    return index_select(weight, 0, indices)


@body("narrow_copy", of="coo")
def narrow_copy(self: Any, dim: int, start: int, length: int) -> Any:
    rank = self.dim()
    if not 0 <= dim < rank:
        raise RuntimeError(f"Dimension {dim} out of range. Expecting 0 <= dim < {rank}.")
    if start < 0 or length < 0 or start + length > self.shape[dim]:
        raise RuntimeError(f"Invalid range to narrow. range(start, start+length) must be a subset of range(0, "
                           f"{self.shape[dim]}).")
    x = _source(self)
    pattern, values = x._pattern, values_of(x)
    sizes = tuple(length if d == dim else n for d, n in enumerate(self.shape))
    if dim >= pattern.sparse_dim:
        values = values.narrow(dim - pattern.sparse_dim + 1, start, length)
        return from_values(Coo(pattern.indices, sizes, pattern.coalesced), values.contiguous(), "NarrowCopyBackward0")
    row = pattern.indices[dim]
    where = ((row >= start) & (row < start + length)).nonzero().reshape(-1)
    indices = pattern.indices.index_select(1, where)
    shift = int_list([start if d == dim else 0 for d in range(pattern.sparse_dim)], where.device).reshape((-1, 1))
    return from_values(Coo(indices - shift, sizes, pattern.coalesced), values.index_select(0, where), "NarrowCopyBackward0")


@composite("narrow_copy(Tensor self, int dim, int start, int length) -> Tensor", variants="function, method")
def _narrow_copy_rows(self: Any, dim: int, start: int, length: int) -> Any:
    """narrow() as a copy."""
    return self.narrow(dim, start, length).clone()


# ---- joining ---------------------------------------------------------------------------------------------------------
@body(ops.cat, of="coo")
def _joined(tensors: Any, dim: int = 0) -> Any:
    for k, x in enumerate(tensors):
        if not is_sparse(x):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {k}.")
    first = tensors[0]
    dim = wrap(dim, first.dim())
    n = first._pattern.sparse_dim
    for k, x in enumerate(tensors):
        sizes = [list(t.shape[:dim]) + list(t.shape[dim + 1:]) for t in (first, x)]
        if sizes[0] != sizes[1]:
            raise RuntimeError(f"All tensors must have the same shape: {list(first.shape)} (except in the concatenating "
                               f"dimension), but found shape: {list(x.shape)} at position {k}.")
        if x._pattern.sparse_dim != n or x._pattern.dense_dim != first._pattern.dense_dim:
            raise RuntimeError("All tensors must have the same sparse and dense dims: "
                               f"{n}, {first._pattern.dense_dim}, but tensor at position {k} has {x._pattern.sparse_dim}, "
                               f"{x._pattern.dense_dim}.")
    dtype = _C._core._result_type(tuple(x._dense for x in tensors)) if len({x.dtype for x in tensors}) > 1 else first.dtype
    parts = [_source(x) for x in tensors]
    total = sum(x.shape[dim] for x in tensors)
    size = tuple(total if d == dim else m for d, m in enumerate(first.shape))
    indices, values, offset = [], [], 0
    for x in parts:
        index, value = x._pattern.indices, values_of(x).to(dtype)
        if dim < n:
            shift = int_list([offset if d == dim else 0 for d in range(n)], index.device).reshape((-1, 1))
            index = index + shift
        else:
            at = dim - n + 1
            before, after = offset, total - offset - x.shape[dim]
            shape = list(value.shape)
            pads = [value.new_zeros((*shape[:at], m, *shape[at + 1:])) for m in (before, after)]
            value = ops.cat([pads[0], value, pads[1]], at)
        indices.append(index)
        values.append(value)
        offset += x.shape[dim]
    joined = ops.cat(indices, 1)
    return from_values(Coo(joined, size, joined.shape[1] < 2), ops.cat(values), "CatBackward0")


@body(ops.stack, of="coo")
def stack(tensors: Any, dim: int = 0) -> Any:
    rank = tensors[0].dim() + 1
    dim = wrap(dim, rank)
    for k, x in enumerate(tensors):
        if tuple(x.shape) != tuple(tensors[0].shape):
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                               f"{list(x.shape)} at entry {k}")
    return _joined([unsqueeze(x, dim) if is_sparse(x) else x for x in tensors], dim)


@body(ops.unsqueeze, of="coo")
def unsqueeze(self: Any, dim: int) -> Any:
    dim = wrap(dim, self.dim() + 1)
    x = _source(self)
    pattern, values = x._pattern, values_of(x)
    sizes = (*self.shape[:dim], 1, *self.shape[dim:])
    if dim > pattern.sparse_dim:
        values = values.unsqueeze(dim - pattern.sparse_dim + 1)
        return from_values(Coo(pattern.indices, sizes, pattern.nnz < 2), values, "UnsqueezeBackward0")
    row = ops.zeros((1, pattern.nnz), dtype=INT64, device=pattern.indices.device)
    indices = ops.cat([pattern.indices[:dim], row, pattern.indices[dim:]])
    return from_values(Coo(indices, sizes, pattern.nnz < 2), values, "UnsqueezeBackward0")


def _contiguous_first(name: str) -> None:
    """Ops that ask a tensor whether it is contiguous, which compressed ones do not answer."""
    @body(name, of="compressed")
    def refuse(*args: Any, **named: Any) -> Any:
        given = next(iter((*args, *named.values())))
        return (given[0] if isinstance(given, (tuple, list)) else given).is_contiguous()


@body("permute", of="compressed")
def _permute_compressed(self: Any, dims: Any) -> Any:
    raise refusal(ops.as_strided.name, self)


@body("squeeze", of="coo")
def _squeeze(self: Any, dim: Any = None) -> Any:
    raise refusal(ops.as_strided.name, self)


def _refused(name: str, text: str) -> None:
    @body(name)
    def refuse(self: Any, **others: Any) -> Any:
        raise RuntimeError(text.format(WORDS[self.layout]) if text else "")


_refused("expand", "expand is unsupported for {} tensors")
_refused("repeat", "expand is unsupported for {} tensors")
_refused("reshape", "reshape is not implemented for sparse tensors")
_refused("flatten", "reshape is not implemented for sparse tensors")
_refused("contiguous", "unsupported memory format option Contiguous")
for _name in ("reshape", "flatten", "contiguous", ops.cat.name):
    _contiguous_first(_name)


# ---- resizing --------------------------------------------------------------------------------------------------------
def _replace(self: Any, pattern: Any, values: Any) -> Any:
    made = make(pattern, values)
    _C._take_wrapper(self, made)
    self._pattern, self._dense = made._pattern, made._dense
    return self


def _check_coo(self: Any, name: str) -> None:
    if not is_coo(self):
        raise refusal(name, self)


def sparse_resize_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another size and other numbers of sparse and dense dims; the values stay, so no dim may shrink."""
    _check_coo(self, "sparse_resize_")
    check_inplace(self)
    size, pattern = tuple(size), self._pattern
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
                           f"{sparse_dim}, dense_dim = {dense_dim}")
    if pattern.nnz == 0:
        return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)
    advice = ("is not supported.\nYou could try the following options:\n1. If you need an empty sparse tensor of this size, "
              "call `x = torch.sparse_coo_tensor(size)`.\n2. If you need to resize this tensor, you have the following options:\n"
              "    1. For both sparse and dense dimensions, keep the number of them constant and the size of them non-shrinking, "
              "and then try the same call again.\n    2. Or, create a new sparse tensor with the correct indices and values from "
              "this sparse tensor.")
    if sparse_dim != pattern.sparse_dim:
        raise RuntimeError(f"changing the number of sparse dimensions (from {pattern.sparse_dim} to {sparse_dim}) on a "
                           f"non-empty sparse tensor {advice}")
    if dense_dim != pattern.dense_dim:
        raise RuntimeError(f"changing the number of dense dimensions (from {pattern.dense_dim} to {dense_dim}) on a "
                           f"non-empty sparse tensor {advice}")
    for word, was, now in (("sparse", pattern.sparse_size, size[:sparse_dim]), ("dense", pattern.dense_size, size[sparse_dim:])):
        if any(b < a for a, b in zip(was, now)):
            raise RuntimeError(f"shrinking the size of {word} dimensions (from {list(was)} to {list(now)}) on a non-empty "
                               f"sparse tensor {advice}")
    values = self._dense
    if tuple(values.shape[1:]) != size[sparse_dim:]:
        values = values.contiguous().clone().resize_((pattern.nnz, *size[sparse_dim:]))
    return _replace(self, Coo(pattern.indices, size, pattern.coalesced), values)


def sparse_resize_and_clear_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Any:
    """Another size and other numbers of sparse and dense dims, without values."""
    _check_coo(self, "sparse_resize_and_clear_")
    check_inplace(self)
    size = tuple(size)
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
                           f"{sparse_dim}, dense_dim = {dense_dim}")
    indices = ops.empty((sparse_dim, 0), dtype=INT64, device=self.device)
    return _replace(self, Coo(indices, size, True), self._dense.new_empty((0, *size[sparse_dim:])))


for _method in (sparse_resize_, sparse_resize_and_clear_):
    _method.__qualname__ = f"Tensor.{_method.__name__}"
    setattr(Tensor, _method.__name__, _method)


@composite("resize_as_sparse_(Tensor(a!) self, Tensor the_template) -> Tensor(a!)", variants="function, method", out=False)
def _resize_as_rows(self: Any, the_template: Any) -> Any:
    """Takes over the size and the numbers of sparse and dense dims of a sparse tensor."""
    raise refusal("resize_as_sparse_", self)


@body("resize_as_sparse_", "resize_as_")
def _resize_as_(self: Any, the_template: Any, memory_format: Any = None) -> Any:
    if is_coo(self):
        return sparse_resize_(self, tuple(the_template.shape), the_template.sparse_dim(), the_template.dense_dim())
    if not is_sparse(self) or not is_sparse(the_template):
        raise RuntimeError("resize_as_sparse_ expects self and the_template to be sparse, got layouts "
                           f"{WORDS[self.layout]} and {WORDS[the_template.layout]}")
    values = ops.zeros_like(the_template._dense, dtype=self.dtype)
    if self._dense.shape[1:] == values.shape[1:]:
        kept = min(len(values), len(self._dense))
        values[:kept] = self._dense[:kept]
    return _replace(self, the_template._pattern, values)


