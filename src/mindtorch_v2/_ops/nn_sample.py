"""Rows of sampling images at grids, of pixel and channel shuffles, and of patches."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching_nn, forward
from mindtorch_v2._ops.grid_curve import sampled_twice
from mindtorch_v2._ops.reduce import word
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor

_CONTIGUOUS = _C._named_constant("contiguous_format")


# ---- sampling at the points of a grid --------------------------------------------------------------------------------
def _grid_rule(n: int) -> Callable[..., Any]:
    def rule(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Spec:
        return (*input.shape[:2], *grid.shape[1:-1]), input.dtype
    return rule


def _grid_row(n: int) -> None:
    name, arguments = f"grid_sampler_{n}d", "int interpolation_mode, int padding_mode, bool align_corners"
    order = "interpolation_mode, padding_mode, align_corners"
    op(f"{name}_backward(Tensor grad_output, Tensor input, Tensor grid, {arguments}, bool[2] output_mask) "
       "-> (Tensor, Tensor)", variants="", batch=batching_nn.folded(n + 1, "grad_output", "input", "grid"),
       rule=lambda grad_output, input, grid, mode, padding, align, mask:
       [(input.shape, input.dtype) if mask[0] else None, (grid.shape, grid.dtype) if mask[1] else None],
       grad={"grad_output, input, grid":
             lambda gs, grad_output, input, grid, interpolation_mode, padding_mode, align_corners, needs:
             sampled_twice(gs, grad_output, input, grid, interpolation_mode, padding_mode, align_corners, needs)},
       npu=f"aclnnGridSampler{n}DBackward(grad_output, input, grid, {order}, output_mask, out0, out1)")
    op(f"{name}(Tensor input, Tensor grid, {arguments}) -> Tensor",
       forward=forward.refused(name),
       batch=batching_nn.folded(n + 1, "input", "grid"), variants="function", rule=_grid_rule(n), out=False,
       autocast={"cpu": "float32"},
       npu=f"aclnnGridSampler{n}D(input, grid, {order}, out)",
       grad={"input, grid": lambda g, input, grid, interpolation_mode, padding_mode, align_corners, needs:
             getattr(ops, name + "_backward")(g, input, grid, interpolation_mode, padding_mode, align_corners, needs)})


_grid_row(2)
_grid_row(3)


@composite("grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) "
           "-> Tensor", autocast={"cpu": "float32", "npu": "widest"}, out=False, variants="function")
def _grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
                  align_corners: bool) -> Tensor:
    """The input at the points of a grid; -1 and 1 are its edges."""
    if input.size(0) != grid.size(0):
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
                           f"{list(input.shape)} and grid with sizes {list(grid.shape)}")
    if grid.size(-1) != input.dim() - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, but got "
                           f"grid with sizes {list(grid.shape)}")
    for d in range(2, input.dim()):
        if input.size(d) <= 0:
            raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has "
                               f"sizes {list(input.shape)} with dimension {d} being empty")
    if input.dim() not in (4, 5) or input.dim() != grid.dim():
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got "
                           f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if input.dim() == 5 and interpolation_mode == 2:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if input.dtype is not grid.dtype:
        raise RuntimeError(f"expected scalar type {word(input.dtype)} but found {word(grid.dtype)}")
    sampler = ops.grid_sampler_2d if input.dim() == 4 else ops.grid_sampler_3d
    return sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def _affine_rule(theta: Tensor, size: list[int], align_corners: bool) -> Spec:
    if len(size) not in (4, 5):
        raise RuntimeError("AffineGridGenerator needs 4d (spatial) or 5d (volumetric) inputs.")
    return (size[0], *size[2:], len(size) - 2), theta.dtype


def _affine_points(theta: Tensor, size: list[int], align_corners: bool) -> Tensor:
    """The points that theta maps: (batch, points, x y [z] 1)."""
    n, axes = len(size) - 2, []
    for axis in range(n - 1, -1, -1):                        # x first
        length = size[2 + axis]
        line = ops.linspace(-1, 1, length, dtype=theta.dtype, device=theta.device) if length > 1 else \
            ops.zeros((length,), dtype=theta.dtype, device=theta.device)
        if not align_corners and length > 1:
            line = line * ((length - 1) / length)
        axes.append(line.reshape([-1 if d == axis else 1 for d in range(n)]).expand(*size[2:]))
    axes.append(ops.ones_like(axes[0]))
    return ops.stack(axes, -1).reshape(1, -1, n + 1).expand(size[0], -1, -1)


def _affine_grad(g: Tensor, size: Any, align_corners: bool) -> Any:
    points = _affine_points(g, size, align_corners)
    return ops.matmul(g.reshape(size[0], -1, g.size(-1)).transpose(1, 2), points)


@composite("affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor", out=False,
           variants="function",
           rule=_affine_rule, npu="aclnnAffineGrid(theta, size, align_corners, out)",
           grad={"theta": lambda g, size, align_corners: _affine_grad(g, size, align_corners)})
def _affine_grid(theta: Tensor, size: list[int], align_corners: bool) -> Tensor:
    """The grid of points that an affine map gives, for grid_sampler."""
    shape, _ = _affine_rule(theta, size, align_corners)
    return ops.matmul(_affine_points(theta, size, align_corners), theta.transpose(1, 2)).reshape(shape)


# ---- pixels and channels ---------------------------------------------------------------------------------------------
def _is_channels_last(x: Tensor) -> bool:
    """Whether the result is to be channels last too."""
    return (x.is_cpu or x.is_meta) and _C._suggested_format(x) is not _CONTIGUOUS


@composite("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
           lacks="complex32", out=False, variants="function")
def _pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r r, H, W) as (*, C, H r, W r)."""
    r = upscale_factor
    if self.dim() < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with "
                           f"{self.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *batch, c, h, w = self.shape
    if c % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={c} is not divisible by {r * r}")
    n = len(batch)
    if _is_channels_last(self):
        parts = self.permute(0, 2, 3, 1).reshape(*batch, h, w, c // (r * r), r, r).permute(0, 1, 4, 2, 5, 3)
        return parts.reshape(*batch, h * r, w * r, c // (r * r)).permute(0, 3, 1, 2)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    parts = self.reshape(*batch, c // (r * r), r, r, h, w).permute(order)
    return parts.reshape(*batch, c // (r * r), h * r, w * r)


@composite("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
           lacks="complex32", out=False, variants="function")
def _pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) as (*, C r r, H, W)."""
    r = downscale_factor
    if self.dim() < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with "
                           f"{self.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *batch, c, h, w = self.shape
    for side, size in (("height", h), ("width", w)):
        if size % r:
            raise RuntimeError(f"pixel_unshuffle expects {side} to be divisible by downscale_factor, but input.size("
                               f"{-2 if side == 'height' else -1})={size} is not divisible by {r}")
    n = len(batch)
    if _is_channels_last(self):
        parts = self.permute(0, 2, 3, 1).reshape(*batch, h // r, r, w // r, r, c).permute(0, 1, 3, 5, 2, 4)
        return parts.reshape(*batch, h // r, w // r, c * r * r).permute(0, 3, 1, 2)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    parts = self.reshape(*batch, c, h // r, r, w // r, r).permute(order)
    return parts.reshape(*batch, c * r * r, h // r, w // r)


def _channel_shuffle(self: Tensor, groups: int) -> Tensor:
    """The channels of each group dealt out in turn."""
    if self.dim() <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(self.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if self.size(1) % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {self.size(1)} channels and {groups} "
                           "groups.")
    n, c, *rest = self.shape
    if _is_channels_last(self):
        parts = self.movedim(1, -1).reshape(n, *rest, groups, c // groups).transpose(-1, -2)
        return parts.reshape(n, *rest, c).movedim(-1, 1)
    return self.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(self.shape)


for _name in ("channel_shuffle", "native_channel_shuffle"):
    op(f"{_name}(Tensor self, SymInt groups) -> Tensor", body=_channel_shuffle, variants="function", out=False,
       lacks="complex32")


# ---- patches ---------------------------------------------------------------------------------------------------------
def _blocks(size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
            stride: Sequence[int]) -> list[int]:
    return [(s + 2 * p - d * (k - 1) - 1) // t + 1
            for s, k, d, p, t in zip(size, kernel, dilation, padding, stride, strict=True)]


def _two(value: Any, name: str) -> Sequence[int]:
    value = list(value) if isinstance(value, (tuple, list)) else [value, value]
    if len(value) != 2:
        raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(value)}")
    return value


def _patch_arguments(kernel_size: tuple[int, ...], dilation: Any, padding: Any,
                     stride: Any) -> tuple[Sequence[int] | list[int] | tuple[int, ...], ...]:
    kernel, dilation = _two(kernel_size, "kernel_size"), _two(dilation, "dilation")
    padding, stride = _two(padding, "padding"), _two(stride, "stride")
    for name, short, value, least in (("kernel size", "kernel", kernel, 1), ("dilation", "dilation", dilation, 1),
                                      ("padding", "pad", padding, 0), ("stride", "stride", stride, 1)):
        if min(value) < least:
            raise RuntimeError(f"{name} should be {'greater than zero' if least else 'non-negative'}, but got "
                               f"{short}_height: {value[0]} {short}_width: {value[1]}")
    return kernel, dilation, padding, stride


def _im2col_rule(self: Tensor, kernel_size: tuple[int, ...], dilation: Any, padding: Any, stride: Any) -> Spec:
    kernel, dilation, padding, stride = _patch_arguments(kernel_size, dilation, padding, stride)
    if self.dim() not in (3, 4) or any(s == 0 for s in self.shape[-3:]):
        raise RuntimeError("Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
                           f"dimensions for input, but got: {list(self.shape)}")
    blocks = _blocks(self.shape[-2:], kernel, dilation, padding, stride)
    if min(blocks) < 1:
        raise RuntimeError(f"Given input with spatial size {tuple(self.shape[-2:])}, kernel_size={tuple(kernel)}, "
                           f"dilation={tuple(dilation)}, padding={tuple(padding)}, calculated shape of the array of "
                           f"sliding blocks as {tuple(blocks)}, but its components must be at least one.")
    return (*self.shape[:-3], self.size(-3) * kernel[0] * kernel[1], blocks[0] * blocks[1]), self.dtype


def _col2im_rule(self: Tensor, output_size: tuple[int, ...], kernel_size: tuple[int, ...], dilation: Any, padding: Any,
                 stride: Any) -> Spec:
    kernel, dilation, padding, stride = _patch_arguments(kernel_size, dilation, padding, stride)
    size = _two(output_size, "output_size")
    if self.dim() not in (2, 3) or any(s == 0 for s in self.shape[-2:]):
        raise RuntimeError("Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
                           f"dimensions for input, but got: {list(self.shape)}")
    if self.size(-2) % (kernel[0] * kernel[1]):
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product of kernel_size, but "
                           f"got input.size(1)={self.size(-2)} and kernel_size={tuple(kernel)}.")
    blocks = _blocks(size, kernel, dilation, padding, stride)
    if min(blocks) < 1 or self.size(-1) != blocks[0] * blocks[1]:
        raise RuntimeError(f"Given output_size={tuple(size)}, kernel_size={tuple(kernel)}, dilation={tuple(dilation)}, "
                           f"padding={tuple(padding)}, stride={tuple(stride)}, expected size of input's dimension 2 to "
                           f"match the calculated number of sliding blocks {blocks[0]} * {blocks[1]} = "
                           f"{blocks[0] * blocks[1]}, but got input.size(2)={self.size(-1)}.")
    return (*self.shape[:-2], self.size(-2) // (kernel[0] * kernel[1]), *size), self.dtype


op("im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor", lacks="int",
   batch=batching_nn.folded(3, "self"), variants="nn",
   rule=_im2col_rule, npu="aclnnIm2col(self, kernel_size, dilation, padding, stride, out)",
   grad={"self": lambda g, self_shape, kernel_size, dilation, padding, stride:
         ops.col2im(g, self_shape[-2:], kernel_size, dilation, padding, stride)},
   doc="The patches of an image as columns.")
op("col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) "
   "-> Tensor", batch=batching_nn.folded(2, "self"), variants="nn", rule=_col2im_rule,
   npu="aclnnIm2colBackward(self, output_size, kernel_size, dilation, padding, stride, out)",
   grad={"self": lambda g, kernel_size, dilation, padding, stride:
         ops.im2col(g, kernel_size, dilation, padding, stride)},
   doc="Columns of patches added up to an image.")
