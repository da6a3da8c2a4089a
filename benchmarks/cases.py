"""The lines of the table: what is timed, and how many times faster than PyTorch it has to be.

A group's `make` takes the library as `xp`, prepares the operands and returns the works by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from models import indexing, models

Work = Callable[[], Any]
N = 4096


@dataclass(frozen=True)
class Group:
    """A part of the table; a ratio is PyTorch's time over ours."""

    title: str
    make: Callable[[ModuleType], dict[str, Work]]
    at_least: float | None  # on every line; None: reported only
    mean: float | None = None  # in the geometric mean
    lines: dict[str, float] = field(default_factory=dict)  # lines with a target of their own


def small(xp: ModuleType) -> dict[str, Work]:
    a, b, m, weight, bias = xp.rand(4), xp.rand(4), xp.rand(4, 4), xp.rand(4, 4), xp.rand(4)
    f = xp.nn.functional
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "add scalar": lambda: a + 1.5,
        "relu": lambda: xp.relu(a),
        "exp": lambda: xp.exp(a),
        "sum": lambda: a.sum(),
        "matmul 4x4": lambda: xp.matmul(m, weight),
        "x[0]": lambda: m[0],
        "view": lambda: m.view(2, 8),
        "transpose": lambda: m.transpose(0, 1),
        "zeros": lambda: xp.zeros(4),
        "empty": lambda: xp.empty(4),
        "softmax 4x4": lambda: xp.softmax(m, 1),
        "linear": lambda: f.linear(m, weight, bias),
    }


def autograd(xp: ModuleType) -> dict[str, Work]:
    a, b = xp.rand(4, requires_grad=True), xp.rand(4, requires_grad=True)
    return {
        "a*b, recorded": lambda: a * b,
        "(a*b).sum().backward()": lambda: (a * b).sum().backward(),
    }


def training(xp: ModuleType) -> dict[str, Work]:
    nn = xp.nn
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = xp.optim.SGD(model.parameters(), lr=0.01)
    x, y = xp.rand(32, 64), xp.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return {"step": step}


def samples(xp: ModuleType) -> dict[str, Work]:
    """Gradients of each sample of a batch, and second derivatives."""
    xp.manual_seed(0)
    functional = xp.nn.functional
    weights = {"w1": xp.randn(64, 32), "b1": xp.zeros(64), "w2": xp.randn(10, 64), "b2": xp.zeros(10)}
    x, y, v = xp.randn(64, 32), xp.randint(0, 10, (64,)), xp.randn(16)

    def loss(p: dict[str, Any], one: Any, label: Any) -> Any:
        hidden = functional.linear(one, p["w1"], p["b1"]).relu()
        return functional.cross_entropy(functional.linear(hidden, p["w2"], p["b2"]).unsqueeze(0), label.unsqueeze(0))

    def energy(z: Any) -> Any:
        return (z.tanh() * z.roll(1, 0)).sum()
    each = xp.func.vmap(xp.func.grad(loss), in_dims=(None, 0, 0))
    hessian = xp.func.hessian(energy)
    return {"vmap(grad), MLP": lambda: each(weights, x, y), "hessian, 16": lambda: hessian(v)}


def large(xp: ModuleType) -> dict[str, Work]:
    a, b, weight, bias = xp.rand(N, N), xp.rand(N, N), xp.rand(N), xp.rand(N)
    mask, f = a > 0.5, xp.nn.functional
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "exp": lambda: a.exp(),
        "tanh": lambda: a.tanh(),
        "gelu": lambda: f.gelu(a),
        "softmax": lambda: xp.softmax(a, 1),
        "layer_norm": lambda: f.layer_norm(a, (N,), weight, bias),
        "sum": lambda: a.sum(),
        "sum(dim=0)": lambda: a.sum(0),
        "max": lambda: a.max(),
        "mean": lambda: a.mean(),
        "cumsum": lambda: a.cumsum(1),
        "transpose-copy": lambda: a.t().contiguous(),
        "where": lambda: xp.where(mask, a, b),
        "float->bf16": lambda: a.to(xp.bfloat16),
    }


def reused(xp: ModuleType) -> dict[str, Work]:
    a, b, out, row = xp.rand(N, N), xp.rand(N, N), xp.empty(N, N), xp.empty(N)
    mask, half = a > 0.5, xp.empty(N, N, dtype=xp.bfloat16)
    return {
        "add": lambda: xp.add(a, b, out=out),
        "mul": lambda: xp.mul(a, b, out=out),
        "exp": lambda: xp.exp(a, out=out),
        "tanh": lambda: xp.tanh(a, out=out),
        "softmax": lambda: xp.softmax(a, 1, out=out),
        "sum(dim=0)": lambda: xp.sum(a, 0, out=row),
        "cumsum": lambda: xp.cumsum(a, 1, out=out),
        "transpose-copy": lambda: out.copy_(a.t()),
        "where": lambda: xp.where(mask, a, b, out=out),
        "float->bf16": lambda: half.copy_(a),
    }


def heavy(xp: ModuleType) -> dict[str, Work]:
    f = xp.nn.functional
    squares = {n: (xp.rand(n, n), xp.rand(n, n)) for n in (256, 1024, 2048)}
    left, right = xp.rand(64, 128, 128), xp.rand(64, 128, 128)
    image, kernel = xp.rand(32, 64, 56, 56), xp.rand(64, 64, 3, 3)
    table, rows = xp.rand(50000, 256), xp.randint(0, 50000, (64, 128))
    logits, labels = xp.rand(512, 32000), xp.randint(0, 32000, (512,))
    q, k, v = (xp.rand(1, 8, 512, 64) for _ in range(3))
    works: dict[str, Work] = {
        f"matmul {n}": (lambda x=x, y=y: xp.matmul(x, y)) for n, (x, y) in squares.items()
    }
    return works | {
        "bmm 64x128x128x128": lambda: xp.bmm(left, right),
        "conv2d 32x64x56x56 k3": lambda: f.conv2d(image, kernel, padding=1),
        "embedding 8192 of 50000x256": lambda: f.embedding(rows, table),
        "cross entropy 512x32000": lambda: f.cross_entropy(logits, labels),
        "attention 8x512x64": lambda: f.scaled_dot_product_attention(q, k, v),
    }


GROUPS = {
    "small": Group("small tensors: host cost", small, 4, mean=8),
    "autograd": Group("autograd on 4 elements", autograd, 8, lines={"(a*b).sum().backward()": 15}),
    "training": Group("2-layer MLP, batch 32, hidden 64, SGD", training, 3),
    "samples": Group("torch.func: batch of 64, hidden 64", samples, 1.5),
    "large": Group("4096 x 4096 float32, fresh output", large, 1, mean=2),
    "out": Group("4096 x 4096 float32, reused output (out=)", reused, None),
    "heavy": Group("matmul, convolution, embedding, loss, attention", heavy, 1),
    "indexing": Group("indexing, 200000 x 32", indexing, 1),
    "models": Group("whole models", models, 1, mean=1.2),
}
