"""Rows of functions of matrices: norms, rank, pseudo-inverse, least squares, powers, exponential, cross products."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.decompose import (
    INT32,
    INT64,
    casts,
    check_float,
    check_info,
    check_matrix,
    check_square,
    epsilon,
    real_dtype,
    word,
)
from mindtorch_v2._ops.linalg import _t
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.reduce import is_float
from mindtorch_v2._ops.table import Spec, alias, composite, op, ops, publish_plain
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor


# ---- norms ---------------------------------------------------------------------------------------
def _norm(self: Tensor, ord: float | None, dim: Sequence[int] | None, keepdim: bool, dtype: _C.dtype | None) -> Tensor:
    """A vector norm, or a matrix norm where ord and two dims say so."""
    if dim is not None:
        dim = [dim] if isinstance(dim, int) else list(dim)
        if len(dim) not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {dim}")
    elif ord is not None and self.dim() not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                           f"{self.dim()}D.")
    if isinstance(ord, str) or (ord is not None and (len(dim) == 2 if dim is not None else self.dim() == 2)):
        return ops.linalg_matrix_norm(self, ord, [0, 1] if dim is None else dim, keepdim, dtype=dtype)
    return ops.linalg_vector_norm(self, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


op("linalg_norm(Tensor self, any? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
   body=_norm, variants="linalg", doc=_norm.__doc__, out="linalg.norm expected out tensor dtype {result} but got: {out}")


@composite("linalg_matrix_norm(Tensor self, any? ord='fro', int[] dim=[-2, -1], bool keepdim=False, *, "
           "ScalarType? dtype=None) -> Tensor", autocast={"npu": "float32 result"}, variants="linalg",
           out="linalg.matrix_norm expected out tensor dtype {result} but got: {out}")
def _matrix_norm(self: Tensor, ord: Any, dim: Sequence[int], keepdim: bool, dtype: _C.dtype | None) -> Tensor:
    """The norm of each matrix: 'fro', 'nuc', 2, -2 (singular values), 1, -1 (columns), inf, -inf (rows)."""
    name = "linalg.matrix_norm"
    check_matrix(self, name)
    check_float(self, name, ord not in ("nuc", 2, -2))
    dim = list(dim)
    if len(dim) != 2:
        raise RuntimeError(f"{name}: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    if not isinstance(ord, str) and abs(ord) not in (1, 2, math.inf):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    rows, columns = (wrap(d, self.dim()) for d in dim)
    if rows == columns:
        raise RuntimeError(f"{name}: dims must be different. Got ({dim[0]}, {dim[1]})")
    if dtype is not None:
        _check_norm_dtype(name, self, dtype)
        self = self.to(dtype)
    if ord == "fro":
        return ops.linalg_vector_norm(self, 2, dim, keepdim)
    if ord == "nuc" or abs(ord if not isinstance(ord, str) else 0) == 2:
        S = ops.linalg_svdvals(self.movedim((rows, columns), (-2, -1)))
        made = S.sum(-1) if ord == "nuc" else _largest(S, -1, False) if ord > 0 else S.amin(-1)
        if keepdim:
            for d in sorted((rows, columns)):
                made = made.unsqueeze(d)
        return made
    if isinstance(ord, str):
        raise RuntimeError(f"{name}: Order {ord} not supported.")
    along, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = ops.linalg_vector_norm(self, 1, along, keepdim)
    over = over if keepdim or over < along else over - 1
    return _largest(sums, over, keepdim) if ord > 0 else sums.amin(over, keepdim)


def _check_norm_dtype(name: str, self: Tensor, dtype: Any) -> None:
    if not dtype.is_floating_point and not dtype.is_complex:
        raise RuntimeError(f"{name}: dtype should be floating point or complex, but got {word(dtype)}")
    if dtype.is_complex != self.is_complex():
        kind = "complex" if self.is_complex() else "real"
        raise RuntimeError(f"{name}: dtype should be {kind} for {kind} inputs, but got {word(dtype)}")
    if _C.promote_types(self.dtype, dtype) is not dtype:
        raise RuntimeError(f"{name}: the dtype of the input ({word(self.dtype)}) should be convertible without narrowing "
                           f"to the specified dtype ({word(dtype)})")


def _largest(x: Tensor, dim: int, keepdim: bool) -> Tensor:
    """The maximum of numbers that are not negative: 0 where there are none."""
    return x.amax(dim, keepdim) if x.size(dim) else x.sum(dim, keepdim)


@composite("nuclear_norm(Tensor self, bool keepdim=False) -> Tensor", autocast={"npu": "float32"}, variants="function")
def _nuclear_norm(self: Tensor, keepdim: bool) -> Tensor:
    """The sum of the singular values."""
    return ops.linalg_matrix_norm(self, "nuc", (-2, -1), keepdim)


@composite("nuclear_norm.dim(Tensor self, int[2] dim, bool keepdim=False) -> Tensor", variants="function")
def _nuclear_norm_dim(self: Tensor, dim: tuple[int, ...], keepdim: bool) -> Tensor:
    return ops.linalg_matrix_norm(self, "nuc", dim if isinstance(dim, (tuple, list)) else (dim, dim), keepdim)


def _singular(A: Tensor) -> Any:
    """1 where a matrix has no inverse."""
    inverse, info = ops.linalg_inv_ex(A)
    return inverse, info != 0


@composite("linalg_cond(Tensor self, any? p=None) -> Tensor", autocast={"cpu": "float32"}, variants="linalg",
           out=casts("linalg.cond"))
def _cond(self: Tensor, p: Any) -> Tensor:
    """How much the solution of a system with this matrix may magnify an error."""
    if isinstance(p, str):
        check_square(self, f"linalg.cond(ord={p})")
    elif self.dim() < 2:
        raise RuntimeError("linalg.cond: The input tensor must have at least 2 dimensions.")
    if p is None or p in (2, -2):
        S = ops.linalg_svdvals(self)
        if not S.numel():
            return S.new_zeros(S.shape[:-1])
        first, last = S.select(-1, 0), S.select(-1, -1)
        return last / first if p == -2 else first / last
    if p not in ("fro", "nuc") and (isinstance(p, str) or abs(p) not in (1, math.inf)):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if self.numel() == 0:
        return ops.zeros(self.shape[:-2], dtype=real_dtype(self.dtype), device=self.device)
    check_square(self, f"linalg.cond(ord={p})")
    if p == "nuc":
        S = ops.linalg_svdvals(self)
        return S.sum(-1) * S.reciprocal().sum(-1)
    inverse, singular = _singular(self)
    made = ops.linalg_matrix_norm(self, p) * ops.linalg_matrix_norm(inverse, p)
    return made.masked_fill(singular, math.inf)


# ---- rank, pseudo-inverse ------------------------------------------------------------------------
def _tolerances(self: Tensor, atol: Any, rtol: Any) -> tuple[float, Tensor | float]:
    """atol and rtol as given; rtol defaults to eps * max(m, n), or to 0 where atol is positive."""
    default = epsilon(self.dtype) * max(self.shape[-2:])
    atol, rtol = (float(t) if isinstance(t, int) else t for t in (atol, rtol))       # also beyond int64
    if atol is None:
        return 0.0, default if rtol is None else rtol
    if rtol is None:
        if hasattr(atol, "dtype"):
            zero = ops.zeros_like(atol, dtype=real_dtype(self.dtype))
            return atol, ops.where(atol > 0, zero, zero + default)
        rtol = 0.0 if atol > 0 else default
    return atol, rtol


def _limit(largest: Tensor, atol: Any, rtol: Any) -> Tensor:
    """max(atol, rtol * largest), with the values' dim at the end."""
    atol, rtol = (t.unsqueeze(-1) if hasattr(t, "dtype") else t for t in (atol, rtol))
    scaled = largest * rtol
    return ops.maximum(scaled, atol) if hasattr(atol, "dtype") else scaled.clamp(min=atol)


