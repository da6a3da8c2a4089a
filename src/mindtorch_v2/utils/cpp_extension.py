"""torch.utils.cpp_extension: extensions against PyTorch's C++ API, which is not here. Whatever builds one refuses."""
from __future__ import annotations

import os
import tempfile
from typing import Any

import mindtorch_v2 as torch

_WHY = ("mindtorch_v2 has no C++ API of PyTorch to build against; write the kernel as a library of its own and register it "
        "with torch.library")
CUDA_HOME = ROCM_HOME = CUDNN_HOME = SYCL_HOME = None
IS_HIP_EXTENSION = False
globals().update(torch._facade.refusals("load load_inline CppExtension CUDAExtension SyclExtension include_paths library_paths",
                                        _WHY, "torch.utils.cpp_extension."))
BuildExtension = torch._facade.absent("torch.utils.cpp_extension.BuildExtension", _WHY)


def get_default_build_root() -> str:
    """Where PyTorch would build extensions."""
    return os.path.realpath(os.path.join(tempfile.gettempdir(), "torch_extensions"))


def is_ninja_available() -> bool:
    """False: nothing is built."""
    return False


def check_compiler_is_gcc(compiler: Any) -> bool:
    """False: nothing is built."""
    return False

torch._named.complete(__name__)
