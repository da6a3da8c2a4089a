"""How linear_cross_entropy() goes through a batch in pieces; the loss itself is in nn/_functional/loss.py."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch

_POLICIES = ("accurate", "balanced", "compact", "auto")


def _ratio(method: str | None) -> float | None:
    """Rows of a piece by the number of features; None: all rows are one piece."""
    if method is None or method == "auto":
        return None if method is None else 2.0
    kind, _, ratio = method.partition(":")
    try:
        number = float(ratio)
    except ValueError:
        number = 0.0
    if kind != "aspect_ratio" or number <= 0:
        raise ValueError(f"invalid chunking_method: {method!r}")
    return number


def rows_of(options: Any, batch: int, features: int) -> int:
    """How many rows a piece has."""
    if options.batch_chunk_size is not None:
        return options.batch_chunk_size
    ratio = _ratio(options.chunking_method)
    return max(1, batch if ratio is None else int(ratio * features))


def dtype_of(options: Any, given: Any) -> Any:
    """What logits are computed in."""
    if options.acc_dtype is None and options.acc_policy == "accurate" and given in (torch.float16, torch.bfloat16):
        return torch.float32
    return options.acc_dtype or given


@dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """Asks linear_cross_entropy() never to hold the logits of a whole batch: each piece's are computed again in backward.

    batch_chunk_size: rows of a piece; None: as chunking_method says, "aspect_ratio:2" for twice as many rows as features.
    acc_dtype: what logits are computed in; None: the input's dtype, float32 for narrower ones under acc_policy
    "accurate". allow_retain_graph changes nothing here: nothing is consumed in backward."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self) -> None:
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        _ratio(self.chunking_method)
        if self.acc_dtype not in (None, torch.float16, torch.bfloat16, torch.float32, torch.float64):
            raise ValueError("acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, torch.float64}, got "
                             f"{self.acc_dtype}. Pass acc_dtype=None to let the op pick automatically.")
