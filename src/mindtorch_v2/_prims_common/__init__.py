"""torch._prims_common: facts about dtypes, and comparisons of what tensors look like."""
from __future__ import annotations

from enum import Enum
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._prims_common.layouts import (  # noqa: F401
    apply_perm,
    canonicalize_dim,
    canonicalize_dims,
    check_same_device,
    check_same_dtype,
    check_same_shape,
    compute_elementwise_output_logical_to_physical_perm,
    compute_elementwise_output_strides,
    compute_reduction_output_shape,
    compute_required_storage_length,
    infer_size,
    invert_perm,
    is_channels_last_contiguous,
    is_channels_last_contiguous_2d,
    is_channels_last_contiguous_3d,
    is_contiguous,
    is_contiguous_for_memory_format,
    is_cpu_scalar_tensor,
    is_non_overlapping_and_dense_or_false,
    is_same_shape,
    is_valid_permutation,
    make_channels_last_2d_strides_for,
    make_channels_last_3d_strides_for,
    make_channels_last_strides_for,
    make_contiguous_strides_for,
    reduction_dims,
    suggest_memory_format,
    validate_memory_format,
    validate_shape,
)

Number = (bool, int, float, complex)
NumberType = bool | int | float | complex
IntLike, FloatLike = int, float
TensorLike = TensorLikeType = torch.Tensor
_COMPLEX_OF = {"bfloat16": "complex64", "float16": "complex64", "float32": "complex64", "float64": "complex128"}
_REAL_OF = {"complex64": "float32", "complex128": "float64"}


class ELEMENTWISE_TYPE_PROMOTION_KIND(Enum):
    """How an elementwise op computes and what it returns."""
    DEFAULT = (0,)
    NO_OPMATH = (1,)
    INT_TO_FLOAT = (2,)
    ALWAYS_BOOL = (3,)
    COMPLEX_TO_FLOAT = (4,)
    BOOL_TO_LONG = (5,)


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def is_boolean_dtype(dtype: Any) -> bool:
    """Whether it is bool."""
    return dtype is torch.bool


def is_float_dtype(dtype: Any) -> bool:
    """Whether it is a real floating dtype."""
    return dtype.is_floating_point


def is_complex_dtype(dtype: Any) -> bool:
    """Whether it is complex."""
    return dtype.is_complex


def is_integer_dtype(dtype: Any) -> bool:
    """Whether it is an integer dtype; bool is not one."""
    return not (dtype.is_floating_point or dtype.is_complex or is_boolean_dtype(dtype))


def dtype_to_type(dtype: Any) -> type:
    """Python's type of an item: bool, int, float or complex."""
    if is_boolean_dtype(dtype):
        return bool
    return complex if dtype.is_complex else float if dtype.is_floating_point else int


def type_to_dtype(typ: type) -> Any:
    """The dtype that torch gives a number of Python's."""
    default = torch.get_default_dtype()
    found = {bool: torch.bool, int: torch.int64, float: default,
             complex: corresponding_complex_dtype(default)}
    if typ not in found:
        raise ValueError(f"Invalid type {typ}!")
    return found[typ]


def corresponding_real_dtype(dtype: Any) -> Any:
    """The dtype of a complex number's parts."""
    return getattr(torch, _REAL_OF[_word(dtype)])


def corresponding_complex_dtype(dtype: Any) -> Any:
    """The complex dtype over a real one."""
    return getattr(torch, _COMPLEX_OF[_word(dtype)])


def get_computation_dtype(dtype: Any) -> Any:
    """What an op computes in: float32 for the half precisions."""
    return torch.float32 if _word(dtype) in ("float16", "bfloat16") else dtype


def get_higher_dtype(a: Any, b: Any) -> Any:
    """What two dtypes promote to; None counts for nothing."""
    a, b = (x.dtype if isinstance(x, torch.Tensor) else type_to_dtype(type(x)) if isinstance(x, (int, float, complex)) else x
            for x in (a, b))
    return b if a is None else a if b is None else torch.promote_types(a, b)


