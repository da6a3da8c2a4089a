"""Optimizers, clipping and GradScaler: results against PyTorch on the CPU, calls of CANN, graphs, and that the host
waits for nothing. The lists below them are in test_foreach.py."""
from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch as judge
from torch.testing._internal.common_optimizers import optim_db

import mindtorch_v2 as torch

INFOS = {info.optim_cls.__name__: info for info in optim_db
         if hasattr(torch.optim, info.optim_cls.__name__) and not info.only_supports_sparse_grads}
CAPTURABLE = [name for name, info in INFOS.items() if info.has_capturable_arg]
SHAPES = [(3, 4), (5,), (2, 3, 2), ()]


def shapes_for(name: str) -> list[tuple[int, ...]]:
    return {"Muon": [(3, 4), (5, 6)], "Adafactor": SHAPES[:3]}.get(name, SHAPES)


def drawn(shapes: list[tuple[int, ...]], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(shape), dtype=np.float32) for shape in shapes]


def parameters(lib: Any, name: str, device: str) -> list[Any]:
    return [lib.nn.Parameter(lib.tensor(value).to(device)) for value in drawn(shapes_for(name), 0)]


def give_grads(lib: Any, params: list[Any], seed: int) -> None:
    for param, value in zip(params, drawn([tuple(p.shape) for p in params], seed), strict=True):
        grad = lib.tensor(value).to(param.device)
        param.grad = grad if param.grad is None else param.grad.copy_(grad)


def train(lib: Any, name: str, device: str, steps: int = 4, **options: Any) -> tuple[list[Any], Any]:
    params = parameters(lib, name, device)
    optimizer = getattr(lib.optim, name)(params, **options)
    for step in range(steps):
        give_grads(lib, params, step + 1)
        optimizer.step((lambda: sum((p * p).sum() for p in params)) if name == "LBFGS" else None)
    return params, optimizer


def same(ours: list[Any], theirs: list[Any], name: str = "") -> None:
    close = {"rtol": 0.02, "atol": 1e-3} if name == "Muon" else {"rtol": 2e-5, "atol": 2e-6}  # Muon works in bfloat16
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.detach().cpu().numpy(), other.detach().numpy(), **close)


