"""Results at odd values: bytes of bool beyond 1, NaN and infinities, complex gradients, mixed dtypes, images of bytes."""
from __future__ import annotations

import numpy as np
import pytest
import torch
import twin

import mindtorch_v2 as mt

# ---- a byte of a bool tensor is true unless it is 0 --------------------------------------------------------------------
BYTES = "x = torch.tensor([0, 1, 2, 255, 3, 0, 0, 7, 1], dtype=torch.uint8).view(torch.bool)\n" \
        "t = torch.ones(9, dtype=torch.bool)\n"
ON_BYTES = """x.sum()|x.sum(dtype=torch.float32)|x.nansum()|x.prod()|x.view(3, 3).sum(0)|x.view(3, 3).sum(1)|x[::2].sum()
x.repeat(1000).sum()|x == t|x != t|x < t|x >= t|x == 1|x == 1.0|x.logical_not()|~x|x & t|x | t|x ^ t|x + x|x * x|x + 1
torch.logical_xor(x, t)|torch.logical_and(x, t)|x.int()|x.long()|x.float()|x.half()|x.bfloat16()|x.to(torch.complex64)
x.to(torch.uint8)|x[::2].int()|torch.zeros(9, dtype=torch.int32).copy_(x)|x.cumsum(0)|x.view(3, 3).cumsum(0)|x.cumprod(0)
x.cummax(0)|x.cummin(0)|x.unique(return_counts=True, return_inverse=True)|x.unique_consecutive()|x.count_nonzero()
x.view(3, 3).count_nonzero(dim=1)|x.any()|x[1:5].all()|x.view(3, 3).all(1)|x.sort(stable=True)|x.argsort(stable=True)
x.max()|x.max(0)|x.min(0)|x.amax(0)|torch.aminmax(x)|x.mode()|torch.equal(x, x.int().bool())|x.tolist()|x[3].item()
x.nonzero().flatten().tolist()|torch.arange(9)[x]|torch.arange(9).masked_fill(x, 50)|torch.where(x, 1, 0)|torch.maximum(x, ~t).long()
torch.sign(x).long()|x.diff()|torch.cat([x.int(), x])|x.sigmoid()|torch.addr(torch.zeros(9, 9, dtype=torch.bool), x, x)
torch.zeros(2, dtype=torch.bool).scatter_reduce(0, x.long(), x, 'amin')|torch.zeros(9).index_put((x,), torch.tensor(1.))"""


@pytest.mark.parametrize("line", ON_BYTES.replace("\n", "|").split("|"))
def test_bytes_of_bool(line):
    twin.check_lines(BYTES + line)


# ---- gradients at NaN and infinity ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["elu", "selu", "celu", "hardtanh", "relu6", "hardswish", "relu", "leaky_relu", "hardsigmoid",
                                  "hardshrink", "softshrink", "softplus", "silu", "gelu", "logsigmoid"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "0.", "6."])
def test_activation_gradient(name, value):
    twin.check_lines(f"""
x = torch.tensor([float("{value}")], requires_grad=True)
getattr(torch.nn.functional, "{name}")(x).backward(torch.ones(1))
x.grad.double().round(decimals=5)""")


@pytest.mark.parametrize("where", ["x[0, 0, 0]", "mean[0]", "var[0]"])
@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize("layout", ["", ".permute(0, 2, 1).contiguous().permute(0, 2, 1)"])
def test_batch_norm_in_evaluation(where, value, layout):
    twin.check_lines(f"""
x, mean, var = torch.arange(24.).reshape(2, 3, 4){layout}, torch.zeros(3), torch.ones(3)
{where} = float("{value}")
x.requires_grad_()
weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
out = torch.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0.1, 1e-5)
out.backward(torch.arange(24.).reshape(2, 3, 4){layout})
[t.double().round(decimals=2).contiguous() for t in (x.grad, weight.grad, bias.grad)]""")


# In float64, and for gradients with a dilation, torch multiplies the zeros of the padding too; ours never does.
DEPTHWISE = [(where, options, dtype) for where in ("x[0, 0, 2, 0]", "x[0, 0, 2, 2]", "w[0, 0, 0, 0]", "g[0, 0, 1, 1]", "g[0, 0, 0, 0]")
             for options in ("padding=0", "padding=1", "padding=1, stride=2", "padding=2, dilation=2")
             for dtype in ("float32", "float64")
             if where[0] == "x" or options == "padding=0" or (dtype == "float32" and "dilation" not in options)]


@pytest.mark.parametrize("where, options, dtype", DEPTHWISE)
def test_depthwise_convolution_with_infinity(where, options, dtype):
    twin.check_lines(f"""
x, w = torch.arange(98., dtype=torch.{dtype}).reshape(1, 2, 7, 7), torch.ones(2, 1, 3, 3, dtype=torch.{dtype})
g = torch.ones(torch.nn.functional.conv2d(x, w, groups=2, {options}).shape, dtype=torch.{dtype})
{where} = float("inf")
x.requires_grad_(), w.requires_grad_()
y = torch.nn.functional.conv2d(x, w, groups=2, {options})
y.backward(g)
[t.detach().contiguous() for t in (y, x.grad, w.grad)]""")


