"""Services of splitters: names of targets, orders, groups of nodes that belong together."""
from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, _get_qualified_name

__all__ = ["get_acc_ops_name", "get_node_target", "is_node_output_tensor", "FxNetAccFusionsFinder", "legalize_graph",
           "stable_topological_sort"]

Tensors = Union[tuple[torch.Tensor], list[torch.Tensor]]
TensorOrTensors = Union[torch.Tensor, Tensors]
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


@compatibility(is_backward_compatible=False)
def get_acc_ops_name(k: Any) -> str:
    """The name of an op in the tables of accelerators."""
    if isinstance(k, str):
        return k
    if k.__module__ and "acc_ops" in k.__module__:
        return f"acc_ops.{k.__name__}"
    return _get_qualified_name(k)


@compatibility(is_backward_compatible=False)
def get_node_target(submodules: Mapping[str, torch.nn.Module], node: Node) -> str:
    """The target of a call as a name; of a module, its class."""
    assert node.op in CALLABLE_NODE_OPS, f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}"
    if node.op == "call_module":
        module = submodules[node.target]   # type: ignore[index]
        return torch.typename(getattr(module, "_base_class_origin", type(module))) if isinstance(module, torch.nn.Module) \
            else get_acc_ops_name(module)
    return get_acc_ops_name(node.target)


@compatibility(is_backward_compatible=False)
def is_node_output_tensor(node: Node) -> bool:
    """Whether a node gives one tensor."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, torch.Tensor)


@compatibility(is_backward_compatible=False)
class FxNetAccFusionsFinder:
    """Groups of nodes that have to stay together: what lies between a node without a tensor result and its users."""

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.nodes, self.acc_nodes = module, list(module.graph.nodes), acc_nodes

    @dataclass
    class FusionGroup:
        """A group that grows."""

        top_node_idx: int
        nodes: set[Node]
        inputs: set[Node]
        nodes_need_process: set[Node]

        def add_node(self, node: Node) -> None:
            """Takes a node in."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes)

    def __call__(self) -> dict[Node, set[Node]]:
        found: dict[Node, set[Node]] = {}
        for node in [n for n in self.nodes if n in self.acc_nodes and "tensor_meta" not in n.meta]:
            group = {node}
            waiting = [node]
            while waiting:
                current = waiting.pop()
                near = list(current.users) if not is_node_output_tensor(current) else []
                near += [a for a in current.all_input_nodes if not is_node_output_tensor(a) and a.op in CALLABLE_NODE_OPS]
                for other in near:
                    if other.op in CALLABLE_NODE_OPS and other not in group:
                        group.add(other)
                        waiting.append(other)
            if group <= self.acc_nodes:
                found.update(dict.fromkeys(group, group))
            else:
                self.acc_nodes -= group
        return found


@compatibility(is_backward_compatible=False)
def legalize_graph(gm: GraphModule) -> GraphModule:
    """Brings the nodes of a module into an order in which each comes after what it uses."""
    waits = {node: len(node.all_input_nodes) for node in gm.graph.nodes}
    ready = collections.deque(sorted((n for n, count in waits.items() if count == 0),
                                     key=lambda n: {"placeholder": 0, "get_attr": 1}.get(n.op, 2)))
    made, env = Graph(), {}                      # type: ignore[var-annotated]
    while ready:
        current = ready.popleft()
        env[current] = made.node_copy(current, lambda n: env[n])
        for user in current.users:
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    if len(made.nodes) < len(gm.graph.nodes):
        raise RuntimeError(f"Input graph has cycles, unable to add {[n for n, count in waits.items() if count]}")
    made._codegen = gm.graph._codegen
    gm.graph = made
    return gm


@compatibility(is_backward_compatible=False)
def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """legalize_graph that moves as little as it can."""
    waits = {node: sum(1 for _ in node.all_input_nodes) for node in gm.graph.nodes}
    order: list[Node] = []
    ready = [n for n in gm.graph.nodes if waits[n] == 0]
    places = {n: i for i, n in enumerate(gm.graph.nodes)}
    while ready:
        current = min(ready, key=places.__getitem__)
        ready.remove(current)
        order.append(current)
        for user in current.users:
            waits[user] -= 1
            if waits[user] == 0:
                ready.append(user)
    if len(order) < len(places):
        raise RuntimeError("Input graph has cycles")
    for node in order:
        gm.graph._root._prepend(node)
    gm.recompile()
    return gm


