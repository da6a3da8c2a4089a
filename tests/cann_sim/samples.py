"""Inputs for the op tests: numbers of every dtype that a row of the tables names, in every layout. Holds no tests."""

from __future__ import annotations

from collections.abc import Callable

import torch

import cann_tables

DTYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "s8": torch.int8,
    "s16": torch.int16, "s32": torch.int32, "s64": torch.int64, "u8": torch.uint8, "bool": torch.bool,
    "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip
MOVED = {  # not computed with
    "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "c32": torch.complex32,
    "f8e5m2": torch.float8_e5m2, "f8e4m3": torch.float8_e4m3fn,
}  # fmt: skip


def dtypes(op: str, argument: int = 0, moved: bool = False) -> list[torch.dtype]:
    """The dtypes that the op's row names for an argument; all when it names none."""
    known, row = DTYPES | (MOVED if moved else {}), cann_tables.op(op)
    assert row and row.arguments
    return [known[d] for d in row.arguments[argument].dtypes if d in known] or list(known.values())


def sample(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Small numbers with repeats, zeros and both signs; halves hold them exactly, and their sums nearly so."""
    generator = torch.Generator().manual_seed(seed)
    low = -6 if dtype.is_signed and not dtype.is_floating_point else 0
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        return torch.complex(sample(torch.float64, *shape, seed=seed), sample(torch.float64, *shape, seed=seed + 1)).to(
            dtype
        )
    if dtype.is_floating_point:
        return (torch.randint(-24, 25, shape, generator=generator) / 8).to(dtype)
    return torch.randint(low, 7, shape, generator=generator).to(dtype)


def _sliced(x: torch.Tensor) -> torch.Tensor:
    if x.ndim == 0:
        return torch.stack([x, x, x])[1]
    wide = x.new_empty(*x.shape[:-1], 2 * x.shape[-1] + 1)[..., 1::2]
    return wide.copy_(x)


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.movedim(0, -1).contiguous().movedim(-1, 0) if x.ndim > 1 else _sliced(x)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda x: x.contiguous(), "sliced": _sliced, "transposed": _transposed,
}  # fmt: skip


def blank(like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, 77)


def grads(f: Callable[..., torch.Tensor], grad: torch.Tensor, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The gradients of f at float32, as each input's dtype."""
    leaves = [x.detach().float().requires_grad_() for x in inputs]
    made = torch.autograd.grad(f(*leaves), leaves, grad.float())
    return tuple(g.to(x.dtype) for g, x in zip(made, inputs, strict=True))
