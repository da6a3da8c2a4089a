"""Collectives of Python objects: pickled, sent as bytes, unpickled. Only between processes that trust each other."""
from __future__ import annotations

import io
import pickle
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._collectives import (
    all_gather_into_tensor,
    broadcast,
    gather,
    group_rank,
    recv,
    scatter,
    send,
)
from mindtorch_v2.distributed._world import (
    _rank_not_in_group,
    _resolve,
    _warn_not_in_group,
)


def _device_of(pg: Any, device: Any = None) -> Any:
    """Where the bytes of objects travel: on the cpu, or on the npu where the group has nothing else."""
    if device is not None:
        return torch.device(device)
    if "cpu" in pg._engines:
        return torch.device("cpu")
    if pg.bound_device_id is not None:
        return pg.bound_device_id
    return torch.device("npu", torch.npu.current_device())


def _object_to_tensor(obj: Any, device: Any, group: Any = None) -> tuple[Any, Any]:
    """(bytes, their number) as tensors."""
    file = io.BytesIO()
    pickle.Pickler(file).dump(obj)
    data = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8).to(device)
    return data, torch.tensor([data.numel()], dtype=torch.int64, device=device)


def _tensor_to_object(tensor: Any, tensor_size: Any, group: Any = None) -> Any:
    """The object of bytes."""
    return pickle.loads(tensor.cpu()[:int(tensor_size)].numpy().tobytes())


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank gets the objects of all."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("all_gather_object")
    pg = _resolve(group)
    data, sizes, size = _gathered_sizes(obj, pg)
    row = torch.empty(max(sizes), dtype=torch.uint8, device=data.device)
    row[:size] = data
    rows = torch.empty(len(sizes) * max(sizes), dtype=torch.uint8, device=data.device)
    all_gather_into_tensor(rows, row, pg)
    for i, part in enumerate(rows.view(len(sizes), -1)):
        object_list[i] = _tensor_to_object(part, sizes[i], pg)
    return None


def _gathered_sizes(obj: Any, pg: Any) -> tuple[Any, list[int], int]:
    data, size = _object_to_tensor(obj, _device_of(pg), pg)
    sizes = torch.zeros(pg.size(), dtype=torch.int64, device=data.device)
    all_gather_into_tensor(sizes, size, pg)
    return data, sizes.tolist(), int(size)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
                  group_dst: int | None = None) -> None:
    """One rank gets the objects of all."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("gather_object")
    pg = _resolve(group)
    root = group_rank(pg, dst, group_dst, needed=False)
    mine = pg.rank() == root
    if mine and not object_gather_list:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not mine and object_gather_list:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data, sizes, size = _gathered_sizes(obj, pg)
    row = torch.empty(max(sizes), dtype=torch.uint8, device=data.device)
    row[:size] = data
    rows = [torch.empty_like(row) for _ in sizes] if mine else None
    gather(row, rows, group=pg, group_dst=root)
    for i, part in enumerate(rows or ()):
        assert object_gather_list is not None
        object_gather_list[i] = _tensor_to_object(part, sizes[i], pg)
    return None


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """Every rank gets the objects of one, in the places of its own list."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("broadcast_object_list")
    pg = _resolve(group)
    root, place = group_rank(pg, src, group_src, needed=False), _device_of(pg, device)
    sizes = torch.zeros(len(object_list), dtype=torch.int64, device=place)
    data = None
    if pg.rank() == root:
        parts = [_object_to_tensor(obj, place, pg)[0] for obj in object_list]
        sizes = torch.tensor([part.numel() for part in parts], dtype=torch.int64, device=place)
        data = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=place)
    broadcast(sizes, group=pg, group_src=root)
    if data is None:
        data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device=place)
    broadcast(data, group=pg, group_src=root)
    if pg.rank() != root:
        at = 0
        for i, size in enumerate(sizes.tolist()):
            object_list[i] = _tensor_to_object(data[at:at + size], size, pg)
            at += size
    return None


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Any = None, group_src: int | None = None) -> None:
    """Every rank gets its object of one rank's list, as the first item of its output list."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("scatter_object_list")
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    pg = _resolve(group)
    root, place = group_rank(pg, src, group_src, needed=False), _device_of(pg)
    sizes = torch.zeros(pg.size(), dtype=torch.int64, device=place)
    parts: list[Any] = []
    if pg.rank() == root:
        if not scatter_object_input_list or len(scatter_object_input_list) != pg.size():
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        parts = [_object_to_tensor(obj, place, pg)[0] for obj in scatter_object_input_list]
        sizes = torch.tensor([part.numel() for part in parts], dtype=torch.int64, device=place)
    broadcast(sizes, group=pg, group_src=root)
    longest = int(sizes.max())
    row = torch.empty(longest, dtype=torch.uint8, device=place)
    rows = [torch.nn.functional.pad(part, (0, longest - part.numel())) for part in parts] or None
    scatter(row, rows, group=pg, group_src=root)
    scatter_object_output_list[0] = _tensor_to_object(row, sizes[pg.rank()], pg)
    return None


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
                     group_dst: int | None = None, use_batch: bool = False) -> None:
    """Sends objects to a rank."""
    if _rank_not_in_group(group):
        return _warn_not_in_group("send_object_list")
    pg = _resolve(group)
    to, place = group_rank(pg, dst, group_dst), _device_of(pg, device)
    parts = [_object_to_tensor(obj, place, pg)[0] for obj in object_list]
    send(torch.tensor([part.numel() for part in parts], dtype=torch.int64, device=place), group=pg, group_dst=to)
    send(torch.cat(parts), group=pg, group_dst=to)
    return None


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                     group_src: int | None = None, use_batch: bool = False) -> int:
    """Receives objects into a list; returns the sender's rank."""
    if _rank_not_in_group(group):
        _warn_not_in_group("recv_object_list")
        return -1
    pg = _resolve(group)
    place = _device_of(pg, device)
    sizes = torch.zeros(len(object_list), dtype=torch.int64, device=place)
    sender = recv(sizes, src=src, group=pg, group_src=group_src)
    data = torch.empty(int(sizes.sum()), dtype=torch.uint8, device=place)
    recv(data, src=sender, group=pg)
    at = 0
    for i, size in enumerate(sizes.tolist()):
        object_list[i] = _tensor_to_object(data[at:at + size], size, pg)
        at += size
    return sender


