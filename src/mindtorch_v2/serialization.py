"""torch.save and torch.load in PyTorch's own zip format; files from before PyTorch 1.6 load too.

The pickle inside is the business of _pickling.py; here are records, storages and where they go.
"""

from __future__ import annotations

import hashlib
import io
import mmap as _mmap
import os
import pickle
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable
from typing import IO, Any

import mindtorch_v2 as torch

from ._pickling import (  # noqa: F401
    TensorPickler,
    WeightsUnpickler,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    location_tag,
    safe_globals,
    unpickle,
)

ALIGNMENT = 64  # of every record's data in the file, so that it can be mapped
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
File = Any  # str, os.PathLike or a binary file
MapLocation = Any  # None, str, torch.device, dict[str, str] or callable(storage, location)


# ---- saving --------------------------------------------------------------------------------------


def _write_record(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    size = memoryview(data).nbytes
    info = zipfile.ZipInfo(name)
    info.file_size = size
    # The local header is 30 bytes, the name and the extra field; zipfile adds 20 for large files.
    begin = archive.fp.tell() + 30 + len(name.encode()) + 4  # type: ignore[union-attr]
    begin += 20 if size * 1.05 > zipfile.ZIP64_LIMIT else 0
    padding = -begin % ALIGNMENT
    info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
    with archive.open(info, "w") as record:
        record.write(data)


def save(
    obj: Any,
    f: File,
    pickle_module: Any = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object with all its tensors to a path or a binary file."""
    if pickle_module is not pickle:
        raise ValueError(f"[save] pickle_module must be pickle, got {pickle_module!r}")
    if not _use_new_zipfile_serialization:
        raise ValueError("[save] the format before PyTorch 1.6 can be read but not written")
    body = io.BytesIO()
    pickler = TensorPickler(body, pickle_protocol)
    pickler.dump(obj)
    is_path = isinstance(f, (str, os.PathLike))
    root = os.path.splitext(os.path.basename(os.fspath(f)))[0] if is_path else ""
    root = root or "archive"
    digest = hashlib.blake2b(body.getvalue(), digest_size=16)
    with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as archive:
        _write_record(archive, f"{root}/data.pkl", body.getvalue())
        _write_record(archive, f"{root}/.format_version", b"1")
        _write_record(archive, f"{root}/.storage_alignment", str(ALIGNMENT).encode())
        if not _disable_byteorder_record:
            _write_record(archive, f"{root}/byteorder", sys.byteorder.encode())
        for key, storage in enumerate(pickler.storages):
            data = memoryview(_to_device(storage, "cpu"))
            _write_record(archive, f"{root}/data/{key}", data)
            digest.update(str(len(data)).encode())
        _write_record(archive, f"{root}/version", b"3\n")
        parts = struct.unpack("<QQ", digest.digest())
        _write_record(archive, f"{root}/.data/serialization_id", b"%020d%020d" % parts)


# ---- loading: where storages go ------------------------------------------------------------------


def default_restore_location(storage: Any, location: str) -> Any:
    """A CPU storage brought to the place its file names."""
    return _to_device(storage, location)


def _to_device(storage: Any, location: str) -> Any:
    if location_tag(storage) == location:
        return storage
    try:
        flat = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        return flat.to(torch.device(location)).untyped_storage()
    except (RuntimeError, NotImplementedError) as error:
        raise RuntimeError(
            f"[load] cannot place a storage on '{location}' here ({error}); "
            "use torch.load(..., map_location='cpu')"
        ) from error


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


# ---- loading: the files --------------------------------------------------------------------------


class _Archive:
    """The records of one zip file, read or mapped."""

    def __init__(self, file: File, mmap: bool) -> None:
        self.zip = zipfile.ZipFile(file)
        self.root = self.zip.namelist()[0].split("/")[0]
        self.map = None
        if mmap:  # private: writes to a loaded tensor do not reach the file
            with open(file, "rb") as f:
                self.map = _mmap.mmap(f.fileno(), 0, access=_mmap.ACCESS_COPY)

    def read(self, name: str, default: bytes | None = None) -> bytes:
        try:
            return self.zip.read(f"{self.root}/{name}")
        except KeyError:
            if default is None:
                raise RuntimeError(f"[load] no record {name}: not a file of torch.save") from None
            return default

    def storage(self, key: str, nbytes: int) -> Any:
        info = self.zip.getinfo(f"{self.root}/data/{key}")
        if info.file_size < nbytes:
            raise RuntimeError(
                f"[load] expected {nbytes} bytes in storage {key}, got {info.file_size}"
            )
        if info.compress_type != zipfile.ZIP_STORED or nbytes == 0:
            return torch.UntypedStorage._from_bytes(self.zip.read(info)[:nbytes])
        source: Any = self.zip.fp
        source.seek(info.header_offset)
        name_size, extra_size = struct.unpack("<26xHH", source.read(30))
        begin = info.header_offset + 30 + name_size + extra_size
        if self.map is not None:
            view = memoryview(self.map)[begin : begin + nbytes]
            return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()
        source.seek(begin)
        return _read_storage(source, nbytes)


def _read_storage(source: IO[bytes], nbytes: int) -> Any:
    storage = torch.UntypedStorage(nbytes)
    view, done = memoryview(storage), 0
    while done < nbytes:
        if hasattr(source, "readinto"):
            n = source.readinto(view[done:])
        else:
            n = len(piece := source.read(nbytes - done))
            view[done : done + n] = piece
        if not n:
            raise RuntimeError(f"[load] the file ends {nbytes - done} bytes early")
        done += n
    return storage


def _swap_bytes(storage: Any, dtype: Any) -> None:
    width = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    view, data = memoryview(storage), bytes(memoryview(storage))
    for i in range(width):
        view[i::width] = data[width - 1 - i :: width]


def _load_zip(file: File, restore: Callable, weights_only: bool, mmap: bool, *how: Any) -> Any:
    archive = _Archive(file, mmap)
    if f"{archive.root}/constants.pkl" in archive.zip.namelist():
        raise RuntimeError("[load] this is a TorchScript archive, not a file of torch.save")
    swap = archive.read("byteorder", sys.byteorder.encode()).decode() != sys.byteorder
    loaded: dict[str, Any] = {}

    def storage_of(pid: tuple) -> Any:
        _, kind, key, location, count = pid
        if key not in loaded:
            storage = archive.storage(key, count * kind.itemsize)
            if swap and kind.dtype is not None:
                _swap_bytes(storage, kind.dtype)
            loaded[key] = kind.of(restore(storage, location))
        return loaded[key]

    return unpickle(archive.read("data.pkl"), storage_of, weights_only, *how)


def _load_legacy(file: IO[bytes], restore: Callable, weights_only: bool, *how: Any) -> Any:
    """Read a file from before PyTorch 1.6: five pickles, then each storage as a count and bytes."""
    pickles = []
    for _ in range(5):  # magic, protocol, system, object, keys of the storages
        begin = file.tell()
        for _op in pickletools.genops(file):
            pass
        end = file.tell()
        file.seek(begin)
        pickles.append(file.read(end - begin))
        if len(pickles) == 1 and WeightsUnpickler(io.BytesIO(pickles[0])).load() != LEGACY_MAGIC:
            raise RuntimeError("Invalid magic number; corrupt file?")
    # The bytes come after the object that tells their dtypes: a first pass asks it.
    pids: dict[str, tuple] = {}

    def ask(pid: tuple) -> Any:
        pids[pid[2]] = pid
        return pid[1].of(torch.UntypedStorage(pid[4] * pid[1].itemsize))

    unpickle(pickles[3], ask, weights_only, *how)
    loaded: dict[str, Any] = {}
    for key in WeightsUnpickler(io.BytesIO(pickles[4])).load():
        _, kind, _, location, *_ = pids[key]
        (count,) = struct.unpack("<q", file.read(8))
        storage = _read_storage(file, count * kind.itemsize)
        loaded[key] = kind.of(restore(storage, location))
    return unpickle(pickles[3], lambda pid: loaded[pid[2]], weights_only, *how)


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
    if weights_only is None:
        weights_only = pickle_module is None
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    is_path = isinstance(f, (str, os.PathLike))
    if mmap and not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    file: Any = open(f, "rb") if is_path else f
    try:
        if not file.seekable():
            file = io.BytesIO(file.read())
        begin = file.tell()
        magic = file.read(4)
        file.seek(begin)
        how = (pickle_module, pickle_load_args)
        if magic == b"PK\x03\x04":
            source = f if mmap else file
            return _load_zip(source, _restorer(map_location), weights_only, bool(mmap), *how)
        if mmap:
            raise RuntimeError("mmap can only be used with files saved in the zip format")
        if not magic:
            raise EOFError("Ran out of input")
        return _load_legacy(file, _restorer(map_location), weights_only, *how)
    finally:
        if is_path:
            file.close()