# The convolutions of 16 channels and more go by Winograd's method, unless something is not finite.
@pytest.mark.parametrize("where", ["x[0, 0, 5, 5]", "g[0, 0, 4, 4]", "x[0, 3, 0, 0]"])
@pytest.mark.parametrize("channels", [4, 16, 32])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_convolution_with_infinity(where, channels, name):
    twin.check_lines(f"""
x = torch.arange({channels} * 144.).reshape(1, {channels}, 12, 12) * 2**-7
w, g = torch.ones({channels}, {channels}, 3, 3), torch.ones(1, {channels}, 12, 12)
{where} = float("inf")
x.requires_grad_(), w.requires_grad_()
y = torch.nn.functional.{name}(x, w, padding=1)
y.backward(g)
[t.detach().nan_to_num(1e5, 2e5, 3e5).clamp_min(1e5).contiguous() for t in (y, x.grad, w.grad)]""")


# ---- complex gradients -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", ["torch.nn.functional.linear(a, b)", "torch.nn.functional.linear(a, b[0])",
                                  "torch.logaddexp(a, b)", "torch.nn.functional.linear(a, b, a[0, :2])"])
def test_complex_gradient(call):
    twin.check_lines(f"""
a = torch.tensor([[1 + 2j, 3 - 1j], [0.5j, 2 + 0j]], dtype=torch.complex128, requires_grad=True)
b = torch.tensor([[2 - 1j, 1 + 1j], [1 - 3j, 0.25j]], dtype=torch.complex128, requires_grad=True)
y = {call}
y.backward(torch.full(y.shape, 1 - 2j, dtype=torch.complex128))
[torch.view_as_real(t).round(decimals=9) + 0. for t in (a.grad, b.grad)]""")


# ---- others ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lines", [
    "torch.tensor([2., 3.]).where(torch.tensor([True, False]), torch.tensor([7., 8.]))",
    "torch.tensor([2., 3.]).where(torch.tensor([True, False]), 7.)",
    "torch.tensor([2., 3.]).where(condition=torch.tensor([True, False]), other=torch.tensor([7., 8.]))",
    "torch.where(torch.tensor([True, False]), torch.tensor([7., 8.]), 1.)",
    "torch.nn.functional.max_pool2d(torch.arange(18.).reshape(1, 3, 6), 2**30, ceil_mode=True)",
    "torch.nn.functional.avg_pool2d(torch.arange(18.).reshape(1, 3, 6), 5, padding=2, ceil_mode=True)",
    "torch.tensor(3.).topk(0)", "torch.tensor(3).topk(1)", "torch.ones(3).topk(0)",
    "torch.nn.functional.rms_norm(torch.ones(2, 4, dtype=torch.bfloat16), (4,), torch.full((4,), 1.5))",
    "torch.nn.functional.rms_norm(torch.ones(2, 4), (4,), torch.full((4,), 1.5, dtype=torch.bfloat16))",
    "torch.polygamma(200, torch.tensor([1., 2., .5, 50.]))",
    "torch.polygamma(200, torch.tensor([1., 2., .5, 50.], dtype=torch.float64))",
    *(f"torch.{name}_indices({args})" for name in ("tril", "triu")
      for args in ("3, 4", "3, 4, -1", "4, 3, 2", "4, 2, -9", "3, 3, 9", "0, 3", "2, 0", "5, 3, -2", "1, 2, -2**40")),
])
def test_as_torch(lines):
    twin.check_lines(lines)


def test_indices_of_a_late_triangle():
    assert mt.tril_indices(2**40, 1, -2**40 + 2).tolist() == [[2**40 - 2, 2**40 - 1], [0, 0]]   # torch counts for minutes


@pytest.mark.parametrize("lines", [
    "torch.tril_indices(2**40, 1)", "torch.ones(3).tensor_split(2**31 - 1)", "torch.ones(0).chunk(2**40)",
    "torch.ones(1).expand(2**40).unbind()", "torch.ones(1).expand(2**40).split(1)",
])
def test_without_end(lines):
    with pytest.raises((RuntimeError, MemoryError)):
        eval(lines, {"torch": mt})


def test_polygamma_of_a_large_order():
    assert mt.polygamma(2**31, mt.tensor(1.0)).item() == -float("inf")
    assert mt.polygamma(2**31 + 1, mt.tensor(1.0)).item() == float("inf")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 6])
def test_images_of_bytes(mode, antialias, align_corners, channels):
    image = np.random.RandomState(0).randint(0, 256, (2, channels, 31, 37)).astype(np.uint8)
    for size in ((50, 61), (17, 13), (31, 20), (64, 37), (2, 3), (31, 37)):
        ours, theirs = (lib.nn.functional.interpolate(lib.from_numpy(image.copy()), size=size, mode=mode, antialias=antialias,
                                                      align_corners=align_corners).numpy() for lib in (mt, torch))
        assert np.abs(ours.astype(int) - theirs).max() == 0, size
