"""Ops over functions, such as cond: a body for each dispatch key, found by the arguments."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch


class HigherOrderOperator:
    """An op over functions: a body for each dispatch key, found by the arguments when it is called."""

    def __init__(self, name: str, *, cacheable: bool = False) -> None:
        self._name = self.__name__ = name
        self._bodies: dict[Any, Callable[..., Any]] = {}

    def py_impl(self, k: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator: the body for a key, a transform or a class of tensors or modes."""
        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            if k in self._bodies:
                raise RuntimeError(f"Trying to override a python impl for {k} on operator {self._name}")
            self._bodies[k] = fn
            return fn
        return register

    def name(self) -> str:
        """Its name."""
        return self._name

    def namespace(self) -> str:
        """The namespace of such ops."""
        return "higher_order"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            level = torch._functorch.pyfunctorch.retrieve_current_functorch_interpreter()
            if level.key() in self._bodies:
                return self._bodies[level.key()](level, *args, **kwargs)
        keys, leaves = torch._absent.DispatchKey, torch.utils._pytree.tree_leaves((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        wanted: list[Any] = [type(mode) for mode in reversed(torch._C._dispatch_mode_stack())]
        wanted += [type(x) for x in tensors]
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            wanted.append(keys.Autograd)
        wanted += [keys.AutogradCPU, keys.CPU] if all(x.device.type == "cpu" for x in tensors) else []
        body = next((self._bodies[key] for key in (*wanted, keys.CompositeExplicitAutograd) if key in self._bodies), None)
        if body is None:
            raise NotImplementedError(f"could not find kernel for HigherOrderOperator {self._name}")
        return body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<HigherOrderOperator({self._name})>"
