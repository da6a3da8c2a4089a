"""Where the values of a sparse tensor stand: COO indices, and the compressed indices of CSR, CSC, BSR and BSC."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import ops

INT64 = _C._dtype_named("int64")
LAYOUTS = {name: _C._named_constant(name) for name in
           ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")}
COO, CSR, CSC, BSR, BSC = (LAYOUTS[f"sparse_{word}"] for word in ("coo", "csr", "csc", "bsr", "bsc"))
# What torch calls a layout in its messages.
WORDS = {LAYOUTS["strided"]: "Strided", COO: "Sparse", CSR: "SparseCsr", CSC: "SparseCsc", BSR: "SparseBsr",
         BSC: "SparseBsc"}


def flat_keys(indices: Any, sizes: tuple[int, ...]) -> Any:
    """One number for each column of indices: its place in the sparse dims, counted row by row."""
    keys = ops.zeros((indices.shape[1],), dtype=INT64, device=indices.device)
    for d, size in enumerate(sizes):
        keys = keys * size + indices[d]
    return keys


def unflat(keys: Any, sizes: tuple[int, ...]) -> Any:
    """The columns of indices that flat_keys made keys of."""
    rows = []
    for size in reversed(sizes):
        rows.append(ops.remainder(keys, max(size, 1)))
        keys = ops.div(keys, max(size, 1), rounding_mode="floor")
    return ops.stack(rows[::-1]) if rows else ops.empty((0, keys.shape[0]), dtype=INT64, device=keys.device)


def look_up(keys: Any, wanted: Any) -> tuple[Any, Any]:
    """For each of wanted its position among keys, which rise, and whether it is there."""
    if keys.shape[0] == 0:
        return ops.zeros_like(wanted), ops.zeros_like(wanted, dtype=_C._dtype_named("bool"))
    at = ops.searchsorted(keys, wanted).clamp(max=keys.shape[0] - 1)
    return at, keys.index_select(0, at) == wanted


class Coo:
    """Indices of nnz values in the first dims; the other dims are dense."""

    __slots__ = ("coalesced", "indices", "keys_made", "size")
    layout = COO

    def __init__(self, indices: Any, size: tuple[int, ...], coalesced: bool) -> None:
        self.indices, self.size, self.coalesced = indices, tuple(size), coalesced
        self.keys_made: Any = None

    @property
    def sparse_dim(self) -> int:
        return self.indices.shape[0]

    @property
    def dense_dim(self) -> int:
        return len(self.size) - self.indices.shape[0]

    @property
    def nnz(self) -> int:
        return self.indices.shape[1]

    @property
    def sparse_size(self) -> tuple[int, ...]:
        return self.size[:self.indices.shape[0]]

    @property
    def dense_size(self) -> tuple[int, ...]:
        return self.size[self.indices.shape[0]:]

    def parts(self) -> tuple[Any, ...]:
        return (self.indices,)

    def with_parts(self, parts: tuple[Any, ...]) -> Coo:
        return Coo(parts[0], self.size, self.coalesced)

    def keys(self) -> Any:
        return flat_keys(self.indices, self.sparse_size)

    def same_places(self, other: Any) -> bool:
        """Whether the other surely has the same indices in the same order."""
        if type(other) is not Coo or other.size != self.size:
            return False
        a, b = self.indices, other.indices
        return a is b or a.shape == b.shape and a.device == b.device and a.is_set_to(b)

    def take(self, dense: Any) -> Any:
        """The values of a dense tensor at these places."""
        rows = math.prod(self.sparse_size)
        flat = dense.reshape((rows, *dense.shape[self.sparse_dim:]))
        if self.nnz == 0 or rows == 0:
            return flat.new_zeros((self.nnz, *flat.shape[1:]))
        return flat.index_select(0, self.keys())

    def scatter(self, values: Any) -> Any:
        """The dense tensor that has values at these places, summed where a place comes twice."""
        rows = math.prod(self.sparse_size)
        flat = ops.zeros((rows, *self.dense_size), dtype=values.dtype, device=values.device)
        if self.nnz and rows and flat.numel():
            keys = self.keys()
            flat = flat.index_copy(0, keys, values) if self.coalesced else add_rows(flat, keys, values)
        return flat.reshape(self.size)


def add_rows(flat: Any, keys: Any, values: Any) -> Any:
    """flat with the rows of values added at keys; True beats False."""
    if values.dtype._name == "bool":
        summed = ops.zeros_like(flat, dtype=INT64).index_add(0, keys, values.to(INT64))
        return (summed != 0) | flat
    return flat.index_add(0, keys, values)


class Compressed:
    """CSR, CSC, BSR or BSC: one sparse dim as running counts, the other as indices; batches before them."""

    __slots__ = ("blocksize", "compressed", "layout", "plain", "size")

    def __init__(self, layout: Any, compressed: Any, plain: Any, size: tuple[int, ...],
                 blocksize: tuple[int, ...] = ()) -> None:
        self.layout, self.compressed, self.plain = layout, compressed, plain
        self.size, self.blocksize = tuple(size), tuple(blocksize)

    sparse_dim = 2

    @property
    def batch_dim(self) -> int:
        return self.compressed.dim() - 1

    @property
    def dense_dim(self) -> int:
        return len(self.size) - 2 - self.batch_dim

    @property
    def nnz(self) -> int:
        return self.plain.shape[-1]

    @property
    def by_rows(self) -> bool:
        return self.layout is CSR or self.layout is BSR

    @property
    def blocked(self) -> bool:
        return self.layout is BSR or self.layout is BSC

    @property
    def coalesced(self) -> bool:
        return True

    @property
    def dense_size(self) -> tuple[int, ...]:
        return self.size[self.batch_dim + 2:]

    @property
    def block_grid(self) -> tuple[int, int]:
        """How many blocks (or items) there are along rows and columns."""
        rows, columns = self.size[self.batch_dim:self.batch_dim + 2]
        high, wide = self.blocksize or (1, 1)
        return rows // max(high, 1), columns // max(wide, 1)

    def parts(self) -> tuple[Any, ...]:
        return self.compressed, self.plain

    def with_parts(self, parts: tuple[Any, ...]) -> Compressed:
        return Compressed(self.layout, parts[0], parts[1], self.size, self.blocksize)

    def same_places(self, other: Any) -> bool:
        """Whether the other surely has the same indices in the same order."""
        if type(other) is not Compressed or (other.layout, other.size, other.blocksize) != \
                (self.layout, self.size, self.blocksize):
            return False
        pairs = zip(self.parts(), other.parts())
        return all(a is b or a.shape == b.shape and a.device == b.device and a.is_set_to(b) for a, b in pairs)

    def as_coo(self) -> Coo:
        """The places as COO indices: batch dims, then rows and columns (of blocks, for a blocked layout)."""
        batches = self.size[:self.batch_dim]
        count, nnz = math.prod(batches), self.nnz
        compressed = self.compressed.reshape((count, -1)).to(INT64)
        steps = compressed[:, 1:] - compressed[:, :-1]
        lines = ops.arange(steps.shape[1], dtype=INT64, device=steps.device).expand(count, steps.shape[1])
        first = lines.reshape(-1).repeat_interleave(steps.reshape(-1))
        second = self.plain.reshape(-1).to(INT64)
        rows = [first, second] if self.by_rows else [second, first]
        batch = ops.arange(count, dtype=INT64, device=steps.device).repeat_interleave(nnz)
        leading = [*unflat(batch, batches)] if batches else []
        grid = self.block_grid
        return Coo(ops.stack([*leading, *rows]), (*batches, *grid), False)

    def flat_values(self, values: Any) -> Any:
        """values with batches and nnz as one dim, in the order of as_coo()."""
        return values.reshape((math.prod(self.size[:self.batch_dim]) * self.nnz, *values.shape[self.batch_dim + 1:]))

    def blocks_of(self, dense: Any) -> Any:
        """A dense tensor with rows and columns split by blocks: batch, grid, block, dense dims."""
        b = self.batch_dim
        if not self.blocked:
            return dense
        (high, wide), (rows, columns) = self.blocksize, self.block_grid
        split = dense.reshape((*self.size[:b], rows, high, columns, wide, *dense.shape[b + 2:]))
        return split.transpose(b + 1, b + 2)

    def take(self, dense: Any) -> Any:
        """The values of a dense tensor at these places."""
        flat = self.as_coo().take(self.blocks_of(dense))
        return flat.reshape((*self.size[:self.batch_dim], self.nnz, *flat.shape[1:]))

    def scatter(self, values: Any) -> Any:
        """The dense tensor that has values at these places."""
        coo, b = self.as_coo(), self.batch_dim
        full = Coo(coo.indices, (*coo.size, *self.blocksize, *self.dense_size), False)
        dense = full.scatter(self.flat_values(values))
        if self.blocked:
            dense = dense.transpose(b + 1, b + 2)
        return dense.reshape(self.size)


Pattern = Coo | Compressed
