# Backward: walks the recorded graph from the roots to the leaves.

ctypedef void* voidp
ctypedef pair[uint64_t, voidp] Ready            # sequence number, target

cdef struct Task:
    int dependencies                             # gradients still to come
    bint needed, queued
    PyObject* grads                              # owned: a tensor, or a list when the node has several outputs


cdef class GraphTask:
    """One run of backward."""
    cdef unordered_map[voidp, Task] tasks
    cdef priority_queue[Ready] ready
    cdef vector[voidp] order                     # every node and leaf met, each kept alive here
    cdef bint keep_graph, create_graph
    cdef dict captures                           # (id of target, output) -> index of the gradient asked for
    cdef list captured
    cdef uint64_t number                         # tells runs apart

    def __dealloc__(self):
        cdef pair[voidp, Task] entry
        cdef voidp p
        for entry in self.tasks:
            if entry.second.grads != NULL:
                Py_DECREF(<object>entry.second.grads)
        for p in self.order:
            Py_DECREF(<object><PyObject*>p)

    cdef int discover(self, list roots) except -1:
        """Counts, for each node reachable from the roots, the gradients it will receive."""
        cdef vector[voidp] stack
        cdef void* p
        cdef Node node
        cdef Task fresh
        cdef PyObject* target
        cdef Py_ssize_t i
        cdef Task* task
        fresh.dependencies, fresh.needed, fresh.queued = 0, True, False
        fresh.grads = NULL
        for root in roots:
            p = <void*><PyObject*>root
            if self.tasks.find(p) == self.tasks.end():
                self.tasks[p] = fresh
                Py_INCREF(root)
                self.order.push_back(p)
                stack.push_back(p)
        while stack.size():
            p = stack.back()
            stack.pop_back()
            if not isinstance(<object><PyObject*>p, Node):
                continue
            node = <Node><PyObject*>p
            if node.targets is None:
                continue
            for i in range(PyTuple_GET_SIZE(node.targets)):
                target = PyTuple_GET_ITEM_(node.targets, i)
                if <object>target is None:
                    continue
                if self.tasks.find(target) == self.tasks.end():
                    self.tasks[target] = fresh
                    Py_INCREF(<object>target)
                    self.order.push_back(target)
                    stack.push_back(target)
                self.tasks[target].dependencies += 1
        return 0

    cdef int prune(self) except -1:
        """With inputs given: only what leads to one of them is needed."""
        cdef vector[Ready] by_age
        cdef Ready entry
        cdef Node node
        cdef PyObject* target
        cdef Py_ssize_t i
        cdef bint needed
        cdef voidp p
        wanted = {key[0] for key in self.captures}
        for p in self.order:
            o = <object><PyObject*>p
            if isinstance(o, Node):
                by_age.push_back(Ready((<Node>o).sequence, p))
            else:
                self.tasks[p].needed = id(o) in wanted
        sort(by_age.begin(), by_age.end())
        for entry in by_age:
            node = <Node><PyObject*>entry.second
            needed = id(node) in wanted
            if not needed and node.targets is not None:
                for i in range(PyTuple_GET_SIZE(node.targets)):
                    target = PyTuple_GET_ITEM_(node.targets, i)
                    if <object>target is not None and self.tasks[target].needed:
                        needed = True
                        break
            self.tasks[entry.second].needed = needed
        return 0

    cdef int give(self, object target, int nr, object grad) except -1:
        """Adds a gradient to what the target has received; queues the target when all have come."""
        cdef Task* task = &self.tasks[<PyObject*>target]
        cdef TensorBase have
        cdef int n
        if grad is not None and task.needed:
            n = (<Node>target).noutputs if isinstance(target, Node) else 1
            if n <= 1:
                if task.grads == NULL:
                    Py_INCREF(grad)
                    task.grads = <PyObject*>grad
                else:
                    total = hot_call2(HOT_ADD, <object>task.grads, grad)
                    task = &self.tasks[<PyObject*>target]
                    Py_INCREF(total)
                    Py_DECREF(<object>task.grads)
                    task.grads = <PyObject*>total
            else:
                if task.grads == NULL:
                    fresh = [None] * n
                    Py_INCREF(fresh)
                    task.grads = <PyObject*>fresh
                slots = <list>task.grads
                slots[nr] = grad if slots[nr] is None else hot_call2(HOT_ADD, slots[nr], grad)
        return 0

    cdef int arrived(self, object target) except -1:
        cdef Task* task = &self.tasks[<PyObject*>target]
        task.dependencies -= 1
        if task.dependencies <= 0 and not task.queued:
            task.queued = True
            self.ready.push(Ready(
                (<Node>target).sequence if isinstance(target, Node) else <uint64_t>-1, <void*><PyObject*>target))
        return 0

    cdef int run(self) except -1:
        cdef void* p
        cdef Task* task
        while self.ready.size():
            p = self.ready.top().second
            self.ready.pop()
            task = &self.tasks[p]
            if task.grads == NULL:
                grads = None
            else:
                grads = <object>task.grads
                Py_DECREF(grads)
                task.grads = NULL
            target = <object><PyObject*>p
            if isinstance(target, Node):
                self.run_node(<Node>target, grads)
            elif grads is not None:
                self.run_leaf(<TensorBase>target, grads)
        return 0

    cdef int run_leaf(self, TensorBase leaf, object grad) except -1:
        if leaf.extra is not None:
            hooks = leaf.extra.get("hooks")
            if hooks:
                grad = run_tensor_hooks(hooks, grad)
        if self.captures is not None:
            key = (id(leaf), 0)
            if key in self.captures:
                self.captured[self.captures[key]] = grad
            return 0
        accumulate(leaf, <TensorBase>grad, self.create_graph)
        if leaf.extra is not None:
            after = leaf.extra.get("after")
            if after:
                for hook in list(after.values()):
                    hook(leaf)
        return 0

    cdef int run_node(self, Node node, object given) except -1:
        cdef list grads, results
        cdef int i, n
        cdef object target
        cdef bint leads_on
        if node.noutputs > 1:
            grads = <list>given if given is not None else [None] * node.noutputs
        else:
            grads = [given]
        leads_on = self.leads_on(node)
        if self.captures is not None and leads_on:   # as torch: before the hooks, unless the node is only asked for
            self.capture(node, grads)
        if node.pre_hooks is not None:
            for i in range(len(grads)):
                hooks = node.pre_hooks[i] if i < len(node.pre_hooks) else None
                if hooks and grads[i] is not None:
                    grads[i] = run_tensor_hooks(hooks, grads[i])
        if node.node_pre_hooks:
            for hook in list(node.node_pre_hooks.values()):
                changed = hook(tuple(grads))
                if changed is not None:
                    grads = hook_values(hook, grads, changed, True)
        if self.captures is not None and not leads_on:
            self.capture(node, grads)
        if node.targets is None:
            return 0
        n = <int>PyTuple_GET_SIZE(node.targets)
        if self.tasks[<PyObject*>node].needed and any_given(grads) and leads_on:
            results = self.compute(node, grads)
            if len(results) != n:
                raise RuntimeError(f"{node.name()} returned an incorrect number of gradients "
                                   f"(expected {n}, got {len(results)})")
            if node.post_hooks:
                for hook in list(node.post_hooks.values()):
                    changed = hook(tuple(results), tuple(grads))
                    if changed is not None:
                        results = hook_values(hook, results, changed, False)
            grads = None
            given = None
            for i in range(n):
                target = <object>PyTuple_GET_ITEM_(node.targets, i)
                if target is not None:
                    grad = results[i]
                    results[i] = None
                    if grad is not None:
                        self.give(target, node.target_nr[i], fit(grad, target, node.target_nr[i], node))
                    grad = None
        for i in range(n):
            target = <object>PyTuple_GET_ITEM_(node.targets, i)
            if target is not None:
                self.arrived(target)
        return 0

    cdef int capture(self, Node node, list grads) except -1:
        """Keeps the gradients of the node's outputs that were asked for."""
        cdef int i
        for i in range(len(grads)):
            key = (id(node), i)
            if key in self.captures:
                self.captured[self.captures[key]] = grads[i]
        return 0

    cdef bint leads_on(self, Node node):
        """Whether any input of the node still needs a gradient in this run."""
        cdef Py_ssize_t i
        cdef PyObject* target
        if self.captures is None:
            return True
        if node.targets is None:
            return False
        for i in range(PyTuple_GET_SIZE(node.targets)):
            target = PyTuple_GET_ITEM_(node.targets, i)
            if <object>target is not None and self.tasks[target].needed:
                return True
        return False

    cdef list compute(self, Node node, list grads):
        try:
            results = apply_node(node, grads)
            if anomaly and anomaly_nan:
                check_nan(node, results)
        except Exception:
            if anomaly and node.trace is not None:
                warnings.warn(f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
                              f"{node.trace}", UserWarning)
            raise
        if not self.keep_graph:
            release(node)
        return results


