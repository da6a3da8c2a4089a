"""Bodies of the npu for places of items: found by a mask, whose number only the data can tell, and written to."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn, streams
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._shape import broadcast

_INT64 = _C._dtype_named("int64")


def dynamic(name: str, device: int, args: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Calls an op that finds out how large its outputs are; waits, and gives their real shapes."""
    with streams.op_waits(name):
        return _C._npu_call_dynamic(aclnn.plan_of(name, False), device, args, ())


def _nonzero(self: Any) -> Any:
    self = self != 0 if self.is_complex() else self          # CANN's takes real items
    rank, n = self.dim(), self.numel()
    out = ops.empty((n, rank), dtype=_INT64, device=self.device)
    if n == 0:
        return out
    if rank == 0:
        return out[:int(self.item() != 0)]
    (shape,) = dynamic("aclnnNonzero", self.device.index, (self, out))
    return out[:shape[0]].clone()


def _masked_select(self: Any, mask: Any) -> Any:
    shape = broadcast(self.shape, mask.shape)
    self, mask = self.detach().expand(shape), mask.expand(shape)
    moved = self.view(_INT64) if self.dtype._name == "complex64" else self       # 8 bytes that only move
    out = ops.empty((self.numel(),), dtype=moved.dtype, device=self.device)
    if self.numel() == 0:
        return out.view(self.dtype)
    (shape,) = dynamic("aclnnMaskedSelect", self.device.index, (moved, mask, out))
    return out[:shape[0]].clone().view(self.dtype)


def _index_put_complex(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    """Real and imaginary parts are a dim that no index names; with it a number from the host is no scalar any more."""
    real, values = (ops.view_as_real(x.detach()) for x in (self, values.to(self.device)))
    aclnn.call("aclnnIndexPutImpl", real, indices, values, accumulate, False)
    return self


BODIES = {
    "_index_put_list_": Body(fallback=_index_put_complex),
    "_masked_select": Body(sized=_masked_select),
    "_nonzero": Body(sized=_nonzero),
}
