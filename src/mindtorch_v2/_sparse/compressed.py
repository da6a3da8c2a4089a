"""What compressed tensors alone have: resizing, values drawn anew, triangular systems, and the conversion of their indices."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import ops, publish_plain
from mindtorch_v2._sparse.construct import _validate_sparse_compressed_tensor_args
from mindtorch_v2._sparse.convert import compressed_to_coo
from mindtorch_v2._sparse.pattern import BSC, BSR, CSC, CSR, INT64, Compressed
from mindtorch_v2._sparse.shapes import select
from mindtorch_v2._sparse.tensor import SparseTensor, body, check_inplace, is_coo, is_sparse, make, refusal, word_of
from mindtorch_v2._tensor import Tensor

INT32 = _C._dtype_named("int32")


# ---- sizes -----------------------------------------------------------------------------------------------------------
def _grown(part: Any, shape: tuple[int, ...], fill: Any = None) -> Any:
    """The first items of a part in another shape; what is new is 0, or its last item where fill says so."""
    made = ops.zeros((math.prod(shape),), dtype=part.dtype, device=part.device)
    kept = min(made.shape[0], part.numel())
    made[:kept] = part.reshape(-1)[:kept]
    if fill is not None and made.shape[0] > kept:
        made[kept:] = fill
    return made.reshape(shape)


def resize_compressed(self: Any, size: tuple[int, ...]) -> Any:
    """Other numbers of rows and more columns; the values stay."""
    check_inplace(self)
    pattern = self._pattern
    if len(size) < 2:
        raise RuntimeError("torch.resize_: Only batched sparse CSR matrices are supported, but got size "
                           f"{list(size)}")
    columns, wanted = self.shape[-1], size[-1]
    if columns > wanted:
        raise RuntimeError("torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not supported. The "
                           f"original number of columns is {columns} while the requested new number of columns is {wanted}.")
    batches = tuple(size[:-2])
    lines = size[-2] if pattern.by_rows else size[-1]
    lines //= (pattern.blocksize[0 if pattern.by_rows else 1] if pattern.blocked else 1)
    nnz = pattern.nnz
    if math.prod(size) < self.numel():
        nnz = min(nnz, math.prod(size[-2:]))
    one = len(size) == 2 and pattern.batch_dim == 0
    compressed = _grown(pattern.compressed, (*batches, lines + 1), pattern.compressed.reshape(-1)[-1] if one else None)
    if one or len(size) == 3 and size[0] == 1:
        compressed[..., -1] = nnz
    plain = _grown(pattern.plain, (*batches, nnz))
    values = _grown(self._dense, (*batches, nnz, *self._dense.shape[pattern.batch_dim + 1:]))
    made = make(Compressed(pattern.layout, compressed, plain, size, pattern.blocksize), values)
    _C._take_wrapper(self, made)
    self._pattern, self._dense = made._pattern, made._dense
    return self


def _resize_(self: Any, *size: Any, memory_format: Any = None) -> Any:
    if is_coo(self):
        raise refusal("resize_", self)
    return resize_compressed(self, tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size)


SparseTensor.resize_ = _resize_                  # type: ignore[method-assign]


# ---- values ----------------------------------------------------------------------------------------------------------
@body(ops.normal_, of="compressed")
def _normal_(self: Any, mean: float = 0, std: float = 1, generator: Any = None) -> Any:
    check_inplace(self)
    values = ops.empty_like(self._dense).normal_(mean, std, generator=generator)
    self._dense = make(self._pattern, values)._dense
    return self


@body("randn_like", of="compressed")
def _randn_like(self: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
                requires_grad: Any = False, memory_format: Any = None, generator: Any = None) -> Any:
    """Normal numbers at the places of self."""
    if layout is not None and layout is not self.layout:
        raise refusal("randn_like", self)
    made = make(self._pattern, ops.randn_like(self._dense, dtype=dtype, device=device, generator=generator))
    return made._requires_grad_(True) if requires_grad else made


@body("select_copy", of="compressed")
def _select_copy(self: Any, dim: int, index: int) -> Any:
    taken = self.select(dim, index) if dim % max(self.dim(), 1) < self._pattern.batch_dim else select(
        compressed_to_coo(self), dim, index).coalesce()
    return taken.clone()


# ---- systems ---------------------------------------------------------------------------------------------------------
@body("triangular_solve", of="compressed")
def triangular_solve(self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    """The solution of a system whose matrix is compressed; torch gives no copy of the matrix."""
    if is_sparse(self) or A.layout not in (CSR, BSR):
        raise RuntimeError("PyTorch compiled with MKL supports triangular_solve on the CPU for matrices in SparseCsr and "
                           "SparseBsr, with dense right-hand sides")
    if not (self.is_floating_point() or self.is_complex()):
        raise NotImplementedError(f"\"triangular_solve_out_sparse_csr_impl_mkl\" not implemented for '{word_of(self.dtype)}'")
    if tuple(A.shape[-2:]) != (A.shape[-1],) * 2:
        raise RuntimeError("triangular_solve: A must be batches of square matrices, but they are "
                           f"{A.shape[-2]} by {A.shape[-1]} matrices")
    dense = A.detach().to_dense()
    solved = ops.triangular_solve(self, dense, upper=upper, transpose=transpose, unitriangular=unitriangular)
    rows = solved[0].new_empty(tuple(solved[0].shape)).copy_(solved[0])      # the dense op gives columns
    return type(solved)((rows, self.new_empty((0,))))


# ---- indices ---------------------------------------------------------------------------------------------------------
def _index_name(name: str, t: Any) -> None:
    if t.dtype not in (INT32, INT64):
        raise NotImplementedError(f"\"{name}\" not implemented for '{word_of(t.dtype)}'")


def _convert_indices_from_coo_to_csr(input: Any, size: int, *, out_int32: bool = False) -> Any:
    """Sorted row indices as running counts."""
    if input.dim() > 1:
        raise RuntimeError(f"Input is supposed to be a vector, but got {input.dim()} dimensional tensor.")
    _index_name("convert_indices_from_coo_to_csr_cpu", input)
    counts = ops.zeros((size + 1,), dtype=INT32 if out_int32 else INT64, device=input.device)
    if size and input.numel():
        counts[1:] = ops.bincount(input, minlength=size).cumsum(0).to(counts.dtype)
    return counts


def _convert_indices_from_csr_to_coo(crow_indices: Any, col_indices: Any, *, out_int32: bool = False,
                                     transpose: bool = False) -> Any:
    """Running counts and columns as COO indices; transpose: columns first."""
    _index_name("convert_indices_from_csr_to_coo_cpu", crow_indices)
    lead, lines = tuple(crow_indices.shape[:-1]), crow_indices.shape[-1] - 1
    grid = Compressed(CSR, crow_indices, col_indices, (*lead, lines, 1))
    found = grid.as_coo().indices.to(INT32 if out_int32 else INT64)
    return ops.cat([found[:-2], found[-1:], found[-2:-1]]) if transpose else found


def _check_of(layout: Any, name: str) -> Any:
    def check(compressed_indices: Any, plain_indices: Any, values: Any, size: Any, check_pinning: bool | None = None) -> None:
        """Raises where these are not the parts of a tensor of that layout."""
        _validate_sparse_compressed_tensor_args(compressed_indices, plain_indices, values, size, layout, check_pinning)
    check.__name__ = check.__qualname__ = name
    return check


publish_plain(_convert_indices_from_coo_to_csr, _convert_indices_from_csr_to_coo, *(
    _check_of(layout, f"_validate_sparse_{word}_tensor_args")
    for layout, word in ((CSR, "csr"), (CSC, "csc"), (BSR, "bsr"), (BSC, "bsc"))))


# ---- methods ---------------------------------------------------------------------------------------------------------
def _sparse_mask_projection(self: Any, mask: Any, accumulate_matches: bool = False) -> Any:
    """The values of a COO tensor at the places of a mask."""
    if not is_coo(self):
        raise refusal("_sparse_mask_projection", self if is_sparse(self) else None)
    return self.sparse_mask(mask)


_sparse_mask_projection.__qualname__ = "Tensor._sparse_mask_projection"
Tensor._sparse_mask_projection = _sparse_mask_projection           # type: ignore[method-assign]
