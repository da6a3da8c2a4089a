"""The inside of a loader, by the names that packages know: collate, fetch, pin_memory, signal_handling, worker."""
import atexit

import mindtorch_v2 as torch
from mindtorch_v2.utils.data._utils import collate, fetch, pin_memory, signal_handling, worker

ExceptionWrapper = torch._utils.ExceptionWrapper
IS_WINDOWS, HAS_NUMPY = False, True
MP_STATUS_CHECK_INTERVAL = 5.0                   # how often a waiting loader looks whether its workers are alive, in seconds
python_exit_status = False                       # whether the interpreter is ending; workers notice by themselves here


def _set_python_exit_flag() -> None:
    global python_exit_status
    python_exit_status = True


atexit.register(_set_python_exit_flag)
