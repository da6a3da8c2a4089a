"""Rows of statistics: quantiles, histograms, counts and covariances."""
from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.reduce import INT64, is_float, reduced, word
from mindtorch_v2._ops.returns import return_types
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

_FLOAT32, _FLOAT64 = _C._dtype_named("float32"), _C._dtype_named("float64")


# ---- quantiles ---------------------------------------------------------------------------------------------------
_MODES = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(self: Tensor, q: Any, interpolation: str) -> None:
    if interpolation not in _MODES:
        raise RuntimeError("quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but "
                           f"got {interpolation}")
    if self.numel() == 0:
        raise RuntimeError("quantile() input tensor must be non-empty")
    if self.dtype is not _FLOAT32 and self.dtype is not _FLOAT64:
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    if q.dim() > 1:
        raise RuntimeError("quantile() q must be a scalar or 1D tensor")
    if q.dtype is not self.dtype:
        raise RuntimeError("quantile() q tensor must be same dtype as the input tensor")
    if q._readable and not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError("quantile() q values must be in the range [0, 1]")


_MOST_ITEMS = 2**24                         # of one row of a quantile, as in torch


def _quantile_of(self: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, skip_nan: bool) -> Tensor:
    _check_quantile(self, q, interpolation)
    rank = self.dim()
    if (self.numel() if dim is None or not rank else self.size(dim)) > _MOST_ITEMS:
        raise RuntimeError("quantile() input tensor is too large")
    if dim is None:
        rows, left = self.reshape(-1), [1] * rank if keepdim else []
    else:
        dim = wrap(dim, rank)
        rows = self.unsqueeze(-1).transpose(dim, -1).squeeze(dim) if rank else self.reshape(1)
        left = [n for d, n in enumerate(self.shape) if d != dim]
        if keepdim and rank:
            left.insert(dim, 1)
    rows = ops.sort(rows, -1)[0]
    last = rows.size(-1) - 1
    flat_q = q.reshape(-1)
    if skip_nan:
        ranks = flat_q * ((~rows.isnan()).sum(-1, True) - 1).clamp(min=0).to(q.dtype)
    else:
        ranks = (flat_q * last).expand(list(rows.shape[:-1]) + [flat_q.numel()])
        ranks = ops.where(rows.isnan().any(-1, True), float(last), ranks)
    result = _between(rows, ranks, interpolation)
    result = result.unsqueeze(0).transpose(0, -1).squeeze(-1)
    return result.reshape(left) if q.dim() == 0 else result.reshape([flat_q.numel()] + left)


def _between(rows: Tensor, ranks: Tensor, interpolation: str) -> Tensor:
    """The items at fractional ranks of sorted rows."""
    if interpolation == "lower":
        ranks = ranks.floor()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    elif interpolation == "nearest":
        ranks = ranks.round()
    below = ranks.to(INT64)
    low = rows.gather(-1, below)
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = 0.5 if interpolation == "midpoint" else ranks - below
    high = rows.gather(-1, ranks.ceil().to(INT64))
    if interpolation == "midpoint":
        weight = ops.full_like(ranks, 0.5)
    return ops.lerp(low, high, weight)


_OUT_DTYPE = "quantile() out tensor must be same dtype as the input tensor"
for _name, _skip in (("quantile", False), ("nanquantile", True)):
    def _quantile(self: Tensor, q: Tensor, dim: int | None, keepdim: bool, interpolation: str,
                  _skip: bool = _skip) -> Tensor:
        return _quantile_of(self, q, dim, keepdim, interpolation, _skip)

    def _quantile_number(self: Tensor, q: float, dim: int | None, keepdim: bool, interpolation: str,
                         _skip: bool = _skip) -> Tensor:
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}")
        q = ops.scalar_tensor(q, dtype=self.dtype, device=self.device)
        return _quantile_of(self, q, dim, keepdim, interpolation, _skip)

    op(f"{_name}(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear') -> Tensor",
       body=_quantile, out=_OUT_DTYPE, autocast={"cpu": "float32"},
       doc="The q-th quantiles along dim, between neighbours as interpolation says.")
    op(f"{_name}.scalar(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear') "
       "-> Tensor", body=_quantile_number, out=_OUT_DTYPE)


# ---- counting ----------------------------------------------------------------------------------------------------
def _histc_rule(self: Tensor, bins: int, min: float, max: float) -> Spec:
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    return (bins,), self.dtype


op("_histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", kernel="histc", variants="",
   rule=_histc_rule, npu="aclnnHistc(self, bins, min, max, out)")
op("_bincount(Tensor self, Tensor? weights, int size) -> Tensor", kernel="bincount", variants="",
   rule=lambda self, weights, size: _bincount_rule(self, weights, size),
   npu="aclnnBincount(self, weights, size, out)")
