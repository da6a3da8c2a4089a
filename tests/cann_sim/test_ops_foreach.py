"""Ops over lists of tensors, steps of optimizers and loss scaling in libopapi against torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import client, rows, same
from layouts import sample

INVALID, NULL = 161002, 161001
SHAPES = [(3, 4), (7,), (), (0, 2), (2, 1, 3)]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def lists(dtype: torch.dtype, low: float = -3, high: float = 3) -> list[torch.Tensor]:
    return [sample(shape, dtype, low, high) for shape in SHAPES]


def blank(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(t) for t in tensors]


def cases(names: list[str]) -> list[Any]:
    return [pytest.param(n, d, id=f"{n}-{str(d)[6:]}") for n in names for d in rows()[f"aclnnForeach{n}"].dtypes(0)]


def check(name: str, args: list[Any], want: list[torch.Tensor], **tolerance: float) -> None:
    got = client().call(f"aclnnForeach{name}", *args)
    for g, w in zip(got, want, strict=True):
        same(g, w, **tolerance)


def each(f: Callable[..., torch.Tensor], *columns: Any) -> list[torch.Tensor]:
    """torch, item by item, in float32 where it has 16 bits or integers, rounded once."""
    return [
        f(*(t if t.dtype == torch.int32 else t.float() for t in items)).to(items[0].dtype)
        for items in zip(*columns, strict=True)
    ]


# ---- one list ------------------------------------------------------------------------------------
UNARY = ["Abs", "Acos", "Asin", "Atan", "Cos", "Cosh", "Erf", "Erfc", "Exp", "Expm1", "Log", "Log10", "Log1p", "Log2",
         "Neg", "Reciprocal", "Sigmoid", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
def test_one_list(name: str, dtype: torch.dtype) -> None:
    x = lists(dtype, 0 if dtype == torch.uint8 else -3)
    function = getattr(torch, name.lower())
    want = [function(t).to(dtype) if dtype in (torch.int64, torch.uint8) else each(function, [t])[0] for t in x]
    if dtype == torch.int8 and name == "Exp":
        x = lists(dtype, -3, 3)
        want = [function(t.float()).to(dtype) for t in x]
    check(name, [x, blank(x)], want)


@pytest.mark.parametrize(("name", "full"), [("ACos", "Acos"), ("Log", "Log")])
def test_one_list_in_place(name: str, full: str) -> None:
    x = lists(torch.float32, 0, 1)
    check(f"{name}Inplace", [x], [getattr(torch, full.lower())(t) for t in x])


ROUNDINGS = [(1, torch.round), (2, torch.floor), (3, torch.ceil), (5, torch.trunc), (7, torch.frac)]


@pytest.mark.parametrize(("mode", "function"), ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rounding_modes(dtype: torch.dtype, mode: int, function: Callable[..., torch.Tensor]) -> None:
    x = lists(dtype)
    want = [function(t) for t in x]
    check("RoundOffNumber", [x, torch.tensor([mode], dtype=torch.int8), blank(x)], want)
    check("RoundOffNumberV2", [x, mode, blank(x)], want)


@pytest.mark.parametrize("order", [1, 2, 3.0, math.inf])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_norm(dtype: torch.dtype, order: float) -> None:
    x = [t for t in lists(dtype) if t.numel()]
    outs = [torch.empty((), dtype=dtype) for _ in x]
    check(
        "Norm",
        [x, order, outs],
        torch._foreach_norm(x, order),
        rtol=2e-2 if dtype != torch.float32 else 2e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", rows()["aclnnForeachCopy"].dtypes(0))
def test_copy_and_zero(dtype: torch.dtype) -> None:
    x = lists(dtype)
    check("Copy", [x, blank(x)], x)
    if dtype in rows()["aclnnForeachZeroInplace"].dtypes(0):
        check("ZeroInplace", [x], [torch.zeros_like(t) for t in x])


# ---- lists and numbers ---------------------------------------------------------------------------
BINARY = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": torch.div, "Maximum": torch.maximum,
          "Minimum": torch.minimum, "Pow": torch.pow}  # fmt: skip


def binary_cases(form: str) -> list[Any]:
    return cases([f"{n}{form}" for n in BINARY if f"aclnnForeach{n}{form}" in rows()])


@pytest.mark.parametrize(("name", "dtype"), binary_cases("List") + binary_cases("ListV2"))
def test_two_lists(name: str, dtype: torch.dtype) -> None:
    operation = name.removesuffix("V2").removesuffix("List")
    a, b = lists(dtype, 1, 3), lists(dtype, 1, 2)
    function, alpha = BINARY[operation], []
    if operation in ("Add", "Sub"):
        alpha = [2 if name.endswith("V2") else torch.tensor([2.0 if dtype.is_floating_point else 2]).to(
            torch.float32 if dtype.is_floating_point else torch.int32)]  # fmt: skip
    want = [function(x, y, alpha=2) if alpha else function(x, y) for x, y in zip(a, b, strict=True)]
    check(name, [a, b, *alpha, blank(a)], want)


def number_for(form: str, dtype: torch.dtype, value: float) -> tuple[Any, Any]:
    """The argument of this form, and what it means for each tensor."""
    value = value if dtype.is_floating_point else int(value)
    if form == "ScalarList":
        values = [value + k for k in range(len(SHAPES))]
        return values, values
    number = torch.tensor([value], dtype=torch.float32 if dtype.is_floating_point else torch.int32)
    return number if form == "Scalar" else value, [value] * len(SHAPES)


@pytest.mark.parametrize("form", ["Scalar", "ScalarV2", "ScalarList"])
@pytest.mark.parametrize("operation", BINARY)
def test_list_and_number(operation: str, form: str) -> None:
    for dtype in rows()[f"aclnnForeach{operation}{form}"].dtypes(0):
        x = lists(dtype, 1, 3)
        argument, values = number_for(form, dtype, 2.0)
        pairs = zip(x, values, strict=True)
        want = [BINARY[operation](t, torch.tensor(v, dtype=t.dtype)) if operation in ("Maximum", "Minimum") else
                BINARY[operation](t, v) for t, v in pairs]  # fmt: skip
        check(f"{operation}{form}", [x, argument, blank(x)], want)


def test_number_to_the_power_of_a_list() -> None:
    x = lists(torch.float32)
    check("PowScalarAndTensor", [2.5, x, blank(x)], [torch.pow(2.5, t) for t in x])


@pytest.mark.parametrize("operation", ["Add", "Sub", "Mul", "Div"])
def test_two_lists_in_place(operation: str) -> None:
    a, b = lists(torch.float32), lists(torch.float32, 1, 3)
    alpha = [torch.tensor([2.0])] if operation in ("Add", "Sub") else []
    want = [BINARY[operation](x, y, alpha=2) if alpha else BINARY[operation](x, y) for x, y in zip(a, b, strict=True)]
    check(f"{operation}ListInplace", [a, b, *alpha], want)


def test_list_and_number_in_place() -> None:
    x = lists(torch.float32)
    check("MulScalarInplace", [x, torch.tensor([2.5])], [t * 2.5 for t in x])
    check("SubScalarInplace", [x, torch.tensor([2.5])], [t - 2.5 for t in x])


@pytest.mark.parametrize("form", ["List", "Scalar", "ScalarV2", "ScalarList"])
@pytest.mark.parametrize("operation", ["Addcmul", "Addcdiv"])
def test_three_lists(operation: str, form: str) -> None:
    for dtype in rows()[f"aclnnForeach{operation}{form}"].dtypes(0):
        a, b, c = lists(dtype), lists(dtype), lists(dtype, 1, 3)
        number = float if dtype.is_floating_point else int
        one = form in ("Scalar", "ScalarV2")
        values = [number(2 if one else k + 1) for k in range(len(a))]
        numbers = torch.float32 if number is float else torch.int32
        argument = values[0] if form == "ScalarV2" else torch.tensor(values[:1] if one else values, dtype=numbers)
        function = getattr(torch, operation.lower())
        terms = zip(
            *([t.float() if number is float else t for t in column] for column in (a, b, c)), values, strict=True
        )
        want = [function(x, y, z, value=v).to(dtype) for x, y, z, v in terms]
        check(f"{operation}{form}", [a, b, c, argument, blank(a)], want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lerp(dtype: torch.dtype) -> None:
    a, b, w = lists(dtype), lists(dtype), lists(dtype, 0, 1)
    check("LerpList", [a, b, w, blank(a)], each(torch.lerp, a, b, w))
    want = [torch.lerp(x.float(), y.float(), 0.25).to(dtype) for x, y in zip(a, b, strict=True)]
    check("LerpScalar", [a, b, 0.25, blank(a)], want)


# ---- optimizers ----------------------------------------------------------------------------------
def adamw(
    param: torch.Tensor, grads: list[torch.Tensor], amsgrad: bool, maximize: bool
) -> tuple[torch.Tensor, dict[str, Any]]:
    held = param.detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW(
        [held], lr=0.1, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.05, amsgrad=amsgrad, maximize=maximize
    )
    for grad in grads:
        held.grad = grad
        optimizer.step()
    return held.detach(), optimizer.state[held]


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("step_dtype", [torch.int64, torch.float32])
def test_adamw_counts_the_steps_before_this_one(amsgrad: bool, maximize: bool, step_dtype: torch.dtype) -> None:
    param, grads = sample((3, 4), torch.float32), [sample((3, 4), torch.float32) for _ in range(3)]
    want, state = adamw(param, grads, amsgrad, maximize)
    m, v, most = torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4) if amsgrad else None
    for done, grad in enumerate(grads):
        step = torch.tensor([done], dtype=step_dtype)
        numbers = (0.1, 0.8, 0.9, 0.05, 1e-6)
        outs = client().call("aclnnApplyAdamWV2", param, m, v, most, grad, step, *numbers, amsgrad, maximize)
        param, m, v, *rest = outs
        most = rest[0] if amsgrad else None
    same(param, want)
    same(m, state["exp_avg"])
    same(v, state["exp_avg_sq"])


def test_adamw_with_tensors_for_numbers() -> None:
    param, grads = sample((3, 4), torch.float32), [sample((3, 4), torch.float32) for _ in range(3)]
    want, _ = adamw(param, grads, False, False)
    m, v = torch.zeros(3, 4), torch.zeros(3, 4)
    for done, grad in enumerate(grads):
        numbers = [torch.tensor([x]) for x in (0.8**done, 0.9**done, 0.1, 0.05, 0.8, 0.9, 1e-6)]
        param, m, v = client().call("aclnnApplyAdamW", param, m, v, *numbers, grad, None, False, False)
    same(param, want)


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam_with_tensors_for_numbers(nesterov: bool) -> None:
    param, grad, m, v = (sample((3, 4), torch.float32) for _ in range(4))
    v = v.abs()
    numbers = [torch.tensor([x]) for x in (0.8**2, 0.9**2, 0.1, 0.8, 0.9, 1e-6)]
    mean, square = 0.8 * m + 0.2 * grad, 0.9 * v + 0.1 * grad * grad
    step = 0.8 * mean + 0.2 * grad if nesterov else mean
    want = param - 0.1 * (1 - 0.9**2) ** 0.5 / (1 - 0.8**2) * step / (square.sqrt() + 1e-6)
    same(client().call("aclnnApplyAdam", param, m, v, *numbers, grad, False, nesterov), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_adamw_with_moments_in_bytes(dtype: torch.dtype) -> None:
    """Against AdamW whose moments are rounded to the tables after each step, in blocks of 256."""
    w, places = sample((3, 100), dtype), [torch.full((3, 100), k, dtype=torch.uint8) for k in (128, 0)]
    tables, most = [torch.linspace(-1, 1, 257)[1:], torch.linspace(0, 1, 256)], [torch.zeros(2), torch.zeros(2)]
    lr, beta1, beta2, decay, eps, scale = 0.1, 0.8, 0.9, 0.05, 1e-3, 0.5
    for done in range(3):
        grad, states = sample((3, 100), dtype), []
        for place, table, peak in zip(places, tables, most, strict=True):
            states.append(table[place.long()] * peak.repeat_interleave(256)[:300].view(3, 100))
        g = grad.float() * scale
        m, v = beta1 * states[0] + (1 - beta1) * g, beta2 * states[1] + (1 - beta2) * g * g
        one, two = 1 - beta1 ** (done + 1), 1 - beta2 ** (done + 1)
        want = (w.float() - lr * m / one / ((v / two).sqrt() + eps)) * (1 - lr * decay)
        numbers = (torch.tensor([done]), lr, beta1, beta2, decay, eps, scale, "BLOCKWISE", 256)
        w, *places, most[0], most[1] = client().call("aclnnApplyAdamWQuant", w, grad, *places, *tables, *most, *numbers)
        same(w, want.to(dtype), rtol=2e-3, atol=2e-3)
        for state, place, table, peak in zip((m, v), places, tables, most, strict=True):
            blocks = state.flatten().split(256)
            same(peak, torch.stack([b.abs().max() for b in blocks]), rtol=1e-5, atol=1e-7)
            normed = torch.cat([b / p for b, p in zip(blocks, peak, strict=True)])
            far = (table[place.flatten().long()] - normed).abs() - (table - normed[:, None]).abs().amin(1)
            assert far.max() < 8e-3  # the nearest, but for one beyond zero
    client().expect_code(INVALID, "aclnnApplyAdamWQuant", w, grad, *places, *tables, *most, *numbers[:-1], 128)
    client().expect_code(INVALID, "aclnnApplyAdamWQuant", w, grad, *places, tables[0], tables[1][1:].clone(), *most, *numbers)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("corrects", [False, True])
def test_ema_adam(mode: int, corrects: bool) -> None:
    grad, w, m, mean = (sample((3, 4), torch.float32) for _ in range(4))
    v = sample((3, 4), torch.float32, 0, 2)
    lr, ema, beta1, beta2, eps, decay, step = 0.1, 0.9, 0.8, 0.95, 1e-6, 0.05, 3
    g = grad + decay * w if mode == 0 else grad
    want_m, want_v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    one, two = (1 - beta1**step, 1 - beta2**step) if corrects else (1, 1)
    update = want_m / one / ((want_v / two).sqrt() + eps) + (decay * w if mode == 1 else 0)
    want = w - lr * update
    got = client().call("aclnnApplyFusedEmaAdam", grad, w, m, v, mean, torch.tensor([step]), lr, ema, beta1, beta2, eps,
                        mode, corrects, decay)  # fmt: skip
    for out, expected in zip(got, (want, want_m, want_v, ema * mean + (1 - ema) * want), strict=True):
        same(out, expected)


def test_fused_adamw() -> None:
    params, grads = lists(torch.float32), lists(torch.float32)
    wants = [adamw(p, [g], True, False)[0] for p, g in zip(params, grads, strict=True)]
    zeros, steps = [torch.zeros_like(p) for p in params], [torch.zeros(1) for _ in params]
    lists_of = (params, [g * 4 for g in grads], zeros, zeros, zeros, steps)
    for found, expected in ((0.0, wants), (1.0, params)):  # an infinity was found: nothing moves
        scale, numbers = torch.tensor([4.0]), (0.1, 0.8, 0.9, 0.05, 1e-6)
        got = client().call("aclnnFusedAdamw", *lists_of, scale, torch.tensor([found]), *numbers, True, False)
        for g, want in zip(got[: len(params)], expected, strict=True):
            same(g, want)


@pytest.mark.parametrize("nesterov", [False, True])
def test_fused_sgd(nesterov: bool) -> None:
    params, steps = lists(torch.float32), [lists(torch.float32) for _ in range(2)]
    held = [p.clone().requires_grad_() for p in params]
    dampening = 0.0 if nesterov else 0.1
    optimizer = torch.optim.SGD(held, lr=0.1, momentum=0.9, dampening=dampening, weight_decay=0.05, nesterov=nesterov)
    buffers = [torch.zeros_like(p) for p in params]
    for k, grads in enumerate(steps):
        for p, g in zip(held, grads, strict=True):
            p.grad = g
        optimizer.step()
        out = client().call(
            "aclnnFusedSgd", params, grads, buffers, None, 0.05, 0.9, 0.1, dampening, nesterov, False, k == 0
        )
        n = len(params)
        params, buffers = list(out[:n]), list(out[2 * n :])
    for p, want in zip(params, held, strict=True):
        same(p, want.detach())


# ---- loss scaling --------------------------------------------------------------------------------
@pytest.mark.parametrize("bad", [None, math.inf, math.nan])
def test_unscale(bad: float | None) -> None:
    grads = lists(torch.float32)
    if bad is not None:
        grads[0][1, 1] = bad
    *got, found = client().call(
        "aclnnForeachNonFiniteCheckAndUnscale", grads, torch.tensor([0.0]), torch.tensor([0.25])
    )
    for g, want in zip(got, grads, strict=True):
        same(g, want * 0.25)
    assert found.item() == (bad is not None)


@pytest.mark.parametrize(("found", "tracker", "scale"), [(0, 0, 8.0), (0, 2, 8.0), (1, 2, 8.0), (0, 2, 3e38)])
def test_update_scale(found: int, tracker: int, scale: float) -> None:
    args = torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32), torch.tensor([float(found)])
    got = client().call("aclnnAmpUpdateScale", *args, 2.0, 0.5, 3, torch.empty(1), torch.empty(1, dtype=torch.int32))
    want_scale, want_tracker = args[0].clone(), args[1].clone()
    torch._amp_update_scale_(want_scale, want_tracker, args[2], 2.0, 0.5, 3)
    same(got[0], want_scale)
    assert got[1].item() == want_tracker.item()


# ---- refusals ------------------------------------------------------------------------------------
X, Y, I, D = (
    torch.zeros(3, 4),
    torch.zeros(4, 3),
    torch.zeros(3, 4, dtype=torch.int32),
    torch.zeros(3, 4, dtype=torch.float64),
)
ONE, TWO = torch.ones(1), torch.ones(2)
NUMBERS = (0.1, 0.9, 0.99, 0.0, 1e-8)
REFUSED: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnForeachAddScalarV2", ([X], None, [X])),
    (NULL, "aclnnForeachAddScalar", ([X], None, [X])),
    (NULL, "aclnnApplyAdamWV2", (None, X, X, None, X, ONE, *NUMBERS, False, False)),
    (NULL, "aclnnApplyAdamWV2", (X, X, X, None, X, None, *NUMBERS, False, False)),
    (INVALID, "aclnnForeachExp", ([X, X], [X])),
    (INVALID, "aclnnForeachExp", ([X], [Y.clone()])),
    (INVALID, "aclnnForeachExp", ([D], [D])),
    (INVALID, "aclnnForeachAddListV2", ([X], [X, X], 1, [X])),
    (INVALID, "aclnnForeachAddListV2", ([X], [Y], 1, [X])),
    (INVALID, "aclnnForeachAddListV2", ([X], [X], 1j, [X])),
    (INVALID, "aclnnForeachAddList", ([X], [X], TWO, [X])),
    (INVALID, "aclnnForeachMulScalar", ([X, X, X], TWO, [X, X, X])),
    (INVALID, "aclnnForeachMulScalarList", ([X, X], [1.0], [X, X])),
    (INVALID, "aclnnForeachAddcmulScalarList", ([X, X, X], [X, X, X], [X, X, X], TWO, [X, X, X])),
    (INVALID, "aclnnForeachAddcdivScalarV2", ([X], [X], [Y], 1.0, [X])),
    (INVALID, "aclnnForeachNorm", ([X], 2.0, [X])),
    (INVALID, "aclnnForeachNorm", ([X, X], 2.0, [torch.zeros(())])),
    (INVALID, "aclnnForeachCopy", ([X], [Y.clone()])),
    (INVALID, "aclnnForeachRoundOffNumber", ([X], torch.zeros(2, dtype=torch.int8), [X])),
    (INVALID, "aclnnForeachZeroInplace", ([X.t()],)),
    (INVALID, "aclnnApplyAdamWV2", (X, Y, X, None, X, ONE, *NUMBERS, False, False)),
    (INVALID, "aclnnApplyAdamWV2", (X, X, X, None, Y, ONE, *NUMBERS, False, False)),
    (INVALID, "aclnnApplyAdamWV2", (X, X, X, None, X, TWO, *NUMBERS, False, False)),
    (INVALID, "aclnnApplyAdamWV2", (X, X, X, None, X, ONE, *NUMBERS, True, False)),
    (INVALID, "aclnnApplyAdamWV2", (I, I, I, None, I, ONE, *NUMBERS, False, False)),
    (INVALID, "aclnnFusedAdamw", ([X], [X, X], [X], [X], [X], [ONE], None, None, *NUMBERS, False, False)),
    (INVALID, "aclnnFusedSgd", ([X], [X], [], None, 0.0, 0.9, 0.1, 0.0, False, False, True)),
    (INVALID, "aclnnForeachNonFiniteCheckAndUnscale", ([X], TWO, ONE)),
]


@pytest.mark.parametrize(("code", "name", "args"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused(code: int, name: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, name, *args)
