"""torch_npu.testing.decorator: one test for several dtypes and formats."""
from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


class Dtypes:
    """The dtypes that a test is made for."""

    def __init__(self, *args: torch.dtype) -> None:
        if not args:
            raise RuntimeError("No dtypes given")
        if not all(isinstance(arg, torch.dtype) for arg in args):
            raise RuntimeError(f"Unknown dtype in {args}")
        self.args = args

    def __call__(self, fn: Any) -> Any:
        fn.dtypes = self.args
        return fn


class Formats:
    """The formats of CANN that a test is made for."""

    def __init__(self, *args: int) -> None:
        if not args:
            raise RuntimeError("No formats given")
        self.args = args

    def __call__(self, fn: Any) -> Any:
        fn.formats = self.args
        return fn


def feed_data(func: Callable[..., Any], new_name: str, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A test of another name with these arguments."""
    @functools.wraps(func)
    def run(self: Any) -> Any:
        return func(self, *args, **kwargs)
    run.__name__ = new_name
    return run


def instantiate_tests(cls: type) -> type:
    """Puts a test for every dtype and format in the place of each that names some; "npu" where it takes a device."""
    for name, test in list(vars(cls).items()):
        choices = {word: getattr(test, word + "s") for word in ("dtype", "format") if hasattr(test, word + "s")}
        if not choices:
            continue
        params = inspect.getfullargspec(test).args
        given = {word: [p for p in params if word in p] for word in choices}
        for word, found in given.items():
            if len(found) > 1:
                raise RuntimeError(f"Multiple matches for {word}")
            if not found:
                raise RuntimeError(f"{name} takes no {word}")
        for values in itertools.product(*choices.values()):
            ends = [str(value).rpartition(".")[2] for value in values]
            kwargs = {given[word][0]: value for word, value in zip(choices, values, strict=True)}
            made = "_".join([name, *ends])
            setattr(cls, made, feed_data(test, made, **({"device": "npu"} if "device" in params else {}), **kwargs))
        delattr(cls, name)
    return cls
