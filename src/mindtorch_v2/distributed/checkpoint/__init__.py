"""torch.distributed.checkpoint: state dicts of many ranks in one folder, in PyTorch's format or as safetensors."""
from __future__ import annotations

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.checkpoint import (
    _consolidate_hf_safetensors,
    api,
    default_planner,
    filesystem,
    format_utils,
    hf_storage,
    metadata,
    planner,
    state_dict,
    state_dict_loader,
    state_dict_saver,
    stateful,
    storage,
)
from mindtorch_v2.distributed.checkpoint.api import CheckpointException
from mindtorch_v2.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from mindtorch_v2.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from mindtorch_v2.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from mindtorch_v2.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorStorageMetadata,
)
from mindtorch_v2.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
)
from mindtorch_v2.distributed.checkpoint.state_dict_loader import load, load_state_dict
from mindtorch_v2.distributed.checkpoint.state_dict_saver import (
    AsyncCheckpointerType,
    AsyncSaveResponse,
    async_save,
    save,
    save_state_dict,
)
from mindtorch_v2.distributed.checkpoint.stateful import Stateful
from mindtorch_v2.distributed.checkpoint.storage import StorageReader, StorageWriter

_names.add_to(__name__)
