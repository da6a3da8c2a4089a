"""Attention with scores and masks that the user writes as functions of positions; computed densely, not by blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch

Tensor = torch.Tensor

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask",
           "flex_attention", "noop_mask", "or_masks"]


_DEFAULT_SPARSE_BLOCK_SIZE = 128


class AuxRequest(NamedTuple):
    """The auxiliary outputs requested from flex_attention."""
    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What it returns beside its result: the logsumexp and the largest score of every query, where requested."""
    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _positions(*sizes: int, device: Any) -> list[Tensor]:
    """An index for each dimension, shaped to broadcast with the others: functions of positions see all at once."""
    rank = len(sizes)
    shapes = [[-1 if i == d else 1 for i in range(rank)] for d in range(rank)]
    return [torch.arange(n, device=device).view(shape) for n, shape in zip(sizes, shapes)]


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Every position sees every other."""
    return torch.ones((), dtype=torch.bool, device=token_q.device)


def and_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A mask of the positions that all the masks let through."""
    def joined(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        seen = torch.ones((), dtype=torch.bool, device=q.device)
        for mask_mod in mask_mods:
            seen = seen & mask_mod(b, h, q, kv)
        return seen
    return joined


def or_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A mask of the positions that any of the masks lets through."""
    def joined(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        seen = torch.zeros((), dtype=torch.bool, device=q.device)
        for mask_mod in mask_mods:
            seen = seen | mask_mod(b, h, q, kv)
        return seen
    return joined


def create_mask(mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                device: Any = None) -> Tensor:
    """The mask of a function as a bool tensor (B, H, Q_LEN, KV_LEN)."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return mod_fn(*_positions(*sizes, device=device or torch.get_default_device())).expand(sizes)


def _of_blocks(count: Tensor, indices: Tensor) -> Tensor:
    """The first `count` blocks in each row of `indices`, as a bool tensor (B, H, blocks of queries, blocks of keys)."""
    named = torch.arange(indices.shape[-1], device=indices.device) < count.unsqueeze(-1)
    seen = torch.zeros(indices.shape, dtype=torch.int32, device=indices.device)
    seen = seen.scatter_add(-1, indices.long(), named.int()).bool()
    return seen.reshape((1,) * (4 - seen.dim()) + tuple(seen.shape))


class BlockMask:
    """What a mask function lets through, kept as the function and as a dense mask."""

    def __init__(self, mask_mod: Callable[..., Tensor], dense: Tensor, block_size: tuple[int, int]) -> None:
        self.mask_mod, self._dense, self.BLOCK_SIZE = mask_mod, dense, block_size
        self.seq_lengths = tuple(dense.shape[-2:])
        self._blocks: Tensor | None = None

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
                       full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
                       mask_mod: Callable[..., Tensor] | None = None, seq_lengths: tuple[int, int] | None = None,
                       compute_q_blocks: bool = True) -> BlockMask:
        """A mask with the blocks of keys that each block of queries sees: how many, and which. As in eager PyTorch, what is
        let through is for mask_mod to say; the blocks are what to_dense and sparsity tell of."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        rows, cols = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        lengths = seq_lengths or (kv_indices.shape[-2] * rows, kv_indices.shape[-1] * cols)
        blocks = _of_blocks(kv_num_blocks, kv_indices)
        if full_kv_num_blocks is not None and full_kv_indices is not None:
            blocks = blocks | _of_blocks(full_kv_num_blocks, full_kv_indices)
        mask_mod = mask_mod or (lambda b, h, q, kv: torch.ones((), dtype=torch.bool, device=blocks.device))
        batch, heads = blocks.shape[:2]
        made = cls(mask_mod, create_mask(mask_mod, batch, heads, lengths[0], lengths[1], blocks.device), (rows, cols))
        made._blocks = blocks
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Q_LEN, KV_LEN)."""
        return tuple(self._dense.shape)

    def to(self, device: Any) -> BlockMask:
        """The mask on a device; what its function has captured stays where it is."""
        moved = BlockMask(self.mask_mod, self._dense.to(device), self.BLOCK_SIZE)
        moved._blocks = None if self._blocks is None else self._blocks.to(device)
        return moved

    def to_dense(self) -> Tensor:
        """Which blocks hold a position that is let through, as 0 and 1."""
        if self._blocks is not None:
            return self._blocks.int()
        rows, cols = self.BLOCK_SIZE
        queries, keys = self.seq_lengths
        padded = torch.nn.functional.pad(self._dense, (0, -keys % cols, 0, -queries % rows))
        blocks = padded.unflatten(-1, (-1, cols)).unflatten(-3, (-1, rows))
        return blocks.any(-1).any(-2).int()

    def sparsity(self) -> float:
        """The part of all blocks that nothing is let through in, in percent."""
        return 100 * (1 - self.to_dense().float().mean().item())

    def __repr__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(mask_mod: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int,
                      device: Any = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
                      _compile: bool = False) -> BlockMask:
    """A BlockMask of a mask function."""
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    return BlockMask(mask_mod, create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), block)


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Tensor] | None = None,
                   block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
                   return_lse: bool = False, kernel_options: dict[Any, Any] | None = None, *,
                   return_aux: AuxRequest | None = None) -> Any:
    """softmax(score_mod(query @ key.T * scale), masked) @ value; rows that nothing is let through in give zeros."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() != 4:
            raise ValueError(f"[flex_attention] expected {name} with 4 dimensions, got {tuple(x.shape)}")
    heads, shared = query.shape[1], key.shape[1]
    if heads != shared:
        if not enable_gqa or heads % shared:
            raise ValueError(f"[flex_attention] expected key and value with {heads} heads (or a divisor of it, with "
                             f"enable_gqa=True), got {shared}")
        key, value = (x.repeat_interleave(heads // shared, 1) for x in (key, value))
    scores = (query @ key.transpose(-2, -1)).float() * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *_positions(*scores.shape, device=scores.device))
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask._dense[..., : scores.shape[-2], : scores.shape[-1]], -torch.inf)
    lse = scores.logsumexp(-1)
    hidden = lse == -torch.inf
    weights = torch.exp(scores - lse.masked_fill(hidden, 0.0).unsqueeze(-1)).to(value.dtype)
    out = weights @ value
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)
    return (out, lse) if return_lse else out

torch._named.complete(__name__)