def _check_tolerance(name: str, **given: Any) -> Any:
    for which, t in given.items():
        if hasattr(t, "dtype") and t.dtype.is_complex:
            raise RuntimeError(f"torch.{name}: {which} tensor of complex type is not supported. Got {word(t.dtype)}")


def _rank(self: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    check_matrix(self, "torch.linalg.matrix_rank", "input")
    if not is_float(self.dtype) or self.dtype.itemsize == 2:
        raise RuntimeError("This function doesn't handle types other than float and double")
    _check_tolerance("linalg.matrix_rank", atol=atol, rtol=rtol)
    atol, rtol = _tolerances(self, atol, rtol)
    if self.numel() == 0:
        shape: Sequence[int] = self.shape[:-2]
        for t in (atol, rtol):
            shape = broadcast(shape, t.shape) if hasattr(t, "dtype") else shape
        return ops.zeros(shape, dtype=INT64, device=self.device)
    S = ops.linalg_eigvalsh(self).abs() if hermitian else ops.linalg_svdvals(self)
    return (_limit(S.amax(-1, True), atol, rtol) < S).sum(-1)


op("linalg_matrix_rank(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
   autocast={"cpu": "float32"},
   variants="linalg", numbers="other", body=_rank, doc="The number of singular values above the tolerance.")
op("linalg_matrix_rank.tol(Tensor self, Tensor tol, bool hermitian=False) -> Tensor", variants="linalg", numbers="other",
   body=lambda self, tol, hermitian: _rank(self, tol, 0.0, hermitian))


def _pinv_rule(self: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Spec:
    check_matrix(self, "linalg.pinv")
    *batch, m, n = self.shape
    for t in (atol, rtol):
        if hasattr(t, "dtype"):
            batch = list(broadcast(batch, t.shape))
    return (*batch, n, m), self.dtype


def _pinv_kernel(outs: tuple[Tensor, ...], args: tuple[Tensor, float, Tensor | float, bool]) -> None:
    self, atol, rtol, hermitian = args
    self = self.detach()
    if hermitian:
        S, V = ops.linalg_eigh(self)
        size, Uh, largest = S.abs(), _t(V), S.abs().amax(-1, True)
    else:
        U, S, Vh = ops.linalg_svd(self, False)
        size, V, Uh, largest = S, _t(Vh), _t(U), S.narrow(-1, 0, 1)
    inverse = ops.where(size > _limit(largest, atol, rtol), S.reciprocal(), 0)
    outs[0].copy_(ops.matmul(V * inverse.unsqueeze(-2), Uh))


def _pinv_grad(g: Tensor, A: Tensor, P: Tensor) -> Tensor:
    """From d(P) = -P dA P + P P^H dA^H (I - A P) + (I - P A) dA^H P^H P."""
    Ph, gh = _t(P), _t(g)
    first, second = ops.matmul(ops.matmul(gh, P), Ph), ops.matmul(ops.matmul(Ph, P), gh)
    return (first - ops.matmul(A, ops.matmul(P, first)) + second - ops.matmul(ops.matmul(second, P), A)
            - ops.matmul(ops.matmul(Ph, g), Ph))


op("_linalg_pinv(Tensor self, Tensor atol, Tensor rtol, bool hermitian) -> Tensor",
   batch=batching.leading, rule=_pinv_rule, kernel=_pinv_kernel,
   variants="", numbers="other", grad={"self": lambda g, self, result: _pinv_grad(g, self, result)})

def _pinv(self: Tensor, atol: float | None, rtol: Tensor | float | None, hermitian: bool) -> Tensor:
    if self.dim() < 2 or not is_float(self.dtype) or self.dtype.itemsize == 2:
        raise RuntimeError(f"linalg.pinv({word(self.dtype)}{{{list(self.shape)}}}): expected a tensor with 2 or more dimensions of "
                           "float, double, cfloat or cdouble types")
    _check_tolerance("linalg.pinv", atol=atol, rtol=rtol)
    atol, rtol = _tolerances(self, atol, rtol)
    if self.numel() == 0:
        return self.transpose(-2, -1).clone()
    return ops._linalg_pinv(self, atol, rtol, hermitian)


op("linalg_pinv(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor",
   variants="linalg", numbers="other", body=_pinv, out=casts("linalg.pinv"),
   doc="The pseudo-inverse: small singular values count as zero.")
op("linalg_pinv.rcond(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor", variants="linalg", numbers="other",
   out=casts("linalg.pinv"), body=lambda self, rcond, hermitian: _pinv(self, 0.0, rcond, hermitian))


@composite("pinverse(Tensor self, float rcond=1e-15) -> Tensor", autocast={"cpu": "float32"}, out=False)
def _pinverse(self: Tensor, rcond: float) -> Tensor:
    """The pseudo-inverse: small singular values count as zero."""
    return _pinv(self, 0.0, rcond, False)


# ---- least squares -------------------------------------------------------------------------------
def _lstsq_rule(self: Tensor, b: Tensor, driver: str, rcond: float | None) -> Sequence[Spec]:
    *batch, m, n = self.shape
    batch = list(broadcast(batch, b.shape[:-2]))
    k = min(m, n)
    return [((*batch, n, b.size(-1)), self.dtype), (batch if driver != "gels" else (0,), INT64),
            ((*batch, k) if driver in ("gelsd", "gelss") else (0,), real_dtype(self.dtype)), (batch, INT32)]


def _lstsq_grad(g: Tensor, self: Tensor, b: Tensor, needs: tuple[bool, ...]) -> tuple[Tensor | None, Tensor | None]:
    P = ops.linalg_pinv(self)
    return (_pinv_grad(ops.matmul(g, _t(b)), self, P) if needs[0] else None,
            ops.matmul(_t(P), g) if needs[1] else None)


op("_linalg_lstsq(Tensor self, Tensor b, str driver, float? rcond=None) "
   "-> (Tensor solution, Tensor rank, Tensor singular_values, Tensor info)", rule=_lstsq_rule, variants="", format="|0",
   batch=batching.leading_or_none,
   grad={"self, b": lambda g, self, b, needs: _lstsq_grad(g, self, b, needs)})


@composite("linalg_lstsq(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) "
           "-> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)", autocast={"cpu": "float32"},
           variants="linalg")
def _lstsq(self: Tensor, b: Tensor, rcond: float | None, driver: str | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X that makes A X - B smallest, its residuals, and what the driver knows of A's rank and singular values."""
    name = "torch.linalg.lstsq"
    if self.dim() < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if b.dim() < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if self.dtype != b.dtype:
        raise RuntimeError(f"{name}: Expected input and other to have the same dtype, but got input's dtype "
                           f"{word(self.dtype)} and other's dtype {word(b.dtype)}")
    if self.dim() - b.dim() not in (0, 1):
        raise RuntimeError(f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - "
                           "other.dim()) <= 1")
    vector = b.dim() == 1 or tuple(self.shape[:-1]) == tuple(b.shape)
    rhs = b.unsqueeze(-1) if vector else b
    m, n = self.shape[-2:]
    if m != rhs.size(-2):
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({'-1' if vector else '-2'})")
    if rcond is None and (not is_float(self.dtype) or self.dtype.itemsize == 2):      # the default is a multiple of eps
        raise RuntimeError("This function doesn't handle types other than float and double")
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    X, rank, values, info = ops._linalg_lstsq(self, rhs, driver, rcond)
    check_info(info, name)
    full = driver == "gels" or (driver != "gelsy" and bool((rank._of_all_samples() == n).all()))
    none = (X.real if X.is_complex() else X).reshape(-1).narrow(0, 0, 0)
    residuals = (ops.matmul(self, X) - rhs).abs().square().sum(-2) if m > n and full else none
    return X.squeeze(-1) if vector else X, residuals, rank, values


# ---- powers and products -------------------------------------------------------------------------
@composite("linalg_matrix_power(Tensor self, int n) -> Tensor", variants="linalg", out="exact")
def _matrix_power(self: Tensor, n: int) -> Tensor | None:
    """A matrix times itself n times; the inverse's power for negative n."""
    check_square(self, "linalg.matrix_power", "A")
    if n == 0:
        nothing = self.narrow(-1, 0, 0).sum().to(self.dtype)      # 0, with self's history
        return (ops.eye(self.size(-1), dtype=self.dtype, device=self.device) + nothing).expand(self.shape).clone()
    x = ops.linalg_inv(self) if n < 0 else self
    n, made = abs(n), None
    if n == 1:
        return x.clone() if x is self else x
    while n:
        if n & 1:
            made = x if made is None else ops.matmul(made, x)
        n >>= 1
        x = ops.matmul(x, x) if n else x
    return made


_TAYLOR = [1 / math.factorial(i) for i in range(17)]


def _matrix_exp_grad(g: Tensor, self: Tensor) -> Tensor:
    """The upper right block of the exponential of both in one matrix."""
    n, turned = self.size(-1), self.mH
    rows = (ops.cat([turned, g], -1), ops.cat([ops.zeros_like(turned), turned], -1))
    return ops.linalg_matrix_exp(ops.cat(rows, -2))[..., :n, n:]


op("_matrix_exp(Tensor self) -> Tensor", out=False, variants="", whole=True, rule=lambda self: (self.shape, self.dtype),
   body=lambda self: ops.linalg_matrix_exp(self), grad={"self": lambda g, self: _matrix_exp_grad(g, self)},
   forward=lambda row, slots, tangents, result: _matrix_exp_grad(tangents[0], slots[0].mH),
   doc="linalg_matrix_exp() of a tensor whose class has the values.")


@composite("linalg_matrix_exp(Tensor self) -> Tensor", out=False, variants="linalg", autocast={"cpu": "widest"}, node=True,
           grad={"self": lambda g, self: _matrix_exp_grad(g, self)})
def _matrix_exp(self: Tensor) -> Tensor:
    """e to the power of each matrix: Taylor's series of a scaled one, squared back."""
    check_square(self, "linalg.matrix_exp")
    check_float(self, "linalg.matrix_exp")
    if self.numel() == 0 or self.size(-1) == 1:
        return self.exp()
    if self.dtype.itemsize == 2:
        return ops.linalg_matrix_exp(self.to(_C._dtype_named("float32"))).to(self.dtype)
    largest = self.detach().abs().sum(-2)._of_all_samples().max()._known()
    if largest is None:
        return ops.empty_like(self) if self.is_meta else ops._matrix_exp(self)
    near = 0.8 if real_dtype(self.dtype)._name == "float64" else 2.5       # where 16 terms are enough
    steps = max(0, math.ceil(math.log2(largest / near))) if 0 < largest < math.inf else 0
    x = self * 2.0 ** -steps
    one = ops.eye(self.size(-1), dtype=self.dtype, device=self.device)
    x2 = ops.matmul(x, x)
    powers = [one, x, x2, ops.matmul(x2, x)]
    x4 = ops.matmul(x2, x2)

    def part(i: int) -> Tensor:
        return sum((p * _TAYLOR[i + j] for j, p in enumerate(powers[1:], 1)), one * _TAYLOR[i])
    made = x4 * _TAYLOR[16] + part(12)
    for i in (8, 4, 0):
        made = ops.matmul(made, x4) + part(i)
    for _ in range(steps):
        made = ops.matmul(made, made)
    return made


for _name in ("matrix_power", "matrix_exp"):
    alias(_name, "linalg_" + _name)
alias("linalg_matmul", "matmul", "linalg")


@composite("linalg_multi_dot(Tensor[] tensors) -> Tensor", autocast={"npu": "lower"}, variants="linalg",
           out="multi_dot(): expected out tensor to have dtype {result_c} but got {out_c}")
def _multi_dot(tensors: tuple[Tensor, ...]) -> Tensor:
    """The product of a chain of matrices, in the order that multiplies least."""
    n = len(tensors)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    items, first, last = list(tensors), tensors[0].dim() == 1, tensors[-1].dim() == 1
    for i in (0, n - 1):
        if items[i].dim() not in (1, 2):
            raise RuntimeError(f"multi_dot(): the {'first' if i == 0 else 'last'} tensor must be 1D or 2D but got "
                               f"{items[i].dim()}D")
    items[0] = items[0].unsqueeze(0) if first else items[0]
    items[-1] = items[-1].unsqueeze(-1) if last else items[-1]
    for i in range(n):
        if items[i].dim() != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {items[i].dim()}D")
        if items[i].dtype != items[0].dtype:
            raise RuntimeError("multi_dot(): all tensors must have be the same dtype but tensor 0 is "
                               f"{_C._core._c_word(items[0].dtype)} and tensor {i} {_C._core._c_word(items[i].dtype)}")
        if i and items[i - 1].size(1) != items[i].size(0):
            raise RuntimeError(f"multi_dot(): tensors {i - 1} and {i} with shapes {list(items[i - 1].shape)} and "
                               f"{list(items[i].shape)} cannot be multiplied")
    made = _multiply(items, _chain_order([x.size(0) for x in items] + [items[-1].size(1)]), 0, n - 1)
    made = made.squeeze(-1) if last else made
    return made.squeeze(0) if first else made


def _chain_order(sizes: list[int]) -> dict[str, Any] | dict[tuple[int, int], int]:
    """split[i, j]: where the product of matrices i to j is best cut."""
    n = len(sizes) - 1
    cost, split = {(i, i): 0 for i in range(n)}, {}
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            cost[i, j], split[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))
    return split


def _multiply(items: list[Tensor], split: Any, i: int, j: int) -> Tensor:
    if i == j:
        return items[i]
    k = split[i, j]
    return ops.mm(_multiply(items, split, i, k), _multiply(items, split, k + 1, j))


def chain_matmul(*matrices: Tensor, out: Any = None) -> Tensor:
    """The product of a chain of matrices, in the order that multiplies least."""
    _config.warn_once("torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use "
                      "torch.linalg.multi_dot instead, which accepts a list of two or more tensors rather than multiple "
                      "parameters.")
    matrices = tuple(matrices[0]) if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for matrix in matrices:
        if matrix.dim() != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.dim()}, expected 2 instead.")
    made = matrices[0].clone() if len(matrices) == 1 else ops.linalg_multi_dot(list(matrices))
    return made if out is None else out.resize_(made.shape).copy_(made)


publish_plain(chain_matmul)


# ---- vectors -------------------------------------------------------------------------------------
def _check_cross(self: Tensor, other: Tensor) -> None:
    if ops.result_type(self, other)._name == "bool":
        raise NotImplementedError("\"cross\" not implemented for 'Bool'")


def _cross_rule(self: Tensor, other: Tensor, dim: int) -> Spec:
    if self.dim() != other.dim():
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if self.size(dim) != 3 or other.size(dim) != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {self.size(dim)} and "
                           f"{other.size(dim)}")
    return broadcast(self.shape, other.shape), ops.result_type(self, other)


