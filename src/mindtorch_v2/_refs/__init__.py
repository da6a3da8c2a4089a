"""torch._refs: PyTorch defines its ops a second time, for its compiler. Here an op has one definition: its reference is the op."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch

_facade, _methods = torch._facade, torch.Tensor
_LISTED = {package: names.split() for package, _, names in (
    line.partition(":") for line in (Path(__file__).parent / "names.txt").read_text().splitlines()[1:])}
_NAMES = {package: [name.removeprefix("-") for name in names if name[0] != "+"] for package, names in _LISTED.items()}
__all__ = _NAMES["_refs"]   # noqa: PLE0605
_made: dict[tuple[str, str], Callable[..., Any]] = {}      # (package, name) -> a reference that is no function of torch's


def _reference(package: str, *places: Any) -> Callable[[str], Any]:
    """A module's __getattr__: the function of a name in the first place that has one."""
    def find(name: str) -> Any:
        for place in places:
            found: Any = getattr(place, name, None)
            if callable(found):
                return found
            if isinstance(found, property) or type(found).__name__ == "getset_descriptor":      # x.T
                return found.__get__
        change = getattr(_methods, name + "_", None)
        if change is not None and not name.startswith("_"):     # torch._refs.cauchy: of what only changes a tensor
            return _made.setdefault((package, name), lambda x, *args, **kwargs: change(x.clone(), *args, **kwargs))
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return find


def _family(parent: str, name: str, *places: Any) -> Any:
    full = f"torch._refs{parent.removeprefix(__name__)}.{name}"
    return _facade.module(parent, name, f"References of torch.{name}.", __getattr__=_reference(full, *places),
                          __all__=_NAMES[full.removeprefix("torch.")])


def _turned(operator: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The operator with its operands the other way round."""
    return lambda self, other: operator(other, self)


class _Others:
    """References of what torch has as operators, as arguments or under another name."""
    rpow, rtruediv, rfloordiv = (staticmethod(_turned(f)) for f in (torch.pow, torch.true_divide, torch.floor_divide))
    swap_axes = staticmethod(torch.swapaxes)

    @staticmethod
    def T(a: torch.Tensor) -> torch.Tensor:
        if a.dim() not in (0, 2):
            raise RuntimeError("The use of `x.T` on tensors of dimension other than 0 or 2 to reverse their shape is not "
                               "supported.")
        return a.t()

    @staticmethod
    def trunc_divide(a: Any, b: Any) -> Any:
        return torch.div(a, b, rounding_mode="trunc")

    @staticmethod
    def copy_to(a: torch.Tensor, b: torch.Tensor, *, allow_cross_device: bool = True) -> torch.Tensor:
        if not allow_cross_device and a.device != b.device:
            raise RuntimeError(f"Attempting to copy from device {b.device} to device {a.device}, but cross-device copies are "
                               "not allowed!")
        return a.copy_(b)


class _Functional:
    """What torch.nn.functional has as inplace=True."""
    @staticmethod
    def mish_(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.mish(x, inplace=True)


class _Conversions:
    """x.float() and its like as functions; complex and polar make one tensor of two."""
    complex, polar = staticmethod(torch.complex), staticmethod(torch.polar)


__getattr__ = _reference("torch._refs", _Others, torch, _methods, torch.ops.aten)
linalg: Any
special: Any
fft: Any
linalg, special, fft = (_family(__name__, name, getattr(torch, name)) for name in ("linalg", "special", "fft"))
_conversions: Any = _family(__name__, "_conversions", _Conversions, _methods)
nn: Any = _facade.module(__name__, "nn", "References of torch.nn.",
                         functional=_family(__name__ + ".nn", "functional", torch.nn.functional, _Functional))


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Overload of ATen -> its reference, for the references that torch registers as decompositions."""
    spaces: dict[str, tuple[Any, str]] = {
        "_refs": (None, ""), "_refs.fft": (fft, "fft_"), "_refs.linalg": (linalg, "linalg_"),
        "_refs.special": (special, "special_"), "_refs.nn.functional": (nn.functional, "")}
    found: dict[Any, Callable[..., Any]] = {}
    for package, (space, prefix) in spaces.items():
        for name in (listed.removeprefix("+") for listed in _LISTED[package]):
            packet: Any = getattr(torch.ops.aten, prefix + name, None)
            if name.startswith("-") or not hasattr(packet, "overloads"):
                continue
            reference = __getattr__(name) if space is None else getattr(space, name)
            found |= {getattr(packet, word): reference for word in packet.overloads()}
    return found
