"""torch.utils.deterministic: whether uninitialized memory is filled while deterministic algorithms are enabled."""
from __future__ import annotations

import sys
import types

import mindtorch_v2 as torch


class _Module(types.ModuleType):
    """The module: its setting is an attribute that is checked."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether torch.empty() and its like give NaN, or the largest number, while deterministic algorithms are asked for."""
        return torch._config.fills_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
        torch._config.set_fills_memory(mode)


sys.modules[__name__].__class__ = _Module
