"""DistributedSampler: each process takes its own part of a dataset."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.utils.data.sampler import Sampler


class DistributedSampler(Sampler[Any]):
    """Every num_replicas-th index from rank on, of an order that all processes agree on."""

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        if num_replicas is None or rank is None:
            if not hasattr(torch, "distributed") or not torch.distributed.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = torch.distributed.get_world_size() if num_replicas is None else num_replicas
            rank = torch.distributed.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.drop_last, self.shuffle, self.seed = 0, drop_last, shuffle, seed
        n = len(dataset)
        self.num_samples = math.ceil((n - num_replicas) / num_replicas) if drop_last and n % num_replicas else \
            math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        order = list(range(n))
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(n, generator=generator).tolist()
        if self.drop_last:
            order = order[:self.total_size]
        elif n:
            order = (order * math.ceil(self.total_size / n))[:self.total_size]
        return iter(order[self.rank:self.total_size:self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order for another epoch."""
        self.epoch = epoch
