"""torch._tensor_str: how tensors print, for packages that print parts of them."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._printing import _contents, printoptions, set_printoptions, tensor_repr
from mindtorch_v2._printing import _options as PRINT_OPTS

__all__ = ["PRINT_OPTS", "printoptions", "set_printoptions"]


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The text of a tensor with what follows its numbers, on a line of its own where the last one is full, and closed."""
    texts, last = [tensor_str], len(tensor_str) - tensor_str.rfind("\n") + 1
    for suffix in suffixes:
        fits = not force_newline and last + len(suffix) + 2 <= PRINT_OPTS.linewidth
        texts.append((", " if fits else ",\n" + " " * indent) + suffix)
        last = last + len(suffix) + 2 if fits else indent + len(suffix)
        force_newline = False
    return "".join(texts) + ")"


def _str_intern(inp: Any, *, tensor_contents: str | None = None) -> str:
    """The repr of a tensor; tensor_contents replaces the numbers."""
    return tensor_repr(inp, tensor_contents=tensor_contents)


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor, as its repr shows them."""
    return _contents(self.detach(), indent) if self.numel() else "[]"


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The repr of a tensor; tensor_contents replaces the numbers."""
    return tensor_repr(self, tensor_contents=tensor_contents)
