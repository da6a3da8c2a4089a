"""The way of one op on distributed tensors: choose placements, move what lies otherwise, compute on parts, wrap the results."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.device_mesh import DeviceMesh
from mindtorch_v2.distributed.tensor import _rules, _special
from mindtorch_v2.distributed.tensor._redistribute import moved
from mindtorch_v2.distributed.tensor._rules import Call, Way
from mindtorch_v2.distributed.tensor.placement_types import (
    DTensorSpec,
    Partial,
    Placement,
    Replicate,
    Shard,
    TensorMeta,
    _NormPartial,
    _StridedShard,
)

Tensor = Any
_pytree = torch.utils._pytree
_IMPOSSIBLE = float("inf")
_PLANS_KEPT = 4096


class Plan:
    """What was decided for arguments of a kind: placements to bring tensors to, and what the results are."""

    def __init__(self, mesh: DeviceMesh, tensors: list[tuple[Placement, ...]], results: list[DTensorSpec], listed: Any) -> None:
        self.mesh, self.tensors, self.results, self.listed = mesh, tensors, results, listed


_plans: dict[Any, Plan] = {}
implicit_replication = False                      # plain tensors count as Replicate; see experimental.implicit_replication


def local_shape(shape: tuple[int, ...], mesh: DeviceMesh, placements: tuple[Placement, ...]) -> list[int]:
    """The shape of this rank's part."""
    sizes = list(shape)
    for i, placement in enumerate(placements):
        if isinstance(placement, Shard):
            sizes[placement.dim] = Shard.local_shard_size_and_offset(sizes[placement.dim], mesh.size(i),
                                                                     mesh.get_local_rank(i))[0]
    return sizes


