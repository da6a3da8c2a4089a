"""The stores of torch.distributed: the same calls on ours and on PyTorch's give the same; many clients; strangers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch as judge
import torch.distributed

import mindtorch_v2 as torch

MAKERS: dict[str, Callable[[Any, Path], Any]] = {
    "hash": lambda dist, path: dist.HashStore(),
    "file": lambda dist, path: dist.FileStore(str(path / dist.__name__), 1),
    "tcp": lambda dist, path: dist.TCPStore("127.0.0.1", 0, 1, True),
    "prefix": lambda dist, path: dist.PrefixStore("a/b", dist.HashStore()),
}


def script(store: Any) -> list[Any]:
    """A program over a store; what it gives."""
    out: list[Any] = [store.set("a", "b"), store.get("a"), store.set("raw", b"\x00\xff"), store.get("raw")]
    out += [store.add("n", 3), store.add("n", -5), store.get("n"), store.add("n", 0)]
    out += [store.compare_set("x", "", "1"), store.compare_set("x", "0", "2"), store.compare_set("x", "1", "3"), store.get("x")]
    out += [store.compare_set("new", "expected", "wanted"), store.check(["new"]), store.check(["a", "x"]), store.check(["a", "zz"])]
    out += [store.delete_key("a"), store.check(["a"]), store.wait(["x", "n"])]
    for late in (lambda: store.wait(["never"], timedelta(milliseconds=60)), lambda: store.get("never")):
        store.set_timeout(timedelta(milliseconds=60))
        try:
            out.append(late())
        except Exception as error:
            out.append(type(error).__name__)
    return out


@pytest.mark.parametrize("kind", MAKERS)
def test_store_is_torchs(kind: str, tmp_path: Path) -> None:
    ours = script(MAKERS[kind](torch.distributed, tmp_path))
    wanted = script(MAKERS[kind](judge.distributed, tmp_path))
    if kind == "file":                            # PyTorch's file store says the base class
        wanted = ["DistStoreError" if item == "RuntimeError" else item for item in wanted]
    assert ours == wanted and "DistStoreError" in ours


@pytest.mark.parametrize("kind", ("hash", "tcp"))
def test_lists_and_queues(kind: str, tmp_path: Path) -> None:
    def more(store: Any) -> list[Any]:
        store.append("k", "x")
        store.append("k", "y")
        store.multi_set(["m", "n"], ["1", "2"])
        store.queue_push("q", "first")
        store.queue_push("q", "second")
        return [store.get("k"), store.multi_get(["m", "n"]), store.queue_len("q"), store.queue_pop("q"), store.queue_len("q")]

    assert more(MAKERS[kind](torch.distributed, tmp_path)) == more(MAKERS[kind](judge.distributed, tmp_path))


def test_many_clients_wait_for_one_key() -> None:
    server = torch.distributed.TCPStore("127.0.0.1", 0, 1, True)
    got: list[bytes] = []

    def client() -> None:
        mine = server.clone()
        mine.add("count", 1)
        got.append(mine.get("late"))

    threads = [threading.Thread(target=client) for _ in range(40)]
    for thread in threads:
        thread.start()
    server.barrier("all", 1)
    while server.add("count", 0) < 40:
        time.sleep(0.005)
    server.set("late", "now")
    for thread in threads:
        thread.join()
    assert got == [b"now"] * 40


def test_a_stranger_does_not_disturb_the_server() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, 1, True)
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x00\x00\x00\x00", b""):
        with socket.create_connection(("127.0.0.1", store.port)) as stranger:
            stranger.sendall(words)
        store.set("k", words)
        assert store.get("k") == words
    with pytest.raises(torch.distributed.DistNetworkError, match="invalid literal"):
        store.set("word", "text")
        store.add("word", 1)
    assert store.get("k") == b""                  # the connection lives on


def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(torch.distributed.DistNetworkError, match="failed to listen"):
            torch.distributed.TCPStore("127.0.0.1", port, 1, True)
    with pytest.raises(torch.distributed.DistNetworkError, match=r"timed out after 200ms while trying to connect to \(127.0.0.1, "):
        torch.distributed.TCPStore("127.0.0.1", port, 1, False, timedelta(milliseconds=200))


def test_workers_that_do_not_come() -> None:
    with pytest.raises(torch.distributed.DistStoreError, match="1/2 clients joined"):
        torch.distributed.TCPStore("127.0.0.1", 0, 2, True, timedelta(milliseconds=100))


def refusal(dist: Any, call: Callable[[Any], Any]) -> tuple[str, str]:
    try:
        return "", str(call(dist))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("call", [
    lambda d: d.get_rank(), lambda d: d.get_world_size(), lambda d: d.barrier(), lambda d: d.destroy_process_group(),
    lambda d: d.init_process_group("gloo"), lambda d: d.init_process_group("gloo", init_method="foo://x"),
    lambda d: d.init_process_group("gloo", init_method="tcp://localhost"),
    lambda d: d.init_process_group("gloo", init_method="tcp://localhost:1", rank=0),
    lambda d: d.init_process_group("gloo", init_method="file://", rank=0, world_size=1),
    lambda d: d.init_process_group("gloo", store=d.HashStore(), world_size=1),
    lambda d: d.init_process_group("gloo", timeout=3), lambda d: d.Backend("GLOO"), lambda d: d.Backend(3),
    lambda d: d.is_initialized(), lambda d: d.get_node_local_rank(), lambda d: d.get_node_local_rank(2),
])  # fmt: skip
def test_without_a_group_is_torchs(call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert refusal(torch.distributed, call) == refusal(judge.distributed, call)


def test_futures_are_torchs() -> None:
    for lib in (torch, judge):
        future: Any = lib.futures.Future()
        doubled = future.then(lambda f: f.value() * 2)
        seen: list[Any] = []
        doubled.add_done_callback(lambda f: seen.append(f.value()))
        assert not future.done() and not doubled.done()
        future.set_result(21)
        assert doubled.wait() == 42 and seen == [42] and lib.futures.wait_all([future, doubled]) == [21, 42]
        bad: Any = lib.futures.Future()
        bad.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            bad.wait()
        with pytest.raises(RuntimeError, match="once"):
            future.set_result(1)
