"""What torch.distributed has below it and this library does not: modules whose functions refuse and whose classes cannot
be made, so that packages can import them and ask isinstance. A file or folder of the same name takes its place.
"""
from __future__ import annotations

import functools
import os
import sys
from typing import Any

import mindtorch_v2 as torch

_facade = torch._facade
WHY = "mindtorch_v2 does not offer this part of torch.distributed"
# A module below torch.distributed: functions that refuse | classes that cannot be made.
_TABLE = """
algorithms.model_averaging: |
algorithms.model_averaging.averagers: | ModelAverager PeriodicModelAverager
algorithms.ddp_comm_hooks.post_localSGD_hook: post_localSGD_hook | PostLocalSGDState
algorithms._checkpoint: |
algorithms._checkpoint.checkpoint_wrapper: checkpoint_wrapper apply_activation_checkpointing offload_wrapper |
    CheckpointImpl CheckpointWrapper ActivationWrapper OffloadWrapper
rpc: init_rpc rpc_sync rpc_async remote shutdown get_worker_info | RRef WorkerInfo BackendType
rpc.api: init_rpc rpc_sync rpc_async remote shutdown get_worker_info _all_gather | RRef
launcher: |
launcher.api: elastic_launch launch_agent | LaunchConfig
utils: |
"""


def _require_initialized(func: Any) -> Any:
    """A decorator of what needs RPC, which is never started here."""
    why = "RPC has not been initialized. Call torch.distributed.rpc.init_rpc first."
    return functools.wraps(func)(_facade.refusal(f"torch.distributed.rpc.{func.__name__}", why, RuntimeError))


def _contents() -> dict[str, dict[str, Any]]:
    """module -> what it holds, parents first."""
    found: dict[str, dict[str, Any]] = {}
    for line in _TABLE.replace("\n    ", " ").strip().splitlines():
        path, _, rest = line.partition(":")
        functions, _, classes = rest.partition("|")
        prefix = f"torch.distributed.{path}."
        found[path] = _facade.refusals(functions, WHY, prefix) | _facade.absents(classes, WHY, prefix)
    found["rpc"]["is_available"] = lambda: False
    found["rpc.api"]["_require_initialized"] = _require_initialized
    return found


def add_to(package: str) -> None:
    """Make the modules that no file holds."""
    folder = os.path.dirname(os.path.abspath(__file__))
    for path, contents in _contents().items():
        place = os.path.join(folder, *path.split("."))
        if not (os.path.isdir(place) or os.path.exists(place + ".py")):
            parent, _, last = f"{package}.{path}".rpartition(".")
            doc = f"torch.distributed.{path}: by name only."
            vars(sys.modules[parent])[last] = _facade.module(parent, last, doc, **contents)
