"""torch.compile and torch.compiler: everything runs eagerly, so these return their argument."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any


def compile(model: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None, backend: Any = "inductor",
            mode: str | None = None, options: dict[Any, Any] | None = None, disable: bool = False, **kwargs: Any) -> Any:
    """The function or module itself: this library runs every op when it is called and compiles nothing."""
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if model is not None and not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if not disable:
        _note()
    return _same if model is None else model


@cache
def _note() -> None:
    """Said once in a process."""
    warnings.warn("torch.compile: mindtorch_v2 runs every op when it is called and compiles nothing; the result is the same",
                  UserWarning, stacklevel=3)


def _same(fn: Any) -> Any:
    return fn


def _identity(name: str, doc: str) -> Callable[..., Any]:
    def mark(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
        return _same if fn is None else fn
    mark.__name__, mark.__doc__ = name, doc
    return mark


disable = _identity("disable", "The function itself.")
allow_in_graph = _identity("allow_in_graph", "The function itself.")
disallow_in_graph = _identity("disallow_in_graph", "The function itself.")
assume_constant_result = _identity("assume_constant_result", "The function itself.")
forbid_in_graph = _identity("forbid_in_graph", "The function itself.")
run = _identity("run", "The function itself.")


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """A decorator that gives the function itself."""
    return _same


def is_compiling() -> bool:
    """False: nothing is compiled."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""


def set_stance(*args: Any, **kwargs: Any) -> Any:
    """A with block that changes nothing."""
    return _Nothing()


class _Nothing:
    """A with block and decorator that changes nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn


def list_backends(exclude_tags: tuple[Any, ...] = ()) -> list[str]:
    """There are none."""
    return []


_default_backend: list[Any] = ["inductor"]


def set_default_backend(backend: Any) -> None:
    """The backend that compile would take; None is "inductor". It is kept, and nothing is compiled."""
    if backend is not None and not callable(backend) and not isinstance(backend, str):
        raise TypeError(f"backend must be a string, callable, or None, got {type(backend).__name__}")
    _default_backend[0] = "inductor" if backend is None else backend


def get_default_backend() -> Any:
    """The backend that was set."""
    return _default_backend[0]


def set_enable_guard_collectives(enabled: bool) -> bool:
    """False, the setting before: nothing is guarded."""
    return False


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """The function itself, or a decorator that gives it."""
    return _same if fn is None else fn


def save_cache_artifacts() -> None:
    """None: nothing was compiled."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None: nothing is taken, since nothing is compiled."""
