"""The C functions of the tables as the tests read them: with the types of their arguments."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import cann_tables


class Declaration(NamedTuple):
    library: str
    name: str
    result: str  # empty, as the arguments: only the name is known
    arguments: list[str]  # C types, without the arguments' names


def _types(arguments: str) -> list[str]:
    """`const char* key, int64_t dims[][2]` -> the types; an array is a pointer, and so is a function."""
    found = []
    for argument in filter(None, re.sub(r"\(\*(\w+)\)\([^)]*\)", r"* \1", arguments).split(", ")):
        if argument == "...":
            found.append(argument)
            continue
        m = re.fullmatch(r"(.*?[\s*])\w+((?:\[\d*\])*)", argument)
        assert m, argument
        found.append(m[1].strip() + "*" * bool(m[2]))
    return found


@cache
def functions() -> list[Declaration]:
    return [Declaration(f.library, f.name, f.result, _types(f.arguments)) for f in cann_tables.functions()]


@cache
def declared() -> dict[str, Declaration]:
    return {f.name: f for f in functions() if f.result}
