"""Rows of torch_npu's ops that arrange, cut and copy items, and of those that make tensors."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2._ops.fft import stft
from mindtorch_v2._ops.npu.rows import FLOAT16, FLOAT32, INT32, INT64, UINT8, dtype_of, grad_of, row
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor


# ---- arranging ------------------------------------------------------------------------------------------------------
@row()
def npu_confusion_transpose(input: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    """Dims permuted and then another shape, or the other way round."""
    return (input.permute(perm).reshape(shape) if transpose_first else input.reshape(shape).permute(perm)).contiguous()


@row()
def npu_confusion_transpose_backward(grad: Tensor, perm: list[int], shape: list[int], transpose_first: bool) -> Tensor:
    """The gradient of npu_confusion_transpose of a tensor of that shape; transpose_first says of the gradient's own way that
    it transposes first, which is the other one than the op's."""
    back = [0] * len(perm)
    for at, p in enumerate(perm):
        back[p] = at
    if not transpose_first:
        return grad.reshape([shape[p] for p in perm]).permute(back).contiguous()
    return grad.permute(back).reshape(shape).contiguous()


@row()
def npu_transpose(input: Tensor, perm: list[int], require_contiguous: bool) -> Tensor:
    """Dims in another order, in memory of its own."""
    return input.permute(perm).contiguous()


@row()
def npu_reshape(input: Tensor, shape: list[int], can_refresh: bool) -> Tensor:
    """Another shape."""
    return input.reshape(shape).clone() if can_refresh else input.reshape(shape)


@row()
def npu_broadcast(input: Tensor, size: list[int]) -> Tensor:
    """Expanded to a size, in memory of its own."""
    return input.expand(size).contiguous()


@row()
def npu_slice(input: Tensor, offsets: list[int], size: list[int]) -> Tensor:
    """The part that begins at the offsets and has this size; -1: all that is left."""
    for dim, (start, length) in enumerate(zip(offsets, size, strict=True)):
        input = input.narrow(dim, start, input.size(dim) - start if length == -1 else length)
    return input.clone()


@row()
def npu_pad(input: Tensor, paddings: list[int]) -> Tensor:
    """Zeros before and after the items of each dim: (before, after) for the first dim, the second, ..."""
    pairs = [paddings[i:i + 2] for i in range(0, len(paddings), 2)]
    return ops.constant_pad_nd(input, [n for pair in reversed(pairs) for n in pair], 0)


@row()
def npu_stride_copy(input: Tensor, shape: list[int], stride: list[int], storage_offset: float) -> Tensor:
    """The items at these strides, in memory of their own."""
    return ops.as_strided(input, shape, stride, int(storage_offset)).clone()


@row()
def npu_view_copy(input: Tensor, other: Tensor, non_blocking: bool) -> Tensor:
    """copy_."""
    return input.copy_(other, non_blocking)


@row()
def copy_memory_(input: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    """copy_ between tensors of one dtype on npus."""
    if input.dtype is not src.dtype:
        raise RuntimeError("input tensors of copy_memory_ should have same dtype")
    return input.copy_(src, non_blocking)


@row()
def npu_indexing(input: Tensor, begin: list[int], end: list[int], strides: list[int], begin_mask: int, end_mask: int,
                 ellipsis_mask: int, new_axis_mask: int, shrink_axis_mask: int) -> Tensor:
    """A strided slice; a bit of a mask says that a begin or end does not count, or what else stands at its place."""
    index: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(begin, end, strides, strict=True)):
        if ellipsis_mask >> i & 1:
            index.append(...)
        elif new_axis_mask >> i & 1:
            index.append(None)
        elif shrink_axis_mask >> i & 1:
            index.append(start)
        else:
            index.append(slice(None if begin_mask >> i & 1 else start, None if end_mask >> i & 1 else stop, step))
    return input[tuple(index)].clone()


