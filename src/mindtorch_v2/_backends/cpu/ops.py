"""CPU kernels whose results only the data can size: nonzero, masked_select, unique. All others are called by the core."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._shape import broadcast

_empty = _C._op_named("empty")
_INT64 = _C._dtype_named("int64")


def _count(mask: Any) -> int:
    count = _empty((), dtype=_INT64)
    _C._run_kernel("count_true", (count,), (mask,))
    return count.item()


def _nonzero(self: Any) -> Any:
    self = self.detach()                         # its own geometry: another thread may change the tensor's meanwhile
    out = _empty((self.dim(), _count(self)), dtype=_INT64).t()      # a dim's indices side by side, as torch has them
    _C._run_kernel("nonzero", (out,), (self,))
    return out


def _masked_select(self: Any, mask: Any) -> Any:
    self = self.detach()
    if self.shape != mask.shape:
        shape = broadcast(self.shape, mask.shape)
        self, mask = self.expand(shape), mask.expand(shape)
    out = _empty((_count(mask),), dtype=self.dtype)
    _C._run_kernel("masked_select", (out,), (self, mask))
    return out


def _unique(kernel: str, self: Any, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    self = self.detach()
    n = self.numel()
    out, found = _empty((n,), dtype=self.dtype), _empty((), dtype=_INT64)
    places = _empty(self.shape if inverse else (0,), dtype=_INT64)
    repeats = _empty((n if counts else 0,), dtype=_INT64)
    if n == 0:
        return out, places, repeats
    _C._run_kernel(kernel, (out, places if inverse else None, repeats if counts else None, found), (self,))
    size = found.item()
    return out[:size].clone(), places, repeats[:size].clone() if counts else repeats


def _unique2(self: Any, sorted: bool, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    return _unique("unique_sort", self, return_inverse, return_counts)


def _unique_runs(self: Any, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    return _unique("unique_runs", self, return_inverse, return_counts)


for _kernel in (_nonzero, _masked_select, _unique2, _unique_runs):
    _C._set_kernel(_C._op_named(_kernel.__name__), 0, "cpu", _kernel)
