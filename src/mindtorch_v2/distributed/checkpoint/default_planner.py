"""The planners that save and load use: nested state dicts by their paths, tensors by their pieces, each piece once."""
from __future__ import annotations

import dataclasses
import io
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from mindtorch_v2.distributed.checkpoint.planner import (
    BytesIOWriteData,
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from mindtorch_v2.distributed.tensor import DTensor
from mindtorch_v2.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]

Tensor = Any
Path = tuple[Any, ...]


# ---- paths ----------------------------------------------------------------------------------------------------------------
def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """What is in nested dicts and lists, with its path; an empty dict or list is a leaf."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list) and value and _has_parts(value):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, i))
    else:
        yield path, value


def _has_parts(values: list[Any]) -> bool:
    """Whether a list is looked into, as PyTorch does: the outermost ones and such with tensors or dicts in them."""
    return any(isinstance(item, dict | torch.Tensor) or isinstance(item, list) and _has_parts(item) for item in values)


def flatten_state_dict(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Path]]:
    """(values by dotted names, paths by the same names)."""
    flat: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for path, value in _leaves(state_dict, ()):
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path
    return flat, paths


def set_element(root: Any, path: Path, value: Any) -> None:
    """Puts a value where a path says, with dicts and lists on the way where there are none."""
    place = root
    for key, following in zip(path[:-1], path[1:], strict=True):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(place, list):
            place += [None] * (key + 1 - len(place))
            place[key] = empty if place[key] is None else place[key]
        elif key not in place:
            original = next((k for k in place if str(k) == key), None)
            key = key if original is None else original
            place.setdefault(key, empty)
        place = place[key]
    last = path[-1]
    if isinstance(place, list):
        place += [None] * (last + 1 - len(place))
    elif last not in place:
        last = next((k for k in place if str(k) == last), last)
    place[last] = value


# ---- pieces ---------------------------------------------------------------------------------------------------------------
def local_chunk(value: Tensor) -> ChunkStorageMetadata | None:
    """The piece of a tensor that this rank has; None: it is outside the mesh."""
    if not isinstance(value, DTensor):
        return ChunkStorageMetadata(torch.Size([0] * value.dim()), value.size())
    if value.device_mesh.get_coordinate() is None:
        return None
    sizes, offsets = compute_local_shape_and_global_offset(value.shape, value.device_mesh, value.placements)
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def _local(value: Tensor) -> Tensor:
    return value.to_local().detach() if isinstance(value, DTensor) else value.detach()


def _write_items(name: str, value: Any) -> list[WriteItem]:
    if not isinstance(value, torch.Tensor):
        return [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO, bytes_io_data=BytesIOWriteData(0))]
    if isinstance(value, DTensor) and any(p.is_partial() for p in value.placements):
        raise ValueError(f"{name} is a Partial DTensor: redistribute it before it is saved")
    chunk = local_chunk(value)
    if chunk is None or 0 in chunk.sizes and 0 not in value.shape:
        return []                                 # a rank that has nothing of it
    kind = WriteItemType.SHARD if isinstance(value, DTensor) else WriteItemType.TENSOR
    data = TensorWriteData(chunk, TensorProperties.create_from_tensor(_local(value)), value.size())
    return [WriteItem(MetadataIndex(name, chunk.offsets), kind, tensor_data=data)]


def _size(item: WriteItem) -> int:
    return item.tensor_storage_size() or 1


def _each_once(plans: list[SavePlan], lowest: bool) -> list[SavePlan]:
    """What several ranks have is written by the one that has the least to write."""
    owners: dict[MetadataIndex, list[int]] = defaultdict(list)
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            owners[item.index].append(rank)
            items.setdefault(item.index, item)
    load = [0] * len(plans)
    kept: list[set[MetadataIndex]] = [set() for _ in plans]
    for index, ranks in sorted(owners.items(), key=lambda one: len(one[1])):
        chosen = min(ranks) if lowest else min(ranks, key=lambda rank: load[rank])
        load[chosen] += _size(items[index])
        kept[chosen].add(index)
    return [dataclasses.replace(plan, items=[item for item in plan.items if item.index in kept[rank]])
            for rank, plan in enumerate(plans)]


class DefaultSavePlanner(SavePlanner):
    """Every piece of every tensor once, everything else by torch.save."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 dedup_replicated_tensors: bool | None = None, dedup_save_to_lowest_rank: bool = False,
                 enable_plan_caching: bool = False) -> None:
        self.flatten, self.lowest = flatten_state_dict, dedup_save_to_lowest_rank
        self.mappings: dict[str, Path] = {}

    def set_up_planner(self, state_dict: dict[str, Any], storage_meta: StorageMeta | None = None,
                       is_coordinator: bool = False) -> None:
        if self.flatten:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.is_coordinator = state_dict, is_coordinator

    def create_local_plan(self) -> SavePlan:
        items = [item for name, value in self.state_dict.items() for item in _write_items(name, value)]
        return SavePlan(items, planner_data=self.mappings if self.flatten else None)

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans = _each_once(all_plans, self.lowest)
        found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        for plan in plans:
            for item in plan.items:
                name, data = item.index.fqn, item.tensor_data
                if data is None:
                    found[name] = BytesStorageMetadata()
                    continue
                tensor = found.setdefault(name, TensorStorageMetadata(data.properties, data.size, []))
                if not isinstance(tensor, TensorStorageMetadata) or tensor.size != data.size:
                    raise ValueError(f"{name} differs between ranks: {tensor} and {data}")
                tensor.chunks.append(data.chunk)
        _check_whole(found)
        mappings: dict[str, Path] = {}
        for plan in all_plans:
            mappings |= plan.planner_data or {}
        return plans, Metadata(found, planner_data=mappings if self.flatten else None)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        return self.state_dict[index.fqn]

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        if write_item.type != WriteItemType.BYTE_IO:
            return object
        file = io.BytesIO()
        torch.save(object, file)
        return file

    def resolve_data(self, write_item: WriteItem) -> Any:
        value = self.lookup_object(write_item.index)
        return self.transform_object(write_item, _local(value) if isinstance(value, torch.Tensor) else value)


