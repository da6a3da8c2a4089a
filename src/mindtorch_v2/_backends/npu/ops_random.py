"""Random kernels of the npu: draws that are made of CANN's uniform and normal numbers, and integers in a range."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.graph_random import captured
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._dtype import finfo, iinfo

_FLOAT64 = _C._dtype_named("float64")


def _next_state(generator: Any, out: Any) -> tuple[int, int]:
    """(seed, offset) of the draws for one output."""
    generator = generator or _C._npu_default_generator(out.device.index)
    if captured(generator) is not None:
        raise RuntimeError("this random op cannot be captured: CANN has no form of it that reads the seed from memory, "
                           "so that every replay would draw the same numbers")
    return generator._next_seed_offset(out.numel())


def _uniform(like: Any, generator: Any) -> Any:
    """Numbers in (0, 1]: their logarithm is finite."""
    return 1 - ops.empty_like(like).uniform_(generator=generator)


def _exponential(self: Any, lambd: float, generator: Any) -> Any:
    return _uniform(self, generator).log() / -lambd


def _geometric(self: Any, p: float, generator: Any) -> Any:
    like = self if self.is_floating_point() else self.float()
    return (_uniform(like, generator).log() / math.log1p(-p)).ceil().clamp(min=1)


def _cauchy(self: Any, median: float, sigma: float, generator: Any) -> Any:
    return median + sigma * ((_uniform(self, generator) - 0.5) * math.pi).tan()


def _log_normal(self: Any, mean: float, std: float, generator: Any) -> Any:
    return ops.empty_like(self).normal_(mean, std, generator=generator).exp()


def _few(rate: Any, generator: Any) -> Any:
    """Poisson numbers of rates below 10: as many steps of the distribution as stay below a uniform number."""
    chance = (-rate).exp()
    left, count = ops.empty_like(rate).uniform_(generator=generator) - chance, ops.zeros_like(rate)
    for k in range(1, 60):
        count = count + (left >= 0)
        chance = chance * rate / k
        left = left - chance
    return count


def _many(rate: Any, generator: Any) -> Any:
    """Poisson numbers of rates from 10 on: Hörmann's transformed rejection (PTRS), drawn again where it rejects."""
    b = 0.931 + 2.53 * rate.sqrt()
    a, squeeze = 0.02483 * b - 0.059, 0.9277 - 3.6224 / (b - 2)
    found, done = ops.zeros_like(rate), ops.zeros_like(rate) > 0
    while not done.all().item():
        u = ops.empty_like(rate).uniform_(generator=generator) - 0.5
        v = _uniform(rate, generator)
        edge = 0.5 - u.abs()
        k = ((2 * a / edge + b) * u + rate + 0.43).floor()
        height = (v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b)).log()
        under = height <= k * rate.log() - rate - (k.clamp(min=0) + 1).lgamma()
        good = ((edge >= 0.07) & (v <= squeeze)) | ((k >= 0) & ((edge >= 0.013) | (v <= edge)) & under)
        found, done = ops.where(good & ~done, k, found), done | good
    return found


def _poisson(self: Any, generator: Any) -> Any:
    rate = self.to(_FLOAT64)                                 # logarithms of large factorials cancel
    if (rate < 0).any().item():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    few = _few(rate.clamp(max=10), generator)
    if not (rate >= 10).any().item():
        return few
    return ops.where(rate < 10, few, _many(rate.clamp(min=10), generator))


def _standard_gamma(self: Any, generator: Any) -> Any:
    """Marsaglia and Tsang's rejection; a shape below 1 is raised by 1, and the draw scaled down."""
    shape = ops.where(self < 1, self + 1, self)
    d = shape - 1 / 3
    c = (9 * d).rsqrt()
    drawn = ops.where(self > 0, self, 0.0)
    done = ~((self > 0) & (d < finfo(d.dtype).eps ** -2))      # of those no draw would be accepted
    while not done.all().item():
        x = ops.empty_like(d).normal_(generator=generator)
        v = (1 + c * x) ** 3
        under = _uniform(d, generator).log() < 0.5 * x * x + d * (1 - v + v.clamp(min=1e-30).log())
        good = (v > 0) & under
        drawn, done = ops.where(good & ~done, d * v, drawn), done | good
    power = _uniform(d, generator) ** (1 / self)
    return ops.where(self < 1, drawn * power, drawn).clamp(min=finfo(d.dtype).tiny)


