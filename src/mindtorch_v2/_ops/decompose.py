"""Rows of factorisations: Cholesky, LU, and triangular systems; and the checks that all of linear algebra shares."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._dtype import finfo
from mindtorch_v2._ops import batching, forward
from mindtorch_v2._ops.linalg import _t
from mindtorch_v2._ops.returns import returns_class
from mindtorch_v2._ops.table import Spec, composite, functions, methods, op, ops
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor

INT32, INT64 = _C._dtype_named("int32"), _C._dtype_named("int64")
_CONTIGUOUS = _C._named_constant("contiguous_format")


class _LinAlgError(RuntimeError):
    """A factorisation that the matrix does not allow."""


LinAlgError = _LinAlgError
LinAlgError.__module__ = "mindtorch_v2._C"
_C._LinAlgError = LinAlgError


# ---- checks --------------------------------------------------------------------------------------
def word(dtype: Any) -> Any:
    return _C.TYPE_WORDS[dtype._id]


def check_matrix(A: Tensor, name: str, what: str = "A") -> Any:
    if not hasattr(A, "dim"):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(A).__name__}")
    if A.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor {what} must have at least 2 dimensions.")


def check_square(A: Tensor, name: str, what: str = "A") -> None:
    check_matrix(A, name, what)
    if A.size(-1) != A.size(-2):
        raise RuntimeError(f"{name}: {what} must be batches of square matrices, but they are {A.size(-2)} by "
                           f"{A.size(-1)} matrices")


def check_float(A: Tensor, name: str, low: bool = True, kernel: str | None = None, kernel_only: bool = False) -> None:
    """kernel: what of torch says that it has no 16 bits; kernel_only: and no integers."""
    whole = not (A.dtype.is_floating_point or A.dtype.is_complex)
    if whole and not kernel_only:
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {word(A.dtype)}")
    if whole or not low and A.dtype.itemsize == 2:
        if kernel is None:
            raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {word(A.dtype)}")
        raise NotImplementedError(f'"{kernel}" not implemented for \'{word(A.dtype)}\'')


def check_same(A: Tensor, B: Tensor, name: str) -> None:
    if A.dtype != B.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type {word(A.dtype)} and "
                           f"B of type {word(B.dtype)} instead")


def real_dtype(dtype: _C.dtype) -> _C.dtype:
    return {"complex64": _C._dtype_named("float32"), "complex128": _C._dtype_named("float64")}.get(dtype._name, dtype)


# Why LAPACK's positive code came, by a word in the caller's name; the first that fits.
_CAUSES = (
    ("inv", "The diagonal element {} is zero, the inversion could not be completed because the input matrix is "
            "singular."),
    ("solve", "The solver failed because the input matrix is singular."),
    ("cholesky", "The factorization could not be completed because the input is not positive-definite (the leading "
                 "minor of order {} is not positive-definite)."),
    ("eig", "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
            "eigenvalues (error code: {})."),
    ("svd", "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
            "singular values (error code: {})."),
    ("lstsq", "The least squares solution could not be computed because the input matrix does not have full rank "
              "(error code: {})."),
    ("ldl_factor", "D[{0},{0}] is zero and using it on ldl_solve would result in a division by zero."),
    ("lu_factor", "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still "
                  "want to perform the factorization, consider calling linalg.lu(A, pivot) or "
                  "linalg.lu_factor_ex(A, pivot)"),
)


@composite("_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()", variants="function", out=False, whole=True)
def _check_errors(info: Tensor, name: str, is_matrix: bool) -> None:
    """Raises LinAlgError (as torch, RuntimeError for LU) for the first matrix of the batch whose code is not 0."""
    if not info._readable or not bool(info.any()):
        return
    at, codes = "", info.reshape(-1).tolist()
    number = next(i for i, code in enumerate(codes) if code)
    if info.dim():
        at = f"(Batch element {number}): "
    code = codes[number]
    if code < 0:
        if "svd" in name and code == -4:
            raise LinAlgError(f"{name}: {at}The algorithm failed to converge because the input matrix contained "
                              "non-finite values.")
        raise RuntimeError(f"{name}: {at}Argument {-code} has illegal value. Most certainly there is a bug in the "
                           "implementation calling the backend library.")
    cause = next(text for key, text in _CAUSES if key in name)
    kind = RuntimeError if "lu_factor" in name else LinAlgError
    raise kind(f"{name}: {at}{cause.format(code)}")


def check_info(info: Tensor, name: str) -> None:
    """The codes of a factorisation, looked at: one op, so that a class that computes by itself can answer it."""
    ops._linalg_check_errors(info, name, is_matrix=info.dim() == 0)


def checked(made: tuple[Tensor, ...], check_errors: bool, name: str) -> tuple[Tensor, ...]:
    """The results of an _ex op, its codes looked at when asked to."""
    if check_errors:
        check_info(made[-1], name)
    return tuple(made)


def epsilon(dtype: _C.dtype) -> float:
    """The spacing of floats at 1."""
    return finfo(dtype).eps


def columns(A: Tensor) -> Tensor:
    """A copy of each matrix, column by column in memory."""
    return A.transpose(-2, -1).clone(memory_format=_CONTIGUOUS).transpose(-2, -1)


def casts(name: str, what: str = "result") -> tuple[str, str]:
    """out= of a row: of a dtype that the result can be cast to, else these words."""
    return "casts", f"{name}: Expected {what} to be safely castable from {{result}} dtype, but got {what} with dtype {{out}}"


# ---- Cholesky ------------------------------------------------------------------------------------
def _square_rule(name: str, *more: tuple[int, _C.dtype]) -> Callable[..., Any]:
    """self's shape and dtype, then `more` outputs given as (dims dropped from the batch shape, dtype)."""
    def rule(A: Tensor, *rest: Any) -> Sequence[Spec]:
        check_square(A, name)
        check_float(A, name, False, "cholesky_cpu" if "cholesky" in name else None)
        return [(tuple(A.shape), A.dtype), *((tuple(A.shape[:-drop]), dtype) for drop, dtype in more)]
    return rule


