"""torch.autograd.grad_mode: the modes under torch's name for their module, and switches of its engine."""
from __future__ import annotations

import threading
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2.autograd.modes import (  # noqa: F401
    _Mode,
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled",
           "enforce_grad_layout_policy"]


class _Switch(_Mode):
    """A setting of torch's engine, from now on or for a with block; the engine here has no such part."""

    def __init__(self, mode: bool) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass

    def clone(self) -> _Switch:
        """The same switch once more."""
        return type(self)(self.mode)


_threads = threading.local()


def _is_multithreading_enabled() -> bool:
    """What set_multithreading_enabled was given in this thread."""
    return getattr(_threads, "enabled", True)


def _set_multithreading_enabled(mode: bool) -> None:
    """Notes it; backward runs in the thread that calls it either way."""
    _threads.enabled = bool(mode)


def _current_graph_task_execution_order() -> list[Any]:
    """The nodes of the running backward in the order of their turns; torch knows an order only without its threads."""
    found = _C._core._execution_order()
    if found and _is_multithreading_enabled():
        raise RuntimeError("get_current_graph_task_execution_order expects the current backward to be executed with "
                           "multithreading disabled, e.g. by running:\n\n>>> with torch.autograd.set_multithreading_enabled("
                           "False):\n...     torch.autograd.grad(...)\n")
    return found


for _function in (_is_multithreading_enabled, _set_multithreading_enabled, _current_graph_task_execution_order):
    vars(_C)[_function.__name__] = _function


class set_multithreading_enabled(_Switch):
    """Whether backward uses a thread for each device: here it always runs in the thread that calls it."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self.previous = _is_multithreading_enabled()
        _set_multithreading_enabled(mode)

    def __exit__(self, *exc: Any) -> None:
        _set_multithreading_enabled(self.previous)


def is_view_replay_enabled() -> bool:
    """What _force_original_view_tracking was given in this thread."""
    return getattr(_threads, "replays", False)


class _force_original_view_tracking(_Switch):
    """Whether views keep what made them rather than sizes and strides: here they keep both."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self.previous, _threads.replays = is_view_replay_enabled(), bool(mode)

    def __exit__(self, *exc: Any) -> None:
        _threads.replays = self.previous


class enforce_grad_layout_policy(_Switch):
    """Whether .grad has the strides of its leaf: a copy of a gradient always has, and one that is kept as it is has here."""


class _unsafe_preserve_version_counter(_Mode):
    """A with block after which the version of a tensor, or of several, is what it was."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, _C.TensorBase) else tuple(tensors)
        self.versions = tuple(t._version for t in self.tensors)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        for t, version in zip(self.tensors, self.versions):
            _C._core._set_version(t, version)
