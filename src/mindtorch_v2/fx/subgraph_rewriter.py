"""replace_pattern: every occurrence of one graph in another becomes a third."""
from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._symbolic_trace import symbolic_trace
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, map_arg
from mindtorch_v2.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "replace_pattern", "replace_pattern_with_filters", "ReplacedPatterns"]


@compatibility(is_backward_compatible=True)
class Match(NamedTuple):
    """One occurrence: where it was found, and the nodes of the graph for those of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@compatibility(is_backward_compatible=False)
@dataclass
class ReplacedPatterns:
    """One occurrence, and the nodes that took its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def _replace_attributes(gm: GraphModule, replacement: torch.nn.Module) -> None:
    """Gives gm the attributes that the replacement names, and removes submodules that are no longer called."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()

    def found(owner: torch.nn.Module, target: str) -> Any:
        path, _, name = target.rpartition(".")
        try:
            return getattr(owner.get_submodule(path), name, None)
        except AttributeError:
            return None
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        here = found(gm, node.target)
        if here is not None:
            continue
        there = found(replacement, node.target)
        if there is None:
            raise RuntimeError(f'Attempted to create a "{node.op}" node during subgraph rewriting with target {node.target}, '
                               "but the referenced attribute does not exist in the replacement GraphModule")
        copied = copy.deepcopy(there)
        if isinstance(copied, torch.nn.Module):
            gm.add_submodule(node.target, copied)
        else:
            path, _, name = node.target.rpartition(".")
            setattr(gm.get_submodule(path), name, copied)
    gm.graph.lint()


@compatibility(is_backward_compatible=True)
def replace_pattern(gm: GraphModule, pattern: Callable[..., Any] | GraphModule,
                    replacement: Callable[..., Any] | GraphModule) -> list[Match]:
    """Replaces what does not overlap; patterns are functions or modules, with the same parameters."""
    return [Match(anchor=m.anchor, nodes_map=m.nodes_map) for m in _replace_pattern(gm, pattern, replacement)]


@compatibility(is_backward_compatible=False)
def replace_pattern_with_filters(
        gm: GraphModule, pattern: Callable[..., Any] | Graph | GraphModule,
        replacement: Callable[..., Any] | Graph | GraphModule | None = None,
        match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None, ignore_literals: bool = False,
        replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
        node_name_match: str = "") -> list[ReplacedPatterns]:
    """replace_pattern for the occurrences that all filters let pass; the replacement may depend on the occurrence."""
    return _replace_pattern(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback, node_name_match)


def _graph_of(program: Any) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    return program if isinstance(program, Graph) else symbolic_trace(program).graph


def _replace_pattern(gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: list[Any] | None = None,
                     ignore_literals: bool = False, replacement_callback: Any = None,
                     node_name_match: str = "") -> list[ReplacedPatterns]:
    filters = match_filters or []
    original, pattern_graph = gm.graph, _graph_of(pattern)
    matcher: Any = SubgraphMatcher(pattern_graph, match_output=False, match_placeholder=False,
                                   remove_overlapping_matches=True, ignore_literals=ignore_literals)
    found = [m for m in matcher.match(original, node_name_match)
             if all(f(m, original, pattern_graph) for f in filters)]
    if replacement is None and replacement_callback is None:
        raise AssertionError("Must provide either replacement GraphModule/function or replacement_callback")
    common = _graph_of(replacement) if replacement is not None else None
    replaced: dict[Node, Any] = {}               # what was returned by an occurrence that is gone -> what it is now
    done = []
    for match in found:
        graph = replacement_callback(match, original, pattern_graph) if common is None else common
        placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        assert len(match.placeholder_nodes) == len(placeholders), \
            f"Expected {len(placeholders)} placeholder nodes, got {len(match.placeholder_nodes)}"
        known = {ours: replaced.get(given, given) if isinstance(given, Node) else given
                 for ours, given in zip(placeholders, match.placeholder_nodes)}
        done.append(_replace_one(original, match, graph, known, replaced, placeholders))
    gm.recompile()
    if isinstance(replacement, torch.nn.Module):
        _replace_attributes(gm, replacement)
    return done


def _place(match: InternalMatch, original: Graph) -> Node:
    """The node before which the replacement goes: the first that reads one of the results."""
    inside = set(match.nodes_map.values())
    users = {user for node in match.returning_nodes for user in node.users if user not in inside}
    return next((n for n in original.nodes if n in users), original.output_node())


def _replace_one(original: Graph, match: InternalMatch, graph: Graph, known: dict[Node, Any], replaced: dict[Node, Any],
                 placeholders: list[Node]) -> ReplacedPatterns:
    before = set(original.nodes)
    with original.inserting_before(_place(match, original)):
        result = _copied(original, graph, known)
    results: tuple[Any, ...] = (result,) if isinstance(result, Node) or not isinstance(result, (tuple, list)) else \
        tuple(result)
    assert len(match.returning_nodes) == len(results), \
        f"Expected {len(match.returning_nodes)} copied returning nodes, got {len(results)}"
    for old, new in zip(match.returning_nodes, results):
        old.replace_all_uses_with(new)
        replaced[old] = new
    gone = {there for node, there in match.nodes_map.items() if node.op not in ("placeholder", "output")}
    for node in reversed(original.nodes):        # users before what they use
        if node in gone:
            original.erase_node(node)
    made = [n for n in original.nodes if n not in before and n not in placeholders]
    return ReplacedPatterns(anchor=match.anchors[0], nodes_map=match.nodes_map, replacements=made)


def _copied(original: Graph, graph: Graph, known: dict[Node, Any]) -> Any:
    """graph_copy, where a parameter may also stand for a literal."""
    for node in graph.nodes:
        if node in known:
            continue
        if node.op == "output":
            return map_arg(node.args[0], lambda n: known[n])
        known[node] = original.node_copy(node, lambda n: known[n])
    return None


