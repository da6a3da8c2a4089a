"""torch._utils_internal: places of files, for PyTorch's own tests."""
from __future__ import annotations

import os
import tempfile


def get_writable_path(path: str) -> str:
    """The folder itself, or a temporary one where it cannot be written."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))


def get_file_path(*path_components: str) -> str:
    """A file below the package."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *path_components)


def get_file_path_2(*path_components: str) -> str:
    """A file in a folder that is named."""
    return os.path.join(*path_components)
