"""torch_npu.contrib.module: layers over torch_npu's ops, with its parameters and names of state."""
from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import mindtorch_v2 as torch

from .quantized import LinearA8W8Quant, LinearQuant, LinearWeightQuant, QuantConv2d

_npu, nn = torch.ops.npu, torch.nn
Tensor = torch.Tensor

__all__ = ["BiLSTM", "ChannelShuffle", "DCNv2", "DropoutWithByteMask", "FastBatchNorm1d", "FastBatchNorm2d", "FastBatchNorm3d",
           "FastSyncBatchNorm", "Focus", "LabelSmoothingCrossEntropy", "LinearA8W8Quant", "LinearQuant", "LinearWeightQuant",
           "Mish", "ModulatedDeformConv", "NpuCachedDropout", "NpuDropPath", "NpuFairseqDropout", "PSROIPool", "Prefetcher",
           "QuantConv2d", "ROIAlign", "SiLU", "Swish"]

# Of batches counted in int32, because an npu was slow with int64; torch's own count as fast here.
FastBatchNorm1d, FastBatchNorm2d, FastBatchNorm3d = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
FastSyncBatchNorm = nn.SyncBatchNorm


class Mish(nn.Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return _npu.npu_mish(x)


class SiLU(nn.Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return _npu.npu_silu(x)


Swish = SiLU


class ChannelShuffle(nn.Module):
    """The channels of two tensors one after another in turn; as two tensors of half of them each, or as one."""

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True) -> None:
        super().__init__()
        self.groups, self.split_shuffle = groups, split_shuffle

    def forward(self, x1: Tensor, x2: Tensor) -> Any:
        mixed = torch.cat([x1, x2], 1).unflatten(1, (self.groups, -1)).transpose(1, 2).flatten(1, 2)
        return tuple(mixed.chunk(self.groups, 1)) if self.split_shuffle else mixed


class LabelSmoothingCrossEntropy(nn.Module):
    """Cross entropy with targets that give a little to every other class."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0) -> None:
        super().__init__()
        self.on_value, self.off_value = 1.0 - smooth_factor, smooth_factor / (num_classes - 1)

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        labels = _npu.npu_one_hot(target.int(), -1, pred.size(1), self.on_value, self.off_value)
        return _npu.npu_softmax_cross_entropy_with_logits(pred, labels).mean(0, dtype=torch.float32)


class _Dropping(nn.Dropout):
    """torch_npu draws the masks of these ahead, on a stream of their own; here a dropout draws when it runs."""

    def __init__(self, p: float, module_name: str | None = None) -> None:
        super().__init__(p)
        self.module_name = module_name

    @classmethod
    def enable_dropout_ensemble(cls, model: Any) -> None:
        """Nothing has to be set up: masks are drawn when a layer runs."""


class NpuCachedDropout(_Dropping):
    """dropout."""


class NpuFairseqDropout(_Dropping):
    """dropout."""


class NpuDropPath(nn.Module):
    """Drops whole samples at random, and scales the others."""

    def __init__(self, drop_prob: float = 0.0) -> None:
        super().__init__()
        self.drop_prob, self.keep_prob = drop_prob, 1 - drop_prob

    @classmethod
    def enable_droppath_ensemble(cls, model: Any) -> None:
        """Nothing has to be set up: what is dropped is drawn when a layer runs."""

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        kept = torch.rand([x.size(0), *(1,) * (x.dim() - 1)], dtype=x.dtype, device=x.device) < self.keep_prob
        return x / self.keep_prob * kept


class DropoutWithByteMask(nn.Module):
    """dropout, with a mask of a byte an item."""

    def __init__(self, p: float = 0.5, inplace: bool = False, max_seed: int = 2 ** 10 - 1) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input1: Tensor) -> Tensor:
        if self.inplace:
            raise ValueError("dropout probability has no-inplace computing.")
        return _npu.dropout_with_byte_mask(input1, self.p, self.training)


class BiLSTM(nn.Module):
    """Two LSTMs, one over the sequence and one against it, their results side by side."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.fw_rnn, self.bw_rnn = nn.LSTM(input_size, hidden_size), nn.LSTM(input_size, hidden_size)

    def forward(self, inputs: Tensor) -> Tensor:
        back, _ = self.bw_rnn(inputs.flip(0))
        return torch.cat((self.fw_rnn(inputs)[0], back.flip(0)), 2)


class _Conv(nn.Module):
    """Convolution, batch norm, leaky relu."""

    def __init__(self, c1: int, c2: int, k: int = 1, s: int = 1, p: int | None = None, g: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2 if p is None else p, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.LeakyReLU(0.1, inplace=True) if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Focus(nn.Module):
    """Every second item of height and width as channels, then a convolution."""

    def __init__(self, c1: int, c2: int, k: int = 1, s: int = 1, p: int | None = None, g: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = _Conv(c1 * 4, c2, k, s, p, g, act)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(torch.cat([x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)], 1))


class Prefetcher:
    """Moves the next batch of a loader to the npu while this one is computed with."""

    def __init__(self, loader: Iterable[Any], stream: Any = None) -> None:
        self.loader = iter(loader)
        self.stream = torch.npu.Stream() if stream is None else stream
        self.preload()

    def preload(self) -> None:
        batch: Any = next(self.loader, (None, None))
        self.next_input, self.next_target = batch
        if self.next_target is None:
            return
        with torch.npu.stream(self.stream):
            self.next_input = self.next_input.npu(non_blocking=True)
            self.next_target = self.next_target.npu(non_blocking=True)

    def next(self) -> tuple[Any, Any]:
        """The batch that was fetched; (None, None) after the last."""
        torch.npu.current_stream().wait_stream(self.stream)
        found = self.next_input, self.next_target
        if found[1] is not None:
            self.preload()
        return found


class ROIAlign(nn.Module):
    """The mean of samples in each bin of every region (image, x0, y0, x1, y1)."""

    def __init__(self, output_size: Any, spatial_scale: float, sampling_ratio: int, aligned: bool = True) -> None:
        super().__init__()
        self.output_size, self.spatial_scale = output_size, spatial_scale
        self.sampling_ratio, self.aligned = sampling_ratio, aligned

    def forward(self, input_tensor: Tensor, rois: Tensor) -> Tensor:
        if rois.dim() != 2 or rois.size(1) != 5:
            raise ValueError("Expected rois.dim() == 2 and rois.size(1) == 5")
        size = (self.output_size,) * 2 if isinstance(self.output_size, int) else self.output_size
        return _npu.npu_roi_align(input_tensor.float(), rois, self.spatial_scale, size[0], size[1], self.sampling_ratio,
                                  3 if self.aligned else 0)


class PSROIPool(nn.Module):
    """The mean of each bin of every region, from planes of its own."""

    def __init__(self, pooled_height: int = 7, pooled_width: int = 7, spatial_scale: float = 1 / 16.0, group_size: int = 7,
                 output_dim: int = 22) -> None:
        super().__init__()
        if not pooled_height == pooled_width == group_size:
            raise ValueError("only pooled_height == pooled_width == group_size supported.")
        self.group_size, self.spatial_scale, self.output_dim = group_size, spatial_scale, output_dim

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        return _npu.npu_ps_roi_pooling(features, rois, self.spatial_scale, self.group_size, self.output_dim)


class ModulatedDeformConv(nn.Module):
    """A convolution whose places are moved by offsets that another convolution finds."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, dilation: int = 1,
                 groups: int = 1, deformable_groups: int = 1, bias: bool = True, pack: bool = True) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding, self.dilation = ((x, x) for x in (kernel_size, stride, padding, dilation))
        self.groups, self.deformable_groups = groups, deformable_groups
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        bound = 1 / math.sqrt(in_channels * kernel_size * kernel_size)
        nn.init.uniform_(self.weight, -bound, bound)
        self.conv_offset = nn.Conv2d(in_channels, deformable_groups * 3 * kernel_size * kernel_size, kernel_size, stride, padding)
        nn.init.zeros_(self.conv_offset.weight)
        nn.init.zeros_(self.conv_offset.bias)

    def forward(self, x: Tensor) -> Tensor:
        found = self.conv_offset(x)
        share = found.size(1) // 3
        offset = torch.cat([found[:, :2 * share], found[:, 2 * share:].sigmoid()], 1)
        pads = [p for p in self.padding for _ in range(2)]
        return _npu.npu_deformable_conv2d(x, self.weight, offset, self.bias, self.kernel_size, [1, 1, *self.stride], pads,
                                          [1, 1, *self.dilation], self.groups, self.deformable_groups)[0]


DCNv2 = ModulatedDeformConv
