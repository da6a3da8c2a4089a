"""NormalizeArgs and NormalizeOperators: calls written in one way only."""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.interpreter import Transformer
from mindtorch_v2.fx.node import Argument, Node, Target, map_aggregate
from mindtorch_v2.fx.operator_schemas import create_type_hint, normalize_function, normalize_module
from mindtorch_v2.fx.proxy import Proxy

__all__ = ["NormalizeArgs", "NormalizeOperators"]


class NormalizeArgs(Transformer):
    """Calls of torch's functions and modules with every argument named, as far as the signature is clear."""

    def __init__(self, module: GraphModule, normalize_to_only_use_kwargs: bool = True) -> None:
        super().__init__(module)
        self.node_map: dict[Proxy, Node] = {}
        self.normalize_to_only_use_kwargs = normalize_to_only_use_kwargs

    def run_node(self, n: Node) -> Any:
        args, kwargs = self.fetch_args_kwargs_from_env(n)

        def kind(arg: Any) -> Any:
            return arg.meta.get("type") if isinstance(arg, Node) else type(arg)
        if n.op == "call_function":
            result = self._call(n.target, args, kwargs, map_aggregate(n.args, kind), map_aggregate(n.kwargs, kind))
        else:
            result = super().run_node(n)
        if n.op != "output":
            self.node_map[result] = n
            result.node.meta = n.meta
            result.node.type = n.type
        return result

    def _call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], arg_types: Any, kwarg_types: Any) -> Any:
        types = tuple(create_type_hint(t) for t in arg_types)
        named = {k: create_type_hint(v) for k, v in kwarg_types.items()}
        found = normalize_function(target, args, kwargs, types, named, self.normalize_to_only_use_kwargs)   # type: ignore
        if found is not None:
            args, kwargs = found
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        found = normalize_module(self.module, target, args, kwargs, self.normalize_to_only_use_kwargs)   # type: ignore
        if found is not None:
            return super().call_module(target, found.args, found.kwargs)
        return super().call_module(target, args, kwargs)


class NormalizeOperators(Transformer):
    """Functions of torch that are operators, as Python's operators."""

    binary_magic_method_remap: dict[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
        getattr(torch, word): getattr(operator, name) for word, name in (
            ("add", "add"), ("mul", "mul"), ("sub", "sub"), ("div", "truediv"), ("floor_divide", "floordiv"),
            ("remainder", "mod"), ("eq", "eq"), ("ne", "ne"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge"))}

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        if target in self.binary_magic_method_remap and len(args) == 2 and not kwargs:
            target = self.binary_magic_method_remap[target]
        return super().call_function(target, args, kwargs)
