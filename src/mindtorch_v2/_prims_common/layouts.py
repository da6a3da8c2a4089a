"""Shapes, strides and memory formats of tensors, as torch._prims_common computes and checks them."""
from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import mindtorch_v2 as torch

_LAST = {torch.channels_last: 4, torch.channels_last_3d: 5}


def is_same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two shapes are the same."""
    return tuple(a) == tuple(b)


def is_cpu_scalar_tensor(a: Any) -> bool:
    """Whether it is a tensor of no dims on the cpu."""
    return isinstance(a, torch.Tensor) and a.ndim == 0 and a.device.type == "cpu"


def is_contiguous_for_memory_format(a: Any, *, memory_format: Any) -> bool:
    """Whether a tensor lies in memory as a format says."""
    if memory_format is not torch.contiguous_format and memory_format not in _LAST:
        raise AssertionError(f"Expected a contiguous or a channels last format, got {memory_format}")
    return a.is_contiguous(memory_format=memory_format)


def is_contiguous(a: Any) -> bool:
    """Whether items lie row by row."""
    return a.is_contiguous()


def is_channels_last_contiguous_2d(a: Any) -> bool:
    """Whether a tensor of four dims has its channels last in memory."""
    return a.is_contiguous(memory_format=torch.channels_last)


def is_channels_last_contiguous_3d(a: Any) -> bool:
    """Whether a tensor of five dims has its channels last in memory."""
    return a.is_contiguous(memory_format=torch.channels_last_3d)


def is_channels_last_contiguous(a: Any) -> bool:
    """Whether channels are last in memory, in four dims or in five."""
    return is_channels_last_contiguous_2d(a) or is_channels_last_contiguous_3d(a)


def validate_memory_format(memory_format: Any) -> None:
    """Refuses what is no format that a tensor can be asked for."""
    if memory_format not in (torch.contiguous_format, torch.preserve_format, *_LAST):
        raise RuntimeError(f"Invalid memory format {memory_format}!")


def suggest_memory_format(x: Any) -> Any:
    """The format that the order of memory suggests: channels last or contiguous."""
    if x.ndim in _LAST.values() and is_channels_last_contiguous(x) and not x.is_contiguous():
        return torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    return torch.contiguous_format


def is_non_overlapping_and_dense_or_false(a: Any) -> bool:
    """Whether every item of a stretch of memory belongs to one place of the tensor."""
    want = 1
    for stride, size in sorted((stride, size) for stride, size in zip(a.stride(), a.shape) if size != 1):
        if stride != want:
            return a.numel() == 0
        want *= size
    return True


def compute_elementwise_output_logical_to_physical_perm(*tensors: Any, ambiguity_check: bool = False) -> tuple[list[int], bool]:
    """The dims from outermost to innermost in the result of an elementwise op; with ambiguity_check, whether another order would
    do as well."""
    if not tensors or tensors[0].ndim == 0:
        return [], False
    rank = tensors[0].ndim
    plain = all(t.is_contiguous() for t in tensors)
    last = all(is_channels_last_contiguous_2d(t) for t in tensors)
    if rank == 1 or plain and not last:
        return list(range(rank)), False
    if last and not plain:
        return [0, *range(2, rank), 1], False
    order, ambiguous = torch._shape.walk_order(tensors[0].shape, [t.stride() for t in tensors])
    return order, ambiguous and ambiguity_check


def compute_elementwise_output_strides(*tensors: Any) -> tuple[int, ...]:
    """The strides of the result of an elementwise op on tensors of one shape."""
    if not tensors:
        raise ValueError("Can't compute elementwise output strides for zero tensors!")
    check_same_shape(*tensors, allow_cpu_scalar_tensors=True)
    given = [t for t in tensors if isinstance(t, torch.Tensor) and not is_cpu_scalar_tensor(t)]
    if not given:
        return ()
    order, _ = compute_elementwise_output_logical_to_physical_perm(*given)
    strides, step = [0] * len(order), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(given[0].shape[dim], 1)
    return tuple(strides)


def check_same_shape(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """Refuses tensors of several shapes; numbers have none."""
    shapes = [a.shape for a in args if isinstance(a, torch.Tensor) and not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(a))]
    for shape in shapes:
        if shape != shapes[0]:
            raise RuntimeError(f"Shape {shape} is not the expected shape {shapes[0]}!")


def check_same_device(*args: Any, allow_cpu_scalar_tensors: bool) -> None:
    """Refuses tensors on several devices."""
    devices = [a.device for a in args if isinstance(a, torch.Tensor) and not (allow_cpu_scalar_tensors and is_cpu_scalar_tensor(a))]
    for device in devices:
        if device != devices[0]:
            raise RuntimeError(f"Tensor on device {device} is not on the expected device {devices[0]}!")


def check_same_dtype(*args: Any) -> None:
    """Refuses tensors of several dtypes, and numbers of another kind."""
    dtypes = [a.dtype for a in args if isinstance(a, torch.Tensor)]
    for dtype in dtypes:
        if dtype is not dtypes[0]:
            raise RuntimeError(f"Tensor with dtype {dtype} is not the expected dtype of {dtypes[0]}!")


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of contiguous items; row_major=False: of matrices column by column."""
    validate_shape(shape)
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    found = tuple(reversed(strides))
    if row_major or len(shape) < 2:
        return found
    return found[:-2] + (1, max(shape[-2], 1))


