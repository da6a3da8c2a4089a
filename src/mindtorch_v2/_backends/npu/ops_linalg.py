"""Kernels of the npu for matrices: products whose operands need a turn, factors and systems as far as CANN has them.

Factors that CANN lacks are in ops_factor.py."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import cube
from mindtorch_v2._backends.npu.aclnn import launch
from mindtorch_v2._backends.npu.body import Args, Body, Outs
from mindtorch_v2._backends.npu.ops_dtypes import in_cube, plus_product, product
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._shape import broadcast

_INT32 = _C._dtype_named("int32")


# ---- products --------------------------------------------------------------------------------------------------------
def _linear(input: Any, weight: Any, bias: Any) -> Any:
    """What aclnnAddmm does not take: dtypes, and a weight of one dim."""
    made = ops.matmul(input, weight.t()) if in_cube(input) else product(input, weight.t())
    return made if bias is None else made + bias


def _addmv(outs: Outs, args: Args) -> None:
    (out,), (self, mat, vec, beta, alpha) = outs, args
    if out.is_complex():
        out.copy_(plus_product(self, mat, vec, beta, alpha))
    else:
        launch("aclnnAddmv", out, self.expand(out.shape), mat, vec, alpha, beta, out, cube.math_type("aclnnAddmv"))


# ---- factors ---------------------------------------------------------------------------------------------------------
def _note_failures(info: Any, made: Any) -> None:
    """info as LAPACK returns it, as far as a result shows it: 1 where a matrix has none."""
    info.copy_((made - made).abs().amax((-2, -1)) != 0) if made.numel() else info.fill_(0)


def _cholesky(outs: Outs, args: Args) -> None:
    (L, info), (self, upper) = outs, args
    launch("aclnnLinalgCholesky", L, self, upper, L)
    _note_failures(info, L)


_QR_MODES = {"reduced": 0, "complete": 1, "r": 2}


def _qr(outs: Outs, args: Args) -> None:
    (Q, R), (A, mode) = outs, args
    launch("aclnnLinalgQr", R, A, _QR_MODES[mode], Q, R)


def _svd(outs: Outs, args: Args) -> None:
    (U, S, Vh, info), (A, full_matrices, compute_uv, _) = outs, args
    rows, columns, k = A.size(-2), A.size(-1), S.size(-1)
    V = ops.empty([*A.shape[:-2], columns, columns if full_matrices else k], dtype=A.dtype, device=A.device)
    # aclnnSvd looks at the shapes of u and v also where it fills neither, and takes sigma in the dtype of input only.
    left = U if compute_uv else ops.empty([*A.shape[:-2], rows, rows if full_matrices else k], dtype=A.dtype,
                                          device=A.device)
    sigma = ops.empty_like(S, dtype=A.dtype) if A.is_complex() else S
    launch("aclnnSvd", S, A, full_matrices, compute_uv, sigma, left, V)
    if sigma is not S:
        S.copy_(sigma.real)
    for made in (U, V) if compute_uv and not A.numel() else ():                    # bases of all that is there
        made.copy_(ops.eye(made.size(-2), made.size(-1), dtype=A.dtype, device=A.device))
    if compute_uv:
        Vh.copy_(V.mH)
    info.fill_(0)


# ---- determinants: LU and pivots stay unwritten, for CANN keeps its own; the rows' gradients here go by the inverse --
def _slogdet(A: Any, sign: Any, size: Any) -> None:
    n = A.size(-1)
    if n == 0:
        sign.fill_(1)
        size.fill_(0)
        return
    signs, sizes = sign.reshape(-1), size.reshape(-1)
    for i, matrix in enumerate(A.detach().reshape(-1, n, n)):            # aclnnSlogdet takes one matrix
        launch("aclnnSlogdet", matrix, matrix, signs[i], sizes[i])


def _linalg_slogdet(outs: Outs, args: Args) -> None:
    _slogdet(args[0], outs[0], outs[1])


def _linalg_det(outs: Outs, args: Args) -> None:
    out = outs[0]
    sign, size = ops.empty_like(out), ops.empty_like(out)
    _slogdet(args[0], sign, size)
    ops.mul(sign, size.exp(), out=out)


# ---- systems ---------------------------------------------------------------------------------------------------------
def triangular(A: Any, B: Any, upper: bool, unitriangular: bool) -> Any:
    """X of A X = B, of matrices with any batch dims."""
    batch = broadcast(A.shape[:-2], B.shape[:-2])
    A, B = A.expand((*batch, *A.shape[-2:])), B.expand((*batch, *B.shape[-2:]))
    X, M = ops.empty_like(B.contiguous()), ops.empty_like(A.contiguous())
    launch("aclnnTriangularSolve", X, B, A, upper, False, unitriangular, X, M)
    return X


def _solve_triangular(self: Any, B: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    if left:
        return triangular(self, B, upper, unitriangular)
    return triangular(self.transpose(-2, -1), B.transpose(-2, -1), not upper, unitriangular).transpose(-2, -1)


def _cholesky_solve(self: Any, input2: Any, upper: bool) -> Any:
    half = triangular(input2.mH if upper else input2, self, False, False)
    return triangular(input2 if upper else input2.mH, half, True, False)


def _cholesky_inverse(self: Any, upper: bool) -> Any:
    one = ops.eye(self.size(-1), dtype=self.dtype, device=self.device).expand(self.shape)
    return _cholesky_solve(one, self, upper)


BODIES = {
    "_linalg_cholesky_ex": Body(kernel=_cholesky, needs="aclnnLinalgCholesky"),
    "_linalg_det": Body(kernel=_linalg_det),
    "_linalg_slogdet": Body(kernel=_linalg_slogdet),
    "_linalg_svd": Body(kernel=_svd, needs="aclnnSvd"),
    "addmv": Body(kernel=_addmv),
    "cholesky_inverse": Body(value=_cholesky_inverse),
    "cholesky_solve": Body(value=_cholesky_solve),
    "linalg_qr": Body(kernel=_qr),
    "linalg_solve_triangular": Body(value=_solve_triangular),
    "linear": Body(fallback=_linear),
}
