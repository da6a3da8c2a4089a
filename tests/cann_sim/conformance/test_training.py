"""Whole networks: gradients, optimizers and losses on npu follow those of torch on the CPU step by step."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(8 * 16, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x.float().view(-1, 1, 8, 8) / 50)


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layer(self.embed(x))).mean(1))


def losses(model: nn.Module, device: str, steps: int, optimizer: Callable[..., torch.optim.Optimizer]) -> list[float]:
    model = copy.deepcopy(model).to(device)
    optimizer = optimizer(model.parameters())
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(steps):
        x = torch.randint(0, 50, (16, 64), generator=generator)
        loss = nn.functional.cross_entropy(model(x.to(device)), (x.sum(1) % 10).to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "adamw loop": lambda p: torch.optim.AdamW(p, lr=1e-2, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-1, momentum=0.9),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", [Classifier, Language])
def test_losses_follow_the_cpu(network: type[nn.Module], optimizer: str) -> None:
    torch.manual_seed(0)
    model = network()
    cpu, npu = (losses(model, device, 15, OPTIMIZERS[optimizer]) for device in ("cpu", "npu"))
    assert npu == pytest.approx(cpu, rel=2e-3)
    assert npu[-1] < npu[0]


def test_every_gradient_agrees() -> None:
    torch.manual_seed(0)
    model, x = Language(), torch.randint(0, 50, (4, 12))
    gradients = []
    for device in ("cpu", "npu"):
        moved = copy.deepcopy(model).to(device)
        moved(x.to(device)).square().sum().backward()
        gradients.append({name: p.grad.cpu() for name, p in moved.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-4)


def test_clipping_and_autocast() -> None:
    model = nn.Linear(8, 8).npu()
    with torch.autocast("npu", dtype=torch.bfloat16):
        out = model(torch.randn(4, 8, device="npu"))
        assert out.dtype == torch.bfloat16
        loss = out.float().square().sum() * 100
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    norm = torch.sqrt(sum(p.grad.square().sum() for p in model.parameters())).item()
    assert norm == pytest.approx(1.0, rel=1e-2)


def test_a_saved_model_loads_on_the_npu(tmp_path: object) -> None:
    model = nn.Linear(3, 2).npu()
    torch.save(model.state_dict(), f"{tmp_path}/model.pt")
    loaded = torch.load(f"{tmp_path}/model.pt", map_location="npu:1")
    assert loaded["weight"].device.index == 1
    assert torch.equal(loaded["weight"].cpu(), model.weight.detach().cpu())
