"""The sizes of nodes in bytes, and all occurrences of a target replaced."""
from __future__ import annotations

from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, Target, map_arg
from mindtorch_v2.fx.passes.shape_prop import ShapeProp

__all__ = ["replace_target_nodes_with", "size_bytes", "get_size_of_all_nodes", "get_tensor_meta", "get_size_of_node"]


@compatibility(is_backward_compatible=False)
def replace_target_nodes_with(fx_module: GraphModule, old_op: str, old_target: Target, new_op: str,
                              new_target: Target) -> None:
    """Gives all nodes of one kind and target another one."""
    made = Graph()
    known: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            known[node] = made.create_node(new_op, new_target, map_arg(node.args, lambda n: known[n]),
                                           map_arg(node.kwargs, lambda n: known[n]), node.name)
        else:
            known[node] = made.node_copy(node, lambda n: known[n])
    fx_module.graph = made


@compatibility(is_backward_compatible=False)
class size_bytes(NamedTuple):
    """The bytes of what a node computes, alone and with its parameters."""

    output_size: int
    total_size: int


@compatibility(is_backward_compatible=False)
def get_size_of_all_nodes(fx_module: GraphModule, args: list[torch.Tensor] | None = None) -> None:
    """Notes the size of every node in node.size_bytes."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


@compatibility(is_backward_compatible=False)
def get_tensor_meta(node: Node) -> Any:
    """What ShapeProp has noted."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run.")
    return found


@compatibility(is_backward_compatible=False)
def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The size of one node."""
    items = 0
    if node.op == "call_module":
        module = dict(fx_module.named_modules())[node.target]
        items = sum(p.numel() for _, p in module.named_parameters())
    meta = get_tensor_meta(node)
    each = torch.empty((), dtype=meta.dtype).element_size()
    output = each * meta.shape.numel()
    return size_bytes(output, output + each * items)
