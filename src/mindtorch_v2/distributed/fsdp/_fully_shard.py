"""fully_shard (FSDP2): the parameters of a module divided over ranks, whole only while the module computes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._world import get_world_size
from mindtorch_v2.distributed.device_mesh import DeviceMesh, init_device_mesh
from mindtorch_v2.distributed.fsdp._group import ParamGroup
from mindtorch_v2.distributed.fsdp._param import ShardedParam
from mindtorch_v2.distributed.fsdp._policies import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from mindtorch_v2.distributed.tensor import Shard

__all__ = ["CPUOffloadPolicy", "DataParallelMeshDims", "FSDPModule", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle",
           "fully_shard", "register_fsdp_forward_method", "share_comm_ctx"]

_tree_map = torch.utils._pytree.tree_map_only
_STATE = "_fsdp_state"


class _Context:
    """What all divided modules of one root share: the order of forward, and whether a backward is under way."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self.order: list[State] = []              # of the forward that ran last
        self.in_backward = False
        self.is_last_backward = True


class State:
    """One call of fully_shard: its modules, their group of parameters, and the hooks."""

    def __init__(self, modules: list[Any], group: ParamGroup, policy: MixedPrecisionPolicy, after_forward: bool | None) -> None:
        self.modules, self.group, self.policy, self.after_forward = modules, group, policy, after_forward
        self.after_backward = True
        self.context: _Context | None = None
        self.is_root = False
        self.forward_prefetch: list[State] = []
        self.backward_prefetch: list[State] | None = None
        self.unshard_in_backward = True

        self.pending = 0                          # parameters of this backward that have no gradient yet
        modules[0].register_forward_pre_hook(self.before_forward, prepend=True, with_kwargs=True)
        modules[-1].register_forward_hook(self.after_forward_hook, prepend=False)

    # ---- forward
    def _become_root(self) -> None:
        context = _Context()
        for module in self.modules:
            for one in module.modules():
                state = getattr(one, _STATE, None)
                if state is not None and state.context is None:
                    state.context = context
                    context.states.append(state)
        self.is_root = True
        if self.after_forward is None:
            self.after_forward = False            # backward begins with it
        for state in context.states:
            state.after_forward = True if state.after_forward is None else state.after_forward

    def before_forward(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        if self.context is None:
            self._become_root()
        if self.is_root and not self.context.in_backward:    # type: ignore[union-attr]
            self.context.order = []               # type: ignore[union-attr]
        self.group.unshard()
        for state in self.forward_prefetch:
            with torch.no_grad():
                state.group.start_unshard()
        dtype = self.policy.param_dtype
        if dtype is not None and self.policy.cast_forward_inputs:
            args, kwargs = _tree_map(torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, (args, kwargs))
        return args, kwargs

    def after_forward_hook(self, module: Any, args: tuple, output: Any) -> Any:
        context = self.context
        assert context is not None
        if not context.in_backward:               # not where activations are computed again
            context.order.append(self)
        if torch.is_grad_enabled():
            output = _tree_map(torch.Tensor, self._watch, output)
        if self.policy.output_dtype is not None:
            output = _tree_map(torch.Tensor, lambda x: x.to(self.policy.output_dtype) if x.is_floating_point() else x, output)
        if self.after_forward and not context.in_backward:
            self.group.reshard()
        return output

    def _watch(self, x: Any) -> Any:
        """Backward comes here first through one of the outputs."""
        if x.requires_grad:
            x.register_hook(self.before_backward)
        return x

    # ---- backward
    def before_backward(self, grad: Any) -> None:
        context = self.context
        assert context is not None
        if not context.in_backward:
            context.in_backward = True
            torch.autograd.Variable._execution_engine.queue_callback(lambda: _end_of_backward(context))
            for state in context.states:
                state.pending = -1
        if self.pending >= 0:
            return
        if self.unshard_in_backward:
            self.group.unshard()
        self._prefetch(context)
        wanted = [param for param in self.group.params if param.whole is not None and param.whole.requires_grad]
        self.pending = len(wanted)
        for param in wanted:
            if not hasattr(param.whole, "_fsdp_hook"):
                param.whole._fsdp_hook = param.whole.register_post_accumulate_grad_hook(self._one_grad)

    def _prefetch(self, context: _Context) -> None:
        """The parts of the module whose backward comes next travel while this one computes."""
        if self.backward_prefetch is not None:
            following = self.backward_prefetch
        else:
            at = context.order.index(self) if self in context.order else 0
            following = [context.order[at - 1]] if at > 0 else []
        with torch.no_grad():
            for state in following:
                if state.unshard_in_backward:
                    state.group.start_unshard()

    def _one_grad(self, param: Any) -> None:
        self.pending -= 1
        if self.pending == 0:
            self.after_backward_of_group()

    def after_backward_of_group(self) -> None:
        """All gradients are there: they are sent, and the whole can go, unless what is left of backward may read a
        parameter that gets no gradient."""
        self.group.start_reduce()
        if self.after_backward and all(param.sharded.requires_grad for param in self.group.params):
            self.group.reshard()


def _end_of_backward(context: _Context) -> None:
    """What is left at the end: parameters that were not used, and waiting for all reductions."""
    for state in context.states:
        if state.group.has_grads():
            state.group.start_reduce()
    for state in context.states:
        state.group.finish_reduce()
        if state.after_backward:
            state.group.reshard()
        state.pending = -1
    context.in_backward = False
    context.order = []


class UnshardHandle:
    """What unshard(async_op=True) gives."""

    def __init__(self, group: ParamGroup) -> None:
        self._group: ParamGroup | None = group

    def wait(self) -> None:
        """The parameters are whole afterwards."""
        if self._group is not None:
            self._group.unshard()
            self._group = None


class FSDPModule:
    """What a module is that fully_shard was called for, besides its own class."""

    def _get_fsdp_state(self) -> State:
        return getattr(self, _STATE)

    def _states(self, recurse: bool) -> list[State]:
        modules = self.modules() if recurse else (self,)     # type: ignore[attr-defined]
        return [one._get_fsdp_state() for one in modules if isinstance(one, FSDPModule)]

    def reshard(self) -> None:
        """The parts in the places of the whole parameters."""
        self._get_fsdp_state().group.reshard()

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """The whole parameters in the places of the parts; with async_op when the handle was waited for."""
        group = self._get_fsdp_state().group
        with torch.no_grad():
            group.start_unshard()
        handle = UnshardHandle(group)
        if async_op:
            return handle
        handle.wait()
        return None

    def reset_iter_state(self) -> None:
        """Forgets a forward that no backward follows."""
        for state in self._states(True):
            state.pending = -1
            if state.context is not None:
                state.context.in_backward, state.context.order = False, []

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Kept for programs that say it: every backward waits for its own reductions."""
        state = self._get_fsdp_state()
        if state.context is not None:
            state.context.is_last_backward = is_last_backward

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether gradients are reduced after backward; else they are added up, whole."""
        for state in self._states(recurse):
            state.group.reduces = state.group.all_reduces = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether parts of gradients are reduced between replicas; else they are added up."""
        for state in self._states(recurse):
            state.group.all_reduces = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        for state in self._states(recurse):
            state.after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        for state in self._states(recurse):
            state.after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Whose parts travel while this module computes its forward."""
        self._get_fsdp_state().forward_prefetch = [module._get_fsdp_state() for module in modules]

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Whose parts travel while this module computes its backward, in the place of the one before it in forward."""
        self._get_fsdp_state().backward_prefetch = [module._get_fsdp_state() for module in modules]

    def set_all_reduce_hook(self, hook: Callable[[Any], None], *, stream: Any = None) -> None:
        """Called with the reduced gradients, flat, before they are given to the parameters."""
        self._get_fsdp_state().group.hook = hook

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What the sum of gradients is divided by, in the place of the number of ranks."""
        self._get_fsdp_state().group.divide_by = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Whether parameters are made whole for backward: one that does not read them need not have them."""
        self._get_fsdp_state().unshard_in_backward = unshard_in_backward

    def _set_unshard_async_op(self, async_op: bool) -> None:
        """Parts always travel in the background."""

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """to(), to_empty() and their like see the parts."""
        self.reshard()
        return super()._apply(*args, **kwargs)               # type: ignore[misc]


def _default_mesh(device_type: str) -> DeviceMesh:
    return init_device_mesh(device_type, (get_world_size(),))


def _default_device() -> str:
    return "npu" if torch.npu.is_available() and torch.distributed.is_hccl_available() else "cpu"


def _managed(modules: list[Any], ignored: set[Any]) -> list[list[tuple[Any, str]]]:
    """The places of each parameter that no fully_shard below has taken."""
    found: dict[int, list[tuple[Any, str]]] = {}

    def visit(module: Any) -> None:
        for name, param in module._parameters.items():
            if param is not None and param not in ignored:
                found.setdefault(id(param), []).append((module, name))
        for child in module.children():
            if not isinstance(child, FSDPModule):
                visit(child)
    for module in modules:
        visit(module)
    return [list(dict.fromkeys(places)) for places in found.values()]


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None,
                shard_placement_fn: Callable[[Any], Shard | None] | None = None,
                mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(), offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
                ignored_params: set[Any] | None = None, dp_mesh_dims: DataParallelMeshDims | None = None) -> Any:
    """Divides the parameters of a module, but for those that an earlier call below it has divided. Modules are given from
    the inside out; each is gathered before its forward and backward, and divided again after them."""
    modules = list(module) if isinstance(module, list | tuple) else [module]
    for one in modules:
        if isinstance(one, torch.nn.ModuleList | torch.nn.ModuleDict):
            raise ValueError(f"fully_shard does not support containers that do not implement forward: {one}")
        if isinstance(one, FSDPModule):
            raise AssertionError(f"Each module can be passed to fully_shard at most once: {type(one).__name__}")
    mesh = mesh or _default_mesh(_default_device())
    if dp_mesh_dims is not None:
        names = [name for name in (dp_mesh_dims.replicate, dp_mesh_dims.shard) if name is not None]
        mesh = mesh[tuple(names) if len(names) > 1 else names[0]]     # type: ignore[arg-type]
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if isinstance(reshard_after_forward, int) and not isinstance(reshard_after_forward, bool):
        if reshard_after_forward not in (1, mesh.size(mesh.ndim - 1)):
            raise NotImplementedError("[fully_shard] reshard_after_forward as a number of ranks: only True, False, or all of them")
        reshard_after_forward = reshard_after_forward != 1
    device = torch.device("npu", torch.npu.current_device()) if mesh.device_type == "npu" else torch.device(mesh.device_type)
    params = []
    for places in _managed(modules, ignored_params or set()):
        param = places[0][0]._parameters[places[0][1]]
        placement = shard_placement_fn(param) if shard_placement_fn is not None else None
        dim = 0 if placement is None else placement.dim + (param.dim() if placement.dim < 0 else 0)
        params.append(ShardedParam(places, mesh, dim, isinstance(offload_policy, CPUOffloadPolicy), device))
    _move_buffers(modules, device)
    group = ParamGroup(params, mesh, mp_policy, device)
    state = State(modules, group, mp_policy, reshard_after_forward)
    for one in modules:
        setattr(one, _STATE, state)
        cls = type(one)
        one.__class__ = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__module__": cls.__module__})
        one.register_state_dict_pre_hook(lambda inner, *_: inner.reshard())
        one.register_load_state_dict_pre_hook(lambda inner, *_: inner.reshard())
    return module


def _move_buffers(modules: list[Any], device: Any) -> None:
    for module in modules:
        for one in module.modules():
            for name, buffer in one._buffers.items():
                if buffer is not None and not buffer.is_meta and buffer.device.type != device.type:
                    one._buffers[name] = buffer.to(device)


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Lets another method than forward gather the parameters: it runs between the same hooks."""
    if not isinstance(module, FSDPModule):
        return                                    # as in torch: a program may ask for modules that are not divided
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    method, state = getattr(module, method_name), module._get_fsdp_state()

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.before_forward(module, args, kwargs)
        return state.after_forward_hook(module, args, method(*args, **kwargs))
    setattr(module, method_name, wrapped)


def share_comm_ctx(modules: list[FSDPModule]) -> None:
    """Modules of several roots are one as to the order of their backward."""
    context = _Context()
    for module in modules:
        for state in module._states(True):
            state.context = context
            context.states.append(state)
            state.after_forward = True if state.after_forward is None else state.after_forward
