"""Reductions of torch.masked on sparse tensors: what is not specified is left out, and so is what a mask leaves out."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import ops
from mindtorch_v2._sparse.arithmetic import broadcast_to
from mindtorch_v2._sparse.convert import coalesce, to_layout
from mindtorch_v2._sparse.pattern import COO, CSR, INT64, LAYOUTS, Compressed, Coo, flat_keys, look_up, unflat
from mindtorch_v2._sparse.tensor import is_sparse, make, values_of

_SEGMENTS = frozenset((ops.amax.name, ops.amin.name, ops.mean.name))         # rows are reduced as segments of values


def reduction(name: str, x: Any, dims: tuple[int, ...], keepdim: bool, dtype: Any, mask: Any,
              identity: Any = None) -> Any:
    """The named reduction of what is specified and kept by the mask; identity: what changes nothing in it."""
    mean = name == ops.mean.name
    if mask is not None and not mean and x.layout not in (COO, CSR):
        raise ValueError(f"_input_mask expects strided or sparse COO or sparse CSR tensor but got {x.layout}")
    if x.layout is not CSR and (mean or x.layout is not COO):
        layouts = "strided or sparse_csr" if mean else "strided, sparse_coo or sparse_csr"
        raise ValueError(f"masked {name} expects {layouts} tensor (got {x.layout} tensor)")
    if x.dim() == 0 and x.layout is COO and (mask is not None or name == ops.sum.name):
        chosen = x.to_dense() if mask is None or bool(mask) else ops.full((), identity, dtype=x.dtype, device=x.device)
        return chosen.to_sparse().to(dtype)
    if mask is not None:
        x = kept(x, mask_like(mask, x), identity)
    elif name != ops.sum.name:
        shown = ops.amax.name if name == ops.amin.name and x.layout is COO else name     # torch's own words
        raise ValueError(f"masked {shown} expects explicit mask for {str(x.layout).rpartition('.')[2]} tensor input")
    if x.layout is CSR:
        return reduced_csr(name, x, dims, keepdim, dtype)
    return _reduced_coo(name, x, dims, keepdim, dtype, identity)


def mask_like(mask: Any, x: Any) -> Any:
    """A mask in the shape and the layout of x, as bool."""
    if tuple(mask.shape) != tuple(x.shape):
        if mask.dim() > x.dim():
            raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
        if is_sparse(mask):
            mask = broadcast_to(mask, tuple(x.shape)) if mask.layout is COO else mask.to_dense().expand(x.shape)
        else:
            mask = mask.expand(x.shape)
    if mask.layout is not x.layout:
        mask = mask.to_dense() if is_sparse(mask) else mask
        mask = mask.to_sparse(x._pattern.sparse_dim) if x.layout is COO else to_layout(mask, CSR, None, None, "to_sparse")
    return (coalesce(mask) if mask.layout is COO else mask).to(_C._dtype_named("bool"))


def kept(x: Any, mask: Any, identity: Any) -> Any:
    """x at the places where a mask of its layout is True; 0 is specified there where x has nothing.

    Of a hybrid tensor a place stays where any item does; the others there take the value that changes nothing.
    """
    if x.layout is CSR:
        return to_layout(kept(x.to_sparse(), mask.to_sparse(), identity), CSR, None, None, "to_sparse")
    x, mask = coalesce(x), coalesce(mask)
    if x._pattern.dense_dim != mask._pattern.dense_dim:
        raise AssertionError(f"mask.dense_dim() must match input.dense_dim(): {mask._pattern.dense_dim} vs "
                             f"{x._pattern.dense_dim}")
    chosen = mask._dense.reshape((mask._dense.shape[0], math.prod(mask._dense.shape[1:]))).any(1).nonzero().reshape(-1)
    indices = mask._pattern.indices.index_select(1, chosen)
    pattern = Coo(indices, tuple(x.shape), True)
    at, found = look_up(x._pattern.keys(), flat_keys(indices, x._pattern.sparse_size))
    values = values_of(x)
    if values.shape[0] == 0:
        return make(pattern, values.new_zeros((pattern.nnz, *values.shape[1:])))
    taken = values.index_select(0, at)
    taken = ops.where(found.reshape((-1,) + (1,) * (taken.dim() - 1)), taken, ops.zeros_like(taken))
    if pattern.dense_dim:
        taken = ops.where(mask._dense.index_select(0, chosen), taken, ops.full_like(taken, identity or 0))
    return make(pattern, taken)


def _grouped(name: str, keys: Any, values: Any) -> tuple[Any, Any]:
    """The keys, each once, and the reduction of the values of each."""
    unique, inverse = ops.unique(keys, return_inverse=True)
    made = ops.zeros((unique.shape[0], *values.shape[1:]), dtype=values.dtype, device=values.device)
    spread = inverse.reshape((-1,) + (1,) * (values.dim() - 1)).expand(values.shape)
    return unique, made.scatter_reduce(0, spread, values, name, include_self=False)


def _all(name: str, values: Any, dims: Any) -> Any:
    """The named reduction of a dense tensor over dims."""
    if name == ops.prod.name:
        for d in sorted(dims, reverse=True):
            values = values.prod(d, dtype=values.dtype)
        return values
    return values.sum(dims, dtype=values.dtype) if name == ops.sum.name else getattr(ops, name)(values, dims)


def _reduced_coo(name: str, x: Any, dims: tuple[int, ...], keepdim: bool, dtype: Any, identity: Any) -> Any:
    x = coalesce(x)
    n, pattern = x._pattern.sparse_dim, x._pattern
    values = values_of(x).to(dtype)
    dense = [d - n + 1 for d in dims if d >= n]
    values = _all(name, values, dense) if dense else values
    rest = [d for d in range(n) if d not in dims]
    size = tuple((1 if d in dims else m) for d, m in enumerate(x.shape) if keepdim or d not in dims)
    if not rest:                                 # as torch: the dense result made sparse
        if not values.shape[0]:
            values = ops.full((1, *values.shape[1:]), identity or 0, dtype=dtype, device=values.device)
        return _all(name, values, [0]).reshape(size).to_sparse()
    sizes = tuple(pattern.size[d] for d in rest)
    rows = pattern.indices.index_select(0, _C._from_data(rest, INT64, False).to(values.device))
    keys, values = _grouped(name, flat_keys(rows, sizes), values)
    found = list(unflat(keys, sizes))
    if keepdim:
        values = values.reshape((values.shape[0], *size[n:]))
        blank = ops.zeros((values.shape[0],), dtype=INT64, device=values.device)
        places = iter(found)
        found = [blank if d in dims else next(places) for d in range(n)]
    return make(Coo(ops.stack(found), size, values.shape[0] < 2), values)


def reduced_csr(name: str, x: Any, dims: Any, keepdim: bool, dtype: Any) -> Any:
    """The named reduction of a CSR matrix over dims, which are kept."""
    if not keepdim:
        error = AssertionError if name in _SEGMENTS else RuntimeError        # as torch
        raise error("reduction operations on CSR tensors with keepdim=False is unsupported")
    pattern = x._pattern
    if pattern.batch_dim or pattern.dense_dim:
        raise RuntimeError("reduction operations on batched or hybrid CSR tensors are unsupported")
    values, index = x._dense.to(dtype), pattern.compressed.dtype
    size = tuple(1 if d in dims else m for d, m in enumerate(x.shape))
    if not dims:
        return x
    if len(dims) == 2:
        values = _all(name, values, [0]).unsqueeze(0) if values.shape[0] else values
        columns = ops.zeros((values.shape[0],), dtype=index, device=values.device)
        starts = _C._from_data([0, values.shape[0]], index, False).to(values.device)
    elif dims[0] == 0:
        columns, values = _grouped(name, pattern.plain, values)
        starts = _C._from_data([0, values.shape[0]], index, False).to(values.device)
    else:
        counts = pattern.compressed.diff()
        if name in _SEGMENTS:
            offsets = ops.cat([pattern.compressed[:1], pattern.compressed[1:][counts != 0]]) if x.shape[0] else pattern.compressed
            values = ops.segment_reduce(values, name.removeprefix("a"), offsets=offsets, unsafe=False)
        else:
            values = _grouped(name, pattern.as_coo().indices[0], values)[1]
        starts = ops.cat([pattern.compressed[:1], (counts != 0).cumsum(0).to(index)])
        columns = ops.zeros((values.shape[0],), dtype=index, device=values.device)
    return make(Compressed(LAYOUTS["sparse_csr"], starts, columns, size), values)
