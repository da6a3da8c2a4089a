"""associative_scan: every prefix of a sequence, combined."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

_pytree = torch.utils._pytree


def associative_scan(combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False,
                     combine_mode: str = "pointwise") -> Any:
    """y[i] = combine(y[i - 1], x[i]) along a dimension, in tensors or trees of them; from the end if reversed."""
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    steps = list(zip(*(leaf.unbind(dim) for leaf in leaves)))
    steps = steps[::-1] if reverse else steps
    prefixes = [_pytree.tree_unflatten(steps[0], spec)]
    for step in steps[1:]:
        prefixes.append(combine_fn(prefixes[-1], _pytree.tree_unflatten(step, spec)))
    columns = zip(*(_pytree.tree_leaves(prefix) for prefix in (prefixes[::-1] if reverse else prefixes)))
    return _pytree.tree_unflatten([torch.stack(column, dim) for column in columns], spec)
