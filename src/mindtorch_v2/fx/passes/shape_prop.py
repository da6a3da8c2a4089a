"""ShapeProp runs a graph and notes shape, dtype and layout of every tensor in the meta data of its node."""
from __future__ import annotations

import traceback
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.interpreter import Interpreter
from mindtorch_v2.fx.node import Node, map_aggregate

__all__ = ["TensorMetadata", "ShapeProp"]


@compatibility(is_backward_compatible=True)
class TensorMetadata(NamedTuple):
    """What is known of a tensor beside its values."""

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: torch.memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: torch.Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """What is known of a tensor."""
    memory_format = None
    if include_contiguity:
        formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
        memory_format = next((f for f in formats if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), memory_format,
                          getattr(result, "is_quantized", False), {})


@compatibility(is_backward_compatible=True)
class ShapeProp(Interpreter):
    """Runs a graph on real or fake tensors; meta["tensor_meta"] of every node says what came out."""

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode, self.real_module = fake_mode, self.module
        self.fake_module: Any = None

    def run_node(self, n: Node) -> Any:
        """Runs a node and notes the result."""
        try:
            if self.fake_mode is not None:
                with self.fake_mode:
                    result = super().run_node(n)
            else:
                result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(f"ShapeProp error for: node={n.format_node()} with meta={n.meta}") from error
        found = False

        def extract(obj: Any) -> Any:
            nonlocal found
            if not isinstance(obj, torch.Tensor):
                return obj
            found = True
            return _extract_tensor_metadata(obj)
        meta = map_aggregate(result, extract)
        if found:
            n.meta["tensor_meta"] = meta
        if self.fake_mode is not None:
            n.meta["val"] = result
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Runs the graph; gives its result."""
        if self.fake_mode is not None:
            args = tuple(self.fake_mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in args)
        return super().run(*args)
