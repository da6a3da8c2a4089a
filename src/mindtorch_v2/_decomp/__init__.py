"""torch._decomp: the ops that are written with other ops. Here a row has one body, so an op's decomposition is its call."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mindtorch_v2 as torch

__all__ = ["core_aten_decompositions", "decomposition_table", "get_decompositions", "register_decomposition"]

_tree = torch.utils._pytree


def _written_with_others() -> dict[Any, Callable[..., Any]]:
    """Overload -> a function that runs its body: the overloads of ATen that have one."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in vars(torch._ops.ops):            # dir(torch.ops.aten) has only those that were asked for before
        packet: Any = getattr(torch.ops.aten, name, None)
        rows = {row.overload_name or "default": row for row in getattr(getattr(packet, "_op", None), "overloads", ())}
        for word in packet.overloads() if rows else ():
            row, overload = rows.get(word), getattr(packet, word)
            if row is not None and row.body is not None:
                found[overload] = overload
    return found


_own = _written_with_others()
# a reference is its op here: where the op has a kernel, decomposing ends with it
decomposition_table: dict[Any, Callable[..., Any]] = _own | torch._refs.decompositions()
pre_autograd_decomposition_table: dict[Any, Callable[..., Any]] = {}
meta_table: dict[Any, Callable[..., Any]] = {}
global_decomposition_table = {"post_autograd": decomposition_table, "pre_autograd": pre_autograd_decomposition_table,
                              "meta": meta_table}


def register_decomposition(aten_op: Any, registry: dict[Any, Any] | None = None, *, type: str = "post_autograd",
                           unsafe: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function is what an op, or each of several, is made of; all overloads where a packet is given."""
    if type not in global_decomposition_table:
        raise AssertionError(f"type must be one of {set(global_decomposition_table)}, got {type}")
    into = global_decomposition_table[type] if registry is None else registry

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in _tree.tree_leaves(aten_op):
            for overload in _overloads(op):
                if overload in into and registry is not None:
                    raise RuntimeError(f"duplicate registrations for {overload}")
                into[overload] = function
        return function
    return note


def _overloads(op: Any) -> list[Any]:
    return [getattr(op, name) for name in op.overloads()] if callable(getattr(op, "overloads", None)) else [op]


def get_decompositions(aten_ops: Iterable[Any], type: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    """The decompositions of these ops, as far as they have one."""
    table = global_decomposition_table[type]
    return {overload: table[overload] for op in aten_ops for overload in _overloads(op) if overload in table}


def remove_decompositions(decompositions: dict[Any, Callable[..., Any]], aten_ops: Iterable[Any]) -> None:
    """Take the decompositions of these ops out of a table."""
    for op in aten_ops:
        for overload in _overloads(op):
            decompositions.pop(overload, None)


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """All decompositions into other ops: what they are made of has a kernel."""
    return dict(_own)
