"""Throws odd objects at the launcher of npu ops, on the simulator: the answer is a result or an exception, and nothing stays.

`python tests/mindtorch_v2/fuzz_launch.py [--seed N] [--executions N] [--jobs J]`: aclnn ops by name with arguments of every
kind, the wrappers over them, tensor ops and copies. It runs in children, forked before the npu is used; one that crashes or
hangs is named with the block and the execution, and the next goes on behind it. After each block nothing that CANN made may
be left alive. `--block N` runs one block in this process, waiting for every op, for a debugger. The exit code is 1 if
anything was found."""
from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable

import cann_sim
import cann_tables
from cann_sim import faults

os.environ.update({"CANN_SIM_STRICT": "1", "CANN_SIM_MEMORY": "512M", "CANN_SIM_DEVICES": "2"} | cann_sim.env())

import fuzz_launch_values as values  # noqa: E402 - beside this file; it needs the environment
import fuzz_options  # noqa: E402

import mindtorch_v2 as mt  # noqa: E402
from mindtorch_v2 import _C  # noqa: E402
from mindtorch_v2._backends.npu import aclnn, errors, runtime  # noqa: E402

Random = random.Random
BLOCK = 500                                       # executions on one set of tensors
HANG = 30.0                                       # seconds in which an execution has to come to its end
SLOW = ("aclnnAllGather", "aclnnAllReduce", "aclnnAllto", "aclnnMatmulAllReduce", "aclnnMatmulReduceScatter",
        "aclnnMoeDistribute", "aclnnSyncBatchNormGather")   # ops that wait for other processes
WRAPPERS: dict[Callable[..., None], str] = {
    aclnn.add: "tensor tensor out", aclnn.mul: "tensor tensor out", aclnn.relu: "tensor out",
    aclnn.reduce_sum: "tensor out ints bool", aclnn.matmul: "tensor tensor out", aclnn.inplace_one: "inout",
    aclnn.inplace_zero: "inout"}


# ---- one execution -----------------------------------------------------------------------------------------------------
def by_name(rng: Random, pool: values.Pool) -> None:
    name = rng.choice(NAMES)
    arguments = [pool.argument(rng, *a) for a in ARGUMENTS[name]]
    if rng.random() < 0.02:
        del arguments[rng.randrange(len(arguments) + 1):]
    aclnn.call(name, *arguments, device=None if pool.tame or rng.random() < 0.95 else rng.choice((0, 1, 2, -1, 16, 2**31)))


def wrapper(rng: Random, pool: values.Pool) -> None:
    function = rng.choice(list(WRAPPERS))
    owner = runtime.get_runtime(0 if pool.tame else rng.choice((0, 0, 0, 1)))
    function(*(pool.of_kind(rng, kind) for kind in WRAPPERS[function].split()), owner)


def plan(rng: Random, pool: values.Pool) -> None:
    """The launcher's own doors."""
    name = rng.choice(DYNAMIC if rng.random() < 0.3 else NAMES)
    made = aclnn.plan_of(name, rng.random() < 0.7)
    arguments = tuple(pool.argument(rng, *a) for a in ARGUMENTS[name])
    results = tuple(pool.tensor(rng) for _ in range(rng.choice((0, 0, 1))))
    if rng.random() < 0.1:
        arguments = rng.choice((arguments[:1], None, (), arguments * 2))
    if name in DYNAMIC and rng.random() < 0.8:
        _C._npu_call_dynamic(aclnn.plan_of(name, False), 0, arguments, results)
    else:
        _C._npu_call(made, 0 if pool.tame else rng.choice((0, 0, 0, 1, 99)), arguments, results)


def tensor_op(rng: Random, pool: values.Pool) -> None:
    name, kinds = rng.choice(values.METHODS)
    x = pool.tensor(rng)
    if name in values.DAMAGING:
        pool.damaged.append(x)
    result = getattr(x, name)(*(pool.of_kind(rng, kind) for kind in kinds))
    if rng.random() < 0.05 and isinstance(result, mt.Tensor) and result.numel() < 1000:
        result.tolist()


