"""Rows that reorder, repeat or cut out items: flips and rolls, triangles, repeat_interleave."""
from __future__ import annotations

from collections.abc import Sequence

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.index import INT32
from mindtorch_v2._ops.reduce import INT64
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

CONTIGUOUS = _C._named_constant("contiguous_format")


# ---- flips and rolls ---------------------------------------------------------------------------------------------
def _flip_rule(self: Tensor, dims: Sequence[int]) -> Spec:
    seen = set()
    for d in dims:
        d = wrap(d, self.dim())
        if d in seen:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        seen.add(d)
    return self.shape, self.dtype


def _roll_rule(self: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int]) -> Spec:
    shifts = shifts if isinstance(shifts, (tuple, list)) else (shifts,)
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and not (len(shifts) == 1 and not dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    for d in dims:
        if self.dim() == 0:
            raise IndexError(f"Dimension specified as {d} but tensor has no dimensions")
        wrap(d, self.dim())
    return self.shape, self.dtype


def _opposite(shifts: int | list[int]) -> int | tuple[int, ...]:
    return tuple(-s for s in shifts) if isinstance(shifts, (tuple, list)) else -shifts


op("flip(Tensor self, int[] dims) -> Tensor", lacks="complex32",
   batch=batching.flipped, forward=forward.linear, out=False, rule=_flip_rule, format="=self", npu="aclnnFlip(self, dims, out)",
   grad={"self": lambda g, dims: g.flip(dims)})
op("roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
   batch=batching.rolled, forward=forward.linear, out=False, rule=_roll_rule, format="self",
   npu="aclnnRoll(self, shifts, dims, out)", grad={"self": lambda g, shifts, dims: g.roll(_opposite(shifts), dims)})


@composite("fliplr(Tensor self) -> Tensor", out=False)
def _fliplr(self: Tensor) -> Tensor:
    """The columns in reverse order."""
    if self.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return self.flip(1)


@composite("flipud(Tensor self) -> Tensor", out=False)
def _flipud(self: Tensor) -> Tensor:
    """The rows in reverse order."""
    if self.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return self.flip(0)


@composite("rot90(Tensor self, int k=1, int[] dims=[0,1]) -> Tensor", out=False)
def _rot90(self: Tensor, k: int, dims: tuple[int, ...]) -> Tensor:
    """self turned by 90 degrees k times, from the first of two dims towards the second."""
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    rank = self.dim()
    if rank < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {rank}")
    for d in dims:
        wrap(d, rank)
    if dims[0] == dims[1] or abs(dims[0] - dims[1]) == rank:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    if k % 4 == 0:
        return self.clone()
    if k % 4 == 2:
        return self.flip(dims)
    return self.flip(dims[1] if k % 4 == 1 else dims[0]).transpose(dims[0], dims[1])


# ---- triangles ---------------------------------------------------------------------------------------------------
for _name, _camel in (("tril", "Tril"), ("triu", "Triu")):
    def _triangle_rule(self: Tensor, diagonal: int, _name: str = _name) -> Spec:
        if self.dim() < 2:
            raise RuntimeError(f"{_name}: input tensor must have at least 2 dimensions")
        return self.shape, self.dtype

    op(f"{_name}(Tensor self, SymInt diagonal=0) -> Tensor",
       batch=batching.leading, forward=forward.linear, inplace="method",
       rule=lambda self, diagonal, _rule=_triangle_rule: _rule(self, diagonal),
       npu=f"aclnn{_camel}(self, diagonal, out)",
       grad={"self": (lambda g, diagonal: g.tril(diagonal)) if _name == "tril" else
             (lambda g, diagonal: g.triu(diagonal))})
    op(f"_{_name}_indices(int row, int col, int offset=0) -> Tensor", kernel=f"{_name}_indices", variants="",
       rule=lambda row, col, offset, _lower=_name == "tril": ((2, _triangle_size(row, col, offset, _lower)), INT64))

    def _triangle_indices(row: int, col: int, offset: int, dtype: _C.dtype | None, layout: _C.layout | None,
                          device: _C.device | None, pin_memory: bool | None, _name: str = _name) -> Tensor:
        if row < 0 or col < 0:
            which, n = ("row", row) if row < 0 else ("col", col)
            raise RuntimeError(f"{which} must be non-negative, got{n}")
        if dtype is not None and dtype._name not in ("int32", "int64"):
            raise NotImplementedError(f'"{_name}_indices" not implemented for \'{_C.TYPE_WORDS[dtype._id]}\'')
        if device is not None and ops.empty((0,), device=device).is_npu:     # found there, not brought there
            whole = ops.ones((row, col), dtype=_C._dtype_named("bool"), device=device)
            return getattr(whole, _name)(offset).nonzero().t().to(dtype or INT64)
        return getattr(ops, f"_{_name}_indices")(row, col, offset).to(device, dtype or INT64)

    op(f"{_name}_indices(int row, int col, int offset=0, *, ScalarType? dtype=long, Layout? layout=None, "
       "Device? device=None, bool? pin_memory=None) -> Tensor", variants="function", out=False, body=_triangle_indices,
       doc="The indices of a triangle of a matrix: a row of row numbers, and one of column numbers.")


def _triangle_size(row: int, col: int, offset: int, lower: bool) -> int:
    first = offset + lower                                 # how many of row 0 lie below, were it not for the edges
    start, full = min(max(-first, 0), row), min(max(col - first, 0), row)
    below = (full - start) * (2 * first + start + full - 1) // 2 + (row - full) * col
    return below if lower else row * col - below


# ---- repeats -----------------------------------------------------------------------------------------------------
op("_repeat_index(Tensor repeats, int output_size) -> Tensor", kernel="repeat_interleave_index", variants="",
   rule=lambda repeats, output_size: ((output_size,), INT64),
   npu="aclnnRepeatInterleaveTensor(repeats, output_size, out)")


@composite("repeat_interleave.Tensor(Tensor repeats, *, int? output_size=None) -> Tensor", out=False, whole=True)
def _repeat_index(repeats: Tensor, output_size: int | None) -> Tensor:
    """Items repeated one by one; of a single tensor, each index as often as it says."""
    if repeats.dtype is not INT64 and repeats.dtype is not INT32:
        raise NotImplementedError(f'"repeat_interleave_cpu" not implemented for \'{_C.TYPE_WORDS[repeats.dtype._id]}\'')
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.numel() == 0:
        return ops.empty((0,), dtype=repeats.dtype, device=repeats.device)
    if repeats._readable and bool((repeats < 0).any()):
        raise RuntimeError("repeats can not be negative")
    size = int(repeats.sum()) if output_size is None or repeats.is_cpu else output_size     # elsewhere it would make us wait
    if output_size not in (None, size):
        raise RuntimeError("allocated size does not match required size")
    return ops._repeat_index(repeats, size).to(repeats.dtype)


@composite("repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, int? output_size=None) "
           "-> Tensor", out=False)
def _repeat_interleave(self: Tensor, repeats: Tensor, dim: int | None, output_size: int | None) -> Tensor:
    if dim is None:
        self, dim = self.flatten(), 0
    if repeats.dim() > 1:
        raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
    items = self.size(dim)                                   # of a tensor without dims an IndexError, as in torch
    if repeats.numel() == 1 and repeats.dim() <= 1:
        repeats = repeats.reshape(1).expand(items)
    elif repeats.numel() != items:
        raise RuntimeError("repeats must have the same size as input along dim, but got repeats.size(0) = "
                           f"{repeats.numel()} and input.size({dim}) = {items}")
    return self.index_select(dim, ops.repeat_interleave(repeats, output_size=output_size))


@composite("repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, int? output_size=None) -> Tensor",
           out=False)
def _repeat_interleave_int(self: Tensor, repeats: int, dim: int | None, output_size: int | None) -> Tensor:
    if dim is None:
        self, dim = self.flatten(), 0
    dim = wrap(dim, self.dim())
    if repeats < 0:
        raise RuntimeError("Repeats must be non-negative")
    if self.dim() == 0:
        self = self.reshape(1)
    shape = list(self.shape)
    wide = self.unsqueeze(dim + 1).expand(shape[:dim + 1] + [repeats] + shape[dim + 1:])
    return wide.clone(memory_format=CONTIGUOUS).flatten(dim, dim + 1)


# ---- windows -----------------------------------------------------------------------------------------------------
def _unfold_backward_rule(grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Spec:
    windows = list(input_sizes) or [1]
    dim = wrap(dim, len(windows))
    if step <= 0 or not 0 <= size <= windows[dim]:
        raise RuntimeError(f"unfold_backward: no windows of size {size} and step {step} in {list(input_sizes)}")
    windows[dim] = (windows[dim] - size) // step + 1
    if list(grad_in.shape) != (windows + [size] if len(input_sizes) else [size]):
        raise RuntimeError(f"unfold_backward: a gradient of shape {list(grad_in.shape)} does not fit {windows + [size]}")
    return input_sizes, grad_in.dtype


op("unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, SymInt size, SymInt step) -> Tensor", variants="",
   batch=batching_nn.unfold_slope,
   rule=lambda grad_in, input_sizes, dim, size, step: _unfold_backward_rule(grad_in, input_sizes, dim, size, step),
   grad={"grad_in": lambda g, dim, size, step: g.unfold(dim, size, step)})
