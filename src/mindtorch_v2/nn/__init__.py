"""torch.nn: modules, parameters, functional, init and utils."""

from __future__ import annotations

from typing import Any

from mindtorch_v2.nn import attention, functional, grad, init, modules, parallel, parameter, utils
from mindtorch_v2.nn.modules import *  # noqa: F403
from mindtorch_v2.nn.modules import __all__ as _layers
from mindtorch_v2.nn.parallel import DataParallel
from mindtorch_v2.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

__all__ = [
    *_layers,
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]


def factory_kwargs(kwargs: dict[Any, Any] | None) -> dict:
    """The device, dtype and memory_format among the keyword arguments of a factory."""
    if kwargs is None:
        return {}
    simple = {"device", "dtype", "memory_format"}
    unknown = kwargs.keys() - simple - {"factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    result = dict(kwargs.get("factory_kwargs", {}))
    for key in simple & kwargs.keys():
        if key in result:
            raise TypeError(f"{key} specified twice, in **kwargs and in factory_kwargs")
        result[key] = kwargs[key]
    return result
