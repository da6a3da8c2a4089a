"""Optimizer, the base of all optimizers: groups, state, hooks. The step that most of them share is in `_foreach.py`."""

from __future__ import annotations

import functools
import itertools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from copy import deepcopy
from types import MappingProxyType
from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.optim._custom import (
    DeviceDict as DeviceDict,
)
from mindtorch_v2.optim._custom import (
    DeviceDtypeDict as DeviceDtypeDict,
)
from mindtorch_v2.optim._custom import (
    StateDict as StateDict,
)
from mindtorch_v2.optim._custom import (
    _capturable_doc as _capturable_doc,
)
from mindtorch_v2.optim._custom import (
    _device_dtype_check_for_fused as _device_dtype_check_for_fused,
)
from mindtorch_v2.optim._custom import (
    _differentiable_doc as _differentiable_doc,
)
from mindtorch_v2.optim._custom import (
    _disable_dynamo_if_unsupported as _disable_dynamo_if_unsupported,
)
from mindtorch_v2.optim._custom import (
    _foreach_doc as _foreach_doc,
)
from mindtorch_v2.optim._custom import (
    _fused_doc as _fused_doc,
)
from mindtorch_v2.optim._custom import (
    _get_scalar_dtype as _get_scalar_dtype,
)
from mindtorch_v2.optim._custom import (
    _get_value as _get_value,
)
from mindtorch_v2.optim._custom import (
    _maximize_doc as _maximize_doc,
)
from mindtorch_v2.optim._custom import (
    _params_doc as _params_doc,
)
from mindtorch_v2.optim._custom import (
    _stack_if_compiling as _stack_if_compiling,
)
from mindtorch_v2.optim._custom import (
    _to_scalar as _to_scalar,
)
from mindtorch_v2.optim._custom import (
    _view_as_real as _view_as_real,
)

Tensor = torch.Tensor
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
RemovableHandle = torch.nn.modules._hooks.RemovableHandle
add_hook = torch.nn.modules._hooks.add_hook

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]

