"""Rows of torch's backward ops that no gradient formula here calls: programs and decompositions call them by name.

The backward ops that formulas do call stand beside their forward ops."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.nn_embed import _MAX, _MEAN, _embedding_grad
from mindtorch_v2._ops.nn_loss import share
from mindtorch_v2._ops.scan import _cumprod_grad
from mindtorch_v2._ops.table import composite, op, ops
from mindtorch_v2._tensor import Tensor

_FLOAT32, _INT64 = _C._dtype_named("float32"), _C._dtype_named("int64")


# ---- selections: the gradient goes back where the items came from -------------------------------------------------
@composite("diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2) -> Tensor",
           variants="", whole=True)
def _diagonal_backward(grad_output: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    return ops.diagonal_scatter(grad_output.new_zeros(tuple(input_sizes)), grad_output, offset, dim1, dim2)


@composite("trace_backward(Tensor grad, SymInt[] sizes) -> Tensor", variants="")
def _trace_backward(grad: Tensor, sizes: Sequence[int]) -> Tensor:
    if len(sizes) != 2:
        raise RuntimeError("expected matrix input")
    return ops.diagonal_scatter(grad.new_zeros(tuple(sizes)), grad.expand(min(sizes)))


@composite("index_select_backward(Tensor grad, SymInt[] self_sizes, int dim, Tensor index) -> Tensor", variants="")
def _index_select_backward(grad: Tensor, self_sizes: Sequence[int], dim: int, index: Tensor) -> Tensor:
    return grad.new_zeros(tuple(self_sizes)).index_add(dim, index, grad)


@composite("masked_select_backward(Tensor grad, Tensor input, Tensor mask) -> Tensor", variants="")
def _masked_select_backward(grad: Tensor, input: Tensor, mask: Tensor) -> Tensor:
    return ops.zeros_like(input.expand(ops.broadcast_shapes(input.shape, mask.shape))).masked_scatter(mask, grad)


@composite("masked_scatter_backward(Tensor grad_output, Tensor mask, SymInt[] sizes) -> Tensor", variants="")
def _masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    items, taken = math.prod(sizes), grad_output.masked_select(mask)
    rest = grad_output.new_zeros((max(items - taken.numel(), 0),))
    return ops.cat([taken[:items], rest]).view(tuple(sizes))


@composite("gather_backward(Tensor grad, Tensor self, int dim, Tensor index, bool sparse_grad) -> Tensor", variants="")
def _gather_backward(grad: Tensor, self: Tensor, dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    return grad.new_zeros(self.shape).scatter_add(dim, index, grad)


@composite("value_selecting_reduction_backward(Tensor grad, int dim, Tensor indices, SymInt[] sizes, bool keepdim) -> Tensor",
           variants="")
def _selection_backward(grad: Tensor, dim: int, indices: Tensor, sizes: Sequence[int], keepdim: bool) -> Tensor:
    if sizes and not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(tuple(sizes)).scatter(dim, indices, grad)


@composite("cummaxmin_backward(Tensor grad, Tensor input, Tensor indices, int dim) -> Tensor", variants="")
def _cummaxmin_backward(grad: Tensor, input: Tensor, indices: Tensor, dim: int) -> Tensor:
    return ops.zeros_like(input).scatter_add(dim, indices, grad) if input.numel() else input


op("cumprod_backward(Tensor grad, Tensor input, int dim, Tensor output) -> Tensor", variants="", body=_cumprod_grad)


@composite("matrix_exp_backward(Tensor self, Tensor grad) -> Tensor", variants="")
def _matrix_exp_backward(self: Tensor, grad: Tensor) -> Tensor:
    n, turned = self.size(-1), self.mH
    block = ops.cat([ops.cat([turned, grad], -1), ops.cat([ops.zeros_like(turned), turned], -1)], -2)
    return ops.linalg_matrix_exp(block)[..., :n, n:]


# ---- tables -------------------------------------------------------------------------------------------------------
op("embedding_backward(Tensor grad, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq, "
   "bool sparse) -> Tensor", variants="",
   body=lambda grad, indices, num_weights, padding_idx, scale_grad_by_freq, sparse:
   _embedding_grad(grad, num_weights, indices, padding_idx, scale_grad_by_freq, sparse))
op("embedding_sparse_backward(Tensor grad, Tensor indices, int num_weights, int padding_idx, bool scale_grad_by_freq) "
   "-> Tensor", variants="",
   body=lambda grad, indices, num_weights, padding_idx, scale_grad_by_freq:
   _embedding_grad(grad, num_weights, indices, padding_idx, scale_grad_by_freq, True))


def _bag_gradient(grad: Tensor, indices: Tensor, bags: Tensor, sizes: Tensor, maximum: Tensor, num_weights: int,
                  by_frequency: bool, mode: int, sparse: bool, per_sample_weights: Tensor | None, padding: int) -> Tensor:
    """The gradient of the weight of embedding_bag, from what its forward op returned beside the bags."""
    if mode == _MAX:
        best = maximum.to(_INT64)
        counted = (sizes > 0).unsqueeze(-1)
        return grad.new_zeros((num_weights, grad.size(1))).scatter_add(0, best.clamp_min(0), grad.masked_fill(~counted, 0))
    rows = grad.index_select(0, bags)
    if mode == _MEAN:
        rows = rows / sizes.clamp_min(1).to(grad.dtype).index_select(0, bags).unsqueeze(-1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return _embedding_grad(rows, num_weights, indices, padding, by_frequency, sparse)


@composite("_embedding_bag_backward(Tensor grad, Tensor indices, Tensor offsets, Tensor offset2bag, Tensor bag_size, "
           "Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, bool sparse, "
           "Tensor? per_sample_weights, int padding_idx=-1) -> Tensor", variants="")
def _bag_backward(grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Tensor,
                  maximum_indices: Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool,
                  per_sample_weights: Tensor | None, padding_idx: int) -> Tensor:
    return _bag_gradient(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
                         sparse, per_sample_weights, padding_idx)


@composite("_embedding_bag_dense_backward(Tensor grad, Tensor indices, Tensor offset2bag, Tensor bag_size, "
           "Tensor maximum_indices, SymInt num_weights, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights, "
           "int padding_idx=-1) -> Tensor", variants="")
def _bag_dense_backward(grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor,
                        num_weights: int, scale_grad_by_freq: bool, mode: int, per_sample_weights: Tensor | None,
                        padding_idx: int) -> Tensor:
    return _bag_gradient(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
                         False, per_sample_weights, padding_idx)


@composite("_embedding_bag_per_sample_weights_backward(Tensor grad, Tensor weight, Tensor indices, Tensor offsets, "
           "Tensor offset2bag, int mode, int padding_idx=-1) -> Tensor", variants="")
def _bag_samples_backward(grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int,
                          padding_idx: int) -> Tensor:
    if mode:
        raise RuntimeError("embedding_bag_backward: per_sample_weights only supported for mode='sum'")
    slopes = (grad.index_select(0, offset2bag) * ops.embedding(weight, indices)).sum(-1)
    return slopes.masked_fill(indices == padding_idx, 0) if padding_idx >= 0 else slopes


# ---- activations --------------------------------------------------------------------------------------------------
@composite("_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)", variants="")
def _prelu_kernel_backward(grad_output: Tensor, self: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    above = self > 0
    return ops.where(above, grad_output, weight * grad_output), ops.where(above, 0, self * grad_output)


@composite("_prelu_kernel(Tensor self, Tensor weight) -> Tensor", variants="function")
def _prelu_kernel(self: Tensor, weight: Tensor) -> Tensor:
    """x, or weight * x below zero, of a weight that broadcasts to x."""
    return ops.where(self > 0, self, weight * self)


@composite("leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result) -> Tensor",
           variants="", whole=True)
def _leaky_relu_backward(grad_output: Tensor, self: Tensor, negative_slope: float, self_is_result: bool) -> Tensor:
    if self_is_result and negative_slope < 0:
        raise RuntimeError("In-place leakyReLu backward calculation is triggered with a negative slope which is not supported. "
                           "This is caused by calling in-place forward function with a negative slope, please call "
                           "out-of-place version instead. File an issue at https://github.com/pytorch/pytorch if you do "
                           "require supporting in-place leakRelu backward calculation with negative slope")
    return ops._leaky_relu_backward(grad_output, self, negative_slope)


@composite("elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, "
           "Tensor self_or_result) -> Tensor", variants="", whole=True)
def _elu_backward(grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool,
                  self_or_result: Tensor) -> Tensor:
    if not is_result:
        return ops._elu_backward(grad_output, self_or_result, alpha, scale, input_scale)
    if alpha < 0:
        raise RuntimeError("In-place elu backward calculation is triggered with a negative slope which is not supported. "
                           "This is caused by calling in-place forward function with a negative slope, please call "
                           "out-of-place version instead.")
    below = grad_output * input_scale * (self_or_result + alpha * scale)
    return ops.where(self_or_result <= 0, below, grad_output * scale)


@composite("rrelu_with_noise_backward(Tensor grad_output, Tensor self, Tensor noise, Scalar lower, Scalar upper, "
           "bool training, bool self_is_result) -> Tensor", variants="")
def _rrelu_backward(grad_output: Tensor, self: Tensor, noise: Tensor, lower: float, upper: float, training: bool,
                    self_is_result: bool) -> Tensor:
    if training and upper - lower > 1e-6:
        return grad_output * noise
    return ops.leaky_relu_backward(grad_output, self, (lower + upper) / 2, self_is_result)


@composite("infinitely_differentiable_gelu_backward(Tensor grad, Tensor self) -> Tensor", variants="")
def _gelu_backward(grad: Tensor, self: Tensor) -> Tensor:
    normal = 0.5 * (1 + (self * math.sqrt(0.5)).erf())
    return grad * (normal + self * (-0.5 * self * self).exp() / math.sqrt(2 * math.pi))


# ---- losses -------------------------------------------------------------------------------------------------------
@composite("huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta) -> Tensor",
           variants="")
def _huber_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, delta: float) -> Tensor:
    if self.is_npu:                              # CANN has one op for the other
        return ops.smooth_l1_loss_backward(grad_output * delta, self, target, reduction, delta)
    return share(grad_output, self, target, reduction) * (self - target).clamp(-delta, delta)


@composite("multi_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, Scalar p, Scalar margin, "
           "Tensor? weight=None, int reduction=1) -> Tensor", variants="")
def _multi_margin_backward(grad_output: Tensor, self: Tensor, target: Tensor, p: float, margin: float,
                           weight: Tensor | None, reduction: int) -> Tensor:
    classes = self.size(-1) if self.dim() else 1
    rows, index = self.reshape(-1, classes), target.reshape(-1, 1)
    if self.is_cpu and self.dtype.itemsize >= 4 and (weight is None or weight.dtype is self.dtype):
        slopes = ops._multi_margin_slopes(rows, target.reshape(-1), weight, int(p.real), margin.real + 0.0)
        return _spread(grad_output, rows, reduction, slopes).reshape(self.shape)
    over = margin - rows.gather(1, index) + rows
    slopes = (over > 0).to(self.dtype) if p == 1 else 2 * over.clamp_min(0)
    if weight is not None:
        slopes = slopes * weight.reshape(-1)[index]
    slopes = slopes.scatter(1, index, 0.0) / classes
    slopes = slopes.scatter(1, index, -slopes.sum(1, True))
    return _spread(grad_output, rows, reduction, slopes).reshape(self.shape)


@composite("multilabel_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, "
           "Tensor is_target) -> Tensor", variants="")
def _multilabel_margin_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int,
                                is_target: Tensor) -> Tensor:
    classes = self.size(-1) if self.dim() else 1
    rows, index, marked = self.reshape(-1, classes), target.reshape(-1, classes), is_target.reshape(-1, classes)
    if self.is_cpu and self.dtype.itemsize >= 4:
        return _spread(grad_output, rows, reduction, ops._multilabel_margin_slopes(rows, index)).reshape(self.shape)
    kept = (index < 0).to(_INT64).cumsum(1) == 0
    places = index.masked_fill(~kept, 0)
    over = 1 - rows.gather(1, places).unsqueeze(2) + rows.unsqueeze(1)           # (sample, target, other class)
    counted = ((over > 0) & kept.unsqueeze(2) & (marked == 0).unsqueeze(1)).to(self.dtype) / classes
    slopes = counted.sum(1).scatter_add(1, places, -counted.sum(2))
    return _spread(grad_output, rows, reduction, slopes).reshape(self.shape)


def _spread(grad_output: Tensor, rows: Tensor, reduction: int, slopes: Tensor) -> Tensor:
    """The slopes of the losses of all rows, times what reaches each row of the gradient."""
    if reduction == 0:
        return slopes * grad_output.reshape(-1, 1)
    return slopes * (grad_output / rows.size(0) if reduction == 1 else grad_output)


# ---- images -------------------------------------------------------------------------------------------------------
@composite("affine_grid_generator_backward(Tensor grad, SymInt[] size, bool align_corners) -> Tensor", variants="")
def _affine_grid_backward(grad: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    n = len(size) - 2
    same = ops.eye(n, n + 1, dtype=grad.dtype, device=grad.device).expand(size[0], n, n + 1)
    grid = ops.affine_grid_generator(same, size, align_corners).reshape(size[0], -1, n)
    base = ops.cat([grid, ops.ones_like(grid[..., :1])], -1)
    return ops.bmm(base.mT, grad.reshape(size[0], -1, n)).mT


def _fractional_backward(grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int],
                         indices: Tensor) -> Tensor:
    n = len(kernel_size)
    flat = self.new_zeros((*self.shape[:-n], math.prod(self.shape[-n:])))
    return flat.scatter_add(-1, indices.flatten(-n), grad_output.flatten(-n)).reshape(self.shape)


for _n in (2, 3):
    op(f"fractional_max_pool{_n}d_backward(Tensor grad_output, Tensor self, int[{_n}] kernel_size, int[{_n}] output_size, "
       "Tensor indices) -> Tensor", variants="", body=_fractional_backward)


# ---- distances, norms ---------------------------------------------------------------------------------------------
@composite("_pdist_forward(Tensor self, float p=2.0) -> Tensor", variants="")
def _pdist_forward(self: Tensor, p: float) -> Tensor:
    return ops.pdist(self, p)


@composite("_pdist_backward(Tensor grad, Tensor self, float p, Tensor pdist) -> Tensor", variants="")
def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    n, out = self.size(0), ops.zeros_like(self)
    if self.is_cpu and self.dtype.itemsize >= 4 and grad.dtype is self.dtype is pdist.dtype:
        return ops._pdist_slopes(grad, self, p, pdist)
    if p == 0 or n < 2 or not self.numel():
        return out
    first, second = ops.triu_indices(n, n, 1, device=self.device)
    apart = self.index_select(0, first) - self.index_select(0, second)
    norm = pdist.unsqueeze(-1)
    if math.isinf(p):
        slopes = apart.sign() * (apart.abs() == norm).to(apart.dtype)
    elif p == 1:
        slopes = apart.sign()
    else:
        slopes = apart.sign() * (apart.abs() / norm) ** (p - 1)
    rows = (slopes * grad.unsqueeze(-1)).masked_fill((norm == 0) | (apart == 0), 0)
    return out.index_add(0, first, rows).index_add(0, second, -rows)


def _norm_except(v: Tensor, dim: int) -> Tensor:
    return ops.linalg_vector_norm(v, 2, [d for d in range(v.dim()) if d != dim % v.dim()], True)


@composite("_weight_norm_interface(Tensor v, Tensor g, int dim=0) -> (Tensor, Tensor)", variants="function")
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """v scaled so that its norm over all dims but one is g, and the norm that it had."""
    if v.shape[dim] != g.numel():
        raise RuntimeError("fused kernels can only be applied for first or last dim")
    norm = _norm_except(v.to(_FLOAT32) if v.dtype.itemsize == 2 else v, dim)
    return v * (g / norm.to(g.dtype)), norm


def _weight_norm_slopes(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor,
                        dim: int) -> tuple[Tensor, Tensor]:
    """The gradients of v and of g."""
    others, norm = [d for d in range(saved_v.dim()) if d != dim], saved_norms.to(saved_g.dtype)
    along = (grad_w * saved_v).sum(others, True) / norm
    return (saved_g / norm) * (grad_w - saved_v * (along / norm)), along


for _name in ("_weight_norm_interface_backward", "_weight_norm_differentiable_backward"):
    op(f"{_name}(Tensor grad_w, Tensor saved_v, Tensor saved_g, Tensor saved_norms, int dim) -> (Tensor, Tensor)",
       variants="", body=_weight_norm_slopes)


@composite("_weight_norm(Tensor v, Tensor g, int dim=0) -> Tensor", variants="function", out=False)
def _weight_norm(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """v scaled so that its norm over all dims but one is g; over all dims for -1."""
    if v.device != g.device:
        raise RuntimeError("weight_norm: expected v_in and g_in to be on the same device, but v_in is on "
                           f"{v.device} and g_in is on {g.device}")
    return v * (g / ops.norm_except_dim(v, 2, dim))


# ---- batch norm ---------------------------------------------------------------------------------------------------
@composite("batch_norm_backward(Tensor grad_out, Tensor input, Tensor weight, Tensor? running_mean, Tensor? running_var, "
           "Tensor? save_mean, Tensor? save_var, bool update, float eps, bool[3] output_mask, Tensor reserve) "
           "-> (Tensor, Tensor, Tensor)", variants="")
def _batch_norm_backward(grad_out: Tensor, input: Tensor, weight: Tensor, running_mean: Tensor | None,
                         running_var: Tensor | None, save_mean: Tensor | None, save_var: Tensor | None, update: bool,
                         eps: float, output_mask: Sequence[bool], reserve: Tensor) -> Any:
    return tuple(ops.native_batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_var,
                                                update, eps, list(output_mask)))
