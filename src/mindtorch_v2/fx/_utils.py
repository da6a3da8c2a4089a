"""Text about graphs for logs and errors."""
from __future__ import annotations

from typing import Any


def _format_graph_code(name: str, filename: str, graph_str: str) -> str:
    return f"TRACED GRAPH\n {name} {filename} {graph_str}\n"


class LazyString:
    """Text that is made when it is shown."""

    def __init__(self, func: Any, *args: Any, **kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs

    def __str__(self) -> str:
        return self.func(*self.args, **self.kwargs)


def lazy_format_graph_code(name: str, gm: Any, maybe_id: int | None = None, **kwargs: Any) -> LazyString:
    """The code of a graph module, made when it is shown."""
    shown = f"{name} {maybe_id}" if maybe_id is not None else name
    return LazyString(lambda: _format_graph_code(f"===== {shown} =====\n", gm.forward.__code__.co_filename,
                                                 gm.print_readable(print_output=False, **kwargs)))


def first_call_function_nn_module_stack(graph: Any) -> dict[str, Any] | None:
    """The modules around the first call in a graph."""
    return next((n.meta["nn_module_stack"] for n in graph.nodes if n.op == "call_function" and "nn_module_stack" in n.meta),
                None)


def get_node_context(node: Any, num_nodes: int = 2) -> str:
    """The lines of some nodes around one."""
    context, current = [], node
    for _ in range(num_nodes):
        context.append(current.format_node())
        if current.op == "placeholder":
            break
        current = current.prev
    return "\n".join(str(line) for line in reversed(context))
