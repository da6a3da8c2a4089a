"""torch.nn.parallel: the wrappers that spread a module over devices and processes."""
from mindtorch_v2.nn.parallel import _functions, comm, distributed, scatter_gather
from mindtorch_v2.nn.parallel.data_parallel import DataParallel, data_parallel
from mindtorch_v2.nn.parallel.distributed import DistributedDataParallel
from mindtorch_v2.nn.parallel.parallel_apply import parallel_apply
from mindtorch_v2.nn.parallel.replicate import replicate
from mindtorch_v2.nn.parallel.scatter_gather import gather, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]
