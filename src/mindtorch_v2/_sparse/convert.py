"""Between layouts: coalesce, to_dense, to_sparse and its siblings, sparse_mask, and the parts of a tensor."""
from __future__ import annotations

import math
from typing import Any, NoReturn

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._sparse.pattern import (
    BSC,
    BSR,
    COO,
    CSC,
    CSR,
    INT64,
    LAYOUTS,
    WORDS,
    Compressed,
    Coo,
    add_rows,
    unflat,
)
from mindtorch_v2._sparse.tensor import (
    body,
    from_values,
    is_recorded,
    is_sparse,
    make,
    record,
    refusal,
    values_at,
    values_of,
)
from mindtorch_v2._tensor import Tensor

STRIDED = LAYOUTS["strided"]


# ---- coalesce ----------------------------------------------------------------------------------------------------
def coalesced(pattern: Coo, values: Any) -> tuple[Coo, Any]:
    """Sorted places, each once; what stood at one place is summed."""
    if pattern.coalesced:
        return pattern, values
    if pattern.nnz < 2:
        return Coo(pattern.indices, pattern.size, True), values
    keys, inverse = ops.unique(pattern.keys(), return_inverse=True)
    summed = ops.zeros((keys.shape[0], *values.shape[1:]), dtype=values.dtype, device=values.device)
    summed = add_rows(summed, inverse, values) if summed.numel() else summed
    return Coo(unflat(keys, pattern.sparse_size), pattern.size, True), summed


@body("coalesce", of="coo")
def coalesce(self: Any) -> Any:
    """Sums values at equal indices and sorts; as in torch, gradients pass as they are."""
    if self._pattern.coalesced:
        return self
    return record(make(*coalesced(self._pattern, self._dense)), (self,), lambda g: (g,), "CoalesceBackward0")


composite("_coalesce(Tensor self) -> Tensor", variants="function", out=False, doc="coalesce() of a COO tensor.")(
    lambda self: self.coalesce())


# ---- dense -------------------------------------------------------------------------------------------------------
@body("to_dense", "_to_dense")
def to_dense(self: Any, dtype: Any = None, masked_grad: bool | None = None) -> Any:
    """The dense tensor; masked_grad (the default): gradients of what is not specified are dropped."""
    if dtype is not None:
        raise RuntimeError(f"dtype argument is not supported by sparse_{'' if self.layout is COO else 'csr_'}to_dense")
    pattern = self._pattern
    dense = pattern.scatter(self._dense)
    kept = coalesced(pattern, self._dense)[0] if type(pattern) is Coo and is_recorded(self) else pattern

    def backward(g: Any) -> tuple[Any]:
        if masked_grad is False:
            return (_as_layout(g, kept),)
        return (from_values(kept, values_at(g, kept)),)
    dense = record(dense, (self,), backward, "ToDenseBackward0")
    return dense if dtype is None else dense.to(dtype)


def _as_layout(g: Any, pattern: Any) -> Any:
    """A gradient in the layout of a pattern, with everything that is not zero."""
    if is_sparse(g):
        g = g.to_dense()
    if type(pattern) is Coo:
        return g.to_sparse(pattern.sparse_dim)
    return g.to_sparse(layout=pattern.layout, blocksize=pattern.blocksize or None, dense_dim=pattern.dense_dim)


# ---- to_sparse -----------------------------------------------------------------------------------------------------
def _check_block(name: str, source: Any, layout: Any, blocksize: Any) -> None:
    if blocksize is not None and len(blocksize) != 2:
        raise RuntimeError(f"{name}: blocksize needs to be a tuple of size 2, but got {len(blocksize)}")
    blocked = layout in (BSR, BSC)
    if blocked and blocksize is None:
        raise RuntimeError(f"{name}: conversion from {WORDS[source]} to {WORDS[layout]} without blocksize argument given is "
                           "not supported")
    if not blocked and blocksize is not None:
        raise RuntimeError(f"{name}: conversion from {WORDS[source]} to {WORDS[layout]} with blocksize argument given is "
                           "not supported")