# ---- ordering -------------------------------------------------------------------------------------------------------
@row()
def npu_sort_v2(input: Tensor, dim: int, descending: bool) -> Tensor:
    """The sorted values."""
    return ops.sort(input, dim, descending)[0]


@row("npu_max.dim")
def npu_max(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The largest along dim, and where, in int32."""
    values, indices = ops.max(input, dim, keepdim)
    return values, indices.to(INT32)


@row("npu_min.dim")
def npu_min(input: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The smallest along dim, and where, in int32."""
    values, indices = ops.min(input, dim, keepdim)
    return values, indices.to(INT32)


for _name in ("npu_max_backward", "npu_min_backward"):
    @row(_name)
    def _picked_backward(grad: Tensor, dim: int, indices: Tensor, sizes: list[int], keepdim: bool) -> Tensor:
        """The gradient of the values that were picked along dim."""
        if not keepdim and sizes:
            grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
        return ops.zeros(sizes, dtype=grad.dtype, device=grad.device).scatter(dim, indices.to(INT64), grad)


@row()
def npu_one_hot(input: Tensor, num_classes: int, depth: int, on_value: float, off_value: float) -> Tensor:
    """A vector of `depth` items for each index: on_value at its place, off_value elsewhere."""
    places = ops.arange(depth, device=input.device)
    hit = input.to(INT64).unsqueeze(-1) == places
    return ops.where(hit, ops.full([], on_value, dtype=FLOAT32, device=input.device),
                     ops.full([], off_value, dtype=FLOAT32, device=input.device))


# ---- picking and writing by index -----------------------------------------------------------------------------------
@row()
def npu_gather_backward(grad: Tensor, self_size: list[int], dim: int, index: Tensor, sparse_grad: bool) -> Tensor:
    """The gradient of gather."""
    return ops.zeros(self_size, dtype=grad.dtype, device=grad.device).scatter_add(dim, index, grad)


@row()
def npu_gather_sparse_index(input: Tensor, index: Tensor) -> Tensor:
    """The rows of input that index names."""
    return ops.index_select(input, 0, index.reshape(-1)).reshape([*index.shape, *input.shape[1:]])


@row()
def npu_gather_sparse_index_backward(grad: Tensor, self_sizes: list[int], index: Tensor) -> Tensor:
    """The gradient of npu_gather_sparse_index."""
    into = ops.zeros(self_sizes, dtype=grad.dtype, device=grad.device)
    return into.index_add(0, index.reshape(-1).to(INT64), grad.reshape([-1, *self_sizes[1:]]))


@row()
def npu_scatter(input: Tensor, indices: Tensor, updates: Tensor, dim: int) -> Tensor:
    """The input with an update written at one index along dim, for each place of the other dims."""
    return input.scatter(dim, indices.to(INT64).unsqueeze(dim), updates.unsqueeze(dim))


def _nd_places(indices: Tensor) -> list[Tensor]:
    return list(indices.to(INT64).unbind(-1))


@row()
def npu_scatter_nd_update(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """The input with updates written at the places that the last dim of indices names."""
    return ops.index_put(input, _nd_places(indices), updates)


@row(rule=lambda input, indices, updates: (input.shape, input.dtype), npu="aclnnScatterNdUpdate(input, indices, updates)")
def npu_scatter_nd_update_(input: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """npu_scatter_nd_update in place."""
    return ops.index_put_(input, _nd_places(indices), updates)


def _batch_places(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """(batch, place along axis) of each item along the axis of the updates, to be used at dims 0 and axis."""
    length, indices = updates.size(axis), indices.to(INT64)
    start = (indices if indices.dim() == 2 else indices.reshape(-1, 1))[:, -1:]
    batch = indices[:, 0] if indices.dim() == 2 else ops.arange(updates.size(0), device=input.device)
    return batch.unsqueeze(1), start + ops.arange(length, device=input.device)


def _update_(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    axis = axis % input.dim()
    batch, places = _batch_places(input, indices, updates, axis)
    into, rows = input.movedim(axis, 1), updates.movedim(axis, 1)
    ops.index_put_(into, [batch.expand(places.shape), places], rows.to(input.dtype))
    return input


@row(rule=lambda input, indices, updates, axis: (input.shape, input.dtype),
     npu="aclnnInplaceScatterUpdate(input, indices, updates, axis)")
def scatter_update_(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    """Batch b of the updates, written into input from place indices[b] of the axis on."""
    return _update_(input, indices, updates, axis)


@row()
def scatter_update(input: Tensor, indices: Tensor, updates: Tensor, axis: int) -> Tensor:
    """The input with batch b of the updates in it from place indices[b] of the axis on."""
    return scatter_update_(input.clone(), indices, updates, axis)


def _update_each_(tensors: Sequence[Tensor], indices: Tensor, updates: Tensor, mask: Tensor | None, axis: int) -> None:
    axis = axis % (tensors[0].dim() + 1) - 1 if axis >= 0 else axis % tensors[0].dim()
    starts = indices.tolist()
    kept = [True] * len(tensors) if mask is None else mask.tolist()
    for at, tensor in enumerate(tensors):
        if not kept[at]:
            continue
        start, length = (starts[at], None) if indices.dim() == 1 else starts[at]
        part = updates[at] if length is None else updates[at].narrow(axis, 0, length)
        tensor.narrow(axis, start, part.size(axis)).copy_(part)


@row()
def npu_scatter_list_(input: tuple[Tensor, ...], indices: Tensor, updates: Tensor, mask: Tensor | None, reduce: str,
                      axis: int) -> None:
    """Writes update i into tensor i of the list, from place indices[i] of the axis on, where the mask allows it."""
    _update_each_(input, indices, updates, mask, axis)


@row()
def npu_scatter_list(input: tuple[Tensor, ...], indices: Tensor, updates: Tensor, mask: Tensor | None, reduce: str,
                     axis: int) -> list[Tensor]:
    """Copies of the tensors of a list, each with its update written from place indices[i] of the axis on."""
    made = [x.clone() for x in input]
    _update_each_(made, indices, updates, mask, axis)
    return made


@row()
def _npu_index_add(input: Tensor, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    """index_add along dim 0."""
    return ops.index_add(input, 0, index.to(INT64), source, alpha=alpha)


@row()
def _npu_index_add_(input: Tensor, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    """index_add_ along dim 0."""
    return ops.index_add_(input, 0, index.to(INT64), source, alpha=alpha)


@row()
def npu_masked_fill_range(input: Tensor, start: Tensor, end: Tensor, value: Tensor, axis: int) -> Tensor:
    """value[k] at the places start[k, n] to end[k, n] of the axis, for each row n of (rows, places)."""
    x = input.unsqueeze(0) if input.dim() == 1 else input
    places = ops.arange(x.size(axis), device=input.device)
    for k in range(start.size(0)):
        hit = (places >= start[k].unsqueeze(1)) & (places < end[k].unsqueeze(1))
        rows = hit.size(0)
        while hit.dim() < x.dim():
            hit = hit.unsqueeze(1)
        x = ops.cat([ops.where(hit, value[k].to(x.dtype), x[:rows]), x[rows:]])
    return x.reshape(input.shape)


# ---- bits -----------------------------------------------------------------------------------------------------------
@row()
def npu_sign_bits_pack(input: Tensor, size: int) -> Tensor:
    """A bit for each sign, 1 where it is not negative, eight to a byte, as (size, bytes)."""
    bits = (input >= 0).to(UINT8)
    bits = ops.constant_pad_nd(bits, [0, -input.numel() % 8], 0).reshape(-1, 8)
    packed = (bits << ops.arange(8, device=input.device).to(UINT8)).sum(-1).to(UINT8)
    return packed.reshape(size, -1)


@row()
def npu_sign_bits_unpack(input: Tensor, size: int, dtype: int) -> Tensor:
    """1 or -1 for each bit, as (size, items)."""
    kept = dtype if not isinstance(dtype, int) else {0: FLOAT32, 1: FLOAT16}.get(dtype) or dtype_of(dtype)
    bits = input.reshape(-1, 1) >> ops.arange(8, device=input.device).to(UINT8) & 1
    return (bits.to(kept) * 2 - 1).reshape(size, -1)


# ---- making and filling ---------------------------------------------------------------------------------------------
@row()
def one_(input: Tensor) -> Tensor:
    """Every item becomes 1."""
    return input.fill_(1)


@row()
def npu_random_choice_with_mask(x: Tensor, count: int, seed: int, seed2: int) -> tuple[Tensor, Tensor]:
    """Places of `count` true items of x, at random where there are more; and which rows are real."""
    places = ops.nonzero(x).to(INT32)
    found = places.size(0)
    if 0 < count < found:
        places = places[ops.randperm(found, device=x.device)[:count]]
    missing = max(count - places.size(0), 0)
    mask = ops.arange(places.size(0) + missing, device=x.device) < places.size(0)
    return ops.constant_pad_nd(places, [0, 0, 0, missing], 0), mask


# ---- gradients of torch's ops ---------------------------------------------------------------------------------------
@row()
def repeat_interleave_backward_int(grad: Tensor, input: Tensor, repeats: int, dim: int | None) -> Tensor:
    """The gradient of repeat_interleave."""
    return grad_of(lambda x: ops.repeat_interleave(x, repeats, dim), (input,), (grad,))[0]


@row()
def repeat_interleave_backward_tensor(grad: Tensor, input: Tensor, repeats: Tensor, dim: int | None) -> Tensor:
    """The gradient of repeat_interleave by a tensor of counts."""
    return grad_of(lambda x: ops.repeat_interleave(x, repeats, dim), (input,), (grad,))[0]


@row()
def npu_renorm_backward(grad: Tensor, input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The gradient of renorm."""
    return grad_of(lambda x: ops.renorm(x, p, dim, maxnorm), (input,), (grad,))[0]


@row()
def stft_backward(grad_output: Tensor, input: Tensor, n_fft: int, hop_length: int | None, win_length: int | None,
                  window: Tensor | None, normalized: bool, onesided: bool | None,
                  return_complex: bool | None) -> Tensor:
    """The gradient of stft."""
    return grad_of(lambda x: stft(x, n_fft, hop_length, win_length, window, normalized=normalized, onesided=onesided,
                                  return_complex=return_complex, center=False), (input,), (grad_output,))[0]


@row()
def fft_r2c_backward(grad: Tensor, dim: list[int], normalization: int, onesided: bool, last_dim_size: int) -> Tensor:
    """The gradient of the transform of real numbers: of those that onesided leaves out nothing comes."""
    if onesided:
        last = dim[-1] % grad.dim()
        missing = last_dim_size - grad.size(last)
        shape = [n if d != last else missing for d, n in enumerate(grad.shape)]
        grad = ops.cat([grad, ops.zeros(shape, dtype=grad.dtype, device=grad.device)], last)
    return ops._fft_c2c(grad, dim, normalization, False).real


@row()
def fft_c2r_backward(grad: Tensor, dim: list[int], normalization: int) -> Tensor:
    """The gradient of the transform to real numbers: those that stand for two count twice."""
    made = ops._fft_r2c(grad, dim, normalization, True)
    last = dim[-1] % grad.dim()
    twice = ops.full([made.size(last)], 2.0, device=grad.device)
    twice[0] = 1
    if grad.size(last) % 2 == 0:
        twice[-1] = 1
    return made * twice.reshape([-1 if d == last else 1 for d in range(grad.dim())])