_global_optimizer_pre_hooks: OrderedDict[Any, Any] = OrderedDict()
_global_optimizer_post_hooks: OrderedDict[Any, Any] = OrderedDict()
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class _RequiredParameter:
    """Stands for an option that every parameter group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before the step of every optimizer."""
    return add_hook(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return add_hook(_global_optimizer_post_hooks, hook)


def check_range(name: str, value: Any, message: str | None = None) -> None:
    """Refuse a negative option by torch's words."""
    if not value >= 0.0:
        raise ValueError(message or f"Invalid {name} value: {value}")


def check_lr(lr: Any, foreach: bool | None = None, capturable: bool = False) -> None:
    """Check a learning rate, which may be a tensor of one element."""
    if isinstance(lr, torch.Tensor):
        if foreach and not capturable:
            raise ValueError(
                "lr as a Tensor is not supported for capturable=False and foreach=True"
            )
        if lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
    check_range("lr", lr, f"Invalid learning rate: {lr}")


def check_betas(betas: tuple[Any, ...]) -> None:
    """Check the two decay rates of the Adam family."""
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def check_fused(foreach: bool | None, fused: bool | None, differentiable: bool) -> None:
    """Check the options that exclude each other."""
    if fused:
        if differentiable:
            raise RuntimeError("`fused` does not support `differentiable`")
        if foreach:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


number = _get_value


def new_step(device: torch.device | str = "cpu") -> Tensor:
    """A step counter at zero."""
    double = torch.get_default_dtype() == torch.float64
    return torch.zeros((), dtype=torch.float64 if double else torch.float32, device=device)


def like(param: Tensor) -> Tensor:
    """A state tensor of zeros for a parameter."""
    return torch.zeros_like(param, memory_format=torch.preserve_format)


def _hooked(step: Callable[..., Any]) -> Callable:
    """Wrap a step so that its hooks run; without hooks it costs one test."""

    @functools.wraps(step)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        pre, post = self._optimizer_step_pre_hooks, self._optimizer_step_post_hooks
        if not (pre or post or _global_optimizer_pre_hooks or _global_optimizer_post_hooks):
            return step(self, *args, **kwargs)
        args = (self, *args)                                # hooks see what step was called with
        for hook in (*_global_optimizer_pre_hooks.values(), *pre.values()):
            result = hook(self, args, kwargs)
            if result is None:
                continue
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RuntimeError(
                    f"{step} must return None or a tuple of (new_args, new_kwargs), "
                    f"but got {result}."
                )
            args, kwargs = result
        out = step(*args, **kwargs)
        for hook in (*post.values(), *_global_optimizer_post_hooks.values()):
            hook(self, args, kwargs)
        return out

    wrapper.hooked = True  # type: ignore[attr-defined]
    return wrapper


def _use_grad_for_differentiable(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step in which gradients are recorded only if defaults["differentiable"] is set."""
    @functools.wraps(func)
    def step(*args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(bool(args[0].defaults["differentiable"])):
            return func(*args, **kwargs)
    return step


def _default_to_fused_or_foreach(params: list[Tensor], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """(fused, foreach) where the caller chose neither: foreach on an npu, where one launch for all tensors is cheaper."""
    plain = not differentiable and bool(params) and all(type(p) in (Tensor, torch.nn.Parameter) for p in params)
    fused = use_fused and plain and all(p.is_floating_point() for p in params)
    return fused, not fused and plain and all(p.device.type == "npu" for p in params)


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The types of device whose steps a graph may capture."""
    return ["npu"]


class Optimizer:
    """Base class of all optimizers."""

    OptimizerPreHook = Callable
    OptimizerPostHook = Callable
    # Empty on the class too: a subclass may wrap another optimizer and never call __init__.
    _optimizer_step_pre_hooks: Any = MappingProxyType({})
    _optimizer_step_post_hooks: Any = MappingProxyType({})
    _optimizer_state_dict_pre_hooks: OrderedDict[Any, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[Any, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[Any, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[Any, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        step = cls.__dict__.get("step")
        if step is not None and not getattr(step, "hooked", False):
            cls.step = _hooked(step)  # type: ignore[method-assign]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for table in _HOOK_TABLES:
            setattr(self, table, OrderedDict())
        self._patch_step_function()
        if isinstance(params, torch.Tensor):
            raise TypeError(
                "params argument given to the optimizer should be "
                "an iterable of Tensors or dicts, but got " + torch.typename(params)
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups: list[Any] = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        self._warned_capturable_if_run_uncaptured = True

    def __getstate__(self) -> dict[Any, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self._patch_step_function()
        self.defaults = {**self.defaults, "differentiable": self.defaults.get("differentiable", False)}

    def __repr__(self) -> str:
        text = self.__class__.__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before step; it may replace the arguments."""
        return add_hook(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after step."""
        return add_hook(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` before state_dict."""
        return add_hook(self._optimizer_state_dict_pre_hooks, hook, prepend=prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after state_dict; it may replace the result."""
        return add_hook(self._optimizer_state_dict_post_hooks, hook, prepend=prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may replace the state_dict."""
        return add_hook(self._optimizer_load_state_dict_pre_hooks, hook, prepend=prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return add_hook(self._optimizer_load_state_dict_post_hooks, hook, prepend=prepend)

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter index, and the groups with indices for parameters."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        index: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            params = group["params"]                        # of one that is there twice, the last place counts
            index.update({id(p): i for i, p in enumerate(params, start) if id(p) not in index})
            start += len(params)
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [index[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {
            (index[id(key)] if isinstance(key, torch.Tensor) else key): value
            for key, value in self.state.items()
        }
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, result)
            if replaced is not None:
                result = replaced
        return result

    @staticmethod
    def _cast(param: Tensor, key: Any, value: Any, group: dict[Any, Any]) -> Any:
        """Bring a loaded value to the device and dtype of its parameter."""
        if isinstance(value, torch.Tensor):
            if key == "step":
                if group.get("capturable") or group.get("fused"):
                    return value.to(dtype=torch.float32, device=param.device)
                return value
            if param.is_floating_point():
                return value.to(dtype=param.dtype, device=param.device)
            return value.to(device=param.device)
        if isinstance(value, dict):
            return {k: Optimizer._cast(param, k, v, group) for k, v in value.items()}
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            kind: Any = type(value)
            return kind(Optimizer._cast(param, None, v, group) for v in value)
        return value

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state and the options of a state_dict."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group "
                "that doesn't match the size of optimizer's group"
            )
        owner = {}
        for group, old in zip(groups, saved):
            for key, param in zip(old["params"], group["params"]):
                owner[key] = (param, old)
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in owner:
                param, old = owner[key]
                state[param] = self._cast(param, None, value, old)
            else:
                state[key] = value
        for group, old in zip(groups, saved):
            old["params"] = group["params"]
            if "param_names" in group:
                old.setdefault("param_names", group["param_names"])
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) the gradients of all parameters."""
        alike: dict[Any, list[Tensor]] = {}
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if set_to_none:
                    param.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                alike.setdefault((grad.device, grad.dtype), []).append(grad)
        for grads in alike.values():
            torch._foreach_zero_(grads)

    def _accelerator_graph_capture_health_check(self) -> None:
        """Refuse to be captured with a step that only the host counts: every replay would be the same step."""
        if all(group.get("capturable", True) for group in self.param_groups):
            return
        params = (param for group in self.param_groups for param in group["params"])
        if any(param.is_npu for param in params) and torch.npu.is_current_stream_capturing():
            raise RuntimeError(
                "Attempting NPU graph capture of step() for an instance of "
                f"{self.__class__.__name__} but param_groups' capturable is False."
            )

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check      # its name of before

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """A step that runs the hooks of its optimizer."""
        return _hooked(func)

    def _patch_step_function(self) -> None:
        """Let the step of this class run hooks: for subclasses that do not call __init__ and give themselves a step."""
        self._zero_grad_profile_name = f"Optimizer.zero_grad#{self.__class__.__name__}.zero_grad"
        cls = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = _hooked(cls.step)  # type: ignore[method-assign]

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: list[list[Any]], with_indices: bool = False) -> dict[Any, Any]:
        """Lists of tensors that go together, split by the device and dtype of the first list's."""
        return torch._C._group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters once; every optimizer defines it."""
        raise NotImplementedError

    def _check_param(self, param: Any) -> None:
        if not isinstance(param, torch.Tensor):
            raise TypeError(
                "optimizer can only optimize Tensors, "
                "but one of the params is " + torch.typename(param)
            )
        leaf = param.is_leaf or param.retains_grad
        if not self.defaults.get("differentiable") and not leaf:
            raise ValueError("can't optimize a non-leaf Tensor")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with options of its own."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, torch.Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but "
                "the ordering of tensors in sets will change between runs. Please use a list "
                "instead."
            )
        params = list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named):
            if not all(named):
                raise ValueError(
                    "all optimizer params should be with/without names. Some param names are "
                    "missing"
                )
            param_group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        param_group["params"] = params
        for param in params:
            self._check_param(param)
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(
                    "parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            param_group.setdefault(name, default)
        ids = [id(param) for param in params]
        if len(ids) != len(set(ids)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        groups = self.param_groups
        known = {id(p) for p in itertools.chain.from_iterable(g["params"] for g in groups)}
        if not known.isdisjoint(ids):
            raise ValueError("some parameters appear in more than one parameter group")
        if groups and ("param_names" in param_group) != ("param_names" in groups[0]):
            raise ValueError(
                "all optimizer param groups should be with/without names. "
                f"cannot add param group with{'' if 'param_names' in param_group else 'out'} names "
                "to the optimizer"
            )
        self.param_groups.append(param_group)


class OneByOneOptimizer(Optimizer):
    """Updates the parameters one after another, each by _update(param, grad, group)."""

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        self._update(param, param.grad, group)
        return loss

    def _update(self, param: Tensor, grad: Any, group: dict[Any, Any]) -> None:
        raise NotImplementedError
