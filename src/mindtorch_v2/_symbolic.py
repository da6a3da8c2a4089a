"""torch.SymInt and its like: numbers that know how they follow from the sizes of a program's inputs.

Each is a number, the one of the example that is traced, and may be used as one. What is computed from it is such a number
again; a decision that it takes part in is noted as a guard of its ShapeEnv.
"""
from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C

Terms = dict[tuple[str, ...], int]            # a polynomial: products of names, each with its factor


class Expr:
    """How a number follows from symbols, as a polynomial of names; what is none is one name, such as (s0//2)."""

    def __init__(self, terms: Terms) -> None:
        self.terms = {names: factor for names, factor in terms.items() if factor}

    @staticmethod
    def of(value: Any) -> Expr:
        """The expression of a number, or the one that a name stands for."""
        if isinstance(value, (SymInt, SymFloat, SymBool)):
            return value.node.expr
        return Expr({(value,): 1}) if isinstance(value, str) else Expr({(): value})

    def __add__(self, other: Expr) -> Expr:
        return Expr({names: self.terms.get(names, 0) + other.terms.get(names, 0) for names in {**self.terms, **other.terms}})

    def __sub__(self, other: Expr) -> Expr:
        return self + other * Expr.of(-1)

    def __mul__(self, other: Expr) -> Expr:
        terms: Terms = {}
        for a, m in self.terms.items():
            for b, n in other.terms.items():
                names = tuple(sorted(a + b))
                terms[names] = terms.get(names, 0) + m * n
        return Expr(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __str__(self) -> str:
        parts = []
        for names, factor in sorted(self.terms.items(), key=lambda item: (-len(item[0]), item[0])):
            powers = [name if names.count(name) == 1 else f"{name}**{names.count(name)}" for name in sorted({*names})]
            shown = "*".join(powers if factor == 1 and names else [str(factor), *powers] if factor != -1 or not names
                             else ["-" + powers[0], *powers[1:]])
            parts.append(shown)
        return " + ".join(parts).replace("+ -", "- ") or "0"

    __repr__ = __str__


class SymNode:
    """What a symbolic number is: its expression, its value in the example, and the call that gives it (fn, args)."""

    def __init__(self, expr: Expr, hint: Any, shape_env: Any, origin: tuple[Callable[..., Any], tuple] | None = None) -> None:
        self.expr, self.hint, self.shape_env, self.origin = expr, hint, shape_env, origin

    def has_hint(self) -> bool:
        """True: there is an example."""
        return True

    def require_hint(self, fallback: Any = None) -> Any:
        """The value in the example."""
        return self.hint

    def maybe_as_int(self) -> int | None:
        """The value, where it follows from no symbol."""
        return self.hint if not any(self.expr.terms) else None

    def guard(self) -> Any:
        """The value, which the program goes by from here on."""
        if any(self.expr.terms) or isinstance(self.hint, bool):
            self.shape_env.note(self)
        return self.hint

    def __str__(self) -> str:
        return str(self.expr)

    __repr__ = __str__


def _environment(args: tuple) -> Any:
    return next(a.node.shape_env for a in args if isinstance(a, (SymInt, SymFloat, SymBool)))


def symbolic(expr: Any, hint: Any, shape_env: Any, origin: tuple[Callable[..., Any], tuple] | None = None) -> Any:
    """A symbolic number with that value."""
    cls = SymBool if isinstance(hint, bool) else SymInt if isinstance(hint, int) else SymFloat
    return cls(SymNode(expr if isinstance(expr, Expr) else Expr.of(str(expr)), hint, shape_env, origin))


def plain(value: Any) -> Any:
    """The number itself; no decision is noted."""
    return value.node.hint if isinstance(value, (SymInt, SymFloat, SymBool)) else value


_JOINED: dict[Any, Callable[[Expr, Expr], Expr]] = {
    operator.add: Expr.__add__, operator.sub: Expr.__sub__, operator.mul: Expr.__mul__}
_SHOWN: dict[Any, str] = {
    operator.floordiv: "({}//{})", operator.truediv: "({}/{})", operator.mod: "Mod({}, {})", operator.pow: "({}**{})",
    operator.lshift: "({}<<{})", operator.rshift: "({}>>{})", operator.and_: "({} & {})", operator.or_: "({} | {})",
    operator.xor: "({} ^ {})", operator.eq: "Eq({}, {})", operator.ne: "Ne({}, {})", operator.lt: "{} < {}",
    operator.le: "{} <= {}", operator.gt: "{} > {}", operator.ge: "{} >= {}", operator.not_: "Not({})"}
_NOTHING: dict[Any, int] = {operator.add: 0, operator.sub: 0, operator.mul: 1, operator.floordiv: 1}     # what changes no number
_OF_INTS = (operator.lshift, operator.rshift, operator.and_, operator.or_, operator.xor)
_OF_EQUALS = (operator.eq, operator.ne, operator.le, operator.ge)


def computed(fn: Callable[..., Any], *args: Any, name: str = "") -> Any:
    """A function of numbers, of which one at least is symbolic."""
    if len(args) == 2 and type(args[1]) is int and _NOTHING.get(fn) == args[1]:
        return args[0]
    if fn in (operator.add, operator.mul) and type(args[0]) is int and _NOTHING[fn] == args[0]:
        return args[1]
    exprs, hint = [Expr.of(a) for a in args], fn(*[plain(a) for a in args])
    if fn in _JOINED:
        expr = _JOINED[fn](exprs[0], exprs[1])
    else:
        expr = Expr.of(_SHOWN.get(fn, f"{name}({', '.join(['{}'] * len(args))})").format(*exprs))
    if fn in _OF_EQUALS and exprs[0] == exprs[1]:
        return hint                              # of one expression: no example is needed
    if not any(expr.terms) and not isinstance(hint, float):
        return hint
    return symbolic(expr, hint, _environment(args), (fn, args))


def _binary(fn: Callable[..., Any], turned: bool = False) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float, SymBool)):
            return NotImplemented
        return computed(fn, other, self) if turned else computed(fn, self, other)
    return method


