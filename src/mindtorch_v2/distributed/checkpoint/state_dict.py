"""State dicts of models and optimizers by the names of parameters, whatever divides or wraps them."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _objects as objects
from mindtorch_v2.distributed._collectives import broadcast
from mindtorch_v2.distributed._world import get_rank, is_initialized
from mindtorch_v2.distributed.tensor import DTensor, Replicate, distribute_tensor

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]

Tensor = Any
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "_fsdp_wrapped_module.")


@dataclass
class StateDictOptions:
    """Options of a state dict: unsharded tensors, on the cpu, on rank 0 only …"""
    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def _inner(model: Any) -> Any:
    """The module that DistributedDataParallel holds."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _plain_name(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _names(model: Any) -> dict[int, str]:
    """The name of each parameter, by its identity."""
    return {id(param): _plain_name(name) for name, param in _inner(model).named_parameters()}


def _brought(value: Any, options: StateDictOptions) -> Any:
    """A value as the options want it: tensors whole, on the cpu; a list or dict item by item."""
    if isinstance(value, dict):
        return {key: _brought(item, options) for key, item in value.items()}
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if options.full_state_dict and isinstance(value, DTensor):
            value = value.full_tensor()
        if options.cpu_offload:
            value = DTensor(value.to_local().cpu(), value._spec) if isinstance(value, DTensor) else value.cpu()
    return value


