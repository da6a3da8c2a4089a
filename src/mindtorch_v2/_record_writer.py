"""Writes the zip archive of torch.save: records as they are, each aligned, by forward writes only; _archive.py reads it."""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any

_SATURATED = 0xFFFFFFFF      # a 32-bit field whose value stands in the zip64 extra field
_NEW_YEAR_1980 = 0x21        # the date of every record: the same object gives the same bytes
_JOINED = 1 << 16            # a record of fewer bytes goes to the file together with its header


class RecordWriter:
    """Adds records to an archive that begins where the file stands; `end` completes it."""

    def __init__(self, file: Any, alignment: int, checksums: bool = True) -> None:
        self.file, self.alignment, self.checksums = file, alignment, checksums
        self.at = 0
        self.directory: list[bytes] = []
        self._digest = hashlib.blake2b(digest_size=16)

    def write(self, name: str, data: Any) -> None:
        """One record."""
        view = memoryview(data).cast("B")
        raw, size, at = name.encode(), len(view), self.at
        crc = zlib.crc32(view) if self.checksums else 0
        large = size >= _SATURATED
        wide = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        padding = -(at + 34 + len(raw) + len(wide)) % self.alignment
        short = _SATURATED if large else size
        common = struct.pack("<5H3IH", 45 if large else 20, 0 if raw.isascii() else 0x800, 0, 0, _NEW_YEAR_1980, crc, short, short,
                             len(raw))
        header = b"".join((b"PK\3\4", common, struct.pack("<H", len(wide) + 4 + padding), raw, wide, b"FB",
                           struct.pack("<H", padding), b"Z" * padding))
        if size < _JOINED:
            self.file.write(header + view)
        else:
            self.file.write(header)
            self.file.write(view)
        self.at += len(header) + size
        far = at >= _SATURATED
        numbers = [size, size] * large + [at] * far
        more = struct.pack(f"<{len(numbers)}Q", *numbers)
        extra = struct.pack("<HH", 1, len(more)) + more if more else b""
        self.directory.append(b"".join((b"PK\1\2", struct.pack("<H", 3 << 8 | 45), common, struct.pack(
            "<4H2I", len(extra), 0, 0, 0, 0o600 << 16, _SATURATED if far else at), raw, extra)))
        self._digest.update(b"%s %d %d;" % (raw, size, crc))

    def identity(self) -> bytes:
        """The number of an archive with the records so far: forty digits."""
        return b"%020d%020d" % struct.unpack("<QQ", self._digest.digest())

    def end(self) -> None:
        """The directory of the records, which makes the archive complete."""
        directory, count, at = b"".join(self.directory), len(self.directory), self.at
        wide = b""
        if count >= 0xFFFF or at >= _SATURATED or len(directory) >= _SATURATED:
            wide = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(directory), at)
            wide += struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1)
        short = min(count, 0xFFFF)
        self.file.write(b"".join((directory, wide, struct.pack(
            "<4s4H2IH", b"PK\5\6", 0, 0, short, short, min(len(directory), _SATURATED), min(at, _SATURATED), 0))))
        self.file.flush()
