"""LazyModuleMixin: a layer that decides its shapes at the first forward call."""

from __future__ import annotations

import itertools
from typing import Any

from mindtorch_v2.nn.parameter import is_lazy

# What a lazy class stands before: to a checker a Module, at run time nothing, so that the layer's own class decides.
_Base: Any = object


class LazyModuleMixin(_Base):
    """Runs initialize_parameters before the first forward, then becomes `cls_to_become`."""

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(
            self._infer_parameters, with_kwargs=True
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, param in self._parameters.items():
            if param is not None:
                raw = is_lazy(param) or keep_vars
                destination[prefix + name] = param if raw else param.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                raw = is_lazy(buffer) or keep_vars
                destination[prefix + name] = buffer if raw else buffer.detach()

    def _lazy_load_hook(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[Any],
        unexpected_keys: list[Any],
        error_msgs: list[Any],
    ) -> None:
        """Take the shapes from a checkpoint before it is copied in."""
        for name, param in itertools.chain(self._parameters.items(), self._buffers.items()):
            key = prefix + name
            if key in state_dict and param is not None and is_lazy(param):
                if not is_lazy(state_dict[key]):
                    param.materialize(state_dict[key].shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Decide the shapes from the first input; every lazy layer defines it."""
        raise NotImplementedError(
            f"initialize_parameters is not implemented for {type(self).__name__}"
        )

    def has_uninitialized_params(self) -> bool:
        """Say whether any parameter or buffer still waits for its shape."""
        values = itertools.chain(self._parameters.values(), self._buffers.values())
        return any(is_lazy(value) for value in values)

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[Any, Any] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"module {self._get_name()} has not been fully initialized"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become
