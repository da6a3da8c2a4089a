"""torch_npu's own ops on the simulator against the references that mindtorch_v2's rows of them are held to."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_npu

sys.path.append(str(Path(__file__).parents[2] / "mindtorch_v2"))
_cases = importlib.import_module("npu_op_case")
CASES = _cases.all_cases()

# What torch_npu says where a call cannot be compared: the simulator computes no such op of CANN (561003 of an aclnn op,
# "OPS function error" of the older interface), torch_npu takes fewer arguments than the row, or it has no gradient.
NOT_COMPARED = (
    "561003", "161002", "OPS function error", "only support", "should be", "must be", "should align", "can be either",
    "negative dimension", "bad optional access", "out of memory", "out of range for tensor",
    "UndefinedTensorImpl", "requires CANN >= 9", "do not have aclnn implementation", "not support", "no longer supported",
)  # fmt: skip
# npu_indexing sizes its result without the masks: the device refuses that, and a fault ends all that follows.
# _amp_foreach_non_finite_check asks the status of the device, which numbers from the host do not set.
# npu_layernorm_grad takes the variance where the row, as its schema says, takes 1 / deviation.
# npu_batch_gather_matmul gives its first argument back, not what CANN wrote.
NOT_CALLED = {"npu_indexing", "_amp_foreach_non_finite_check", "npu_batch_gather_matmul", "npu_layernorm_grad"}
NO_GRADIENT = ("derivative for npu::", "appears to not have been used", "backward only support")
# Results that torch_npu leaves as they come from memory: gradients of cosines that were not requested. And the gradient that it
# returns as it was given, which is not that of npu_dropout_with_add_softmax's second argument.
UNDEFINED = {("npu_rotary_mul_backward", 1), ("npu_rotary_mul_backward", 2), ("npu_dropout_with_add_softmax_backward", 1),
             ("npu_clear_float_status", 0)}


def tensors(value: Any, device: str, leaf: bool = False) -> Any:
    if isinstance(value, np.ndarray):
        made = _cases.tensor(torch, value, device)
        if device == "npu" and isinstance(value, _cases.Nz):
            made = torch_npu.npu_format_cast(made, 29)
        return made.requires_grad_() if leaf else made
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [tensors(v, device) for v in value]
    return value


def flat(result: Any) -> list[Any]:
    return [y for x in result for y in flat(x)] if isinstance(result, tuple | list) else [result]


def run(function: Any, case: Any, device: str, grads: tuple[int, ...], counted: list[bool] | None = None) -> tuple[list, list]:
    """Results, and the gradients of those that count."""
    args = [tensors(x, device, i in grads) for i, x in enumerate(case.args)]
    made = flat(function(*args, **{k: tensors(v, device) for k, v in case.kwargs.items()}))
    total: Any = 0
    for k, r in enumerate(made):
        if (counted is None or counted[k]) and torch.is_tensor(r) and r.requires_grad:
            total = total + (r * (torch.arange(r.numel(), device=r.device).reshape(r.shape) % 5 - 1.5)).sum()
    return made, list(torch.autograd.grad(total, [args[i] for i in grads])) if grads else []


def close(got: Any, expected: Any, atol: float) -> bool:
    if not torch.is_tensor(expected):
        return bool(got == expected)
    got = got.detach().cpu()
    a, b = (x if x.is_complex() else x.float() for x in (got, expected))
    return got.numel() == expected.numel() and torch.allclose(a.reshape(b.shape), b, rtol=1e-3, atol=max(atol, 1e-4))


def outcome(case: Any, grads: tuple[int, ...]) -> str:
    """ "same", or "refused" where a case is not compared; fails where values differ."""
    expected, slopes = run(lambda *a, **k: case.reference(torch, *a, **k), case, "cpu", grads)
    try:
        got, own = run(getattr(torch_npu, case.op), case, "npu", grads, [x is not None for x in expected])
        torch.npu.synchronize()
    except (RuntimeError, IndexError) as error:
        if grads and any(word in str(error) for word in NO_GRADIENT):  # a row may have a gradient that torch_npu's op lacks
            return outcome(case, ())
        assert any(word in str(error) for word in NOT_COMPARED), f"{case.op}: {error}"
        return "refused"
    assert len(got) == len(expected), case.op
    for k, (mine, right) in enumerate(zip(got + own, expected + slopes, strict=True)):
        if right is not None and (case.op, k) not in UNDEFINED:
            assert close(mine, right, case.atol), f"{case.op}: result {k}\n{mine}\n{right}"
    return "same"


def outcomes(known: set[str]) -> set[str]:
    """The names of which a case agrees, those that are known already among them."""
    cases = [case for case in CASES if case.op not in NOT_CALLED | known]
    return known | {case.op for case in cases if outcome(case, case.grads) == "same"}


# What is there in later versions of CANN only, and what torch_npu calls by the older interface on every SoC but a 950.
LATER = {"CANN_SIM_VERSION": "9.1.0", "CANN_SIM_SOC": "950"}


@pytest.mark.skipif(os.environ.get("TASK_QUEUE_ENABLE") != "0",
                    reason="an op that fails in the queue's thread ends all later ones of the process")
def test_own_ops_give_what_the_rows_are_held_to() -> None:
    same = outcomes(set())
    done = subprocess.run([sys.executable, __file__], input=json.dumps(sorted(same)), env={**os.environ, **LATER},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    same = set(json.loads(done.stdout.splitlines()[-1]))
    assert len(same) >= 292, f"{len(same)} names agree"


if __name__ == "__main__":
    print(json.dumps(sorted(outcomes(set(json.load(sys.stdin))))))
