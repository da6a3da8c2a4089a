"""torch._library.effects: ops whose calls must stay in order, although no result says so."""
from __future__ import annotations

from enum import Enum


class EffectType(Enum):
    """What an op does beside its results: ORDERED, calls of such ops stay in the order of the program."""

    ORDERED = "Ordered"


class EffectHolder:
    """The effect of one op."""

    def __init__(self, qualname: str) -> None:
        self.qualname = qualname
        self._effect: EffectType | None = None

    @property
    def effect(self) -> EffectType | None:
        """The effect, None of an op without."""
        return self._effect

    @effect.setter
    def effect(self, _: object) -> None:
        raise RuntimeError("Unable to directly set kernel.")

    def register(self, effect: EffectType | None) -> None:
        """Say what the op does."""
        self._effect = effect