def _check_whole(found: dict[str, Any]) -> None:
    """The pieces of a tensor are all of it."""
    for name, value in found.items():
        if isinstance(value, TensorStorageMetadata):
            stored = sum(_items(chunk.sizes) for chunk in value.chunks)
            if stored != _items(value.size):
                raise ValueError(f"Failed to validate global plan: the pieces of {name} have {stored} items, and the tensor "
                                 f"{_items(value.size)}")


def _items(sizes: Any) -> int:
    number = 1
    for size in sizes:
        number *= size
    return number


# ---- loading --------------------------------------------------------------------------------------------------------------
def _read_items(name: str, stored: Any, value: Any) -> list[ReadItem]:
    """The boxes of stored pieces that this rank's piece consists of."""
    if isinstance(stored, BytesStorageMetadata):
        nothing = torch.Size((0,))
        return [ReadItem(LoadItemType.BYTE_IO, MetadataIndex(name), nothing, MetadataIndex(name), nothing, nothing)]
    chunk = local_chunk(value)
    items: list[ReadItem] = []
    for piece in stored.chunks if chunk is not None else ():
        begins = [max(a, b) for a, b in zip(chunk.offsets, piece.offsets, strict=True)]     # type: ignore[union-attr]
        ends = [min(a + m, b + n) for a, m, b, n in
                zip(chunk.offsets, chunk.sizes, piece.offsets, piece.sizes, strict=True)]   # type: ignore[union-attr]
        if all(begin < end for begin, end in zip(begins, ends, strict=True)):
            items.append(ReadItem(
                LoadItemType.TENSOR, MetadataIndex(name, chunk.offsets),                    # type: ignore[union-attr]
                torch.Size(b - a for b, a in zip(begins, chunk.offsets, strict=True)),      # type: ignore[union-attr]
                MetadataIndex(name, piece.offsets), torch.Size(b - a for b, a in zip(begins, piece.offsets, strict=True)),
                torch.Size(e - b for b, e in zip(begins, ends, strict=True))))
    return items


class DefaultLoadPlanner(LoadPlanner):
    """Fills the tensors of a state dict, however the checkpoint has divided them."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True,
                 allow_partial_load: bool = False) -> None:
        self.flatten, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.mappings: dict[str, Path] = {}

    def set_up_planner(self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        self.original_state_dict = state_dict
        if self.flatten:
            state_dict, self.mappings = flatten_state_dict(state_dict)
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("metadata is not set")
        items = []
        for name, value in self.state_dict.items():
            stored = self.metadata.state_dict_metadata.get(name)
            if stored is None:
                if self.allow_partial_load:
                    continue
                raise RuntimeError(f"Missing key in checkpoint state_dict: {name}.")
            if isinstance(stored, TensorStorageMetadata) and isinstance(value, torch.Tensor) and stored.size != value.size():
                raise ValueError(f"Size mismatch between saved {stored.size} and current: {value.size()} for {name}")
            if isinstance(stored, TensorStorageMetadata) and not isinstance(value, torch.Tensor):
                raise ValueError(f"{name} is a tensor in the checkpoint, and {type(value).__name__} in the state dict")
            items += _read_items(name, stored, value)
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        loaded = torch.load(value, weights_only=False)
        self.state_dict[name] = loaded
        if self.flatten:
            set_element(self.original_state_dict, self.mappings[name], loaded)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        return _local(self.state_dict[index.fqn])

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        tensor = self.lookup_tensor(read_item.dest_index)
        for dim, (begin, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            tensor = tensor.narrow(dim, begin, length)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """It was filled in place."""


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Makes the state dict of what the checkpoint has; keys, where given, are the beginnings of names."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        self.keys = keys
        super().__init__(*args, **kwargs)

    def set_up_planner(self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False) -> None:
        if state_dict or metadata is None:
            raise AssertionError("state_dict should be empty and metadata set")
        for name, stored in metadata.state_dict_metadata.items():
            if self.keys is not None and not any(name == key or name.startswith(key + ".") for key in self.keys):
                continue
            value = torch.empty(stored.size, dtype=stored.properties.dtype) if isinstance(stored, TensorStorageMetadata) else None
            path = (metadata.planner_data or {}).get(name)
            if path is not None:
                set_element(state_dict, path, value)
            else:
                state_dict[name] = value
        super().set_up_planner(state_dict, metadata, is_coordinator)


create_default_global_load_plan = _names.refusal("checkpoint.default_planner.create_default_global_load_plan")
create_default_global_save_plan = _names.refusal("checkpoint.default_planner.create_default_global_save_plan")
create_default_local_load_plan = _names.refusal("checkpoint.default_planner.create_default_local_load_plan")
create_default_local_save_plan = _names.refusal("checkpoint.default_planner.create_default_local_save_plan")
