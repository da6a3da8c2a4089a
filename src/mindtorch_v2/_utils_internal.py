"""torch._utils_internal: places of files, for PyTorch's own tests, and switches that PyTorch's makers set for themselves."""
from __future__ import annotations

import os
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
