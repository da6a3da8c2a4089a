"""Rows of orthogonal factorisations: QR, eigenvalues, singular values, and what follows from them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching, forward
from mindtorch_v2._ops.decompose import (
    INT32,
    casts,
    check_float,
    check_info,
    check_matrix,
    check_square,
    columns,
    real_dtype,
    word,
)
from mindtorch_v2._ops.linalg import _t
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import is_plain
from mindtorch_v2._tensor import Tensor

_COMPLEX = {"float32": "complex64", "float64": "complex128"}


def complex_dtype(dtype: _C.dtype) -> _C.dtype:
    return _C._dtype_named(_COMPLEX.get(dtype._name, dtype._name))


def _given(g: Tensor) -> bool:
    """Whether an output's gradient is there: a missing one comes as zeros."""
    return g.requires_grad or not g._readable or (g != 0).any()._known() is not False


def _columns(x: Tensor) -> Tensor:
    """A vector per matrix as factors of its columns."""
    return x.unsqueeze(-2)


def _rows(x: Tensor) -> Tensor:
    return x.unsqueeze(-1)


# ---- QR ------------------------------------------------------------------------------------------
def _qr_rule(A: Tensor, mode: str) -> Sequence[Spec]:
    check_matrix(A, "linalg.qr")
    check_float(A, "linalg.qr")
    if mode not in ("reduced", "r", "complete"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or "
                           "'complete'")
    check_float(A, "linalg.qr", False, "geqrf_cpu")
    *batch, m, n = A.shape
    k = m if mode == "complete" else min(m, n)
    return [((*batch, m, k) if mode != "r" else (0,), A.dtype), ((*batch, k, n), A.dtype)]


def _qr_grad(gs: list[Tensor], mode: str, Q: Tensor, R: Tensor) -> Tensor:
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
                           "torch.linalg.qr(A, mode='reduced') if you are going to require gradients.")
    m, n = Q.size(-2), R.size(-1)
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    g_q, g_r = gs
    if m >= n:
        return _qr_square(g_q, g_r, Q, R)
    U, V, g_v = R.narrow(-1, 0, m), R.narrow(-1, m, n - m), g_r.narrow(-1, m, n - m)   # A = [X Y], V = Q^H Y
    g_q = g_q + ops.matmul(ops.matmul(Q, V), _t(g_v))
    return ops.cat([_qr_square(g_q, g_r.narrow(-1, 0, m), Q, U), ops.matmul(Q, g_v)], -1)


def _qr_square(g_q: Tensor, g_r: Tensor, Q: Tensor, R: Tensor) -> Tensor:
    inner = (ops.matmul(g_r, _t(R)) - ops.matmul(_t(Q), g_q)).triu()
    diagonal = inner.diagonal(0, -2, -1)
    inner = inner + _t(inner) - ops.diag_embed(_real(diagonal))
    return ops.linalg_solve_triangular(_t(R), g_q + ops.matmul(Q, inner), upper=False, left=False)


def _real(x: Tensor) -> Tensor:
    return ops.complex(x.real, ops.zeros_like(x.real)) if x.is_complex() else x


op("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
   batch=batching.leading, autocast={"cpu": "float32"},
   rule=_qr_rule, variants="linalg", format="|0 |1",
   grad={"A": lambda gs, mode, result0, result1: _qr_grad(gs, mode, result0, result1)})


@composite("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)", autocast={"cpu": "float32"}, out="exact")
def _qr(self: Tensor, some: bool) -> tuple[Tensor, Tensor]:
    """An orthogonal Q and an upper triangular R with self = Q R."""
    _config.warn_once("torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n"
                      "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\nQ, R = torch.qr(A, some)\n"
                      "should be replaced with\nQ, R = torch.linalg.qr(A, 'reduced' if some else 'complete')")
    return tuple(ops.linalg_qr(self, "reduced" if some else "complete"))


