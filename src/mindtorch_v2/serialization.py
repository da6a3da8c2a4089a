"""torch.save and torch.load in PyTorch's own zip format; files from before PyTorch 1.6 load too.

Pickles are the business of _pickling.py and _unpickling.py, files that of _archive.py; here are storages and where they go.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from mmap import MAP_PRIVATE
from typing import IO, Any

import mindtorch_v2 as torch

from ._archive import Archive, BoundedFile, WholeWriter, in_memory, read_storage, replacing
from ._file_options import (  # noqa: F401
    LoadEndianness,
    SourceChangeWarning,
    _is_zipfile,
    _package_registry,
    check_module_version_greater_or_equal,
    compare_source,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    get_unsafe_globals_in_checkpoint,
    mkdtemp,
    normalize_storage_type,
    register_package,
    registered_place,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
    skipping,
    storage_to_tensor_type,
)
from ._file_streams import (  # noqa: F401
    _check_save_filelike,
    _check_seekable,
    _is_compressed_file,
    _is_torchscript_zip,
    _open_buffer_reader,
    _open_buffer_writer,
    _open_file,
    _open_file_like,
    _open_zipfile_reader,
    _opener,
    _should_read_directly,
)
from ._pickling import TensorPickler, location_tag
from ._rebuilding import INT64_END, StorageType, _get_layout, deferred_sparse_checks, expect, shown  # noqa: F401
from ._record_writer import RecordWriter
from ._unpickling import (  # noqa: F401
    Source,
    WeightsUnpickler,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
    unpickle,
    unpickle_plain,
)

DEFAULT_PROTOCOL = 2
LEGACY_MAGIC = MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
File = Any  # str, os.PathLike or a binary file
MapLocation = Any  # None, str, torch.device, dict[str, str] or callable(storage, location)
MAP_LOCATION = MapLocation
FileLike = File
SHORT_SIZE, INT_SIZE, LONG_SIZE = (struct.Struct(f"={_code}").size for _code in "hii")     # what the first format names
STORAGE_KEY_SEPARATOR = ","
__all__ = ["LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals", "check_module_version_greater_or_equal",
           "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness",
           "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp",
           "normalize_storage_type", "register_package", "safe_globals", "save", "set_crc32_options",
           "set_default_load_endianness", "set_default_mmap_options", "skip_data", "storage_to_tensor_type",
           "validate_cuda_device"]


# ---- saving --------------------------------------------------------------------------------------


def save(
    obj: Any,
    f: File,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object with all its tensors to a path or a binary file.

    A file at a path is replaced as a whole: whatever happens meanwhile, there is the old one or the new one.
    """
    if not hasattr(pickle_module, "__name__"):
        raise AttributeError(f"'{type(pickle_module).__name__}' object has no attribute '__name__'")
    _check_save_filelike(f)
    if not _use_new_zipfile_serialization:
        _legacy_save(obj, f, pickle_module, pickle_protocol)
        return
    body = io.BytesIO()
    pickler = TensorPickler(body, pickle_protocol, module=pickle_module)
    pickler.dump(obj)
    is_path = isinstance(f, (str, os.PathLike))
    root = os.path.splitext(os.path.basename(os.fspath(f)))[0] if is_path else ""
    root = root.encode("utf-8", "replace").decode() or "archive"  # a file's name need not be UTF-8, a record's must
    options = torch.utils.serialization.config.save
    with replacing(f) if is_path else nullcontext(WholeWriter(f)) as file:
        archive = RecordWriter(file, options.storage_alignment, options.compute_crc32)
        archive.write(f"{root}/data.pkl", body.getvalue())
        archive.write(f"{root}/.format_version", b"1")
        archive.write(f"{root}/.storage_alignment", str(options.storage_alignment).encode())
        if not _disable_byteorder_record:
            archive.write(f"{root}/byteorder", sys.byteorder.encode())
        total = sum(storage.nbytes() for storage in pickler.storages)
        with torch._progress.Progress(f"save {root}", total, "bytes", plain=False) as state:
            for key, storage in enumerate(pickler.storages):
                data = memoryview(bytes(storage.nbytes()) if skipping.skip else _to_device(storage, "cpu"))
                archive.write(f"{root}/data/{key}", data)
                state.advance(data.nbytes)
        archive.write(f"{root}/version", b"3\n")
        archive.write(f"{root}/.data/serialization_id", archive.identity())
        archive.end()


