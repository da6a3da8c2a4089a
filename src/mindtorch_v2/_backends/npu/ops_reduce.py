"""Kernels of the npu for reductions, ordering, indexing and counting that one aclnn call does not serve as it is."""
from __future__ import annotations

import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu.body import Args, Body, Outs, Writer
from mindtorch_v2._backends.npu.ops_index import dynamic
from mindtorch_v2._backends.npu.ops_older import reduce_by_segments
from mindtorch_v2._backends.npu.torch_ops import ops

_BOOL, _INT64 = _C._dtype_named("bool"), _C._dtype_named("int64")
_FILLED = ("float32", "float16", "bfloat16", "int32", "int64", "bool")   # what aclnnInplaceIndexFillTensor takes
# The number of aclnnScatterReduce, and what serves without it: a function of two, or None for sums.
_REDUCES = {"sum": (1, None), "prod": (2, ops.mul), "amax": (3, ops.maximum), "amin": (4, ops.minimum), "mean": (5, None)}
_ALL_ITEMS = 1000                                                         # aclnnUniqueConsecutive's word for "no dim"


def _prod(outs: Outs, args: Args) -> None:
    (out,), (self, dim, keepdim, _) = outs, args
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    if not dims:
        aclnn.call("aclnnProd", self, out.dtype, out)
        return
    for d in sorted((d % max(self.dim(), 1) for d in dims), reverse=True)[:-1]:   # CANN takes one dim a call
        self = ops.prod(self.detach(), d, keepdim, dtype=out.dtype)
    last = min(d % max(self.dim(), 1) for d in dims)
    aclnn.call("aclnnProdDim", self, last, keepdim, out.dtype, out)


def _truth(name: str) -> Writer:
    """any or all: to CANN an empty list of dims means all of them, to torch none."""
    def launch(outs: Outs, args: Args) -> None:
        self, dim, keepdim = args
        self = self.detach() != 0 if self.is_complex() else self
        if dim is not None and not isinstance(dim, int) and not len(dim) and self.dim():
            outs[0].copy_(self.detach() != 0)
        else:
            aclnn.call(name, self, [dim] if isinstance(dim, int) else list(dim or ()), keepdim, outs[0])
    return launch


