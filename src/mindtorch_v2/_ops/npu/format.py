"""Rows of torch_npu's formats and of what it does with memory. Tensors here are always in the plain format of their rank."""
from __future__ import annotations

import warnings
from typing import Any

from mindtorch_v2 import _C, _config
from mindtorch_v2._ops.npu.rows import FLOAT32, dtype_of, row
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

NCHW, ND, NCDHW = 0, 2, 30                       # CANN's numbers of formats
_PLAIN = {-1, NCHW, 1, ND, 27, NCDHW, 35}        # undefined, NCHW, NHWC, ND, NDHWC, NCDHW, NCL
_NOT_PERMITTED = ("Cannot create tensor with internal format while allow_internal_format=False, tensor will be created with "
                  "base format.")                # torch_npu's words
_NOT_USED = "Private formats are not used here: the tensor stays in its base format, which every op takes."


def format_of(x: Tensor) -> int:
    """The plain format of a tensor of this rank."""
    return {4: NCHW, 5: NCDHW}.get(x.dim(), ND)


def _stays(acl_format: int) -> None:
    if acl_format not in _PLAIN:
        warnings.warn(_NOT_USED if _config.allow_internal_format else _NOT_PERMITTED, stacklevel=3)


@row()
def get_npu_format(input: Tensor) -> int:
    """CANN's number of the format that the tensor is stored in."""
    return format_of(input)


@row()
def get_storage_size(input: Tensor) -> int:
    """How many items the storage holds."""
    return input.untyped_storage().nbytes() // input.element_size()


def _cast(input: Tensor, acl_format: int, *_: object) -> Tensor:
    """The tensor; private formats are not used: it stays in the plain one, with torch_npu's warning."""
    _stays(acl_format)
    return input.view_as(input)


for _name in ("npu_format_cast", "_npu_format_cast", "_npu_format_cast.aclnn", "_npu_format_cast.input_dtype"):
    row(_name)(_cast)


@row("npu_format_cast.Tensor")
def _cast_like(input: Tensor, dst: Tensor, customize_dtype: Any, input_dtype: Any) -> Tensor:
    """The tensor, which has the format of every other one of its rank."""
    return input.view_as(input)


@row("npu_format_cast_")
def npu_format_cast_(input: Tensor, src: Tensor, customize_dtype: Any, input_dtype: Any) -> Tensor:
    """The items of src, written over the input."""
    return input.copy_(src)


@row("npu_format_cast_.acl_format")
def _cast_in_place(input: Tensor, acl_format: int, customize_dtype: Any, input_dtype: Any) -> Tensor:
    """The tensor itself; private formats are not used."""
    _stays(acl_format)
    return input


@row()
def empty_with_format(size: list[int], dtype: _C.dtype, layout: _C.layout | None, device: str | None,
                      pin_memory: bool | None, acl_format: int, base_addr_aligned_kb: int | None) -> Tensor:
    """A tensor that is not filled; private formats are not used."""
    _stays(acl_format)
    return ops.empty(size, dtype=dtype_of(dtype), device=device)


@row()
def unsafe_empty_with_format(size: list[int], dtype: Any, layout: _C.layout | None, device: str | None,
                             pin_memory: bool | None, acl_format: int, keep_format: bool) -> Tensor:
    """A tensor that is not filled; private formats are not used."""
    _stays(acl_format)
    return ops.empty(size, dtype=dtype_of(dtype), device=device)


# ---- overflow -------------------------------------------------------------------------------------------------------
# An npu since 910B computes with inf and nan, so that its flag of overflow says nothing: torch_npu gives zeros there.
@row()
def npu_alloc_float_status(input: Tensor) -> Tensor:
    """Room for the flag of overflow."""
    return ops.zeros([8], dtype=FLOAT32, device=input.device)


for _name in ("npu_get_float_status", "npu_clear_float_status"):
    @row(_name)
    def _float_status(input: Tensor, mode: int) -> Tensor:
        """The flag of overflow, which is not set: inf and nan are."""
        return ops.zeros([8], dtype=FLOAT32, device=input.device)


@row()
def _amp_foreach_non_finite_check(scaled_grads: tuple[Tensor, ...]) -> bool:
    """Whether any item is inf or nan."""
    return any(not bool(ops.isfinite(g).all()) for g in scaled_grads)


@row()
def npu_prefetch(input: Tensor, dependency: Tensor | None, max_size: int, offset: int) -> None:
    """Asks for a tensor's bytes ahead of their use; a hint, which changes no value and is not needed."""
    if max_size <= 0:
        raise ValueError(f"The max_size should be greater than zero, got {max_size}.")
    if offset < 0:
        raise ValueError(f"The offset should not be smaller than zero, got {offset}.")
