"""torch_npu.profiler: torch.profiler under torch_npu's names. What is recorded is the host's side; CANN's own metrics are not."""
from __future__ import annotations

import warnings
from typing import Any

import mindtorch_v2 as torch

_torch = torch.profiler
ProfilerAction, schedule = _torch.ProfilerAction, _torch.schedule
tensorboard_trace_handler = _torch.tensorboard_trace_handler

__all__ = ["profile", "ProfilerActivity", "supported_activities", "tensorboard_trace_handler", "schedule", "ProfilerAction",
           "_ExperimentalConfig", "supported_profiler_level", "supported_ai_core_metrics", "supported_export_type",
           "ProfilerLevel", "AiCMetrics", "ExportType", "HostSystem"]


class ProfilerActivity:
    """The activities that can be recorded."""

    CPU, NPU = _torch.ProfilerActivity.CPU, _torch.ProfilerActivity.NPU


class ProfilerLevel:
    """How much of CANN torch_npu records."""

    Level_none, Level0, Level1, Level2 = "Level_none", "Level0", "Level1", "Level2"


class AiCMetrics:
    """torch_npu's words for what CANN counts in its cores."""

    PipeUtilization, ArithmeticUtilization = "ACL_AICORE_PIPE_UTILIZATION", "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory, MemoryL0, MemoryUB = "ACL_AICORE_MEMORY_BANDWIDTH", "ACL_AICORE_L0B_AND_WIDTH", "ACL_AICORE_MEMORY_UB"
    ResourceConflictRatio, L2Cache = "ACL_AICORE_RESOURCE_CONFLICT_RATIO", "ACL_AICORE_L2_CACHE"
    MemoryAccess, AiCoreNone = "ACL_AICORE_MEMORY_ACCESS", "ACL_AICORE_NONE"


class ExportType:
    """torch_npu's words for the form of a recording."""

    Db, Text = "db", "text"


class HostSystem:
    """torch_npu's words for what of the host is watched."""

    CPU, MEM, DISK, NETWORK, OSRT, NUMA = "cpu", "mem", "disk", "network", "osrt", "numa"



def supported_activities() -> set[Any]:
    """The host's calls, of which launches on an npu are a part."""
    return _torch.supported_activities()


def supported_profiler_level() -> set[str]:
    """None: CANN's own recording is not taken."""
    return {ProfilerLevel.Level_none}


def supported_ai_core_metrics() -> set[str]:
    """None: CANN's counters are not read."""
    return {AiCMetrics.AiCoreNone}


def supported_export_type() -> set[str]:
    """A trace in text."""
    return {ExportType.Text}


class _ExperimentalConfig:
    """torch_npu's further settings. Those that ask for CANN's counters are kept and have no effect, which profile says."""

    def __init__(self, profiler_level: str = ProfilerLevel.Level0, aic_metrics: str = AiCMetrics.AiCoreNone,
                 **settings: Any) -> None:
        self.profiler_level, self.aic_metrics, self.settings = profiler_level, aic_metrics, settings


class profile(_torch.profile):
    """torch.profiler.profile."""

    def __init__(self, *, experimental_config: Any = None, **settings: Any) -> None:
        asked = isinstance(experimental_config, _ExperimentalConfig) and (
            experimental_config.aic_metrics != AiCMetrics.AiCoreNone or experimental_config.profiler_level != ProfilerLevel.Level0)
        if asked:
            warnings.warn("[torch_npu.profiler] CANN's own metrics are not recorded: profiler_level and aic_metrics have no effect",
                          stacklevel=2)
        super().__init__(**settings)
