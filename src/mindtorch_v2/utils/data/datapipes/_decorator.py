"""functional_datapipe: makes a class of pipes a method of all pipes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe


class functional_datapipe:
    """@functional_datapipe("batch"): pipe.batch(…) is the class with the pipe as its first argument."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls: Any) -> Any:
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls)
                return cls
        raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")


def non_deterministic(arg: Any) -> Any:
    """Marks a pipe whose order is not the same in every run; nothing here reads the mark."""
    return arg if isinstance(arg, type) else (lambda cls: cls)


def argument_validation(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function as it is: types of items are not checked."""
    return f


runtime_validation = argument_validation
