# Backward: the engine that walks the recorded graph.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *
from mindtorch_v2._C._graph cimport *
from mindtorch_v2._C._dispatch cimport *

# ---- functions
cdef int leaf_grad_dtype(TensorBase leaf, int given) except -2
cdef int check_assigned_grad(TensorBase leaf, TensorBase g) except -1
cdef int set_grad_dtype(TensorBase leaf, value) except -1
cdef int warn_of_number(TensorBase t) except -1
cdef object run_backward(tuple tensors, tuple grads, bint keep_graph, bint create_graph, object inputs,
                         bint accumulate_grad, bint allow_unused)
