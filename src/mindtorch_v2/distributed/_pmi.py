"""A PMI-1 server on a store: MPI queries it, over a local connection, for its other processes.

MPICH is started by any process manager that implements PMI-1, so no mpiexec is needed. Each rank runs this server for
itself; what ranks exchange goes through the store, of whatever kind.
"""
from __future__ import annotations

import itertools
import secrets
import socket
import threading
from collections.abc import Callable

from mindtorch_v2.distributed._stores import Store

_NOT_FOUND = "cmd=get_result rc=-1 msg=key_not_found value=unknown"


def process_mapping(hosts: list[str]) -> str | None:
    """MPICH's text for which ranks share a host, if they come in blocks of one size; else it finds out by itself."""
    blocks = [(host, len(list(same))) for host, same in itertools.groupby(hosts)]
    sizes = {size for _, size in blocks}
    if len(sizes) != 1 or len({host for host, _ in blocks}) != len(blocks):
        return None
    return f"(vector,(0,{len(blocks)},{sizes.pop()}))"


class PmiServer:
    """Answers the MPI library of this process until it says finalize, or the process ends."""

    def __init__(self, store: Store, rank: int, size: int, hosts: list[str]) -> None:
        self.store, self.rank, self.size, self.barriers = store, rank, size, 0
        self.mapping = process_mapping(hosts)
        # MPICH names its shared memory after it: two jobs of one name would read each other's.
        self.job = store.compare_set("job", "", secrets.token_hex(8)).decode()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, name="PMI server", daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self.listener.accept()    # one client: the MPI library of this process
        self.listener.close()
        with connection, connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                answer = _ANSWERS.get(words.get("cmd", ""))
                lines.write((answer(self, words) if answer else f"cmd={words.get('cmd')} rc=-1 msg=unknown_command") + "\n")
                lines.flush()
                if words.get("cmd") == "finalize":
                    return

    def initack(self, words: dict[str, str]) -> str:
        return f"cmd=initack\ncmd=set size={self.size}\ncmd=set rank={self.rank}\ncmd=set debug=0"

    def put(self, words: dict[str, str]) -> str:
        self.store.set(f"kvs/{words['key']}", words["value"])
        return "cmd=put_result rc=0 msg=success"

    def get(self, words: dict[str, str]) -> str:
        key = words["key"]
        if key == "PMI_process_mapping":
            return f"cmd=get_result rc=0 msg=success value={self.mapping}" if self.mapping else _NOT_FOUND
        if not self.store.check([f"kvs/{key}"]):
            return _NOT_FOUND
        return f"cmd=get_result rc=0 msg=success value={self.store.get(f'kvs/{key}').decode()}"

    def barrier(self, words: dict[str, str]) -> str:
        self.barriers += 1
        self.store.barrier(f"barrier/{self.barriers}", self.size)
        return "cmd=barrier_out rc=0"


_ANSWERS: dict[str, Callable[[PmiServer, dict[str, str]], str]] = {
    "initack": PmiServer.initack,
    "init": lambda server, words: "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
    "get_maxes": lambda server, words: "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=4096",
    "get_appnum": lambda server, words: "cmd=appnum appnum=0",
    "get_my_kvsname": lambda server, words: f"cmd=my_kvsname kvsname={server.job}",
    "get_universe_size": lambda server, words: f"cmd=universe_size size={server.size} rc=0",
    "put": PmiServer.put,
    "get": PmiServer.get,
    "barrier_in": PmiServer.barrier,
    "finalize": lambda server, words: "cmd=finalize_ack rc=0",
}