def _geqrf_rule(self: Tensor) -> Sequence[Spec]:
    if self.dim() < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    return [(tuple(self.shape), self.dtype), ((*self.shape[:-2], min(self.shape[-2:])), self.dtype)]


op("geqrf(Tensor self) -> (Tensor a, Tensor tau)", out="casts",
   batch=batching.leading, autocast={"cpu": "float32"}, rule=_geqrf_rule, format="|0")


def _householder_rule(input: Tensor, tau: Tensor) -> Spec:
    name = "torch.linalg.householder_product"
    if input.dim() < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input.size(-2) < input.size(-1):
        raise RuntimeError(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if input.size(-1) < tau.size(-1):
        raise RuntimeError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    if input.dim() - tau.dim() != 1:
        raise RuntimeError(f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal to "
                           f"{tau.dim()} and input.ndim is equal to {input.dim()}")
    if tuple(input.shape[:-2]) != tuple(tau.shape[:-1]):
        raise RuntimeError(f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
                           f"{list(tau.shape[:-1])}")
    if tau.dtype != input.dtype:
        raise RuntimeError(f"{name}: tau dtype {word(tau.dtype)} does not match input dtype {word(input.dtype)}")
    return tuple(input.shape), input.dtype


def _reflect(x: Tensor, reflectors: Tensor, tau: Tensor, order: Any, adjoint: bool = False) -> Tensor:
    """Applies I - tau v v^H, for the columns v of `reflectors` in that order, to the columns of x."""
    m = x.size(-2)
    for i in order:
        below = reflectors.select(-1, i).narrow(-1, i + 1, m - i - 1)
        one = ops.ones_like(reflectors.select(-1, i).narrow(-1, 0, 1))
        v = ops.cat([one.expand((*below.shape[:-1], 1)), below], -1).unsqueeze(-1)
        part = x.narrow(-2, i, m - i)
        factor = tau.narrow(-1, i, 1).unsqueeze(-1)
        part = part - (factor.conj() if adjoint else factor) * ops.matmul(v, ops.matmul(_t(v), part))
        x = ops.cat([x.narrow(-2, 0, i), part], -2)
    return x


op("_householder_product(Tensor input, Tensor tau) -> Tensor",
   batch=batching.leading, rule=_householder_rule, variants="",
   kernel="linalg_householder_product", format="|0")


@composite("linalg_householder_product(Tensor input, Tensor tau) -> Tensor", lacks="half", autocast={"cpu": "float32"},
           variants="linalg", out=casts("torch.linalg.householder_product"))
def _householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of Householder reflections."""
    recorded = not (input._readable and tau._readable or input.is_meta) or \
        _C._is_grad_enabled() and (input.requires_grad or tau.requires_grad)
    if not recorded and not input.is_npu:                    # CANN has no kernel for it
        return ops._householder_product(input, tau)
    _householder_rule(input, tau)
    nothing = input.narrow(-1, 0, 0).sum() + tau.narrow(-1, 0, 0).sum()              # the result belongs to both
    start = ops.eye(*input.shape[-2:], dtype=input.dtype, device=input.device) + nothing
    return _reflect(start.expand(input.shape), input, tau, range(tau.size(-1) - 1, -1, -1))


@composite("orgqr(Tensor self, Tensor input2) -> Tensor", autocast={"cpu": "float32"})
def _orgqr(self: Tensor, input2: Tensor) -> Tensor:
    """The first columns of a product of Householder reflections."""
    return ops.linalg_householder_product(self, input2)


@composite("ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor",
           forward=forward.refused("ormqr"), autocast={"cpu": "float32"})
def _ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool, transpose: bool) -> Tensor:
    """Multiplies input3 with the orthogonal matrix of geqrf's reflections (self, input2)."""
    if self.dim() < 2 or input3.dim() < 2:
        raise RuntimeError(f"torch.ormqr: {'input' if self.dim() < 2 else 'other'} must have at least 2 dimensions.")
    if input2.dim() != self.dim() - 1:
        raise RuntimeError("torch.ormqr: Expected tau to have one dimension less than input, but got tau.ndim equal to "
                           f"{input2.dim()} and input.ndim is equal to {self.dim()}")
    side = "other.shape[-2]" if left else "other.shape[-1]"
    if input3.size(-2 if left else -1) < input2.size(-1):
        raise RuntimeError(f"torch.ormqr: {side} must be greater than or equal to tau.shape[-1]")
    if input3.size(-2 if left else -1) != self.size(-2):
        raise RuntimeError(f"torch.ormqr: {side} must be equal to input.shape[-2]")
    if input2.size(-1) != min(input3.size(-2 if left else -1), self.size(-1)):
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1])")
    check_float(self, "torch.ormqr", False, "ormqr_cpu", True)
    k = input2.size(-1)
    x = input3 if left else _t(input3)
    transpose = transpose if left else not transpose
    if is_plain(self, input2, input3) and self.is_cpu and self.size(-2) <= 4 * k:      # else the square matrix is much larger
        turned = ops._householder_product(ops.constant_pad_nd(self.narrow(-1, 0, k), (0, self.size(-2) - k)), input2)
        made = ops.matmul(_t(turned) if transpose else turned, x)
        return columns(made if left else _t(made))
    made = _reflect(x, self, input2, range(k) if transpose else range(k - 1, -1, -1), adjoint=transpose)
    return columns(made if left else _t(made))


