"""Pointwise ops of libopapi against torch: arithmetic, functions, comparisons, bits."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import COMPUTED, Scalar, client, rows, same
from layouts import LAYOUTS, OUTPUTS, like, sample

Function = Callable[..., torch.Tensor]
INVALID, NULL = 161002, 161001


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def functions(*names: str) -> dict[str, Function]:
    return {f"aclnn{name}": getattr(torch, name.lower()) for name in names}


# ---- one tensor ----------------------------------------------------------------------------------
UNARY: dict[str, Function] = {
    **functions(
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan", "Tanh", "Exp", "Exp2",
        "Expm1", "Log", "Log10", "Log1p", "Log2", "Sqrt", "Rsqrt", "Reciprocal", "Erf", "Erfc", "Erfinv", "Digamma",
        "Lgamma", "Sinc", "Neg", "Square", "Floor", "Ceil", "Trunc", "Round", "IsFinite", "IsInf", "IsPosInf",
        "IsNegInf", "Signbit",
    ),
    "aclnnAbs": lambda x: x if x.dtype == torch.bool else torch.abs(x),
    "aclnnSign": torch.sgn,
    "aclnnFrac": lambda x: torch.frac(x) if x.is_floating_point() else torch.zeros_like(x),
    "aclnnLogicalNot": torch.logical_not,
    "aclnnBitwiseNot": torch.bitwise_not,
}  # fmt: skip


def held(name: str, want: torch.Tensor) -> torch.Tensor:
    """The result under a dtype that the op's output takes: rows leave out some that torch would give."""
    allowed = rows()[name].dtypes(len(rows()[name].args) - 1)
    return want if want.dtype in allowed else want.to(torch.float32 if torch.float32 in allowed else allowed[0])


def out_for(name: str, want: torch.Tensor) -> torch.Tensor:
    return like(want).contiguous() if rows()[name].dense(-1) else like(want)


def unary_cases(prefix: str) -> list[tuple[str, torch.dtype]]:
    names = [n for n in UNARY if n.replace("aclnn", prefix) in rows()]
    return [
        (n, d) for n in names for d in rows()[n.replace("aclnn", prefix)].dtypes(0)
        if not (d.is_complex and n in ("aclnnDigamma", "aclnnSinc"))
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), unary_cases("aclnn"))
def test_one_tensor(name: str, dtype: torch.dtype) -> None:
    for layout in LAYOUTS.values():
        x = layout(lambda shape: sample(shape, dtype))
        want = held(name, UNARY[name](x))
        if name == "aclnnSquare" and dtype == torch.bool:
            want = want.bool()
        same(client().call(name, x, out_for(name, want)), want)


@pytest.mark.parametrize(("name", "dtype"), unary_cases("aclnnInplace"))
def test_one_tensor_in_place(name: str, dtype: torch.dtype) -> None:
    for layout in OUTPUTS.values():
        x = layout(lambda shape: sample(shape, dtype))
        want = UNARY[name](x)
        if dtype == torch.bool and want.dtype != torch.bool:
            client().expect_code(INVALID, name.replace("aclnn", "aclnnInplace"), x)
        else:
            same(client().call(name.replace("aclnn", "aclnnInplace"), x), want.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_special_values(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5]).to(dtype)
    for name in (
        "Exp",
        "Log",
        "Sqrt",
        "Rsqrt",
        "Sigmoid",
        "Tanh",
        "Floor",
        "Round",
        "Neg",
        "Abs",
        "Sin",
        "Atan",
        "Erf",
    ):
        if dtype in rows()[f"aclnn{name}"].dtypes(0):
            same(client().call(f"aclnn{name}", x, like(x)), getattr(torch, name.lower())(x))
    for name in ("IsFinite", "IsInf", "IsPosInf", "IsNegInf"):
        same(client().call(f"aclnn{name}", x, like(x, torch.bool)), getattr(torch, name.lower())(x))
    same(client().call("aclnnNanToNum", x, 1.0, 2.0, -2.0, like(x)), torch.nan_to_num(x, 1.0, 2.0, -2.0))
    same(client().call("aclnnInplaceNanToNum", x, 1.0, 2.0, -2.0), torch.nan_to_num(x, 1.0, 2.0, -2.0))


