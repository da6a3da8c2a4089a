"""torch.distributed.elastic.multiprocessing: how a worker tells the launcher why it failed."""
from __future__ import annotations

from mindtorch_v2.distributed._agent import SignalException
from mindtorch_v2.distributed.elastic.multiprocessing import errors
