"""Kernels of the npu for matrices: products whose operands need a turn, factors and systems as far as CANN has them.

Factors that CANN lacks are in ops_factor.py."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.ops import KERNELS, OTHERS, Kernel, composed, kernel, ops
from mindtorch_v2._backends.npu.ops_dtypes import in_cube, plus_product, product
from mindtorch_v2._backends.npu.ops_nn import Args, Outs, launch
from mindtorch_v2._shape import broadcast

_INT32 = _C._dtype_named("int32")


def quiet(*names: str, registry: dict[str, Kernel] = KERNELS) -> Callable[[Kernel], Kernel]:
    """Registers a kernel that uses ops: nothing it does is recorded, for the row has a gradient of its own."""
    def register(function: Kernel) -> Kernel:
        def run(*arguments: Any) -> Any:
            before = _C._is_grad_enabled()
            _C._set_grad_enabled(False)
            try:
                return function(*arguments)
            finally:
                _C._set_grad_enabled(before)
        registry.update(dict.fromkeys(names, run))
        return function
    return register


# ---- products --------------------------------------------------------------------------------------------------------
@quiet("linear", registry=OTHERS)
def _linear(outs: Outs, args: Args) -> None:
    """What aclnnAddmm does not take: dtypes, and a weight of one dim."""
    (out,), (input, weight, bias) = outs, args
    turned = weight.t()
    if not in_cube(out):
        out.copy_(product(input, turned) if bias is None else product(input, turned) + bias)
        return
    launch("aclnnMatmul", out, input, turned, out, 0)
    if bias is not None:
        launch("aclnnInplaceAdd", out, out, bias, 1)


@quiet("addmm", "baddbmm", registry=OTHERS)
def _addmm(outs: Outs, args: Args) -> None:
    outs[0].copy_(plus_product(*args))


@quiet("addmv")
def _addmv(outs: Outs, args: Args) -> None:
    (out,), (self, mat, vec, beta, alpha) = outs, args
    if out.is_complex():
        out.copy_(plus_product(self, mat, vec, beta, alpha))
    else:
        launch("aclnnAddmv", out, self.expand(out.shape), mat, vec, alpha, beta, out, 0)


# ---- factors ---------------------------------------------------------------------------------------------------------
def _note_failures(info: Any, made: Any) -> None:
    """info as LAPACK gives it, as far as it can be told from a result: 1 where a matrix has none."""
    info.copy_((made - made).abs().amax((-2, -1)) != 0) if made.numel() else info.fill_(0)


@quiet("_linalg_cholesky_ex")
def _cholesky(outs: Outs, args: Args) -> None:
    (L, info), (self, upper) = outs, args
    launch("aclnnLinalgCholesky", L, self, upper, L)
    _note_failures(info, L)


_QR_MODES = {"reduced": 0, "complete": 1, "r": 2}


@kernel("linalg_qr")
def _qr(outs: Outs, args: Args) -> None:
    (Q, R), (A, mode) = outs, args
    launch("aclnnLinalgQr", R, A, _QR_MODES[mode], Q, R)


@quiet("_linalg_svd")
def _svd(outs: Outs, args: Args) -> None:
    (U, S, Vh, info), (A, full_matrices, compute_uv, _) = outs, args
    columns, k = A.size(-1), S.size(-1)
    V = ops.empty([*A.shape[:-2], columns, columns if full_matrices else k] if compute_uv else [0], dtype=A.dtype,
                  device=A.device)
    launch("aclnnSvd", S, A, full_matrices, compute_uv, S, U, V)
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


@quiet("_linalg_slogdet")
def _linalg_slogdet(outs: Outs, args: Args) -> None:
    _slogdet(args[0], outs[0], outs[1])


@quiet("_linalg_det")
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


@composed("linalg_solve_triangular")
def _solve_triangular(self: Any, B: Any, upper: bool, left: bool, unitriangular: bool) -> Any:
    if left:
        return triangular(self, B, upper, unitriangular)
    return triangular(self.transpose(-2, -1), B.transpose(-2, -1), not upper, unitriangular).transpose(-2, -1)


@composed("cholesky_solve")
def _cholesky_solve(self: Any, input2: Any, upper: bool) -> Any:
    half = triangular(input2.mH if upper else input2, self, False, False)
    return triangular(input2 if upper else input2.mH, half, True, False)


@composed("cholesky_inverse")
def _cholesky_inverse(self: Any, upper: bool) -> Any:
    one = ops.eye(self.size(-1), dtype=self.dtype, device=self.device).expand(self.shape)
    return _cholesky_solve(one, self, upper)
