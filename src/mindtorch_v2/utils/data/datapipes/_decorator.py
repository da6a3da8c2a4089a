"""Decorators of classes of pipes: methods by name, promises of order, types that a program checks."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

_REST = ("'guaranteed_datapipes_determinism'. You can turn off determinism for this DataPipe if that is acceptable for your "
         "application")
_determinism = False
_validation = True


class functional_datapipe:
    """@functional_datapipe("batch"): pipe.batch(…) is the class with the pipe as its first argument."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        if not isinstance(cls, type):
            if not isinstance(getattr(cls, "__self__", cls), non_deterministic):
                raise TypeError("`functional_datapipe` can only decorate IterDataPipe")
            IterDataPipe.register_datapipe_as_function(self.name, cls)
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls)
        return cls


class _Switch:
    """A switch, set from its making on or for the length of a with block."""

    _name = ""
    _value = True

    def __init__(self) -> None:
        self.prev = globals()[self._name]
        globals()[self._name] = self._value

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        globals()[self._name] = self.prev


class guaranteed_datapipes_determinism(_Switch):
    """Pipes that are marked as non-deterministic refuse to be made."""

    _name = "_determinism"


class runtime_validation_disabled(_Switch):
    """Items are not checked by runtime_validation."""

    _name, _value = "_validation", False


class non_deterministic:
    """Marks a class of pipes whose order is not the same in every run, always or as a function of its arguments says."""

    cls: Any = None

    def __init__(self, arg: Any) -> None:
        if isinstance(arg, type):
            if not issubclass(arg, IterDataPipe):
                raise TypeError(f"Only `IterDataPipe` can be decorated with `non_deterministic`, but {arg.__name__} is found")
            self.cls = arg
        elif isinstance(arg, Callable):       # type: ignore[arg-type]
            self.deterministic_fn = arg
        else:
            raise TypeError(f"{arg} can not be decorated by non_deterministic")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.cls is not None:
            if _determinism:
                raise TypeError(f"{self.cls.__name__} is non-deterministic, but you set {_REST}")
            return self.cls(*args, **kwargs)
        if not (isinstance(args[0], type) and issubclass(args[0], IterDataPipe)):
            raise TypeError(f"Only `IterDataPipe` can be decorated, but {args[0].__name__} is found")
        self.cls = args[0]
        return self.deterministic_wrapper_fn

    def deterministic_wrapper_fn(self, *args: Any, **kwargs: Any) -> Any:
        """Makes one, if the function allows it."""
        chosen = self.deterministic_fn(*args, **kwargs)
        if not isinstance(chosen, bool):
            raise TypeError("deterministic_fn of `non_deterministic` decorator is required to return a boolean value, "
                            f"but {type(chosen)} is found")
        if _determinism and chosen:
            raise TypeError(f"{self.cls.__name__} is non-deterministic with the inputs, but you set {_REST}")
        return self.cls(*args, **kwargs)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is: types of items are not checked."""
    return f


runtime_validation = argument_validation
