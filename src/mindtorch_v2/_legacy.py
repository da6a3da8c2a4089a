"""torch.FloatTensor, torch.FloatStorage and their families: constructors, and types to ask isinstance about."""
from __future__ import annotations

import warnings
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import device as Device
from mindtorch_v2._legacy_new import check_legacy_device as _check_device
from mindtorch_v2._legacy_new import legacy_error as _legacy_error
from mindtorch_v2._legacy_new import legacy_tensor as _legacy_tensor
from mindtorch_v2._storage import UntypedStorage
from mindtorch_v2._tensor import Tensor
from mindtorch_v2._typed_storage import NAMED_TYPES, TypedStorage, untyped_of, warn_of_removal, wrong_arguments

# The dtypes that had types of their own; later ones have not.
_WORDS = frozenset("Bool Byte Char Short Int Long Half BFloat16 Float Double".split())
_STORAGE_WORDS = _WORDS | set("ComplexFloat ComplexDouble QInt8 QUInt8 QInt32 QUInt4x2 QUInt2x4".split())


class _TensorType(type):
    """isinstance(x, torch.FloatTensor): a tensor of that dtype on that type of device."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Tensor) and (obj.dtype, obj.device.type) == (cls.dtype, cls._device) and (   # type: ignore
            obj.layout is cls.layout)            # type: ignore[attr-defined]

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """A tensor of the given sizes (memory not set), or of the given data."""
        if "dtype" in kwargs:
            raise _legacy_error(args, kwargs)
        _check_device(cls._device, device)   # type: ignore[attr-defined]
        return _legacy_tensor(*args, dtype=cls.dtype, device=cls._device, **kwargs)   # type: ignore[attr-defined]


def _types(device: str, module: str, kind: type = _TensorType) -> dict[str, type]:
    return {word + "Tensor": kind(word + "Tensor", (), {
        "dtype": _C._dtype_named(name), "_device": device, "is_cuda": device == "cuda", "__module__": module, "is_sparse": False,
        "layout": _C._named_constant("strided"), "__doc__": f"Tensors of {name} on {device}."})
        for word, name in zip(_C.TYPE_WORDS, _C.DTYPE_NAMES) if word in _WORDS}


# The name that torch has for the type of its legacy types.
_TensorType.__name__ = _TensorType.__qualname__ = "tensortype"
_TensorType.__module__ = "torch"


class _AbsentType(_TensorType):
    """torch.cuda.FloatTensor: a type for isinstance, of which no tensor can be made."""

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """Refuses: there are no such devices."""
        raise TypeError(f"type {cls.__module__}.{cls.__name__} not available. Torch not compiled with CUDA enabled.")


class _SparseType(_TensorType):
    """torch.sparse.FloatTensor: a COO tensor of that dtype; deprecated, as a warning says once."""
    warned = False

    def __instancecheck__(cls, obj: Any) -> bool:
        return super().__instancecheck__(obj)

    def __call__(cls, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        """A COO tensor of sizes, or of indices and values with or without a size."""
        if not _SparseType.warned:
            _SparseType.warned = True
            warnings.warn("torch.sparse.SparseTensor(...) is deprecated.  Please use torch.sparse_coo_tensor(...)",
                          UserWarning, stacklevel=2)
        empty = _C._op_named("empty")((0,), dtype=cls.dtype, layout=cls.layout, device=cls._device)   # type: ignore
        return empty.new(*args, device=device, **kwargs)


def _sparse_types() -> dict[str, type]:
    layout = _C._named_constant("sparse_coo")
    return {name: _SparseType(name, (), {
        "dtype": kind.dtype, "_device": "cpu", "is_cuda": False, "__module__": "torch.sparse",   # type: ignore[attr-defined]
        "is_sparse": True, "layout": layout, "__doc__": "Sparse tensors, as the dense ones."})
        for name, kind in tensor_types.items()}


class _StorageType(_TensorType):
    """isinstance(x, torch.FloatStorage): a typed storage of that dtype on that type of device."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, TypedStorage) and obj.dtype == cls.dtype and obj.device.type == cls._device   # type: ignore

    def __call__(cls, *args: Any, wrap_storage: Any = None, **options: Any) -> Any:
        """A storage of a number of items (memory not set), of the items of a sequence, or over an untyped storage."""
        if cls.__name__ == "_LegacyStorage":
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated")
        kind: Any = cls
        if options or len(args) + (wrap_storage is not None) > 1:
            said = f"Keyword argument {next(iter(options))!r} cannot be specified" if options else "Too many positional arguments"
            raise RuntimeError(wrong_arguments(f"{cls}.__new__", _STORAGE_FORMS, said))
        odd = args and (isinstance(args[0], (str, _C.TensorBase, _C.StorageBase, TypedStorage)) or not isinstance(args[0], int)
                        and not hasattr(args[0], "__len__"))
        if odd or wrap_storage is not None and not isinstance(wrap_storage, UntypedStorage):
            given = type(args[0] if args else wrap_storage)
            raise TypeError(wrong_arguments(f"{cls}.__new__", _STORAGE_FORMS, f"Argument type not recognized: {given}"))
        if wrap_storage is not None and wrap_storage.device.type != kind._device:
            said = f"Device of 'wrap_storage' must be {kind._device}, but got {wrap_storage.device.type}"
            raise RuntimeError(wrong_arguments(f"{cls}.__new__", _STORAGE_FORMS, said))
        if wrap_storage is None:
            wrap_storage = untyped_of(args[0] if args else 0, kind.dtype, Device(kind._device))
        warn_of_removal()
        return TypedStorage(wrap_storage=wrap_storage, dtype=kind.dtype, _internal=True)


