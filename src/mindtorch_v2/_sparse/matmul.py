"""Products of matrices of which one or both are sparse: mm, mv, bmm, addmm and their sparse siblings."""
from __future__ import annotations

import math
from typing import Any, NoReturn

from mindtorch_v2._ops.table import composite, functions, ops
from mindtorch_v2._sparse.convert import coalesce, coalesced, coo_to_compressed, to_layout
from mindtorch_v2._sparse.pattern import BSC, BSR, COO, CSC, CSR, INT64, LAYOUTS, WORDS, Compressed, Coo
from mindtorch_v2._sparse.tensor import body, from_values, is_coo, is_sparse, make, record, refusal, values_of, word_of

STRIDED = LAYOUTS["strided"]


def _triples(x: Any) -> tuple[Any, Any, Any]:
    """Rows, columns and values of a sparse matrix, blocks taken apart."""
    if type(x._pattern) is Compressed and x._pattern.blocked:
        x = to_layout(x.detach(), COO, None, None, "to_sparse")
    indices = x._pattern.indices if x.layout is COO else x._pattern.as_coo().indices
    return indices[0], indices[1], x._dense


def _product(rows: Any, columns: Any, values: Any, count: int, dense: Any) -> Any:
    """The sparse matrix of `count` rows times a dense one."""
    result = ops.zeros((count, dense.shape[1]), dtype=dense.dtype, device=dense.device)
    if values.shape[0] == 0 or result.numel() == 0:
        return result
    terms = dense.index_select(0, columns) * values.unsqueeze(1)
    return result.index_add(0, rows, terms)


def _sampled(rows: Any, columns: Any, left: Any, right: Any) -> Any:
    """(left @ right) at the given rows and columns only."""
    if rows.shape[0] == 0:
        return left.new_zeros((0,))
    return (left.index_select(0, rows) * right.t().index_select(0, columns)).sum(1)


def _check_2d(a: Any, b: Any, name: str) -> None:
    if a.dim() != 2 or b.dim() != 2:
        which, found = ("matrices expected, got", f"{a.dim()}D, {b.dim()}D tensors")
        raise RuntimeError(f"{name}: {which} {found}")
    for x in (a, b):
        if is_coo(x) and x._pattern.dense_dim:
            raise RuntimeError(f"addmm: matrices expected, got {x._pattern.sparse_dim}D tensor")


def _sparse_dense(s: Any, d: Any, masked: bool) -> Any:
    """Sparse times dense, both matrices; masked: the gradient of s has the places of s only."""
    if s.shape[1] != d.shape[0]:
        raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {s.shape[1]}, got {d.shape[0]}" if s.layout is COO else
                           f"mat1 and mat2 shapes cannot be multiplied ({s.shape[0]}x{s.shape[1]} and "
                           f"{d.shape[0]}x{d.shape[1]})")
    if s.dtype != d.dtype:
        raise RuntimeError(f"expected scalar type {word_of(s.dtype)} but found {word_of(d.dtype)}")
    rows, columns, values = _triples(s)
    result = _product(rows, columns, values, s.shape[0], d.detach())
    kept = s.detach()

    def backward(g: Any) -> tuple[Any, Any]:
        g = g.to_dense() if is_sparse(g) else g
        left = None
        if s.requires_grad:
            left = _masked_gradient(kept, g, d.conj().t()) if masked else g.mm(d.conj().t())
        right = _sparse_dense(_conj_t(kept), g, False) if d.requires_grad else None
        return left, right
    return record(result, (s, d), backward, "SparseAddmmBackward0" if masked else "MmBackward0")


def _masked_gradient(s: Any, left: Any, right: Any) -> Any:
    """left @ right at the places of s, in its layout."""
    if s.layout is COO:
        s = coalesce(s)
        return from_values(s._pattern, _sampled(s._pattern.indices[0], s._pattern.indices[1], left, right))
    if s.layout is not CSR:
        raise RuntimeError("sparse_addmm_sparse_backward: unsupported combination of layouts, grad: Strided, mat1: "
                           f"{WORDS[s.layout]}, mat2: Strided")
    indices = s._pattern.as_coo().indices
    return from_values(s._pattern, _sampled(indices[0], indices[1], left, right))


def _conj_t(x: Any) -> Any:
    return (x.conj() if x.is_complex() else x).t()


