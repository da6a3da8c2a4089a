"""The files that torch.save writes: a zip archive read with every claim checked, and a file replaced as a whole.

Python's zipfile is not used for reading: it inflates records, follows claims that contradict each other and raises a
dozen kinds of exceptions. torch.save writes records uncompressed, so a record is a range of the file, and nothing is read
that the file does not have.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import mmap as _mmap
import os
import secrets
import stat
import struct
from collections.abc import Iterator
from typing import IO, Any

import mindtorch_v2 as torch

_MAX_COMMENT = 0xFFFF
_SATURATED = 0xFFFFFFFF  # a 32-bit field whose value stands in the zip64 extra field
MAX_VERSION = 10  # of the format, as in PyTorch


class BoundedFile:
    """A range of a file from its current position; never reads past the end of the range."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file, self.name = file, name
        self.begin = file.tell()
        file.seek(0, os.SEEK_END)
        self.size = file.tell() - self.begin
        file.seek(self.begin)

    def tell(self) -> int:
        return self.file.tell() - self.begin

    def seek(self, position: int) -> None:
        self.file.seek(self.begin + position)

    def left(self) -> int:
        return max(self.size - self.tell(), 0)

    def read(self, n: int = -1) -> bytes:
        return self.file.read(min(n, self.left()) if n >= 0 else self.left())

    def readline(self, n: int = -1) -> bytes:
        if not isinstance(self.file, io.IOBase):     # of a class whose readline may take no limit
            return self.file.readline()
        return self.file.readline(min(n, self.left()) if n >= 0 else self.left())

    def fill(self, view: memoryview) -> None:
        """Read into a view until it is full: a file may return fewer bytes than requested."""
        done = 0
        while done < len(view):
            if hasattr(self.file, "readinto"):
                n = self.file.readinto(view[done:])
            else:
                n = len(piece := self.file.read(len(view) - done))
                view[done : done + n] = piece[: len(view) - done]
            if n and not 0 < n <= len(view) - done:  # of a class that counts wrongly
                raise RuntimeError(f"[load] {self.name}: the file gave {n} bytes, asked for {len(view) - done}")
            if not n:
                raise RuntimeError(f"[load] {self.name}: the file ends {len(view) - done} bytes early")
            done += n


class _Record:
    """One row of the central directory."""

    def __init__(self, raw_name: bytes, header: int, packed: int, size: int, problem: str | None) -> None:
        self.raw_name, self.header, self.packed, self.size, self.problem = raw_name, header, packed, size, problem
        self.limit = 0  # where the next record begins


