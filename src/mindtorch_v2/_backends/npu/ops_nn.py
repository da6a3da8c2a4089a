"""Kernels of the npu for torch.nn where one aclnn call does not serve the row as it is. Not matrices: ops_linalg.py."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu import runtime as npu_runtime
from mindtorch_v2._backends.npu.ops import OTHERS, composed, kernel, next_state, ops

Outs, Args = tuple[Any, ...], tuple[Any, ...]
_empty = _C._op_named("empty")
_FLOAT32, _BOOL = _C._dtype_named("float32"), _C._dtype_named("bool")


def launch(name: str, out: Any, *arguments: Any) -> None:
    """One aclnn op on the device of out, arguments in CANN's order; nothing where out has no items."""
    if out.numel():
        _C._npu_call(aclnn.plan_of(name), out.device.index, arguments)


# ---- constants that CANN wants as tensors: copied from the host, which waits, so that every stream may read them -----
_constants: dict[tuple[Any, ...], Any] = {}
npu_runtime.on_close(lambda _device: _constants.clear())     # they lie in memory that goes with the runtime


def _filled(value: int, shape: Sequence[int], like: Any) -> Any:
    """A tensor of one value that nobody writes to, made once."""
    key = (value, tuple(shape), like.dtype, like.device.index)
    found = _constants.get(key)
    if found is None:
        found = _constants[key] = ops.full(list(shape), value, dtype=like.dtype).to(like.device)
    return found


def _ones(shape: Sequence[int], like: Any) -> Any:
    """The weight of an op whose CANN form has no default."""
    return _filled(1, shape, like)


_CAUSAL = 2048                                               # CANN's size of the mask that stands for any causal one


def _attention_constants(like: Any) -> tuple[Any, Any]:
    """(what stands for a result that is not wanted, the mask of sparseMode 2: True above the diagonal), made once."""
    key = ("attention", like.dtype, like.device.index)
    found = _constants.get(key)
    if found is None:
        mask = ops.ones([_CAUSAL, _CAUSAL], dtype=_BOOL).triu(1).to(like.device)
        found = _constants[key] = _empty([0], dtype=like.dtype, device=like.device), mask
    return found


# ---- activations -----------------------------------------------------------------------------------------------------
_GELU = {"none": 0, "tanh": 1}


@kernel("gelu")
def _gelu(outs: Outs, args: Args) -> None:
    (out,), (self, approximate) = outs, args
    if approximate not in _GELU:
        raise RuntimeError("approximate argument must be either none or tanh.")
    launch("aclnnGeluV2", out, self, _GELU[approximate], out)


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


@kernel("rrelu_with_noise")
def _rrelu_with_noise(outs: Outs, args: Args) -> None:
    (out,), (self, noise, lower, upper, training, generator) = outs, args
    launch("aclnnRReluWithNoise", out, self, noise, lower, upper, training, *next_state(generator, out), out)


# ---- losses ----------------------------------------------------------------------------------------------------------
@kernel("_smooth_l1")
def _smooth_l1(outs: Outs, args: Args) -> None:
    (out,), (self, beta) = outs, args
    launch("aclnnSmoothL1Loss", out, self, ops.zeros_like(self.detach()), 0, beta, out)


@kernel("_smooth_l1_backward")
def _smooth_l1_backward(outs: Outs, args: Args) -> None:
    (out,), (grad_output, self, beta) = outs, args
    launch("aclnnSmoothL1LossBackward", out, grad_output, self, ops.zeros_like(self.detach()), 0, beta, out)


def _nll(name: str) -> None:
    classes = -1 if name == "NLLLoss" else 1

    def forward(outs: Outs, args: Args) -> None:
        (out, total), (self, target, weight, reduction, ignore_index) = outs, args
        weight = _ones((self.size(classes),), self) if weight is None else weight
        if self.numel() == 0:                                # nothing to count: the sum is 0, the mean 0 / 0
            out.fill_(math.nan if reduction == 1 else 0)
            total.fill_(0)
            return
        launch(f"aclnn{name}", total, self, target, weight, reduction, ignore_index, out, total)

    def backward(outs: Outs, args: Args) -> None:
        (out,), (grad_output, self, target, weight, reduction, ignore_index, total) = outs, args
        weight = _ones((self.size(classes),), self) if weight is None else weight
        launch(f"aclnn{name}Backward", out, grad_output, self, target, weight, reduction, ignore_index, total, out)
    row = "nll_loss" if name == "NLLLoss" else "nll_loss2d"
    kernel(row + "_forward")(forward)
    kernel(row + "_backward")(backward)


