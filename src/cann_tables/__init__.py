"""The facts of CANN as tables (aclnn ops, C functions, numbers, SoCs) and their only parser; needs no CANN.

`cann_sim` is generated from them at build time, and the npu backend reads the aclnn signatures at run time.
"""
from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
OP_FILES = ("aclnn.txt", "aclnn_later.txt")  # CANN 8.1, and ops of later versions
# The kinds of argument of an aclnn op.
KINDS = ("tensor", "out", "inout", "tensors", "outs", "inouts", "scalar", "scalars", "ints", "floats", "bools",
         "string", "int64", "int32", "int8", "uint64", "bool", "dtype", "double", "float")
# Short names of dtypes and their aclDataType.
DTYPES = {
    "f32": 0, "f16": 1, "s8": 2, "s32": 3, "u8": 4, "s16": 6, "u16": 7, "u32": 8, "s64": 9, "u64": 10, "f64": 11,
    "bool": 12, "c64": 16, "c128": 17, "bf16": 27, "s4": 29, "c32": 33, "hif8": 34, "f8e5m2": 35, "f8e4m3": 36,
    "f8e8m0": 37, "f4e2m1": 40, "f4e1m2": 41,
}  # fmt: skip
MAX_RANK = 8
Version = tuple[int, int]  # 8.1 is (8, 1)
OLDEST: Version = (8, 0)  # the CANN that the tables begin with


class Argument(NamedTuple):
    """One argument of an aclnn op's first phase."""

    kind: str
    name: str
    optional: bool = False
    dtypes: tuple[str, ...] = ()  # keys of DTYPES; empty: not restricted
    ranks: tuple[int, int] = (0, MAX_RANK)  # the lowest and the highest
    ranks_guessed: bool = False  # the documents are not clear: this is our reading
    dense: bool = False  # must be contiguous

    @classmethod
    def parse(cls, text: str) -> Argument:
        """An argument from its text, as the head of aclnn.txt describes it; ValueError for anything else."""
        kind, name, *facts = text.split()
        if kind not in KINDS:
            raise ValueError(f"unknown kind of argument: {text!r}")
        made = cls(kind, name.removesuffix("?"), name.endswith("?"))
        for fact in facts:
            ranks = re.fullmatch(r"(\d)(?:-(\d))?(~?)", fact)
            if fact == "dense":
                made = made._replace(dense=True)
            elif ranks and int(ranks[1]) <= int(ranks[2] or ranks[1]) <= MAX_RANK:
                made = made._replace(ranks=(int(ranks[1]), int(ranks[2] or ranks[1])), ranks_guessed=bool(ranks[3]))
            elif DTYPES.keys() >= set(fact.split("/")):
                made = made._replace(dtypes=tuple(fact.split("/")))
            else:
                raise ValueError(f"unknown fact {fact!r} of argument {text!r}")
        return made


class Op(NamedTuple):
    """One aclnn op."""

    name: str
    arguments: tuple[Argument, ...] | None  # without the two that all first phases end with; None: not known
    facts: frozenset[str]  # feature library, repository, dynamic_output, may_be_unrepeatable, max_workspace
    since: Version  # the first CANN that has it, as far as is known
    families: frozenset[str] | None  # those with kernels of it; None: all

    @property
    def first_phases(self) -> tuple[str, ...]:
        """The functions that take the op's arguments: all end with workspaceSize and executor."""
        return tuple(self.name + end for end in ("GetWorkspaceSize", "GetMaxWorkspaceSize")[: 1 + ("max_workspace" in self.facts)])


class Function(NamedTuple):
    """One exported C function."""

    library: str
    name: str
    result: str = ""  # empty: the arguments are not known either
    arguments: str = ""  # C declarations, separated by ", "


class Type(NamedTuple):
    """One C type that is no enum."""

    name: str
    kind: str  # struct, union, typedef
    size: int  # bytes; 0 of a typedef
    text: str  # the fields of a struct or union, the whole line of a typedef


def rows(file: str) -> list[str]:
    """The lines of a table, without comments and empty ones."""
    return [line for line in (FOLDER / file).read_text().splitlines() if line and not line.startswith("#")]


def sections(file: str) -> dict[str, list[str]]:
    """The rows of a table by its [headings]."""
    found: dict[str, list[str]] = {}
    for line in rows(file):
        if line.startswith("["):
            current = found.setdefault(line[1:-1], [])
        else:
            current.append(line)
    return found


@cache
def _op_texts() -> dict[str, str]:
    return {re.split(r"\W", line, maxsplit=1)[0]: line for file in OP_FILES for line in rows(file)}


