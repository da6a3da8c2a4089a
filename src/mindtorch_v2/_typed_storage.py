"""TypedStorage: an untyped storage read as items of one dtype, as torch had storages first."""
from __future__ import annotations

import functools
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._storage import UntypedStorage, file_of, loader

# What the items of quantised storages are read as.
_INTEGERS = {"quint8": "uint8", "quint4x2": "uint8", "quint2x4": "uint8", "qint8": "int8", "qint32": "int32"}

# Dtypes that came after torch.FloatStorage and its like.
_UNNAMED = frozenset(("uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
                      "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"))
NAMED_TYPES: dict[tuple[Any, str], type] = {}    # (dtype, type of device) -> torch.FloatStorage and its like: see _legacy.py
# s.double() and its like: the items as another dtype, in a storage of their own.
_CASTS = {"double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16", "long": "int64", "int": "int32",
          "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "complex_double": "complex128",
          "complex_float": "complex64", "float8_e5m2": "float8_e5m2", "float8_e4m3fn": "float8_e4m3fn",
          "float8_e5m2fnuz": "float8_e5m2fnuz", "float8_e4m3fnuz": "float8_e4m3fnuz"}
_FORMS = """ * (*, torch.device device, torch.dtype dtype)
 * (int size, *, torch.device device, torch.dtype dtype)
 * (Sequence data, *, torch.device device, torch.dtype dtype)
 * (*, UntypedStorage wrap_storage, torch.dtype dtype)
"""


def wrong_arguments(maker: str, forms: str, why: str) -> str:
    """What torch says of arguments that make no storage."""
    return f"{maker} received an invalid combination of arguments. Expected one of:\n{forms}{why}"


def _check_wrapped(args: tuple[Any, ...], storage: Any, dtype: Any, device: Any) -> None:
    """Refuses what cannot come with wrap_storage."""
    said = ("No positional arguments should be given when using 'wrap_storage'" if args else
            "Argument 'dtype' must be specified" if dtype is None else
            "Argument 'device' should not be specified when 'wrap_storage' is given" if device is not None else "")
    if said:
        raise RuntimeError(wrong_arguments("TypedStorage.__init__", _FORMS, said))
    if not isinstance(dtype, _C.dtype):
        said = f"Argument 'dtype' must be torch.dtype, not {type(dtype)}"
    elif not isinstance(storage, UntypedStorage):
        said = f"Argument 'wrap_storage' must be UntypedStorage, but got {type(storage)}"
    if said:
        raise TypeError(wrong_arguments("TypedStorage.__init__", _FORMS, said))


def untyped_of(data: Any, dtype: Any, device: Any) -> UntypedStorage:
    """A storage of a number of items (memory not set), or of the items of a sequence."""
    empty, to = _C._op_named("empty"), _C._to
    if isinstance(data, int):
        return UntypedStorage(data * dtype.itemsize, device=device)
    if isinstance(data, (str, _C.TensorBase)) or not hasattr(data, "__len__"):
        raise TypeError(f"Argument type not recognized: {type(data)}")
    items = _C._from_data(list(data), _C._dtype_named(_INTEGERS.get(dtype._name, dtype._name)), False)
    items = to(items, None, device, False, False, None) if len(items) else empty((0,), device=device)
    return items.untyped_storage()


class _Removal(threading.local):
    """What is said of TypedStorage going: once, or at every use; what one method does by others is one use."""
    always = said = within = False


_removal = _Removal()


def warn_of_removal(stacklevel: int = 2) -> None:
    """Says that TypedStorage is deprecated: once, unless always is set."""
    if _removal.within or _Removal.said and not _Removal.always:
        return
    _Removal.said = True
    warnings.warn("TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage "
                  "class. This should only matter to you if you are using storages directly.  To access UntypedStorage directly, "
                  "use tensor.untyped_storage() instead of tensor.storage()", UserWarning, stacklevel=stacklevel + 1)


def reset_removal() -> None:
    """The next use warns again."""
    _Removal.said = False


def set_always_warns(always: bool) -> None:
    """Whether every use warns."""
    if not isinstance(always, bool):
        raise AssertionError(f"always must be bool, got {type(always).__name__}")
    _Removal.always = always


def always_warns() -> bool:
    """What set_always_warns was given."""
    return _Removal.always


