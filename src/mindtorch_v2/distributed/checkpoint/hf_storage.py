"""Checkpoints as files of safetensors, which transformers and other packages of Hugging Face read."""
from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed.checkpoint import _consolidate_hf_safetensors as consolidating
from mindtorch_v2.distributed.checkpoint import _safetensors
from mindtorch_v2.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mindtorch_v2.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from mindtorch_v2.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from mindtorch_v2.distributed.checkpoint.storage import WriteResult

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]


@dataclass
class _HFStorageInfo:
    """Where a piece lies."""
    relative_path: str
    shape: torch.Size
    dtype: Any
    length: int = 0                               # bytes


class HuggingFaceStorageWriter(FileSystemWriter):
    """Writes the tensors of a state dict into files of safetensors; objects that are no tensors are refused."""

    def __init__(self, path: str | os.PathLike, fqn_to_index_mapping: dict[str, int] | None = None, thread_count: int = 1,
                 save_distributed: bool = False, enable_consolidation: bool = False,
                 thread_count_consolidation: int = 1) -> None:
        """fqn_to_index_mapping: the file of each tensor, from 1; one file without it. save_distributed: every rank writes its
        shards, which enable_consolidation then puts together (the shards go into a folder `sharded`)."""
        super().__init__(path)
        self.fqn_to_index_mapping, self.save_distributed = fqn_to_index_mapping, save_distributed
        self.enable_consolidation, self.thread_count_consolidation = enable_consolidation, thread_count_consolidation
        self.consolidated_output_path: str | None = None
        self._place(self.path)

    def _place(self, path: Path) -> None:
        self.path = path
        if self.enable_consolidation:
            self.consolidated_output_path, self.path = str(path), path / "sharded"

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        super().reset()
        if checkpoint_id:
            self._place(Path(checkpoint_id))

    @property
    def metadata_path(self) -> str:
        return consolidating.INDEX_FILE

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        made = []
        for number, plan in enumerate(plans, 1):
            data: dict[str, Any] = {"shard_index": number} if self.save_distributed else {}
            if self.fqn_to_index_mapping is not None:
                data["fqn_to_index_mapping"] = self.fqn_to_index_mapping
            made.append(replace(plan, storage_data=data))
        return made

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        mapping, shard = (plan.storage_data.get(key) for key in ("fqn_to_index_mapping", "shard_index"))
        files: dict[int, list[WriteItem]] = defaultdict(list)
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                raise TypeError(f"{item.index.fqn!r} is no tensor, and safetensors holds nothing else")
            files[1 if mapping is None else mapping[item.index.fqn]].append(item)
        count = 1 if mapping is None else max(mapping.values())
        return [result for index, items in files.items()
                for result in self._write_tensors(consolidating.file_name(index, count, shard), items, planner)]

    def _write_tensors(self, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        tensors: dict[str, Any] = {}
        begins: dict[str, Any] = {}
        results = []
        for item in items:
            fqn, data = item.index.fqn, planner.resolve_data(item)
            assert isinstance(data, torch.Tensor) and item.tensor_data is not None
            tensor = data.detach()
            if fqn in tensors:
                raise ValueError(f"{fqn!r} has two pieces on one rank: a file of safetensors holds one")
            tensors[fqn], begins[fqn] = tensor, {"saved_offsets": list(item.tensor_data.chunk.offsets)}
            length = tensor.numel() * tensor.dtype.itemsize
            results.append(WriteResult(item.index, length, _HFStorageInfo(name, tensor.shape, tensor.dtype, length)))
        extra = {consolidating.SHARDING: json.dumps(begins), "DCP_VERSION": "1.0", "format": "pt"}
        self.written.append(self.path / name)
        _safetensors.write(self.path / name, tensors, extra, self.sync)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Says which file has which tensor; of shards only after they are put together."""
        if not self.save_distributed:
            written = [one for rank in results for one in rank]
            consolidating.write_index(self.path, {one.index.fqn: one.size_in_bytes for one in written},
                                      {one.index.fqn: one.storage_data.relative_path for one in written})
        elif self.enable_consolidation:
            assert self.consolidated_output_path is not None
            consolidating.consolidate_safetensors_files(
                str(self.path), self.consolidated_output_path,
                self.fqn_to_index_mapping or dict.fromkeys(metadata.state_dict_metadata, 1), self.thread_count_consolidation)


class HuggingFaceStorageReader(FileSystemReader):
    """Reads all files of safetensors in a folder, whole tensors or shards that HuggingFaceStorageWriter wrote."""

    def __init__(self, path: str | os.PathLike, thread_count: int = 1) -> None:
        super().__init__(path)
        self.thread_count = thread_count

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        described: dict[str, TensorStorageMetadata] = {}
        places: dict[MetadataIndex, _HFStorageInfo] = {}
        for path in sorted(self.path.glob(f"*{_safetensors.SUFFIX}")):
            header = _safetensors.read_header(path)
            begins = consolidating.offsets_of(header)
            for fqn, entry in header.tensors.items():
                begin = [0] * len(entry.shape) if begins is None else begins[fqn]
                chunk = ChunkStorageMetadata(torch.Size(begin), torch.Size(entry.shape))
                end = torch.Size(at + length for at, length in zip(begin, entry.shape, strict=True))
                known = described.setdefault(fqn, TensorStorageMetadata(TensorProperties(entry.dtype), end, []))
                known.chunks.append(chunk)
                known.size = torch.Size(map(max, known.size, end))
                places[MetadataIndex(fqn, begin)] = _HFStorageInfo(str(path), torch.Size(entry.shape), entry.dtype)
        return Metadata(dict(described), storage_data=places, storage_meta=StorageMeta())

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self.storage_data[item.storage_index].relative_path].append(item)
        for name, items in by_file.items():
            header = _safetensors.read_header(Path(name))
            with open(name, "rb") as file:
                for item in items:
                    entry = header.tensors[item.storage_index.fqn]
                    box = _safetensors.read_box(file, entry, item.storage_offsets, item.lengths)
                    self._deliver(item, box, planner)
