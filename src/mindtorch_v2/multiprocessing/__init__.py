"""torch.multiprocessing: Python's multiprocessing, in which tensors of the cpu are sent as shared memory."""
from __future__ import annotations

from multiprocessing import *  # noqa: F403

from mindtorch_v2.multiprocessing import reductions
from mindtorch_v2.multiprocessing.spawn import ProcessContext as ProcessContext
from mindtorch_v2.multiprocessing.spawn import ProcessException as ProcessException
from mindtorch_v2.multiprocessing.spawn import ProcessExitedException as ProcessExitedException
from mindtorch_v2.multiprocessing.spawn import ProcessRaisedException as ProcessRaisedException
from mindtorch_v2.multiprocessing.spawn import SpawnContext as SpawnContext
from mindtorch_v2.multiprocessing.spawn import spawn as spawn
from mindtorch_v2.multiprocessing.spawn import start_processes as start_processes

_strategy = "file_descriptor"
reductions.init_reductions()


def get_all_sharing_strategies() -> set[str]:
    """How tensors may be shared; by name only, since descriptors of memory without files serve both."""
    return {"file_system", "file_descriptor"}


def get_sharing_strategy() -> str:
    """The strategy that was set."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Kept for callers."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
    _strategy = new_strategy
