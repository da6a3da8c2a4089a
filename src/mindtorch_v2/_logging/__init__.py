"""torch._logging: PyTorch's own log channels. Nothing here writes to them; loggers are Python's."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _facade, _named


def set_logs(**kwargs: Any) -> None:
    """Kept for callers: there is nothing to log."""


def get_logs() -> dict[str, int]:
    """Empty."""
    return {}


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """Python's logger of that name."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


def trace_structured(name: str, *args: Any, **kwargs: Any) -> None:
    """Nothing is logged."""


_warned: set[str] = set()


def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """A message of a logger, once."""
    if str(args) not in _warned:
        _warned.add(str(args))
        logger_obj.warning(*args, **kwargs)


class LazyString:
    """A text that is made when it is printed."""

    def __init__(self, func: Callable[..., str], *args: Any, **kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    def __str__(self) -> str:
        return self.func(*self.args, **self.kwargs)


class LogState:
    """Which channels are on: none."""

    def clear(self) -> None:
        """Nothing to forget."""


class LogRegistry:
    """Which channels there are: none."""

    def get_log_qnames(self) -> set[str]:
        """Empty."""
        return set()


def _get_log_state() -> LogState:
    """The state of the channels."""
    return log_state


def _set_log_state(state: LogState) -> None:
    """Nothing to set."""


def _init_logs(log_file_name: str | None = None) -> None:
    """Nothing to open."""


log_state, log_registry = LogState(), LogRegistry()
trace_log = logging.getLogger("torch.__trace")
scribe: Any = _facade.module(__name__, "scribe", "Usage counters of PyTorch's makers: nothing is sent.",
                        open_source_signpost=lambda **kwargs: None)
_internal: Any = _facade.module(__name__, "_internal", "Where torch keeps its channels.", warning_once=warning_once,
                           getArtifactLogger=getArtifactLogger, trace_structured=trace_structured, LazyString=LazyString,
                           LogState=LogState, LogRegistry=LogRegistry, log_state=log_state, log_registry=log_registry,
                           _get_log_state=_get_log_state, _set_log_state=_set_log_state, _init_logs=_init_logs,
                           trace_log=trace_log, set_logs=set_logs)

_named.complete(__name__, _internal.__name__)
