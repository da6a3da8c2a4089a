"""DistributedDataParallel: a name for isinstance; processes that train together need torch.distributed."""

from __future__ import annotations

from typing import Any

from mindtorch_v2.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Refuses to be made: processes that train together need torch.distributed."""

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "[DistributedDataParallel] torch.distributed is not offered: train with one process and one device"
        )
