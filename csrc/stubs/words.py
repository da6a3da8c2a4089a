"""The words of a stub: types under names that torch.int, torch.bool and Tensor.dtype do not hide; an op as overloads."""
from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

from mindtorch_v2._ops import describe

HEADER = "# Made at build time by csrc/stubs from the rows of the op table and the package's own modules."
IMPORTS = """from builtins import bool as _bool, complex as _complex, float as _float, int as _int
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, overload
"""
# In _core.pyi, where the classes are; other stubs import them from there.
ALIASES = [
    "_dtype: TypeAlias = dtype", "_device: TypeAlias = device", "_layout: TypeAlias = layout",
    "_memory_format: TypeAlias = memory_format", "Number: TypeAlias = _int | _float | _bool",
    "_Number: TypeAlias = _int | _float | _bool | _complex",
]
BORROWED = "from mindtorch_v2._C._core import _Number, _device, _dtype, _layout, _memory_format"
# Results of the table's plain functions that are no single tensor.
PLAIN_RESULTS = {"broadcast_shapes": "Size", "gradient": "tuple[Tensor, ...]", "lu": "tuple[Tensor, ...]",
                 **dict.fromkeys(("broadcast_tensors", "meshgrid", "unravel_index"), "tuple[Tensor, ...]"),
                 **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), "Any")}
_HIDDEN = re.compile(r"(?<![\w.])(int|float|bool|complex|dtype|device|layout|memory_format)(?!\w)")


def word(annotation: str) -> str:
    """An annotation under names that nothing hides."""
    plain = {"tuple": "tuple[Any, ...]", "dict": "dict[str, Any]", "list": "list[Any]"}
    return plain.get(annotation) or _HIDDEN.sub(r"_\1", annotation)


def form_word(annotation: str) -> str:
    return word(re.sub(r"\bNumber\b", "_Number", annotation))


def indent(text: str) -> str:
    return textwrap.indent(text, "    ")


def _default(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) and value == value else "..."


def form_text(name: str, form: Signature, method: bool, static: bool = False) -> str:
    """One form of an op as a function of a stub."""
    parts: list[str] = []
    parameters = list(form.parameters.values())
    if method:
        own = "input" if "input" in form.parameters else parameters[0].name
        parameters, parts = [p for p in parameters if p.name not in (own, "out")], ["self"]
    star = False
    for i, p in enumerate(parameters):
        if p.kind is Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        text = f"{p.name}: {form_word(p.annotation)}"
        if p.kind is Parameter.VAR_POSITIONAL:
            text, star = "*" + text, True
        parts.append(text if p.default is Parameter.empty else f"{text} = {_default(p.default)}")
        last = i + 1 == len(parameters) or parameters[i + 1].kind is not Parameter.POSITIONAL_ONLY
        if p.kind is Parameter.POSITIONAL_ONLY and last:
            parts.append("/")
    head = "@staticmethod\n" if static else ""
    return f"{head}def {name}({', '.join(parts)}) -> {form_word(form.return_annotation)}: ..."


STARS = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def plain_text(name: str, function: Callable[..., Any], method: bool = False) -> str:
    """A function of the op table with a Python signature of its own: its body has no types, as no row's has."""
    parameters = list(signature(function).parameters.values())
    parts: list[str] = ["self"] if method else []
    star = False
    for p in parameters[method:]:
        if p.kind is Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        text = f"{STARS.get(p.kind, '')}{p.name}: Any"
        parts.append(text if p.default is Parameter.empty else f"{text} = {_default(p.default)}")
    return f"def {name}({', '.join(parts)}) -> {PLAIN_RESULTS.get(name, 'Tensor')}: ..."


def op_text(name: str, op: Any, method: bool = False, static: bool = False) -> str:
    """An op as a function, overloaded where it has several forms."""
    forms = list(dict.fromkeys(form_text(name, form, method, static) for form in describe.signatures(op)))
    return "\n".join("@overload\n" + form for form in forms) if len(forms) > 1 else forms[0]
