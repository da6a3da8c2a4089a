"""Times the shapes of real networks beside PyTorch at several numbers of threads and prints the worst ratios first.

With --ops some 900 expressions of all families of ops instead. A ratio is PyTorch's time over ours. A second table shows
where more threads are slower than fewer.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from op_lines import op_works

Work = Callable[[], Any]

# name: (images, channels, size, filters, kernel, stride, padding, groups), ...
CONVOLUTIONS = {
    "ResNet": [(8, 3, 224, 64, 7, 2, 3, 1)] + [
        (8, c, s, k, size, stride, size // 2, 1) for c, s, k, size, stride in (
            (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1), (256, 56, 128, 1, 1),
            (128, 56, 128, 3, 2), (256, 56, 512, 1, 2), (128, 28, 128, 3, 1), (128, 28, 512, 1, 1), (512, 28, 128, 1, 1),
            (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (512, 28, 1024, 1, 2), (256, 14, 256, 3, 1), (256, 14, 1024, 1, 1),
            (1024, 14, 256, 1, 1), (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (1024, 14, 2048, 1, 2), (512, 7, 512, 3, 1),
            (512, 7, 2048, 1, 1), (2048, 7, 512, 1, 1))],
    "ConvNeXt": [(4, 3, 224, 96, 4, 4, 0, 1)] + [
        (4, c, s, c, 7, 1, 3, c) for c, s in ((96, 56), (192, 28), (384, 14), (768, 7))] + [
        (4, c, s, 2 * c, 2, 2, 0, 1) for c, s in ((96, 56), (192, 28), (384, 14))],
    "MobileNet": [(8, 3, 224, 32, 3, 2, 1, 1)] + [
        (8, c, s, c, 3, stride, 1, c) for c, s, stride in (
            (32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1), (192, 28, 2), (384, 14, 1), (576, 14, 2),
            (960, 7, 1))] + [
        (8, c, s, k, 1, 1, 0, 1) for c, s, k in (
            (32, 112, 16), (16, 112, 96), (96, 56, 24), (24, 56, 144), (144, 28, 32), (32, 28, 192), (384, 14, 64),
            (64, 14, 384), (576, 7, 160), (960, 7, 320), (320, 7, 1280))],
    "EfficientNet": [(4, c, s, c, 5, 1, 2, c) for c, s in ((144, 56), (240, 28), (672, 14), (1152, 7))] + [
        (4, c, 1, k, 1, 1, 0, 1) for c, k in ((96, 4), (1152, 48), (48, 1152))],
    "UNet": [(1, c, s, k, 3, 1, 1, 1) for c, s, k in (
        (3, 256, 64), (64, 256, 64), (64, 128, 128), (128, 64, 256), (256, 32, 512), (512, 16, 1024), (1024, 16, 512),
        (512, 32, 256), (256, 64, 128), (128, 128, 64))],
    "odd": [(1, 3, 17, 5, 3, 1, 1, 1), (3, 13, 31, 29, 3, 1, 0, 1), (2, 48, 19, 50, 5, 2, 2, 1), (7, 33, 9, 65, 3, 2, 1, 1),
            (1, 512, 4, 512, 3, 1, 1, 1), (16, 20, 6, 40, 2, 1, 0, 1), (5, 30, 15, 60, 3, 1, 1, 3), (1, 1, 300, 1, 9, 1, 4, 1)],
}
PRODUCTS = {
    "square": [(n, n, n) for n in (32, 64, 100, 128, 200, 256, 384, 512, 768, 1000, 1024, 1536, 2048)],
    "ViT": [(197 * b, k, n) for b in (1, 8) for k, n in ((768, 2304), (768, 768), (768, 3072), (3072, 768))],
    "Whisper": [(1500, 512, 512), (1500, 512, 2048), (1500, 2048, 512), (1, 512, 51865)],
    "Llama": [(tokens, k, n) for tokens in (1, 16, 128) for k, n in ((2048, 2048), (2048, 5632), (5632, 2048))],
    "odd": [(7, 1000, 3), (1000, 3, 1000), (33, 17, 129), (1, 4096, 1), (4096, 1, 4096), (13, 13, 5000)],
}
ROWS = [(64, 64), (128, 768), (197 * 8, 768), (512, 1024), (2048, 2048), (1024, 50257), (8, 1 << 20), (1 << 16, 8), (300, 777)]
PLANES = [(8, 64, 112), (8, 128, 56), (8, 256, 28), (8, 512, 14), (8, 1024, 7), (1, 3, 512)]
RECURRENT = [(64, 16, 128, 256), (128, 1, 256, 256), (32, 64, 64, 64), (16, 32, 512, 512)]


def convolutions(xp: ModuleType, train: bool) -> Iterator[tuple[str, Work]]:
    conv = xp.nn.functional.conv2d
    for net, shapes in CONVOLUTIONS.items():
        for shape in shapes:
            n, c, size, k, kernel, stride, padding, groups = shape
            x = xp.randn(n, c, size, size, requires_grad=train)
            w = xp.randn(k, c // groups, kernel, kernel, requires_grad=train)
            if not train:
                yield f"conv {net} {shape}", lambda x=x, w=w, a=(None, stride, padding, 1, groups): conv(x, w, *a)
                continue
            y = conv(x, w, None, stride, padding, 1, groups)
            grad = xp.ones_like(y)
            yield f"conv backward {net} {shape}", lambda y=y, i=(x, w), g=grad: xp.autograd.grad(y, i, g, retain_graph=True)


def products(xp: ModuleType) -> Iterator[tuple[str, Work]]:
    for net, shapes in PRODUCTS.items():
        for m, k, n in shapes:
            a, b = xp.randn(m, k), xp.randn(n, k)
            yield f"linear {net} {(m, k, n)}", lambda a=a, b=b: xp.nn.functional.linear(a, b)
    for batch, n in ((64, 128), (12, 512), (96, 64)):
        a, b = xp.randn(batch, n, 64), xp.randn(batch, 64, n)
        yield f"bmm {(batch, n, 64)}", lambda a=a, b=b: xp.bmm(a, b)
    for dtype in ("bfloat16", "float16"):
        for n in (256, 1024):
            a = xp.randn(n, n).to(getattr(xp, dtype))
            yield f"matmul {dtype} {n}", lambda a=a: a @ a


def rows(xp: ModuleType) -> Iterator[tuple[str, Work]]:
    f = xp.nn.functional
    for shape in ROWS:
        x, weight = xp.randn(*shape), xp.ones(shape[1])
        yield f"layer_norm {shape}", lambda x=x, w=weight: f.layer_norm(x, (x.shape[1],), w, w)
        yield f"softmax {shape}", lambda x=x: xp.softmax(x, -1)
        yield f"sum rows {shape}", lambda x=x: x.sum(1)
        yield f"sum columns {shape}", lambda x=x: x.sum(0)
        yield f"max rows {shape}", lambda x=x: x.max(1)
        yield f"mean {shape}", lambda x=x: x.mean()
        yield f"cumsum {shape}", lambda x=x: x.cumsum(1)
        yield f"gelu {shape}", lambda x=x: f.gelu(x)


def planes(xp: ModuleType) -> Iterator[tuple[str, Work]]:
    f = xp.nn.functional
    for n, c, size in PLANES:
        x, weight = xp.randn(n, c, size, size), xp.ones(c)
        yield f"batch_norm {(n, c, size)}", lambda x=x, w=weight: f.batch_norm(x, None, None, w, w, True)
        yield f"max_pool2d {(n, c, size)}", lambda x=x: f.max_pool2d(x, 3, 2, 1)
        yield f"avg_pool2d {(n, c, size)}", lambda x=x: f.avg_pool2d(x, 2)
        yield f"adaptive_avg_pool2d {(n, c, size)}", lambda x=x: f.adaptive_avg_pool2d(x, 1)
        yield f"interpolate {(n, c, size)}", lambda x=x: f.interpolate(x, scale_factor=0.5, mode="bilinear")
        if c % 32 == 0:
            yield f"group_norm {(n, c, size)}", lambda x=x, w=weight: f.group_norm(x, 32, w, w)


def recurrent(xp: ModuleType) -> Iterator[tuple[str, Work]]:
    for steps, batch, inputs, hidden in RECURRENT:
        x = xp.randn(steps, batch, inputs)
        for kind in ("LSTM", "GRU", "RNN"):
            layer = getattr(xp.nn, kind)(inputs, hidden)
            yield f"{kind} {(steps, batch, inputs, hidden)}", lambda m=layer, x=x: m(x)
            yield f"{kind} train {(steps, batch, inputs, hidden)}", lambda m=layer, x=x: m(x)[0].sum().backward()


def works(xp: ModuleType) -> Iterator[tuple[str, Work]]:
    yield from convolutions(xp, False)
    yield from convolutions(xp, True)
    for family in (products, rows, planes, recurrent):
        yield from family(xp)


def seconds(work: Work, budget: float) -> float:
    """The median of several calls, of which there are as many as the budget has time for."""
    time.sleep(0.03)  # until the threads of the other library have stopped polling for work: on some processors after 16 ms
    work()
    taken: list[float] = []
    end = time.perf_counter() + budget
    while len(taken) < 3 or (time.perf_counter() < end and len(taken) < 50):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", action="store_true", help="ops of all families, at three sizes")
    parser.add_argument("--threads", type=int, nargs="*", help="1, 2, 4 … up to the processors of this machine")
    parser.add_argument("--only", default="", help="lines whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="one line of so many")
    parser.add_argument("--budget", type=float, default=0.05, help="seconds for each line, library and number of threads")
    parser.add_argument("--worst", type=int, default=60, help="how many lines to print")
    args = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    counts = args.threads or [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= cores]
    torch, ours = importlib.import_module("torch"), importlib.import_module("mindtorch_v2")
    made = op_works if args.ops else works
    found: dict[str, dict[int, tuple[float, float]]] = {}
    try:
        for i, ((name, theirs), (_, mine)) in enumerate(zip(made(torch), made(ours), strict=True)):
            if args.only not in name or i % args.every:
                continue
            for threads in counts:
                torch.set_num_threads(threads)
                ours.set_num_threads(threads)
                times = seconds(theirs, args.budget), seconds(mine, args.budget)
                found.setdefault(name, {})[threads] = times
    except KeyboardInterrupt:  # the table of what was timed so far
        found = {name: by for name, by in found.items() if len(by) == len(counts)}
    lines = sorted((theirs / mine, threads, name, mine) for name, by in found.items() for threads, (theirs, mine) in by.items())
    print(f"{'ratio':>6} {'threads':>7} {'ours':>10}")
    for ratio, threads, name, mine in lines[:args.worst]:
        print(f"{ratio:6.2f} {threads:7} {mine * 1e3:7.2f} ms  {name}")
    for threads in counts:
        ratios = [ratio for ratio, n, _, _ in lines if n == threads]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{threads} threads: {len(ratios)} lines, geometric mean {mean:.2f}, {sum(r < 1 for r in ratios)} below 1")
    slower = sorted(((by[more][1] / by[fewer][1], name, fewer, more) for name, by in found.items()
                     for fewer in counts for more in counts if fewer < more and by[more][1] > 1.1 * by[fewer][1]), reverse=True)
    print(f"{len(slower)} cases in which more threads are slower by over 10 %")
    for times, name, fewer, more in slower[:args.worst]:
        print(f"{times:6.2f} times slower with {more} threads than with {fewer}: {name}")


if __name__ == "__main__":
    main()