def _for_rank0(made: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """Whole tensors on the cpu are wanted once, by rank 0."""
    only = options.full_state_dict and options.cpu_offload and is_initialized() and get_rank() != 0
    return {} if only else made


# ---- models ---------------------------------------------------------------------------------------------------------------
def get_model_state_dict(model: Any, *, submodules: set[Any] | None = None,
                         options: StateDictOptions | None = None) -> dict[str, Any]:
    """The model's state; sharded tensors are DTensors, unless full_state_dict gathers them."""
    options = options or StateDictOptions()
    inner = _inner(model)
    frozen = {_plain_name(name) for name, param in inner.named_parameters() if not param.requires_grad}
    prefixes = None if submodules is None else tuple(f"{_plain_name(name)}." for name, one in inner.named_modules()
                                                     if one in submodules)
    made = {}
    for name, value in inner.state_dict().items():
        name = _plain_name(name)
        if options.ignore_frozen_params and name in frozen:
            continue
        if prefixes is not None:
            prefix = next((p for p in prefixes if name.startswith(p)), None)
            if prefix is None:
                continue
            name = name if options.keep_submodule_prefixes else name[len(prefix):]
        made[name] = _brought(value, options)
    return _for_rank0(made, options)


def set_model_state_dict(model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> Any:
    """Loads what get_model_state_dict gave, into a model that may be divided otherwise."""
    options = options or StateDictOptions()
    inner = _inner(model)
    own = {_plain_name(name): (name, value) for name, value in inner.state_dict(keep_vars=True).items()}
    given: dict[str, Any] = {own.get(name, (name,))[0]: value for name, value in model_state_dict.items()}
    if options.broadcast_from_rank0 or options.full_state_dict:
        known = _rank0_names(given) if options.broadcast_from_rank0 else set(given)
        given |= {name: _divided(given.get(name), like, options.broadcast_from_rank0)
                  for name, like in own.values() if name in known}
    return inner.load_state_dict(given, strict=options.strict)


def _rank0_names(given: dict[str, Any]) -> set[str]:
    names = [list(given)]
    objects.broadcast_object_list(names, src=0)
    return set(names[0])


def _divided(value: Any, like: Any, from_rank0: bool) -> Any:
    """A whole value divided as another one, or as it is; from rank 0 where only that one has it."""
    if not isinstance(like, torch.Tensor):
        return _from_rank0(value) if from_rank0 else value
    if from_rank0:
        whole = torch.empty(like.shape, dtype=like.dtype, device=like.device)
        if get_rank() == 0:
            whole.copy_(value.full_tensor() if isinstance(value, DTensor) else value)
        broadcast(whole, src=0)
        value = whole
    if isinstance(like, DTensor) and not isinstance(value, DTensor):
        return distribute_tensor(value.detach().to(like.device), like.device_mesh, like.placements, src_data_rank=None)
    return value


def _from_rank0(value: Any) -> Any:
    box = [value]
    objects.broadcast_object_list(box, src=0)
    return box[0]


# ---- optimizers -----------------------------------------------------------------------------------------------------------
def _listed(optimizers: Any) -> list[Any]:
    return [optimizers] if isinstance(optimizers, torch.optim.Optimizer) else list(optimizers)


def _make_state(optimizer: Any) -> None:
    """The state of an optimizer that has made no step: by one with gradients of zero that moves nothing."""
    if optimizer.state:
        return
    params = [param for group in optimizer.param_groups for param in group["params"] if param.requires_grad]
    if any(param.grad is not None for param in params):
        return
    rates = []
    for group in optimizer.param_groups:
        rates.append(group.get("lr"))
        if "lr" in group:
            group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    for param in params:
        param.grad = torch.zeros_like(param)
    optimizer.step(closure=None)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if "lr" in group:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def get_optimizer_state_dict(model: Any, optimizers: Any, *, submodules: set[Any] | None = None,
                             options: StateDictOptions | None = None) -> dict[str, Any]:
    """The state of optimizers, with names in the place of numbers of parameters."""
    options = options or StateDictOptions()
    names = _names(model)
    kept = None if submodules is None else {id(param) for one in submodules for param in one.parameters()}
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        _make_state(optimizer)
        for group in optimizer.param_groups:
            params = [param for param in group["params"] if kept is None or id(param) in kept]
            for param in params:
                if param in optimizer.state:
                    state[names[id(param)]] = _brought(dict(optimizer.state[param]), options)
            rest = {key: value for key, value in group.items() if key != "params"}
            groups.append(rest | {"params": [names[id(param)] for param in params]})
    made: dict[str, Any] = {"state": state, "param_groups": groups}
    return _for_rank0(_flat(made) if options.flatten_optimizer_state_dict else made, options)


def _flat(made: dict[str, Any]) -> dict[str, Any]:
    """Every value under a name of its own: state.NAME.KEY and param_groups.NAME.KEY."""
    found = {f"state.{name}.{key}": value for name, values in made["state"].items() for key, value in values.items()}
    for group in made["param_groups"]:
        for name in group["params"]:
            found |= {f"param_groups.{name}.{key}": value for key, value in group.items() if key != "params"}
    return found


def _unflat(given: dict[str, Any], names: list[list[str]]) -> dict[str, Any]:
    """What _flat was made of, for groups with these parameters."""
    state: dict[str, Any] = {}
    groups = []
    for params in names:
        for name in params:
            begin = f"state.{name}."
            values = {key[len(begin):]: value for key, value in given.items() if key.startswith(begin)}
            if values:
                state[name] = values
        begin = f"param_groups.{params[0]}."
        groups.append({key[len(begin):]: value for key, value in given.items() if key.startswith(begin)} | {"params": params})
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(model: Any, optimizers: Any, optim_state_dict: dict[str, Any], *,
                             options: StateDictOptions | None = None) -> None:
    """Loads what get_optimizer_state_dict gave."""
    options = options or StateDictOptions()
    names = _names(model)
    for optimizer in _listed(optimizers):
        _make_state(optimizer)
        mine = [[names[id(param)] for param in group["params"]] for group in optimizer.param_groups]
        given = optim_state_dict
        if options.broadcast_from_rank0:
            given = _from_rank0_state(given)
        if given and "param_groups" not in given:
            given = _unflat(given, mine)
        _load_into(optimizer, given, mine, options)


def _from_rank0_state(given: dict[str, Any]) -> dict[str, Any]:
    """Rank 0's values; tensors go by the same way, as an optimizer's state is not of one shape."""
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, DTensor):
            value = value.full_tensor()
        return value.cpu() if isinstance(value, torch.Tensor) else value
    return _from_rank0(plain(given) if get_rank() == 0 else None)


def _load_into(optimizer: Any, given: dict[str, Any], mine: list[list[str]], options: StateDictOptions) -> None:
    numbers = {name: i for i, name in enumerate(name for params in mine for name in params)}
    params = [param for group in optimizer.param_groups for param in group["params"]]
    missing = [name for name in numbers if name not in given["state"] and optimizer.state.get(params[numbers[name]])]
    if missing and options.strict:
        raise RuntimeError(f"Missing optimizer state for parameter '{missing[0]}' in checkpoint. The parameter requires "
                           "gradients but has no saved optimizer state.")
    state = {}
    for name, number in numbers.items():
        if name in given["state"]:
            like = optimizer.state.get(params[number], {})
            state[number] = {key: _as_state(value, params[number], like.get(key)) for key, value in given["state"][name].items()}
    groups = []
    for own, names in zip(optimizer.param_groups, mine, strict=True):
        saved: dict[str, Any] = next((group for group in given["param_groups"] if set(group["params"]) & set(names)), {})
        rest = {key: value for key, value in own.items() if key != "params"} | \
            {key: value for key, value in saved.items() if key != "params"}
        groups.append(rest | {"params": [numbers[name] for name in names]})
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _as_state(value: Any, param: Any, like: Any) -> Any:
    """A value of the state of a parameter, divided as the parameter's own state."""
    if isinstance(value, torch.Tensor) and not isinstance(value, DTensor) and isinstance(param, DTensor) \
            and value.shape == param.shape and value.dim():
        known = like.placements if isinstance(like, DTensor) else param.placements
        placements = [Replicate() if p.is_partial() else p for p in known]
        return distribute_tensor(value.to(param.device), param.device_mesh, placements, src_data_rank=None)
    return value


# ---- both -----------------------------------------------------------------------------------------------------------------
def get_state_dict(model: Any, optimizers: Any, *, submodules: set[Any] | None = None,
                   options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the model's state, that of its optimizers)."""
    optimizers = _listed(optimizers)
    return get_model_state_dict(model, submodules=submodules, options=options), \
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)


def set_state_dict(model: Any, optimizers: Iterable[Any] | Any, *, model_state_dict: dict[str, Any],
                   optim_state_dict: dict[str, Any], options: StateDictOptions | None = None) -> Any:
    """Loads what get_state_dict gave."""
    keys = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return keys