@composite("linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
           lacks="complex32", variants="linalg", rule=_cross_rule, node=True,
           npu="aclnnLinalgCross(self, other, dim, out)",
           grad={"self": lambda g, other, dim: ops.linalg_cross(conj(other), g, dim=dim),
                 "other": lambda g, self, dim: ops.linalg_cross(g, conj(self), dim=dim)}, out="exact")
def _linalg_cross(self: Tensor, other: Tensor, dim: int) -> Tensor:
    """The cross product of vectors of three items along a dim."""
    _check_cross(self, other)
    shape, _ = _cross_rule(self, other, dim)
    dim = wrap(dim, self.dim())
    a, b = self.expand(shape).unbind(dim), other.expand(shape).unbind(dim)
    return ops.stack([a[i - 2] * b[i - 1] - a[i - 1] * b[i - 2] for i in range(3)], dim)


@composite("cross(Tensor self, Tensor other, int? dim=None) -> Tensor", lacks="complex32", autocast={"npu": "widest"},
           out="exact")
def _cross(self: Tensor, other: Tensor, dim: int | None) -> Tensor:
    """The cross product of vectors of three items along a dim; by default the first of size 3."""
    if dim is None:
        _config.warn_once("Using torch.cross without specifying the dim arg is deprecated.\nPlease either pass the dim explicitly "
                          "or simply use torch.linalg.cross.\nThe default value of dim will change to agree with that of "
                          "linalg.cross in a future release.")
        if 3 not in tuple(self.shape):
            raise RuntimeError("no dimension of size 3 in input")
        dim = tuple(self.shape).index(3)
    return ops.linalg_cross(self, other, dim=dim)


