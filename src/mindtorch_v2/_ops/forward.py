"""Forward derivatives that rows name with `forward=`; all other rows have theirs from their gradient formulas, see
autograd/forward_ad.py."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops.table import ops
from mindtorch_v2.autograd.forward_ad import not_implemented


def refused(name: str) -> Callable[[Any, tuple, list[Any], Any], Any]:
    """An op without a forward derivative in torch, whose error has that name of it."""
    def refuse(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
        raise not_implemented(name)
    return refuse


def linear(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """An op that is linear in its differentiable tensors together: the op of their tangents."""
    op = getattr(ops, row.name)
    return _C._call_bound(op, row, tuple(_moved(s, t) for s, t in zip(slots, tangents, strict=True)))


def _moved(value: Any, tangent: Any) -> Any:
    if isinstance(value, TensorBase) and (value.is_floating_point() or value.is_complex()):
        return value.new_zeros(value.shape) if tangent is None else tangent
    if type(value) is tuple and value and isinstance(value[0], TensorBase):
        return tuple(_moved(v, t) for v, t in zip(value, tangent or (None,) * len(value), strict=True))
    return value


def bilinear(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """An op that is linear in each of its first two tensors; a third one is added to the result."""
    op, total = getattr(ops, row.name), None
    third = len(slots) > 2 and isinstance(slots[2], TensorBase)
    for at in (0, 1):
        if tangents[at] is not None:
            given = [*slots[:at], tangents[at], *slots[at + 1:]]
            if len(given) > 2 and (third or given[2] is None):
                given[2] = tangents[2] if total is None and third else None
            part = _C._call_bound(op, row, tuple(given))
            total = part if total is None else total + part
    if total is None:                            # only what is added has a tangent
        return NotImplemented
    return total


def likelihood(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """A loss that is linear in its first tensor: weights have no gradient, and neither has their sum."""
    if tangents[0] is None:
        return None, None
    return _C._call_bound(getattr(ops, row.name), row, (tangents[0], *slots[1:]))[0], None


def constant(row: Any, slots: tuple, tangents: list[Any], result: Any) -> tuple[None]:
    """A new tensor that takes only its shape, dtype and device from another."""
    return (None,)


def embedded(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """The gradient leaves out padding_idx, the derivative does not."""
    return ops.embedding(tangents[0], slots[1])


def running_logsumexp(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    x, dim = slots
    if x.numel() == 0:
        return tangents[0]
    top = x.detach().amax(dim, True)
    top = ops.where(top.isfinite(), top, 0)
    return (top - result).exp() * (tangents[0] * (x - top).exp()).cumsum(dim)


def singular_values(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """Without the vectors, which the gradient formula needs."""
    if slots[row.names.index("compute_uv")]:
        return NotImplemented
    u, _, vh, _ = ops._linalg_svd(slots[0], False, True, driver=slots[row.names.index("driver")])
    slope = (u.mH @ tangents[0] @ vh.mH).diagonal(0, -2, -1)
    return None, slope.real, None, None


def eigenvalues(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    if slots[row.names.index("compute_v")]:
        return NotImplemented
    vectors = ops._linalg_eigh(slots[0], slots[1], True)[1]
    return (vectors.mH @ tangents[0] @ vectors).diagonal(0, -2, -1).real, None, None
