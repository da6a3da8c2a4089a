"""What serves ops where the installed CANN lacks their call, or has no kernel of it for this SoC: bodies of older ops."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu.body import Body, Value
from mindtorch_v2._backends.npu.torch_ops import ops

_FLOAT32, _FLOAT64, _INT64, _BOOL = (_C._dtype_named(name) for name in ("float32", "float64", "int64", "bool"))


# ---- pointwise -------------------------------------------------------------------------------------------------------
def _heaviside(self: Any, values: Any) -> Any:
    step = ops.where(self == 0, values, (self > 0).to(values.dtype))
    return ops.where(self != self, self, step) if self.is_floating_point() else step


def _shift_operands(self: Any, other: Any) -> tuple[Any, Any, int]:
    """Both in one dtype, and its bits."""
    like = self if isinstance(self, _C.TensorBase) else other
    self, other = (x if isinstance(x, _C.TensorBase) else ops.full((), x, dtype=like.dtype, device=like.device)
                   for x in (self, other))
    dtype = _C.promote_types(self.dtype, other.dtype)
    return self.to(dtype), other.to(dtype), 8 * dtype.itemsize


def _left_shift(self: Any, other: Any) -> Any:
    self, other, bits = _shift_operands(self, other)
    return ops.where((other < 0) | (other >= bits), 0, self * ops.pow(2, other.clamp(0, bits - 1)))


def _right_shift(self: Any, other: Any) -> Any:
    self, other, bits = _shift_operands(self, other)
    last = bits - (1 if self.dtype.is_signed else 0)         # shifted this far, only the sign is left; 2 ** it does not fit
    beyond = ops.where(self < 0, -1, 0) if self.dtype.is_signed else 0
    shifted = ops.floor_divide(self, ops.pow(2, other.clamp(0, last - 1)))
    return ops.where((other < 0) | (other >= last), beyond, shifted)


# ---- images ----------------------------------------------------------------------------------------------------------
def _nearest(n: int) -> Value:
    """upsample_nearest: CANN 8.0 has it without scales only."""
    def resize(self: Any, output_size: Any, *scales: float | None) -> Any:
        for dim, size, scale in zip(range(-n, 0), output_size, scales, strict=True):
            before = self.shape[dim]
            step = 1.0 / scale if scale else before / size
            places = (ops.arange(size, dtype=_FLOAT32, device=self.device) * step).to(_INT64).clamp(max=before - 1)
            self = self.index_select(dim, places)
        return self
    return resize


def _adaptive_max_pool3d_backward(grad_output: Any, self: Any, indices: Any) -> Any:
    flat = ops.zeros_like(self).flatten(-3)
    return flat.scatter_add(-1, indices.flatten(-3), grad_output.flatten(-3)).reshape(self.shape)


# ---- the root mean square ----------------------------------------------------------------------------------------------
def _wide(x: Any) -> Any:
    return x if x.dtype.itemsize > 2 else x.to(_FLOAT32)


def _rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> tuple[Any, Any]:
    x, dims = _wide(input), list(range(-len(normalized_shape), 0))
    if eps is None:
        eps = 2.0 ** (-52 if x.dtype is _FLOAT64 else -23)
    scale = (x.square().mean(dims, True) + eps).rsqrt()
    normal = x * scale
    return normal if weight is None else normal * weight.to(x.dtype), scale


def rms_norm_backward(grad_out: Any, input: Any, normalized_shape: Any, rstd: Any, weight: Any, output_mask: Any) -> Any:
    """The gradients of input and weight; None for one that is not wanted."""
    g, x, dims = _wide(grad_out), _wide(input), list(range(-len(normalized_shape), 0))
    normal, h = x * rstd, g if weight is None else g * weight.to(g.dtype)
    rows = list(range(x.dim() - len(dims)))
    through = rstd * (h - normal * (h * normal).mean(dims, True)) if output_mask[0] else None
    of_weight = (g * normal).sum(rows) if rows else g * normal
    return through, of_weight if output_mask[1] else None


# ---- scatter_reduce --------------------------------------------------------------------------------------------------
def _places(out: Any, dim: int, index: Any) -> Any:
    """Where each item of index goes in out, whose items are counted in their order."""
    first = ops.arange(out.numel(), device=out.device).reshape(out.shape)
    for d in range(out.dim()):
        first = first.narrow(d, 0, 1 if d == dim else index.size(d))
    step = 1
    for size in out.shape[dim + 1:]:
        step *= size
    return (first + index * step).reshape(-1)


def _joined(function: Any, places: Any, values: Any) -> Any:
    """Of items ordered by place, each with all before it that have its place: in as many steps as the length has digits."""
    n, step = places.numel(), 1
    while step < n:
        earlier, later = values.narrow(0, 0, n - step), values.narrow(0, step, n - step)
        same = places.narrow(0, 0, n - step) == places.narrow(0, step, n - step)
        values, step = ops.cat([values.narrow(0, 0, step), ops.where(same, function(earlier, later), later)]), 2 * step
    return values


def reduce_by_segments(out: Any, dim: int, index: Any, src: Any, function: Any, include_self: bool, mean: bool = False) -> None:
    """scatter_reduce_ of items that are sorted by the place they go to, with a function of two; None: they are added."""
    if out.dim() == 0:
        out, index, src, dim = out.reshape(1), index.reshape(1), src.reshape(-1).narrow(0, 0, 1), 0
    dim, n = dim % out.dim(), out.numel()
    for d in range(src.dim()):
        src = src.narrow(d, 0, index.size(d))
    before, places = out.reshape(-1), _places(out, dim, index)
    touched = ops.zeros([n], dtype=_INT64, device=out.device).scatter_add(0, places, ops.ones_like(places))
    if function is None:
        start = before if include_self else ops.where(touched > 0, 0, before)
        made = start.scatter_add(0, places, src.reshape(-1))
        if mean:
            count = (touched + (1 if include_self else 0)).clamp(min=1).to(made.dtype)
            made = made / count if made.is_floating_point() or made.is_complex() else ops.floor_divide(made, count)
    else:
        places, order = ops.sort(places)
        values = _joined(function, places, src.reshape(-1).index_select(0, order))
        is_last = ops.cat([places.narrow(0, 1, places.numel() - 1) != places.narrow(0, 0, places.numel() - 1),
                           ops.ones([1], dtype=_BOOL, device=out.device)])
        spare = ops.cat([before, before.narrow(0, 0, 1)])        # takes the items that are not the last of their place
        found = spare.scatter(0, ops.where(is_last, places, n), values).narrow(0, 0, n)
        made = ops.where(touched > 0, function(before, found) if include_self else found, before)
    out.copy_(made.reshape(out.shape))


BODIES = {
    "_fused_rms_norm": Body(fallback=_rms_norm),
    "adaptive_max_pool3d_backward": Body(fallback=_adaptive_max_pool3d_backward),
    "bitwise_left_shift": Body(fallback=_left_shift),
    "bitwise_right_shift": Body(fallback=_right_shift),
    "heaviside": Body(fallback=_heaviside),
    "upsample_nearest1d": Body(fallback=_nearest(1)),
    "upsample_nearest2d": Body(fallback=_nearest(2)),
}
