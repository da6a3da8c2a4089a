"""Attention by heads over CANN's layouts: what the rows of attention are made of where no one call of CANN serves."""
from __future__ import annotations

from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._ops.npu.rows import BOOL, FLOAT32, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

MOST = 2147483647                                # pre_tokens and next_tokens that limit nothing
_NOTHING = 3.4028234663852886e38                 # the sum of a row in which every key is hidden, as CANN keeps it


class Settings(NamedTuple):
    """What attention does beside its tensors."""
    scale: float = 1.0
    keep: float = 1.0
    mode: int = 0                                # CANN's sparse mode
    before: int = MOST
    after: int = MOST
    prefix: list[int] | None = None              # of modes 5 and 6, one a batch
    shift_first: bool = False                    # (q k + shift) * scale, or q k * scale + shift


def split_heads(x: Tensor, layout: str, heads: int) -> Tensor:
    """(batch, heads, length, depth) of a tensor in a layout; packed ones (TND, NTD) and NSD are one batch."""
    if layout in ("BSH", "SBH"):
        x = x.unflatten(-1, (heads, -1))
        return x.transpose(1, 2) if layout == "BSH" else x.permute(1, 2, 0, 3)
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "TND":
        return x.transpose(0, 1).unsqueeze(0)
    if layout in ("NTD", "NSD"):
        return x.unsqueeze(0)
    if layout != "BNSD":
        raise ValueError(f"[npu attention] layout {layout} is not offered")
    return x


def join_heads(x: Tensor, layout: str) -> Tensor:
    """The other way: (batch, heads, length, depth) in a layout."""
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2)
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(2)
    if layout == "BSND":
        return x.transpose(1, 2).contiguous()
    if layout == "NBSD":
        return x.transpose(0, 1).contiguous()
    if layout == "TND":
        return x.squeeze(0).transpose(0, 1).contiguous()
    return x.squeeze(0) if layout in ("NTD", "NSD") else x


def key_heads(query: Tensor, key: Tensor, layout: str, heads: int) -> int:
    """How many heads the keys have, which may be shared by several of the query."""
    if layout in ("BSH", "SBH"):
        return key.size(-1) // (query.size(-1) // heads)
    return key.size({"BSND": 2, "TND": 1, "BNSD": 1, "NTD": 0, "NSD": 0}[layout])


def hidden(mask: Tensor | None, how: Any, queries: int, keys: int, device: _C.device) -> Tensor | None:
    """True where a query does not see a key, to be broadcast to (batch, heads, queries, keys); None: it sees all."""
    ahead = ops.arange(keys, device=device) - ops.arange(queries, device=device).unsqueeze(1)
    corner = keys - queries
    if how.mode in (2, 3):
        return ahead > (corner if how.mode == 3 else 0)
    if how.mode == 4:
        return (ahead > corner + how.after) | (ahead < corner - how.before)
    if how.mode == 6:
        places = ops.arange(keys, device=device)
        return ops.stack([(ahead > corner) & (places >= n) for n in how.prefix]).unsqueeze(1)
    if mask is None or not mask.numel():
        return None
    bits = mask.to(BOOL)[..., :queries if mask.size(-2) > 1 else 1, :keys]
    if how.mode == 0 and (how.before < MOST or how.after < MOST):
        bits = bits | (ahead > how.after) | (-ahead > how.before)
    return bits


def attend(query: Tensor, key: Tensor, value: Tensor, how: Any, shift: Tensor | None = None, gone: Tensor | None = None,
           kept: Tensor | None = None, sink: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(out, maxima, sums) of (batch, heads, length, depth) tensors; gone: what is hidden, kept: what dropout leaves."""
    shared = query.size(1) // key.size(1)
    q, k, v = wide(query), wide(key), wide(value)
    if shared > 1:
        k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = ops.matmul(q, k.transpose(-2, -1))
    if shift is not None and how.shift_first:
        scores = (scores + wide(shift)) * how.scale
    else:
        scores = scores * how.scale if shift is None else scores * how.scale + wide(shift)
    seen = None if gone is None else ~gone.expand(scores.shape)
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    top = scores.amax(-1, True) if scores.size(-1) else scores.new_zeros([*scores.shape[:-1], 1])
    if sink is not None:
        top = ops.maximum(top, wide(sink).reshape(1, -1, 1, 1))
    top = top.detach()
    top = top.masked_fill(top == float("-inf"), -_NOTHING)
    weights = (scores - top).exp()
    sums = weights.sum(-1, True)
    if sink is not None:
        sums = sums + (wide(sink).reshape(1, -1, 1, 1) - top).exp()
    sums = sums.masked_fill(sums == 0, _NOTHING)
    weights = weights / sums
    if kept is not None:
        weights = weights * kept / how.keep
    return ops.matmul(weights, v), top, sums


def stats(x: Tensor) -> Tensor:
    """Maxima or sums as CANN keeps them: eight times each."""
    return x.to(FLOAT32).expand([*x.shape[:-1], 8]).contiguous()


def lse_of(top: Tensor, sums: Tensor) -> Tensor:
    """log(sum(exp)) of each row; inf where it sees nothing, as CANN has it."""
    lse = top + sums.log()
    return lse.masked_fill(top <= -_NOTHING, float("inf"))
