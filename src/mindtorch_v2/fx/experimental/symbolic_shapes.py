"""ShapeEnv, which names the sizes of a traced program's inputs, and questions about such sizes."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import mindtorch_v2 as torch

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class GuardOnDataDependentSymNode(RuntimeError):
    """A question about a size that only the values of a tensor decide."""


class PendingUnbackedSymbolNotFound(RuntimeError):
    """Never raised: a symbol has a value."""


class ConstraintViolationError(RuntimeError):
    """A size that breaks a promise about it."""


class ShapeEnv:
    """The symbols of a traced program, their values in its example, and the decisions that were made by these."""

    def __init__(self, *, specialize_zero_one: bool | None = None, duck_shape: bool | None = None, **kwargs: Any) -> None:
        self.settings = kwargs
        self.specialize_zero_one = specialize_zero_one is None or specialize_zero_one
        self.duck_shape = duck_shape is None or duck_shape
        self.pending_fresh_unbacked_symbols: list[Any] = []
        self.guards: list[ShapeGuard] = []
        self.var_to_val: dict[str, int] = {}
        self.val_to_var: dict[int, str] = {}
        self._suppressed = 0

    def fresh_name(self, value: int) -> str:
        """A new symbol with that value."""
        name = f"s{len(self.var_to_val)}"
        self.var_to_val[name] = value
        return name

    def name_of(self, value: int) -> str:
        """The symbol of a size of an input: one for all of that value."""
        if not self.duck_shape:
            return self.fresh_name(value)
        if value not in self.val_to_var:
            self.val_to_var[value] = self.fresh_name(value)
        return self.val_to_var[value]

    def create_symintnode(self, sym: Any, *, hint: int | None, source: Any = None) -> Any:
        """The number that a symbol, or an expression, stands for."""
        if isinstance(sym, int):
            return int(sym)
        if hint is None:
            raise self._unbacked()
        return torch._symbolic.symbolic(sym, hint, self)

    def create_symbol(self, val: int, source: Any = None, **kwargs: Any) -> Any:
        """The symbol of a size of an input; 0 and 1 are themselves."""
        return val if self.specialize_zero_one and val in (0, 1) else self.name_of(val)

    def note(self, node: Any) -> None:
        """Keeps a decision, once."""
        held = str(node) if isinstance(node.hint, bool) else f"Eq({node}, {node.hint})"
        shown = held if node.hint or not isinstance(node.hint, bool) else f"Not({held})"
        if not self._suppressed and all(guard.expr != shown for guard in self.guards):
            self.guards.append(ShapeGuard(shown))

    def format_guards(self, verbose: bool = False) -> str:
        """The decisions, one a line."""
        return "\n".join(f" - {guard.expr}" for guard in self.guards)

    @contextlib.contextmanager
    def suppress_guards(self) -> Iterator[None]:
        """A with block in which decisions are not kept."""
        self._suppressed += 1
        try:
            yield
        finally:
            self._suppressed -= 1

    def _unbacked(self) -> NotImplementedError:
        return NotImplementedError("[ShapeEnv] a symbol has the value of an example in mindtorch_v2; there are none without")

    def create_unbacked_symint(self) -> Any:
        """Refuses: a symbol has a value."""
        raise self._unbacked()


class ShapeGuard(NamedTuple):
    """A decision about sizes that the program went by."""
    expr: str
    sloc: Any = None


def is_symbolic(val: Any) -> bool:
    """Whether a number follows from symbols."""
    return isinstance(val, _SYMBOLIC) and val.node.maybe_as_int() is None


def is_nested_int(val: Any) -> bool:
    """False: those of nested tensors are plain."""
    return False


def is_concrete_int(a: Any) -> bool:
    """Whether an int follows from no symbol."""
    return isinstance(a, int) and not is_symbolic(a)


def is_concrete_bool(a: Any) -> bool:
    """Whether a bool follows from no symbol."""
    return isinstance(a, bool)


def is_concrete_float(a: Any) -> bool:
    """Whether a float follows from no symbol."""
    return isinstance(a, float) and not is_symbolic(a)


def statically_known_true(x: Any) -> bool:
    """Whether x is true whatever the sizes are."""
    return False if isinstance(x, torch.SymBool) else bool(x)


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
    """The int; no decision is noted."""
    return int(torch._symbolic.plain(a))


size_hint = hint_int


def has_hint(a: Any) -> bool:
    """True: the value is known."""
    return True


def free_symbols(val: Any) -> set[str]:
    """The symbols in numbers, and in the sizes of tensors."""
    if isinstance(val, torch.Tensor):
        return free_symbols(tuple(val.shape))
    if isinstance(val, (tuple, list)):
        return {name for item in val for name in free_symbols(item)}
    if not is_symbolic(val):
        return set()
    return {*re.findall(r"\bs\d+\b", str(val.node.expr))}


def has_free_symbols(val: Any) -> bool:
    """Whether there are symbols in it."""
    return bool(free_symbols(val))


def has_static_value(a: Any) -> bool:
    """Whether a number follows from no symbol."""
    return not is_symbolic(a)


def has_free_unbacked_symbols(val: Any) -> bool:
    """False: a symbol has a value."""
    return False


def free_unbacked_symbols(val: Any) -> set[Any]:
    """None: a symbol has a value."""
    return set()


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
