"""torch.autograd._functions.utils: what a custom function does to give a gradient the shape of its input."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def maybe_view(tensor: Any, size: Sequence[int], check_same_size: bool = True) -> Any:
    """The tensor in a shape, itself where it has it."""
    return tensor if check_same_size and tensor.size() == size else tensor.contiguous().view(size)


def maybe_unexpand(tensor: Any, old_size: Sequence[int], check_same_size: bool = True) -> Any:
    """The sum over what was broadcast from a shape."""
    if check_same_size and tensor.size() == old_size:
        return tensor
    new = tensor.dim() - len(old_size)
    kept = tuple(new + i for i, n in enumerate(old_size) if n == 1 and tensor.size(new + i) != 1)
    summed = tensor.sum(kept, keepdim=True) if kept else tensor
    summed = summed.sum(tuple(range(new))) if new else summed
    return summed.view(old_size) if summed.numel() == math.prod(old_size) else summed
