"""Small services of passes: whole modules moved into a graph, graphs compared."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.passes.utils.matcher_utils import SubgraphMatcher

__all__ = ["HolderModule", "lift_subgraph_as_module", "compare_graphs"]


@compatibility(is_backward_compatible=False)
class HolderModule(torch.nn.Module):
    """A module with the submodules of a dict."""

    def __init__(self, d: dict[str, Any]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


@compatibility(is_backward_compatible=False)
def lift_subgraph_as_module(gm: GraphModule, subgraph: Graph, comp_name: str = "",
                            class_name: str = "GraphModule") -> tuple[GraphModule, dict[str, str]]:
    """A module of a graph, with what the graph names of gm; and the old name of each new one."""
    holder: Any = HolderModule({})
    originals: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        target = node.target
        *path, name = target.split(".")
        submodule: Any = holder
        for part in path:
            if not hasattr(submodule, part):
                submodule.add_module(part, HolderModule({}))
            submodule = getattr(submodule, part)
        found: Any = gm
        for part in target.split("."):
            found = getattr(found, part)
        setattr(submodule, name, found)
        originals[target] = target
    return GraphModule(holder, subgraph, class_name), originals


@compatibility(is_backward_compatible=False)
def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs compute the same."""
    return len(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right)) > 0
