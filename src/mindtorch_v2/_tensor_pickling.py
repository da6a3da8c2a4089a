"""What pickle and copy make of a tensor, and how it comes back; torch.save's files are in serialization.py."""
from __future__ import annotations

from typing import Any, SupportsIndex

from mindtorch_v2 import _C
from mindtorch_v2._C import dtype as DType


def _marked(made: Any, conj: bool, neg: bool) -> Any:
    """A new tensor that is read conjugated, negated, and no view of another."""
    made = made._conj().detach() if conj else made
    return made._neg_view().detach() if neg else made


class _Pickled:
    """A storage in a pickle: as in torch, tensors that share one do not share it any more when they come back."""

    def __init__(self, storage: Any) -> None:
        self.storage = storage

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.storage.__reduce_ex__(protocol)


def _rebuild_tensor(cls: type, storage: Any, dtype: DType, offset: int, size: tuple[Any, ...], stride: tuple[Any, ...],
                    requires_grad: bool, state: dict[Any, Any], conj: bool = False, neg: bool = False) -> Any:
    storage = storage.storage if isinstance(storage, _Pickled) else storage      # copy.copy
    made: Any = _marked(_C._from_data([], dtype, False).set_(storage, offset, size, stride), conj, neg)
    made = made if type(made) is cls else made.as_subclass(cls)
    made.requires_grad = requires_grad
    made.__dict__.update(state)
    return made


def _rebuild_meta(cls: type, dtype: DType, size: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool,
                  state: dict[Any, Any]) -> Any:
    made: Any = _C._op_named("empty_strided")(size, stride, dtype=dtype, device="meta")
    made = made if type(made) is cls else made.as_subclass(cls)
    made.requires_grad = requires_grad
    made.__dict__.update(state)
    return made
