"""Activation functions and their gradients in libopapi against torch, gated ones among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from client import client, rows, same
from layouts import LAYOUTS, OUTPUTS, like, sample

aten = torch.ops.aten
Function = Callable[..., torch.Tensor]
INVALID, NULL = 161002, 161001


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def wide(f: Function) -> Function:
    """The reference in float32, rounded once, for what torch does not compute in 16 bits or in integers."""

    def g(*tensors: torch.Tensor, **more: Any) -> torch.Tensor:
        dtype = tensors[0].dtype
        return f(*(t.float() if dtype != torch.float64 else t for t in tensors), **more).to(dtype)

    return g


def fast_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def gradient(f: Function) -> Function:
    def g(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().clone().requires_grad_()
        return torch.autograd.grad(f(x), x, grad)[0] if x.numel() else torch.zeros_like(x)

    return wide(g)


# ---- forward: name, further arguments, torch; the in-place form has the same arguments -----------
FORWARD: dict[str, tuple[tuple[Any, ...], Function]] = {
    "Relu": ((), torch.relu),
    "Sigmoid": ((), torch.sigmoid),
    "Threshold": ((1, -7), lambda x: F.threshold(x, 1, -7) if x.dtype != torch.uint8 else torch.where(x <= 1, 249, x)),
    "Gelu": ((), F.gelu),
    "GeluV2": ((0,), F.gelu),
    "FastGelu": ((), wide(fast_gelu)),
    "Silu": ((), F.silu),
    "Swish": ((1.5,), wide(lambda x: x * torch.sigmoid(1.5 * x))),
    "Hardswish": ((), F.hardswish),
    "Hardsigmoid": ((), wide(F.hardsigmoid)),
    "LeakyRelu": ((0.2,), lambda x: F.leaky_relu(x, 0.2)),
    "Elu": ((1.5, 2.0, 0.5), wide(lambda x: aten.elu(x, 1.5, 2.0, 0.5))),
    "Selu": ((), wide(F.selu)),
    "Celu": ((1.5,), wide(lambda x: F.celu(x, 1.5))),
    "Softplus": ((2.0, 1.0), lambda x: F.softplus(x, 2.0, 1.0)),
    "Mish": ((), F.mish),
    "Hardtanh": ((-1, 2), lambda x: F.hardtanh(x, -1, 2)),
    "Hardshrink": ((0.5,), F.hardshrink),
    "Softshrink": ((0.5,), F.softshrink),
    "Shrink": (
        (0.5, 0.25),
        lambda x: torch.where(x > 0.5, x - 0.25, torch.where(x < -0.5, x + 0.25, torch.zeros_like(x))),
    ),
    "SquaredRelu": ((), wide(lambda x: torch.relu(x) ** 2)),
    "LogSigmoid": ((), F.logsigmoid),
}
FLOATS = [torch.float16, torch.bfloat16, torch.float32]


def dtypes(name: str, i: int = 0) -> list[torch.dtype]:
    named = rows()[name].dtypes(i)
    return named if len(named) < 12 else FLOATS  # rows that name none are of floats


def forward_cases(prefix: str) -> list[Any]:
    names = [n for n in FORWARD if prefix + n in rows()]
    return [pytest.param(n, d, id=f"{n}-{str(d)[6:]}") for n in names for d in dtypes(prefix + n)]


def input_for(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return sample(shape, dtype, 0 if name == "Hardtanh" and dtype == torch.uint8 else -4, 4)


@pytest.mark.parametrize(("name", "dtype"), forward_cases("aclnn"))
def test_forward(name: str, dtype: torch.dtype) -> None:
    more, function = FORWARD[name]
    if name == "Hardtanh" and dtype == torch.uint8:
        more, function = (0, 2), lambda x: x.clamp(0, 2)
    for layout in LAYOUTS.values():
        x = layout(lambda shape: input_for(name, shape, dtype))
        same(client().call(f"aclnn{name}", x, *more, like(x)), function(x).to(dtype))


@pytest.mark.parametrize(("name", "dtype"), forward_cases("aclnnInplace"))
def test_in_place(name: str, dtype: torch.dtype) -> None:
    more, function = FORWARD[name]
    if name in ("Sigmoid", "Threshold") and dtype.is_complex:
        function = torch.sigmoid
    for layout in OUTPUTS.values():
        x = layout(lambda shape: input_for(name, shape, dtype))
        same(client().call(f"aclnnInplace{name}", x, *more), function(x).to(dtype))


def test_gelu_by_tanh() -> None:
    x, g = sample((5, 6), torch.float32), sample((5, 6), torch.float32)
    same(client().call("aclnnGeluV2", x, 1, like(x)), F.gelu(x, approximate="tanh"))
    for form in ("none", "tanh"):
        want = aten.gelu_backward(g, x, approximate=form)
        same(client().call("aclnnGeluBackwardV2", g, x, form, like(x)), want)


def test_swish_without_beta_is_silu() -> None:
    x, g = sample((5, 6), torch.float32), sample((5, 6), torch.float32)
    same(client().call("aclnnSwish", x, None, like(x)), F.silu(x))
    same(client().call("aclnnSwishBackward", g, x, None, like(x)), aten.silu_backward(g, x))


@pytest.mark.parametrize("eps", [-1.0, 0.1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_logit(dtype: torch.dtype, eps: float) -> None:
    x, g = sample((5, 6), dtype, -0.2, 1.2), sample((5, 6), dtype)
    eps_or_none = None if eps < 0 else eps
    same(client().call("aclnnLogit", x, eps, like(x)), torch.logit(x.float(), eps_or_none).to(dtype))
    want = aten.logit_backward(g.float(), x.float(), eps_or_none).to(dtype)
    same(client().call("aclnnLogitGrad", x, g, eps, like(x)), want)


def test_log_sigmoid_with_a_buffer() -> None:
    x, g = sample((5, 6), torch.float32), sample((5, 6), torch.float32)
    out, _ = client().call("aclnnLogSigmoidForward", x, like(x), torch.zeros(5, 6))
    same(out, F.logsigmoid(x))
    want = aten.log_sigmoid_backward(g, x, torch.exp(-x.abs()))
    same(client().call("aclnnLogSigmoidBackward", g, x, torch.zeros(5, 6), like(x)), want)


# ---- gradients: arguments around (grad, saved), and torch ----------------------------------------
def selu_backward(g: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return aten.elu_backward(g, alpha, scale, 1.0, True, result)


BACKWARD: dict[str, tuple[tuple[Any, ...], Function]] = {
    "SigmoidBackward": ((), aten.sigmoid_backward),
    "TanhBackward": ((), aten.tanh_backward),
    "ThresholdBackward": ((1,), lambda g, x: aten.threshold_backward(g, x, 1)),
    "GeluBackward": ((), aten.gelu_backward),
    "FastGeluBackward": ((), gradient(fast_gelu)),
    "SiluBackward": ((), aten.silu_backward),
    "SwishBackward": ((1.5,), gradient(lambda x: x * torch.sigmoid(1.5 * x))),
    "HardswishBackward": ((), aten.hardswish_backward),
    "HardswishBackwardV2": ((), aten.hardswish_backward),
    "HardsigmoidBackward": ((), wide(aten.hardsigmoid_backward)),
    "LeakyReluBackward": ((0.2, False), lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False)),
    "SeluBackward": ((), wide(selu_backward)),
    "SoftplusBackward": ((2.0, 1.0), lambda g, x: aten.softplus_backward(g, x.to(g.dtype), 2.0, 1.0)),
    "MishBackward": ((), wide(aten.mish_backward)),
    "HardtanhBackward": ((-1.0, 2.0), lambda g, x: aten.hardtanh_backward(g, x, -1.0, 2.0)),
    "HardshrinkBackward": ((0.5,), lambda g, x: aten.hardshrink_backward(g, x, 0.5)),
    "SoftshrinkBackward": ((0.5,), lambda g, x: aten.softshrink_backward(g, x, 0.5)),
}
BACKWARD_CASES = [
    pytest.param(n, d, id=f"{n}-{str(d)[6:]}") for n in BACKWARD for d in dtypes(f"aclnn{n}") if d != torch.bool
]


@pytest.mark.parametrize(("name", "dtype"), BACKWARD_CASES)
def test_backward(name: str, dtype: torch.dtype) -> None:
    more, function = BACKWARD[name]
    for layout in LAYOUTS.values():
        g, x = (layout(lambda shape: sample(shape, dtype)) for _ in range(2))
        same(client().call(f"aclnn{name}", g, x, *more, like(x)), function(g, x).to(dtype))


@pytest.mark.parametrize("is_result", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_elu_backward(dtype: torch.dtype, is_result: bool) -> None:
    for layout in LAYOUTS.values():
        g, x = (layout(lambda shape: sample(shape, dtype)) for _ in range(2))
        want = aten.elu_backward(g.float(), 1.5, 2.0, 0.5, is_result, x.float()).to(dtype)
        same(client().call("aclnnEluBackward", g, 1.5, 2.0, 0.5, is_result, x, like(x)), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "weights"), [((4, 3, 5), 3), ((4, 3), 3), ((4, 3, 2, 2), 1), ((6,), 1)])
def test_prelu(dtype: torch.dtype, shape: tuple[int, ...], weights: int) -> None:
    x, g, w = sample(shape, dtype), sample(shape, dtype), sample((weights,), dtype)
    xs, ws = x.float().requires_grad_(), w.float().requires_grad_()
    want = F.prelu(xs, ws)
    want.backward(g.float())
    same(client().call("aclnnPrelu", x, w, like(x)), want.detach().to(dtype))
    grad_x, grad_w = client().call("aclnnPreluBackward", g, x, w, like(x), like(w))
    same(grad_x, xs.grad.to(dtype))
    same(grad_w, ws.grad.to(dtype), rtol=2e-2, atol=2e-2)


# ---- gated ---------------------------------------------------------------------------------------
def gate_by(activate: Function, left: bool) -> Function:
    def f(x: torch.Tensor, dim: int) -> torch.Tensor:
        a, b = x.chunk(2, dim)
        return activate(a) * b if left else a * activate(b)

    return f


SPLITS = [((6, 4), 0), ((6, 4), -1), ((2, 6, 5), 1), ((4,), 0)]


@pytest.mark.parametrize(("shape", "dim"), SPLITS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "grad_name", "activate", "left"),
    [("SwiGlu", "SwiGluGrad", F.silu, True), ("Glu", "GluBackward", torch.sigmoid, False)],
)
def test_glu(
    name: str, grad_name: str, activate: Function, left: bool, dtype: torch.dtype, shape: tuple[int, ...], dim: int
) -> None:
    x = sample(shape, dtype)
    held = x.float().requires_grad_()
    want = gate_by(activate, left)(held, dim)
    g = sample(tuple(want.shape), dtype)
    want.backward(g.float())
    same(client().call(f"aclnn{name}", x, dim, torch.empty_like(want, dtype=dtype)), want.detach().to(dtype))
    same(client().call(f"aclnn{grad_name}", g, x, dim, torch.empty_like(x)), held.grad.to(dtype))


@pytest.mark.parametrize(("version", "left"), [("", False), ("V3", False), ("V3", True)])
@pytest.mark.parametrize("approximate", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_geglu(dtype: torch.dtype, left: bool, approximate: int, version: str) -> None:
    side = (left,) if version else ()
    x, form = sample((3, 8), dtype), ("none", "tanh")[approximate]
    held = x.float().requires_grad_()
    want = gate_by(lambda t: F.gelu(t, approximate=form), left)(held, -1)
    g = sample((3, 4), dtype)
    want.backward(g.float())
    out, gelu = client().call(f"aclnnGeGlu{version}", x, -1, approximate, *side, like(g), like(g))
    same(out, want.detach().to(dtype))
    same(gelu, F.gelu(x.chunk(2, -1)[0 if left else 1].float(), approximate=form).to(dtype))
    got = client().call(f"aclnnGeGlu{version}Backward", g, x, gelu, -1, approximate, *side, like(x))
    same(got, held.grad.to(dtype), rtol=5e-3, atol=5e-3) if dtype == torch.float16 else same(got, held.grad)


def test_products_with_an_activated_half() -> None:
    x = sample((3, 8), torch.float32)
    a, b = x.chunk(2, -1)
    same(client().call("aclnnGeluMul", x, "tanh", like(a)), F.gelu(a, approximate="tanh") * b)
    same(client().call("aclnnGeluMul", x, None, like(a)), F.gelu(a) * b)
    want = torch.where(a > 0.5, a, torch.zeros(())) * b
    same(client().call("aclnnFatreluMul", x, torch.tensor([0.5]), like(a)), want)


def clipped_swiglu(
    x: torch.Tensor, dim: int, alpha: float, limit: float, bias: float, interleaved: bool
) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] //= 2
    rows = x.flatten(dim % x.dim()).reshape(math.prod(x.shape[: dim % x.dim()]), -1)
    a, b = (rows[:, ::2], rows[:, 1::2]) if interleaved else rows.chunk(2, -1)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return (a * torch.sigmoid(alpha * a) * (b + bias)).reshape(shape)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("shape", "dim"), SPLITS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_clipped_swiglu(dtype: torch.dtype, shape: tuple[int, ...], dim: int, interleaved: bool) -> None:
    x = sample(shape, dtype)
    held = x.float().requires_grad_()
    numbers = (1.7, 1.5, 0.5, interleaved)
    want = clipped_swiglu(held, dim, *numbers)
    g = sample(tuple(want.shape), dtype)
    want.backward(g.float())
    same(client().call("aclnnClippedSwiglu", x, None, dim, *numbers, like(g)), want.detach().to(dtype))
    same(client().call("aclnnClippedSwigluGrad", g, x, None, dim, *numbers, like(x)), held.grad.to(dtype))


def test_clipped_swiglu_computes_only_the_rows_of_its_groups() -> None:
    x, out, groups = sample((6, 8), torch.float32), torch.full((6, 4), 7.0), torch.tensor([1, 0, 2])
    want = clipped_swiglu(x, -1, 1.7, 7.0, 1.0, True)
    want[3:] = 7
    same(client().call("aclnnClippedSwiglu", x, groups, -1, 1.7, 7.0, 1.0, True, out), want)


@pytest.mark.parametrize("middle", [False, True])
def test_modulate(middle: bool) -> None:
    x, scale, shift = (sample(s, torch.float32) for s in ((2, 3, 4), (2, 1, 4), (2, 1, 4)))
    given = [t if middle else t.squeeze(1) for t in (scale, shift)]
    same(client().call("aclnnModulate", x, *given, like(x)), x * (1 + scale) + shift)
    same(client().call("aclnnModulate", x, None, given[1], like(x)), x + shift)
    same(client().call("aclnnModulate", x, given[0], None, like(x)), x * (1 + scale))


# ---- refusals ------------------------------------------------------------------------------------
X, Y, D, N = (
    torch.zeros(3, 4),
    torch.zeros(4, 3),
    torch.zeros(3, 4, dtype=torch.float64),
    torch.zeros(3, 4, dtype=torch.int16),
)
REFUSED: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnRelu", (None, X)),
    (NULL, "aclnnRelu", (X, None)),
    (NULL, "aclnnLeakyRelu", (X, None, X)),
    (NULL, "aclnnSigmoidBackward", (None, X, X)),
    (NULL, "aclnnSwiGlu", (None, -1, torch.zeros(3, 2))),
    (INVALID, "aclnnRelu", (X, Y)),
    (INVALID, "aclnnRelu", (D, D)),
    (INVALID, "aclnnSilu", (N, N)),
    (INVALID, "aclnnGelu", (X, N)),
    (INVALID, "aclnnGeluV2", (X, 2, X)),
    (INVALID, "aclnnGeluBackwardV2", (X, X, "erf", X)),
    (INVALID, "aclnnGeluBackward", (X, torch.zeros(5), X)),
    (INVALID, "aclnnSigmoidBackward", (X, Y, X)),
    (INVALID, "aclnnTanhBackward", (X, X, Y)),
    (INVALID, "aclnnSoftplus", (N, 1.0, 20.0, N)),
    (INVALID, "aclnnHardtanhBackward", (D, D, -1.0, 1.0, D)),
    (INVALID, "aclnnLeakyRelu", (X, 1j, X)),
    (INVALID, "aclnnPrelu", (X, torch.zeros(3), X)),
    (INVALID, "aclnnPreluBackward", (X, X, torch.zeros(4), X, torch.zeros(3))),
    (INVALID, "aclnnPreluBackward", (X, torch.zeros(1), torch.zeros(1), X, torch.zeros(1))),
    (INVALID, "aclnnSwiGlu", (X, 2, torch.zeros(3, 2))),
    (INVALID, "aclnnSwiGlu", (X, 0, torch.zeros(1, 4))),
    (INVALID, "aclnnSwiGlu", (X, -1, X)),
    (INVALID, "aclnnSwiGlu", (torch.zeros(()), 0, torch.zeros(()))),
    (INVALID, "aclnnSwiGluGrad", (X, X, -1, X)),
    (INVALID, "aclnnGlu", (X, -3, X)),
    (INVALID, "aclnnGeGlu", (X, -1, 2, torch.zeros(3, 2), torch.zeros(3, 2))),
    (INVALID, "aclnnGeluMul", (X, "erf", torch.zeros(3, 2))),
    (INVALID, "aclnnClippedSwiglu", (X, None, 0, 1.0, 7.0, 1.0, True, torch.zeros(1, 4))),
    (INVALID, "aclnnModulate", (X, None, None, X)),
]


@pytest.mark.parametrize(("code", "name", "args"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused(code: int, name: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, name, *args)
