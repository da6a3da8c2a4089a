"""Shards of tensors in files of safetensors, put together to whole tensors in few files."""
from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed._world import get_rank, get_world_size, is_initialized
from mindtorch_v2.distributed.checkpoint import _safetensors
from mindtorch_v2.distributed.checkpoint._safetensors import SUFFIX, Header

INDEX_FILE = "model.safetensors.index.json"       # which file has which tensor
SHARDING = "DCP_SHARDING_INFO"                    # in the header of a file: where its tensors begin in the whole ones
_serialization = torch.serialization


def file_name(index: int, count: int, shard: int | None = None) -> str:
    """Of the index-th of count files; shard: of the rank with that number, from 1."""
    return f"{f'shard-{shard:05}-' if shard is not None else ''}model-{index:05}-of-{count:05}{SUFFIX}"


def offsets_of(header: Header) -> dict[str, list[int]] | None:
    """Where each tensor of a file begins in the whole one; None: the file does not say, it has whole ones."""
    said = header.extra.get(SHARDING)
    return None if said is None else {name: list(map(int, entry["saved_offsets"])) for name, entry in json.loads(said).items()}


def write_index(folder: Path, sizes: dict[str, int], files: dict[str, str]) -> None:
    """What transformers reads first: the file of each tensor."""
    with _serialization.replacing(folder / INDEX_FILE) as file:
        file.write(json.dumps({"metadata": {"total_size": sum(sizes.values())}, "weight_map": files}, indent=2).encode())


def _headers(folder: Path) -> list[tuple[Header, dict[str, list[int]]]]:
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        header = _safetensors.read_header(path)
        offsets = offsets_of(header)
        if offsets is None:
            raise ValueError("No DCP custom metadata found in safetensors file. The file must be saved with DCP to be "
                             "consolidated.")
        found.append((header, offsets))
    return found


def _whole(name: str, shards: list[tuple[Header, dict[str, list[int]]]]) -> Any:
    """A tensor of all its shards."""
    parts = [(header, header.tensors[name], offsets[name]) for header, offsets in shards if name in header.tensors]
    if not parts:
        raise KeyError(f"no file has {name!r}")
    shape = [max(begin[d] + entry.shape[d] for _, entry, begin in parts) for d in range(len(parts[0][1].shape))]
    if sum(math.prod(entry.shape) for _, entry, _ in parts) < math.prod(shape):
        raise ValueError(f"the shards of {name!r} do not fill it: {[(e.shape, o) for _, e, o in parts]} of {tuple(shape)}")
    made = torch.empty(shape, dtype=parts[0][1].dtype)
    for header, entry, begin in parts:
        with open(header.path, "rb") as file:
            box = _safetensors.read_box(file, entry, [0] * len(entry.shape), entry.shape)
        place = made
        for dim, (at, length) in enumerate(zip(begin, entry.shape, strict=True)):
            place = place.narrow(dim, at, length)
        place.copy_(box)
    return made


def _consolidate(input_dir: str, output_dir: str, mapping: dict[str, int], count: int, indices: list[int],
                 threads: int) -> dict[str, int]:
    """Writes some of the files; returns the bytes of their tensors."""
    shards, folder, sizes = _headers(Path(input_dir)), Path(output_dir), dict[str, int]()
    folder.mkdir(parents=True, exist_ok=True)

    def write(index: int) -> None:
        tensors = {name: _whole(name, shards) for name, own in mapping.items() if own == index}
        _safetensors.write(folder / file_name(index, count), tensors, {"format": "pt"})
        sizes.update({name: tensor.numel() * tensor.dtype.itemsize for name, tensor in tensors.items()})

    with ThreadPoolExecutor(max(threads, 1)) as pool:
        for done in [pool.submit(write, index) for index in indices]:
            done.result()
    return sizes


def consolidate_safetensors_files(input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int],
                                  num_threads: int = 1) -> None:
    """Whole tensors in output_dir of the shards in input_dir; the mapping says in which of the files, from 1, each goes."""
    count = max(fqn_to_index_mapping.values())
    indices = sorted(set(fqn_to_index_mapping.values()))
    sizes = _consolidate(input_dir, output_dir, fqn_to_index_mapping, count, indices, num_threads)
    write_index(Path(output_dir), sizes, {name: file_name(index, count) for name, index in fqn_to_index_mapping.items()})


def consolidate_safetensors_files_on_every_rank(input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int],
                                                num_threads: int = 1, process_group: Any = None) -> None:
    """The same, the files shared out among the ranks."""
    rank, size = (get_rank(process_group), get_world_size(process_group)) if is_initialized() else (0, 1)
    count = max(fqn_to_index_mapping.values())
    mine = [index for index in sorted(set(fqn_to_index_mapping.values())) if index % size == rank]
    _consolidate(input_dir, output_dir, fqn_to_index_mapping, count, mine, num_threads)
    if is_initialized():
        torch.distributed.barrier(process_group)
    if rank == 0:
        files = {name: file_name(index, count) for name, index in fqn_to_index_mapping.items()}
        headers = [_safetensors.read_header(Path(output_dir, file)) for file in sorted(set(files.values()))]
        sizes = {name: math.prod(entry.shape) * entry.dtype.itemsize for header in headers
                 for name, entry in header.tensors.items()}
        write_index(Path(output_dir), sizes, files)