def _cholesky_grad(g: Tensor, upper: bool, L: Tensor) -> Tensor:
    if upper:
        return _cholesky_grad(_t(g), False, _t(L))
    phi = ops.matmul(_t(L), g)
    below = phi.tril(-1)
    phi = (below + _t(below) + ops.diag_embed(phi.diagonal(0, -2, -1))) * 0.5
    half = ops.linalg_solve_triangular(_t(L), phi, upper=True)
    return ops.linalg_solve_triangular(L, half, upper=False, left=False)


op("_linalg_cholesky_ex(Tensor self, *, bool upper=False) -> (Tensor L, Tensor info)", batch=batching.leading,
   rule=_square_rule("linalg.cholesky", (2, INT32)), kernel="linalg_cholesky_ex", variants="", format="|0",
   grad={"self": lambda g, upper, result0: _cholesky_grad(g, upper, result0)})


@composite("linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
           autocast={"cpu": "float32"},
           variants="linalg", out="exact")
def _cholesky_ex(self: Tensor, upper: bool, check_errors: bool) -> tuple[Tensor, ...]:
    """The Cholesky factor and a code that is not 0 where the matrix has none."""
    return checked(ops._linalg_cholesky_ex(self, upper=upper), check_errors, "linalg.cholesky_ex")


@composite("linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor", autocast={"cpu": "float32"},
           variants="linalg", out="exact")
def _linalg_cholesky(self: Tensor, upper: bool) -> Tensor:
    """The Cholesky factor of a positive-definite matrix."""
    return checked(ops._linalg_cholesky_ex(self, upper=upper), True, "linalg.cholesky")[0]


@composite("cholesky(Tensor self, bool upper=False) -> Tensor", forward=forward.refused("cholesky"),
           autocast={"cpu": "float32"})
def _cholesky(self: Tensor, upper: bool) -> Tensor:
    """The Cholesky factor of a positive-definite matrix."""
    check_square(self, "cholesky")
    check_float(self, "cholesky", False, "cholesky_cpu", True)
    _config.warn_once("torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch "
                      "release.\nL = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
                      "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\n"
                      "This transform will produce equivalent results for all valid (symmetric positive definite) inputs.")
    return checked(ops._linalg_cholesky_ex(self, upper=upper), True, "cholesky")[0]


def _system_rule(name: str, self: Tensor, A: Tensor) -> Spec:
    """B and A of a system as (the shape of X, its dtype)."""
    check_square(A, name)
    check_matrix(self, name, "B")
    if A.size(-2) != self.size(-2):
        raise RuntimeError(f"Incompatible matrix sizes for {name}: each A matrix is {A.size(-1)} by {A.size(-1)} but "
                           f"each b matrix is {self.size(-2)} by {self.size(-1)}")
    if A.dtype != self.dtype:
        raise RuntimeError(f"{name}: Expected b and A to have the same dtype, but found b of type {word(self.dtype)} "
                           f"and A of type {word(A.dtype)} instead")
    return (*broadcast(self.shape[:-2], A.shape[:-2]), *self.shape[-2:]), self.dtype