def _sparse_dim(self: Any, dense_dim: int | None) -> int | None:
    """How many dims of a dense tensor become sparse where dense_dim are to stay as they are."""
    rank = self.dim()
    if dense_dim is None:
        return None
    if not 0 <= dense_dim <= rank:
        raise RuntimeError(f"dense_to_sparse: dense_dim argument must be in [0,{rank}] range, but {dense_dim} is given")
    if rank and dense_dim == rank:
        raise RuntimeError("dense_to_sparse: dense_dim argument must be !=self.dim() when self.dim()>0")
    return rank - dense_dim


def dense_to_coo(self: Any, sparse_dim: int | None = None) -> Any:
    rank = self.dim()
    sparse_dim = rank if sparse_dim is None else sparse_dim
    if not 0 <= sparse_dim <= rank:
        raise RuntimeError(f"dense_to_sparse: sparse_dim argument must be in [0,{rank}] range, but {sparse_dim} is given")
    if rank and not sparse_dim:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    data = self.detach()
    nonzero = data != 0
    if sparse_dim < rank:
        lead = tuple(self.shape[:sparse_dim])
        nonzero = nonzero.reshape((*lead, math.prod(self.shape[sparse_dim:]))).any(-1)
    indices = nonzero.nonzero().t().contiguous() if sparse_dim else \
        ops.empty((0, int(nonzero.sum().item())), dtype=INT64, device=self.device)
    pattern = Coo(indices, tuple(self.shape), True)
    return record(make(pattern, pattern.take(data)), (self,), lambda g: (_densified(g),), "ToSparseBackward0")


def _densified(g: Any) -> Any:
    return g.to_dense() if is_sparse(g) else g


def _check_dense_dim(name: str, self: Any, dense_dim: int) -> None:
    room = self.dim() - 2
    if room < 0:
        raise RuntimeError(f"{name}: expected self to be at least 2-dimensional, got {self.dim()}")
    if not 0 <= dense_dim <= room:
        raise RuntimeError(f"{name}: dense_dim argument must be in [0,{room}] range, but {dense_dim} is given")


def dense_to_compressed(self: Any, layout: Any, blocksize: Any = None, dense_dim: int | None = None,
                        name: str = "dense_to_sparse") -> Any:
    _check_block(name, STRIDED, layout, blocksize)
    dense_dim = dense_dim or 0
    _check_dense_dim(name, self, dense_dim)
    b, size = self.dim() - 2 - dense_dim, tuple(self.shape)
    block = tuple(int(n) for n in blocksize) if blocksize else ()
    if block and min(block) < 1:
        raise RuntimeError(f"{name}: blocksize needs to be positive, but got {list(block)}")
    if block and (size[b] % block[0] or size[b + 1] % block[1]):
        raise RuntimeError(f"{name}: tensor sparse size ({size[b]},{size[b + 1]}) must be divisible by given blocksize "
                           f"({block[0]},{block[1]})")
    data = self.detach()
    like = Compressed(layout, ops.empty((*size[:b], 1), dtype=INT64), None, size, block)
    grid = like.blocks_of(data)                  # batch, rows, columns, block, dense dims
    used = (grid != 0)
    extra = grid.dim() - b - 2
    used = used.reshape((*grid.shape[:b + 2], math.prod(grid.shape[b + 2:]))).any(-1) if extra else used
    compressed, plain = _compress(used, layout, b)
    pattern = Compressed(layout, compressed, plain, size, block)
    return record(make(pattern, pattern.take(data)), (self,), lambda g: (_densified(g),), "ToSparseBackward0")


