"""torch.distributed.elastic.multiprocessing.errors: @record writes the exception of a worker where the launcher reads it."""
from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed._agent import ChildFailedError

__all__ = ["ChildFailedError", "record"]


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """Wraps a worker's main function."""
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            path = os.environ.get("TORCHELASTIC_ERROR_FILE")
            if path:
                message = {"message": f"{type(error).__name__}: {error}",
                           "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}}
                with open(path, "w") as file:
                    json.dump({"message": message}, file)
            raise
    return wrapper


get_error_handler = _names.refusal("elastic.multiprocessing.errors.get_error_handler")
ErrorHandler = _names.absent("elastic.multiprocessing.errors.ErrorHandler")
ProcessFailure = _names.absent("elastic.multiprocessing.errors.ProcessFailure")
