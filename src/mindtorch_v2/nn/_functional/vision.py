"""Functions on images and their likes: padding, resizing, grids, patches."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.utils import _pair

Tensor = torch.Tensor

__all__ = [
    "affine_grid", "fold", "grid_sample", "interpolate", "pad", "unfold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

# (mode, spatial dimensions) -> op, and whether it takes align_corners.
_RESIZE = {
    ("nearest", 1): ("upsample_nearest1d", False),
    ("nearest", 2): ("upsample_nearest2d", False),
    ("nearest", 3): ("upsample_nearest3d", False),
    ("nearest-exact", 1): ("_upsample_nearest_exact1d", False),
    ("nearest-exact", 2): ("_upsample_nearest_exact2d", False),
    ("nearest-exact", 3): ("_upsample_nearest_exact3d", False),
    ("linear", 1): ("upsample_linear1d", True),
    ("bilinear", 2): ("upsample_bilinear2d", True),
    ("trilinear", 3): ("upsample_trilinear3d", True),
    ("bicubic", 2): ("upsample_bicubic2d", True),
}
_ANTIALIASED = {
    "bilinear": "_upsample_bilinear2d_aa",
    "bicubic": "_upsample_bicubic2d_aa",
    "lanczos": "_upsample_lanczos2d_aa",
}
_NEEDS = {"linear": 3, "bilinear": 4, "trilinear": 5}
_GRID_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_GRID_PADDING = {"zeros": 0, "border": 1, "reflection": 2}
_ALIGN_WARNING = (
    "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
    "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
    "documentation of grid_sample for details."
)


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pad the last dimensions: constant, reflect, replicate or circular."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.pad, (input,), input, pad, mode=mode,
            value=value)
    return torch._C._nn.pad(input, pad, mode, value)


def _check_length(given: Any, what: str, letter: str, input: Tensor) -> None:
    if len(given) == input.dim() - 2:
        return
    spatial = list(input.shape[2:])
    if what == "size":
        text = "Input and output must have the same number of spatial dimensions, but got input "
        text += f"with spatial dimensions of {spatial} and output size of {given}. "
        end = "output size"
    else:
        text = "Input and scale_factor must have the same number of spatial dimensions, but got "
        text += f"input with spatial dimensions of {spatial} and scale_factor of shape {given}. "
        end = "scale_factor"
    raise ValueError(
        f"{text}Please provide input tensor in (N, C, d1, d2, ...,dK) format and {end} in "
        f"({letter}1, {letter}2, ...,{letter}K) format."
    )


def _resize_target(input: Tensor, size: Any, scale_factor: Any) -> tuple[Any, Any]:
    """The output size and the scale factors, one of which is None."""
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if not isinstance(size, (list, tuple)):
            return [size] * spatial, None
        _check_length(size, "size", "o", input)
        if not all(isinstance(s, int) or hasattr(s, "__index__") for s in size):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or "
                f"Tuple[int, int, int], but got size with types {[type(s) for s in size]}"
            )
        return size, None
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if not isinstance(scale_factor, (list, tuple)):
        return None, [scale_factor] * spatial
    _check_length(scale_factor, "scale_factor", "s", input)
    return None, scale_factor


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resize to a size or by a factor."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.interpolate, (input,), input, size=size,
            scale_factor=scale_factor, mode=mode, align_corners=align_corners,
            recompute_scale_factor=recompute_scale_factor, antialias=antialias)
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the "
                "interpolating modes: linear | bilinear | bicubic | trilinear"
            )
    elif align_corners is None:
        align_corners = False
    dims = input.dim()
    output_size, factors = _resize_target(input, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if (recompute_scale_factor or mode == "area") and output_size is None:
        output_size = [int(n * f) for n, f in zip(input.shape[2:], factors)]
        factors = None
    if antialias and not (mode in _ANTIALIASED and dims == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and "
            "requires a 4-D tensor as input"
        )
    nn = torch._C._nn
    if mode == "area" and dims in (3, 4, 5):
        home = torch if dims == 3 else nn
        return getattr(home, f"adaptive_avg_pool{dims - 2}d")(input, output_size)
    if mode == "lanczos" and dims == 4:
        if align_corners:
            raise ValueError("Lanczos mode does not support align_corners=True")
        if not antialias:
            raise ValueError("Lanczos mode requires antialias=True")
    if antialias:
        return getattr(nn, _ANTIALIASED[mode])(input, output_size, align_corners, factors)
    row = _RESIZE.get((mode, dims - 2))
    if row is not None:
        op = getattr(nn, row[0])
        if row[1]:
            return op(input, output_size, align_corners, factors)
        return op(input, output_size, factors)
    if mode in _NEEDS and dims in (3, 4, 5):
        raise NotImplementedError(
            f"Got {dims}D input, but {mode} mode needs {_NEEDS[mode]}D input"
        )
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {dims}D) for the modes: "
        "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact "
        f"(got {mode})"
    )


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """The old name of interpolate."""
    warnings.warn(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The old name of interpolate with mode nearest."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. "
        "Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """The old name of interpolate with mode bilinear and aligned corners."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. "
        "Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Sample an image at the places of a grid in [-1, 1]."""
    if (type(input) is not Tensor or type(grid) is not Tensor) and \
            torch.nn.functional.has_torch_function_variadic(input, grid):
        return torch.overrides.handle_torch_function(torch.nn.functional.grid_sample, (input, grid), input, grid,
            mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    if mode not in _GRID_MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or "
            f"'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _GRID_PADDING:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        warnings.warn(_ALIGN_WARNING, stacklevel=2)
        align_corners = False
    return torch.grid_sampler(
        input, grid, _GRID_MODES[mode], _GRID_PADDING[padding_mode], align_corners
    )


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of an affine map, for grid_sample."""
    if type(theta) is not Tensor and torch.nn.functional.has_torch_function_unary(theta):
        return torch.overrides.handle_torch_function(torch.nn.functional.affine_grid, (theta,), theta, size,
            align_corners=align_corners)
    if align_corners is None:
        warnings.warn(_ALIGN_WARNING, stacklevel=2)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {size}."
        )
    n = len(size) - 2
    if theta.dim() != 3 or theta.shape[-2] != n or theta.shape[-1] != n + 1:
        raise ValueError(
            f"Expected a batch of {n}D affine matrices of shape Nx{n}x{n + 1} for size {size}. "
            f"Got {theta.shape}."
        )
    if align_corners and min(size[-n:]) == 1:
        warnings.warn(
            "Since version 1.3.0, affine_grid behavior has changed for unit-size grids when "
            "align_corners=True. This is not an intended use case of affine_grid. See the "
            "documentation of affine_grid for details.",
            stacklevel=2,
        )
    elif min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    return torch.affine_grid_generator(theta, size, align_corners)


def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sliding patches as columns."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.unfold, (input,), input, kernel_size,
            dilation=dilation, padding=padding, stride=stride)
    return torch._C._nn.im2col(
        input, _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride)
    )


def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Add columns of patches back into an image."""
    if type(input) is not Tensor and torch.nn.functional.has_torch_function_unary(input):
        return torch.overrides.handle_torch_function(torch.nn.functional.fold, (input,), input, output_size,
            kernel_size, dilation=dilation, padding=padding, stride=stride)
    return torch._C._nn.col2im(
        input, _pair(output_size), _pair(kernel_size), _pair(dilation), _pair(padding),
        _pair(stride),
    )  # fmt: skip
