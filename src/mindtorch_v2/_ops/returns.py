"""Named tuples for ops with several results, as torch.return_types has them."""
from __future__ import annotations

import copyreg
from typing import Any

from mindtorch_v2 import _C

return_types: dict[str, type] = {}
_fields: dict[type, tuple[str, ...]] = {}


def _rebuild(name: str, fields: tuple[str, ...], values: tuple) -> Any:
    return _class_of(name, fields)(values)


def _reduce(results: Any) -> tuple[Any, ...]:
    return _rebuild, (type(results).__name__, _fields[type(results)], tuple(results))


def _class_of(name: str, fields: tuple[str, ...]) -> Any:
    known = return_types.get(name)
    if known is None or _fields[known] != fields:
        known = return_types[name] = _C._named_results(name, fields)
        _fields[known] = fields
        copyreg.pickle(known, _reduce)
    return known


def returns_class(name: str, returns: list[tuple[str, str]], out: bool = False) -> type | None:
    """The class of an op's results, or of what was written to out=; None when they have no names."""
    fields = tuple(field for _, field in returns)
    if len(fields) < 2 or not all(fields):
        return None
    return _class_of(name + "_out" * out, fields)
