"""What an installation costs before it computes: bytes on disk, seconds and memory of the import, beside torch and torch_npu.

    python benchmarks/footprint.py --peer .venv-conformance/bin/python     (`make conformance` makes that venv)
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

PROBE = """
import importlib, importlib.metadata as metadata, json, os, resource, sys, time
begin = time.perf_counter()
for name in sys.argv[1].split(","):
    importlib.import_module(name)
took = time.perf_counter() - begin
names = sys.argv[2].split(",")
files = {str(file.locate()) for name in names for file in metadata.files(name) or ()}
size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, size]))
"""


def measure(python: str, modules: str, packages: str, runs: int) -> tuple[float, float, float]:
    """(seconds, bytes of memory, bytes on disk): the least of several imports, each in a process of its own."""
    command = [sys.executable, "-m", "cann_sim", "run", python, "-c", PROBE, modules, packages]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
             for _ in range(runs)]  # fmt: skip
    return min(f[0] for f in found), min(f[1] for f in found), found[0][2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="Python of a venv with torch and torch_npu")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    rows = [(sys.executable, "mindtorch_v2", "mindtorch_v2,numpy,scipy-openblas32")]
    if args.peer:
        rows.append((args.peer, "torch,torch_npu", "torch,torch_npu,numpy"))
    print(f"{'import':20}{'seconds':>10}{'memory':>12}{'on disk':>12}")
    for python, modules, packages in rows:
        seconds, memory, disk = measure(python, modules, packages, args.runs)
        print(f"{modules:20}{seconds:>10.2f}{memory / 1e6:>9.0f} MB{disk / 1e6:>9.0f} MB")


if __name__ == "__main__":
    main()