@composite("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", autocast="lower", variants="linalg",
           out="linalg.vecdot: Expected out of dtype{result} but found {out}")
def _vecdot(x: Tensor, y: Tensor, dim: int) -> Tensor:
    """Sums of products along a dim, the first operand conjugated."""
    check_float(x, "linalg.vecdot")
    if x.dtype != y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type "
                           f"{word(x.dtype)} and y of type {word(y.dtype)} instead")
    if x.dim() == y.dim() == 1:                  # no dim is looked at then, and nothing is broadcast
        return ops.vdot(x, y)
    return (x.conj() * y).sum(dim)


@composite("linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
           out=False, variants="linalg")
def _diagonal(A: Tensor, offset: int, dim1: int, dim2: int) -> Tensor:
    """A view of each matrix's diagonal."""
    return A.diagonal(offset, dim1, dim2)


@composite("linalg_vander(Tensor x, *, SymInt? N=None) -> Tensor", out=False, variants="linalg")
def _vander(x: Tensor, N: int | None) -> Tensor:
    """Rows of the powers 0 to N - 1 of each item."""
    if word(x.dtype) in ("Bool", "Half", "BFloat16"):
        raise RuntimeError(f"linalg.vander supports floating point, complex, and integer tensors, but got {word(x.dtype)}")
    x = x.reshape(1) if x.dim() == 0 else x
    N = x.size(-1) if N is None else N
    if N <= 1:
        raise RuntimeError("N must be greater than 1.")
    ones = ops.ones_like(x).unsqueeze(-1)
    return ops.cat([ones, x.unsqueeze(-1).expand((*x.shape, N - 1)).cumprod(-1)], -1)


