"""What torch.distributed has below it and this library does not: modules whose functions refuse and whose classes cannot
be made, so that packages can import them and ask isinstance. A file or folder of the same name takes its place.
"""
from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import device_mesh

_facade = torch._facade
WHY = "mindtorch_v2 does not offer this part of torch.distributed"
# A module below torch.distributed: functions that refuse | classes that cannot be made.
_TABLE = """
tensor: distribute_tensor distribute_module zeros ones empty full rand randn | DTensor DTensorSpec
tensor.placement_types: |
tensor._utils: compute_local_shape_and_global_offset compute_local_shape compute_global_tensor_info |
tensor._dtensor_spec: | DTensorSpec TensorMeta
tensor._redistribute: redistribute_local_tensor |
tensor.parallel: parallelize_module loss_parallel | ParallelStyle ColwiseParallel RowwiseParallel SequenceParallel
    PrepareModuleInput PrepareModuleOutput PrepareModuleInputOutput
tensor.experimental: implicit_replication context_parallel register_sharding local_map |
fsdp: fully_shard register_fsdp_forward_method | FSDPModule FullyShardedDataParallel UnshardHandle
    MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy MixedPrecision CPUOffload BackwardPrefetch ShardingStrategy
    StateDictType FullStateDictConfig FullOptimStateDictConfig LocalStateDictConfig LocalOptimStateDictConfig
    ShardedStateDictConfig ShardedOptimStateDictConfig StateDictConfig OptimStateDictConfig StateDictSettings
    FlatParameter
fsdp.wrap: size_based_auto_wrap_policy transformer_auto_wrap_policy lambda_auto_wrap_policy always_wrap_policy
    enable_wrap wrap | ModuleWrapPolicy CustomPolicy
fsdp.sharded_grad_scaler: | ShardedGradScaler
algorithms.model_averaging: |
algorithms.model_averaging.averagers: | ModelAverager PeriodicModelAverager
algorithms.ddp_comm_hooks.post_localSGD_hook: post_localSGD_hook | PostLocalSGDState
algorithms._checkpoint: |
algorithms._checkpoint.checkpoint_wrapper: checkpoint_wrapper apply_activation_checkpointing offload_wrapper |
    CheckpointImpl CheckpointWrapper ActivationWrapper OffloadWrapper
checkpoint: save load async_save save_state_dict load_state_dict | FileSystemReader FileSystemWriter
    DefaultLoadPlanner DefaultSavePlanner Metadata
checkpoint.state_dict: get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict
    set_optimizer_state_dict set_state_dict | StateDictOptions
checkpoint.hf_storage: | HuggingFaceStorageReader HuggingFaceStorageWriter
checkpoint.default_planner: | DefaultLoadPlanner DefaultSavePlanner
checkpoint._consolidate_hf_safetensors: consolidate_safetensors_files |
_functional_collectives: wait_tensor all_to_all_single_autograd all_gather_tensor all_reduce reduce_scatter_tensor |
checkpoint.stateful: | Stateful
checkpoint.format_utils: dcp_to_torch_save torch_save_to_dcp |
rpc: init_rpc rpc_sync rpc_async remote shutdown get_worker_info | RRef WorkerInfo BackendType
rpc.api: init_rpc rpc_sync rpc_async remote shutdown get_worker_info _require_initialized | RRef
pipelining: pipeline pipe_split | Pipe PipelineStage SplitPoint ScheduleGPipe Schedule1F1B
launcher: |
launcher.api: elastic_launch launch_agent | LaunchConfig
utils: |
"""


class Placement:
    """How a tensor would lie on the devices of a mesh; a value, like a shape."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each device has a part of a dimension."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether each device has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether devices have summands of it."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each device has a part of a dimension."""
    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    """Parts of parts, as two ways of sharding leave them."""
    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has the whole."""


@dataclass(frozen=True)
class Partial(Placement):
    """Devices have summands, or what else is reduced."""
    reduce_op: str = "sum"


_PLACEMENTS = {cls.__name__: cls for cls in (Placement, Shard, _StridedShard, Replicate, Partial)}


def _contents() -> dict[str, dict[str, Any]]:
    """module -> what it holds, parents first."""
    found: dict[str, dict[str, Any]] = {}
    for line in _TABLE.replace("\n    ", " ").strip().splitlines():
        path, _, rest = line.partition(":")
        functions, _, classes = rest.partition("|")
        prefix = f"torch.distributed.{path}."
        found[path] = _facade.refusals(functions, WHY, prefix) | _facade.absents(classes, WHY, prefix)
    fsdp = found["fsdp"]
    found["tensor.placement_types"] |= _PLACEMENTS
    found["tensor"] |= _PLACEMENTS
    found["tensor"] |= {"DeviceMesh": device_mesh.DeviceMesh, "init_device_mesh": device_mesh.init_device_mesh}
    # The same things under the names that older releases had for their places.
    found |= {"_tensor": found["tensor"], "_tensor.experimental": found["tensor.experimental"],
              "_tensor.placement_types": found["tensor.placement_types"], "_tensor.api": found["tensor"],
              "_composable": {}, "_composable.fsdp": fsdp, "fsdp.api": fsdp, "fsdp.fully_sharded_data_parallel": fsdp,
              "fsdp._fully_shard": fsdp}
    found["rpc"]["is_available"] = lambda: False
    return found


def add_to(package: str) -> None:
    """Make the modules that no file holds."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for path, contents in _contents().items():
        place = os.path.join(folder, *path.split("."))
        if not (os.path.isdir(place) or os.path.exists(place + ".py")):
            parent, _, last = f"{package}.{path}".rpartition(".")
            doc = f"torch.distributed.{path}: by name only."
            vars(sys.modules[parent])[last] = _facade.module(parent, last, doc, **contents)