op("_histogram(Tensor self, Tensor edges, Tensor? weight) -> Tensor", kernel="histogram_edges", variants="",
   rule=lambda self, edges, weight: _edges_rule(self, edges, weight))


def _bincount_rule(self: Tensor, weights: Tensor | None, size: int) -> Spec:
    if weights is not None and weights.numel() != self.numel():
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return (size,), INT64 if weights is None else _sum_dtype(weights.dtype)


def _edges_rule(self: Tensor, edges: Tensor, weight: Any) -> Spec:
    if edges.dim() != 1 or edges.numel() == 0:
        raise RuntimeError("torch.histogramdd: bins tensor should have one dimension and at least one element")
    if weight is not None and weight.numel() != self.numel():
        raise RuntimeError("torch.histogramdd: weight should have as many elements as the input")
    return (edges.size(0) - 1,), self.dtype


def _sum_dtype(dtype: _C.dtype) -> _C.dtype:
    return _FLOAT32 if dtype is _FLOAT32 else _FLOAT64


@composite("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
def _histc(self: Tensor, bins: int, min: float, max: float) -> Tensor:
    """How many items fall into each of equal bins between min and max (both 0: the range of the items)."""
    if not self.is_floating_point() and self.is_cpu:         # torch's devices count integers, its cpu does not
        raise NotImplementedError(f'"histogram_cpu" not implemented for \'{word(self.dtype)}\'')
    for limit in (min, max):
        core._check_fits(limit, self.dtype)
    return ops._histc(self.detach(), bins, min, max)


@composite("bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor", out=False)
def _bincount(self: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    """How often (or with which total weight) each number from 0 on occurs."""
    if is_float(self.dtype) or self.dtype._name == "bool":
        raise NotImplementedError(f'"bincount_cpu" not implemented for \'{word(self.dtype)}\'')
    if self.dim() != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and (weights.dim() != 1 or weights.size(0) != self.size(0)):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    if self.numel() == 0:
        return ops.zeros((minlength,), dtype=INT64, device=self.device)
    if int(self.min()) < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    return ops._bincount(self, None if weights is None else weights.detach(), max(int(self.max()) + 1, minlength))


def _histogram_of(self: Tensor, edges: Tensor, weight: Any, density: bool) -> tuple[Tensor, ...]:
    if weight is not None and weight.numel() != self.numel():
        raise _weight_error(self, weight)
    counts = ops._histogram(self.detach(), edges, None if weight is None else weight.reshape(self.shape))
    if density:
        counts = counts / (counts.sum() * (edges[1:] - edges[:-1]))
    return _RESULT((counts, edges))


def _weight_error(points: Any, weight: Any) -> Any:
    return RuntimeError("torch.histogramdd: if weight tensor is provided it should have the same shape as the input "
                        f"tensor excluding its innermost dimension, but got input with shape {list(points.shape)} and "
                        f"weight with shape {list(weight.shape)}")


def _check_extremes(self: Tensor, range: Any) -> None:
    """torch has no kernel for the least and largest items of halves."""
    if range is None and self.dtype.itemsize < 4:
        raise NotImplementedError(f'"histogramdd" not implemented for \'{word(self.dtype)}\'')


def _check_histogram(self: Tensor) -> None:
    if not self.is_floating_point():
        raise NotImplementedError(f'"histogram_cpu" not implemented for \'{word(self.dtype)}\'')


@composite("histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> "
           "(Tensor hist, Tensor bin_edges)", whole=True)
def _histogram_edges(self: Tensor, bins: Tensor, weight: Tensor | None, density: bool) -> tuple[Tensor, ...]:
    """The counts of items between edges (or in a number of equal bins), and the edges."""
    if bins.dim() != 1:
        raise RuntimeError(f"torch.histogramdd: bins tensor should have one dimension, but got {bins.dim()} "
                           "dimensions in the bins tensor for dimension 0")
    if bins.dtype is not self.dtype:
        raise RuntimeError("torch.histogramdd: input tensor and bins tensors should have the same dtype, but got "
                           f"input with dtype {core._c_word(self.dtype)} and bins for dimension 0 with dtype "
                           f"{core._c_word(bins.dtype)}")
    if bins.numel() == 0:
        raise RuntimeError("torch.histogram(): bins tensor should have at least 1 element, but got 0 elements in "
                           "the bins tensor for dimension 0")
    _check_histogram(self)
    return _histogram_of(self, bins.clone(), weight, density)


@composite("histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, "
           "bool density=False) -> (Tensor hist, Tensor bin_edges)", whole=True)
def _histogram_bins(self: Tensor, bins: int, range: Sequence[float] | None, weight: Tensor | None,
                    density: bool) -> tuple[Tensor, ...]:
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    _check_histogram(self)
    _check_extremes(self, range)
    low, high = _range_of(self, range)
    return _histogram_of(self, ops.linspace(low, high, bins + 1, dtype=self.dtype, device=self.device), weight, density)


def _range_of(self: Tensor, range: Any) -> tuple[float, ...]:
    if range is not None:
        if len(range) != 2:
            raise RuntimeError("torch.histogramdd: for a 1-dimensional histogram range should have 2 elements, but "
                               f"got {len(range)}")
        low, high = range
    elif self.numel() == 0 or self.is_meta:
        low, high = 0.0, 1.0
    else:
        low, high = self.min().item(), self.max().item()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histogramdd: dimension 0's range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(f"torch.histogramdd: min should not exceed max, but got min {low:g} max {high:g} for "
                           "dimension 0")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


_RESULT = return_types["histogram"]


def _grid(self: Tensor, bins: Any, range: Any, weight: Any) -> list[Tensor]:
    """The edges of histogramdd's cells along each axis."""
    if self.dim() < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    axes = self.size(-1)
    bins = (bins,) * axes if isinstance(bins, int) else tuple(bins)
    if len(bins) != axes:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    for d, edge in enumerate(bins):
        _check_edges(self, edge, d)
    if weight is not None and weight.shape != self.shape[:-1]:
        raise _weight_error(self, weight)
    if range is not None and len(range) != 2 * axes:
        raise RuntimeError(f"torch.histogramdd: for a {axes}-dimensional histogram range should have {2 * axes} elements, "
                           f"but got {len(range)}")
    if not self.is_floating_point():
        raise NotImplementedError(f'"histogramdd" not implemented for \'{word(self.dtype)}\'')
    if any(not hasattr(edge, "dtype") for edge in bins):
        _check_extremes(self, range)
    points = self.detach().reshape(-1, axes)
    return [b if hasattr(b, "dtype") else
            ops.linspace(*_range_of(points[:, d], None if range is None else range[2 * d:2 * d + 2]), b + 1,
                         dtype=self.dtype, device=self.device) for d, b in enumerate(bins)]


def _check_edges(self: Tensor, edge: Any, d: Any) -> None:
    if not hasattr(edge, "dtype"):
        if edge <= 0:
            raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {edge} for dimension {d}")
        return
    if edge.dtype is not self.dtype:
        raise RuntimeError("torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with "
                           f"dtype {word(self.dtype)} and bins for dimension {d} with dtype {word(edge.dtype)}")
    if edge.dim() != 1:
        raise RuntimeError(f"torch.histogramdd: bins tensor should have one dimension, but got {edge.dim()} dimensions in "
                           f"the bins tensor for dimension {d}")
    if edge.numel() == 0:
        raise RuntimeError("torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins "
                           f"tensor for dimension {d}")
    if edge.numel() == 1:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got 0 for dimension {d}")


@composite("histogramdd(Tensor self, any bins, float[]? range=None, Tensor? weight=None, bool density=False) -> "
           "(Tensor hist, Tensor[] bin_edges)", out=False, variants="function", whole=True)
def _histogramdd(self: Tensor, bins: Sequence[Tensor | int], range: Sequence[float] | None, weight: Tensor | None,
                 density: bool) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The counts of points (along the last dim) in the cells of a grid, and the edges along each axis."""
    edges = _grid(self, bins, range, weight)
    points = self.detach().reshape(-1, self.size(-1))
    cell: Any = 0
    inside: Any = True
    cells = 1
    for d, edge in enumerate(edges):
        values, n = points[:, d].contiguous(), edge.numel() - 1
        inside = inside & (values >= edge[0]) & (values <= edge[-1])
        cell = cell * n + (ops.searchsorted(edge, values, right=True) - 1).clamp(0, max(n - 1, 0))
        cells *= n
    kept = ops.ones_like(points[:, 0]) if weight is None else weight.reshape(-1).to(self.dtype)
    counts = ops.zeros((cells,), dtype=self.dtype, device=self.device)
    counts = counts.index_add(0, cell[inside], kept[inside]).reshape([e.numel() - 1 for e in edges])
    if density:
        counts = counts / counts.sum()
        for d, edge in enumerate(edges):
            counts = counts / edge.diff().reshape([-1 if a == d else 1 for a, _ in enumerate(edges)])
    return return_types["histogramdd"]((counts, tuple(edges)))


# ---- covariance --------------------------------------------------------------------------------------------------
@composite("cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor", out=False)
def _cov(self: Tensor, correction: int, fweights: Tensor | None, aweights: Tensor | None) -> Tensor:
    """The covariance matrix of variables in rows, observations in columns."""
    if self.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {self.dim()} "
                           "dimensions")
    if self.dtype is _C._dtype_named("bool"):
        raise RuntimeError("cov(): bool dtype is not supported for input")
    rows = self.reshape(1, -1) if self.dim() < 2 else self
    count = rows.size(1)
    weights = _cov_weights(rows, fweights, aweights)
    if weights is None:
        total: Any = count
        mean = (rows if is_float(rows.dtype) else rows.to(_C.get_default_dtype())).mean(1, True)
    else:
        total = weights.sum()
        if weights._readable and not total:
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        mean = (rows * weights).sum(1, True) / total
    if weights is None or correction == 0 or aweights is None:
        norm = total - correction
    else:
        used = aweights if fweights is None else aweights * fweights
        norm = total - correction * (weights * aweights).sum() / used.sum()
    if self._readable and getattr(norm, "_readable", True) and norm <= 0:
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
                      stacklevel=2)
    if not hasattr(norm, "dtype"):
        norm = max(norm, 0)
    else:
        norm = norm.clamp(min=0)
    centred = rows - mean
    other = centred if weights is None else centred * weights
    found = ops.matmul(centred, conj(other.t())) / norm
    return found.squeeze() if self.dim() < 2 else found.squeeze() if rows.size(0) == 1 else found


def _cov_weights(rows: Tensor, fweights: Tensor | None, aweights: Tensor | None) -> Tensor | None:
    for name, weights in (("fweights", fweights), ("aweights", aweights)):
        if weights is None:
            continue
        if weights.dim() > 1:
            raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with "
                               f"{weights.dim()} dimensions")
        if (name == "fweights") == is_float(weights.dtype):
            kind = "integral" if name == "fweights" else "floating point"
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {word(weights.dtype)} "
                               "dtype")
        if weights.numel() != rows.size(1):
            raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the "
                               f"input but got {weights.numel()} != {rows.size(1)}")
        if weights.numel() and weights._readable and bool((weights < 0).any()):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is None or aweights is None:
        return fweights if aweights is None else aweights
    return fweights * aweights


@composite("corrcoef(Tensor self) -> Tensor", out=False)
def _corrcoef(self: Tensor) -> Tensor:
    """The correlation matrix of variables in rows, observations in columns."""
    if self.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions but got an input with "
                           f"{self.dim()} dimensions")
    found = self.cov()
    if found.dim() == 0:
        return found / found
    spread = found.diagonal()
    spread = (spread.real if spread.is_complex() else spread).sqrt()
    found = found / spread.unsqueeze(1) / spread.unsqueeze(0)
    return ops.complex(found.real.clamp(-1, 1), found.imag.clamp(-1, 1)) if found.is_complex() else found.clamp(-1, 1)


# ---- checksums ---------------------------------------------------------------------------------------------------
@composite("hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor")
def _hash_tensor(self: Tensor, dim: Sequence[int], keepdim: bool, mode: int) -> Tensor:
    """The exclusive or of all items, as the bits of a 64-bit number: of doubles, of integers."""
    if mode & 0xffffffff:                                     # torch reads an int of 32 bits
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    if self.is_complex():
        raise NotImplementedError(f"\"xor_sum_cpu\" not implemented for '{word(self.dtype)}'")
    self = self.resolve_neg()
    long = _C._dtype_named("int64")
    wide = self.to(_C._dtype_named("float64")).view(long) if self.is_floating_point() else \
        self.view(long) if self.dtype._name == "uint64" else self.to(long)
    dims = (dim,) if isinstance(dim, int) else dim
    for d in dims:
        if self.dim() and not self.shape[wrap(d, self.dim())]:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    shape = reduced(self.shape, dim, keepdim)
    gone = [wrap(d, self.dim()) for d in dims] if dims else list(range(self.dim()))
    rest = [d for d in range(self.dim()) if d not in gone]
    if not dims and not self.numel():
        raise RuntimeError("hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction "
                           "dim with the 'dim' argument.")
    count = math.prod(self.shape[d] for d in gone) if self.dim() else 1
    items = wide.permute(rest + gone).reshape([*(self.shape[d] for d in rest), count]) if self.dim() else wide.reshape(1)
    while count > 1:
        half = count // 2
        folded = items.narrow(-1, 0, half) ^ items.narrow(-1, half, half)
        items = ops.cat([folded, items.narrow(-1, 2 * half, count % 2)], -1) if count % 2 else folded
        count = half + count % 2
    found = items.select(-1, 0) if count else ops.zeros(items.shape[:-1], dtype=long, device=self.device)
    return found.reshape(shape).view(_C._dtype_named("uint64"))
