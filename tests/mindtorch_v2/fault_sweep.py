"""Fails every call of CANN that a workload makes, one at a time, and checks what is reported, leaked and still works.

    python fault_sweep.py [WORKLOAD…] [--mode normal|delay] [--jobs J] [--every K] [--seed S]

A place is one call (or task of the device) of a workload and a code that it can fail with. For each: the exception
names the call, the code and the op; a following run gives the right numbers, or says how to restart the device and
does so then; nothing that was made is left alive. --every K tries each K-th place, beginning at a place that the seed
chooses. A place that a run does not come to (which calls ask for events depends on time) is counted apart.
"""

from __future__ import annotations

import argparse
import atexit
import faulthandler
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from fault_attempt import (
    SILENT,
    TYPES,
    Alive,
    Loading,
    Place,
    Seen,
    added,
    is_well,
    leaked,
    places_of,
    reached,
    told_problems,
    watched,
)
from fault_workloads import WORKLOADS, clean_up

import cann_sim
import mindtorch_v2 as torch
from cann_sim import faults
from mindtorch_v2._backends.npu import runtime

HANG_SECONDS = 60  # of one place, in which a run takes a tenth of a second
MODES = ("normal", "delay")


class Result(NamedTuple):
    """A sweep of one workload."""

    workload: str
    mode: str
    places: int
    tried: int
    not_reached: int
    problems: list[str]

    def __str__(self) -> str:
        return (f"{self.workload} ({self.mode}): {self.places} places, {self.tried} tried, {self.not_reached} not come to, "
                f"{len(self.problems)} problems")  # fmt: skip


# ---- in a worker: all places of one workload ------------------------------------------------------------------------
def in_use() -> Alive:
    """What is alive, less the events that wait for their next use: how many a run needs at once depends on time."""
    alive, waiting = faults.alive(), sum(len(events) for owner in runtime._runtimes.values() for events in owner.events.values())
    return added(alive, {"events": (-waiting, 0)}) if waiting else alive


class Session:
    """Many places in one process: the device is started anew for each."""

    def __init__(self, name: str) -> None:
        self.workload = WORKLOADS[name]
        self.right = self.workload.run()
        gc.collect()
        gc.freeze()  # what is there now stays: a collection need not look at it again
        self.restart()
        self.floor = in_use()
        faults.count_calls(True)
        if self.workload.run() != self.right:
            raise AssertionError(f"{name} gives other numbers each time")
        self.counts = faults.calls()
        self.recover()
        self.alive = in_use()
        self.workload.run()
        self.recover()
        self.growth = added(in_use(), self.alive, -1)  # of any two runs: streams, which a pool gives once each

    def restart(self) -> None:
        for index in range(self.workload.devices):
            torch.npu.restart_device(index, rebuild_all_resources=True)

    def recover(self) -> None:
        """A good run, and everything that is only cached freed."""
        numbers = self.workload.run()
        if numbers != self.right:
            raise AssertionError(f"a following run gives {numbers} for {self.right}")
        clean_up(self.workload.devices)

    def attempt(self, place: Place) -> list[str] | None:
        """What is wrong at a place; None: it was not come to."""

        self.restart()
        floor = in_use()  # with what earlier places left alive
        seen = self.fail(place)
        if not reached(place, faults.calls()):
            return None
        problems = [] if place.on_device and is_well(seen, self.right) else told_problems(place, seen, self.right)
        problems += self.go_on(place, must_tell=place.on_device and is_well(seen, self.right))
        if problems == [SILENT] and place.name.startswith("lost:"):
            return None  # tasks are counted for all devices together: this one had fewer
        before = added(self.alive, added(floor, self.floor, -1))
        left = leaked(place, before, in_use())
        for _ in range(3):  # a pool may keep something more for the next time; what is leaked is leaked every time
            if not left or problems:
                break
            before = in_use()
            self.fail(place)
            self.go_on(place)
            left = leaked(place, added(before, self.growth), in_use())
        return problems + [f"leaked: {what}" for what in left]

    def fail(self, place: Place) -> Seen:

        faults.count_calls(True)
        faults.set_faults(place.plan)
        seen = watched(self.workload.run)
        faults.set_faults("")
        return seen

    def go_on(self, place: Place, must_tell: bool = False) -> list[str]:
        """After a fault: right numbers, at once or after the restart that the exception requires. must_tell: the device
        failed behind the last wait of the run, so that this one has to say so."""
        seen = watched(self.recover)
        if is_well(seen, None):
            return [SILENT] if must_tell else []
        if place.on_device and "restart_device(device, rebuild_all_resources=True)" in seen.text:
            restarted = watched(self.restart)
            seen = watched(self.recover)
            if is_well(seen, None):
                return [f"restart: {restarted.text}"] if restarted.error else []
        return [f"a following run: {type(seen.error).__name__}: {seen.text}"]


