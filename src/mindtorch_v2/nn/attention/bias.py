"""torch.nn.attention.bias: causal masks that are named, not written out, until an attention needs them."""
from __future__ import annotations

import enum
import warnings
from typing import Any

import mindtorch_v2 as torch

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner of the matrix the triangle is aligned to."""

    UPPER_LEFT = enum.auto()
    LOWER_RIGHT = enum.auto()


class CausalBias(torch.Tensor):
    """The mask of a causal attention of seq_len_q queries and seq_len_kv keys."""

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warnings.warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!", stacklevel=2)

    @staticmethod
    def __new__(cls: type, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        return torch.Tensor._make_subclass(cls, torch.empty(int(variant), seq_len_q, seq_len_kv))

    def _materialize(self, device: Any = None) -> Any:
        """The mask as bools: True takes part."""
        whole = torch.ones(self.seq_len_q, self.seq_len_kv, device=device or "cpu", dtype=torch.bool)
        return torch.tril(whole, self.seq_len_kv - self.seq_len_q if self.variant == CausalVariant.LOWER_RIGHT else 0)

    @staticmethod
    def _dispatch(query: Any, key: Any, value: Any, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
                  scale: float | None = None, enable_gqa: bool = False) -> Any:
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        square = attn_mask.seq_len_q == attn_mask.seq_len_kv or attn_mask.variant == CausalVariant.UPPER_LEFT
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, None if square else attn_mask._materialize(query.device), dropout_p, square, scale=scale,
            enable_gqa=enable_gqa)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return cls._dispatch(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """The mask that is_causal=True stands for."""
    return _causal(CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """The mask whose last query sees all keys."""
    return _causal(CausalVariant.LOWER_RIGHT, size)


def _causal(variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"causal_{variant.name.lower()} only supports 2D tensors")
    return CausalBias(variant, *size)
