# What a recorded node computes: the gradients of its inputs, given those of its outputs. Who walks the graph: engine.pxi.

cdef list list_of_refs(Refs* refs):
    return [None if refs.at[i] == NULL else <object>refs.at[i] for i in range(refs.n)]


cdef int refs_of_list(Refs* refs, list items) except -1:
    cdef int i
    for i in range(refs.n):
        if items[i] is None:
            refs.put(i, NULL)
        else:
            refs.set(i, PyList_GET_ITEM_(items, i))
    return 0


cdef int release(Node node) except -1:
    """Drops the saved tensors. Numbers and shapes stay: without tensors, backward may run again."""
    cdef Overload ov = node.op
    cdef int j
    if ov is None:
        if isinstance(node, CopySlices):
            (<CopySlices>node).inner = None      # which may be a node of this graph too: the maker of a saved result
            return 0
        node._release()
        return 0
    for j in range(ov.nsaved):
        if node.mask >> j & 1 and (ov.saved_kind[j] == S_RESULT or ov.saved_kind[j] == S_RESULTS or (
                ov.saved_kind[j] == S_VALUE and ov.kind[ov.saved_param[j]] <= K_TENSORS)):
            node.released = True
            set_saved(node, j, None)
    return 0


cdef int apply_node(Node node, uint64_t needs, Refs* grads, Refs* results) except -1:
    """The gradients of the node's inputs, given those of its outputs; `needs` is node.needs or some of its bits."""
    cdef Overload ov = node.op
    cdef Formula f
    cdef int i
    if ov is None:
        return apply_custom(node, grads, results)
    if node.released:
        raise RuntimeError(RELEASED)
    if grads.n > 1:                              # zeros where there is no gradient, as far as formulas read them
        for i in range(grads.n):
            if grads.at[i] == NULL and ov.reads_grads >> min(i, 63) & 1 and node.metas[i].dt >= kHalf:
                zeros = meta_zeros(&node.metas[i])
                grads.set(i, <PyObject*>zeros)
    for f in ov.formulas:
        if needs & f.needs:
            apply_formula(node, f, needs, grads, results)
    return 0


cdef int apply_custom(Node node, Refs* grads, Refs* results) except -1:
    """A node of Python's making has an apply() of its own."""
    result = node.apply(*list_of_refs(grads))
    found = list(result) if isinstance(result, (tuple, list)) else [result]
    if len(found) != results.n:
        raise RuntimeError(f"{node.name()} returned an incorrect number of gradients "
                           f"(expected {results.n}, got {len(found)})")
    return refs_of_list(results, found)


cdef int apply_formula(Node node, Formula f, uint64_t needs, Refs* grads, Refs* results) except -1:
    cdef Refs values
    cdef int i, j, k
    values.make(f.nargs)
    for i in range(f.nargs):
        k = f.source[i]
        if k >= 0:
            value = saved_at(node, k) if node.op.saved_kind[k] == S_RESULTS else unpack_saved(node, k)
        elif k <= A_GRAD:
            value = None if A_GRAD - k >= grads.n or grads.at[A_GRAD - k] == NULL else <object>grads.at[A_GRAD - k]
        elif k == A_GRADS:
            value = list_of_refs(grads)
        else:
            value = tuple([bool(needs >> f.inputs[j] & 1) for j in range(f.ninputs)])
        values.set(i, <PyObject*>value)
    if node.released:                            # by another thread's backward, while a formula or a hook ran in this one
        raise RuntimeError(RELEASED)
    value = None
    result = PyObject_Vectorcall(f.fn, values.at, f.nargs, NULL)
    if not f.joint:
        return put_result(node.op, f.inputs[0], result, results)
    for i in range(f.ninputs):
        if needs >> f.inputs[i] & 1:
            put_result(node.op, f.inputs[i], result[i], results)
    return 0


cdef int put_result(Overload ov, int ordinal, object result, Refs* results) except -1:
    """A gradient to its place; the gradient of a Tensor[] is a list and fills the list's places."""
    cdef int i, at = ordinal, width
    if result is None:
        return 0
    if ov.has_list:
        width = results.n - (ov.ntensors - 1)    # of the list, the only one of the row
        if ov.kind[ov.tensor_at[ordinal]] == K_TENSORS:
            for i in range(width):
                item = result[i]
                if item is not None and ordinal + i < results.n:
                    results.set(ordinal + i, <PyObject*>item)
            return 0
        for i in range(ordinal):
            if ov.kind[ov.tensor_at[i]] == K_TENSORS:
                at = ordinal + width - 1
    if not 0 <= at < results.n:
        raise RuntimeError(f"[{ov.name}] a formula gave a gradient for input {at} of {results.n}")
    results.set(at, <PyObject*>result)
    return 0


