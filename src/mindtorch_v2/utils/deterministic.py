"""torch.utils.deterministic: whether memory that is not set is filled where deterministic algorithms are asked for."""
from __future__ import annotations

import sys
import types
from typing import Any


class _Module(types.ModuleType):
    """The module: its setting is an attribute that is checked."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """False: torch.empty() leaves its memory as it is, whatever algorithms are asked for."""
        return False

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: Any) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"expected a bool, but got {type(mode).__name__}")
        if mode:
            raise NotImplementedError("[torch.utils.deterministic] filling memory that is not set is not offered; use torch.zeros "
                                      "or torch.full in place of torch.empty")


sys.modules[__name__].__class__ = _Module