def copy(rng: Random, pool: values.Pool) -> None:
    kind = rng.randrange(8)
    if kind == 0:
        pool.tensor(rng).copy_(pool.host(rng), rng.random() < 0.5)
    elif kind == 1:
        pool.host(rng).copy_(pool.tensor(rng), rng.random() < 0.5)
    elif kind == 2:
        pool.tensor(rng).copy_(pool.tensor(rng))
    elif kind == 3:
        pool.tensor(rng).to(rng.choice(("cpu", "npu:0", "npu:1", "meta")), rng.choice(values.DTYPES))
    elif kind == 4:
        pool.tensor(rng)[..., ::2].cpu()
    elif kind == 5:
        mt._foreach_add_([pool.tensor(rng) for _ in range(rng.randrange(1, 4))], rng.choice(values.SMALL))
    elif kind == 6:
        mt._foreach_mul([pool.tensor(rng) for _ in range(2)], [pool.tensor(rng) for _ in range(2)])
    else:
        t = pool.tensor(rng)
        pool.damaged.append(t)
        t.untyped_storage().resize_(rng.choice((0, 1, 4, 17, 64, 4096)))
        pool.tensor(rng).copy_(t)


ACTIONS = (by_name,) * 60 + (wrapper,) * 10 + (plan,) * 10 + (tensor_op,) * 12 + (copy,) * 8


class Broken(Exception):
    """The interpreter's rules were broken."""


unraisable: list[str] = []


def attempt(rng: Random, pool: values.Pool) -> None:
    """One execution; whatever it raises is an answer, but for what only native code can do wrong."""
    try:
        pool.begin(rng)
        rng.choice(ACTIONS)(rng, pool)
    except SystemError as error:
        raise Broken(str(error)) from error
    except RuntimeError as error:
        if errors.is_device_fault(getattr(error, "error_code", 0)):
            restart()
            pool.renew()
    except Exception:                             # an answer
        pass
    if unraisable:
        raise Broken(unraisable.pop())


# ---- a block -----------------------------------------------------------------------------------------------------------
def restart() -> None:
    for index in (0, 1):
        mt.npu.restart_device(index, rebuild_all_resources=True)


def wait() -> None:
    """Until all work is done; an error of the device that came late is an answer too."""
    for index in (0, 1):
        try:
            runtime.get_runtime(index).synchronize()
        except RuntimeError as error:
            if errors.is_device_fault(getattr(error, "error_code", 0)):
                restart()


def alive() -> int:
    """Objects of CANN that leaked; prepared calls are destroyed first."""
    gc.collect()
    wait()
    aclnn._unbind(0)
    return sum(count for kind, (count, _) in faults.alive().items() if kind.startswith("acl"))


def run_block(seed: int, block: int, first: int, count: int, note: Callable[[int], None], slowly: bool = False) -> int:
    """The executions first..count of a block; how many objects it has left behind."""
    rng = Random(f"{seed} {block}")
    pool = values.Pool(rng)
    for at in range(first, count):
        note(at)
        rng.seed((seed << 40) ^ (block << 12) ^ at)
        attempt(rng, pool)
        if slowly:
            wait()
    del pool
    return alive()


