"""Layers that change what a function computes: batches (vmap) and, with autograd.forward_ad, forward derivatives."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from mindtorch_v2 import _C, _facade
from mindtorch_v2._transforms import functional as functional
from mindtorch_v2._transforms.batched import BatchedTensor, Vmap, VmapInfo, fallback
from mindtorch_v2.autograd.forward_ad import Forward

__all__ = ["BatchedTensor", "TransformType", "Vmap", "VmapInfo", "add_batch_dim", "differentiated", "ended", "innermost",
           "level_at", "linked", "remove_batch_dim", "start"]


class TransformType(Enum):
    """The kinds of levels, by torch's names and numbers."""

    Torch = 0
    Grad = 2
    Jvp = 3
    Functionalize = 4
    Vmap = 1


def innermost() -> Vmap | None:
    """The level of vmap that samples are seen at, or None."""
    return next((t for t in reversed(_C._transforms()) if isinstance(t, Vmap)), None)


def start(x: Any) -> Any:
    """x as the start of a graph of the innermost level, connected to the graph that it is part of."""
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError("only Tensors of floating point dtype can require gradients")
    level = innermost()
    if level is not None and not level.owns(x):
        made = level.wrap(x, False)
    else:
        made = x.view_as(x) if x.requires_grad else x._fresh()
    _keep_tangents(x, made)
    return made if made.requires_grad else made._requires_grad_()


def linked(x: Any) -> Any:
    """Another tensor of x's value and history."""
    made = x.view_as(x)
    _keep_tangents(x, made)
    return made


def _keep_tangents(x: Any, made: Any) -> None:
    for layer in _C._transforms():
        if isinstance(layer, Forward):
            tangent = layer.tangent(x)
            if tangent is not None and layer.tangent(made) is None:
                layer.note(made, tangent)


def differentiated() -> bool:
    """Whether the open levels differentiate what is computed, gradients included: then those are recorded too."""
    return any(isinstance(t, Forward) or isinstance(t, (Vmap, functional.Functionalize)) and t.differentiated
               for t in _C._transforms())


def ended(x: Any, kept: Callable[[list[Any]], bool]) -> Any:
    """x without its history; its tangents too, unless `kept` says that an outer level owns them."""
    made = x._fresh()
    for layer in _C._transforms():
        tangent = layer.tangent(x) if isinstance(layer, Forward) else None
        if tangent is not None:
            layer.note(made, tangent if not tangent.requires_grad or kept([tangent]) else ended(tangent, kept))
    return made


# ---- levels of vmap by number, as torch._C._functorch knows them ---------------------------------------------------------
def level_at(depth: int) -> Vmap:
    """The open level of a number."""
    found = next((t for t in _C._transforms() if isinstance(t, Vmap) and t.depth == depth), None)
    if found is None:
        raise RuntimeError(f"vmap: no level {depth} is open")
    return found


def add_batch_dim(x: Any, dim: int, depth: int) -> Any:
    """x as one sample of a level sees it; its dim is the batch."""
    return level_at(depth).wrap(x if dim == 0 else x.movedim(dim, 0))


def remove_batch_dim(x: Any, depth: int, size: int, dim: int) -> Any:
    """x as those outside of a level see it, the batch at dim; what all samples share is repeated."""
    value, batched = level_at(depth).unwrap(x)
    whole = value if batched else value.expand(size, *value.shape)
    return whole if dim == 0 else whole.movedim(0, dim)


def _increment(size: int, randomness: str) -> int:
    level = Vmap(size, randomness)
    _opened.append((level, _C._push_transform(level)))
    return level.depth


def _decrement() -> int:
    level, before = _opened.pop()
    _C._pop_transform(before)
    return level.depth


def _depth() -> int:
    """How many functions of torch.func and vmap run, one in another."""
    return sum(t.is_level for t in _C._transforms()) + _C._level_count()


def _current_level() -> int:
    if not _depth():
        raise RuntimeError("no transform is active")
    return _depth()


def _level_of(x: Any) -> int:
    """The level that a tensor belongs to, as far as it is the innermost or one of vmap's; -2: one that is closed; else -1."""
    if _is_dead(x):
        return -2
    return x.level.depth if type(x) is BatchedTensor else _depth() if _C._in_level(x) else -1


