"""Tensors on their way to other processes: as a descriptor of shared memory (cpu) or a key of CANN (npu); others by copy."""
from __future__ import annotations

import os
import weakref
from multiprocessing import reduction
from typing import Any

import mindtorch_v2 as torch

Tensor = Any
_SharedMemory: Any = torch._storage.SharedMemory
# By device and inode: what came twice is one piece of memory here too.
_received: weakref.WeakValueDictionary[tuple[int, int], Any] = weakref.WeakValueDictionary()
_NOT_A_LEAF = ("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
               "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
               "(e.g., putting it on the queue).")


def _in_loader() -> bool:
    """A worker of a DataLoader may end at any time: what it sends must not depend on it to pass descriptors."""
    return torch.utils.data.get_worker_info() is not None


def _shared(storage: Any) -> Any:
    """The storage in memory that can be sent; None where it cannot move there (NumPy has its address, it lies over a file)."""
    if storage.is_shared():
        return storage if isinstance(storage._owner[0], _SharedMemory) else None
    try:
        return storage.share_memory_()
    except RuntimeError:
        return None


def reduce_storage(storage: Any) -> Any:
    """What another process makes the same storage of."""
    shared = None if storage.device.type != "cpu" or _in_loader() else _shared(storage)
    if shared is None or not len(storage):
        return storage.__reduce_ex__(2)
    return rebuild_storage_fd, (reduction.DupFd(shared._owner[0].fd), len(storage))


def rebuild_storage_fd(descriptor: Any, size: int) -> Any:
    """A storage over memory that another process has sent."""
    fd = descriptor.detach()
    found = os.fstat(fd)
    if found.st_size < size:
        os.close(fd)
        raise RuntimeError(f"shared memory of {found.st_size} bytes for a storage of {size}")
    memory = _received.get((found.st_dev, found.st_ino))
    if memory is None:
        memory = _SharedMemory(fd, found.st_size)
        _received[found.st_dev, found.st_ino] = memory
    else:
        os.close(fd)
    return torch._storage.over_memory(memory, size)


def reduce_tensor(tensor: Tensor) -> Any:
    """What another process makes the same tensor of: over the same memory, where it is the cpu's."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(_NOT_A_LEAF)
    if tensor.layout is torch.strided and tensor.device.type == "npu":
        return _reduce_npu(tensor) or tensor.__reduce_ex__(2)
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or _in_loader():
        return tensor.__reduce_ex__(2)
    storage = tensor.untyped_storage()
    if not len(storage) or _shared(storage) is None:
        return tensor.__reduce_ex__(2)
    return rebuild_tensor, (type(tensor), storage, tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(),
                            tensor.requires_grad)


def rebuild_tensor(cls: type, storage: Any, dtype: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...],
                   requires_grad: bool) -> Tensor:
    """A tensor of a storage that was sent."""
    made = torch.empty(0, dtype=dtype).set_(storage, offset, size, stride)
    return torch.nn.Parameter(made, requires_grad) if cls is torch.nn.Parameter else made.requires_grad_(requires_grad)


_SLOTS, _SENT = 512, -1


class _Slots:
    """A page that both sides see. A slot is _SENT until the message is read, then the reader's process, and 0 when that no longer
    uses the memory: each has one writer at a time."""

    def __init__(self) -> None:
        self.page = _SharedMemory.of_size(8 * _SLOTS)
        self.numbers = memoryview(self.page).cast("B").cast("q")
        self.sent: dict[int, Any] = {}            # storages, by slot

    def take(self, storage: Any) -> int | None:
        slot = next((i for i in range(_SLOTS) if i not in self.sent), None)
        if slot is not None:
            self.numbers[slot], self.sent[slot] = _SENT, storage
        return slot

    def is_released(self, slot: int) -> bool:
        reader = self.numbers[slot]
        if reader == _SENT or reader > 0 and _is_running(reader):
            return False
        self.sent.pop(slot, None)
        return True


_pages: list[_Slots] = []


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:                       # another user's
        return True
    return True


def _slot_for(storage: Any) -> tuple[_Slots, int]:
    torch.npu.ipc_collect()
    for page in _pages:
        slot = page.take(storage)
        if slot is not None:
            return page, slot
    _pages.append(_Slots())
    return _slot_for(storage)


def _reduce_npu(tensor: Tensor) -> Any:
    """What another process makes the same tensor of, over the same memory of the device; None where CANN cannot share it."""
    storage = tensor.untyped_storage()
    if isinstance(storage._owner, torch.npu._ipc.Received):
        raise RuntimeError("Attempted to send an NPU tensor received from another process; this is not currently supported. "
                           "Consider cloning before sending.")
    place = torch.npu._ipc.export(storage.device.index, storage.data_ptr()) if len(storage) else None
    if place is None:
        return None
    page, slot = _slot_for(storage)
    torch.npu._ipc.keep_sent(storage, lambda: page.is_released(slot))
    return rebuild_npu_tensor, (type(tensor), storage.device.index, tuple(place), len(storage), tensor.dtype,
                                tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad,
                                reduction.DupFd(page.page.fd), slot, os.getpid())


def rebuild_npu_tensor(cls: type, device: int, place: tuple[bytes, int], nbytes: int, dtype: Any, offset: int,
                       size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool, descriptor: Any, slot: int,
                       sender: int) -> Tensor:
    """A tensor over memory of an npu that another process has sent."""
    page = _SharedMemory(descriptor.detach(), 8 * _SLOTS)
    numbers = memoryview(page).cast("B").cast("q")
    storage = _sent_by_this_process(page.fd, slot) if sender == os.getpid() else None
    if storage is None:
        def released() -> None:
            numbers[slot] = 0

        numbers[slot] = os.getpid()
        memory = torch.npu._ipc.Received(device, torch.npu._ipc.Place(*place), released)
        storage = torch._storage.over_device_memory(memory.address, nbytes, torch.device("npu", device), memory)
    else:                                         # back at its sender, the only user
        numbers[slot] = 0
    made = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, size, stride)
    return torch.nn.Parameter(made, requires_grad) if cls is torch.nn.Parameter else made.requires_grad_(requires_grad)


def _sent_by_this_process(fd: int, slot: int) -> Any:
    found = os.fstat(fd)
    for page in _pages:
        if os.path.samestat(found, os.fstat(page.page.fd)):
            return page.sent[slot]
    return None


def init_reductions() -> None:
    """Lets queues, pipes and arguments of processes send tensors this way."""
    reduction.ForkingPickler.register(torch.Tensor, reduce_tensor)
    reduction.ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
    reduction.ForkingPickler.register(torch.UntypedStorage, reduce_storage)
