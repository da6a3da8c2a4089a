"""Rows of the random ops. The same seed gives the same numbers as PyTorch's CPU generator."""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._dtype import finfo
from mindtorch_v2._ops import batching, call_errors, forward
from mindtorch_v2._ops.create import finish
from mindtorch_v2._ops.table import Spec, composite, op, ops, publish_plain
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor

_OPTIONS = ("*, Generator? generator=None, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
            "bool? pin_memory=None, bool? requires_grad=False")
_LIKE = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
         "bool? requires_grad=False, MemoryFormat? memory_format=None, Generator? generator=None")


def _floating(self: Tensor, name: str) -> None:
    if not self.is_floating_point():
        raise NotImplementedError(f"\"{name}\" not implemented for '{_C.TYPE_WORDS[self.dtype._id]}'")


def _continuous(self: Tensor, name: str) -> None:
    if not self.is_floating_point():
        raise RuntimeError(f"{name} distribution is a continuous probability distribution. dtype must be a floating point but "
                           f"you specified {_C._cpp_name(self.dtype) if name == 'Cauchy' else _C.TYPE_WORDS[self.dtype._id]}")


# ---- in place -----------------------------------------------------------------------------------------------------
def _uniform_rule(self: Tensor, low: float, high: float, generator: _C.GeneratorBase | None) -> None:
    if not self.is_floating_point() and not self.is_complex():
        _floating(self, "check_uniform_bounds")
    if low > high:
        raise RuntimeError("uniform_ expects to return a [from, to) range, but found "
                           f"from={low:g} > to={high:g}")


def _normal_rule(self: Tensor, mean: float, std: float, generator: _C.GeneratorBase | None) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if not self.is_complex():
        _floating(self, "normal_kernel_cpu")


def _zero(g: Tensor) -> Tensor:
    return ops.zeros_like(g)


op("uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)",
   rule=_uniform_rule, variants="method", npu="aclnnInplaceUniform(self, from, to, seed, offset)", grad={"self": _zero})
op("normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
   rule=_normal_rule, variants="method", npu="aclnnInplaceNormal(self, mean, std, seed, offset)", grad={"self": _zero})


def _lambda_rule(self: Tensor, lambd: float, generator: _C.GeneratorBase | None) -> None:
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")
    if self.numel():
        _continuous(self, "Exponential")


op("exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)", rule=_lambda_rule,
   variants="method", grad={"self": _zero})


def _p_rule(self: Tensor, p: float, generator: _C.GeneratorBase | None) -> None:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")


op("geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)", rule=_p_rule,
   variants="method", grad={"self": _zero})


def _sigma_rule(self: Tensor, median: float, sigma: float, generator: _C.GeneratorBase | None) -> None:
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    _continuous(self, "Cauchy")


op("cauchy_(Tensor(a!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor(a!)",
   rule=_sigma_rule, variants="method", grad={"self": _zero})


def _log_normal_rule(self: Tensor, mean: float, std: float, generator: _C.GeneratorBase | None) -> None:
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _floating(self, "log_normal_cpu")


op("log_normal_(Tensor(a!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor(a!)",
   rule=_log_normal_rule, variants="method", grad={"self": _zero})
op("random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)", variants="method", grad={"self": _zero})


_LIMITS = {"bool": (0, 1, "bool"), "uint8": (0, 255, "unsigned char"), "int8": (-128, 127, "signed char"),
           "int16": (-2**15, 2**15 - 1, "short"), "int32": (-2**31, 2**31 - 1, "int"), "float16": (-65504, 65504, "c10::Half")}


# float dtypes: up to which power of two all integers are items, and torch's names
_EXACT = {"float16": (11, "c10::Half"), "bfloat16": (8, "c10::BFloat16"), "float32": (24, "float"), "float64": (53, "double")}


