"""Rows of the reductions. Scans are in scan.py; quantiles, histograms and the like in statistics.py."""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._C._core import _grad_sum as spread
from mindtorch_v2._ops import batching, forward, infer
from mindtorch_v2._ops.call_errors import call_error
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.table import Spec, alias, composite, numbered, op, ops
from mindtorch_v2._ops.view import _diagonal_grad, wrap
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor

INT64, BOOL, FLOAT64 = _C._dtype_named("int64"), _C._dtype_named("bool"), _C._dtype_named("float64")
TYPE_WORDS = dict(zip(_C._core.DTYPE_NAMES, _C._core.TYPE_WORDS))


def word(dtype: _C.dtype) -> str:
    """What an error message calls a dtype: Float, Long, …"""
    return TYPE_WORDS[dtype._name]


def is_float(dtype: _C.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


# ---- shapes ------------------------------------------------------------------------------------------------------
def _dims(dim: int | Sequence[int] | None, rank: int) -> Any:
    if dim is None:
        return range(rank)
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    return [d % rank for d in dims] if dims and rank else range(rank)


def unreduced(x: Tensor, rank: int, dim: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    """A reduction's result as keepdim=True would have given it."""
    if not keepdim and rank > 0:
        for d in sorted(_dims(dim, rank)):
            x = x.unsqueeze(d)
    return x


def items(shape: tuple[int, ...], dim: int | Sequence[int] | None) -> int:
    """How many items one result of a reduction stands for."""
    n = 1
    for d in _dims(dim, len(shape)) if shape else ():
        n *= shape[d]
    return n


def reduced(shape: tuple[int, ...], dim: int | Sequence[int] | None, keepdim: bool) -> tuple[int, ...]:
    """The shape that is left of a reduction."""
    rank = len(shape)
    if dim is None or dim == () or dim == []:
        return (1,) * rank if keepdim else ()
    if rank > 64:
        raise RuntimeError("only tensors with up to 64 dims are supported")
    gone = set()
    for d in dim if isinstance(dim, (tuple, list)) else (dim,):
        d = wrap(d, rank)
        if d in gone:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        gone.add(d)
    if keepdim:
        return tuple([1 if d in gone else n for d, n in enumerate(shape)])
    return tuple([n for d, n in enumerate(shape) if d not in gone])


def refuse_complex(name: str, self: Tensor) -> None:
    if self.is_complex():
        raise NotImplementedError(f'"{name}" not implemented for \'{word(self.dtype)}\'')


def _refuse_unordered(name: str, self: Tensor) -> None:
    if self.is_complex():
        raise RuntimeError(f"{name}(): does not support complex input")


def refuse_empty(name: str, self: Tensor, dim: int | None, error: type = IndexError) -> None:
    """An extreme along a dim of no items does not exist."""
    if dim is not None and self.dim() and self.numel() == 0 and self.size(dim) == 0:
        raise error(f"{name}(): Expected reduction dim {wrap(dim, self.dim())} to have non-zero size.")


def in_out_dtype(name: str, floats: bool = False, needs_dim: bool = False) -> Callable[..., Any]:
    """What serves out= of a sum or product: unless a dtype is given, the items become out's before they are added up.
    floats: only where both are floats."""
    def run(out: Tensor, *args: Any) -> Tensor:
        *given, dtype = args
        if needs_dim and given[1] is None:
            raise call_error(getattr(ops, name), (given[0],), {"out": out}, False)
        if dtype not in (None, out.dtype):
            raise RuntimeError(f"Expected out tensor to have dtype {core._c_word(dtype)}, but got {core._c_word(out.dtype)} "
                               "instead")
        if dtype is None and (not floats or is_float(out.dtype) and is_float(given[0].dtype)):
            dtype = out.dtype
        return getattr(ops, name)(*given, dtype=dtype)
    return run


# ---- sums --------------------------------------------------------------------------------------------------------
op("sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", several=numbered("dim"),
   batch=batching.dims, forward=forward.linear,
   autocast={"npu": "float32 result"},
   out=in_out_dtype("sum", needs_dim=True), rule=infer.reduce_sum, npu="aclnnReduceSum(self, dim, keepdim, dtype, out)",
   grad={"self": spread})
op("mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", several=numbered("dim"),
   batch=batching.dims, forward=forward.linear,
   out=in_out_dtype("mean", floats=True), rule=infer.reduce_mean,
   npu="aclnnMean(self, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self_shape, dim, keepdim: spread(g, self_shape, dim, keepdim) / items(self_shape, dim)})
op("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
   batch=batching.dims,
   out=in_out_dtype("nansum", floats=True), rule=infer.reduce_sum,
   npu="aclnnReduceNansum(self, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self, dim, keepdim: spread(g, self.shape, dim, keepdim) * ~self.isnan()})
op("prod(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", several=numbered("dim"),
   batch=batching.flat_or_dims,
   autocast={"cpu": "float32", "npu": "float32 result"},
   out=in_out_dtype("prod", needs_dim=True), rule=infer.reduce_sum, npu="aclnnProdDim(self, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self, dim, keepdim, result: _prod_grad(g, self, dim, keepdim, result)})
def _in_out_bool(name: str) -> Any:
    """What serves out= of any and all: a tensor of bools, or of uint8."""
    def run(out: Any, *args: Any) -> Any:
        if out.dtype._name not in ("bool", "uint8"):
            raise RuntimeError(f"{name} only supports bool tensor for result, got: {word(out.dtype)}")
        return getattr(ops, name)(*args)
    return run


op("any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", out=_in_out_bool("any"),
   batch=batching.dims, rule=infer.reduce_bool, npu="aclnnAny(self, dim, keepdim, out)")
op("all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor", out=_in_out_bool("all"),
   batch=batching.dims, rule=infer.reduce_bool, npu="aclnnAll(self, dim, keepdim, out)")
op("count_nonzero(Tensor self, int[1]? dim=None) -> Tensor", batch=batching.dims, out=False,
   rule=lambda self, dim: (reduced(self.shape, dim, False), INT64))
def _trace_rule(self: Tensor) -> Spec:
    if self.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.dim()}")
    return (), self.dtype if is_float(self.dtype) else INT64


op("trace(Tensor self) -> Tensor",
   batch=batching.trace, forward=forward.linear, autocast={"cpu": "float32"}, out=False,
   rule=_trace_rule, npu="aclnnTrace(self, out)",
   grad={"self": lambda g, self_shape: _diagonal_grad(g.expand(min(self_shape)), self_shape, 0, 0, 1)})


def _prod_grad(g: Tensor, self: Tensor, dim: int | None, keepdim: bool, result: Tensor) -> Tensor:
    if self.dim() == 0:
        return g.clone()
    if dim is None or dim == ():
        flat = self.reshape(-1)
        return _product_slopes(g, flat, 0, result.reshape(())).reshape(self.shape)
    dim = dim if isinstance(dim, int) else dim[0]
    g, result = unreduced(g, self.dim(), dim, keepdim), unreduced(result, self.dim(), dim, keepdim)
    return _product_slopes(g, self, dim, result)


def _product_slopes(g: Tensor, x: Tensor, dim: int, product: Tensor) -> Tensor:
    """g times the product of all other items, for each item along dim."""
    if x._readable and not bool((x == 0).any()):
        return g * conj(product / x)
    n = x.size(dim)
    if n <= 1:
        return g.expand(x.shape)
    ones = ops.ones_like(x.narrow(dim, 0, 1))
    before = ops.cat([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = ops.cat([ones, x.narrow(dim, 1, n - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return g * conj(before * after)


def _nanmean(self: Tensor, dim: int | tuple[int, ...] | None, keepdim: bool, dtype: _C.dtype | None) -> Tensor:
    """The mean of the items that are not NaN."""
    if not is_float(self.dtype):
        raise RuntimeError("nanmean(): expected input to have floating point or complex dtype but got "
                           f"{word(self.dtype)}")
    if dtype is not None and not is_float(dtype):
        raise RuntimeError("nanmean(): could not infer output dtype. Optional dtype must be either a floating point or "
                           f"complex dtype. Got: {word(dtype)}")
    return self.nansum(dim, keepdim, dtype=dtype) / (~self.isnan()).sum(dim, keepdim)


op("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor", body=_nanmean,
   out=in_out_dtype("nanmean", floats=True))


@composite("sum_to_size(Tensor self, SymInt[] size) -> Tensor", out=False, variants="method")
def _sum_to_size(self: Tensor, size: Sequence[int]) -> Tensor:
    """The sum over the dims that size lacks or has as 1."""
    size, lead = tuple(size), self.dim() - len(size)
    if lead < 0 or any(n not in (1, m) for n, m in zip(size, self.shape[lead:])):
        raise RuntimeError(f"size {{{list(size)}}} is not expandable to size {{{list(self.shape)}}}.")
    if not size:
        return self.sum()
    dims = tuple(d + lead for d, n in enumerate(size) if n == 1 and self.size(d + lead) != 1)
    summed = self.sum(tuple(range(lead)) + dims, True) if lead or dims else self
    return summed.view(size) if lead else summed


# ---- extremes ----------------------------------------------------------------------------------------------------
def picked(g: Tensor, shape: tuple[int, ...], dim: int, keepdim: bool, indices: Tensor) -> Tensor:
    """The gradient of values that were picked along dim."""
    if not shape:
        return g.clone()
    if not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return g.new_zeros(shape).scatter(dim, indices, g)


def _shared(g: Tensor, self: Tensor, dim: int | tuple[int, ...] | None, keepdim: bool, result: Tensor) -> Tensor:
    """The gradient of an extreme: equal items share it."""
    rank = self.dim()
    g, result = unreduced(g, rank, dim, keepdim), unreduced(result, rank, dim, keepdim)
    wins = (self == result) | (self.isnan() & result.isnan())
    count = wins.sum(tuple(_dims(dim, rank)), True) if rank else 1
    return wins * (g / count)


def _extreme_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int | Sequence[int], keepdim: bool) -> Spec:
        refuse_complex(f"{name[1:]}_values_cpu", self)
        shape = reduced(self.shape, dim, keepdim)
        if self.numel() == 0 and (dim is None or dim == ()):
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                               "reduction dim with the 'dim' argument.")
        for d in () if dim is None else (dim if isinstance(dim, (tuple, list)) else (dim,)):
            refuse_empty(name, self, d)
        return shape, self.dtype
    return rule


def _all_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor) -> Spec:
        refuse_complex(f"{name}_all", self)
        if self.numel() == 0:
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                               "reduction dim with the 'dim' argument.")
        return (), self.dtype
    return rule


def _pick_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int, keepdim: bool) -> Sequence[Spec]:
        _refuse_unordered(name, self)
        shape = reduced(self.shape, dim, keepdim)
        refuse_empty(name, self, dim)
        return [(shape, self.dtype), (shape, INT64)]
    return rule


def _place_rule(name: str) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int | None, keepdim: bool) -> Spec:
        _refuse_unordered(name, self)
        shape = reduced(self.shape, dim, keepdim)
        if dim is None and self.numel() == 0:
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        refuse_empty(name, self, dim)
        return shape, INT64
    return rule


for _max, _camel in (("max", "Max"), ("min", "Min")):
    op(f"a{_max}(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
       batch=batching.dims, rule=_extreme_rule("a" + _max),
       out="Expected the dtype for input and out to match, but got {result} for input's dtype and {out} for out's dtype.",
       npu=f"aclnnA{_max}(self, dim, keepdim, out)",
       grad={"self": lambda g, self, dim, keepdim, result: _shared(g, self, dim, keepdim, result)})
    op(f"{_max}(Tensor self) -> Tensor",
       batch=batching.flat_or_dims, rule=_all_rule(_max), out="casts", npu=f"aclnn{_camel}(self, out)",
       grad={"self": lambda g, self, result: _shared(g, self, None, False, result)})
    op(f"{_max}.other(Tensor self, Tensor other) -> Tensor",
       body=lambda self, other, _both=getattr(ops, _max + "imum"): _both(self, other))
    op(f"{_max}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
       batch=batching.dims,
       kernel=f"{_max}_dim", rule=_pick_rule(_max), npu=f"aclnn{_camel}Dim(self, dim, keepdim, values, indices)",
       grad={"self": lambda g, self_shape, dim, keepdim, result1: picked(g, self_shape, dim, keepdim, result1)})
    op(f"arg{_max}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
       batch=batching.flat_or_dims, rule=_place_rule("arg" + _max),
       npu=f"aclnnArg{_camel}(self, dim, keepdim, out)")
ops.max.doc = "The largest item; with dim, the largest along it and where it stands; with other, maximum()."
ops.min.doc = "The smallest item; with dim, the smallest along it and where it stands; with other, minimum()."


def _aminmax_rule(self: Tensor, dim: int | None, keepdim: bool) -> Sequence[Spec]:
    refuse_complex("aminmax_cpu", self)
    if dim is None and self.numel() == 0:
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
                           "identity.")
    shape = reduced(self.shape, dim, keepdim)
    if dim is not None and self.dim() and self.numel() == 0 and self.size(dim) == 0:
        raise IndexError(f"aminmax: Expected reduction dim {wrap(dim, self.dim())} to have non-zero size.")
    return [(shape, self.dtype)] * 2


op("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
   batch=batching.flat_or_dims, rule=_aminmax_rule,
   npu="aclnnAminmax(self, dim, keepdim, min, max)",
   grad={"self": lambda gs, self, dim, keepdim, result0, result1:
         _shared(gs[0], self, dim, keepdim, result0) + _shared(gs[1], self, dim, keepdim, result1)})


# ---- moments -----------------------------------------------------------------------------------------------------
def _moment_rule(name: str, outputs: int) -> Callable[..., Any]:
    def rule(self: Tensor, dim: int | Sequence[int] | None, correction: float | None, keepdim: bool) -> Sequence[Spec]:
        if not is_float(self.dtype):
            raise RuntimeError(f"{'std and var' if outputs == 1 else name} only support floating point and complex dtypes")
        shape = reduced(self.shape, dim, keepdim)
        specs = [(shape, self.dtype.to_real()), (shape, self.dtype)][:outputs]
        if items(self.shape, dim) <= (1 if correction is None else correction):
            warnings.warn(f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
                          "reduction factor (input numel divided by output numel).", UserWarning)
            return infer.Once(specs)
        return specs
    return rule


def _var_grad(g: Tensor, self: Tensor, dim: int | None, correction: int | None, keepdim: bool) -> Tensor:
    freedom = items(self.shape, dim) - (1 if correction is None else correction)
    if freedom <= 0:
        return spread(g, self.shape, dim, keepdim) * math.nan * self
    return (2 / freedom) * spread(g, self.shape, dim, keepdim) * (self - self.mean(dim, True))


def _std_grad(g: Tensor, self: Tensor, dim: int | None, correction: int | None, keepdim: bool,
              result: Tensor) -> Tensor:
    g = (g / (result * 2)).masked_fill(result == 0, 0)
    return _var_grad(g, self, dim, correction, keepdim)


def _mean_grad(g: Tensor, self: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    return spread(g, self.shape, dim, keepdim) / items(self.shape, dim)


_MOMENT = "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)"
for _name, _results, _grad, _npu in (
    ("var", "Tensor", lambda g, self, dim, correction, keepdim: _var_grad(g, self, dim, correction, keepdim),
     "aclnnVarCorrection(self, dim, correction=1, keepdim, out)"),
    ("std", "Tensor",
     lambda g, self, dim, correction, keepdim, result: _std_grad(g, self, dim, correction, keepdim, result),
     "aclnnStd(self, dim, correction=1, keepdim, out)"),
    ("var_mean", "(Tensor, Tensor)", lambda gs, self, dim, correction, keepdim:
     _var_grad(gs[0], self, dim, correction, keepdim) + _mean_grad(gs[1], self, dim, keepdim),
     "aclnnVarMean(self, dim, correction=1, keepdim, out0, out1)"),
    ("std_mean", "(Tensor, Tensor)", lambda gs, self, dim, correction, keepdim, result0:
     _std_grad(gs[0], self, dim, correction, keepdim, result0) + _mean_grad(gs[1], self, dim, keepdim),
     "aclnnStdMeanCorrection(self, dim, correction=1, keepdim, out0, out1)"),
):
    _pair = "_" in _name
    _where = "function" if _pair else "function, method"
    op(f"{_name}(Tensor self, bool unbiased) -> {_results}", variants=_where, out=False,
       body=lambda self, unbiased, _name=_name: getattr(ops, _name)(self, None, correction=int(unbiased)))
    op(f"{_name}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> {_results}", variants=_where,
       out=not _pair, body=lambda self, dim, unbiased, keepdim, _name=_name:
       getattr(ops, _name)(self, dim, correction=int(unbiased), keepdim=keepdim))
    op(f"{_name}.correction{_MOMENT} -> {_results}",
       batch=batching.dims, kernel=_name, rule=_moment_rule(_name, 1 + _pair),
       npu=_npu, grad={"self": _grad}, variants=_where, out=not _pair and "casts")


# ---- norms -------------------------------------------------------------------------------------------------------
def _norm_rule(self: Tensor, ord: float, dim: int | Sequence[int] | None, keepdim: bool,
               dtype: _C.dtype | None) -> Spec:
    kept = self.dtype if dtype is None else dtype
    if not is_float(self.dtype):
        raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                           f"{word(self.dtype)}")
    if isinstance(ord, complex):
        raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
    if not is_float(kept):
        raise RuntimeError(f"linalg.vector_norm: dtype should be floating point or complex, but got {word(kept)}")
    if dtype is not None and self.is_complex() and not dtype.is_complex:
        raise RuntimeError(f"linalg.vector_norm: dtype should be complex for complex inputs, but got {word(dtype)}")
    if dtype is not None and not self.is_complex() and dtype.is_complex:
        raise RuntimeError(f"linalg.vector_norm: dtype should be real for real inputs, but got {word(dtype)}")
    if dtype is not None and _C.promote_types(self.dtype, dtype) is not dtype:
        raise RuntimeError(f"linalg.vector_norm: the dtype of the input ({word(self.dtype)}) should be convertible without "
                           f"narrowing to the specified dtype ({word(dtype)})")
    shape = reduced(self.shape, dim, keepdim)
    if (ord < 0 or ord == math.inf) and items(self.shape, dim) == 0:
        empty = [d for d in _dims(dim, self.dim()) if self.shape[d] == 0] if dim is not None and dim != () else []
        what = f"the dimension {empty[0]}because this dimension is empty and" if empty else "an empty tensor because"
        raise RuntimeError(f"linalg.vector_norm cannot compute the {ord:g} norm on {what} the operation does not have an "
                           "identity")
    return shape, kept.to_real()


def _norm_grad(g: Tensor, self: Tensor, ord: float, dim: int | Sequence[int] | None, keepdim: bool,
               result: Tensor) -> Tensor:
    g, norm = unreduced(g, self.dim(), dim, keepdim), unreduced(result, self.dim(), dim, keepdim)
    if ord == 0:
        return ops.zeros_like(self)
    if ord == 1:
        return g * self.sgn()
    if ord == 2:
        return g * (self / norm).masked_fill(norm == 0, 0)
    if math.isinf(ord):
        wins = (self.abs() == norm) | (self.isnan() & norm.isnan())
        return self.sgn() * (g / wins.sum(tuple(_dims(dim, self.dim())), True) * wins)
    if ord < 1:
        slope = self.sgn() * self.abs().pow(ord - 1).masked_fill(self == 0, 0)
        return slope * g * norm.pow(1 - ord)
    slope = self.sgn() * self.abs().pow(ord - 1) if ord < 2 else self * self.abs().pow(ord - 2)
    return slope * (g / norm.pow(ord - 1)).masked_fill(norm == 0, 0)


op("linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) "
   "-> Tensor", batch=batching.dims, autocast={"npu": "float32 result"},
   rule=_norm_rule, variants="linalg", npu="aclnnLinalgVectorNorm(self, ord, dim, keepdim, dtype, out)",
   grad={"self": lambda g, self, ord, dim, keepdim, result: _norm_grad(g, self, ord, dim, keepdim, result)})


@composite("norm(Tensor self, any? p='fro', int[1]? dim=None, bool keepdim=False, ScalarType? dtype=None) -> Tensor",
           autocast={"npu": "float32"}, out="exact")
def _norm(self: Tensor, p: float | str, dim: int | list[int] | None, keepdim: bool, dtype: _C.dtype | None) -> Tensor:
    """The p-norm over all items or over dims; 'fro' and 'nuc' are matrix norms."""
    if not is_float(self.dtype) and dtype is None:
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
                           f"{word(self.dtype)}")
    if p == "nuc":
        return ops.linalg_matrix_norm(self, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    if p == "fro" and isinstance(dim, (tuple, list)) and len(dim) > 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}")
    return ops.linalg_vector_norm(self, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)


@composite("frobenius_norm(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", autocast={"npu": "float32"},
           variants="function")
def _frobenius_norm(self: Tensor, dim: tuple[int, ...], keepdim: bool) -> Tensor:
    """The square root of the sum of squares over dims."""
    if isinstance(dim, (tuple, list)) and len(dim) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dim)} dimensions instead.")
    return ops.linalg_vector_norm(self, 2, dim, keepdim)


