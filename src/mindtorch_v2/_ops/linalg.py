"""Rows of matrix products; decompositions and solvers are in decompose.py."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, forward, infer
from mindtorch_v2._ops.pointwise import conj, warn_overload
from mindtorch_v2._ops.reduce import word
from mindtorch_v2._ops.table import Spec, alias, composite, op, ops, publish_plain
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._row import Npu
from mindtorch_v2._tensor import Tensor


def _t(x: Tensor) -> Tensor:
    return conj(x.transpose(-2, -1))


def _rows(x: Tensor) -> Tensor:
    """x as a matrix: all leading dims in one."""
    if x.dim() == 2:
        return x
    n = 1
    for size in x.shape[:-1]:
        n *= size
    return x.reshape(n, x.size(-1))


def _matmul_self(g: Tensor, self_shape: tuple[int, ...], other: Tensor) -> Tensor:
    """d(self @ other) / d self, for every rank of the two."""
    if len(self_shape) == 1:
        if other.dim() == 1:
            return g * conj(other)
        return ops.matmul(conj(other), g.unsqueeze(-1)).squeeze(-1)
    if other.dim() == 1:
        return g.unsqueeze(-1) * conj(other)
    return ops.matmul(g, _t(other))


def _matmul_other(g: Tensor, self: Tensor, other_shape: tuple[int, ...]) -> Tensor:
    if len(other_shape) == 1:
        if self.dim() == 1:
            return g * conj(self)
        return ops.matmul(_t(self), g.unsqueeze(-1)).squeeze(-1)
    if self.dim() == 1:
        return conj(self).unsqueeze(-1) * g.unsqueeze(-2)
    if self.dim() > 2 and len(other_shape) == 2:   # one product instead of one per batch item, then a sum
        return ops.mm(conj(_rows(self)).t(), _rows(g))
    return ops.matmul(_t(self), g)


_OF_INPUTS = "result dtype {out} does not match input dtype {result}"     # of an out= of another dtype
op("matmul(Tensor self, Tensor other) -> Tensor", out=_OF_INPUTS,
   batch=batching.matrix_product, forward=forward.bilinear, autocast="lower",
   rule=infer.matmul, npu="aclnnMatmul(self, other, out, 0)",
   grad={"self": lambda g, self_shape, other: _matmul_self(g, self_shape, other),
         "other": lambda g, self, other_shape: _matmul_other(g, self, other_shape)})
op("mm(Tensor self, Tensor mat2) -> Tensor",
   batch=batching.product(2, 2), forward=forward.bilinear, autocast="lower", rule=infer.mm,
   npu="aclnnMm(self, mat2, out, 0)",
   grad={"self": lambda g, mat2: ops.mm(g, _t(mat2)), "mat2": lambda g, self: ops.mm(_t(self), g)})
def _linear_name(node: Any) -> str:
    """Of a matrix it is one product in torch."""
    matrix = len(node._input_metadata[0].shape) == 2
    return "LinearBackward0" if not matrix else "MmBackward0" if node.next_functions[-1][0] is None else "AddmmBackward0"


op("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", several=_linear_name,
   batch=batching.affine, forward=forward.bilinear, autocast="lower",
   rule=infer.linear, variants="nn",
   npu=Npu("aclnnAddmm(bias.row, input.rows, weight.mT, 1, 1, out.rows, 0)",
           without_optional="aclnnMatmul(input, weight.mT, out, 0)"),
   grad={"input": lambda g, weight: ops.matmul(g, conj(weight)) if weight.dim() == 2 else g.unsqueeze(-1) * conj(weight),
         "weight": lambda g, input, weight_shape: _linear_weight(g, input, weight_shape),
         "bias": lambda g: g})


def _linear_weight(g: Tensor, input: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 1:
        return ops.matmul(g.reshape(-1), conj(_rows(input)))
    return ops.mm(_rows(g).t(), conj(_rows(input)))


# ---- products with a sum ------------------------------------------------------------------------------------------
# what torch says of tensors of several dtypes: their names in order, and then what C++ calls them
_DTYPES_DIFFER = {"addmm": "self and mat2 must have the same dtype, but got {0} and {2}",
                  "addmv": "addmv input tensors must have the same dtype, but got {}, {}, and {}",
                  "baddbmm": "Input dtypes must be the same, got: input {3}, batch1: {4}, batch2: {5}",
                  "mv": "addmv input tensors must have the same dtype, but got {1}, {0}, and {1}"}


def _dtype_of(t: Tensor) -> Any:
    return t.dtype


def _same_dtype(name: str, *tensors: Tensor) -> None:
    for t in tensors[1:]:
        if t.dtype != tensors[0].dtype:
            raise RuntimeError(_DTYPES_DIFFER[name].format(*map(word, map(_dtype_of, tensors)), *(
                core._c_word(x.dtype) for x in tensors)))


def _expands(self: Tensor, shape: Sequence[int]) -> None:
    have = self.shape
    if have == shape or len(have) == 1 and have[0] == shape[-1]:             # what is usual, without a detour
        return
    if len(have) > len(shape):
        raise RuntimeError(f"expand: the number of sizes provided ({len(shape)}) must be greater or equal to the number of "
                           f"dimensions in the tensor ({len(have)})")
    for d in range(1, len(have) + 1):
        if have[-d] not in (1, shape[-d]):
            raise RuntimeError(f"The expanded size of the tensor ({shape[-d]}) must match the existing size ({have[-d]}) at "
                               f"non-singleton dimension {len(shape) - d}.  Target sizes: {list(shape)}.  Tensor sizes: "
                               f"{list(have)}")


def _bmm_rule(self: Tensor, mat2: Tensor) -> Spec:
    for which, t in (("batch1", self), ("batch2", mat2)):
        if t.dim() != 3:
            raise RuntimeError(f"{which} must be a 3D tensor")
    if self.dtype != mat2.dtype:
        raise RuntimeError(f"expected scalar type {word(self.dtype)} but found {word(mat2.dtype)}")
    (b, n, k), (b2, k2, m) = tuple(self.shape), tuple(mat2.shape)
    if (b, k) != (b2, k2):
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{b}, {k}] but got: "
                           f"[{b2}, {k2}].")
    return (b, n, m), self.dtype


def _mv_rule(self: Tensor, vec: Tensor) -> Spec:
    if self.dim() != 2 or vec.dim() != 1 or self.size(1) != vec.size(0):
        if self.dim() != 2 or vec.dim() != 1:
            raise RuntimeError(f"vector + matrix @ vector expected, got 1, {self.dim()}, {vec.dim()}")
        raise RuntimeError(f"size mismatch, got input ({self.size(0) if self.dim() else 0}), "
                           f"mat ({'x'.join(map(str, self.shape))}), vec ({'x'.join(map(str, vec.shape))})")
    _same_dtype("mv", self, vec)
    return (self.size(0),), self.dtype


def _dot_rule(self: Tensor, tensor: Tensor) -> Spec:
    if self.dim() != 1 or tensor.dim() != 1:
        raise RuntimeError(f"1D tensors expected, but got {self.dim()}D and {tensor.dim()}D tensors")
    if self.dtype != tensor.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found "
                           f"{word(self.dtype)} and {word(tensor.dtype)}")
    if self.numel() != tensor.numel():
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{self.numel()}] and src [{tensor.numel()}] to "
                           f"have the same number of elements, but got {self.numel()} and {tensor.numel()} elements "
                           "respectively")
    return (), self.dtype


op("bmm(Tensor self, Tensor mat2) -> Tensor",
   batch=batching.product(3, 3), forward=forward.bilinear, autocast="lower",
   rule=_bmm_rule, npu="aclnnBatchMatMul(self, mat2, out, 0)",
   grad={"self": lambda g, mat2: ops.bmm(g, _t(mat2)), "mat2": lambda g, self: ops.bmm(_t(self), g)})
op("mv(Tensor self, Tensor vec) -> Tensor",
   batch=batching.product(2, 1), forward=forward.bilinear, autocast={"npu": "lower"}, rule=_mv_rule,
   npu="aclnnMv(self, vec, out, 0)",
   grad={"self": lambda g, vec: g.unsqueeze(1) * conj(vec), "vec": lambda g, self: ops.mv(_t(self), g)})
op("dot(Tensor self, Tensor tensor) -> Tensor", out=_OF_INPUTS,
   batch=batching.product(1, 1), forward=forward.bilinear, autocast={"npu": "widest"},
   rule=_dot_rule, npu="aclnnDot(self, tensor, out)",
   grad={"self": lambda g, tensor: g * conj(tensor), "tensor": lambda g, self: g * conj(self)})
op("vdot(Tensor self, Tensor other) -> Tensor", out=_OF_INPUTS, batch=batching.vdot, autocast={"npu": "widest"}, rule=_dot_rule,
   grad={"self": lambda g, other: conj(g) * other, "other": lambda g, self: g * self})


def _three_sizes(batch1: Tensor, batch2: Tensor) -> tuple[int, ...]:
    """torch reads these before it counts the dims: an IndexError where there are too few."""
    return batch1.size(0), batch1.size(1), batch2.size(2)


def _two_vectors(a: Tensor, b: Tensor) -> None:
    for name, vector in (("vec1", a), ("vec2", b)):
        if vector.dim() != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector.dim()}-D")


def _scaled(name: str) -> Callable[..., Any]:
    """The rule of beta * self + alpha * (a @ b)."""
    product = {"addmm": _mm_shape, "baddbmm": lambda a, b: _bmm_rule(a, b)[0], "addmv": lambda a, b: _mv_rule(a, b)[0],
               "addr": lambda a, b: (a.size(0), b.size(0))}[name]

    def rule(self: Tensor, a: Tensor, b: Tensor, beta: complex, alpha: complex) -> Spec:
        if name == "baddbmm":
            _three_sizes(a, b)
        elif name == "addr":
            _two_vectors(a, b)
        if name in _DTYPES_DIFFER:
            _same_dtype(name, self, a, b)
        if name == "addmv" and (self.dim() > 1 or a.dim() != 2 or b.dim() != 1):
            raise RuntimeError(f"vector + matrix @ vector expected, got {self.dim()}, {a.dim()}, {b.dim()}")
        shape = product(a, b)
        if name == "addmv" and self.dim() == 1 and self.size(0) not in (1, *shape):
            raise RuntimeError(f"size mismatch, got input ({self.size(0)}), mat ({a.size(0)}x{a.size(1)}), vec ({b.size(0)})")
        _expands(self, shape)
        for which, factor in (("beta", beta), ("alpha", alpha)):
            if name == "addr":
                _check_kind(factor, self.dtype, which)
            core._check_fits(factor, self.dtype, True)
        return shape, self.dtype
    return rule


def _check_kind(factor: complex, dtype: core.dtype, name: str) -> None:
    """A factor of an outer product is of the result's kind, as that of a sum."""
    if isinstance(factor, bool) and dtype._name != "bool":
        raise RuntimeError(f"Boolean {name} only supported for Boolean results.")
    if isinstance(factor, (float, complex)) and not dtype.is_floating_point and not dtype.is_complex:
        raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")