def _dense_sparse(d: Any, s: Any, masked: bool) -> Any:
    """Dense times sparse, as the transposed product."""
    if d.shape[1] != s.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({d.shape[0]}x{d.shape[1]} and "
                           f"{s.shape[0]}x{s.shape[1]})")
    product = _sparse_dense(s.t(), d.t(), False).t()
    return product if masked or s.layout is COO else product.contiguous()


def _check_sparse_pair(a: Any, b: Any) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.dense_dim() or b.dense_dim():
        raise RuntimeError(f"sparse_sparse_matmul: expected matrices without dense dims, got {a.dim()} and {b.dim()} dims")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x"
                           f"{b.shape[1]})")
    if a.dtype != b.dtype:
        raise RuntimeError(f"mat1 dtype {word_of(a.dtype)} does not match mat2 dtype {word_of(b.dtype)}")


def _sparse_sparse(self: Any, other: Any) -> Any:
    """The COO product of two COO matrices, coalesced: each entry of one is multiplied with the row of the other that its
    column names."""
    _check_sparse_pair(self, other)
    a, b = coalesce(self), coalesce(other)
    pa, pb = a._pattern, b._pattern
    first = ops.searchsorted(pb.indices[0].contiguous(), pa.indices[1].contiguous())
    count = ops.searchsorted(pb.indices[0].contiguous(), pa.indices[1].contiguous(), right=True) - first
    entry = ops.arange(pa.nnz, dtype=INT64, device=count.device).repeat_interleave(count)
    step = ops.arange(entry.shape[0], dtype=INT64, device=count.device) - (count.cumsum(0) - count).index_select(0, entry)
    other = first.index_select(0, entry) + step
    values = a._dense.index_select(0, entry) * b._dense.index_select(0, other)
    indices = ops.stack([pa.indices[0].index_select(0, entry), pb.indices[1].index_select(0, other)])
    result = make(*coalesced(Coo(indices, (a.shape[0], b.shape[1]), False), values))
    if not result._pattern.coalesced:
        result = coalesce(result)
    left, right = a.detach(), b.detach()

    def backward(g: Any) -> tuple[Any, Any]:
        g = g if is_sparse(g) else g.sparse_mask(result.detach())
        grads = (lambda: _sparse_sparse(g, _conj_t(right)).sparse_mask(left) if a.requires_grad else None,
                 lambda: _sparse_sparse(_conj_t(left), g).sparse_mask(right) if b.requires_grad else None)
        return grads[0](), grads[1]()
    return record(result, (a, b), backward, "SparseSparseMatmulBackward0")


# What torch computes with compressed operands: the layouts of both factors, by the layout of the result.
_FACTORS = {STRIDED: {(CSR, STRIDED), (CSC, STRIDED), (BSR, STRIDED), (STRIDED, CSR), (STRIDED, CSC), (STRIDED, BSC),
                      (CSR, CSR), (CSR, CSC), (CSC, CSC)},
            CSR: {(CSR, CSR), (CSR, CSC), (CSC, CSR), (CSC, CSC)}, CSC: {(CSC, CSC)}}


def _check_factors(result: Any, a: Any, b: Any) -> None:
    """Refuses layouts of which one is compressed and whose product torch does not compute."""
    if all(layout in (STRIDED, COO) for layout in (result, a.layout, b.layout)):
        return
    if (a.layout, b.layout) not in _FACTORS.get(result, ()):
        place = a.device.type.upper()
        raise RuntimeError(f"addmm: computation on {place} is not implemented for {WORDS[result]} + {WORDS[a.layout]} @ "
                           f"{WORDS[b.layout]}")


def _check_kernel(a: Any) -> None:
    """torch multiplies compressed matrices on the cpu by MKL, which has numbers of 32 and 64 bits."""
    if a.layout is not COO and a.device.type == "cpu" and (a.dtype.itemsize < 4 or not (a.is_floating_point() or a.is_complex())):
        raise NotImplementedError(f"\"addmm_out_sparse_csr_impl_mkl\" not implemented for '{word_of(a.dtype)}'")


