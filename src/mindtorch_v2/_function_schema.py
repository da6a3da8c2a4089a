"""An op's schema as torch shows it: FunctionSchema, its arguments with their types and aliases, and torch.Tag."""
from __future__ import annotations

import enum
import re
from typing import Any

from mindtorch_v2 import _schema

Text = str                                       # Type has a method of that name


class Tag(enum.Enum):
    """What torch says of an overload beyond its schema."""
    core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace, inplace_view, \
        maybe_aliasing_or_mutating, needs_contiguous_strides, needs_exact_strides, needs_fixed_stride_order, \
        nondeterministic_bitwise, nondeterministic_seeded, out, out_variant, pointwise, pt2_compliant_tag, reduction, \
        view_copy = range(20)

    def __str__(self) -> str:
        return f"Tag.{self.name}"


class Type:
    """A type of a schema; one object for each of the plain ones."""
    _shown, _text = "Any", "Any"

    @classmethod
    def get(cls) -> Type:
        """The one object of the type."""
        return _PLAIN[cls]

    def kind(self) -> Text:
        return type(self).__name__

    def str(self) -> Text:
        """As schemas write it."""
        return self._text

    @property
    def annotation_str(self) -> Text:
        """As Python's annotations write it."""
        return self._shown

    def isSubtypeOf(self, other: Type) -> bool:
        """Whether a value of this type is one of the other."""
        if self == other or isinstance(other, AnyType):
            return True
        if isinstance(other, NumberType):
            return isinstance(self, (IntType, FloatType, ComplexType))
        return isinstance(other, OptionalType) and (isinstance(self, NoneType) or self.isSubtypeOf(other.getElementType()))

    def __repr__(self) -> Text:
        return self._shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.kind() == other.kind() and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class _Wrapped(Type):
    """A type around another one."""

    def __init__(self, element: Type) -> None:
        self._element = element

    def getElementType(self) -> Type:
        return self._element


class ListType(_Wrapped):
    """Values of one type in a list."""

    def __init__(self, element: Type) -> None:
        super().__init__(element)
        self._shown, self._text = f"List[{element._shown}]", f"{element._text}[]"


class OptionalType(_Wrapped):
    """A value or None."""

    def __init__(self, element: Type) -> None:
        super().__init__(element)
        self._shown, self._text = f"Optional[{element._shown}]", f"{element._text}?"


def _plain(name: str, shown: str, text: str = "") -> type[Type]:
    return type(name, (Type,), {"_shown": shown, "_text": text or shown, "__module__": "torch",
                                "__doc__": f"The type that schemas write {text or shown}."})


AnyType = _plain("AnyType", "Any")
NoneType = _plain("NoneType", "NoneType")
TensorType = _plain("TensorType", "Tensor")
NumberType = _plain("NumberType", "number", "Scalar")
IntType = _plain("IntType", "int")
FloatType = _plain("FloatType", "float")
ComplexType = _plain("ComplexType", "complex")
BoolType = _plain("BoolType", "bool")
StringType = _plain("StringType", "str")
DeviceObjType = _plain("DeviceObjType", "Device")
GeneratorType = _plain("_GeneratorType", "Generator")
StorageType = _plain("StorageType", "Storage")
StreamObjType = _plain("StreamObjType", "Stream")
ScalarTypeType = _plain("ScalarTypeType", "ScalarType")
LayoutType = _plain("LayoutType", "Layout")
MemoryFormatType = _plain("MemoryFormatType", "MemoryFormat")
SymIntType = _plain("SymIntType", "SymInt")
SymBoolType = _plain("SymBoolType", "SymBool")
_PLAIN: dict[type[Type], Type] = {kind: kind() for kind in (
    AnyType, NoneType, TensorType, NumberType, IntType, FloatType, ComplexType, BoolType, StringType, DeviceObjType, GeneratorType,
    StorageType, StreamObjType, ScalarTypeType, LayoutType, MemoryFormatType, SymIntType, SymBoolType)}
