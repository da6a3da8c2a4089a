"""What a saved file may call: the constructors of tensors and plain containers, each written for hostile arguments.

A constructor takes what torch.save writes and nothing else; for anything else it raises UnpicklingError before memory is
taken. None of them looks a name of the file up in a module, and none shows a value of the file in full: its repr may be
endless.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pickle import UnpicklingError
from typing import Any

import mindtorch_v2 as torch

_STORAGE_DTYPES = {
    "Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexDouble": "complex128", "ComplexFloat": "complex64", "QInt8": "qint8", "QUInt8": "quint8",
    "QInt32": "qint32", "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4",
}  # fmt: skip
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
_SPARSE_LAYOUTS = tuple("torch." + name for name in _LAYOUTS if name.startswith("sparse"))
MAX_DIMS = 64
INT64_END = 1 << 63


class StorageType:
    """Stands for torch.FloatStorage and its like, which a file names; dtype None: untyped."""

    def __init__(self, dtype: Any, name: str = "UntypedStorage") -> None:
        self.dtype, self.name = dtype, name
        self.__module__ = f"{__name__.rpartition('.')[0]}._storage_names"      # where a pickler looks
        self.itemsize = 1 if dtype is None else dtype.itemsize

    def __reduce__(self) -> str:
        return self.name

    def of(self, storage: Any) -> Any:
        """What a file means by a storage of this type; an untyped one comes back as one of bytes."""
        return torch.TypedStorage(wrap_storage=storage, dtype=self.dtype or torch.uint8, _internal=True)


def expect(condition: Any, what: str) -> None:
    """Refuse the file unless the condition holds."""
    if not condition:
        raise UnpicklingError(f"expected {what}")


def shown(text: Any) -> str:
    """A text of the file for a message: escaped, and not longer than a line."""
    whole = ascii(text[:120])[1:-1] if type(text) is str else f"a {type(text).__name__}"
    return whole + "..." if type(text) is str and len(text) > 120 else whole


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < INT64_END


# ---- tensors -------------------------------------------------------------------------------------


def _check_geometry(offset: Any, size: Any, stride: Any, itemsize: int, nbytes: int) -> None:
    """A tensor lies inside its storage: set_ would grow the storage to what the file claims."""
    for name, items in (("sizes", size), ("strides", stride)):
        fits = isinstance(items, (tuple, list)) and len(items) <= MAX_DIMS
        expect(fits and all(map(_is_count, items)), f"a tensor's {name} as a tuple of integers from 0")
    expect(len(size) == len(stride), "as many strides as sizes of a tensor")
    expect(_is_count(offset), "a tensor's storage offset as an integer from 0")
    count = 1
    for n in size:
        count *= n
    last = offset + sum((n - 1) * s for n, s in zip(size, stride)) if count else -1
    small = max(count, last + 1, offset) * itemsize < INT64_END
    if not small or (last + 1) * itemsize > nbytes:
        raise UnpicklingError(
            f"a tensor of sizes {list(size)}, strides {list(stride)} and offset {offset} does not fit into "
            f"its storage of {nbytes} bytes"
        )


def _flag(value: Any) -> bool:
    expect(type(value) is bool or (type(value) is int and value in (0, 1)), "requires_grad as a bool")
    return bool(value)


def _rebuild_tensor_v2(
    typed: Any,
    offset: int,
    size: tuple[Any, ...],
    stride: tuple[Any, ...],
    requires_grad: bool = False,
    backward_hooks: Any = None,
    metadata: dict[Any, Any] | None = None,
) -> Any:
    expect(isinstance(typed, torch.TypedStorage), "a storage with a dtype")
    storage, dtype = typed._untyped_storage, typed.dtype
    nbytes = INT64_END - 1 if storage.device.type == "meta" else storage.nbytes()
    _check_geometry(offset, size, stride, dtype.itemsize, nbytes)
    expect(metadata is None or type(metadata) is dict, "a tensor's metadata as a dict")
    tensor = torch.empty(0, dtype=dtype, device=storage.device)
    tensor.set_(storage, offset, tuple(size), tuple(stride))
    if metadata and metadata.get("conj") is True:
        tensor = tensor.conj().detach()
    if metadata and metadata.get("neg") is True:
        tensor = tensor._neg_view().detach()
    return tensor.requires_grad_() if _flag(requires_grad) else tensor


def _rebuild_tensor(typed: Any, offset: int, size: tuple[Any, ...], stride: tuple) -> Any:
    return _rebuild_tensor_v2(typed, offset, size, stride)


def _rebuild_tensor_v3(
    storage: Any,
    offset: int,
    size: tuple[Any, ...],
    stride: tuple[Any, ...],
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: dict[Any, Any] | None = None,
) -> Any:
    untyped = storage._untyped_storage if isinstance(storage, torch.TypedStorage) else storage
    expect(isinstance(untyped, torch.UntypedStorage) and isinstance(dtype, torch.dtype), "a storage and a dtype")
    typed = torch.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
    return _rebuild_tensor_v2(typed, offset, size, stride, requires_grad, None, metadata)


def _rebuild_meta_tensor(dtype: Any, size: tuple[Any, ...], stride: tuple, requires_grad: bool) -> Any:
    expect(isinstance(dtype, torch.dtype), "a dtype")
    _check_geometry(0, size, stride, dtype.itemsize, INT64_END - 1)
    tensor = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
    return tensor.requires_grad_(_flag(requires_grad))


_deferred = threading.local()       # .parts: of sparse tensors whose storages are not read yet


@contextmanager
def deferred_sparse_checks() -> Iterator[Callable[[], None]]:
    """A with block for a file whose storages stand behind its objects; what it gives checks the sparse tensors made inside."""
    def check() -> None:
        for layout, parts, size, coalesced in _deferred.parts:
            _sparse_from(layout, parts, size, coalesced, True)
    outer = getattr(_deferred, "parts", None)
    _deferred.parts = []
    try:
        yield check
    finally:
        _deferred.parts = outer


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """The parts of a sparse tensor, checked: indices beyond the size would reach memory that is not theirs."""
    sparse = isinstance(layout, torch.layout) and str(layout) in _SPARSE_LAYOUTS
    expect(sparse and type(data) is tuple, "a sparse layout and a tuple of parts")
    coo = str(layout) == "torch.sparse_coo"
    expect(len(data) in ((3, 4) if coo else (4,)), "the parts of a sparse tensor")
    parts, size = data[: 2 if coo else 3], data[2 if coo else 3]
    dense = all(isinstance(t, torch.Tensor) and t.layout == torch.strided for t in parts)
    expect(dense and all(not t.requires_grad for t in parts), "dense tensors as the parts of a sparse one")
    expect(isinstance(size, (tuple, list)) and len(size) <= MAX_DIMS and all(map(_is_count, size)), "a size")
    coalesced = data[3] if coo and len(data) == 4 else None
    expect(coalesced is None or type(coalesced) is bool, "is_coalesced as a bool")
    expect(all(t.dtype in (torch.int32, torch.int64) for t in parts[:-1]), "indices as integers")
    later = getattr(_deferred, "parts", None)
    if later is not None:
        later.append((layout, parts, tuple(size), coalesced))
    return _sparse_from(layout, parts, tuple(size), coalesced, later is None)


class Misfit(UnpicklingError, RuntimeError):
    """A tensor that no program could make: for PyTorch an error of the tensor, here one of the file as well."""


def _sparse_from(layout: Any, parts: tuple[Any, ...], size: tuple[int, ...], coalesced: bool | None, check: bool) -> Any:
    try:
        if str(layout) == "torch.sparse_coo":
            indices, values = parts
            return torch.sparse_coo_tensor(indices, values, size, check_invariants=check, is_coalesced=coalesced)
        outer, plain, values = parts
        return torch.sparse_compressed_tensor(outer, plain, values, size, layout=layout, check_invariants=check)
    except RuntimeError as error:
        raise Misfit(f"the parts of a sparse tensor do not fit together: {shown(str(error))}") from error


def _rebuild_wrapper_subclass(kind: Any, dtype: Any, size: Any, stride: Any, offset: Any, layout: Any, device: Any,
                              requires_grad: bool) -> Any:
    """A tensor without memory of a class that computes in __torch_dispatch__; what it holds is in its state."""
    own = isinstance(kind, type) and issubclass(kind, torch.Tensor) and hasattr(kind, "__torch_dispatch__")
    expect(own and isinstance(dtype, torch.dtype), "a class with __torch_dispatch__, and a dtype")
    expect(isinstance(layout, torch.layout) and isinstance(device, torch.device), "a layout and a device")
    _check_geometry(offset, size, stride, dtype.itemsize, INT64_END - 1)
    return torch.Tensor._make_wrapper_subclass(kind, tuple(size), strides=tuple(stride), storage_offset=offset, dtype=dtype,
                                               layout=layout, device=device, requires_grad=_flag(requires_grad))


def _sparse_items(args: tuple[Any, ...]) -> int:
    """How many items the check of a sparse tensor reads."""
    parts = args[1] if len(args) == 2 and type(args[1]) is tuple else ()
    return sum(t.numel() for t in parts if isinstance(t, torch.Tensor))


def _rebuild_parameter(data: Any, requires_grad: bool = True, backward_hooks: Any = None) -> Any:
    expect(isinstance(data, torch.Tensor), "a tensor as the data of a parameter")
    return torch.nn.Parameter(data, _flag(requires_grad))


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, hooks: Any, state: Any) -> Any:
    return _with_state(_rebuild_parameter(data, requires_grad, hooks), state)


def _rebuild_from_type_v2(func: Callable[..., Any], kind: type, args: tuple[Any, ...], state: Any) -> Any:
    """In a file that is trusted: any class, any function."""
    tensor = func(*args)
    if type(tensor) is not kind:
        tensor = tensor.as_subclass(kind)
    return _with_state(tensor, state)


def _with_state(tensor: Any, state: Any) -> Any:
    attributes = state[0] if isinstance(state, tuple) else state
    for name, value in (attributes or {}).items():
        setattr(tensor, name, value)
    return tensor


# ---- the same for a file that is not trusted -----------------------------------------------------


def state_parts(state: Any) -> list[dict[Any, Any]]:
    """The attributes in a state, and those in slots."""
    parts = state if type(state) is tuple and len(state) == 2 else (state, None)
    expect(all(part is None or type(part) in (dict, OrderedDict) for part in parts), "attributes as a dict")
    return [part or {} for part in parts]


def check_names(names: Any, owner: type) -> None:
    """Attributes that a file may set: words of its own, nothing that Python or the class `owner` reads."""
    for name in names:
        free = type(name) is str and not name.startswith("__") and not hasattr(owner, name)
        expect(free, f"names of attributes that are free on a {owner.__name__}, got {shown(name)}")


def set_listed_state(obj: Any, state: Any, owner: type) -> Any:
    """Set the attributes of an instance; `owner` is the library's class, whose own names stay out of reach."""
    attributes, slots = state_parts(state)
    check_names((*attributes, *slots), owner)
    if attributes:
        obj.__dict__.update(attributes)
    for name, value in slots.items():
        setattr(obj, name, value)
    return obj


