"""loss_parallel: cross_entropy of logits that are sharded along the classes, without gathering them."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _functional_collectives as functional
from mindtorch_v2.distributed.tensor._api import DTensor
from mindtorch_v2.distributed.tensor.placement_types import Replicate, Shard

Tensor = Any


class _ShardedLoss(torch.autograd.Function):
    """Losses of items, of this rank's classes: maximum, sum of exponentials and the target's logit by one reduction each."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, begin: int, ignored: int, group: Any) -> Tensor:
        local = logits.float()
        largest = functional.all_reduce(local.amax(1), "max", group)
        total = functional.all_reduce((local - largest.unsqueeze(1)).exp().sum(1), "sum", group)
        normalizer = largest + total.log()
        inside = (target >= begin) & (target < begin + logits.shape[1]) & (target != ignored)
        place = torch.where(inside, target - begin, 0).unsqueeze(1)
        mine = torch.where(inside, local.gather(1, place).squeeze(1), 0)
        losses = normalizer - functional.all_reduce(mine, "sum", group)
        ctx.save_for_backward(logits, normalizer, place, inside, target != ignored)
        return torch.where(target != ignored, losses, 0).to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        logits, normalizer, place, inside, counted = ctx.saved_tensors
        slope = (logits.float() - normalizer.unsqueeze(1)).exp()
        slope = slope.scatter_add(1, place, -inside.float().unsqueeze(1)) * torch.where(counted, grad.float(), 0).unsqueeze(1)
        return slope.to(logits.dtype), None, None, None, None


def _cross_entropy(logits: Any, target: Tensor, weight: Tensor | None, ignored: int, reduction: str, smoothing: float) -> Tensor:
    mesh = logits.device_mesh
    classes = 1 if logits.dim() > 1 else 0
    cut = [i for i, p in enumerate(logits.placements) if p.is_shard(classes)]
    rest = all(p.is_replicate() for i, p in enumerate(logits.placements) if i not in cut)
    if len(cut) != 1 or not rest:
        raise ValueError(f"loss_parallel() should be enabled only when input is sharded on the class dimension, got "
                         f"{logits.placements}")
    if weight is not None or smoothing or logits.dim() != 2 or target.is_floating_point():
        raise NotImplementedError("[loss_parallel] cross_entropy of sharded classes takes (items, classes), targets of one "
                                  "class, no weight and no label_smoothing")
    plain = target.full_tensor() if isinstance(target, DTensor) else target
    begin = Shard.local_shard_size_and_offset(logits.shape[1], mesh.size(cut[0]), mesh.get_local_rank(cut[0]))[1]
    losses = _ShardedLoss.apply(logits.to_local(), plain, begin, ignored, (mesh, cut[0]))
    if reduction == "mean":
        losses = losses.sum() / (plain != ignored).sum()
    elif reduction == "sum":
        losses = losses.sum()
    return DTensor.from_local(losses, mesh, [Replicate()] * mesh.ndim, run_check=False)


class loss_parallel(torch.overrides.TorchFunctionMode):
    """A with block in which cross_entropy takes a DTensor that is sharded along the classes."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.cross_entropy:
            named = dict(zip(("input", "target", "weight", "size_average", "ignore_index", "reduce", "reduction",
                              "label_smoothing"), args, strict=False)) | kwargs
            if isinstance(named["input"], DTensor):
                return _cross_entropy(named["input"], named["target"], named.get("weight"), named.get("ignore_index", -100),
                                      named.get("reduction", "mean"), named.get("label_smoothing", 0.0))
        return func(*args, **kwargs)