def _binomial(count: Any, prob: Any, generator: Any) -> Any:
    """One uniform number a trial: exact, and meant for moderate counts."""
    drawn = ops.zeros_like(count * prob)
    for trial in range(int(count.max().item()) if drawn.numel() else 0):
        drawn = drawn + ((_uniform(drawn, generator) <= prob) & (count > trial))
    return drawn


def _end_of(dtype: Any) -> int:
    """Where the integers end that random_ draws from: of floats, those up to which all are exact."""
    if dtype.is_floating_point:
        return int(2 / finfo(dtype).eps) + 1
    return 2 if dtype._name == "bool" else iinfo(dtype).max + 1


def _random(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    """random_(self, *, generator) and random_.from(self, from, to, *, generator)."""
    (out,), generator = outs, args[-1]
    if out.is_complex():
        raise NotImplementedError(f"[random_] no kernel for npu in {out.dtype}")
    low, high = (args[1], args[2]) if len(args) > 2 else (0, None)
    if high is None:
        high = min(_end_of(out.dtype), 2 ** 63 - 1)
    if not out.numel():
        return
    graph = captured(generator or _C._npu_default_generator(out.device.index))
    if graph is None:
        aclnn.call("aclnnInplaceRandom", out, low, high, *_next_state(generator, out))
    else:
        aclnn.call("aclnnInplaceRandomTensor", out, low, high, *graph.draw(out.numel()))


def _bernoulli_tensor(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (p, like, generator) = outs, args
    if not out.numel():
        return
    graph = captured(generator or _C._npu_default_generator(out.device.index))
    if graph is not None:
        drawn = ops.empty_like(out, dtype=_C._dtype_named("float32")).uniform_(generator=generator)
        out.copy_(drawn < p.detach())
    else:
        p = p.detach().float() if p.dtype._name == "bfloat16" else p.detach().contiguous()
        aclnn.call("aclnnBernoulliTensor", like.detach(), p, *_next_state(generator, out), out)


def _randperm(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (_, n, generator) = outs, args
    if not n:
        return
    if captured(generator or _C._npu_default_generator(out.device.index)) is None:
        aclnn.call("aclnnRandperm", n, *_next_state(generator, out), out)
    else:                                         # its seed would be the same in every replay; that of random_ is not
        keys = ops.empty((n,), dtype=_C._dtype_named("int64"), device=out.device).random_(generator=generator)
        out.copy_(keys.argsort())


# ---- while a graph is captured ---------------------------------------------------------------------------------------
def _captured_bernoulli(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (_, p, generator) = outs, args
    out.copy_(ops.empty(out.shape, device=out.device).uniform_(generator=generator) < p)


def _captured_dropout(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    """The bits of the mask as CANN packs them, from uniform numbers."""
    (out, mask), (input, p, generator) = outs, args
    kept = ops.empty((mask.numel(), 8), device=out.device).uniform_(generator=generator) >= p
    mask.copy_((kept * 2 ** ops.arange(8, device=out.device)).sum(1))
    aclnn.call("aclnnDropoutDoMask", input.detach(), mask, p, out)


def _captured_rrelu(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    self, noise, lower, upper, _, generator = args
    self = self.detach()
    drawn = ops.empty_like(self).uniform_(lower, upper, generator=generator)
    outs[0].copy_(self * noise.copy_(ops.where(self > 0, 1.0, drawn)))


BODIES = {
    "_bernoulli_scalar_": Body(on_capture=_captured_bernoulli),
    "_bernoulli_tensor": Body(kernel=_bernoulli_tensor),
    "_dropout": Body(on_capture=_captured_dropout),
    "_randperm_": Body(kernel=_randperm),
    "_standard_gamma": Body(value=_standard_gamma),
    "binomial": Body(value=_binomial),
    "cauchy_": Body(value=_cauchy),
    "exponential_": Body(value=_exponential),
    "geometric_": Body(value=_geometric),
    "log_normal_": Body(value=_log_normal),
    "poisson": Body(value=_poisson),
    "random_": Body(kernel=_random),
    "random_.from": Body(kernel=_random),
    "rrelu_with_noise": Body(on_capture=_captured_rrelu),
}