def elementwise_dtypes(*args: Any, type_promotion_kind: ELEMENTWISE_TYPE_PROMOTION_KIND) -> tuple[Any, Any]:
    """(what an elementwise op computes in, what it returns), for tensors and numbers."""
    given = [x for x in args if x is not None]
    found: Any = None
    for x in given:
        found = x if found is None else _scalar_of(torch.result_type(found, x), found, x)
    common = found.dtype if isinstance(found, torch.Tensor) else type_to_dtype(type(found))
    kinds = ELEMENTWISE_TYPE_PROMOTION_KIND
    if type_promotion_kind is kinds.INT_TO_FLOAT and not (common.is_floating_point or common.is_complex):
        common = torch.get_default_dtype()
    computed = common if type_promotion_kind is kinds.NO_OPMATH else get_computation_dtype(common)
    returned = {kinds.ALWAYS_BOOL: torch.bool}.get(type_promotion_kind, common)
    if type_promotion_kind is kinds.COMPLEX_TO_FLOAT and common.is_complex:
        returned = corresponding_real_dtype(common)
    if type_promotion_kind is kinds.BOOL_TO_LONG and is_boolean_dtype(common):
        computed = returned = torch.int64
    return computed, returned


def _scalar_of(dtype: Any, a: Any, b: Any) -> Any:
    """An empty tensor of a dtype that takes part in promotion as a and b together do: as a number, a scalar, or more."""
    tensors = [x for x in (a, b) if isinstance(x, torch.Tensor)]
    if not tensors:
        return dtype_to_type(dtype)(0)
    sizes = (1,) if any(x.dim() for x in tensors) else ()
    return tensors[0].new_empty(sizes, dtype=dtype, device="meta")


def check_significant_strides(a: Any, b: Any, *, only_cuda: bool = False,
                              allow_rhs_unbacked: bool = False) -> tuple[bool, int | None]:
    """Whether strides agree where they say something: in dims of more than one item; and the first dim where not."""
    if a.numel() > 0:
        for i, size in enumerate(a.shape):
            if size > 1 and a.stride(i) != b.stride(i):
                return False, i
    return True, None


def compare_tensor_meta(a: Any, b: Any, check_sizes: bool = True, check_strides: bool = False, *,
                        allow_rhs_unbacked: bool = False, check_conj: bool = True) -> None:
    """Raises where two tensors differ in shape, dtype, device or, if asked, in strides that say something."""
    for x in (a, b):
        if not isinstance(x, torch.Tensor):
            raise AssertionError(f"Expected TensorLike, got {type(x)}")
    if check_sizes and a.shape != b.shape:
        raise AssertionError(f"Shapes {a.shape} and {b.shape} are not equal!")
    if a.dtype != b.dtype:
        raise AssertionError(f"Dtypes {a.dtype} and {b.dtype} are not equal!")
    if a.device.type != b.device.type or None not in (a.device.index, b.device.index) and a.device != b.device:
        raise AssertionError(f"Devices {a.device} and {b.device} are not equal!")
    if check_strides:
        same, dim = check_significant_strides(a, b)
        if not same:
            raise RuntimeError(f"Stride mismatch! Strides are {a.stride()} and {b.stride()} (mismatched at {dim})!")
        if a.storage_offset() != b.storage_offset():
            raise RuntimeError(f"Storage offset mismatch! Storage offsets are {a.storage_offset()} and {b.storage_offset()}!")
    if check_conj and a.is_conj() != b.is_conj():
        raise RuntimeError(f"Conj mismatch! is_conj is set to {a.is_conj()} and {b.is_conj()}")
    if a.is_neg() != b.is_neg():
        raise RuntimeError(f"Neg mismatch! is_neg is set to {a.is_neg()} and {b.is_neg()}")