def _compress(used: Any, layout: Any, b: int) -> tuple[Any, Any]:
    """The compressed and the plain indices of a mask; all batches must have as many entries."""
    used = used if layout in (CSR, BSR) else used.transpose(b, b + 1)
    batches, (lines, others) = tuple(used.shape[:b]), used.shape[b:]
    flat = used.reshape((math.prod(batches), lines, others))
    counts = flat.sum(-1)
    per_batch = counts.sum(-1)
    if flat.shape[0] > 1 and bool((per_batch != per_batch[0]).any()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    compressed = ops.zeros((flat.shape[0], lines + 1), dtype=INT64, device=used.device)
    compressed[:, 1:] = counts.cumsum(-1)
    plain = flat.nonzero()[:, 2].contiguous() if flat.numel() else ops.empty((0,), dtype=INT64, device=used.device)
    nnz = plain.shape[0] // max(flat.shape[0], 1)
    return compressed.reshape((*batches, lines + 1)), plain.reshape((*batches, nnz))


def compressed_to_coo(self: Any) -> Any:
    """COO with batches as further sparse dims and blocks taken apart."""
    pattern = self._pattern
    values = pattern.flat_values(values_of(self))
    coo = pattern.as_coo()
    indices = coo.indices
    if pattern.blocked:
        indices, values = _unblock(indices, values, pattern)
    in_order = pattern.layout is CSR or pattern.layout is BSR and not pattern.batch_dim and pattern.blocksize[0] == 1
    return from_values(Coo(indices, pattern.size, in_order), values, "ToSparseBackward0")


def _unblock(indices: Any, values: Any, pattern: Compressed) -> tuple[Any, Any]:
    (high, wide), n, b = pattern.blocksize, indices.shape[1], pattern.batch_dim
    place = indices.device
    down = ops.arange(high, dtype=INT64, device=place).reshape((1, high, 1))
    right = ops.arange(wide, dtype=INT64, device=place).reshape((1, 1, wide))
    spread = (n, high, wide)
    rows = (indices[b].reshape((n, 1, 1)) * high + down).expand(spread).reshape(-1)
    columns = (indices[b + 1].reshape((n, 1, 1)) * wide + right).expand(spread).reshape(-1)
    leading = [indices[d].reshape((n, 1, 1)).expand(spread).reshape(-1) for d in range(b)]
    return ops.stack([*leading, rows, columns]), values.reshape((n * high * wide, *values.shape[3:]))


def coo_to_compressed(self: Any, layout: Any, blocksize: Any = None, name: str = "to_sparse") -> Any:
    """A COO tensor of two sparse dims by rows or by columns."""
    if self._pattern.sparse_dim != 2:
        raise RuntimeError(f"{name}: conversion from Sparse to {WORDS[layout]} for input tensors with sparse_dim()!=2 is not "
                           "supported")
    self = coalesce(self)
    pattern, values = self._pattern, values_of(self)
    if layout in (BSR, BSC):
        return csr_to_blocked(coo_to_compressed(self, CSR), layout, blocksize, name)
    rows, columns = pattern.indices
    if layout is CSC:
        order = (columns * max(pattern.size[0], 1) + rows).argsort()
        rows, columns, values = columns.index_select(0, order), rows.index_select(0, order), values.index_select(0, order)
    lines = pattern.size[0 if layout is CSR else 1]
    made = Compressed(layout, _counts(rows, lines, INT64), columns.contiguous(), pattern.size)
    return from_values(made, values, "ToSparseBackward0")


def _counts(lines: Any, count: int, dtype: Any) -> Any:
    """Running counts of how often each line comes."""
    made = ops.zeros((count + 1,), dtype=dtype, device=lines.device)
    if count:
        made[1:] = ops.bincount(lines, minlength=count).cumsum(0).to(dtype)
    return made


def csr_to_blocked(self: Any, layout: Any, blocksize: Any, name: str) -> Any:
    """A CSR or CSC tensor, without batches, by blocks."""
    pattern = self._pattern
    (high, wide), (rows, columns) = blocksize, pattern.size[:2]
    if rows % high or columns % wide:
        raise RuntimeError(f"{name}: tensor sparse size ({rows},{columns}) must be divisible by given blocksize ({high},{wide})")
    coo, values = pattern.as_coo().indices, values_of(self)
    grid = (rows // high, columns // wide)
    up, left = ops.div(coo[0], high, rounding_mode="floor"), ops.div(coo[1], wide, rounding_mode="floor")
    by_rows = layout is BSR
    keys = up * grid[1] + left if by_rows else left * grid[0] + up
    blocks, inverse = ops.unique(keys, return_inverse=True)
    place = (inverse * high + coo[0].remainder(high)) * wide + coo[1].remainder(wide)
    filled = ops.zeros((blocks.shape[0] * high * wide, *values.shape[1:]), dtype=values.dtype, device=values.device)
    filled = filled.index_copy(0, place, values) if values.shape[0] else filled
    filled = filled.reshape((blocks.shape[0], high, wide, *values.shape[1:]))
    others = max(grid[1] if by_rows else grid[0], 1)
    index = pattern.compressed.dtype
    compressed = _counts(ops.div(blocks, others, rounding_mode="floor"), grid[0] if by_rows else grid[1], index)
    made = Compressed(layout, compressed, blocks.remainder(others).to(index), pattern.size, (high, wide))
    return from_values(made, filled, "ToSparseBackward0")


def _recompressed(self: Any, layout: Any, name: str) -> Any:
    """A compressed tensor with rows and columns changing roles: CSR to CSC, BSR to BSC and back."""
    pattern, values = self._pattern, values_of(self)
    b, n, nnz = pattern.batch_dim, math.prod(pattern.size[:pattern.batch_dim]), pattern.nnz
    indices = pattern.as_coo().indices
    first, second = (indices[b], indices[b + 1]) if layout in (CSR, BSR) else (indices[b + 1], indices[b])
    grid = pattern.block_grid
    lines, others = grid if layout in (CSR, BSR) else grid[::-1]
    batch = ops.arange(n, dtype=INT64, device=first.device).repeat_interleave(nnz)
    order = ((batch * max(lines, 1) + first) * max(others, 1) + second).argsort()
    flat = pattern.flat_values(values).index_select(0, order)
    index, lead = pattern.compressed.dtype, pattern.size[:b]
    counts = ops.zeros((n, lines + 1), dtype=index, device=first.device)
    if lines and n:
        found = ops.bincount(batch * lines + first, minlength=n * lines).reshape((n, lines))
        counts[:, 1:] = found.cumsum(1).to(index)
    made = Compressed(layout, counts.reshape((*lead, lines + 1)), second.index_select(0, order).to(index).reshape(
        (*lead, nnz)), pattern.size, pattern.blocksize)
    return from_values(made, flat.reshape(values.shape), "ToSparseBackward0")


def compressed_to_compressed(self: Any, layout: Any, blocksize: Any, name: str) -> Any:
    pattern = self._pattern
    source = pattern.layout
    short = WORDS[layout][6:].lower()
    if pattern.blocked and layout in (BSR, BSC) and blocksize is not None and tuple(blocksize) != pattern.blocksize:
        prefix = "to_sparse" if source is layout else "sparse_compressed_to_sparse"
        raise RuntimeError(f"{prefix}_{short}: conversion from {WORDS[source]} to {WORDS[layout]} with blocksize "
                           f"changed from {list(pattern.blocksize)} to {list(blocksize)} is not supported")
    if source is layout:
        return self
    if pattern.blocked and layout in (CSR, CSC):
        raise RuntimeError(f"sparse_compressed_to_sparse_{short}: expected SparseCsr or SparseCsc layout but got "
                           f"{WORDS[source]}")
    if not pattern.blocked and layout in (BSR, BSC):
        if pattern.batch_dim:
            prefix = "sparse_compressed_to_sparse" + ("" if name == "to_sparse" else f"_{short}")
            raise RuntimeError(f"{prefix}: conversion from {WORDS[source]} to {WORDS[layout]} for "
                               "batched inputs is not supported")
        return csr_to_blocked(self, layout, blocksize, "sparse_compressed_to_sparse" + ("" if name == "to_sparse" else f"_{short}"))
    return _recompressed(self, layout, name)


def to_layout(self: Any, layout: Any, blocksize: Any, dense_dim: int | None, name: str) -> Any:
    """Any tensor in any layout."""
    source = self.layout
    blocksize = (blocksize, blocksize) if isinstance(blocksize, int) else blocksize
    prefix = name if name != "to_sparse" else "dense_to_sparse" if source is STRIDED else \
        "to_sparse" if source is COO else "sparse_compressed_to_sparse"
    if name.startswith("to_sparse_") and source is STRIDED:
        prefix = "dense_" + name
    elif source is COO and layout is not COO:
        prefix = "sparse_coo_to_sparse" if name == "to_sparse" else f"coo_{name}"
    if source is STRIDED and layout is not COO and layout is not STRIDED:
        return dense_to_compressed(self, layout, blocksize, dense_dim, prefix)
    if source is layout is not COO or source is layout is STRIDED:
        prefix = "to_sparse"
    if name == "to_sparse" and source in (CSR, CSC) and layout in (BSR, BSC) and self._pattern.batch_dim:
        raise RuntimeError(f"{prefix}: conversion from {WORDS[source]} to {WORDS[layout]} for batched inputs is not supported")
    if name == "to_sparse" or blocksize is not None or layout not in (BSR, BSC) or source not in (BSR, BSC):
        _check_block(prefix, source, layout, blocksize)
    if layout is STRIDED:
        if source is COO and self._pattern.sparse_dim != 2:
            raise RuntimeError("sparse_coo_to_sparse: conversion from Sparse to Strided for input tensors with sparse_dim()!=2 is "
                               "not supported")
        return self.to_dense()
    if source is STRIDED:
        return dense_to_coo(self, _sparse_dim(self, dense_dim))
    if dense_dim is not None and dense_dim != self.dense_dim():
        raise RuntimeError(f"{prefix}: conversion from {WORDS[source]} to {WORDS[layout]} with dense_dim argument given is "
                           "not supported")
    if layout is COO:
        return self if source is COO else compressed_to_coo(self)
    if source is COO:
        return coo_to_compressed(self, layout, blocksize, prefix)
    return compressed_to_compressed(self, layout, blocksize, name)


@composite("to_sparse.sparse_dim(Tensor self, int sparse_dim) -> Tensor", variants="method", out=False)
def _to_sparse_dim(self: Any, sparse_dim: int) -> Any:
    return dense_to_coo(self, sparse_dim)


@composite("to_sparse(Tensor self, *, Layout? layout=None, int[2]? blocksize=None, int? dense_dim=None) -> Tensor",
           variants="method", out=False)
def _to_sparse(self: Any, layout: Any, blocksize: Any, dense_dim: int | None) -> Any:
    """The tensor in a sparse layout, COO unless another is given."""
    return to_layout(self, layout or COO, blocksize, dense_dim, "to_sparse")


@body("to_sparse")
def _sparse_to_sparse(self: Any, sparse_dim: int | None = None, layout: Any = None, blocksize: Any = None,
                      dense_dim: int | None = None) -> Any:
    if sparse_dim is None:
        return to_layout(self, layout or COO, blocksize, dense_dim, "to_sparse")
    if self.layout is COO and sparse_dim != self._pattern.sparse_dim:
        raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not "
                           "supported")
    if self.layout is not COO and sparse_dim != 2:
        raise RuntimeError(f"sparse_compressed_to_sparse: conversion from {WORDS[self.layout]} to Sparse with sparse_dim "
                           "argument !=2 is not supported")
    return to_layout(self, COO, None, None, "to_sparse")


def _conversion(name: str, layout: Any, blocked: bool) -> None:
    """The row of to_sparse_csr and its siblings."""
    sentence = f"The tensor as {WORDS[layout]}{', in blocks' if blocked else ''}."
    if blocked:
        composite(f"{name}(Tensor self, int[2] blocksize, int? dense_dim=None) -> Tensor", variants="method", out=False,
                  doc=sentence)(lambda self, blocksize, dense_dim: to_layout(self, layout, blocksize, dense_dim, name))
    else:
        composite(f"{name}(Tensor self, int? dense_dim=None) -> Tensor", variants="method", out=False, doc=sentence)(
            lambda self, dense_dim: to_layout(self, layout, None, dense_dim, name))


for _word, _layout in (("csr", CSR), ("csc", CSC), ("bsr", BSR), ("bsc", BSC)):
    _conversion(f"to_sparse_{_word}", _layout, _word[0] == "b")


@composite("to_sparse_coo(Tensor self) -> Tensor", variants="method", out=False)
def _to_sparse_coo(self: Any) -> Any:
    """The tensor in coordinate format."""
    return to_layout(self, COO, None, None, "to_sparse")


# ---- the parts ------------------------------------------------------------------------------------------------------
def _lacking(name: str, self: Any) -> NotImplementedError:
    """torch's error for a method of COO tensors on another."""
    if is_sparse(self):
        return refusal(name, self)
    return NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{self.device.type.upper()}' backend.")


def _part(name: str, what: str, sentence: str) -> None:
    """The row of a method that tensors of some layouts have."""
    def refuse(self: Any) -> NoReturn:
        if not what:
            raise _lacking(name, self)
        raise RuntimeError(f"{name} expected {what} tensor layout but got {WORDS[self.layout]}")
    composite(f"{name}(Tensor self) -> Tensor", variants="method", out=False, doc=sentence)(refuse)


for _name, _what, _sentence in (
        ("coalesce", "sparse coordinate", "A COO tensor with sorted indices, each once; values at equal ones are summed."),
        ("indices", "sparse coordinate", "The indices of a coalesced COO tensor."),
        ("values", "sparse", "The values of a sparse tensor."),
        ("crow_indices", "sparse row compressed", "The running counts by rows of a CSR or BSR tensor."),
        ("col_indices", "sparse row compressed", "The columns of a CSR or BSR tensor."),
        ("ccol_indices", "sparse column compressed", "The running counts by columns of a CSC or BSC tensor."),
        ("row_indices", "sparse column compressed", "The rows of a CSC or BSC tensor."),
        ("_indices", "", "The indices of a COO tensor."), ("_values", "", "The values of a COO tensor.")):
    _part(_name, _what, _sentence)


@body("values", of="coo")
def _coo_values(self: Any) -> Any:
    if not self._pattern.coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return values_of(self) if is_recorded(self) else ops.alias(self._dense)


@body("indices", of="coo")
def _coo_indices(self: Any) -> Any:
    if not self._pattern.coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return ops.alias(self._pattern.indices)


body("_indices", of="coo")(lambda self: self._pattern.indices)
body("_values", of="coo")(lambda self: self._dense)


@body("values", of="compressed")
def _compressed_values(self: Any) -> Any:
    return ops.alias(values_of(self))


def _index_part(name: str, part: str, rows: bool) -> None:
    @body(name, of="compressed")
    def read(self: Any) -> Any:
        pattern = self._pattern
        if pattern.by_rows != rows:
            raise RuntimeError(f"{name} expected sparse {'row' if rows else 'column'} compressed tensor layout but got "
                               f"{WORDS[self.layout]}")
        return ops.alias(getattr(pattern, part))


for _name, _held, _rows in (("crow_indices", "compressed", True), ("col_indices", "plain", True),
                            ("ccol_indices", "compressed", False), ("row_indices", "plain", False)):
    _index_part(_name, _held, _rows)


# ---- sparse_mask ---------------------------------------------------------------------------------------------------
@composite("sparse_mask(Tensor self, Tensor mask) -> Tensor", variants="method", out=False)
def _sparse_mask_rows(self: Any, mask: Any) -> Any:
    """The values of self at the places of a sparse mask."""
    raise refusal("sparse_mask", self)


@body("sparse_mask")
def sparse_mask(self: Any, mask: Any) -> Any:
    if is_sparse(self) and self.layout is not COO and (not is_sparse(mask) or mask.layout is COO):
        raise RuntimeError("sparse_mask_sparse_compressed expects mask to have sparse compressed layout, got "
                           f"{WORDS[mask.layout]}")
    if not is_sparse(mask):
        raise refusal("sparse_mask", self)
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has "
                           f"size {list(mask.shape)}")
    pattern = mask._pattern
    if is_sparse(self) and self.layout is COO and self._pattern.sparse_dim != mask.sparse_dim():
        raise RuntimeError("sparse_mask(): the number of sparse dimensions in `self` should match that of the `mask`. Got "
                           f"`self.sparse_dim() == {self.sparse_dim()}` != `mask.sparse_dim() == {mask.sparse_dim()}`.")
    if not is_sparse(self) and is_recorded(self):
        made = make(pattern, pattern.take(self.detach()))
        return record(made, (self,), lambda g: (_densified(sparse_mask(g, mask)),), "SparseMaskBackward0")
    return from_values(pattern, values_at(self, pattern), "SparseMaskBackward0")


