"""How objects with tensors become pickles in PyTorch's words, and come back; no files here.

Globals are pickled under PyTorch's module names, so that either library reads what the other wrote.
"""

from __future__ import annotations

import codecs
import io
import pickle
import types
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import IO, Any, NamedTuple

import mindtorch_v2 as torch

_STORAGE_DTYPES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexDouble": "complex128", "ComplexFloat": "complex64",
}  # fmt: skip
# The Python ones: the C pickler insists on a global's own name, the C unpickler on every opcode.
_PythonPickler: Any = pickle._Pickler
_PythonUnpickler: Any = pickle._Unpickler


class Typed(NamedTuple):
    """What a storage's persistent id stands for: its bytes, and how its items are read."""

    storage: Any
    dtype: Any


class StorageType:
    """Stands for torch.FloatStorage and its like, which a file names; dtype None: untyped."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        self.itemsize = 1 if dtype is None else dtype.itemsize

    def of(self, storage: Any) -> Any:
        return storage if self.dtype is None else Typed(storage, self.dtype)


# ---- how tensors are taken apart and put together ------------------------------------------------


def _rebuild_tensor_v2(
    typed: Typed,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool = False,
    backward_hooks: Any = None,
    metadata: dict | None = None,
) -> Any:
    tensor = torch.empty(0, dtype=typed.dtype, device=typed.storage.device)
    tensor.set_(typed.storage, offset, tuple(size), tuple(stride))
    if metadata and metadata.get("conj"):
        tensor = tensor.conj()
    if metadata and metadata.get("neg"):
        tensor = tensor.neg()
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_tensor(typed: Typed, offset: int, size: tuple, stride: tuple) -> Any:
    return _rebuild_tensor_v2(typed, offset, size, stride)


def _rebuild_tensor_v3(
    storage: Any,
    offset: int,
    size: tuple,
    stride: tuple,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: dict | None = None,
) -> Any:
    typed = Typed(storage, dtype)
    return _rebuild_tensor_v2(typed, offset, size, stride, requires_grad, None, metadata)


def _rebuild_meta_tensor(dtype: Any, size: tuple, stride: tuple, requires_grad: bool) -> Any:
    tensor = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
    return tensor.requires_grad_(requires_grad)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    return torch.nn.Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, hooks: Any, state: Any) -> Any:
    return _with_state(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(func: Callable, kind: type, args: tuple, state: Any) -> Any:
    tensor = func(*args)
    if type(tensor) is not kind:
        tensor = tensor.as_subclass(kind)
    return _with_state(tensor, state)


def _with_state(tensor: Any, state: Any) -> Any:
    attributes = state[0] if isinstance(state, tuple) else state
    for name, value in (attributes or {}).items():
        setattr(tensor, name, value)
    return tensor


def _get_layout(name: str) -> Any:
    return getattr(torch, name.removeprefix("torch."))


def _reduce_tensor(tensor: Any) -> tuple:
    """The call that rebuilds a tensor, in PyTorch's words."""
    kind, parameter = type(tensor), torch.nn.Parameter
    state = dict(getattr(tensor, "__dict__", {}))
    if isinstance(tensor, parameter) and issubclass(kind, parameter):
        args: tuple = (tensor.data, tensor.requires_grad, OrderedDict())
        func: Callable = _rebuild_parameter
        if kind is parameter:
            return (_rebuild_parameter_with_state, (*args, state)) if state else (func, args)
    elif tensor.device.type == "meta":
        func = _rebuild_meta_tensor
        args = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.requires_grad)
    else:
        func, typed = _rebuild_tensor_v2, Typed(tensor.untyped_storage(), tensor.dtype)
        geometry = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        args = (typed, *geometry, tensor.requires_grad, OrderedDict())
    if kind is torch.Tensor and not state:
        return func, args
    return _rebuild_from_type_v2, (func, kind, args, state)


# ---- names ---------------------------------------------------------------------------------------