# ---- tensors as matrices -------------------------------------------------------------------------
@composite("linalg_tensorinv(Tensor self, int ind=2) -> Tensor", autocast={"cpu": "float32"}, variants="linalg",
           out=casts("tensorinv"))
def _tensorinv(self: Tensor, ind: int) -> Tensor:
    """The inverse for tensordot over `ind` dims."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, rest = tuple(self.shape[:ind]), tuple(self.shape[ind:])
    rows, columns = math.prod(first), math.prod(rest)
    if rows != columns:
        raise RuntimeError(f"Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind])"
                           f", but got {columns} != {rows}")
    inverse, info = ops.linalg_inv_ex(self.reshape(rows, columns))
    check_info(info, "linalg.tensorinv: inv")
    return inverse.reshape(rest + first)


@composite("linalg_tensorsolve(Tensor self, Tensor other, int[]? dims=None) -> Tensor", autocast={"cpu": "float32"},
           variants="linalg", out=casts("tensorsolve"))
def _tensorsolve(self: Tensor, other: Tensor, dims: tuple[int, ...] | None) -> Tensor:
    """X with tensordot(self, X, X.ndim) == other."""
    x = self
    if dims:
        x = x.movedim(list(dims), list(range(-len(dims), 0)))
    rest = tuple(x.shape[other.dim():])
    if math.prod(rest) != other.numel():
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                           f"prod(self.shape[:other.ndim]), but got {math.prod(rest)} != {other.numel()}")
    return ops.linalg_solve(x.reshape(other.numel(), -1), other.reshape(-1)).reshape(rest)
