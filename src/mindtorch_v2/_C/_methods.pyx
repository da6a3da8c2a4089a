# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""Tensor as Python sees it: methods, operators, indexing."""
cimport cython
from mindtorch_v2._C.python cimport *
from cpython.sequence cimport PySequence_Check
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *
from mindtorch_v2._C._autograd cimport *

import operator
import warnings
import weakref

from mindtorch_v2._C._graph import RETAIN

include "index.pxi"
include "take_memory.pxi"
include "methods.pxi"