# ---- copies -----------------------------------------------------------------------------------------------------
@body(ops._to_copy)
def _copied(self: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
            non_blocking: Any = False, memory_format: Any = None) -> Any:
    pattern, source = self._pattern, self.dtype
    place = None if device is None else _C.device(device)
    if place is not None and place.type == "meta":
        return ops.zeros_like(self, dtype=dtype, device=place)
    parts = tuple(t.to(place) if place is not None else t.clone() for t in pattern.parts())
    values = self._dense.to(dtype=dtype or source, device=place, copy=True)
    moved, was = pattern.with_parts(parts), self.device
    return record(make(moved, values), (self,), lambda g: (g.to(device=was, dtype=source),), "ToCopyBackward0")


@body(ops.clone)
def _clone(self: Any, memory_format: Any = None) -> Any:
    if memory_format is not None:
        word = str(memory_format).rpartition(".")[2].removesuffix("_format").title().replace("_", "")
        raise RuntimeError(f"unsupported memory format option {word}")
    pattern = self._pattern.with_parts(tuple(t.clone() for t in self._pattern.parts()))
    return record(make(pattern, self._dense.clone()), (self,), lambda g: (g,), "CloneBackward0")


@body(ops.detach)
def _detach(self: Any) -> Any:
    return make(self._pattern, self._dense)


