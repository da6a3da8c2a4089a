"""torch.distributed: many processes as one program. Groups and collectives over HCCL (npu) and MPI (cpu)."""
from __future__ import annotations

import mindtorch_v2 as torch
from mindtorch_v2.distributed import (
    _functional_collectives,
    _names,
    _process,
    algorithms,
    constants,
    device_mesh,
    distributed_c10d,
    nn,
    optim,
)
from mindtorch_v2.distributed._collectives import (
    P2POp,
    _all_gather_base,
    _coalescing_manager,
    _reduce_scatter_base,
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    gather,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
    send,
)
from mindtorch_v2.distributed._debug import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from mindtorch_v2.distributed._errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from mindtorch_v2.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from mindtorch_v2.distributed._options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    BuiltinCommHookType,
    GatherOptions,
    GroupName,
    Logger,
    ProcessGroupGloo,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    breakpoint,
    get_default_backend_for_device,
    record_comm,
    shrink_group,
    supports_complex,
)
from mindtorch_v2.distributed._process_group import Backend, BackendConfig, ProcessGroup
from mindtorch_v2.distributed._reducer import GradBucket, Reducer
from mindtorch_v2.distributed._stores import FileStore, HashStore, PrefixStore, Store
from mindtorch_v2.distributed._tcp_store import TCPStore
from mindtorch_v2.distributed._work import RedOpType, ReduceOp, Work, _make_nccl_premul_sum
from mindtorch_v2.distributed._world import (
    GroupMember,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_hccl_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from mindtorch_v2.distributed.constants import default_pg_timeout
from mindtorch_v2.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch_v2.distributed.rendezvous import register_rendezvous_handler, rendezvous

reduce_op = ReduceOp
_names.add_to(__name__)
torch._deferred.defer(__name__, {name: f"distributed.{name}" for name in
                                 ("_composable", "_tensor", "checkpoint", "fsdp", "pipelining", "tensor")})
del torch
