"""ForeachOptimizer, the base of the optimizers that update lists of parameters by torch._foreach_*; not their formulas.

A formula is written once, over lists: all parameters of a device and dtype together (npu), as many as a
cache holds (cpu), or one (foreach=False, differentiable=True). What it scales with is a number, or a tensor
where the host must not know the number: a learning rate on the device, or steps that are counted there
(capturable=True).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable, TypeAlias

import mindtorch_v2 as torch
from mindtorch_v2.optim.optimizer import Optimizer, like, new_step, number

Tensor = torch.Tensor
Factor: TypeAlias = float | Tensor  # a number, a 0-dim tensor, or one number a parameter in a 1-dim tensor

CAPTURABLE_DEVICES = ["cuda", "xpu", "hpu", "npu"]
FUSED_DEVICES = ["npu", "cpu"]
ITEMS_TOGETHER = 1 << 15  # of parameters on the cpu


def each(factor: Factor) -> Any:
    """A factor as torch._foreach_mul and its like take it."""
    return factor.unbind() if isinstance(factor, torch.Tensor) and factor.dim() else factor


def add_scaled_(tensors: Sequence[Tensor], others: Sequence[Tensor], factor: Factor) -> None:
    """tensors += factor * others"""
    if isinstance(factor, torch.Tensor):
        torch._foreach_add_(tensors, torch._foreach_mul(others, each(factor)))
    else:
        torch._foreach_add_(tensors, others, alpha=factor)


def add_quotient_(
    tensors: Sequence[Tensor], above: Sequence[Tensor], below: Sequence[Tensor], factor: Factor
) -> None:
    """tensors += factor * above / below"""
    if isinstance(factor, torch.Tensor):
        torch._foreach_addcdiv_(tensors, torch._foreach_mul(above, each(factor)), below)
    else:
        torch._foreach_addcdiv_(tensors, above, below, factor)


def add_product_(
    tensors: Sequence[Tensor], left: Sequence[Tensor], right: Sequence[Tensor], factor: Factor
) -> None:
    """tensors += factor * left * right"""
    if isinstance(factor, torch.Tensor):
        torch._foreach_addcmul_(tensors, torch._foreach_mul(left, each(factor)), right)
    else:
        torch._foreach_addcmul_(tensors, left, right, factor)


def native_on_cpu(param: Tensor) -> bool:
    """Whether the native step of the cpu can have the parameter: real numbers, in memory of its own. A class that computes
    by itself (DTensor) has none."""
    return param.is_cpu and not param.is_complex() and not hasattr(type(param), "__torch_dispatch__")


@dataclass(slots=True)
class Batch:
    """Parameters that are updated together, with their gradients and state, item by item."""

    params: list[Tensor]
    grads: Sequence[Tensor]
    state: dict[str, list[Tensor]]
    lr: Factor
    group: dict[str, Any]

    def change(self, name: str, tensors: Sequence[Tensor], *args: Any) -> Sequence[Tensor]:
        """torch._foreach_<name> in place, on what only this step reads; a graph keeps what was there before."""
        end = "" if self.group.get("differentiable") else "_"
        return getattr(torch, f"_foreach_{name}{end}")(tensors, *args)

    def count(self, name: str = "step") -> Factor:
        """What a counter stands at: the same number for all, or a tensor that the device counts in."""
        counters = self.state[name]
        return torch.stack(counters) if self.group.get("capturable") else counters[0].item()

    def set_count(self, name: str, value: Factor) -> None:
        """Set a counter of every parameter."""
        if isinstance(value, torch.Tensor):
            torch._foreach_copy_(self.state[name], value.expand(len(self.params)).unbind())
        else:
            for counter in self.state[name]:
                counter.fill_(value)

    def decayed_grads(self) -> Sequence[Tensor]:
        """The gradients with weight decay in them."""
        decay = self.group["weight_decay"]
        return torch._foreach_add(self.grads, self.params, alpha=decay) if decay else self.grads

    def decay_(self) -> Sequence[Tensor]:
        """Weight decay in the gradients that are returned, or apart from them."""
        if not self.group["decoupled_weight_decay"]:
            return self.decayed_grads()
        if self.group["weight_decay"]:
            torch._foreach_mul_(self.params, 1 - self.lr * self.group["weight_decay"])
        return self.grads


class ForeachOptimizer(Optimizer):
    """An optimizer that updates each parameter from its own gradient and state alone.

    Subclasses give `_init_state` and `_update`; the base counts steps, negates for maximize, shows complex tensors as
    real ones and brings together what is updated together.
    """

    counters: tuple[str, ...] = ("step",)  # state of one number: the host's, or the device's with capturable

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        """The state of a parameter at its first step, without the step counter."""
        raise NotImplementedError

    def _update(self, batch: Batch) -> None:
        """Update parameters in place."""
        raise NotImplementedError

    def _step_sparse(self, param: Tensor, grad: Tensor, group: dict[Any, Any]) -> None:
        """Update one parameter that has a sparse gradient; few optimizers can."""
        raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")

    def __setstate__(self, state: dict[Any, Any]) -> None:
        own = dict(state.get("defaults") or self.defaults)      # not those that every optimizer has, whether it knows them or not
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in own.items():
                if isinstance(default, (bool, type(None))):
                    group.setdefault(name, default)
        for value in self.state.values():
            # Old checkpoints count steps with a number.
            if "step" in value and not isinstance(value["step"], torch.Tensor):
                value["step"] = new_step().fill_(float(value["step"]))

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            with torch.set_grad_enabled(bool(group.get("differentiable"))):
                for batch in self._batches(group):
                    self._update(batch)
        return loss

    def _batches(self, group: dict[Any, Any]) -> Iterator[Batch]:
        """Count a step, and bring together what is updated together."""
        return self._together(group, [param.grad for param in group["params"]])

    def _together(self, group: dict[Any, Any], grads: Sequence[Tensor | None]) -> Iterator[Batch]:
        """The same with a gradient, or none, for each parameter of the group."""
        capturable, alone = group.get("capturable"), bool(group.get("differentiable"))
        single = alone or group.get("foreach") is False
        if alone and group.get("foreach"):
            raise AssertionError("_foreach ops don't support autograd")
        together: dict[tuple[Any, ...], tuple[list[Tensor], list[Tensor], list[dict[Any, Any]]]] = {}
        states, items = self.state, 0
        for i, (param, grad) in enumerate(zip(group["params"], grads)):
            if grad is None:
                continue
            if grad.is_sparse:
                self._step_sparse(param, grad, group)
                continue
            state = states[param] or self._first_state(param, group)
            if alone:  # the last step's state is part of the graph: this step changes copies of it
                state.update({name: value.clone() for name, value in state.items()})
            place = i if single else param.get_device()
            if param.is_cpu and not single:  # as many together as the caches hold, op after op
                place = -1 - items // ITEMS_TOGETHER
                items += param.numel()
            elif not together and not param.is_cpu:
                self._accelerator_graph_capture_health_check()
            count = None
            if capturable:
                check_capturable(param)
            else:
                count = self._count(state)
            batch = together.setdefault((place, param.dtype, len(state), count), ([], [], []))
            batch[0].append(param)
            batch[1].append(grad)
            batch[2].append(state)
        for batch in together.values():
            yield self._batch(*batch, group)

    def _count(self, state: dict[Any, Any]) -> Any:
        """Count a step on the host; what the counters stand at then."""
        step = state["step"]
        if step.is_cpu:
            step += 1
        else:  # a loaded state_dict of a step that was captured
            state["step"] = step.cpu() + 1
        if len(self.counters) == 1:
            return state["step"].item()
        for name in self.counters:
            state[name] = state[name].cpu()
        return tuple([state[name].item() for name in self.counters])

    def _first_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        if group.get("fused") and not param.is_floating_point():
            raise RuntimeError(
                "`fused=True` requires all the params to be floating point Tensors of supported "
                f"devices: {FUSED_DEVICES} but {param.dtype} and {param.device.type}"
            )
        made = self._init_state(param, group)       # may refuse the parameter, which then has no state
        state = self.state[param]
        state["step"] = new_step(param.device if group.get("capturable") else "cpu")
        state.update(made)
        if group.get("capturable"):
            for name in self.counters:
                state[name] = state[name].to(param.device)
        return state

    @staticmethod
    def _batch(params: list[Tensor], grads: Any, states: list[dict[Any, Any]], group: dict) -> Batch:
        lists = {name: [state[name] for state in states] for name in states[0]}
        if group.get("capturable"):
            torch._foreach_add_(lists["step"], 1)
        if any(map(torch.is_complex, params)):
            params, grads = _as_real(params), _as_real(grads)
            lists = {name: _as_real(tensors) for name, tensors in lists.items()}
        if group["maximize"]:
            grads = torch._foreach_neg(grads)
        return Batch(params, grads, lists, option_for(params[0], group, group["lr"]), group)


class MomentsOptimizer(ForeachOptimizer):
    """Both moments of the Adam family."""

    def _init_state(self, param: Tensor, group: dict[Any, Any]) -> dict[str, Any]:
        return {"exp_avg": like(param), "exp_avg_sq": like(param)}

    @staticmethod
    def _move(batch: Batch) -> Sequence[Tensor]:
        """Decay the weights and move both moments; the gradients that they moved by."""
        beta1, beta2 = batch.group["betas"]
        grads = batch.decay_()
        torch._foreach_lerp_(batch.state["exp_avg"], grads, 1 - beta1)
        torch._foreach_mul_(batch.state["exp_avg_sq"], beta2)
        torch._foreach_addcmul_(batch.state["exp_avg_sq"], grads, grads, 1 - beta2)
        return grads


def _as_real(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.view_as_real(t) if t.is_complex() else t for t in tensors]


def option_for(param: Tensor, group: dict[Any, Any], value: Any) -> Factor:
    """An option as a number, or as a 0-dim tensor where reading it would make the host wait."""
    if not isinstance(value, torch.Tensor):
        return value
    if group.get("differentiable") or value.device == param.device and not value.is_cpu:
        return value.reshape(())
    return number(value)


def check_capturable(param: Tensor) -> None:
    """Refuse capturable=True where nothing can be captured."""
    if param.device.type not in CAPTURABLE_DEVICES:
        raise AssertionError(
            "If capturable=True, params and state_steps must be on supported devices: "
            f"{CAPTURABLE_DEVICES}."
        )


def scaled_grads(grads: Sequence[Tensor], options: dict[str, Any]) -> Sequence[Tensor] | None:
    """The gradients without the factor of a GradScaler, which is taken out of the options; None where they are not finite."""
    scale, found_inf = options.pop("grad_scale", None), options.pop("found_inf", None)
    if found_inf is not None and found_inf.item():
        return None
    return grads if scale is None else torch._foreach_div(grads, scale)


def update_lists(
    optimizer: type[ForeachOptimizer], params: list[Tensor], grads: Sequence[Tensor],
    lists: Mapping[str, Sequence[Tensor | None]], **options: Any,
) -> None:  # fmt: skip
    """One update of a class of optimizers over state that the caller keeps: a list of tensors by its name in a state dict.

    An empty list, and None in a list, is state that is not needed."""
    found = scaled_grads(grads, options)
    if found is None:
        return
    if len(grads) != len(params) or any(len(tensors) not in (0, len(params)) for tensors in lists.values()):
        raise ValueError("params, grads and the lists of their state must be equally long")
    kept = [
        {name: tensor for name, tensors in lists.items() if tensors and (tensor := tensors[i]) is not None}
        for i in range(len(params))
    ]
    made = optimizer.__new__(optimizer)
    made.state = {param: dict(state) for param, state in zip(params, kept)}  # type: ignore[assignment]
    options["params"] = params
    with torch.set_grad_enabled(bool(options.get("differentiable"))):
        for batch in made._together(options, found):
            made._update(batch)
        for param, state in zip(params, kept):
            for name, tensor in state.items():
                if made.state[param][name] is not tensor:
                    tensor.copy_(made.state[param][name])
