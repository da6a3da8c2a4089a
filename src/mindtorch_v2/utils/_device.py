"""Functions that make tensors somewhere else than they say."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


def set_device(device: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: tensors that the function makes without a device are made on this one."""
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with torch.device(device):
                return function(*args, **kwargs)
        return decorated
    return decorate
