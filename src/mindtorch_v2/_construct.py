"""Tensors from data, and questions about objects: torch functions that are not ops."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._C import dtype as DType
from mindtorch_v2._dlpack import capsule_device
from mindtorch_v2._ops import ops
from mindtorch_v2._storage import UntypedStorage
from mindtorch_v2._tensor import Tensor
from mindtorch_v2._typed_storage import TypedStorage

_STRIDED = _C._named_constant("strided")


def _check_flag(name: str, requires_grad: Any) -> None:
    if not isinstance(requires_grad, bool):
        raise TypeError(f"{name}(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")


def _finish(made: Any, device: Any, requires_grad: bool, pin_memory: bool = False) -> Any:
    place = _C.get_default_device() if device is None else device
    made = _C._to(made, None, place, False, False, None)
    if pin_memory:
        made = made.pin_memory()
    return made._requires_grad_(True) if requires_grad else made


def tensor(data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False,
           pin_memory: bool = False) -> Tensor:
    """A new tensor with a copy of data."""
    _check_flag("tensor", requires_grad)
    if isinstance(data, TensorBase):
        warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).", stacklevel=2)
        device = data.device if device is None else device
        if data.layout is not _STRIDED:
            return _finish(data.detach().to(dtype=dtype, copy=True), device, requires_grad, pin_memory)
    return _finish(_C._from_data(data, dtype, False), device, requires_grad, pin_memory)


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """A tensor over data, sharing memory where dtype and device allow it."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    return _finish(_C._from_data(data, dtype, True), device, False)


def asarray(obj: Any, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None,
            requires_grad: bool | None = None) -> Tensor:
    """A tensor from nearly anything; copy says whether memory may be shared, requires_grad is that of obj unless given."""
    if requires_grad is not None:
        _check_flag("asarray", requires_grad)
    if isinstance(obj, (bytes, bytearray, memoryview, _C.StorageBase)):
        made = _C._core._from_buffer(obj, dtype or _C.get_default_dtype(), -1, 0)
        obj, copy = (made.clone(), False) if copy else (made, copy)
    if isinstance(obj, TensorBase):
        if copy is False and dtype is not None and dtype is not obj.dtype:
            raise ValueError(f"can't alias tensor with dtype '{_C.TYPE_WORDS[obj.dtype._id]}' into dtype "
                             f"'{_C.TYPE_WORDS[dtype._id]}'.")
        if copy is False and device is not None and _C.device(device) != obj.device:
            raise ValueError(f"can't alias tensor from device '{obj.device}' to '{device}'.")
        if requires_grad is None and obj.requires_grad:
            warnings.warn("torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. Pass "
                          "requires_grad=False explicitly to get the old behavior and silence this warning.", stacklevel=2)
        made = obj.to(device=device, dtype=dtype, copy=bool(copy))
    elif copy is False and getattr(obj, "shape", None) != () and hasattr(obj, "__array_interface__"):
        return asarray(as_tensor(obj), dtype=dtype, device=device, copy=False, requires_grad=requires_grad)
    elif copy is False and getattr(obj, "shape", None) == () and hasattr(obj, "__array__"):
        raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. ")
    elif copy is False and isinstance(obj, (list, tuple, range, bool, int, float, complex)):
        raise ValueError("can't alias arbitrary sequence into a tensor.")
    else:
        made = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    if requires_grad is None or requires_grad is made.requires_grad:
        return made
    return made._requires_grad_(True) if requires_grad else made.detach()       # of obj itself where that is what there is


def from_numpy(ndarray: Any) -> Tensor:
    """A tensor that shares an array's memory."""
    if "ndarray" not in [kind.__name__ for kind in type(ndarray).__mro__]:
        kind = type(ndarray)
        raise TypeError(f"expected np.ndarray (got {'numpy.' * (kind.__module__ == 'numpy')}{kind.__name__})")
    return _C._from_array(ndarray)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-D tensor over the memory of a buffer."""
    _check_flag("frombuffer", requires_grad)
    made = _C._core._from_buffer(buffer, dtype, count, offset)
    return made._requires_grad_(True) if requires_grad else made


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's array."""
    if not hasattr(ext_tensor, "__dlpack__"):
        assert device is None and copy is None, "device and copy kwargs not supported when ext_tensor is already a DLPack capsule."
        return _C._from_dlpack(ext_tensor)
    options: dict[str, Any] = {} if copy is None else {"copy": copy}
    if device is not None:
        options["dl_device"] = capsule_device(_C.device(device))
    ext_tensor.__dlpack_device__()
    try:
        return _C._from_dlpack(ext_tensor.__dlpack__(max_version=(1, 0), **options))
    except TypeError:                # made before DLPack 1.0
        return _C._from_dlpack(ext_tensor.__dlpack__(**options))


def is_tensor(obj: Any) -> bool:
    """Whether an object is a tensor."""
    return isinstance(obj, TensorBase)


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (_C.StorageBase, TypedStorage))


def _question(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A question about a tensor, which classes that take functions over answer themselves."""
    @functools.wraps(function)
    def ask(input: Any) -> Any:
        if isinstance(input, TensorBase):
            return function(input)
        if hasattr(type(input), "__torch_function__"):
            return input.__torch_function__(ask, (type(input),), (input,), {})
        raise TypeError(f"{function.__name__}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return ask


@_question
def is_floating_point(input: Any) -> bool:
    """Whether the items are floats."""
    return input.is_floating_point()


@_question
def is_complex(input: Any) -> bool:
    """Whether the items are complex numbers."""
    return input.is_complex()


@_question
def is_signed(input: Any) -> bool:
    """Whether the items may be negative."""
    return input.is_signed()


@_question
def is_conj(input: Any) -> bool:
    """Whether the conjugate bit is set: never, conj() computes at once."""
    return input.is_conj()


@_question
def is_neg(input: Any) -> bool:
    """Whether the negative bit is set: never, it computes at once."""
    return input.is_neg()


@_question
def is_inference(input: Any) -> bool:
    """Whether it was made in inference mode."""
    return input.is_inference()


@_question
def is_distributed(input: Any) -> bool:
    """False: a tensor is of one process."""
    return input.is_distributed()


@_question
def get_device(input: Any) -> int:
    """The index of the device; -1 on the CPU."""
    return input.get_device()


def from_file(filename: str, shared: bool | None = None, size: int = 0, *, dtype: DType | None = None, layout: Any = None,
              device: Any = None, pin_memory: bool = False, requires_grad: bool = False) -> Tensor:
    """A tensor over a file: with shared, what is written to it goes to the file; else changes stay here."""
    if pin_memory or device is not None and _C.device(device).type != "cpu":
        raise RuntimeError("tensors constructed from a file cannot be pinned, and lie on the CPU")
    dtype = dtype or _C.get_default_dtype()
    storage = UntypedStorage.from_file(filename, bool(shared), size * dtype.itemsize)
    made = _C._from_data([], dtype, False).set_(storage, 0, (size,), (1,))
    return made._requires_grad_(True) if requires_grad else made


@_question
def numel(input: Any) -> int:
    """How many items there are."""
    return input.numel()


def is_grad_enabled() -> bool:
    """Whether operations are recorded for backward in this thread."""
    return _C._is_grad_enabled()


def is_inference_mode_enabled() -> bool:
    """Whether inference mode is on in this thread."""
    return _C._is_inference_mode()


def result_type(tensor1: Any, tensor2: Any) -> DType:
    """The dtype of an op between the two, each a tensor or a number."""
    return _C._core._result_type((tensor1, tensor2))


ops.result_type = result_type