@pytest.mark.parametrize("decimals", [0, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_round_decimals(dtype: torch.dtype, decimals: int) -> None:
    x = sample((5, 6), dtype, -50, 50)
    want = torch.round(x, decimals=decimals) if dtype.is_floating_point else x
    same(client().call("aclnnRoundDecimals", x, decimals, like(x)), want)
    same(client().call("aclnnInplaceRoundDecimals", x, decimals), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_complex_numbers_from_parts(dtype: torch.dtype) -> None:
    a, b = sample((3, 4), dtype), sample((4,), dtype)
    for name, made in (("aclnnComplex", torch.complex), ("aclnnPolar", torch.polar)):
        want = made(a, b.expand(3, 4))
        same(client().call(name, a, b, like(want)), want)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32])
def test_parts_of_complex_numbers(dtype: torch.dtype) -> None:
    x = sample((3, 4), dtype).t()
    same(client().call("aclnnReal", x, like(x.real)), x.real)
    same(client().call("aclnnAngleV2", x, like(x.angle())), x.angle())


# ---- two tensors, or a tensor and a number -------------------------------------------------------
def as_ints(f: Function) -> Function:
    """torch does not take bool here and CANN does: it computes with 0 and 1."""

    def g(a: Any, b: Any) -> torch.Tensor:
        bools = [x.dtype == torch.bool if isinstance(x, torch.Tensor) else isinstance(x, bool) for x in (a, b)]
        if not all(bools):
            return f(a, b)
        return f(*(x.to(torch.int32) if isinstance(x, torch.Tensor) else int(x) for x in (a, b))).bool()

    return g


def div(mode: str | None) -> Function:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


def rsub(a: torch.Tensor, b: Any) -> torch.Tensor:
    return b - 2 * a


# name of the form with a tensor, name of the form with a number, torch, further arguments
BINARY: list[tuple[str, str | None, Function, tuple[Any, ...]]] = [
    ("Add", "Adds", lambda a, b: torch.add(a, b, alpha=2) if a.dtype != torch.bool else torch.add(a, b), (2,)),
    ("Sub", "Subs", as_ints(lambda a, b: torch.sub(a, b, alpha=2)), (2,)),
    ("Rsub", "Rsubs", rsub, (2,)),
    ("Mul", "Muls", torch.mul, ()),
    ("Div", "Divs", torch.div, ()),
    ("DivMod", "DivMods", div(None), (0,)),
    ("DivMod", "DivMods", as_ints(div("trunc")), (1,)),
    ("DivMod", "DivMods", as_ints(div("floor")), (2,)),
    ("FloorDivide", "FloorDivides", as_ints(torch.floor_divide), ()),
    ("RemainderTensorTensor", "RemainderTensorScalar", as_ints(torch.remainder), ()),
    ("FmodTensor", "FmodScalar", torch.fmod, ()),
    ("PowTensorTensor", "PowTensorScalar", as_ints(torch.pow), ()),
    ("Atan2", None, torch.atan2, ()),
    ("LogAddExp", None, lambda a, b: torch.logaddexp(*floats(a, b)), ()),
    ("LogAddExp2", None, lambda a, b: torch.logaddexp2(*floats(a, b)), ()),
    ("XLogYTensor", "XLogYScalarOther", torch.xlogy, ()),
    ("Maximum", None, torch.maximum, ()),
    ("Minimum", None, torch.minimum, ()),
    ("ClampMinTensor", "ClampMin", torch.clamp_min, ()),
    ("ClampMaxTensor", "ClampMax", torch.clamp_max, ()),
    ("Gcd", None, torch.gcd, ()),
    ("Xlog1py", None, torch.special.xlog1py, ()),
    ("Heaviside", None, torch.heaviside, ()),
    ("BitwiseAndTensor", "BitwiseAndScalar", torch.bitwise_and, ()),
    ("BitwiseAndTensorOut", None, torch.bitwise_and, ()),
    ("BitwiseOrTensor", "BitwiseOrScalar", torch.bitwise_or, ()),
    ("BitwiseXorTensor", "BitwiseXorScalar", torch.bitwise_xor, ()),
    ("EqTensor", "EqScalar", torch.eq, ()),
    ("NeTensor", "NeScalar", torch.ne, ()),
    ("GtTensor", "GtScalar", torch.gt, ()),
    ("GeTensor", "GeScalar", torch.ge, ()),
    ("LtTensor", "LtScalar", torch.lt, ()),
    ("LeTensor", "LeScalar", torch.le, ()),
    ("LogicalAnd", None, torch.logical_and, ()),
    ("LogicalOr", None, torch.logical_or, ()),
    ("LogicalXor", None, torch.logical_xor, ()),
]
UNLISTED = {  # rows without dtypes: what their torch op takes
    "aclnnRemainderTensorTensor": [d for d in COMPUTED.values() if not d.is_complex],
    "aclnnXLogYTensor": [d for d in COMPUTED.values() if not d.is_complex],
    "aclnnXlog1py": [d for d in COMPUTED.values() if not d.is_complex],
    "aclnnHeaviside": [d for d in COMPUTED.values() if not d.is_complex],
    "aclnnBitwiseAndTensorOut": rows()["aclnnBitwiseAndTensor"].dtypes(0),
    "aclnnXLogYScalarOther": [d for d in COMPUTED.values() if not d.is_complex],
}
INTEGER_ONLY = ("Gcd", "Bitwise")


def floats(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
    """What logaddexp of integers is computed in."""
    return [x if x.dtype.is_floating_point else x.float() for x in (a, b)]


def binary_cases(inplace: bool, column: int) -> list[Any]:
    cases = []
    for row in BINARY:
        name = row[column] and ("aclnnInplace" if inplace else "aclnn") + row[column]
        if name in rows():
            dtypes = UNLISTED.get(name.replace("Inplace", ""), rows()[name].dtypes(0))
            if column == 0:
                dtypes = [d for d in dtypes if d in rows()[name].dtypes(1)]
            if "DivMod" in name and row[3] != (0,):
                dtypes = [d for d in dtypes if not d.is_complex]  # no rounding of complex numbers: see REFUSED
            cases += [pytest.param(name, row[2], row[3], d, id=f"{name}{row[3] or ''}-{str(d)[6:]}") for d in dtypes]
    return cases


def second(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A second operand that divides, and raises to powers, without leaving the dtype."""
    return torch.ones(shape, dtype=dtype) if dtype == torch.bool else sample(shape, dtype, 1, 3)


@pytest.mark.parametrize(("name", "function", "more", "dtype"), binary_cases(False, 0))
def test_two_tensors(name: str, function: Function, more: tuple[Any, ...], dtype: torch.dtype) -> None:
    for layout in LAYOUTS.values():
        a = layout(lambda shape: sample(shape, dtype))
        b = layout(lambda shape: second(name, dtype, shape))
        want = held(name, function(a, b))
        same(client().call(name, a, b, *more, like(want)), want)
    a, b = sample((2, 3, 1, 4), dtype), second(name, dtype, (5, 1))
    want = held(name, function(a, b))
    same(client().call(name, a, b, *more, like(want)), want)


@pytest.mark.parametrize(("name", "function", "more", "dtype"), binary_cases(True, 0))
def test_two_tensors_in_place(name: str, function: Function, more: tuple[Any, ...], dtype: torch.dtype) -> None:
    for layout in OUTPUTS.values():
        a = layout(lambda shape: sample(shape, dtype))
        b = second(name, dtype, tuple(a.shape[-1:]))
        want = function(a, b)
        if dtype == torch.bool and want.dtype != torch.bool:
            client().expect_code(INVALID, name, a, b, *more)
        else:
            same(client().call(name, a, b, *more), want.to(dtype))


def numbers(name: str, dtype: torch.dtype) -> list[Any]:
    if dtype == torch.bool:
        return [True]
    return [2] if any(word in name for word in INTEGER_ONLY) else [2, 1.5]


@pytest.mark.parametrize(("name", "function", "more", "dtype"), binary_cases(False, 1))
def test_tensor_and_number(name: str, function: Function, more: tuple[Any, ...], dtype: torch.dtype) -> None:
    for number in numbers(name, dtype):
        for layout in LAYOUTS.values():
            a = layout(lambda shape: sample(shape, dtype))
            want = held(name, function(a, number))
            same(client().call(name, a, number, *more, like(want)), want)


@pytest.mark.parametrize(("name", "function", "more", "dtype"), binary_cases(True, 1))
def test_tensor_and_number_in_place(name: str, function: Function, more: tuple[Any, ...], dtype: torch.dtype) -> None:
    for number in numbers(name, dtype):
        for layout in OUTPUTS.values():
            a = layout(lambda shape: sample(shape, dtype))
            want = function(a, number)
            if dtype == torch.bool and want.dtype != torch.bool:
                client().expect_code(INVALID, name, a, number, *more)
            else:
                same(client().call(name, a, number, *more), want.to(dtype))


PAIRS = [
    (torch.float16, torch.float32), (torch.int32, torch.float32), (torch.uint8, torch.int8), (torch.bool, torch.int64),
    (torch.bfloat16, torch.float16), (torch.float32, torch.complex64), (torch.float64, torch.complex64),
    (torch.int16, torch.bfloat16), (torch.uint8, torch.int16), (torch.float32, torch.float64),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), [*PAIRS, *(p[::-1] for p in PAIRS)])
def test_promotion(left: torch.dtype, right: torch.dtype) -> None:
    a, b = sample((3, 4), left), second("", right, (4,))
    for name, function, more in (
        ("Add", torch.add, (1,)),
        ("Mul", torch.mul, ()),
        ("Div", torch.div, ()),
        ("EqTensor", torch.eq, ()),
    ):
        want = function(a, b)
        same(client().call(f"aclnn{name}", a, b, *more, like(want)), want)


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (torch.int32, torch.float32),
        (torch.float32, torch.int64),
        (torch.float32, torch.float16),
        (torch.complex64, torch.float32),
        (torch.bool, torch.float32),
        (torch.int64, torch.uint8),
    ],
)
def test_result_is_cast_to_the_output(made: torch.dtype, held: torch.dtype) -> None:
    a, b = sample((3, 4), made, 0, 3), sample((3, 4), made, 0, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says, once a process, that the imaginary part goes
        want = torch.mul(a, b).to(held)
    same(client().call("aclnnMul", a, b, like(want)), want)


@pytest.mark.parametrize("number", [3, 2.5, True, 1.5 - 2j, Scalar(2.5, torch.float16), Scalar(3, torch.int8)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.float32, torch.bool, torch.complex64])
def test_a_number_lifts_only_the_category(dtype: torch.dtype, number: Any) -> None:
    a = sample((3, 4), dtype)
    value = number.value if isinstance(number, Scalar) else number
    want = torch.mul(a.float() if isinstance(value, complex) and dtype == torch.float16 else a, value)  # no complex32
    same(client().call("aclnnMuls", a, number, like(want)), want)


def test_numbers_on_the_left() -> None:
    x = sample((3, 4), torch.float32, 1, 3)
    same(client().call("aclnnPowScalarTensor", 2.5, x, like(x)), torch.pow(2.5, x))
    same(client().call("aclnnXLogYScalarSelf", 2.5, x, like(x)), torch.xlogy(2.5, x))
    same(client().call("aclnnRemainderScalarTensor", 7.5, x, like(x)), torch.remainder(7.5, x))
    same(client().call("aclnnAddV3", 7.5, x, 2.0, like(x)), 7.5 + 2 * x)
    same(client().call("aclnnInplaceAddV3", 7.5, x, 2.0), 7.5 + 2 * x)
    i = sample((3, 4), torch.int64, 0, 3)
    same(client().call("aclnnPowScalarTensor", 2, i, like(i)), torch.pow(2, i))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_shifts(dtype: torch.dtype) -> None:
    a, b = sample((3, 4), dtype, 0, 100), sample((4,), dtype, 0, 6)
    same(client().call("aclnnLeftShift", a, b, like(a)), a << b)
    same(client().call("aclnnLeftShifts", a, 3, like(a)), a << 3)
    same(client().call("aclnnRightShift", a, b, like(a)), a >> b)


@pytest.mark.parametrize("dtype", rows()["aclnnClamp"].dtypes(0))
def test_clamp(dtype: torch.dtype) -> None:
    x = sample((5, 6), dtype, -5, 5).t()
    if dtype == torch.bool:
        same(client().call("aclnnClamp", x, False, True, like(x)), x)
        return
    same(client().call("aclnnClamp", x, -1, 2, like(x)), torch.clamp(x, -1, 2))
    want = torch.clamp(x, -1.5, 2.5)
    same(client().call("aclnnClamp", x, -1.5, 2.5, like(want)), want)
    low, high = sample((6, 1), dtype, -2, 0), sample((5,), dtype, 1, 2)
    same(client().call("aclnnClampTensor", x, low, high, like(x)), torch.clamp(x, low, high))
    same(client().call("aclnnClamp", x, None, 2, like(x)), torch.clamp(x, max=2))
    same(client().call("aclnnClamp", x, 1, None, like(x)), torch.clamp(x, min=1))
    same(client().call("aclnnClampTensor", x, low, None, like(x)), torch.clamp(x, low, None))
    same(client().call("aclnnClampTensor", x, None, high, like(x)), torch.clamp(x, None, high))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_lerp(dtype: torch.dtype) -> None:
    a, b, w = sample((3, 4), dtype), sample((4,), dtype), sample((3, 1), dtype, 0, 1)
    want = torch.lerp(a.float(), b.float().expand(3, 4), w.float().expand(3, 4)).to(dtype)
    same(client().call("aclnnLerp", a, b, w, like(a)), want)
    same(client().call("aclnnInplaceLerp", a, b, w), want)
    want = torch.lerp(a, b.expand(3, 4), 0.25)
    same(client().call("aclnnLerps", a, b, 0.25, like(a)), want)
    same(client().call("aclnnInplaceLerps", a, b, 0.25), want)


@pytest.mark.parametrize("dtype", rows()["aclnnAddcmul"].dtypes(0))
def test_addcmul_and_addcdiv(dtype: torch.dtype) -> None:
    a, b, c = sample((2, 3, 4), dtype), sample((3, 4), dtype).t().t(), sample((1, 4), dtype, 1, 3)
    same(client().call("aclnnAddcmul", a, b, c, 2, like(a)), torch.addcmul(a, b, c, value=2))
    same(client().call("aclnnInplaceAddcmul", a, b, c, 2), torch.addcmul(a, b, c, value=2))
    if dtype.is_floating_point:
        same(client().call("aclnnAddcdiv", a, b, c, 0.5, like(a)), torch.addcdiv(a, b, c, value=0.5))
        same(client().call("aclnnInplaceAddcdiv", a, b, c, 0.5), torch.addcdiv(a, b, c, value=0.5))


@pytest.mark.parametrize("dtype", COMPUTED.values())
def test_where(dtype: torch.dtype) -> None:
    for layout in LAYOUTS.values():
        mask = layout(lambda shape: sample(shape, torch.bool))
        a, b = (layout(lambda shape: sample(shape, dtype)) for _ in range(2))
        same(client().call("aclnnSWhere", mask, a, b, like(a)), torch.where(mask, a, b))
    mask, a, b = sample((4, 1, 3), torch.bool), sample((2, 1), dtype), sample((), torch.float32)
    want = torch.where(mask, a, b.expand(1))
    same(client().call("aclnnSWhere", mask, a, b, like(want)), want)


@pytest.mark.parametrize("name", ["Sum", "AddN", "MaxN", "MinN"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int32])
def test_lists_fold_into_one(name: str, dtype: torch.dtype) -> None:
    tensors = [sample((3, 4), dtype) for _ in range(3)]
    stacked = torch.stack(tensors)
    want = {"MaxN": stacked.amax(0), "MinN": stacked.amin(0)}.get(name, stacked.sum(0, dtype=dtype))
    same(client().call(f"aclnn{name}", tensors, like(want)), want)


def test_add_relu() -> None:
    a, b = sample((3, 4), torch.float32), sample((4,), torch.float32)
    same(client().call("aclnnAddRelu", a, b, 2, like(a)), torch.relu(a + 2 * b))
    same(client().call("aclnnInplaceAddRelu", a, b, 2), torch.relu(a + 2 * b))


# ---- whole tensors compared ----------------------------------------------------------------------
@pytest.mark.parametrize("dtype", rows()["aclnnEqual"].dtypes(0))
def test_equal(dtype: torch.dtype) -> None:
    a = sample((3, 4), dtype)
    other = a.clone()
    other[1, 2] = ~a[1, 2] if dtype == torch.bool else a[1, 2] + 1
    out = torch.zeros(1, dtype=torch.bool)
    assert client().call("aclnnEqual", a, a.t().contiguous().t(), out).item() is True
    assert client().call("aclnnEqual", a, other, out).item() is False
    assert client().call("aclnnEqual", a, a[:2], out).item() is False


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_isclose(dtype: torch.dtype, equal_nan: bool) -> None:
    a = torch.tensor([1.0, 1.0, math.inf, math.inf, math.nan, 0.0, -3.0])
    b = torch.tensor([1.0, 1.001, math.inf, 1.0, math.nan, 1e-9, -3.1])
    if not dtype.is_floating_point:
        a, b = sample((3, 4), dtype), sample((4,), dtype)
    want = torch.isclose(a.to(dtype), b.to(dtype).expand(a.shape), 1e-2, 1e-8, equal_nan)
    same(client().call("aclnnIsClose", a.to(dtype), b.to(dtype), 1e-2, 1e-8, equal_nan, like(want)), want)


@pytest.mark.parametrize("invert", [False, True])
def test_isin(invert: bool) -> None:
    x = sample((3, 4), torch.int32)
    want = torch.isin(x, 2, invert=invert)
    same(client().call("aclnnIsInTensorScalar", x, 2, False, invert, like(want)), want)
    for element in (2, 77):
        want = torch.isin(element, x, invert=invert)
        same(client().call("aclnnIsInScalarTensor", element, x, False, invert, like(want)), want)


# ---- refusals ------------------------------------------------------------------------------------
F, I, B, C = (torch.zeros(3, 4, dtype=d) for d in (torch.float32, torch.int32, torch.bool, torch.complex64))
NINE = torch.zeros((1,) * 9)
REFUSED: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnAdd", (None, F, 1, F)),
    (NULL, "aclnnAdd", (F, None, 1, F)),
    (NULL, "aclnnAdd", (F, F, None, F)),
    (NULL, "aclnnAdd", (F, F, 1, None)),
    (NULL, "aclnnExp", (None, F)),
    (NULL, "aclnnClamp", (F, None, None, F)),
    (NULL, "aclnnClampTensor", (F, None, None, F)),
    (NULL, "aclnnInplaceCopy", (F, None)),
    (INVALID, "aclnnAdd", (F, torch.zeros(3, 5), 1, F)),
    (INVALID, "aclnnAdd", (F, torch.zeros(4), 1, torch.zeros(4))),
    (INVALID, "aclnnAdd", (F, F, 1, torch.zeros(1, 3, 4))),
    (INVALID, "aclnnAdd", (F, F, 1, B)),
    (INVALID, "aclnnAdd", (F, F, 2j, F)),
    (INVALID, "aclnnAdd", (torch.zeros(3, 4, dtype=torch.uint16), F, 1, F)),
    (INVALID, "aclnnInplaceAdd", (torch.zeros(4), F, 1)),
    (INVALID, "aclnnInplaceAdd", (B, F, 1)),
    (INVALID, "aclnnMul", (F, F, torch.zeros(4, 3))),
    (INVALID, "aclnnDivMod", (F, F, 3, F)),
    (INVALID, "aclnnDivMod", (C, C, 2, C)),
    (INVALID, "aclnnExp", (F, torch.zeros(4, 3))),
    (INVALID, "aclnnExp", (I, F)),
    (INVALID, "aclnnExp", (F, I)),
    (INVALID, "aclnnBitwiseAndTensor", (F, F, F)),
    (INVALID, "aclnnBitwiseAndScalar", (I, 1.5, I)),
    (INVALID, "aclnnBitwiseNot", (F, F)),
    (INVALID, "aclnnGcd", (F, F, F)),
    (INVALID, "aclnnMaximum", (C, C, C)),
    (INVALID, "aclnnGtTensor", (C, C, B)),
    (INVALID, "aclnnGtScalar", (F, 1j, B)),
    (INVALID, "aclnnEqTensor", (F, torch.zeros(5), B)),
    (INVALID, "aclnnLogicalAnd", (F, F, torch.zeros(4, dtype=torch.bool))),
    (INVALID, "aclnnSWhere", (B, F, torch.zeros(5), F)),
    (INVALID, "aclnnEqual", (F, F, torch.zeros(2, dtype=torch.bool))),
    (INVALID, "aclnnIsClose", (F, F, -1.0, 0.0, False, B)),
    (INVALID, "aclnnCast", (F, torch.int32, F)),
    (INVALID, "aclnnCast", (F, torch.int32, torch.zeros(4, 3, dtype=torch.int32))),
    (INVALID, "aclnnInplaceCopy", (torch.zeros(4), F)),
    (INVALID, "aclnnInplaceFillTensor", (F, torch.zeros(2))),
    (INVALID, "aclnnComplex", (F, torch.zeros(3, 4, dtype=torch.float64), C)),
    (INVALID, "aclnnClampTensor", (F, torch.zeros(5), F, F)),
    (INVALID, "aclnnLerp", (I, I, I, I)),
    (INVALID, "aclnnMaxN", ([], F)),
]


@pytest.mark.parametrize(("code", "name", "args"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused(code: int, name: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, name, *args)
    same(client().call("aclnnAdd", F, F, 1, F), F)  # the next call is not disturbed


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_whole_numbers_over_zero_leave_the_device_sound(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    a, b = torch.tensor([7, 0, 9, -5 if info.min else 5]).to(dtype), torch.tensor([0, 0, 2, 0]).to(dtype)
    last = info.min if info.min else info.max
    assert client().call("aclnnFloorDivide", a, b, torch.empty_like(a)).tolist() == [info.max, 0, 4, last]
    assert client().call("aclnnInplaceFloorDivide", a.clone(), b).tolist() == [info.max, 0, 4, last]
    assert client().call("aclnnDivMod", a, b, 1, torch.empty_like(a)).tolist() == [info.max, 0, 4, last]
    for op in ("aclnnFmodTensor", "aclnnRemainderTensorTensor"):
        if dtype in rows()[op].dtypes(0):
            assert client().call(op, a, b, torch.empty_like(a)).tolist() == [0, 0, 1, 0]
    assert client().call("aclnnAbs", a, torch.empty_like(a)).equal(a.abs())
