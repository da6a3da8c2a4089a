"""torch.distributed.algorithms.ddp_comm_hooks: ways to reduce the gradients of DistributedDataParallel."""
from __future__ import annotations

import enum
from functools import partial
from typing import Any

from mindtorch_v2.distributed import _names
from mindtorch_v2.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook


class DDPCommHookType(enum.Enum):
    """The hooks by name."""
    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)
    POWER_SGD = partial(powerSGD_hook.powerSGD_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Has a model's gradients reduced by a hook."""
    model.register_comm_hook(state, comm_hook_type.value)

_names.add_to(__name__)
