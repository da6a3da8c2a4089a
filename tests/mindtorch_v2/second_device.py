"""A second device for tests, written over the public interface alone: its memory is unreadable from the host, its ops run on
the kernels of the CPU. Registered the way a backend from outside is in PyTorch, as PrivateUse1 under a name of its own."""
from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

import mindtorch_v2 as torch
from mindtorch_v2 import _C

NAME, DEVICES = "remote", 2
NO_ACCESS, READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Block:
    """Inaccessible pages, unless the device has mapped them for a kernel."""

    live: WeakValueDictionary[int, Block] = WeakValueDictionary()

    def __init__(self, nbytes: int) -> None:
        self.size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.address = _libc.mmap(None, self.size, NO_ACCESS, flags, -1, 0)
        if self.address == ctypes.c_void_p(-1).value:
            raise torch.OutOfMemoryError(f"{NAME} out of memory. Tried to allocate {nbytes} bytes.")
        self.users = 0
        Block.live[self.address] = self

    def __del__(self) -> None:
        _libc.munmap(self.address, self.size)

    def open(self) -> None:
        self.users += 1
        if self.users == 1:
            _libc.mprotect(self.address, self.size, READ_WRITE)

    def close(self) -> None:
        self.users -= 1
        if self.users == 0:
            _libc.mprotect(self.address, self.size, NO_ACCESS)


# ---- tensors of the device as the kernels see them -------------------------------------------------------------------
def is_ours(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == NAME


def block_of(t: Any) -> Block | None:
    """The block of a tensor; None where it has no memory."""
    return Block.live.get(t.untyped_storage().data_ptr())


def flat(x: Any) -> Iterator[Any]:
    """All tensors of the device in nested arguments."""
    if isinstance(x, (tuple, list)):
        for item in x:
            yield from flat(item)
    elif is_ours(x):
        yield x


@contextlib.contextmanager
def opened(*values: Any) -> Iterator[None]:
    """The host may touch the memory of these tensors."""
    blocks = [block for block in map(block_of, flat(values)) if block is not None]
    for block in blocks:
        block.open()
    try:
        yield
    finally:
        for block in blocks:
            block.close()


def host_view(t: Any) -> Any:
    """A tensor of the CPU over the memory of one of the device, which is open."""
    nbytes = t.untyped_storage().nbytes()
    if nbytes == 0 or t.numel() == 0:
        return torch.empty(t.shape, dtype=t.dtype, device="cpu")
    raw = (ctypes.c_ubyte * nbytes).from_address(t.untyped_storage().data_ptr())
    whole = torch.frombuffer(raw, dtype=t.dtype, count=nbytes // t.element_size())
    return whole.as_strided(t.shape, t.stride(), t.storage_offset())


def on_host(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(on_host(item) for item in x)
    if isinstance(x, torch.device) and x.type == NAME:
        return torch.device("cpu")
    return host_view(x) if is_ours(x) else x


def host_generator(generator: Any, count: int) -> Any:
    """A generator of the CPU that draws what one of the device would next."""
    if generator is not None and generator.device.type == "cpu":
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    seed, offset = (generator or device.default_generator(device.current_device()))._next_seed_offset(count)
    return torch.Generator().manual_seed((seed ^ offset * 0x9E3779B97F4A7C15) & 0x7FFFFFFFFFFFFFFF)


# ---- the backend -------------------------------------------------------------------------------------------------------
class Remote(_C.Backend):
    """Memory, copies, kernels and the current device of the second device."""

    def __init__(self) -> None:
        self.thread = threading.local()

    def allocate(self, nbytes: int, index: int) -> tuple[int, Block]:
        if not 0 <= index < DEVICES:
            raise RuntimeError(f"{NAME}:{index} is none of the {DEVICES} devices")
        block = Block(nbytes)
        return block.address, block

    def move(self, index: int, to: int, source: int, nbytes: int) -> None:
        blocks = Block.live[to], Block.live[source]
        for block in blocks:
            block.open()
        ctypes.memmove(to, source, nbytes)
        for block in blocks:
            block.close()

    def copy(self, dst: Any, src: Any, non_blocking: bool) -> None:
        with torch.no_grad(), opened(dst, src):
            (host_view(dst) if is_ours(dst) else dst).copy_(host_view(src) if is_ours(src) else src)

    def kernel(self, row: Any, optional: bool) -> Callable[..., Any] | None:
        """Every row that has a kernel on the CPU; composites have their bodies."""
        return None if optional else Kernel(row)

    def current_device(self) -> int:
        return getattr(self.thread, "index", 0)


class Kernel:
    """A row on the device: the op of the CPU over the same memory."""

    def __init__(self, row: Any) -> None:
        self.row, self.op = row, _C._op_named(row.name)
        self.generator_at = row.names.index("generator") if row.is_random else -1

    def __call__(self, *given: Any) -> Any:
        if len(given) == 2 and isinstance(given[0], tuple) and isinstance(given[1], tuple):
            return self.into(*given)
        with torch.no_grad(), opened(given):
            made = self.compute(given, 0)
        place = next(t.device for t in flat(given))
        return tuple(t.to(place) for t in made) if isinstance(made, tuple) else made.to(place)

    def into(self, outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
        with torch.no_grad(), opened(outs, args):
            made = self.compute(args, max((out.numel() for out in outs if out is not None), default=0))
            for out, result in zip(outs, made if isinstance(made, (tuple, list)) else (made,)):
                if out is not None:
                    host_view(out).copy_(result)

    def compute(self, args: tuple[Any, ...], count: int) -> Any:
        given = list(on_host(args))
        if self.generator_at >= 0:
            given[self.generator_at] = host_generator(given[self.generator_at], count)
        return _C._call_bound(self.op, self.row, tuple(given))


device = Remote()


# ---- torch.remote ------------------------------------------------------------------------------------------------------
def make_module() -> ModuleType:
    """The module of the device type, with the functions that torch looks up in such a module."""
    module = ModuleType(f"torch.{NAME}")

    def set_device(index: Any) -> None:
        device.thread.index = index if isinstance(index, int) else torch.device(index).index

    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = lambda: DEVICES
    module.current_device = device.current_device
    module.set_device = set_device
    module.synchronize = lambda index=None: None
    module.manual_seed = lambda seed: device.default_generator(device.current_device()).manual_seed(seed) and None
    module.manual_seed_all = device.manual_seed_all
    module.get_rng_state = lambda index=0: device.default_generator(index).get_state()
    module.set_rng_state = lambda state, index=0: device.default_generator(index).set_state(state) and None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    return module


@contextlib.contextmanager
def registered() -> Iterator[Remote]:
    """The device, as long as the block lasts; the name stays, for a process gives PrivateUse1 one name."""
    torch.utils.rename_privateuse1_backend(NAME)
    _C._register_backend(NAME, device)
    torch._register_device_module(NAME, make_module())
    before = {cls: set(vars(cls)) for cls in (torch.Tensor, torch.nn.Module, torch.UntypedStorage)}
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    try:
        yield device
    finally:
        for cls, names in before.items():
            for name in set(vars(cls)) - names:
                delattr(cls, name)
        delattr(torch, NAME)
        _C._register_backend(NAME, _C.Backend(), ready=False)
