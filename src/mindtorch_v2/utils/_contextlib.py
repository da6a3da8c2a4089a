"""Context managers that are decorators too, of functions and generators."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


class _DecoratorContextManager:
    """A with block that decorates functions; a generator is inside only while it runs."""

    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
        raise NotImplementedError

    def clone(self) -> Any:
        """Another of the same; one with arguments overrides this."""
        return type(self)()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One without arguments, which may decorate without being called first."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside a new with block at each call."""
    if not callable(ctx) or hasattr(ctx, "__enter__"):
        raise AssertionError(f"Passed in {ctx} is both callable and also a valid context manager or neither")
    if inspect.isclass(func):
        raise RuntimeError("Cannot decorate classes; it is ambiguous whether or not only the constructor or all methods "
                           "should have the context manager applied; additionally, decorating a class at definition-site "
                           "will prevent use of the identifier as a conventional type.")
    if inspect.isgeneratorfunction(func):
        return _generator(ctx, func)

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with ctx():
            return func(*args, **kwargs)
    return decorated


def _generator(ctx: Callable[[], Any], func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(func)
    def generator(*args: Any, **kwargs: Any) -> Any:
        made = func(*args, **kwargs)
        with ctx():
            try:
                answer = made.send(None)
            except StopIteration as end:
                return end.value
        while True:
            try:
                request = yield answer
            except GeneratorExit:
                with ctx():
                    made.close()
                raise
            except BaseException as error:
                step, given = made.throw, error
            else:
                step, given = made.send, request
            try:
                with ctx():
                    answer = step(given)
            except StopIteration as end:
                return end.value
    return generator