class Processes:
    """Each place in a process of its own, forked before anything of CANN is loaded, from there to its end."""

    def __init__(self, name: str) -> None:
        self.workload = WORKLOADS[name]
        self.right: list[float] = []
        gc.collect()
        gc.freeze()  # or each process would copy what a collection looks at
        faults.set_faults("")  # opens the library: a fault of the loader is not for this module
        first = self.live("")
        self.right, self.counts = first["numbers"], first["calls"]
        if first["text"].strip() or first["alive"]:
            raise AssertionError(f"{name} without a fault: {first}")

    def live(self, plan: str) -> dict[str, Any]:
        """What a process with a fault plan tells of itself."""
        with tempfile.TemporaryFile("w+") as output:
            child = os.fork()
            if not child:
                try:
                    self._child(plan, output)
                finally:
                    os._exit(1)
            status = os.waitpid(child, 0)[1]
            output.seek(0)
            text = output.read()
        if status:
            return {"died": f"exit status {status}: {text}"}
        text, _, report = text.rpartition("\n\0")
        return json.loads(report) | {"text": text}

    def _child(self, plan: str, output: Any) -> None:

        os.dup2(output.fileno(), 2)
        signal.alarm(HANG_SECONDS)
        loading = Loading(plan)
        faults.set_faults("" if loading.is_named else plan)
        faults.count_calls(True)
        seen = watched(self.workload.run)
        again = watched(self.workload.run) if seen.error else seen
        os.write(2, seen.said.encode())
        atexit._run_exitfuncs()
        report = {"numbers": seen.numbers, "error": str(seen.error or ""), "kind": type(seen.error).__name__,
                  "again": again.numbers, "again_text": again.text, "calls": faults.calls() | loading.counts,
                  "alive": {kind: n for kind, (n, _) in faults.alive().items() if n}}  # fmt: skip
        os.write(2, b"\n\0" + json.dumps(report).encode())
        os._exit(0)

    def attempt(self, place: Place) -> list[str] | None:
        lived = self.live(place.plan)
        if "died" in lived:
            return [lived["died"]]
        if not reached(place, lived["calls"]):
            return None
        kinds = {kind.__name__: kind for kind in TYPES}
        error = kinds.get(lived["kind"], RuntimeError)(lived["error"]) if lived["error"] else None
        said, alive = [], dict(lived["alive"])
        for line in lived["text"].splitlines():
            if line.startswith("cann_sim: aclFinalize: still alive: "):
                count, kind = line.removeprefix("cann_sim: aclFinalize: still alive: ").split(" ", 1)
                alive[kind.partition(" (")[0]] = int(count)
            else:
                said.append(line)
        problems = told_problems(place, Seen(lived["numbers"], error, "\n".join(said)), self.right)
        if lived["again"] != self.right and not (place.on_device and "restart_device(" in lived["again_text"]):
            problems.append(f"a following run: {lived['again']}, {lived['again_text']}")
        return problems + [f"left alive: {what}" for what in leaked(place, {}, {k: (n, 0) for k, n in alive.items()})]


def work(name: str, begin: int, every: int) -> None:
    """Tries places from number begin on and prints a line of JSON about each."""
    session = (Processes if WORKLOADS[name].whole_process else Session)(name)
    places = places_of(session.counts, WORKLOADS[name].devices)
    print(json.dumps({"places": len(places)}), flush=True)
    for i in range(begin, len(places), every):
        print(json.dumps({"place": i, "plan": places[i].plan}), flush=True)
        if not WORKLOADS[name].whole_process:  # whose processes have an alarm each
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        problems = session.attempt(places[i])
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"problems": problems}), flush=True)
    os._exit(0)  # the end of a process is a workload of its own


# ---- the driver -----------------------------------------------------------------------------------------------------
def sweep(name: str, mode: str, every: int = 1, seed: int = 0) -> Result:
    """Tries the places of one workload; a process that crashes is a problem, and the next one continues after its place."""
    begin, total, tried, missed, problems = random.Random(f"{name} {mode} {seed}").randrange(every), 0, 0, 0, []
    while begin >= 0:
        done = _worker(name, mode, begin, every)
        begin, plan = -1, "the run without a fault"
        for line in done.stdout.splitlines():
            output = json.loads(line)
            total = output.get("places", total)
            if "plan" in output:
                plan, begin = output["plan"], output["place"] + every
            elif "problems" in output:
                tried, missed = tried + (output["problems"] is not None), missed + (output["problems"] is None)
                problems += [f"{name} {mode} {plan}: {problem}" for problem in output["problems"] or []]
        if done.returncode == 0:
            break
        tried += begin >= 0
        problems.append(f"{name} {mode} {plan}: the process ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return Result(name, mode, total, tried, missed, problems)


def _worker(name: str, mode: str, begin: int, every: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ASCEND_HOME_PATH": cann_sim.home(), "CANN_SIM_MODE": mode, "CANN_SIM_STRICT": "1"}
    environment |= WORKLOADS[name].settings
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), environment.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, "--work", name, str(begin), str(every)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="*")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = args.workload or list(WORKLOADS)
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda job: sweep(*job, args.every, args.seed),
                                [(name, mode) for mode in args.mode or MODES for name in names]))  # fmt: skip
    for result in results:
        print(result, *result.problems, sep="\n  ")
    tried, problems = sum(r.tried for r in results), sum(len(r.problems) for r in results)
    print(f"{sum(r.places for r in results)} places, {tried} tried, {sum(r.not_reached for r in results)} not come to, "
          f"{problems} problems")  # fmt: skip
    return problems > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    sys.exit(main())
