"""torch.futures: a value that comes later, and functions that run when it does."""
from __future__ import annotations

import threading
from collections.abc import Callable
from types import GenericAlias
from typing import Any


class Future:
    """A value that one thread sets and others wait for."""

    __class_getitem__: classmethod[Any, ..., GenericAlias] = classmethod(GenericAlias)       # Future[int] in annotations

    def __init__(self, *, devices: list[Any] | None = None) -> None:
        self._changed = threading.Condition()
        self._done, self._value = False, None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future], Any]] = []

    def done(self) -> bool:
        """Whether it has a value or an error."""
        return self._done

    def wait(self) -> Any:
        """The value, waited for; raises the error if it got one."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        if self._error is not None:
            raise self._error
        return self._value

    def value(self) -> Any:
        """The value of a future that is done."""
        if not self._done:
            raise RuntimeError("Future is not completed: call wait() first")
        return self.wait()

    def set_result(self, result: Any) -> None:
        """Gives it its value; once."""
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Gives it an error instead."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._set(None, result)

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("Attempting to mark a completed Future as complete again. Note that a Future can only be "
                                   "marked completed once.")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Calls callback(self) when it is done, or now."""
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A future of what callback(self) returns."""
        result = Future()

        def run(done: Future) -> None:
            try:
                value = callback(done)
            except Exception as error:            # raised where the result is waited for
                result.set_exception(error)
            else:
                result.set_result(value)

        self.add_done_callback(run)
        return result


def collect_all(futures: list[Future]) -> Future:
    """A future of the list, done when all of them are."""
    result, left, lock = Future(), [len(futures)], threading.Lock()

    def one_done(_: Future) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            result.set_result(futures)

    if not futures:
        result.set_result([])
    for future in futures:
        future.add_done_callback(one_done)
    return result


def wait_all(futures: list[Future]) -> list[Any]:
    """The values of all."""
    return [future.wait() for future in collect_all(futures).wait()]
