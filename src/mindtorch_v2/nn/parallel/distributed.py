"""DistributedDataParallel: every process has the whole module and a part of the data; gradients are averaged."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.nn.modules.module import Module

Tensor = Any


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of a module's output."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors_in(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [t for name in value.__dataclass_fields__ for t in tensors_in(getattr(value, name))]
    return []


def moved(value: Any, device: Any) -> Any:
    """The same structure, its tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return type(value)((key, moved(item, device)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device) for item in value))
    return type(value)(moved(item, device) for item in value) if isinstance(value, list | tuple) else value


def broadcast_all(tensors: list[Tensor], group: Any, root: int = 0, limit: int = 250 << 20) -> None:
    """Gives every rank the tensors of one; many at a time, in rows of one dtype."""
    kinds: dict[Any, list[Tensor]] = {}
    for t in tensors:
        kinds.setdefault((t.dtype, t.device), []).append(t.detach())
    with torch.no_grad():
        for same in kinds.values():
            while same:
                part: list[Tensor] = []
                size = 0
                while same and (not part or size + same[0].nbytes <= limit):
                    size += same[0].nbytes
                    part.append(same.pop(0))
                row = torch.cat([t.reshape(-1) for t in part])
                torch.distributed.broadcast(row, group=group, group_src=root)
                if group.rank() != root:
                    for t, values in zip(part, row.split([t.numel() for t in part]), strict=True):
                        t.copy_(values.view(t.shape))


def check_shapes(tensors: list[Tensor], group: Any) -> None:
    """All ranks must have the same parameters, else they would add unlike things."""
    mine = [(tuple(t.shape), str(t.dtype)) for t in tensors]
    every: list[Any] = [None] * group.size()
    torch.distributed.all_gather_object(every, mine, group)
    for rank, theirs in enumerate(every):
        if len(theirs) != len(mine):
            raise RuntimeError(f"DDP expects same model across all ranks, but Rank {group.rank()} has {len(mine)} params, while "
                               f"rank {rank} has inconsistent {len(theirs)} params.")
        for i, (ours, other) in enumerate(zip(mine, theirs, strict=True)):
            if ours != other:
                raise RuntimeError(f"[{group.rank()}]: params[{i}] in this process with sizes {list(ours[0])} appears not to match "
                                   f"sizes of the same param in process {rank}.")


class DistributedDataParallel(Module):
    """A module whose gradients are the mean over the processes of a group."""

    def __init__(self, module: Module, device_ids: list[Any] | None = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: bool = True, init_sync: bool = True, process_group: Any = None,
                 bucket_cap_mb: float | None = None, find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False,
                 delay_all_reduce_named_params: Any = None, param_to_hook_all_reduce: Any = None, mixed_precision: Any = None,
                 device_mesh: Any = None, skip_all_reduce_unused_params: bool = False) -> None:
        super().__init__()
        refused = {"delay_all_reduce_named_params": delay_all_reduce_named_params, "mixed_precision": mixed_precision,
                   "param_to_hook_all_reduce": param_to_hook_all_reduce}
        for name, given in refused.items():
            if given is not None:
                raise NotImplementedError(f"[DistributedDataParallel] {name} is not offered here")
        if device_mesh is not None and process_group is None:
            process_group = device_mesh.get_group()
        dist = torch.distributed.distributed_c10d
        self.process_group = dist._get_default_group() if process_group is None else process_group
        self._ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(name, p) for name, p in module.named_parameters() if name not in self._ignored]
        params = [p for _, p in named if p.requires_grad]
        if not params:
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                               "gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module, self.dim, self.broadcast_buffers = module, dim, broadcast_buffers
        self.device = params[0].device
        self.device_ids = [torch.device("npu", d) if isinstance(d, int) else torch.device(d) for d in device_ids or ()] or None
        self.output_device, self.static_graph = output_device, static_graph
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self._joined: Any = None
        if init_sync:
            check_shapes([p for _, p in named], self.process_group)
            broadcast_all([p for _, p in named] + self._buffers_to_sync(), self.process_group)
        self.reducer = torch.distributed.Reducer(params, self.process_group, self.bucket_bytes_cap, gradient_as_bucket_view,
                                                 find_unused_parameters, static_graph)

    def _buffers_to_sync(self) -> list[Tensor]:
        return [b for name, b in self.module.named_buffers() if name not in self._ignored]

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        syncs = torch.is_grad_enabled() and self.require_backward_grad_sync
        if syncs and self.reducer.is_unfinished():
            raise RuntimeError(_UNFINISHED)
        if self._joined is not None:
            self._joined.notify(self)
        if syncs:
            self.reducer.rebuild()
        self._sync_buffers()
        if self.device_ids:
            inputs, kwargs = moved(inputs, self.device_ids[0]), moved(kwargs, self.device_ids[0])
        outputs = self.module(*inputs, **kwargs)
        if syncs:
            self.reducer.prepare(tensors_in(outputs))
        return outputs

    def _sync_buffers(self) -> None:
        if self.broadcast_buffers and self.require_forward_param_sync and self.training:
            buffers = self._buffers_to_sync()
            if buffers:
                broadcast_all(buffers, self.process_group)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside add to the gradients of this process only; the next one outside reduces the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def register_comm_hook(self, state: object, hook: Callable[[Any, Any], Any]) -> None:
        """hook(state, bucket) returns a Future of the reduced row, in place of the mean."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self.reducer.hook, self.reducer.hook_state = hook, state

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> Any:
        """Around a training loop whose ranks have different numbers of inputs."""
        return torch.distributed.algorithms.join.Join([self], enable, throw_on_early_termination,
                                                      divide_by_initial_world_size=divide_by_initial_world_size)

    def join_hook(self, **kwargs: Any) -> Any:
        return _DdpJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        return self.device

    @property
    def join_process_group(self) -> Any:
        return self.process_group

    def train(self, mode: bool = True) -> DistributedDataParallel:
        super().train(mode)
        return self

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, params_and_buffers_to_ignore: list[str]) -> None:
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return {"world_size": self.process_group.size(), "rank": self.process_group.rank(), "module_name":
                type(self.module).__name__, "bucket_cap_bytes": self.bucket_bytes_cap}


class _DdpJoinHook:
    """What a rank without input does in the place of a forward and a backward pass."""

    def __init__(self, ddp: DistributedDataParallel, keep_divisor: bool) -> None:
        self.ddp, self.keep_divisor = ddp, keep_divisor

    def main_hook(self) -> None:
        self.ddp.reducer.rebuild()
        self.ddp._sync_buffers()
        if self.ddp.require_backward_grad_sync:
            self.ddp.reducer.reduce_zeros()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All get the parameters of a rank that went on to the end."""
        group = self.ddp.process_group
        rank = torch.tensor([group.rank() if is_last_joiner else -1], device=self.ddp.device)
        torch.distributed.all_reduce(rank, torch.distributed.ReduceOp.MAX, group=group)
        tensors = list(self.ddp.module.parameters()) + self.ddp._buffers_to_sync()
        broadcast_all(tensors, group, int(rank))


_UNFINISHED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module "
    "has parameters that were not used in producing loss. You can enable unused parameter detection by passing the keyword "
    "argument `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by \nmaking sure all `forward` "
    "function outputs participate in calculating loss.")
