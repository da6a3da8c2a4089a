"""Backends by device type: the one place that imports one by name, at the first use of a device of its type."""
from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mindtorch_v2 import _C


def load(device_type: str) -> ModuleType:
    """Imports the backend of a device type and the copies from and to it; they put their hooks into the core."""
    backend = import_module(f"mindtorch_v2._backends.{device_type}")
    import_module("mindtorch_v2._backends.common.convert")
    _C._set_backend_loaded(device_type)
    return backend


_C._set_backend_loader(load)
