"""Arithmetic of sparse tensors: unary ops that keep zeros, sums, products and quotients."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._sparse.convert import coalesce, coalesced, compressed_to_coo
from mindtorch_v2._sparse.pattern import COO, CSR, INT64, WORDS, Compressed, Coo, flat_keys, look_up
from mindtorch_v2._sparse.tensor import (
    become,
    body,
    check_inplace,
    from_values,
    is_coo,
    is_recorded,
    is_sparse,
    make,
    mapped,
    node_of,
    record,
    refusal,
    values_of,
    word_of,
)
from mindtorch_v2._tensor import Tensor


# ---- one operand ---------------------------------------------------------------------------------------------------
def _linear(op: Any, function: Callable[[Any], Any], node: str) -> None:
    """A linear op of one operand, which a tensor need not be coalesced for; its own gradient."""
    @body(op)
    def apply(self: Any) -> Any:
        return record(make(self._pattern, function(self._dense)), (self,), lambda g: (function(g),), node)


_linear(ops.neg, lambda v: -v, "NegBackward0")
for _op in (ops.conj, ops.conj_physical):
    _linear(_op, lambda v: v.conj_physical(), "ConjBackward0")


@body(ops.square, of="coo")
def _square(self: Any) -> Any:
    return power(self, 2)


@body(ops.real)
def _real(self: Any) -> Any:
    return self if not self.is_complex() else mapped(self, lambda v: v.real, "RealBackward0")


@body("imag", of="coo")
def _imag(self: Any) -> Any:
    if not self.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return mapped(self, lambda v: v.imag, "ImagBackward0")


def _with_parts(name: str, more: bool) -> None:
    """view_as_real and view_as_complex: one dense dim more or less."""
    @body(name, of="coo")
    def view(self: Any) -> Any:
        values = getattr(ops, name)(values_of(coalesce(self) if is_recorded(self) else self))
        pattern = coalesce(self)._pattern if is_recorded(self) else self._pattern
        size = (*pattern.size, 2) if more else pattern.size[:-1]
        return from_values(Coo(pattern.indices, size, pattern.coalesced), values, node_of(name))


_with_parts("view_as_real", True)
_with_parts("view_as_complex", False)


@body(ops.pow, of="coo")
def power(self: Any, exponent: Any) -> Any:
    if isinstance(exponent, TensorBase) or not is_sparse(self):
        overload = "Tensor_Tensor" if isinstance(self, TensorBase) else "Scalar"
        raise refusal("pow", self if is_sparse(self) else exponent, overload)
    if isinstance(exponent, float) and not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {word_of(self.dtype)}")
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    return mapped(coalesce(self), lambda v: ops.pow(v, exponent), "PowBackward0")


# ---- sums ------------------------------------------------------------------------------------------------------------
def _same_size(a: Any, b: Any, name: str = "add") -> None:
    if tuple(a.shape) == tuple(b.shape):
        return
    if is_coo(a) and is_coo(b):
        raise RuntimeError(f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")
    kind = "dense-sparse" if is_coo(b) or is_coo(a) else "op2-sparse"
    raise RuntimeError(f"{name}: expected 'self' and 'other' to have same size, but self has size {list(a.shape)} while "
                       f"other has size {list(b.shape)} (FYI: {kind} addition does not currently support broadcasting)")


def _sum_parts(a: Any, b: Any, alpha: Any) -> tuple[Any, Any]:
    """The pattern and the values of a + alpha b, both COO."""
    dtype = _C._core._result_type((a._dense, b._dense))
    pa, pb = a._pattern, b._pattern
    if pa.sparse_dim != pb.sparse_dim:
        if pa.nnz and pb.nnz:
            raise RuntimeError("add: expected 'self' and 'other' to have same number of sparse dimensions, but self has "
                               f"{pa.sparse_dim} while other has {pb.sparse_dim}")
        return (pa, a._dense.to(dtype)) if pa.nnz or not pb.nnz else (pb, (b._dense * alpha).to(dtype))
    va, vb = a._dense.to(dtype), b._dense.to(dtype)
    vb = vb if isinstance(alpha, (int, float)) and alpha == 1 else vb * alpha
    if dtype._name == "bool" and pa.nnz and pb.nnz:
        raise NotImplementedError('"cadd_sparse" not implemented for \'Bool\'')
    if pa.same_places(pb) or pa.nnz == pb.nnz and not pa.indices.is_meta and bool((pa.indices == pb.indices).all()):
        merged = Coo(pa.indices, pa.size, pa.coalesced and pb.coalesced)
        return merged, va + vb
    joined = Coo(ops.cat([pa.indices, pb.indices], 1), pa.size, False)
    values = ops.cat([va, vb])
    if pa.coalesced and pb.coalesced:
        return coalesced(joined, values)
    return joined, values


def add_coo(a: Any, b: Any, alpha: Any = 1, name: str = "Add") -> Any:
    _same_size(a, b)
    result = make(*_sum_parts(a, b, alpha))
    scale = alpha.conjugate() if isinstance(alpha, complex) else alpha
    return record(result, (a, b), lambda g: (g, g if scale == 1 else g * scale), f"{name}Backward0")


def _add_dense(dense: Any, sparse: Any, alpha: Any) -> Any:
    """A dense tensor plus a sparse one: only the rows that the sparse one has are touched."""
    _same_size(dense, sparse)
    pattern = sparse._pattern
    dtype = _C._core._result_type((dense, sparse._dense))
    if type(pattern) is Compressed:
        total = dense.detach() + pattern.scatter(sparse._dense) * alpha
    else:
        rows = math.prod(pattern.sparse_size)
        total = dense.detach().to(dtype, copy=True).contiguous().reshape((rows, *pattern.dense_size))
        if pattern.nnz and total.numel():
            values = sparse._dense.to(dtype)
            total.index_add_(0, pattern.keys(), values if alpha == 1 else values * alpha)
        total = total.reshape(dense.shape)
    return record(total, (dense, sparse), lambda g: (g, g if alpha == 1 else g * alpha), "AddBackward0")


@body(ops.add, of="coo")
def plus(self: Any, other: Any, alpha: Any = 1) -> Any:
    if not is_sparse(self):
        return _add_dense(self if isinstance(self, TensorBase) else _C._from_data(self, None, False), other, alpha)
    if not is_sparse(other):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if other.layout is not COO:
        raise RuntimeError("memory format option is only supported by strided tensors")
    return add_coo(self, other, alpha)


@body(ops.add_)
def _add_(self: Any, other: Any, alpha: Any = 1) -> Any:
    parts = tuple(x._dense if is_sparse(x) else x for x in (self, other))
    found = _C._core._result_type(parts)
    if not _C.can_cast(found, self.dtype):
        raise RuntimeError(f"Can't convert result type {word_of(found)} to output {word_of(self.dtype)} in add operation")
    if is_sparse(self):
        check_inplace(self)
        return become(self, (plus if self.layout is COO else _add_compressed)(self, other, alpha))
    _same_size(self, other)
    if is_recorded(self, other) or not self.is_contiguous() or type(other._pattern) is Compressed:
        return self.copy_(_add_dense(self, other, alpha)) if not is_recorded(self) else self.add_(
            other.to_dense(), alpha=alpha)
    pattern = other._pattern
    if pattern.nnz and self.numel():
        flat = self.view((math.prod(pattern.sparse_size), *pattern.dense_size))
        values = other._dense.to(self.dtype)
        flat.index_add_(0, pattern.keys(), values if alpha == 1 else values * alpha)
    return self


@body(ops.sub, of="coo")
def minus(self: Any, other: Any, alpha: Any = 1) -> Any:
    if is_sparse(self) and is_sparse(other) and self.layout is COO:
        _same_size(self, other, ops.sub.name)
        return add_coo(self, other, -alpha, "Sub")
    return plus(self, other, -alpha)


@body(ops.sub_, of="coo")
def _sub_(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _add_(self, other, -alpha)


@body(ops.add, of="compressed")
def _add_compressed(self: Any, other: Any, alpha: Any = 1) -> Any:
    if not is_sparse(self) or not is_sparse(other):
        dense, sparse = (self, other) if is_sparse(other) else (other, self)
        dense = dense if isinstance(dense, TensorBase) else _C._from_data(dense, None, False)
        _same_size(dense, sparse)
        if dense is self:
            return _add_dense(dense, sparse, alpha)
        return _add_dense(dense * alpha if alpha != 1 else dense, sparse, 1)
    _same_size(self, other)
    if self.layout is not other.layout:
        raise RuntimeError(f"Expected both tensors to have the same layout, but got {WORDS[self.layout]} and "
                           f"{WORDS[other.layout]}")
    if self.dtype is not other.dtype:
        wide = _C._core._result_type((self._dense, other._dense))
        raise RuntimeError(f"expected scalar type {word_of(wide)} but found "
                           f"{word_of(self.dtype if self.dtype is not wide else other.dtype)}")
    if self._pattern.same_places(other._pattern) or _equal_places(self._pattern, other._pattern):
        result = make(self._pattern, self._dense + other._dense * alpha)
    else:
        result = _merged(self, other, alpha)
    return record(result, (self, other), lambda g: (g, g if alpha == 1 else g * alpha), "AddBackward0")


def _equal_places(a: Any, b: Any) -> bool:
    return a.blocksize == b.blocksize and all(
        s.shape == t.shape and bool((s == t).all()) for s, t in zip(a.parts(), b.parts()))


def _merged(a: Any, b: Any, alpha: Any) -> Any:
    """a + alpha b of the same compressed layout: the union of their places, by lines."""
    pattern, other = a._pattern, b._pattern
    if pattern.batch_dim or pattern.blocksize != other.blocksize:
        raise RuntimeError("add: tensors of compressed layouts with batches or other blocks need the same indices")
    dtype = _C._core._result_type((a._dense, b._dense))
    grid = pattern.block_grid if pattern.by_rows else pattern.block_grid[::-1]
    places = [p.as_coo().indices if pattern.by_rows else p.as_coo().indices.flip(0) for p in (pattern, other)]
    joined = Coo(ops.cat(places, 1), (*grid, *a._dense.shape[1:]), False)
    made, values = coalesced(joined, ops.cat([a._dense.to(dtype), b._dense.to(dtype) * alpha]))
    index = pattern.compressed.dtype
    counts = ops.zeros((grid[0] + 1,), dtype=index, device=values.device)
    if grid[0]:
        counts[1:] = ops.bincount(made.indices[0], minlength=grid[0]).cumsum(0).to(index)
    return make(Compressed(pattern.layout, counts, made.indices[1].to(index), pattern.size, pattern.blocksize), values)


# ---- products --------------------------------------------------------------------------------------------------------
def _is_scalar(x: Any) -> bool:
    return not isinstance(x, TensorBase) or x.dim() == 0 and not is_sparse(x)


def _scaled(x: Any, by: Any, name: str = "MulBackward0") -> Any:
    """x times a number or a dense 0-dim tensor."""
    if not isinstance(by, TensorBase) or not is_recorded(by):
        values = ops.mul(x._dense, by)
        by = by.conj() if isinstance(by, TensorBase) else by.conjugate() if isinstance(by, complex) else by
        return record(make(x._pattern, values), (x,), lambda g: (g * by,), name)
    x = coalesce(x) if is_coo(x) else x
    return mapped(x, lambda v: ops.mul(v, by), name)


def _times_dense(s: Any, d: Any) -> Any:
    """A COO tensor times a dense one, which broadcast; the result is sparse where s is."""
    if is_recorded(s) and not s._pattern.coalesced:
        s = coalesce(s)
    size = tuple(ops.broadcast_shapes(tuple(s.shape), tuple(d.shape)))
    if size != tuple(s.shape):
        s = coalesce(broadcast_to(coalesce(s), size))
    pattern = s._pattern
    at = len(size) - d.dim()                     # dims that the dense one has not
    lead = pattern.sparse_dim - at               # sparse dims that it has
    if lead <= 0:
        return mapped(s, lambda v: v * d, "MulBackward0")
    sizes = tuple(d.shape[:lead])
    rows = [pattern.indices[at + k] * (1 if n != 1 else 0) for k, n in enumerate(sizes)]
    keys = flat_keys(ops.stack(rows), sizes)
    flat = d.reshape((math.prod(sizes), *d.shape[lead:]))
    if pattern.nnz == 0 or flat.shape[0] == 0:
        return mapped(s, lambda v: v * flat.new_zeros((v.shape[0], *flat.shape[1:])), "MulBackward0")
    taken = flat.index_select(0, keys)
    return mapped(s, lambda v: v * taken, "MulBackward0")


def _times_coo(a: Any, b: Any) -> Any:
    """The product of two COO tensors: the places that both have."""
    if a.dim() == 0 or b.dim() == 0:
        scalar, x = (b, a) if b.dim() == 0 else (a, b)
        return mapped(x, lambda v: v * scalar.to_dense(), "MulBackward0") if not is_recorded(x) else mapped(
            coalesce(x), lambda v: v * scalar.to_dense(), "MulBackward0")
    if a._pattern.sparse_dim != b._pattern.sparse_dim or a._pattern.sparse_size != b._pattern.sparse_size:
        raise RuntimeError("sparse_binary_op_intersection_cpu(): expects sparse inputs with equal dimensionality, number of "
                           "sparse dimensions, and shape of sparse dimensions")
    if is_recorded(a, b):
        a, b = coalesce(a), coalesce(b)
    if not (a._pattern.coalesced and b._pattern.coalesced):
        return _times_uncoalesced(a, b)
    at, found = look_up(b._pattern.keys(), a._pattern.keys())
    where = found.nonzero().reshape(-1)
    va, vb = values_of(a).index_select(0, where), values_of(b).index_select(0, at.index_select(0, where))
    size = (*a._pattern.sparse_size, *ops.broadcast_shapes(tuple(va.shape[1:]), tuple(vb.shape[1:])))
    indices = a._pattern.indices.index_select(1, where)
    return from_values(Coo(indices, size, a._pattern.coalesced), va * vb, "MulBackward0")


def _times_uncoalesced(a: Any, b: Any) -> Any:
    """The product at all places of the one that is not coalesced (of two, the one with fewer): 0 where the other has none."""
    if b._pattern.coalesced or not a._pattern.coalesced and a._pattern.nnz < b._pattern.nnz:
        a, b = b, a
    a, pattern = coalesce(a), b._pattern
    at, found = look_up(a._pattern.keys(), pattern.keys())
    if a._pattern.nnz == 0 or pattern.nnz == 0:
        size = (*pattern.sparse_size, *ops.broadcast_shapes(a._pattern.dense_size, pattern.dense_size))
        return _empty(size, pattern.sparse_dim, _C._core._result_type((a._dense, b._dense)), pattern.indices)
    product = a._dense.index_select(0, at) * b._dense
    product = product * found.reshape((-1,) + (1,) * (product.dim() - 1)).to(product.dtype)
    return make(Coo(pattern.indices, (*pattern.sparse_size, *product.shape[1:]), False), product)


def _empty(size: tuple[int, ...], sparse_dim: int, dtype: Any, like: Any) -> Any:
    return make(Coo(like.new_empty((sparse_dim, 0)), size, True),
                ops.empty((0, *size[sparse_dim:]), dtype=dtype, device=like.device))


def _same_mul(a: Any, b: Any) -> Any:
    if a._pattern.coalesced and a._pattern.same_places(b._pattern) or b._pattern.coalesced and \
            a._pattern.same_places(b._pattern):
        return from_values(a._pattern, values_of(a) * values_of(b), "MulBackward0")
    return _times_coo(a, b)


@body(ops.mul, of="coo")
def times(self: Any, other: Any) -> Any:
    if is_sparse(self) and is_sparse(other):
        if self.layout is not COO or other.layout is not COO:
            raise RuntimeError("Expected result Tensor to be of format CSR")
        return _same_mul(self, other)
    s, d = (self, other) if is_sparse(self) else (other, self)
    return _scaled(s, d) if _is_scalar(d) else _times_dense(s, d)


@body(ops.mul_)
def _mul_(self: Any, other: Any) -> Any:
    if not _is_scalar(other) and (is_sparse(self) or is_sparse(other)) and not is_coo(self):
        if self.layout is not CSR and not is_coo(other):
            raise RuntimeError("Expected result Tensor to be of format CSR")
    product = (times if is_coo(self) or is_coo(other) and self.layout is not CSR else _mul_compressed)(self, other)
    if not is_sparse(self):
        return self.copy_(product.to_dense())
    check_inplace(self)
    result = become(self, product)
    if is_coo(self) and not is_coo(other):       # as torch, which writes indices and values anew
        self._pattern = Coo(self._pattern.indices, self._pattern.size, self._pattern.nnz < 2)
    return result


@body(ops.mul, of="compressed")
def _mul_compressed(self: Any, other: Any) -> Any:
    s, other = (self, other) if is_sparse(self) else (other, self)
    if _is_scalar(other):
        return _scaled(s, other)
    _check_csr_product(self, s)
    if is_sparse(other):
        other = other if other.layout is CSR else compressed_to_coo(other).to_sparse_csr() if not is_coo(other) else \
            other.to_sparse_csr()
        if not s._pattern.same_places(other._pattern) and not _equal_places(s._pattern, other._pattern):
            return times(s.to_sparse(), other.to_sparse()).to_sparse(layout=CSR)
        return from_values(s._pattern, values_of(s) * values_of(other), "MulBackward0")
    return from_values(s._pattern, values_of(s) * s._pattern.take(other.expand(s.shape)), "MulBackward0")


def _check_csr_product(self: Any, s: Any) -> None:
    """torch multiplies places of CSR tensors without batches only; s is the first operand that is sparse."""
    if s is self and s._pattern.blocked:
        raise RuntimeError("empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got "
                           f"{WORDS[s.layout]}")
    if s.layout is not CSR or is_sparse(self) and s is not self:
        raise RuntimeError("Expected result Tensor to be of format CSR")
    if s._pattern.batch_dim:
        raise RuntimeError("coo_to_sparse_csr: conversion from Sparse to SparseCsr for input tensors with sparse_dim()!=2 is not "
                           "supported")


@body(ops.div, of="coo")
def divided(self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if not is_sparse(self) and _is_scalar(self):
        raise refusal("reciprocal", other)
    if is_sparse(other) or not _is_scalar(other):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
                           f"{list(other.shape)} for divisor)")
    if rounding_mode is None and not (isinstance(other, TensorBase) and is_recorded(other)):
        values = ops.div(self._dense, other)
        conj = other.conj() if isinstance(other, TensorBase) else other.conjugate() if isinstance(other, complex) else other
        return record(make(self._pattern, values), (self,), lambda g: (g / conj,), "DivBackward0")
    return mapped(coalesce(self), lambda v: ops.div(v, other, rounding_mode=rounding_mode), "DivBackward0")


@body(ops.floor_divide, of="coo")
def _floor_divided(self: Any, other: Any) -> Any:
    if is_sparse(other) or not _is_scalar(other):
        raise RuntimeError("Sparse floor division requires a scalar or zero-dim dense tensor divisor (got shape "
                           f"{list(other.shape)} for divisor)")
    return mapped(coalesce(self), lambda v: ops.floor_divide(v, other), "FloorDivideBackward0")


# ---- broadcasting -----------------------------------------------------------------------------------------------------
def broadcast_to(self: Any, size: tuple[int, ...]) -> Any:
    """A COO tensor stretched to a larger size, as dense ones are by a view."""
    pattern, size = self._pattern, tuple(size)
    lead = len(size) - self.dim()
    fits = lead >= 0 and all(n == m or n == 1 for n, m in zip(self.shape, size[lead:]))
    if not fits:
        raise RuntimeError(f"input with shape {list(self.shape)} does not broadcast to size {list(size)}")
    values = values_of(coalesce(self) if is_recorded(self) else self)
    pattern = coalesce(self)._pattern if is_recorded(self) else pattern
    nnz, place = pattern.nnz, pattern.indices.device
    stretched = [*range(lead), *(lead + d for d in range(pattern.sparse_dim) if self.shape[d] != size[lead + d])]
    copies = math.prod(size[d] for d in stretched)
    dense = tuple(size[lead + pattern.sparse_dim:])
    values = values.expand((nnz, *dense)) if tuple(values.shape[1:]) != dense else values
    values = values.repeat_interleave(copies, 0)
    inner = ops.arange(copies, dtype=INT64, device=place).repeat(nnz)
    rows: list[Any] = [None] * (lead + pattern.sparse_dim)
    for d in reversed(stretched):
        rows[d], inner = inner.remainder(max(size[d], 1)), ops.div(inner, max(size[d], 1), rounding_mode="floor")
    for d in range(pattern.sparse_dim):
        if rows[lead + d] is None:
            rows[lead + d] = pattern.indices[d].repeat_interleave(copies, 0)
    indices = ops.stack(rows) if rows else pattern.indices
    keeps = pattern.coalesced and (not stretched or copies == 1)
    return from_values(Coo(indices, size, keeps), values, "SparseBroadcastToBackward0")


@composite("_sparse_broadcast_to(Tensor self, int[] size) -> Tensor", variants="function", out=False)
def _broadcast_rows(self: Any, size: Any) -> Any:
    """A sparse tensor stretched to a size."""
    raise NotImplementedError("Could not run 'aten::_sparse_broadcast_to' with arguments from the 'CPU' backend.")


body("_sparse_broadcast_to", of="coo")(broadcast_to)


# ---- setting ---------------------------------------------------------------------------------------------------------
@body(ops.zero_)
def _zero_(self: Any) -> Any:
    check_inplace(self)
    return become(self, ops.zeros_like(self))


@body(ops.fill_, of="compressed")
def _fill_(self: Any, value: Any) -> Any:
    check_inplace(self)
    return become(self, make(self._pattern, ops.full_like(self._dense, value)))


@body(ops.copy_, of="coo")
def _copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_sparse(self) or not is_sparse(src):
        raise RuntimeError(f"{ops.copy_.name}() between dense and sparse Tensors is not implemented! Found self type = "
                           f"{self.type()} and src type = {src.type() if isinstance(src, Tensor) else type(src)}")
    if src.layout is not COO:
        return _copy_compressed_(self, src)
    check_inplace(self)
    if tuple(self.shape) != tuple(src.shape):
        raise RuntimeError(f"copy_sparse_to_sparse_: expected self and src of the same size, got {list(self.shape)} and "
                           f"{list(src.shape)}")
    copied = src.to(device=self.device, dtype=self.dtype, copy=True)
    return become(self, copied)


@body(ops.copy_, of="compressed")
def _copy_compressed_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_sparse(self) or is_coo(self):
        raise RuntimeError(f"copy_sparse_compressed_ expected sparse compressed tensor layout but got {WORDS[self.layout]}")
    if self.layout is not src.layout:
        raise RuntimeError("torch.copy_: copy of sparse compressed tensors having different layouts is not supported. self "
                           f"layout is {WORDS[self.layout]} and src layout is {WORDS[src.layout]}")
    if self._nnz() != src._nnz():
        raise RuntimeError("torch.copy_: only sparse compressed tensors with the same number of specified elements are "
                           "supported.")
    check_inplace(self)
    return become(self, src.to(device=self.device, dtype=self.dtype, copy=True))


@body("pow_", "square_", of="coo")
def _power_(self: Any, exponent: Any = 2) -> Any:
    raise refusal("pow_", self, "Tensor" if isinstance(exponent, TensorBase) else "Scalar")


@body(ops.div, ops.sub, ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge, ops.exp, ops.square, ops.pow, of="compressed")
def _by_layout(self: Any, **others: Any) -> Any:
    """What torch refuses by the layout, not by the backend."""
    layout = self.layout if is_sparse(self) else next(o for o in others.values() if is_sparse(o)).layout
    raise RuntimeError(f"unsupported tensor layout: {WORDS[layout]}")