def _warning(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that warns before it runs."""
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _removal.within or kwargs.get("_internal"):
            return method(self, *args, **kwargs)
        warn_of_removal()
        _removal.within = True
        try:
            return method(self, *args, **kwargs)
        finally:
            _removal.within = False
    return call


class TypedStorage:
    """An untyped storage read as items of one dtype."""
    __module__ = f"{__package__}.storage"

    is_sparse = is_hpu = False

    @property
    def is_cuda(self) -> bool:
        """False: there are no CUDA devices."""
        return False

    def __init__(self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None,
                 _internal: bool = False) -> None:
        if wrap_storage is not None:
            _check_wrapped(args, wrap_storage, dtype, device)
            self._untyped_storage, self.dtype = wrap_storage, dtype
            return
        if len(args) > 1:
            raise RuntimeError(wrong_arguments("TypedStorage.__init__", _FORMS, "Too many positional arguments"))
        if dtype is not None and not isinstance(dtype, _C.dtype):
            raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
        self.dtype = _C.get_default_dtype() if dtype is None else dtype
        self._untyped_storage = untyped_of(args[0] if args else 0, self.dtype, _C.device("cpu" if device is None else device))

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        """A storage with a copy of the items in a buffer: see UntypedStorage.from_buffer."""
        kwargs.setdefault("dtype", getattr(cls, "dtype", None))
        made = UntypedStorage.from_buffer(*args, **kwargs)
        return TypedStorage(wrap_storage=made, dtype=kwargs["dtype"], _internal=True)

    def __reduce__(self) -> Any:
        named = NAMED_TYPES.get((self.dtype, "cpu"))
        if named is None:        # PyTorch's files have no such storage; its bytes and the dtype do
            return _typed, (self._untyped_storage, self.dtype)
        return loader(), (file_of(self._untyped_storage, f"torch\n{named.__name__}", self.dtype.itemsize),)

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    @property
    def filename(self) -> str | None:
        """The file that it lies over, where from_file made it."""
        return self._untyped_storage.filename

    def pickle_storage_type(self) -> str:
        """The name of the class that files have for it."""
        if self.dtype._name in _UNNAMED:
            raise KeyError(f"dtype {self.dtype} is not recognized")
        return f"{_C.TYPE_WORDS[self.dtype._id]}Storage"

    _pickle_storage_type = pickle_storage_type

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its type; with a dtype, or the name or class of a type, a storage of that."""
        if dtype is not None:
            name = dtype.rpartition(".")[2] if isinstance(dtype, str) else getattr(dtype, "__name__", "")
            words = {f"{word}Storage": kind for word, kind in zip(_C.TYPE_WORDS, _C.DTYPE_NAMES)}
            return self._cast(_C._dtype_named(words[name]) if name in words else dtype)
        if self.dtype._name in _UNNAMED or self.device.type == "meta":
            return "torch.storage.TypedStorage"
        place = "" if self.device.type == "cpu" else self.device.type + "."
        return f"torch.{place}{self._pickle_storage_type()}"

    def element_size(self) -> int:
        return self.dtype.itemsize

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        return self.nbytes() // self.dtype.itemsize

    __len__ = _size = size
    _nbytes, _element_size = nbytes, element_size

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        return self._over(self._untyped_storage.cuda(device, non_blocking))

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def get_device(self) -> int | None:
        """The index of the device; None on the CPU."""
        return self._untyped_storage.get_device()

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    _is_shared, _share_memory_ = is_shared, share_memory_

    def _share_fd_cpu_(self) -> tuple[int, int]:
        descriptor, size = self._untyped_storage._share_fd_cpu_()
        return descriptor, size // self.dtype.itemsize

    def _share_filename_cpu_(self) -> Any:
        return self._untyped_storage._share_filename_cpu_()

    def _share_cuda_(self) -> Any:
        return self._untyped_storage._share_cuda_()

    def hpu(self, device: Any = None, non_blocking: bool = False) -> Any:
        return self._untyped_storage.hpu(device, non_blocking)

    def _write_file(self, f: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """As UntypedStorage._write_file."""
        self._untyped_storage._write_file(f, is_real_file, save_size, element_size)

    @property
    def _dtype(self) -> Any:
        return self.dtype

    def _get_legacy_storage_class(self) -> Any:
        """The class of storages with this dtype; None where there is none of the device."""
        return NAMED_TYPES.get((self.dtype, self.device.type))

    def is_pinned(self, device: Any = None) -> bool:
        return self._untyped_storage.is_pinned()

    def _over(self, storage: UntypedStorage) -> TypedStorage:
        return TypedStorage(wrap_storage=storage, dtype=self.dtype, _internal=True)

    _new_wrapped_storage = _over

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = None) -> TypedStorage:
        """A storage of items in memory that other processes can share."""
        dtype = getattr(cls, "dtype", None) or _C.get_default_dtype()
        storage = UntypedStorage._new_shared(size * dtype.itemsize, device="cpu" if device is None else device)
        return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)

    def _weak_ref(self) -> int:
        return self._untyped_storage._weak_ref()

    _free_weak_ref, _expired = UntypedStorage._free_weak_ref, UntypedStorage._expired

    def clone(self) -> TypedStorage:
        return self._over(self._untyped_storage.clone())

    def fill_(self, value: Any) -> TypedStorage:
        self._tensor().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        self._untyped_storage.copy_(source, non_blocking)
        return self

    def resize_(self, size: int) -> TypedStorage:
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    _resize_ = resize_

    def resizable(self) -> bool:
        return self._untyped_storage.resizable()

    def pin_memory(self, device: Any = None) -> TypedStorage:
        return self._over(self._untyped_storage.pin_memory())

    def cpu(self) -> TypedStorage:
        return self._over(self._untyped_storage.cpu())

    def npu(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        return self._over(self._untyped_storage.npu(device, non_blocking))

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """A copy on another device; itself when it is there."""
        return self._over(self._untyped_storage.to(device=device, non_blocking=non_blocking))

    @classmethod
    def from_file(cls, filename: str, shared: bool, size: int) -> TypedStorage:
        """A storage of items over a file; only the named types know of what."""
        dtype = getattr(cls, "dtype", None)
        if dtype is None:
            raise RuntimeError("from_file can only be called on derived classes")
        untyped = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)

    def _tensor(self) -> Any:
        dtype = _C._dtype_named(_INTEGERS.get(self.dtype._name, self.dtype._name))
        made = _C._op_named("empty")((0,), dtype=dtype, device=self.device)
        return made.set_(self._untyped_storage, 0, (self.size(),), (1,))

    def _cast(self, dtype: Any) -> TypedStorage:
        if dtype == self.dtype:
            return self
        return TypedStorage(wrap_storage=_C._to(self._tensor(), dtype, None, False, True, None).untyped_storage(), dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self._tensor()[index].item()

    _getitem = __getitem__

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, (int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        self._tensor()[index] = value._tensor() if isinstance(value, TypedStorage) else value

    def tolist(self) -> list[Any]:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._tensor().tolist()

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.__deepcopy__(memo), dtype=self.dtype)

    def __repr__(self) -> str:
        shown = "...\n" if self.device.type == "meta" else "".join(f" {v}\n" for v in self.tolist()) or " \n"
        return f"{shown}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"


def _cast_method(name: str, dtype: Any) -> Callable[[Any], TypedStorage]:
    def cast(self: Any) -> TypedStorage:
        typed = self if isinstance(self, TypedStorage) else TypedStorage(wrap_storage=self, dtype=_C._dtype_named("uint8"))
        return typed._cast(dtype)
    cast.__name__, cast.__doc__ = name, f"The items as {dtype}."
    return cast


for _name, _target in _CASTS.items():
    for _kind in (TypedStorage, UntypedStorage):
        setattr(_kind, _name, _cast_method(_name, _C._dtype_named(_target)))
for _name, _member in list(vars(TypedStorage).items()):
    if _name.startswith("_") and _name not in ("__init__", "__len__", "__getitem__", "__setitem__", "__iter__", "__copy__",
                                               "__deepcopy__", "__repr__"):
        continue
    if isinstance(_member, types.FunctionType):
        setattr(TypedStorage, _name, _warning(_member))
    elif isinstance(_member, property) and _member.fget is not None:
        setattr(TypedStorage, _name, property(_warning(_member.fget), doc=_member.__doc__))


def _typed(storage: UntypedStorage, dtype: Any) -> TypedStorage:
    """What a pickle calls for a dtype that PyTorch's files have no storage of."""
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
