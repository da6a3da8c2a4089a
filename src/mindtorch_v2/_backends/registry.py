"""Backends by device type: the one place that imports one by name, at the first use of a device of its type."""
from __future__ import annotations

from importlib import import_module

from mindtorch_v2 import _C


class OnDemand(_C.Backend):
    """Stands for a backend of this package until a device of its type is used."""

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type

    def load(self) -> None:
        """Imports the backend, which registers itself in this one's place."""
        import_module(f"mindtorch_v2._backends.{self.device_type}.backend")


_C._register_backend("npu", OnDemand("npu"), ready=False)