cdef bint any_given(list grads):
    for g in grads:
        if g is not None:
            return True
    return False


cdef int check_nan(Node node, list results) except -1:
    for i, g in enumerate(results):
        if g is not None and (<TensorBase>g).dt >= kHalf and bool((g != g).any()):
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
    return 0


cdef void release(Node node):
    cdef Overload ov = node.op
    cdef int j
    if ov is not None:
        for j in range(ov.nsaved):               # numbers and shapes stay: without tensors, backward may run again
            if node.mask >> j & 1 and (ov.saved_kind[j] == S_RESULT or ov.saved_kind[j] == S_RESULTS or (
                    ov.saved_kind[j] == S_VALUE and ov.kind[ov.saved_param[j]] <= K_TENSORS)):
                node.saved = None
                node.released = True
                break
    elif isinstance(node, CopySlices):
        release((<CopySlices>node).inner)
    else:
        node._release()


cdef list apply_node(Node node, list grads):
    """The gradients of the node's inputs, given those of its outputs."""
    cdef Overload ov = node.op
    cdef Formula f
    cdef list results
    cdef int i, j, k
    cdef PyObject* args[MAX_SAVED]
    cdef list values
    cdef bint wanted
    if ov is None:
        result = node.apply(*grads)
        return list(result) if isinstance(result, (tuple, list)) else [result]
    if node.released:
        raise RuntimeError(RELEASED)
    if node.noutputs > 1:
        for i in range(node.noutputs):
            if grads[i] is None and node.metas[i].dt >= kHalf:
                grads[i] = meta_zeros(&node.metas[i])
    results = [None] * (len(node.targets) if ov.has_list else ov.ntensors)
    for f in ov.formulas:
        wanted = False
        for i in range(f.ninputs):
            if node.needs >> f.inputs[i] & 1:
                wanted = True
                break
        if not wanted:
            continue
        values = PyList_New(f.nargs)
        for i in range(f.nargs):
            k = f.source[i]
            if k >= 0:
                value = unpack_any(node, k)
            elif k == A_GRAD:
                value = grads[0]
            elif k == A_GRADS:
                value = grads
            else:
                value = tuple([bool(node.needs >> f.inputs[j] & 1) for j in range(f.ninputs)])
            Py_INCREF(value)
            PyList_SET_ITEM(values, i, value)
            args[i] = <PyObject*>value
        value = None
        result = PyObject_Vectorcall(f.fn, args, f.nargs, NULL)
        if f.joint:
            for i in range(f.ninputs):
                if node.needs >> f.inputs[i] & 1:
                    put_result(results, ov, f.inputs[i], result[i])
        else:
            put_result(results, ov, f.inputs[0], result)
    return results


