"""Names that torch has for graph modules which are compiled at their first use; here all are compiled at once."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mindtorch_v2.fx.graph_module import GraphModule


@contextlib.contextmanager
def _use_lazy_graph_module(should_use: bool) -> Iterator[None]:
    """Changes nothing."""
    yield


def _make_graph_module(*args: Any, graph_module_cls: type | None = None, **kwargs: Any) -> GraphModule:
    """A graph module, of a class of choice."""
    return (graph_module_cls or GraphModule)(*args, **kwargs)


class _LazyGraphModule(GraphModule):
    """Only for isinstance: no module is one."""
