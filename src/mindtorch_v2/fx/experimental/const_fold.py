"""split_const_subgraphs: what depends on attributes only becomes a module that runs once."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.split_module import split_module

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


@compatibility(is_backward_compatible=False)
class FoldedGraphModule(GraphModule):
    """A graph module whose constants are computed at its first call, or by run_folding()."""

    def __init__(self, root: torch.nn.Module, graph: Graph, const_subgraph: Graph | None = None,
                 fx_const_folded_attrs_name: str | None = None, device_for_folded_attrs: str = "cuda") -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args)

    def run_folding(self) -> None:
        """Computes the constants."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        assert not self.has_folding_been_run, "Folding has already been run"
        self.has_folding_been_run = True
        folded = self.const_subgraph_module()

        def parameter(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return torch.tensor(x)
            return torch.nn.Parameter(x, requires_grad=x.requires_grad)
        value: Any = torch.nn.ParameterList([parameter(x) for x in folded]) if isinstance(folded, tuple) else parameter(folded)
        setattr(self, self.fx_const_folded_attrs_name, value)


@compatibility(is_backward_compatible=False)
def get_unique_attr_name_in_module(mod_traced: GraphModule, name: str) -> str:
    """A name like the given one that the module has not."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    if name[0].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        found = re.match(r"(.*)_(\d+)$", name)
        name = f"{name}_1" if found is None else f"{found[1]}_{int(found[2]) + 1}"
    return name


@compatibility(is_backward_compatible=False)
def split_const_subgraphs(module: torch.nn.Module, skip_folding_node_fn: Callable[[Node], bool] | None = None,
                          device_for_folded_attrs: str = "cpu") -> FoldedGraphModule:
    """The module with its constant part apart, to be computed once."""
    traced = module if isinstance(module, GraphModule) else torch.fx.symbolic_trace(module)
    constant: set[Node] = set()
    found = False
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "get_attr" and not (node.all_input_nodes and set(node.all_input_nodes) <= constant):
            continue
        if skip_folding_node_fn is not None and skip_folding_node_fn(node) or node.op != "get_attr" and node.is_impure():
            continue
        constant.add(node)
        found = found or node.op != "get_attr"
    if not found:
        return FoldedGraphModule(traced, traced.graph)
    split = split_module(traced, traced, lambda node: 0 if node in constant else 1)
    return _assembled(split, device_for_folded_attrs)


def _assembled(split: GraphModule, device: str) -> FoldedGraphModule:
    """The main part reads one attribute where it called the constant part."""
    const, main = split.submod_0, getattr(split, "submod_1", None)
    name = get_unique_attr_name_in_module(split, "_FX_CONST_FOLDED_ATTRS")
    setattr(split, name, torch.nn.ParameterList() if isinstance(const.graph.output_node().args[0], tuple)
            else torch.nn.Parameter())
    for node in list(split.graph.nodes):
        if node.op == "call_module" and node.target == "submod_0":
            _read_attributes(const, split, node)
            with split.graph.inserting_before(node):
                attribute = split.graph.get_attr(name)
            node.replace_all_uses_with(attribute)
            given = node.all_input_nodes
            split.graph.erase_node(node)
            for read in given:
                if not read.users:
                    split.graph.erase_node(read)
    if main is not None:
        _inline(split, "submod_1")
    for node in const.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            owner: Any = const
            for part in node.target.split("."):
                owner = getattr(owner, part)
            setattr(split, node.target, owner)
    return FoldedGraphModule(split, split.graph, const.graph, name, device)


def _read_attributes(const: GraphModule, split: GraphModule, call: Node) -> None:
    """The constant part reads by itself the attributes that its call passes."""
    places = [n for n in const.graph.nodes if n.op == "placeholder"]
    for place, given in zip(places, call.args, strict=True):
        assert isinstance(given, Node) and isinstance(given.target, str)
        owner, _, last = given.target.rpartition(".")
        target = given.target.replace(".", "_")
        setattr(const, target, getattr(split.get_submodule(owner), last))
        with const.graph.inserting_before(place):
            read = const.graph.get_attr(target)
        place.replace_all_uses_with(read)
        const.graph.erase_node(place)


def _inline(gm: GraphModule, name: str) -> None:
    """Puts the nodes of a submodule in the place of its call."""
    inner = getattr(gm, name)
    call = next(n for n in gm.graph.nodes if n.op == "call_module" and n.target == name)
    for node in inner.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found: Any = inner
            for part in node.target.split("."):
                found = getattr(found, part)
            setattr(gm, node.target, found)
    known = dict(zip([n for n in inner.graph.nodes if n.op == "placeholder"], call.args))
    with gm.graph.inserting_before(call):
        result: Any = gm.graph.graph_copy(inner.graph, known)
    if isinstance(result, tuple):
        for user in list(call.users):            # each takes one item out
            user.replace_all_uses_with(result[user.args[1]])
            gm.graph.erase_node(user)
    else:
        call.replace_all_uses_with(result)
    gm.graph.erase_node(call)
    delattr(gm, name)
