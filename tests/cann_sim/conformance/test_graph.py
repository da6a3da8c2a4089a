"""Graph capture and replay through torch.npu.NPUGraph."""

from __future__ import annotations

import os

import pytest
import torch
import torch_npu

pytestmark = pytest.mark.skipif(
    os.environ.get("TASK_QUEUE_ENABLE") == "2", reason="torch_npu does not capture with TASK_QUEUE_ENABLE=2"
)


def test_replay_computes_with_new_inputs() -> None:
    x, w = torch.ones(8, 8, device="npu"), torch.randn(8, 8, device="npu")
    y = torch.relu(x @ w) + 1  # what capture needs is allocated and resolved
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch.relu(x @ w) + 1
    for value in (1.0, -2.0, 3.0):
        x.fill_(value)
        graph.replay()
        torch.npu.synchronize()
        expected = torch.relu(torch.full((8, 8), value) @ w.cpu()) + 1
        torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_capture_does_not_run() -> None:
    counter = torch.zeros(1, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        counter.add_(1)
    torch.npu.synchronize()
    assert counter.item() == 0
    for _ in range(3):
        graph.replay()
    torch.npu.synchronize()
    assert counter.item() == 3


def test_a_training_step_replays() -> None:
    torch.manual_seed(0)
    weight = torch.randn(4, 4, device="npu", requires_grad=True)
    x = torch.randn(8, 4, device="npu")

    def step() -> torch.Tensor:
        loss = (x @ weight).square().mean()
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(gradient, alpha=0.1)
        return loss

    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        step()
    torch.npu.current_stream().wait_stream(side)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        loss = step()
    found = []
    for _ in range(5):
        graph.replay()
        found.append(loss.item())
    assert all(later < earlier for earlier, later in zip(found, found[1:]))


def test_lengths_of_attention_are_updated() -> None:
    """What was captured with 2 keys is replayed with 4: torch_npu asks for the largest workspace, and updates the task group."""
    q, k = (torch.randn(1, 2, n, 128, dtype=torch.float16, device="npu") for n in (1, 4))
    attend = lambda keys: torch_npu.npu_fused_infer_attention_score(
        q, k, k, num_heads=2, input_layout="BNSD", scale=0.1, actual_seq_lengths_kv=[keys])[0]  # fmt: skip
    expected = attend(4)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        found = attend(2)
    graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [4]}])
    graph.replay()
    torch.npu.synchronize()
    torch.testing.assert_close(found.cpu(), expected.cpu())
