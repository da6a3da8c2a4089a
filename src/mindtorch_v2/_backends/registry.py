"""Backends by device type: the one place that imports one by name, at the first use of a device of its type."""
from __future__ import annotations

from importlib import import_module
from types import ModuleType

from mindtorch_v2 import _C


def load(device_type: str) -> ModuleType:
    """Imports the backend of a device type; it puts its hooks into the core by itself."""
    return import_module(f"mindtorch_v2._backends.{device_type}")


_C._set_backend_loader(load)
