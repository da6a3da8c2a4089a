"""Kernels of the npu for reductions, ordering, indexing and counting that one aclnn call does not serve as it is."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.ops import composed, dynamic, kernel, ops

_INT64 = _C._dtype_named("int64")
_REDUCES = {"sum": 1, "prod": 2, "amax": 3, "amin": 4, "mean": 5}        # of aclnnScatterReduce; 0 replaces
_ALL_ITEMS = 1000                                                         # aclnnUniqueConsecutive's word for "no dim"


@kernel("prod")
def _prod(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (self, dim, keepdim, _) = outs, args
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if not dims:
        aclnn.call("aclnnProd", self, out.dtype, out)
        return
    for d in sorted((d % max(self.dim(), 1) for d in dims), reverse=True)[:-1]:   # CANN takes one dim a call
        self = ops.prod(self.detach(), d, keepdim, dtype=out.dtype)
    last = min(d % max(self.dim(), 1) for d in dims)
    aclnn.call("aclnnProdDim", self, last, keepdim, out.dtype, out)


def _place(name: str) -> Any:
    def launch(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
        (out,), (self, dim, keepdim) = outs, args
        if dim is None:
            aclnn.call(name, self.detach().reshape(-1), 0, False, out.reshape(()))
        else:
            aclnn.call(name, self, dim, keepdim, out)
    return launch


kernel("argmax")(_place("aclnnArgMax"))
kernel("argmin")(_place("aclnnArgMin"))


@composed("count_nonzero")
def _count_nonzero(self: Any, dim: Any) -> Any:
    return (self != 0).sum(dim)


@composed("vdot")
def _vdot(self: Any, other: Any) -> Any:
    return (self.conj_physical() * other).sum()


@composed("logcumsumexp")
def _logcumsumexp(self: Any, dim: int) -> Any:
    if self.dim() == 0 or self.numel() == 0:
        return self
    top = self.amax(dim, True)
    top = top.masked_fill(top.abs() == math.inf, 0)
    return (self - top).exp().cumsum(dim).log() + top


@kernel("scatter_reduce")
def _scatter_reduce(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (_, dim, index, src, reduce, include_self) = outs, args      # out holds self
    aclnn.call("aclnnInplaceScatterReduce", out, dim, index, src, _REDUCES[reduce], include_self)


@kernel("index_reduce")
def _index_reduce(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (_, dim, index, source, reduce, include_self) = outs, args
    shape = [1] * source.dim()
    if shape:
        shape[dim] = index.numel()
    wide = index.reshape(shape).expand(source.shape).contiguous()
    aclnn.call("aclnnInplaceScatterReduce", out, dim, wide, source, _REDUCES[reduce], include_self)


@kernel("index_fill")
def _index_fill(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    (out,), (_, dim, index, value) = outs, args
    if out.dim() == 0:
        out.fill_(value)
    elif index.numel():
        aclnn.call("aclnnInplaceIndexFillTensor", out, dim, index.reshape(-1).tolist(), value)


@composed("_repeat_index")
def _repeat_index(repeats: Any, output_size: int) -> Any:
    ends = repeats.cumsum(0)
    return ops.searchsorted(ends, ops.arange(output_size, device=repeats.device, dtype=ends.dtype), right=True)


@kernel("_unique2")
def _unique2(self: Any, sorted: bool, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    return _unique("aclnnUnique2", self, (True, return_inverse or return_counts, return_counts), return_inverse, return_counts)


@kernel("_unique_runs")
def _unique_runs(self: Any, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    return _unique("aclnnUniqueConsecutive", self, (return_inverse, return_counts, _ALL_ITEMS), return_inverse, return_counts)


def _unique(name: str, self: Any, options: tuple[Any, ...], inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    self = self.detach().contiguous()
    out = ops.empty((self.numel(),), dtype=self.dtype, device=self.device)
    places = ops.empty(tuple(self.shape), dtype=_INT64, device=self.device)
    repeats = ops.empty((self.numel(),), dtype=_INT64, device=self.device)
    if self.numel():
        found = dynamic(name, self.device.index, (self, *options, out, places, repeats))
        out, repeats = out[:found[0][0]].clone(), repeats[:found[0][0]].clone()
    nothing = ops.empty((0,), dtype=_INT64, device=self.device)
    return out, places if inverse else nothing, repeats if counts else nothing
