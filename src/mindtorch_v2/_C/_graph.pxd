# What is recorded of ops: nodes, their edges and saved values, the history of views, and what a node computes.
from mindtorch_v2._C.python cimport *
from mindtorch_v2._C.library cimport *
from mindtorch_v2._C._tensor cimport *
from mindtorch_v2._C._row cimport *

cdef enum:
    META_DIMS = 6
    MAX_OUTPUTS = 1 << 20
    # Numbers grow along the graph: a node is later than what it reads. Those between are for refresh_view's nodes, which
    # come into being after their readers.
    SEQUENCE_STEP = 8

cdef extern from "graph.h" namespace "mt":
    cdef cppclass Refs:
        PyObject** at
        int n
        void make(int) except +
        void set(int, PyObject*)
        void put(int, PyObject*)
        PyObject* take(int)

cdef struct OutMeta:                             # of one forward output: what its gradient must look like
    int rank, dt, dev, index
    int64_t sizes[META_DIMS]
    int64_t* many                                # the sizes when rank > META_DIMS


# ---- classes
cdef class Node:
    cdef Overload op
    cdef PyObject** links                        # per input: Node, leaf Tensor or None; then the saved values
    cdef object link0, link1, link2, link3, link4, link5     # where links points, unless there are more
    cdef tuple many_links
    cdef int ntargets                            # how many of the links are inputs
    cdef int32_t* target_nr                      # few_nr, or a block of its own
    cdef int32_t few_nr[4]
    cdef uint32_t versions[MAX_SAVED]
    cdef uint64_t mask                           # which saved values are filled
    cdef uint64_t needs                          # which inputs need a gradient
    cdef uint64_t sequence
    cdef int noutputs, saved_outputs
    cdef OutMeta* metas
    cdef OutMeta meta0
    cdef bint released
    cdef list pre_hooks                          # per output: list of dicts of hooks, or None
    cdef dict post_hooks
    cdef dict node_pre_hooks
    cdef object metadata_object                  # made on first use, or by anomaly mode


cdef class CopySlices(Node):
    cdef Node inner
    cdef tuple view_shape, view_strides, base_strides
    cdef int64_t view_offset
    cdef int view_dt, view_marks, base_marks


# ---- functions
cdef object add_hook(dict hooks, object fn)
cdef tuple meta_shape(OutMeta* m)
cdef object edge_of(TensorBase t, int32_t* nr)
cdef object seen_node(object node)
cdef Node record(Overload ov, PyObject** s)
cdef int attach(Node node, TensorBase out, int nr, Overload ov) except -1
cdef dict hooks_at(Node node, int nr)
cdef object flipped(object t, int marks)
cdef int refresh_view(TensorBase t) except -1
cdef list hook_values(object hook, list were, object got, bint alike)
cdef object run_tensor_hooks(dict hooks, object grad)
cdef list list_of_refs(Refs* refs)
cdef int refs_of_list(Refs* refs, list items) except -1
cdef int release(Node node) except -1
cdef int compute(Node node, uint64_t needs, Refs* grads, Refs* results) except -1
cdef int accumulate(TensorBase leaf, TensorBase grad, bint create_graph, int held) except -1
cdef object sum_of(object a, object b)
cdef tuple run_many_views(Overload ov, PyObject** s)
cdef object keep_original(Overload ov, TensorBase self, PyObject** s)
cdef int finish_inplace(Node node, Overload ov, TensorBase self) except -1
cdef object view_error(TensorBase t, str what)
cdef int save_results(Node node, Overload ov, PyObject** results, int n) except -1


cdef inline bint takes_gradient(Overload ov, int i) noexcept:
    """Whether result i of several is an output of the op's node: its formulas read the gradient of it."""
    return ov.nreturns == 1 or i >= 64 or ov.reads_grads >> i & 1


cdef bint has_formulas(Overload ov, PyObject** s)
cdef bint requires_any(PyObject* o) noexcept


# ---- inlined
cdef inline object saved_at(Node node, int j):
    return <object>node.links[node.ntargets + j]


cdef inline bint wants_grad(Overload ov, PyObject** s):
    """Whether this call is to be recorded."""
    cdef int i
    cdef PyObject* o
    if not modes().grad:
        return False
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            if needs_grad(<TensorBase>o):
                return True
        elif ov.has_list and requires_any(o):
            return True
    return False
