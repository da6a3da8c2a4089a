"""Kernels of the npu for torch.nn where one aclnn call does not serve the row as it is. Not matrices: ops_linalg.py."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._backends.npu import runtime as npu_runtime
from mindtorch_v2._backends.npu.aclnn import launch
from mindtorch_v2._backends.npu.body import Args, Body, Outs, Writer
from mindtorch_v2._backends.npu.ops_older import rms_norm_backward
from mindtorch_v2._backends.npu.torch_ops import ops

# ---- constants that CANN takes as tensors: copied from the host, which waits, so that every stream may read them -----
_constants: dict[tuple[Any, ...], Any] = {}
npu_runtime.on_close(lambda _device: _constants.clear())     # they lie in memory that goes with the runtime


def _filled(value: int, like: Any) -> Any:
    """A tensor of one item that is never written to, made once."""
    key = (value, like.dtype, like.device.index)
    found = _constants.get(key)
    if found is None:
        found = _constants[key] = ops.full([1], value, dtype=like.dtype).to(like.device)
    return found


# ---- activations -----------------------------------------------------------------------------------------------------
def _log_sigmoid_backward(grad_output: Any, self: Any) -> Any:
    return grad_output * (-self).sigmoid()


# CANN's softmax takes float64, its gradient does not.
def _softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return output * (grad_output - (grad_output * output).sum(dim, True))


def _log_softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - output.exp() * grad_output.sum(dim, True)


# ---- losses ----------------------------------------------------------------------------------------------------------
def _smooth_l1(outs: Outs, args: Args) -> None:
    (out,), (self, beta) = outs, args
    launch("aclnnSmoothL1Loss", out, self, ops.zeros_like(self.detach()), 0, beta, out)


def _smooth_l1_backward(outs: Outs, args: Args) -> None:
    (out,), (grad_output, self, beta) = outs, args
    launch("aclnnSmoothL1LossBackward", out, grad_output, self, ops.zeros_like(self.detach()), 0, beta, out)


def _no_gradients(outs: Outs, args: Args) -> None:
    """A batch of nothing: sums over it are 0."""
    for out in outs:
        if out is not None:
            out.fill_(0)


# ---- convolutions of complex numbers, which CANN has not --------------------------------------------------------------
def _parts(name: str, x: Any) -> tuple[Any, Any]:
    if not x.is_complex():
        raise NotImplementedError(f"[{name}] no kernel for npu in {x.dtype}")
    return ops.view_as_real(x).unbind(-1)


def _complex_convolution(input: Any, weight: Any, bias: Any, *how: Any) -> Any:
    """By three real ones, as torch has it."""
    (a, b), (c, d) = _parts("convolution", input), _parts("convolution", weight)
    real_bias = both_bias = None
    if bias is not None:
        real_bias, imag_bias = _parts("convolution", bias)
        both_bias = real_bias + imag_bias
    first, second = ops.convolution(a, c, real_bias, *how), ops.convolution(b, d, None, *how)
    both = ops.convolution(a + b, c + d, both_bias, *how)
    return ops.complex(first - second, both - first - second)


def _complex_convolution_backward(grad_output: Any, input: Any, weight: Any, *rest: Any) -> tuple[Any, ...]:
    """Gradients are products with the conjugates of input and weight."""
    *how, (for_input, for_weight, for_bias) = rest
    given = [_parts("_convolution_backward", x) for x in (grad_output, input, weight)]

    def real(i: int, j: int, mask: list[bool]) -> tuple[Any, ...]:
        return ops._convolution_backward(given[0][i], given[1][j], given[2][j], *how, mask)

    mask, bias_only = [for_input, for_weight, False], [False, False, True]
    made: list[Any] = [None, None, None]
    if for_input or for_weight:
        a, b, c, d = (real(i, j, mask) for i, j in ((0, 0), (1, 1), (1, 0), (0, 1)))
        made[:2] = [None if a[k] is None else ops.complex(a[k] + b[k], c[k] - d[k]) for k in (0, 1)]
    if for_bias:
        made[2] = ops.complex(real(0, 0, bias_only)[2], real(1, 0, bias_only)[2])
    return tuple(made)


# ---- pooling ---------------------------------------------------------------------------------------------------------
def _adaptive_max(n: int) -> Writer:
    def forward(outs: Outs, args: Args) -> None:             # CANN takes every size, torch also one for all
        launch(f"aclnnAdaptiveMaxPool{n}d", outs[0], args[0], outs[0].shape[-n:], *outs)
    return forward


def _adaptive_max_pool2d_backward(grad_output: Any, self: Any, indices: Any) -> Any:
    flat = ops.zeros_like(self).flatten(-2)                  # aclnn has it from CANN 8.5 on only
    return flat.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)


# ---- classes ---------------------------------------------------------------------------------------------------------
def _one_hot(outs: Outs, args: Args) -> None:
    (out,), (self, classes) = outs, args
    launch("aclnnOneHot", out, self, classes, _filled(1, out), _filled(0, out), -1, out)


# ---- bags of rows ----------------------------------------------------------------------------------------------------
def _bag(outs: Outs, args: Args) -> None:
    (out,), (weight, indices, offsets, per_sample_weights, mode, padding_idx, include_last_offset) = outs, args
    if indices.numel() == 0:
        out.fill_(0)
        return
    bags = out.size(0)
    bag_of, sizes = ops.empty_like(indices), ops.empty([bags], dtype=indices.dtype, device=out.device)
    best = ops.empty(list(out.shape) if mode == 2 else [bags], dtype=indices.dtype, device=out.device)
    launch("aclnnEmbeddingBag", out, weight, indices, offsets.to(indices.dtype), False, mode, False, per_sample_weights,
           include_last_offset, padding_idx, out, bag_of, sizes, best)


BODIES = {
    "_bag": Body(kernel=_bag),
    "_convolution_backward": Body(on_empty=_no_gradients, fallback=_complex_convolution_backward),
    "_fused_rms_norm_backward": Body(on_empty=_no_gradients, fallback=rms_norm_backward),
    "_log_softmax_backward_data": Body(fallback=_log_softmax_backward),
    "_smooth_l1": Body(kernel=_smooth_l1),
    "_smooth_l1_backward": Body(kernel=_smooth_l1_backward),
    "_softmax_backward_data": Body(fallback=_softmax_backward),
    "adaptive_max_pool2d": Body(kernel=_adaptive_max(2)),
    "adaptive_max_pool2d_backward": Body(value=_adaptive_max_pool2d_backward),
    "adaptive_max_pool3d": Body(kernel=_adaptive_max(3), needs="aclnnAdaptiveMaxPool3d"),
    "convolution": Body(fallback=_complex_convolution),
    "log_sigmoid_backward": Body(fallback=_log_sigmoid_backward),
    "one_hot": Body(kernel=_one_hot),
}
