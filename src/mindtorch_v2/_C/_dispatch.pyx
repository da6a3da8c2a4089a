# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""The way of one op: layers, rules, kernels, views, and what is recorded of it."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *

import sys
import warnings

from mindtorch_v2._C._tensor import _no_grad_and_hooks, builtin_type
from mindtorch_v2._C._row import KINDS

include "overrides.pxi"
include "overloads.pxi"
include "arguments.pxi"
include "rules.pxi"
include "inference_cache.pxi"
include "kernel.pxi"
include "pointwise.pxi"
include "views.pxi"
include "overlap.pxi"
include "factories.pxi"
include "composite.pxi"
include "inplace.pxi"
include "run.pxi"
include "dispatch_modes.pxi"
include "marks.pxi"
include "autocast.pxi"
include "layers.pxi"
include "dispatch.pxi"
include "foreach.pxi"
include "define.pxi"
