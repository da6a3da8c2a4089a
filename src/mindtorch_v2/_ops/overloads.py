"""torch's overloads by name: what torch.ops.aten has of an op, and which of them a call is. The table is overloads.txt."""
from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._function_schema import (
    BoolType,
    DeviceObjType,
    FloatType,
    FunctionSchema,
    GeneratorType,
    IntType,
    LayoutType,
    ListType,
    MemoryFormatType,
    NumberType,
    OptionalType,
    ScalarTypeType,
    StringType,
    SymIntType,
    Tag,
    TensorType,
    Type,
)
from mindtorch_v2._ops.namespace import ops

# Ops of which a number in a tensor's place is the tensor's overload, x + 2 is add.Tensor; of all others it is the number's.
_NUMBERS_ARE_TENSORS = frozenset(name + end for end in ("", "_") for name in (
    "add sub mul div true_divide divide subtract multiply floor_divide".split()))
_PLAIN: dict[type[Type], Any] = {
    TensorType: _C.TensorBase, BoolType: bool, StringType: str, ScalarTypeType: (_C.dtype, int), LayoutType: _C.layout,
    MemoryFormatType: _C.memory_format, GeneratorType: _C.GeneratorBase, DeviceObjType: (_C.device, str, int)}


class Named(NamedTuple):
    """One overload of torch's."""
    name: str
    schema: str
    tags: tuple[Tag, ...]


@functools.cache
def _table() -> dict[str, list[str]]:
    """The lines of the table by op."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "overloads.txt").read_text().splitlines()[1:]:
        head = line.partition("  # ")[0].partition("(")[0]
        found.setdefault(head.partition(".")[0], []).append(line)
    return found


@functools.cache
def named(op: str) -> dict[str, Named]:
    """The overloads of an op by their names, in torch's order; empty where torch has no such op."""
    made = {}
    for line in _table().get(op, ()):
        schema, _, words = line.partition("  # ")
        head = schema.partition("(")[0]
        name = head.partition(".")[2] or "default"
        if head == schema:                       # the row's own
            schema = next(row.schema for row in getattr(ops, op).overloads if row.schema.partition("(")[0] == head)
        made[name] = Named(name, schema, tuple(Tag[word] for word in [*words.split(), "pt2_compliant_tag"]))
    return made


@functools.cache
def _schemas(op: str) -> tuple[tuple[str, FunctionSchema], ...]:
    return tuple((entry.name, FunctionSchema("aten::" + entry.schema)) for entry in named(op).values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, complex)) or type(value).__name__ in ("SymInt", "SymFloat", "SymBool")


def _fits(kind: Any, value: Any, size: int | None, numbers: bool) -> bool:
    """Whether a value may stand where a schema has this type; numbers: also in place of a tensor."""
    if isinstance(kind, OptionalType):
        return value is None or _fits(kind.getElementType(), value, size, numbers)
    if isinstance(kind, ListType):
        inner = kind.getElementType()
        if isinstance(value, (tuple, list)):
            return all(_fits(inner, item, None, numbers) for item in value)
        return (size is not None or numbers) and _fits(inner, value, None, numbers)     # torch.empty(2)
    if isinstance(kind, (IntType, SymIntType)):
        return _is_number(value) and not isinstance(value, (bool, float, complex))
    if isinstance(kind, (NumberType, FloatType)):
        return _is_number(value)
    if isinstance(kind, TensorType) and numbers and _is_number(value):
        return True
    return isinstance(value, _PLAIN.get(type(kind), object))


def _accepts(schema: FunctionSchema, given: dict[str, Any], out: bool, numbers: bool) -> bool:
    """Whether a call with these arguments, and with out= or without, is one of this overload."""
    if out != any(x.is_out for x in schema.arguments):
        return False
    params = {x.name: x for x in schema.arguments if not x.is_out}
    if not given.keys() <= params.keys():
        return False
    return all(_fits(p.real_type, given[name], p.N, numbers) if name in given else p.has_default_value()
               for name, p in params.items())


def overload_of_call(op: str, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The overload of torch's that a call is; None where it has none of the kind. names: of the row's parameters."""
    given = dict(zip(names, args)) | kwargs
    out = given.pop("out", None) is not None
    for numbers in (True,) if op in _NUMBERS_ARE_TENSORS else (False, True):
        for name, schema in _schemas(op):
            if _accepts(schema, given, out, numbers):
                return name
    return None
