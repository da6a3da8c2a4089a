"""Kernels of the npu for torch.nn where one aclnn call does not serve the row as it is. Not matrices: ops_linalg.py."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu import runtime as npu_runtime
from mindtorch_v2._backends.npu.ops import EMPTIES, OTHERS, composed, kernel, ops

Outs, Args = tuple[Any, ...], tuple[Any, ...]
_empty = _C._op_named("empty")


def launch(name: str, out: Any, *arguments: Any) -> None:
    """One aclnn op on the device of out, arguments in CANN's order; nothing where out has no items."""
    if out.numel():
        _C._npu_call(aclnn.plan_of(name), out.device.index, arguments)


# ---- constants that CANN wants as tensors: copied from the host, which waits, so that every stream may read them -----
_constants: dict[tuple[Any, ...], Any] = {}
npu_runtime.on_close(lambda _device: _constants.clear())     # they lie in memory that goes with the runtime


def _filled(value: int, like: Any) -> Any:
    """A tensor of one item that nobody writes to, made once."""
    key = (value, like.dtype, like.device.index)
    found = _constants.get(key)
    if found is None:
        found = _constants[key] = ops.full([1], value, dtype=like.dtype).to(like.device)
    return found


# ---- activations -----------------------------------------------------------------------------------------------------
@composed("log_sigmoid_backward", registry=OTHERS)
def _log_sigmoid_backward(grad_output: Any, self: Any) -> Any:
    return grad_output * (-self).sigmoid()


# CANN's softmax takes float64, its gradient does not.
@composed("_softmax_backward_data", registry=OTHERS)
def _softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return output * (grad_output - (grad_output * output).sum(dim, True))


@composed("_log_softmax_backward_data", registry=OTHERS)
def _log_softmax_backward(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return grad_output - output.exp() * grad_output.sum(dim, True)


# ---- losses ----------------------------------------------------------------------------------------------------------
@kernel("_smooth_l1")
def _smooth_l1(outs: Outs, args: Args) -> None:
    (out,), (self, beta) = outs, args
    launch("aclnnSmoothL1Loss", out, self, ops.zeros_like(self.detach()), 0, beta, out)


@kernel("_smooth_l1_backward")
def _smooth_l1_backward(outs: Outs, args: Args) -> None:
    (out,), (grad_output, self, beta) = outs, args
    launch("aclnnSmoothL1LossBackward", out, grad_output, self, ops.zeros_like(self.detach()), 0, beta, out)


def _no_losses(outs: Outs, args: Args) -> None:
    """Nothing to count: the sum is 0, the mean 0 / 0."""
    outs[0].fill_(math.nan if args[3] == 1 else 0)
    outs[1].fill_(0)


def _no_gradients(outs: Outs, args: Args) -> None:
    """A batch of nothing: sums over it are 0."""
    for out in outs:
        if out is not None:
            out.fill_(0)


EMPTIES.update(nll_loss_forward=_no_losses, nll_loss2d_forward=_no_losses, _fused_rms_norm_backward=_no_gradients,
               _convolution_backward=_no_gradients)


# ---- pooling ---------------------------------------------------------------------------------------------------------
def _adaptive_max(n: int) -> None:
    def forward(outs: Outs, args: Args) -> None:             # CANN wants every size, torch takes one for all
        launch(f"aclnnAdaptiveMaxPool{n}d", outs[0], args[0], outs[0].shape[-n:], *outs)
    kernel(f"adaptive_max_pool{n}d")(forward)


_adaptive_max(2)
_adaptive_max(3)


@composed("adaptive_max_pool2d_backward")
def _adaptive_max_pool2d_backward(grad_output: Any, self: Any, indices: Any) -> Any:
    flat = ops.zeros_like(self).flatten(-2)                  # aclnn has it from CANN 8.5 on only
    return flat.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)


# ---- classes ---------------------------------------------------------------------------------------------------------
@kernel("one_hot")
def _one_hot(outs: Outs, args: Args) -> None:
    (out,), (self, classes) = outs, args
    launch("aclnnOneHot", out, self, classes, _filled(1, out), _filled(0, out), -1, out)


# ---- bags of rows ----------------------------------------------------------------------------------------------------
@kernel("_bag")
def _bag(outs: Outs, args: Args) -> None:
    (out,), (weight, indices, offsets, per_sample_weights, mode, padding_idx, include_last_offset) = outs, args
    if indices.numel() == 0:
        out.fill_(0)
        return
    bags = out.size(0)
    bag_of, sizes = ops.empty_like(indices), _empty([bags], dtype=indices.dtype, device=out.device)
    best = _empty(list(out.shape) if mode == 2 else [bags], dtype=indices.dtype, device=out.device)
    launch("aclnnEmbeddingBag", out, weight, indices, offsets.to(indices.dtype), False, mode, False, per_sample_weights,
           include_last_offset, padding_idx, out, bag_of, sizes, best)
