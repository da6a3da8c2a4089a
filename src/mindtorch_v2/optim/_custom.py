"""What optimizers that programs write themselves import from torch.optim.optimizer, beside Optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import mindtorch_v2 as torch

Tensor = torch.Tensor
StateDict: TypeAlias = dict[str, Any]
DeviceDict: TypeAlias = dict[torch.device | None, Tensor]
DeviceDtypeDict: TypeAlias = dict[tuple[torch.device, torch.dtype] | None, Tensor]

_params_doc = "params (iterable): parameters, named parameters, or dicts of parameter groups"
_foreach_doc = "foreach (bool, optional): update all parameters of a device and dtype together (default: None)"
_fused_doc = "fused (bool, optional): one op of the device a parameter (default: None)"
_capturable_doc = "capturable (bool, optional): count steps on the device, so that a graph can capture a step (default: False)"
_differentiable_doc = "differentiable (bool, optional): record gradients through the step (default: False)"
_maximize_doc = "maximize (bool, optional): maximize the objective instead of minimizing it (default: False)"


def _get_value(x: Any) -> Any:
    """The number in a tensor of one element; a number as it is."""
    return x.item() if isinstance(x, torch.Tensor) else x


def _to_scalar(x: Any) -> Any:
    """A tensor of one element with no dimensions; a number as it is."""
    return x.squeeze() if isinstance(x, torch.Tensor) and x.dim() != 0 else x


def _stack_if_compiling(x: Any) -> Any:
    """The argument: nothing is compiled."""
    return x


def _get_scalar_dtype(is_fused: bool | None = None) -> torch.dtype:
    """The dtype of step counters."""
    return torch.float64 if torch.get_default_dtype() == torch.float64 and not is_fused else torch.float32


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A decorator that changes nothing: a step always runs eagerly."""
    return lambda function: function


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """Refuse a parameter that a fused step does not take."""
    if not (p.device.type in ("npu", "cpu") and torch.is_floating_point(p)):
        raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of "
                           f"supported devices: ['npu', 'cpu'] but {p.dtype} and {p.device.type}")


def _view_as_real(params: list[Tensor], *state_and_grads: list[Tensor]) -> None:
    """Replace complex parameters in a list by real views, and what belongs to them in the other lists."""
    for i, param in enumerate(params):
        if torch.is_complex(param):
            params[i] = torch.view_as_real(param)
            for tensors in state_and_grads:
                tensors[i] = torch.view_as_real(tensors[i])
