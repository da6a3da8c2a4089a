"""torch._library.opaque_object: Python classes that ops take as they are, by name in schemas."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, NewType


class OpaqueBase:
    """A class whose objects ops take as they are."""


OpaqueType = NewType("OpaqueType", OpaqueBase)


class MemberType(Enum):
    """What reading a member while a program is recorded gives."""

    USE_REAL = "use_real"
    INLINED = "inlined"


class _OpaqueTypeInfo(NamedTuple):
    """What was said of a class."""

    class_name: str
    opaque_typ: str
    guard_fn: Any
    members: dict[str, MemberType]
    hoist: bool
    reconstruct_fn: Any


_types: dict[type, _OpaqueTypeInfo] = {}


def get_opaque_type_name(cls: Any) -> str:
    """The name of a registered class in schemas."""
    info = get_opaque_obj_info(cls)
    if info is None:
        raise ValueError(f"{cls} is not registered as an opaque type")
    return info.class_name


def register_opaque_type(cls: Any, *, typ: str, hoist: bool = False, guard_fn: Any = None,
                         members: dict[str, MemberType] | None = None, reconstruct_fn: Callable[..., Any] | None = None) -> None:
    """Ops may take objects of a class: by "reference", or as a "value" that is compared and hashed."""
    if typ not in ("reference", "value"):
        raise AssertionError(f"Opaque type must be either 'reference' or 'value', got {typ!r}")
    if cls in (int, float, str, bool, complex, list, dict, tuple, set, type(None)):
        raise ValueError(f"Unable to register built-in type {cls} as an opaque type. Please wrap it in a custom class and register "
                         "the custom class as opaque.")
    if typ == "value":
        for needed in ("__eq__", "__hash__", "__fx_repr__"):
            if getattr(cls, needed, None) in (None, getattr(object, needed, None)):
                raise TypeError(f"Value-type opaque object of type {cls} is expected to have a non-default `{needed}` "
                                "method defined on it.")
        if guard_fn is not None:
            raise TypeError("No need to specify `guard_fn` for value-type opaque classes.")
    name = f"{cls.__module__}.{cls.__qualname__}"
    _types[cls] = _OpaqueTypeInfo(name, typ, guard_fn, members or {}, hoist, reconstruct_fn)


def get_opaque_obj_info(cls: Any) -> _OpaqueTypeInfo | None:
    """What was said of a class or of one above it."""
    return next((_types[base] for base in getattr(cls, "__mro__", ()) if base in _types), None)


def is_opaque_type(cls: Any) -> bool:
    """Whether a class, or its name in schemas, is registered."""
    return any(info.class_name == cls for info in _types.values()) if isinstance(cls, str) else get_opaque_obj_info(cls) is not None


def _is_typ(cls: Any, typ: str) -> bool:
    if isinstance(cls, str):
        return any(info.class_name == cls and info.opaque_typ == typ for info in _types.values())
    info = get_opaque_obj_info(cls)
    return info is not None and info.opaque_typ == typ


def is_opaque_value_type(cls: Any) -> bool:
    """Whether one is registered as a value."""
    return _is_typ(cls, "value")


def is_opaque_reference_type(cls: Any) -> bool:
    """Whether one is registered by reference."""
    return _is_typ(cls, "reference")


def is_opaque_value(value: object) -> bool:
    """Whether an object is of a registered class."""
    return is_opaque_type(type(value))


def should_hoist(cls: Any) -> bool:
    """Whether such an object becomes an input of a graph."""
    info = get_opaque_obj_info(cls)
    return info is not None and info.hoist


def has_members(cls: Any) -> bool:
    """Whether something was said of members."""
    info = get_opaque_obj_info(cls)
    return info is not None and bool(info.members)


def get_member_type(cls: Any, member_name: str) -> MemberType | None:
    """What was said of one."""
    info = get_opaque_obj_info(cls)
    return None if info is None else info.members.get(member_name)
