"""Copies of a module on devices, which DataParallel over several would need; refused."""

from __future__ import annotations

from typing import Any


def replicate(network: Any, devices: Any, detach: bool = False) -> Any:
    """Refuses: one process does not spread a module over devices here."""
    raise NotImplementedError("[replicate] one process does not spread a module over several devices here; start a process "
                              "for each device")
