# What a row's rule said about its outputs, kept for the next call with arguments alike. A rule is a function of shapes,
# dtypes, devices and plain values, never of data; one that must run each time (it warns) returns an infer.Once.

cdef extern from "inference_cache.h" namespace "mt":
    cdef cppclass InferenceCache:
        void begin(uint64_t, uint64_t) except +
        void none() except +
        void generator() except +
        void dtype(int) except +
        void list(size_t) except +
        void tensor(int, int, int, const int64_t*) except +
        void integer(int64_t, cbool) except +
        void real(double) except +
        void text(const char*) except +
        const vector[int64_t]* find()
        void keep(const vector[int64_t]&) except +

cdef InferenceCache inference                    # no Python runs while a call is looked up


cdef object ask_rule(Overload ov, PyObject** s):
    """What the row's rule says. It is Python, so other threads may run meanwhile; the kernel trusts what it says about
    the tensors, so they must still be what they were."""
    cdef vector[int64_t] before, after
    note_geometry(ov, s, before)
    specs = PyObject_Vectorcall(ov.rule, s, ov.nparams, NULL)
    note_geometry(ov, s, after)
    if before != after:
        raise RuntimeError(f"[{ov.name}] an argument was changed by another thread during the call")
    return specs


cdef int note_geometry(Overload ov, PyObject** s, vector[int64_t]& out) except -1:
    cdef PyObject* o
    cdef Py_ssize_t k
    cdef int i
    for i in range(ov.ntensors):
        o = s[ov.tensor_at[i]]
        if is_tensor(o):
            add_geometry(<TensorBase>o, out)
        elif ov.kind[ov.tensor_at[i]] == K_TENSORS:
            for k in range(count_items(o)):
                if is_tensor(items_of(o)[k]):
                    add_geometry(<TensorBase>items_of(o)[k], out)
    return 0


cdef int add_geometry(TensorBase t, vector[int64_t]& out) except -1:
    cdef int d
    out.push_back(<int64_t>(t.dt | <uint64_t>t.dev << 8 | <uint64_t>t.rank << 16 | <uint64_t>t.dev_index << 32))
    for d in range(t.rank):
        out.push_back(t.sizes[d])
    return 0


cdef int check_rule(Overload ov, PyObject** s) except -1:
    """Runs the rule of a row that changes its first argument, which refuses where it may not; once for arguments alike."""
    cdef vector[int64_t] nothing_new
    if not read_spec_key(ov, s) or inference.find() == NULL:
        ask_rule(ov, s)
        if read_spec_key(ov, s):
            inference.keep(nothing_new)
    return 0


cdef tuple known_outputs(Overload ov, PyObject** s, int dev, int index):
    """New outputs as the row's rule gave them for arguments like these; None: the rule has to run."""
    cdef const vector[int64_t]* specs
    cdef vector[int64_t] own
    cdef OutSpec one
    cdef const int64_t* at
    cdef Py_ssize_t n = 0
    if not read_spec_key(ov, s):
        return None
    specs = inference.find()
    if specs == NULL:
        return None
    if ov.nreturns == 1 and specs.data()[0] >= 0:
        at = specs.data()                        # copied: an allocation may run Python, which looks up other specs
        one.rank, one.dt = <int>at[0], <int>at[1]
        copy_dims(one.sizes, at + 2, one.rank)
        return (new_output(ov, s, 0, one.rank, one.sizes, one.dt, dev, index),)
    own = specs[0]
    results = []
    while n < <Py_ssize_t>own.size():
        at = own.data() + n
        if at[0] < 0:
            results.append(None)
            n += 1
        else:
            results.append(new_output(ov, s, <int>len(results), <int>at[0], at + 2, <int>at[1], dev, index))
            n += 2 + at[0]
    return tuple(results)


cdef int note_outputs(Overload ov, PyObject** s, object specs) except -1:
    """Keeps what a rule said: (shape, dtype), or a list of such and None."""
    cdef vector[int64_t] row
    cdef int64_t sizes[MAX_DIMS]
    cdef int i, rank
    if type(specs) is not list and type(specs) is not tuple or not read_spec_key(ov, s):
        return 0
    for item in (specs if type(specs) is list else (specs,)):
        if item is None:
            row.push_back(-1)
            continue
        rank = read_ints(item[0], sizes)
        row.push_back(rank)
        row.push_back((<dtype?>item[1])._id)
        for i in range(rank):
            row.push_back(sizes[i])
    read_spec_key(ov, s)                         # again: reading sizes may have run Python
    inference.keep(row)
    return 0


cdef bint read_spec_key(Overload ov, PyObject** s):
    """Makes the key of a call; False where an argument is of a kind that has no key."""
    cdef int p
    inference.begin(<uint64_t><size_t><PyObject*>ov, <uint64_t>default_dtype)     # an op lives as long as the process
    for p in range(ov.nparams):
        if not add_to_key(s[p], 0, ov.kind[p] == K_TENSOR or ov.kind[p] == K_TENSORS):
            return False
    return True


cdef bint add_to_key(PyObject* o, int depth, bint tensors):
    """tensors: whether one may stand here; elsewhere a tensor is a number, which is data."""
    cdef int overflow = 0
    cdef int64_t value
    if o == <PyObject*>None:
        inference.none()
    elif tensors and is_tensor(o):
        inference.tensor((<TensorBase>o).dt, (<TensorBase>o).dev, (<TensorBase>o).rank, (<TensorBase>o).sizes)
    elif PyFloat_CheckExact(<object>o):
        inference.real(PyFloat_AS_DOUBLE(<object>o))
    elif PyBool_Check(<object>o) or PyLong_CheckExact(<object>o):
        value = PyLong_AsLongLongAndOverflow(<object>o, &overflow)
        inference.integer(value, PyBool_Check(<object>o))
        return overflow == 0
    elif type(<object>o) is tuple or type(<object>o) is list or type(<object>o) is size_class:
        return depth < 2 and add_items(<object>o, depth + 1, tensors)
    elif type(<object>o) is dtype:
        inference.dtype((<dtype>o)._id)
    elif PyUnicode_Check(<object>o):
        inference.text(PyUnicode_AsUTF8(<object>o))
    elif isinstance(<object>o, GeneratorBase):
        inference.generator()
    else:
        return False
    return True


cdef bint add_items(object items, int depth, bint tensors):
    cdef Py_ssize_t i
    inference.list(len(items))
    if type(items) is list:
        for i in range(PyList_GET_SIZE(items)):
            if not add_to_key(PyList_GET_ITEM_(items, i), depth, tensors):
                return False
    else:
        for i in range(PyTuple_GET_SIZE(items)):
            if not add_to_key(PyTuple_GET_ITEM_(items, i), depth, tensors):
                return False
    return True
