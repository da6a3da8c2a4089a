"""Microbatches: arguments cut into parts along a dimension, and the outputs of parts joined again."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]

_pytree = torch.utils._pytree


class TensorChunkSpec:
    """The dimension along which a tensor is cut."""

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[int, ...]) -> tuple[TensorChunkSpec, ...]:
        return tuple(TensorChunkSpec(dim) for dim in chunk_dims)

    @staticmethod
    def from_dict(chunk_dims: dict[str, int]) -> dict[str, TensorChunkSpec]:
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """A value that every microbatch has whole."""


def _parts(value: Any, spec: Any, chunks: int) -> list[Any]:
    """A value of each microbatch; tensors in it are cut along the dimension of spec, everything else is replicated."""
    dim = spec.split_dim if isinstance(spec, TensorChunkSpec) else 0
    leaves, tree = _pytree.tree_flatten(value)
    cut = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or isinstance(spec, _Replicate):
            cut.append([leaf] * chunks)
            continue
        if leaf.shape[dim] < chunks:
            raise ValueError(f"a tensor of shape {tuple(leaf.shape)} has no {chunks} parts along dimension {dim}")
        cut.append(list(torch.tensor_split(leaf, chunks, dim=dim)))
    return [_pytree.tree_unflatten([one[i] for one in cut], tree) for i in range(chunks)]


def split_args_kwargs_into_chunks(args: tuple[Any, ...], kwargs: dict[str, Any] | None, chunks: int,
                                  args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None) -> tuple[list[Any], list[Any]]:
    """(positional arguments, keyword arguments) of each microbatch."""
    kwargs = kwargs or {}
    specs = args_chunk_spec or (None,) * len(args)
    positional = [_parts(value, spec, chunks) for value, spec in zip(args, specs, strict=True)]
    named = {name: _parts(value, (kwargs_chunk_spec or {}).get(name), chunks) for name, value in kwargs.items()}
    return [tuple(one[i] for one in positional) for i in range(chunks)], \
        [{name: one[i] for name, one in named.items()} for i in range(chunks)]


def merge_chunks(chunks: list[Any], chunk_spec: Any = None) -> Any:
    """The outputs of microbatches as one."""
    if not chunks:
        raise ValueError("there are no microbatches to merge")
    dim = chunk_spec.split_dim if isinstance(chunk_spec, TensorChunkSpec) else 0
    flat = [_pytree.tree_flatten(chunk) for chunk in chunks]
    joined = []
    for i, leaf in enumerate(flat[0][0]):
        values = [leaves[i] for leaves, _ in flat]
        joined.append(torch.cat(values, dim=dim) if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf)
    return _pytree.tree_unflatten(joined, flat[0][1])


sum_reducer = _names.refusal("pipelining.microbatch.sum_reducer")
