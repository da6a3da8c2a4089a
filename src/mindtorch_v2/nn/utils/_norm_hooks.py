"""Removal of the forward pre-hooks of weight_norm and spectral_norm."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.nn.modules.module import Module


def remove_hook(module: Module, kind: type[Any], name: str, function: str) -> Module:
    """Removes the hook of a kind for a parameter, and with it what it registered."""
    hooks: dict[int, Any] = module._forward_pre_hooks
    for key, hook in hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            hook.remove(module)
            del hooks[key]
            return module
    raise ValueError(f"{function} of '{name}' not found in {module}")
