"""SGD, with momentum and Nesterov momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim._foreach import add_scaled_, native_on_cpu, option_for, scaled_grads
from mindtorch_v2.optim.optimizer import (
    Optimizer,
    check_fused,
    check_range,
    number,
)

Tensor = torch.Tensor

__all__ = ["SGD", "sgd"]


class SGD(Optimizer):
    """Stochastic gradient descent."""

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, torch.Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        check_range("lr", lr, f"Invalid learning rate: {lr}")
        check_range("momentum", momentum)
        check_range("weight_decay", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "dampening": dampening,
            "weight_decay": weight_decay, "nesterov": nesterov, "maximize": maximize,
            "foreach": foreach, "differentiable": differentiable, "fused": fused,
        }  # fmt: skip
        super().__init__(params, defaults)
        check_fused(foreach, fused, differentiable)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("nesterov", "maximize", "differentiable", "fused"):
                group.setdefault(name, False)
            group.setdefault("foreach", None)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            if any(param.grad.is_sparse for param in params):
                sparse = [param for param in params if param.grad.is_sparse]
                self._step_sparse(group, sparse, [param.grad for param in sparse])
                params = [param for param in params if not param.grad.is_sparse]
            if group["differentiable"]:
                with torch.enable_grad():
                    self._step_lists(group, params, [param.grad for param in params])
                continue
            on_cpu = [param for param in params if native_on_cpu(param)]
            if on_cpu:
                self._step_on_cpu(group, on_cpu)
            if len(on_cpu) < len(params):
                others = [param for param in params if not native_on_cpu(param)]
                with torch.no_grad():
                    self._step_lists(group, others, [param.grad for param in others])
        return loss

    def _step_on_cpu(self, group: dict[Any, Any], params: list[Tensor]) -> None:
        """One native call a parameter."""
        native, states = torch._C._sgd_step, self.state
        lr, decay = number(group["lr"]), number(group["weight_decay"])
        momentum, dampening = group["momentum"], group["dampening"]
        nesterov, maximize = group["nesterov"], group["maximize"]
        for param in params:
            grad: Any = param.grad
            buffer, first = None, False
            if momentum != 0:
                state = states[param]
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    first = True
                    buffer = state["momentum_buffer"] = torch.empty_like(grad)
            native(param, grad, buffer, lr, momentum, dampening, decay, nesterov, maximize, first)

    def _step_sparse(self, group: dict[Any, Any], params: list[Tensor], grads: Sequence[Any]) -> None:
        """Parameters with sparse gradients: only the rows that a gradient has are touched."""
        momentum, decay = group["momentum"], number(group["weight_decay"])
        if group["fused"]:
            raise RuntimeError("`_fused_sgd` does not support sparse gradients")
        with torch.no_grad():
            for param, grad in zip(params, grads):
                grad = -grad if group["maximize"] else grad
                grad = grad.add(param, alpha=decay) if decay else grad
                if momentum != 0:
                    state = self.state[param]
                    buffer = state.get("momentum_buffer")
                    if buffer is None:
                        buffer = state["momentum_buffer"] = grad.clone()
                    else:
                        buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
                    grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
                param.add_(grad, alpha=-number(group["lr"]))

    def _step_lists(self, group: dict[Any, Any], params: list[Tensor], grads: Sequence[Any]) -> None:
        """The same update over lists: other devices, complex, differentiable."""
        together: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
        alone = group["differentiable"] or group["foreach"] is False
        for i, (param, grad) in enumerate(zip(params, grads)):
            alike = together.setdefault(i if alone else (param.get_device(), param.dtype), ([], []))
            alike[0].append(param)
            alike[1].append(grad)
        for lists in together.values():
            self._update(group, *lists)

    def _update(self, group: dict[Any, Any], params: list[Tensor], grads: Sequence[Tensor]) -> None:
        lr = option_for(params[0], group, group["lr"])
        decay, momentum = number(group["weight_decay"]), group["momentum"]
        if group["maximize"]:
            grads = torch._foreach_neg(grads)
        if decay:
            grads = torch._foreach_add(grads, params, alpha=decay)
        if momentum != 0:
            buffers = self._move_buffers(group, params, grads)
            grads = torch._foreach_add(grads, buffers, alpha=momentum) if group["nesterov"] else buffers
        add_scaled_(params, grads, -lr)

    def _move_buffers(
        self, group: dict[Any, Any], params: list[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        """The momentum of each parameter; at its first step that is a copy of the gradient."""
        states = [self.state[param] for param in params]
        buffers = [state.get("momentum_buffer") for state in states]
        known = [i for i, buffer in enumerate(buffers) if buffer is not None]
        if known:
            moved = [buffers[i] for i in known]
            if group["differentiable"]:  # the graph of the last step holds what is there
                moved = [buffer.clone() for buffer in moved]
            torch._foreach_mul_(moved, group["momentum"])
            torch._foreach_add_(moved, [grads[i] for i in known], alpha=1 - group["dampening"])
            if len(known) == len(params) and not group["differentiable"]:
                return moved
            for i, buffer in zip(known, moved):
                states[i]["momentum_buffer"] = buffer
        for i, buffer in enumerate(buffers):
            if buffer is None:
                states[i]["momentum_buffer"] = grads[i].detach().clone()
        return [state["momentum_buffer"] for state in states]


def sgd(
    params: list[Tensor], d_p_list: list[Tensor], momentum_buffer_list: list[Tensor | None],
    has_sparse_grad: bool = False, foreach: bool | None = None, fused: bool | None = None,
    grad_scale: Tensor | None = None, found_inf: Tensor | None = None, *, weight_decay: float, momentum: float,
    lr: float | Tensor, dampening: float, nesterov: bool, maximize: bool,
) -> None:  # fmt: skip
    """SGD's update of parameters by gradients and momentum that are given; a momentum of None is made and put there."""
    found = scaled_grads(d_p_list, {"grad_scale": grad_scale, "found_inf": found_inf})
    if found is None:
        return
    made = SGD.__new__(SGD)
    made.state = {  # type: ignore[assignment]
        param: {} if buffer is None else {"momentum_buffer": buffer}
        for param, buffer in zip(params, momentum_buffer_list or [None] * len(params))
    }
    group = {"weight_decay": weight_decay, "momentum": momentum, "lr": lr, "dampening": dampening, "nesterov": nesterov,
             "maximize": maximize, "foreach": foreach, "fused": fused, "differentiable": torch.is_grad_enabled()}
    dense = [i for i, grad in enumerate(found) if not grad.is_sparse]
    sparse = [i for i, grad in enumerate(found) if grad.is_sparse]
    made._step_lists(group, [params[i] for i in dense], [found[i] for i in dense])
    made._step_sparse(group, [params[i] for i in sparse], [found[i] for i in sparse])
    for i, param in enumerate(params[: len(momentum_buffer_list)]):
        momentum_buffer_list[i] = made.state[param].get("momentum_buffer")
