"""Types of tensors by their sizes, for gradual typing: TensorType((1, Dyn)), and how two types compare."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.fx._compatibility import compatibility

__all__ = ["TensorType", "is_consistent", "is_more_precise", "Dyn", "Var"]


@compatibility(is_backward_compatible=False)
class TensorType:
    """The type of tensors with given sizes; a size may be Dyn."""

    def __init__(self, dim: Any) -> None:
        self.__origin__, self.__args__ = TensorType, dim

    def __repr__(self) -> str:
        return f"TensorType[{self.__args__}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__) and list(self.__args__) == list(other.__args__)

    def __hash__(self) -> int:
        return hash(tuple(self.__args__))

    @staticmethod
    def __class_getitem__(*args: Any) -> TensorType:
        return TensorType(args[0] if len(args) == 1 and isinstance(args[0], tuple) else args)


class _DynType:
    """A size, or a type, of which nothing is known."""

    def __init__(self) -> None:
        self.__name__ = "_DynType"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__)

    def __hash__(self) -> int:
        return hash(_DynType)

    def __str__(self) -> str:
        return "Dyn"

    __repr__ = __str__


Dyn = _DynType()


@compatibility(is_backward_compatible=False)
def is_consistent(t1: Any, t2: Any) -> bool:
    """Whether one value may have both types."""
    if t1 in (t2, Dyn) or t2 == Dyn or isinstance(t1, Var) or isinstance(t2, Var):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        return len(t1.__args__) == len(t2.__args__) and all(map(is_consistent, t1.__args__, t2.__args__))
    return False


@compatibility(is_backward_compatible=False)
def is_more_precise(t1: Any, t2: Any) -> bool:
    """Whether the first type says at least as much as the second."""
    if t1 == t2 or isinstance(t2, _DynType):
        return True
    if isinstance(t1, TensorType) and isinstance(t2, TensorType):
        return len(t1.__args__) == len(t2.__args__) and all(map(is_more_precise, t1.__args__, t2.__args__))
    return False


@compatibility(is_backward_compatible=False)
class Var:
    """A size that is not known yet, by name."""

    def __init__(self, token: Any) -> None:
        self.token = token

    def __repr__(self) -> str:
        return f"~{self.token}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Var) and self.token == other.token

    def __hash__(self) -> int:
        return hash(("Var", self.token))
