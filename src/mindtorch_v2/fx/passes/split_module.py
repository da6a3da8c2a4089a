"""split_module: a graph cut into submodules by a function that says to which one a node belongs."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx._lazy_graph_module import _make_graph_module
from mindtorch_v2.fx.graph import Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, map_arg
from mindtorch_v2.fx.proxy import Proxy

__all__ = ["Partition", "split_module"]


@compatibility(is_backward_compatible=True)
class Partition:
    """The nodes of one submodule, what it reads and what it gives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.submod_name = f"submod_{name}"
        self.node_names: list[str] = []
        self.inputs: dict[str, None] = {}
        self.outputs: dict[str, None] = {}
        self.dependencies: dict[str, None] = {}
        self.dependents: dict[str, None] = {}
        self.graph = Graph()
        self.environment: dict[Node, Node] = {}
        self.targets: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"name: {self.name},\n nodes: {self.node_names},\n inputs: {self.inputs},\n outputs: {self.outputs},\n " \
               f"partitions depended on: {self.dependencies},\n partition dependents: {self.dependents}"


def _value_of(m: torch.nn.Module, target: str) -> Any:
    found: Any = m
    for part in target.split("."):
        if not hasattr(found, part):
            raise AttributeError(f"Operator target {target} not found!")
        found = getattr(found, part)
    return found


class _Splitter:
    """The state of one split."""

    def __init__(self, m: GraphModule, callback: Callable[[Node], Any], keep_order: bool, affix: str | None) -> None:
        self.m, self.keep_order, self.affix = m, keep_order, affix
        self.partitions: dict[str, Partition] = {}
        self.of: dict[Node, str] = {}
        self.nodes: dict[str, Node] = {}
        for node in m.graph.nodes:
            self.nodes[node.name] = node
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            name = str(callback(node))
            self.of[node] = name
            self.partitions.setdefault(name, Partition(name)).node_names.append(node.name)

    def connect(self) -> None:
        """Notes what each partition reads and gives, and on which ones it depends."""
        for node in self.m.graph.nodes:
            here = self.of.get(node)
            for used in node.all_input_nodes:
                there = self.of.get(used)
                if here == there:
                    continue
                if there is not None:
                    self.partitions[there].outputs.setdefault(used.name)
                    if here is not None:
                        self.partitions[there].dependents.setdefault(here)
                        self.partitions[here].dependencies.setdefault(there)
                if here is not None:
                    self.partitions[here].inputs.setdefault(used.name)

    def ordered(self) -> list[str]:
        """The names of the partitions, each after those that it depends on."""
        waiting = {name: set(p.dependencies) for name, p in self.partitions.items()}
        found: list[str] = []
        while waiting:
            ready = next((name for name, missing in waiting.items() if not missing), None)
            if ready is None:
                raise RuntimeError("cycle exists between partitions!")
            found.append(ready)
            del waiting[ready]
            for missing in waiting.values():
                missing.discard(ready)
        return found

    def fill(self) -> None:
        """Copies the nodes into the graphs of their partitions."""
        for part in self.partitions.values():
            for name in part.inputs:
                node = self.nodes[name]
                part.environment[node] = part.graph.placeholder(node.name, type_expr=node.type)
                part.environment[node].meta = node.meta.copy()
        for node in self.m.graph.nodes:
            if node not in self.of:
                continue
            part = self.partitions[self.of[node]]
            target = node.target
            if node.op == "call_module":
                target = node.target.replace(".", "_")
                part.targets[target] = _value_of(self.m, node.target)
            made = part.graph.create_node(node.op, target, map_arg(node.args, lambda n: part.environment[n]),   # noqa: B023
                                          map_arg(node.kwargs, lambda n: part.environment[n]),   # noqa: B023
                                          type_expr=node.type, name=node.name)
            made.meta = node.meta.copy()
            part.environment[node] = made

    def assemble(self) -> tuple[Graph, dict[str, Any]]:
        """The graph that calls the partitions, and its attributes."""
        main, env, targets = Graph(), {}, {}
        order = self.ordered()
        for node in self.m.graph.nodes:
            if node.op == "placeholder":
                env[node] = main.node_copy(node)
            elif node.op == "get_attr":
                env[node] = main.node_copy(node)
                targets[node.target] = _value_of(self.m, node.target)
        for name in order:
            part = self.partitions[name]
            outputs = tuple(part.environment[self.nodes[n]] for n in part.outputs)
            part.graph.output(outputs[0] if len(outputs) == 1 else outputs)
            called = part.submod_name if self.affix is None else f"submod_{self.affix}_{name}"
            targets[called] = _make_graph_module(part.targets, part.graph)
            result = Proxy(main.call_module(called, tuple(env[self.nodes[n]] for n in part.inputs)))
            for i, output in enumerate(part.outputs):
                env[self.nodes[output]] = result.node if len(outputs) == 1 else result[i].node
        output_node = self.m.graph.output_node()
        main.output(map_arg(output_node.args[0], lambda n: env[n])).meta = output_node.meta.copy()
        return main, targets


@compatibility(is_backward_compatible=True)
def split_module(m: GraphModule, root_m: torch.nn.Module, split_callback: Callable[[Node], int],
                 qualname_map: dict[str, str] | None = None, keep_original_order: bool | None = False,
                 keep_original_node_name: bool | None = False, keep_original_input_name: bool = True, *,
                 partition_affix: str | None = None, tuple_return: bool = False) -> GraphModule:
    """A module with submodules submod_0, submod_1 …; qualname_map is filled with the old names of their parts."""
    split = _Splitter(m, split_callback, bool(keep_original_order), partition_affix)
    split.connect()
    split.fill()
    main, targets = split.assemble()
    if qualname_map is not None:
        for name, part in split.partitions.items():
            called = part.submod_name if partition_affix is None else f"submod_{partition_affix}_{name}"
            for node_name in part.node_names:
                node = split.nodes[node_name]
                for old in [node, *node.all_input_nodes]:
                    if old.op in ("call_module", "get_attr"):
                        qualname_map[f"{called}.{old.target.replace('.', '_')}"] = old.target   # type: ignore
    made = _make_graph_module(OrderedDict(targets), main)
    made.meta = dict(getattr(m, "meta", {}))
    return made
