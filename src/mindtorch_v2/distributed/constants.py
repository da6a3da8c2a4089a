"""torch.distributed.constants: how long a group waits by default."""
from __future__ import annotations

from datetime import timedelta

default_pg_timeout = timedelta(minutes=30)
default_pg_nccl_timeout = timedelta(minutes=10)
