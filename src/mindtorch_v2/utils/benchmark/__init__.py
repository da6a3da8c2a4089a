"""torch.utils.benchmark: times of statements, measured so that they can be compared."""
import mindtorch_v2 as torch
from mindtorch_v2.utils.benchmark import utils
from mindtorch_v2.utils.benchmark.utils.common import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from mindtorch_v2.utils.benchmark.utils.compare import Colorize, Compare
from mindtorch_v2.utils.benchmark.utils.timer import Language, Timer, timer

__all__ = ["Colorize", "Compare", "Language", "Measurement", "TaskSpec", "Timer", "ordered_unique", "select_unit",
           "set_torch_threads", "timer", "trim_sigfig", "unit_to_english"]

torch._named.complete(__name__)
