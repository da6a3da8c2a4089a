"""torch.utils.data.datapipes.utils.snapshot: a stream taken up where a pass was left."""
from __future__ import annotations

from typing import Any

from mindtorch_v2.utils.data.datapipes._hook_iterator import _SnapshotState
from mindtorch_v2.utils.data.graph_settings import apply_random_seed


def _simple_graph_snapshot_restoration(datapipe: Any, n_iterations: int, rng: Any = None) -> None:
    """The next pass of a stream begins after so many items; they are read again."""
    if datapipe._snapshot_state == _SnapshotState.Restored:
        raise RuntimeError("Snapshot restoration cannot be applied. You can only restore simple snapshot to the graph "
                           "if your graph has not been restored.")
    datapipe.reset()
    if rng is not None:
        apply_random_seed(datapipe, rng)
    items = iter(datapipe)
    for _ in range(n_iterations):
        try:
            next(items)
        except StopIteration as error:
            raise RuntimeError(f"Fast-forward {datapipe} by {n_iterations} iterations exceeds the number of samples "
                               "available.") from error
    datapipe._fast_forward_iterator = items
    datapipe._snapshot_state = _SnapshotState.Restored
