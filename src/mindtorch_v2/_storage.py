"""UntypedStorage, a block of bytes as Python sees it; _typed_storage.py reads such blocks as items of a dtype."""
from __future__ import annotations

import mmap
import operator
import os
import pickle
import re
import sys
import weakref
from typing import Any, NoReturn

from mindtorch_v2 import _C
from mindtorch_v2._C import StorageBase

_referred: weakref.WeakValueDictionary[int, StorageBase] = weakref.WeakValueDictionary()     # by address
_OPTIONS = "*, int allocator = None, torch.device device = None"
_STEP = "Trying to slice with a step of {}, but only a step of 1 is supported"


class SharedMemory(mmap.mmap):
    """Memory behind a descriptor, without a file, which other processes can be given."""
    _descriptor: Any

    def __new__(cls, fd: int, size: int) -> SharedMemory:
        descriptor = _C._core.Descriptor(fd)
        made = super().__new__(cls, fd, size)
        made._descriptor = descriptor
        return made

    @property
    def fd(self) -> int:
        return int(self._descriptor.number)

    @classmethod
    def of_size(cls, size: int) -> SharedMemory:
        fd = os.memfd_create("torch_shared", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        return cls(fd, size)


def over_memory(memory: SharedMemory, size: int) -> UntypedStorage:
    """A storage over shared memory."""
    return _C._core._from_buffer(memory, _C._dtype_named("uint8"), size, 0).untyped_storage()


def over_device_memory(address: int, size: int, device: Any, owner: Any) -> UntypedStorage:
    """A storage over memory of a device that owner keeps."""
    return _C._core._from_device_memory(address, size, device, owner).untyped_storage()


class UntypedStorage(StorageBase):
    """A block of bytes on a device."""
    __module__ = f"{__package__}.storage"

    is_sparse = is_sparse_csr = is_hpu = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = [*args, *(kwargs[name] for name in ("size", "sequence") if name in kwargs)]
        if len(given) > 1 or kwargs.keys() - {"size", "sequence", "device", "allocator"}:
            got = [_C._said_type(value) for value in args] + [f"{n}={_C._said_type(value)}" for n, value in kwargs.items()]
            raise TypeError(f"torch.UntypedStorage() received an invalid combination of arguments - got ({', '.join(got)}), but "
                            f"expected one of:\n * ({_OPTIONS})\n * (int size, {_OPTIONS})\n * (object sequence, {_OPTIONS})\n")
        size = given[0] if given else 0
        if not isinstance(size, (bool, StorageBase)) and hasattr(type(size), "__index__") and not getattr(size, "shape", None):
            size = operator.index(size)
        super().__init__(size, device=kwargs.get("device"))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise RuntimeError(_STEP.format(step))
            return _over(memoryview(self)[start:stop]) if start < stop else UntypedStorage(0)
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if not hasattr(index, "__index__"):
            raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self._bytes()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)) and not hasattr(index, "__index__"):
            raise RuntimeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
        if isinstance(index, slice) and index.step not in (None, 1):
            raise RuntimeError(_STEP.format(index.step))
        if isinstance(value, (str, float)):
            raise RuntimeError(f"can only set storage content with a int types, but got {type(value).__name__} instead")
        if not isinstance(index, slice) and not 0 <= index < len(self):
            raise RuntimeError("out of bounds")
        if isinstance(value, int) and isinstance(index, slice):
            value = bytes([value & 255]) * len(range(*index.indices(len(self))))
        memoryview(self)[index] = value & 255 if isinstance(value, int) else value

    def __repr__(self) -> str:
        shown = "".join(f" {v}\n" for v in self.tolist()) or " \n" if self.device.type == "cpu" else "...\n"
        return f"{shown}[torch.storage.UntypedStorage(device={self.device}) of size {len(self)}]"

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._bytes().tolist()

    def _bytes(self) -> Any:
        """The storage as a tensor of bytes."""
        return _C._op_named("empty")((0,), dtype=_C._dtype_named("uint8"), device=self.device).set_(self)

    def clone(self) -> UntypedStorage:
        return self._bytes().clone().untyped_storage()

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        source = getattr(source, "_untyped_storage", source)
        if not isinstance(source, UntypedStorage):
            raise TypeError(f"copy_(): argument 'src' (position 1) must be torch.Storage, not {type(source).__name__}")
        if len(source) != len(self):
            raise RuntimeError(f"size does not match, self was {len(self)} bytes but src was {len(source)} bytes")
        self._bytes().copy_(source._bytes(), bool(non_blocking))
        return self

    def byteswap(self, dtype: Any) -> None:
        """Reverses the bytes of every item of a dtype; of complex numbers, those of both parts."""
        n = dtype.itemsize // (2 if dtype.is_complex else 1)
        memory, before = memoryview(self), bytes(self)
        for at in range(n if n > 1 else 0):
            memory[at::n] = before[n - 1 - at::n]

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *,
                    dtype: Any = None) -> UntypedStorage:
        """A storage with a copy of the items in a buffer, which lie there in the given order of bytes."""
        if dtype is None:
            raise RuntimeError("argument 'dtype' cannot be None")
        if dtype is not _C._dtype_named("uint8") and byte_order is None:
            raise RuntimeError("function missing required argument 'byte_order' (pos 2)")
        if dtype.itemsize > 1 and byte_order not in (None, "native", "big", "little"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        data = memoryview(buffer).cast("B")
        if not 0 <= offset <= len(data):
            raise ValueError(f"offset must be non-negative and no greater than buffer length ({offset}) , but got {len(data)}")
        if count < 0 and (len(data) - offset) % dtype.itemsize:
            raise ValueError(f"buffer size ({len(data)}) must be a multiple of element size ({dtype.itemsize})")
        size = len(data) - offset if count < 0 else count * dtype.itemsize
        if offset + size > len(data):
            raise ValueError(f"buffer has only {len(data) - offset} elements after offset {offset}, but specified a size of "
                             f"{count}")
        items = bytes(data[offset:offset + size])
        made = cls._from_bytes(bytes(map(bool, items)) if dtype is _C._dtype_named("bool") else items)
        if byte_order not in (None, "native", sys.byteorder):
            made.byteswap(dtype)
        return made

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """A storage in memory that other processes can share."""
        return cls(size, device=device).share_memory_()

    def fill_(self, value: int) -> UntypedStorage:
        if not isinstance(value, int):
            raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
        self._bytes().fill_(int(value) & 255)
        return self

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """A copy on another device; itself when it is there."""
        return _C._to(self._bytes(), None, device, non_blocking, False, None).untyped_storage()

    def cpu(self) -> UntypedStorage:
        return self.to(device="cpu")

    def npu(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        return self.to(device="npu" if device is None else device, non_blocking=non_blocking)

    def element_size(self) -> int:
        return 1

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def _fix_weakref(self) -> None:
        """Nothing to do: a weak reference never sees a storage whose end has begun."""

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def is_pinned(self, device: Any = None) -> bool:
        return self._pinned

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """A pinned copy; itself when it is pinned."""
        if self._pinned:
            return self
        if self.device.type != "cpu":
            raise TypeError(f"cannot pin '{self.type()}' only CPU memory can be pinned")
        made = self.clone()
        made._pin()
        return made

    def type(self) -> str:
        return "torch.storage.UntypedStorage" if self.device.type == "cpu" else f"torch.{self.device.type}.UntypedStorage"

    @property
    def is_npu(self) -> bool:
        return self.device.type == "npu"

    @property
    def is_cuda(self) -> bool:
        return False

    def get_device(self) -> int | None:
        """The index of the device; None on the CPU."""
        return self.device.index

    @property
    def _shared_memory(self) -> SharedMemory | None:
        """The memory that other processes can be given; None where it is not in such."""
        owner = self._owner
        return owner[0] if isinstance(owner, tuple) and isinstance(owner[0], SharedMemory) else None

    def is_shared(self) -> bool:
        """Whether it lies in shared memory or over a file."""
        return self._shared_memory is not None or getattr(self, "_over_file", False)

    def share_memory_(self) -> UntypedStorage:
        """Moves the bytes to memory that other processes can share: those forked from now on, and those it is sent to."""
        if self.device.type == "meta":
            raise RuntimeError("_share_fd_: only available on CPU")
        if not self.is_shared():
            self._move_to(SharedMemory.of_size(max(len(self), 1)))
        return self

    def _share_fd_cpu_(self) -> tuple[int, int]:
        """A descriptor of the shared memory that it lies in from now on, and the number of bytes."""
        if self.device.type != "cpu":
            raise RuntimeError("_share_fd_: only available on CPU")
        memory = self.share_memory_()._shared_memory
        if memory is None:
            raise RuntimeError("_share_fd_: the storage lies over a file")
        return os.dup(memory.fd), len(self)

    def _share_filename_cpu_(self) -> NoReturn:
        raise RuntimeError("_share_filename_: only available on CPU" if self.device.type != "cpu" else
                           "_share_filename_: shared memory is behind descriptors here, which have no names")

    def _share_cuda_(self) -> NoReturn:
        raise RuntimeError("CUDA is not available")

    def hpu(self, device: Any = None, non_blocking: bool = False) -> NoReturn:
        """Refused: there are no such devices."""
        raise AssertionError("HPU device module is not loaded")

    def _write_file(self, f: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """Writes the bytes to a file, behind the number of items where that is wanted."""
        items = self.cpu()
        if save_size:
            f.write((len(self) // element_size).to_bytes(8, "little"))
        f.write(items)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A storage over a file: with shared, what is written to it goes to the file, which is made where there is none."""
        try:
            fd = os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o600)
        except OSError as refused:
            raise RuntimeError(f"unable to open file <{filename}> in {'read-write' if shared else 'read-only'} mode: "
                               f"{refused.strerror} ({refused.errno})") from None
        try:
            if os.fstat(fd).st_size < nbytes:
                if not shared:
                    raise RuntimeError(f"file <{filename}> size <{os.fstat(fd).st_size}> is smaller than the required mapping "
                                       f"size <{nbytes}>")
                os.ftruncate(fd, nbytes)
            if nbytes == 0:
                return cls(0)
            memory = mmap.mmap(fd, nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        finally:
            os.close(fd)
        made = _C._core._from_buffer(memory, _C._dtype_named("uint8"), -1, 0).untyped_storage()
        made._filename, made._over_file = filename if shared else None, True
        return made

    @property
    def filename(self) -> str | None:
        """The file that it lies over, where from_file made it."""
        return getattr(self, "_filename", None)

    def new(self) -> UntypedStorage:
        return UntypedStorage(0, device=self.device)

    def __bool__(self) -> bool:
        return len(self) > 0

    def untyped(self) -> UntypedStorage:
        return self

    def _weak_ref(self) -> int:
        """The number under which _expired tells whether the storage has gone: its address."""
        _referred[self._cdata] = self
        return self._cdata

    @classmethod
    def _free_weak_ref(cls, cdata: int) -> None:
        """Nothing to do: what _weak_ref gave holds nothing."""

    @classmethod
    def _expired(cls, cdata: int) -> bool:
        """Whether the storage has gone that _weak_ref gave this number for."""
        return cdata not in _referred

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        known = memo.setdefault("mindtorch_v2 storages", {})
        if self._cdata not in known:
            known[self._cdata] = self.clone()
        return known[self._cdata]

    def __reduce__(self) -> Any:
        return loader(), (file_of(self, "torch.storage\nUntypedStorage", 1),)


def _over(buffer: Any) -> UntypedStorage:
    """A storage over the memory of a buffer, which it keeps."""
    return _C._core._from_buffer(buffer, _C._dtype_named("uint8"), -1, 0).untyped_storage()


# ---- in a pickle, a storage is a file of torch.save as it was before PyTorch 1.6 ------------------------------------------
_HEAD = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({
    "protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}, 2)
_KEYS = b"\x80\x02]X\x01\x00\x00\x000a."
_FILE = re.compile(re.escape(_HEAD) + rb"\x80\x02\(X\x07\0\0\0storagec([\w.]+\n\w+)\nX\x01\0\0\0000X\x03\0\0\0cpu"
                   rb"\x8a\x08(.{8})NtQ\." + re.escape(_KEYS) + rb"(.{8})", re.DOTALL)


def file_of(storage: UntypedStorage, kind: str, itemsize: int) -> bytes:
    """The file with one storage, whose class it names; readable by any PyTorch."""
    place = str(storage.device).encode()
    count = (len(storage) // itemsize).to_bytes(8, "little")
    return b"".join((_HEAD, b"\x80\x02(X\x07\0\0\0storagec", kind.encode(), b"\nX\x01\0\0\x000X",
                     len(place).to_bytes(4, "little"), place, b"\x8a\x08", count, b"NtQ.", _KEYS, count, storage.cpu()))


def parts_of(file: bytes) -> tuple[str, int, memoryview] | None:
    """The class, number of items and bytes of a storage in a file that file_of made for the cpu; None for other files."""
    found = _FILE.match(file)
    if found is None or found[2] != found[3]:
        return None
    return found[1].decode(), int.from_bytes(found[2], "little"), memoryview(file)[found.end():]


def loader() -> Any:
    """What a pickle calls: torch.storage._load_from_bytes, which the package finds when it is asked."""
    return sys.modules[__package__].storage._load_from_bytes


_C._register_class("UntypedStorage", UntypedStorage)
