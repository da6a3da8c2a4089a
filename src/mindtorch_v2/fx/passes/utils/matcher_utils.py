"""SubgraphMatcher: where a pattern, itself a graph, occurs in a graph."""
from __future__ import annotations

import copy
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.node import Node

__all__ = ["SubgraphMatcher", "InternalMatch"]


@compatibility(is_backward_compatible=False)
@dataclass
class InternalMatch:
    """One occurrence: the nodes of the graph for those of the pattern."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Node] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(self.anchors, self.nodes_map.copy(), self.placeholder_nodes.copy(),
                             self.returning_nodes.copy(), self.name_node_map.copy())


def _attribute(owner: Any, target: str) -> Any:
    for part in target.split("."):
        owner = getattr(owner, part, None)
    return owner


@compatibility(is_backward_compatible=False)
class SubgraphMatcher:
    """Finds a pattern; literals of the pattern have to be the same, unless they are ignored."""

    def __init__(self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
                 remove_overlapping_matches: bool = True, ignore_literals: bool = False) -> None:
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if len(pattern.nodes) == 0:
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users and not node.is_impure():
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        # Each search begins at what the pattern computes last; where a result is used inside, another one comes later.
        self.pattern_anchors: list[Node] = [output] if match_output else \
            [n for n in output.all_input_nodes if len(n.users) == 1]

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        assert isinstance(pn.target, str) and isinstance(gn.target, str)
        wanted = _attribute(pn.graph.owning_module, pn.target)
        found = _attribute(gn.graph.owning_module, gn.target)
        if isinstance(wanted, torch.nn.Module) and isinstance(found, torch.nn.Module):
            return type(wanted) is type(found)
        if isinstance(wanted, torch.Tensor):
            return isinstance(found, torch.Tensor)
        raise RuntimeError(f"Unsupported type {type(wanted)} when matching attributes")

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        if pn.op == "get_attr":
            return self._match_attributes(pn, gn)
        if pn.op == "call_module":
            assert isinstance(pn.target, str) and isinstance(gn.target, str)
            return type(_attribute(pn.graph.owning_module, pn.target)) is \
                type(_attribute(gn.graph.owning_module, gn.target))
        return pn.target == gn.target

    def _is_contained(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether what the pattern does not return is used nowhere else."""
        inside = {gn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        return all(user in inside for pn, gn in nodes_map.items()
                   if pn.op != "placeholder" and pn not in self.pattern_returning_nodes for user in gn.users)

    def _match_literals(self, pn: Any, gn: Any, match: InternalMatch) -> bool:
        if isinstance(pn, Node) and isinstance(gn, Node):
            raise AssertionError("pn and gn cannot both be Node")
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in match.nodes_map:
                return match.nodes_map[pn] == gn
            match.nodes_map[pn] = gn             # a literal stands for a parameter of the pattern
            return True
        if isinstance(gn, Node):
            return False
        return type(gn) is type(pn) and gn == pn

    def _match_args(self, wanted: Any, found: Any, match: InternalMatch) -> bool:
        if isinstance(wanted, (list, tuple)):
            return isinstance(found, (list, tuple)) and len(wanted) == len(found) and \
                all(self._match_args(a, b, match) for a, b in zip(wanted, found))
        if isinstance(wanted, dict):
            return isinstance(found, dict) and wanted.keys() == found.keys() and \
                all(self._match_args(value, found[key], match) for key, value in wanted.items())
        if isinstance(wanted, slice):
            return isinstance(found, slice) and self._match_args((wanted.start, wanted.stop, wanted.step),
                                                                 (found.start, found.stop, found.step), match)
        if isinstance(wanted, Node) and isinstance(found, Node):
            return self._match_nodes(wanted, found, match)
        return self.ignore_literals and not isinstance(wanted, Node) and not isinstance(found, Node) or \
            self._match_literals(wanted, found, match)

    def _match_nodes(self, pn: Node, gn: Node, match: InternalMatch, node_name_match: str = "") -> bool:
        if pn in match.nodes_map:
            return match.nodes_map[pn] == gn
        if gn in match.nodes_map.values():
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        saved = copy.copy(match)
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        pargs, gargs = self._comparable(pn, gn)
        if pargs is not None and self._match_args(pargs, gargs, match):
            return True
        match.nodes_map, match.placeholder_nodes = saved.nodes_map.copy(), saved.placeholder_nodes
        return False

    def _comparable(self, pn: Node, gn: Node) -> tuple[Any, Any]:
        """The arguments of two calls in a form in which they can be compared; None where there is none."""
        if len(pn.args) == len(gn.args) and pn.kwargs.keys() == gn.kwargs.keys():
            return ([*pn.args, *pn.kwargs.values()], [*gn.args, *[gn.kwargs[key] for key in pn.kwargs]])
        if pn.op != "call_function":
            return None, None
        module = torch.nn.Module()
        wanted = pn.normalized_arguments(module, normalize_to_only_use_kwargs=True)
        found = gn.normalized_arguments(module, normalize_to_only_use_kwargs=True)
        if wanted is None or found is None or wanted.kwargs.keys() != found.kwargs.keys():
            return None, None
        return list(wanted.kwargs.values()), [found.kwargs[key] for key in wanted.kwargs]

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """All occurrences, in the order of the graph from its end."""
        candidates: dict[Node, list[Node]] = defaultdict(list)
        for anchor in self.pattern_anchors:
            for node in graph.nodes:
                if self._nodes_are_equal(anchor, node, node_name_match):
                    candidates[anchor].append(node)
        matches: list[InternalMatch] = []
        for chosen in itertools.product(*(candidates[anchor] for anchor in self.pattern_anchors)):
            match = InternalMatch(anchors=list(self.pattern_anchors))
            if all(self._match_nodes(pn, gn, match, node_name_match) for pn, gn in zip(self.pattern_anchors, chosen)):
                matches.append(match)
        return self._filtered(self._completed(matches))

    def _completed(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        kept = []
        for match in matches:
            if not self._is_contained(match.nodes_map):
                continue
            match.placeholder_nodes = [match.nodes_map[pn] for pn in self.pattern_placeholder_nodes if pn in match.nodes_map]
            match.returning_nodes = [match.nodes_map[pn] for pn in self.pattern_returning_nodes if pn in match.nodes_map]
            kept.append(match)
        return kept

    def _filtered(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        """Without those that share a node with an earlier one, with remove_overlapping_matches."""
        if not self.remove_overlapping_matches:
            return matches
        kept: list[InternalMatch] = []
        taken: set[Node] = set()
        for match in matches:
            inside = {gn for pn, gn in match.nodes_map.items() if pn.op not in ("placeholder", "output")}
            if inside & taken:
                continue
            taken |= inside
            kept.append(match)
        return kept
