"""torch.testing: assert_close and make_tensor."""
from __future__ import annotations

import collections.abc
import math
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_TOLERANCES = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
               torch.float64: (1e-7, 1e-7), torch.complex64: (1.3e-6, 1e-5), torch.complex128: (1e-7, 1e-7)}


def _tolerances(dtypes: tuple[Any, ...], rtol: float | None, atol: float | None) -> tuple[float, float]:
    """(rtol, atol): as given, or the larger defaults of the dtypes."""
    if (rtol is None) != (atol is None):
        missing, given = ("atol", "rtol") if atol is None else ("rtol", "atol")
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or unspecified, but got no {missing} "
                         f"together with {given}.")
    if rtol is not None and atol is not None:
        return rtol, atol
    found = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
    return max(r for r, _ in found), max(a for _, a in found)


class _Comparison:
    """The settings of one assert_close call."""

    def __init__(self, allow_subclasses: bool, rtol: float | None, atol: float | None, equal_nan: bool,
                 check_device: bool, check_dtype: bool, check_layout: bool, check_stride: bool, msg: Any) -> None:
        self.allow_subclasses, self.rtol, self.atol, self.equal_nan = allow_subclasses, rtol, atol, equal_nan
        self.check_device, self.check_dtype = check_device, check_dtype
        self.check_layout, self.check_stride, self.msg = check_layout, check_stride, msg

    def fail(self, text: str, where: str, kind: type[Exception] = AssertionError) -> None:
        text = text + (f"\n\nThe failure occurred for item {where}" if where else "")
        if self.msg is not None and kind is AssertionError:
            text = self.msg(text) if callable(self.msg) else self.msg
        raise kind(text)

    def compare(self, actual: Any, expected: Any, where: str) -> None:
        if isinstance(actual, str) or isinstance(expected, str):
            self.fail(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", where,
                      TypeError)
        if _is_sequence(actual) and _is_sequence(expected):
            if len(actual) != len(expected):
                self.fail(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", where)
            for i, (a, e) in enumerate(zip(actual, expected)):
                self.compare(a, e, f"{where}[{i}]")
        elif isinstance(actual, collections.abc.Mapping) and isinstance(expected, collections.abc.Mapping):
            if set(actual) != set(expected):
                self.fail("The keys of the mappings do not match:\n"
                          f"Missing keys in the actual mapping: {sorted(set(expected) - set(actual), key=str)}\n"
                          f"Additional keys in the actual mapping: {sorted(set(actual) - set(expected), key=str)}", where)
            for key in actual:
                self.compare(actual[key], expected[key], f"{where}[{key!r}]")
        elif actual is None or expected is None:
            if actual is not expected:
                self.fail(f"None mismatch: {actual} is not {expected}", where)
        else:
            self.leaves(actual, expected, where)

    def leaves(self, actual: Any, expected: Any, where: str) -> None:
        numbers = (int, float, complex, bool)
        if isinstance(actual, bool) and isinstance(expected, bool):
            if actual != expected:
                self.fail(f"Booleans mismatch: {actual} is not {expected}", where)
            return
        if isinstance(actual, numbers) and isinstance(expected, numbers):
            self.scalars(actual, expected, where)
            return
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not self.allow_subclasses and type(actual) is not type(expected)):
            self.fail("Except for Python scalars, type equality is required, but got "
                      f"{type(actual)} and {type(expected)} instead.", where, TypeError)
        try:
            a, e = (x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in (actual, expected))
        except Exception:
            self.fail(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.", where,
                      TypeError)
        self.tensors(a, e, where)

    def scalars(self, actual: Any, expected: Any, where: str) -> None:
        if self.check_dtype and type(actual) is not type(expected):
            self.fail(f"The (d)types do not match: {type(actual)} != {type(expected)}.", where)
        words = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
        rtol, atol = _tolerances((words[type(actual)], words[type(expected)]), self.rtol, self.atol)
        if actual == expected or (self.equal_nan and actual != actual and expected != expected):
            return
        gap = abs(actual - expected)
        if math.isfinite(gap) and gap <= atol + rtol * abs(expected):
            return
        if not rtol and not atol:
            self.fail(f"Scalars are not equal!\n\nExpected {expected} but got {actual}.\n"
                      f"Absolute difference: {gap}\nRelative difference: {_ratio(gap, expected)}", where)
        self.fail(f"Scalars are not close!\n\nExpected {expected} but got {actual}.\n"
                  f"Absolute difference: {gap} (up to {atol} allowed)\n"
                  f"Relative difference: {_ratio(gap, expected)} (up to {rtol} allowed)", where)

    def tensors(self, actual: Any, expected: Any, where: str) -> None:
        if actual.shape != expected.shape:
            self.fail(f"The values for attribute 'shape' do not match: {actual.shape} != {expected.shape}.", where)
        for wanted, name in ((self.check_layout, "layout"), (self.check_device, "device"), (self.check_dtype, "dtype")):
            if wanted and getattr(actual, name) != getattr(expected, name):
                self.fail(f"The values for attribute '{name}' do not match: {getattr(actual, name)} != "
                          f"{getattr(expected, name)}.", where)
        if self.check_stride and actual.stride() != expected.stride():
            self.fail(f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}.", where)
        if actual.is_meta or expected.is_meta:
            return
        rtol, atol = _tolerances((actual.dtype, expected.dtype), self.rtol, self.atol)
        actual, expected = actual.detach().cpu(), expected.detach().cpu()
        if actual.dtype != expected.dtype:
            kind = torch.promote_types(actual.dtype, expected.dtype)
            actual, expected = actual.to(kind), expected.to(kind)
        close = torch.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=self.equal_nan)
        if not bool(close.all()):
            self.fail(_mismatch(actual, expected, ~close, rtol, atol), where)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, collections.abc.Sequence) and not isinstance(x, (str, bytes))


