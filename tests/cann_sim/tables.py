"""The tables of csrc/cann as the tests read them: functions by library and the rows of the aclnn ops."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "csrc" / "cann"


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
    found, library = [], ""
    for line in (FOLDER / "runtime.txt").read_text().splitlines():
        if line.startswith("["):
            library = line[1:-1]
        elif line and not line.startswith("#"):
            m = re.fullmatch(r"(.+?)\s*\b(\w+)\((.*)\)", line)
            found.append(Declaration(library, m[2], m[1], _types(m[3])) if m else Declaration(library, line, "", []))
    return found


@cache
def declared() -> dict[str, Declaration]:
    return {f.name: f for f in functions() if f.result}


DTYPES = {
    "f32": 0, "f16": 1, "s8": 2, "s32": 3, "u8": 4, "s16": 6, "u16": 7, "u32": 8, "s64": 9, "u64": 10, "f64": 11,
    "bool": 12, "c64": 16, "c128": 17, "bf16": 27,
}  # fmt: skip


class Argument(NamedTuple):
    kind: str
    name: str
    optional: bool
    dtype: int  # one that it takes
    rank: int  # the least that it takes

    @staticmethod
    def parse(text: str) -> Argument:
        kind, name, *facts = text.split()
        dtype = next((DTYPES[d] for fact in facts for d in fact.split("/") if d in DTYPES), 0)
        rank = next((int(fact[0]) for fact in facts if re.fullmatch(r"\d(-\d)?", fact)), 0)
        return Argument(kind, name.rstrip("?"), name.endswith("?"), dtype, rank)


class Op(NamedTuple):
    name: str
    arguments: list[Argument] | None  # None: not known
    later: bool


@cache
def ops() -> list[Op]:
    found = []
    for file in ("aclnn.txt", "aclnn_later.txt"):
        for line in (FOLDER / file).read_text().splitlines():
            if line and not line.startswith("#"):
                m = re.fullmatch(r"(\w+)(?:\((.*)\) \| .*)?", line.strip())
                assert m, line
                arguments = [Argument.parse(a) for a in m[2].split(", ")] if m[2] else []
                found.append(Op(m[1], None if m[2] is None else arguments, "later" in file))
    return found


@cache
def enums() -> dict[str, int]:
    lines = (FOLDER / "enums.txt").read_text().splitlines()
    pairs = (line.split() for line in lines if line and line[0] not in "#[")
    return {name: int(value, 0) for name, value in pairs}
