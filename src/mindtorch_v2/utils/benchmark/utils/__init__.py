"""The parts of torch.utils.benchmark: measurements, timers, tables."""
from mindtorch_v2.utils.benchmark.utils import common, compare, timer
