"""The schema of an op, from the annotations of the function that computes it."""
from __future__ import annotations

import collections.abc
import functools
import inspect
import itertools
import sys
import typing
from collections.abc import Callable, Iterable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["infer_schema", "supported_param", "tuple_to_list"]

_Fail = Callable[[str], ValueError]
UNKNOWN_MUTATES = "unknown"
_SEQUENCES: tuple[Any, ...] = (typing.Sequence, typing.List, collections.abc.Sequence, list)    # noqa: UP006  (torch names these)


@functools.cache
def _types() -> dict[Any, str]:
    """What a parameter may be annotated with, and how a schema writes it."""
    number, optional = typing.Union[int, float, bool], typing.Optional
    # (type, word, whether in a list, in an optional list, in a list of optionals)
    plain = [(torch.Tensor, "Tensor", True, True, False), (int, "SymInt", True, False, True), (float, "float", True, False, True),
             (bool, "bool", True, False, True), (str, "str", False, False, False), (number, "Scalar", True, False, False),
             (torch.dtype, "ScalarType", False, False, False), (torch.device, "Device", False, False, False)]
    made: dict[Any, str] = {}
    for base, word, listed, of_optionals, optional_list in plain:
        made[base], made[optional[base]] = word, f"{word}?"
        lists = [each[base] for each in _SEQUENCES] if listed else []
        made |= dict.fromkeys(lists, f"{word}[]")
        if of_optionals:
            made |= {each[optional[base]]: f"{word}?[]" for each in _SEQUENCES}
        if optional_list:
            made |= {optional[each]: f"{word}[]?" for each in lists}
    return made


_RETURNS: dict[Any, str] = {int: "SymInt", float: "float", bool: "bool", typing.Union[int, float, bool]: "Scalar"}
_MUTABLE = ("Tensor", "Tensor?", "Tensor[]", "Tensor?[]")


def supported_param(param: inspect.Parameter) -> bool:
    """Whether an op can have a parameter of this kind."""
    return param.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def tuple_to_list(tuple_type: Any) -> Any:
    """The list that stands for a tuple type: of its one type, or of any of its types."""
    kinds: Any = typing.get_args(tuple_type)
    if tuple_type in (typing.Tuple, tuple) or kinds in ((), ((),)):      # noqa: UP006
        return list
    if len(kinds) == 1 or len(kinds) == 2 and kinds[1] is Ellipsis:
        return list.__class_getitem__(kinds[0])
    return list.__class_getitem__(typing.Union.__getitem__(tuple(kinds)))


def _read(annotation: Any, function: Any, fail: _Fail) -> Any:
    """An annotation that was given as text."""
    if not isinstance(annotation, str):
        return annotation
    space = vars(sys.modules.get(function.__module__, typing)) if hasattr(function, "__module__") else {}
    try:
        return eval(annotation, {"torch": torch, "typing": typing, "Tensor": torch.Tensor, **vars(typing), **space})
    except Exception:
        raise fail(f"Unsupported type annotation {annotation}. It is not a type.") from None


def _default(value: Any, name: str, fail: _Fail) -> str:
    """A default as a schema writes it."""
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, (str, torch.device)):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return str(value).rpartition(".")[2]
    raise fail(f"Parameter {name} has an unsupported default value type {type(value)}. Please file an issue on GitHub so "
               "we can prioritize this.")


def _param_type(name: str, annotation: Any, fail: _Fail) -> str:
    known = _types()
    try:
        found = known.get(annotation)
    except TypeError:                            # nothing that can be a type
        found = None
    if found is not None:
        return found
    origin = typing.get_origin(annotation) or annotation
    if origin is tuple:
        listed = tuple_to_list(annotation)
        raise fail(f"Parameter {name} has unsupported type {annotation}. We do not support Tuple inputs in schema. As a "
             "workaround, please "
             f"try to use List instead. For example, {listed}.\n\nThe valid types are: {known.keys()}.")
    raise fail(f"Parameter {name} has unsupported type {annotation}. The valid types are: {known.keys()}.")


def _returns(annotation: Any, fail: _Fail) -> str:
    """The results, as a schema writes them."""
    if annotation is None:
        return "()"
    if annotation is inspect.Parameter.empty:
        raise fail("No return type annotation was provided. Please add one.")
    known = {torch.Tensor: "Tensor", **{each[torch.Tensor]: "Tensor[]" for each in (list, typing.List)}, **_RETURNS}   # noqa: UP006
    origin = typing.get_origin(annotation)
    if origin is not tuple:
        if annotation not in known:
            raise fail(f"Return has unsupported type {annotation}. The valid types are: {known}.")
        return known[annotation]
    parts = typing.get_args(annotation)
    for part in parts:
        if part not in known:
            raise fail(f"Return has unsupported type {annotation}. The valid types are: {known}.")
    return f"({', '.join(known[part] for part in parts)})"


def infer_schema(prototype_function: Callable[..., Any], /, *, mutates_args: str | Iterable[str], op_name: str | None = None,
                 tags: Any = ()) -> str:
    """The schema that a function's annotations say, such as (Tensor x, SymInt n=2) -> Tensor."""
    signature = inspect.signature(prototype_function)

    def fail(what: str) -> ValueError:
        return ValueError(f"infer_schema(func): {what} Got func with signature {signature})")

    parts: list[str] = []
    seen: set[str] = set()
    numbers = itertools.count()
    named_only = False
    for name, param in signature.parameters.items():
        if not supported_param(param):
            raise fail("We do not support positional-only args, varargs, or varkwargs.")
        if param.kind is inspect.Parameter.KEYWORD_ONLY and not named_only:
            parts.append("*")
            named_only = True
        if param.annotation is inspect.Parameter.empty:
            raise fail(f"Parameter {name} must have a type annotation.")
        kind = _param_type(name, _read(param.annotation, prototype_function, fail), fail)
        seen.add(name)
        if isinstance(mutates_args, str) and mutates_args != UNKNOWN_MUTATES:
            raise ValueError("mutates_args must either be a sequence of the names of the arguments that are mutated "
                             "or the string 'unknown'. ")
        if mutates_args == UNKNOWN_MUTATES and kind in _MUTABLE or mutates_args != UNKNOWN_MUTATES and name in mutates_args:
            if kind not in _MUTABLE:
                raise fail(f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated")
            kind = f"Tensor(a{next(numbers)}!){kind.removeprefix('Tensor')}"
        else:
            next(numbers)
        shown = f"{kind} {name}"
        parts.append(shown if param.default is inspect.Parameter.empty else f"{shown}={_default(param.default, name, fail)}")
    if mutates_args != UNKNOWN_MUTATES:
        unknown = set(mutates_args) - seen
        if unknown:
            raise fail(f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should "
                 "contain the names of "
                 "all args that the custom op mutates, or just the string 'unknown' if you don't know.")
    results = _returns(_read(signature.return_annotation, prototype_function, fail), fail)
    return f"{op_name or ''}({', '.join(parts)}) -> {results}"

