"""Nested tensors of the jagged layout: sequences of different lengths as one dense tensor of values and their offsets.

The class answers its ops itself, as that of sparse tensors does. It has no history of its own: its values have.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._nested_int import NestedInt, size_of
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._shape import Size
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl

JAGGED = _C._named_constant("jagged")
INT64 = _C._dtype_named("int64")
_bodies: dict[str, Callable[..., Any]] = {}


class NestedTensor(Tensor):
    """A batch of tensors that differ in one dim: `values()` has them one after the other, `offsets()` where each begins."""

    __torch_function__: Any = _disabled_torch_function_impl
    _owner: Any
    _values: Any
    _offsets: Any
    _ragged_idx: int
    _lengths: Any
    _ragged_size: NestedInt
    is_nested = True

    def __new__(cls, values: Any, offsets: Any, *, lengths: Any = None, _ragged_idx: int = 1, **_: Any) -> Any:
        return make(values, offsets, lengths, _ragged_idx)

    @staticmethod
    def interpose(op: Any, row: Any, slots: tuple[Any, ...], out: Any) -> Any:
        return _answer(op, row, slots, out)

    # ---- what it is
    @property
    def layout(self) -> Any:
        return JAGGED

    @property
    def shape(self) -> Any:
        sizes = list(self._values.shape)
        sizes[self._ragged_idx - 1] = self._ragged_size
        return tuple.__new__(Size, (self._offsets.shape[0] - 1, *sizes))

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[_wrap(dim, self.dim())]

    def numel(self) -> int:
        return self._values.numel()

    def values(self) -> Any:
        return self._values

    def offsets(self) -> Any:
        return self._offsets

    def lengths(self) -> Any:
        return self._lengths

    def __len__(self) -> int:
        return self._offsets.shape[0] - 1

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._ragged_idx == 1 and self._values.is_contiguous()

    @property
    def _readable(self) -> bool:
        return False

    def _fresh(self) -> Any:
        return _like(self, self._values.detach())

    def __repr__(self, **kwargs: Any) -> str:    # type: ignore[override]
        grad = f", grad_fn={self.grad_fn}" if self.grad_fn is not None else ", requires_grad=True" * self.requires_grad
        sizes = tuple(self.shape)
        return f"NestedTensor(size={sizes}, offsets={self._offsets}{grad}, contiguous={self.is_contiguous()})"

    def _unsupported(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a NestedTensor has no memory of its own; use .values() or .to_padded_tensor()")

    numpy = tolist = __array__ = data_ptr = untyped_storage = storage = resize_ = set_ = _unsupported

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        if index and isinstance(index[0], int):
            row = self.unbind()[index[0]]
            return row[index[1:]] if index[1:] else row
        if index and isinstance(index[0], slice):
            raise RuntimeError(f"{ops.slice.name}(): not supported for NestedTensor on dim=0")
        if index.count(Ellipsis) == 1:
            at = index.index(Ellipsis)
            index = (*index[:at], *(slice(None),) * (self.dim() - len(index) + 1), *index[at + 1:])
        for d, item in enumerate(index[:self._ragged_idx + 1]):
            if item != slice(None):
                where = f"dim={d}" if d != self._ragged_idx else "ragged dim"
                raise RuntimeError(f"{ops.slice.name}(): not supported for NestedTensor on {where}")
        return _like(self, self._values[index[1:]]) if index[1:] else self

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if not self.is_leaf:
            return Tensor.__deepcopy__(self, memo)
        if id(self) not in memo:
            lengths = None if self._lengths is None else self._lengths.clone()
            copied = make(self._values.detach().clone(), self._offsets.clone(), lengths, self._ragged_idx)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (self._values.detach(), self._offsets, self._lengths, self._ragged_idx, self.requires_grad)

    @property
    def _max_seqlen(self) -> int:
        return int(self._counts().max())

    @property
    def _min_seqlen(self) -> int:
        return int(self._counts().min())

    def _counts(self) -> Any:
        return _counts(self) if self._lengths is None else self._lengths

    # ---- history: that of the values
    @property
    def requires_grad(self) -> bool:
        return self._values.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._values.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        self._values.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        return None if self._values.grad is None else _like(self, self._values.grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._values.grad = None if value is None else value._values

    @property
    def grad_fn(self) -> Any:
        return self._values.grad_fn

    @property
    def is_leaf(self) -> bool:
        return self._values.is_leaf

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        self._values.backward(gradient._values if type(gradient) is NestedTensor else gradient, *args, **kwargs)


NestedTensor._owner = NestedTensor
JAGGED.owner = NestedTensor


def _wrap(dim: int, rank: int) -> int:
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank


def make(values: Any, offsets: Any, lengths: Any = None, ragged_idx: int = 1, size: NestedInt | None = None) -> Any:
    """A nested tensor over values, which has the sequences along its dim ragged_idx - 1."""
    made = _C._make_wrapper(NestedTensor, (offsets.shape[0] - 1, *values.shape), None, values.dtype, values.device)
    made._values, made._offsets, made._lengths, made._ragged_idx = values, offsets, lengths, ragged_idx
    made._ragged_size = size_of(offsets) if size is None else size
    return made


def narrowed(tensor: Any, starts: Any, lengths: Any) -> Any:
    """The part of each row of a dense tensor that begins at starts and has lengths items: a view of its memory."""
    count = tensor.shape[0]
    try:
        starts, lengths = starts.expand(count), lengths.expand(count)
    except RuntimeError:
        raise RuntimeError("When constructing a jagged nested tensor using narrow(), your start and length must be Tensors "
                           "that broadcast to input.shape[0]") from None
    begins = starts + tensor.shape[1] * ops.arange(count, dtype=INT64, device=tensor.device)
    offsets = ops.cat([begins, (begins[-1] + lengths[-1]).unsqueeze(0)])
    values = tensor.flatten(0, 1) if tensor.dim() > 1 else tensor
    if bool((begins[1:] == begins[:-1] + lengths[:-1]).all()):
        first, last = int(offsets[0]), int(offsets[-1])
        return make(values[first:last], offsets - first)
    return make(values, offsets, lengths)


def rebuild(values: Any, offsets: Any, lengths: Any, ragged_idx: int, requires_grad: bool) -> Any:
    """What pickle calls."""
    return make(values, offsets, lengths, ragged_idx).requires_grad_(requires_grad)


def _like(x: Any, values: Any, ragged_idx: int | None = None) -> Any:
    return make(values, x._offsets, x._lengths, ragged_idx or x._ragged_idx, x._ragged_size)


def from_list(tensors: list[Any], requires_grad: bool = False) -> Any:
    """A nested tensor of tensors that differ in one dim at most; their history stays."""
    if not tensors:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    first = tensors[0]
    if any(t.dim() != first.dim() for t in tensors):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dim")
    if any(t.dtype != first.dtype for t in tensors):
        raise RuntimeError("When constructing a nested tensor, all tensors in list must have the same dtype")
    if first.dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    differing = [d for d in range(first.dim()) if any(t.shape[d] != first.shape[d] for t in tensors)]
    if len(differing) > 1:
        raise RuntimeError("Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the "
                           "jagged layout only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), "
                           "with ragged * dim.")
    at = differing[0] if differing else 0
    counts = _C._from_data([0, *(t.shape[at] for t in tensors)], INT64, False)
    made = make(ops.cat(list(tensors), at), counts.cumsum(0).to(first.device), None, at + 1)
    return made.requires_grad_(True) if requires_grad else made


# ---- the layer -----------------------------------------------------------------------------------------------------
def _body(*of_ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the answer of nested tensors to ops."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _bodies.update(dict.fromkeys([op.name for op in of_ops], function))
        return function
    return enter


def _answer(op: Any, row: Any, slots: tuple[Any, ...], out: Any) -> Any:
    found = _bodies.get(op.name)
    if found is not None and out is None:
        return found(**dict(zip(row.names, slots)))
    if row.is_pointwise and out is None:
        return _pointwise(op, row, slots)
    if row.is_composite and out is None and op.inplace_of is None:
        return NotImplemented
    raise NotImplementedError(f"aten.{op.name}.{row.overload_name or 'default'}")


def _pointwise(op: Any, row: Any, slots: tuple[Any, ...]) -> Any:
    """Item by item on the values; nested operands must be of the same sequences, dense ones broadcast."""
    nested = [s for s in slots if type(s) is NestedTensor]
    first = nested[0]
    for other in nested[1:]:
        if other._offsets is not first._offsets or other._ragged_idx != first._ragged_idx:
            full = f"{op.name}.{row.overload_name or 'default'}"
            raise RuntimeError(f"cannot call binary pointwise function {full} with inputs of shapes {tuple(first.shape)} and "
                               f"{tuple(other.shape)}")
    dense = tuple(s._values if type(s) is NestedTensor else _aligned(s, first) if isinstance(s, TensorBase) else s
                  for s in slots)
    result = _C._call_bound(op, row, dense)
    return slots[0] if op.inplace_of is not None else _like(first, result)


def _aligned(t: Any, x: Any) -> Any:
    """A dense operand as it broadcasts with the values of x: one that has a batch goes to each item of its sequence."""
    if t.dim() < x.dim():
        if t.dim() >= x.dim() - x._ragged_idx and t.dim() > 0 and t.shape[t.dim() - (x.dim() - x._ragged_idx)] != 1:
            raise RuntimeError(f"NestedTensor: a dense operand of shape {list(t.shape)} cannot broadcast over the ragged dim")
        return t
    if t.shape[x._ragged_idx] != 1 and tuple(t.shape[:1]) == (len(x),) and t.shape[x._ragged_idx] == x._max_seqlen:
        at = x._ragged_idx - 1                   # padded: what lies beyond a sequence does not count
        return ops.cat([row.narrow(at, 0, n) for row, n in zip(t.unbind(0), x._counts().tolist())], at)
    if t.shape[x._ragged_idx] != 1:
        raise RuntimeError(f"NestedTensor: a dense operand of shape {list(t.shape)} cannot broadcast over the ragged dim")
    if t.shape[0] == 1:
        return t.squeeze(0)
    rows = t.squeeze(x._ragged_idx).repeat_interleave(_counts(x), 0)
    return rows.movedim(0, x._ragged_idx - 1)


def _counts(x: Any) -> Any:
    return x._offsets[1:] - x._offsets[:-1]


def _sequence_of(x: Any) -> Any:
    """The number of the sequence that each item along the ragged dim belongs to."""
    return ops.arange(len(x), dtype=INT64, device=x._offsets.device).repeat_interleave(_counts(x))


# ---- whole rows ------------------------------------------------------------------------------------------------------
@_body(ops.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    if input._ragged_idx == input.dim() - 1:
        raise RuntimeError("linear(): not supported for NestedTensor on the ragged dim")
    return _like(input, ops.linear(input._values, weight, bias))


@_body(ops.layer_norm)
def _layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
                cudnn_enable: bool = True) -> Any:
    if len(normalized_shape) >= input.dim() - input._ragged_idx:
        raise RuntimeError("layer_norm(): normalizing over ragged dim not supported for NestedTensor")
    return _like(input, ops.layer_norm(input._values, normalized_shape, weight, bias, eps))


@_body(ops.rms_norm)
def _rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    if len(normalized_shape) >= input.dim() - input._ragged_idx:
        raise RuntimeError("rms_norm(): normalizing over ragged dim not supported for NestedTensor")
    return _like(input, ops.rms_norm(input._values, normalized_shape, weight, eps))


@_body(ops.embedding)
def _embedding(weight: Any, indices: Any, **others: Any) -> Any:
    return _like(indices, ops.embedding(weight, indices._values, **others))


@_body(ops.matmul)
def _matmul(self: Any, other: Any) -> Any:
    if type(self) is NestedTensor and type(other) is not NestedTensor and other.dim() <= 2:
        return _like(self, ops.matmul(self._values, other))
    if type(self) is NestedTensor and type(other) is not NestedTensor and self._ragged_idx == self.dim() - 2:
        return _each(lambda a, b: ops.matmul(a, b), self, other)
    raise NotImplementedError("NestedTensor: matmul of these operands; the first may be nested, the second dense")


_body(ops.bmm)(lambda self, mat2: _matmul(self, mat2))


def _each(function: Callable[..., Any], *operands: Any) -> Any:
    """function on the sequences one by one; the results are joined along the ragged dim of the first operand."""
    first = operands[0]
    parts = [function(*items) for items in zip(*(x.unbind(0) for x in operands))]
    return _like(first, ops.cat(parts, first._ragged_idx - 1))


@_body(ops.scaled_dot_product_attention)
def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
               **others: Any) -> Any:
    if attn_mask is not None:
        raise NotImplementedError("scaled_dot_product_attention: attn_mask with nested tensors")
    if not all(type(t) is NestedTensor for t in (query, key, value)):
        raise NotImplementedError("scaled_dot_product_attention: nested and dense operands together")
    attend = ops.scaled_dot_product_attention
    return _each(lambda q, k, v: attend(q, k, v, None, dropout_p, is_causal, **others), query, key, value)


# ---- reductions ------------------------------------------------------------------------------------------------------
def _reduction(function: Any) -> None:
    name = function.name

    @_body(function)
    def reduce(self: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
        options = {} if dtype is None else {"dtype": dtype}
        if dim is None or not isinstance(dim, int) and len(dim) == 0:
            return function(self._values, **options)
        dims = sorted(_wrap(d, self.dim()) for d in ((dim,) if isinstance(dim, int) else dim))
        if 0 in dims:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
        if self._ragged_idx not in dims:
            if any(d < self._ragged_idx for d in dims) and not keepdim:
                raise RuntimeError(f"{name}(): not supported for NestedTensor before the ragged dim without keepdim")
            return _like(self, function(self._values, [d - 1 for d in dims], keepdim, **options))
        if dims != [self._ragged_idx]:
            raise RuntimeError(f"{name}(): not supported along a ragged and a non-ragged dim of a NestedTensor together")
        parts = [function(t, [self._ragged_idx - 1], keepdim, **options) for t in self.unbind(0)]
        return ops.stack(parts)


for _op in (ops.sum, ops.mean, ops.amax, ops.amin):
    _reduction(_op)


def _reduction_of_one_dim(function: Any) -> None:
    name = function.name

    @_body(function)
    def reduce(self: Any, dim: int | None = None, keepdim: bool = False, **options: Any) -> Any:
        given = {key: value for key, value in options.items() if value is not None}
        if dim is None:
            return function(self._values, **given)
        d = _wrap(dim, self.dim())
        if d == 0 or d < self._ragged_idx and not keepdim:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim={d}")
        if d != self._ragged_idx:
            return _of_parts(function(self._values, d - 1, keepdim, **given), lambda part: _like(self, part))
        parts = [function(t, d - 1, keepdim, **given) for t in self.unbind(0)]
        if isinstance(parts[0], TensorBase):
            return ops.stack(parts)
        return type(parts[0])(ops.stack(list(column)) for column in zip(*parts))


def _of_parts(found: Any, function: Callable[[Any], Any]) -> Any:
    """function of a tensor, or of each of a named tuple."""
    return function(found) if isinstance(found, TensorBase) else type(found)(function(part) for part in found)


for _op in (ops.max, ops.min, ops.prod, ops.argmax, ops.argmin):
    _reduction_of_one_dim(_op)


def _truth(function: Any) -> None:
    @_body(function)
    def reduce(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is not None:
            raise NotImplementedError(f"{function.name}(): of a NestedTensor only over all dims")
        return function(self._values)


_truth(ops.any)
_truth(ops.all)


def _along(function: Any) -> None:
    name = function.name

    @_body(function)
    def apply(self: Any, dim: int, dtype: Any = None, **others: Any) -> Any:
        d = _wrap(dim, self.dim())
        if d == 0:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
        if d == self._ragged_idx:
            return _each(lambda t: function(t, d - 1, dtype=dtype), self)
        return _like(self, function(self._values, d - 1, dtype=dtype))


for _op in (ops.softmax, ops.log_softmax):
    _along(_op)


# ---- shapes ----------------------------------------------------------------------------------------------------------
@_body(ops.transpose)
def _transpose(self: Any, dim0: int, dim1: int) -> Any:
    a, b, r = _wrap(dim0, self.dim()), _wrap(dim1, self.dim()), self._ragged_idx
    if 0 in (a, b):
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    return _like(self, self._values.transpose(a - 1, b - 1), b if a == r else a if b == r else r)


@_body(ops.permute)
def _permute(self: Any, dims: Any) -> Any:
    order = [_wrap(d, self.dim()) for d in dims]
    if not order or order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return _like(self, self._values.permute([d - 1 for d in order[1:]]), order.index(self._ragged_idx))


@_body(ops.squeeze)
def _squeeze(self: Any, dim: Any = None) -> Any:
    dims = [] if dim is None else [_wrap(d, self.dim()) for d in ((dim,) if isinstance(dim, int) else dim)]
    if not dims or any(d <= self._ragged_idx for d in dims):
        where = f"dim={dims[0]}" if dims else "all dims"
        raise RuntimeError(f"{ops.squeeze.name}(): not supported for NestedTensor on {where}")
    return _like(self, self._values.squeeze([d - 1 for d in dims]))


@_body(ops.expand)
def _expand(self: Any, size: Any, implicit: bool = False) -> Any:
    return self.view(tuple(size)) if tuple(size) != tuple(self.shape) else _like(self, ops.alias(self._values))


@_body(ops.unsqueeze)
def _unsqueeze(self: Any, dim: int) -> Any:
    d = _wrap(dim, self.dim() + 1)
    if d == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return _like(self, self._values.unsqueeze(d - 1), self._ragged_idx + (d <= self._ragged_idx))


@_body(ops.select)
def _select(self: Any, dim: int, index: int) -> Any:
    d = _wrap(dim, self.dim())
    if d == 0:
        return self.unbind(0)[index]
    if d <= self._ragged_idx:
        raise RuntimeError(f"{ops.select.name}(): not supported for NestedTensor on dim={d}")
    return _like(self, self._values.select(d - 1, index))


@_body(ops.view, ops.reshape)
def _view(self: Any, size: Any = None, shape: Any = None) -> Any:
    """(batch, …, ragged as -1 or its own size, …): only the dims around these change."""
    asked = list(size if size is not None else shape)
    if asked[0] not in (len(self), -1) or asked.count(-1) != 1 or asked[0] == -1:
        raise RuntimeError(f"view(): cannot view NestedTensor of shape {tuple(self.shape)} as {tuple(asked)}")
    return _like(self, self._values.reshape(asked[1:]), asked.index(-1))


@_body(ops.unbind)
def _unbind(self: Any, dim: int = 0) -> Any:
    if _wrap(dim, self.dim()) != 0:
        raise RuntimeError(f"{ops.unbind.name}(): only supported for NestedTensor on dim=0")
    bounds, at = self._offsets.tolist(), self._ragged_idx - 1
    counts = [b - a for a, b in zip(bounds, bounds[1:])] if self._lengths is None else self._lengths.tolist()
    return tuple(self._values.narrow(at, start, count) for start, count in zip(bounds, counts))


@_body(ops.cat)
def _cat(tensors: Any, dim: int = 0) -> Any:
    first = next(t for t in tensors if type(t) is NestedTensor)
    d = _wrap(dim, first.dim())
    if d <= first._ragged_idx:
        raise RuntimeError(f"{ops.cat.name}(): not supported for NestedTensor on dim={d}")
    if any(type(t) is not NestedTensor or t._offsets is not first._offsets for t in tensors):
        raise RuntimeError(f"{ops.cat.name}(): expected nested tensors of the same sequences")
    return _like(first, ops.cat([t._values for t in tensors], d - 1))


@_body(ops.split, ops.split_with_sizes, ops.chunk)
def _split(self: Any, dim: int = 0, **sizes: Any) -> Any:
    d = _wrap(dim, self.dim())
    if d <= self._ragged_idx:
        raise RuntimeError(f"{ops.split.name}(): not supported for NestedTensor on dim={d}")
    function = ops.chunk if "chunks" in sizes else ops.split
    return tuple(_like(self, part) for part in function(self._values, next(iter(sizes.values())), d - 1))


@_body(ops._masked_fill)
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    if type(mask) is not NestedTensor or mask._offsets is not self._offsets:
        raise RuntimeError("masked_fill(): expected a nested mask of the same sequences")
    return _like(self, ops._masked_fill(self._values, mask._values, value))


@_body(ops.fill_)
def _fill_(self: Any, value: Any) -> Any:
    self._values.fill_(value)
    return self


@_body(ops.zero_)
def _zero_(self: Any) -> Any:
    return _fill_(self, 0)


# These take the values as they take the tensor.
for _op in (ops.clone, ops.detach, ops.alias, ops._to_copy, ops.contiguous, ops.zeros_like, ops.ones_like, ops.empty_like,
            ops.rand_like, ops.randn_like, ops.full_like, ops.dropout):
    _bodies[_op.name] = lambda self=None, _op=_op, **others: _on_values(_op, self, others)


def _on_values(op: Any, self: Any, others: dict[str, Any]) -> Any:
    self = others.pop("input") if self is None else self
    others.pop("layout", None)
    return _like(self, op(self._values, **others))


@_body(ops.copy_)
def _copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    self._values.copy_(src._values if type(src) is NestedTensor else src, non_blocking)
    return self


@composite("to_padded_tensor(Tensor self, float padding, int[]? output_size=None) -> Tensor", variants="method", out=False)
def _padded_rows(self: Any, padding: float, output_size: Any) -> Any:
    """A nested tensor as a dense one, padded at the end of each sequence."""
    raise RuntimeError("to_padded_tensor: expected a nested tensor, got a dense one")


@_body(ops.to_padded_tensor)
def to_padded(self: Any, padding: float, output_size: Any = None) -> Any:
    rows = self.unbind(0)
    at = self._ragged_idx
    longest = max((t.shape[at - 1] for t in rows), default=0)
    sizes = [len(self), *self._values.shape]
    sizes[at] = longest
    sizes = list(output_size) if output_size is not None else sizes
    padded = []
    for t in rows:
        t = t.narrow(at - 1, 0, min(sizes[at], t.shape[at - 1]))
        shape = list(t.shape)
        shape[at - 1] = sizes[at] - shape[at - 1]
        padded.append(ops.cat([t, ops.full(shape, padding, dtype=t.dtype, device=t.device)], at - 1))
    return ops.stack(padded)
