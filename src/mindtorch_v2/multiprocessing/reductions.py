"""Tensors on their way to other processes: those of the cpu go as a descriptor of shared memory, all others by copy."""
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
    """A worker of a DataLoader ends when it likes: what it sends must not wait for it to hand over descriptors."""
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


def init_reductions() -> None:
    """Lets queues, pipes and arguments of processes send tensors this way."""
    reduction.ForkingPickler.register(torch.Tensor, reduce_tensor)
    reduction.ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
    reduction.ForkingPickler.register(torch.UntypedStorage, reduce_storage)
