"""The Ascend backend: CANN called directly. Importing it loads no CANN and starts no device; the first use does."""
from mindtorch_v2._backends.npu import (  # noqa: F401  (their hooks go into the core)
    aclnn,
    allocator,
    ops,
    ops_foreach,
    pinned,
    runtime,
)
