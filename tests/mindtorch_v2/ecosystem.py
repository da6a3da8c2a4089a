"""Packages of PyTorch's ecosystem on the drop-in: each is imported and does something small, beside PyTorch itself.

    python tests/mindtorch_v2/ecosystem.py VENV [--only REGEX] [--write docs/ecosystem.md]

VENV holds the packages and this library, and no PyTorch (`make ecosystem` makes it). A use prints numbers; the same
program runs on PyTorch in the environment of the tests, and both are compared.
"""
from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from ecosystem_uses import USES

SECONDS = 240
START = "import json, warnings; warnings.simplefilter('ignore')\nimport torch\ntorch.manual_seed(0)\n"
END = """
def numbers(x):
    if isinstance(x, torch.Tensor):
        return [float(v) for v in x.detach().double().flatten()[:50]]
    if isinstance(x, (list, tuple)):
        return [v for item in x for v in numbers(item)]
    return [float(x)]
print("numbers", json.dumps(numbers(out)))
"""


def run(python: str, code: str, environ: dict[str, str]) -> tuple[list[float] | None, str]:
    """The numbers that a program prints, or None and the last line of its error."""
    base = {name: value for name, value in os.environ.items() if name != "MINDTORCH_AS_TORCH"}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run([python, "-c", code], env=base | quiet | environ, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"more than {SECONDS} s"
    found = re.search(r"^numbers (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 0 and found:
        return json.loads(found[1]), ""
    return None, (done.stderr.strip().splitlines() or ["no output"])[-1][:160]


def compare(ours: list[float], theirs: list[float]) -> str:
    """In words, how two lists of numbers agree."""
    if len(ours) != len(theirs):
        return f"wrong: {len(ours)} numbers, expected {len(theirs)}"
    scale = max([1.0, *(abs(x) for x in theirs if abs(x) < float("inf"))])
    same = all(a == b or abs(a - b) <= 1e-3 * scale or (a != a and b != b) for a, b in zip(ours, theirs))
    return "same numbers" if same else f"wrong: {ours[:3]}, expected {theirs[:3]}"


def check(venv: Path, site: Path, name: str, use: str) -> tuple[str, str]:
    """(whether it is imported, what its use gives)."""
    here = {"MINDTORCH_AS_TORCH": "1"}
    python = str(venv / "bin/python")
    imported, why = run(python, f"{START}import {name}\nout = 0\n{END}", here)
    if imported is None:
        return f"fails: {why}", ""
    if not use:
        return "yes", ""
    ours, why = run(python, START + use + END, here)
    if ours is None:
        return "yes", f"fails: {why}"
    theirs, why = run(sys.executable, START + use + END, {"PYTHONPATH": str(site)})
    return "yes", compare(ours, theirs) if theirs is not None else f"runs; not judged: {why}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    site = next((options.venv / "lib").glob("python3*/site-packages")).resolve()
    versions = {re.sub(r"[-_.]+", "_", found.metadata["Name"]).lower(): found.version
                for found in importlib.metadata.distributions(path=[str(site)])}
    rows = []
    for name, (package, use) in USES.items():
        if re.search(options.only, name):
            imported, used = check(options.venv, site, name, use)
            version = versions.get(re.sub(r"[-_.]+", "_", package).lower(), "not installed")
            rows.append(f"| {package} | {version} | {imported} | {used} |")
            print(rows[-1], flush=True)
    if options.write:
        head = ["# Packages on the drop-in", "", "Made by `make ecosystem`; do not edit. Each package is imported where PyTorch is "
                "not installed, and a small program of it (tests/mindtorch_v2/ecosystem_uses.py) prints numbers, which are "
                "compared with those of PyTorch 2.13.", "", "| package | version | imported | used |", "|---|---|---|---|"]
        options.write.write_text("\n".join([*head, *rows, ""]))


if __name__ == "__main__":
    main()
