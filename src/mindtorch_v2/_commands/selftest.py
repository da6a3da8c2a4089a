"""`python -m mindtorch_v2 selftest`: what works on a device, as a table and a file that a stranger can send.

Each part runs in a process of its own; one that crashes, hangs or loses its device costs the case that it was at, and
another goes on behind it.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import getpass
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import IO, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2._commands import checks, info

OUTCOMES = ("passed", "wrong", "refused", "error", "crashed", "skipped")
DEVICE_LOST = 75                                  # exit code of a child whose device takes no more work
REFUSALS = range(161000, 162000)                  # aclnnStatus: the op does not take these arguments
FIRST_OF_THE_RUNTIME = 500000                     # aclError: faults of the device and its driver
PATIENCE = 180                                    # seconds for one case; a card compiles some kernels first
MOST_RESTARTS = 40


class Result(NamedTuple):
    """How one case ended; `text` says what was wrong."""
    part: str
    case: str
    outcome: str
    text: str


# ---- the process that tries ----------------------------------------------------------------------------------------------
def run_part(part: str, device: str, quick: bool, first: int) -> int:
    """Runs the cases from the first on, with a line before and a line after each."""
    for number, case in enumerate(checks.PARTS[part](device, quick)):
        if number < first:
            continue
        say({"begin": case.name})
        outcome, text, lost = "passed", "", False
        try:
            case.run()
            torch.npu.synchronize(device)         # what the device has to say of it belongs to this case
        except checks.Wrong as error:
            outcome, text = "wrong", str(error)
        except checks.NoSample:
            outcome = "skipped"
        except NotImplementedError as error:
            outcome, text = "refused", str(error)
        except Exception as error:
            code = getattr(error, "error_code", 0) if isinstance(error, torch.AcceleratorError) else 0
            outcome = "refused" if code in REFUSALS else "error"
            text, lost = "".join(traceback.format_exception_only(error)).strip(), code >= FIRST_OF_THE_RUNTIME
        say({"end": outcome, "text": text[:4000]})
        if lost:
            sys.stdout.flush()
            os._exit(DEVICE_LOST)
    return 0


def say(line: dict[str, str]) -> None:
    print(json.dumps(line), flush=True)


# ---- the parent process --------------------------------------------------------------------------------------------------
def watch(part: str, options: argparse.Namespace) -> list[Result]:
    """All cases of a part, over as many processes as it takes."""
    found: list[Result] = []
    for _ in range(MOST_RESTARTS):
        code, open_case = follow(part, options, found)
        if open_case is not None:
            found.append(Result(part, open_case, "crashed", ended(code)))
        elif code != DEVICE_LOST:
            if code != 0:
                found.append(Result(part, "(between cases)", "crashed", ended(code)))
            return found
    found.append(Result(part, "(rest)", "crashed", f"given up after {MOST_RESTARTS} processes"))
    return found


def ended(code: int | None) -> str:
    if code is None:
        return f"no end within {PATIENCE} s"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def follow(part: str, options: argparse.Namespace, found: list[Result]) -> tuple[int | None, str | None]:
    """Reads what one child says. (its exit code, None where it was killed for its silence; the case that did not end)"""
    command = [sys.executable, "-m", "mindtorch_v2", "selftest", "--child", part, "--device", options.device,
               "--first", str(len(found)), *(["--quick"] if options.quick else [])]
    open_case: str | None = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as child:
        assert child.stdout is not None
        for text in lines_of(child.stdout):
            if text is None:
                child.kill()
                child.wait()
                return None, open_case
            with contextlib.suppress(ValueError):     # what a library prints is no line of ours
                line = json.loads(text)
                if "begin" in line:
                    open_case = line["begin"]
                elif "end" in line and open_case is not None:
                    found.append(Result(part, open_case, line["end"], line["text"]))
                    open_case = None
                    progress(f"{part}: {len(found)} cases")
        return child.wait(), open_case


def lines_of(pipe: IO[bytes]) -> Iterator[str | None]:
    """The lines of a pipe until it ends; None where nothing came for too long. What was read is handed on before waiting:
    the beginning of a case may come together with the end of the one before."""
    waiting, pending = selectors.DefaultSelector(), b""
    waiting.register(pipe, selectors.EVENT_READ)
    while True:
        *whole, pending = pending.split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
        if not waiting.select(PATIENCE):
            yield None
            return
        more = pipe.read(1 << 16)
        if not more:
            return
        pending += more


def progress(text: str) -> None:
    """One line that is written over, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{text:60}", end="", file=sys.stderr, flush=True)


