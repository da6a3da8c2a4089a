# The gradients themselves: where one starts, what it must look like, how it is added to .grad.

cdef int leaf_grad_dtype(TensorBase leaf, int given) except -2:
    """The dtype that the gradient of a leaf must have; `given` where any will do."""
    if leaf.extra is None or "grad_dtype" not in leaf.extra:
        return leaf.dt
    wanted = leaf.extra["grad_dtype"]
    return given if wanted is None else (<dtype>wanted)._id


cdef int check_assigned_grad(TensorBase leaf, TensorBase g) except -1:
    """Refuses what cannot be a tensor's .grad."""
    cdef int wanted = leaf_grad_dtype(leaf, g.dt)
    if g is leaf:
        raise RuntimeError("can't assign Variable as its own grad")
    if g.dt != wanted:
        raise RuntimeError(f"attempting to assign a gradient with dtype '{cpp_name(g.dt)}' to a tensor with grad_dtype "
                           f"'{type_word(wanted)}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's "
                           "dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any "
                           "dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break "
                           "downstream systems that assume they match.")
    if g.dev != leaf.dev:
        raise RuntimeError(f"attempting to assign a gradient with device type '{device_types.names[g.dev]}' to a tensor with "
                           f"device type '{device_types.names[leaf.dev]}'. Please ensure that the gradient and the tensor are "
                           "on the same device")
    if g.dev_index != leaf.dev_index:
        raise RuntimeError("assigned grad has data located on a different device")
    if not same_shape(g, leaf):
        raise RuntimeError(f"attempting to assign a gradient of size '{list(shape_of(g))}' to a tensor of size "
                           f"'{list(shape_of(leaf))}'. Please ensure that the gradient and the tensor are the same size")
    return 0


cdef int set_grad_dtype(TensorBase leaf, value) except -1:
    """Sets the dtype that .grad must have; None: any."""
    if value is not None and not isinstance(value, dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if leaf.fn is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if value is not None and leaf.grad_object is not None and leaf.grad_object.dtype is not value:
        raise RuntimeError(f"Cannot set grad_dtype to '{type_word((<dtype>value)._id)}' because there is already a gradient with "
                           f"dtype '{cpp_name((<TensorBase>leaf.grad_object).dt)}'. Please clear the gradient (.grad = None) "
                           "before changing grad_dtype, or ensure the new grad_dtype matches the existing gradient's dtype.")
    if leaf.extra is None:
        leaf.extra = {}
    leaf.extra["grad_dtype"] = value
    return 0


cdef object reduced_to(object grad, PyObject* target, int nr, Node source, int index):
    """The gradient in the shape and dtype of what it is the gradient of: sums what was broadcast, casts."""
    cdef TensorBase g
    cdef OutMeta* m
    cdef OutMeta leaf
    cdef int64_t* sizes
    cdef int64_t own[MAX_DIMS]
    if not isinstance(grad, TensorBase):
        raise RuntimeError(f"expected Variable or None (got {type(grad).__name__})")
    g = <TensorBase>grad
    if not is_tensor(target):
        m = &(<Node>target).metas[nr]
        sizes = m.many if m.many != NULL else m.sizes
    else:
        leaf.rank, leaf.dt = (<TensorBase>target).rank, leaf_grad_dtype(<TensorBase>target, g.dt)
        leaf.dev, leaf.index = (<TensorBase>target).dev, (<TensorBase>target).dev_index
        sizes = (<TensorBase>target).sizes
        m = &leaf
    if g.rank == m.rank and memcmp(g.sizes, sizes, g.rank * sizeof(int64_t)) == 0 and g.dt == m.dt and g.dev == m.dev:
        return grad
    memcpy(own, sizes, m.rank * sizeof(int64_t))  # from here on Python runs, which may change what they belong to
    leaf = m[0]
    m = &leaf
    if g.rank != m.rank or memcmp(g.sizes, own, g.rank * sizeof(int64_t)) != 0:
        grad = sum_to(g, m.rank, own, source, index)
        g = tensor_arg(grad)
    if g.dt != m.dt:
        if g.dt >= kComplexFloat and m.dt < kComplexFloat:
            grad = grad.real
        grad = grad.to(dtypes[m.dt])
    if g.dev != m.dev and m.rank == 0:
        grad = grad.to(device_object(m.dev, m.index))
    return grad


cdef object sum_to(TensorBase g, int rank, const int64_t* sizes, Node source, int index):
    """The sum of g over the dims that broadcasting had added or stretched."""
    cdef int d, lead = g.rank - rank
    cdef list dims = list(range(lead)) if lead > 0 else []
    if lead < 0:
        raise shape_mismatch(g, rank, sizes, source, index)
    for d in range(rank):
        if g.sizes[lead + d] != sizes[d]:
            if sizes[d] != 1:
                raise shape_mismatch(g, rank, sizes, source, index)
            dims.append(lead + d)
    if len(dims) == g.rank and rank == 0:
        return g.sum()
    if len(dims) == lead:                        # a view of the sum could not become .grad as it is
        return g.sum(dims, False) if dims else g
    summed = g.sum(dims, True)
    return summed.view([sizes[d] for d in range(rank)]) if lead > 0 else summed


cdef object shape_mismatch(TensorBase g, int rank, const int64_t* sizes, Node source, int index):
    return RuntimeError(f"Function {source.name()} returned an invalid gradient at index {index} - got "
                        f"{list(shape_of(g))} but expected shape compatible with {[sizes[d] for d in range(rank)]}")


cdef object edge_gradient(OutMeta* m, object given, int i):
    """start_gradient() for an output of a node."""
    cdef TensorBase g
    cdef tuple shape = meta_shape(m)
    cdef int64_t items = 1
    if given is None:
        for n in shape:
            items *= n
        if items != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        g = new_empty(m.rank, m.many if m.many != NULL else m.sizes, m.dt, m.dev, m.index)
        fill_new(g, 1, N_ONES)
        return g
    if not isinstance(given, TensorBase):
        raise TypeError(f"gradients can be either Tensors or None, but got {type(given).__name__}")
    if shape_of(<TensorBase>given) != shape:
        raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {size_of(<TensorBase>given)} and "
                           f"output[{i}] has a shape of {size_class(shape)}.")
    return given


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
    if not needs_grad(t):
        return None
    if t.count != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if not is_float_id(t.dt):
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {dtypes[t.dt]}")
    if modes().dispatch_mode_count or Py_TYPE(<PyObject*>t) != tensor_type and hasattr(type(t), "__torch_dispatch__"):
        return all_ops["torch", "ones_like"]((<object>t).detach())    # a class that computes by itself (DTensor) makes its own
    g = new_empty(t.rank, t.sizes, t.dt, t.dev, t.dev_index)
    if g.dev == CPU:
        write_number(1, g.dt, ptr_of(g))
    else:
        fill_new(g, 1, N_ONES)
    return g
