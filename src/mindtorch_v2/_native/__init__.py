"""torch._native: kernels that PyTorch writes in languages for GPUs. None is here, and the registry is empty."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade


class DSLRegistry:
    """Which kernel languages there are: none."""

    def list_all_dsls(self) -> list[str]:
        """Empty."""
        return []

    list_available_dsls = list_all_dsls

    def is_dsl_available(self, dsl_name: str) -> bool:
        """False."""
        return False


dsl_registry: Any = _facade.module(__name__, "dsl_registry", "The registry of kernel languages.", DSLRegistry=DSLRegistry,
                              dsl_registry=DSLRegistry())
