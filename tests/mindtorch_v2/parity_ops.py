"""PyTorch's lists of ops, modules and optimizers as its own tests use them: every claim of an entry, over this library.

    python tests/mindtorch_v2/parity_ops.py --out build/parity-ops [--check out errors] [--only REGEX] [--few 3] [--part 1/40]

Each check runs over the drop-in, and then, for what did not hold, over PyTorch itself in another process: what PyTorch does
not keep either is no failure. The rest is printed, the largest groups first. A worker that crashes is started again behind
the item that killed it.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parity_fake_checks  # noqa: F401  (their checks are noted as they are imported)
import parity_form_checks  # noqa: F401
import parity_kind_checks  # noqa: F401
from parity_op_checks import CHECKS, Case

SECONDS = 20        # for one item: a check of an entry in one dtype


class TooLong(Exception):
    """An item took longer than its time."""


def ring(number: int, frame: Any) -> None:
    raise TooLong(f"more than {SECONDS} s")


def is_excepted(info: Any, test: str, device: str, dtype: Any) -> bool:
    """Whether PyTorch's list says that this test is skipped or expected to fail for this entry."""
    def probe() -> None:
        """What decorators mark."""
    for decorate in info.get_decorators(*test.split("."), device, dtype, {"training": True}):
        try:
            marked = decorate(probe)
        except Exception:       # one that wants a test's method: it loosens something and skips nothing
            continue
        if getattr(marked, "__unittest_skip__", False) or getattr(marked, "__unittest_expecting_failure__", False):
            return True
    return False


def items(torch: Any, device: str) -> Iterator[tuple[str, str, Any, Any]]:
    """(check, name, entry, dtype)."""
    # over whichever library is called torch by now
    from torch.testing._internal import common_methods_invocations as ops
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db
    lists = {"modules": module_db, "optimizers": optim_db, "refs": ops.python_ref_db, "lists": [
        *ops.foreach_unary_op_db, *ops.foreach_binary_op_db, *ops.foreach_pointwise_op_db, *ops.foreach_reduce_op_db,
        *ops.foreach_other_op_db]}
    for name, check in CHECKS.items():
        if check.kind in ("modules", "optimizers"):
            for info in lists[check.kind]:
                yield name, getattr(info, "name", None) or info.optim_cls.__name__, info, torch.float32
            continue
        for info in lists.get(check.kind, ops.op_db):
            if check.kind not in (*lists, *(c.__name__ for c in type(info).__mro__)):
                continue
            supported = info.supported_dtypes("cpu")
            for dtype in [getattr(torch, d) for d in check.dtypes]:
                if dtype in supported or name == "dtypes":
                    yield name, info.full_name, info, dtype


def verdict(torch: Any, name: str, info: Any, dtype: Any, options: Any) -> tuple[str, str]:
    check = CHECKS[name]
    if is_excepted(info, check.test, options.device, dtype):
        return "excepted", ""
    signal.alarm(SECONDS)
    try:
        check.run(Case(torch, info, dtype, options.device, options.few))
    except Exception as error:      # whatever it is, the claim does not hold
        return "fails", f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
    finally:
        signal.alarm(0)
    return "holds", ""


def work(options: Any) -> None:
    """Go through the items that the file of results does not have yet; as PyTorch only through those that failed here."""
    wheel = Path(importlib.util.find_spec("torchgen").origin).parents[1]
    if options.worker == "here":
        import mindtorch_v2
        torch = mindtorch_v2.install(testing_internal=wheel)
    else:
        import torch
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, ring)
    file = options.out / f"{options.worker}.jsonl"
    done = {tuple(r["key"]) for r in read(file)}
    failed = {tuple(r["key"]) for r in read(options.out / "here.jsonl") if r["verdict"] in ("fails", "crash")}
    part, parts = (int(x) for x in options.part.split("/"))
    with file.open("a", buffering=1) as into:
        for number, (name, entry, info, dtype) in enumerate(items(torch, options.device)):
            key = (name, entry, str(dtype)[6:])
            if key in done or options.worker == "there" and key not in failed or not re.search(options.only, entry) or \
                    options.check and name not in options.check or number % parts != part % parts:
                continue
            record = {"key": key, "verdict": "crash", "why": "the process ended"}
            place = into.tell()
            into.write(json.dumps(record) + "\n")       # stays if this item ends the process
            record["verdict"], record["why"] = verdict(torch, name, info, dtype, options)
            into.truncate(place)
            into.seek(place)
            into.write(json.dumps(record) + "\n")


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def group(why: str) -> str:
    """The words of an error without what differs from op to op."""
    return re.sub(r"'[^']*'|\[[^\]]*\]|\d+(\.\d+)?(e-?\d+)?", "_", why)[:90]


def report(out: Path) -> int:
    """Prints the table and the groups; returns how many items fail here and hold in PyTorch."""
    here = read(out / "here.jsonl")
    excused = {tuple(r["key"]) for r in read(out / "there.jsonl") if r["verdict"] != "holds"}
    failed = [r for r in here if r["verdict"] in ("fails", "crash") and tuple(r["key"]) not in excused]
    print("| check | holds | fails | excepted |\n|---|---|---|---|")
    for name in CHECKS:
        mine = [r for r in here if r["key"][0] == name]
        bad = sum(r["key"][0] == name for r in failed)
        spared = sum(r["verdict"] == "excepted" or tuple(r["key"]) in excused for r in mine)
        if mine:
            print(f"| {name} | {len(mine) - bad - spared} | {bad} | {spared} |")
    for (name, words), count in Counter((r["key"][0], group(r["why"])) for r in failed).most_common(60):
        entries = sorted({r["key"][1] for r in failed if r["key"][0] == name and group(r["why"]) == words})
        print(f"{count:4} {name}: {words}  ({', '.join(entries[:6])}{' …' if len(entries) > 6 else ''})")
    return len(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--check", nargs="+", choices=list(CHECKS), default=[])
    parser.add_argument("--only", default="", help="entries whose names match")
    parser.add_argument("--few", type=int, default=3, help="samples of a check")
    parser.add_argument("--part", default="0/1", help="every n-th item")
    parser.add_argument("--worker", choices=["here", "there"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker:
        work(options)
        return
    environ = {name: value for name, value in os.environ.items() if name != "MINDTORCH_AS_TORCH"}
    for worker in ("here", "there"):
        (options.out / f"{worker}.jsonl").unlink(missing_ok=True)
        if worker == "there" and all(r["verdict"] in ("holds", "excepted") for r in read(options.out / "here.jsonl")):
            break                                       # nothing for PyTorch to excuse
        for _ in range(30):                             # a crash costs one item, and a start of the worker
            if subprocess.run([sys.executable, __file__, *sys.argv[1:], "--worker", worker], env=environ).returncode == 0:
                break
    sys.exit(report(options.out) > 0)


if __name__ == "__main__":
    main()
