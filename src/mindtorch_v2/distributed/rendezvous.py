"""torch.distributed.rendezvous: how processes find one another, by URL: env://, tcp://host:port, file:///path."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlparse

from mindtorch_v2.distributed._stores import FileStore, PrefixStore, Store
from mindtorch_v2.distributed._tcp_store import TCPStore
from mindtorch_v2.distributed.constants import default_pg_timeout

__all__ = ["register_rendezvous_handler", "rendezvous"]

_handlers: dict[str, Callable[..., Iterator[tuple[Store, int, int]]]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[tuple[Store, int, int]]]) -> None:
    """Registers a URL scheme: handler(url, timeout=…) yields (store, rank, world size)."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    """Gives (store, rank, world size) of a URL."""
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    parsed = urlparse(url)
    handler = _handlers.get(parsed.scheme)
    if handler is None:
        raise RuntimeError(f"No rendezvous handler for {parsed.scheme}://")
    query = dict(parse_qsl(parsed.query))
    if rank != -1:
        query["rank"] = str(rank)
    if world_size != -1:
        query["world_size"] = str(world_size)
    return handler(parsed, query, **kwargs)


def _error(kind: str, text: str) -> ValueError:
    return ValueError(f"Error initializing torch.distributed using {kind} rendezvous: {text}")


def _tcp(url: Any, query: dict[str, str], timeout: timedelta = default_pg_timeout,
         **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    if not url.port:
        raise _error("tcp://", "port number missing")
    for name in ("rank", "world_size"):
        if name not in query:
            raise _error("tcp://", f"{name.replace('_', ' ')} parameter missing")
    rank, size = int(query["rank"]), int(query["world_size"])
    yield make_tcp_store(url.hostname, url.port, rank, size, timeout), rank, size


def make_tcp_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    """The store of a job. Under the launcher it is the launcher's, so that a rank that ends does not take it along."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"/worker/attempt_{attempt}", TCPStore(host, port, size, False, timeout, wait_for_workers=False))
    return TCPStore(host, port, size, rank == 0, timeout, multi_tenant=True, wait_for_workers=False)


def _env(url: Any, query: dict[str, str], timeout: timedelta = default_pg_timeout,
         **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    def value(name: str) -> str:
        found = os.environ.get(name)
        if found is None:
            raise _error("env://", f"environment variable {name} expected, but not set")
        return found

    rank = int(query["rank"]) if "rank" in query else int(value("RANK"))
    size = int(query["world_size"]) if "world_size" in query else int(value("WORLD_SIZE"))
    host, port = value("MASTER_ADDR"), int(value("MASTER_PORT"))
    yield make_tcp_store(host, port, rank, size, timeout), rank, size


def _file(url: Any, query: dict[str, str], **kwargs: Any) -> Iterator[tuple[Store, int, int]]:
    path = url.netloc + url.path
    if not path:
        raise _error("file://", "path missing")
    for name in ("rank", "world_size"):
        if name not in query:
            raise _error("file://", f"{name.replace('_', ' ')} parameter missing")
    rank, size = int(query["rank"]), int(query["world_size"])
    yield FileStore(path, size), rank, size


register_rendezvous_handler("tcp", _tcp)
register_rendezvous_handler("env", _env)
register_rendezvous_handler("file", _file)
