"""torch.distributed.elastic: what programs under the launcher use of it."""
from __future__ import annotations

from mindtorch_v2.distributed import _names

_names.add_to(__name__)