def _mm_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    for which, t in (("mat1", a), ("mat2", b)):
        if t.dim() != 2:
            raise RuntimeError(f"{which} must be a matrix, got {t.dim()}-D tensor")
    if a.size(1) != b.size(0):
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.size(0)}x{a.size(1)} and "
                           f"{b.size(0)}x{b.size(1)})")
    return a.size(0), b.size(1)


def _times(g: Tensor, factor: float) -> Tensor:
    return g if factor == 1 else g * conj(factor)


op("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
   batch=batching.added_product, autocast="lower",
   rule=_scaled("addmm"),
   inplace=True, npu="aclnnAddmm(self.row, mat1, mat2, beta, alpha, out, 0)",
   grad={"self": lambda g, beta: _times(g, beta), "mat1": lambda g, mat2, alpha: _times(ops.mm(g, _t(mat2)), alpha),
         "mat2": lambda g, mat1, alpha: _times(ops.mm(_t(mat1), g), alpha)})
op("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
   batch=batching.added_product, autocast="lower",
   rule=_scaled("baddbmm"), inplace=True, npu="aclnnBaddbmm(self.row, batch1, batch2, beta, alpha, out, 0)",
   grad={"self": lambda g, beta: _times(g, beta), "batch1": lambda g, batch2, alpha: _times(ops.bmm(g, _t(batch2)), alpha),
         "batch2": lambda g, batch1, alpha: _times(ops.bmm(_t(batch1), g), alpha)})
