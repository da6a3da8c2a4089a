"""FullyShardedDataParallel (FSDP1): a wrapper around a module that fully_shard divides."""
from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import broadcast
from mindtorch_v2.distributed._world import get_global_rank, get_rank, get_world_size
from mindtorch_v2.distributed.checkpoint import state_dict as state_dicts
from mindtorch_v2.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch_v2.distributed.fsdp._fully_shard import _default_device, fully_shard
from mindtorch_v2.distributed.fsdp._policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from mindtorch_v2.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from mindtorch_v2.distributed.fsdp.wrap import _wrap_below
from mindtorch_v2.distributed.tensor import DTensor, distribute_tensor

__all__ = ["FullyShardedDataParallel", "LocalOptimStateDictConfig", "LocalStateDictConfig", "OptimStateKeyType"]

_INNER = "_fsdp_wrapped_module"
_CONFIGS: dict[StateDictType, tuple[type[StateDictConfig], type[OptimStateDictConfig]]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig)}


class FullyShardedDataParallel(torch.nn.Module):
    """A module whose parameters are divided over ranks. Its parameters are DTensors, whatever use_orig_params says."""

    def __init__(self, module: Any, process_group: Any = None, sharding_strategy: ShardingStrategy | None = None,
                 cpu_offload: CPUOffload | None = None, auto_wrap_policy: Any = None,
                 backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
                 mixed_precision: MixedPrecision | None = None, ignored_modules: Any = None, param_init_fn: Any = None,
                 device_id: Any = None, sync_module_states: bool = False, forward_prefetch: bool = False,
                 limit_all_gathers: bool = True, use_orig_params: bool = False, ignored_states: Any = None,
                 device_mesh: DeviceMesh | None = None) -> None:
        super().__init__()
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        mesh = device_mesh or _mesh_for(process_group, strategy, device_id)
        shared = dict(sharding_strategy=strategy, cpu_offload=cpu_offload, backward_prefetch=backward_prefetch,
                      mixed_precision=mixed_precision, device_id=device_id, sync_module_states=sync_module_states,
                      param_init_fn=param_init_fn, use_orig_params=use_orig_params, device_mesh=mesh)
        states = list(ignored_states or ()) + list(ignored_modules or ())
        skipped = {one for one in states if isinstance(one, torch.nn.Module)}
        ignored = {one for one in states if not isinstance(one, torch.nn.Module)} | \
            {param for one in skipped for param in one.parameters()}
        if auto_wrap_policy is not None:
            _wrap_below(module, auto_wrap_policy, lambda child, **own: FullyShardedDataParallel(child, **{**shared, **own}),
                        skipped)
        if param_init_fn is not None:
            _materialize(module, param_init_fn)
        if sync_module_states:
            _sync(module, mesh, ignored)
        self._modules[_INNER] = module
        self.sharding_strategy, self.device_mesh, self.process_group = strategy, mesh, mesh.get_group(mesh.ndim - 1)
        self._settings = StateDictSettings(StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig())
        precision = mixed_precision or MixedPrecision()
        policy = MixedPrecisionPolicy(precision.param_dtype, precision.reduce_dtype, None,
                                      precision.cast_forward_inputs or precision.cast_root_forward_inputs)
        offload = CPUOffloadPolicy() if cpu_offload is not None and cpu_offload.offload_params else OffloadPolicy()
        keeps = strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2, ShardingStrategy.NO_SHARD)
        fully_shard(module, mesh=mesh, reshard_after_forward=not keeps, mp_policy=policy, offload_policy=offload,
                    ignored_params=ignored)

    @property
    def module(self) -> Any:
        """The module inside."""
        return self._modules[_INNER]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_INNER], name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        """Names without those of the wrappers."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(f"{_INNER}.", ""), param

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(f"{_INNER}.", ""), buffer

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The wrappers within a module."""
        found = [one for one in module.modules() if isinstance(one, FullyShardedDataParallel)]
        return found[:1] if root_only else found

    def check_is_root(self) -> bool:
        """Whether no wrapper is around this one."""
        return bool(self.module._get_fsdp_state().is_root)

    # ---- training
    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A with block in which gradients are added up and not reduced."""
        self.module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            self.module.set_requires_gradient_sync(True)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Any:
        """torch.nn.utils.clip_grad_norm_ over all ranks; the norm as a plain tensor."""
        total = torch.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)
        return total.full_tensor() if isinstance(total, DTensor) else total

    @staticmethod
    @contextmanager
    def summon_full_params(module: Any, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
                           offload_to_cpu: bool = False, with_grads: bool = False) -> Iterator[None]:
        """A with block in which parameters are whole, their gradients too with with_grads; what was written to them stays, with
        writeback. offload_to_cpu: they are copies in the host's memory; rank0_only: on other ranks they stay parts."""
        if writeback and rank0_only:
            raise NotImplementedError("`writeback=True` with `rank0_only=True` is not supported: the other ranks would not know "
                                      "what was written")
        if offload_to_cpu and not rank0_only:
            warnings.warn("offload_to_cpu=True and rank0_only=False: every process of a host has a copy of all parameters in its "
                          "memory", stacklevel=3)
        found = FullyShardedDataParallel.fsdp_modules(module) if recurse else [module]
        params = [param for one in found for param in one.module._get_fsdp_state().group.params]
        grads = {id(param): param.sharded.grad.full_tensor() for param in params
                 if with_grads and param.sharded.grad is not None}
        for one in found:
            one.module.unshard()
        shown = not rank0_only or get_rank() == 0
        for param in params:
            param.begin_whole_use(shown, offload_to_cpu, grads.get(id(param)))
        try:
            yield
        finally:
            for param in params:
                param.end_whole_use(writeback)
            for one in found:
                one.module._get_fsdp_state().group.reshard()

    # ---- state dicts
    @staticmethod
    def set_state_dict_type(module: Any, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
                            optim_state_dict_config: OptimStateDictConfig | None = None) -> StateDictSettings:
        """What state_dict() of the wrappers within a module gives; the settings before."""
        config, optim_config = _CONFIGS[state_dict_type]
        settings = StateDictSettings(state_dict_type, state_dict_config or config(), optim_state_dict_config or optim_config())
        found = FullyShardedDataParallel.fsdp_modules(module)
        before = found[0]._settings
        for one in found:
            one._settings = settings
        return before

    @staticmethod
    def get_state_dict_type(module: Any) -> StateDictSettings:
        return FullyShardedDataParallel.fsdp_modules(module)[0]._settings

    @staticmethod
    @contextmanager
    def state_dict_type(module: Any, state_dict_type: StateDictType, state_dict_config: StateDictConfig | None = None,
                        optim_state_dict_config: OptimStateDictConfig | None = None) -> Iterator[None]:
        """A with block of set_state_dict_type."""
        before = FullyShardedDataParallel.set_state_dict_type(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            for one in FullyShardedDataParallel.fsdp_modules(module):
                one._settings = before

    def state_dict(self, *args: Any, prefix: str = "", **kwargs: Any) -> Any:
        """Whole tensors, DTensors, or this rank's parts as plain tensors (LOCAL_STATE_DICT, which shares their memory and is loaded
        by as many ranks), by the names that the parameters have without wrappers."""
        self.module.reshard()
        config = self._settings.state_dict_config
        options = state_dicts.StateDictOptions(full_state_dict=self._settings.state_dict_type is StateDictType.FULL_STATE_DICT)
        made = kwargs.get("destination")
        made = {} if made is None else made
        for name, value in self.module.state_dict(**{k: v for k, v in kwargs.items() if k != "destination"}).items():
            value = state_dicts._brought(value, options)
            if self._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT and isinstance(value, DTensor):
                value = value.to_local()
            value = value.cpu() if config.offload_to_cpu and isinstance(value, torch.Tensor) else value
            made[prefix + name.replace(f"{_INNER}.", "")] = value
        return {} if getattr(config, "rank0_only", False) and get_rank() != 0 else made

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Loading goes on below this wrapper: names as they are there, whole values divided as the parameters."""
        self.module.reshard()
        inner = f"{prefix}{_INNER}."
        for name in [name for name in state_dict if name.startswith(prefix) and not name.startswith(inner)]:
            state_dict[inner + name[len(prefix):]] = state_dict.pop(name)
        for name, param in self.module.named_parameters():
            if inner + name in state_dict and isinstance(param, DTensor):
                local = self._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT
                state_dict[inner + name] = (_of_local if local else _as_part)(state_dict[inner + name], param)

    @staticmethod
    def optim_state_dict(model: Any, optim: Any, optim_state_dict: Any = None, group: Any = None) -> dict[str, Any]:
        """The optimizer's state by names: whole tensors, or DTensors, as the settings say."""
        settings = FullyShardedDataParallel.get_state_dict_type(model)
        if settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise NotImplementedError("[FullyShardedDataParallel] the state of an optimizer as LOCAL_STATE_DICT")
        full = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        config = settings.optim_state_dict_config
        made = state_dicts.get_optimizer_state_dict(model, optim, options=state_dicts.StateDictOptions(
            full_state_dict=full, cpu_offload=False))
        if config.offload_to_cpu:
            made["state"] = state_dicts._brought(made["state"], state_dicts.StateDictOptions(cpu_offload=True))
        return {} if getattr(config, "rank0_only", False) and get_rank() != 0 else made

    @staticmethod
    def optim_state_dict_to_load(model: Any, optim: Any, optim_state_dict: dict[str, Any], is_named_optimizer: bool = False,
                                 load_directly: bool = False, group: Any = None) -> dict[str, Any]:
        """What optim.load_state_dict takes, of what optim_state_dict() gave."""
        state_dicts.set_optimizer_state_dict(model, optim, optim_state_dict)
        return optim.state_dict()

    full_optim_state_dict = optim_state_dict


def _mesh_for(process_group: Any, strategy: ShardingStrategy, device_id: Any) -> DeviceMesh:
    kind = torch.device(device_id).type if device_id is not None and not isinstance(device_id, int) else _default_device()
    if strategy is ShardingStrategy.NO_SHARD:
        return init_device_mesh(kind, (get_world_size(), 1))
    if strategy in (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2):
        if not isinstance(process_group, tuple):
            raise ValueError("[FullyShardedDataParallel] HYBRID_SHARD needs a device_mesh of two dimensions, or the groups that "
                             "shard and replicate")
        shard, replicate = process_group
        table = torch.arange(get_world_size()).view(replicate.size(), shard.size())
        return DeviceMesh.from_group([replicate, shard], kind, table)
    if process_group is not None:
        return DeviceMesh.from_group(process_group, kind)
    return init_device_mesh(kind, (get_world_size(),))


def _materialize(module: Any, param_init_fn: Any) -> None:
    """Makes the parameters of modules that are on meta."""
    for one in module.modules():
        own = [*one.parameters(recurse=False), *one.buffers(recurse=False)]
        if any(value.is_meta for value in own) and not isinstance(one, FullyShardedDataParallel):
            param_init_fn(one)


def _sync(module: Any, mesh: DeviceMesh, ignored: set[Any]) -> None:
    """Every rank has what the first of the group has."""
    group = mesh.get_group(mesh.ndim - 1)
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            if not isinstance(value, DTensor) and value not in ignored:
                data = value.detach().to(mesh.device_type) if mesh.device_type == "npu" else value.detach()
                broadcast(data, src=get_global_rank(group, 0), group=group)
                value.detach().copy_(data)


def _of_local(value: Any, like: DTensor) -> Any:
    """This rank's part of a parameter, as LOCAL_STATE_DICT has it."""
    if isinstance(value, DTensor):
        return value
    if value.shape != like.to_local().shape:
        raise RuntimeError(f"[FullyShardedDataParallel] a part of {tuple(value.shape)} where this rank has one of "
                           f"{tuple(like.to_local().shape)}: LOCAL_STATE_DICT is loaded by the number of ranks that saved it")
    return DTensor(value.detach().to(like.device), like._spec)


def _as_part(value: Any, like: DTensor) -> Any:
    """A whole tensor divided as a parameter; every rank has the same whole."""
    if isinstance(value, DTensor):
        return value
    return distribute_tensor(value.detach().to(like.device), like.device_mesh, like.placements, src_data_rank=None)
