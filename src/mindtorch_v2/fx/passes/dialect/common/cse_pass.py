"""CSEPass: equal calls are made once."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.infra.pass_base import PassBase, PassResult

pytree = torch.utils._pytree
_IN_PLACE = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def get_CSE_banned_ops() -> set[str]:
    """The names of ops that are not joined: those that draw numbers, make memory of any content, or change tensors."""
    return set(_IN_PLACE)


def _banned(node: Node) -> bool:
    name = node.graph._target_to_str(node.target)
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", name)
    return name in _IN_PLACE or node.is_impure(impure_random=True)


def _hashable(x: Any) -> Any:
    return (type(x), x) if not isinstance(x, torch.Tensor) else (type(x), id(x))


class CSEPass(PassBase):
    """Replaces a call by an earlier one with the same target and arguments."""

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        self.banned_ops = banned_ops or set()
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """The module with equal calls joined."""
        modified = False
        made = Graph()
        env: dict[Node, Node] = {}
        known: dict[Any, Node] = {}
        for node in graph_module.graph.nodes:
            joinable = node.op == "call_function" and not _banned(node) and node.target not in self.banned_ops and \
                getattr(node.target, "overloadpacket", None) not in self.banned_ops
            if not joinable:
                env[node] = made.node_copy(node, lambda n: env[n])
                continue
            leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
            key = (node.target, str(spec), tuple(_hashable(env.get(x, x) if isinstance(x, Node) else x) for x in leaves))
            if key in known:
                modified = True
                env[node] = known[key]
                continue
            env[node] = known[key] = made.node_copy(node, lambda n: env[n])
        made._codegen = graph_module.graph._codegen
        return PassResult(GraphModule(graph_module, made), modified)