def _legacy_save(obj: Any, f: File, pickle_module: Any, pickle_protocol: int) -> None:
    """Write the format from before PyTorch 1.6: five pickles, then each storage as a count and bytes."""
    if skipping.skip:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    body = io.BytesIO()
    system = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little",
              "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for part in (LEGACY_MAGIC, PROTOCOL_VERSION, system):
        pickle_module.dump(part, body, protocol=pickle_protocol)
    pickler = TensorPickler(body, pickle_protocol, legacy=True, module=pickle_module)
    pickler.dump(obj)
    keyed = {str(storage._cdata): storage for storage in pickler.storages}
    pickle_module.dump(sorted(keyed), body, protocol=pickle_protocol)
    is_path = isinstance(f, (str, os.PathLike))
    with replacing(f) if is_path else nullcontext(WholeWriter(f)) as file:
        file.write(body.getvalue())
        for key in sorted(keyed):
            data = memoryview(_to_device(keyed[key], "cpu"))
            file.write(struct.pack("<q", data.nbytes // pickler.kinds[key].itemsize))
            file.write(data)


# ---- loading: where storages go ------------------------------------------------------------------


_NO_CUDA = ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a "
            "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.")


def validate_cuda_device(location: str) -> int:
    """Refuses, as torch does where there is no CUDA."""
    raise RuntimeError(_NO_CUDA)


def default_restore_location(storage: Any, location: str) -> Any:
    """A CPU storage brought to the place its file names."""
    return _to_device(storage, location)


def _to_device(storage: Any, location: str) -> Any:
    placed = registered_place(storage, location, True) if _package_registry else None
    if placed is not None or location_tag(storage) == location:
        return storage if placed is None else placed
    try:
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return flat.to(torch.device(location)).untyped_storage()
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, AssertionError) as error:      # AssertionError: torch's word for a device it was not built for
        placed = registered_place(storage, location, False)
        if placed is not None:
            return placed
        if location.startswith("cuda"):
            raise RuntimeError(_NO_CUDA) from error
        raise RuntimeError(f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location}): "
                           f"{error}; use torch.load(..., map_location='cpu')") from error


def _restorer(map_location: MapLocation) -> Callable[[Any, str], Any]:
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda s, location: _to_device(s, map_location.get(location, location))
    if isinstance(map_location, (str, torch.device)):
        return lambda s, location: _to_device(s, str(map_location))

    def restore(storage: Any, location: str) -> Any:
        placed = map_location(storage, location)
        return _to_device(storage, location) if placed is None else placed

    return restore


_get_restore_location = _restorer


# ---- loading: the files --------------------------------------------------------------------------


class _Storages:
    """The storages that the persistent ids of a file name, each made once by `make(kind, key, nbytes)`."""

    def __init__(self, make: Callable[[StorageType, str, int], Any], restore: Callable[[Any, str], Any]) -> None:
        self.make, self.restore = make, restore
        self.seen: dict[str, tuple[Any, ...]] = {}  # the whole persistent id
        self.loaded: dict[str, Any] = {}

    def __call__(self, pid: Any) -> Any:
        """The storage of an id ("storage", type, key, location, count), with its dtype."""
        if type(pid) is tuple and len(pid) == 4 and pid[0] == "module":
            return self._class_of_modules(*pid[1:])
        expect(type(pid) is tuple and 5 <= len(pid) <= 6, "the persistent id of a storage")
        pid = tuple(p[:999].decode("latin-1") if type(p) is bytes else p for p in pid)  # texts of Python 2
        if len(pid) == 6 and pid[5] is None:  # files from before the zip: no view of another storage
            pid = pid[:5]
        expect(len(pid) == 5 and type(pid[0]) is str and pid[0] == "storage", "the persistent id of a storage")
        _, kind, key, location, count = pid
        expect(type(kind) is StorageType, "the type of a storage")
        expect(type(key) is str and len(key) < 999, "the key of a storage as text")
        expect(type(location) is str and location.isascii() and len(location) <= 64, "the name of a place")
        expect(type(count) is int and 0 <= count < INT64_END, "the number of a storage's items")
        if self.seen.setdefault(key, pid) != pid:
            raise pickle.UnpicklingError(f"storage {shown(key)} is named with two types, sizes or places")
        if key not in self.loaded:
            self.loaded[key] = self.restore(self.make(kind, key, count * kind.itemsize), location)
        return kind.of(self.loaded[key])

    @staticmethod
    def _class_of_modules(kind: Any, file: Any, source: Any) -> Any:
        """A class that the format from before 1.6 writes with its source."""
        expect(isinstance(kind, type) and issubclass(kind, torch.nn.Module), "a class of modules")
        if type(source) is str and type(file) is str:
            compare_source(kind, file, source)
        return kind


