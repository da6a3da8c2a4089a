"""Wrappers that keep fewer activations for backward: computed again, or moved to the host. Names of parameters stay as they are."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from typing import Any

import mindtorch_v2 as torch

_INNER = "_checkpoint_wrapped_module"
_PREFIX = _INNER + "."


class CheckpointImpl(Enum):
    """How torch.utils.checkpoint works."""
    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(torch.nn.Module):
    """A module within another, whose state dict and names of parameters do not show it."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self.register_state_dict_post_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__(_INNER), name)

    def __getitem__(self, key: Any) -> Any:
        return self._checkpoint_wrapped_module[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Without the wrapper in the names."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, ""), param

    @staticmethod
    def _without_prefix(module: Any, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in [name for name in state_dict if name.startswith(prefix + _PREFIX)]:
            state_dict[prefix + name[len(prefix + _PREFIX):]] = state_dict.pop(name)

    @staticmethod
    def _with_prefix(module: Any, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in [name for name in state_dict if name.startswith(prefix) and not name.startswith(prefix + _PREFIX)]:
            state_dict[prefix + _PREFIX + name[len(prefix):]] = state_dict.pop(name)


class OffloadWrapper(ActivationWrapper):
    """Keeps what backward needs in the host's memory."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """Computes a module again in backward; checkpoint_fn is torch.utils.checkpoint.checkpoint, or what is given."""

    def __init__(self, mod: Any, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                 checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
        self.checkpoint_fn = partial(torch.utils.checkpoint.checkpoint, use_reentrant=reentrant, **checkpoint_fn_kwargs) \
            if checkpoint_fn is None else partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inner = self._checkpoint_wrapped_module
        if self.checkpoint_impl is CheckpointImpl.REENTRANT and kwargs:   # gradients pass through its positions only
            names = list(kwargs)
            call = lambda *given: inner(*given[:len(args)], **dict(zip(names, given[len(args):], strict=True)))
            return self.checkpoint_fn(call, *args, *kwargs.values())
        return self.checkpoint_fn(inner, *args, **kwargs)


def offload_wrapper(module: Any) -> OffloadWrapper:
    """A module whose activations wait in the host's memory."""
    return OffloadWrapper(module)


def checkpoint_wrapper(module: Any, checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
                       checkpoint_fn: Callable[..., Any] | None = None, **checkpoint_fn_kwargs: Any) -> CheckpointWrapper:
    """A module that is computed again in backward."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(model: Any, checkpoint_wrapper_fn: Callable[..., Any] = checkpoint_wrapper,
                                   check_fn: Callable[[Any], bool] = lambda _: True,
                                   auto_wrap_policy: Callable[..., bool] | None = None) -> None:
    """Wraps the modules within a model for which check_fn is true (or which a policy of torch.distributed.fsdp.wrap takes)."""
    if auto_wrap_policy is not None:
        raise NotImplementedError("[apply_activation_checkpointing] auto_wrap_policy: say which modules with check_fn")
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if not isinstance(child, ActivationWrapper) and not isinstance(parent, ActivationWrapper) and check_fn(child):
                setattr(parent, name, checkpoint_wrapper_fn(child))
