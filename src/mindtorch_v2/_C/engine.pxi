# Backward: walks the recorded graph from the roots to the leaves.

cdef extern from "graph.h" namespace "mt":
    cdef cppclass Visit:
        PyObject* target
        PyObject* grad
        uint64_t sequence
        int32_t dependencies, edges, outputs
        cbool leaf, needed
    cdef cppclass Graph:
        Graph() except +
        int size()
        Visit& operator[](int)
        int find(PyObject*)
        int add(PyObject*, cbool, uint64_t, int) except +
        void begin_edges(int, int)
        void add_edge(int) except +
        int edge(int, int)
        void arrived(int) except +
        int next()
        PyObject* take_grad(int)
        void clear()

cdef Graph* spare_graph = new Graph()            # of the last run, for the next; NULL while one has it
cdef uint64_t run_number = 0
cdef object node_watcher = None                  # (name, sequence number) -> a with block around the node's turn
cdef bint create_graph_warned = False, number_warned = False, warns_always = False


def _watch_nodes(watcher):
    """Sets what watches the turns of nodes in backward, None for nothing; returns what did before."""
    global node_watcher
    before, node_watcher = node_watcher, watcher
    return before


def _set_warn_always(bint always):
    """Whether a warning that is given once for a process is given every time."""
    global warns_always
    warns_always = always


cdef int warn_of_cycle() except -1:
    global create_graph_warned
    if create_graph_warned and not warns_always:
        return 0
    create_graph_warned = True
    warnings.warn("Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
                  "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If "
                  "you have to use this function, make sure to reset the .grad fields of your parameters to None after use to "
                  "break the cycle and avoid the leak.", UserWarning, stacklevel=2)
    return 0


cdef int warn_of_number(TensorBase t) except -1:
    """Said once: float(loss) takes a number out of the graph."""
    global number_warned
    if not needs_grad(t) or number_warned and not warns_always:
        return 0
    number_warned = True
    warnings.warn("Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
                  "Consider using tensor.detach() first.", UserWarning, stacklevel=2)
    return 0