# ---- eigenvalues ---------------------------------------------------------------------------------
def _eigh_rule(A: Tensor, UPLO: str, compute_v: bool) -> Sequence[Spec]:
    check_square(A, "linalg.eigh")
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    check_float(A, "linalg.eigh", False, "linalg_eigh_cpu", True)
    return [(tuple(A.shape[:-1]), real_dtype(A.dtype)), (tuple(A.shape) if compute_v else (0,), A.dtype),
            (tuple(A.shape[:-2]), INT32)]


def _gaps(values: Tensor) -> Tensor:
    """values[j] - values[i], with ones on the diagonal."""
    gaps = _columns(values) - _rows(values)
    return gaps + ops.eye(values.size(-1), dtype=values.dtype, device=values.device)


def _check_phase(diagonal: Tensor, name: str, which: str) -> None:
    if diagonal.is_complex() and diagonal._readable and (diagonal.imag.abs() > 1e-2).any()._known():
        raise RuntimeError(f"{name}: The {which} in the complex case are specified up to multiplication by e^{{i phi}}"
                           ". The specified loss function depends on this quantity, so it is ill-defined.")


def _eigh_grad(gs: list[Tensor], values: Tensor, V: Tensor) -> Tensor:
    g_l, g_v = gs[0], gs[1]
    if not _given(g_v):
        return ops.matmul(V * _columns(g_l), _t(V))
    inner = ops.matmul(_t(V), g_v)
    _check_phase(inner.diagonal(0, -2, -1), "linalg_eigh_backward", "eigenvectors")
    inner = (inner - _t(inner)) * 0.5 / _gaps(values)
    inner = _off_diagonal(inner) + ops.diag_embed(g_l)
    return ops.matmul(V, ops.matmul(inner, _t(V)))


def _off_diagonal(x: Tensor) -> Tensor:
    return x.triu(1) + x.tril(-1)


op("_linalg_eigh(Tensor A, str UPLO='L', bool compute_v=True) "
   "-> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)",
   batch=batching.leading, forward=forward.eigenvalues, rule=_eigh_rule, variants="", format="|1",
   grad={"A": lambda gs, result0, result1: _eigh_grad(gs, result0, result1)})


def _wants(A: Tensor) -> bool:
    return not A._readable or _C._is_grad_enabled() and A.requires_grad


@composite("linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
           autocast={"cpu": "float32"}, variants="linalg", out="exact")
