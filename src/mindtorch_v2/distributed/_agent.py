"""Starts the workers of one host, watches them, ends all when one fails, and restarts them up to max_restarts times."""
from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, Any

from mindtorch_v2.distributed import _process
from mindtorch_v2.distributed._errors import DistError, DistNetworkError
from mindtorch_v2.distributed._stores import PrefixStore, Store
from mindtorch_v2.distributed._tcp_store import TCPStore

STDOUT, STDERR = 1, 2                             # bits of --redirects and --tee
_KEPT = 1 << 16                                   # bytes of a worker's stderr that are shown when it fails


@dataclass
class LaunchConfig:
    """What is to be started, and how."""
    command: list[str]
    nproc: int = 1
    nnodes: int = 1
    node_rank: int | None = None                  # None: the order in which hosts come
    host: str = "127.0.0.1"
    port: int = 0
    serves: bool = True                           # whether this host may keep the store
    run_id: str = "none"
    role: str = "default"
    max_restarts: int = 0
    monitor_interval: float = 0.1
    join_timeout: float = 600.0
    log_dir: str | None = None
    redirects: dict[int, int] = field(default_factory=dict)
    tee: dict[int, int] = field(default_factory=dict)
    shown: set[int] | None = None                 # local ranks whose output is shown; None: all
    environment: dict[str, str] = field(default_factory=dict)


