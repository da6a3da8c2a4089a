"""IterDataPipe and MapDataPipe: datasets whose methods make further datasets of them."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mindtorch_v2.utils.data.datapipes._hook_iterator import _SnapshotState, hook_iterator
from mindtorch_v2.utils.data.dataset import Dataset, IterableDataset


class DataChunk(list[Any]):
    """The items of a batch that a pipe made."""

    def __init__(self, items: Iterable[Any]) -> None:
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent: str = "") -> str:
        """The items as text."""
        return indent + "[" + ", ".join(str(item) for item in self) + "]"

    def raw_iterator(self) -> Iterator[Any]:
        """The items as they are."""
        yield from self.items


class _Pipe:
    """What both kinds share: a table of methods that classes of pipes register."""
    functions: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name in type(self).functions:
            return functools.partial(type(self).functions[name], self)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}")      # torch's text ends so

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        """function(pipe, …) becomes a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False) -> None:
        """A class of pipes becomes a method of all pipes of this kind."""
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.register_function(function_name, lambda source, *args, **kwargs: cls_to_register(source, *args, **kwargs))

    # What a program hangs in: the state that is pickled, another way to pickle, another text.
    getstate_hook: Any = None
    reduce_ex_hook: Any = None
    str_hook: Any = None
    repr_hook: Any = None

    @classmethod
    def set_getstate_hook(cls, hook_fn: Any) -> None:
        """hook_fn(state) is what is pickled; None takes the hook out."""
        if cls.getstate_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing getstate_hook")
        _kind(cls).getstate_hook = hook_fn

    @classmethod
    def set_reduce_ex_hook(cls, hook_fn: Any) -> None:
        """hook_fn(pipe) is how it is pickled, unless it raises NotImplementedError; None takes the hook out."""
        if cls.reduce_ex_hook is not None and hook_fn is not None:
            raise RuntimeError("Attempt to override existing reduce_ex_hook")
        _kind(cls).reduce_ex_hook = hook_fn

    def __getstate__(self) -> Any:
        hook = _kind(type(self)).getstate_hook
        return self.__dict__ if hook is None else hook(self.__dict__)

    def __reduce_ex__(self, *args: Any, **kwargs: Any) -> Any:
        hook = _kind(type(self)).reduce_ex_hook
        if hook is not None:
            try:
                return hook(self)
            except NotImplementedError:
                pass
        return super().__reduce_ex__(*args, **kwargs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        hook = _kind(type(self)).repr_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __str__(self) -> str:
        hook = _kind(type(self)).str_hook
        return type(self).__qualname__ if hook is None else hook(self)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *type(self).functions})


class IterDataPipe(_Pipe, IterableDataset[Any]):
    """A stream of items."""
    functions: dict[str, Callable[..., Any]] = {}
    _valid_iterator_id: int | None = None        # of the last pass; those before it are over
    _number_of_samples_yielded = 0
    _snapshot_state = _SnapshotState.NotStarted
    _fast_forward_iterator: Iterator[Any] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__iter__" in vars(cls):
            cls.__iter__ = hook_iterator(vars(cls)["__iter__"])      # type: ignore[method-assign]

    def __iter__(self) -> Iterator[Any]:
        return self

    def reset(self) -> None:
        """Called before a pass begins; a pipe that keeps something between passes forgets it."""


class DFIterDataPipe(IterDataPipe):
    """A stream of rows of a data frame."""


class MapDataPipe(_Pipe, Dataset[Any]):
    """Items by index."""
    functions: dict[str, Callable[..., Any]] = {}


def _kind(cls: type) -> Any:
    """The class that has the hooks of all pipes of a kind."""
    return IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe


class _DataPipeSerializationWrapper:
    """A pipe that is pickled with what it holds."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __len__(self) -> int:
        try:
            return len(self._datapipe)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__} instance doesn't have valid length") from error


class _IterDataPipeSerializationWrapper(_DataPipeSerializationWrapper, IterDataPipe):
    """A stream as another one, which is pickled with what it holds."""

    def __iter__(self) -> Any:
        yield from self._datapipe


class _MapDataPipeSerializationWrapper(_DataPipeSerializationWrapper, MapDataPipe):
    """Items by index of another pipe, which is pickled with what it holds."""

    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]