def _bind(func: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names of the row's parameters; those that were left out are their defaults."""
    row = func._row
    named = dict(zip(row.names, row.defaults, strict=False))
    named.update(zip(row.names, args, strict=False))
    named.update(kwargs)
    return named


def dispatch(func: Any, args: tuple, kwargs: dict[str, Any], wrap: Callable[[Tensor, DTensorSpec], Tensor],
             dtensor: Any) -> Any:
    """The result of an op of which some tensors are distributed."""
    name = func.overloadpacket.__name__
    leaves, tree = _pytree.tree_flatten((args, kwargs))
    mesh = next(x._spec.mesh for x in leaves if isinstance(x, dtensor))
    leaves = [_distributed(x, func, mesh, wrap, dtensor) for x in leaves]
    args, kwargs = _pytree.tree_unflatten(leaves, tree)
    tensors = [x for x in leaves if isinstance(x, dtensor)]
    if any(x._spec.mesh != mesh for x in tensors):
        raise NotImplementedError(f"{func}: DTensor does not support cross-mesh operation yet! Got meshes: {mesh} and "
                                  f"{next(x._spec.mesh for x in tensors if x._spec.mesh != mesh)}")
    fixed = tensors[0] if func._row.mutates or name.endswith("_") and not name.endswith("__") else kwargs.get("out")
    plan = _plan(func, name, args, kwargs, leaves, tensors, mesh, fixed, dtensor)
    locals_ = iter([moved(x._local_tensor, mesh, tuple(x.shape), x._spec.placements, wanted)
                    for x, wanted in zip(tensors, plan.tensors, strict=True)])
    given = [next(locals_) if isinstance(x, dtensor) else x for x in leaves]
    if mesh.get_coordinate() is None:
        return _of_no_part(plan, wrap, tensors)
    result = _compute(func, name, plan, _pytree.tree_unflatten(given, tree), tensors)
    if fixed is not None:
        return fixed
    if not plan.results:
        return result
    if isinstance(result, torch.Tensor):
        return wrap(result, plan.results[0])
    specs = iter(plan.results)
    wrapped = [wrap(x, next(specs)) if isinstance(x, torch.Tensor) else x for x in result]
    return plan.listed(wrapped)


def _of_no_part(plan: Plan, wrap: Callable[..., Tensor], tensors: list[Tensor]) -> Any:
    """A rank outside the mesh has results without items."""
    made = [wrap(torch.empty(0, dtype=spec._meta().dtype, device=tensors[0].device), spec) for spec in plan.results]
    return made[0] if len(made) == 1 else tuple(made)


def _distributed(x: Any, func: Any, mesh: DeviceMesh, wrap: Callable[..., Tensor], dtensor: Any) -> Any:
    """A plain tensor of one item is everybody's; another one where the user has said so, and in backward: there it is what
    the engine or a formula made of the shape of the whole."""
    if not isinstance(x, torch.Tensor) or isinstance(x, dtensor):
        return x
    if x.numel() == 1 or implicit_replication or torch._C._current_graph_task_id() >= 0:
        meta = TensorMeta(x.shape, x.stride(), x.dtype)
        return wrap(x, DTensorSpec(mesh, (Replicate(),) * mesh.ndim, meta))
    raise RuntimeError(f"{func} got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
                       "distributed operators!")


def _compute(func: Any, name: str, plan: Plan, call: Any, tensors: list[Tensor]) -> Any:
    """The op on parts, with the sizes of parts."""
    args, kwargs = call
    special = _special.COMPUTE.get(name)
    if special is not None:
        return special(func, args, kwargs, plan, tensors)
    if name in _rules.SIZES:
        named = _bind(func, args, kwargs)
        named[_rules.SIZES[name]] = local_shape(plan.results[0].shape, plan.mesh, plan.results[0].placements)
        values = [named[n] for n in func._row.names[:func._row.npositional]]
        op = torch.Tensor.reshape if name == "view" else func   # a part may lie otherwise in memory than the whole
        return op(*values)
    return func(*args, **kwargs)


# ---- deciding -------------------------------------------------------------------------------------------------------------
def _key(func: Any, args: tuple, kwargs: dict[str, Any], leaves: list[Any], dtensor: Any, in_place: bool) -> Any:
    lists = tuple(len(x) if isinstance(x, list | tuple) else -1 for x in args)
    parts: list[Any] = [func, lists, tuple(kwargs), in_place]
    for x in leaves:
        if isinstance(x, dtensor):
            parts.append((x._spec, x.device.type))
        else:
            parts.append((type(x), x))
    return tuple(parts)


def _plan(func: Any, name: str, args: tuple, kwargs: dict[str, Any], leaves: list[Any], tensors: list[Tensor],
          mesh: DeviceMesh, fixed: Any, dtensor: Any) -> Plan:
    key = _key(func, args, kwargs, leaves, dtensor, fixed is not None)
    try:
        found = _plans.get(key)
    except TypeError:                             # an argument that cannot be a key
        key, found = None, None
    if found is None:
        found = _decide(func, name, args, kwargs, tensors, mesh, fixed, dtensor)
        if key is not None:
            if len(_plans) >= _PLANS_KEPT:
                _plans.clear()
            _plans[key] = found
    return found


def _whole_results(func: Any, args: tuple, kwargs: dict[str, Any], dtensor: Any) -> tuple[list[TensorMeta], Any]:
    """What the results of whole tensors look like, by the rule of the row: computed on meta."""
    def blank(x: Any) -> Any:
        if isinstance(x, dtensor):
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        return x
    named = {k: v for k, v in kwargs.items() if k != "out"}
    if named.get("device") is not None:
        named["device"] = "meta"
    given, more = _pytree.tree_map(blank, args), _pytree.tree_map(blank, named)
    if "generator" in more:
        more["generator"] = None
    try:
        result = func(*given, **more)
    except NotImplementedError as error:
        raise NotImplementedError(f"Operator {func} does not have a sharding strategy registered: the shape of its result "
                                  "depends on values") from error
    found = [x for x in _pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    listed = list if isinstance(result, list) else (lambda items: type(result)(items)) if isinstance(result, tuple) else None
    return [TensorMeta(x.shape, x.stride(), x.dtype) for x in found], listed


def _decide(func: Any, name: str, args: tuple, kwargs: dict[str, Any], tensors: list[Tensor], mesh: DeviceMesh, fixed: Any,
            dtensor: Any) -> Plan:
    metas, listed = _whole_results(func, args, kwargs, dtensor)
    named = _bind(func, args, {k: v for k, v in kwargs.items() if k != "out"})
    at = _places(func, args, kwargs, dtensor)
    specs = [x._spec for x in tensors]
    wanted: list[list[Placement]] = [[] for _ in tensors]
    results: list[list[Placement]] = [[] for _ in metas]
    for i in range(mesh.ndim):
        current = [spec.placements[i] for spec in specs]
        strided = next((p.split_factor for p in current if isinstance(p, _StridedShard)), 0)
        call = Call(name, named, specs, at, metas, mesh.size(), strided)
        way = _cheapest(func, call, current, mesh.size(i), tensors, fixed)
        for j, placement in enumerate(way.tensors):
            wanted[j].append(placement)
        for j in range(len(metas)):
            results[j].append(way.results[j])
    made = [DTensorSpec(mesh, tuple(placed), meta) for placed, meta in zip(results, metas, strict=True)]
    return Plan(mesh, [tuple(w) for w in wanted], made, listed or tuple)


def _places(func: Any, args: tuple, kwargs: dict[str, Any], dtensor: Any) -> dict[str, int]:
    """Where the tensor of each parameter is among all tensors; one tensor may be two arguments."""
    found, number = {}, 0
    for name, value in (*zip(func._row.names, args, strict=False), *kwargs.items()):
        if isinstance(value, dtensor):
            found[name] = number
        number += sum(isinstance(x, dtensor) for x in _pytree.tree_leaves(value))
    return found


def _ways(func: Any, call: Call) -> list[Way]:
    whole = call.alike(Replicate())
    rule = _rules.RULES.get(call.name) or _rules.RULES.get(call.name.removesuffix("_"))
    if rule is None and func._row.is_pointwise:
        rule = _rules.pointwise
    return [whole, *(rule(call) if rule is not None else [])]


def _cheapest(func: Any, call: Call, current: list[Placement], parts: int, tensors: list[Tensor], fixed: Any) -> Way:
    """The way that moves the least."""
    best, least = None, _IMPOSSIBLE
    for way in _ways(func, call):
        if fixed is not None:
            place = next((i for i, x in enumerate(tensors) if x is fixed), 0)
            if way.tensors[place] != current[place]:
                continue                          # what is changed in place stays where it is
        price = sum(_price(here, there, x.numel() * x.element_size(), parts)
                    for here, there, x in zip(current, way.tensors, tensors, strict=True))
        if price < least:
            best, least = way, price
    if best is None:
        shown = ", ".join(str(p) for p in current)
        raise RuntimeError(f"{func}: in-place operations that require placement changes are not supported: got placements "
                           f"({shown})")
    return best


def _price(here: Placement, there: Placement, size: int, parts: int) -> float:
    """Bytes that a move sends, roughly; the smallest price for what needs only memory."""
    if here == there:
        return 0.0
    if isinstance(here, Replicate):
        if isinstance(there, _NormPartial) or isinstance(there, Partial) and there.reduce_op != "sum":
            return _IMPOSSIBLE
        return 0.001 if isinstance(there, Shard) else 0.01
    share = size * (parts - 1) / parts + 1000.0
    if isinstance(here, Shard):
        if isinstance(there, Partial):
            return _IMPOSSIBLE
        return share if isinstance(there, Replicate) else share + 10.0    # PyTorch's choice too: gather
    if isinstance(there, Partial):
        return _IMPOSSIBLE
    return 2 * share if isinstance(there, Replicate) else share
