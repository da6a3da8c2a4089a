"""torch.accelerator, torch.Stream and torch.Event: the accelerator of this machine, the npu where there is one."""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

Stream = torch.npu.Stream
Event = torch.npu.streams.AnyEvent


def _needed() -> Any:
    if not torch.npu.is_available():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return torch.npu


def get_device_module(device: Any = None) -> Any:
    """The module of a device's type, such as torch.npu; without a device, of the accelerator, else torch.cpu."""
    if device is None:
        return torch.npu if is_available() else torch.cpu
    if not isinstance(device, (str, torch.device)):
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    kind = torch.device(device).type
    module = getattr(torch, kind, None)
    if module is None:
        raise RuntimeError(f"Device '{device}' does not have a corresponding module registered as 'torch.{kind}'.")
    return module


def _register_device_module(device_type: str, module: Any) -> None:
    """Makes module torch.<device_type>, the module of a device type from outside this package."""
    kind = torch.device(device_type).type
    if hasattr(torch, kind):
        raise RuntimeError(f"The runtime module of '{device_type}' has already been registered with '{getattr(torch, kind)}'")
    setattr(torch, kind, module)
    sys.modules[f"{torch.__name__}.{kind}"] = module


def is_available() -> bool:
    """Whether an npu is there."""
    return torch.npu.is_available()


def current_accelerator(check_available: bool = False) -> Any:
    """The device type of the accelerator; None without one, whether that is to be checked or not."""
    return torch.device("npu") if is_available() else None


def device_count() -> int:
    """How many npus there are."""
    return torch.npu.device_count()


def current_device_index() -> int:
    """The index of the current npu."""
    return _needed().current_device()


def set_device_index(device: Any, /) -> None:
    """Makes an npu the current one."""
    _needed().set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


@contextlib.contextmanager
def device_index(device: int | None, /) -> Iterator[None]:
    """A with block on another npu; None changes nothing."""
    if device is None:
        yield
        return
    with _needed().device(device):
        yield


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """The dtypes that tensors on an npu can have."""
    names = "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128"
    dtypes = {getattr(torch, name) for name in names.split()}
    if _needed().get_device_capability(device) >= (9, 1):
        dtypes.add(torch.bfloat16)
    return {"supported_dtypes": dtypes}


def current_stream(device: Any = None, /) -> Any:
    """The current stream of an npu."""
    return _needed().current_stream(device)


def set_stream(stream: Any) -> None:
    """Makes a stream the current one."""
    _needed().set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Waits for all work of an npu."""
    _needed().synchronize(device)


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """(free, total) bytes of an npu."""
    return _needed().mem_get_info(device_index)


def _of_memory(name: str) -> Callable[..., Any]:
    """A function of torch.npu about memory; it says nothing, or 0, where no npu is."""
    function = getattr(torch.npu, name)

    def call(device_index: Any = None, /) -> Any:
        return function(device_index)
    call.__name__, call.__doc__ = name, function.__doc__
    return call


class Graph(torch.npu.NPUGraph):
    """Work of a stream, recorded instead of run, with torch.accelerator's arguments: `with stream, graph: ...`."""

    def __init__(self, keep_graph: bool = False, *, pool: tuple[int, int] | None = None,
                 capture_error_mode: str = "default") -> None:
        super().__init__()
        self.graph_pool, self.capture_error_mode = pool, capture_error_mode

    def capture_begin(self) -> None:             # type: ignore[override]
        """From now on the current stream's work is recorded."""
        mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        super().capture_begin(self.graph_pool, mode)

    def instantiate(self) -> None:
        """Nothing: what CANN has captured can be replayed as it is, whatever keep_graph says."""

    def __enter__(self) -> None:
        synchronize()
        empty_cache()
        empty_host_cache()
        self.capture_begin()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self._leave(kind)


memory_stats = _of_memory("memory_stats")
memory_allocated = _of_memory("memory_allocated")
max_memory_allocated = _of_memory("max_memory_allocated")
memory_reserved = _of_memory("memory_reserved")
max_memory_reserved = _of_memory("max_memory_reserved")
reset_peak_memory_stats = _of_memory("reset_peak_memory_stats")
reset_accumulated_memory_stats = _of_memory("reset_accumulated_memory_stats")
empty_cache, empty_host_cache = torch.npu.empty_cache, torch.npu.host_empty_cache
_MEMORY = """empty_cache empty_host_cache get_memory_info max_memory_allocated max_memory_reserved memory_allocated memory_reserved
    memory_stats reset_accumulated_memory_stats reset_peak_memory_stats""".split()
memory: Any = torch._facade.module(__name__, "memory", "What torch.accelerator says of memory.",
                                   **{name: globals()[name] for name in _MEMORY})

__path__: list[str] = []       # modules that torch has below it are found by name
