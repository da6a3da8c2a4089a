"""Named tuples for ops with several results, as torch.return_types has them."""
from __future__ import annotations

import operator
from typing import Any

return_types: dict[str, type] = {}


def _make(name: str, fields: tuple[str, ...]) -> type:
    def __repr__(self: tuple) -> str:
        shown = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{shown})"

    body: dict[str, Any] = {field: property(operator.itemgetter(i)) for i, field in enumerate(fields)}
    body.update(__slots__=(), _fields=fields, __repr__=__repr__, __module__="torch.return_types",
                n_fields=len(fields),
                __reduce__=lambda self: (_rebuild, (name, fields, tuple(self))))
    return type(name, (tuple,), body)


def _rebuild(name: str, fields: tuple[str, ...], values: tuple) -> Any:
    kind: Any = returns_class(name, [("Tensor", f) for f in fields])
    return kind(values)


def returns_class(name: str, returns: list[tuple[str, str]]) -> type | None:
    """The tuple class of an op's results; None when they have no names."""
    fields = tuple(field for _, field in returns)
    if len(fields) < 2 or not all(fields):
        return None
    known = return_types.get(name)
    if known is None or known._fields != fields:   # type: ignore[attr-defined]
        known = return_types[name] = _make(name, fields)
    return known