def _result_layout(a: Any, b: Any, masked: bool) -> Any:
    """The layout of a product of two sparse matrices; masked: of torch.sparse.mm."""
    source = b if masked else a
    if source.layout in (BSR, BSC):
        raise RuntimeError("zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but got "
                           f"{WORDS[source.layout]}")
    both = {a.layout, b.layout} <= {CSR, CSC}
    return CSR if both and not masked else source.layout


def _multiply(a: Any, b: Any, masked: bool) -> Any:
    """mm of any two matrices of which at least one is sparse."""
    _check_2d(a, b, "mm")
    if not is_sparse(b):
        _check_factors(STRIDED, a, b)
        _check_kernel(a)
        return _sparse_dense(a, b, masked)
    if not is_sparse(a):
        if not masked:
            _check_factors(STRIDED, a, b)
        elif b.layout is BSR:
            _check_factors(STRIDED, b.t(), a)
        return _dense_sparse(a, b, masked)
    if a.layout is COO and b.layout is COO:
        return _sparse_sparse(a, b)
    layout = _result_layout(a, b, masked)
    _check_factors(layout, a, b)
    return coo_to_compressed(_sparse_sparse(a.to_sparse(), b.to_sparse()), layout)


@body(ops.mm)
def mm(self: Any, mat2: Any) -> Any:
    return _multiply(self, mat2, False)


@body(ops.mv)
def mv(self: Any, vec: Any) -> Any:
    if self.dim() != 2 or vec.dim() != 1:
        raise RuntimeError(f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {self.dim()}Tensor Dim: "
                           f"{vec.dim()}")
    if self.shape[-1] != vec.shape[-1]:
        raise RuntimeError("mv: expected self.size(-1) == vec.size(-1)")
    return _multiply(self, vec.unsqueeze(1), False).squeeze(1)


@body(ops.bmm, of="coo")
def bmm(self: Any, mat2: Any) -> Any:
    if is_sparse(mat2):
        raise RuntimeError("bmm_sparse: Tensor 'mat2' must be dense")
    if not is_sparse(self):
        raise refusal("bmm", mat2)
    found = ((self._pattern.dense_dim == 0, f"Tensor 'self' must have 0 dense dims, but has {self._pattern.dense_dim}"),
             (self.dim() == 3, f"Tensor 'self' must have 3 sparse dims, but has {self.dim()}"),
             (mat2.dim() == 3, f"Tensor 'mat2' must have 3 dims, but has {mat2.dim()}"))
    for holds, text in found:
        if not holds:
            raise RuntimeError(f"bmm_sparse: {text}")
    for d, e in ((0, 0), (2, 1)):
        if self.shape[d] != mat2.shape[e]:
            raise RuntimeError(f"bmm_sparse: 'self.size({d})' and 'mat2.size({e})' must match")
    (batch, high, wide), cols = self.shape, mat2.shape[2]
    x = coalesce(self)
    index, values = x._pattern.indices, values_of(x)
    rows, columns = index[0] * high + index[1], index[0] * wide + index[2]
    flat = mat2.reshape((batch * wide, cols))
    return _product(rows, columns, values, batch * high, flat).reshape((batch, high, cols))


@body(ops.matmul)
def matmul(self: Any, other: Any) -> Any:
    dims = (self.dim(), other.dim())
    if dims == (2, 1):
        return mv(self, other)
    if dims == (1, 2):
        return _multiply(self.unsqueeze(0), other, False).squeeze(0)
    if dims == (2, 2):
        return mm(self, other)
    if dims[1] == 2 and dims[0] > 2 and not is_sparse(self):
        folded = self.reshape((math.prod(self.shape[:-1]), self.shape[-1]))
        return mm(folded, other).reshape((*self.shape[:-1], other.shape[1]))
    if dims == (3, 3) and self.layout is COO:
        raise RuntimeError("expand is unsupported for Sparse tensors")
    return (self if is_sparse(self) else other).flatten()          # refused: torch folds batches this way