# ---- versions and SoCs -------------------------------------------------------------------------------------------------
def version(text: str) -> Version:
    """(8, 1) of "8.1.RC1"; ValueError for what does not begin with two numbers."""
    found = re.match(r"(\d+)\.(\d+)(?!\d)", text)
    if not found:
        raise ValueError(f"not a version of CANN: {text!r}")
    return int(found[1]), int(found[2])


@cache
def _first_versions() -> dict[str, Version]:
    return {name: version(head) for head, lines in sections("versions.txt").items() if head[0].isdigit()
            for line in lines for name in line.split()}


def since(name: str) -> Version:
    """The first CANN that has a C function or an aclnn op, as far as is known."""
    return _first_versions().get(name, OLDEST)


@cache
def _kernels() -> list[tuple[str, frozenset[str]]]:
    return [(name, frozenset(families)) for name, *families in map(str.split, sections("versions.txt")["kernels"])]


def families(name: str) -> frozenset[str] | None:
    """The families of SoCs that have kernels of an aclnn op; None: all."""
    fits = (found for pattern, found in _kernels()
            if name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]))
    return next(fits, None)


def without_bfloat16() -> list[str]:
    """The families whose cores do not have bfloat16."""
    return sections("versions.txt")["without bfloat16"]


def short_names() -> dict[str, str]:
    """The common name of a generation of SoCs -> the SoC that represents it."""
    return dict(line.split() for line in sections("versions.txt")["short names"])


# ---- ops and functions -------------------------------------------------------------------------------------------------


@cache
def op(name: str) -> Op | None:
    """An aclnn op by its name; None where no table has it."""
    if name not in _op_texts():
        return None
    found = re.fullmatch(r"\w+\((.*)\) \| (.*)", _op_texts()[name])
    if not found:
        return Op(name, None, frozenset(), since(name), families(name))
    arguments = tuple(Argument.parse(text) for text in found[1].split(", ")) if found[1] else ()
    return Op(name, arguments, frozenset(found[2].split()), since(name), families(name))


def ops() -> list[Op]:
    """All aclnn ops, in the order of the tables."""
    return [found for name in _op_texts() if (found := op(name))]


def functions() -> list[Function]:
    """The C functions of all libraries, in the order of the table."""
    made = []
    for library, lines in sections("runtime.txt").items():
        for line in lines:
            m = re.fullmatch(r"(.+?)\s*\b(\w+)\((.*)\)", line)
            made.append(Function(library, m[2], m[1], m[3]) if m else Function(library, line.strip()))
    return made


@cache
def types() -> list[Type]:
    """Structs, unions, callbacks and handles, in the order of the table: each after what it is made of."""
    made = []
    for line in rows("types.txt"):
        if struct := re.fullmatch(r"(struct|union) (\w+) (\d+) \{ (.*) \}", line):
            made.append(Type(struct[2], struct[1], int(struct[3]), struct[4]))
        elif name := re.fullmatch(r"typedef .*?(?:\(\*(\w+)\)\(.*\)|(\w+));", line):
            made.append(Type(name[1] or name[2], "typedef", 0, line))
        else:
            raise ValueError(f"unknown kind of type: {line!r}")
    return made


@cache
def _headers() -> dict[str, str]:
    return dict(line.split() for line in rows("headers.txt"))


def header(name: str) -> str:
    """The header that declares a function, op, type or flag; empty where CANN declares it in none."""
    found = _headers()
    if name in found:
        return found[name]
    if op(name) or name.startswith("aclnn"):
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.replace("aclnnInplace", "aclnn", 1))
        return f"aclnnop/{words.lower()}.h"
    fitting = [key for key in found if key.endswith("*") and name.startswith(key[:-1])]
    return found[max(fitting, key=len)] if fitting else ""


@cache
def enums() -> dict[str, dict[str, int]]:
    """Enumerators, error codes and flags: enum -> name -> number."""
    return {enum: {name: int(value, 0) for name, value in map(str.split, lines)}
            for enum, lines in sections("enums.txt").items()}


def numbers() -> dict[str, int]:
    """The same by name alone."""
    return {name: value for members in enums().values() for name, value in members.items()}


def socs() -> list[list[str]]:
    """The SoCs: the columns that the head of soc.txt names."""
    return [row.split() for row in rows("soc.txt")]


def peaks() -> dict[str, list[float]]:
    """By SoC the columns that the head of peaks.txt names: what a device is assumed to reach."""
    return {row.split()[0]: [float(cell) for cell in row.split()[1:]] for row in rows("peaks.txt")}