def _moments(name: str, root: bool) -> Writer:
    """Variances, or their roots; CANN gives the mean too where the row has two results."""
    def launch(outs: Outs, args: Args) -> None:
        self, dim, correction, keepdim = args
        correction = 1 if correction is None else correction
        if self.dtype.itemsize <= 4 and correction == int(correction):
            aclnn.call(name, self, dim, int(correction), keepdim, *outs)
            return
        self = self.detach()                                 # CANN takes whole corrections of at most float32
        mean = self.mean(dim, True)
        square = (self - mean).abs().square()
        made = square.sum(dim, keepdim) / max(0, self.numel() // max(1, mean.numel()) - correction)
        outs[0].copy_(made.sqrt() if root else made)
        if len(outs) > 1:
            outs[1].copy_(mean.reshape(outs[1].shape))
    return launch


def _place(name: str) -> Writer:
    def launch(outs: Outs, args: Args) -> None:
        (out,), (self, dim, keepdim) = outs, args
        if dim is None:
            aclnn.call(name, self.detach().reshape(-1), 0, False, out.reshape(()))
        else:
            aclnn.call(name, self, dim, keepdim, out)
    return launch


def _mode(outs: Outs, args: Args) -> None:
    """The longest run of equal items in sorted order: its last item stands as far from where the run began as any."""
    (values, indices), (self, dim, _) = outs, args
    if self.dim() == 0:
        values.copy_(self.detach())
        indices.fill_(0)
        return
    if values.numel() == 0:
        return
    ordered, places = (x.movedim(dim, -1) for x in ops.sort(self.detach(), dim, stable=True))
    at = ops.arange(ordered.size(-1), device=self.device)
    this, last = ordered[..., 1:], ordered[..., :-1]
    begins = ops.ones(tuple(ordered.shape), dtype=_INT64, device=self.device)
    begins[..., 1:] = ((this != last) & ((this == this) | (last == last))).to(_INT64)      # NaN counts as equal to NaN
    best = (at - (begins * at).cummax(-1)[0]).argmax(-1, keepdim=True)
    shape = tuple(values.shape)
    values.copy_(ordered.gather(-1, best).movedim(-1, dim).reshape(shape))
    indices.copy_(places.gather(-1, best).movedim(-1, dim).reshape(shape))


def _histogram(self: Any, edges: Any, weight: Any) -> Any:
    x, bins = self.reshape(-1), edges.numel() - 1
    inside = (x >= edges[0]) & (x <= edges[-1])              # not NaN either
    bin = (ops.searchsorted(edges, x, right=True) - 1).clamp(0, max(bins - 1, 0))
    amount = inside.to(self.dtype) if weight is None else ops.where(inside, weight.reshape(-1), 0.0)
    return ops.zeros((bins,), dtype=self.dtype, device=self.device).scatter_add(0, bin, amount)


def _unfold_backward(grad_in: Any, input_sizes: Any, dim: int, size: int, step: int) -> Any:
    if not input_sizes:
        return grad_in.reshape(())
    dim %= len(input_sizes)
    windows = ops.arange(grad_in.size(dim), device=grad_in.device) * step
    places = (windows.unsqueeze(-1) + ops.arange(size, device=grad_in.device)).reshape(-1)
    out = ops.zeros(list(input_sizes), dtype=grad_in.dtype, device=grad_in.device)
    return out.index_add(dim, places, grad_in.movedim(-1, dim + 1).flatten(dim, dim + 1))


def _count_nonzero(self: Any, dim: Any) -> Any:
    return (self != 0).sum(dim)


def _vdot(self: Any, other: Any) -> Any:
    return (self.conj_physical() * other).sum()


def _logcumsumexp(self: Any, dim: int) -> Any:
    if self.is_complex():
        raise NotImplementedError(f"[logcumsumexp] no kernel for npu in {self.dtype}")
    if self.dim() == 0 or self.numel() == 0:
        return self
    return scanned(self if self.dtype.itemsize > 2 else self.float(), dim, ops.logaddexp)


def scanned(x: Any, dim: int, function: Any) -> Any:
    """Running results of an associative function: each step, an item takes in twice as many of those before it."""
    step, n = 1, x.size(dim)
    while step < n:
        later = function(x.narrow(dim, 0, n - step), x.narrow(dim, step, n - step))
        x, step = ops.cat([x.narrow(dim, 0, step), later], dim), 2 * step
    return x


def _cumprod(input: Any, dim: Any, _dtype: Any) -> Any:
    return scanned(input, dim, ops.mul) if input.dim() else input


def _scatter_reduce(outs: Outs, args: Args) -> None:
    (out,), (_, dim, index, src, reduce, include_self) = outs, args      # out holds self
    _reduce_into(out, dim, index, src, reduce, include_self)


def _reduce_into(out: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool) -> None:
    number, function = _REDUCES[reduce]
    if aclnn.has("aclnnInplaceScatterReduce"):
        aclnn.call("aclnnInplaceScatterReduce", out, dim, index, src, number, include_self)
    elif index.numel():
        reduce_by_segments(out, dim, index, src, function, include_self, reduce == "mean")


def _index_reduce(outs: Outs, args: Args) -> None:
    (out,), (_, dim, index, source, reduce, include_self) = outs, args
    shape = [1] * source.dim()
    if shape:
        shape[dim] = index.numel()
    wide = index.reshape(shape).expand(source.shape).contiguous()
    _reduce_into(out, dim, wide, source, reduce, include_self)


def _index_fill(outs: Outs, args: Args) -> None:
    (out,), (_, dim, index, value) = outs, args
    if out.dim() == 0:
        out.fill_(value)
    elif index.numel():
        if out.dtype._name in _FILLED:
            aclnn.call("aclnnInplaceIndexFillTensor", out, dim, index.reshape(-1).tolist(), value)
            return
        mask = ops.zeros((out.size(dim),), dtype=_BOOL, device=out.device)
        mask[index.reshape(-1)] = True
        out.masked_fill_(mask.reshape([-1 if d == dim % out.dim() else 1 for d in range(out.dim())]), value)


def _unique2(self: Any, sorted: bool, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    options = True, return_inverse or return_counts, return_counts
    return _unique("aclnnUnique2", self, options, return_inverse, return_counts)


def _unique_runs(self: Any, return_inverse: bool, return_counts: bool) -> tuple[Any, Any, Any]:
    options = return_inverse, return_counts, _ALL_ITEMS
    return _unique("aclnnUniqueConsecutive", self, options, return_inverse, return_counts)


def _unique_slices(self: Any, dim: int, consecutive: bool) -> tuple[Any, Any, Any]:
    self = self.contiguous()
    out = ops.empty(tuple(self.shape), dtype=self.dtype, device=self.device)
    places, repeats = (ops.empty((self.size(dim),), dtype=_INT64, device=self.device) for _ in range(2))
    name = "aclnnUniqueConsecutive" if consecutive else "aclnnUniqueDim"
    shape = dynamic(name, self.device.index, (self, True, True, dim, out, places, repeats))[0]
    return out.flatten()[:math.prod(shape)].reshape(shape).clone(), places, repeats[:shape[dim]].clone()


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


BODIES = {
    "_histogram": Body(value=_histogram),
    "_unique2": Body(sized=_unique2),
    "_unique_runs": Body(sized=_unique_runs),
    "_unique_slices": Body(sized=_unique_slices),
    "all": Body(kernel=_truth("aclnnAll")),
    "any": Body(kernel=_truth("aclnnAny")),
    "argmax": Body(kernel=_place("aclnnArgMax")),
    "argmin": Body(kernel=_place("aclnnArgMin")),
    "count_nonzero": Body(value=_count_nonzero),
    "cumprod": Body(fallback=_cumprod),
    "index_fill.Scalar": Body(kernel=_index_fill),
    "index_reduce": Body(kernel=_index_reduce),
    "logcumsumexp": Body(value=_logcumsumexp),
    "mode": Body(kernel=_mode),
    "prod": Body(kernel=_prod),
    "scatter_reduce": Body(kernel=_scatter_reduce),
    "std.correction": Body(kernel=_moments("aclnnStd", True)),
    "std_mean.correction": Body(kernel=_moments("aclnnStdMeanCorrection", True)),
    "unfold_backward": Body(value=_unfold_backward),
    "var.correction": Body(kernel=_moments("aclnnVarCorrection", False)),
    "var_mean.correction": Body(kernel=_moments("aclnnVarMean", False)),
    "vdot": Body(value=_vdot),
}
