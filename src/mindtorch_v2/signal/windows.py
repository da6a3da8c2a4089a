"""torch.signal.windows: the window functions of signal processing."""
from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

import mindtorch_v2 as torch


def _check(name: str, m: int, dtype: Any, layout: Any) -> None:
    if m < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={m}")
    if layout not in (None, torch.strided):
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")


def _window(name: str, values: Any) -> Any:
    """A function of the window's length: values(M, sym, options, own arguments) makes the items."""
    def window(M: int, *args: Any, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
               requires_grad: bool = False, **own: Any) -> Any:
        dtype = torch.get_default_dtype() if dtype is None else dtype
        _check(name, M, dtype, layout)
        if M < 2 and name != "general_cosine":
            values(2, True, {"dtype": dtype, "device": device}, *args, **own)      # the arguments are checked all the same
            made = torch.ones((M,), dtype=dtype, device=device)
        elif M == 0:
            inspect.signature(values).bind(M, sym, {}, *args, **own)                # a wrong argument is told all the same
            made = torch.empty((0,), dtype=dtype, device=device)
        else:
            made = values(M, sym, {"dtype": dtype, "device": device}, *args, **own)
        return made.requires_grad_(requires_grad)
    window.__name__ = window.__qualname__ = name
    window.__doc__ = values.__doc__
    shown = inspect.signature(window)
    length, *options = (p.replace(default=torch.strided) if p.name == "layout" else p for p in shown.parameters.values()
                        if p.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD))
    own_parameters = list(inspect.signature(values).parameters.values())[3:]
    window.__signature__ = shown.replace(parameters=[length, *own_parameters, *options])   # type: ignore[attr-defined]
    return window


def _span(m: int, sym: bool, options: dict[Any, Any], start: float = -1.0) -> Any:
    """Points from start to 1; without sym the last one is left out."""
    end = 1.0 if sym else 1.0 - (1.0 - start) / m
    return torch.linspace(start, end, m, **options)


def _exponential(m: int, sym: bool, options: dict[Any, Any], *, center: float | None = None, tau: float = 1.0) -> Any:
    """exp(-|n - center| / tau)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    center = (m if not sym and m > 1 else m - 1) / 2.0 if center is None else center
    return (-(torch.arange(m, **options) - center).abs() / tau).exp()


def _cosine(m: int, sym: bool, options: dict[Any, Any]) -> Any:
    """One arch of a sine."""
    n = m if sym else m + 1
    return ((torch.arange(m, **options) + 0.5) * (math.pi / n)).sin()


def _gaussian(m: int, sym: bool, options: dict[Any, Any], *, std: float = 1.0) -> Any:
    """exp(-(n / std)² / 2)."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    center = (m if not sym and m > 1 else m - 1) / 2.0
    return (-((torch.arange(m, **options) - center) / (std * math.sqrt(2))) ** 2).exp()


def _kaiser(m: int, sym: bool, options: dict[Any, Any], *, beta: float = 12.0) -> Any:
    """i0(beta * sqrt(1 - x²)) / i0(beta)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    x = _span(m, sym, options)
    scale = torch.tensor(float(beta), **options)
    return torch.i0(scale * (1 - x * x).clamp(min=0).sqrt()) / torch.i0(scale)


def _general_cosine(m: int, sym: bool, options: dict[Any, Any], *, a: Iterable[float]) -> Any:
    """A sum of cosines with alternating signs and the weights a."""
    weights = list(a) if isinstance(a, Iterable) else None
    if weights is None:
        raise TypeError("Coefficients must be a list/tuple")
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    if m == 1:
        return torch.ones((1,), **options)
    x = torch.arange(m, **options) * (2 * math.pi / (m - 1 if sym else m))
    return sum((w if i % 2 == 0 else -w) * (x * i).cos() for i, w in enumerate(weights))


def _weighted(weights: tuple[float, ...], doc: str) -> Any:
    def values(m: int, sym: bool, options: dict[Any, Any]) -> Any:
        return _general_cosine(m, sym, options, a=weights)
    values.__doc__ = doc
    return values


def _general_hamming(m: int, sym: bool, options: dict[Any, Any], *, alpha: float = 0.54) -> Any:
    """alpha - (1 - alpha) * cos."""
    return _general_cosine(m, sym, options, a=(alpha, 1.0 - alpha))


def _bartlett(m: int, sym: bool, options: dict[Any, Any]) -> Any:
    """A triangle."""
    return 1 - _span(m, sym, options).abs()


exponential = _window("exponential", _exponential)
cosine = _window("cosine", _cosine)
gaussian = _window("gaussian", _gaussian)
kaiser = _window("kaiser", _kaiser)
general_cosine = _window("general_cosine", _general_cosine)
general_hamming = _window("general_hamming", _general_hamming)
hamming = _window("hamming", _weighted((0.54, 0.46), "0.54 - 0.46 cos."))
hann = _window("hann", _weighted((0.5, 0.5), "0.5 - 0.5 cos."))
blackman = _window("blackman", _weighted((0.42, 0.5, 0.08), "0.42 - 0.5 cos + 0.08 cos 2."))
nuttall = _window("nuttall", _weighted((0.3635819, 0.4891775, 0.1365995, 0.0106411), "Four cosines."))
bartlett = _window("bartlett", _bartlett)