def _cholesky_solve_rule(self: Tensor, input2: Tensor, upper: bool) -> Spec:
    for b, what in ((self, "b"), (input2, "u")):
        if b.dim() < 2:
            raise RuntimeError(f"{what} should have at least 2 dimensions, but has {b.dim()} dimensions instead")
    return _system_rule("cholesky_solve", self, input2)


def _cholesky_solve_grad(g: Tensor, self: Tensor, input2: Tensor, upper: bool, result: Tensor,
                         needs: tuple[bool, ...]) -> tuple[Tensor, Tensor | None]:
    rhs = ops.cholesky_solve(g, input2, upper)
    if not needs[1]:
        return rhs, None
    common = ops.matmul(rhs, _t(result))
    common = common + _t(common)
    return rhs, -ops.matmul(input2, common) if upper else -ops.matmul(common, input2)


op("cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor", out=casts("cholesky_solve"),
   batch=batching.leading, autocast={"cpu": "float32"},
   rule=_cholesky_solve_rule, format="|0",
   grad={"self, input2": lambda g, self, input2, upper, result, needs:
         _cholesky_solve_grad(g, self, input2, upper, result, needs)})


def _cholesky_inverse_rule(self: Tensor, upper: bool) -> Spec:
    check_square(self, "cholesky_inverse")
    return tuple(self.shape), self.dtype


def _cholesky_inverse_grad(g: Tensor, self: Tensor, upper: bool, result: Tensor) -> Tensor:
    common = ops.matmul(ops.matmul(result, g + _t(g)), result)
    return -ops.matmul(self, common) if upper else -ops.matmul(common, self)


op("cholesky_inverse(Tensor self, bool upper=False) -> Tensor", out=casts("cholesky_inverse"), batch=batching.leading,
   autocast={"cpu": "float32"}, rule=_cholesky_inverse_rule, format="|0",
   grad={"self": lambda g, self, upper, result: _cholesky_inverse_grad(g, self, upper, result)})

# ---- triangular systems --------------------------------------------------------------------------
def _triangular_rule(self: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> Spec:
    name = "linalg.solve_triangular"
    check_square(self, name)
    check_matrix(B, name, "B")
    check_same(self, B, name)
    if self.size(-2) != B.size(-2 if left else -1):
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({self.size(-2)}x{self.size(-1)} and "
                           f"{B.size(-2)}x{B.size(-1)})")
    return (*broadcast(self.shape[:-2], B.shape[:-2]), *B.shape[-2:]), self.dtype


def _triangular_grad(g: Tensor, self: Tensor, upper: bool, left: bool, unitriangular: bool, result: Tensor,
                     needs: tuple[bool, ...]) -> tuple[Tensor | None, Tensor]:
    rhs = ops.linalg_solve_triangular(_t(self), g, upper=not upper, left=left, unitriangular=unitriangular)
    if not needs[0]:
        return None, rhs
    A = -(ops.matmul(rhs, _t(result)) if left else ops.matmul(_t(result), rhs))
    return (A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))), rhs


op("linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
   batch=batching.leading,
   rule=_triangular_rule, variants="linalg", format="|0",
   grad={"self, B": lambda g, self, upper, left, unitriangular, result, needs:
         _triangular_grad(g, self, upper, left, unitriangular, result, needs)})


def _triangular_pair(self: Tensor, A: Tensor, *_: object) -> Sequence[Spec]:
    for t, what in ((self, "b"), (A, "A")):
        if t.dim() < 2:
            raise RuntimeError(f"torch.triangular_solve: Expected {what} to have at least 2 dimensions, but it has "
                               f"{t.dim()} dimensions instead")
    shape, dtype = _system_rule("triangular_solve", self, A)
    return [(shape, dtype), ((*shape[:-2], *A.shape[-2:]), dtype)]


@composite("triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) "
           "-> (Tensor solution, Tensor cloned_coefficient)", autocast={"cpu": "float32"}, rule=_triangular_pair,
           npu="aclnnTriangularSolve(self, A, upper, transpose, unitriangular, solution, cloned_coefficient)",
           out="exact")
def _triangular_solve(self: Tensor, A: Tensor, upper: bool, transpose: bool,
                      unitriangular: bool) -> tuple[Tensor, Tensor]:
    """X of A X = self for a triangular A, and a copy of A."""
    _config.warn_once("torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be removed in a "
                      "future PyTorch release.\ntorch.linalg.solve_triangular has its arguments reversed and does not return a "
                      "copy of one of the inputs.\nX = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
                      "X = torch.linalg.solve_triangular(A, B).")
    A = A.expand(_triangular_pair(self, A)[1][0])
    used = A.transpose(-2, -1) if transpose else A
    made = ops.linalg_solve_triangular(used, self, upper=upper != transpose, unitriangular=unitriangular)
    return made, columns(A)