def _ratio(gap: Any, expected: Any) -> float:
    return gap / abs(expected) if expected else math.inf


def _mismatch(actual: Any, expected: Any, wrong: Any, rtol: float, atol: float) -> str:
    """How many items differ, and by how much at most."""
    word = "equal" if not rtol and not atol else "close"
    count, total = int(wrong.sum()), wrong.numel()
    if actual.dim() == 0:
        gap = abs(actual.item() - expected.item())
        by_atol, by_rtol = (f" (up to {atol} allowed)", f" (up to {rtol} allowed)") if word == "close" else ("", "")
        return (f"Scalars are not {word}!\n\nExpected {expected.item()} but got {actual.item()}.\n"
                f"Absolute difference: {gap}{by_atol}\nRelative difference: {_ratio(gap, expected.item())}{by_rtol}")
    wide = torch.complex128 if actual.is_complex() else torch.float64 if actual.is_floating_point() else torch.int64
    gap = (actual.to(wide) - expected.to(wide)).abs()
    gap = torch.where(wrong, gap, torch.zeros_like(gap))
    ratio = gap / expected.to(wide).abs()
    ratio = torch.where(wrong, ratio, torch.zeros_like(ratio))
    lines = [f"Tensor-likes are not {word}!", "",
             f"Mismatched elements: {count} / {total} ({count / total:.1%})"]
    for name, values, bound in (("absolute", gap, atol), ("relative", ratio, rtol)):
        flat = values.reshape(-1)
        flat = torch.where(flat.isnan(), torch.full_like(flat, math.inf), flat) if flat.is_floating_point() else flat
        place = int(flat.argmax())
        index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), tuple(values.shape)))
        allowed = f" (up to {bound} allowed)" if word == "close" else ""
        lines.append(f"Greatest {name} difference: {values.reshape(-1)[place].item()} at index {index}{allowed}")
    return "\n".join(lines)


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False,
                 msg: str | Callable[[str], str] | None = None) -> None:
    """Raises AssertionError unless both have the same structure and close values."""
    __tracebackhide__ = True
    _Comparison(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride,
                msg).compare(actual, expected, "")


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
                    equal_nan: bool = True, msg: str = "") -> None:
    """assert_close that looks at values only; kept for old callers."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected, dtype=getattr(actual, "dtype", None))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False,
                 msg=msg or None)


def make_tensor(*shape: Any, dtype: Any, device: Any = "cpu", low: float | None = None, high: float | None = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
                memory_format: Any = None) -> Any:
    """Random values in [low, high): integers, or uniform floats."""
    shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence) else shape
    size = (*shape[:-1], 2 * shape[-1]) if noncontiguous and shape else shape
    if dtype == torch.bool:
        made = torch.randint(0, 2, size).to(torch.bool)
    elif dtype.is_floating_point:
        bottom, top = -9 if low is None else low, 9 if high is None else high
        made = (torch.rand(size, dtype=torch.float32) * (top - bottom) + bottom).to(dtype)
    elif dtype.is_complex:
        real = torch.float64 if dtype == torch.complex128 else torch.float32
        bottom, top = -9 if low is None else low, 9 if high is None else high
        parts = torch.rand((*size, 2), dtype=real) * (top - bottom) + bottom
        made = torch.view_as_complex(parts)
    else:
        bottom = (0 if dtype == torch.uint8 else -9) if low is None else math.ceil(low)
        made = torch.randint(bottom, 10 if high is None else math.ceil(high), size, dtype=dtype)
    made = made[..., ::2] if noncontiguous and shape else made
    if exclude_zero:
        made = torch.where(made == 0, torch.ones_like(made), made)
    if memory_format is not None:
        made = made.clone(memory_format=memory_format)
    return made.to(device).requires_grad_(requires_grad)
