# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""Backward: the engine that walks the recorded graph."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *

import threading
import warnings
from heapq import heappop, heappush

from mindtorch_v2._C._tensor import _conj
from mindtorch_v2._C._graph import AccumulateGrad, SavedTensor, _accumulator

include "gradient.pxi"
include "engine.pxi"
include "formulas.pxi"
