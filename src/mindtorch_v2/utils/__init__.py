"""torch.utils: checkpointing, data loading, trees of containers and small services."""
from mindtorch_v2.utils import (
    _ordered_set,
    _python_dispatch,
    _pytree,
    backend_registration,
    checkpoint,
    data,
    deterministic,
    dlpack,
    hooks,
    serialization,
    weak,
)
from mindtorch_v2.utils._swap import swap_tensors
from mindtorch_v2.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend
from mindtorch_v2.utils.throughput_benchmark import ThroughputBenchmark
