"""torch.types: names for what functions take."""
from __future__ import annotations

import os
from builtins import bool as _bool  # noqa: F401
from builtins import bytes as _bytes  # noqa: F401
from builtins import complex as _complex  # noqa: F401
from builtins import float as _float  # noqa: F401
from builtins import int as _int  # noqa: F401
from builtins import str as _str  # noqa: F401
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from mindtorch_v2._C import device as _device
from mindtorch_v2._C import dtype as _dtype  # noqa: F401
from mindtorch_v2._C import layout as _layout  # noqa: F401
from mindtorch_v2._shape import Size
from mindtorch_v2._tensor import Tensor

__all__ = ["Number", "Device", "FileLike", "Storage"]

_size: TypeAlias = Size | list[int] | tuple[int, ...]
Number: TypeAlias = int | float | bool
_Number = (int, float, bool)        # for isinstance
Device: TypeAlias = _device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: TypeAlias = Any
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
