"""Whether a package can be imported, without importing it."""
from __future__ import annotations

import functools
import importlib.util
from typing import Any

try:
    import dill
except ImportError:
    dill = None


def _check_module_exists(name: str) -> bool:
    """Whether Python finds a module of that name."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):      # its parent is not there, or it was made by hand
        return False


dill_available = functools.cache(lambda: _check_module_exists("dill"))


def import_dill() -> Any:
    """The dill package, which pickles functions too; None where it is not installed."""
    return dill
