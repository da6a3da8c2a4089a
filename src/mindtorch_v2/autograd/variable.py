"""torch.autograd.Variable: the old name of a tensor that may require gradients."""
from __future__ import annotations

from typing import Any

from mindtorch_v2._tensor import Tensor


class _VariableMeta(type):
    """isinstance(x, Variable): every tensor is one."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Tensor)


class Variable(metaclass=_VariableMeta):
    """Variable(data) is a tensor over the same memory."""

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        made = Tensor() if data is None else data.detach()
        return made.requires_grad_(requires_grad)
