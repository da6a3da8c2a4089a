"""torch.npu.explain: waits with their lines, casts and copies that could go, fused ops that would serve, allocations."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch

F = torch.nn.functional
HERE = os.path.basename(__file__)


def line_of(text: str) -> str:
    """How a finding names the line of this file that has a mark."""
    number = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.endswith(f"# {text}"))
    return f"{HERE}:{number} in "


def part(found: Any, title: str) -> list[tuple[str, str, str]]:
    return dict(found.parts())[title]


def test_ops_of_forward_and_backward_with_times_and_memory(npu: ModuleType) -> None:
    layer = torch.nn.Linear(64, 32).npu()
    x = torch.randn(16, 64, device="npu")

    def step(x: Any) -> Any:
        loss = layer(x).square().mean()
        loss.backward()
        return loss

    found = npu.explain(step, x)
    rows = {row[0]: row for row in found.by_op()}
    assert found.result.numel() == 1 and found.name.endswith("step") and found.host > 0
    assert rows["linear"][1] == 1 and rows["mm"][1] >= 1, "backward's ops are there too"
    assert rows["linear"][2] > 0 and rows["linear"][3] > 0 and rows["linear"][5] >= 16 * 32 * 4
    assert found.waits == [] and found.fusions == []
    text = str(found)
    assert "Waits of the host: none" in text and "linear" in text.splitlines()[3] + text
    assert torch.npu.streams.streams.wait_observers == []


def test_waits_name_the_line_that_caused_them(npu: ModuleType) -> None:
    x = torch.randn(4, device="npu")

    def step() -> None:
        if x.sum().item() > 1e9:  # reads
            return
        x.cpu()  # copies
        npu.synchronize()  # synchronizes
        npu.current_stream().synchronize()  # waits for a stream
        (x > 0).nonzero()  # sizes

    found = npu.explain(step)
    lines = [(wait.what, os.path.basename(wait.line)) for wait in found.waits]
    expected = [("copy from npu to cpu", "reads"), ("copy from npu to cpu", "copies"), ("torch.npu.synchronize", "synchronizes"),
                ("Stream.synchronize", "waits for a stream"), ("aclnnNonzero", "sizes")]  # fmt: skip
    assert lines == [(what, line_of(mark) + "step") for what, mark in expected]


def test_casts_and_copies_that_could_go(npu: ModuleType) -> None:
    weight, batch = torch.ones(8, 8, device="npu"), torch.ones(8, 8)

    def step() -> None:
        half = weight.half()  # first cast
        weight.half()  # second cast
        half.float()  # back
        batch.npu()  # pageable
        batch.pin_memory().to("npu", non_blocking=True)
        weight.add_(1)
        weight.half()  # of other values

    texts = [(text, os.path.basename(line)) for _, text, line in part(npu.explain(step), "Casts and copies that could go")]
    assert sorted(texts) == sorted([
        (f"cast float32 to float16 of the same tensor [8, 8] again; first at {os.path.dirname(__file__)}/{line_of('first cast')}step",
         line_of("second cast") + "step"),
        ("cast float16 to float32, back to what [8, 8] was made from", line_of("back") + "step"),
        ("copy to the npu from pageable memory [8, 8]: the host waits; pin_memory() and non_blocking=True do not",
         line_of("pageable") + "step")])  # fmt: skip


def attention(x: Any) -> Any:
    return torch.softmax(x @ x.transpose(1, 2) / 8 + 1, -1) @ x


def rms_norm(x: Any) -> Any:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotary(x: Any) -> Any:
    left, right = x.chunk(2, -1)
    return x * 0.5 + torch.cat((-right, left), -1) * 0.5


FUSED = {
    "scaled_dot_product_attention": attention, "rms_norm": rms_norm, "npu_rotary_mul": rotary,
    "silu": lambda x: x * torch.sigmoid(x), "log_softmax": lambda x: x.softmax(-1).log(),
    "layer_norm": lambda x: (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),
    "npu_swiglu": lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1],
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 1.41421)),
    'gelu(x, approximate="tanh")': lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x.pow(3)))),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_chains_that_one_op_would_serve(npu: ModuleType, name: str) -> None:
    x = torch.randn(2, 4, 8, device="npu", requires_grad=True)
    found = npu.explain(lambda: FUSED[name](x).sum().backward())
    assert [f.serves.removeprefix("torch.nn.functional.").removeprefix("torch_npu.") for f in found.fusions] == [name]


def test_the_fused_ops_themselves_are_not_named(npu: ModuleType) -> None:
    x = torch.randn(2, 4, 8, device="npu")
    calls = (lambda: F.scaled_dot_product_attention(x, x, x), lambda: F.rms_norm(x, (8,)), lambda: F.gelu(x),
             lambda: F.layer_norm(x, (8,)), lambda: x * torch.sigmoid(x + 1), lambda: F.silu(x))  # fmt: skip
    assert [npu.explain(call).fusions for call in calls] == [[]] * len(calls)


def test_the_named_ops_exist() -> None:
    for recipe in (*torch._commands.explaining.fusions.RECIPES, torch._commands.explaining.fusions.SIBLINGS):
        name = recipe.serves.partition("(")[0].rpartition(".")[2]
        assert hasattr(torch.ops.npu if recipe.serves.startswith("torch_npu.") else F, name), recipe


def test_composites_and_first_calls(npu: ModuleType) -> None:
    x, target = torch.randn(8, 4, device="npu"), torch.zeros(8, dtype=torch.long, device="npu")
    found = npu.explain(lambda: F.cross_entropy(x, target))
    assert [text for _, text, _ in part(found, "Composites")] == ["cross_entropy_loss ran as _log_softmax, nll_loss_forward"]
    npu.empty_cache()
    cold = npu.explain(lambda: torch.empty(64 << 20, device="npu"), warmup=0)  # more than other tests' segments have left
    assert part(cold, "Allocator")[0][:2] == ("1", "segments taken from the device, which waits for it; a second call finds them cached")


def test_pages_and_traces(npu: ModuleType, tmp_path: Path) -> None:
    x = torch.randn(4, device="npu")
    found = npu.explain(lambda: (x + 1).sum().item())
    found.trace(str(tmp_path / "t.json"))
    names = [e["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert names.count("add") == 2 and "host wait: copy from npu to cpu" in names, "host and device"
    found.page(str(tmp_path / "page.html"))
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_a_function_that_raises_leaves_nothing_behind(npu: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError):
        npu.explain(lambda: 1 / 0, warmup=0)
    assert npu.streams.streams.wait_observers == []
    assert npu.explain(lambda: torch.ones(2, device="npu") + 1).records[-1].name == "add"
