"""From a checkpoint of many files to one of torch.save, and back."""
from __future__ import annotations

import os
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.checkpoint._steps import Alone
from mindtorch_v2.distributed.checkpoint.default_planner import DefaultSavePlanner, _EmptyStateDictLoadPlanner
from mindtorch_v2.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mindtorch_v2.distributed.checkpoint.state_dict_loader import _load
from mindtorch_v2.distributed.checkpoint.state_dict_saver import _save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike, torch_save_path: str | os.PathLike) -> None:
    """Writes all of a checkpoint into one file."""
    made: dict[str, Any] = {}
    _load(made, FileSystemReader(dcp_checkpoint_dir), _EmptyStateDictLoadPlanner(), Alone())
    torch.save(made, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike, dcp_checkpoint_dir: str | os.PathLike) -> None:
    """Writes a file of torch.save as a checkpoint."""
    loaded = torch.load(torch_save_path, weights_only=False)
    _save(loaded, FileSystemWriter(dcp_checkpoint_dir), DefaultSavePlanner(), Alone())


BroadcastingTorchSaveReader = _names.absent("checkpoint.format_utils.BroadcastingTorchSaveReader")
DynamicMetaLoadPlanner = _names.absent("checkpoint.format_utils.DynamicMetaLoadPlanner")
