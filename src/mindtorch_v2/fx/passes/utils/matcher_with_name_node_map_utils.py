"""A matcher whose pattern also gives names to its nodes: it returns a result and a dict of nodes."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Any]]:
    """The pattern without the dict in its output, and that dict."""
    names: dict[str, Any] = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            *outputs, names = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0], {})
            assert isinstance(names, dict), "Expecting the input graph to have a dict output as the last element"
            node.args = (tuple(outputs) if len(outputs) > 1 else outputs[0],)
    gm.recompile()
    return gm, names


@compatibility(is_backward_compatible=False)
class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """SubgraphMatcher; each match has name_node_map as well."""

    def __init__(self, pattern_gm: GraphModule, match_output: bool = False, match_placeholder: bool = False,
                 remove_overlapping_matches: bool = True, ignore_literals: bool = False) -> None:
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Any, node_name_match: str = "") -> list[InternalMatch]:
        found = super().match(graph, node_name_match)
        for match in found:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
        return found
