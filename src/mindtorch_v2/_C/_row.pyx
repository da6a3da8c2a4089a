# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""What an op row compiles to, once, and how the arguments of a call are bound to it."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *

import operator
import sys
import types

include "schema.pxi"
include "binding.pxi"
include "op.pxi"
include "named_results.pxi"