@composite("norm_except_dim(Tensor v, int pow=2, int dim=0) -> Tensor", out=False, variants="function")
def _norm_except_dim(v: Tensor, pow: int, dim: int) -> Tensor:
    """The norm over all dims but one (-1: over all)."""
    if dim == -1:
        return ops.linalg_vector_norm(v, pow)
    return ops.linalg_vector_norm(v, pow, tuple(d for d in range(v.dim()) if d != wrap(dim, v.dim())), True)


def _dist_grad(g: Tensor, self: Tensor, other: Tensor, p: float, result: Tensor, needs: tuple[bool, ...]) -> tuple[Any, ...]:
    slope = _norm_grad(g, self - other, p, None, False, result)
    return slope if needs[0] else None, -slope if needs[1] else None


@composite("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor", autocast={"npu": "float32"}, out=False, node=True,
           grad={"self, other": lambda g, self, other, p, result, needs: _dist_grad(g, self, other, p, result, needs)})
def _dist(self: Tensor, other: Tensor, p: float) -> Tensor:
    """The p-norm of self - other."""
    common = ops.result_type(self, other)
    if not is_float(common):
        raise RuntimeError(f"norm(): input dtype should be either floating point or complex. Got {word(common)} instead.")
    return ops.linalg_vector_norm(self - other, p)