_STORAGE_FORMS = """ * no arguments
 * (int size)
 * (Sequence data)
 * (*, UntypedStorage wrap_storage)
"""


class _LegacyStorage(TypedStorage, metaclass=_StorageType):
    """What the named storages have in common; it makes none itself."""

    __module__ = "torch.storage"
    dtype = _device = None


def _storages(device: str, module: str) -> dict[str, type]:
    return {word + "Storage": _StorageType(word + "Storage", (_LegacyStorage,), {
        "dtype": _C._dtype_named(name), "_device": device, "__module__": module, "__doc__": f"Storages of {name} on {device}."})
        for word, name in zip(_C.TYPE_WORDS, _C.DTYPE_NAMES) if word in _STORAGE_WORDS}


def _gone(name: str, instead: str) -> Any:
    raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. torch.{name} should be replaced "
                       f"with {instead}.")


def eig(self: Any, eigenvectors: bool = False, *, e: Any = None, v: Any = None) -> Any:
    """Raises: torch removed it."""
    _gone("eig", "torch.linalg.eig, whose results are complex")


def solve(input: Any, A: Any, *, out: Any = None) -> Any:
    """Raises: torch removed it."""
    _gone("solve", "torch.linalg.solve, whose arguments are reversed")


def _symeig(input: Any, eigenvectors: bool = False, upper: bool = True, *, out: Any = None) -> Any:
    """Raises: torch removed it."""
    _gone("symeig", "torch.linalg.eigh, which reads the lower triangle by default")


def lstsq(input: Any, A: Any, *, out: Any = None) -> Any:
    """Raises: torch removed it."""
    _gone("lstsq", "torch.linalg.lstsq, whose arguments are reversed")


def matrix_rank(input: Any, tol: Any = None, symmetric: bool = False, *, out: Any = None) -> Any:
    """Raises: torch removed it."""
    _gone("matrix_rank", "torch.linalg.matrix_rank, which calls symmetric hermitian")


class _Removed:
    """The methods among them."""

    def eig(self: Any, eigenvectors: bool = False) -> Any:
        """Raises: torch removed it."""
        return eig(self, eigenvectors)

    def solve(self: Any, other: Any) -> Any:
        """Raises: torch removed it."""
        return solve(self, other)

    def symeig(self: Any, eigenvectors: bool = False) -> Any:
        """Raises: torch removed it."""
        return _symeig(self, eigenvectors)

    def lstsq(self: Any, other: Any) -> Any:
        """Raises: torch removed it."""
        return lstsq(self, other)

    def __long__(self: Any) -> int:
        """What int() gives: Python 2 had two kinds of integers."""
        return int(self)


removed_methods = {name: method for name, method in vars(_Removed).items() if not name.startswith("_") or name == "__long__"}
for _name, _method in removed_methods.items():
    _method.__qualname__ = f"Tensor.{_name}"
removed = {"eig": eig, "solve": solve, "symeig": _symeig, "lstsq": lstsq, "matrix_rank": matrix_rank}

tensor_types = _types("cpu", "torch")
npu_tensor_types = _types("npu", "torch.npu")
cuda_tensor_types = _types("cuda", "torch.cuda", _AbsentType)
sparse_types = _sparse_types()
storage_types, npu_storage_types = _storages("cpu", "torch"), _storages("npu", "torch.npu")
NAMED_TYPES.update({(kind.dtype, kind._device): kind   # type: ignore[attr-defined]
                    for kinds in (storage_types, npu_storage_types) for kind in kinds.values()})


def set_default_tensor_type(t: Any, /) -> None:
    """Sets the default dtype by the name of a tensor type."""
    name = t.rpartition(".")[2] if isinstance(t, str) else None
    warnings.warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and "
                  "torch.set_default_device() as alternatives.", UserWarning, stacklevel=2)
    if isinstance(t, _AbsentType):
        raise TypeError(f"type {t.__module__}.{t.__name__} not available. Torch not compiled with CUDA enabled.")
    if isinstance(t, str) and name not in tensor_types and t != "torch.Tensor":
        raise AttributeError(f"module 'torch' has no attribute '{name}'")
    kind = tensor_types.get(name) if name is not None else t
    if not isinstance(kind, _TensorType):
        raise TypeError("invalid type object: only floating-point types are supported as the default type")
    _C.set_default_dtype(kind.dtype)   # type: ignore[attr-defined]


def get_default_tensor_type() -> type:
    """The tensor type of the default dtype."""
    return next(kind for kind in tensor_types.values() if kind.dtype == _C.get_default_dtype())   # type: ignore
