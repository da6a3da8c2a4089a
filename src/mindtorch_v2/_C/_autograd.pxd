# Backward: the engine that walks the recorded graph.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *

# ---- functions
cdef object run_backward(tuple tensors, tuple grads, bint keep_graph, bint create_graph, object inputs,
                         bint accumulate_grad, bint allow_unused)