def _parameter_with_listed_state(data: Any, requires_grad: bool, hooks: Any, state: Any) -> Any:
    parameter = _rebuild_parameter(data, requires_grad, hooks)
    return set_listed_state(parameter, state, torch.nn.Parameter)


# ---- plain objects -------------------------------------------------------------------------------


@cache
def _layouts() -> dict[str, Any]:
    return {str(value): value for value in (getattr(torch, name) for name in _LAYOUTS)}


def _get_layout(name: str) -> Any:
    expect(type(name) is str and name in _layouts(), "the name of a layout")
    return _layouts()[name]


def _make_size(items: Any = ()) -> Any:
    expect(isinstance(items, (tuple, list)), "a tuple of integers for a Size")
    expect(all(type(n) is int and -INT64_END <= n < INT64_END for n in items), "integers of 64 bits in a Size")
    return torch.Size(items)


def _make_device(kind: Any, index: Any = None) -> Any:
    expect(type(kind) is str and kind.isascii() and len(kind) <= 64, "the name of a device")
    expect(index is None or (type(index) is int and 0 <= index < 1 << 15), "the index of a device")
    return torch.device(kind) if index is None else torch.device(kind, index)


def _make_ordered_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    expect(type(items) in (list, tuple), "a list of pairs for an OrderedDict")
    expect(all(type(i) in (list, tuple) and len(i) == 2 for i in items), "pairs for an OrderedDict")
    return OrderedDict(items)