cdef list gradients_of(Node node, object grad):
    """The gradients of the inputs of a node with one output."""
    cdef Refs grads, results
    grads.make(1)
    grads.set(0, <PyObject*>grad)
    results.make(node.ntargets)
    apply_node(node, node.needs, &grads, &results)
    return list_of_refs(&results)


cdef object meta_zeros(OutMeta* m):
    cdef TensorBase t = new_empty(m.rank, m.many if m.many != NULL else m.sizes, m.dt, m.dev, m.index)
    return hot_call1(hot.zero_, t)


cdef object evaluated = local()                   # .node: what anomaly mode sees computed in this thread


cdef int compute(Node node, uint64_t needs, Refs* grads, Refs* results) except -1:
    """apply_node(), with the checks of anomaly mode where it is enabled."""
    if not anomaly:
        return apply_node(node, needs, grads, results)
    outer, evaluated.node = getattr(evaluated, "node", None), node
    try:
        apply_node(node, needs, grads, results)
        if anomaly_nan:
            refuse_nan(node, list_of_refs(results))
    except Exception:
        warn_of_failure(node)
        raise
    finally:
        evaluated.node = outer
    return 0


cdef int warn_of_failure(Node node) except -1:
    """Tells where the failing node was recorded, and, where that was in a backward, what that one was computing."""
    cdef dict known = <dict?>node.metadata
    if "traceback_" not in known:
        warnings.warn(f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly "
                      "during forward pass for more information.", UserWarning)
        return 0
    warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
                  f"{''.join(known['traceback_'])}", UserWarning)
    while isinstance(known.get("parent_"), Node):
        node = <Node>known["parent_"]
        known = <dict?>node.metadata
        if "traceback_" not in known:
            warnings.warn("\n\nPrevious calculation was induced by " + node.name() + ". No forward pass information "
                          "available. Enable detect anomaly during forward pass for more information.", UserWarning)
            return 0
        warnings.warn(f"\n\nPrevious calculation was induced by {node.name()}. Traceback of forward call that induced the "
                      f"previous calculation:\n{''.join(known['traceback_'])}", UserWarning)
    return 0


cdef int refuse_nan(Node node, list results) except -1:
    for i, g in enumerate(results):
        if isinstance(g, TensorBase) and (<TensorBase>g).dt >= kHalf and bool((g != g).any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
    return 0


cdef object sum_lock = RLock()                   # large sums release the GIL, and must not run concurrently on one .grad


cdef int accumulate(TensorBase leaf, TensorBase grad, bint create_graph, int held) except -1:
    """Adds to leaf.grad. `held` is how many references the caller has: with no others the tensor itself becomes .grad."""
    if leaf.count <= NOGIL_ITEMS:
        return add_to_grad(leaf, grad, create_graph, held)
    with sum_lock:
        return add_to_grad(leaf, grad, create_graph, held)


cdef int add_to_grad(TensorBase leaf, TensorBase grad, bint create_graph, int held) except -1:
    cdef TensorBase have
    if leaf.grad_object is None:
        if create_graph and grad.requires and Py_TYPE(<PyObject*>grad) == tensor_type:
            leaf.grad_object = hot_call2(hot.copy_, new_like_format(leaf, grad.dt, PRESERVE, grad.dev, grad.dev_index), grad)
        elif create_graph and Py_TYPE(<PyObject*>grad) != tensor_type:
            leaf.grad_object = grad
        elif grad.contig == leaf.contig and grad.base is None and not grad.requires and \
                grad.shared_version == NULL and Py_REFCNT(grad) <= held and grad.st.refs == 1:
            leaf.grad_object = grad              # no other reference: no copy
        elif Py_TYPE(<PyObject*>grad) != tensor_type:
            leaf.grad_object = tensor_arg(hot_call1(hot.clone, grad))
        else:
            have = new_like_format(leaf, grad.dt, PRESERVE, grad.dev, grad.dev_index)
            copy_into(have, grad)
            leaf.grad_object = have
    elif create_graph or Py_TYPE(<PyObject*>grad) == tensor_type != Py_TYPE(<PyObject*>leaf.grad_object):
        leaf.grad_object = sum_of(leaf.grad_object, grad)      # a dense gradient makes a sparse .grad dense
    else:
        hot_call2(hot.add_, leaf.grad_object, grad)
    return 0


cdef object sum_of(object a, object b):
    """a + b, the plain tensor first: a sparse one may be added to it, not the other way round."""
    if Py_TYPE(<PyObject*>b) == tensor_type != Py_TYPE(<PyObject*>a):
        return hot_call2(hot.add, b, a)
    return hot_call2(hot.add, a, b)
