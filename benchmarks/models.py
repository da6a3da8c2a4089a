"""Whole models, forward and training steps, for the table of run.py: the same code for both libraries, data of random numbers."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

Work = Callable[[], Any]


def _bottleneck(xp: ModuleType, channels: int, width: int, stride: int) -> Any:
    """A block of ResNet-50."""
    nn = xp.nn

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))  # fmt: skip
            self.shortcut = nn.Identity()
            if stride != 1 or channels != 4 * width:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))  # fmt: skip

        def forward(self, x: Any) -> Any:
            return xp.relu(self.body(x) + self.shortcut(x))

    return Bottleneck()


def resnet50(xp: ModuleType) -> Any:
    nn = xp.nn
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(_bottleneck(xp, channels, width, stride if i == 0 else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def mobilenet(xp: ModuleType) -> Any:
    """Depthwise and pointwise convolutions by turns, as in MobileNet."""
    nn = xp.nn
    layers: list[Any] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    channels = 32
    for out, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (1024, 2)):
        layers += [nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), nn.BatchNorm2d(channels),
                   nn.ReLU6(), nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU6()]  # fmt: skip
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 1000))


def unet(xp: ModuleType) -> Any:
    nn = xp.nn

    def double(a: int, b: int) -> Any:
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.middle = double(3, 32), double(32, 64), double(64, 128)
            self.up2, self.up1 = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
            self.join2, self.join1, self.head = double(128, 64), double(64, 32), nn.Conv2d(32, 2, 1)
            self.pool = nn.MaxPool2d(2)

        def forward(self, x: Any) -> Any:
            first = self.down1(x)
            second = self.down2(self.pool(first))
            x = self.join2(xp.cat([self.up2(self.middle(self.pool(second))), second], 1))
            return self.head(self.join1(xp.cat([self.up1(x), first], 1)))

    return UNet()


def gpt_block(xp: ModuleType, dtype: Any = None, hidden: int = 768, heads: int = 12) -> Any:
    """One block of GPT-2."""
    nn, f = xp.nn, xp.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x: Any, past: Any = None) -> Any:
            n, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4).unbind(0)
            if past is not None:
                k, v = xp.cat([past[0], k], 2), xp.cat([past[1], v], 2)
            y = f.scaled_dot_product_attention(q, k, v, is_causal=past is None)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, hidden))
            return x + self.narrow(f.gelu(self.wide(self.norm2(x)), approximate="tanh"))

    block = Block()
    return block if dtype is None else block.to(dtype)


def _forward(xp: ModuleType, model: Any, *given: Any) -> Work:
    def work() -> Any:
        with xp.no_grad():
            return model(*given)

    return work


def _step(xp: ModuleType, model: Any, *given: Any) -> Work:
    """Forward, backward and an update."""
    optimizer = xp.optim.SGD(model.parameters(), lr=1e-6)

    def work() -> None:
        optimizer.zero_grad()
        made = model(*given)
        (made[0] if isinstance(made, tuple) else made).float().square().mean().backward()
        optimizer.step()

    return work


def models(xp: ModuleType) -> dict[str, Work]:
    image, photo, text = xp.rand(8, 3, 224, 224), xp.rand(4, 3, 96, 96), xp.rand(2, 256, 768)
    half, token = text.to(xp.bfloat16), xp.rand(1, 1, 768)
    past = (xp.rand(1, 12, 256, 64), xp.rand(1, 12, 256, 64))
    sequence, small = xp.rand(64, 16, 128), xp.rand(8, 64, 64)
    resnet, mobile, block, lstm = resnet50(xp), mobilenet(xp), gpt_block(xp), xp.nn.LSTM(128, 256)
    return {
        "ResNet-50, forward": _forward(xp, resnet, image),
        "ResNet-50, step": _step(xp, resnet, image),
        "MobileNet, forward": _forward(xp, mobile, image),
        "MobileNet, step": _step(xp, mobile, image),
        "UNet, step": _step(xp, unet(xp), photo),
        "GPT-2 block, step": _step(xp, block, text),
        "GPT-2 block bf16, step": _step(xp, gpt_block(xp, xp.bfloat16), half),
        "GPT-2 block, decode": _forward(xp, block, token, past),
        "GPT hidden 64, step": _step(xp, gpt_block(xp, None, 64, 4), small),
        "LSTM 128 -> 256, forward": _forward(xp, lstm, sequence),
        "LSTM 128 -> 256, step": _step(xp, lstm, sequence),
        "DataLoader, 1024 samples": _loading(xp),
    }


def _loading(xp: ModuleType) -> Work:
    data = xp.utils.data.TensorDataset(xp.rand(1024, 64), xp.arange(1024))
    loader = xp.utils.data.DataLoader(data, batch_size=32, shuffle=True)
    return lambda: [None for _ in loader]


def indexing(xp: ModuleType) -> dict[str, Work]:
    x, rows = xp.rand(200000, 32), xp.randint(0, 200000, (100000,))
    total, mask, values = xp.zeros(200000, 32), xp.rand(200000, 32) > 0.5, xp.rand(100000, 32)

    def masked() -> None:
        total[mask] = 0.0

    return {
        "x[i]": lambda: x[rows],
        "index_add_": lambda: total.index_add_(0, rows, values),
        "x[mask] = 0": masked,
        "x[mask]": lambda: x[mask],
        "topk": lambda: x.topk(8, 1),
        "gather": lambda: x.gather(0, rows[:, None].expand(-1, 32)),
    }
