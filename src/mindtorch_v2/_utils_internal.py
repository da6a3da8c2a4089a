"""torch._utils_internal: places of files, for PyTorch's own tests, and switches that PyTorch's makers set for themselves."""
from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any


def get_writable_path(path: str) -> str:
    """The folder itself, or a temporary one where it cannot be written."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


def get_file_path(*path_components: str) -> str:
    """A file below the package."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *path_components)


def get_file_path_2(*path_components: str) -> str:
    """A file in a folder that is named."""
    return os.path.join(*path_components)


def justknobs_check(name: str, default: bool = True) -> bool:
    """The default: nothing sets such a switch here."""
    return default


def justknobs_getval_int(name: str) -> int:
    """0: nothing sets such a number here."""
    return 0


def is_fb_unit_test() -> bool:
    """False."""
    return False


def resolve_library_path(path: str) -> str:
    """The path without links."""
    return os.path.realpath(path)


def deprecated() -> Callable[[Any], Any]:
    """A decorator that marks a function as one that will go; it changes nothing."""
    return lambda function: function


# ---- what PyTorch's makers count and switch for themselves: nothing is sent, every switch is off --------------------------------
USE_GLOBAL_DEPS = DISABLE_JUSTKNOBS = True
TEST_MASTER_ADDR, TEST_MASTER_PORT = "127.0.0.1", 29500
default_mode = "w"


def signpost_event(category: str, name: str, parameters: dict[str, Any]) -> None:
    """Nothing is sent; the event is logged."""
    logging.getLogger(__name__).info("%s %s: %r", category, name, parameters)


def log_export_usage(**kwargs: Any) -> None:
    """Nothing is sent."""


def prepare_multiprocessing_environment(path: str) -> None:
    """Nothing to prepare."""


def full_aoti_runtime_assert() -> bool:
    """True."""
    return True


def get_default_numa_options() -> None:
    """None: processes are bound to no part of the memory."""


def max_clock_rate() -> int:
    """1100 MHz, torch's guess for a host whose graphics card it cannot ask."""
    return 1100


def compile_time_strobelight_meta(phase_name: str) -> Callable[[Any], Any]:
    """A decorator that gives the function itself: nothing is sampled."""
    return lambda function: function


def throw_abstract_impl_not_imported_error(opname: str, module: str, context: str) -> None:
    """Says which module to import before a fake kernel is asked for."""
    if module in sys.modules:
        raise NotImplementedError(f"{opname}: We could not find the fake impl for this operator. ")
    raise NotImplementedError(f"{opname}: We could not find the fake impl for this operator. The operator specified that you may "
                              f"need to import the '{module}' Python module to load the fake impl. {context}")