@body(ops.alias)
def _alias(self: Any) -> Any:
    return record(make(self._pattern, self._dense), (self,), lambda g: (g,), "AliasBackward0")


@body("lift_fresh", "resolve_conj", "resolve_neg", ops.positive)
def _itself(self: Any) -> Any:
    return self


class _Methods:
    """What a tensor answers without an op; they become methods of Tensor."""

    def sparse_dim(self: Any) -> int:
        """How many dims are sparse: 0 of a dense tensor."""
        return self._pattern.sparse_dim if is_sparse(self) else 0

    def dense_dim(self: Any) -> int:
        """How many dims are dense: all of a dense tensor."""
        return self._pattern.dense_dim if is_sparse(self) else self.dim()

    def _nnz(self: Any) -> int:
        """How many values are specified."""
        if not is_sparse(self):
            raise _lacking("_nnz", self)
        return self._pattern.nnz

    def _dimI(self: Any) -> int:
        """sparse_dim() of a COO tensor."""
        if self.layout is not COO:
            raise _lacking("_dimI", self)
        return self._pattern.sparse_dim

    def _dimV(self: Any) -> int:
        """dense_dim() of a COO tensor."""
        if self.layout is not COO:
            raise _lacking("_dimV", self)
        return self._pattern.dense_dim

    def is_coalesced(self: Any) -> bool:
        """Whether indices are sorted and none comes twice."""
        if self.layout is not COO:
            raise RuntimeError(f"is_coalesced expected sparse coordinate tensor layout but got {WORDS[self.layout]}")
        return self._pattern.coalesced

    def _coalesced_(self: Any, coalesced: bool) -> Any:
        """Says whether the tensor is coalesced, unchecked."""
        if self.layout is not COO:
            raise _lacking("_coalesced_", self)
        self._pattern = Coo(self._pattern.indices, self._pattern.size, coalesced)
        return self


for _name, _method in vars(_Methods).items():
    if not _name.startswith("__"):
        _method.__qualname__ = f"Tensor.{_name}"
        setattr(Tensor, _name, _method)


@composite("to_dense(Tensor self, ScalarType? dtype=None, *, bool? masked_grad=None) -> Tensor", variants="method",
           out=False)
def _dense_to_dense(self: Any, dtype: Any, masked_grad: bool | None) -> Any:
    """The tensor in the strided layout: itself, where it is dense."""
    return self if dtype is None else self.to(dtype)
