"""FakeTensorProp runs a graph on fake tensors and notes them in the meta data of the nodes."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.interpreter import Interpreter
from mindtorch_v2.fx.node import Node

__all__ = ["FakeTensorProp"]


@compatibility(is_backward_compatible=False)
class FakeTensorProp(Interpreter):
    """meta["val"] of every node is the fake tensor that it gives."""

    def __init__(self, module: Any, mode: Any = None) -> None:
        super().__init__(module)
        self._mode = mode if mode is not None else torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)

    def run_node(self, n: Node) -> Any:
        """Runs a node and notes the result."""
        result = super().run_node(n)
        n.meta["val"] = result
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph on fakes of the arguments."""
        return self.propagate_dont_convert_inputs(
            *(self._mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args))

    def propagate_dont_convert_inputs(self, *args: Any) -> Any:
        """Runs the graph on arguments as they are."""
        with self._mode:
            return super().run(*args)
