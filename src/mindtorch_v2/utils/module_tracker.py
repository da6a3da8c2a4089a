"""ModuleTracker: which modules are running, in forward and in backward."""
from __future__ import annotations

import weakref
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Inside the block, `parents` holds the names of the modules that are running; "Global" is always among them."""

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._backward = False

    @property
    def is_bw(self) -> bool:
        """Whether backward is running."""
        return self._backward

    def _name(self, module: Any) -> str:
        if module not in self._known:
            self._known[module] = type(module).__name__
            for name, child in module.named_modules():
                if name:
                    self._known.setdefault(child, f"{type(module).__name__}.{name}")
        return self._known[module]

    def _watch(self, tensors: Any, name: str, enter: bool) -> None:
        """A gradient that passes here tells that backward enters or leaves the module."""
        def passed(grad: Any) -> None:
            self._backward = True
            (self.parents.add if enter else self.parents.discard)(name)
        for tensor in tree_leaves(tensors):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(passed)

    def _before(self, module: Any, args: Any) -> None:
        name = self._name(module)
        self._backward = False
        self._watch(args, name, False)
        self.parents.add(name)

    def _after(self, module: Any, args: Any, output: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        self._watch(output, name, True)

    def __enter__(self) -> ModuleTracker:
        hooks = torch.nn.modules.module
        self._handles = [hooks.register_module_forward_pre_hook(self._before),
                         hooks.register_module_forward_hook(self._after, always_call=True)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
