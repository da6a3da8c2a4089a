"""Private helpers of torch.serialization that programs call: what a file can do, and files that are opened or handed on."""
from __future__ import annotations

import gzip
import io
import os
import zipfile
from typing import Any

import mindtorch_v2 as torch

_ONLY = ("You can only torch.load from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to "
         "load from it instead.")


def _check_seekable(f: Any) -> bool:
    """True of a file that can be sought; an error that says what it lacks of others."""
    for name in ("seek", "tell"):
        if not hasattr(f, name):
            raise AttributeError(f"'{type(f).__name__}' object has no attribute '{name}'. {_ONLY}")
    try:
        f.seek(f.tell())
    except io.UnsupportedOperation as error:
        raise type(error)(f"{error}. {_ONLY}") from error
    return True


def _check_save_filelike(f: Any) -> None:
    """An error for what torch.save cannot write to."""
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def _is_compressed_file(f: Any) -> bool:
    """Whether reading it unpacks it."""
    return isinstance(f, (gzip.GzipFile, zipfile.ZipExtFile))


def _should_read_directly(f: Any) -> bool:
    """Whether its bytes can be read by its number."""
    if _is_compressed_file(f):
        return False
    try:
        return bool(f.fileno() >= 0)
    except (io.UnsupportedOperation, AttributeError):
        return False


class _opener:
    """A with block on a file that stays open after it."""

    def __init__(self, file_like: Any) -> None:
        self.file_like = file_like

    def __enter__(self) -> Any:
        return self.file_like

    def __exit__(self, *args: Any) -> None:
        pass


class _open_file(_opener):
    """One on a path, whose file is closed at its end."""

    def __init__(self, name: str | os.PathLike[str], mode: str) -> None:
        super().__init__(open(name, mode))

    def __exit__(self, *args: Any) -> None:
        self.file_like.close()


class _open_buffer_reader(_opener):
    """One that reads."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        _check_seekable(buffer)


class _open_buffer_writer(_opener):
    """One that writes."""

    def __exit__(self, *args: Any) -> None:
        self.file_like.flush()


def _open_file_like(name_or_buffer: Any, mode: str) -> _opener:
    """A with block on a path or on a file that is open."""
    if isinstance(name_or_buffer, (str, os.PathLike)):
        return _open_file(name_or_buffer, mode)
    if "w" in mode:
        return _open_buffer_writer(name_or_buffer)
    if "r" in mode:
        return _open_buffer_reader(name_or_buffer)
    raise RuntimeError(f"Expected 'r' or 'w' in mode but got {mode}")


class _open_zipfile_reader(_opener):
    """One on the records of a file of torch.save."""

    def __init__(self, name_or_buffer: Any) -> None:
        super().__init__(torch._C.PyTorchFileReader(name_or_buffer))  # type: ignore[attr-defined]


def _is_torchscript_zip(zip_file: Any) -> bool:
    """Whether such a file holds a program of TorchScript."""
    return "constants.pkl" in zip_file.get_all_records()
