"""FxGraphDrawer: a graph as a picture, through the pydot package."""
from __future__ import annotations

import hashlib
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.node import Node, _format_arg, _get_qualified_name
from mindtorch_v2.fx.passes.shape_prop import TensorMetadata

try:
    import pydot
except ImportError:
    pydot = None

__all__ = ["FxGraphDrawer"]

_COLOR_MAP = {"placeholder": '"AliceBlue"', "call_module": "LemonChiffon1", "get_param": "Yellow2",
              "get_attr": "LightGrey", "output": "PowderBlue"}
_HASH_COLOR_MAP = ["CadetBlue1", "Coral", "DarkOliveGreen1", "DarkSeaGreen1", "GhostWhite", "Khaki1", "LavenderBlush1",
                   "LightSkyBlue", "MistyRose1", "MistyRose2", "PaleTurquoise2", "PeachPuff1", "Salmon", "Thistle1",
                   "Thistle3", "Wheat1"]
_WEIGHT_TEMPLATE = {"fillcolor": "Salmon", "style": '"filled,rounded"', "fontcolor": "#000000"}


@compatibility(is_backward_compatible=False)
class FxGraphDrawer:
    """get_dot_graph() gives a pydot.Dot, whose write_svg() and others make files."""

    def __init__(self, graph_module: GraphModule, name: str, ignore_getattr: bool = False,
                 ignore_parameters_and_buffers: bool = False, skip_node_names_in_args: bool = True,
                 parse_stack_trace: bool = False, dot_graph_shape: str | None = None,
                 normalize_args: bool = False) -> None:
        if pydot is None:
            raise RuntimeError("FXGraphDrawer requires the pydot package to be installed. Please install pydot through your "
                               "favorite Python package manager.")
        self._name = name
        self.dot_graph_shape = dot_graph_shape or "record"
        self._ignore = ignore_getattr
        self._dot_graphs = {name: self._to_dot(graph_module, name)}
        for child_name, module in graph_module.named_modules():
            if child_name and isinstance(module, GraphModule):
                path = f"{name}_{child_name}"
                self._dot_graphs[path] = self._to_dot(module, path)

    def get_dot_graph(self, submod_name: str | None = None) -> Any:
        """The picture of the module, or of a submodule."""
        return self._dot_graphs[self._name if submod_name is None else submod_name]

    get_main_dot_graph = get_dot_graph

    def get_submod_dot_graph(self, submod_name: str) -> Any:
        """The picture of a submodule."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, Any]:
        """All pictures by their names."""
        return self._dot_graphs

    def _get_node_style(self, node: Node) -> dict[str, str]:
        style = {"shape": self.dot_graph_shape, "fillcolor": "#CAFFE3", "style": '"filled,rounded"',
                 "fontcolor": "#000000"}
        if node.op in _COLOR_MAP:
            style["fillcolor"] = _COLOR_MAP[node.op]
        else:
            name = node._pretty_print_target(node.target)
            digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
            style["fillcolor"] = _HASH_COLOR_MAP[int(digest, 16) % len(_HASH_COLOR_MAP)]
        return style

    def _get_leaf_node(self, module: Any, node: Node) -> Any:
        for part in node.target.split("."):   # type: ignore[union-attr]
            module = getattr(module, part)
        return module

    def _get_node_label(self, module: GraphModule, node: Node) -> str:
        label = "{" + f"name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            leaf = self._get_leaf_node(module, node)
            label += r"\n" + torch.typename(leaf) + r"\n|"
            label += "".join(f"|{c}: {getattr(leaf, c)}" for c in getattr(leaf, "__constants__", ()) if hasattr(leaf, c))
        else:
            label += f"|target={node.target if isinstance(node.target, str) else _get_qualified_name(node.target)}" + r"\n"
            if node.args:
                label += f"|args={_format_arg(node.args, max_list_len=10)}" + r"\l"
            if node.kwargs:
                label += f"|kwargs={_format_arg(node.kwargs, max_list_len=10)}" + r"\l"
            label += f"|num_users={len(node.users)}" + r"\n"
        meta = node.meta.get("tensor_meta")
        if isinstance(meta, TensorMetadata):
            label += f"|dtype={meta.dtype}|shape={tuple(meta.shape)}|requires_grad={meta.requires_grad}"
        return label + "}"

    def _to_dot(self, graph_module: GraphModule, name: str) -> Any:
        picture = pydot.Dot(name, rankdir="TB")
        for node in graph_module.graph.nodes:
            if self._ignore and node.op == "get_attr":
                continue
            picture.add_node(pydot.Node(node.name, label=self._get_node_label(graph_module, node),
                                        **self._get_node_style(node)))
        for node in graph_module.graph.nodes:
            if self._ignore and node.op == "get_attr":
                continue
            for user in node.users:
                picture.add_edge(pydot.Edge(node.name, user.name))
        return picture
