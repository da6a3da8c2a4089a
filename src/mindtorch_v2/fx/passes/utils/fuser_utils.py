"""Fusing: groups of nodes become submodules, each called at one place."""
from __future__ import annotations

import copy
import heapq
import operator
from typing import Any

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.tools_common import stable_topological_sort
from mindtorch_v2.fx.passes.utils.common import lift_subgraph_as_module

__all__ = ["topo_sort", "validate_partition", "fuse_as_graphmodule", "insert_subgm", "erase_nodes", "fuse_by_partitions"]


@compatibility(is_backward_compatible=False)
def topo_sort(nodes: list[Node]) -> list[Node]:
    """The nodes, each after those among them that it uses, otherwise as they stand in the graph."""
    inside = set(nodes)
    waits = {node: sum(arg in inside for arg in node.all_input_nodes) for node in nodes}
    ready = [(node._sort_key, place, node) for place, node in enumerate(nodes) if waits[node] == 0]
    heapq.heapify(ready)
    found: list[Node] = []
    while ready:
        node = heapq.heappop(ready)[-1]
        found.append(node)
        for user in node.users:
            if user in waits:
                waits[user] -= 1
                if waits[user] == 0:
                    heapq.heappush(ready, (user._sort_key, len(nodes) + len(found), user))
    assert len(found) == len(nodes), "topological sorted nodes doesn't have same length as input nodes"
    return found


@compatibility(is_backward_compatible=False)
def validate_partition(partition: list[Node]) -> bool:
    """Whether the nodes can be one: no way leads out of them and back."""
    inside = set(partition)
    waiting = [user for node in partition for user in node.users if user not in inside]
    seen: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            waiting.extend(node.users)
    return True


@compatibility(is_backward_compatible=False)
def fuse_as_graphmodule(gm: GraphModule, nodes: list[Node], module_name: str, partition_lookup_table: Any = None, *,
                        always_return_tuple: bool = False
                        ) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module of some nodes, what it reads, and what others read of it."""
    for node in nodes:
        assert node.graph.owning_module is gm, f"{node} doesn't belong to passed in graph module {gm._get_name()}"
        assert not node._erased, f"{node} has been removed from owning graph"
    assert validate_partition(nodes), "Invalid partition, found dependency cycles"
    inside = dict.fromkeys(nodes)
    graph = Graph()
    known: dict[Node, Node] = {}
    inputs: dict[Node, Node] = {}

    def local(x: Node) -> Node:
        if x.op == "get_attr" and x not in inside:
            if x not in known:
                known[x] = graph.node_copy(x)
            return known[x]
        if x in inside:
            return known[x]
        if x not in inputs:
            inputs[x] = graph.placeholder(x.name, type_expr=x.type)
            inputs[x].meta = copy.copy(x.meta)
        return inputs[x]
    for node in topo_sort(nodes):
        known[node] = graph.node_copy(node, local)
    outputs = {node: known[node] for node in nodes if any(user not in inside for user in node.users)}
    values = tuple(outputs.values())
    graph.output(values[0] if len(values) == 1 and not always_return_tuple else values)
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return fused, tuple(inputs), tuple(outputs)


@compatibility(is_backward_compatible=False)
def insert_subgm(gm: GraphModule, sub_gm: GraphModule, orig_inputs: tuple[Node, ...],
                 orig_outputs: tuple[Node, ...]) -> GraphModule:
    """Calls a submodule in the place of nodes whose results are given."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    last = max(orig_outputs or orig_inputs, key=lambda n: n._sort_key, default=None)
    with gm.graph.inserting_before(gm.graph.output_node()) if last is None else gm.graph.inserting_after(last):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
    output = sub_gm.graph.output_node().args[0]
    if isinstance(output, Node):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    item = call
    for i, node in enumerate(orig_outputs):
        with gm.graph.inserting_after(item):
            item = gm.graph.call_function(operator.getitem, (call, i))
        node.replace_all_uses_with(item, propagate_meta=True)
    call.meta["val"] = tuple(node.meta.get("val") for node in orig_outputs)
    return gm


@compatibility(is_backward_compatible=False)
def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Removes nodes that are no longer used."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


@compatibility(is_backward_compatible=False)
def fuse_by_partitions(gm: GraphModule, partitions: list[Any], prefix: str = "fused_", always_return_tuple: bool = False
                       ) -> GraphModule:
    """Makes every group of nodes a submodule."""
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        fused, inputs, outputs = fuse_as_graphmodule(gm, nodes, f"{prefix}{number}",
                                                     always_return_tuple=always_return_tuple)
        insert_subgm(gm, fused, inputs, outputs)
        erase_nodes(gm, nodes)
    return stable_topological_sort(gm)