op("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
   batch=batching.added_product, autocast={"npu": "lower"},
   rule=_scaled("addmv"),
   inplace=True, npu="aclnnAddmv(self, mat, vec, alpha, beta, out, 0)",
   grad={"self": lambda g, beta: _times(g, beta), "mat": lambda g, vec, alpha: _times(g.unsqueeze(1) * conj(vec), alpha),
         "vec": lambda g, mat, alpha: _times(ops.mv(_t(mat), g), alpha)})
_ADDR_GRAD: dict[str, Callable[..., Any] | str] = {
    "self": lambda g, beta: _times(g, beta),
    "vec1": lambda g, vec2, alpha: _times(ops.mv(g, conj(vec2)), alpha),
    "vec2": lambda g, vec1, alpha: _times(ops.mv(g.t(), conj(vec1)), alpha)}
op("_addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", variants="",
   batch=batching.added_outer, rule=_scaled("addr"), kernel="addr", npu="aclnnAddr(self, vec1, vec2, beta, alpha, out)",
   grad=_ADDR_GRAD)


def _addr_rule(self: Tensor, vec1: Tensor, vec2: Tensor, beta: complex, alpha: complex) -> Spec | None:
    return _scaled("addr")(self, vec1, vec2, beta, alpha) if self.dtype is vec1.dtype is vec2.dtype else None


