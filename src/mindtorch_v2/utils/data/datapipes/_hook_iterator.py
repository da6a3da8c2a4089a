"""What every stream does around its own __iter__: one pass at a time, items counted, errors that name the stream."""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

_FEEDBACK = ("\nFor feedback regarding this single iterator per IterDataPipe constraint, feel free to comment on this issue: "
             "https://github.com/pytorch/data/issues/45.")


class _SnapshotState(Enum):
    """Where a stream is between its passes."""

    NotStarted = 0
    Restored = 1
    Iterating = 2


def _generate_input_args_string(obj: Any) -> str:
    """The arguments that an object was made with, as far as it keeps them, in the order of their names."""
    kept = {name: value for name, value in vars(obj).items() if name in inspect.signature(type(obj)).parameters}
    return ", ".join(f"{name}={value.__name__ if inspect.isfunction(value) else value}" for name, value in sorted(kept.items()))


def _generate_iterdatapipe_msg(datapipe: Any, simplify_dp_name: bool = False) -> str:
    """A stream for messages."""
    return f"{type(datapipe).__name__}({_generate_input_args_string(datapipe)})"


def _gen_invalid_iterdatapipe_msg(datapipe: Any) -> str:
    return ("This iterator has been invalidated because another iterator has been created from the same IterDataPipe: "
            f"{_generate_iterdatapipe_msg(datapipe)}\nThis may be caused by multiple references to the same IterDataPipe. We "
            f"recommend using `.fork()` if that is necessary.{_FEEDBACK}")


def _check_iterator_valid(datapipe: Any, iterator_id: int | None) -> None:
    """Refuses a pass after which another one began."""
    if getattr(datapipe, "_is_child_datapipe", False):
        if not datapipe._check_valid_iterator_id(iterator_id):
            raise RuntimeError("This iterator has been invalidated, because a new iterator has been created from one of the "
                               f"ChildDataPipes of {_generate_iterdatapipe_msg(datapipe.main_datapipe)}.{_FEEDBACK}")
    elif datapipe._valid_iterator_id != iterator_id:
        raise RuntimeError(_gen_invalid_iterdatapipe_msg(datapipe))


def _begin(datapipe: Any) -> int:
    """The number of the pass that begins."""
    if getattr(datapipe, "_is_child_datapipe", False):
        number: int = datapipe._set_main_datapipe_valid_iterator_id()
    else:
        number = datapipe._valid_iterator_id = 0 if datapipe._valid_iterator_id is None else datapipe._valid_iterator_id + 1
        datapipe.reset()
    datapipe._number_of_samples_yielded, datapipe._snapshot_state = 0, _SnapshotState.Iterating
    return number


def _name_in(error: BaseException, datapipe: Any) -> None:
    """Adds to an error which stream it comes from, unless a stream below said so."""
    first = error.args[0] if error.args else None
    said = "This exception is thrown by __iter__ of "
    if not isinstance(first, str):
        error.args = (f"\n{said}{_generate_iterdatapipe_msg(datapipe)}",)
    elif "thrown by __iter__ of" not in first and "single iterator per IterDataPipe constraint" not in first:
        error.args = (f"{first}\n{said}{_generate_iterdatapipe_msg(datapipe)}", *error.args[1:])


class IteratorDecorator:
    """The iterator of a stream whose __iter__ is no generator."""

    def __init__(self, iterator: Any, datapipe: Any, iterator_id: int) -> None:
        self.iterator, self.datapipe, self.iterator_id = iterator, datapipe, iterator_id

    def __iter__(self) -> IteratorDecorator:
        return self

    def __next__(self) -> Any:
        _check_iterator_valid(self.datapipe, self.iterator_id)
        item = next(self.iterator)
        self.datapipe._number_of_samples_yielded += 1
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self.iterator, name)


def _continued(datapipe: Any) -> Iterator[Any] | None:
    """The pass that was taken up at a snapshot, once."""
    found: Iterator[Any] | None = datapipe._fast_forward_iterator
    if found is not None:
        datapipe._fast_forward_iterator, datapipe._snapshot_state = None, _SnapshotState.Iterating
    return found


def hook_iterator(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The __iter__ of a class with all that."""
    @functools.wraps(plain)
    def of_generator(self: Any) -> Iterator[Any]:
        taken_up = _continued(self)
        if taken_up is not None:
            yield from taken_up
            return
        items = plain(self)
        number = _begin(self)
        try:
            for item in items:
                self._number_of_samples_yielded += 1
                yield item
                _check_iterator_valid(self, number)
        except Exception as error:
            _name_in(error, self)
            raise

    @functools.wraps(plain)
    def of_iterator(self: Any) -> Any:
        taken_up = _continued(self)
        if taken_up is not None:
            return taken_up
        number = _begin(self)
        return IteratorDecorator(plain(self), self, number)
    return of_generator if inspect.isgeneratorfunction(plain) else of_iterator
