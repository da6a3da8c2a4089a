"""Which submodules FullyShardedDataParallel wraps: policies, and wrap() for models that name them themselves."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mindtorch_v2 as torch

__all__ = ["CustomPolicy", "ModuleWrapPolicy", "always_wrap_policy", "enable_wrap", "lambda_auto_wrap_policy",
           "size_based_auto_wrap_policy", "transformer_auto_wrap_policy", "wrap"]

_enabled: list[tuple[Any, dict[str, Any]]] = []


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every submodule."""
    return True


def lambda_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Any], bool]) -> bool:
    """The submodules for which a function returns true."""
    return True if recurse else lambda_fn(module)


def transformer_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type]) -> bool:
    """The submodules of some classes."""
    return True if recurse else isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(module: Any, recurse: bool, nonwrapped_numel: int, min_num_params: int = int(1e8),
                                force_leaf_modules: set[type] | None = None,
                                exclude_wrap_modules: set[type] | None = None) -> bool:
    """Submodules with so many items in parameters that are not wrapped below them."""
    leaves = tuple({torch.nn.MultiheadAttention} if force_leaf_modules is None else force_leaf_modules)
    excluded = tuple({torch.nn.ModuleList, torch.nn.ModuleDict} if exclude_wrap_modules is None else exclude_wrap_modules)
    large = nonwrapped_numel >= min_num_params
    return large and not isinstance(module, leaves) if recurse else large and not isinstance(module, excluded)


class ModuleWrapPolicy:
    """The submodules of some classes."""

    def __init__(self, module_classes: Iterable[type]) -> None:
        self._module_classes = tuple(set(module_classes))

    def __call__(self, module: Any, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return True if recurse else isinstance(module, self._module_classes)

    def __repr__(self) -> str:
        return f"ModuleWrapPolicy({set(self._module_classes)})"


class CustomPolicy:
    """The submodules for which a function gives True, or settings of their own."""

    def __init__(self, lambda_fn: Callable[[Any], bool | dict[str, Any]]) -> None:
        self._lambda_fn = lambda_fn


def _wrap_below(module: Any, policy: Any, make: Callable[..., Any], ignored: set[Any]) -> int:
    """Wraps the submodules that a policy names, from the inside out; the number of items of parameters that are wrapped."""
    total = sum(param.numel() for param in module.parameters())
    if not isinstance(policy, CustomPolicy) and not policy(module=module, recurse=True, nonwrapped_numel=total):
        return 0
    wrapped = 0
    for name, child in list(module.named_children()):
        if child in ignored:
            continue
        below = _wrap_below(child, policy, make, ignored)
        own = sum(param.numel() for param in child.parameters())
        chosen = policy._lambda_fn(child) if isinstance(policy, CustomPolicy) else \
            policy(module=child, recurse=False, nonwrapped_numel=own - below)
        if chosen and not isinstance(child, torch.nn.ModuleList | torch.nn.ModuleDict):
            setattr(module, name, make(child, **(chosen if isinstance(chosen, dict) else {})))
            below = own
        wrapped += below
    return wrapped


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """A with block in which wrap() wraps."""
    _enabled.append((wrapper_cls, wrapper_kwargs))
    try:
        yield
    finally:
        _enabled.pop()


def wrap(module: Any, **wrap_overrides: Any) -> Any:
    """The module, wrapped where a with block of enable_wrap is open."""
    if not _enabled:
        return module
    cls, settings = _enabled[-1]
    return cls(module, **{**settings, **wrap_overrides})
