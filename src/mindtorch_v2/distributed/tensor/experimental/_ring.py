"""Attention to keys and values that are passed round the ranks: each has those of one other rank at a time."""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _collectives as collectives
from mindtorch_v2.distributed._work import Work
from mindtorch_v2.distributed.device_mesh import DeviceMesh

Tensor = Any


class _Round:
    """The ranks in a circle: everybody sends to the next and receives from the one before."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.group = mesh.get_group()
        self.ranks, self.rank = mesh.size(), mesh.get_local_rank()

    def owner(self, step: int) -> int:
        """Whose keys are here after so many turns."""
        return (self.rank - step) % self.ranks

    def start(self, tensors: list[Tensor]) -> tuple[list[Tensor], list[Work]]:
        """(what the rank before sends, when it has come)."""
        into = [torch.empty_like(x) for x in tensors]
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        ops = [collectives.P2POp(collectives.isend, x, group=self.group, group_peer=after, tag=i) for i, x in enumerate(tensors)]
        ops += [collectives.P2POp(collectives.irecv, x, group=self.group, group_peer=before, tag=i) for i, x in enumerate(into)]
        return into, collectives.batch_isend_irecv(ops)


def _wait(works: list[Work]) -> None:
    for work in works:
        work.wait()


class _RingAttention(torch.autograd.Function):
    """Exact attention by parts: each gives its result and the logarithm of its sum, from which the whole is put together. Backward
    goes round once more, and gradients of keys and values travel with them until they are home."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mesh: DeviceMesh, pieces: Any, causal: bool,
                scale: float) -> Tensor:
        ring, q = _Round(mesh), query.float()
        held, out, sums = [key.contiguous(), value.contiguous()], None, None
        for step in range(ring.ranks):
            coming, works = ring.start(held) if step < ring.ranks - 1 else (held, [])
            scores = _scores(q, held[0], scale, _unseen(pieces, ring, step, causal, q.device))
            largest = scores.amax(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)   # of rows that see nothing: no nan
            weights = (scores - largest).exp()
            total = weights.sum(-1, keepdim=True)
            part = weights @ _repeated(held[1], q) / total.clamp_min(1e-30)
            part_sums = largest + total.clamp_min(1e-30).log()
            if out is None or sums is None:       # the rank's own keys: a query sees itself
                out, sums = part, part_sums
            else:
                both = torch.logaddexp(sums, part_sums)
                out, sums = out * (sums - both).exp() + part * (part_sums - both).exp(), both
            _wait(works)
            held = coming
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.rest = mesh, pieces, causal, scale
        return out.to(query.dtype)                # type: ignore[union-attr]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out, sums = ctx.saved_tensors
        mesh, pieces, causal, scale = ctx.rest
        ring, q, grad = _Round(mesh), query.float(), grad.float()
        inner, grad_query = (grad * out).sum(-1, keepdim=True), torch.zeros_like(q)
        held = [key.contiguous(), value.contiguous()]
        grads = [torch.zeros_like(x, dtype=torch.float32) for x in held]
        for step in range(ring.ranks):
            coming, works = ring.start(held) if step < ring.ranks - 1 else (held, [])
            keys, values = _repeated(held[0], q), _repeated(held[1], q)
            weights = (_scores(q, held[0], scale, _unseen(pieces, ring, step, causal, q.device)) - sums).exp()
            slopes = weights * (grad @ values.mT - inner) * scale
            grad_query += slopes @ keys
            grads[0] += _gathered(slopes.mT @ q, held[0])
            grads[1] += _gathered(weights.mT @ grad, held[1])
            _wait(works)
            held = coming
            grads, works = ring.start(grads)
            _wait(works)
        return grad_query.to(query.dtype), grads[0].to(key.dtype), grads[1].to(value.dtype), None, None, None, None


def _unseen(pieces: Any, ring: _Round, step: int, causal: bool, device: Any) -> Tensor | None:
    """Where a query of this rank does not see a key of the step's."""
    if not causal:
        return None
    return pieces.positions(ring.rank, device)[:, None] < pieces.positions(ring.owner(step), device)


def _scores(q: Tensor, key: Tensor, scale: float, unseen: Tensor | None) -> Tensor:
    scores = q @ _repeated(key, q).mT * scale
    return scores if unseen is None else scores.masked_fill(unseen, -math.inf)


def _repeated(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values in float32, a head for each of the queries'."""
    return x.float() if x.shape[1] == q.shape[1] else x.float().repeat_interleave(q.shape[1] // x.shape[1], 1)


def _gathered(grad: Tensor, x: Tensor) -> Tensor:
    """The gradient of x, whose heads were repeated."""
    return grad if grad.shape[1] == x.shape[1] else grad.unflatten(1, (x.shape[1], -1)).sum(2)


def ring_attention(query: Tensor, key: Tensor, value: Tensor, mesh: DeviceMesh, pieces: Any, dropout_p: float, causal: bool,
                   scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """scaled_dot_product_attention of a rank's queries to the keys of all."""
    if dropout_p:
        raise NotImplementedError("[context_parallel] dropout while keys and values are passed round a ring: use "
                                  "set_rotate_method('allgather')")
    if key.shape[1] != query.shape[1] and not enable_gqa:
        raise RuntimeError(f"[context_parallel] expected keys with the {query.shape[1]} heads of the queries, got {key.shape[1]}; "
                           "enable_gqa=True repeats them")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _RingAttention.apply(query, key, value, mesh, pieces, causal, scale)
