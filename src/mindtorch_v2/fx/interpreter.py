"""Interpreter runs a graph node by node; Transformer makes a new graph that way."""
from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx import traceback as fx_traceback
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._lazy_graph_module import _make_graph_module
from mindtorch_v2.fx._symbolic_trace import Tracer
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Argument, Node, Target, map_aggregate, map_arg
from mindtorch_v2.fx.proxy import Proxy

__all__ = ["Interpreter", "Transformer"]


@compatibility(is_backward_compatible=True)
class Interpreter:
    """Runs the graph of a module; a subclass may run kinds of nodes in another way."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, module: torch.nn.Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module: Any = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node._input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    @compatibility(is_backward_compatible=True)
    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """What the graph gives for arguments; initial_env has the values of nodes that are not run."""
        self.env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    self._say_where(node, error)
                raise
            for used in self.user_to_last_uses.get(node, ()) if self.garbage_collect_values else ():
                self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def _say_where(self, node: Node, error: Exception) -> None:
        """Adds the node, and the code that it came from, to an error's text."""
        text = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}\nUse tlparse to see full " \
               "graph. (https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
        first = f"{error.args[0]}\n\n{text}" if error.args and error.args[0] else text
        if isinstance(error, KeyError):
            raise RuntimeError(first) from error
        error.args = (first, *error.args[1:])

    @compatibility(is_backward_compatible=True)
    def boxed_run(self, args_list: list[Any]) -> Any:
        """run() with a list of the placeholders' values, which is emptied so that they can be freed early."""
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        if len(args_list) != len(placeholders):
            what = "extra" if len(args_list) > len(placeholders) else "missing"
            raise RuntimeError(f"Interpreter.boxed_run expected {len(placeholders)} arguments for placeholders but received "
                               f"{len(args_list)} ({what} arguments)")
        env = dict(zip(placeholders, args_list))
        args_list.clear()
        return self.run(initial_env=env)

    @contextlib.contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{self.__class__.__name__}"):
            yield

    @compatibility(is_backward_compatible=True)
    def run_node(self, n: Node) -> Any:
        """The value of one node."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next argument, or the default of the parameter."""
        assert isinstance(target, str)
        if target.startswith("*"):               # the rest
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as end:
            if args:
                return args[0]
            raise RuntimeError(f"Expected positional argument for parameter {target}, but one was not passed in!") from end

    @compatibility(is_backward_compatible=True)
    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        assert isinstance(target, str)
        return self.fetch_attr(target)

    @compatibility(is_backward_compatible=True)
    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a function."""
        assert not isinstance(target, str)
        return target(*args, **kwargs)

    @compatibility(is_backward_compatible=True)
    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a method of the first argument."""
        owner, *rest = args
        assert isinstance(target, str)
        return getattr(owner, target)(*rest, **kwargs)

    @compatibility(is_backward_compatible=True)
    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a submodule."""
        assert isinstance(target, str)
        return self.fetch_attr(target)(*args, **kwargs)

    @compatibility(is_backward_compatible=True)
    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """What the graph returns."""
        return args[0]

    @compatibility(is_backward_compatible=True)
    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its path."""
        found, parts = self.module, target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[:i + 1])}")
            found = getattr(found, part)
        return found

    @compatibility(is_backward_compatible=True)
    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node with the values of the nodes among them."""
        args, kwargs = self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)
        assert isinstance(args, tuple) and isinstance(kwargs, dict)
        return args, kwargs

    @compatibility(is_backward_compatible=True)
    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """An argument with the values of the nodes in it."""
        def load(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues")
            return self.env[used]
        return map_arg(args, load)


class _TransformerTracer(Tracer):
    """Records into a given graph, and into no module."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs: dict[torch.Tensor, str] = {}

    def is_leaf_module(self, _: Any, __: str) -> bool:
        return True


@compatibility(is_backward_compatible=True)
class Transformer(Interpreter):
    """An interpreter whose values are proxies: what it does becomes a new module."""

    @compatibility(is_backward_compatible=True)
    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph(tracer_cls=module.graph._tracer_cls)
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    @compatibility(is_backward_compatible=True)
    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """A parameter of the new graph."""
        assert isinstance(target, str)
        default = next(iter(args)) if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    @compatibility(is_backward_compatible=True)
    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        """An attribute in the new graph."""
        assert isinstance(target, str)
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a submodule in the new graph."""
        assert isinstance(target, str)
        return self.tracer.call_module(self.fetch_attr(target), self.fetch_attr(target).forward, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function in the new graph."""
        assert callable(target)
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    @compatibility(is_backward_compatible=True)
    def transform(self) -> GraphModule:
        """The new module."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            def strip(a: Any) -> Any:
                return a.node if isinstance(a, Proxy) else a
            self.new_graph.output(map_aggregate(result, strip))
        return _make_graph_module(self.module, self.new_graph)
