"""fuse: batch norm folded into the convolution before it, for inference; dropouts taken out."""
from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.interpreter import Transformer
from mindtorch_v2.fx.node import Argument, Node, Target

__all__ = ["matches_module_pattern", "replace_node_module", "fuse", "remove_dropout", "extract_subgraph"]

nn = torch.nn


def _parent_name(target: str) -> tuple[str, str]:
    """"a.b.c" as ("a.b", "c")."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second class on what a module of the first class gives."""
    if len(node.args) == 0:
        return False
    for expected, current in zip(pattern, (node.args[0], node)):
        if not isinstance(current, Node) or current.op != "call_module" or not isinstance(current.target, str):
            return False
        if current.target not in modules or type(modules[current.target]) is not expected:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, Any], new_module: torch.nn.Module) -> None:
    """Puts another module where a node's is."""
    assert isinstance(node.target, str)
    parent, name = _parent_name(node.target)
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: torch.nn.Module, inplace: bool = False, no_trace: bool = False) -> torch.nn.Module:
    """Folds batch norms into convolutions and linear layers before them; the model has to be in eval mode."""
    patterns = [(nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d), (nn.Conv3d, nn.BatchNorm3d),
                (nn.Linear, nn.BatchNorm1d)]
    if not inplace:
        model = copy.deepcopy(model)
    traced: Any = model if no_trace and isinstance(model, GraphModule) else torch.fx.symbolic_trace(model)
    modules = dict(traced.named_modules())
    for pattern in patterns:
        for node in traced.graph.nodes:
            if not matches_module_pattern(pattern, node, modules) or len(node.args[0].users) > 1:
                continue
            layer, norm = modules[node.args[0].target], modules[node.target]
            if not norm.track_running_stats:
                continue
            fold = nn.utils.fusion.fuse_linear_bn_eval if pattern[0] is nn.Linear else nn.utils.fusion.fuse_conv_bn_eval
            replace_node_module(node.args[0], modules, fold(layer, norm))
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)


def remove_dropout(model: torch.nn.Module) -> torch.nn.Module:
    """The model without its dropouts."""
    class DropoutRemover(Transformer):
        def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], nn.Dropout):   # type: ignore[index]
                assert len(args) == 1, f"Expected 1 argument for Dropout, got {len(args)}"
                return args[0]
            return super().call_module(target, args, kwargs)
    return DropoutRemover(torch.fx.symbolic_trace(model)).transform()


def extract_subgraph(orig_module: torch.nn.Module, nodes: list[Node], inputs: list[Node],
                     outputs: list[Node]) -> GraphModule:
    """A module of some nodes of a graph."""
    graph = Graph()
    known: dict[Node, Node] = {node: graph.placeholder(node.name) for node in inputs}
    for node in nodes:
        known[node] = graph.node_copy(node, lambda n: known[n])
    graph.output([known[node] for node in outputs])
    graph.lint()
    return GraphModule(orig_module, graph)


