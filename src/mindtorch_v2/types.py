"""torch.types: names for what functions take."""
from __future__ import annotations

import builtins
from typing import Any, Union

from mindtorch_v2._C import device, dtype
from mindtorch_v2._shape import Size
from mindtorch_v2._tensor import Tensor

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _size = dtype, device, Union[Size, list[int], tuple[int, ...]]
Number = (builtins.int, builtins.float, builtins.bool)
_Number = Number
Device = Union[device, str, int, None]
FileLike = Any
Storage = Any
_TensorOrTensors = Union[Tensor, tuple[Tensor, ...]]
