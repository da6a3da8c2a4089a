"""TCPStore: one process serves the keys, the others ask it over TCP. The server is one thread around a selector."""
from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from mindtorch_v2.distributed._errors import DistNetworkError, DistStoreError, QueueEmptyError
from mindtorch_v2.distributed._stores import DEFAULT_TIMEOUT, Store, Table, as_bytes

# A message is its length, the number of its fields and each field with its length. The first field of a question is the
# command, of an answer "ok", "wrong" (with a text) or "late".
_LENGTH = struct.Struct("<I")
_MAGIC = b"mindtorch-store-1"
MOST_BYTES = 1 << 30                              # of one message: a stranger's bytes must not make the server allocate


def pack(*fields: bytes) -> bytes:
    body = b"".join([_LENGTH.pack(len(fields)), *(_LENGTH.pack(len(field)) + field for field in fields)])
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> list[bytes]:
    (count,), at, fields = _LENGTH.unpack_from(body), _LENGTH.size, []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise ValueError("a field is longer than its message")
        fields.append(body[at:at + length])
        at += length
    return fields


class _Client:
    """A connection as the server sees it: bytes that came, bytes to send, and what it waits for."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.came, self.going, self.greeted = connection, bytearray(), bytearray(), False
        self.waits: tuple[Callable[[], list[bytes] | None], float] | None = None   # (an answer or None yet, deadline)


class _Server:
    """The keys, and a thread that answers."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener, self.table, self.pid = listener, Table(), os.getpid()
        self.port = listener.getsockname()[1]
        listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self._waker, woken = socket.socketpair()
        self.selector.register(woken, selectors.EVENT_READ)
        self.clients: dict[socket.socket, _Client] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self._serve, name="TCPStore server", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        if self.pid == os.getpid():               # a forked child has the object, but neither the thread nor the duty
            self.stopping = True
            with contextlib.suppress(OSError):    # closed already
                self._waker.send(b"x")
            self.thread.join(5)

    def _serve(self) -> None:
        while not self.stopping:
            waiting = [client.waits[1] for client in self.clients.values() if client.waits]
            pause = max(min(waiting) - time.monotonic(), 0) if waiting else None
            for key, events in self.selector.select(pause):
                if key.fileobj is self.listener:
                    self._accept()
                elif (client := self.clients.get(key.fileobj)) is not None:   # type: ignore[call-overload]
                    self._move(client, events)
            self._answer_waiting()
        for client in list(self.clients.values()):
            self._drop(client)
        self.listener.close()
        self._waker.close()

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = self.listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.clients[connection] = _Client(connection)
            self.selector.register(connection, selectors.EVENT_READ)

    def _drop(self, client: _Client) -> None:
        if self.clients.pop(client.connection, None):
            self.selector.unregister(client.connection)
            client.connection.close()

    def _move(self, client: _Client, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = client.connection.recv(1 << 16)
                if not data:
                    self._drop(client)
                    return
                client.came += data
                self._read(client)
            self._send(client)
        except (ConnectionError, ValueError, struct.error, UnicodeDecodeError):
            self._drop(client)                    # gone, or not a client of ours
        except BlockingIOError:
            return

    def _read(self, client: _Client) -> None:
        while client.waits is None and len(client.came) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(client.came)
            if length > MOST_BYTES or (not client.greeted and length > 64):
                raise ValueError("not a message")
            if len(client.came) < _LENGTH.size + length:
                return
            body = bytes(client.came[_LENGTH.size:_LENGTH.size + length])
            del client.came[:_LENGTH.size + length]
            fields = unpack(body)
            if not client.greeted and fields != [_MAGIC]:
                raise ValueError("not a client of a store")
            client.greeted = True
            self._handle(client, fields)

    def _handle(self, client: _Client, fields: list[bytes]) -> None:
        command = fields[0].decode()
        if command in ("wait", "get", "pop"):
            seconds = float(fields[1])
            names = [field.decode() for field in fields[2:]]
            client.waits = (lambda: self._ready(command, names)), time.monotonic() + seconds
            return
        try:
            answer = [b"ok", *_COMMANDS[command](self.table, *fields[1:])] if command != _MAGIC.decode() else [b"ok"]
        except (ValueError, KeyError, TypeError) as error:
            answer = [b"wrong", str(error).encode()]
        client.going += pack(*answer)

    def _ready(self, command: str, names: list[str]) -> list[bytes] | None:
        if command == "pop":
            queue = self.table.queues.get(names[0])
            return [b"ok", queue.pop(0)] if queue else None
        if not self.table.has(names):
            return None
        return [b"ok", *(self.table.values[name] for name in names)] if command == "get" else [b"ok"]

    def _answer_waiting(self) -> None:
        for client in list(self.clients.values()):
            while client.waits is not None:
                ready, deadline = client.waits
                answer = ready()
                if answer is None and time.monotonic() < deadline:
                    break
                client.waits = None
                client.going += pack(*(answer or [b"late"]))
                try:
                    self._read(client)            # what it sent meanwhile
                    self._send(client)
                except BlockingIOError:
                    pass
                except (ConnectionError, ValueError, struct.error):
                    self._drop(client)

    def _send(self, client: _Client) -> None:
        try:
            while client.going:
                sent = client.connection.send(client.going)
                del client.going[:sent]
        finally:
            if client.connection in self.clients:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.going else 0)
                self.selector.modify(client.connection, events)


