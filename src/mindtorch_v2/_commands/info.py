"""`python -m mindtorch_v2 info`: what this installation finds, what is wrong, and what helps.

A second process queries CANN, so that a runtime that hangs or crashes is a line of the report and not its end.
"""
from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import mindtorch_v2 as torch

PROBE = "import json, mindtorch_v2.npu.report as report; print(json.dumps(report.probe()))"
PATIENCE = 120                                    # seconds: a card's first start takes tens of them
GIB = 1 << 30


def facts() -> dict[str, Any]:
    """Everything that info shows, as JSON has it."""
    report = torch.npu.report
    found = {"package": package(), "driver": report.driver(), "settings": report.settings(os.environ), **ask_cann()}
    found["problems"] = report.problems(found)
    return found


def package() -> dict[str, Any]:
    """This library and the host."""
    return {"version": version("mindtorch_v2"), "api": str(torch.__version__), "python": platform.python_version(),
            "machine": platform.machine(), "kernels": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(), "folder": os.path.dirname(torch.__file__)}


def ask_cann() -> dict[str, Any]:
    """report.probe() of another process; `died` where that process did not end as it should."""
    try:
        ended = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return {"cann": {}, "died": f"no answer within {PATIENCE} s"}
    if ended.returncode:
        code = -ended.returncode
        how = signal.Signals(code).name if code > 0 else f"exit code {ended.returncode}"
        return {"cann": {}, "died": f"{how}: {ended.stderr.strip()[-2000:]}"}
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def lines(found: dict[str, Any]) -> list[str]:
    """The report as readable text."""
    own, cann, driver = found["package"], found["cann"], found["driver"]
    rows = [("mindtorch_v2", f"{own['version']}, torch's API of {own['api']}, in {own['folder']}"),
            ("host", f"Python {own['python']}, {own['machine']}, CPU kernels {own['kernels']}, {own['threads']} threads"),
            ("driver", driver["version"] or "none found"),
            ("device files", ", ".join(file if usable else f"{file} (not for this user)"
                                       for file, usable in driver["files"].items()) or "none")]
    if "home" in cann:
        lacking = found["symbols"]
        rows += [("CANN", f"{cann['version']} in {cann['home']}"), ("acl", cann["acl"]),
                 *(("library", path) for path in cann["libraries"].values()),
                 ("aclnn ops", f"{lacking['known'] - len(lacking['missing'])} of {lacking['known']} in the tables"),
                 *(("missing", name) for name in lacking["missing"][:20]),
                 *([("missing", f"and {len(lacking['missing']) - 20} more: --json")] if len(lacking["missing"]) > 20 else ())]
    if "rows" in found:
        served, other, refused = (len(found["rows"][how]) for how in ("serves", "falls back", "refuses"))
        own = found["torch_npu"]
        rows += [("ops of torch", f"{served} served by aclnn ops, {other} made of other ops, {refused} refused"),
                 ("torch_npu's", f"{own['offered']} of {own['offered'] + own['refused']} names offered")]
    rows += [("refused", f"{name}: {call}") for name, call in found.get("rows", {}).get("refuses", {}).items()]
    rows += [(f"npu:{each['index']}", f"{each['name']}, {each['free_bytes'] / GIB:.1f} of {each['total_bytes'] / GIB:.1f} GiB "
              f"free, {each['cube_cores']} cube and {each['vector_cores']} vector cores") for each in found.get("devices", ())]
    rows += [("setting", f"{name}={value}") for name, value in found["settings"].items()]
    text = [f"{name:14}{value}" for name, value in rows]
    for problem in found["problems"]:
        text += ["", f"problem: {problem['what']}", f"   help: {problem['remedy']}"]
    return text if found["problems"] else [*text, "", "no problem found"]


def main(options: list[str]) -> int:
    """Prints the facts; 1 where something is wrong."""
    if options not in ([], ["--json"]):
        print("usage: python -m mindtorch_v2 info [--json]", file=sys.stderr)
        return 2
    found = facts()
    print(json.dumps(found, indent=1) if options else "\n".join(lines(found)))
    return 1 if found["problems"] else 0
