"""Importing this lets programs written for CUDA run on npus: cuda means npu in devices, torch.cuda is torch.npu, nccl is hccl."""
from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

import mindtorch_v2 as torch

_WORDS = {"nccl": "hccl", "cuda": "npu"}
__all__: list[str] = []


def _backend(name: Any) -> Any:
    """A backend's name, or a list of devices and backends, in the words of npus."""
    for old, new in _WORDS.items():
        name = name.replace(old, new) if isinstance(name, str) else name
    return name


def _translated(function: Any) -> Any:
    """The function with its words for backends and devices translated."""
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(_backend, args), **{key: _backend(value) for key, value in kwargs.items()})
    return call


class _Cuda(type(torch.npu)):      # type: ignore[misc]
    """torch.cuda as torch.npu answers; what only CUDA has is what torch.cuda says of itself."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(torch.npu, name, None)
        return getattr(_without_cuda, name) if found is None else found


def _transfer() -> None:
    warnings.warn("torch.cuda, device='cuda', .cuda() and the backend nccl mean torch.npu, npu and hccl from now on", ImportWarning,
                  stacklevel=3)
    api: Any = torch                             # whose members are replaced here
    api._C._alias_device("cuda", "npu")
    api.Tensor.cuda, api.Tensor.is_cuda = torch.Tensor.npu, property(lambda self: self.is_npu)
    api.nn.Module.cuda = torch.nn.Module.npu
    replaced = _Cuda(_without_cuda.__name__, "torch.npu under the name torch.cuda.")
    replaced.__path__, replaced.__spec__ = _without_cuda.__path__, _without_cuda.__spec__
    replaced.CUDAGraph, replaced.DoubleTensor = torch.npu.NPUGraph, torch.npu.FloatTensor
    torch.cuda = sys.modules[_without_cuda.__name__] = replaced
    for part in ("amp", "random", "memory", "streams", "graphs"):
        sys.modules[f"{_without_cuda.__name__}.{part}"] = getattr(torch.npu, part)
    for name in ("init_process_group", "new_group", "init_device_mesh"):
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, _translated(getattr(torch.distributed, name)))
    torch.distributed.is_nccl_available = torch.distributed.is_hccl_available
    for name in ("autocast", "is_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype"):
        old = getattr(torch, name)
        setattr(torch, name, _Autocast if name == "autocast" else _translated(old))
    api.amp.autocast = _Autocast


class _Autocast(torch.autocast):
    """torch.autocast to which cuda means npu."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(_backend(device_type), *args, **kwargs)


_without_cuda = torch.cuda
if __name__.startswith("torch_npu.") and not isinstance(_without_cuda, _Cuda):      # not where tools read this file by its place
    _transfer()
