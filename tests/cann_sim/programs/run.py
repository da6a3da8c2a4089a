"""Builds the C and C++ programs of this folder over the headers and libraries of cann_sim, and runs them in several modes.

`make conformance-cpp` calls it; `python run.py streams.c` builds and runs one. The status is 1 when a program fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cann_sim

FOLDER = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
MODES = ({}, {"CANN_SIM_STRICT": "1"}, {"CANN_SIM_MODE": "delay"}, {"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": "1"})


def compiler(path: Path) -> list[str]:
    """The command for a file: C99, or C++11."""
    if path.suffix == ".c":
        return [os.environ.get("CC", "cc"), "-std=c99", *WARNINGS]
    return [os.environ.get("CXX", "c++"), "-std=c++11", *WARNINGS, "-pthread"]


def build(path: Path, folder: Path) -> Path:
    made = folder / path.stem
    flags = cann_sim.compile_flags() + cann_sim.link_flags()
    subprocess.run([*compiler(path), "-O1", path, *flags, "-lhccl", "-lfmk_onnx_parser", "-lgraph", "-o", made], check=True)
    return made


def run(program: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], env=os.environ | cann_sim.env() | settings, capture_output=True, text=True, timeout=300)


def main(names: list[str]) -> int:
    failed = []
    paths = [FOLDER / name for name in names] or sorted(p for p in FOLDER.iterdir() if p.suffix in (".c", ".cpp"))
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            program = build(path, Path(folder))
            for settings in MODES:
                done = run(program, settings)
                verdict = "OK" if done.returncode == 0 and not done.stderr else f"FAILED ({done.returncode})\n{done.stderr}"
                print(f"{path.name:16} {' '.join(f'{k}={v}' for k, v in settings.items()) or 'normal':40} {verdict}")
                if verdict != "OK":
                    failed.append(path.name)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