class SignalException(BaseException):
    """A signal that ends the job."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Process {os.getpid()} got signal: {signal.Signals(number).name}")
        self.number = number


@dataclass
class Failure:
    """The first worker that failed."""
    rank: int
    local_rank: int
    pid: int
    code: int
    text: str

    def __str__(self) -> str:
        what = f"signal {signal.Signals(-self.code).name}" if self.code < 0 else f"exit code {self.code}"
        head = f"rank {self.rank} (local rank {self.local_rank}, process {self.pid}, host {socket.gethostname()}): {what}"
        return f"{head}\n{self.text.rstrip()}" if self.text.strip() else head


class ChildFailedError(RuntimeError):
    """A job whose worker failed."""

    def __init__(self, name: str, failure: Failure | None) -> None:
        self.failure = failure
        line = "=" * 60
        super().__init__(f"\n{line}\n{name} FAILED\n{line}\nfirst failure: {failure or 'on another host'}\n{line}")


class Worker:
    """One process, and where its output goes."""

    def __init__(self, config: LaunchConfig, local_rank: int, environment: dict[str, str], folder: str) -> None:
        self.local_rank, self.rank = local_rank, int(environment["RANK"])
        self.config, self.tail, self.threads = config, bytearray(), []   # type: ignore[var-annotated]
        self.error_file = os.path.join(folder, "error.json")
        os.makedirs(folder, exist_ok=True)
        redirect, tee = config.redirects.get(local_rank, 0), config.tee.get(local_rank, 0)
        self.process = subprocess.Popen(
            config.command, env=environment | {"TORCHELASTIC_ERROR_FILE": self.error_file},
            stdout=self._target(STDOUT, redirect, tee, os.path.join(folder, "stdout.log")),
            stderr=self._target(STDERR, redirect, tee, os.path.join(folder, "stderr.log")),
            preexec_fn=functools.partial(_process.die_with_parent, signal.SIGKILL, os.getpid()))
        self._pump(self.process.stdout, sys.stdout, STDOUT, redirect | tee, os.path.join(folder, "stdout.log"))
        self._pump(self.process.stderr, sys.stderr, STDERR, redirect | tee, os.path.join(folder, "stderr.log"))

    def _target(self, bit: int, redirect: int, tee: int, path: str) -> Any:
        """stdout goes where ours goes unless a flag says else; stderr comes through us, so that its end can be shown."""
        if bit == STDERR or tee & bit or (redirect & bit):
            return subprocess.PIPE
        return None if self._is_shown() else subprocess.DEVNULL

    def _is_shown(self) -> bool:
        return self.config.shown is None or self.local_rank in self.config.shown

    def _pump(self, source: IO[bytes] | None, console: Any, bit: int, to_file: int, path: str) -> None:
        if source is None:
            return
        redirected = self.config.redirects.get(self.local_rank, 0) & bit and not self.config.tee.get(self.local_rank, 0) & bit
        file = open(path, "wb", buffering=0) if to_file & bit else None
        mark = f"[{self.config.role}{self.rank}]:".encode() if self.config.tee.get(self.local_rank, 0) & bit else b""
        show = console.buffer if self._is_shown() and not redirected and hasattr(console, "buffer") else None
        thread = threading.Thread(target=self._copy, args=(source, file, show, mark, bit == STDERR), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _copy(self, source: IO[bytes], file: IO[bytes] | None, show: IO[bytes] | None, mark: bytes, keep: bool) -> None:
        for data in iter(lambda: source.read1(1 << 16) if not mark else source.readline(), b""):   # type: ignore[attr-defined]
            if keep:
                self.tail += data
                del self.tail[:-_KEPT]
            if file is not None:
                file.write(data)
            if show is not None:
                show.write(mark + data)
                show.flush()
        if file is not None:
            file.close()

    def finish_output(self) -> None:
        for thread in self.threads:
            thread.join(2)                        # a grandchild may hold the pipe open

    def failure(self) -> Failure:
        """Why it ended: what @record wrote, else the traceback at the end of its stderr."""
        self.finish_output()
        text = self.tail.decode(errors="replace")
        at = text.rfind("Traceback (most recent call last)")
        text = text[at:] if at >= 0 else "\n".join(text.splitlines()[-20:])
        if os.path.exists(self.error_file):
            with open(self.error_file) as file:
                text = json.load(file)["message"]["extraInfo"]["py_callstack"]
        return Failure(self.rank, self.local_rank, self.process.pid, self.process.returncode, text)


class Agent:
    """The launcher on one host."""

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config
        self.root = self._open_store()
        self.store: Store = PrefixStore(f"launch/{config.run_id}", self.root)
        self.node_rank = self._join()
        self.folder = config.log_dir or tempfile.mkdtemp(prefix="mindtorch_run_")
        self.workers: list[Worker] = []

    def _open_store(self) -> TCPStore:
        limit = timedelta(seconds=self.config.join_timeout)
        if self.config.serves:
            try:
                store = TCPStore(self.config.host, self.config.port, None, True, limit, wait_for_workers=False)
                self.config.port = store.port
                return store
            except DistNetworkError:
                if self.config.node_rank == 0 and self.config.nnodes == 1:
                    raise
        return TCPStore(self.config.host, self.config.port, None, False, limit, wait_for_workers=False)

    def _join(self) -> int:
        rank = self.store.add("nodes", 1) - 1 if self.config.node_rank is None else self.config.node_rank
        self.store.set(f"node/{rank}", str(self.config.nproc))
        keys = [f"node/{i}" for i in range(self.config.nnodes)]
        self.store.wait(keys, timedelta(seconds=self.config.join_timeout))
        self.nprocs = [int(value) for value in self.store.multi_get(keys)]
        return rank

    def run(self) -> None:
        """Runs to the end of all workers; raises ChildFailedError when no restart is left."""
        before = {number: signal.signal(number, _raise) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        try:
            for attempt in range(self.config.max_restarts + 1):
                failure = self._attempt(attempt)
                if failure is None:
                    return
                left = self.config.max_restarts - attempt
                if left:
                    print(f"mindtorch-run: worker failed, {left} restarts left: {str(failure).splitlines()[0]}", file=sys.stderr)
            raise ChildFailedError(" ".join(self.config.command), failure if isinstance(failure, Failure) else None)
        except SignalException as came:
            self._stop(came.number)
            raise
        finally:
            self._stop(signal.SIGTERM)
            self._leave()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _attempt(self, attempt: int) -> Failure | str | None:
        """One start of all workers; None when all of every host succeeded."""
        self.workers = [self._start(local, attempt) for local in range(self.config.nproc)]
        failed_key, done_key = f"failed/{attempt}", f"done/{attempt}"
        reported = False
        while True:
            codes = [worker.process.poll() for worker in self.workers]
            bad = next((worker for worker, code in zip(self.workers, codes, strict=True) if code), None)
            if bad is not None:
                if self.config.nnodes > 1:
                    self._try_tell(failed_key, str(bad.rank))
                self._stop(signal.SIGTERM)
                return bad.failure()
            if None not in codes and not reported:
                reported = True
                if self.config.nnodes == 1 or self.store.add(done_key, 1) == self.config.nnodes:
                    self._finish_output()
                    return None
            if self.config.nnodes > 1 and (end := self._look(failed_key, done_key)) is not None:
                self._stop(signal.SIGTERM)
                return end or None
            time.sleep(self.config.monitor_interval)

    def _look(self, failed_key: str, done_key: str) -> str | None:
        """What the other hosts say: "" when all are done, a text when one failed."""
        if self.store.check([failed_key]):
            return f"rank {self.store.get(failed_key).decode()} on another host"
        return "" if self.store.add(done_key, 0) == self.config.nnodes else None

    def _try_tell(self, key: str, value: str) -> None:
        try:
            self.store.set(key, value)
        except DistError as error:                # the host with the store has ended: it knows
            print(f"mindtorch-run: {error}", file=sys.stderr)

    def _leave(self) -> None:
        """The host with the store goes last: the others still ask it how the job has ended."""
        if self.config.nnodes == 1:
            return
        try:
            gone = self.store.add("left", 1)
            deadline = time.monotonic() + 10
            while self.root._server is not None and gone < self.config.nnodes and time.monotonic() < deadline:
                time.sleep(0.05)
                gone = self.store.add("left", 0)
        except DistError as error:
            print(f"mindtorch-run: {error}", file=sys.stderr)

    def _start(self, local_rank: int, attempt: int) -> Worker:
        config, first = self.config, sum(self.nprocs[:self.node_rank])
        world = str(sum(self.nprocs))
        environment = os.environ | config.environment | {
            "LOCAL_RANK": str(local_rank), "RANK": str(first + local_rank), "GROUP_RANK": str(self.node_rank),
            "ROLE_RANK": str(first + local_rank), "ROLE_NAME": config.role, "LOCAL_WORLD_SIZE": str(config.nproc),
            "WORLD_SIZE": world, "GROUP_WORLD_SIZE": str(config.nnodes), "ROLE_WORLD_SIZE": world,
            "MASTER_ADDR": config.host, "MASTER_PORT": str(config.port), "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts), "TORCHELASTIC_RUN_ID": config.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True"}
        if sum(self.nprocs) > 1:
            environment.setdefault("OMP_NUM_THREADS", "1")
        return Worker(config, local_rank, environment, os.path.join(self.folder, f"attempt_{attempt}", str(local_rank)))

    def _finish_output(self) -> None:
        for worker in self.workers:
            worker.finish_output()

    def _stop(self, number: int, grace: float = 10.0) -> None:
        """Ends all workers: first politely, then not."""
        alive = [worker.process for worker in self.workers if worker.process.poll() is None]
        for process in alive:
            process.send_signal(number)
        deadline = time.monotonic() + grace
        while any(process.poll() is None for process in alive) and time.monotonic() < deadline:
            time.sleep(0.02)
        for process in alive:
            process.kill()
            process.wait()


def _raise(number: int, frame: Any) -> None:
    raise SignalException(number)