def _make_counter(counts: Any = None) -> Counter[Any]:
    expect(counts is None or type(counts) is dict, "a dict for a Counter")
    return Counter(counts)


def _make_bytes(text: Any, encoding: Any) -> bytes:
    """_codecs.encode as pickles before protocol 3 use it: bytes as a text of code points below 256."""
    expect(type(text) is str and encoding in ("latin1", "latin-1"), "a text and 'latin1'")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError as error:
        raise UnpicklingError("expected bytes as a text of code points below 256") from error


def _make_bytearray(data: Any = b"", encoding: Any = None) -> bytearray:
    """Never with a number, which would be a size."""
    expect(type(data) is bytes and encoding is None or type(data) is str, "bytes for a bytearray")
    return bytearray(_make_bytes(data, encoding) if type(data) is str else data)


def _make_set(items: Any = ()) -> set[Any]:
    expect(type(items) in (list, tuple), "a list for a set")
    return set(items)


def _make_complex(real: Any, imag: Any = 0.0) -> complex:
    expect(type(real) is float and type(imag) is float, "two floats for a complex")
    return complex(real, imag)


# ---- names ---------------------------------------------------------------------------------------


@cache
def _tensor_functions() -> dict[str, Any]:
    functions = (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter, _rebuild_sparse_tensor,
                 _rebuild_wrapper_subclass)
    table: dict[str, Any] = {f"torch._utils.{f.__name__}": f for f in functions}
    table["torch._utils._rebuild_meta_tensor_no_storage"] = _rebuild_meta_tensor
    return table