class _Number:
    """What symbolic ints and floats share."""

    node: SymNode

    def __repr__(self) -> str:
        return str(self.node.expr)

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.node.hint, spec) if spec else str(self)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        return int(self.node.guard())

    def __float__(self) -> float:
        return float(self.node.guard())

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce__(self) -> Any:
        return type(self.node.hint), (self.node.hint,)

    def __neg__(self) -> Any:
        return computed(operator.mul, -1, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        number: Any = self
        return number if number >= 0 else -number


class SymInt(_Number, int):
    """An int that stands for a size."""

    _is_symbolic = True

    def __new__(cls, node: SymNode) -> SymInt:
        made = int.__new__(cls, node.hint)
        made.node = node
        return made

    __hash__ = int.__hash__

    def __index__(self) -> int:
        return int(self.node.guard())

    __trunc__ = __index__

    def __round__(self, ndigits: Any = None) -> Any:
        return self

    def is_integer(self) -> bool:
        """True."""
        return True

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other


class SymFloat(_Number, float):
    """A float computed from sizes."""

    def __new__(cls, node: SymNode) -> SymFloat:
        made = float.__new__(cls, node.hint)
        made.node = node
        return made

    __hash__ = float.__hash__


class SymBool:
    """A bool computed from sizes; asking for it notes a guard."""

    def __init__(self, node: SymNode) -> None:
        self.node = node

    def __bool__(self) -> bool:
        return bool(self.node.guard())

    def __int__(self) -> int:
        return int(bool(self))

    def __repr__(self) -> str:
        return str(self.node.expr)

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(bool(self))

    def __and__(self, other: Any) -> Any:
        return computed(operator.and_, self, other)

    def __or__(self, other: Any) -> Any:
        return computed(operator.or_, self, other)

    def __invert__(self) -> Any:
        return computed(operator.not_, self)

    __rand__, __ror__ = __and__, __or__


for _fn in (*_JOINED, *_SHOWN):
    for _class in (SymInt,) if _fn in _OF_INTS else () if _fn is operator.not_ else (SymInt, SymFloat):
        _name = _fn.__name__.rstrip("_")
        setattr(_class, f"__{_name}__", _binary(_fn))
        if hasattr(int, f"__r{_name}__"):
            setattr(_class, f"__r{_name}__", _binary(_fn, turned=True))
SymInt.__hash__, SymFloat.__hash__ = int.__hash__, float.__hash__       # type: ignore[method-assign,assignment]
_C._register_class("SymInt", SymInt)
_C._register_class("SymFloat", SymFloat)


def _may_be_symbolic(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which computes a symbolic number of symbolic ones."""
    @functools.wraps(function)
    def called(*args: Any) -> Any:
        if any(isinstance(a, (SymInt, SymFloat, SymBool)) for a in args):
            return computed(called, *args, name=function.__name__.removeprefix("_").removeprefix("sym_"))
        return function(*args)
    return called


@_may_be_symbolic
def sym_float(a: Any) -> float:
    """float(a)"""
    return float(a)


@_may_be_symbolic
def sym_int(a: Any) -> int:
    """a without its fraction."""
    return math.floor(a) if a >= 0 else math.ceil(a)


@_may_be_symbolic
def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float where either is one."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


@_may_be_symbolic
def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float where either is one."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


@_may_be_symbolic
def sym_not(a: Any) -> bool:
    """not a"""
    return not a


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """t if b else f"""
    return t if b else f


def sym_fresh_size(expr: Any) -> Any:
    """The size itself."""
    return expr


@_may_be_symbolic
def _sym_acos(a: Any) -> float:
    """The inverse cosine of a number."""
    return math.acos(a)


@_may_be_symbolic
def _sym_asin(a: Any) -> float:
    """The inverse sine."""
    return math.asin(a)


@_may_be_symbolic
def _sym_atan(a: Any) -> float:
    """The inverse tangent."""
    return math.atan(a)


@_may_be_symbolic
def _sym_cos(a: Any) -> float:
    """The cosine."""
    return math.cos(a)


@_may_be_symbolic
def _sym_cosh(a: Any) -> float:
    """The hyperbolic cosine."""
    return math.cosh(a)


@_may_be_symbolic
def _sym_log2(a: Any) -> float:
    """The logarithm to base 2."""
    return math.log2(a)


@_may_be_symbolic
def _sym_sin(a: Any) -> float:
    """The sine."""
    return math.sin(a)


@_may_be_symbolic
def _sym_sinh(a: Any) -> float:
    """The hyperbolic sine."""
    return math.sinh(a)


@_may_be_symbolic
def _sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


@_may_be_symbolic
def _sym_tan(a: Any) -> float:
    """The tangent."""
    return math.tan(a)


@_may_be_symbolic
def _sym_tanh(a: Any) -> float:
    """The hyperbolic tangent."""
    return math.tanh(a)


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, or of one list of them."""
    return sum(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)


sym_sqrt = _sym_sqrt
functions = (_sym_acos, _sym_asin, _sym_atan, _sym_cos, _sym_cosh, _sym_log2, _sym_sin, _sym_sinh, _sym_sqrt, _sym_tan, _sym_tanh)
