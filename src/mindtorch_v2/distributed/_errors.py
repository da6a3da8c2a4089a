"""The exceptions of torch.distributed, by torch's names."""
from __future__ import annotations


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """An engine (HCCL, MPI) failed: a rank is gone, disagrees, or did not come in time."""


class DistNetworkError(DistError):
    """A connection could not be made or broke."""


class DistStoreError(DistError):
    """A store did not answer in time."""


class QueueEmptyError(DistStoreError):
    """A queue of a store has nothing."""
