"""torch.utils._python_dispatch: modes and tensor classes that see every op below autograd."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

_C = torch._C

__all__ = ["TorchDispatchMode", "is_traceable_wrapper_subclass", "return_and_correct_aliasing",
           "transform_subclass"]


class TorchDispatchMode:
    """A with block in which __torch_dispatch__ of the mode sees every op that has a kernel, after autograd."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _C._push_dispatch_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C._pop_dispatch_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """Makes a mode."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether the mode is one of torch's own."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that calls every op as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    """The innermost mode, or None."""
    stack = _C._dispatch_mode_stack()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    """The modes of the running thread, innermost last."""
    return _C._dispatch_mode_stack()


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is open."""
    return bool(_C._dispatch_mode_stack())


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Whether a mode is open."""
    return bool(_C._dispatch_mode_stack())


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    """A with block without the innermost mode."""
    mode = _C._pop_dispatch_mode()
    try:
        yield mode
    finally:
        _C._push_dispatch_mode(mode)


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """A with block in which no dispatch mode is open."""
    closed = []
    while _C._dispatch_mode_stack():
        closed.append(_C._pop_dispatch_mode())
    try:
        yield closed[::-1]
    finally:
        for mode in reversed(closed):
            _C._push_dispatch_mode(mode)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether t is a wrapper that can be taken apart and put together again."""
    kind = t if isinstance(t, type) else type(t)
    return (issubclass(kind, torch.Tensor) and kind is not torch.Tensor and hasattr(kind, "__tensor_flatten__")
            and hasattr(kind, "__tensor_unflatten__"))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """is_traceable_wrapper_subclass of a class."""
    return is_traceable_wrapper_subclass(t)


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None,
                       outer_stride: Any = None) -> Any:
    """The wrapper with its inner tensors replaced by callback(name, tensor)."""
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, stride)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What __torch_dispatch__ returns: an op that changes its argument gives that argument back."""
    name = func.overloadpacket.__name__
    if name.endswith("_") and not name.startswith("__"):
        return args[0]
    return out

torch._named.complete(__name__)
