"""Runs a command of the build and shows how far it is, from the "[12/340]" that ninja prints; its output only where it fails.

    python csrc/progress.py "building mindtorch_v2" pip install -v .
"""

from __future__ import annotations

import re
import subprocess
import sys
import time

STEP = re.compile(r"\[(\d+)/(\d+)\]")
BETWEEN = 15.0  # seconds between two lines where there is no terminal


def show(title: str, done: int, total: int, last: float) -> float:
    """Writes the state; when it was last written."""
    now = time.monotonic()
    if sys.stderr.isatty():
        bar = "=" * (20 * done // max(total, 1))
        print(f"\r{title} [{bar:20}] {done}/{total}", end="", file=sys.stderr, flush=True)
    elif now - last > BETWEEN:
        print(f"{title}: {done} of {total}", file=sys.stderr, flush=True)
    else:
        return last
    return now


def main(title: str, *command: str) -> int:
    print(title, flush=True)
    lines, last = [], time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if (found := STEP.search(line)) and int(found[1]):
                last = show(title, int(found[1]), int(found[2]), last)
    if sys.stderr.isatty():
        print(f"\r{'':{len(title) + 40}}\r", end="", file=sys.stderr, flush=True)
    if process.returncode:
        sys.stderr.writelines(lines[-120:])
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
