"""Weight normalisation by a forward pre-hook (the newer way is parametrizations.weight_norm)."""

from __future__ import annotations

import warnings
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module
from mindtorch_v2.nn.parameter import Parameter, UninitializedParameter
from mindtorch_v2.nn.utils._norm_hooks import remove_hook

Tensor = torch.Tensor

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """The 2-norm over all dimensions but one; over all where dim is -1."""
    if dim == -1:
        return v.norm(2)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return torch.linalg.vector_norm(v, 2, others, keepdim=True)


def weight_from(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """The direction of v with the length g."""
    return v * (g / norm_except_dim(v, dim))


class WeightNorm:
    """The hook: computes the weight from its length and direction before each forward."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The weight from `name_g` and `name_v`."""
        g, v = getattr(module, self.name + "_g"), getattr(module, self.name + "_v")
        return weight_from(v, g, self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Split a parameter of a module into length and direction."""
        warnings.warn(
            "`torch.nn.utils.weight_norm` is deprecated "
            "in favor of `torch.nn.utils.parametrizations.weight_norm`.",
            FutureWarning,
            stacklevel=3,
        )
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(
                    f"Cannot register two weight_norm hooks on the same parameter {name}"
                )
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError(
                "The module passed to `WeightNorm` can't have uninitialized parameters. "
                "Make sure to run the dummy forward before applying weight normalization"
            )
        del module._parameters[name]
        length = norm_except_dim(weight, fn.dim)
        module.register_parameter(name + "_g", Parameter(length.data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Module) -> None:
        """Put one parameter back in the place of the two."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the length and the direction of a parameter apart."""
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Undo weight_norm."""
    return remove_hook(module, WeightNorm, name, "weight_norm")
