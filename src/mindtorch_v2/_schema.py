"""Reads torch's schema text, such as `add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`."""
from __future__ import annotations

import re
from typing import Any, NamedTuple

_WORDS = {"None": None, "True": True, "False": False, "Mean": 1, "Sum": 2,
          "contiguous_format": None, "long": None, "strided": None}
_TYPE = re.compile(r"(?P<base>[A-Za-z]+)(?P<alias>\([a-z\d!*\s>|-]+\))?(?P<inner>\?)?"
                   r"(?P<list>\[(?P<size>\d*)\])?(?P<optional>\?)?$")
_HEAD = re.compile(r"(?P<name>\w+)(\.(?P<overload>\w+))?\((?P<params>.*)\) -> (?P<returns>.*)$", re.S)


class Param(NamedTuple):
    """One parameter, in the order the core reads it."""
    name: str
    kind: str
    optional: bool
    list_size: int
    default: Any
    keyword_only: bool
    required: bool
    mutable: bool


class Schema(NamedTuple):
    name: str
    overload: str
    params: list[Param]
    returns: list[tuple[str, str]]   # (kind, name)


def split_list(text: str) -> list[str]:
    """Splits at commas that stand outside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def _kind(text: str) -> tuple[str, bool, int, bool]:
    """(kind, optional, list size, mutable) of a type."""
    m = _TYPE.match(text)
    if m is None:
        raise ValueError(f"schema: cannot read type {text!r}")
    base = "int" if m["base"] == "SymInt" else m["base"]
    base = {"Generator": "Generator", "Storage": "any"}.get(base, base)
    kind = base + ("[]" if m["list"] else "")
    return kind, bool(m["optional"] or (m["inner"] and not m["list"])), int(m["size"] or 0), \
        "!" in (m["alias"] or "")


def default_value(text: str) -> Any:
    """The value that a schema writes behind an equals sign."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == "[":
        return tuple(default_value(p) for p in split_list(text[1:-1]))
    if text[0] in "\"'":
        return text[1:-1]
    return float(text) if "." in text or "e" in text else int(text)


def parse(text: str) -> Schema:
    """The schema as data; raises ValueError on text it cannot read."""
    m = _HEAD.match(text)
    if m is None:
        raise ValueError(f"schema: cannot read {text!r}")
    params, keyword_only = [], False
    for part in split_list(m["params"]):
        if part == "*":
            keyword_only = True
            continue
        declared, equals, value = part.partition("=")
        type_text, _, name = declared.rpartition(" ")
        kind, optional, size, mutable = _kind(type_text)
        params.append(Param(name, kind, optional, size, default_value(value) if equals else None,
                            keyword_only, not equals, mutable))
    out = m["returns"].strip()
    returns = []
    for part in split_list(out[1:-1] if out.startswith("(") else out):
        type_text, _, name = part.partition(" ")
        returns.append((type_text, name))
    return Schema(m["name"], m["overload"] or "", params, returns)
