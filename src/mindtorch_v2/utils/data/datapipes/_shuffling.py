"""The settings that both shufflers share: whether they shuffle, and the seed of the next pass."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


class Shuffling:
    """set_shuffle() and set_seed() of a pipe with random order."""

    _enabled = True
    _seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> Any:
        """Whether it shuffles."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Any:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def _next_seed(self) -> int:
        """The seed of the pass that begins: the one that was set, for one pass only, or a random one."""
        seed = int(torch.empty((), dtype=torch.int64).random_().item()) if self._seed is None else self._seed
        self._seed = None
        return seed
