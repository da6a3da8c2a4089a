"""torch._dynamo: nothing is captured, so marks are forgotten and functions stay themselves."""
from typing import Any

import mindtorch_v2 as torch

for _name in ("allow_in_graph", "assume_constant_result", "disable", "disallow_in_graph", "forbid_in_graph",
              "is_compiling", "list_backends", "reset", "run"):
    globals()[_name] = getattr(torch.compiler, _name)


def _mark(t: Any, *args: Any, **kwargs: Any) -> None:
    """Nothing to mark."""


mark_static_address = mark_static = mark_dynamic = maybe_mark_dynamic = mark_unbacked = _mark


def optimize(*args: Any, **kwargs: Any) -> Any:
    """A decorator that gives the function itself."""
    return lambda fn: fn


class OptimizedModule(torch.nn.Module):   # type: ignore[name-defined]
    """What torch.compile makes of a module in torch; here nothing is ever one."""


class eval_frame:
    """The place where torch has OptimizedModule."""

    OptimizedModule = OptimizedModule


def graph_break(msg: str = "") -> None:
    """Nothing to break."""
