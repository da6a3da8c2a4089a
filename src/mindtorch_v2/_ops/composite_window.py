"""torch.hann_window and its relatives."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._tensor import Tensor

_OPTIONS = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
            "bool? requires_grad=False")


_STRIDED = _C._named_constant("strided")


def _checked(name: str, length: int, dtype: Any, layout: Any, requires_grad: bool | None, values: Callable[..., Any]) -> Tensor:
    """values(n) of the symmetric window; a periodic one is cut from a window one longer."""
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if layout is not None and layout is not _STRIDED:
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    made = values()
    return made._requires_grad_(True) if requires_grad else made


def _cosines(length: int, periodic: bool, weights: tuple[float, ...], options: dict[str, Any]) -> Tensor:
    """Weighted cosines of multiples of the angle, with alternating signs."""
    if length < 2:
        return ops.ones((length,), **options)
    x = ops.arange(length, **options) * (2 * math.pi / (length if periodic else length - 1))
    made = ops.full((length,), float(weights[0]), **options)
    for i, w in enumerate(weights[1:], 1):
        made = made + (w if i % 2 == 0 else -w) * (x * i).cos()
    return made


def _float(dtype: Any, device: Any) -> dict[str, Any]:
    return {"dtype": dtype or _C.get_default_dtype(), "device": device}


@composite(f"hann_window(int window_length, bool periodic=True, {_OPTIONS}) -> Tensor", out=False, variants="function")
def _hann(window_length: int, periodic: bool, dtype: _C.dtype | None, layout: _C.layout | None,
          device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """0.5 - 0.5 cos."""
    return _checked("hann_window", window_length, dtype, layout, requires_grad,
                    lambda: _cosines(window_length, periodic, (0.5, 0.5), _float(dtype, device)))


@composite(f"hamming_window(int window_length, bool periodic=True, float alpha=0.54, float beta=0.46, {_OPTIONS}) "
           "-> Tensor", out=False, variants="function")
def _hamming(window_length: int, periodic: bool, alpha: float, beta: float, dtype: _C.dtype | None,
             layout: _C.layout | None, device: _C.device | None, pin_memory: bool | None,
             requires_grad: bool | None) -> Tensor:
    """alpha - beta cos."""
    return _checked("hamming_window", window_length, dtype, layout, requires_grad,
                    lambda: _cosines(window_length, periodic, (alpha, beta), _float(dtype, device)))


@composite(f"blackman_window(int window_length, bool periodic=True, {_OPTIONS}) -> Tensor", out=False,
           variants="function")
def _blackman(window_length: int, periodic: bool, dtype: _C.dtype | None, layout: _C.layout | None,
              device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """0.42 - 0.5 cos + 0.08 cos 2."""
    return _checked("blackman_window", window_length, dtype, layout, requires_grad,
                    lambda: _cosines(window_length, periodic, (0.42, 0.5, 0.08), _float(dtype, device)))


@composite(f"bartlett_window(int window_length, bool periodic=True, {_OPTIONS}) -> Tensor", out=False,
           variants="function")
def _bartlett(window_length: int, periodic: bool, dtype: _C.dtype | None, layout: _C.layout | None,
              device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """A triangle."""
    def values() -> Tensor:
        options = _float(dtype, device)
        if window_length < 2:
            return ops.ones((window_length,), **options)
        x = ops.arange(window_length, **options) * (2 / (window_length if periodic else window_length - 1))
        return 1 - (x - 1).abs()
    return _checked("bartlett_window", window_length, dtype, layout, requires_grad, values)


@composite(f"kaiser_window(int window_length, bool periodic=True, float beta=12.0, {_OPTIONS}) -> Tensor", out=False,
           variants="function")
def _kaiser(window_length: int, periodic: bool, beta: float, dtype: _C.dtype | None, layout: _C.layout | None,
            device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """i0(beta sqrt(1 - x²)) / i0(beta)."""
    def values() -> Tensor:
        options = _float(dtype, device)
        if window_length < 2:
            return ops.ones((window_length,), **options)
        x = ops.arange(window_length, **options) * (2 / (window_length if periodic else window_length - 1)) - 1
        return ops.i0(beta * (1 - x * x).clamp(min=0).sqrt()) / ops.i0(ops.full((), float(beta), **options))
    return _checked("kaiser_window", window_length, dtype, layout, requires_grad, values)
