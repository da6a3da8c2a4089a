"""Partitions of a graph by the function or module of the user's program that its nodes came from."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.node import Node

__all__ = ["get_source_partitions", "check_subgraphs_connected", "SourcePartition"]


@compatibility(is_backward_compatible=False)
@dataclass
class SourcePartition:
    """The nodes of one call in the user's program."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


@compatibility(is_backward_compatible=False)
def get_source_partitions(graph: Graph, wanted_sources: list[Any],
                          filter_fn: Callable[[Node], bool] | None = None) -> dict[Any, list[SourcePartition]]:
    """The partitions of each wanted source, by meta["source_fn_stack"]."""
    found: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        stack = node.meta.get("source_fn_stack")
        if stack and stack[-1][1] in wanted_sources:
            found.setdefault(stack[-1][1], {}).setdefault(stack[-1][0], []).append(node)
    made = {source: [_partition(nodes, source) for nodes in parts.values()] for source, parts in found.items()}
    if filter_fn is None:
        return made
    return {source: kept for source, parts in made.items()
            if (kept := [p for p in parts if all(map(filter_fn, p.nodes))])}


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    inputs = dict.fromkeys(arg for node in nodes for arg in node.all_input_nodes if arg not in inside and arg.op != "get_attr")
    params = dict.fromkeys(node for node in nodes if node.op == "get_attr")
    params.update(dict.fromkeys(arg for node in nodes for arg in node.all_input_nodes if arg.op == "get_attr"))
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return SourcePartition(nodes, source, list(inputs), outputs, list(params))


@compatibility(is_backward_compatible=False)
def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether the second partition reads what the first computes."""
    return any(arg in subgraph1.nodes for node in subgraph2.nodes for arg in node.all_input_nodes)
