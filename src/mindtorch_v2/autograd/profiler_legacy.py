"""torch.autograd.profiler_legacy: the profiler's older name."""
from mindtorch_v2.autograd.profiler import profile
from mindtorch_v2.autograd.profiler_util import EventList, FunctionEvent

__all__ = ["EventList", "FunctionEvent", "profile"]
