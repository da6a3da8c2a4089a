"""What both pass managers share: a list of passes and the constraints on their order."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any


class PassList:
    """Passes and constraints; a change of either has them validated again."""

    passes: list[Any]
    constraints: list[Any]
    _validated: bool = False

    def __init__(self, passes: list[Any] | None, constraints: list[Any] | None) -> None:
        self.passes, self.constraints = passes or [], constraints or []

    def add_pass(self, _pass: Callable[..., Any]) -> None:
        """Adds a pass."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Callable[..., bool]) -> None:
        """Adds a constraint on the order."""
        self.constraints.append(constraint)
        self._validated = False

    def _validate(self) -> None:
        """Raises where the order of the passes breaks a constraint."""
        if not self._validated:
            for constraint in self.constraints:
                validate_order(constraint, self.passes)
            self._validated = True


def validate_order(constraint: Callable[..., bool], passes: list[Any]) -> None:
    """Raises where two passes break a constraint."""
    for i, a in enumerate(passes):
        for j, b in enumerate(passes[i + 1:]):
            if not constraint(a, b):
                raise RuntimeError(f"pass schedule constraint violated. Expected {a} before {b} but found {a} at index {i} "
                                   f"and {b} at index{j} in pass list.")
