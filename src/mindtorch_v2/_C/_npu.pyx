# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""Ascend: memory of npus, and the launch of aclnn ops."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *
from mindtorch_v2._C._autograd cimport *

import os

from mindtorch_v2._C._row import _op_named
from mindtorch_v2._C._tensor import DTYPE_NAMES, _registered_backend

include "npu_memory.pxi"
include "launcher.pxi"
include "launch_log.pxi"
include "marshal.pxi"
include "launch.pxi"
include "plan.pxi"
include "list_launch.pxi"
include "npu_backend.pxi"
