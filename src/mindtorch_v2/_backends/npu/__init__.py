"""The Ascend backend: CANN called directly. Importing it loads no CANN and starts no device; the first use does."""
from mindtorch_v2._backends.npu import (  # noqa: F401  (their hooks go into the core)
    aclnn,
    allocator,
    ops,
    ops_dtypes,
    ops_factor,
    ops_fft,
    ops_foreach,
    ops_gamma,
    ops_linalg,
    ops_nn,
    ops_pointwise,
    ops_random,
    ops_reduce,
    ops_special,
    pinned,
    runtime,
)
