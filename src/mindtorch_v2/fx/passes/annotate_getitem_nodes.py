"""Types of getitem nodes, from the types of what they index."""
from __future__ import annotations

import operator
import typing
from typing import Any


def annotate_getitem_nodes(graph: Any) -> None:
    """Gives each getitem node the type that the annotation of its tuple, list or dict says of the item."""
    for node in graph.nodes:
        if node.target is not operator.getitem:
            continue
        source, index = node.args
        container, items = typing.get_origin(source.type), typing.get_args(source.type)
        if container is None:
            if isinstance(source.type, type) and issubclass(source.type, tuple) and hasattr(source.type, "_fields"):
                hints = typing.get_type_hints(source.type)      # a named tuple
                node.type = hints.get(source.type._fields[index])
            continue
        if container is list:
            node.type = items[0]
        elif container is dict:
            node.type = items[1]
        elif container is tuple:
            node.type = items[0] if len(items) == 2 and items[1] is Ellipsis else items[index]
