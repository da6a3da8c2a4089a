"""Clipping of gradients by norm and by value."""

from __future__ import annotations

import types
import warnings
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = [
    "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_",
    "get_total_norm",
]  # fmt: skip


def _as_list(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _lists(tensors: list[Tensor], foreach: bool | None) -> list[list[Tensor]]:
    """Tensors of one device and dtype together; foreach=False: each alone."""
    if foreach is False:
        return [[t] for t in tensors]
    alike: dict[Any, list[Tensor]] = {}
    for t in tensors:
        alike.setdefault((t.device, t.dtype), []).append(t)
    return list(alike.values())


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors together, as if they were one vector."""
    tensors, norm_type = _as_list(tensors), float(norm_type)
    if not tensors:
        return torch.tensor(0.0)
    with torch.no_grad():
        lists = _lists(tensors, foreach)
        norms = [norm for alike in lists for norm in torch._foreach_norm(alike, norm_type)]
        if len(lists) > 1:
            norms = [norm.to(tensors[0].device) for norm in norms]
        total = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    if error_if_nonfinite and not torch.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from "
            "`parameters` is non-finite, so it cannot be clipped. To disable "
            "this error and scale the gradients by the non-finite norm anyway, "
            "set `error_if_nonfinite=False`"
        )
    return total


def clip_grads_with_norm_(
    parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scale gradients down to max_norm, given their total norm."""
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    if not grads:
        return
    with torch.no_grad():
        # Always multiplied, by one where nothing is to be clipped: no wait for the device.
        scale = torch.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        for alike in _lists(grads, foreach):
            torch._foreach_mul_(alike, scale.to(alike[0].device))


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of all parameters so that their norm is at most max_norm."""
    from_generator = isinstance(parameters, types.GeneratorType)
    parameters = _as_list(parameters)
    if from_generator and not parameters:
        warnings.warn(
            "`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2
        )
    grads = [p.grad for p in parameters if p.grad is not None]
    total = get_total_norm(grads, norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The deprecated name of clip_grad_norm_."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated "
        "in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of every gradient to ±clip_value."""
    clip_value = float(clip_value)
    grads = [p.grad for p in _as_list(parameters) if p.grad is not None]
    with torch.no_grad():
        for alike in _lists(grads, foreach):
            if len(alike) == 1 or alike[0].is_cpu:
                for grad in alike:
                    grad.clamp_(min=-clip_value, max=clip_value)
            else:  # there is no op over lists for both ends
                torch._foreach_clamp_min_(alike, -clip_value)
                torch._foreach_clamp_max_(alike, clip_value)
