"""How a tensor is written: repr, str and their options, character for character as PyTorch does it.

Works on Python numbers from ``tolist`` and on a tensor's metadata; only items shown are read.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ._C._core import (
    _dtype_named,
    _has_tangents,
    _is_inference_mode,
    _levels_of,
    _tangent,
    _transforms,
    get_default_dtype,
)


@dataclass
class _Options:
    precision: int = 4  # digits after the point
    threshold: float = 1000  # more items than this are summarised
    edgeitems: int = 3  # items shown at both ends of a summarised dimension
    linewidth: int = 80
    sci_mode: bool | None = None  # None: chosen from the values


_options = _Options()
_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set the options that are given; sci_mode is always set, as in PyTorch."""
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems}
    given["linewidth"] = linewidth
    chosen = _PROFILES.get(profile or "", {}) | {k: v for k, v in given.items() if v is not None}
    for name, value in chosen.items():
        setattr(_options, name, value)
    _options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force, as keyword arguments of set_printoptions."""
    return asdict(_options)


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Options for the length of a with block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


class _NumberFormat:
    """One way of writing for all real numbers of a tensor: the spec, and the common width."""

    def __init__(self, values: list[Any], floating: bool) -> None:
        self.spec, self.dot, self.width = "", False, 1
        if not floating:
            self.width = max([1, *(len(str(v)) for v in values)])
            return
        # Zeros, infinities and nans fit themselves to the others.
        counted = [v for v in values if v != 0 and math.isfinite(v)]
        sizes = [abs(v) for v in counted]
        whole = all(v == math.ceil(v) for v in counted)
        scientific = _options.sci_mode
        if not counted:
            scientific = False
        elif scientific is None:
            low, high = min(sizes), max(sizes)
            scientific = high > 1e8 or low < 1e-4 or high / low > 1000
        if scientific:
            self.spec = f".{_options.precision}e"
        elif whole:
            self.spec, self.dot = ".0f", True
        else:
            self.spec = f".{_options.precision}f"
        self.width = max([1, *(len(format(v, self.spec)) + self.dot for v in counted)])

    def __call__(self, value: Any) -> str:
        text = format(value, self.spec) if self.spec else str(value)
        if self.dot and math.isfinite(value):
            text += "."
        return text.rjust(self.width)


def _complex_writer(values: list[complex]) -> tuple[Callable[[complex], str], int]:
    real = _NumberFormat([v.real for v in values], True)
    imag = _NumberFormat([v.imag for v in values], True)

    def write(value: complex) -> str:
        tail = imag(value.imag).lstrip() + "j"
        return real(value.real) + ("" if tail[0] == "-" else "+") + tail

    return write, real.width + imag.width + 1


def _shown(tensor: Any, summarize: bool) -> Any:
    """The items that are written, as nested lists; Ellipsis stands for those left out."""
    if not summarize or tensor.dim() == 0:
        return tensor.tolist()
    edge, size = _options.edgeitems, tensor.shape[0]
    cut = size > 2 * edge
    if tensor.dim() == 1:
        if not edge:
            return [...]
        if not cut:
            return tensor.tolist()
        return [*tensor[:edge].tolist(), ..., *tensor[size - edge :].tolist()]
    rows = [*range(edge), ..., *range(size - edge, size)] if cut else range(size)
    return [... if i is ... else _shown(tensor[i], summarize) for i in rows]


def _numbers(items: Any) -> Iterator[Any]:
    if not isinstance(items, list):
        yield items
        return
    for item in items:
        if isinstance(item, list):
            yield from _numbers(item)
        elif item is not ...:
            yield item


def _write(items: Any, dim: int, indent: int, write: Callable[[Any], str], width: int) -> str:
    if dim == 0:
        return write(items)
    if dim > 1:
        parts = ["..." if i is ... else _write(i, dim - 1, indent + 1, write, width) for i in items]
        return "[" + ("," + "\n" * (dim - 1) + " " * (indent + 1)).join(parts) + "]"
    dots = "..." if len(items) == 1 else " ..."
    parts = [dots if i is ... else write(i) for i in items]
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [", ".join(parts[i : i + per_line]) for i in range(0, len(parts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _contents(tensor: Any, indent: int) -> str:
    if str(tensor.dtype) == "torch.float4_e2m1fn_x2":  # two numbers an item: torch writes the byte
        tensor = tensor.view(_dtype_named("uint8")).to(_dtype_named("float32"))
    items = _shown(tensor, tensor.numel() > _options.threshold)
    numbers = list(_numbers(items))
    write: Callable[[Any], str]
    if tensor.dtype.is_complex:
        write, width = _complex_writer(numbers)
    else:
        write = number_format = _NumberFormat(numbers, tensor.dtype.is_floating_point)
        width = number_format.width
    return _write(items, tensor.dim(), indent, write, width)


def _grad_suffix(tensor: Any) -> list[str]:
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view changed in place under no_grad has no valid node any more
        return ["grad_fn=<Invalid>"]
    if node is not None:
        return [f"grad_fn=<{node.name().rsplit('::', 1)[-1]}>"]
    return ["requires_grad=True"] if tensor.requires_grad else []


def _tangent_suffix(tensor: Any) -> list[str]:
    if not _has_tangents(tensor) or _is_inference_mode():
        return []
    found = (_tangent(tensor, layer) for layer in _transforms() if getattr(layer, "is_shown", False))
    return [f"tangent={t}" for t in found if t is not None]


def in_levels(tensor: Any, text: str, beyond: int = 0) -> str:
    """The text of a tensor with a frame for each function of torch.func that differentiates it, of those inside a level."""
    if not (tensor.requires_grad or _has_tangents(tensor)):
        return text
    for outside, seen in _levels_of(tensor):
        number = 1 + outside + sum(layer.is_level for layer in _transforms()[:seen])
        if number > beyond:
            inner = textwrap.indent(text, "    ")
            text = f"GradTrackingTensor(lvl={number}, value=\n{inner}\n)"
    return text


def tensor_repr(tensor: Any, *, tensor_contents: str | None = None) -> str:
    """``repr(tensor)``; tensor_contents replaces the numbers."""
    history = _grad_suffix(tensor) + _tangent_suffix(tensor)
    if (history or _has_tangents(tensor)) and _levels_of(tensor):
        return in_levels(tensor, _plain_repr(tensor, [], tensor_contents))
    return _plain_repr(tensor, history, tensor_contents)


def _plain_repr(tensor: Any, history: list[str], tensor_contents: str | None) -> str:
    """The repr, with these words on the tensor's history."""
    kind = type(tensor).__name__
    plain = kind in ("Tensor", "Parameter")
    prefix = "tensor(" if plain else kind + "("
    data, default = tensor.detach(), get_default_dtype()
    size, dtype = f"size={tuple(data.shape)}", f"dtype={data.dtype}"
    suffixes = [] if data.device.type == "cpu" else [f"device='{data.device}'"]
    if data.device.type == "meta":
        contents = "..."
        suffixes += [size] + ([dtype] if data.dtype != default else [])
    elif data.numel() == 0:  # nothing shows the shape, nor that the numbers are integers
        contents = "[]"
        suffixes += ([size] if data.dim() != 1 else []) + ([dtype] if data.dtype != default else [])
    else:
        contents = _contents(data, len(prefix)) if tensor_contents is None else ""
        default_complex = "complex128" if str(default) == "torch.float64" else "complex64"
        unsaid = (str(default), "torch." + default_complex, "torch.int64", "torch.bool")
        suffixes += [] if _options.edgeitems else [size]
        suffixes += [] if str(data.dtype) in unsaid else [dtype]
    suffixes += history

    text = prefix + (contents if tensor_contents is None else tensor_contents)
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * len(prefix) + suffix
            column = len(prefix) + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    text += ")"
    is_parameter = any(c.__name__ == "Parameter" for c in type(tensor).__mro__)
    if not plain and (is_parameter or getattr(tensor, "_is_param", False)):
        return f"Parameter({text})"
    return text