class Archive:
    """The records of one zip file, read or mapped."""

    def __init__(self, file: IO[bytes], name: str, mmap: bool, mmap_flags: int | None = None) -> None:
        self.file, self.name = BoundedFile(file, name), name
        self.shift = 0  # from positions in the archive to those in the file
        self.records = self._directory()
        if not self.records:
            raise self.error("the archive has no records")
        self.root = next(iter(self.records)).split("/")[0]
        self.map = None
        if mmap:  # private unless the user wants it: writes to a loaded tensor do not reach the file
            shared = mmap_flags == _mmap.MAP_SHARED
            self.map = _mmap.mmap(file.fileno(), 0, access=_mmap.ACCESS_WRITE if shared else _mmap.ACCESS_COPY)

    def error(self, problem: str) -> RuntimeError:
        return RuntimeError(f"[load] {self.name}: {problem}")

    # ---- the directory ----

    def _at(self, position: int, n: int, what: str) -> bytes:
        if position < 0 or n < 0 or position + n > self.file.size:
            raise self.error(f"{what} lies outside of the file, which has {self.file.size} bytes")
        self.file.seek(position)
        data = self.file.read(n)
        if len(data) != n:
            raise self.error(f"the file ends inside {what}")
        return data

    def _end(self) -> tuple[int, int, int]:
        """(number of records, begin and end of the directory) from the end of the file."""
        begin = max(self.file.size - 22 - _MAX_COMMENT, 0)
        tail = self._at(begin, self.file.size - begin, "the end of the archive")
        found = tail.rfind(b"PK\5\6")
        while found >= 0 and (
            len(tail) < found + 22 or len(tail) != found + 22 + struct.unpack_from("<H", tail, found + 20)[0]
        ):
            found = tail.rfind(b"PK\5\6", 0, found)
        if found < 0:
            raise RuntimeError("PytorchStreamReader failed reading zip archive: failed finding central directory. This is an "
                               "internal miniz error. If you are seeing this error, there is a high likelihood that your "
                               "checkpoint file is corrupted. This can happen if the checkpoint was not saved properly, was "
                               "transferred incorrectly, or the file was "
                               f"modified after saving. ({self.name})")
        count, size, offset = struct.unpack_from("<10xHII", tail, found)
        end = begin + found
        if count == 0xFFFF or _SATURATED in (size, offset):
            signature, where = struct.unpack("<4s4xQ4x", self._at(end - 20, 20, "the zip64 locator"))
            if signature != b"PK\6\7":
                raise self.error("no zip64 locator where the archive says there is one")
            record = self._at(where, 56, "the zip64 end of the directory")
            signature, count, size, offset = struct.unpack("<4s28xQQQ", record)
            if signature != b"PK\6\6":
                raise self.error("no zip64 end of the directory where the archive says there is one")
            end = where
        if self.file.begin and offset + size == end + self.file.begin:  # zipfile counts from the file's own begin
            self.shift = -self.file.begin
        offset += self.shift
        if offset < 0 or offset + size > end or count * 46 > size:
            raise self.error("the central directory does not fit into the file")
        return count, offset, offset + size

    def _directory(self) -> dict[str, _Record]:
        count, begin, end = self._end()
        data = self._at(begin, end - begin, "the central directory")
        records: dict[str, _Record] = {}
        at = 0
        for _ in range(count):
            if len(data) < at + 46 or data[at : at + 4] != b"PK\1\2":
                raise self.error(f"a damaged central directory at byte {begin + at}")
            flags, method, packed, size, n, extra, comment, header = struct.unpack_from("<8xHH8xIIHHH8xI", data, at)
            if len(data) < at + 46 + n + extra + comment:
                raise self.error(f"a damaged central directory at byte {begin + at}")
            raw = data[at + 46 : at + 46 + n]
            fields = data[at + 46 + n : at + 46 + n + extra]
            size, packed, header = self._zip64(fields, [size, packed, header])
            problem = None
            if flags & 1:
                problem = "is encrypted"
            elif method or packed != size:
                problem = f"is compressed (method {method}), which torch.save never does"
            name = raw.decode("utf-8", "backslashreplace")
            if name in records:
                raise self.error(f"two records {ascii(name[:100])}")
            records[name] = _Record(raw, header + self.shift, packed, size, problem)
            at += 46 + n + extra + comment
        self._set_limits(records, begin)
        return records

    def _zip64(self, fields: bytes, values: list[int]) -> list[int]:
        """The sizes and the offset of a record, from the extra field where they do not fit into 32 bits."""
        if _SATURATED not in values:
            return values
        at = 0
        while at + 4 <= len(fields):
            kind, n = struct.unpack_from("<HH", fields, at)
            if kind == 1 and at + 4 + n <= len(fields):
                wide = list(struct.unpack_from(f"<{n // 8}Q", fields, at + 4))
                if len(wide) < values.count(_SATURATED):
                    break
                return [wide.pop(0) if v == _SATURATED else v for v in values]
            at += 4 + n
        raise self.error("a record without the zip64 field that it needs")

    def _set_limits(self, records: dict[str, _Record], end: int) -> None:
        """Records follow one another: where one begins, the one before has ended."""
        rows = sorted(records.values(), key=lambda r: r.header)
        for row, follower in zip(rows, [*rows[1:], None]):
            row.limit = end if follower is None else follower.header
            if row.header + 30 + row.packed > row.limit:
                raise self.error(f"record {ascii(row.raw_name[:100])[1:]} does not fit into its place in the file")

    # ---- the records ----

    def has(self, name: str) -> bool:
        return f"{self.root}/{name}" in self.records

    def find(self, name: str) -> tuple[int, int]:
        """Where a record's bytes begin in the file, and how many there are."""
        record = self.records.get(f"{self.root}/{name}")
        shown = ascii(name[:100])[1:-1]
        if record is None:
            raise self.error(f"no record {shown}: not a file of torch.save, or damaged")
        if record.problem:
            raise self.error(f"record {shown} {record.problem}")
        header = self._at(record.header, 30, f"record {shown}")
        signature, n, extra = struct.unpack("<4s22xHH", header)
        begin = record.header + 30 + n + extra
        same = signature == b"PK\3\4" and self._at(record.header + 30, n, f"record {shown}") == record.raw_name
        if not same or begin + record.size > record.limit:
            raise self.error(f"record {shown} does not agree with the central directory")
        return begin, record.size

    def read(self, name: str) -> bytes:
        begin, size = self.find(name)
        return self._at(begin, size, f"record {name}")

    def storage(self, key: str, nbytes: int) -> Any:
        begin, size = self.find(f"data/{key}")
        if size < nbytes:
            raise self.error(f"expected {nbytes} bytes in storage {ascii(key[:100])[1:-1]}, got {size}")
        if self.map is None or nbytes == 0:
            self.file.seek(begin)
            return read_storage(self.file, nbytes)
        if self.file.begin + begin + nbytes > len(self.map):  # the file shrank meanwhile
            raise self.error(f"storage {ascii(key[:100])[1:-1]} lies outside of the file")
        view = memoryview(self.map)[self.file.begin + begin : self.file.begin + begin + nbytes]
        return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()

    def check_version(self) -> None:
        """Refuse a file of a format that is not known yet."""
        for name in ("version", ".data/version"):
            if not self.has(name):
                continue
            text = self.read(name).strip()
            version = int(text) if text.isdigit() and len(text) < 10 else 0
            if not 1 <= version <= MAX_VERSION:
                raise self.error(f"expected version 1 to {MAX_VERSION} of the file format, got {ascii(text[:20])[1:]}")

    def byteorder(self, default: str) -> str:
        if not self.has("byteorder"):
            return default
        order = self.read("byteorder")
        if order not in (b"little", b"big"):
            raise self.error(f"Unknown endianness type: {ascii(order[:20])[2:-1]}")
        return order.decode()


