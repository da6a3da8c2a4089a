"""Convolutions, pooling and upsampling of the simulator against torch: dtypes, layouts, gradients, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import CannError, client, same
from samples import LAYOUTS, blank, dtypes, grads, sample
from torch import Tensor
from torch.nn import functional as F

INVALID, NULL = 161002, 161001
CLOSE = {
    torch.float16: {"rtol": 4e-3, "atol": 4e-2}, torch.bfloat16: {"rtol": 3e-2, "atol": 3e-1},
    torch.float32: {"rtol": 1e-4, "atol": 1e-4},
}  # fmt: skip
FLOATS = [torch.float32, torch.float16, torch.bfloat16]


def close(got: Tensor, want: Tensor) -> None:
    same(got, want, **CLOSE.get(want.dtype, {"rtol": 1e-9, "atol": 1e-9}))


@pytest.mark.parametrize("name", ["aclnnQuantConvolution", "aclnnQuantConvolutionWeightNz"])
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("biased", [True, False])
def test_convolution_of_bytes(name: str, dims: int, biased: bool) -> None:
    x, w = (torch.randint(-128, 128, (*s, *(5, 6, 4)[:dims]), dtype=torch.int8) for s in ((2, 4), (6, 2)))
    w = w[(slice(None), slice(None), *[slice(0, 2)] * dims)].contiguous()
    scale, bias = torch.rand(6) * 1e-3, torch.randn(6) if biased else None
    by = (6, *[1] * dims)
    sums = (F.conv2d if dims == 2 else F.conv3d)(x.double(), w.double(), None, 2, 1, 1, 2)
    want = (sums * scale.double().view(by) + (0 if bias is None else bias.double().view(by))).half()
    calls = lambda offset, out: client().call(name, x, w, bias, scale, offset, [2] * dims, [1] * dims, [1] * dims, False, [0] * dims, 2, 0, "rint", out)
    close(calls(None, torch.empty_like(want)), want)
    with pytest.raises(CannError, match="561003"):
        calls(torch.zeros(6), torch.empty_like(want))


# ---- convolution ------------------------------------------------------------------------------------------------
# input, weight, stride, padding, dilation, transposed, output padding, groups
CONVS: list[tuple[Any, ...]] = [
    ((2, 4, 9), (6, 4, 3), [2], [1], [1], False, [0], 1),
    ((2, 4, 7, 8), (6, 4, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ((2, 4, 7, 8), (6, 2, 3, 2), [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
    ((2, 4, 7, 8), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 2), [1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 1),
    ((2, 4, 5), (4, 3, 3), [2], [1], [1], True, [1], 1),
    ((2, 4, 5, 6), (4, 3, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    ((2, 4, 5, 6), (4, 3, 3, 2), [2, 3], [0, 1], [2, 1], True, [0, 1], 2),
    ((1, 2, 3, 4, 3), (2, 3, 2, 2, 2), [2, 1, 1], [0, 0, 0], [1, 1, 1], True, [1, 0, 0], 1),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("x, w, stride, pad, dilation, transposed, extra, groups", CONVS)
def test_convolution(
    x: Any,
    w: Any,
    stride: Any,
    pad: Any,
    dilation: Any,
    transposed: bool,
    extra: Any,
    groups: int,
    dtype: Any,
    layout: str,
) -> None:
    geometry = (stride, pad, dilation, transposed, extra, groups)
    inputs, weight = LAYOUTS[layout](sample(dtype, *x)), LAYOUTS[layout](sample(dtype, *w, seed=1))
    bias = sample(dtype, w[1] * groups if transposed else w[0], seed=2)

    def judge(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return torch.convolution(x, w, b, *geometry)

    want = judge(inputs.float(), weight.float(), bias.float()).to(dtype)
    close(client().call("aclnnConvolution", inputs, weight, bias, *geometry, LAYOUTS[layout](blank(want)), 0), want)
    plain = judge(inputs.float(), weight.float()).to(dtype)
    close(client().call("aclnnConvolution", inputs, weight, None, *geometry, blank(want), 1), plain)
    g = sample(dtype, *want.shape, seed=3)
    wanted = grads(judge, g, inputs, weight, bias)
    args = (g, inputs, weight, list(bias.shape), *geometry)
    outs = [torch.empty(x, dtype=dtype), torch.empty(w, dtype=dtype), blank(bias)]
    for a, b in zip(client().call("aclnnConvolutionBackward", *args, [True] * 3, 0, *outs), wanted, strict=True):
        close(a, b)
    close(client().call("aclnnConvolutionBackward", *args, [False, True, False], 0, None, outs[1], None), wanted[1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_depthwise(dtype: torch.dtype) -> None:
    x, w, b = sample(dtype, 2, 4, 6, 7), sample(dtype, 8, 1, 3, 2, seed=1), sample(dtype, 8, seed=2)
    want = F.conv2d(x.float(), w.float(), b.float(), (1, 2), (1, 0), 1, 4).to(dtype)
    close(client().call("aclnnConvDepthwise2d", x, w, [3, 2], b, [1, 2], [1, 0], [1, 1], blank(want), 0), want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_conv_tbc(dtype: torch.dtype) -> None:
    x, w, b = sample(dtype, 6, 2, 3), sample(dtype, 3, 3, 4, seed=1), sample(dtype, 4, seed=2)
    want = torch.conv_tbc(x.float(), w.float(), b.float(), 1).to(dtype)
    close(client().call("aclnnConvTbc", x, w, b, 1, blank(want), 0), want)
    g = sample(dtype, *want.shape, seed=3)
    wanted = grads(lambda x, w, b: torch.conv_tbc(x, w, b, 1), g, x, w, b)
    made = client().call("aclnnConvTbcBackward", g, x, w, b, 1, 0, blank(x), blank(w), blank(b))
    for got, wants in zip(made, wanted, strict=True):
        close(got, wants)


@pytest.mark.parametrize("shape", [(3, 6, 7), (2, 3, 6, 7)], ids=str)
@pytest.mark.parametrize("dtype", [d for d in dtypes("aclnnIm2col") if not d.is_complex], ids=str)
def test_im2col(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = LAYOUTS["transposed"](sample(dtype, *shape))
    geometry = ([2, 3], [1, 2], [1, 0], [2, 1])
    want = torch.ops.aten.im2col(x.double(), *geometry).to(dtype)
    same(client().call("aclnnIm2col", x, *geometry, torch.ones_like(want)), want)
    if dtype in FLOATS:
        g = sample(dtype, *want.shape, seed=1)
        back = torch.ops.aten.col2im(g.float(), list(shape[-2:]), *geometry).to(dtype)
        close(client().call("aclnnIm2colBackward", g, shape[-2:], *geometry, blank(back)), back)


# ---- pooling ----------------------------------------------------------------------------------------------------
POOLS = [([2, 2], [2, 2], [0, 0], False), ([3, 2], [2, 1], [1, 1], False), ([3, 3], [2, 2], [1, 1], True),
([3], [2], [1], True),
         ([2, 2], [], [0, 0], False)]  # fmt: skip
POOLS3 = [([2, 2, 2], [2, 1, 2], [0, 1, 1], False), ([3, 2, 3], [2, 2, 2], [1, 1, 1], True)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 7, 8), (2, 3, 7, 8)], ids=str)
@pytest.mark.parametrize("kernel, stride, pad, ceil", POOLS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pool2d(dtype: torch.dtype, kernel: Any, stride: Any, pad: Any, ceil: bool, shape: Any, layout: str) -> None:
    x = LAYOUTS[layout](torch.randperm(torch.Size(shape).numel()).view(shape).to(dtype))
    want, index = F.max_pool2d(x, kernel, stride or None, pad, 1, ceil, return_indices=True)
    args = (kernel, stride, pad, [1, 1], ceil)
    for kind in (torch.int64, torch.int32):
        got = client().call("aclnnMaxPool2dWithIndices", x, *args, blank(want), torch.empty(index.shape, dtype=kind))
        same(got[0], want)
        if dtype == torch.float32:
            same(got[1], index.to(kind))
    g = sample(dtype, *want.shape, seed=1)
    (back,) = grads(lambda x: F.max_pool2d(x, kernel, stride or None, pad, 1, ceil), g, x)
    if dtype == torch.float32:  # no ties
        close(client().call("aclnnMaxPool2dWithIndicesBackward", g, x, index, *args, blank(back)), back)
    taps = torch.Size(kernel * (3 - len(kernel))).numel() if len(kernel) == 1 else kernel[0] * kernel[1]
    row = ((want.shape[-1] * want.shape[-2] + 15) // 16 + 1) * 32
    mask = torch.empty(*shape[:-2], taps, row, dtype=torch.int8)
    got = client().call("aclnnMaxPool2dWithMask", x, *args, blank(want), mask)
    same(got[0], want)
    if dtype == torch.float32:
        close(client().call("aclnnMaxPool2dWithMaskBackward", g, x, got[1], *args, blank(back)), back)
    for include, divisor in ((True, 0), (False, 0), (True, 3)):
        rest = (ceil, include, divisor or None)
        want = F.avg_pool2d(x.float(), kernel, stride or None, pad, *rest).to(dtype)
        close(client().call("aclnnAvgPool2d", x, kernel, stride, pad, ceil, include, divisor, 0, blank(want)), want)
        (back,) = grads(lambda x, rest=rest: F.avg_pool2d(x, kernel, stride or None, pad, *rest), g, x)
        close(
            client().call("aclnnAvgPool2dBackward", g, x, kernel, stride, pad, ceil, include, divisor, 0, blank(back)),
            back,
        )


@pytest.mark.parametrize("kernel, stride, pad, ceil", POOLS3)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_pool3d(dtype: torch.dtype, kernel: Any, stride: Any, pad: Any, ceil: bool) -> None:
    x = (torch.randperm(240).view(1, 2, 5, 4, 6) - 100).to(dtype)
    want, index = F.max_pool3d(x, kernel, stride, pad, 1, ceil, return_indices=True)
    args = (kernel, stride, pad, [1, 1, 1], ceil)
    got = client().call("aclnnMaxPool3dWithArgmax", x, *args, blank(want), torch.empty_like(index))
    same(got[0], want)
    g = sample(dtype, *want.shape, seed=1)
    if dtype != torch.bfloat16:  # ties
        same(got[1], index)
        (back,) = grads(lambda x: F.max_pool3d(x, kernel, stride, pad, 1, ceil), g, x)
        close(client().call("aclnnMaxPool3dWithArgmaxBackward", g, x, index, *args, blank(back)), back)
    want = F.avg_pool3d(x.float(), kernel, stride, pad, ceil).to(dtype)
    close(client().call("aclnnAvgPool3d", x, kernel, stride, pad, ceil, True, 0, blank(want)), want)
    (back,) = grads(lambda x: F.avg_pool3d(x, kernel, stride, pad, ceil), g, x)
    close(client().call("aclnnAvgPool3dBackward", g, x, kernel, stride, pad, ceil, True, 0, blank(back)), back)


@pytest.mark.parametrize(
    "shape, size",
    [((2, 3, 7, 8), [3, 4]), ((3, 7, 8), [1, 1]), ((2, 3, 4, 4), [4, 4]), ((2, 3, 3, 3), [5, 2])],
    ids=str,
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_adaptive_pool2d(dtype: torch.dtype, shape: Any, size: Any) -> None:
    x = (torch.randperm(torch.Size(shape).numel()).view(shape) / 8).to(dtype)
    want, g = F.adaptive_avg_pool2d(x.float(), size).to(dtype), sample(dtype, *shape[:-2], *size, seed=1)
    close(client().call("aclnnAdaptiveAvgPool2d", x, size, blank(want)), want)
    (back,) = grads(lambda x: F.adaptive_avg_pool2d(x, size), g, x)
    close(client().call("aclnnAdaptiveAvgPool2dBackward", g, x, blank(back)), back)
    want, index = F.adaptive_max_pool2d(x, size, return_indices=True)
    got = client().call("aclnnAdaptiveMaxPool2d", x, size, blank(want), torch.empty_like(index))
    same(got[0], want)
    (back,) = grads(lambda x: F.adaptive_max_pool2d(x, size), g, x)
    if dtype == torch.float32:  # no ties
        same(got[1], index)
        close(client().call("aclnnAdaptiveMaxPool2dBackward", g, x, index, blank(back)), back)


def test_adaptive_pool3d() -> None:
    x, size = torch.randperm(240).view(1, 2, 5, 4, 6).float(), [2, 3, 2]
    want, g = F.adaptive_avg_pool3d(x, size), sample(torch.float32, 1, 2, *size, seed=1)
    close(client().call("aclnnAdaptiveAvgPool3d", x, size, blank(want)), want)
    (back,) = grads(lambda x: F.adaptive_avg_pool3d(x, size), g, x)
    close(client().call("aclnnAdaptiveAvgPool3dBackward", g, x, blank(back)), back)
    want, index = F.adaptive_max_pool3d(x, size, return_indices=True)
    got = client().call("aclnnAdaptiveMaxPool3d", x, size, blank(want), torch.empty_like(index))
    same(got[0], want)
    same(got[1], index)
    (back,) = grads(lambda x: F.adaptive_max_pool3d(x, size), g, x)
    close(client().call("aclnnAdaptiveMaxPool3dBackward", g, x, index, blank(back)), back)


@pytest.mark.parametrize("dtype", dtypes("aclnnMaxPool"), ids=str)
@pytest.mark.parametrize("pads", [[], [1], [1, 1], [0, 1, 1, 0]], ids=str)
def test_max_pool_pads_each_side_for_itself(dtype: torch.dtype, pads: list[int]) -> None:
    x = sample(dtype, 2, 3, 6, 7)
    top, left, bottom, right = {0: [0] * 4, 1: pads * 4, 2: pads * 2, 4: pads}[len(pads)]
    padded = F.pad(x.double(), (left, right, top, bottom), value=float("-inf"))
    want = F.max_pool2d(padded, 3, 2).to(dtype)
    same(client().call("aclnnMaxPool", x, [3, 3], [2, 2], 0, pads, [1, 1], 0, torch.ones_like(want)), want)


@pytest.mark.parametrize("dtype", [d for d in dtypes("aclnnMaxUnpool2d") if d.is_floating_point], ids=str)
def test_unpool(dtype: torch.dtype) -> None:
    x = torch.randperm(2 * 3 * 6 * 8).view(2, 3, 6, 8).to(dtype)
    pooled, index = F.max_pool2d(x, 2, return_indices=True)
    want = F.max_unpool2d(pooled.float(), index, 2).to(dtype)
    same(client().call("aclnnMaxUnpool2d", pooled, index, [6, 8], blank(want)), want)
    if dtype != torch.float64:
        same(client().call("aclnnMaxUnpool2dBackward", x, pooled, index, [6, 8], blank(pooled)), pooled)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_global_pool(dtype: torch.dtype) -> None:
    x = sample(dtype, 2, 3, 4, 5)
    close(
        client().call("aclnnGlobalAveragePool", x, torch.empty(2, 3, 1, 1, dtype=dtype)), x.mean((2, 3), keepdim=True)
    )
    same(client().call("aclnnGlobalMaxPool", x, torch.empty(2, 3, 1, 1, dtype=dtype)), x.amax((2, 3), keepdim=True))


# ---- upsampling -------------------------------------------------------------------------------------------------
UPSAMPLES = [
    ("Nearest1d", "upsample_nearest1d", 1, False, 0), ("Nearest1dV2", "upsample_nearest1d", 1, False, 1),
    ("Nearest2d", "upsample_nearest2d", 2, False, 0), ("Nearest2dV2", "upsample_nearest2d", 2, False, 2),
    ("Nearest3d", "upsample_nearest3d", 3, False, 3), ("NearestExact1d", "_upsample_nearest_exact1d", 1, False, 1),
    ("NearestExact2d", "_upsample_nearest_exact2d", 2, False, 2),
    ("NearestExact3d", "_upsample_nearest_exact3d", 3, False, 3),
    ("Linear1d", "upsample_linear1d", 1, True, 1), ("Bilinear2d", "upsample_bilinear2d", 2, True, 2),
    ("Bicubic2d", "upsample_bicubic2d", 2, True, 2), ("Trilinear3d", "upsample_trilinear3d", 3, True, 3),
    ("Bilinear2dAA", "_upsample_bilinear2d_aa", 2, True, 2), ("Bicubic2dAA", "_upsample_bicubic2d_aa", 2, True, 2),
]  # fmt: skip


@pytest.mark.parametrize("no_scale", [0.0, 1.0])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("name, judge, n, aligned, scales", UPSAMPLES)
def test_upsample(name: str, judge: str, n: int, aligned: bool, scales: int, align: bool, no_scale: float) -> None:
    f, size = getattr(torch.ops.aten, judge), [7, 5, 9][:n]
    for dtype in dtypes(f"aclnnUpsample{name}"):
        if dtype == torch.uint8:
            continue
        x = LAYOUTS["transposed"](sample(dtype, 2, 3, *[4, 6, 3][:n]))
        middle, none = ([align] if aligned else []), [no_scale] * scales

        def run(x: Tensor, middle: list[Any] = middle) -> Tensor:
            return f(x, size, *middle)

        want = run(x.double() if dtype == torch.float64 else x.float()).to(dtype)
        close(client().call(f"aclnnUpsample{name}", x, size, *middle, *none, blank(want)), want)
        if name.endswith("V2") or dtype == torch.float64:
            continue
        back_name = f"aclnnUpsample{name}Grad" if name == "Bicubic2dAA" else f"aclnnUpsample{name}Backward"
        none = [no_scale] * n
        g = sample(dtype, *want.shape, seed=1)
        (back,) = grads(run, g, x)
        close(client().call(back_name, g, size, list(x.shape), *middle, *none, torch.empty(x.shape, dtype=dtype)), back)


def test_upsample_by_a_scale() -> None:
    x = sample(torch.float32, 1, 1, 4, 5)
    want = F.interpolate(x, scale_factor=(1.3, 2.1), mode="bilinear")
    got = client().call("aclnnUpsampleBilinear2d", x, list(want.shape[2:]), False, 1.3, 2.1, blank(want))
    close(got, want)
    for name, judge in (("Bilinear2dAA", "_upsample_bilinear2d_aa"), ("Bilinear2d", "upsample_bilinear2d")):  # not that of the sizes
        want = getattr(torch.ops.aten, judge)(x, [3, 3], False, 1.7, 0.9)
        close(client().call(f"aclnnUpsample{name}", x, [3, 3], False, 1.7, 0.9, blank(want)), want)
    close(
        client().call("aclnnResize", x, [1.0, 1.0, 2.0, 2.0], "bilinear", torch.empty(1, 1, 8, 10)),
        F.interpolate(x, scale_factor=2, mode="bilinear"),
    )
    bytes_ = torch.randint(0, 255, (1, 2, 3, 3), dtype=torch.uint8)
    got = client().call("aclnnUpsampleNearest2d", bytes_, [6, 6], torch.empty(1, 2, 6, 6, dtype=torch.uint8))
    same(got, F.interpolate(bytes_, scale_factor=2))


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [False, True])
def test_grid_sampler(mode: int, padding: int, align: bool) -> None:
    x, grid = sample(torch.float32, 2, 3, 4, 5), torch.rand(2, 3, 4, 2) * 2.4 - 1.2
    names = {
        "mode": ["bilinear", "nearest", "bicubic"][mode],
        "padding_mode": ["zeros", "border", "reflection"][padding],
    }

    def judge(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, align_corners=align, **names)

    want, g = judge(x, grid), sample(torch.float32, 2, 3, 3, 4, seed=1)
    close(client().call("aclnnGridSampler2D", x, grid, mode, padding, align, blank(want)), want)
    wanted = grads(judge, g, x, grid)
    made = client().call(
        "aclnnGridSampler2DBackward", g, x, grid, mode, padding, align, [True, True], blank(x), blank(grid)
    )
    for a, b in zip(made, wanted, strict=True):
        same(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [[2, 1, 3, 4], [2, 1, 3, 2, 4]], ids=str)
def test_affine_grid(size: list[int], align: bool) -> None:
    n = len(size) - 2
    theta = sample(torch.float32, 2, n, n + 1)
    want = F.affine_grid(theta, size, align_corners=align)
    close(client().call("aclnnAffineGrid", theta, size, align, blank(want)), want)


X, W, Y = torch.ones(1, 2, 4, 4), torch.ones(3, 2, 3, 3), torch.ones(1, 3, 2, 2)
PLAIN = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
BAD: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnConvolution", (None, W, None, *PLAIN, Y, 0)),
    (NULL, "aclnnConvolution", (X, W, None, None, [0, 0], [1, 1], False, [0, 0], 1, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, torch.ones(2), *PLAIN, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, *PLAIN, torch.ones(1, 3, 4, 4), 0)),
    (INVALID, "aclnnConvolution", (X, torch.ones(3, 3, 3, 3), None, *PLAIN, Y, 0)),
    (INVALID, "aclnnConvolution", (X, torch.ones(3, 2, 5, 5), None, *PLAIN, Y, 0)),
    (INVALID, "aclnnConvolution", (X, torch.ones(3, 2, 3), None, *PLAIN, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, [0, 1], [0, 0], [1, 1], False, [0, 0], 1, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, [1, 1, 1], [0, 0], [1, 1], False, [0, 0], 1, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, [1, 1], [-1, 0], [1, 1], False, [0, 0], 1, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 0, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2, Y, 0)),
    (INVALID, "aclnnConvolution", (X, W, None, *PLAIN, Y, 9)),
    (INVALID, "aclnnConvolution", (X.double(), W.double(), None, *PLAIN, Y.double(), 0)),
    (INVALID, "aclnnConvolutionBackward", (Y, X, W, [3], *PLAIN, [True] * 3, 0, None, W, torch.ones(3))),
    (INVALID, "aclnnConvolutionBackward", (X, X, W, [3], *PLAIN, [True] * 3, 0, X, W, torch.ones(3))),
    (INVALID, "aclnnConvolutionBackward", (Y, X, W, [3], *PLAIN, [True] * 3, 0, X, W, torch.ones(2))),
    (INVALID, "aclnnIm2col", (X, [2, 2], [1, 1], [0, 0], [1, 1], torch.ones(1, 8, 8))),
    (INVALID, "aclnnIm2col", (X, [5, 5], [1, 1], [0, 0], [1, 1], torch.ones(1, 50, 0))),
    (INVALID, "aclnnMaxPool2dWithIndices", (X, [2, 2], [2, 2], [2, 2], [1, 1], False, X, X.long())),
    (INVALID, "aclnnMaxPool2dWithIndices", (X, [2, 2], [0, 2], [0, 0], [1, 1], False, X, X.long())),
    (INVALID, "aclnnMaxPool2dWithIndices", (X, [2, 2], [2, 2], [0, 0], [1, 1], False, X, X.long())),
    (INVALID, "aclnnAvgPool2d", (X, [2, 2], [2, 2], [0, 0], False, True, 0, 0, X)),
    (INVALID, "aclnnAvgPool2d", (torch.ones(4, 4), [2, 2], [2, 2], [0, 0], False, True, 0, 0, torch.ones(2, 2))),
    (INVALID, "aclnnAdaptiveAvgPool2d", (X, [2], torch.ones(1, 2, 2, 2))),
    (INVALID, "aclnnAdaptiveAvgPool2d", (X, [2, 3], torch.ones(1, 2, 2, 2))),
    (INVALID, "aclnnUpsampleNearest2d", (X, [8], torch.ones(1, 2, 8, 8))),
    (INVALID, "aclnnUpsampleNearest2d", (X, [8, 8], X)),
    (INVALID, "aclnnUpsampleBilinear2d", (X, [0, 8], False, 0.0, 0.0, torch.ones(1, 2, 0, 8))),
    (INVALID, "aclnnUpsampleBilinear2dBackward", (X, [4, 4], [1, 2, 2], False, 0.0, 0.0, torch.ones(1, 2, 2, 2))),
    (INVALID, "aclnnGridSampler2D", (X, torch.ones(1, 2, 2, 3), 0, 0, False, torch.ones(1, 2, 2, 2))),
    (INVALID, "aclnnGridSampler2D", (X, torch.ones(1, 2, 2, 2), 3, 0, False, torch.ones(1, 2, 2, 2))),
]  # fmt: skip


@pytest.mark.parametrize("code, op, args", BAD, ids=[f"{op}-{i}" for i, (_, op, _) in enumerate(BAD)])
def test_refusals(code: int, op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, op, *args)