@cache
def _globals() -> dict[str, Any]:
    """PyTorch's names for what its files may hold; all are safe to call with any arguments."""
    utils: dict[str, Any] = {
        f.__name__: f for f in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3)
    }
    utils |= {f.__name__: f for f in (_rebuild_parameter, _rebuild_parameter_with_state)}
    utils["_rebuild_meta_tensor_no_storage"] = _rebuild_meta_tensor
    table = {"torch._utils." + name: f for name, f in utils.items()}
    table["torch._tensor._rebuild_from_type_v2"] = _rebuild_from_type_v2
    table["torch.serialization._get_layout"] = _get_layout
    table["torch.nn.parameter.Parameter"] = torch.nn.Parameter
    table |= {"torch." + n: getattr(torch, n) for n in ("Size", "Tensor", "device")}
    for prefix, dtype in _STORAGE_DTYPES.items():
        table["torch." + dtype] = getattr(torch, dtype)
        table[f"torch.{prefix}Storage"] = StorageType(getattr(torch, dtype))
    table["torch.UntypedStorage"] = table["torch.storage.UntypedStorage"] = StorageType(None)
    return table


@cache
def _names() -> dict[int, str]:
    return {id(value): name for name, value in _globals().items()}


_PLAIN_GLOBALS = {
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "_codecs.encode": codecs.encode,
    "__builtin__.bytearray": bytearray,
    "__builtin__.set": set,
    "__builtin__.complex": complex,
    "builtins.bytearray": bytearray,
    "builtins.set": set,
    "builtins.complex": complex,
}
_safe_globals: dict[str, Any] = {}


def add_safe_globals(safe_globals: list) -> None:
    """Allow classes and functions, or (object, "module.name") pairs, in weights_only loads."""
    for item in safe_globals:
        value, name = item if isinstance(item, tuple) else (item, _full_name(item))
        _safe_globals[name] = value


def get_safe_globals() -> list:
    """What add_safe_globals has allowed."""
    return [v if _full_name(v) == name else (v, name) for name, v in _safe_globals.items()]


def clear_safe_globals() -> None:
    """Forget what add_safe_globals has allowed."""
    _safe_globals.clear()


@contextmanager
def safe_globals(safe_globals: list) -> Iterator[None]:
    """Allow globals for the length of a with block."""
    before = dict(_safe_globals)
    add_safe_globals(safe_globals)
    try:
        yield
    finally:
        _safe_globals.clear()
        _safe_globals.update(before)


def _full_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


# ---- out -----------------------------------------------------------------------------------------


def location_tag(storage: Any) -> str:
    """The name of a storage's place in a file: "cpu", "npu:0"."""
    return str(storage.device)


class TensorPickler(_PythonPickler):
    """Writes tensors and this library's globals in PyTorch's words; collects the storages."""

    dispatch = dict(_PythonPickler.dispatch)

    def __init__(self, file: IO[bytes], protocol: int) -> None:
        super().__init__(file, protocol=protocol)
        self.storages: list[Any] = []
        self._keys: dict[tuple, str] = {}
        self._dtypes: dict[tuple, Any] = {}

    def persistent_id(self, obj: Any) -> tuple | None:
        if isinstance(obj, Typed):
            storage, dtype = obj
        elif isinstance(obj, torch.UntypedStorage):
            storage, dtype = obj, None
        else:
            return None
        place = (str(storage.device), storage.data_ptr())
        empty = storage.nbytes() == 0
        if not empty and self._dtypes.setdefault(place, dtype) is not dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types, got {self._dtypes[place]} and {dtype}; clone one of them"
            )
        key = None if empty else self._keys.get(place)
        if key is None:
            key = self._keys[place] = str(len(self.storages))
            self.storages.append(storage)
        kind = _storage_type(dtype)
        return "storage", kind, key, location_tag(storage), storage.nbytes() // kind.itemsize

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in _names():
            return _names()[id(obj)]
        if isinstance(obj, torch.Tensor):
            own = (torch.Tensor.__reduce_ex__, torch.nn.Parameter.__reduce_ex__)
            return _reduce_tensor(obj) if type(obj).__reduce_ex__ in own else NotImplemented
        if isinstance(obj, torch.Size):
            return torch.Size, (tuple(obj),)
        if isinstance(obj, torch.layout):
            return _get_layout, (str(obj),)
        return NotImplemented

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if id(obj) in _names():
            module, _, name = _names()[id(obj)].rpartition(".")
        elif getattr(obj, "__module__", None) and obj.__module__.split(".")[0] == "mindtorch_v2":
            module, name = "torch" + obj.__module__[len("mindtorch_v2") :], obj.__qualname__
        else:
            super().save_global(obj, name)
            return
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    dispatch[types.FunctionType] = save_global


