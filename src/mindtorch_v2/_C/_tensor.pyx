# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""The lowest part of the core: dtypes, devices, storages, tensors, numbers, generators, and the interface of backends."""
cimport cython
from cpython.buffer cimport PyObject_CheckBuffer
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *

import os
import sys
import warnings

include "naming.pxi"
include "dtype.pxi"
include "thread_state.pxi"
include "device.pxi"
include "storage.pxi"
include "tensor.pxi"
include "free_list.pxi"
include "make.pxi"
include "unlocked.pxi"
include "copy.pxi"
include "items.pxi"
include "numbers.pxi"
include "number_limits.pxi"
include "interop.pxi"
include "generator.pxi"
include "classes.pxi"
include "backend.pxi"


def _keep_general(dict names):
    """Marks the methods of a part's classes as mt_keep_general() says."""
    for item in list(names.values()):
        # Under the name torch, the module has that name and its types have the one they were compiled with.
        if isinstance(item, type) and item.__module__.partition(".")[2] == names["__name__"].partition(".")[2]:
            for method in item.__dict__.values():
                mt_keep_general(method)
