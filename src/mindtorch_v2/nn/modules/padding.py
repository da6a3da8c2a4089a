"""Padding layers: constant, zero, reflection, replication and circular."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn import functional as F
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.modules.utils import _ntuple

Tensor = torch.Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d",
    "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d",
]  # fmt: skip


class _PadNd(Module):
    """A padding of the last dimensions; the subclasses say how many and in which mode."""

    __constants__ = ["padding"]
    _ndim = 0
    _mode = ""

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._ndim)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    """A padding with one value."""

    __constants__ = ["padding", "value"]
    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        n = self._ndim
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)


class ConstantPad1d(_ConstantPadNd):
    """Pads lines with a value."""

    _ndim = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads planes with a value."""

    _ndim = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads volumes with a value."""

    _ndim = 3


class _Zero(_ConstantPadNd):
    """The constructor and repr of a constant padding with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_Zero, ConstantPad1d):
    """Pads lines with zeros."""


class ZeroPad2d(_Zero, ConstantPad2d):
    """Pads planes with zeros."""


class ZeroPad3d(_Zero, ConstantPad3d):
    """Pads volumes with zeros."""


class ReflectionPad1d(_ReflectionPadNd):
    """Mirrors lines at their ends."""

    _ndim = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Mirrors planes at their edges."""

    _ndim = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Mirrors volumes at their faces."""

    _ndim = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the ends of lines."""

    _ndim = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Repeats the edges of planes."""

    _ndim = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Repeats the faces of volumes."""

    _ndim = 3


class CircularPad1d(_CircularPadNd):
    """Wraps lines around."""

    _ndim = 1


class CircularPad2d(_CircularPadNd):
    """Wraps planes around."""

    _ndim = 2


class CircularPad3d(_CircularPadNd):
    """Wraps volumes around."""

    _ndim = 3