def as_ours(value: Any, device: str) -> Any:
    if isinstance(value, judge.Tensor):
        return torch.tensor(value.numpy()).to(device)
    return tuple(as_ours(item, device) for item in value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("name", INFOS)
def test_options(name: str, device: str, npu: ModuleType) -> None:
    for given in INFOS[name].optim_inputs_func("cpu"):
        options = {k: v for k, v in given.kwargs.items() if k not in ("capturable", "foreach", "fused")}
        theirs, judged = train(judge, name, "cpu", **options)
        ours, optimizer = train(torch, name, device, **{k: as_ours(v, device) for k, v in options.items()})
        same(ours, theirs, name)
        for one, other in zip(ours, theirs, strict=True):
            state, wanted = optimizer.state[one], judged.state[other]
            assert set(state) == set(wanted)
            tensors = [key for key in wanted if isinstance(wanted[key], judge.Tensor)]
            for key in tensors if name not in ("LBFGS", "Muon") else []:
                np.testing.assert_allclose(state[key].detach().cpu().numpy(), wanted[key].numpy(), rtol=1e-4, atol=1e-6)


WAYS = ([(name, way, value) for name, info in INFOS.items() for way in ("foreach", "fused") for value in (True, False)
         if way in info.supported_impls] + [(name, "capturable", True) for name in CAPTURABLE] +
        [("Adam", "amsgrad", True), ("AdamW", "maximize", True)])


@pytest.mark.parametrize(("name", "option", "value"), WAYS)
def test_every_way_gives_the_same(name: str, option: str, value: bool, npu: ModuleType) -> None:
    common = {"weight_decay": 0.1} if name != "Rprop" else {}
    theirs, _ = train(judge, name, "cpu", **common, **({option: value} if option in ("amsgrad", "maximize") else {}))
    same(train(torch, name, "npu", **common, **{option: value})[0], theirs)


@pytest.mark.parametrize("name", ["Adam", "SGD", "RMSprop", "Adagrad", "NAdam"])
def test_differentiable_through_steps(name: str) -> None:
    def slope(lib: Any) -> list[float]:
        start = lib.tensor([0.5, -1.5], requires_grad=True)
        param, rate = start.clone(), lib.tensor(0.1, requires_grad=True)
        takes_rate = name in ("Adam", "NAdam", "SGD")        # PyTorch's others take no rate with a gradient
        optimizer = getattr(lib.optim, name)([param], lr=rate if takes_rate else 0.1, differentiable=True)
        param.grad = start * 2
        optimizer.step()
        found = lib.autograd.grad((param * param).sum(), [start, rate] if takes_rate else [start])
        return [x for g in found for x in g.reshape(-1).tolist()]
    assert slope(torch) == pytest.approx(slope(judge), rel=1e-4)


def test_state_goes_to_another_device_and_back(npu: ModuleType) -> None:
    for name in ("AdamW", "NAdam", "ASGD"):
        first, optimizer = train(torch, name, "cpu", 3)
        second = parameters(torch, name, "npu")
        for param, trained in zip(second, first, strict=True):
            param.data.copy_(trained)
        other = getattr(torch.optim, name)(second)
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for step in range(3, 5):
            give_grads(torch, second, step + 1)
            other.step()
        same(second, train(judge, name, "cpu", 5)[0])


# ---- what the host does ----------------------------------------------------------------------------------------------
@contextlib.contextmanager
def no_waits(npu: ModuleType) -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    npu.set_sync_debug_mode("error")
    try:
        yield
    finally:
        npu.set_sync_debug_mode("default")


# The line search of LBFGS reads its losses; the next rate of ASGD is a number of the host's, made of lr.
@pytest.mark.parametrize(("name", "tensor"), [(name, tensor) for name in INFOS for tensor in (False, True)
                                              if name != "LBFGS" and (name, tensor) != ("ASGD", True)])
def test_a_step_waits_for_nothing(name: str, tensor: bool, npu: ModuleType) -> None:
    params, optimizer = train(torch, name, "npu", 1, **({"lr": torch.tensor(0.01, device="npu")} if tensor else {}))
    give_grads(torch, params, 2)
    with no_waits(npu):
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert all(param.grad.count_nonzero() == 0 for param in params)


def launched(npu: ModuleType, folder: Path, body: Any) -> Counter[str]:
    """How often each op is launched by body, which is captured and not run."""
    graph = npu.NPUGraph()
    with npu.graph(graph):
        body()
    graph.enable_debug_mode()
    graph.debug_dump(str(folder / "graph.json"))
    return Counter(task["name"].removeprefix("aclnn") for task in json.loads((folder / "graph.json").read_text()))


CALLS = {
    ("AdamW", "capturable=True"): {"ForeachAddScalarV2": 1, "ForeachSubScalarV2": 1, "ApplyAdamWV2": 20},
    ("Adam", "capturable=True, weight_decay=0.1"): {
        "ForeachAddScalarV2": 1, "ForeachSubScalarV2": 1, "ForeachAddListV2": 2, "ApplyAdamWV2": 20},
    ("SGD", "momentum=0.9"): {"ForeachMulScalarV2": 1, "ForeachAddListV2": 2},
    ("SGD", "weight_decay=0.1, fused=True"): {"ForeachAddListV2": 3},
    ("RMSprop", "capturable=True"): {"ForeachMulScalarV2": 1, "ForeachAddcmulScalarV2": 2, "ForeachSqrt": 1,
                                     "ForeachAddScalarV2": 2, "ForeachAddcdivScalarV2": 2},
}


@pytest.mark.parametrize(("name", "options"), CALLS)
def test_calls(name: str, options: str, npu: ModuleType, tmp_path: Path) -> None:
    params = [torch.nn.Parameter(torch.ones(3, device="npu")) for _ in range(20)]
    optimizer = eval(f"torch.optim.{name}(params, {options})")
    for param in params:
        param.grad = torch.ones(3, device="npu")
    optimizer.step()
    assert launched(npu, tmp_path, optimizer.step) == CALLS[name, options]


@pytest.mark.parametrize("name", [*CAPTURABLE, "SGD"])
def test_replays_are_steps(name: str, npu: ModuleType) -> None:
    options = {"momentum": 0.9} if name == "SGD" else {"capturable": True}
    params, optimizer = train(torch, name, "npu", 1, **options)
    graph = npu.NPUGraph()
    with npu.graph(graph):
        optimizer.step()
    for step in range(1, 5):
        give_grads(torch, params, step + 1)
        graph.replay()
    options.pop("capturable", None)
    same(params, train(judge, name, "cpu", 5, **options)[0])
    if name != "SGD":
        assert all(optimizer.state[param]["step"].item() == 5 for param in params)


@pytest.mark.parametrize("name", CAPTURABLE)
def test_a_step_that_the_host_counts_is_not_captured(name: str, npu: ModuleType) -> None:
    _, optimizer = train(torch, name, "npu", 1)
    words = f"NPU graph capture of step.. for an instance of {name} but param_groups' capturable is False"
    with pytest.raises(RuntimeError, match=words), npu.graph(npu.NPUGraph()):
        optimizer.step()
    with pytest.raises(AssertionError, match="params and state_steps must be on supported devices"):
        train(torch, name, "cpu", 1, capturable=True)


OLDER = """
import mindtorch_v2 as torch
param = torch.nn.Parameter(torch.tensor([1.0, 2.0], device="npu"))
optimizer = torch.optim.AdamW([param, torch.nn.Parameter(torch.ones(2, device="npu"))], lr=0.1)
for other in optimizer.param_groups[0]["params"]:
    other.grad = torch.tensor([0.5, -0.5], device="npu")
optimizer.step()
torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 0.1)
print([round(x, 4) for x in param.tolist() + param.grad.tolist()])
"""


def test_an_older_soc_goes_without_the_fused_ops(npu: ModuleType, tmp_path: Path) -> None:
    """Only the simulator can be another SoC: a card ignores the setting, and gives the same numbers."""
    trace = tmp_path / "trace.json"
    env = os.environ | {"CANN_SIM_SOC": "Ascend910A", "CANN_SIM_TRACE": str(trace)}
    done = subprocess.run([sys.executable, "-c", OLDER], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0.899, 2.098, 0.05, -0.05]"
    if trace.exists():
        assert "Foreach" not in trace.read_text() and "ApplyAdam" not in trace.read_text()


# ---- clipping and loss scaling ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("device", ["cpu", "npu"])
@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("kind", [1.0, 2.0, 3.0, float("inf")])
def test_clipping(kind: float, foreach: bool | None, device: str, npu: ModuleType) -> None:
    def clipped(lib: Any, on: str) -> list[Any]:
        params = parameters(lib, "", on)
        give_grads(lib, params, 1)
        total = lib.nn.utils.clip_grad_norm_(params, 1.5, kind, foreach=foreach)
        lib.nn.utils.clip_grad_value_(params[:2], 0.05, foreach=foreach)
        return [total, lib.nn.utils.get_total_norm([p.grad for p in params], kind), *(p.grad for p in params)]
    same(clipped(torch, device), clipped(judge, "cpu"))


def test_calls_of_clipping(npu: ModuleType, tmp_path: Path) -> None:
    params = [torch.nn.Parameter(torch.ones(3, device="npu")) for _ in range(20)]
    for param in params:
        param.grad = torch.ones(3, device="npu")
    found = launched(npu, tmp_path, lambda: torch.nn.utils.clip_grad_norm_(params, 1.0))
    assert found["ForeachNorm"] == found["ForeachMulScalar"] == found["Stack"] == 1 and found.total() <= 8
    found = launched(npu, tmp_path, lambda: torch.nn.utils.clip_grad_value_(params, 1.0))
    assert found == {"ForeachMaximumScalarV2": 1, "ForeachMinimumScalarV2": 1}


@pytest.mark.parametrize("bad", [False, True])
def test_a_scaled_step_waits_once(bad: bool, npu: ModuleType) -> None:
    def step(lib: Any, on: str, caught: list[Any]) -> list[Any]:
        params = parameters(lib, "", on)
        optimizer, scaler = lib.optim.SGD(params, lr=0.1), lib.amp.GradScaler(on, init_scale=4.0, growth_interval=1)
        loss = scaler.scale(sum((p * p).sum() for p in params))
        loss.backward()
        params[0].grad[0, 0] = float("inf") if bad else 1.0
        caught.clear()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        caught[:] = [warning for warning in caught if "synchroniz" in str(warning.message)]
        return [*params, scaler._scale, scaler._growth_tracker]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        npu.set_sync_debug_mode("warn")
        try:
            ours = step(torch, "npu", caught)
        finally:
            npu.set_sync_debug_mode("default")
        assert len(caught) == 1
        same(ours, step(judge, "cpu", []))