def _set(table: Table, key: bytes, value: bytes) -> list[bytes]:
    table.values[key.decode()] = value
    return []


def _append(table: Table, key: bytes, value: bytes) -> list[bytes]:
    name = key.decode()
    table.values[name] = table.values.get(name, b"") + value
    return []


def _push(table: Table, key: bytes, value: bytes) -> list[bytes]:
    table.queues.setdefault(key.decode(), []).append(value)
    return []


def _delete(table: Table, key: bytes) -> list[bytes]:
    return [b"1" if table.values.pop(key.decode(), None) is not None else b""]


_COMMANDS: dict[str, Callable[..., list[bytes]]] = {
    "set": _set, "append": _append, "push": _push, "delete": _delete,
    "add": lambda table, key, amount: [str(table.add(key.decode(), int(amount))).encode()],
    "compare_set": lambda table, key, expected, desired: [table.compare_set(key.decode(), expected, desired)],
    "check": lambda table, *keys: [b"1" if table.has([key.decode() for key in keys]) else b""],
    "count": lambda table: [str(len(table.values)).encode()],
    "list": lambda table: [key.encode() for key in table.values],
    "length": lambda table, key: [str(len(table.queues.get(key.decode(), ()))).encode()],
}


class TCPStore(Store):
    """A store that one process serves (is_master) and all reach by host and port."""

    libuvBackend = False

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
                 timeout: timedelta = DEFAULT_TIMEOUT, wait_for_workers: bool = True, multi_tenant: bool = False,
                 master_listen_fd: int | None = None, use_libuv: bool = True) -> None:
        super().__init__()
        self._timeout, self.host = timeout, host_name
        self._lock = threading.Lock()
        self._server = _serve_at(port, multi_tenant, master_listen_fd) if is_master else None
        self.port = self._server.port if self._server else port
        self._connect()
        if wait_for_workers and world_size:
            self._wait_for_workers(world_size)

    def _connect(self) -> None:
        milliseconds = int(self._timeout.total_seconds() * 1000)
        deadline, pause = time.monotonic() + self._timeout.total_seconds(), 0.01
        while True:
            try:
                self._socket = socket.create_connection((self.host, self.port), max(deadline - time.monotonic(), 0.01))
                break
            except OSError as error:
                if time.monotonic() + pause > deadline:
                    raise DistNetworkError(f"The client socket has timed out after {milliseconds}ms while trying to "
                                           f"connect to ({self.host}, {self.port}).") from error
                time.sleep(pause)
                pause = min(2 * pause, 0.5)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pid = os.getpid()
        self._ask(_MAGIC)

    def _wait_for_workers(self, world_size: int) -> None:
        if self.add("/workers", 1) == world_size:
            self.set("/all_workers", b"1")
        if self._server:
            try:
                self.wait(["/all_workers"])
            except DistStoreError as error:
                came = self.add("/workers", 0)
                raise DistStoreError(f"Timed out after {int(self._timeout.total_seconds()) + 1} seconds waiting for clients. "
                                     f"{came}/{world_size} clients joined.") from error

    def _ask(self, *fields: bytes, seconds: float = 0.0) -> list[bytes]:
        """One question and its answer. The server keeps the time; the socket's limit is for a server that is gone."""
        with self._lock:
            if self._pid != os.getpid():
                raise DistNetworkError("a forked process cannot use its parent's connection; make a TCPStore of its own")
            try:
                self._socket.settimeout(seconds + max(self._timeout.total_seconds(), 10.0))
                self._socket.sendall(pack(*fields))
                (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
                answer = unpack(self._receive(length))
            except (OSError, struct.error) as error:
                raise DistNetworkError(f"the store at ({self.host}, {self.port}) does not answer: {error}. Did the process that "
                                       "serves it (rank 0, or the launcher) end?") from error
        if answer[0] == b"late":
            keys = ", ".join("/" + field.decode() for field in fields[2:])
            raise DistStoreError(f"wait timeout after {int(seconds * 1000)}ms, keys: {keys}")
        if answer[0] == b"wrong":
            raise DistNetworkError(f"[{fields[0].decode()}] {answer[1].decode()}")
        return answer[1:]

    def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            data = self._socket.recv(min(length - len(parts), 1 << 20))
            if not data:
                raise ConnectionError("Failed to recv, got 0 bytes. Connection was likely closed.")
            parts += data
        return bytes(parts)

    def _wait(self, command: bytes, names: list[str], timeout: timedelta | None) -> list[bytes]:
        seconds = (self._timeout if timeout is None else timeout).total_seconds()
        return self._ask(command, repr(seconds).encode(), *(name.encode() for name in names), seconds=seconds)

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key.encode(), as_bytes(value))

    def get(self, key: str) -> bytes:
        return self._wait(b"get", [key], None)[0]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return self._wait(b"get", keys, None) if keys else []

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(b"add", key.encode(), str(amount).encode())[0])

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._ask(b"compare_set", key.encode(), as_bytes(expected_value), as_bytes(desired_value))[0]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        self._wait(b"wait", keys, timeout)

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(b"check", *(key.encode() for key in keys))[0])

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(b"delete", key.encode())[0])

    def num_keys(self) -> int:
        return int(self._ask(b"count")[0])

    def list_keys(self) -> list[str]:
        return [key.decode() for key in self._ask(b"list")]

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(b"append", key.encode(), as_bytes(value))

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._ask(b"push", key.encode(), as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        try:
            return self._wait(b"pop", [key], None if block else timedelta(0))[0]
        except DistStoreError:
            if block:
                raise
            raise QueueEmptyError(f"queue {key} is empty") from None

    def queue_len(self, key: str) -> int:
        return int(self._ask(b"length", key.encode())[0])

    def clone(self) -> TCPStore:
        """Another connection to the same server."""
        return TCPStore(self.host, self.port, None, False, self._timeout, wait_for_workers=False)

    def __repr__(self) -> str:
        return f"TCPStore(host={self.host}, port={self.port}, server={self._server is not None})"

    def __del__(self) -> None:
        if getattr(self, "_socket", None) is not None:
            self._socket.close()
        server: Any = getattr(self, "_server", None)
        if server is not None and server.pid == os.getpid() and _shared.get(server.port) is not server:
            server.stop()


_shared: dict[int, _Server] = {}                  # servers of multi_tenant stores: they live as long as the process


def _serve_at(port: int, multi_tenant: bool, listen_fd: int | None) -> _Server:
    if multi_tenant and port in _shared and _shared[port].pid == os.getpid():
        return _shared[port]
    if listen_fd is not None:
        listener = socket.socket(fileno=listen_fd)
    else:
        try:
            listener = socket.create_server(("", port), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True) \
                if socket.has_dualstack_ipv6() else socket.create_server(("", port), backlog=1024)
        except OSError as error:
            raise DistNetworkError(
                "The server socket has failed to listen on any local network address. "
                f"port: {port}, useIpv6: false, code: -98, name: EADDRINUSE, message: {error.strerror}") from error
    server = _Server(listener)
    if multi_tenant:
        _shared[server.port] = server
    return server