def _swap_bytes(storage: Any, dtype: Any) -> None:
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    view, data = memoryview(storage), bytes(memoryview(storage))
    for i in range(width):
        view[i::width] = data[width - 1 - i :: width]


def _load_zip(file: IO[bytes], name: str, restore: Callable[..., Any], weights_only: bool, mmap: bool, *how: Any) -> Any:
    archive = Archive(file, name, mmap, get_default_mmap_options())
    if archive.has("constants.pkl"):
        raise archive.error("this is a TorchScript archive, not a file of torch.save")
    archive.check_version()
    order = get_default_load_endianness()
    native = sys.byteorder if order in (None, LoadEndianness.NATIVE) else order.name.lower()
    swap = archive.byteorder(native) != sys.byteorder

    def make(kind: StorageType, key: str, nbytes: int) -> Any:
        storage = torch.UntypedStorage(nbytes) if skipping.skip else archive.storage(key, nbytes)
        if swap and kind.dtype is not None:
            _swap_bytes(storage, kind.dtype)
        state.advance(nbytes)
        return storage

    source = Source(name, "data.pkl", archive.file.size)
    body = io.BytesIO(archive.read("data.pkl"))
    with torch._progress.Progress(f"load {os.path.basename(name)}", archive.file.size, "bytes", plain=False) as state:
        return unpickle(body, source, _Storages(make, restore), weights_only, *how)


def _load_legacy(opened: IO[bytes], name: str, restore: Callable[..., Any], weights_only: bool, *how: Any) -> Any:
    """Read a file from before PyTorch 1.6: five pickles, then each storage as a count and bytes."""
    file: Any = BoundedFile(opened, name)
    source = Source(name, "magic number", file.size)
    begin = file.tell()
    try:
        magic = unpickle_plain(file, source, weights_only)
    except pickle.UnpicklingError as error:
        file.seek(begin)
        raise pickle.UnpicklingError(f"[load] {name} is no checkpoint: it begins with {file.read(16)!r}. {error}") from error
    if type(magic) is not int or magic != LEGACY_MAGIC:
        raise RuntimeError(f"Invalid magic number; corrupt file? ({name})")
    source.record = "protocol version"
    version = unpickle_plain(file, source, weights_only)
    if version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {shown(str(version))} ({name})")
    source.record = "system"
    unpickle_plain(file, source, weights_only)
    promised = [0]

    def make(kind: StorageType, key: str, nbytes: int) -> Any:
        promised[0] += nbytes
        expect(promised[0] <= file.left(), f"storages that the file holds, got {promised[0]} bytes of them")
        return torch.UntypedStorage(nbytes)

    storages, source.record = _Storages(make, restore), "object"
    with deferred_sparse_checks() as check_sparse:
        result = unpickle(file, source, storages, weights_only, *how)
        _read_legacy_storages(file, source, storages, weights_only)
        check_sparse()
    return result


def _read_legacy_storages(file: Any, source: Source, storages: _Storages, weights_only: bool) -> None:
    """Fill the storages that the object of a file names with the bytes that stand behind it."""
    name, source.record = source.name, "keys of the storages"
    keys = unpickle_plain(file, source, weights_only)
    if type(keys) is not list or not all(type(k) is str for k in keys) or set(keys) != set(storages.loaded):
        raise RuntimeError(f"[load] {name}: the keys of the storages do not agree with the object; corrupt file?")
    for key in keys:
        _, kind, _, _, count = storages.seen[key]
        head = file.read(8)
        if len(head) < 8 or struct.unpack("<q", head)[0] != count:
            raise RuntimeError(f"[load] {name}: storage {shown(key)} has not the {count} items that it should have")
        _fill(storages.loaded[key], read_storage(file, count * kind.itemsize), name)


