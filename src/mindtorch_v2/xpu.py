"""torch.xpu without Intel GPUs: no device is found."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade

_none = _facade.no_devices("XPU")
globals().update(_none, is_tf32_supported=_none["is_available"])


def _gather(name: str, doc: str, members: str) -> Any:
    return _facade.module(__name__, name, doc, **{member: _none[member] for member in members.split()})


memory: Any = _gather("memory", "Memory of Intel GPUs: none.", """empty_cache memory_stats memory_stats_as_nested_dict
    memory_allocated max_memory_allocated memory_reserved max_memory_reserved mem_get_info reset_peak_memory_stats""")
random: Any = _gather("random", "Random states of Intel GPUs: none.", """get_rng_state get_rng_state_all set_rng_state
    set_rng_state_all manual_seed manual_seed_all seed seed_all initial_seed""")
streams: Any = _gather("streams", "Streams of Intel GPUs: none can be made.", "Stream Event")
