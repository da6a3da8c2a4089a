"""Tensors on their way to other processes: as a descriptor of shared memory (cpu) or a key of CANN (npu); others by copy."""
from __future__ import annotations

import itertools
import os
import socket
import weakref
from multiprocessing import reduction
from typing import Any

import mindtorch_v2 as torch

Tensor = Any
_SharedMemory: Any = torch._storage.SharedMemory
# By device and inode: what came twice is one piece of memory here too. No callbacks: a Ctrl-C that came in one would be lost.
_received: dict[tuple[int, int], weakref.ref[Any]] = {}
_MOST_HELD = 200      # pieces of shared memory, each with descriptors, before what a loader gets is copied to memory of its own
_look_at = _MOST_HELD  # how many entries there may be before those of memory that has ended are looked for
_NOT_A_LEAF = ("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support crossing "
               "process boundaries.  If you just want to transfer the data, call detach() on the tensor before serializing "
               "(e.g., putting it on the queue).")


class StorageWeakRef:
    """A weak reference to a storage; equal to others of the same."""

    __slots__ = ("cdata", "_storage")

    def __init__(self, storage: Any) -> None:
        self.cdata: int = storage._cdata
        self._storage = weakref.ref(storage.untyped())

    def expired(self) -> bool:
        """Whether the storage has gone."""
        return self._storage() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageWeakRef) and (self is other or self.cdata == other.cdata)


# A worker of a DataLoader may end at any time, so it does not wait to be asked for a descriptor: it puts those of a message
# into a socket before it sends the message. Here are the ends at which this process reads, and a worker's number and end.
_channels: dict[int, socket.socket] = {}
_numbers = itertools.count()
_worker_channel: tuple[int, socket.socket] | None = None


def _socket_of(connection: Any) -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(connection.fileno()))


def open_channel(connection: Any) -> int:
    """A loader's way for descriptors of one worker: its number."""
    number = next(_numbers)
    _channels[number] = _socket_of(connection)
    return number


def close_channel(number: int) -> None:
    """The worker has ended."""
    _channels.pop(number).close()


def enter_worker(number: int, connection: Any) -> None:
    """From now on this process is a loader's worker: its tensors in shared memory go through the connection."""
    global _worker_channel
    _worker_channel = number, _socket_of(connection)


def _in_loader() -> bool:
    return torch.utils.data.get_worker_info() is not None


def _pass_descriptor(storage: Any) -> int | None:
    """The number of the channel into which the memory of a storage was put; None where it goes by copy."""
    if _worker_channel is None or storage._shared_memory is None:
        return None
    try:
        reduction.sendfds(_worker_channel[1], [storage._shared_memory.fd])
    except OSError:                               # too many on their way
        return None
    return _worker_channel[0]


def _shared(storage: Any) -> Any:
    """The storage in memory that can be sent; None where it cannot move there (NumPy has its address, it lies over a file)."""
    if storage.is_shared():
        return None if storage._shared_memory is None else storage
    try:
        return storage.share_memory_()
    except RuntimeError:
        return None


def reduce_storage(storage: Any) -> Any:
    """What another process makes the same storage of."""
    if storage.device.type == "cpu" and _in_loader():
        channel = _pass_descriptor(storage) if len(storage) else None
        return storage.__reduce_ex__(2) if channel is None else (rebuild_storage_passed, (channel, len(storage)))
    shared = None if storage.device.type != "cpu" else _shared(storage)
    if shared is None or not len(storage):
        return storage.__reduce_ex__(2)
    return rebuild_storage_fd, (reduction.DupFd(shared._shared_memory.fd), len(storage))


def rebuild_storage_fd(descriptor: Any, size: int) -> Any:
    """A storage over memory that another process has sent."""
    return _over_descriptor(descriptor.detach(), size)


def rebuild_storage_passed(channel: int, size: int) -> Any:
    """A storage over memory that a loader's worker has sent."""
    if channel not in _channels:
        raise EOFError("the loader of this batch was closed")
    (fd,) = reduction.recvfds(_channels[channel], 1)
    if len(_received) < _MOST_HELD or _held() < _MOST_HELD:
        return _over_descriptor(fd, size)
    made = torch.UntypedStorage(size)
    with open(fd, "rb", buffering=0) as file:
        file.readinto(memoryview(made))
    return made


def _held() -> int:
    """How many pieces of received memory are in use; those that have ended are forgotten."""
    for key, memory in list(_received.items()):
        if memory() is None:
            _received.pop(key, None)
    return len(_received)


def _over_descriptor(fd: int, size: int) -> Any:
    global _look_at
    found = os.fstat(fd)
    if found.st_size < size:
        os.close(fd)
        raise RuntimeError(f"shared memory of {found.st_size} bytes for a storage of {size}")
    known = _received.get((found.st_dev, found.st_ino))
    memory = None if known is None else known()
    if memory is None:
        memory = _SharedMemory(fd, found.st_size)
        _received[found.st_dev, found.st_ino] = weakref.ref(memory)
        if len(_received) >= _look_at:
            _look_at = max(_MOST_HELD, 2 * _held())
    else:
        os.close(fd)
    return torch._storage.over_memory(memory, size)


def reduce_tensor(tensor: Tensor) -> Any:
    """What another process makes the same tensor of: over the same memory, where it is the cpu's."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(_NOT_A_LEAF)
    if tensor.layout is torch.strided and tensor.device.type == "npu":
        return _reduce_npu(tensor) or tensor.__reduce_ex__(2)
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return tensor.__reduce_ex__(2)
    storage = tensor.untyped_storage()
    if not len(storage) or (storage._shared_memory if _in_loader() else _shared(storage)) is None:
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

torch._named.complete(__name__)
