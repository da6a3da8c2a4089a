"""File fuzz of torch.load: nothing in a hostile file runs, crashes, hangs or takes memory that the file does not pay for.

    python tests/mindtorch_v2/fuzz_files.py --seed 1 --executions 100000 --jobs 2
    python tests/mindtorch_v2/fuzz_files.py --seed 1 --only 4711 --dump hostile.pt

Inputs are files of torch.save, damaged, and pickles made from the grammar (hostile_files.py). They are loaded in forked
children, whose memory is limited; an audit hook sees whatever is imported, executed, written or started. This package
reads no safetensors files and no memory snapshots: torch.load is all that parses a file.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from typing import Any

import fuzz_options
from hostile_files import Corpus, Plain, Stateful, hostile_file

import mindtorch_v2 as mt

MEMORY = 512 << 20  # address space that a child may take beyond what it begins with
HANG_S = 20.0  # on a machine that does other things too
# A storage on "npu:0" makes the library look for CANN: it lists folders of its own choice.
HARMLESS = ("builtins.id", "mmap.__new__", "sys._getframe", "object.__getattr__", "gc.", "glob.glob", "os.scandir")
MAX_SHOWN = 20


class Audit:
    """Notes what a load does that no load may do."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, args: tuple) -> None:
        if event.startswith(HARMLESS):
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
            return
        self.events.append(f"{event} {str(args)[:100]}")


def check_result(loaded: Any, limit: int = 2000) -> None:
    """What came back is data: tensors inside their storages, plain containers."""
    waiting, seen = [loaded], 0
    while waiting and seen < limit:
        item = waiting.pop()
        seen += 1
        if isinstance(item, mt.Tensor) and item.layout != mt.strided:
            waiting.extend([*item._pattern.parts(), item._dense])
        elif isinstance(item, mt.Tensor):
            waiting.extend(vars(item).values())
            if item.is_meta or not item.numel():
                continue
            last = item.storage_offset() + sum((n - 1) * s for n, s in zip(item.shape, item.stride()))
            if (last + 1) * item.element_size() > item.untyped_storage().nbytes():
                raise AssertionError("a tensor outside of its storage")
        elif isinstance(item, dict):
            waiting.extend(item.values())
            if type(item) is OrderedDict:
                waiting.extend(vars(item).values())
        elif isinstance(item, (list, tuple)):
            waiting.extend(item)


def hidden(error: BaseException) -> str | None:
    """A mistake of the library's own that was taken for a damaged file: an IndexError that no stack of a pickle raised."""
    while error.__cause__ is not None:
        error = error.__cause__
    if not isinstance(error, IndexError):
        return None
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"
    return None if where.startswith(("_unpickling.py", "hostile_files.py")) else f"raised IndexError at {where}"


def run_one(data: bytes, index: int, path: str) -> str | None:
    """Load one file; the problem, if there is one."""
    how: dict[str, Any] = {}
    source: Any = io.BytesIO(data)
    if index % 64 == 0:
        with open(path, "wb", buffering=0) as file:
            file.write(data)
        source, how = path, {"mmap": data[:4] == b"PK\3\4"}
    elif index % 5 == 0:
        how = {"map_location": ("cpu", lambda storage, location: storage, {"npu:0": "cpu"})[index % 3]}
    try:
        check_result(mt.load(source, **how))
    except (pickle.UnpicklingError, RuntimeError) as error:
        if type(error) not in (pickle.UnpicklingError, RuntimeError) and type(error).__name__ != "Misfit":
            return f"raised {type(error).__name__}: {str(error)[:200]}"
        place = path if source is path else "<BytesIO>"
        return hidden(error) if place in str(error) else f"the message names no file: {str(error)[:200]}"
    except EOFError as error:
        return None if not data else f"raised EOFError: {error}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised {type(error).__name__}: {str(error)[:200]} at {os.path.basename(last.filename)}:{last.lineno}"
    return None


