"""torch.vmap, in the steps that torch has: packages with tensor-like classes replace a step here, and vmap calls theirs."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch

Tensor = torch.Tensor
_tree = torch.utils._pytree
_transforms = torch._transforms
tree_flatten, tree_unflatten, TreeSpec = _tree.tree_flatten, _tree.tree_unflatten, _tree.TreeSpec
tree_map_, _broadcast_to_and_flatten = _tree.tree_map_, _tree._broadcast_to_and_flatten
_add_batch_dim, _remove_batch_dim = _transforms.add_batch_dim, _transforms.remove_batch_dim
in_dims_t = out_dims_t = Any


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """A function that applies func to every sample along in_dims and stacks what it returns along out_dims."""
    _check_randomness_arg(randomness)
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return vmap_impl(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs)
    return mapped


def vmap_impl(func: Callable[..., Any], in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None,
              *args: Any, **kwargs: Any) -> Any:
    """One call of a mapped function."""
    size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)
    if chunk_size is None or chunk_size >= size:
        return _flat_vmap(func, size, dims, leaves, spec, out_dims, randomness, **kwargs)
    parts, state = [], torch.random.get_rng_state() if randomness == "same" else None
    for start in range(0, size, chunk_size):
        end = min(start + chunk_size, size)
        if state is not None:
            torch.random.set_rng_state(state)    # every chunk draws the same
        part = [x if d is None else x.narrow(d, start, end - start) for x, d in zip(leaves, dims, strict=True)]
        parts.append(_flat_vmap(func, end - start, dims, part, spec, out_dims, randomness, **kwargs))
    return _joined(parts, out_dims)


def _flat_vmap(func: Callable[..., Any], batch_size: int, flat_in_dims: list[int | None], flat_args: list[Any],
               args_spec: Any, out_dims: Any, randomness: str, **kwargs: Any) -> Any:
    level = _transforms.Vmap(batch_size, randomness)
    before = torch._C._push_transform(level)
    try:
        outputs = func(*_create_batched_inputs(flat_in_dims, flat_args, level.depth, args_spec), **kwargs)
        return _unwrap_batched(outputs, out_dims, level.depth, batch_size, func)
    finally:
        torch._C._pop_transform(before)


@contextlib.contextmanager
def vmap_increment_nesting(batch_size: int, randomness: str) -> Iterator[int]:
    """A with block inside one more level; gives its number."""
    level = _transforms.Vmap(batch_size, randomness)
    before = torch._C._push_transform(level)
    try:
        yield level.depth
    finally:
        torch._C._pop_transform(before)


def restore_vmap(func: Callable[..., Any], in_dims: Any, batch_size: int, randomness: str) -> Callable[..., Any]:
    """func over a batch of a given size, of which no argument needs to have part: (results, where each has the batch)."""
    def inner(*args: Any, **kwargs: Any) -> Any:
        with vmap_increment_nesting(batch_size, randomness) as vmap_level:
            return unwrap_batched(func(*wrap_batched(args, in_dims, vmap_level), **kwargs), vmap_level)
    return inner


def wrap_batched(args: Any, bdims: Any, level: int) -> Any:
    """A tree as one sample of a level sees it; bdims has the same structure, or a part of it."""
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(bdims, spec)
    if dims is None:
        raise AssertionError("flat_bdims must not be None")
    return _create_batched_inputs(dims, leaves, level, spec)


def unwrap_batched(args: Any, level: int) -> Any:
    """(the values of a tree, where each has the batch of a level: 0 or None)"""
    leaves, spec = tree_flatten(args)
    if not leaves:
        return args, ()
    pairs = [_transforms.levels._unwrap_batched(x, level) if isinstance(x, torch.Tensor) else (x, None) for x in leaves]
    return tree_unflatten([x for x, _ in pairs], spec), tree_unflatten([dim for _, dim in pairs], spec)


def _check_randomness_arg(randomness: str) -> None:
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


def _get_name(func: Any) -> str:
    if hasattr(func, "__name__"):
        return func.__name__
    if isinstance(func, functools.partial):
        return f"functools.partial({_get_name(func.func)}, ...)"
    return repr(func)


# ---- the steps ------------------------------------------------------------------------------------------------------
def _process_batched_inputs(in_dims: Any, args: tuple, func: Any) -> tuple[int, list[Any], list[Any], Any]:
    """(size of the batch, a dimension or None for every leaf, the leaves, their tree)"""
    name = _get_name(func)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): expected `in_dims` to be int or a "
                         f"(potentially nested) tuple matching the structure of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                         "trying to vmap over a function with no inputs. The latter is unsupported.")
    leaves, spec = tree_flatten(args)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): in_dims is not compatible with the "
                         f"structure of `inputs`. in_dims has structure {tree_flatten(in_dims)[1]} but inputs has structure "
                         f"{spec}.")
    for i, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(d, int):
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but in_dim must be "
                             "either an integer dimension or None.")
        if not isinstance(x, torch.Tensor):
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for an input but the input is of "
                             f"type {type(x)}. We cannot vmap over non-Tensor arguments, please use None as the "
                             "respective in_dim")
        if not -x.dim() <= d < x.dim():
            raise ValueError(f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): Got in_dim={d} for some input, but that input is a "
                             f"Tensor of dimensionality {x.dim()} so expected in_dim to satisfy "
                             f"-{x.dim()} <= in_dim < {x.dim()}.")
        dims[i] = d % x.dim()
    return _validate_and_get_batch_size(dims, leaves), dims, leaves, spec


def _validate_and_get_batch_size(flat_in_dims: list[int | None], flat_args: list[Any]) -> int:
    sizes = [x.size(d) for x, d in zip(flat_args, flat_in_dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueError("vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
                         f"{sizes} for the mapped dimension")
    return sizes[0]


def _create_batched_inputs(flat_in_dims: list[int | None], flat_args: list[Any], vmap_level: int, args_spec: Any) -> Any:
    """The arguments as one sample sees them."""
    return tree_unflatten([x if d is None else _add_batch_dim(x, d, vmap_level)
                           for x, d in zip(flat_args, flat_in_dims, strict=True)], args_spec)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None) -> Any:
    """One result with the batch at out_dims."""
    if out_dim is None:
        value, batched = _transforms.level_at(vmap_level).unwrap(batched_output)
        if batched or type(batched_output) is _transforms.BatchedTensor and batched_output.batched:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return value
    if not isinstance(batched_output, torch.Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you "
                         "mean to set out_dims= to None for output?")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def _unwrap_batched(batched_outputs: Any, out_dims: Any, vmap_level: int, batch_size: int, func: Any) -> Any:
    """The results as those outside see them."""
    if not all(isinstance(d, int) or d is None for d in _tree.tree_leaves(out_dims)):
        raise ValueError(f"vmap({_get_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                         "collection of ints representing where in the outputs the vmapped dimension should appear.")
    outputs, spec = tree_flatten(batched_outputs)
    if isinstance(batched_outputs, torch.Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = _broadcast_to_and_flatten(out_dims, spec)
    name = _get_name(func)
    if dims is None:
        raise ValueError(f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with "
                         f"the structure of `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has "
                         f"structure {spec}.")
    return tree_unflatten([_maybe_remove_batch_dim(name, x, vmap_level, batch_size, d)
                           for x, d in zip(outputs, dims, strict=True)], spec)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """The results of the chunks of a batch, one after the other."""
    specs = [tree_flatten(p) for p in parts]
    dims: Any = _broadcast_to_and_flatten(out_dims, specs[0][1])
    columns = zip(*(leaves for leaves, _ in specs), strict=True)
    return tree_unflatten([column[0] if d is None else torch.cat(list(column), d)
                           for column, d in zip(columns, dims, strict=True)], specs[0][1])
