"""merge_matmul: products with the same right-hand side become one product of joined rows."""
from __future__ import annotations

import operator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.utils.fuser_utils import topo_sort

__all__ = ["are_nodes_independent", "get_first_dim", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result: torch.Tensor, inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The rows of a joined product that belong to each input."""
    return torch.split(result, [get_first_dim(x) for x in inputs])


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether a may need the result of b, as far as the search goes; True where it does not reach the end."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    if search_depth == 0:
        return True
    return any(may_depend_on(source, b, search_depth - 1) for source in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether surely none of the nodes needs another."""
    return not any(may_depend_on(a, b) or may_depend_on(b, a) for k, a in enumerate(nodes) for b in nodes[k + 1:])


def get_first_dim(t: torch.Tensor) -> int:
    """How many rows a tensor has."""
    return t.shape[0]


def merge_matmul(in_mod: torch.nn.Module) -> GraphModule:
    """The module with torch.matmul of several left sides with one right side as one product."""
    gm = torch.fx.symbolic_trace(in_mod)
    by_right: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.matmul and len(node.args) == 2:
            by_right.setdefault(node.args[1], []).append(node)
    for right, products in by_right.items():
        lefts = [node.args[0] for node in products]
        if len(products) > 1 and are_nodes_independent([x for x in lefts if isinstance(x, Node)]):
            _merge(gm.graph, right, products, lefts)
    ordered = topo_sort([*gm.graph.nodes])
    graph = Graph()
    known: dict[Node, Node] = {}
    for node in ordered:
        if node.op != "output":
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(torch.fx.node.map_arg(gm.graph.output_node().args[0], known.__getitem__))
    made = GraphModule(gm, graph)
    made.graph.lint()
    return made


def _merge(graph: Graph, right: Any, products: list[Node], lefts: list[Any]) -> None:
    last = products[-1]
    with graph.inserting_before(last):
        joined = graph.call_function(torch.cat, (lefts,), {})
        product = graph.call_function(torch.matmul, (joined, right), {})
        parts = graph.call_function(split_result_tensors, (product, lefts), {})
        items = [graph.call_function(operator.getitem, (parts, k), {}) for k in range(len(lefts))]
    for old, new in zip(products, items):
        old.replace_all_uses_with(new)
        graph.erase_node(old)
