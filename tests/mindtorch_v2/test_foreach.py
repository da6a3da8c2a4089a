"""torch._foreach_* and the ops of loss scaling: values and errors against PyTorch's OpInfo, gradients, and how many
calls of CANN a list costs. Optimizers are in test_npu_optim.py."""
from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch as judge
import twin
from oracle import to_ours, to_torch
from torch.testing._internal import common_methods_invocations as opinfo

import mindtorch_v2 as torch

ENTRIES = (opinfo.foreach_unary_op_db + opinfo.foreach_binary_op_db + opinfo.foreach_pointwise_op_db +
           opinfo.foreach_reduce_op_db + opinfo.foreach_other_op_db)
STEMS = {f"_foreach_{entry.name.removeprefix('_foreach_').rstrip('_')}": entry for entry in ENTRIES}
NAMES = [stem + end for stem in STEMS for end in ("", "_") if hasattr(judge, stem + end)]
SAMPLES = 3
# Ours take what PyTorch's element-wise kernels on the CPU refuse, or CANN refuses what PyTorch takes.
LENIENT = "clamp lerp abs max min sub norm pow frac"


def test_every_function_is_there() -> None:
    assert not [name for name in dir(judge) if name.startswith("_foreach_") and not hasattr(torch, name)]


def same(ours: Any, theirs: Any, **close: float) -> None:
    if isinstance(theirs, judge.Tensor):
        close = {"rtol": 0.02, "atol": 0.03} if theirs.dtype in (judge.bfloat16, judge.float16) else close
        judge.testing.assert_close(to_torch(ours), theirs.detach(), equal_nan=True, **close)
        return
    assert type(ours) is type(theirs) and len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        same(one, other, **close)


def run(call: Any) -> tuple[Any, Exception | None]:
    try:
        return call(), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name: str, device: str, npu: ModuleType) -> None:
    entry, seen = STEMS[name.rstrip("_")], 0
    for dtype in (judge.float32, judge.int64) if device == "cpu" else (judge.float32, judge.float16):
        samples = entry.sample_inputs("cpu", dtype, requires_grad=False, noncontiguous=False)
        for sample in itertools.islice(samples, SAMPLES):
            given = (sample.input, *sample.args)
            ours = to_ours(given, device)
            # CANN has no norm in float64.
            named = {k: v for k, v in sample.kwargs.items() if device == "cpu" or v is not judge.float64}
            made, error = run(lambda: getattr(torch, name)(*ours, **to_ours(named)))
            wanted, their_error = run(lambda: getattr(judge, name)(*given, **named))
            if their_error is not None:
                assert error is not None or any(word in name for word in LENIENT.split()), (their_error, sample)
            else:
                assert error is None
                # Products are sums of terms of up to 81: what is left after they cancel carries the terms' rounding.
                same(made, wanted, **({"rtol": 1.3e-6, "atol": 1e-4} if "mm" in name else {}))
                same(ours[0], given[0]) if isinstance(given[0], list) else None
                seen += 1
    assert seen


ERRORS = """torch._foreach_mul(x,[1,2])|torch._foreach_mul(x,(torch.ones(2),)*2)|torch._foreach_mul(x,torch.ones(1))
torch._foreach_mul(x,None)|torch._foreach_mul(x,'a')|torch._foreach_mul(x,1j)
torch._foreach_addcmul(x,x,x,torch.ones(()))|torch._foreach_addcmul(x,x,x,torch.ones(2))
torch._foreach_addcmul(x,x,x,torch.ones(1))|torch._foreach_addcmul(x,x,x,[1.,2.])
torch._foreach_zero_([])|torch._foreach_add_(x,1) is x|torch._foreach_mul(x[0],1)|torch._foreach_add(x,x,alpha=2,beta=1)
torch._foreach_lerp(x,x,torch.tensor(0.5))|torch._foreach_norm(x,1)|torch._foreach_pow(2,x)|torch._foreach_copy_(x,x*2)
torch._amp_foreach_non_finite_check_and_unscale_(x,torch.zeros(2),torch.ones(1))
torch._amp_foreach_non_finite_check_and_unscale_(x,torch.zeros(1),torch.ones(1).double())
torch._amp_foreach_non_finite_check_and_unscale_([x[0].int()],torch.zeros(1),torch.ones(1))
torch._amp_foreach_non_finite_check_and_unscale_([],torch.zeros(1),torch.ones(1))
torch._amp_update_scale_(torch.ones(2),torch.zeros(1).int(),torch.zeros(1),2.,.5,1)
torch._amp_update_scale_(torch.ones(1),torch.zeros(1),torch.zeros(1),2.,.5,1)""".replace("\n", "|").split("|")


@pytest.mark.parametrize("line", ERRORS)
def test_arguments(line: str) -> None:
    twin.check_lines(f"x=[torch.tensor([1.,2.])]\n{line}")