def _warn_of_gaps(self: Tensor, low: int, high: int) -> None:
    """Warns of bounds beyond which not all integers are items of a float dtype."""
    digits, title = _EXACT[self.dtype._name]
    for name, bound in (("from", low), ("to - 1", high - 1)):
        if abs(bound) > 2**digits:
            warnings.warn(f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {title} can support "
                          "discrete uniform distribution only within this range. This warning will become an error in version 1.7 "
                          "release, please fix the code in advance", stacklevel=3)


def _range_rule(self: Tensor, low: int, high: int | None, generator: _C.GeneratorBase | None) -> None:
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if self.is_complex():
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if self.numel() == 0 and high is not None and self.dtype._name in _LIMITS:       # no kernel runs that would look
        least, most, title = _LIMITS[self.dtype._name]
        for name, bound in (("from", low), ("to - 1", high - 1)):
            if not least <= bound <= most:
                raise RuntimeError(f"{name} is out of bounds for {title}")
    if high is not None and self.dtype._name in _EXACT and not (self.dtype._name == "float16" and max(-low, high - 1) > 65504):
        _warn_of_gaps(self, low, high)


op("random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)",
   kernel="random_from", rule=_range_rule, variants="method", grad={"self": _zero})


@composite("random_.to(Tensor(a!) self, int to, *, Generator? generator=None) -> Tensor(a!)", variants="method")
def _random_to(self: Tensor, to: int, generator: Any) -> Tensor:
    return self.random_(0, to, generator=generator)


def _probability(self: Tensor, p: float, generator: _C.GeneratorBase | None) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")


op("_bernoulli_scalar_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)",
   kernel="bernoulli_scalar", rule=_probability, variants="",
   npu="aclnnInplaceBernoulli(self, p, seed, offset)", grad={"self": _zero})


def _like_p(p: Tensor, out: Tensor, generator: _C.GeneratorBase | None) -> Spec:
    if p.shape != out.shape:
        raise RuntimeError(f"bernoulli: probabilities of shape {list(p.shape)} do not fit {list(out.shape)}")
    return tuple(out.shape), out.dtype


op("_bernoulli_tensor(Tensor p, Tensor out_like, *, Generator? generator=None) -> Tensor", kernel="bernoulli_tensor",
   rule=_like_p, variants="", grad={"p": _zero})


def _bernoulli_into(self: Any, p: Any, generator: _C.GeneratorBase | None) -> Tensor:
    """Ones with probability p, a number or a tensor of probabilities; zeros otherwise."""
    if not hasattr(p, "dtype"):
        return ops._bernoulli_scalar_(self, float(p), generator=generator)
    _floating(p, "bernoulli_tensor_cpu_p_")
    if not self.numel():
        return self
    order = sorted(range(self.dim()), key=lambda d: -self.stride(d))       # numbers are drawn in the order of memory
    p, place = p.expand(self.shape).permute(order), self.permute(order)
    place.copy_(ops._bernoulli_tensor(p, place, generator=generator))
    return self


op("bernoulli_(Tensor(a!) self, Tensor p=0.5, *, Generator? generator=None) -> Tensor(a!)", body=_bernoulli_into,
   numbers=True, variants="method")


