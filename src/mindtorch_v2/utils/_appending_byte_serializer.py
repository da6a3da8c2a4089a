"""torch.utils._appending_byte_serializer: a list of values as bytes, to which more are added without writing it anew."""
from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

_DIGEST = 32


class BytesWriter:
    """Numbers, texts and bytes, one after another."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write_uint64(self, i: int) -> None:
        """A number in eight bytes."""
        self._data += i.to_bytes(8, "big")

    def write_bytes(self, b: bytes) -> None:
        """Bytes after their count."""
        self.write_uint64(len(b))
        self._data += b

    def write_str(self, s: str) -> None:
        """A text."""
        self.write_bytes(s.encode())

    def to_bytes(self) -> bytes:
        """What was written."""
        return bytes(self._data)


class BytesReader:
    """Reads what a BytesWriter wrote."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def is_finished(self) -> bool:
        """Whether all was read."""
        return self._at == len(self._data)

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise AssertionError(f"expected {count} more bytes, got {len(self._data) - self._at}")
        self._at += count
        return self._data[self._at - count:self._at]

    def read_uint64(self) -> int:
        """The next number."""
        return int.from_bytes(self._take(8), "big")

    def read_bytes(self) -> bytes:
        """The next bytes."""
        return self._take(self.read_uint64())

    def read_str(self) -> str:
        """The next text."""
        return self.read_bytes().decode()


class AppendingByteSerializer:
    """Values, each written once; with a checksum."""

    def __init__(self, *, serialize_fn: Callable[[BytesWriter, Any], None]) -> None:
        self._serialize_fn = serialize_fn
        self.clear()

    def clear(self) -> None:
        """No values."""
        self._writer = BytesWriter()
        self._writer.write_uint64(1)              # the version of the format

    def append(self, data: Any) -> None:
        """One more value."""
        self._serialize_fn(self._writer, data)

    def extend(self, elems: Iterable[Any]) -> None:
        """More values."""
        for elem in elems:
            self.append(elem)

    def to_bytes(self) -> bytes:
        """All values."""
        body = self._writer.to_bytes()
        return base64.b64encode(hashlib.sha256(body).digest() + body)

    @staticmethod
    def to_list(data: bytes, *, deserialize_fn: Callable[[BytesReader], Any]) -> list[Any]:
        """The values in bytes."""
        raw = base64.b64decode(data)
        body = raw[_DIGEST:]
        if hashlib.sha256(body).digest() != raw[:_DIGEST]:
            raise AssertionError("the checksum does not agree with the data")
        reader = BytesReader(body)
        version = reader.read_uint64()
        if version != 1:
            raise AssertionError(f"expected version 1, got {version}")
        found = []
        while not reader.is_finished():
            found.append(deserialize_fn(reader))
        return found
