"""PassBase: a function from a graph module to a graph module, with checks before and after."""
from __future__ import annotations

import abc
from typing import NamedTuple

from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph_module import GraphModule

__all__ = ["PassResult", "PassBase"]


@compatibility(is_backward_compatible=False)
class PassResult(NamedTuple):
    """The module, and whether the pass changed it."""

    graph_module: GraphModule
    modified: bool


@compatibility(is_backward_compatible=False)
class PassBase(abc.ABC):
    """A pass: subclasses have call(), and may have requires() and ensures()."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Runs the pass."""

    def requires(self, graph_module: GraphModule) -> None:   # noqa: B027  (a subclass need not have it)
        """Raises where the module is not what the pass needs."""

    def ensures(self, graph_module: GraphModule) -> None:   # noqa: B027  (a subclass need not have it)
        """Raises where the module is not what the pass promises."""
