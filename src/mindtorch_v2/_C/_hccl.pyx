# cython: language_level=3, initializedcheck=False, cdivision=True, infer_types=False, nonecheck=False
# cython: binding=False
# For inspect.signature() and the stubs; annotations say what Python sees and do not type anything.
# cython: embedsignature=True, embedsignature.format=clinic, annotation_typing=False
# cython: allow_none_for_extension_args=False
"""Collectives of npus: what a group queues on streams, by HCCL's functions."""
cimport cython
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._npu cimport bind_device, graphs_are_captured, start_of, stream_of

from mindtorch_v2._C._tensor import DTYPE_NAMES

include "stream_events.pxi"
include "collective_records.pxi"
include "collectives.pxi"
