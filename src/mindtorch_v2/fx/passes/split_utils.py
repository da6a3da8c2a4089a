"""split_by_tags: a graph cut into modules by the tags of its nodes."""
from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, map_arg
from mindtorch_v2.fx.passes.utils.common import HolderModule, lift_subgraph_as_module

__all__ = ["getattr_recursive", "setattr_recursive", "Component", "split_by_tags"]


@compatibility(is_backward_compatible=False)
def getattr_recursive(obj: Any, name: str) -> Any:
    """An attribute by its path; None where there is none."""
    for part in name.split("."):
        if isinstance(obj, torch.nn.ModuleList):
            obj = obj[int(part)]
        elif hasattr(obj, part):
            obj = getattr(obj, part)
        else:
            return None
    return obj


@compatibility(is_backward_compatible=False)
def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Sets an attribute by its path."""
    path, _, name = attr.rpartition(".")
    setattr(getattr_recursive(obj, path) if path else obj, name, value)


@compatibility(is_backward_compatible=False)
@dataclass
class Component:
    """The nodes of one tag, as a graph."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


@compatibility(is_backward_compatible=False)
def split_by_tags(gm: GraphModule, tags: list[str], return_fqn_mapping: bool = False, return_tuple: bool = False,
                  GraphModuleCls: type[GraphModule] = GraphModule) -> Any:
    """A module that calls one submodule for each tag, in the order of the tags."""
    parts = {tag: Component(Graph(), i, tag) for i, tag in enumerate(tags)}
    copies: dict[Node, Node] = {}                # node -> its copy in the graph of its tag
    main = Graph()
    in_main: dict[Node, Node] = {}
    output: Node | None = None
    for node in gm.graph.nodes:
        if node.op == "output":
            output = node
        elif node.op == "placeholder":
            in_main[node] = main.placeholder(node.name, type_expr=node.type)
            in_main[node].meta = copy.copy(node.meta)
        elif node.op != "get_attr":
            if not hasattr(node, "tag"):
                raise AssertionError(f"Node {node} has no tag")
            _copy_into(parts[node.tag], parts, node, copies)
    if output is None:
        raise RuntimeError("Graph had no output node!")
    for node in output.all_input_nodes:
        if node.op == "get_attr":
            in_main[node] = main.node_copy(node)
        elif node.op != "placeholder":
            owner = parts[node.tag]   # type: ignore[attr-defined]
            if node not in owner.orig_outputs:
                owner.orig_outputs.append(node)
    originals: dict[str, str] = {}
    for part in sorted(parts.values(), key=lambda p: p.order):
        _finish(gm, main, part, copies, in_main, originals, return_tuple)
    main.output(map_arg(output.args[0], lambda n: in_main[n]))
    root = HolderModule({part.name: part.gm for part in parts.values()})
    for node in main.nodes:
        if node.op == "get_attr":
            setattr(root, node.target, getattr_recursive(gm, node.target))
    made = GraphModuleCls(root, main)
    return (made, originals) if return_fqn_mapping else made


def _copy_into(part: Component, parts: dict[str, Component], node: Node, copies: dict[Node, Node]) -> None:
    def local(x: Node) -> Node:
        if x.op == "get_attr":
            if x not in part.getattr_maps:
                part.getattr_maps[x] = part.graph.get_attr(x.target, type_expr=x.type)   # type: ignore[arg-type]
                part.getattr_maps[x].meta = copy.copy(x.meta)
            return part.getattr_maps[x]
        if x.op != "placeholder" and x.tag == node.tag:   # type: ignore[attr-defined]
            return copies[x]
        if x not in part.orig_inputs:
            part.orig_inputs.append(x)
            made = part.graph.placeholder(x.name, type_expr=x.type)
            made.meta = copy.copy(x.meta)
            part.input_placeholders.append(made)
            if x.op != "placeholder" and x not in parts[x.tag].orig_outputs:   # type: ignore[attr-defined]
                parts[x.tag].orig_outputs.append(x)   # type: ignore[attr-defined]
        return part.input_placeholders[part.orig_inputs.index(x)]
    copies[node] = part.graph.node_copy(node, local)
    copies[node].tag = node.tag   # type: ignore[attr-defined]


def _finish(gm: GraphModule, main: Graph, part: Component, copies: dict[Node, Node], in_main: dict[Node, Node],
            originals: dict[str, str], return_tuple: bool) -> None:
    """Makes a part a module, and its call a node of the main graph."""
    outputs = tuple(copies[n] for n in part.orig_outputs)
    alone = len(outputs) == 1 and not return_tuple
    part.graph.output(outputs[0] if alone else outputs)
    part.gm, named = lift_subgraph_as_module(gm, subgraph=part.graph, comp_name=part.name)
    originals.update(named)
    call = main.call_module(part.name, args=tuple(in_main[n] for n in part.orig_inputs))
    if alone:
        in_main[part.orig_outputs[0]] = call
    else:
        for i, node in enumerate(part.orig_outputs):
            in_main[node] = torch.fx.Proxy(call)[i].node