@cython.freelist(4)
cdef class GraphTask:
    """One run of backward."""
    cdef Graph* graph
    cdef bint keep_graph, create_graph
    cdef bint accumulates                        # into .grad, also of what was asked for
    cdef dict captures                           # (id of target, output) -> index of the gradient asked for
    cdef list captured
    cdef uint64_t number                         # tells runs apart
    cdef PyObject* running                       # the node or leaf whose turn it is
    cdef list callbacks                          # what _queue_callback has added, or None

    def __cinit__(self):
        global run_number, spare_graph
        run_number += 1
        self.number = run_number
        self.graph = spare_graph if spare_graph != NULL else new Graph()
        spare_graph = NULL

    def __dealloc__(self):
        global spare_graph
        cdef int met = self.graph.size()
        self.graph.clear()
        if spare_graph == NULL and met <= 4096:
            spare_graph = self.graph
        else:
            del self.graph

    cdef int visit_of(self, object target) except -1:
        """The number of a node or leaf in this run, assigned when it is first reached."""
        cdef int i = self.graph.find(<PyObject*>target)
        if i >= 0:
            return i
        if isinstance(target, Node):
            return self.graph.add(<PyObject*>target, False, (<Node>target).sequence, (<Node>target).noutputs)
        return self.graph.add(<PyObject*>target, True, <uint64_t>-1, 1)

    cdef int discover(self) except -1:
        """Counts, for each node reachable from the roots, the gradients it will receive."""
        cdef int i = 0, k
        cdef Node node
        cdef PyObject* target
        while i < self.graph.size():
            if not self.graph[0][i].leaf:
                node = <Node>self.graph[0][i].target
                self.graph.begin_edges(i, node.ntargets)
                for k in range(node.ntargets):
                    target = node.links[k]
                    self.graph.add_edge(-1 if <object>target is None else self.visit_of(<object>target))
            i += 1
        return 0

    cdef int prune(self) except -1:
        """With inputs given: only what leads to one of them is needed."""
        cdef vector[pair[uint64_t, int]] by_age
        cdef pair[uint64_t, int] entry
        cdef int i
        wanted = {key[0] for key in self.captures}
        for i in range(self.graph.size()):
            self.graph[0][i].needed = <size_t>self.graph[0][i].target in wanted
            if not self.graph[0][i].leaf:
                by_age.push_back(pair[uint64_t, int](self.graph[0][i].sequence, i))
        sort(by_age.begin(), by_age.end())
        for entry in by_age:
            if not self.graph[0][entry.second].needed:
                self.graph[0][entry.second].needed = self.leads_on(entry.second)
        return 0

    cdef bint leads_on(self, int i) noexcept:
        """Whether any input of the node still needs a gradient in this run."""
        cdef int k, to
        for k in range(self.graph[0][i].edges):
            to = self.graph.edge(i, k)
            if to >= 0 and self.graph[0][to].needed:
                return True
        return False

    cdef uint64_t needs_of(self, int i, Node node) noexcept:
        """Which inputs of the node need a gradient in this run."""
        cdef int k, to
        cdef uint64_t needs = 0
        if node.op is None or node.op.has_list:  # needs counts parameters there, not inputs
            return node.needs
        for k in range(min(self.graph[0][i].edges, 64)):
            to = self.graph.edge(i, k)
            if to >= 0 and self.graph[0][to].needed:
                needs |= <uint64_t>1 << k
        return node.needs & needs

    cdef int add_gradient(self, int i, int nr, object grad) except -1:
        """Adds a gradient to what number i has received."""
        cdef Visit* v = &self.graph[0][i]
        cdef PyObject* was
        if not v.needed:
            return 0
        if v.outputs > 1:
            if v.grad == NULL:
                slots = [None] * v.outputs
                Py_INCREF(slots)
                v.grad = <PyObject*>slots
            slots = <list>v.grad
            slots[nr] = grad if slots[nr] is None else sum_of(slots[nr], grad)
            return 0
        if v.grad != NULL:
            grad = sum_of(<object>v.grad, grad)
        Py_INCREF(grad)
        was, v.grad = v.grad, <PyObject*>grad
        if was != NULL:
            Py_DECREF(<object>was)
        return 0

    cdef int run(self) except -1:
        cdef int i
        cdef PyObject* given
        while True:
            i = self.graph.next()
            if i < 0:
                return 0
            given = self.graph.take_grad(i)
            grad = None if given == NULL else steal(given)
            if not self.graph[0][i].needed:      # a root that leads to nothing that was asked for
                grad = None
            self.running = self.graph[0][i].target
            if node_watcher is not None:
                self.run_watched(i, grad)
            elif not self.graph[0][i].leaf:
                self.run_node(i, <Node>self.graph[0][i].target, grad)
            elif grad is not None:
                self.run_leaf(<TensorBase>self.graph[0][i].target, grad)

    cdef int run_watched(self, int i, object grad) except -1:
        """One node or leaf inside the with block that the watcher gives for it."""
        cdef bint leaf = self.graph[0][i].leaf
        target = <object>self.graph[0][i].target
        if leaf and grad is None:
            return 0
        with node_watcher("torch::autograd::AccumulateGrad" if leaf else (<Node>target).name(),
                          -1 if leaf else (<Node>target).sequence // SEQUENCE_STEP):
            if leaf:
                return self.run_leaf(<TensorBase>target, grad)
            return self.run_node(i, <Node>target, grad)

    cdef list order(self):
        """The nodes that this run computes, in the order of their turns."""
        cdef int i, k, to, n = self.graph.size()
        cdef list waits = [0] * n, ready = [], found = []
        for i in range(n):
            for k in range(self.graph[0][i].edges):
                to = self.graph.edge(i, k)
                if to >= 0:
                    waits[to] += 1
        for i in range(n):
            if waits[i] == 0:
                heappush(ready, (-<object>self.graph[0][i].sequence, i))
        while ready:
            i = heappop(ready)[1]
            if self.graph[0][i].needed:
                target = <object>self.graph[0][i].target
                found.append(_accumulator(target) if self.graph[0][i].leaf else seen_node(target))
            for k in range(self.graph[0][i].edges):
                to = self.graph.edge(i, k)
                if to >= 0:
                    waits[to] -= 1
                    if waits[to] == 0:
                        heappush(ready, (-<object>self.graph[0][to].sequence, to))
        return found

    cdef int run_leaf(self, TensorBase leaf, object grad) except -1:
        if not is_tensor(<PyObject*>grad):
            no_tensor(grad)
        if leaf.extra is None and self.captures is None:
            return accumulate(leaf, <TensorBase>grad, self.create_graph, 1)
        changed = grad
        if leaf.extra is not None and leaf.extra.get("hooks"):
            changed = run_tensor_hooks(leaf.extra["hooks"], grad)
        if self.captures is not None:
            key = (id(leaf), 0)
            if key in self.captures:
                self.captured[self.captures[key]] = changed
            return 0
        if "node_pre" in leaf.extra:
            for hook in list(leaf.extra["node_pre"].values()):
                answer = hook((changed,))
                if answer is not None:
                    changed = hook_values(hook, [changed], answer, True)[0]
        if not is_tensor(<PyObject*>changed):
            no_tensor(changed)
        accumulate(leaf, <TensorBase>changed, self.create_graph, 2 if changed is grad else 1)    # run() holds grad
        run_after_hooks(leaf)
        if leaf.extra is not None and "node_post" in leaf.extra:
            for hook in list(leaf.extra["node_post"].values()):
                hook((), (changed,))
        return 0

    cdef int run_node(self, int i, Node node, object given) except -1:
        """Computes the gradients of the node's inputs and passes them on."""
        cdef Refs grads, results
        cdef int k, to, inputs = self.graph[0][i].edges, outputs = self.graph[0][i].outputs
        cdef bint leads_on = self.captures is None or self.leads_on(i) or self.accumulates and self.graph[0][i].needed
        cdef bint bias_first = inputs == 3 and node.op is not None and node.op.bias_first and \
            <object>node.links[2] is not None
        grads.make(max(outputs, 1))
        if outputs > 1:
            for k in range(outputs if given is not None else 0):
                if (<list>given)[k] is not None:
                    grads.set(k, PyList_GET_ITEM_(<list>given, k))
        elif given is not None:
            grads.set(0, <PyObject*>given)
        given = None
        if node.pre_hooks is not None or node.node_pre_hooks or self.captures is not None:
            self.before_node(node, &grads, leads_on)
        if self.graph[0][i].needed and leads_on and (any_given(&grads) or node.op is None and getattr(node, "_runs_on_none", False)):
            results.make(inputs)
            compute(node, node.needs if self.captures is None else self.needs_of(i, node), &grads, &results)
            if not self.keep_graph:
                release(node)
            if node.post_hooks:
                run_post_hooks(node, &grads, &results)
            for k in range(grads.n):
                grads.put(k, NULL)
            for k in range(inputs):
                to = self.graph.edge(i, k)
                if to >= 0 and results.at[k] != NULL:
                    grad = steal(results.take(k))
                    grad = reduced_to(grad, self.graph[0][to].target, node.target_nr[k], node, k)
                    self.add_gradient(to, node.target_nr[k], grad)
                    grad = None
        for k in range(inputs):
            to = self.graph.edge(i, inputs - 1 - k if bias_first else k)
            if to >= 0:
                self.graph.arrived(to)
        return 0

    cdef int before_node(self, Node node, Refs* refs, bint leads_on) except -1:
        """Hooks on the gradients that came, and those that were asked for."""
        cdef list grads = list_of_refs(refs)
        cdef int i
        if self.captures is not None and leads_on:   # as torch: before the hooks, unless the node is only asked for
            self.capture(node, grads)
        if node.pre_hooks is not None:
            for i in range(len(grads)):
                hooks = node.pre_hooks[i] if i < len(node.pre_hooks) else None
                if hooks:
                    grads[i] = run_tensor_hooks(hooks, grads[i])
        if node.node_pre_hooks and leads_on:
            for hook in list(node.node_pre_hooks.values()):
                changed = hook(tuple(grads))
                if changed is not None:
                    grads = hook_values(hook, grads, changed, True)
        if self.captures is not None and not leads_on:
            self.capture(node, grads)
        return refs_of_list(refs, grads)

    cdef int capture(self, Node node, list grads) except -1:
        """Keeps the gradients of the node's outputs that were asked for."""
        cdef int i
        for i in range(len(grads)):
            key = (id(node), i)
            if key in self.captures:
                self.captured[self.captures[key]] = grads[i]
        return 0


cdef inline bint any_given(Refs* grads) noexcept:
    cdef int i
    for i in range(grads.n):
        if grads.at[i] != NULL:
            return True
    return False


cdef int run_post_hooks(Node node, Refs* grads, Refs* results) except -1:
    for hook in list(node.post_hooks.values()):
        were = list_of_refs(results)
        changed = hook(tuple(were), tuple(list_of_refs(grads)))
        if changed is not None:
            refs_of_list(results, hook_values(hook, were, changed, False))
    return 0


cdef int run_after_hooks(TensorBase leaf) except -1:
    """What register_post_accumulate_grad_hook has added."""
    after = leaf.extra.get("after") if leaf.extra is not None else None
    for hook in list(after.values()) if after else ():
        answer = hook(leaf)
        if answer is not None and hook_values(hook, [leaf], (answer,), True)[0] is not leaf:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")
    return 0


def _current_graph_task_id() -> int:
    """A number of the backward that the running thread is in; -1: in none."""
    return -1 if modes().backward == NULL else <Py_ssize_t>modes().backward


def _execution_order() -> list:
    """The nodes of the backward that the running thread is in, in the order of their turns."""
    if modes().backward == NULL:
        raise RuntimeError("_current_graph_task_execution_order should only be called during the backward pass")
    return (<GraphTask>modes().backward).order()


def _current_autograd_node() -> "Any":
    """The node whose turn it is in the backward that the running thread is in; None: in none."""
    cdef GraphTask task
    if modes().backward == NULL:
        return None
    task = <GraphTask>modes().backward
    if task.running == NULL:
        return None
    found = <object>task.running
    return AccumulateGrad(found) if isinstance(found, TensorBase) else seen_node(found)


def _will_engine_execute_node(node) -> bool:
    """Whether the backward that the running thread is in computes what the node gives."""
    cdef GraphTask task
    cdef int i
    if modes().backward == NULL:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    task = <GraphTask>modes().backward
    if isinstance(node, AccumulateGrad):
        if task.captures is not None:
            raise RuntimeError("A leaf node was passed to _will_engine_execute_node but we are currently running "
                               "autograd.grad(). This is currently not supported.")
        node = node.variable
    i = task.graph.find(<PyObject*>node)
    return i >= 0 and task.graph[0][i].needed


def _is_checkpoint_valid() -> bool:
    """Whether the backward that the running thread is in adds to .grad, as that of a reentrant checkpoint does."""
    return True if modes().backward == NULL else (<GraphTask>modes().backward).captures is None


def _get_current_graph_task_keep_graph() -> bool:
    """Whether the backward that the running thread is in leaves the graph for another; True: in none."""
    return True if modes().backward == NULL else (<GraphTask>modes().backward).keep_graph


def _queue_callback(callback) -> None:
    """Calls back when the backward that the running thread is in has computed all gradients."""
    cdef GraphTask task
    if modes().backward == NULL:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    task = <GraphTask>modes().backward
    if task.callbacks is None:
        task.callbacks = []
    task.callbacks.append(callback)


def _run_backward(tuple tensors, tuple grads or None, bint keep_graph, bint create_graph, inputs, bint accumulate_grad,
                  bint allow_unused):
    """Backward from tensors, with the given gradients (None: ones for scalars). With inputs: returns their gradients
    instead of, or limited to, accumulating. A (node, output number) pair may stand for a tensor."""
    return run_backward(tensors, grads, keep_graph, create_graph, inputs, accumulate_grad, allow_unused)


cdef object run_backward(tuple tensors, tuple grads, bint keep_graph, bint create_graph, object inputs,
                         bint accumulate_grad, bint allow_unused):
    cdef ThreadStacks own
    if modes().backward == NULL:
        return start_backward(tensors, grads, keep_graph, create_graph, inputs, accumulate_grad, allow_unused)
    own = own_stacks()
    if own.nested_backwards >= MOST_NESTED:
        return on_another_thread(lambda: run_backward(tensors, grads, keep_graph, create_graph, inputs, accumulate_grad,
                                                      allow_unused))
    own.nested_backwards += 1
    try:
        return start_backward(tensors, grads, keep_graph, create_graph, inputs, accumulate_grad, allow_unused)
    finally:
        own.nested_backwards -= 1


MOST_NESTED = 60                                 # backwards inside of backwards on one thread, whose stack has an end


cdef object on_another_thread(object work):
    """What work() gives on a thread of its own, which sees the modes and layers of this one."""
    cdef ThreadStacks own = own_stacks()
    cdef Modes here = modes()
    cdef list found = []

    def run():
        cdef ThreadStacks theirs = own_stacks()
        cdef PyObject* stacks = modes().stacks
        cdef PyObject* hooks = modes().saved_hooks
        cdef PyObject* devices = modes().devices
        (&modes())[0] = here
        modes().stacks, modes().saved_hooks, modes().devices = stacks, hooks, devices
        theirs.function_modes[:], theirs.dispatch_modes[:] = own.function_modes, own.dispatch_modes
        theirs.saved_hooks[:], theirs.devices[:] = own.saved_hooks, own.devices
        theirs.transforms, theirs.levels, theirs.watchers = own.transforms, own.levels, own.watchers
        theirs.classes_off, theirs.hooks_forbidden = own.classes_off, own.hooks_forbidden
        try:
            found.append((work(), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result


cdef object start_backward(tuple tensors, tuple grads, bint keep_graph, bint create_graph, object inputs,
                           bint accumulate_grad, bint allow_unused):
    cdef GraphTask task = GraphTask.__new__(GraphTask)
    cdef bint mode = modes().grad
    cdef PyObject* outer = modes().backward
    cdef int i, roots
    task.keep_graph, task.create_graph, task.accumulates = keep_graph, create_graph, accumulate_grad
    if create_graph and accumulate_grad:
        warn_of_cycle()
    if grads is not None and len(grads) != len(tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(grads)} gradients")
    modes().grad = create_graph
    modes().backward = <PyObject*>task
    try:
        for i in range(<int>PyTuple_GET_SIZE(tensors)):
            give_start(task, tensors[i], None if grads is None else grads[i], i)
        grads = None
        roots = task.graph.size()
        if inputs is not None:
            ask_for(task, inputs, accumulate_grad)
        task.discover()
        if inputs is not None:
            task.prune()
        for i in range(roots):
            task.graph.arrived(i)
        task.run()
        if task.callbacks is not None:
            for callback in task.callbacks:      # one may add another
                callback()
        if inputs is None:
            return None
        return finish_captures(task, inputs, accumulate_grad, allow_unused, create_graph)
    finally:
        modes().grad = mode
        modes().backward = outer


cdef int give_start(GraphTask task, object root, object grad, int n) except -1:
    """Backward starts at root, with that gradient."""
    cdef int32_t nr = 0
    cdef int i, known = task.graph.size()
    target = target_of(root, &nr)
    if isinstance(root, TensorBase):
        start = start_gradient(<TensorBase>root, grad, n)
        if not needs_grad(<TensorBase>root):
            raise RuntimeError(f"element {n} of tensors does not require grad and does not have a grad_fn")
    elif isinstance(target, TensorBase):
        start = start_gradient(<TensorBase>target, grad, n)
    else:
        start = edge_gradient(&(<Node>target).metas[nr], grad, n)
    i = task.visit_of(target)
    if i == known:                               # a root waits for its start as for any other gradient
        task.graph[0][i].dependencies += 1
    if start is not None:
        task.add_gradient(i, nr, start)
    return 0


cdef object target_of(object tensor, int32_t* nr):
    """The node or leaf that a tensor, or a (node, output number) pair, stands for."""
    if isinstance(tensor, TensorBase):
        return edge_of(<TensorBase>tensor, nr)
    if not isinstance(tensor, tuple):
        raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(tensor).__name__}")
    node, number = tensor[0], tensor[1]          # a GradientEdge has one field more
    if isinstance(node, AccumulateGrad) and isinstance(node.variable, TensorBase):
        nr[0] = 0
        return node.variable
    if isinstance(node, Node) and not isinstance(node, AccumulateGrad):
        nr[0] = number
        if not 0 <= nr[0] < (<Node>node).noutputs:
            raise IndexError(f"{(<Node>node).name()} has {(<Node>node).noutputs} outputs, got number {number}")
        return node
    raise RuntimeError(f"GradientEdge's first object must be an autograd.graph.Node but got {type(node).__name__}")


cdef int ask_for(GraphTask task, inputs, bint accumulate_grad) except -1:
    """Notes whose gradients are asked for."""
    cdef int32_t nr = 0
    task.captures = {}
    task.captured = [None] * len(inputs)
    for i, tensor in enumerate(inputs):
        if isinstance(tensor, TensorBase):
            if accumulate_grad:                  # refuses what needs no gradient
                tensor.retain_grad()             # how a tensor that is no leaf gets its .grad
            elif not needs_grad(<TensorBase>tensor):
                raise RuntimeError("One of the differentiated Tensors does not require grad")
        target = target_of(tensor, &nr)
        task.captures[(id(target), nr)] = i
    return 0


cdef object finish_captures(GraphTask task, inputs, bint accumulate_grad, bint allow_unused, bint create_graph):
    cdef int32_t nr = 0
    # one edge may have been asked for more than once
    found = [task.captured[task.captures[(id(target_of(t, &nr)), nr)]] for t in inputs]
    if accumulate_grad:
        targets = [target_of(t, &nr) for t in inputs]
        for t, g in {id(t): (t, g) for t, g in zip(targets, found)}.values():
            if g is not None and isinstance(t, TensorBase):      # a leaf
                accumulate(<TensorBase>t, tensor_arg(g), create_graph, 0)
                run_after_hooks(<TensorBase>t)
        return None
    if not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(f"The differentiated Tensor at index {i} appears to not have been used in the graph. "
                                   "Set allow_unused=True if this is the desired behavior.")
    return tuple(found)


def _current_run():
    """The number of the backward that runs in this thread, -1 when none does."""
    return -1 if modes().backward == NULL else (<GraphTask>modes().backward).number


def _will_run(TensorBase t):
    """Whether the backward that runs in this thread computes the gradient of t."""
    cdef int32_t nr = 0
    cdef GraphTask task
    cdef object target = edge_of(t, &nr)
    cdef int i
    if modes().backward == NULL:
        return False
    task = <GraphTask>modes().backward
    i = task.graph.find(<PyObject*>target)
    return i >= 0 and task.graph[0][i].needed
