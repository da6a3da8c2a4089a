"""Gradual typing of graphs: how types of tensors broadcast; whole graphs are not checked."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.fx.tensor_type import Dyn, TensorType, Var

_WHY = "graphs are not type checked; use torch.fx.passes.shape_prop.ShapeProp for the shapes of a graph"
GraphTypeChecker: Any = torch._facade.absent("torch.fx.experimental.graph_gradual_typechecker.GraphTypeChecker", _WHY)
Refine: Any = torch._facade.absent("torch.fx.experimental.graph_gradual_typechecker.Refine", _WHY)


def expand_to_tensor_dim(t: Any, n: int) -> TensorType:
    """A type of n sizes: Dyn is any of them."""
    if t == Dyn:
        return TensorType(tuple([Dyn] * n))
    if isinstance(t, TensorType):
        if len(t.__args__) != n:
            raise TypeError(f"Cannot extend tensor. Tensor {t} has rank {len(t.__args__)}. It should have rank {n}")
        return t
    raise TypeError(f"Cannot match the type {t}")


def broadcast_types(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Both types with the sizes that they have in a pointwise op of the two; is_consistent says whether they fit."""
    if t1 == Dyn or t2 == Dyn or isinstance(t1, Var) or isinstance(t2, Var):
        return t1, t2
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    rank = max(len(t1.__args__), len(t2.__args__))
    first = [1] * (rank - len(t1.__args__)) + list(t1.__args__)
    second = [1] * (rank - len(t2.__args__)) + list(t2.__args__)
    for i, (a, b) in enumerate(zip(first, second)):
        if a == 1:
            first[i] = b
        elif b == 1:
            second[i] = a
    return TensorType(tuple(first)), TensorType(tuple(second))