def _check_probabilities(self: Tensor) -> None:
    _floating(self, "bernoulli_tensor_cpu_p_")
    # on an npu the look would make us wait
    if self.is_cpu and self.numel() and self._readable and not bool(((self >= 0) & (self <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.  "
                           "(Could this error message be improved?  If so, please report an enhancement request to "
                           "PyTorch.)")


def _bernoulli(self: Tensor, p: float | None, generator: Any) -> Tensor:
    """Ones with the probabilities in self (or p); zeros otherwise."""
    if p is not None:
        return self.new_empty(self.shape).bernoulli_(p, generator=generator)
    _check_probabilities(self)
    return ops._bernoulli_tensor(self, self, generator=generator)


def _bernoulli_out(out: Tensor, self: Tensor, p: Any, generator: Any) -> Tensor:
    """Zeros and ones fit into an out= of every dtype, and are drawn in the order of its memory."""
    if p is None:
        _check_probabilities(self)
    return out.resize_(self.shape).bernoulli_(self if p is None else p, generator=generator)


op("bernoulli(Tensor self, float? p=None, *, Generator? generator=None) -> Tensor", body=_bernoulli, out=_bernoulli_out)


@composite("_bernoulli_like(Tensor self, float p, *, Generator? generator=None) -> Tensor", variants="", out=False,
           batch=batching.drawn_like, forward=forward.constant)
def _bernoulli_like(self: Tensor, p: float, generator: Any) -> Tensor:
    """Ones with probability p in the shape of self and in the order of its memory; zeros otherwise."""
    return ops.empty_like(self.detach()).bernoulli_(p, generator=generator)


# ---- fresh ----------------------------------------------------------------------------------------------------------
def _complex_normal(made: Tensor, generator: _C.GeneratorBase | None) -> Tensor:
    """Real and imaginary parts of variance one half."""
    ops.view_as_real(made).normal_(0, math.sqrt(0.5), generator=generator)
    return made


def _fill_uniform(made: Tensor, generator: Any) -> Tensor:
    if made.is_complex():
        ops.view_as_real(made).uniform_(0, 1, generator=generator)
        return made
    return made.uniform_(0, 1, generator=generator)


def _fill_normal(made: Tensor, generator: Any) -> Tensor:
    return _complex_normal(made, generator) if made.is_complex() else made.normal_(0, 1, generator=generator)


def _into(fresh: Callable[..., Any], fill: Callable[..., Any]) -> Callable[..., Any]:
    """The body of out=: one of the right shape is filled itself, for numbers are drawn in the order of memory."""
    def drawn(out: Tensor, *args: Any) -> Tensor:
        *numbers, size, generator = args[:-5]                # without dtype, layout, device, pin_memory, requires_grad
        if tuple(out.shape) != tuple(size):
            return fresh(*args)
        fill(out.detach(), *numbers, generator)
        return out
    return drawn


for _name, _fill in (("rand", _fill_uniform), ("randn", _fill_normal)):
    def _fresh(size: Sequence[int], generator: _C.GeneratorBase | None, dtype: _C.dtype | None,
               layout: _C.layout | None, device: Any, pin_memory: bool | None, requires_grad: bool | None,
               _fill: Callable[..., Any] = _fill) -> Tensor:
        return finish(_fill(ops.empty(size, dtype=dtype, device=device), generator), requires_grad)

    def _like(self: Tensor, dtype: _C.dtype | None, layout: _C.layout | None, device: _C.device | None,
              pin_memory: bool | None, requires_grad: bool | None, memory_format: _C.memory_format | None,
              generator: _C.GeneratorBase | None, _fill: Callable[..., Any] = _fill) -> Tensor:
        made = ops.empty_like(self, dtype=dtype, device=device, memory_format=memory_format)
        return finish(_fill(made, generator), requires_grad)
    op(f"{_name}(SymInt[] size, {_OPTIONS}) -> Tensor", body=_fresh, variants="function", out=_into(_fresh, _fill),
       whole=True)
    op(f"{_name}_like(Tensor self, {_LIKE}) -> Tensor", body=_like, variants="function", out=False, whole=True,
       batch=batching.drawn_like, forward=forward.constant)


def _randint(low: int, high: int, size: Sequence[int], generator: _C.GeneratorBase | None, dtype: _C.dtype | None,
             layout: _C.layout | None, device: _C.device | None, pin_memory: bool | None,
             requires_grad: bool | None) -> Tensor:
    """Integers from low (default 0) to high, high excluded."""
    made = ops.empty(size, dtype=dtype or _C._dtype_named("int64"), device=device)
    return finish(_fill_integers(made, low, high, generator), requires_grad)


def _fill_integers(made: Tensor, low: int, high: int, generator: Any) -> Tensor:
    return made.random_(low, high, generator=generator)


def _randint_below(high: int, *rest: Any) -> Tensor:
    return _randint(0, high, *rest)


op(f"randint(SymInt high, SymInt[] size, {_OPTIONS}) -> Tensor", variants="function", body=_randint_below,
   doc=_randint.__doc__, out=_into(_randint_below, lambda made, *rest: _fill_integers(made, 0, *rest)), whole=True)
op(f"randint.low(SymInt low, SymInt high, SymInt[] size, {_OPTIONS}) -> Tensor", variants="function", body=_randint,
   out=_into(_randint, _fill_integers), whole=True)


def _randint_like(self: Tensor, low: int, high: int, dtype: _C.dtype | None, layout: _C.layout | None,
                  device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None,
                  memory_format: _C.memory_format | None, generator: _C.GeneratorBase | None) -> Tensor:
    """Integers from low (default 0) to high in the shape of self."""
    made = ops.empty_like(self, dtype=dtype, device=device, memory_format=memory_format)
    return finish(made.random_(low, high, generator=generator), requires_grad)


op(f"randint_like(Tensor self, SymInt high, {_LIKE}) -> Tensor", out=False, variants="function",
   body=lambda self, high, *rest: _randint_like(self, 0, high, *rest), doc=_randint_like.__doc__, whole=True,
   batch=batching.drawn_like, forward=forward.constant)
op(f"randint_like.low(Tensor self, SymInt low, SymInt high, {_LIKE}) -> Tensor", out=False, variants="function",
   body=_randint_like, whole=True, batch=batching.drawn_like, forward=forward.constant)


@composite(f"randperm(SymInt n, {_OPTIONS}) -> Tensor", variants="function", whole=True)
def _randperm(n: int, generator: _C.GeneratorBase | None, dtype: _C.dtype | None, layout: _C.layout | None,
              device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """The integers from 0 to n - 1 in random order."""
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if dtype is not None and dtype._name == "bool":
        raise NotImplementedError("\"randperm\" not implemented for 'Bool'")
    if dtype is not None and dtype.is_complex:
        raise NotImplementedError(f"\"randperm\" not implemented for '{_C.TYPE_WORDS[dtype._id]}'")
    made = ops.empty((n,), dtype=dtype or _C._dtype_named("int64"), device=device)
    return finish(ops._randperm_(made, n, generator=generator), requires_grad)


def _randperm_rule(self: Tensor, n: int, generator: _C.GeneratorBase | None) -> None:
    if tuple(self.shape) != (n,) or self.is_complex():
        raise RuntimeError(f"randperm: expected a real tensor of shape [{n}], but got {list(self.shape)}")


op("_randperm_(Tensor(a!) self, SymInt n, *, Generator? generator=None) -> Tensor(a!)", kernel="randperm", variants="",
   rule=_randperm_rule)


def _normal(mean: Any, std: Any, generator: _C.GeneratorBase | None) -> Tensor:
    """Normal numbers with the given means and standard deviations, tensors or numbers."""
    if not hasattr(mean, "dtype") and not hasattr(std, "dtype"):
        raise call_errors.call_error(_NORMAL, (mean, std), {}, False)
    if hasattr(std, "dtype"):
        if std.is_complex():
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.numel() and std._readable and not bool((std >= 0).all()):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    elif std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    like = mean if hasattr(mean, "dtype") else std
    shape = broadcast(mean.shape, std.shape) if hasattr(mean, "dtype") and hasattr(std, "dtype") else like.shape
    made = like.new_empty(shape)
    given = [x for x in (mean, std) if hasattr(x, "detach") and x.requires_grad]
    mean, std = (x.detach() if hasattr(x, "detach") else x for x in (mean, std))
    made = _fill_normal(made, generator)
    if all(x._readable for x in (mean, std) if hasattr(x, "detach")):
        made = made.mul_(std).add_(mean)
    else:                                        # numbers of a class of their own: what was drawn cannot take them
        made = (made * std + mean).to(made.dtype)
    never = ops.zeros((), dtype=_C._dtype_named("bool"), device=made.device) if given else None
    for x in given:
        made = ops.where(never, x, made)         # no gradient flows through a draw: zeros do, as in torch
    return made


_NORMAL = op("normal.Tensor(Tensor mean, Tensor std=1.0, *, Generator? generator=None) -> Tensor", body=_normal, numbers=True,
             variants="")


@composite(f"normal.float_float(float mean, float std, SymInt[] size, {_OPTIONS}) -> Tensor", variants="", out=False, whole=True)
def _normal_numbers(mean: float, std: float, size: Sequence[int], generator: _C.GeneratorBase | None, dtype: _C.dtype | None,
                    layout: _C.layout | None, device: Any, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """Normal numbers of one mean and one standard deviation."""
    return finish(ops.empty(size, dtype=dtype, device=device).normal_(mean, std, generator=generator), requires_grad)


def normal(mean: Tensor | float, std: Tensor | float = 1.0, size: list[int] | None = None, *, generator: Any = None,
           out: Tensor | None = None, dtype: _C.dtype | None = None, layout: _C.layout | None = None,
           device: _C.device | None = None, pin_memory: bool | None = None, requires_grad: bool = False) -> Tensor:
    """Normal numbers: element-wise means and deviations, or numbers and a size."""
    if out is not None and _C._is_grad_enabled() and any(
            isinstance(x, Tensor) and x.requires_grad for x in (mean, std, out)):
        raise RuntimeError("normal(): functions with out=... arguments don't support automatic differentiation, but one of "
                           "the arguments requires grad.")
    if size is None:
        made = _NORMAL(mean, std, generator=generator)
    elif out is not None and tuple(out.shape) == tuple(size):    # drawn in the order of its memory
        out.detach().normal_(float(mean), float(std), generator=generator)
        return out
    else:
        made = _NORMAL(float(mean), float(std), size, generator=generator, dtype=dtype, device=device)
    if out is not None:
        return out.resize_(made.shape).copy_(made)
    return finish(made, requires_grad)


def _multinomial_rule(self: Tensor, num_samples: int, replacement: bool, generator: _C.GeneratorBase | None) -> Spec:
    if self.dim() not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not self.is_floating_point():
        raise RuntimeError("multinomial only supports floating-point dtypes for input, got: "
                           f"{_C.TYPE_WORDS[self.dtype._id]}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if self.size(-1) > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if not replacement and num_samples > self.size(-1):
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    return tuple(self.shape[:-1]) + (num_samples,), _C._dtype_named("int64")


def _multinomial_out(out: Tensor, *args: Any) -> Tensor:
    if out.dtype._name != "int64":
        raise RuntimeError(f"multinomial expects Long tensor out, got: {_C.TYPE_WORDS[out.dtype._id]}")
    *given, generator = args
    return ops.multinomial(*given, generator=generator)


op("multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor",
   batch=batching.drawn_by_row, rule=_multinomial_rule, out=_multinomial_out,
   npu="aclnnMultinomial(self, num_samples, replacement, seed, offset, out)")
op("poisson(Tensor self, Generator? generator=None) -> Tensor", out=False, rule="like", variants="function",
   grad={"self": _zero})


# ---- gamma numbers, and what is drawn with them ---------------------------------------------------------------------
def _gamma_rule(self: Tensor, generator: _C.GeneratorBase | None) -> Spec:
    if self.dtype._name not in ("float32", "float64"):
        raise NotImplementedError(f"\"gamma_cpu\" not implemented for '{_C.TYPE_WORDS[self.dtype._id]}'")
    return tuple(self.shape), self.dtype


op("_standard_gamma(Tensor self, Generator? generator=None) -> Tensor", out=False, rule=_gamma_rule, variants="function",
   forward=forward.refused("_standard_gamma"),
   grad={"self": lambda g, self, result: g * ops._standard_gamma_grad(self, result)},
   doc="Numbers drawn from gamma distributions with the items as shapes and scale 1.")


def _gamma_slope_by_series(a: Tensor, x: Tensor) -> Tensor:
    """The sum over n of x^(n+1) / (a (a+1) … (a+n)) * (digamma(a+n+1) - log x), from the series of P(a, x). A term shrinks
    once n passes x - a, and after 6 standard deviations more nothing is left of it."""
    steps = int((x - a).clamp(min=0).max() + 6 * x.max().sqrt()) + 12 if x.numel() else 0
    term, psi, log_x = x / a, ops.digamma(a + 1), x.log()
    total = term * (psi - log_x)
    for n in range(1, steps):
        term = term * x / (a + n)
        psi = psi + 1 / (a + n)
        total = total + term * (psi - log_x)
    return total


def _gamma_slope_far_out(a: Tensor, x: Tensor) -> Tensor:
    """Where the series is long. Around a: the slope of the Cornish-Fisher expansion, x = a + z sqrt(a) + (z^2 - 1) / 3 +
    (z^3 - 7z) / (36 sqrt(a)) - …, at constant z. Far above it: from the tail, whose density is (1 - (a-1)/x) of its mass."""
    root = a.sqrt()
    z = (x - a) / root
    for _ in range(4):
        z = (x - a - (z * z - 1) / 3 - (z * z - 7) * z / (36 * root) + ((3 * z * z + 7) * z * z - 16) / (810 * a)) / root
    around = 1 + z / (2 * root) - (z * z - 7) * z / (72 * a * root) + ((3 * z * z + 7) * z * z - 16) / (810 * a * a)
    above = (x.log() - ops.digamma(a)) / (1 - (a - 1) / x)
    return ops.where(x > 2 * a + 100, above, around)


@composite("_standard_gamma_grad(Tensor self, Tensor output) -> Tensor", out=False, variants="function")
def _standard_gamma_grad(self: Tensor, output: Tensor) -> Tensor:
    """The derivative of a gamma number in its shape, the implicit one: dx/da = -(dP(a, x)/da) / p(x; a), where P is the cdf."""
    a, x = self, output
    near = (x > 0) & (x <= 2000) & (x <= 2 * a + 100)
    if near.all():
        return _gamma_slope_by_series(a, x)
    series = _gamma_slope_by_series(ops.where(near, a, 1), ops.where(near, x, 1))
    return ops.where(near, series, _gamma_slope_far_out(a, x)).masked_fill(x == 0, 0)


@composite("_sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor", out=False, variants="function")
def _sample_dirichlet(self: Tensor, generator: Any) -> Tensor:
    """Points of the simplex drawn from the Dirichlet distributions that the last dim has the concentrations of."""
    if self.dtype._name not in ("float32", "float64"):
        raise NotImplementedError(f"\"dirichlet\" not implemented for '{_C.TYPE_WORDS[self.dtype._id]}'")
    parts = ops._standard_gamma(self.double(), generator)
    parts = parts / parts.sum(-1, keepdim=True)
    return parts.clamp(finfo(self.dtype).tiny, 1 - finfo(_C._dtype_named("float32")).eps / 2).to(self.dtype)


def _binomial_rule(count: Tensor, prob: Tensor, generator: _C.GeneratorBase | None) -> Spec:
    for name, given in (("count", count), ("prob", prob)):
        if not given.is_floating_point():
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {_C.TYPE_WORDS[given.dtype._id]}")
    if count.dtype._name not in ("float32", "float64"):
        raise NotImplementedError(f"\"binomial_cpu\" not implemented for '{_C.TYPE_WORDS[count.dtype._id]}'")
    if prob.dtype is not count.dtype:
        raise RuntimeError(f"Found dtype {_C.TYPE_WORDS[prob.dtype._id]} but expected {_C.TYPE_WORDS[count.dtype._id]}")
    return broadcast(count.shape, prob.shape), count.dtype


op("binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor", out=False, rule=_binomial_rule,
   variants="function")
publish_plain(normal)
