"""torch._check and its family, and small questions about objects."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2._C import TensorBase
from mindtorch_v2._tensor import Tensor


def _check_with(error_type: type, cond: Any, message: Callable[[], object] | None) -> None:
    """Raises error_type unless cond."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        text = ("Expected cond to be True, but got False. (Could this error message be improved? If so, please "
                "report an enhancement request to PyTorch.)")
    elif not callable(message):
        raise TypeError("message must be a callable")
    else:
        text = str(message())
    raise error_type(text)


def _check(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises RuntimeError unless cond."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises IndexError unless cond."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises ValueError unless cond."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises TypeError unless cond."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises NotImplementedError unless cond."""
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(error_type: type, cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises an error of that type where any item of a tensor of conditions is False."""
    if not isinstance(cond, TensorBase):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    _check_with(error_type, bool(cond.all().item()), message)


def _check_tensor_all(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raises RuntimeError unless every item of the bool tensor holds."""
    if not isinstance(cond, TensorBase):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if str(cond.dtype) != "torch.bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(RuntimeError, bool(cond.all().item()), message)


def _check_is_size(i: Any, message: Callable[[], str] | None = None, *, max: int | None = None) -> None:
    """Raises RuntimeError unless i is a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def typename(obj: Any) -> str:
    """The type of an object as text: `torch.FloatTensor` for tensors, else the qualified name."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    module = getattr(obj, "__module__", "") or ""
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None)
    if name is None or isinstance(obj, type) is False and not callable(obj):
        module, name = getattr(type(obj), "__module__", "") or "", type(obj).__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def is_nonzero(input: Any) -> bool:
    """Whether the one item of the tensor is not zero."""
    if input.numel() != 1:
        word = "no values" if input.numel() == 0 else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {word} is ambiguous")
    return bool(input)


def is_same_size(input: Any, other: Any) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


def is_distinct(input: Any, other: Any) -> bool:
    """Whether two objects are different tensors."""
    return input is not other


def _assert_async(input: Any, assert_msg: str | None = None) -> None:
    """Raises RuntimeError unless the one item of the tensor is nonzero."""
    if not is_nonzero(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def compiled_with_cxx11_abi() -> bool:
    """True: the core is built with the C++ library's ABI of 2011 and later."""
    return True


asserts: dict[str, Any] = {function.__name__: function for function in (
    _check, _check_with, compiled_with_cxx11_abi,
    _check_index, _check_value, _check_type, _check_not_implemented, _check_tensor_all, _check_tensor_all_with, _check_is_size,
    _assert_async,
    typename, is_nonzero, is_same_size)}