@cache
def torch_globals() -> dict[str, Any]:
    """PyTorch's names for what its files hold."""
    table = dict(_tensor_functions())
    table["torch._utils._rebuild_parameter_with_state"] = _rebuild_parameter_with_state
    table["torch._tensor._rebuild_from_type_v2"] = _rebuild_from_type_v2
    table["torch.serialization._get_layout"] = _get_layout
    table["torch.nn.parameter.Parameter"] = torch.nn.Parameter
    table |= {"torch.Size": torch.Size, "torch.Tensor": torch.Tensor, "torch.device": torch.device}
    for dtype in set(torch._dtypes.values()):
        table[str(dtype)] = dtype
    for prefix, name in _STORAGE_DTYPES.items():
        table[f"torch.{prefix}Storage"] = StorageType(getattr(torch, name), f"{prefix}Storage")
    table["torch.UntypedStorage"] = table["torch.storage.UntypedStorage"] = StorageType(None)
    torch._facade.module(__name__.rpartition(".")[0], "_storage_names", "What picklers find a storage's class by.", **{
        kind.name: kind for kind in table.values() if isinstance(kind, StorageType)})
    return table


class Listed:
    """A global that a file may name without trust; make is None where it cannot be called."""

    def __init__(
        self,
        value: Any,
        make: Callable[..., Any] | None,
        cost: Callable[[tuple[Any, ...]], int] | None = None,
        keys: Callable[[tuple[Any, ...]], list[Any]] | None = None,
    ) -> None:
        self.value, self.make, self.cost, self.keys = value, make, cost, keys
        self.nbytes: Callable[[tuple[Any, ...]], int] | None = None  # of a tensor that is copied
        self.most = make.__code__.co_argcount if make else 0
        self.least = self.most - len(make.__defaults__ or ()) if make else 0

    def check(self, args: Any) -> None:
        """Refuse what cannot be called at all, or not with as many arguments."""
        if self.make is None:
            raise UnpicklingError(f"a call of {shown(getattr(self.value, '__name__', ''))}, which only names something")
        if type(args) is not tuple or not self.least <= len(args) <= self.most:
            raise UnpicklingError(f"expected {self.least} to {self.most} arguments of {self.make.__name__}")


def _copied(args: tuple[Any, ...]) -> int:
    """How many items or bytes a constructor copies: an object of the file can be copied again and again."""
    return len(args[0]) if args and isinstance(args[0], (str, bytes, tuple, list, dict)) else 0


def _set_keys(args: tuple[Any, ...]) -> list[Any]:
    return list(args[0]) if args and type(args[0]) in (list, tuple) else []


def _pair_keys(args: tuple[Any, ...]) -> list[Any]:
    return [pair[0] for pair in _set_keys(args) if type(pair) in (list, tuple) and pair]


@cache
def listed_globals() -> dict[str, Listed]:
    """All that a file may name without trust, by the name in the file."""
    functions = {**_tensor_functions(), "torch.serialization._get_layout": _get_layout}
    table = {name: Listed(value, functions.get(name)) for name, value in torch_globals().items()}
    with_state = _parameter_with_listed_state
    cost = lambda args: sum(map(len, state_parts(args[3])))
    table["torch._utils._rebuild_parameter_with_state"] = Listed(with_state, with_state, cost)
    table["torch.nn.parameter.Parameter"] = Listed(torch.nn.Parameter, _rebuild_parameter)
    sparse = "torch._utils._rebuild_sparse_tensor"
    table[sparse] = Listed(table[sparse].value, _rebuild_sparse_tensor, _sparse_items)
    table["torch.Size"] = Listed(torch.Size, _make_size, _copied)
    table["torch.device"] = Listed(torch.device, _make_device)
    table["builtins.bytearray"] = Listed(bytearray, _make_bytearray, _copied)
    table["builtins.set"] = Listed(set, _make_set, _copied, _set_keys)
    table["builtins.complex"] = Listed(complex, _make_complex)
    table["collections.OrderedDict"] = Listed(OrderedDict, _make_ordered_dict, _copied, _pair_keys)
    table["collections.Counter"] = Listed(Counter, _make_counter, _copied)
    table["_codecs.encode"] = Listed(_make_bytes, _make_bytes, _copied)
    return table