@composite("addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor", out="casts",
           batch=batching.added_outer, autocast={"npu": "lower"}, rule=_addr_rule, node=True, inplace=True,
           npu="aclnnAddr(self, vec1, vec2, beta, alpha, out)", grad=_ADDR_GRAD)
def _addr(self: Tensor, vec1: Tensor, vec2: Tensor, beta: complex, alpha: complex) -> Tensor:
    """beta * self + alpha * the outer product of two vectors, of the dtype that the three promote to."""
    _two_vectors(vec1, vec2)
    dtype = core.promote_types(self.dtype, core.promote_types(vec1.dtype, vec2.dtype))
    return ops._addr(self.to(dtype), vec1.to(dtype), vec2.to(dtype), beta=beta, alpha=alpha)


def _check_batches(batch1: Tensor, batch2: Tensor) -> None:
    if batch1.dim() == 3 == batch2.dim() and batch1.size(0) != batch2.size(0):
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {batch1.size(0)} and {batch2.size(0)}")
    _three_sizes(batch1, batch2)


def _addbmm_rule(self: Tensor, batch1: Tensor, batch2: Tensor, *_: object) -> Spec | None:
    _check_batches(batch1, batch2)
    shape = _bmm_rule(batch1, batch2)[0][1:]
    _expands(self, tuple(shape))
    return (shape, self.dtype) if self.dtype is batch1.dtype is batch2.dtype else None


@composite("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
           autocast="lower", inplace=True,
           rule=_addbmm_rule, node=True, npu="aclnnAddbmm(self, batch1, batch2, beta, alpha, out, 0)",
           grad={"self": lambda g, beta: _times(g, beta),
                 "batch1": lambda g, batch2, alpha: _times(ops.matmul(g, _t(batch2)), alpha),
                 "batch2": lambda g, batch1, alpha: _times(ops.matmul(_t(batch1), g), alpha)})
def _addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, beta: complex, alpha: complex) -> Tensor:
    """beta * self plus alpha times the sum of the batch's products, as one product that sums only once."""
    _check_batches(batch1, batch2)
    _, rows, columns = _bmm_rule(batch1, batch2)[0]
    _expands(self, (rows, columns))
    inner = batch1.size(0) * batch1.size(2)
    return ops.addmm(self, batch1.transpose(0, 1).reshape(rows, inner), batch2.reshape(inner, columns), beta=beta,
                     alpha=alpha)


@composite("outer(Tensor self, Tensor vec2) -> Tensor")
def _outer(self: Tensor, vec2: Tensor) -> Tensor:
    """Every product of an item of self with one of vec2."""
    for name, vector in (("self", self), ("vec2", vec2)):
        if vector.dim() != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {vector.dim()}-D")
    return self.unsqueeze(1) * vec2


alias("ger", "outer")


@composite("inner(Tensor self, Tensor other) -> Tensor",
           out="tensordot: Expected the output tensor to have dtype {result}, but got an output tensor with dtype {out}")
