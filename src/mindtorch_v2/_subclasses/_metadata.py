"""What a tensor is without its items, as one record that can be compared and hashed."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """dtype, sizes, place and marks of a tensor."""

    dtype: Any
    shape: Any
    stride: tuple[Any, ...]
    device: Any
    layout: Any
    memory_format: Any
    storage_offset: int
    storage_bytes: int | None
    requires_grad: bool
    is_quantized: bool
    is_conj: bool
    is_neg: bool
    is_inference: bool
    is_sparse: bool
    is_coalesced: bool | None
    dense_dim: int | None
    sparse_dim: int | None


_FORMATS = {torch.contiguous_format: None, torch.channels_last: 4, torch.channels_last_3d: 5}


def _memory_format(t: Any) -> Any:
    """The first format whose strides it has, None where it has those of none."""
    fitting = [format for format, dim in _FORMATS.items() if dim in (None, t.dim()) and t.is_contiguous(memory_format=format)]
    return fitting[0] if fitting else None


def extract_tensor_metadata(t: Any) -> TensorMetadata:
    """The record of a tensor."""
    strided = t.layout is torch.strided
    sparse = t.is_sparse
    return TensorMetadata(
        t.dtype, t.shape, t.stride() if strided else (), t.device, t.layout, _memory_format(t) if strided else None,
        t.storage_offset() if strided else 0, t.untyped_storage().nbytes() if strided and not t.is_meta else None, t.requires_grad,
        t.is_quantized, t.is_conj(), t.is_neg(), t.is_inference(), sparse, t.is_coalesced() if sparse else None,
        t.dense_dim() if sparse else None, t.sparse_dim() if sparse else None)