GRADIENTS = """torch._foreach_mul(x, y)|torch._foreach_add(x, y, alpha=2)|torch._foreach_sqrt(x)
torch._foreach_lerp(x, y, 0.3)|torch._foreach_addcmul(x, y, y, [1., 2.])
torch._foreach_norm(x)|torch._foreach_pow(2., x)
torch._foreach_mul_([t * 1 for t in x], y)|torch._foreach_div_([t * 1 for t in x], 3.)""".replace("\n", "|").split("|")


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("line", GRADIENTS)
def test_gradients(line: str, device: str, npu: ModuleType) -> None:
    def grads(lib: Any, on: str) -> list[Any]:
        x, y = ([lib.tensor(v, device=on).requires_grad_() for v in values]
                for values in (([1.0, 2.0], [3.0]), ([4.0, 5.0], [6.0])))
        sum(t.sum() for t in eval(line, {"torch": lib, "x": x, "y": y})).backward()
        return sum([[0.0] if t.grad is None else t.grad.cpu().tolist() for t in x + y], [])
    assert grads(torch, device) == pytest.approx(grads(judge, "cpu"), rel=1e-5)


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_a_leaf_is_not_changed(device: str, npu: ModuleType) -> None:
    leaf = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        torch._foreach_add_([leaf], 1)
    with torch.no_grad():
        before = leaf._version
        torch._foreach_add_([leaf], 1)
    assert leaf.tolist() == [2, 2] and leaf._version == before + 1


# ---- calls of CANN ---------------------------------------------------------------------------------------------------
def calls(npu: ModuleType, folder: Path, lines: Iterable[str], space: dict[str, Any]) -> dict[str, list[str]]:
    """The ops that each line launches, without running them; whatever waits for the device fails."""
    graph, mark = npu.NPUGraph(), torch.ones((), device="npu")
    with npu.graph(graph):
        for line in lines:
            mark.erf_()
            eval(line, space)
    graph.enable_debug_mode()
    graph.debug_dump(str(folder / "graph.json"))
    found: list[list[str]] = []
    for task in json.loads((folder / "graph.json").read_text()):
        if task["name"] == "aclnnInplaceErf":
            found.append([])
        else:
            found[-1].append(task["name"].removeprefix("aclnnForeach"))
    return dict(zip(lines, found, strict=True))


CALLS = {
    "torch._foreach_add_(x, 1)": "AddScalarV2",
    "torch._foreach_add_(x, y, alpha=2)": "AddListV2",
    "torch._foreach_sub_(x, [2.] * 20)": "SubScalarList",
    "torch._foreach_mul_(x, two)": "MulScalar",
    "torch._foreach_mul(x, y)": "MulList MulList",           # 48 tensors a call: 16 of each list
    "torch._foreach_addcmul_(x, y, y, 0.5)": "AddcmulScalarV2 AddcmulScalarV2",
    "torch._foreach_lerp_(x, y, 0.5)": "LerpScalar",
    "torch._foreach_sqrt(x)": "Sqrt",
    "torch._foreach_floor_(x)": "RoundOffNumberV2",
    "torch._foreach_clamp_max_(x, 1.)": "MinimumScalarV2",
    "torch._foreach_pow(2., x)": "PowScalarAndTensor",
    "torch._foreach_norm(x)": "Norm",
    "torch._foreach_zero_(x)": "ZeroInplace",
    "torch._foreach_copy_(x, y)": "Copy",
    "torch._foreach_copy_([t.int() for t in x[:2]], [t.int() for t in y[:2]])": "aclnnInplaceCopy " * 4 + "Copy",
    "torch._amp_foreach_non_finite_check_and_unscale_(x, two, two)": "NonFiniteCheckAndUnscale",
    "torch._amp_update_scale_(two, tracker, two, 2., 0.5, 10)": "aclnnAmpUpdateScale",
    # one by one: sizes that broadcast, a list of two dtypes, a strided tensor, a norm that CANN has not
    "torch._foreach_mul_(x[:2], [two, two])": "aclnnInplaceMul " * 2,
    "torch._foreach_neg([x[0], x[1].half()])": "aclnnInplaceCopy aclnnNeg aclnnNeg",
    "torch._foreach_neg([x[0], x[1][::2]])": "aclnnNeg " * 2,
    "torch._foreach_norm(x[:1], 3)": "aclnnLinalgVectorNorm",
}


def test_calls(npu: ModuleType, tmp_path: Path) -> None:
    x, y = ([torch.ones(3, device="npu") for _ in range(20)] for _ in range(2))
    space = {"torch": torch, "x": x, "y": y, "two": torch.tensor(2.0, device="npu"),
             "tracker": torch.zeros((), dtype=torch.int32, device="npu")}
    assert calls(npu, tmp_path, CALLS, space) == {line: wanted.split() for line, wanted in CALLS.items()}


def test_more_tensors_than_a_call_takes(npu: ModuleType) -> None:
    x = [torch.full((3,), float(i), device="npu") for i in range(1, 131)]
    numbers = torch._foreach_addcmul(x, x, x, [2.0 * i for i in range(1, 131)])      # one number per tensor
    assert [t[0].item() for t in numbers] == [i + 2 * i**3 for i in range(1, 131)]
    torch._foreach_add_(x, torch.tensor(1.0, device="npu"))
    assert [t[2].item() for t in x] == list(range(2, 132))
    assert torch.stack(torch._foreach_norm(x, 1)).tolist() == [3 * i for i in range(2, 132)]


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("bad", [False, True])
def test_loss_scaling(device: str, bad: bool, npu: ModuleType) -> None:
    def steps(lib: Any, on: str) -> list[Any]:
        grads = [lib.full((3,), 8.0, device=on), lib.full((60,), float("inf") if bad else 4.0, device=on)]
        found, scale = lib.zeros(1, device=on), lib.full((1,), 2.0, device=on)
        tracker = lib.zeros(1, dtype=lib.int32, device=on)
        lib._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.reciprocal())
        for _ in range(3):
            assert lib._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2) is scale
        return [t.cpu().tolist() for t in (*grads, found, scale, tracker)]
    assert steps(torch, device) == steps(judge, "cpu")
