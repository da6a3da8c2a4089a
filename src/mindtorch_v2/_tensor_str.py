"""torch._tensor_str: how tensors print, for packages that print parts of them."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._printing import _contents, printoptions, set_printoptions, tensor_repr
from mindtorch_v2._printing import _options as PRINT_OPTS

__all__ = ["PRINT_OPTS", "printoptions", "set_printoptions"]


def _tensor_str(self: Any, indent: int) -> str:
    """The numbers of a tensor, as its repr shows them."""
    return _contents(self.detach(), indent) if self.numel() else "[]"


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The repr of a tensor; tensor_contents replaces the numbers."""
    return tensor_repr(self, tensor_contents=tensor_contents)
