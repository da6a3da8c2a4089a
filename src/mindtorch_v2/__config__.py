"""torch.__config__: how the library was built."""
from mindtorch_v2._C import _kernel_level, get_num_threads


def show() -> str:
    """The build in words."""
    return f"mindtorch_v2 built with:\n  - C++17 kernels, level {_kernel_level}\n  - devices: cpu, npu\n"


def parallel_info() -> str:
    """The threads in words."""
    return f"mindtorch_v2 threads: {get_num_threads()}\n"
