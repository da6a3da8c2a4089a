"""torch.overrides: how classes and modes take over torch functions."""
from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mindtorch_v2 import _C, _ops
from mindtorch_v2._C import TensorBase
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl


def _overrides(x: Any) -> bool:
    kind = type(x)
    if kind is Tensor or not hasattr(kind, "__torch_function__"):
        return False
    return kind.__torch_function__ is not _disabled_torch_function_impl


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument's class, or a mode in force, overrides torch functions."""
    if _C._is_function_off():
        return False
    return bool(_modes()) or any(_overrides(x) for x in relevant_args)


def has_torch_function_unary(arg: Any) -> bool:
    """has_torch_function of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """has_torch_function of the arguments given."""
    return has_torch_function(args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any,
                          **kwargs: Any) -> Any:
    """Asks modes and overriding arguments for the result of a function."""
    overriding: list[Any] = []
    for x in relevant_args:
        if _overrides(x) and type(x) not in [type(o) for o in overriding]:
            place = next((i for i, o in enumerate(overriding) if issubclass(type(x), type(o))), len(overriding))
            overriding.insert(place, x)
    kinds = tuple(type(o) for o in overriding)
    if _modes():
        mode = _modes()[-1]
        with _outside(mode):
            result = mode.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    for x in overriding:
        result = x.__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: {list(kinds)}")


def _assert(condition: Any, message: str) -> None:
    """torch._assert: assert as a function, which a class may take over."""
    if type(condition) is not Tensor and has_torch_function_unary(condition):
        return handle_torch_function(_assert, (condition,), condition, message)
    assert condition, message
    return None


def _modes() -> list[Any]:
    """The modes of the running thread, innermost last: the core's own list."""
    return _C._core._function_mode_stack()


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of the running thread, innermost last."""
    return list(_modes())


def _get_current_function_mode() -> Any:
    """The innermost mode of the running thread, or None."""
    return _modes()[-1] if _modes() else None


class _outside:
    """A mode does not see what its own handler calls."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        _C._pop_function_mode()

    def __exit__(self, *exc: Any) -> None:
        _C._push_function_mode(self.mode)


class TorchFunctionMode:
    """A with block in which __torch_function__ of the mode sees every torch function."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _C._push_function_mode(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        _C._pop_function_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls every function as it is."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[Any, Any] | None = None) -> Any:
        return func(*args, **(kwargs or {}))


class DisableTorchFunctionSubclass:
    """A with block in which no class overrides torch functions."""

    def __enter__(self) -> None:
        self.before = _C._set_function_off(True)

    def __exit__(self, *exc: Any) -> None:
        _C._set_function_off(self.before)


DisableTorchFunction = DisableTorchFunctionSubclass


def is_tensor_like(inp: Any) -> bool:
    """Whether the object is a tensor or overrides torch functions."""
    return isinstance(inp, TensorBase) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether the function is a method of Tensor or the getter of a property."""
    return getattr(func, "__name__", "") == "__get__" or func in [vars(Tensor).get(getattr(func, "__name__", ""))]


def resolve_name(f: Any) -> str | None:
    """The dotted name of a torch function."""
    name = getattr(f, "__name__", None)
    return None if name is None else f"torch.{name}"


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """Makes a function overridable; dispatcher gives the arguments to look at."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)
        return wrapped
    return decorate


def _overridable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that is Python here, with what torch does for classes that take it over."""
    normal_form = getattr(func, "normal_form", None)     # the one way that overriders see of several to call it

    @functools.wraps(func)
    def called(*args: Any, **kwargs: Any) -> Any:
        relevant: list[Any] = []
        for arg in (*args, *kwargs.values()):
            relevant.extend(arg if type(arg) in (list, tuple) else (arg,))
        if has_torch_function(relevant):
            if normal_form is not None:
                args = normal_form(*args)
            return handle_torch_function(called, relevant, *args, **kwargs)
        return func(*args, **kwargs)
    return called


def get_default_nowrap_functions() -> set[Any]:
    """Getters whose results stay plain tensors."""
    return {Tensor._base.__get__, Tensor.grad.__get__, Tensor._grad.__get__} if hasattr(Tensor, "_grad") else \
        {Tensor._base.__get__, Tensor.grad.__get__}


def get_overridable_functions() -> dict[Any, list[Any]]:
    """What a class may take over, by where it is: of torch, its namespaces, and Tensor."""
    torch = sys.modules[__name__.rpartition(".")[0]]
    ignored = get_ignored_functions()
    found = {torch: [f for f in (getattr(torch, name) for name in _ops.functions) if f not in ignored],
             torch.nn.functional: [f for name, f in vars(torch.nn.functional).items()
                                   if callable(f) and not name.startswith("_") and not isinstance(f, type)],
             Tensor: [f for f in vars(Tensor).values() if isinstance(f, (_C.Op, types.FunctionType))]}
    for space in ("fft", "linalg", "special"):
        found[getattr(torch, space)] = list(_ops.namespaces[space].values())
    return found


@functools.cache
def get_ignored_functions() -> set[Any]:
    """Functions of torch that no class takes over: those that make tensors of numbers and sizes."""
    return {f for f in _ops.functions.values() if isinstance(f, _C.Op) and not any("Tensor " in o.schema.partition("->")[0]
                                                                                  or "Tensor?" in o.schema or "Tensor[" in o.schema
                                                                                  for o in f.overloads)}


@functools.cache
def get_testing_overrides() -> dict[Any, Callable[..., Any]]:
    """For each function that a class may take over, one with its signature that gives -1."""
    made: dict[Any, Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            def stand_in(*args: Any, **kwargs: Any) -> int:
                return -1
            with contextlib.suppress(ValueError, TypeError):             # a few of C have no signature
                stand_in.__signature__ = inspect.signature(function)     # type: ignore[attr-defined]
            made[function] = stand_in
    return made


class _TorchFunctionState(enum.Enum):
    """Whether classes and modes may override torch functions."""
    ENABLED, SUBCLASSES_DISABLED, ALL_DISABLED = range(3)


def _get_torch_function_state() -> _TorchFunctionState:
    """Whether classes may override functions; function modes always may."""
    return _TorchFunctionState.SUBCLASSES_DISABLED if _C._is_function_off() else _TorchFunctionState.ENABLED


vars(_C).update(_TorchFunctionState=_TorchFunctionState, _get_torch_function_state=_get_torch_function_state,
                _len_torch_function_stack=lambda: len(_modes()),
                DisableTorchFunctionSubclass=DisableTorchFunctionSubclass,
                DisableTorchFunction=DisableTorchFunction,
                _has_torch_function=has_torch_function)


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A with block inside a __torch_dispatch__ in which ops are recorded for backward, as they are outside."""
    before = _C._is_grad_enabled()
    _C._set_grad_enabled(True)
    try:
        yield
    finally:
        _C._set_grad_enabled(before)
