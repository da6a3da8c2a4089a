"""PowerSGD: the gradient of a matrix is sent as two thin ones, and what that loses is added to the next gradient."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed._collectives import all_reduce
from mindtorch_v2.distributed._world import _get_default_group
from mindtorch_v2.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

__all__ = ["PowerSGDState", "powerSGD_hook"]


class PowerSGDState:
    """What the hook keeps between iterations."""

    def __init__(self, process_group: Any, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000,
                 min_compression_rate: float = 2, use_error_feedback: bool = True, warm_start: bool = True,
                 orthogonalization_epsilon: float = 0, random_seed: int = 0, compression_stats_logging_frequency: int = 10000,
                 batch_tensors_with_same_shape: bool = False) -> None:
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                             "PowerSGD can only be applied after the first two iterations in DDP.")
        self.process_group = process_group
        self.matrix_approximation_rank, self.start_powerSGD_iter = matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate, self.use_error_feedback = min_compression_rate, use_error_feedback
        self.warm_start, self.orthogonalization_epsilon = warm_start, orthogonalization_epsilon
        self.generator = torch.Generator().manual_seed(random_seed)
        self.iter = 0
        self.error: dict[int, Any] = {}           # by bucket: what was lost
        self.q_memory: dict[tuple[int, int], Any] = {}


def _orthogonalize(matrix: Any, epsilon: float) -> None:
    """Makes the columns orthonormal, one after the other, in place."""
    for i in range(matrix.shape[1]):
        column = matrix[:, i:i + 1]
        norm = torch.norm(column)
        column.div_(norm + epsilon if epsilon or norm > 0 else 1.0)
        if i + 1 < matrix.shape[1]:
            rest = matrix[:, i + 1:]
            rest -= (column * rest).sum(dim=0) * column


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The hook. It waits for its first reduction, as the second needs its result."""
    group = _get_default_group() if state.process_group is None else state.process_group
    if bucket.is_last():
        state.iter += 1
    if state.iter < state.start_powerSGD_iter:
        return allreduce_hook(group, bucket)
    row, index, size = bucket.buffer(), bucket.index(), group.size()
    with torch.no_grad():
        if state.use_error_feedback:
            if index in state.error:
                row.add_(state.error[index])
            before = row.clone()
        thin, plain = _factors(state, bucket)
        for _, p, matrix, q in thin:
            torch.matmul(matrix, q, out=p)
        waits = [all_reduce(p, group=group, async_op=True) for _, p, _, _ in thin]
        waits += [all_reduce(g.div_(size), group=group, async_op=True) for g in plain]
        for work in waits:
            work.wait()                           # type: ignore[union-attr]
        for _, p, matrix, q in thin:
            _orthogonalize(p, state.orthogonalization_epsilon)
            torch.matmul(matrix.t(), p, out=q)
            q.div_(size)
        works = [all_reduce(q, group=group, async_op=True) for _, _, _, q in thin]
        for (key, p, matrix, q), work in zip(thin, works, strict=True):
            work.wait()                           # type: ignore[union-attr]
            torch.matmul(p, q.t(), out=matrix)
            if state.warm_start:
                state.q_memory[key] = q
        if state.use_error_feedback:
            state.error[index] = before - row
            for g in plain:                       # these lost nothing
                at = (g.data_ptr() - row.data_ptr()) // row.element_size()
                state.error[index][at:at + g.numel()] = 0
    future = torch.futures.Future()
    future.set_result(row)
    return future


def _factors(state: PowerSGDState, bucket: Any) -> tuple[list[Any], list[Any]]:
    """([(key, P, the gradient as a matrix, Q)], the gradients that are not worth it)."""
    thin, plain = [], []
    for i, grad in enumerate(bucket.gradients()):
        matrix = grad.view(grad.shape[0], -1) if grad.dim() > 1 else grad.view(1, -1)
        n, m = matrix.shape
        rank = min(n, m, state.matrix_approximation_rank)
        if grad.dim() < 2 or (n + m) * rank * state.min_compression_rate >= n * m:
            plain.append(grad)
            continue
        key = (bucket.index(), i)
        q = state.q_memory.get(key) if state.warm_start else None
        if q is None:
            q = torch.randn(m, rank, generator=state.generator).to(matrix.device, matrix.dtype)
        _orthogonalize(q, state.orthogonalization_epsilon)
        thin.append((key, torch.empty(n, rank, dtype=matrix.dtype, device=matrix.device), matrix, q))
    return thin, plain


batched_powerSGD_hook = _names.refusal("algorithms.ddp_comm_hooks.powerSGD_hook.batched_powerSGD_hook")