def _eigh(self: Tensor, UPLO: str) -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and eigenvectors of a Hermitian matrix, one triangle of which is read."""
    values, vectors, info = ops._linalg_eigh(self, UPLO)
    check_info(info, "linalg.eigh")
    return values, vectors


@composite("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor", autocast={"cpu": "float32"}, variants="linalg",
           out="exact")
def _eigvalsh(self: Tensor, UPLO: str) -> Tensor:
    """Eigenvalues of a Hermitian matrix, rising."""
    values, _, info = ops._linalg_eigh(self, UPLO, _wants(self))
    check_info(info, "linalg.eigh")
    return values


def _eig_rule(self: Tensor, name: str = "linalg.eig") -> Sequence[Spec]:
    check_square(self, name)
    if not (self.dtype.is_floating_point or self.dtype.is_complex):
        raise RuntimeError(f"Unknown Complex ScalarType for {word(self.dtype)}")
    check_float(self, name, False, "linalg_eig_out_cpu")
    dtype = complex_dtype(self.dtype)
    return [(tuple(self.shape[:-1]), dtype), (tuple(self.shape), dtype), (tuple(self.shape[:-2]), INT32)]


def _eig_grad(gs: list[Tensor], values: Tensor, V: Tensor) -> Tensor:
    g_l, g_v = gs[0], gs[1]
    inner = ops.diag_embed(g_l)
    if _given(g_v):
        made = ops.matmul(_t(V), g_v)
        diagonal = made.diagonal(0, -2, -1)
        _check_phase(diagonal, "linalg_eig_backward", "eigenvectors")
        made = made - ops.matmul(_t(V), V * _columns(diagonal.real))
        inner = inner + _off_diagonal(made / _gaps(values).conj())
    return ops.linalg_solve(_t(V), ops.matmul(inner, _t(V)))


def _cast(g: Tensor, dtype: _C.dtype) -> Tensor:
    return g.real if g.is_complex() and not dtype.is_complex else g


op("_linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors, Tensor info)",
   batch=batching.leading, rule=_eig_rule, variants="", format="|1",
   grad={"self": lambda gs, self_dtype, result0, result1: _cast(_eig_grad(gs, result0, result1), self_dtype)})
op("_linalg_eigvals(Tensor self) -> (Tensor eigenvalues, Tensor info)", batch=batching.leading, variants="",
   rule=lambda self: _eig_rule(self, "linalg.eigvals")[::2])


@composite("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)", autocast={"cpu": "float32"},
           variants="linalg")
def _eig(self: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a square matrix; complex."""
    values, vectors, info = ops._linalg_eig(self)
    check_info(info, "linalg.eig")
    return values, vectors


@composite("linalg_eigvals(Tensor self) -> Tensor", autocast={"cpu": "float32"}, variants="linalg",
           out=casts("torch.linalg.eigvals", "eigenvalues"))
def _eigvals(self: Tensor) -> Tensor:
    """Eigenvalues of a square matrix; complex."""
    values, *_, info = ops._linalg_eig(self) if _wants(self) else ops._linalg_eigvals(self)
    check_info(info, "linalg.eig")
    return values


# ---- singular values -----------------------------------------------------------------------------
def _svd_rule(A: Tensor, full_matrices: bool, compute_uv: bool, driver: str | None) -> Sequence[Spec]:
    check_matrix(A, "linalg.svd")
    check_float(A, "linalg.svd", False, "linalg_svd_cpu")
    if driver is not None:
        raise RuntimeError("torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with "
                           "cuSOLVER backend.")
    *batch, m, n = A.shape
    k = min(m, n)
    return [((*batch, m, m if full_matrices else k) if compute_uv else (0,), A.dtype),
            ((*batch, k), real_dtype(A.dtype)),
            ((*batch, n if full_matrices else k, n) if compute_uv else (0,), A.dtype), (tuple(batch), INT32)]


