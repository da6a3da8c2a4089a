"""torch_npu.contrib on the simulator: functions and modules against the formulas that they stand for, on the cpu."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_npu
from torch import Tensor, nn
from torch.nn import functional as F
from torch_npu.contrib import function, module

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
NZ = 29  # the format FRACTAL_NZ
R = torch.Generator().manual_seed(4)


def normal(*shape: int, by: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=R) * by


def small(*shape: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.randint(-5, 5, shape, generator=R).to(dtype)


def close(got: Tensor, want: Tensor, tolerance: float = 1e-2) -> None:
    torch.testing.assert_close(got.detach().cpu().float(), want.detach().float(), rtol=tolerance, atol=tolerance)


def both(mine: Callable[..., Tensor], right: Callable[..., Tensor], *args: Tensor) -> None:
    """Values, and gradients of all arguments."""
    npu, cpu = ([a.to(device).requires_grad_() for a in args] for device in ("npu", "cpu"))
    got, want = mine(*npu), right(*cpu)
    close(got, want)
    weights = normal(*want.shape)
    for mine_, right_ in zip(torch.autograd.grad(got, npu, weights.npu()), torch.autograd.grad(want, cpu, weights), strict=True):
        close(mine_, right_)


def test_plain_functions() -> None:
    both(function.matmul_transpose, lambda a, b: a @ b.mT, normal(2, 3, 5, 8), normal(2, 3, 5, 8))
    both(lambda x: function.roll(x, shifts=(-3, -3), dims=(1, 2)), lambda x: x.roll((-3, -3), (1, 2)), normal(2, 8, 8, 3))
    x = normal(6, 9)
    for value in (0.0, 1.0, 0.5):
        close(function.npu_fast_condition_index_put(x.npu(), (x < 0.5).npu(), value), x.masked_fill(x < 0.5, value))
    mask, scores = normal(2, 16, 128, 128).half(), normal(2, 16, 128, 128).half()
    got = function.fuse_add_softmax_dropout(False, module.DropoutWithByteMask(0.1), mask.npu(), scores.npu(), 64)
    close(got, (mask.float() + scores.float() / 8).softmax(-1))


def test_boxes_come_back_from_their_code() -> None:
    boxes, truth = (torch.rand(8, 4, generator=R) * 50 for _ in range(2))
    for b in (boxes, truth):
        b[:, 2:] += b[:, :2] + 1
    code = function.npu_bbox_coder_encode_xyxy2xywh(boxes.npu(), truth.npu())
    close(function.npu_bbox_coder_decode_xywh2xyxy(boxes.npu(), code), truth, 0.1)


class Dropouts(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("name", ["NpuCachedDropout", "NpuPreGenDropout"])
def test_dropout_with_masks_made_before(name: str) -> None:
    made = getattr(module, name)
    net = Dropouts(made(0.5, "first")).npu()
    made.enable_dropout_ensemble(net)
    for _ in range(3):  # the first passes only say how many masks are needed
        x = torch.ones(64, 128).npu().requires_grad_()
        y = net(x)
        y.sum().backward()
    assert set(y.unique().tolist()) == {0.0, 2.0} and 0.9 < y.mean().item() < 1.1
    close(x.grad, y.cpu())


def test_dropout_of_bytes_and_paths() -> None:
    x = torch.ones(64, 64).npu().requires_grad_()
    y = module.DropoutWithByteMask(0.5).npu()(x)
    y.sum().backward()
    assert set(y.unique().tolist()) == {0.0, 2.0} and 0.9 < y.mean().item() < 1.1
    close(x.grad, y.cpu())
    net = Dropouts(module.NpuDropPath(0.5)).npu()
    module.NpuDropPath.enable_droppath_ensemble(net)
    for _ in range(3):
        y = net(torch.ones(64, 5, 3).npu())
    assert set(y.unique().tolist()) == {0.0, 2.0} and torch.equal(y, y[:, :1, :1].expand_as(y))


@pytest.mark.parametrize("kind", [module.LinearQuant, module.LinearA8W8Quant])
@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.bfloat16])
def test_linear_of_bytes(kind: type[nn.Module], dtype: torch.dtype) -> None:
    x, weight, bias, scale = small(3, 16), small(64, 16), small(64, dtype=torch.int32), torch.rand(64, generator=R) * 0.1
    net = kind(16, 64, offset=dtype == torch.int8, output_dtype=dtype).npu()
    net.weight.data, net.bias.data = weight.npu(), bias.npu()
    net.scale.data = (scale.bfloat16() if dtype == torch.bfloat16 else scale).npu()
    if dtype == torch.int8:
        net.offset.data.zero_()
    want = (x.float() @ weight.float().t() + bias) * scale
    got = net(x.npu())
    assert got.dtype == dtype
    if dtype == torch.int8:
        torch.testing.assert_close(got.cpu().float(), want.round(), rtol=0, atol=1)  # the scale is of 19 bits
    else:
        close(got, want, 3e-2)


def test_linear_and_convolution_of_quantised_weights() -> None:
    x, weight, scale, offset = normal(8, 64).half(), small(32, 64), normal(32).half(), normal(32).half()
    net = module.LinearWeightQuant(64, 32, bias=False, device="npu:0", dtype=torch.half, antiquant_offset=True)
    net.weight.data, net.antiquant_scale.data, net.antiquant_offset.data = weight.npu(), scale.npu(), offset.npu()
    want = x.float() @ ((weight + offset.float()[:, None]) * scale.float()[:, None]).t()
    close(net(x.npu()) / 100, want / 100)
    image, kernel, scale, bias = small(1, 2, 6, 6), small(3, 2, 3, 3), torch.rand(3, generator=R), small(3, dtype=torch.int32)
    conv = module.QuantConv2d(2, 3, 3, torch.float16).npu()
    conv.weight.data, conv.scale.data, conv.bias.data = kernel.npu(), scale.npu(), bias.npu()
    want = (F.conv2d(image.float(), kernel.float()) + bias.view(3, 1, 1)) * scale.view(3, 1, 1)
    close(conv(image.npu()), want)


def test_nets() -> None:
    for made, right, shape in ((module.FastBatchNorm1d, nn.BatchNorm1d, (4, 8, 5)), (module.FastBatchNorm2d, nn.BatchNorm2d, (4, 8, 5, 6)),
                               (module.FastBatchNorm3d, nn.BatchNorm3d, (2, 8, 3, 4, 5))):  # fmt: skip
        mine, judge = made(8).npu(), right(8)
        both(mine, judge, normal(*shape))
        close(mine.running_var, judge.running_var)
    focus, lstm = module.Focus(8, 13), module.BiLSTM(16, 8)
    both(copy.deepcopy(focus).npu(), focus, normal(2, 8, 12, 10))
    both(copy.deepcopy(lstm).npu(), lstm, normal(5, 3, 16))
    for made, right in ((module.Mish, F.mish), (module.SiLU, F.silu), (module.Swish, F.silu)):
        both(made().npu(), right, normal(4, 5))


@pytest.fixture
def formats() -> Any:
    torch.npu.config.allow_internal_format = True
    yield
    torch.npu.config.allow_internal_format = False


def test_multi_head_attention(formats: None) -> None:
    module.multihead_attention._MHAConfig.set_fussion()
    heads, depth, batch, length = 16, 64, 2, 64
    width = heads * depth
    net = module.MultiheadAttention(width, heads, kdim=width, vdim=width, self_attention=True).npu().half()
    qkv = [normal(batch * length, width, by=0.5).half() for _ in range(3)]
    mask = torch.zeros(batch, heads, length, length).half()
    got = net(*(torch_npu.npu_format_cast(x.npu(), NZ) for x in qkv), batch, length, length, torch_npu.npu_format_cast(mask.npu(), NZ))[0]
    judge = net.cpu().float()
    q, k, v = (layer_of(judge, name, x).view(batch, length, heads, depth).transpose(1, 2) for name, x in zip("qkv", qkv, strict=True))
    want = judge.out_proj.weight @ F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, width).t()
    close(got, want.t() + judge.out_proj.bias, 2e-2)


def layer_of(net: nn.Module, name: str, x: Tensor) -> Tensor:
    layer = getattr(net, f"{name}_proj")
    return x.float() @ layer.weight.t() + layer.bias


@pytest.mark.parametrize("normed", [False, True])
def test_fused_attention(formats: None, normed: bool) -> None:
    batch, length, heads, depth = 2, 32, 12, 64
    width = heads * depth
    hidden, mask = normal(batch * length, width, by=0.5), torch.zeros(batch, 1, length, length)
    weights, biases = [normal(width, width, by=0.03) for _ in range(3)], [normal(width, by=0.1) for _ in range(3)]
    scales = [torch.rand(width, generator=R) + 0.5, normal(width, by=0.1)] if normed else []

    def leaf(x: Tensor, format: int) -> Tensor:
        return torch_npu.npu_format_cast(x.half().npu(), format).requires_grad_()

    npu = [leaf(hidden, NZ), leaf(mask, NZ).detach(), *(leaf(w, NZ) for w in weights), *(leaf(b, 2) for b in (*biases, *scales))]
    cpu = [x.detach().cpu().float().requires_grad_(x.requires_grad) for x in npu]
    x = F.layer_norm(cpu[0], (width,), *cpu[8:]) if normed else cpu[0]
    q, k, v = ((x @ cpu[2 + i] + cpu[5 + i]).view(batch, length, heads, depth).transpose(1, 2) for i in range(3))
    want = F.scaled_dot_product_attention(q, k, v, scale=0.125).transpose(1, 2).reshape(-1, width)
    made = (function.npu_fused_attention_with_layernorm if normed else function.npu_fused_attention)(*npu, 0.125, 1.0)
    got = made[0] if normed else made
    close(got, want)
    by = normal(*want.shape)
    chosen = [i for i in range(len(npu)) if i not in (1, 6)]  # not the mask; the gradient of the keys' bias is 0 but for rounding
    pairs = zip(torch.autograd.grad(got, [npu[i] for i in chosen], by.half().npu()), torch.autograd.grad(want, [cpu[i] for i in chosen], by), strict=True)
    for mine, right in pairs:
        close(mine.cpu().float() / right.abs().max(), right / right.abs().max(), 3e-2)
