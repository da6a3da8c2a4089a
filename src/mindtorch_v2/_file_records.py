"""PyTorchFileReader and PyTorchFileWriter: the records of an archive of torch.save, one by one and by name."""
from __future__ import annotations

import os
import sys
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._archive import Archive, WholeWriter
from mindtorch_v2._record_writer import RecordWriter


class PyTorchFileReader:
    """The records of an archive, from a path or a binary file."""

    def __init__(self, file: Any) -> None:
        self._owned: Any = None
        if isinstance(file, (str, os.PathLike)):
            try:
                file = self._owned = open(file, "rb")
            except OSError as error:
                raise RuntimeError(f"open file failed because of errno {error.errno} on fopen: {error.strerror}, file path: "
                                   f"{os.fspath(file)}") from None
        self._archive = Archive(file, getattr(file, "name", "archive"), False)

    def __del__(self) -> None:
        if getattr(self, "_owned", None) is not None:
            self._owned.close()

    def _find(self, name: str) -> tuple[int, int]:
        if not self._archive.has(name):
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        return self._archive.find(name)

    def get_all_records(self) -> list[str]:
        """The names of the records, in the order of the archive."""
        return [name.partition("/")[2] for name in self._archive.records]

    def has_record(self, name: str) -> bool:
        """Whether there is a record of this name."""
        return self._archive.has(name)

    def get_record(self, name: str) -> bytes:
        """The bytes of a record."""
        self._find(name)
        return self._archive.read(name)

    def get_record_offset(self, name: str) -> int:
        """Where the bytes of a record begin in the file."""
        return self._find(name)[0]

    def get_record_header_offset(self, name: str) -> int:
        """Where the header of a record begins in the file."""
        self._find(name)
        return self._archive.records[f"{self._archive.root}/{name}"].header

    def get_record_size(self, name: str) -> int:
        """How many bytes a record has."""
        return self._find(name)[1]

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """A tensor that owns a storage with the bytes of a record; it has no items itself, as torch's."""
        data = torch.frombuffer(bytearray(self.get_record(name)), dtype=torch.uint8).clone().untyped_storage()
        if data.nbytes() < numel * dtype.itemsize:
            raise RuntimeError(f"expected {numel * dtype.itemsize} bytes in record {name}, got {data.nbytes()}")
        return torch.empty(0, dtype=dtype).set_(data, 0, (0,))

    def serialization_id(self) -> str:
        """The number that the writer gave the archive; empty where it gave none."""
        name = ".data/serialization_id"
        return self.get_record(name).decode() if self.has_record(name) else ""


class PyTorchFileWriter:
    """Writes records to an archive, to a path or a binary file; write_end_of_file completes it."""

    def __init__(self, file: Any, compute_crc32: bool = True, storage_alignment: int = 64) -> None:
        is_path = isinstance(file, (str, os.PathLike))
        self._root = os.path.splitext(os.path.basename(os.fspath(file)))[0] if is_path else "archive"
        folder = os.path.dirname(os.fspath(file)) if is_path else ""
        if folder and not os.path.isdir(folder):
            raise RuntimeError(f"Parent directory {folder} does not exist.")
        self._owned: Any = open(file, "wb") if is_path else None
        self._archive = RecordWriter(self._owned or WholeWriter(file), storage_alignment, compute_crc32)
        self._written = dict[str, None]()
        self._version, self._id = 3, ""

    def __del__(self) -> None:
        if getattr(self, "_owned", None) is not None:
            self._owned.close()

    def archive_name(self) -> str:
        """The folder of all records: the file's name without what follows its last dot."""
        return self._root

    def set_min_version(self, version: int) -> None:
        """The archive says that reading it needs at least this version of the format."""
        self._version = max(self._version, version)

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Adds a record: the first bytes of a string, of bytes or of a storage."""
        if self._id:
            raise RuntimeError("PytorchStreamWriter failed writing record: the archive is complete")
        if name in self._written:
            raise RuntimeError(f"Tried to serialize file twice: {name}")
        raw = data.encode() if isinstance(data, str) else data
        part = memoryview(raw).cast("B")[:size]
        if len(part) < size:
            raise ValueError(f"expected {size} bytes for record {name}, got {len(part)}")
        self._archive.write(f"{self._root}/{name}", part)
        self._written[name] = None

    def get_all_written_records(self) -> set[str]:
        """The names of the records so far."""
        return set(self._written)

    def serialization_id(self) -> str:
        """The number of the archive; empty until it is complete."""
        return self._id

    def write_end_of_file(self) -> None:
        """Adds the version of the format, the order of bytes and the archive's number, and completes it."""
        for name, data in (("version", b"%d\n" % self._version), ("byteorder", sys.byteorder.encode())):
            if name not in self._written:
                self.write_record(name, data, len(data))
        number = self._archive.identity()
        self.write_record(".data/serialization_id", number, len(number))
        self._archive.end()
        if self._owned is not None:
            self._owned.close()
        self._id = number.decode()
