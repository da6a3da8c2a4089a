"""How much torch.distributed checks and says: TORCH_DISTRIBUTED_DEBUG."""
from __future__ import annotations

import enum
import os


class DebugLevel(enum.IntEnum):
    OFF, INFO, DETAIL = range(3)


def _of_environment() -> DebugLevel:
    word = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if word not in DebugLevel.__members__:
        raise RuntimeError("The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.")
    return DebugLevel[word]


_level: DebugLevel | None = None


def get_debug_level() -> DebugLevel:
    return _of_environment() if _level is None else _level


def set_debug_level(level: DebugLevel) -> None:
    global _level
    _level = level


def set_debug_level_from_env() -> None:
    global _level
    _level = _of_environment()
