"""Adam; AdamW is the same with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import (
    Batch,
    ForeachOptimizer,
    add_product_,
    add_quotient_,
    each,
    native_on_cpu,
    option_for,
    update_lists,
)
from mindtorch_v2.optim.optimizer import (
    check_betas,
    check_fused,
    check_lr,
    check_range,
    like,
    number,
)

Tensor = torch.Tensor

__all__ = ["Adam", "adam"]


class Adam(ForeachOptimizer):
    """Adaptive moments."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_lr(lr, foreach, capturable)
        check_range("epsilon", eps)
        check_betas(betas)
        check_range("weight_decay", weight_decay)
        self._check_tensor_betas(betas, foreach, capturable)
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "amsgrad": amsgrad, "maximize": maximize, "foreach": foreach,
            "capturable": capturable, "differentiable": differentiable, "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(foreach, fused, differentiable)

    @staticmethod
    def _check_tensor_betas(betas: tuple[Any, ...], foreach: bool | None, capturable: bool) -> None:
        tensors = [isinstance(beta, torch.Tensor) for beta in betas]
        if any(tensors) and not all(tensors):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            if not tensors[i]:
                continue
            if not capturable and foreach:
                raise ValueError(
                    f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True"
                )
            if beta.numel() != 1:
                raise ValueError(f"Tensor betas[{i}] must be 1-element")

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        state = {"exp_avg": like(param), "exp_avg_sq": like(param)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = like(param)
        return state

    def _step_sparse(self, param: Tensor, grad: Tensor, group: dict[Any, Any]) -> None:
        raise RuntimeError("Adam does not support sparse gradients, please consider SparseAdam instead")

    def _batches(self, group: dict[Any, Any]) -> Iterator[Batch]:
        rest = group["params"]
        if not group["differentiable"] and not group["capturable"]:
            rest = self._step_on_cpu(group)
        if rest:
            yield from super()._batches({**group, "params": rest})

    def _step_on_cpu(self, group: dict[Any, Any]) -> list[Tensor]:
        """One native call a parameter; gives the parameters that it is not for."""
        native, states, amsgrad = torch._C._adam_step, self.state, group["amsgrad"]
        options: tuple[Any, ...] = ()
        rest = []
        for param in group["params"]:
            if not native_on_cpu(param):
                rest.append(param)
                continue
            grad = param.grad
            if grad is None:
                continue
            if grad.is_sparse:
                self._step_sparse(param, grad, group)
            if not options:  # read where they are needed: they may be tensors of a device
                options = (
                    number(group["lr"]), *[number(beta) for beta in group["betas"]], group["eps"],
                    group["weight_decay"], group["decoupled_weight_decay"], amsgrad, group["maximize"],
                )  # fmt: skip
            state = states[param] or self._first_state(param, group)
            count = state["step"]
            count += 1
            largest = state["max_exp_avg_sq"] if amsgrad else None
            native(
                param, grad, state["exp_avg"], state["exp_avg_sq"], largest, count.item(), *options
            )
        return rest

    def _update(self, batch: Batch) -> None:
        group, lr = batch.group, batch.lr
        betas: Any = tuple([option_for(batch.params[0], group, beta) for beta in group["betas"]])
        if _may_fuse(batch, betas):
            self._update_fused(batch, *betas)
            return
        beta1, beta2 = betas
        exp_avgs, exp_avg_sqs = batch.state["exp_avg"], batch.state["exp_avg_sq"]
        grads, step = batch.decay_(), batch.count()
        torch._foreach_lerp_(exp_avgs, grads, 1 - beta1)
        torch._foreach_mul_(exp_avg_sqs, beta2)
        add_product_(exp_avg_sqs, grads, grads, 1 - beta2)
        if group["amsgrad"]:
            torch._foreach_maximum_(batch.state["max_exp_avg_sq"], exp_avg_sqs)
            exp_avg_sqs = batch.state["max_exp_avg_sq"]
        below: Sequence[Tensor] = torch._foreach_sqrt(exp_avg_sqs)
        below = batch.change("div", below, each((1 - beta2**step) ** 0.5))
        below = batch.change("add", below, group["eps"])
        add_quotient_(batch.params, exp_avgs, below, -lr / (1 - beta1**step))

    def _update_fused(self, batch: Batch, beta1: float, beta2: float) -> None:
        """One op of the device a parameter."""
        group, state = batch.group, batch.state
        grads, decay = batch.grads, group["weight_decay"]
        if not group["decoupled_weight_decay"]:
            grads, decay = batch.decayed_grads(), 0.0
        done = torch._foreach_sub(state["step"], 1) if group["capturable"] else None
        shared = None if done else self._done_on(batch.params[0].device, batch.count() - 1)
        largest = state["max_exp_avg_sq"] if group["amsgrad"] else [None] * len(grads)
        options = (float(batch.lr), beta1, beta2, decay, group["eps"], group["amsgrad"], False)
        for i, param in enumerate(batch.params):
            _apply(
                param, state["exp_avg"][i], state["exp_avg_sq"][i], largest[i], grads[i],
                done[i] if done else shared, *options,
            )  # fmt: skip

    def _done_on(self, device: torch.device, done: Any) -> Tensor:
        """The steps done before, in the device's memory: it counts along, so that nothing is copied there."""
        counts = self.__dict__.setdefault("_counts_on", {})
        if device not in counts:
            counts[device] = [done, torch.full((1,), done, device=device)]
        known = counts[device]
        if known[0] + 1 == done:
            known[1].add_(1)
        elif known[0] != done:
            known[1].fill_(done)
        known[0] = done
        return known[1]


_apply = torch._C._op_named("_apply_adam_w_")


def _may_fuse(batch: Batch, betas: tuple[Any, ...]) -> bool:
    """Whether the device's one op computes this step: it takes numbers, and its amsgrad is another than torch's."""
    group, param = batch.group, batch.params[0]
    if not param.is_npu or group["fused"] is False or group["foreach"] is not None:
        return False
    if group["differentiable"] or group["amsgrad"] and not group["fused"]:
        return False
    return not any(isinstance(option, torch.Tensor) for option in (batch.lr, *betas))


def adam(
    params: list[Tensor], grads: list[Tensor], exp_avgs: list[Tensor], exp_avg_sqs: list[Tensor],
    max_exp_avg_sqs: list[Tensor], state_steps: list[Tensor], foreach: bool | None = None,
    capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, has_complex: bool = False,
    decoupled_weight_decay: bool = False, *, amsgrad: bool, beta1: float | Tensor, beta2: float | Tensor,
    lr: float | Tensor, weight_decay: float, eps: float, maximize: bool,
) -> None:  # fmt: skip
    """Adam's update of parameters by gradients and state that are given."""
    update_lists(
        Adam, params, grads,
        {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "max_exp_avg_sq": max_exp_avg_sqs, "step": state_steps},
        betas=(beta1, beta2), foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused,
        grad_scale=grad_scale, found_inf=found_inf, decoupled_weight_decay=decoupled_weight_decay, amsgrad=amsgrad,
        lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