cdef object unpack_any(Node node, int k):
    if node.op.saved_kind[k] == S_RESULTS:
        return node.saved[k]
    return unpack_saved(node, k)


cdef int put_result(list results, Overload ov, int ordinal, object result) except -1:
    """A gradient to its place; the gradient of a Tensor[] is a list and fills the list's places."""
    cdef int i
    if not ov.has_list:
        results[ordinal] = result
        return 0
    if ov.kind[ov.tensor_at[ordinal]] == K_TENSORS:
        if ov.ntensors == 1:
            results[:] = result
        else:
            width = len(results) - (ov.ntensors - 1)
            results[ordinal:ordinal + width] = result
        return 0
    for i in range(ordinal):
        if ov.kind[ov.tensor_at[i]] == K_TENSORS:    # the list stands before this parameter
            results[len(results) - (ov.ntensors - ordinal)] = result
            return 0
    results[ordinal] = result
    return 0


cdef object meta_zeros(OutMeta* m):
    cdef TensorBase t = new_empty(m.rank, m.many if m.many != NULL else m.sizes, m.dt, m.dev, m.index)
    return hot_call1(HOT_ZERO_, t)


cdef object fit(object grad, object target, int nr, Node source):
    """The gradient in the shape and dtype of what it is the gradient of: sums what was broadcast, casts."""
    cdef TensorBase g
    cdef OutMeta* m
    cdef OutMeta leaf
    cdef int64_t* sizes
    if not isinstance(grad, TensorBase):
        raise RuntimeError(f"function {source.name()} returned a gradient of type {type(grad).__name__}, expected "
                           "a Tensor or None")
    g = <TensorBase>grad
    if isinstance(target, Node):
        m = &(<Node>target).metas[nr]
        sizes = m.many if m.many != NULL else m.sizes
    else:
        leaf.rank, leaf.dt = (<TensorBase>target).rank, (<TensorBase>target).dt
        leaf.dev, leaf.index = (<TensorBase>target).dev, (<TensorBase>target).dev_index
        sizes = (<TensorBase>target).sizes
        m = &leaf
    if g.rank != m.rank or memcmp(g.sizes, sizes, g.rank * sizeof(int64_t)) != 0:
        grad = sum_to(g, m.rank, sizes, source)
        g = <TensorBase>grad
    if g.dt != m.dt:
        if g.dt >= kComplexFloat and m.dt < kComplexFloat:
            grad = grad.real
        grad = grad.to(dtypes[m.dt])
    if g.dev != m.dev and m.rank == 0:
        grad = grad.to(device_object(m.dev, m.index))
    return grad


