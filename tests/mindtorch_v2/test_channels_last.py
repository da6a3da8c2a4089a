"""Memory formats: which ops keep channels last, their strides and their values; as in torch."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mindtorch_v2 as mt

FORMATS = {2: ("channels_last", (2, 8, 6, 6)), 3: ("channels_last_3d", (2, 8, 4, 6, 6))}
# Each line runs with x (channels last), plain (the same, contiguous), F, and W(shape), which gives numbers for weights.
BOTH = """F.convNd(x, W(4, 8, *3*N), padding=1)
F.convNd(plain, W(4, 8, *3*N).contiguous(memory_format=last), padding=1)
F.convNd(x, W(4, 8, *1*N), W(4))
F.convNd(plain, W(4, 8, *1*N))
F.convNd(x, W(8, 1, *3*N), groups=8)
F.convNd(x[:, ::2], W(4, 4, *3*N))
F.conv_transposeNd(x, W(8, 4, *3*N), stride=2)
F.max_poolNd(x, 2)
F.max_poolNd(x, 2, return_indices=True)[1]
F.avg_poolNd(x, 2)
F.adaptive_avg_poolNd(x, 2)
F.adaptive_max_poolNd(x, 2)
F.adaptive_max_poolNd(x, 1)
F.lp_poolNd(x, 2, 2)
F.max_unpoolNd(*F.max_poolNd(x, 2, return_indices=True), 2)
F.batch_norm(x, None, None, W(8), W(8), training=True)
F.batch_norm(x, W(8), W(8).abs() + 1)
F.group_norm(x, 4, W(8), W(8))
F.instance_norm(x)
F.layer_norm(x, x.shape[-1:])
F.local_response_norm(x, 2)
F.interpolate(x, scale_factor=2)
F.interpolate(x, scale_factor=2, mode='nearest-exact')
F.interpolate(x, scale_factor=0.5, mode='area')
F.channel_shuffle(x, 2)
F.pad(x, (1, 1) * len(x.shape[2:]))
F.pad(x, (1, 1) * len(x.shape[2:]), mode='reflect')
F.pad(x, (1, 1) * len(x.shape[2:]), mode='replicate')
F.pad(x, (1, 1) * len(x.shape[2:]), mode='circular')
torch.cat([x, x], 1)
torch.cat([x, x], 2)
torch.cat([x, plain], 1)
torch.cat([x, torch.empty(0)], 1)
torch.stack([x, x], 1)
torch.stack([x, x], -1)
x.flip(1)
x.roll(1, 1)
x.sort(1)[0]
x.sort(2)[1]
x.relu()
x + x.new_ones(()).expand(x.shape)
x.new_ones(()).expand(x.shape) * x
x.new_ones(x.size(-1)).expand(x.shape) * x
x * plain
plain * x
F.prelu(x, W(8))
x.softmax(1)
torch.where(x > 0, x, plain)
x.sum(1, keepdim=True) + x
x.to(torch.float64)
x.double().clone()"""
PLANES = """F.interpolate(x, scale_factor=2, mode='bilinear')
F.interpolate(x, scale_factor=2, mode='bicubic')
F.interpolate(x, scale_factor=0.5, mode='bilinear', antialias=True)
F.adaptive_avg_pool2d(x, 1)
F.pixel_shuffle(x, 2)
F.pixel_unshuffle(x, 2)
x.rot90(1, (2, 3))
F.grid_sample(x, W(2, 5, 5, 2).clamp(-1, 1), align_corners=False)
F.conv2d(x.double(), W(4, 8, 3, 3).double())
F.conv2d(x[:, :, :, :1], W(4, 8, 1, 1))
F.conv2d(x[:, :, :1, :1], W(4, 8, 1, 1))
F.max_pool2d(x[:, :1], 2)
F.max_pool2d(x[0], 2)
F.conv2d(x[0], W(4, 8, 3, 3))
F.max_pool2d(x[::2, :, ::2], 2)"""
VOLUMES = "F.interpolate(x, scale_factor=2, mode='trilinear')"
GRADIENTS = """F.conv2d(x, W(4, 8, 3, 3), padding=1)
F.conv2d(x, W(4, 8, 1, 1))
F.max_pool2d(x, 2)
F.avg_pool2d(x, 2)
F.adaptive_avg_pool2d(x, 2)
F.adaptive_max_pool2d(x, 2)
F.batch_norm(x, None, None, W(8), W(8), training=True)
F.group_norm(x, 4, W(8), W(8))
F.interpolate(x, scale_factor=2)
F.interpolate(x, scale_factor=2, mode='bilinear')
F.pad(x, (1, 1, 1, 1))
F.pad(x, (1, 1, 1, 1), mode='reflect')
F.pixel_shuffle(x, 2)
torch.cat([x, x], 1)
x.relu()
x * x"""


def run(lib: Any, line: str, n: int, grad: bool = False) -> Any:
    fmt, shape = FORMATS[n]

    def numbers(*shape: int) -> Any:
        return lib.tensor(np.sin(np.arange(int(np.prod(shape))) * 0.7).reshape(shape).astype(np.float32).tolist())
    last = getattr(lib, fmt)
    plain = numbers(*shape)
    x = plain.contiguous(memory_format=last).requires_grad_(grad)
    space = {"torch": lib, "F": lib.nn.functional, "x": x, "plain": plain, "last": last, "W": numbers}
    out = eval(line.replace("Nd", f"{n}d").replace("*3*N", f"*(3,)*{n}").replace("*1*N", f"*(1,)*{n}"), space)
    return lib.autograd.grad((out * out).sum(), x)[0] if grad else out


def compare(line: str, n: int, grad: bool = False) -> None:
    ours, theirs = run(mt, line, n, grad), run(torch, line, n, grad)
    assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype)
    assert tuple(ours.stride()) == theirs.stride(), f"{line}: strides {tuple(ours.stride())}, torch has {theirs.stride()}"
    np.testing.assert_allclose(ours.detach().double().numpy(), theirs.detach().double().numpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("line", [*BOTH.splitlines(), *PLANES.splitlines()])
def test_planes(line: str) -> None:
    compare(line, 2)


@pytest.mark.parametrize("line", [*BOTH.splitlines(), VOLUMES])
def test_volumes(line: str) -> None:
    compare(line, 3)


@pytest.mark.parametrize("line", GRADIENTS.splitlines())
def test_gradients(line: str) -> None:
    compare(line, 2, grad=True)


def test_weights_get_gradients_in_their_format() -> None:
    def strides(lib: Any) -> Any:
        layer = lib.nn.Conv2d(8, 4, 3).to(memory_format=lib.channels_last)
        layer(lib.ones(2, 8, 6, 6).contiguous(memory_format=lib.channels_last)).sum().backward()
        return tuple(layer.weight.grad.stride()), tuple(layer.weight.stride())
    assert strides(mt) == strides(torch)


def test_shapes_alone_keep_formats_too() -> None:
    x = mt.empty(2, 8, 6, 6, device="meta", memory_format=mt.channels_last)
    out = mt.nn.functional.max_pool2d(mt.nn.functional.conv2d(x, mt.empty(4, 8, 3, 3, device="meta")), 2)
    assert out.is_contiguous(memory_format=mt.channels_last) and out.stride() == (16, 1, 8, 4)


def test_a_network_in_channels_last_gives_the_same_numbers() -> None:
    mt.manual_seed(0)
    net = mt.nn.Sequential(mt.nn.Conv2d(3, 8, 3, padding=1), mt.nn.BatchNorm2d(8), mt.nn.ReLU(), mt.nn.MaxPool2d(2),
                           mt.nn.Conv2d(8, 16, 1), mt.nn.GroupNorm(4, 16), mt.nn.SiLU(), mt.nn.AdaptiveAvgPool2d(1),
                           mt.nn.Flatten(), mt.nn.Linear(16, 4))
    x = mt.randn(2, 3, 16, 16)
    losses = []
    for fmt in (mt.contiguous_format, mt.channels_last):
        net.zero_grad()
        loss = net.to(memory_format=fmt)(x.contiguous(memory_format=fmt)).square().mean()
        loss.backward()
        losses.append([loss.item(), *(p.grad.double().sum().item() for p in net.parameters())])
    np.testing.assert_allclose(losses[0], losses[1], 1e-4, 1e-5)


def test_storages_are_one_object_while_referenced() -> None:
    for lib in (mt, torch):
        x = lib.ones(3)
        s = x.untyped_storage()
        assert x.untyped_storage() is s is x.view(3, 1).untyped_storage() is x.detach().untyped_storage()
        assert x.clone().untyped_storage() is not s and x.storage().untyped() is s
        y = lib.empty(0).set_(s)
        assert y.untyped_storage() is s and isinstance(s, lib.StorageBase) and x.storage()._cdata == s._cdata
        x.set_(lib.zeros(4))
        assert x.untyped_storage() is not s and y.untyped_storage() is s


def test_a_storage_object_lives_as_long_as_its_tensors() -> None:
    """With its attributes; its weak references end with the last tensor."""
    import weakref
    for lib in (mt, torch):
        x = lib.ones(3)
        s = x.untyped_storage()
        s.note = [1]
        ends = weakref.ref(s)
        del s
        assert ends() is x.untyped_storage() and x.untyped_storage().note == [1]
        y = x[1:]
        del x
        assert ends() is not None
        del y
        assert ends() is None
