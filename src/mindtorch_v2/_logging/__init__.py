"""torch._logging: PyTorch's own log channels. Nothing here writes to them; loggers are Python's."""
from __future__ import annotations

import logging
from typing import Any

from mindtorch_v2 import _facade


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


scribe: Any = _facade.module(__name__, "scribe", "Usage counters of PyTorch's makers: nothing is sent.",
                        open_source_signpost=lambda **kwargs: None)
_internal: Any = _facade.module(__name__, "_internal", "Where torch keeps its channels.", warning_once=warning_once,
                           getArtifactLogger=getArtifactLogger, trace_structured=trace_structured)
