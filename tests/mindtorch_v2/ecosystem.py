"""Packages of PyTorch's ecosystem on the drop-in: each is imported and does something small, beside PyTorch itself.

    python tests/mindtorch_v2/ecosystem.py VENV [--only REGEX] [--write docs/ecosystem.md]

VENV holds the packages and this library, and no PyTorch (`make ecosystem` makes it). A use prints numbers; the same
program runs on PyTorch in the environment of the tests, and both are compared.
"""
from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ecosystem_uses import USES

import cann_sim

SECONDS = 300
WITHIN = 1e-4             # of the largest number
START = """import json, os, tempfile, warnings; warnings.simplefilter('ignore')
from pathlib import Path
import torch
device, folder = os.environ['ECOSYSTEM_DEVICE'], Path(tempfile.mkdtemp())
def settle(module):
    with torch.no_grad():
        for i, p in enumerate((*module.parameters(), *module.buffers())):
            if p.is_floating_point():
                values = torch.arange(p.numel(), dtype=torch.float64).mul(0.37 + 0.01 * i).sin() * 0.1
                p.copy_((values if p.ndim > 1 else values.abs() + 0.5).reshape(p.shape))
    return module.to(device)
torch.manual_seed(0)
"""
# A build of PyTorch without CUDA cannot load torchvision's kernels; the rest of torchvision requires that their names exist.
JUDGE = """import torch
torchvision_names = torch.library.Library('torchvision', 'FRAGMENT')
for name in ('nms', 'qnms') if torch.version.cuda is None else ():
    torchvision_names.define(name + '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
"""
END = """
def numbers(x):
    if isinstance(x, torch.Tensor):
        return [float(v) for v in x.detach().cpu().double().flatten()[:50]]
    if isinstance(x, (list, tuple)):
        return [v for item in x for v in numbers(item)]
    return [float(x)]
print("numbers", json.dumps(numbers(out)))
"""


def run(python: str, code: str, environ: dict[str, str], device: str = "cpu") -> tuple[list[float] | None, str]:
    """The numbers that a program prints, or None and its error."""
    base = {name: value for name, value in os.environ.items() if name not in ("MINDTORCH_AS_TORCH", "PYTHONPATH")}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "", "ECOSYSTEM_DEVICE": device}
    with tempfile.TemporaryDirectory() as folder:
        here = {"TMPDIR": folder, "HF_HOME": folder}
        try:
            done = subprocess.run([python, "-c", code], env=base | quiet | here | environ, cwd=folder,
                                  capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None, f"more than {SECONDS} s"
    found = re.search(r"^numbers (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 0 and found:
        return json.loads(found[1]), ""
    return None, done.stderr.strip() or f"no output, exit status {done.returncode}"


def judged(site: Path, use: str) -> tuple[list[float] | None, str]:
    """PyTorch's numbers; those of a program that did not change are kept beside the packages."""
    place = site / "ecosystem_judged.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    key = hashlib.sha256((JUDGE + START + use).encode()).hexdigest()
    if key not in known:
        known[key] = run(sys.executable, JUDGE + START + use + END, {"PYTHONPATH": str(site)})
        if known[key][0] is not None:
            place.write_text(json.dumps(known))
    return known[key][0], known[key][1]


def reason(error: str) -> str:
    """The line of an error that says why, cut to the width of a table."""
    return error.splitlines()[-1][:160].replace("|", "/")


def compare(ours: list[float], theirs: list[float]) -> str:
    """In words, how two lists of numbers agree."""
    if len(ours) != len(theirs):
        return f"wrong: {len(ours)} numbers, expected {len(theirs)}"
    scale = max([1.0, *(abs(x) for x in theirs if abs(x) < float("inf"))])
    worst = max((abs(a - b) for a, b in zip(ours, theirs) if a != b and not (a != a and b != b)), default=0.0)
    if worst <= WITHIN * scale:
        return "same numbers"
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs)) if not abs(a - b) <= WITHIN * scale and (a == a or b == b))
    return f"wrong: item {at} of {len(ours)} is {ours[at]:.6g}, expected {theirs[at]:.6g}"


def check(venv: Path, site: Path, name: str, use: str, npu: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """What the table says: whether it is imported, what its use gives on each device; and the errors as a whole."""
    here, python = {"MINDTORCH_AS_TORCH": "1"}, str(venv / "bin/python")
    said, errors = {"imported": "yes", "cpu": "", "npu": ""}, []
    theirs, unjudged = judged(site, use) if use else (None, "")
    for device, environ in (("cpu", here), ("npu", here | npu)) if use else ():
        ours, error = run(python, START + use + END, environ, device)
        errors += [error] if ours is None else []
        said[device] = (f"fails: {reason(error)}" if ours is None else
                        compare(ours, theirs) if theirs is not None else f"runs; not judged: {reason(unjudged)}")
    if not use or said["cpu"].startswith("fails"):
        imported, error = run(python, f"{START}import {name}\nout = 0\n{END}", here)
        if imported is None:
            return {"imported": f"fails: {reason(error)}", "cpu": "", "npu": ""}, [error]
    return said, errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--verbose", action="store_true", help="the whole of each error")
    options = parser.parse_args()
    site = next((options.venv / "lib").glob("python3*/site-packages")).resolve()
    versions = {re.sub(r"[-_.]+", "_", found.metadata["Name"]).lower(): found.version
                for found in importlib.metadata.distributions(path=[str(site)])}
    simulator = {name: value for name, value in cann_sim.env().items() if os.environ.get(name) != value}
    rows = written_rows(options.write) if options.write and options.only else {}
    for name, (package, use) in USES.items():
        if re.search(options.only, name):
            said, errors = check(options.venv.absolute(), site, name, use, simulator)
            package = package.partition("<")[0]          # without the limit on its version
            version = versions.get(re.sub(r"[-_.]+", "_", package).lower(), "not installed")
            rows[package] = f"| {package} | {version} | {' | '.join(said.values())} |"
            print(rows[package], *(errors if options.verbose else ()), sep="\n", flush=True)
            if options.write:
                write(options.write, rows)


def written_rows(place: Path) -> dict[str, str]:
    """The rows of a table that was written before, by package: those of packages that are not run again stay."""
    lines = place.read_text().splitlines() if place.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ") and not line.startswith("| package")}


def write(place: Path, rows: dict[str, str]) -> None:
    head = ["# Packages on the drop-in", "", "Made by `make ecosystem`; do not edit. Each package is imported where PyTorch is "
            "not installed, and a small program of it (tests/mindtorch_v2/ecosystem_uses.py, ecosystem_models.py) prints "
            "numbers on cpu and on npu, which are compared with those of PyTorch 2.13 on the cpu; they may differ by 1e-4 "
            "of the largest. An npu is that of the machine, or the simulated one.", "",
            "| package | version | imported | cpu | npu |", "|---|---|---|---|---|"]
    order = [package.partition("<")[0] for package, _ in USES.values()]
    place.write_text("\n".join([*head, *(rows[package] for package in order if package in rows), ""]))


if __name__ == "__main__":
    main()