class Counters:
    """Shared between a child and its parent: where the child is, and how many failures it saw."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, 16)

    def read(self) -> tuple[int, int]:
        return struct.unpack("<qq", self.map[:16])  # type: ignore[return-value]

    def write(self, index: int, failures: int) -> None:
        self.map[:16] = struct.pack("<qq", index, failures)


def child(corpus: Corpus, seed: int, begin: int, end: int, step: int, counters: Counters) -> None:
    """Load the files of a range; never returns."""
    used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path = os.path.join(tempfile.gettempdir(), f"fuzz_files-{os.getpid()}.pt")
    audit, failures = Audit(), counters.read()[1]
    sys.addaudithook(audit)
    for index in range(begin, end, step):
        counters.write(index, failures)
        data = hostile_file(corpus, seed, index)
        audit.events.clear()
        problem = run_one(data, index, path)
        done = [e for e in audit.events if path not in e]
        problem = f"did {done[0]}" if done else problem
        if problem:
            failures += 1
            counters.write(index, failures)
            if failures <= MAX_SHOWN:
                print(f"seed {seed} index {index}: {problem}", flush=True)
    counters.write(end, failures)
    if os.path.exists(path):
        os.unlink(path)
    os._exit(0)


class Job:
    """One child after another over every `step`-th file; a child that crashes or hangs is followed by the next."""

    def __init__(self, corpus: Corpus, seed: int, begin: int, end: int, step: int) -> None:
        self.corpus, self.seed, self.end, self.step = corpus, seed, end, step
        self.counters, self.crashes, self.hangs = Counters(), 0, 0
        self.start(begin)

    def start(self, begin: int) -> None:
        self.pid, self.index, self.since = 0, begin, time.monotonic()
        if begin >= self.end:
            return
        sys.stdout.flush()
        self.counters.write(begin, self.counters.read()[1])
        self.pid = os.fork()
        if not self.pid:
            try:
                child(self.corpus, self.seed, begin, self.end, self.step, self.counters)
            finally:
                os._exit(70)

    def poll(self) -> bool:
        """Whether there is more to do."""
        if not self.pid:
            return False
        done, status = os.waitpid(self.pid, os.WNOHANG)
        index = self.counters.read()[0]
        if done and status == 0:
            self.pid = 0
            return False
        if done:
            self.crashes += 1
            print(f"seed {self.seed} index {index}: crashed, wait status {status}", flush=True)
            self.start(index + self.step)
        elif index != self.index:
            self.index, self.since = index, time.monotonic()
        elif time.monotonic() - self.since > HANG_S:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.hangs += 1
            print(f"seed {self.seed} index {index}: hangs", flush=True)
            self.start(index + self.step)
        return True


def warm_up(corpus: Corpus) -> None:
    """Import all that a load imports, so that the audit hook sees only what a file causes."""
    mt.npu.is_available()
    mt.serialization.add_safe_globals([Plain, Stateful])
    for index in range(300):
        run_one(hostile_file(corpus, 0, index), 1, "")
    for place in ("npu:0", "cuda:0", "meta", "nowhere"):
        try:
            mt.load(io.BytesIO(corpus.zips[0]), map_location=place)
        except RuntimeError:
            continue


def fuzz(seed: int, executions: int, jobs: int) -> tuple[int, int, int, float]:
    """(crashes, hangs, failures, seconds) over so many files."""
    corpus = Corpus()
    warm_up(corpus)
    begin = time.monotonic()
    running = [Job(corpus, seed, i, executions, jobs) for i in range(jobs)]
    while [job for job in running if job.poll()]:  # every job is asked
        time.sleep(0.05)
    crashes, hangs = sum(j.crashes for j in running), sum(j.hangs for j in running)
    return crashes, hangs, sum(j.counters.read()[1] for j in running), time.monotonic() - begin


def main() -> int:
    parser = fuzz_options.parser(__doc__, 10_000)
    parser.add_argument("--only", type=int, help="load this file of the seed alone, in this process")
    parser.add_argument("--dump", help="write that file here as well")
    options = parser.parse_args()
    if options.only is not None:
        data = hostile_file(Corpus(), options.seed, options.only)
        if options.dump:
            with open(options.dump, "wb") as file:
                file.write(data)
        print(repr(mt.load(io.BytesIO(data)))[:2000])
        return 0
    crashes, hangs, failures, seconds = fuzz(options.seed, options.executions, max(options.jobs, 1))
    print(f"files: {options.executions} executions, {crashes} crashes, {hangs} hangs, {failures} failures, {seconds:.1f} s")
    return 1 if crashes or hangs or failures else 0


if __name__ == "__main__":
    sys.exit(main())
