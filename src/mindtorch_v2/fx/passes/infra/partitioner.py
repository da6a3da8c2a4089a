"""CapabilityBasedPartitioner: the largest groups of nodes that something else can run."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.utils.fuser_utils import fuse_by_partitions, validate_partition

__all__ = ["Partition", "CapabilityBasedPartitioner"]


@compatibility(is_backward_compatible=False)
class Partition:
    """A group of nodes."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node) -> None:
        """Takes a node in."""
        self.nodes[node] = None

    def remove_node(self, node: Node) -> None:
        """Takes a node out."""
        del self.nodes[node]

    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    def __iter__(self) -> Any:
        return iter(self.nodes)


@compatibility(is_backward_compatible=False)
class CapabilityBasedPartitioner:
    """Groups the nodes that an OperatorSupport takes."""

    def __init__(self, graph_module: GraphModule, operator_support: Any, allows_single_node_partition: bool = False,
                 non_compute_ops: Sequence[str] | None = None, allowed_single_node_partition_ops: Sequence[str] | None = None,
                 skip_horizontal_fusion: bool = False) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = non_compute_ops or []
        self.allowed_single_node_partition_ops = allowed_single_node_partition_ops or []

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """Groups of supported nodes, such that each can run as one."""
        groups: list[Partition] = []
        for node in reversed(self.graph_module.graph.nodes):
            if not self._is_node_supported(node):
                continue
            home = Partition(nodes=[node])
            # Joined with as many groups as possible: those that use it come first.
            for other in sorted(groups, key=lambda g: not any(user in g.nodes for user in node.users)):
                merged = [*other.nodes, *home.nodes]
                if validate_partition(merged):
                    groups.remove(other)
                    home = Partition(nodes=merged)
            groups.append(home)
        kept = [group for group in groups if self.allows_single_node_partition or self._computes(group) > 1 or
                any(self._name(n) in self.allowed_single_node_partition_ops for n in group)]
        kept.sort(key=lambda group: max(n._sort_key for n in group), reverse=True)       # found from the output on, as in torch
        for number, group in enumerate(kept):
            group.id, group.nodes = number, dict.fromkeys(sorted(group.nodes, key=lambda n: n._sort_key))
        return kept

    @staticmethod
    def _name(node: Node) -> str:
        target: Any = node.target
        return target if isinstance(target, str) else f"{getattr(target, '__module__', '')}.{target.__name__}"

    def _computes(self, group: Partition) -> int:
        return sum(n.op == "call_function" and self._name(n) not in self.non_compute_ops or n.op != "call_function"
                   for n in group)

    def fuse_partitions(self, partitions: Collection[Partition], prefix: str = "fused_") -> GraphModule:
        """Makes every group a submodule."""
        return fuse_by_partitions(self.graph_module, [list(p.nodes) for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Takes out nodes at the ends of groups that compute nothing."""
        for group in partitions:
            changed = True
            while changed:
                changed = False
                for node in list(group):
                    alone = not any(a in group.nodes for a in node.all_input_nodes) or \
                        not any(u in group.nodes for u in node.users)
                    if node.op == "call_function" and self._name(node) in self.non_compute_ops and alone:
                        group.remove_node(node)
                        changed = True

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Groups the nodes and makes every group a submodule."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)
