"""set_trace: a breakpoint at the beginning of a graph module's code."""
from __future__ import annotations

from typing import Any

__all__ = ["set_trace"]


def set_trace(gm: Any) -> Any:
    """The module, whose code begins with a breakpoint."""
    def insert(body: list[str]) -> list[str]:
        return ["import pdb; pdb.set_trace()\n", *body]
    gm.graph.on_generate_code(lambda current: lambda body: insert(current(body) if current else body))
    gm.recompile()
    return gm
