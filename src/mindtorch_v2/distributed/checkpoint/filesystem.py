"""Checkpoints in a folder, in PyTorch's format: files of pieces, and `.metadata` that says where each piece lies.

A folder is a checkpoint when it has `.metadata`, which is put in its place as a whole after all pieces are on the disk.
Pieces of a new checkpoint never overwrite those of an older one in the same folder: until the new `.metadata` is there,
the older checkpoint is whole, and after a failure it stays.
"""
from __future__ import annotations

import contextlib
import io
import os
import pickle
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.checkpoint import metadata as metadata_module
from mindtorch_v2.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from mindtorch_v2.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from mindtorch_v2.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult

__all__ = ["FileSystemReader", "FileSystemWriter", "SerializationFormat"]

_serialization = torch.serialization              # brings the modules beside it
_METADATA = ".metadata"
CURRENT_DCP_VERSION = "1.0.0"


@dataclass
class _StorageInfo:
    """Where a piece lies."""
    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if v is not None}


@dataclass
class _StoragePrefix:
    """What the names of a rank's files begin with."""
    prefix: str


class SerializationFormat(Enum):
    """How pieces are written."""
    TORCH_SAVE = "torch_save"
    SAFETENSORS = "safetensors"


# ---- the file of metadata -------------------------------------------------------------------------------------------------
class _MetadataUnpickler(pickle.Unpickler):
    """Reads `.metadata`, whichever library wrote it, and nothing but what belongs there."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("mindtorch_v2", "torch", 1)
        if module == "torch.distributed.checkpoint.metadata" and name in _METADATA_NAMES:
            return getattr(metadata_module, name)
        if module == "torch.distributed.checkpoint.filesystem" and name in ("_StorageInfo", "_StoragePrefix"):
            return globals()[name]
        if module in ("pathlib", "pathlib._local") and name in ("Path", "PosixPath", "PurePosixPath"):
            return Path
        found = torch._rebuilding.torch_globals().get(f"{module}.{name}")
        if found is None or not (isinstance(found, torch.dtype) or found in (torch.Size, torch._rebuilding._get_layout)):
            raise pickle.UnpicklingError(f"{_METADATA} names {module}.{name}, which is no part of a checkpoint's metadata")
        return found


_METADATA_NAMES = (*metadata_module.__all__, "_MEM_FORMAT_ENCODING")


def _write_whole(path: Path, data: bytes) -> None:
    """A file that is there with all its bytes, or as it was."""
    with _serialization.replacing(path) as file:
        file.write(data)


class FileSystemWriter(StorageWriter):
    """Writes a checkpoint into a folder: one file a rank (or one a piece)."""

    def __init__(self, path: str | os.PathLike, single_file_per_rank: bool = True, sync_files: bool = True, thread_count: int = 1,
                 per_thread_copy_ahead: int = 10_000_000, cache_staged_state_dict: bool = False, overwrite: bool = True,
                 _extensions: Any = None,
                 serialization_format: SerializationFormat = SerializationFormat.TORCH_SAVE) -> None:
        if serialization_format is not SerializationFormat.TORCH_SAVE or _extensions:
            raise NotImplementedError("[FileSystemWriter] only the format torch_save without extensions is written; files of "
                                      "safetensors are HuggingFaceStorageWriter's")
        self.path, self.one_file, self.sync, self.overwrite = Path(path), single_file_per_rank, sync_files, overwrite
        self.save_id, self.written = secrets.token_hex(8), list[Path]()

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        if checkpoint_id:
            self.path = Path(checkpoint_id)
        self.save_id, self.written = secrets.token_hex(8), []

    @property
    def checkpoint_id(self) -> Path:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return isinstance(checkpoint_id, os.PathLike) or "://" not in str(checkpoint_id)

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(self.path, self.save_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """The rank decides nothing here: what files are called, the coordinator says to all."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / _METADATA).exists() and not self.overwrite:
            raise RuntimeError(f"Checkpoint already exists and {self.overwrite=}.")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        taken = any(self.path.glob("*.distcp"))
        mark = f"{self.save_id}_" if taken else ""  # a name that no older checkpoint in the folder has
        return [replace(plan, storage_data=_StoragePrefix(f"__{mark}{rank}_")) for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        prefix: _StoragePrefix = plan.storage_data
        groups = [plan.items] if self.one_file else [[item] for item in plan.items]
        results = []
        for number, items in enumerate(groups):
            if items:
                name = f"{prefix.prefix}{number}.distcp"
                results += self._write_file(self.path / name, name, items, planner)
        return results

    def _write_file(self, path: Path, name: str, items: list[WriteItem], planner: SavePlanner) -> list[WriteResult]:
        results = []
        self.written.append(path)
        with open(path, "wb") as file:
            # Objects first, as PyTorch does: a reader of them need not seek beyond tensors.
            for item in sorted(items, key=lambda one: one.type != WriteItemType.BYTE_IO):
                begin, data = file.tell(), planner.resolve_data(item)
                if isinstance(data, io.BytesIO):
                    file.write(data.getbuffer())
                else:
                    piece = io.BytesIO()
                    torch.save(data.cpu().clone(memory_format=torch.contiguous_format), piece)
                    file.write(piece.getbuffer())
                length = file.tell() - begin
                results.append(WriteResult(item.index, length, _StorageInfo(name, begin, length)))
            file.flush()
            if self.sync:
                os.fsync(file.fileno())
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Makes the folder this checkpoint: from here on it is there."""
        metadata.storage_data = {one.index: one.storage_data for rank in results for one in rank}
        metadata.storage_meta, metadata.version = self.storage_meta(), CURRENT_DCP_VERSION
        body = io.BytesIO()
        _serialization.TensorPickler(body, 4).dump(metadata)
        _write_whole(self.path / _METADATA, body.getvalue())
        kept = {info.relative_path for info in metadata.storage_data.values()}
        for old in self.path.glob("*.distcp"):
            if old.name not in kept:
                with contextlib.suppress(OSError):  # pieces of a checkpoint that is no more: leftover files do no harm
                    old.unlink()

    def give_up(self) -> None:
        for path in self.written:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        self.written = []


class FileSystemReader(StorageReader):
    """Reads a checkpoint of a folder."""

    def __init__(self, path: str | os.PathLike, _extension_registry: Any = None) -> None:
        self.path, self.storage_data = Path(path), dict[MetadataIndex, _StorageInfo]()

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        self.storage_data = {}
        if checkpoint_id:
            self.path = Path(checkpoint_id)

    @property
    def checkpoint_id(self) -> Path:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike) -> bool:
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with open(self.path / _METADATA, "rb") as file:
            found = _MetadataUnpickler(file).load()
        if not isinstance(found, Metadata):
            raise pickle.UnpicklingError(f"{self.path / _METADATA} has {type(found).__name__} in the place of Metadata")
        return found

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        by_file: dict[str, list[ReadItem]] = defaultdict(list)
        for item in plan.items:
            by_file[self.storage_data[item.storage_index].relative_path].append(item)
        for name, items in by_file.items():
            if Path(name).name != name:
                raise ValueError(f"a piece of the checkpoint is outside its folder: {name}")
            with open(self.path / name, "rb") as file:
                for info, same in self._by_piece(items):
                    self._read_piece(file, info, same, planner)

    def _by_piece(self, items: list[ReadItem]) -> Iterator[tuple[_StorageInfo, list[ReadItem]]]:
        """What is read of each piece, so that each is read once."""
        pieces: dict[MetadataIndex, list[ReadItem]] = defaultdict(list)
        for item in items:
            pieces[item.storage_index].append(item)
        for index, same in sorted(pieces.items(), key=lambda one: self.storage_data[one[0]].offset):
            yield self.storage_data[index], same

    def _read_piece(self, file: Any, info: _StorageInfo, items: list[ReadItem], planner: LoadPlanner) -> None:
        if info.transform_descriptors:
            raise NotImplementedError(f"[FileSystemReader] the piece is transformed by {info.transform_descriptors}")
        file.seek(info.offset)
        data = file.read(info.length)
        if len(data) != info.length:
            raise EOFError(f"{self.path / info.relative_path} ends within a piece: {info.length} bytes at {info.offset}")
        if items[0].type == LoadItemType.BYTE_IO:
            planner.load_bytes(items[0], io.BytesIO(data))
            return
        stored = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        for item in items:
            box = stored
            for dim, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                box = box.narrow(dim, begin, length)
            self._deliver(item, box, planner)

    def _deliver(self, item: ReadItem, box: torch.Tensor, planner: LoadPlanner) -> None:
        """Copies a box to where the planner wants it."""
        target = planner.resolve_tensor(item)
        if target.size() != box.size():
            raise ValueError(f"req {item.storage_index} mismatch sizes {target.size()} vs {box.size()}")
        with torch.no_grad():
            target.copy_(box)
        planner.commit_tensor(item, target)


FileSystem = _names.absent("checkpoint.filesystem.FileSystem")
FileSystemBase = _names.absent("checkpoint.filesystem.FileSystemBase")