def read_storage(file: BoundedFile, nbytes: int) -> Any:
    """A CPU storage with the next bytes of a file, which must have them."""
    if not 0 <= nbytes <= file.left():
        missing = nbytes - file.left()
        raise RuntimeError(f"unexpected EOF, expected {missing} more bytes. The file might be corrupted. ({file.name})")
    storage = torch.UntypedStorage(nbytes)
    file.fill(memoryview(storage))
    return storage


# ---- writing -------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file to write that takes the place of `path` when the block ends well, whole and on the disk.

    Until then, and after an exception, a crash or a kill, `path` is what it was. Links are followed and permissions kept
    as open() would. Written directly is what is no regular file (a pipe, a device), and a file that may be written in
    a folder that may not.
    """
    target = os.path.realpath(os.fspath(path))
    if os.path.islink(target):  # links that lead in a circle
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if not os.path.basename(os.fspath(path)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    before = os.stat(target) if os.path.exists(target) else None
    if before is not None and (not stat.S_ISREG(before.st_mode) or not os.access(folder, os.W_OK | os.X_OK)):
        with open(target, "wb") as file:
            yield file
        return
    if before is not None:
        os.close(os.open(target, os.O_WRONLY))  # a file that must not be written is not replaced either
    temporary = os.path.join(folder, f".torch-save-{secrets.token_hex(8)}")
    descriptor, is_named = _new_file(folder, temporary)
    try:
        with open(descriptor, "w+b") as file:
            yield file
            file.flush()
            if before is not None:
                _keep_owner(descriptor, before)
            os.fsync(descriptor)
            if not is_named:
                _give_name(descriptor, temporary)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


class WholeWriter:
    """A file of the caller's that takes all it is given: an unbuffered one may take a part, and zipfile would not see."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def seek(self, place: int, whence: int = 0) -> int:
        if isinstance(self.file, gzip.GzipFile):  # it says that it is seekable, and goes forward only
            raise io.UnsupportedOperation("seek")
        return self.file.seek(place, whence)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            n = self.file.write(view[done:] if done else data)
            if n is None:  # of a class that does not count
                break
            if not 0 < n <= len(view) - done:
                raise OSError(errno.EIO, f"a file took {n} of {len(view) - done} bytes")
            done += n
        return len(view)


def _new_file(folder: str, temporary: str) -> tuple[int, bool]:
    """A file in a folder, nameless where the system can: then a killed process leaves nothing behind."""
    if os.path.exists("/proc/self/fd"):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666), False
        except OSError as error:  # the file system, or an old kernel, has no such files
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
                raise
    return os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666), True


def _give_name(descriptor: int, path: str) -> None:
    """A folder's descriptor is given, and ignored, because only then Python calls linkat, which follows the link."""
    os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    """Owner and permissions of the file that is replaced; only root may change the owner of a file."""
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _sync_folder(folder: str) -> None:
    """The new name is on the disk too; some file systems cannot say so of a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def in_memory(file: IO[bytes]) -> IO[bytes]:
    """A file that can be sought, from its end as well (a GzipFile cannot): itself, or all of its bytes."""
    for name in ("seek", "tell"):
        if not hasattr(file, name):
            raise AttributeError(f"'{type(file).__name__}' object has no attribute '{name}'. You can only torch.load from a file "
                                 "that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to load "
                                 "from it instead.")
    if hasattr(file, "seekable") and not file.seekable():
        return io.BytesIO(file.read())
    begin = file.tell()
    try:
        file.seek(0, os.SEEK_END)
        file.seek(begin)
    except (ValueError, OSError):
        file.seek(begin)
        return io.BytesIO(file.read())
    return file