def make_channels_last_strides_for(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of channels last, of four or five dims (or of three, without the batch's rules)."""
    if len(shape) not in (3, 4, 5):
        raise RuntimeError(f"no channels last format strides exist in {len(shape)} dimensions")
    strides, step = [0] * len(shape), 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def make_channels_last_2d_strides_for(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of channels last in four dims."""
    if len(shape) != 4:
        raise RuntimeError("Only tensors of rank 4 can use the channels_last memory format")
    return make_channels_last_strides_for(shape)


def make_channels_last_3d_strides_for(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of channels last in five dims."""
    if len(shape) != 5:
        raise RuntimeError("Only tensors of rank 5 can use the channels_last_3d memory format")
    return make_channels_last_strides_for(shape)


def compute_required_storage_length(shape: Sequence[int], strides: Sequence[int], storage_offset: int) -> int:
    """How many items a storage needs for a geometry."""
    if reduce(operator.mul, shape, 1) == 0:
        return 0
    return storage_offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))


def validate_shape(shape: Sequence[int]) -> None:
    """Refuses negative sizes."""
    for size in shape:
        if size < 0:
            raise RuntimeError(f"Received an invalid shape: {tuple(shape)}")


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """A dim counted from the front."""
    if rank < 0:
        raise IndexError(f"Rank cannot be negative but got {rank}")
    if rank == 0:
        if not wrap_scalar:
            raise IndexError(f"Dimension specified as {idx} but tensor has no dimensions")
        rank = 1
    if not -rank <= idx < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {idx})")
    return idx % rank


def canonicalize_dims(rank: int, indices: Any, wrap_scalar: bool = True) -> Any:
    """A dim, or several, counted from the front."""
    if isinstance(indices, Iterable):
        return tuple(canonicalize_dim(rank, idx, wrap_scalar) for idx in indices)
    return canonicalize_dim(rank, indices, wrap_scalar)


def is_valid_permutation(rank: int, perm: Any) -> bool:
    """Whether every dim stands in it once."""
    return isinstance(perm, Sequence) and sorted(perm) == list(range(rank))


def invert_perm(perm: Sequence[int]) -> list[int]:
    """The permutation that takes another one back."""
    return [list(perm).index(dim) for dim in range(len(perm))]


def apply_perm(inp: Sequence[Any], perm: Sequence[int]) -> list[Any]:
    """What stands in the order of a permutation; -1 leaves its place out."""
    return [inp[dim] for dim in perm if dim != -1]


def reduction_dims(shape: Sequence[int], dims: Sequence[int] | None) -> tuple[int, ...]:
    """The dims of a reduction, counted from the front: all of them for None."""
    found = tuple(range(len(shape))) if dims is None else tuple(canonicalize_dim(len(shape), dim) for dim in dims)
    if len(found) != len(set(found)):
        raise RuntimeError("duplicate value in the list of dims")
    return found


def compute_reduction_output_shape(shape: Sequence[int], dimensions: Sequence[int]) -> tuple[int, ...]:
    """What a reduction without keepdim leaves of a shape."""
    return tuple(size for dim, size in enumerate(shape) if dim not in dimensions)


def infer_size(shape: Sequence[int], numel: int) -> tuple[int, ...]:
    """A shape with its -1 found from the number of items."""
    return tuple(torch.empty(numel, device="meta").view(tuple(shape)).shape)