# ---- LU ------------------------------------------------------------------------------------------
def _lu_rule(A: Tensor, pivot: bool) -> Sequence[Spec]:
    if A.dim() < 2:
        raise RuntimeError(f"torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    check_float(A, "torch.lu_factor", False, "lu_cpu", True)
    batch = tuple(A.shape[:-2])
    return [(tuple(A.shape), A.dtype), ((*batch, min(A.shape[-2:])), INT32), (batch, INT32)]


def _parts(LU: Tensor) -> tuple[Tensor, Tensor]:
    """L (with its unit diagonal) and U from the packed matrix."""
    k = min(LU.shape[-2:])
    L = LU.narrow(-1, 0, k).tril(-1)
    return L + ops.eye(L.size(-2), k, dtype=L.dtype, device=L.device), LU.narrow(-2, 0, k).triu()


def _permutation(pivots: Tensor, n: int, like: Tensor) -> Tensor:
    """P of A = P L U."""
    order = ops._lu_permutation(pivots, n)
    zeros = ops.zeros((*order.shape, n), dtype=like.dtype, device=like.device)
    return zeros.scatter(-2, order.unsqueeze(-2), 1)


def _lu_grad(g: Tensor, pivots: Tensor, LU: Tensor) -> Tensor:
    """The gradient of A = P L U from that of the packed factors."""
    m, n = LU.shape[-2:]
    k = min(m, n)
    L, U = _parts(LU)
    g_l, g_u = g.narrow(-1, 0, k).tril(-1), g.narrow(-2, 0, k).triu()
    square, U1 = L.narrow(-2, 0, k), U.narrow(-1, 0, k)
    phi_l, phi_u = ops.matmul(_t(square), g_l.narrow(-2, 0, k)), ops.matmul(g_u.narrow(-1, 0, k), _t(U1))
    if m < n:                                            # the columns beyond the square: U2 = inv(L1) A2
        g_u2 = g_u.narrow(-1, k, n - k)
        phi_l = phi_l - ops.matmul(g_u2, _t(U.narrow(-1, k, n - k)))
    elif m > n:                                          # the rows beyond it: L2 = A2 inv(U1)
        g_l2 = g_l.narrow(-2, k, m - k)
        phi_u = phi_u - ops.matmul(_t(L.narrow(-2, k, m - k)), g_l2)
    inner = phi_l.tril(-1) + phi_u.triu()
    inner = ops.linalg_solve_triangular(_t(U1), inner, upper=False, left=False)
    if m > n:
        top = ops.linalg_solve_triangular(_t(square), inner, upper=True, unitriangular=True)
        below = ops.linalg_solve_triangular(_t(U1), g_l2, upper=False, left=False)
        made = ops.cat([top, below], -2)
    else:
        inner = ops.cat([inner, g_u2], -1) if m < n else inner
        made = ops.linalg_solve_triangular(_t(square), inner, upper=True, unitriangular=True)
    return ops.matmul(_permutation(pivots, m, made), made)


op("_linalg_lu_factor_ex(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots, Tensor info)",
   batch=batching.leading, rule=_lu_rule,
   kernel="linalg_lu_factor_ex", variants="", format="|0",
   grad={"A": lambda g, result0, result1: _lu_grad(g, result1, result0)})
op("_lu_permutation(Tensor pivots, int n) -> Tensor", batch=batching.leading, variants="",
   rule=lambda pivots, n: ((*pivots.shape[:-1], n), INT64))


@composite("linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) "
           "-> (Tensor LU, Tensor pivots, Tensor info)", variants="linalg", out="exact")
def _lu_factor_ex(A: Tensor, pivot: bool, check_errors: bool) -> tuple[Tensor, ...]:
    """The packed LU factors, the pivots, and a code that is not 0 where U is singular."""
    return checked(ops._linalg_lu_factor_ex(A, pivot=pivot), check_errors, "torch.linalg.lu_factor_ex")


@composite("linalg_lu_factor(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)", variants="linalg",
           out="exact")
def _lu_factor(A: Tensor, pivot: bool) -> tuple[Tensor, ...]:
    """The packed LU factors and the pivots."""
    return checked(ops._linalg_lu_factor_ex(A, pivot=pivot), True, "torch.linalg.lu_factor")[:2]


@composite("linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", variants="linalg",
           out="exact")
def _lu(A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    """A = P L U."""
    if A.dim() < 2:
        raise RuntimeError(f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead")
    LU, pivots, _ = ops._linalg_lu_factor_ex(A, pivot=pivot)
    return (_permutation(pivots, A.size(-2), A), *_parts(LU))


@composite("lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) "
           "-> (Tensor P, Tensor L, Tensor U)", variants="function", out="exact")
def _lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool,
               unpack_pivots: bool) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U from what lu_factor gives."""
    if LU_data.dim() < 2:
        raise RuntimeError(f"torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: {list(LU_data.shape)} instead")
    if unpack_pivots and LU_pivots.dtype != INT32:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
                           "Note: this function is intended to be used with the output produced by "
                           "torch.linalg.lu_factor")
    none = LU_data.new_empty((0,))
    P = _permutation(LU_pivots, LU_data.size(-2), LU_data) if unpack_pivots else none
    return (P, *(_parts(LU_data) if unpack_data else (none, none)))


def _lu_solve_rule(LU: Tensor, pivots: Tensor, B: Tensor, left: bool, adjoint: bool) -> Spec:
    name = "torch.linalg.lu_solve"
    check_float(LU, name, False)
    check_square(LU, name, "LU")
    if LU.dtype != B.dtype:
        raise RuntimeError(f"linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type "
                           f"{word(LU.dtype)} and B of type {word(B.dtype)} instead")
    if pivots.dtype != INT32:
        raise RuntimeError("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32")
    check_matrix(B, "linalg.lu_solve", "B")
    if LU.size(-2) != B.size(-2 if left else -1):
        raise RuntimeError(f"linalg.lu_solve: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({LU.size(-2)}x{LU.size(-1)} and "
                           f"{B.size(-2)}x{B.size(-1)})")
    if LU.size(-1) != pivots.size(-1):
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix")
    if tuple(LU.shape[:-1]) != tuple(pivots.shape):
        raise RuntimeError(f"linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots "
                           f"with shape {list(pivots.shape)} instead")
    return (*broadcast(LU.shape[:-2], B.shape[:-2]), *B.shape[-2:]), B.dtype


def _lu_solve_grad(g: Tensor, LU: Tensor, pivots: Tensor, left: bool, adjoint: bool, result: Tensor,
                   needs: tuple[bool, ...]) -> tuple[Tensor | None, Tensor]:
    rhs = ops.linalg_lu_solve(LU, pivots, g, left=left, adjoint=not adjoint)
    if not needs[0]:
        return None, rhs
    A = -(ops.matmul(rhs, _t(result)) if left else ops.matmul(_t(result), rhs))
    A = _t(A) if adjoint else A
    L, U = _parts(LU)
    rows = ops.matmul(_permutation(pivots, LU.size(-2), LU).transpose(-2, -1), A)
    return ops.matmul(rows, _t(U)).tril(-1) + ops.matmul(_t(L), rows).triu(), rhs


op("linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor",
   batch=batching.leading,
   rule=_lu_solve_rule, variants="linalg", format="|0",
   grad={"LU, B": lambda g, LU, pivots, left, adjoint, result, needs:
         _lu_solve_grad(g, LU, pivots, left, adjoint, result, needs)})


@composite("lu_solve(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", autocast={"cpu": "float32"},
           out="exact")
def _lu_solve(self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X of A X = self, from A's LU factors."""
    _config.warn_once("torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a future PyTorch "
                      "release.\nNote that torch.linalg.lu_solve has its arguments reversed.\nX = torch.lu_solve(B, LU, pivots)\n"
                      "should be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)")
    return ops.linalg_lu_solve(LU_data, LU_pivots, self)


_lu_with_info: Any = returns_class("_lu_with_info", [("Tensor", "LU"), ("Tensor", "pivots"), ("Tensor", "info")])


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False,
       out: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
    """The packed LU factors and the pivots, with the codes on request."""
    _config.warn_once("torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be "
                      "removed in a future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced "
                      "with\nLU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\nLU, pivots, info = torch.lu(A, "
                      "compute_pivots, get_infos=True)\nshould be replaced with\nLU, pivots, info = "
                      "torch.linalg.lu_factor_ex(A, compute_pivots)")
    made = ops._linalg_lu_factor_ex(A, pivot=pivot)
    made = _lu_with_info(made) if get_infos else tuple(made)[:2]
    return made if out is None else tuple(to.resize_(x.shape).copy_(x) for to, x in zip(out, made))


functions["lu"] = methods["lu"] = lu

