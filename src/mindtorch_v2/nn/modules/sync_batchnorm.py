"""SyncBatchNorm: batch normalisation with the statistics of the batches of all processes."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.batchnorm import _BatchNorm
from mindtorch_v2.nn.modules.module import Module

__all__ = ["SyncBatchNorm"]

Tensor = Any


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    return values.view(1, -1, *([1] * (like.dim() - 2)))


class _SyncBatchNorm(torch.autograd.Function):
    """Sums over the group in forward (x, x²) and in backward (g, g·x̂); the rest is local."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, group: Any) -> Any:
        dims = [0, *range(2, x.dim())]
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        count = torch.full((1,), x.numel() / x.shape[1], dtype=wide.dtype, device=x.device)
        total = torch.cat([wide.sum(dims), count])
        torch.distributed.all_reduce(total, group=group)
        n, mean = total[-1], total[:-1] / total[-1]
        centred = wide - _per_channel(mean, x)
        squares = (centred * centred).sum(dims)   # around the common mean: x² - mean² would lose the digits
        torch.distributed.all_reduce(squares, group=group)
        var = squares / n
        scale = torch.rsqrt(var + eps)
        normal = centred * _per_channel(scale, x)
        ctx.save_for_backward(normal, weight, scale, n)
        ctx.group, ctx.dtype = group, x.dtype
        out = normal
        if weight is not None:
            out = out * _per_channel(weight.to(wide.dtype), x)
        if bias is not None:
            out = out + _per_channel(bias.to(wide.dtype), x)
        ctx.mark_non_differentiable(mean, var, n)
        return out.to(x.dtype), mean, var, n

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *others: Any) -> Any:
        normal, weight, scale, n = ctx.saved_tensors
        dims = [0, *range(2, grad.dim())]
        wide = grad.to(normal.dtype)
        sum_grad, sum_product = wide.sum(dims), (wide * normal).sum(dims)
        grad_weight = sum_product.to(weight.dtype) if weight is not None and ctx.needs_input_grad[1] else None
        grad_bias = sum_grad.to(grad.dtype) if ctx.needs_input_grad[2] else None
        grad_input = None
        if ctx.needs_input_grad[0]:
            both = torch.cat([sum_grad, sum_product])
            torch.distributed.all_reduce(both, group=ctx.group)
            mean_grad, mean_product = (both / n).chunk(2)
            factor = scale if weight is None else scale * weight.to(scale.dtype)
            inner = wide - _per_channel(mean_grad, grad) - normal * _per_channel(mean_product, grad)
            grad_input = (inner * _per_channel(factor, grad)).to(ctx.dtype)
        return grad_input, grad_weight, grad_bias, None, None


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes of a group."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        dist = torch.distributed
        group = self.process_group or (dist.group.WORLD if dist.is_initialized() else None)
        if not self.training or group is None or group.size() == 1:
            return super().forward(input)
        out, mean, var, n = _SyncBatchNorm.apply(input, self.weight, self.bias, self.eps, group)
        if self.track_running_stats and self.running_mean is not None:
            self._update(mean, var, n)
        return out

    def _count(self) -> float:
        self.num_batches_tracked.add_(1)
        return 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum

    def _update(self, mean: Tensor, var: Tensor, n: Tensor) -> None:
        momentum = self._count()
        with torch.no_grad():
            assert self.running_mean is not None and self.running_var is not None
            self.running_mean.mul_(1 - momentum).add_(mean.to(self.running_mean.dtype), alpha=momentum)
            unbiased = var * (n / (n - 1))
            self.running_var.mul_(1 - momentum).add_(unbiased.to(self.running_var.dtype), alpha=momentum)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every BatchNorm in it replaced; parameters and statistics stay the same objects."""
        made: Any = module
        if isinstance(module, _BatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            if module.affine:
                made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked, made.training = module.num_batches_tracked, module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


SyncBatchNorm.__module__ = _BatchNorm.__module__      # where torch has it: pickles say so
