"""torch._functorch.apis: vmap in parts of the batch, and the gradients, by their names there."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch

vmap, grad, grad_and_value = torch.func.vmap, torch.func.grad, torch.func.grad_and_value
_get_name = torch._functorch.vmap._get_name


def chunk_vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
               chunks: int = 2) -> Callable[..., Any]:
    """vmap whose batch is computed in so many parts."""
    if chunks == 1:
        return vmap(func, in_dims=in_dims, out_dims=out_dims, randomness=randomness)

    if chunks < 1:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        size = torch._functorch.vmap._process_batched_inputs(in_dims, args, func)[0]
        return vmap(func, in_dims=in_dims, out_dims=out_dims, randomness=randomness,
                    chunk_size=max(1, -(-size // chunks)))(*args, **kwargs)
    return mapped
