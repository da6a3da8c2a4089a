"""Small programs that torch.fx traces, written once for both libraries: functions of the library that give a root."""
from __future__ import annotations

import collections
import math
import operator
import typing
from collections.abc import Callable
from typing import Any


class Pair(typing.NamedTuple):
    """A result that is a named tuple."""

    left: Any
    right: Any


def leaf(a: Any, b: Any) -> Any:
    """A function that wrap() records whole; the tests wrap it."""
    return a + b if isinstance(a, int) else a * b


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    F, const = torch.nn.functional, torch.ones(3)

    def defaults(x: Any, y: int = 2, *args: Any, z: Any = None, **kw: Any) -> Any:
        return x + y + args[0] + kw["k"], z

    def typed(x: typing.List[int], y: float | None, z: dict[str, int]) -> typing.Tuple[int, ...]:   # noqa: UP006
        return x[0], y

    def unpacked(x: Any) -> Any:
        a, (b, c) = x
        return a + b * c

    def loop(x: Any) -> Any:
        for i in range(3):
            x = x * i
        return x

    def unused(x: Any, y: Any) -> Any:
        torch.sigmoid(x)
        return y

    return {
        "operators": lambda x, y: (x + y, x - 2, 2 - x, x * y, x / 2, 2 / x, x // y, x % 2, x ** 2, 2 ** x, x @ y, -x, +x, ~x),
        "comparisons": lambda x, y: (x < y, x <= 1, x > y, x >= 1, x == y, x != y),
        "bits": lambda x: (x & 1, x | 2, x ^ 3, x << 1, x >> 1, 1 & x),
        "index": lambda x: x[1:, ..., None, 2] + x[x.size(0)][0],
        "methods": lambda x: x.view(-1, 2).transpose(0, 1).contiguous().sum(dim=-1, keepdim=True),
        "attributes": lambda x: x.shape[0] + x.foo.bar,
        "torch functions": lambda x, y: torch.cat([torch.relu(x), torch.sigmoid(y)], dim=1),
        "nn functions": lambda x: F.relu(F.dropout(F.max_pool2d(x, 2), 0.5, training=False), inplace=True),
        "losses": lambda x, y: F.cross_entropy(x, y) + F.mse_loss(x, y, reduction="sum"),
        "linear and conv": lambda x, w: F.conv2d(F.linear(x, w), w, None, stride=2),
        "softmax": lambda x: F.log_softmax(F.softmax(x, dim=-1), -1) + F.layer_norm(x, (3,)),
        "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "constants": lambda x: x + const + const * x,
        "a new tensor": lambda x: x + torch.ones(2, 3),
        "numbers": lambda x: (x + float("inf"), x + float("nan"), x + 1j, x + True, x + 1.5),
        "dtypes": lambda x: x.to(torch.float32, memory_format=torch.channels_last).to(device=torch.device("cpu")),
        "containers": lambda x, y: {"a": (x, [y, {"b": x}]), "c": slice(x, 2, None)},
        "named tuple": lambda x: Pair(x, x + 1),
        "ordered dict": lambda x: collections.OrderedDict(a=x),
        "math": lambda x: math.sqrt(x.size(0)) + math.floor(2.5),
        "defaults": defaults,
        "types": typed,
        "unpacking": unpacked,
        "loop": loop,
        "unused values": unused,
        "in place": lambda x, y: (x.add_(y), operator.iadd(x, 1)),
        "reserved names": lambda input, id: input.sum() + id.max() + input.len(),
        "call": lambda f, x: f(x, k=x),
        "abs": lambda x: abs(x),
        "whole result": lambda x: x,
        "no result": lambda x: None,
        "a string": lambda: "text",
        "assertion": lambda x: torch._assert(x.size(0) == 2, "two"),
        "fft": lambda x: torch.fft.fft(x) + torch.linalg.norm(x),
        "ops": lambda x: torch.ops.aten.relu.default(torch.ops.aten.sigmoid(x)),
        "stack": lambda x: torch.stack((x, x), 0).max(dim=1)[0],
        "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
        "ranges": lambda x: x[list(range(2))].expand(2, x.size(-1)),
    }


def modules(torch: Any) -> dict[str, Any]:
    nn = torch.nn

    class Block(nn.Module):   # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.scale = nn.Parameter(torch.ones(4))
            self.register_buffer("shift", torch.zeros(4))
            self.plain = torch.ones(4)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.lin(x) * self.scale + self.shift) + self.plain

    class Net(nn.Module):   # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.Second = Block(), nn.Sequential(nn.ReLU(), Block(), nn.Dropout(0.1))
            self.items = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.named = nn.ModuleDict({"PascalCase": nn.Tanh(), "a_b": nn.GELU()})

        def forward(self, x: Any) -> Any:
            x = self.Second(self.first(x))
            for item in self.items:
                x = item(x) + self.first.scale
            return self.named["a_b"](self.named["PascalCase"](x)) @ self.first.lin.weight

    return {"block": Block(), "net": Net(), "sequential": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            "one layer": nn.Linear(2, 3), "embedding": nn.Embedding(3, 4)}
