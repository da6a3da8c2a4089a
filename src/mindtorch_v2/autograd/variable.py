"""torch.autograd.Variable: the old name of a tensor that may require gradients."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._tensor import Tensor


class _VariableMeta(type):
    """isinstance(x, Variable): every tensor is one."""

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, Tensor)


class _Engine:
    """The engine of backward, as torch shows it."""

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Call back when the backward that is running has computed all gradients."""
        _C._queue_callback(callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether the backward that is running adds to .grad of all leaves."""
        return _C._core._is_checkpoint_valid()


class Variable(metaclass=_VariableMeta):
    """Variable(data) is a tensor over the same memory."""
    _execution_engine = _Engine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: bool = False) -> Any:
        if volatile and requires_grad:
            raise ValueError("Variable can't be volatile and require_grad at the same time!")
        if volatile:
            warnings.warn("volatile was removed and now has no effect. Use `with torch.no_grad():` instead.", UserWarning,
                          stacklevel=2)
        made = Tensor() if data is None else data.detach()
        return made.requires_grad_(requires_grad)
