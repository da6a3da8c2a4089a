"""The inside of a loader, by the names that packages know: collate, fetch, pin_memory, signal_handling, worker."""
from mindtorch_v2.utils.data._utils import collate, fetch, pin_memory, signal_handling, worker

IS_WINDOWS, HAS_NUMPY = False, True
MP_STATUS_CHECK_INTERVAL = 5.0                   # how often a waiting loader looks whether its workers are alive, in seconds
python_exit_status = False                       # whether the interpreter is ending; workers notice by themselves here
