"""torch_npu.utils: tensors that share one block of memory, saving beside the program's work, and CANN's version."""
from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch

__all__ = ["npu_combine_tensors", "get_part_combined_tensor", "is_combined_tensor_valid", "save_async", "get_cann_version"]

get_cann_version = torch.npu.utils.get_cann_version


def npu_combine_tensors(list_of_tensor: Sequence[torch.Tensor], require_copy_value: bool = True) -> torch.Tensor | None:
    """One tensor of all items; each given tensor becomes a view of its part, so that one op changes all of them."""
    if not list_of_tensor:
        return None
    if len({(t.dtype, t.device) for t in list_of_tensor}) > 1:
        raise RuntimeError("npu_combine_tensors: expected tensors of one dtype on one device")
    combined = list_of_tensor[0].new_zeros(sum(t.numel() for t in list_of_tensor))
    start = 0
    with torch.no_grad():
        for t in list_of_tensor:
            part = combined[start:start + t.numel()].view(t.shape)
            if require_copy_value:
                part.copy_(t)
            t.data = part
            start += t.numel()
    return combined


def get_part_combined_tensor(combined_tensor: torch.Tensor | None, index: int, size: int) -> torch.Tensor | None:
    """`size` items of a combined tensor from `index` on."""
    if combined_tensor is None or size == 0:
        return None
    if index + size > combined_tensor.numel():
        raise RuntimeError(f"get_part_combined_tensor: {index} + {size} is beyond the {combined_tensor.numel()} items")
    return combined_tensor[index:index + size]


def is_combined_tensor_valid(combined_tensor: torch.Tensor | None, list_of_tensor: Sequence[torch.Tensor]) -> bool:
    """Whether the tensors still lie one after another in the combined one."""
    if combined_tensor is None or not list_of_tensor:
        return combined_tensor is None and not list_of_tensor
    place = combined_tensor.data_ptr()
    for t in list_of_tensor:
        if t.data_ptr() != place:
            return False
        place += t.numel() * t.element_size()
    return True


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        made = copy.copy(value)
        for key in value:
            made[key] = _on_host(value[key])
        return made
    return type(value)(_on_host(v) for v in value) if type(value) in (list, tuple) else value


def save_async(obj: Any, f: Any, pickle_module: Any = None, pickle_protocol: int = 2,
               _use_new_zipfile_serialization: bool = True, _disable_byteorder_record: bool = False,
               model: Any = None) -> threading.Thread:
    """Copies what is to be saved to the host, and writes it in a thread; Python waits for it before it ends."""
    kept = _on_host(obj)
    writer = threading.Thread(target=torch.save, args=(kept, f), kwargs={"pickle_protocol": pickle_protocol})
    writer.start()
    return writer
