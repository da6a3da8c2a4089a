"""Key-value stores shared by processes: the interface, and those without a network (HashStore, FileStore, PrefixStore)."""
from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from mindtorch_v2.distributed._errors import DistStoreError

DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store:
    """What every store can do. A value is bytes; a str is stored as UTF-8."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        """How long get() and wait() wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """The value of a key; waits until it is set."""
        raise NotImplementedError

    def add(self, key: str, amount: int) -> int:
        """Adds to the number at a key, which begins at 0; returns the sum."""
        raise NotImplementedError

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets a key if it has the expected value, or has none and "" is expected; returns what it has then."""
        raise NotImplementedError

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys are set."""
        raise NotImplementedError

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are set."""
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        raise NotImplementedError

    def num_keys(self) -> int:
        raise NotImplementedError

    def list_keys(self) -> list[str]:
        raise NotImplementedError

    def append(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError

    def queue_push(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError(f"[{type(self).__name__}] has no queues; use a HashStore or a TCPStore")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        raise NotImplementedError(f"[{type(self).__name__}] has no queues; use a HashStore or a TCPStore")

    def queue_len(self, key: str) -> int:
        raise NotImplementedError(f"[{type(self).__name__}] has no queues; use a HashStore or a TCPStore")

    def clone(self) -> Store:
        """Another handle of the same store, which another thread may use."""
        raise NotImplementedError

    def has_extended_api(self) -> bool:
        return True

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until world_size callers have come."""
        if self.add(key + "/count", 1) == world_size:
            self.set(key + "/last", b"1")
        self.wait([key + "/last"], timeout)


def refuse_timeout() -> None:
    raise DistStoreError("Wait timeout")


class Table:
    """Keys and queues in memory; the caller holds the lock. HashStore and the server of TCPStore keep theirs in one."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, list[bytes]] = {}

    def add(self, key: str, amount: int) -> int:
        total = int(self.values.get(key, b"0")) + amount
        self.values[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        there = self.values.get(key)
        if there is None and expected:
            return expected
        if there is None or there == expected:
            self.values[key] = desired
        return self.values[key]

    def has(self, keys: list[str]) -> bool:
        return all(key in self.values or self.queues.get(key) for key in keys)


class HashStore(Store):
    """A store in this process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._changed = Table(), threading.Condition()

    def _until(self, ready: Callable[[], bool], timeout: timedelta | None = None) -> None:
        if not self._changed.wait_for(ready, (timeout or self._timeout).total_seconds()):
            refuse_timeout()

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._table.values[key] = as_bytes(value)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            self._until(lambda: key in self._table.values)
            return self._table.values[key]

    def add(self, key: str, amount: int) -> int:
        with self._changed:
            total = self._table.add(key, amount)
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        with self._changed:
            result = self._table.compare_set(key, as_bytes(expected_value), as_bytes(desired_value))
            self._changed.notify_all()
            return result

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        with self._changed:
            self._until(lambda: self._table.has(keys), timeout)

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return self._table.has(keys)

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._table.values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._table.values)

    def list_keys(self) -> list[str]:
        with self._changed:
            return list(self._table.values)

    def append(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._table.values[key] = self._table.values.get(key, b"") + as_bytes(value)
            self._changed.notify_all()

    def queue_push(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._table.queues.setdefault(key, []).append(as_bytes(value))
            self._changed.notify_all()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        with self._changed:
            self._until(lambda: bool(self._table.queues.get(key)), None if block else timedelta(0))
            return self._table.queues[key].pop(0)

    def queue_len(self, key: str) -> int:
        return len(self._table.queues.get(key, ()))

    def clone(self) -> Store:
        return self


class FileStore(Store):
    """A store in a file that all processes see. Writers append records under a lock; readers read what is new."""

    _RECORD = struct.Struct("<iI")               # bytes of the key, bytes of the value; a negative key length deletes
    _PAUSE = 0.01                                 # a file does not notify its readers

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path, self._world_size = file_name, world_size
        self._values: dict[str, bytes] = {}
        self._read_to = 0
        self._lock = threading.RLock()
        if world_size > 0:
            self.add("/users", 1)

    @contextmanager
    def _opened(self, write: bool) -> Iterator[int]:
        """The file, locked, with all its records read."""
        with self._lock:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
                self._catch_up(file)
                yield file
            finally:
                os.close(file)

    def _catch_up(self, file: int) -> None:
        data = os.pread(file, os.fstat(file).st_size - self._read_to, self._read_to)
        at = 0
        while at + self._RECORD.size <= len(data):
            key_bytes, value_bytes = self._RECORD.unpack_from(data, at)
            begin = at + self._RECORD.size
            key = data[begin:begin + abs(key_bytes)].decode()
            value = data[begin + abs(key_bytes):begin + abs(key_bytes) + value_bytes]
            if key_bytes < 0:
                self._values.pop(key, None)
            else:
                self._values[key] = value
            at = begin + abs(key_bytes) + value_bytes
        self._read_to += at

    def _write(self, file: int, key: str, value: bytes | None) -> None:
        name = key.encode()
        head = self._RECORD.pack(-len(name) if value is None else len(name), len(value or b""))
        os.pwrite(file, head + name + (value or b""), self._read_to)
        self._catch_up(file)

    def set(self, key: str, value: str | bytes) -> None:
        with self._opened(write=True) as file:
            self._write(file, key, as_bytes(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        with self._opened(write=True) as file:
            total = int(self._values.get(key, b"0")) + amount
            self._write(file, key, str(total).encode())
            return total

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        with self._opened(write=True) as file:
            there, expected = self._values.get(key), as_bytes(expected_value)
            if there is None and expected:
                return expected
            if there is None or there == expected:
                self._write(file, key, as_bytes(desired_value))
            return self._values[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        deadline = time.monotonic() + (timeout or self._timeout).total_seconds()
        while not self.check(keys):
            if time.monotonic() > deadline:
                refuse_timeout()
            time.sleep(self._PAUSE)

    def check(self, keys: list[str]) -> bool:
        with self._opened(write=False):
            return all(key in self._values for key in keys)

    def delete_key(self, key: str) -> bool:
        with self._opened(write=True) as file:
            there = key in self._values
            if there:
                self._write(file, key, None)
            return there

    def num_keys(self) -> int:
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        with self._opened(write=False):
            return list(self._values)

    def append(self, key: str, value: str | bytes) -> None:
        with self._opened(write=True) as file:
            self._write(file, key, self._values.get(key, b"") + as_bytes(value))

    def clone(self) -> Store:
        return FileStore(self.path)


class PrefixStore(Store):
    """Another store, with a prefix before every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store: Store = self
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._key(key), amount)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._store.compare_set(self._key(key), expected_value, desired_value)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._store.wait([self._key(key) for key in keys], timeout)

    def check(self, keys: list[str]) -> bool:
        return self._store.check([self._key(key) for key in keys])

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        return self._store.list_keys()

    def append(self, key: str, value: str | bytes) -> None:
        self._store.append(self._key(key), value)

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._store.queue_push(self._key(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._key(key))

    def clone(self) -> Store:
        return PrefixStore(self._prefix, self._store.clone())
