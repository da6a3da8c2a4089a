"""DataParallel: with one device it runs the module where it is; it does not spread one over several."""

from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """A module run where it is: with one device there is nothing to spread, and several are refused."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        first = next(module.parameters(), None)
        on_npu = first is not None and first.device.type == "npu"
        ids = range(torch.npu.device_count() if on_npu else 0) if device_ids is None else device_ids
        if len(ids) > 1:
            raise NotImplementedError(
                f"[DataParallel] one process does not spread over several devices here, got {len(ids)}; choose one "
                "with device_ids=[0] (or ASCEND_RT_VISIBLE_DEVICES), or start a process for each device"
            )
        self.dim, self.module, self.device_ids = dim, module, list(ids)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                  module_kwargs: Any = None) -> Any:
    """The module's result; as DataParallel, without an object."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))