def _skew(x: Tensor) -> Tensor:
    return x - _t(x)


def _svd_grad(gs: list[Tensor], A_shape: tuple[int, ...], full_matrices: bool, compute_uv: bool, U: Tensor, S: Tensor,
              Vh: Tensor) -> Tensor:
    g_u, g_s, g_v = gs[:3]
    if not compute_uv:
        raise RuntimeError("svd_backward: Setting compute_uv to false in torch.svd doesn't compute singular matrices, "
                           "and hence we cannot compute backward. Please use torch.svd(compute_uv=True)")
    m, n = A_shape[-2:]
    k = min(m, n)
    if full_matrices:
        U, Vh, g_u, g_v = U.narrow(-1, 0, k), Vh.narrow(-2, 0, k), g_u.narrow(-1, 0, k), g_v.narrow(-2, 0, k)
    has_u, has_v = _given(g_u), _given(g_v)
    if not has_u and not has_v:
        return ops.matmul(U * _columns(g_s), Vh)
    left, right = _skew(ops.matmul(_t(U), g_u)), _skew(ops.matmul(Vh, _t(g_v)))
    _check_phase((left + right).diagonal(0, -2, -1), "svd_backward", "singular vectors")
    inner = _off_diagonal((left * _columns(S) + _rows(S) * right) / _gaps(S * S)) + ops.diag_embed(g_s)
    if U.is_complex():
        inner = inner + ops.diag_embed(left.diagonal(0, -2, -1) / (2 * S))
    if m > k and has_u:                                 # what of g_u stands outside U's span
        over = g_u / _columns(S)
        return ops.matmul(ops.matmul(U, inner) + over - ops.matmul(U, ops.matmul(_t(U), over)), Vh)
    if n > k and has_v:
        over = g_v / _rows(S)
        return ops.matmul(U, ops.matmul(inner, Vh) + over - ops.matmul(ops.matmul(over, _t(Vh)), Vh))
    return ops.matmul(U, ops.matmul(inner, Vh))


op("_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) "
   "-> (Tensor U, Tensor S, Tensor Vh, Tensor info)",
   batch=batching.leading, forward=forward.singular_values, rule=_svd_rule, variants="", format="|0 |2",
   grad={"A": lambda gs, A_shape, full_matrices, compute_uv, result0, result1, result2:
         _svd_grad(gs, A_shape, full_matrices, compute_uv, result0, result1, result2)})


@composite("linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
           autocast={"cpu": "float32"},
           variants="linalg", out="exact")
def _linalg_svd(A: Tensor, full_matrices: bool, driver: str | None) -> tuple[Tensor, Tensor, Tensor]:
    """A = U diag(S) Vh, the singular values S falling."""
    *made, info = ops._linalg_svd(A, full_matrices, driver=driver)
    check_info(info, "linalg.svd")
    return tuple(made)


@composite("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor", autocast={"cpu": "float32"}, variants="linalg",
           out="exact")
def _svdvals(A: Tensor, driver: str | None) -> Tensor:
    """The singular values, falling."""
    _, S, _, info = ops._linalg_svd(A, False, _wants(A), driver=driver)
    check_info(info, "linalg.svd")
    return S


@composite("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
           autocast={"cpu": "float32"}, out="exact")
def _svd(self: Tensor, some: bool, compute_uv: bool) -> tuple[Tensor, Tensor, Tensor]:
    """self = U diag(S) V^H, the singular values S falling."""
    if self.dim() < 2:
        raise RuntimeError(f"linalg.svd: input should have at least 2 dimensions, but has {self.dim()} dimensions instead")
    if compute_uv:
        U, S, Vh = ops.linalg_svd(self, not some)
        return U, S, _t(Vh)
    *batch, m, n = self.shape
    return self.new_zeros((*batch, m, m)), ops.linalg_svdvals(self), self.new_zeros((*batch, n, n))