def _fill(target: Any, data: Any, name: str) -> None:
    """Bring the bytes of a storage, which stand behind the object, to where the object has them."""
    if target.nbytes() != data.nbytes():
        raise RuntimeError(f"[load] {name}: map_location changed a storage's size to {target.nbytes()} bytes")
    if data.nbytes():
        target.copy_(data)


def load(
    f: File,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what torch.save wrote, here or in PyTorch.

    weights_only, the default, builds tensors and plain containers and runs no code of the file's.
    """
    weights_only = torch._config.weights_only(weights_only, pickle_module is None)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    is_path = isinstance(f, (str, os.PathLike))
    if weights_only and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    mmap = torch.utils.serialization.config.load.mmap if mmap is None else mmap
    if mmap and not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    shared = bool(mmap) and get_default_mmap_options() != MAP_PRIVATE      # then writes to tensors are writes to the file
    opened: Any = open(f, "r+b" if shared else "rb") if is_path else f
    try:
        return _load(in_memory(opened), _name_of(f), map_location, weights_only, bool(mmap), pickle_module, pickle_load_args)
    finally:
        if is_path:
            opened.close()


def _name_of(f: File) -> str:
    """A file's name for messages."""
    name = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
    return os.fspath(name) if isinstance(name, (str, os.PathLike)) else f"<{type(f).__name__}>"


# What is given to torch.load by mistake, by how it begins (of safetensors by byte 8 on), and what to do.
_OTHER_FILES = (
    (b"version https://git-lfs", 0, "a pointer of Git LFS, not the file itself: run `git lfs pull`"),
    (b"<", 0, "a page of HTML or XML: the download gave an error page instead of the file"),
    (b"\x1f\x8b", 0, "a gzip file: unpack it first"),
    (b"\x89HDF", 0, "an HDF5 file, of Keras perhaps: h5py reads it"),
    (b"\x93NUMPY", 0, "a file of NumPy: numpy.load reads it"),
    (b'{"', 8, "a safetensors file: safetensors.torch.load_file reads it"),
    (b"GGUF", 0, "a GGUF file of llama.cpp"),
)


def _refuse_others(name: str, file: IO[bytes]) -> None:
    """Says of a file that is no checkpoint what it is, where its first bytes tell."""
    begin = file.tell()
    head = file.read(32)
    file.seek(begin)
    for mark, place, what in _OTHER_FILES:
        if head[place:].startswith(mark):
            raise pickle.UnpicklingError(f"[load] {name} is no checkpoint: it is {what}")


def _load(file: IO[bytes], name: str, map_location: MapLocation, weights_only: bool, mmap: bool, *how: Any) -> Any:
    begin = file.tell()
    magic = file.read(4)
    file.seek(begin)
    restore = _restorer(map_location)
    if magic == b"PK\x03\x04":
        return _load_zip(file, name, restore, weights_only, mmap, *how)
    if mmap:
        raise RuntimeError(f"mmap can only be used with files saved with `torch.save({name}, "
                           "_use_new_zipfile_serialization=True), please torch.save your checkpoint with this option in order to "
                           "use mmap.")
    if not magic:
        raise EOFError(f"Ran out of input: {name} is empty")
    _refuse_others(name, file)
    return _load_legacy(file, name, restore, weights_only, *how)


def _load_from_bytes(b: bytes) -> Any:
    """The storage in a pickle that PyTorch or this library wrote: it holds a file of torch.save."""
    parts = torch._storage.parts_of(b)
    if parts is not None:
        kind, count, data = parts
        made = torch.UntypedStorage._from_bytes(data)
        if kind == "torch.storage\nUntypedStorage" and len(made) == count:
            return made
        named = getattr(torch, kind.removeprefix("torch\n"), None) if kind.endswith("Storage") else None
        dtype = getattr(named, "dtype", None)
        if isinstance(dtype, torch.dtype) and len(made) == count * dtype.itemsize:
            return torch.TypedStorage(wrap_storage=made, dtype=dtype, _internal=True)
    return load(io.BytesIO(b), weights_only=True)


_load_from_bytes.__module__ = f"{__name__.rpartition('.')[0]}.storage"