# ---- children ----------------------------------------------------------------------------------------------------------
class Worker:
    """A child and what it tells: block, execution, executions that are done, objects left behind."""

    def __init__(self, seed: int, blocks: list[tuple[int, int]]) -> None:
        self.seed, self.todo = seed, blocks       # (block, executions)
        self.shared = mmap.mmap(-1, 32)
        self.first = self.crashes = self.hangs = 0
        self.found: list[str] = []
        self.fork()

    def read(self) -> tuple[int, ...]:
        return struct.unpack("4q", self.shared[:])

    def tell(self, *values: int) -> None:
        self.shared[:] = struct.pack("4q", *values)

    def fork(self) -> None:
        _, _, done, leaks = self.read()
        self.tell(self.todo[0][0] if self.todo else 0, self.first, done, leaks)
        self.seen, self.since = self.read(), time.monotonic()
        self.pid = os.fork() if self.todo else 0
        if self.todo and not self.pid:
            code = 1
            try:
                self.child(done, leaks)
                code = 0
            except BaseException:                 # whatever it is: it must not go on as the parent does
                traceback.print_exc()
            finally:
                os._exit(code)

    def child(self, done: int, leaks: int) -> None:
        prepare()
        left = 0
        for block, count in self.todo:
            def note(at: int) -> None:
                self.tell(block, at, done + at - self.first, leaks)   # noqa: B023 - called before the next turn
            before, left = left, run_block(self.seed, block, self.first, count, note)
            if left != before:
                print(f"leak: --seed {self.seed} --block {block}: {left - before} objects", file=sys.stderr, flush=True)
            leaks += max(left - before, 0)
            done += count - self.first
            self.first = 0
            self.tell(block, count, done, leaks)

    def look(self, now: float) -> bool:
        """Whether there is more to do; notes what ended the child and starts the next."""
        if not self.pid:
            return False
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            if self.read() != self.seen:
                self.seen, self.since = self.read(), now
            elif now - self.since > HANG:
                os.kill(self.pid, signal.SIGABRT)                     # faulthandler says where it is
                time.sleep(0.5)
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.hangs += 1
                self.next("hang")
            return True
        if status == 0:
            self.pid = 0
            return False
        self.crashes += 1
        self.next(f"crash ({os.waitstatus_to_exitcode(status)})")
        return True

    def next(self, what: str) -> None:
        """Goes on behind the execution that ended the child."""
        block, at, done, leaks = self.read()
        self.found.append(f"{what}: --seed {self.seed} --block {block}, execution {at}")
        print(self.found[-1], file=sys.stderr, flush=True)
        self.todo = [(b, n) for b, n in self.todo if b >= block]
        self.first = at + 1
        if self.todo and self.first >= self.todo[0][1]:
            self.todo, self.first = self.todo[1:], 0
        self.tell(block, at, done + 1, leaks)
        self.fork()


def prepare() -> None:
    """What every process does before its first execution."""
    global NAMES, DYNAMIC, ARGUMENTS
    faulthandler.enable()
    sys.unraisablehook = lambda info: unraisable.append(f"{info.exc_type.__name__}: {info.exc_value} in {info.object!r}")
    warnings.simplefilter("ignore")
    gc.disable()                                  # collected after each block, so that a block is the same each time
    ARGUMENTS = {op.name: [(a.kind, a.optional, aclnn.dtypes_of(a)) for a in op.arguments] for op in cann_tables.ops()
                 if op.arguments is not None and aclnn.has(op.name) and not op.name.startswith(SLOW)}
    NAMES = list(ARGUMENTS)
    DYNAMIC = [name for name in NAMES if name in ("aclnnNonzero", "aclnnMaskedSelect", "aclnnUnique2", "aclnnUniqueDim",
                                                  "aclnnUnique", "aclnnUniqueConsecutive", "aclnnNonzeroV2")]
    alive()
    gc.freeze()


ARGUMENTS: dict[str, list[tuple[str, bool, frozenset[str]]]] = {}   # kind, whether it is optional, dtypes
NAMES: list[str] = []
DYNAMIC: list[str] = []


def run(seed: int, executions: int, jobs: int) -> int:
    began = time.monotonic()
    blocks = [(b, min(BLOCK, executions - b * BLOCK)) for b in range(-(-executions // BLOCK))]
    workers = [Worker(seed, blocks[job::jobs]) for job in range(jobs)]
    while sum(worker.look(time.monotonic()) for worker in workers):   # each is looked at
        time.sleep(0.05)
    done, leaks = (sum(worker.read()[k] for worker in workers) for k in (2, 3))
    crashes, hangs = sum(w.crashes for w in workers), sum(w.hangs for w in workers)
    print(f"launch: {done} executions, {crashes} crashes, {hangs} hangs, {leaks} leaks, {time.monotonic() - began:.0f} s")
    return int(bool(crashes or hangs or leaks))


def main() -> int:
    parser = fuzz_options.parser(__doc__, 10000)
    parser.add_argument("--block", type=int)
    chosen = parser.parse_args()
    if chosen.block is None:
        return run(chosen.seed, chosen.executions, chosen.jobs)
    prepare()
    print("left alive:", run_block(chosen.seed, chosen.block, 0, BLOCK, lambda at: None, slowly=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