cdef object sum_to(TensorBase g, int rank, const int64_t* sizes, Node source):
    """The sum of g over the dims that broadcasting had added or stretched."""
    cdef int d, lead = g.rank - rank
    cdef list dims = list(range(lead)) if lead > 0 else []
    if lead < 0:
        raise shape_mismatch(g, rank, sizes, source)
    for d in range(rank):
        if g.sizes[lead + d] != sizes[d]:
            if sizes[d] != 1:
                raise shape_mismatch(g, rank, sizes, source)
            dims.append(lead + d)
    summed = g.sum(dims, True) if dims else g
    return summed.view([sizes[d] for d in range(rank)]) if lead > 0 else summed


cdef object shape_mismatch(TensorBase g, int rank, const int64_t* sizes, Node source):
    return RuntimeError(f"Function {source.name()} returned an invalid gradient - got {list(shape_of(g))} but "
                        f"expected shape compatible with {[sizes[d] for d in range(rank)]}")


cdef object sum_lock = RLock()                   # large sums give up the GIL, and may not meet in one .grad


cdef int accumulate(TensorBase leaf, TensorBase grad, bint create_graph) except -1:
    """Adds to leaf.grad."""
    if leaf.count <= NOGIL_ITEMS:
        return add_to_grad(leaf, grad, create_graph)
    with sum_lock:
        return add_to_grad(leaf, grad, create_graph)


cdef int add_to_grad(TensorBase leaf, TensorBase grad, bint create_graph) except -1:
    cdef TensorBase have
    if leaf.grad_object is None:
        if create_graph:
            leaf.grad_object = grad
        elif grad.contig == leaf.contig and grad.base is None and not grad.requires and \
                grad.shared_version == NULL and Py_REFCNT(grad) <= 3 and grad.st.refs == 1:
            leaf.grad_object = grad              # nobody else has it: no copy
        else:
            have = new_like_format(leaf, leaf.dt, PRESERVE, grad.dev, grad.dev_index)
            copy_into(have, grad)
            leaf.grad_object = have
    elif create_graph:
        leaf.grad_object = hot_call2(HOT_ADD, leaf.grad_object, grad)
    else:
        hot_call2(HOT_ADD_, leaf.grad_object, grad)
    return 0


cdef object start_gradient(TensorBase t, object given, int i):
    """The gradient to start from: given and checked, or 1 for a real scalar; None where t needs none."""
    cdef TensorBase g
    if given is not None:
        if not isinstance(given, TensorBase):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(given).__name__}")
        g = <TensorBase>given
        if not same_shape(g, t):
            raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {size_of(g)} and output[{i}] has a "
                               f"shape of {size_of(t)}.")
        if (g.dt >= kComplexFloat) != (t.dt >= kComplexFloat):
            raise RuntimeError("For complex Tensors, both grad_output and output are required to have the same dtype. "
                               f"Mismatch in dtype: grad_output[{i}] has a dtype of {dtypes[g.dt]} and output[{i}] has a "
                               f"dtype of {dtypes[t.dt]}.")
        return given
    if not t.requires:
        return None
    if t.count != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if not is_float_id(t.dt):
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtypes[t.dt]}")
    g = new_empty(t.rank, t.sizes, t.dt, t.dev, t.dev_index)
    fill_new(g, 1, N_ONES)
    return g


