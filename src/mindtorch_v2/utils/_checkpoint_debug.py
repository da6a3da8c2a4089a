"""debug=True of a checkpoint: the ops of forward and of the replay, shown side by side where they differ."""
from __future__ import annotations

import traceback
import weakref
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils._dtype_abbrs import dtype_abbrs
from mindtorch_v2.utils._python_dispatch import TorchDispatchMode
from mindtorch_v2.utils._pytree import tree_flatten, tree_map


class OpLog(TorchDispatchMode):
    """Notes every op with the numbers of its tensors, and where it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []
        self.places: list[list[str]] = []
        self.numbers: dict[int, tuple[Any, int]] = {}

    def name(self, x: Any) -> Any:
        """A tensor as its number; everything else as it is."""
        if not isinstance(x, torch.Tensor):
            return x
        known = self.numbers.get(id(x))
        if known is None or known[0]() is not x:
            known = self.numbers[id(x)] = weakref.ref(x), len(self.numbers)
        return _Shown(f"${known[1]}")

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        shown_args, shown_kwargs = tree_map(self.name, args), tree_map(self.name, kwargs or {})
        out = func(*args, **(kwargs or {}))
        results = ", ".join(f"{self.name(x)}: {dtype_abbrs.get(x.dtype, x.dtype)}{list(x.shape)}"
                            for x in tree_flatten(out)[0] if isinstance(x, torch.Tensor))
        given = ", ".join([*map(repr, shown_args), *(f"{k}={v!r}" for k, v in shown_kwargs.items())])
        self.ops.append(f"{results} = torch._ops.{func}({given})")
        self.places.append([line.rstrip() for line in traceback.format_stack()[:-1]])
        return out


class _Shown(str):
    """Text that repr does not quote."""

    def __repr__(self) -> str:
        return str(self)


def _headline(text: str) -> str:
    return f"+{'~' * 78}+\n|{text:^78}|\n+{'-' * 78}+\n"


def _places(log: OpLog, what: str) -> str:
    return "".join(f"\n{op}   ({i} of {len(log.ops)} in {what})\n\n" + "\n".join(place) + "\n\n"
                   for i, (op, place) in enumerate(zip(log.ops, log.places), 1))


def report(original: OpLog, replayed: OpLog) -> str:
    """Both logs in one text, as PyTorch lays it out."""
    return f"""\
 An error happened while unpacking tensors; dumping logs of latest computation
because you passed `debug=True` to `torch.utils.checkpoint.checkpoint()`.
Scroll all the way down for guidance on how to navigate these logs.

{_headline("1. Stack traces of the operators that ran in the original forward")}{_places(original, "original")}
{_headline("2. Stack traces of the operators that ran during recomputation")}{_places(replayed, "recompute")}
{_headline("3. Log of operators in the original forward and recomputation")}
Operations executed during the original forward:

{chr(10).join(original.ops)}

Operations executed during recomputation:

{chr(10).join(replayed.ops)}

+{'-' * 78}+
 ERROR: Detected non-determinism while running activation checkpointing

 You are seeing this error because you passed `debug=True` to checkpoint and
 the tensors that the original forward saved are not those that the
 recomputation saved: other ops ran. Compare the ops listed above, which stand
 in the order in which they ran; the stack traces say who called them.
{'-' * 80}
"""