@body("linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    rows = input if is_sparse(input) or input.dim() == 2 else input.reshape((-1, input.shape[-1]))
    product = _multiply(rows, weight.t(), False)
    if rows is not input:
        product = product.reshape((*input.shape[:-1], weight.shape[0]))
    elif not is_sparse(product) and not is_coo(weight):
        product = product.contiguous()
    return product if bias is None else product + bias


def _weighted(self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (self if beta == 1 else self * beta)


def _addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any, masked: bool) -> Any:
    if not any(is_sparse(x) for x in (mat1, mat2)) and self.layout is CSR or any(
            type(x._pattern) is Compressed for x in (self, mat1, mat2) if is_sparse(x)):
        _check_factors(self.layout, mat1, mat2)
    size = (mat1.shape[0], mat2.shape[1])
    if is_coo(mat1) and is_coo(mat2) and not is_sparse(self):
        raise RuntimeError("addmm_sparse_dense: expected either 'mat1' to have sparse layout and 'mat2' to have strided layout, "
                           "got 'mat1' with layout Sparse and 'mat2' with layout Sparse")
    if is_sparse(self) and not (is_coo(self) and is_coo(mat1)):
        if is_sparse(mat1) and is_sparse(mat2) or self.layout is not COO:
            if tuple(self.shape) != size:
                raise RuntimeError(f"expand is unsupported for {WORDS[self.layout]} tensors")
            product = _multiply(mat1, mat2, False)
            product = product if product.layout is self.layout else product.to_sparse(layout=self.layout)
            return _weighted(self, product, beta, alpha)
    if is_coo(self):
        raise RuntimeError(f"addmm_sparse_dense: expected strided result tensor, got tensor with layout {WORDS[self.layout]}")
    if is_coo(mat2) and not is_sparse(mat1):
        raise RuntimeError("addmm_sparse_dense: expected either 'mat1' to have sparse layout and 'mat2' to have strided "
                           f"layout, got 'mat1' with layout {WORDS[mat1.layout]} and 'mat2' with layout {WORDS[mat2.layout]}")
    product = _multiply(mat1, mat2, masked)
    product = product.to_dense() if is_sparse(product) else product
    return _weighted(self.expand(size) if tuple(self.shape) != size else self, product, beta, alpha)


@body(ops.addmm)
def addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _addmm(self, mat1, mat2, beta, alpha, False)


@body(ops.addmv, of="compressed")
def addmv(self: Any, mat: Any, vec: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    return _weighted(self, mv(mat, vec), beta, alpha)


@composite("_sparse_mm(Tensor sparse, Tensor dense) -> Tensor", variants="function", out=False)
def _sparse_mm(sparse: Any, dense: Any) -> Any:
    """torch.sparse.mm: the gradient of a sparse operand has its places only."""
    raise RuntimeError("_sparse_mm: expected at least one sparse matrix, got two dense ones")


body("_sparse_mm")(lambda sparse, dense: _multiply(sparse, dense, True))


@composite("_sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           variants="function", out=False)
def _sparse_addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    """torch.sparse.addmm: the gradient of a sparse operand has its places only."""
    return ops.addmm(self, mat1, mat2, beta=beta, alpha=alpha)


body("_sparse_addmm")(lambda self, mat1, mat2, beta=1, alpha=1: _addmm(self, mat1, mat2, beta, alpha, True))


# ---- sparse results --------------------------------------------------------------------------------------------------
@composite("sspaddmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           variants="function, method", out=False)
def _sspaddmm_rows(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    """beta self + alpha (mat1 @ mat2) as a sparse tensor; mat2 is dense."""
    raise RuntimeError("tensor.sspaddmm(...) can only be called on sparse tensors")


@body("sspaddmm", of="coo")
def sspaddmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    if not is_coo(self) or not is_coo(mat1) or is_sparse(mat2):
        raise RuntimeError("tensor.sspaddmm(...) can only be called on sparse tensors")
    if mat1.shape[1] != mat2.shape[0] or tuple(self.shape) != (mat1.shape[0], mat2.shape[1]):
        raise RuntimeError(f"sspaddmm: Argument #3: Expected dim 0 size {mat1.shape[1]}, got {mat2.shape[0]}")
    return self * beta + smm(mat1, mat2) * alpha


@composite("smm(Tensor self, Tensor mat2) -> Tensor", variants="function, method", out=False)
def _smm_rows(self: Any, mat2: Any) -> Any:
    """A sparse times a dense matrix as a sparse tensor."""
    raise RuntimeError("tensor.sspaddmm(...) can only be called on sparse tensors")


@body("smm", of="coo")
def smm(self: Any, mat2: Any) -> Any:
    """Every column of the rows that the hybrid product has, zeros too."""
    rows = hspmm(self, mat2)
    count, columns = rows._pattern.nnz, mat2.shape[1]
    down = rows._pattern.indices[0].repeat_interleave(columns)
    right = ops.arange(columns, dtype=INT64, device=down.device).repeat(count)
    size = (self.shape[0], columns)
    return from_values(Coo(ops.stack([down, right]), size, count * columns < 2), values_of(rows).reshape(-1), "SmmBackward0")


@composite("hspmm(Tensor mat1, Tensor mat2) -> Tensor", variants="function")
def _hspmm_rows(mat1: Any, mat2: Any) -> Any:
    """A sparse times a dense matrix as a hybrid tensor: rows sparse, columns dense."""
    raise refusal("hspmm", mat1)


@body("hspmm", of="coo")
def hspmm(mat1: Any, mat2: Any) -> Any:
    if not is_coo(mat1) or is_sparse(mat2):
        raise refusal("hspmm", mat1 if is_sparse(mat1) else mat2)
    if mat1._pattern.sparse_dim != 2:
        raise RuntimeError(f"hspmm: Argument #2: matrices expected, got {mat1._pattern.sparse_dim}D tensor")
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"hspmm: Argument #3: Expected dim 0 size {mat1.shape[1]}, got {mat2.shape[0]}")
    x = coalesce(mat1)
    rows, inverse = ops.unique(x._pattern.indices[0], return_inverse=True)
    values = _product(inverse, x._pattern.indices[1], values_of(x), rows.shape[0], mat2)
    pattern = Coo(rows.unsqueeze(0), (mat1.shape[0], mat2.shape[1]), rows.shape[0] < 2)
    return from_values(pattern, values, "HspmmBackward0")


composite("_sparse_sparse_matmul(Tensor self, Tensor other) -> Tensor", variants="function", out=False,
          doc="The product of two COO matrices.")(lambda self, other: _refuse_dense(self))
body("_sparse_sparse_matmul", of="coo")(_sparse_sparse)


def _refuse_dense(x: Any) -> NoReturn:
    raise refusal("_sparse_sparse_matmul", x)


functions["spmm"] = functions["dsmm"] = ops.mm
functions["hsmm"], functions["saddmm"] = ops.hspmm, ops.sspaddmm


# ---- sampled ---------------------------------------------------------------------------------------------------------
@composite("sparse_sampled_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           variants="", out=True)
def _sampled_rows(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    """beta self + alpha (mat1 @ mat2) at the places of the CSR tensor self."""
    raise refusal("sparse_sampled_addmm", self)


@body("sparse_sampled_addmm")
def sampled_addmm(self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    if self.layout is COO:
        raise refusal("sparse_sampled_addmm", self)
    if self.layout is CSC:
        raise RuntimeError("sampled_addmm: Expected result to have sparse csr layout, but got SparseCsc")
    if self.layout is not CSR:
        raise RuntimeError(f"sampled_addmm: Expected self to have sparse csr layout, but got {WORDS[self.layout]}")
    if self.dtype.itemsize < 4 or not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but got "
                           f"{word_of(self.dtype)}")
    for name, t in (("mat1", mat1), ("mat2", mat2)):
        if is_sparse(t):
            raise RuntimeError(f"sampled_addmm: Expected {name} to have strided layout, but got {WORDS[t.layout]}")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({mat1.shape[-2]}x{mat1.shape[-1]} and "
                           f"{mat2.shape[-2]}x{mat2.shape[-1]})")
    if (self.shape[-2], self.shape[-1]) != (mat1.shape[-2], mat2.shape[-1]):
        raise RuntimeError(f"sampled_addmm: self.shape[-2] and mat1.shape[-2] or self.shape[-1] and mat2.shape[-1] must match, "
                           f"got {list(self.shape)}, {list(mat1.shape)} and {list(mat2.shape)}")
    pattern = self._pattern
    if pattern.batch_dim:
        product = pattern.take(mat1 @ mat2)
    else:
        indices = pattern.as_coo().indices
        product = _sampled(indices[0], indices[1], mat1, mat2)
    values = product if alpha == 1 else product * alpha
    if beta != 0:
        values = values + (values_of(self) if beta == 1 else values_of(self) * beta)
    return from_values(pattern, values, "SparseSampledAddmmBackward0")


