"""torch.distributed.distributed_c10d: the module in which torch has the functions of torch.distributed; names only."""
# ruff: noqa: F401, F403
from __future__ import annotations

from mindtorch_v2.distributed._collectives import *
from mindtorch_v2.distributed._collectives import (
    _all_gather_base,
    _check_single_tensor,
    _check_tensor_list,
    _coalescing_manager,
    _CoalescingManager,
    _reduce_scatter_base,
)
from mindtorch_v2.distributed._debug import DebugLevel, get_debug_level
from mindtorch_v2.distributed._errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from mindtorch_v2.distributed._objects import *
from mindtorch_v2.distributed._objects import _object_to_tensor, _tensor_to_object
from mindtorch_v2.distributed._options import *
from mindtorch_v2.distributed._process_group import Backend, BackendConfig, ProcessGroup
from mindtorch_v2.distributed._stores import FileStore, HashStore, PrefixStore, Store
from mindtorch_v2.distributed._tcp_store import TCPStore
from mindtorch_v2.distributed._work import ReduceOp, Work, _make_nccl_premul_sum
from mindtorch_v2.distributed._world import *
from mindtorch_v2.distributed._world import (
    GroupMember,
    _get_default_group,
    _get_default_store,
    _get_process_group_name,
    _rank_not_in_group,
    _resolve_process_group,
    _warn_not_in_group,
    _world,
    group,
)
from mindtorch_v2.distributed.constants import default_pg_nccl_timeout, default_pg_timeout
from mindtorch_v2.distributed.rendezvous import register_rendezvous_handler, rendezvous

reduce_op = ReduceOp