_BY_WORD = {kind._text: made for kind, made in _PLAIN.items()}
_BY_WORD["Stream"] = _PLAIN[StreamObjType]
# What these are to a program: torch shows an argument's type so, and what it really is as its real_type.
_AS_INT = {"ScalarType": "int", "Layout": "int", "MemoryFormat": "int", "SymInt": "int", "SymBool": "bool"}
_PART = re.compile(r"(?P<base>\w+)(?P<alias>\((?P<before>[^)]*)\))?(?P<rest>[\[\]\d?]*)(?P<late>\([^)]*\))?(?P<end>[\[\]\d?]*)$")


class _AliasInfo:
    """Which memory a value shares, and whether the op writes to it."""

    def __init__(self, text: str, listed: bool) -> None:
        before, _, after = text.partition("->")
        self.is_write = "!" in text
        if listed:                               # the items share memory, not the list
            self.before_set = self.after_set = set[str]()
            return
        self.before_set = {word.strip() for word in before.replace("!", "").split("|")}
        self.after_set = {word.strip() for word in after.replace("!", "").split("|")} if after else self.before_set


class Argument:
    """One argument or result of a schema."""

    def __init__(self, name: str, text: str, default: Any, has_default: bool, kwarg_only: bool) -> None:
        found = _PART.match(text)
        if found is None:
            raise RuntimeError(f"Unknown type specifier: {text}")
        shape = found["rest"] + found["end"]
        alias = found["before"] or (found["late"] or "")[1:-1]
        size = re.search(r"\[(\d+)\]", shape)
        self.N = int(size[1]) if size else None
        if self.N and isinstance(default, (int, float)):       # one number stands for as many
            default = [default] * self.N
        self.name, self.kwarg_only, self.default_value = name, kwarg_only, default
        self.alias_info = _AliasInfo(alias, "[" in found["rest"] and bool(found["before"])) if alias else None
        self.real_type = _type(found["base"], shape)
        self.type = _type(_AS_INT.get(found["base"], found["base"]), shape)
        self.is_out = bool(self.is_write and kwarg_only)
        self._has_default = has_default

    @property
    def is_write(self) -> bool:
        return self.alias_info is not None and self.alias_info.is_write

    def has_default_value(self) -> bool:
        return self._has_default


def _type(base: str, shape: str) -> Type:
    """The type that a word and the marks behind it mean: `int` and `[2]?`."""
    made = _BY_WORD.get(base)
    if made is None:
        raise RuntimeError(f"Unknown type specifier: {base}")
    for mark in re.findall(r"\[\d*\]|\?", shape):
        made = OptionalType(made) if mark == "?" else ListType(made)
    return made


def _default_of(text: str) -> Any:
    value = _schema.default_value(text)
    return list(value) if isinstance(value, tuple) else value


class FunctionSchema:
    """A schema: name, overload, arguments, results."""

    def __init__(self, text: str) -> None:
        head, _, rest = text.partition("(")
        params, arrow, out = rest.rpartition(" -> ")
        if not arrow or not params.endswith(")"):
            raise RuntimeError(f"expected a schema such as ns::name(Tensor x) -> Tensor, got {text!r}")
        self.name, _, self.overload_name = head.partition(".")
        self._text, self.arguments, self.returns = text, [], []
        kwarg_only = False
        for part in _schema.split_list(params[:-1]):
            if part == "*":
                kwarg_only = True
                continue
            declared, equals, value = part.partition("=")
            kind, _, name = declared.rpartition(" ")
            self.arguments.append(Argument(name, kind, _default_of(value) if equals else None, bool(equals), kwarg_only))
        for part in _schema.split_list(out[1:-1] if out.startswith("(") else out):
            kind, _, name = part.partition(" ")
            self.returns.append(Argument(name, kind, None, False, False))

    @property
    def is_mutable(self) -> bool:
        return any(x.is_write for x in self.arguments)

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def parse_schema(schema: str) -> FunctionSchema:
    """A schema from its text."""
    return FunctionSchema(schema)
