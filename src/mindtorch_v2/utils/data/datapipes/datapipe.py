"""IterDataPipe and MapDataPipe: datasets whose methods make further datasets of them."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

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

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return type(self).__qualname__

    __str__ = __repr__

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *type(self).functions})


class IterDataPipe(_Pipe, IterableDataset[Any]):
    """A stream of items."""
    functions: dict[str, Callable[..., Any]] = {}

    def reset(self) -> None:
        """Called before a pass begins, by a pipe that keeps something between passes."""


class DFIterDataPipe(IterDataPipe):
    """A stream of rows of a data frame."""


class MapDataPipe(_Pipe, Dataset[Any]):
    """Items by index."""
    functions: dict[str, Callable[..., Any]] = {}


class _IterDataPipeSerializationWrapper(IterDataPipe):
    """A stream as another one, which is pickled with what it holds."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __iter__(self) -> Any:
        yield from self._datapipe

    def __len__(self) -> int:
        return len(self._datapipe)


class _MapDataPipeSerializationWrapper(MapDataPipe):
    """Items by index of another pipe, which is pickled with what it holds."""

    def __init__(self, datapipe: Any) -> None:
        self._datapipe = datapipe

    def __getitem__(self, index: Any) -> Any:
        return self._datapipe[index]

    def __len__(self) -> int:
        return len(self._datapipe)
