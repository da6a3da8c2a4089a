"""Both libraries accept, refuse and compute the same: a short run of fuzz_parity.py with a fixed seed."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import fuzz_parity
import parity_draw as draw
import parity_known as known
import pytest
import torch

import mindtorch_v2 as mt

HERE = Path(__file__).parent


def test_no_difference() -> None:
    run = subprocess.run([sys.executable, "-X", "faulthandler", str(HERE / "fuzz_parity.py"), "--seed", "0", "--executions", "6000",
                          "--jobs", "2"], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    done = re.search(r"parity: (\d+) executions, 0 crashes, 0 hangs, 0 differences in 0 groups", run.stdout)
    assert done and int(done[1]) > 5000, run.stdout[-500:]


def test_reasons_are_given() -> None:
    for targets, kinds, words, reason in known.ACCEPTED:
        assert len(reason) > 10 and all(re.compile(pattern) for pattern in (targets, kinds, words) if pattern)


# ---- the fuzzer sees what it looks for ------------------------------------------------------------------------------------
def seen(ours: object, drawn: object = fuzz_parity.only_self, theirs: object = torch.neg) -> str:
    """The kinds of difference that 200 executions show."""
    target = fuzz_parity.Target("Tensor.planted", theirs, ours, drawn)
    found = {difference.kind for index in range(200)
             if (difference := fuzz_parity.execute(target, 0, index, lambda side: None)[1]) is not None}
    return " ".join(sorted(found))


@pytest.mark.parametrize("ours, kind", [
    (lambda x: mt.neg(x) + 1e-3, "value"), (lambda x: mt.neg(x).to(mt.complex128), "dtype"), (lambda x: mt.neg(x)[None], "shape"),
    (lambda x: mt.neg(x.detach()), "requires_grad"), (lambda x: mt.neg(x.detach()) + (2 * x - (2 * x).detach()), "gradient"),
    (lambda x: {}["no"], "refused"), (lambda x: -x if x.dtype is not mt.bool else x, "accepted"),
    (lambda x: (-x, x.detach().zero_() if x.is_contiguous() else None)[0], "changed input")])
def test_a_planted_fault_is_seen(ours: object, kind: str) -> None:
    assert kind in seen(ours).split() or kind in seen(ours), seen(ours)


def test_another_type_of_exception_is_seen() -> None:
    """It is accepted where both errors are about different things, and else only in rows of their own."""
    no_kernel, shape = "NotImplementedError: \"x\" not implemented for 'Long'", "RuntimeError: expected 3 dims"
    for detail in (f"{no_kernel}, expected RuntimeError: x does not support integers {{int}}",
                   f"{shape}, expected IndexError: Dimension out of range {{}}"):
        assert known.reason("Tensor.planted", "refusal", detail) < 0
    assert known.reason("Tensor.planted", "refusal", f"{shape}, expected {no_kernel} {{int}}") >= 0


def test_no_fault_is_seen_where_there_is_none() -> None:
    assert seen(mt.neg) == ""


def test_both_sides_get_the_same() -> None:
    rng = draw.Random(3)
    for _ in range(300):
        pair = draw.Draw(rng).a_tensor()
        assert tuple(pair.ours.shape) == tuple(pair.theirs.shape) and pair.ours.stride() == pair.theirs.stride()
        fuzz_parity.compare(pair.ours, pair.theirs)