def _inner(self: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dims."""
    if self.dim() == 0 or other.dim() == 0:
        return self * other
    if self.size(-1) != other.size(-1):
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes "
                           f"{list(self.shape)} and {list(other.shape)}")
    _one_dtype(self, other)
    return ops.tensordot(self, other, ([-1], [-1]))


def _one_dtype(a: Tensor, b: Tensor) -> None:
    if a.dtype != b.dtype:
        raise RuntimeError("both inputs should have same dtype")


@composite("kron(Tensor self, Tensor other) -> Tensor")
def _kron(self: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product."""
    rank = max(self.dim(), other.dim())
    a = self.reshape((1,) * (rank - self.dim()) + tuple(self.shape))
    b = other.reshape((1,) * (rank - other.dim()) + tuple(other.shape))
    shape_a = [n for size in a.shape for n in (size, 1)]
    shape_b = [n for size in b.shape for n in (1, size)]
    return (a.reshape(shape_a) * b.reshape(shape_b)).reshape([x * y for x, y in zip(a.shape, b.shape)])


def _take_factors_first(name: str, a: str, b: str) -> None:
    """The forms of old programs: torch.addmm(beta, self, alpha, mat1, mat2), self.addmm(beta, mat1, mat2)."""
    form = getattr(ops, name)

    def warn(old: str) -> None:
        warn_overload(name, old, f"Tensor input, Tensor {a}, Tensor {b}, *, Number beta = 1, Number alpha = 1")

    def both(beta: complex, self: Tensor, alpha: complex, x: Tensor, y: Tensor) -> Tensor:
        warn(f"Number beta, Tensor input, Number alpha, Tensor {a}, Tensor {b}")
        return form(self, x, y, beta=beta, alpha=alpha)

    def one(beta: complex, self: Tensor, x: Tensor, y: Tensor) -> Tensor:
        warn(f"Number beta, Tensor input, Tensor {a}, Tensor {b}")
        return form(self, x, y, beta=beta)
    pair = f"Tensor {a}, Tensor {b}"
    op(f"{name}.deprecated_both(Scalar beta, Tensor self, Scalar alpha, {pair}) -> Tensor", body=both)
    op(f"{name}.deprecated_beta(Scalar beta, Tensor self, {pair}) -> Tensor", body=one)
    op(f"{name}.deprecated_both_of(Tensor self, Scalar beta, Scalar alpha, {pair}) -> Tensor",
       body=lambda self, beta, alpha, x, y: both(beta, self, alpha, x, y))
    op(f"{name}.deprecated_beta_of(Tensor self, Scalar beta, {pair}) -> Tensor",
       body=lambda self, beta, x, y: one(beta, self, x, y))


for _name, _a, _b in (("addmm", "mat1", "mat2"), ("addmv", "mat", "vec"), ("addr", "vec1", "vec2"),
                      ("baddbmm", "batch1", "batch2"), ("addbmm", "batch1", "batch2")):
    _take_factors_first(_name, _a, _b)


def tensordot(a: Tensor, b: Tensor, dims: int | tuple[list[int], ...] = 2, out: Tensor | None = None) -> Tensor:
    """Sums of products over pairs of dims: a number of them, or two lists."""
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        dims = list(range(-dims, 0)), list(range(dims))
    if not isinstance(dims, (tuple, list)):
        raise RuntimeError("tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] containing two "
                           f"lists, but got dims={dims}")
    first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    _one_dtype(a, b)
    given = list(zip(first, second))
    first, second = [wrap(d, a.dim()) for d in first], [wrap(d, b.dim()) for d in second]
    for i, j in given:
        if a.size(i) != b.size(j):
            if a.size(i) != 1 and b.size(j) != 1:
                raise RuntimeError(f"contracted dimensions need to match, but first has size {a.size(i)} in dim {i} and "
                                   f"second has size {b.size(j)} in dim {j}")
            a = a.sum(i, True, dtype=a.dtype) if b.size(j) == 1 else a
            b = b.sum(j, True, dtype=b.dtype) if a.size(i) == 1 else b
    for d in (*first, *second):
        if first.count(d) > 1 or second.count(d) > 1:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
    rest_a = [d for d in range(a.dim()) if d not in first]
    rest_b = [d for d in range(b.dim()) if d not in second]
    shape = [a.size(d) for d in rest_a] + [b.size(d) for d in rest_b]
    n = 1
    for d in first:
        n *= a.size(d)
    left = a.permute(rest_a + first).reshape(_count(a, rest_a), n)
    right = b.permute(second + rest_b).reshape(n, _count(b, rest_b))
    made = ops.mm(left, right).reshape(shape)
    if out is None:
        return made
    if out.dtype is not made.dtype:
        raise RuntimeError(f"tensordot: Expected the output tensor to have dtype {word(made.dtype)}, but got an output tensor with "
                           f"dtype {word(out.dtype)}")
    return ops.view_copy(made, made.shape, out=out)


def _count(x: Tensor, dims: list[int]) -> int:
    n = 1
    for d in dims:
        n *= x.size(d)
    return n


publish_plain(tensordot)