def report_file(path: str, options: argparse.Namespace, results: list[Result], seconds: dict[str, float]) -> None:
    """Everything that is needed to repeat what failed. The user's name and home folder are left out."""
    facts = info.facts()
    facts["settings"].pop("HOME", None)
    content = json.dumps({"device": options.device, "quick": options.quick, "facts": facts, "seconds": seconds,
                          "counts": counts(results), "failures": [r._asdict() for r in failed(results)],
                          "passed": [f"{r.part}: {r.case}" for r in results if r.outcome == "passed"]}, indent=1)
    with contextlib.suppress(KeyError, OSError):      # a user without a name has none to leave out
        content = content.replace(os.path.expanduser("~"), "~").replace(f"/{getpass.getuser()}/", "/user/")
    with open(path, "w", encoding="utf-8") as file:
        file.write(content + "\n")


def failed(results: list[Result]) -> list[Result]:
    return [r for r in results if r.outcome not in ("passed", "skipped")]


def counts(results: list[Result]) -> dict[str, dict[str, int]]:
    """How many cases of each part ended how."""
    found: dict[str, collections.Counter[str]] = {}
    for result in results:
        found.setdefault(result.part, collections.Counter())[result.outcome] += 1
    return {part: dict(counted) for part, counted in found.items()}


def table(results: list[Result], seconds: dict[str, float]) -> list[str]:
    """One line a part."""
    lines = [f"{'':12}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES) + f"{'seconds':>9}"]
    for part, counted in counts(results).items():
        columns = "".join(f"{counted.get(outcome) or '':>9}" for outcome in OUTCOMES)
        lines.append(f"{part:12}{columns}{seconds[part]:9.1f}")
    return lines


def arguments(options: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mindtorch_v2 selftest", description="What works on a device.")
    parser.add_argument("--device", default="npu:0", help="the device that is tried, npu:0 by default")
    parser.add_argument("--quick", action="store_true", help="ops in float32 only")
    parser.add_argument("--part", action="append", choices=[*checks.PARTS], help="only this part; may be given again")
    parser.add_argument("--output", default="mindtorch-selftest.json", help="the file with all results")
    parser.add_argument("--child", choices=[*checks.PARTS], help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args(options)
    if chosen.device == "npu":
        chosen.device = "npu:0"
    return chosen


def main(options: list[str]) -> int:
    """Runs the parts, prints the table, writes the file; 1 where something is wrong."""
    chosen = arguments(options)
    if chosen.child:
        return run_part(chosen.child, chosen.device, chosen.quick, chosen.first)
    if not torch.npu.is_available():
        torch.npu.is_available(verbose=True)
        return 1
    try:
        with open(chosen.output, "a", encoding="utf-8"):      # before the minutes that the cases take
            pass
    except OSError as refused:
        print(f"the report cannot be written: {refused}", file=sys.stderr)
        return 2
    results: list[Result] = []
    seconds: dict[str, float] = {}
    for part in chosen.part or checks.PARTS:
        began = time.monotonic()
        if not sys.stderr.isatty():
            print(f"selftest: {part}", file=sys.stderr, flush=True)
        results += watch(part, chosen)
        seconds[part] = round(time.monotonic() - began, 1)
    progress("")
    print(*table(results, seconds), sep="\n")
    failures = failed(results)
    for result in failures[:20]:
        print(f"\n{result.part}: {result.case}: {result.outcome}\n   {result.text[:300]}")
    report_file(chosen.output, chosen, results, seconds)
    print(f"\n{len(failures)} of {len(results)} cases did not pass; all of it is in {chosen.output}")
    return 1 if any(r.outcome != "refused" for r in failures) else 0