_nll("NLLLoss")
_nll("NLLLoss2d")


# ---- norms -----------------------------------------------------------------------------------------------------------
_EPSILON = {"float64": 2.0 ** -52}                           # rms_norm's eps where none is given; else float32's


@kernel("_fused_rms_norm")
def _rms_norm(outs: Outs, args: Args) -> None:
    (out, rstd), (input, shape, weight, eps) = outs, args
    weight = _ones(shape, input) if weight is None else weight
    eps = _EPSILON.get(rstd.dtype._name, 2.0 ** -23) if eps is None else eps
    launch("aclnnRmsNorm", out, input, weight, eps, out, rstd)


@kernel("_fused_rms_norm_backward")
def _rms_norm_backward(outs: Outs, args: Args) -> None:
    (grad, grad_weight), (grad_out, input, shape, rstd, weight, _) = outs, args
    weight = _ones(shape, input) if weight is None else weight
    into = grad if grad is not None else ops.empty_like(input.detach())
    wide = _empty(list(shape), dtype=_FLOAT32, device=input.device)       # CANN gives this one in float32 only
    launch("aclnnRmsNormGrad", into, grad_out, input, rstd, weight, into, wide)
    if grad_weight is not None:
        grad_weight.copy_(wide) if input.numel() else grad_weight.fill_(0)


# ---- convolution -----------------------------------------------------------------------------------------------------
@kernel("_convolution_backward")
def _convolution_backward(outs: Outs, args: Args) -> None:
    *given, wanted = args
    channels = given[0].size(1)
    mask = [bool(wanted >> i & 1) for i in range(3)]
    out = next(o for o in outs if o is not None)
    launch("aclnnConvolutionBackward", out, *given[:3], [channels], *given[3:], mask, 1, *outs)


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
    launch("aclnnOneHot", out, self, classes, _ones((1,), out), _filled(0, (1,), out), -1, out)


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


# ---- attention -------------------------------------------------------------------------------------------------------
_ALL = 2 ** 31 - 1                                           # tokens before and after: no band


def _settings(query: Any, is_causal: bool, scale: float | None) -> tuple[Any, ...]:
    """What the score and its gradient have in common, from scaleValue to sparseMode."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return scale, 1.0, _ALL, _ALL, query.size(1), "BNSD", 0, 2 if is_causal else 0


def _as_heads(x: Any) -> Any:
    """(batch, heads, length, size) of a tensor with any leading dims."""
    x = x.detach()
    if x.dim() == 4:
        return x
    return x.reshape(-1, *x.shape[-3:]) if x.dim() > 4 else x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))


@kernel("_attention")
def _attention(outs: Outs, args: Args) -> None:
    (out, logsumexp), (query, key, value, _, _, is_causal, scale, _) = outs, args
    recorded = _C._is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    query, key, value = _as_heads(query), _as_heads(key), _as_heads(value)
    unused, mask = _attention_constants(out)
    stats = [*query.shape[:3], 8]                            # CANN keeps eight of each: one block of its memory
    top = _empty(stats, dtype=_FLOAT32, device=out.device)
    total = _empty(stats, dtype=_FLOAT32, device=out.device)
    launch("aclnnFlashAttentionScore", out, query, key, value, None, None, None, mask if is_causal else None, None,
           *_settings(query, is_causal, scale), top, total, unused, _as_heads(out))
    if recorded:                                             # nobody but the gradient reads it
        logsumexp.copy_((total[..., 0].log() + top[..., 0]).reshape(logsumexp.shape))


@kernel("_attention_backward")
def _attention_backward(outs: Outs, args: Args) -> None:
    grad_out, query, key, value, _, out, logsumexp, is_causal, scale, _ = args
    query, key, value, grad_out, out = (_as_heads(x) for x in (query, key, value, grad_out, out))
    unused, mask = _attention_constants(out)
    stats = [*query.shape[:3], 8]
    # exp(x - max) / sum with the logsumexp as max and a sum of 1: the same weights, from one kept number
    top = logsumexp.detach().reshape(*stats[:3], 1).to(_FLOAT32).expand(stats).contiguous()
    total = ops.ones(stats, dtype=_FLOAT32, device=out.device)
    launch("aclnnFlashAttentionScoreGrad", query, query, key, value, grad_out, None, None, None,
           mask if is_causal else None, top, total, None, out, None, *_settings(query, is_causal, scale),
           *(_as_heads(x) for x in outs), unused)
