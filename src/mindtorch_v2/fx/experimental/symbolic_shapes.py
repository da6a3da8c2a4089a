"""Names that programs ask of symbolic shapes. Sizes are plain ints here, so every question has its answer at once."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch


class GuardOnDataDependentSymNode(RuntimeError):
    """A question about a size that only the values of a tensor decide."""


class PendingUnbackedSymbolNotFound(RuntimeError):
    """Never raised: there are no symbols."""


class ConstraintViolationError(RuntimeError):
    """A size that breaks a promise about it."""


class ShapeEnv:
    """What torch keeps symbols in; there are none, so nothing is kept and nothing is specialised."""

    def __init__(self, **kwargs: Any) -> None:
        self.settings = kwargs
        self.pending_fresh_unbacked_symbols: list[Any] = []
        self.guards: list[Any] = []
        self.var_to_val: dict[Any, Any] = {}

    @contextlib.contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """Changes nothing."""
        yield

    def create_unbacked_symint(self) -> Any:
        """Refuses: sizes are plain ints."""
        raise NotImplementedError("[ShapeEnv] sizes are plain ints in mindtorch_v2; there are no symbols")


def is_symbolic(val: Any) -> bool:
    """False: sizes are plain ints."""
    return False


is_nested_int = is_concrete_int = is_concrete_bool = is_concrete_float = is_symbolic


def statically_known_true(x: Any) -> bool:
    """Whether x is true."""
    return bool(x)


def guard_size_oblivious(expr: Any) -> bool:
    """Whether the expression holds."""
    return bool(expr)


guard_or_true = guard_or_false = definitely_true = guard_size_oblivious


def sym_eq(x: Any, y: Any) -> bool:
    """Whether two sizes, or lists of them, are equal."""
    return x == y


def guard_int(a: Any) -> int:
    """The int."""
    return int(a)


def guard_bool(a: Any) -> bool:
    """The bool."""
    return bool(a)


def guard_float(a: Any) -> float:
    """The float."""
    return float(a)


guard_scalar = guard_int


def hint_int(a: Any, fallback: int | None = None) -> int:
    """The int."""
    return int(a)


size_hint = hint_int


def has_hint(a: Any) -> bool:
    """True: the value is known."""
    return True


def has_free_symbols(val: Any) -> bool:
    """False: there are no symbols."""
    return False


has_free_unbacked_symbols = has_static_value = has_free_symbols


def free_symbols(val: Any) -> set[Any]:
    """None: there are no symbols."""
    return set()


free_unbacked_symbols = free_symbols


def constrain_range(a: Any, *, min: int | None, max: int | None = None) -> None:
    """Raises where a size lies outside of a range."""
    if min is not None and a < min or max is not None and a > max:
        raise ValueError(f"Invalid value {a} for range [{min}:{max}]")


def constrain_unify(a: Any, b: Any) -> None:
    """Raises where two sizes differ."""
    if a != b:
        raise AssertionError(f"{a} != {b}")


def parallel_or(*args: Any) -> bool:
    """Whether one of the functions gives true."""
    return any(arg() for arg in args)


def parallel_and(*args: Any) -> bool:
    """Whether all of the functions give true."""
    return all(arg() for arg in args)


def find_symbol_binding_fx_nodes(graph: Any) -> dict[Any, Any]:
    """None: there are no symbols."""
    return {}

torch._named.complete(__name__)
