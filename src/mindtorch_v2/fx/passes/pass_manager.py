"""The older PassManager: passes that change a module in place, and constraints on their order."""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.passes._pass_list import PassList

__all__ = ["PassManager", "inplace_wrapper", "log_hook", "loop_pass", "this_before_that_pass_constraint",
           "these_before_those_pass_constraint"]


@compatibility(is_backward_compatible=False)
def inplace_wrapper(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A pass that changes an object in place, as one that gives it."""
    @wraps(fn)
    def wrapped(gm: Any) -> Any:
        fn(gm)
        return gm
    return wrapped


@compatibility(is_backward_compatible=False)
def log_hook(fn: Callable[[Any], Any], level: int = 20) -> Callable[[Any], Any]:
    """The pass itself; its calls are not logged."""
    return fn


@compatibility(is_backward_compatible=False)
def loop_pass(base_pass: Callable[[Any], Any], n_iter: int | None = None,
              predicate: Callable[..., bool] | None = None) -> Callable[[Any], Any]:
    """A pass that runs another one a number of times, or while something holds."""
    assert (n_iter is not None) ^ (predicate is not None), "Exactly one of `n_iter`or `predicate` must be specified."

    @wraps(base_pass)
    def looped(source: Any) -> Any:
        output = source
        if n_iter is not None:
            for _ in range(n_iter):
                output = base_pass(output)
            return output
        while predicate(output):   # type: ignore[misc]
            output = base_pass(output)
        return output
    return looped


@compatibility(is_backward_compatible=False)
def this_before_that_pass_constraint(this: Callable[..., Any], that: Callable[..., Any]) -> Callable[..., bool]:
    """A constraint: one pass runs before another."""
    return lambda a, b: a != that or b != this


@compatibility(is_backward_compatible=False)
def these_before_those_pass_constraint(these: Callable[..., Any], those: Callable[..., Any]) -> Callable[..., bool]:
    """The same for wrapped passes."""
    return lambda a, b: unwrap(a) != those or unwrap(b) != these


@compatibility(is_backward_compatible=False)
class PassManager(PassList):
    """Runs passes one after the other."""

    def __init__(self, passes: list[Any] | None = None, constraints: list[Any] | None = None) -> None:
        super().__init__(passes, constraints)

    @classmethod
    def build_from_passlist(cls, passes: list[Any]) -> PassManager:
        """A manager of some passes."""
        return cls(passes)

    def remove_pass(self, _passes: list[str]) -> None:
        """Takes out passes by their names."""
        self.passes = [p for p in self.passes if p.__name__ not in _passes]
        self._validated = False

    def validate(self) -> None:
        """Raises where the order of the passes breaks a constraint."""
        self._validate()

    def __call__(self, source: Any) -> Any:
        self.validate()
        for fn in self.passes:
            source = fn(source)
        return source
