"""Checkpoints as files of safetensors: by name only."""
from __future__ import annotations

import mindtorch_v2 as torch

_WHY = "mindtorch_v2 writes and reads checkpoints in PyTorch's own format only"
_PREFIX = "torch.distributed.checkpoint.hf_storage."
HuggingFaceStorageReader = torch._facade.absent(_PREFIX + "HuggingFaceStorageReader", _WHY)
HuggingFaceStorageWriter = torch._facade.absent(_PREFIX + "HuggingFaceStorageWriter", _WHY)
