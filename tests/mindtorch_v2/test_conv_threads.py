"""Convolutions give torch's numbers with any number of threads: which way is taken depends on it."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import mindtorch_v2 as mt

# images, channels, height, width, filters, kernel, stride, padding
SHAPES = {
    "Winograd, few tiles": (2, 64, 7, 7, 70, 3, 1, 1),
    "Winograd, odd width": (3, 33, 14, 17, 40, 3, 1, 0),
    "Winograd, many tiles": (2, 16, 40, 41, 18, 3, 1, 1),
    "1x1 of a small plane": (5, 70, 7, 7, 66, 1, 1, 0),
    "1x1 of a large plane": (1, 24, 40, 33, 20, 1, 1, 0),
    "1x1 with a stride": (3, 20, 13, 9, 24, 1, 2, 0),
    "1x1 that leaves columns": (2, 8, 8, 10, 6, 1, 3, 0),
    "3x3 with a stride": (3, 12, 15, 14, 10, 3, 2, 1),
    "5x5": (2, 7, 11, 12, 9, 5, 1, 2),
    "many weights, a small plane": (3, 120, 9, 8, 130, 3, 2, 1),
    "many weights, a large plane": (2, 48, 40, 38, 50, 5, 2, 2),
    "many filters, few images": (1, 6, 40, 30, 100, 5, 1, 2),
    "few channels, a large plane": (1, 3, 70, 65, 12, 3, 1, 1),
    "few channels with a stride": (2, 3, 66, 70, 8, 5, 2, 2),
    "few outputs": (1, 130, 4, 5, 140, 3, 1, 1),
}


@pytest.fixture(params=[1, 2, 16])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = mt.get_num_threads()
    mt.set_num_threads(request.param)
    yield request.param
    mt.set_num_threads(before)


def outcome(lib, shape, dtype, transposed):
    n, c, h, w, k, size, stride, padding = shape
    draw = torch.Generator().manual_seed(7)
    values = [torch.randn(s, generator=draw, dtype=torch.float64)
              for s in ((n, c, h, w), (c, k, size, size) if transposed else (k, c, size, size), (k,))]
    x, weight, bias = (lib.tensor(v.numpy(), dtype=getattr(lib, dtype), requires_grad=True) for v in values)
    f = lib.nn.functional
    y = (f.conv_transpose2d if transposed else f.conv2d)(x, weight, bias, stride=stride, padding=padding)
    (y * (lib.arange(y.numel(), dtype=y.dtype).reshape(y.shape) % 5)).sum().backward()
    return [t.detach().double() for t in (y, x.grad, weight.grad, bias.grad)]


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "transposed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients(shape, dtype, transposed, threads):
    for name, ours, theirs in zip(("output", "input", "weight", "bias"), outcome(mt, shape, dtype, transposed),
                                  outcome(torch, shape, dtype, transposed), strict=True):
        theirs = theirs.numpy()
        error = abs(ours.numpy() - theirs).max() / abs(theirs).max()
        assert error < (1e-5 if dtype == "float32" else 1e-13), f"{name}: {error}"


def depthwise(lib, images, channels, times, size, kernel, stride, padding, dilation, dtype):
    draw = torch.Generator().manual_seed(sum(size))
    values = [torch.randn(s, generator=draw, dtype=torch.float64)
              for s in ((images, channels, *size), (channels * times, 1, *kernel), (channels * times,))]
    x, weight, bias = (lib.tensor(v.numpy(), dtype=getattr(lib, dtype), requires_grad=True) for v in values)
    f = getattr(lib.nn.functional, f"conv{len(size)}d")
    y = f(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=channels)
    (y * (lib.arange(y.numel(), dtype=y.dtype).reshape(y.shape) % 5)).sum().backward()
    return [t.detach().double() for t in (y, x.grad, weight.grad, bias.grad)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [
    (2, 32, 1, (7, 7), (3, 3), 1, 1, 1), (3, 17, 1, (14, 9), (5, 5), 1, 2, 1), (2, 5, 3, (9, 11), (3, 4), 2, 1, 1),
    (1, 16, 1, (2, 2), (3, 3), 1, 1, 1), (2, 6, 1, (12, 13), (3, 3), 1, (5, 4), 2), (1, 3, 2, (4, 6, 7), (2, 3, 3), (1, 2, 3), 1, 1),
    (2, 20, 1, (50,), (7,), 3, 3, 2), (1, 4, 1, (300, 90), (3, 7), (2, 1), (1, 3), 1)])  # the last: several bands
def test_depthwise(shape, dtype, threads):
    for name, ours, theirs in zip(("output", "input", "weight", "bias"), depthwise(mt, *shape, dtype), depthwise(torch, *shape, dtype),
                                  strict=True):
        theirs = theirs.numpy()
        error = abs(ours.numpy() - theirs).max() / abs(theirs).max()
        assert error < (1e-5 if dtype == "float32" else 1e-13), f"{name}: {error}"


# images, channels, height, width, filters, kernel, stride, padding, dilation, groups
CHANNELS_LAST = [
    (2, 20, 9, 7, 24, 1, 1, 0, 1, 1), (3, 20, 13, 9, 24, 1, 2, 0, 1, 1), (2, 3, 31, 30, 20, 3, 2, 1, 1, 1), (2, 3, 23, 40, 9, 7, 2, 3, 1, 1),
    (3, 48, 15, 14, 33, 3, 2, 1, 1, 1), (1, 40, 30, 9, 16, 2, 2, 0, 1, 1), (2, 9, 11, 12, 10, 5, 1, 2, 1, 1), (2, 16, 12, 9, 8, 3, 1, 2, 2, 1),
    (2, 8, 2, 3, 4, 5, 1, 2, 1, 1), (2, 33, 14, 17, 33, 3, 1, 1, 1, 33), (3, 16, 9, 8, 16, 5, 2, 2, 1, 16), (1, 64, 70, 90, 64, 3, 1, 1, 1, 64),
    (2, 6, 12, 13, 6, 3, 1, 4, 2, 6), (2, 5, 9, 11, 15, 3, 1, 1, 1, 5), (2, 12, 9, 8, 8, 3, 1, 1, 1, 4)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", CHANNELS_LAST)
def test_channels_last(shape, dtype, threads):
    """Channels innermost in memory: the same numbers, and the result lies so too."""
    n, c, h, w, k, size, stride, padding, dilation, groups = shape
    draw = torch.Generator().manual_seed(3)
    values = [torch.randn(s, generator=draw, dtype=torch.float64) for s in ((n, c, h, w), (k, c // groups, size, size), (k,))]
    found = []
    for lib in (mt, torch):
        x, weight, bias = (lib.tensor(v.numpy(), dtype=getattr(lib, dtype)) for v in values)
        if lib is mt:
            x, weight = x.to(memory_format=mt.channels_last), weight.to(memory_format=mt.channels_last)
        for t in (x, weight, bias):
            t.requires_grad_()
        y = lib.conv2d(x, weight, bias, stride, padding, dilation, groups)
        if lib is mt:
            assert y.is_contiguous(memory_format=mt.channels_last)
        factor = (lib.arange(y.numel(), dtype=y.dtype) % 5).reshape(y.shape)
        (y * (factor.to(memory_format=mt.channels_last) if lib is mt else factor)).sum().backward()
        found.append([t.detach().double().numpy() for t in (y, x.grad, weight.grad, bias.grad)])
    for name, ours, theirs in zip(("output", "input", "weight", "bias"), *found, strict=True):
        error = abs(ours - theirs).max() / abs(theirs).max()
        assert error < (1e-5 if dtype == "float32" else 1e-13), f"{name}: {error}"


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
def test_depthwise_does_not_multiply_the_padding(layout, threads):
    """An infinite weight meets no zero beside the image, which would be NaN."""
    x, weight = mt.ones(1, 20, 5, 5).to(memory_format=getattr(mt, layout)), mt.zeros(20, 1, 3, 3)
    weight[7, 0, 0, 0] = float("inf")
    y = mt.conv2d(x, weight, padding=1, groups=20)
    assert not y[:, :7].any() and not y[:, 8:].any()
    assert y[0, 7].tolist() == [[0.0] * 5] + [[0.0] + [float("inf")] * 4] * 4


def test_much_padding_takes_little_memory(threads):
    y = mt.conv1d(mt.ones(1, 2, 3), mt.ones(2, 1, 1), stride=1 << 29, padding=1 << 29, groups=2)
    assert y.tolist() == [[[0.0, 1.0, 0.0]] * 2]


def test_an_infinity_stays_where_it_is(threads):
    x = torch.zeros(2, 64, 7, 7)
    x[1, 3, 2, 2] = float("inf")
    weight = torch.rand(64, 64, 3, 3, generator=torch.Generator().manual_seed(1))
    ours = mt.conv2d(mt.tensor(x.numpy()), mt.tensor(weight.numpy()), padding=1)
    assert ours.isfinite().tolist() == torch.conv2d(x, weight, padding=1).isfinite().tolist()


@pytest.mark.parametrize("sides", [(40, 300, 64), (300, 40, 64), (257, 255, 33), (17, 1000, 130), (1, 900, 900), (900, 1, 900),
                                   (160, 48, 9000), (400, 20, 9000)])
def test_products_are_cut_into_pieces(sides, threads):
    m, n, k = sides
    draw = torch.Generator().manual_seed(3)
    a, b = torch.randn(m, k, generator=draw), torch.randn(n, k, generator=draw)
    ours = mt.tensor(a.numpy()) @ mt.tensor(b.numpy()).t()
    assert abs(ours.double().numpy() - (a.double() @ b.double().t()).numpy()).max() < 1e-5 * k ** 0.5
