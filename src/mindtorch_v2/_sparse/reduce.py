"""Reductions of sparse tensors: sum, softmax, norm, any; and spdiags."""
from __future__ import annotations

import math
from typing import Any, NoReturn

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._sparse.convert import coalesce
from mindtorch_v2._sparse.masked import reduced_csr
from mindtorch_v2._sparse.pattern import COO, CSC, CSR, INT64, WORDS, Coo, add_rows, flat_keys, unflat
from mindtorch_v2._sparse.shapes import int_list, wrap
from mindtorch_v2._sparse.tensor import (
    body,
    from_values,
    is_sparse,
    make,
    record,
    refusal,
    values_of,
    word_of,
)


def _dims_of(dim: Any, rank: int) -> list[int]:
    dims = [wrap(d, rank) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {next(d for d in dims if dims.count(d) > 1)} appears multiple times in the list of dims")
    return sorted(dims)


def _group(x: Any, values: Any, kept: list[int]) -> tuple[Any, Any]:
    """Values summed over the sparse dims that are not kept: (indices, values)."""
    pattern = x._pattern
    rows = [pattern.indices[d] for d in kept]
    sizes = tuple(pattern.size[d] for d in kept)
    keys, inverse = ops.unique(flat_keys(ops.stack(rows), sizes), return_inverse=True)
    summed = ops.zeros((keys.shape[0], *values.shape[1:]), dtype=values.dtype, device=values.device)
    summed = add_rows(summed, inverse, values) if summed.numel() else summed
    return unflat(keys, sizes), summed


def sum_dims(x: Any, dim: Any, dtype: Any = None) -> Any:
    """The sum of a COO tensor over dims: sparse while a sparse dim is left, with the gradient at the places of x."""
    dims = _dims_of(dim, x.dim())
    if not dims:
        return x
    x = coalesce(x)
    pattern = x._pattern
    values = values_of(x)
    values = values if dtype is None else values.to(dtype)
    dense = [d - pattern.sparse_dim + 1 for d in dims if d >= pattern.sparse_dim]
    values = values.sum(dense, dtype=values.dtype) if dense else values
    kept = [d for d in range(pattern.sparse_dim) if d not in dims]
    size = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    if not kept:
        return values.sum(0) if dtype is None else values.sum(0, dtype=dtype)
    if len(kept) == pattern.sparse_dim:
        return from_values(Coo(pattern.indices, size, pattern.coalesced), values, "SparseSumBackward0")
    indices, values = _group(x, values, kept)
    return from_values(Coo(indices, size, True), values, "SparseSumBackward0")


@composite("_sparse_sum(Tensor input, int[1]? dim=None, *, ScalarType? dtype=None) -> Tensor", variants="function", out=False)
def _sparse_sum_rows(input: Any, dim: Any, dtype: Any) -> Any:
    """torch.sparse.sum."""
    if dim is not None:
        raise refusal("_indices", input)
    raise RuntimeError("coalesce expected sparse coordinate tensor layout but got Strided")


@body("_sparse_sum")
def _sparse_sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    if input.layout is not COO:
        if dim is not None:
            raise refusal("_indices", input)
        raise RuntimeError(f"coalesce expected sparse coordinate tensor layout but got {WORDS[input.layout]}")
    return values_of(coalesce(input)).sum(dtype=dtype) if dim is None else sum_dims(input, dim, dtype)


@body(ops.sum)
def total(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """sum(): of everything, or of dims; the gradient is dense."""
    rank, source = self.dim(), self.dtype
    whole = dim is None or (not isinstance(dim, int) and len(dim) == 0)
    if not whole and self.layout is not COO:
        return _sum_csr(self, _dims_of(dim, rank), keepdim, dtype)
    dims = list(range(rank)) if whole else _dims_of(dim, rank)
    values = self.detach()
    if dtype is None and not (source.is_floating_point or source.is_complex):
        dtype = INT64
    if whole or len(dims) == rank:
        result = values._dense.sum(dtype=dtype)
        result = result.reshape((1,) * rank) if keepdim and not whole else result
    else:
        result = sum_dims(values, dims, dtype)
        for d in dims if keepdim else ():
            result = result.unsqueeze(d)
    shape = tuple(self.shape)

    def backward(g: Any) -> tuple[Any]:
        g = g.to_dense() if is_sparse(g) else g
        if not whole and not keepdim:
            for d in dims:
                g = g.unsqueeze(d)
        return (g.to(source).expand(shape),)
    return record(result, (self,), backward, "SumBackward0" if whole else "SumBackward1")


def _sum_csr(self: Any, dims: list[int], keepdim: bool, dtype: Any) -> Any:
    if self.layout is not CSR:
        raise RuntimeError("Currently the only compressed sparse format supported for sum.dim_IntList is CSR, but got layout "
                           f"{WORDS[self.layout]}")
    source = self.dtype
    dtype = dtype or (source if source.is_floating_point or source.is_complex else INT64)
    result = reduced_csr(ops.sum.name, self.detach(), dims, keepdim, dtype)
    return record(result, (self,), lambda g: (g.expand(tuple(self.shape)),), "SumBackward1")


for _name in (ops.sum.name, ops.prod.name):
    def _csr_rows(self: Any, dim: Any, keepdim: bool, dtype: Any, _name: str = _name) -> NoReturn:
        raise refusal(f"_sparse_csr_{_name}", self if is_sparse(self) else None, "dim_dtype")

    def _csr_body(self: Any, dim: Any, keepdim: bool = False, dtype: Any = None, _name: str = _name) -> Any:
        source = self.dtype
        dtype = dtype or (source if source.is_floating_point or source.is_complex else INT64)
        return reduced_csr(_name, self, _dims_of(dim, self.dim()), keepdim, dtype)
    composite(f"_sparse_csr_{_name}.dim_dtype(Tensor self, int[1] dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
              variants="function", out=False, doc=f"The {_name} of a CSR matrix over dims, which are kept.")(
        lambda self, dim, keepdim, dtype, _rows=_csr_rows: _rows(self, dim, keepdim, dtype))
    body(f"_sparse_csr_{_name}", of="compressed")(_csr_body)


@body(ops.any, of="coo")
def _any(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is not None:
        raise refusal("any", self, "out")
    return coalesce(self)._dense.any()


# ---- norm ------------------------------------------------------------------------------------------------------------
@body(ops.norm, "native_norm", of="coo")
def _norm(self: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None and p == "fro":
        raise ValueError("dtype argument is not supported in frobenius norm")
    p = 2 if p is None or p == "fro" else p
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError("norm(): input dtype should be either floating point or complex. Got "
                           f"{word_of(self.dtype)} instead.")
    dims = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    if dims and len(_dims_of(dims, self.dim())) != self.dim():
        raise RuntimeError("norm_sparse currently only supports full reductions, so 'dim' must either be empty or contain all "
                           "dimensions of the input")
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    return values_of(coalesce(self)).norm(p)


@composite("native_norm(Tensor self, Scalar? p=2, int[1]? dim=None, bool keepdim=False, ScalarType? dtype=None) -> Tensor",
           variants="function", out=False)
def _native_norm(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """Only COO tensors, which the body above answers for, have it."""
    raise refusal("native_norm", self)


# ---- softmax ---------------------------------------------------------------------------------------------------------
def _softmax(self: Any, dim: int, dtype: Any, log: bool) -> Any:
    """softmax where what is not specified counts as minus infinity."""
    dim = wrap(dim, self.dim())
    x = coalesce(self)
    pattern, values = x._pattern, values_of(x)
    values = values if dtype is None else values.to(dtype)
    if values.dtype.itemsize < 4 or not values.is_floating_point():
        raise NotImplementedError(f"\"{'log_softmax' if log else 'softmax'}\" not implemented for '{word_of(values.dtype)}'")
    name = "SparseLogSoftmaxBackward0" if log else "SparseSoftmaxBackward0"
    if dim >= pattern.sparse_dim:
        function = ops.log_softmax if log else ops.softmax
        return from_values(pattern, function(values, dim - pattern.sparse_dim + 1), name)
    if pattern.nnz == 0:
        return from_values(pattern, values * 1, name)
    others = [d for d in range(pattern.sparse_dim) if d != dim]
    keys = flat_keys(pattern.indices.index_select(0, int_list(others, values.device)),
                     tuple(pattern.size[d] for d in others))
    pools, inverse = ops.unique(keys, return_inverse=True)
    shape = (pools.shape[0], *values.shape[1:])
    spread = inverse.reshape((-1,) + (1,) * (values.dim() - 1)).expand(values.shape)
    low = ops.full(shape, -math.inf, dtype=values.dtype, device=values.device)
    highest = low.scatter_reduce(0, spread, values.detach(), "amax").index_select(0, inverse)
    shifted = values - ops.where(highest.isinf(), ops.zeros_like(highest), highest)
    weights = shifted.exp()
    sums = ops.zeros(shape, dtype=values.dtype, device=values.device).index_add(0, inverse, weights)
    result = shifted - sums.log().index_select(0, inverse) if log else weights / sums.index_select(0, inverse)
    return from_values(pattern, result, name)


for _name in ("_sparse_softmax", "_sparse_log_softmax"):
    def _softmax_rows(input: Any, dim: int, dtype: Any = None, _name: str = _name) -> NoReturn:
        raise refusal(_name, input)
    composite(f"{_name}(Tensor input, int dim, ScalarType? dtype=None) -> Tensor", variants="function", out=False)(
        lambda input, dim, dtype, _rows=_softmax_rows: _rows(input, dim, dtype))
    body(_name, of="compressed")(_softmax_rows)
body("_sparse_softmax", of="coo")(lambda input, dim, dtype=None: _softmax(input, dim, dtype, False))
body("_sparse_log_softmax", of="coo")(lambda input, dim, dtype=None: _softmax(input, dim, dtype, True))


# ---- spdiags ---------------------------------------------------------------------------------------------------------
@composite("_spdiags(Tensor diagonals, Tensor offsets, int[] shape, Layout? layout=None) -> Tensor", variants="function",
           out=False)
def _spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any) -> Any:
    """A sparse matrix of the given diagonals."""
    return spdiags(diagonals, offsets, shape, layout)


@body("_spdiags")
def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """torch.sparse.spdiags."""
    diagonals = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    offsets = offsets.unsqueeze(0) if offsets.dim() == 0 else offsets
    _check_spdiags(diagonals, offsets, shape, layout)
    rows, columns = shape
    column = ops.arange(min(diagonals.shape[1], columns), dtype=INT64, device=diagonals.device).expand(
        diagonals.shape[0], min(diagonals.shape[1], columns))
    row = column - offsets.unsqueeze(1)
    inside = ((row >= 0) & (row < rows)).reshape(-1).nonzero().reshape(-1)
    indices = ops.stack([row.reshape(-1), column.reshape(-1)]).index_select(1, inside)
    values = diagonals[:, :column.shape[1]].reshape(-1).index_select(0, inside)
    made = make(Coo(indices, (rows, columns), False), values) if not diagonals.requires_grad else \
        from_values(Coo(indices, (rows, columns), False), values, "SpdiagsBackward0")
    return made if layout in (None, COO) else made.to_sparse(layout=layout)


def _check_spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any) -> None:
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if offsets.dim() != 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if diagonals.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if diagonals.shape[0] != offsets.shape[0]:
        raise RuntimeError(f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets "
                           f"({offsets.shape[0]})")
    if layout not in (None, COO, CSR, CSC):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {WORDS[layout]}")
    if offsets.dtype is not INT64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {_C.TYPE_WORDS[offsets.dtype._id]}")
    if offsets.unique().numel() != offsets.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
