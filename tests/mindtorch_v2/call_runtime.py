"""Runs small programs around the runtime of CANN (start, streams, copies, memory, graphs, exit) and writes its functions that each called.

    cann-sim run python call_runtime.py --library torch_npu|mindtorch_v2 --out FILE

Both libraries run it; `compare` says which functions, with which numbers, only one of them calls.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from call_recorder import Simulator, load

MIB = 1 << 20
# Functions that only ask, and objects of aclnn ops, which call_parity.py compares with the ops.
_ASKS = re.compile(r"acl\w*?(Get|Query|CanAccess)|acl(Create|Destroy)(Tensor|Scalar)|aclDestroyAclOpExecutor|acl\w*TensorAddr|"
                   r"aclSetAclOpExecutorRepeatable")


# ---- the programs ----------------------------------------------------------------------------------------------------
def streams(torch: Any) -> None:
    x = torch.ones(4, device="npu")
    side, urgent = torch.npu.Stream(), torch.npu.Stream(priority=-1)
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x = x + 1
    assert side.query() in (True, False)
    side.synchronize()
    torch.npu.current_stream().wait_stream(urgent)
    torch.npu.synchronize()


def events(torch: Any) -> None:
    begin, end, plain = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True), torch.npu.Event()
    begin.record()
    plain.record()
    plain.wait(torch.npu.Stream())
    end.record()
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) >= 0


def copies(torch: Any) -> None:
    x = torch.arange(1000.0).to("npu")
    y = x.clone()
    y.copy_(x)
    y.to(torch.float16)
    assert y.cpu()[1] == 1 and y[2].item() == 2


def other_device(torch: Any) -> None:
    assert torch.arange(1000.0).to("npu:0").to("npu:1").cpu()[1] == 1


def pinned(torch: Any) -> None:
    x = torch.empty(1000).pin_memory()
    y = x.to("npu", non_blocking=True)
    x.copy_(y, non_blocking=True)
    torch.npu.synchronize()


def memory(torch: Any) -> None:
    """A small block, one above the small pool, one of its own segment; and giving them back."""
    kept = [torch.empty(n, dtype=torch.uint8, device="npu") for n in (1, 2 * MIB, 30 * MIB)]
    del kept
    torch.npu.empty_cache()
    torch.npu.mem_get_info()


def graphs(torch: Any) -> None:
    x, graph = torch.ones(4, device="npu"), torch.npu.NPUGraph()
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        y = x + 1
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        y = x + 1
    graph.replay()
    torch.npu.synchronize()
    assert y[0].item() == 2


PROGRAMS: dict[str, Callable[[Any], None]] = {
    "streams": streams, "events": events, "copies": copies, "copies to another device": other_device, "pinned memory": pinned,
    "allocations": memory, "graph capture": graphs}


def within(library: str, out: Path) -> None:
    """All programs in this process, whose start and end are recorded too: CANN_SIM_CALLS is set for it."""
    torch = load(library)
    torch.npu.set_device(0)
    torch.empty(2, device="npu")
    simulator = Simulator()
    found = {"start": simulator.functions()}
    for name, program in PROGRAMS.items():
        torch.npu.synchronize()
        simulator.start()
        program(torch)
        found[name] = simulator.functions()
    torch.npu.empty_cache()
    torch.npu.synchronize()
    simulator.start()                             # what follows is the end, in the file of CANN_SIM_CALLS
    out.write_text(json.dumps(found))


def run(library: str, python: str, out: Path) -> None:
    """Both processes of a library: with segments as they are by default, and with those that grow."""
    found: dict[str, list[str]] = {}
    for conf in ("expandable_segments:False", "expandable_segments:True"):
        with tempfile.TemporaryDirectory() as folder:
            calls, part = Path(folder) / "calls", Path(folder) / "part"
            environ = {**os.environ, "TASK_QUEUE_ENABLE": "0", "PYTORCH_NPU_ALLOC_CONF": conf, "CANN_SIM_CALLS": str(calls)}
            subprocess.run([str(Path(sys.executable).parent / "cann-sim"), "run", python, __file__, "--library", library, "--within",
                            "--out", str(part)], env=environ, check=True, stderr=subprocess.DEVNULL)
            made = json.loads(part.read_text())
            made["exit"] = [line.partition(" ")[2] for line in calls.read_text().splitlines()]
            if conf.endswith("True"):
                found["allocations in expandable segments"] = made["allocations"]
            else:
                found |= made
    out.write_text(json.dumps(found))


# ---- comparison ------------------------------------------------------------------------------------------------------
class Difference(NamedTuple):
    """A function that one of both calls in a program, with its numbers; why that is right, or ""."""
    program: str
    ours: bool
    call: str
    reason: str


def does(calls: list[str]) -> list[str]:
    """The calls that change something, each once."""
    return [call for call in dict.fromkeys(calls) if not _ASKS.match(call)]


def compare(ours: dict[str, list[str]], theirs: dict[str, list[str]], known: list[tuple[Any, str]]) -> dict[str, list[Difference]]:
    """Differences by program, in the order in which both ran them."""
    found: dict[str, list[Difference]] = {}
    for program in ours:
        mine, other = does(ours[program]), does(theirs.get(program, []))
        found[program] = [
            Difference(program, is_ours, call, next((why for pattern, why in known if
                                                     pattern.search(f"runtime {program} {'-' if is_ours else '+'}{call}")), ""))
            for is_ours, calls, others in ((True, mine, other), (False, other, mine)) for call in calls if call not in others]
    return found


def report(found: dict[str, list[Difference]], ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> str:
    """The section of docs/card.md."""
    lines = ["Made by `make call-parity`; do not edit. Small programs on torch_npu and on this library, both on the simulator: which "
             "functions of the runtime they call, with the numbers that these are given. Functions that only ask are left out. A line "
             "in `tests/mindtorch_v2/call_reasons.txt` says why a difference is right; open: there is none.", "",
             "| program | same | with a reason | open |", "|---|---|---|---|"]
    for program, differences in found.items():
        opened = sum(not d.reason for d in differences)
        common = sum(call in theirs.get(program, []) for call in does(ours[program]))
        lines.append(f"| {program} | {common} | {len(differences) - opened or ''} | {opened or ''} |")
    groups: dict[str, list[Difference]] = {}
    for d in (d for differences in found.values() for d in differences):
        groups.setdefault(d.reason, []).append(d)
    for reason in sorted(groups, key=lambda why: (why == "", why)):
        calls = {who: sorted({f"`{d.call}`" for d in groups[reason] if d.ours is is_ours})
                 for who, is_ours in (("this library", True), ("torch_npu", False))}
        parts = [f"only {who}: {', '.join(made)}" for who, made in calls.items() if made]
        lines += ["", f"- {reason or '**open**'}: {'; '.join(parts)}"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["torch_npu", "mindtorch_v2"], required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--within", action="store_true")
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    if options.within:
        within(options.library, options.out)
    else:
        run(options.library, options.python, options.out)


if __name__ == "__main__":
    main()