def _renorm_rule(self: Tensor, p: float, dim: int, maxnorm: float) -> Spec:
    for value, name in ((p, "p"), (maxnorm, "maxnorm")):
        if isinstance(value, complex):
            raise RuntimeError(f"renorm: {name} must be real-valued")
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if self.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {self.dim()} dimensions")
    wrap(dim, self.dim())
    return self.shape, self.dtype


def _renorm_grad(g: Tensor, self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    others = tuple(d for d in range(self.dim()) if d != wrap(dim, self.dim()))
    norm = ops.linalg_vector_norm(self, p, others, True)
    along = (conj(self) * g).sum(others, True)
    along = _norm_grad(along.real if along.is_complex() else along, self, p, others, True, norm)
    shrunk = maxnorm / (norm + 1e-7)
    return ops.where(norm > maxnorm, shrunk * g - shrunk / (norm + 1e-7) * along, g).to(self.dtype)


@composite("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor", autocast={"npu": "float32"}, node=True,
           grad={"self": lambda g, self, p, dim, maxnorm: _renorm_grad(g, self, p, dim, maxnorm)},
           inplace="method", rule=_renorm_rule, lacks="complex32",
           npu="aclnnRenorm(self, p, dim, maxnorm, out)", out="exact")
def _renorm(self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Each slice along dim scaled down to a p-norm of at most maxnorm."""
    _renorm_rule(self, p, dim, maxnorm)
    dim = wrap(dim, self.dim())
    norm = ops.linalg_vector_norm(self, p, tuple(d for d in range(self.dim()) if d != dim), True)
    return self * ops.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0).to(self.dtype)


# ---- logsumexp ---------------------------------------------------------------------------------------------------
op("_logsumexp(Tensor self, int[1]? dim, bool keepdim=False) -> Tensor",
   batch=batching.dims, kernel="logsumexp", variants="",
   rule=lambda self, dim, keepdim: (reduced(self.shape, dim, keepdim),
                                    self.dtype if is_float(self.dtype) else _C.get_default_dtype()),
   npu="aclnnLogSumExp(self, dim, keepdim, out)",
   grad={"self": lambda g, self, dim, keepdim, result:
         unreduced(g, self.dim(), dim, keepdim) * (self - unreduced(result, self.dim(), dim, keepdim)).exp()})


def _logsumexp_out(out: Tensor, self: Tensor, dim: tuple[int, ...], keepdim: bool) -> Tensor:
    """out= of a wider dtype: in that."""
    if not is_float(out.dtype):
        raise RuntimeError(f"logsumexp(): Expected floating point type for result tensor, but got: {word(out.dtype)}")
    wide = is_float(self.dtype) and _C.promote_types(self.dtype, out.dtype) is out.dtype
    return ops.logsumexp(self.to(out.dtype) if wide else self, dim, keepdim)


@composite("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", autocast={"npu": "float32"},
           out=_logsumexp_out)
def _logsumexp(self: Tensor, dim: int | tuple[int, ...], keepdim: bool) -> Tensor:
    """log(sum(exp(self))), without overflow."""
    if not self.is_complex():
        return ops._logsumexp(self, dim, keepdim)
    top = self.real.amax(dim, True)
    top = top.masked_fill(top.abs() == math.inf, 0).detach()
    total = (self - top).exp().sum(dim, True).log() + top
    return total if keepdim else total.reshape(reduced(self.shape, dim, False))


alias("special_logsumexp", "logsumexp", "special")


# ---- questions ---------------------------------------------------------------------------------------------------
op("_local_scalar_dense(Tensor self) -> Scalar", body=core._stored_item, variants="function", out=False, whole=True,
   doc="The number in a tensor of one item: what item() is where dispatch modes or classes see it.")
op("_equal(Tensor self, Tensor other) -> Tensor", rule=lambda self, other: ((), BOOL), kernel="equal", variants="",
   npu="aclnnEqual(self, other, out)")


@composite("equal(Tensor self, Tensor other) -> bool", lacks="complex32", out=False, whole=True,
           batch=batching.without_rule("Batching rule not implemented for aten::equal. We could not generate a fallback."))
def _equal(self: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and items."""
    if self.dtype is not other.dtype:
        wide = _C.promote_types(self.dtype, other.dtype)
        self, other = self.to(wide), other.to(wide)
    return ops._equal(self, other).item()


def _isclose_rule(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> Spec:
    if self.dtype is not other.dtype:
        raise RuntimeError(f"{word(self.dtype)} did not match {word(other.dtype)}")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if not bound >= 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {bound:g}")
    return broadcast(self.shape, other.shape), BOOL


@composite("isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
           out=False,
           rule=_isclose_rule, npu="aclnnIsClose(self, other, rtol, atol, equal_nan, out)")
def _isclose(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    """Where |self - other| <= atol + rtol * |other|."""
    _isclose_rule(self, other, rtol, atol, equal_nan)
    close = self == other
    if equal_nan and is_float(self.dtype):
        close = close | (self.isnan() & other.isnan())
    if rtol == 0 and atol == 0:
        return close
    if not is_float(self.dtype):
        self, other = self.to(_C.get_default_dtype()), other.to(_C.get_default_dtype())
    allowed = atol + (rtol * other).abs()
    error = (self - other).abs()
    return close | (error.isfinite() & (error <= allowed))


@composite("allclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> bool",
           out=False, whole=True, batch=batching.without_rule(
               "vmap over torch.allclose isn't supported yet. Please file an issue at "
               "https://github.com/pytorch/pytorch/issues if you need this feature."))
def _allclose(self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Whether all items are close, as isclose says."""
    return bool(ops.isclose(self, other, rtol, atol, equal_nan).all())
