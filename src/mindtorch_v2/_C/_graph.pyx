# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""What is recorded of ops: nodes, their edges and saved values, the history of views, and what a node computes."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *

import traceback
import warnings
import weakref
from _thread import RLock
from threading import local

from mindtorch_v2._C._tensor import _no_grad_and_hooks, builtin_type

include "autograd.pxi"
include "saved_values.pxi"
include "node_apply.pxi"
include "inplace_autograd.pxi"
include "node.pxi"
include "grad_modes.pxi"
