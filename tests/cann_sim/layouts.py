"""Random tensors of every dtype in every layout that a client may pass, and outputs for results. Holds no tests."""

from __future__ import annotations

from collections.abc import Callable

import torch

Shape = tuple[int, ...]


def sample(shape: Shape, dtype: torch.dtype, low: float = -3, high: float = 3) -> torch.Tensor:
    """Random numbers in [low, high]; unsigned types start at 0 where low is below it."""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if dtype.is_complex:
        return torch.complex(*(torch.empty(2, *shape, dtype=torch.float64).uniform_(low, high))).to(dtype)
    if dtype.is_floating_point:
        return torch.empty(shape, dtype=torch.float64).uniform_(low, high).to(dtype)
    return torch.randint(max(int(low), 0) if dtype == torch.uint8 else int(low), int(high) + 1, shape).to(dtype)


def _sliced(shape: Shape, make: Callable[[Shape], torch.Tensor]) -> torch.Tensor:
    return make(tuple(2 * n + 1 for n in shape))[tuple(slice(1, None, 2) for _ in shape)]


LAYOUTS: dict[str, Callable[[Callable[[Shape], torch.Tensor]], torch.Tensor]] = {
    "dense": lambda make: make((3, 4)),
    "transposed": lambda make: make((4, 3)).t(),
    "sliced, with an offset": lambda make: _sliced((3, 4), make),
    "expanded": lambda make: make((3, 1)).expand(3, 4),
    "0-dim": lambda make: make(()),
    "empty": lambda make: make((0, 3)),
    "rank 8": lambda make: make((1, 2, 1, 2, 1, 3, 1, 2)).transpose(1, 5),
    "long": lambda make: make((41, 67)),
}
# An output may not be expanded: its items would be one item.
OUTPUTS = {name: layout for name, layout in LAYOUTS.items() if name != "expanded"}


def like(result: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An output for this result, filled with what must be overwritten, and not contiguous where it has two dims."""
    dtype = dtype or result.dtype
    if result.dim() == 2:
        return sample((result.shape[1], result.shape[0]), dtype).t()
    return sample(tuple(result.shape), dtype)


def ints(*values: int | list[int]) -> torch.Tensor:
    """int32, as most ops take their indices."""
    return torch.tensor(values, dtype=torch.int32)