@cache
def _storage_type(dtype: Any) -> StorageType:
    kinds = (kind for kind in _globals().values() if isinstance(kind, StorageType))
    return next(kind for kind in kinds if kind.dtype is dtype)


# ---- in ------------------------------------------------------------------------------------------


class _Unpickler(pickle.Unpickler):
    """Finds PyTorch's globals in this library; trusts the file."""

    def find_class(self, module: str, name: str) -> Any:
        known = _globals().get(f"{module}.{name}")
        if known is None and module.split(".")[0] == "torch":
            module = "mindtorch_v2" + module[len("torch") :]
        return known if known is not None else super().find_class(module, name)


# Opcodes that only make numbers, strings and containers; not INST, OBJ, EXT*, NEWOBJ_EX, PERSID.
_PLAIN_OPCODES = """
PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1
LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE
BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET GET
BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE BINPERSID GLOBAL STACK_GLOBAL
""".split()


class WeightsUnpickler(_PythonUnpickler):
    """Builds tensors and plain containers, and what add_safe_globals allows; nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        for table in (_safe_globals, _PLAIN_GLOBALS, _globals()):
            if full in table:
                return table[full]
        raise pickle.UnpicklingError(
            f"Weights only load failed. Unsupported global: GLOBAL {full} was not an allowed "
            f"global by default. Please use `torch.serialization.add_safe_globals([{full}])` or "
            f"the `torch.serialization.safe_globals([{full}])` context manager to allowlist it, or "
            "load with weights_only=False: that can run any code, so only if you trust the file."
        )

    def _check(self, value: Any, action: str) -> None:
        tables = (_safe_globals, _PLAIN_GLOBALS, _globals())
        if not any(value is known for table in tables for known in table.values()):
            raise pickle.UnpicklingError(
                f"Weights only load failed. Trying to {action} {value!r}, which is not allowed"
            )

    def load_reduce(self) -> None:
        self._check(self.stack[-2], "call")
        super().load_reduce()

    def load_newobj(self) -> None:
        self._check(self.stack[-2], "create")
        super().load_newobj()

    def load_build(self) -> None:
        kind = type(self.stack[-2])
        # A state_dict is an OrderedDict with a _metadata attribute.
        if kind is OrderedDict and isinstance(self.stack[-1], dict):
            state = self.stack.pop()
            self.stack[-1].__dict__.update(state)
        elif any(kind is known for known in _safe_globals.values()):
            super().load_build()
        else:
            raise pickle.UnpicklingError(
                f"Weights only load failed. Trying to set the state of a {kind.__qualname__}, "
                "which is not allowed; add_safe_globals can allow it"
            )

    def _refuse(self) -> None:
        raise pickle.UnpicklingError("Weights only load failed. Unsupported operand in the pickle")

    dispatch = dict.fromkeys(_PythonUnpickler.dispatch, _refuse)
    dispatch |= {
        code: _PythonUnpickler.dispatch[code]
        for code in [getattr(pickle, name)[0] for name in _PLAIN_OPCODES]
    }
    dispatch |= {pickle.REDUCE[0]: load_reduce, pickle.NEWOBJ[0]: load_newobj}
    dispatch[pickle.BUILD[0]] = load_build


def unpickle(
    data: bytes, restore: Callable[[tuple], Any], weights_only: bool, module: Any, options: dict
) -> Any:
    if weights_only:
        reader: Any = WeightsUnpickler(io.BytesIO(data), **options)
    elif module is None or module is pickle:
        reader = _Unpickler(io.BytesIO(data), **options)
    else:
        kind = type("Unpickler", (module.Unpickler,), {"find_class": _Unpickler.find_class})
        reader = kind(io.BytesIO(data), **options)
    reader.persistent_load = restore
    return reader.load()