def _is_dead(x: Any) -> bool:
    """Whether a tensor has outlived the level that it was made in."""
    return x.level not in _C._transforms() if type(x) is BatchedTensor else _C._core._outlived(x)


def _dlevel(x: Any) -> int:
    """The level that differentiates a tensor, 0 for none; -1: one that is closed."""
    return -1 if _is_dead(x) else 0 if type(x) is BatchedTensor else max(_level_of(x), 0)


def _is_batched(x: Any) -> bool:
    return type(x) is BatchedTensor and x.batched


def _unwrapped(x: Any) -> Any:
    """The value of a tensor of a level; where the level differentiates: without its history."""
    if type(x) is BatchedTensor or type(x) is functional.FunctionalTensor:
        return x.value
    if not _C._in_level(x):
        raise RuntimeError("No wrappers present!")
    return x._fresh()


def _value_of(x: Any, depth: int) -> tuple[Any, int | None]:
    """(the value of a tensor of a level, where the batch is); what all samples share has no batch."""
    value, batched = level_at(depth).unwrap(x)
    return value, 0 if batched else None


def _reshape_dim_into(src: int, dst: int, x: Any) -> Any:
    """x with one dim moved in front of another and both made one."""
    rank = x.dim()
    src, dst = src % rank, dst % (rank - 1)
    moved = x.movedim(src, dst)
    return moved.reshape(*moved.shape[:dst], moved.shape[dst] * moved.shape[dst + 1], *moved.shape[dst + 2:])


def _reshape_dim_outof(src: int, size1: int, x: Any) -> Any:
    """x with one dim made two, of which the first has a size."""
    src %= x.dim()
    if x.shape[src] and x.shape[src] % size1:
        raise RuntimeError(f"reshape_dim_outof: {x.shape[src]} items cannot be made {size1} rows")
    return x.reshape(*x.shape[:src], size1, x.shape[src] // size1 if size1 else 0, *x.shape[src + 1:])


_opened: list[tuple[Vmap, Any]] = []     # by _vmap_increment_nesting
levels: Any = _facade.module(
    _C.__name__, "_functorch", "Levels of vmap and their tensors, by the names of torch's core.",
    _add_batch_dim=add_batch_dim, _remove_batch_dim=remove_batch_dim, is_batchedtensor=_is_batched,
    _unwrap_batched=_value_of, get_unwrapped=_unwrapped, reshape_dim_into=_reshape_dim_into, reshape_dim_outof=_reshape_dim_outof,
    maybe_get_bdim=lambda x: 0 if _is_batched(x) else -1,
    maybe_get_level=_level_of, current_level=_current_level, maybe_current_level=lambda: _depth() or None,
    TransformType=TransformType, RandomnessType=Enum("RandomnessType", {"Error": 0, "Same": 1, "Different": 2}),
    is_functorch_wrapped_tensor=lambda x: type(x) is BatchedTensor or _C._in_level(x),
    is_gradtrackingtensor=lambda x: type(x) is not BatchedTensor and _C._in_level(x),
    is_functionaltensor=lambda x: False, is_legacy_batchedtensor=lambda x: False,
    get_dynamic_layer_stack_depth=_depth, is_dead_tensor_wrapper=_is_dead, dlevel=_dlevel,
    unwrap_if_dead=lambda x: x if not _is_dead(x) else x.value if type(x) is BatchedTensor else x._fresh(),
    get_single_level_autograd_function_allowed=lambda: False, get_inplace_requires_grad_allowed=lambda: False,
    _vmap_increment_nesting=_increment, _vmap_decrement_nesting=_decrement,
    _is_vmap_fallback_enabled=lambda: fallback.enabled,
    _set_vmap_fallback_enabled=lambda enabled: setattr(fallback, "enabled", enabled),
    _set_vmap_fallback_warning_enabled=lambda enabled: setattr(fallback, "warns", enabled))
vars(_C)["_functorch"] = levels
vars(_C)["_debug_only_display_vmap_fallback_warnings"] = lambda enabled: setattr(fallback, "always_warns", enabled)
vars(_C)["_debug_only_are_vmap_fallback_warnings_enabled"] = lambda: fallback.always_warns
vars(_C)["_are_functorch_transforms_active"] = lambda: bool(_C._in_transform())
