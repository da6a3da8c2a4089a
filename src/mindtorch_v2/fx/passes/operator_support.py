"""OperatorSupport: which nodes something else can run."""
from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx._compatibility import compatibility
from mindtorch_v2.fx.node import Node
from mindtorch_v2.fx.passes.shape_prop import TensorMetadata
from mindtorch_v2.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = ["OperatorSupportBase", "OperatorSupport", "create_op_support", "chain", "OpSupports", "any_chain"]

Submodules = Mapping[str, Any]


@compatibility(is_backward_compatible=False)
class OperatorSupportBase(abc.ABC):
    """Answers for a node whether it is supported."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        """Whether a node is supported."""


@compatibility(is_backward_compatible=False)
class OperatorSupport(OperatorSupportBase):
    """Support by a table: target -> dtypes of arguments and of keyword arguments, or None for all."""

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        wanted = self._support_dict[target]
        if wanted is None:
            return True
        args, kwargs = wanted
        for i, dtypes in enumerate(args):
            if len(node.args) > i and isinstance(node.args[i], Node) and _get_arg_dtype(node.args[i]) not in dtypes:
                return False
        return all(name not in node.kwargs or not isinstance(node.kwargs[name], Node) or
                   _get_arg_dtype(node.kwargs[name]) in dtypes for name, dtypes in kwargs.items())


@compatibility(is_backward_compatible=False)
def create_op_support(is_node_supported: Callable[..., bool]) -> OperatorSupportBase:
    """Support that a function decides."""
    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Submodules, node: Node) -> bool:
            return is_node_supported(submodules, node)
    return FunctionalOperatorSupport()


@compatibility(is_backward_compatible=False)
def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supported where all say so."""
    return create_op_support(lambda submods, node: all(x.is_node_supported(submods, node) for x in op_support))


@compatibility(is_backward_compatible=False)
def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supported if any of several classes supports it."""
    return create_op_support(lambda submods, node: any(x.is_node_supported(submods, node) for x in op_support))


@compatibility(is_backward_compatible=False)
class OpSupports:
    """Common rules."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: torch.dtype) -> OperatorSupportBase:
        """Not where an argument has a dtype."""
        return create_op_support(lambda submods, node: all(_get_arg_dtype(arg) != dtype for arg in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Not where the node has one of some names."""
        return create_op_support(lambda submods, node: node.name not in disallow_set)


def _get_arg_dtype(arg: Any) -> Any:
    meta = arg.meta.get("tensor_meta")
    return meta.dtype if isinstance(meta, TensorMetadata) else arg.meta["type"]