cdef dict running = {}                           # thread -> its runs of backward, innermost last
cdef uint64_t run_number = 0


def _run_backward(tuple tensors, tuple grads, bint keep_graph, bint create_graph, inputs, bint accumulate_grad,
                  bint allow_unused):
    """Backward from tensors, with the given gradients (None: ones for scalars). With inputs: returns their gradients
    instead of, or limited to, accumulating. A (node, output number) pair may stand for a tensor."""
    global run_number
    cdef GraphTask task = GraphTask.__new__(GraphTask)
    cdef list roots = [], starts = [], numbers = []
    cdef int32_t nr
    cdef bint mode = modes().grad
    cdef Py_ssize_t n
    task.keep_graph, task.create_graph = keep_graph, create_graph
    run_number += 1
    task.number = run_number
    if grads is not None and len(grads) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(grads)} gradients")
    for n in range(len(tensors)):
        root = tensors[n]
        start = None if grads is None else grads[n]
        if isinstance(root, TensorBase):
            start = start_gradient(<TensorBase>root, start, <int>n)
            if not (<TensorBase>root).requires:
                raise RuntimeError(f"element {n} of tensors does not require grad and does not have a grad_fn")
        roots.append(target_of(root, &nr))
        starts.append(start)
        numbers.append(nr)
    if inputs is not None:
        ask_for(task, inputs, accumulate_grad)
    task.discover(roots)
    if inputs is not None:
        task.prune()
    mine = running.setdefault(get_ident(), [])
    mine.append(task)
    modes().grad = create_graph
    try:
        for root in roots:
            task.tasks[<PyObject*>root].dependencies += 1
        for n in range(len(roots)):
            task.give(roots[n], numbers[n], starts[n])
            starts[n] = None
            task.arrived(roots[n])
        start = grads = None
        task.run()
        if inputs is None:
            return None
        return finish_captures(task, inputs, accumulate_grad, allow_unused, create_graph)
    finally:
        modes().grad = mode
        mine.pop()
        if not mine:
            running.pop(get_ident(), None)


cdef object target_of(object tensor, int32_t* nr):
    """The node or leaf that a tensor, or a (node, output number) pair, stands for."""
    if isinstance(tensor, TensorBase):
        return edge_of(<TensorBase>tensor, nr)
    node, number = tensor
    nr[0] = number
    return node.variable if isinstance(node, AccumulateGrad) else node


cdef int ask_for(GraphTask task, inputs, bint accumulate_grad) except -1:
    """Notes whose gradients are asked for."""
    cdef int32_t nr = 0
    task.captures = {}
    task.captured = [None] * len(inputs)
    for i, tensor in enumerate(inputs):
        if isinstance(tensor, TensorBase):
            if not (<TensorBase>tensor).requires:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
            if accumulate_grad:
                tensor.retain_grad()             # how a tensor that is no leaf gets its .grad
        target = target_of(tensor, &nr)
        task.captures[(id(target), nr)] = i
    return 0


cdef object finish_captures(GraphTask task, inputs, bint accumulate_grad, bint allow_unused, bint create_graph):
    cdef int32_t nr = 0
    # one edge may have been asked for more than once
    found = [task.captured[task.captures[(id(target_of(t, &nr)), nr)]] for t in inputs]
    if accumulate_grad:
        for t, g in {id(t): (t, g) for t, g in zip(inputs, found)}.values():
            if g is not None and (<TensorBase>t).fn is None:
                accumulate(<TensorBase>t, <TensorBase>g, create_graph)
                if (<TensorBase>t).extra is not None and (<TensorBase>t).extra.get("after"):
                    for hook in list((<TensorBase>t).extra["after"].values()):
                        hook(t)
        return None
    if not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                                   "Set allow_unused=True if this is the desired behavior.")
    return tuple(found)


def _current_run():
    """The number of the backward that runs in this thread, -1 when none does."""
    mine = running.get(get_ident())
    return (<GraphTask>mine[-1]).number if mine else -1


def _will_run(TensorBase t):
    """Whether the backward that runs in this thread computes the gradient of t."""
    cdef int32_t nr = 0
    cdef GraphTask task = running[get_ident()][-1]
    cdef object target = edge_of(t, &nr)
    cdef void* p = <void*><PyObject*>target
    return task.tasks.find(p) != task.tasks.end() and task.tasks[p].needed
