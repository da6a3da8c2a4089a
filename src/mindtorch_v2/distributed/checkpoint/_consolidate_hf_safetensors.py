"""Many files of safetensors as few: by name only."""
from __future__ import annotations

import mindtorch_v2 as torch

consolidate_safetensors_files = torch._facade.refusal(
    "torch.distributed.checkpoint._consolidate_hf_safetensors.consolidate_safetensors_files",
    "mindtorch_v2 writes and reads checkpoints in PyTorch's own format only")
