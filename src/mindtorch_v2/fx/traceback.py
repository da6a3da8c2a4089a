"""What nodes remember of the code that made them: stacks, and meta data that passes carry on."""
from __future__ import annotations

import contextlib
import copy
import enum
import functools
import re
import traceback as _python
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mindtorch_v2.fx._compatibility import compatibility

__all__ = ["annotate", "annotate_fn", "preserve_node_meta", "has_preserved_node_meta", "set_stack_trace",
           "set_grad_fn_seq_nr", "reset_grad_fn_seq_nr", "format_stack", "set_current_meta", "get_current_meta",
           "NodeSource", "NodeSourceAction", "get_graph_provenance_json", "set_current_replay_node",
           "get_current_replay_node"]

current_meta: dict[str, Any] = {}
current_replay_node: Any = None
should_preserve_node_meta = False
GRADIENT_ACC_SPECIAL_STACK = "Gradient addition node due to multiple use of tensor around:"
_LINE = re.compile(r'File "(.+)", line (\d+), in (.+)')


class _ParsedStackTrace(NamedTuple):
    """The innermost frame of a stack."""
    file: str
    lineno: str
    name: str
    code: str

    def get_summary_str(self) -> str:
        return f"File: {self.file}:{self.lineno} in {self.name}, code: {self.code}"


def _parse_stack_trace(stack_trace: str | None,
                       filter_fn: Callable[[str, str, str], bool] | None = None) -> _ParsedStackTrace | None:
    """The innermost frame of a stack as text, of those that a function lets pass."""
    if stack_trace is None:
        return None
    lines = stack_trace.strip().split("\n")
    for number in range(len(lines) - 2, -1, -1):
        found = _LINE.match(lines[number].strip())
        if found and (filter_fn is None or filter_fn(found[1], found[3], lines[number + 1].strip())):
            return _ParsedStackTrace(found[1], found[2], found[3], lines[number + 1].strip())
    return None


@compatibility(is_backward_compatible=False)
class NodeSourceAction(enum.Enum):
    """What a pass did to a node."""

    CREATE = "create"
    REPLACE = "replace"


@compatibility(is_backward_compatible=False)
class NodeSource:
    """Where a node came from: another node, a pass, and what the pass did."""

    def __init__(self, node: Any, pass_name: str = "", action: Any = None) -> None:
        self.pass_name = pass_name
        self.action = [] if action is None else action if isinstance(action, list) else [action]
        self.name = node.name if node is not None else ""
        self.target = str(node.target) if node is not None else ""
        self.graph_id = id(node.graph) if node is not None else -1
        self.node_info = self if node is not None else None
        self.from_node = copy.deepcopy(node.meta.get("from_node", [])) if node is not None else []

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"name": self.name, "target": self.target, "graph_id": self.graph_id, "pass_name": self.pass_name,
                "action": "+".join(a.name.lower() for a in self.action), "from_node": [n.to_dict() for n in self.from_node]}

    def __repr__(self) -> str:
        return str(self.to_dict())


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """A with block in which nodes that a tracer makes get the meta data of the node that is run."""
    global should_preserve_node_meta, current_meta
    before, saved = should_preserve_node_meta, current_meta.copy()
    try:
        should_preserve_node_meta = enable
        yield
    finally:
        should_preserve_node_meta, current_meta = before, saved


@compatibility(is_backward_compatible=False)
def has_preserved_node_meta() -> bool:
    """Whether meta data is carried on."""
    return should_preserve_node_meta


@compatibility(is_backward_compatible=False)
def set_stack_trace(stack: list[str]) -> None:
    """The stack that nodes get while meta data is carried on."""
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """A with block in which nodes get entries of meta["custom"]."""
    global current_meta
    before = current_meta
    current_meta = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        current_meta = before


@compatibility(is_backward_compatible=False)
def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """annotate as a decorator."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def annotated(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return func(*args, **kwargs)
        return annotated
    return decorate


@compatibility(is_backward_compatible=False)
def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Notes which recorded op's gradient is computed."""
    if should_preserve_node_meta:
        current_meta["grad_fn_seq_nr"] = [*current_meta.get("grad_fn_seq_nr", []), seq_nr]
        current_meta["in_grad_fn"] = current_meta.get("in_grad_fn", 0) + 1


@compatibility(is_backward_compatible=False)
def reset_grad_fn_seq_nr() -> None:
    """Takes back what set_grad_fn_seq_nr noted last."""
    if should_preserve_node_meta:
        current_meta["in_grad_fn"] = max(current_meta.get("in_grad_fn", 0) - 1, 0)
        current_meta["grad_fn_seq_nr"] = current_meta.get("grad_fn_seq_nr", [])[:-1]


@compatibility(is_backward_compatible=False)
def format_stack() -> list[str]:
    """The stack of the running code, or the one that is carried on."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return _python.format_list(_python.extract_stack()[:-1])


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """A with block in which new nodes get the meta data of a node."""
    global current_meta
    if not (should_preserve_node_meta and node.meta):
        yield
        return
    before = current_meta
    current_meta = node.meta.copy()
    current_meta["from_node"] = [NodeSource(node, pass_name, NodeSourceAction.CREATE)]
    try:
        yield
    finally:
        current_meta = before


@compatibility(is_backward_compatible=False)
def get_current_meta() -> dict[str, Any]:
    """The meta data that new nodes get."""
    return current_meta


@compatibility(is_backward_compatible=False)
@contextlib.contextmanager
def set_current_replay_node(node: Any) -> Iterator[None]:
    """A with block in which a node is the one that is run."""
    global current_replay_node
    before, current_replay_node = current_replay_node, node
    try:
        yield
    finally:
        current_replay_node = before


@compatibility(is_backward_compatible=False)
def get_current_replay_node() -> Any:
    """The node that is run."""
    return current_replay_node


@compatibility(is_backward_compatible=False)
def get_graph_provenance_json(graph: Any) -> dict[str, Any]:
    """The sources of the nodes of a graph, by their names."""
    return {node.name: [source.to_dict() for source in node.meta["from_node"]]
            for node in graph.nodes if node.op == "call_function" and "from_node" in node.meta}
