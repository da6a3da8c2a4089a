"""AnnotateTypesWithSchema: nodes take the type that the schema of what they call says."""
from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.node import Argument, Target
from mindtorch_v2.fx.proxy import Proxy

__all__ = ["AnnotateTypesWithSchema"]


class AnnotateTypesWithSchema(torch.fx.Transformer):
    """A copy of the graph whose calls of functions, of modules and whose attributes have types where these are known."""

    def __init__(self, module: torch.nn.Module, annotate_functionals: bool = True, annotate_modules: bool = True,
                 annotate_get_attrs: bool = True) -> None:
        super().__init__(module)                             # type: ignore[arg-type]
        self.annotate_functionals, self.annotate_modules = annotate_functionals, annotate_modules
        self.annotate_get_attrs = annotate_get_attrs

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The call; of a function of torch.nn.functional with the type that its signature says."""
        found: Any = None
        name = getattr(target, "__name__", "")
        if self.annotate_functionals and isinstance(target, FunctionType) and \
                getattr(torch.nn.functional, name, None) is target:
            found = target.__annotations__.get("return")
            found = None if isinstance(found, str) else found
        return self._typed(super().call_function(target, args, kwargs), found)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The call, with the type that the module's forward says; of a module of torch.nn a tensor."""
        found: Any = None
        if self.annotate_modules and isinstance(target, str):
            module = self.fetch_attr(target)
            kind = inspect.signature(module.forward).return_annotation
            known = type(module).__module__.startswith(("torch.nn.", "mindtorch_v2.nn.")) and kind in ("Tensor", "torch.Tensor")
            found = torch.Tensor if known else None if kind is inspect.Signature.empty or isinstance(kind, str) else kind
        return self._typed(super().call_module(target, args, kwargs), found)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute, with its type."""
        made = super().get_attr(target, args, kwargs)
        if not self.annotate_get_attrs:
            return made
        value = self.fetch_attr(str(target))
        return self._typed(made, torch.Tensor if isinstance(value, torch.Tensor) else None)

    @staticmethod
    def _typed(made: Any, kind: Any) -> Any:
        if isinstance(made, Proxy) and made.node.type is None and kind is not None:
            made.node.type = kind
        return made
