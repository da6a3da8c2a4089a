# What a tensor answers by itself: properties, operators, autograd state. Every other method is an Op attribute.

cdef inline object binary(Op op, object a, object b):
    cdef PyObject* args[2]
    if not (is_tensor(<PyObject*>b) or is_number(<PyObject*>b)) and not operand(b):
        return NotImplemented
    args[0], args[1] = <PyObject*>a, <PyObject*>b
    return steal(op.vectorcall(<PyObject*>op, args, 2, NULL))


cdef inline object reflected(Op op, object a, object b):
    """b op a, where a is the tensor."""
    cdef PyObject* args[2]
    if not (is_tensor(<PyObject*>b) or is_number(<PyObject*>b)) and not operand(b):
        return NotImplemented
    args[0], args[1] = <PyObject*>b, <PyObject*>a
    return steal(op.vectorcall(<PyObject*>op, args, 2, NULL))


cdef inline bint has_own_dispatch(TensorBase t):
    """Whether the class of a tensor answers ops by itself."""
    return Py_TYPE(<PyObject*>t) != tensor_type and Py_TYPE(<PyObject*>t) != parameter_type and \
        getattr(type(t), "__torch_dispatch__", disabled_function) is not disabled_function


cdef inline bint is_array(object o):
    """Whether o is an array of NumPy or of its kind."""
    return not is_tensor(<PyObject*>o) and not is_number(<PyObject*>o) and hasattr(o, "__array_interface__")


cdef inline object right(Op op, Op of_number, object a, object b):
    """b op a, where a is a tensor; `of_number` takes the tensor first. Python asks a subclass of b's class before b itself."""
    return reflected(op, a, b) if is_tensor(<PyObject*>b) else binary(of_number, a, b)


cdef inline Op comparison(int code):
    """The op of one of Python's comparison codes."""
    return hot.lt if code == Py_LT else hot.le if code == Py_LE else hot.eq if code == Py_EQ else \
        hot.ne if code == Py_NE else hot.gt if code == Py_GT else hot.ge


cdef bint operand(object b):
    return is_numpy_scalar(b) or hasattr(type(b), "__torch_function__")


cdef class TensorMethods(TensorBase):
    # ---- geometry
    @property
    def shape(self) -> "Size":
        """The size of every dim."""
        return size_of(self)

    def size(self, dim=None) -> "Any":
        """The size of every dim, or of one."""
        if dim is None:
            return size_of(self)
        return self.sizes[wrap_dim_strict(dim_number("size", dim), self.rank)]

    def stride(self, dim=None) -> "Any":
        """The step of every dim in items, or of one."""
        if dim is None:
            return new_ints(<PyTypeObject*>tuple, self.rank, self.strides)
        return self.strides[wrap_dim_strict(dim_number("stride", dim), self.rank)]

    def dim(self) -> int:
        """How many dims there are."""
        return self.rank

    ndimension = dim

    @property
    def ndim(self) -> int:
        """How many dims there are."""
        return self.rank

    def numel(self) -> int:
        """How many items there are."""
        return self.count

    nelement = numel

    def storage_offset(self) -> int:
        """Where the first item stands in the storage, in items."""
        return self.offset

    def data_ptr(self) -> int:
        """The address of the first item; 0 where there is none."""
        refuse_ended(self.st)
        own_block(self.st)
        return <size_t>ptr_of(self) if self.count else 0

    def element_size(self) -> int:
        """The bytes of one item."""
        return itemsize(<DType>self.dt)

    @property
    def itemsize(self) -> int:
        """The bytes of one item."""
        return itemsize(<DType>self.dt)

    @property
    def nbytes(self) -> int:
        """The bytes of all items."""
        return self.count * itemsize(<DType>self.dt)

    @property
    def dtype(self) -> "dtype":
        """The type of the items."""
        return <object>PyList_GET_ITEM_(dtypes, self.dt)

    @property
    def device(self) -> "device":
        """Where the items are."""
        return device_object(self.dev, self.dev_index)

    @property
    def layout(self) -> "layout":
        """torch.strided; classes of other layouts say their own."""
        return constants["strided"]

    @property
    def is_cpu(self) -> bool:
        """Whether the items are in the host's memory."""
        return self.dev == CPU

    @property
    def is_meta(self) -> bool:
        """Whether there are no items: shape and dtype only."""
        return self.dev == META

    @property
    def is_npu(self) -> bool:
        """Whether the items are on an npu."""
        return self.dev == NPU

    @property
    def is_cuda(self) -> bool:
        """False: the devices are cpu and npu."""
        return False

    def is_floating_point(self) -> bool:
        """Whether the items are floats."""
        return is_float_id(self.dt)

    def is_complex(self) -> bool:
        """Whether the items are complex numbers."""
        return self.dt >= kComplexFloat

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return dtypes[self.dt].is_signed

    def get_device(self) -> int:
        """The index of the accelerator, -1 on the cpu."""
        return self.dev_index if self.dev > META else -1

    def is_contiguous(self, memory_format=None) -> bool:
        """Whether the items lie in order, without gaps, in a memory format."""
        cdef int format = CONTIGUOUS if memory_format is None else (<memory_format_type?>memory_format).code
        if format == CHANNELS_LAST:
            return is_channels_last(self, 2)
        if format == CHANNELS_LAST_3D:
            return is_channels_last(self, 3)
        return self.contig

    def is_set_to(self, TensorBase tensor) -> bool:
        """Whether another tensor is the same view of the same storage."""
        return self.st == tensor.st and same_place(self, tensor) and self.marks == tensor.marks

    def untyped_storage(self) -> "UntypedStorage":
        """The memory below, as bytes."""
        own_storage(self)
        return storage_object(self.st)

    def _is_view(self) -> bool:
        return self.base is not None

    @property
    def _base(self) -> "Tensor | None":
        return self.base

    @property
    def _version(self) -> int:
        if self.inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return version_of(self)

    def is_inference(self) -> bool:
        """Whether it was made in inference mode."""
        return self.inference

    def is_conj(self) -> bool:
        """Whether its items are read conjugated: its memory has their conjugates."""
        return (self.marks & MARK_CONJ) != 0

    def is_neg(self) -> bool:
        """Whether its items are read negated."""
        return (self.marks & MARK_NEG) != 0

    @property
    def __dict__(self):
        return PyObject_GenericGetDict(self, NULL)

    @__dict__.setter
    def __dict__(self, value):
        PyObject_GenericSetDict(self, value, NULL)

    # ---- autograd state
    @property
    def requires_grad(self) -> bool:
        """Whether gradients are computed for it."""
        return needs_grad(self)

    @requires_grad.setter
    def requires_grad(self, value) -> None:
        if not PyBool_Check(value):
            raise RuntimeError("requires_grad must be a bool")
        refuse_integers(self, value, "floating point and complex dtype")
        set_requires(self, value)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad=True) -> "Tensor":
        """Sets requires_grad, in place."""
        if not PyBool_Check(requires_grad):
            raise TypeError("requires_grad_(): argument 'requires_grad' (position 1) must be bool, not "
                            f"{type(requires_grad).__name__}")
        if (modes().transforms or modes().level) and in_transform():
            raise unsupported_in_transform("requires_grad_", " (or perhaps using torch.autograd.functional.* APIs)")
        refuse_integers(self, requires_grad, "floating point dtype")
        return self._requires_grad_(requires_grad)

    def _requires_grad_(self, bint requires_grad=True) -> "Tensor":
        """requires_grad_, also inside of transforms."""
        set_requires(self, requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors that require a gradient."""
        refresh_view(self)
        return self.fn is None or not self.requires

    @property
    def grad_fn(self) -> "Any":
        """The node of the graph that made it, None for a leaf."""
        refresh_view(self)
        return seen_node(self.fn)

    @property
    def output_nr(self) -> int:
        """Which of its node's results it is."""
        return self.output_nr

    @property
    def grad(self) -> "Tensor | None":
        """The gradient that backward() added up; None before."""
        if self.grad_object is None and self.fn is not None and (self.extra is None or "retain" not in self.extra):
            warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                          "won't be populated during autograd.backward(). If you indeed want the .grad field to be "
                          "populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf "
                          "Tensor by mistake, make sure you access the leaf Tensor instead. See "
                          "github.com/pytorch/pytorch/pull/30531 for more information.", UserWarning, stacklevel=1)
        return self.grad_object

    @grad.setter
    def grad(self, value) -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
            check_assigned_grad(self, <TensorBase>value)
        self.grad_object = value

    @grad.deleter
    def grad(self) -> None:
        self.grad_object = None

    @property
    def grad_dtype(self) -> "dtype | None":
        """The dtype that .grad must have: the tensor's own unless another was set; None: any."""
        cdef int dt = leaf_grad_dtype(self, -1)
        if self.fn is not None:
            raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
        return None if dt < 0 else dtypes[dt]

    @grad_dtype.setter
    def grad_dtype(self, value) -> None:
        set_grad_dtype(self, value)

    @property
    def data(self) -> "Tensor":
        """The same memory without history."""
        cdef TensorBase t = alias(self)
        version_decref(t.shared_version)
        t.shared_version = NULL
        if Py_TYPE(<PyObject*>self) != tensor_type and foreign(self):
            return t.as_subclass(type(self))
        return t

    @data.setter
    def data(self, value) -> None:
        cdef TensorBase t
        if not isinstance(value, TensorBase):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        t = <TensorBase>value
        if self.requires and not is_differentiable(t.dt):
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        if (t.dev == META) != (self.dev == META) or self.layout is not value.layout:
            raise RuntimeError("Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible "
                               "tensor type.")
        take_memory(self, t)

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    def set_(self, source=None, storage_offset=0, size=None, stride=None) -> "Tensor":
        """Takes over another tensor's or storage's memory."""
        return take_source(self, source, storage_offset, size, stride)

    def resize_(self, *sizes, memory_format=None) -> "Tensor":
        """Changes the shape in place; items that are new are not set."""
        return resize_self(self, sizes, memory_format)

    def _take_view_(self, TensorBase view not None) -> "Tensor":
        """Becomes a view of itself, history included: what squeeze_, t_ and their like do."""
        if modes().grad and self.requires and self.fn is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if view.dt != self.dt or view.st != self.st and not (self.st.shrunk and not self.st.nbytes):    # see _make_wrapper
            raise RuntimeError("a tensor can only become a view of itself")
        set_geometry(self, view.rank, view.sizes, view.strides, view.offset)
        bump_version(self)
        self.view_version = version_of(self)
        if view.requires:
            self.output_nr = view.output_nr
            self.fn = view.fn                    # last: the end of what was there may run Python
        return self

    def detach_(self) -> "Tensor":
        """Makes it a leaf without history, in place."""
        if self.base is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
                               "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
                               "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please "
                               "refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution.")
        self.requires = False
        self.output_nr = 0
        self.fn = None
        if self.extra is not None:
            self.extra.pop("tangents", None)
        return self

    def backward(self, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
        """Adds the gradient of this tensor to the .grad of the leaves it was computed from."""
        if foreign(self):
            return override_call("backward", (self, gradient, retain_graph, create_graph, inputs))
        if modes().transforms or modes().level:
            refuse_backward()
        run_backward((self,), None if gradient is None else (gradient,) if isinstance(gradient, TensorBase) else tuple(gradient),
                     create_graph if retain_graph is None else retain_graph, create_graph, given_inputs(inputs), True, True)

    def register_hook(self, hook) -> "Any":
        """Calls hook(grad) when the gradient of this tensor is computed; its result, if any, replaces the gradient."""
        if not needs_grad(self):
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        return add_hook(tensor_hooks(self), hook)

    def register_post_accumulate_grad_hook(self, hook) -> "Any":
        """Calls hook(tensor) after .grad of this leaf was added to."""
        if self.fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        if not self.requires:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.extra is None:
            self.extra = {}
        return add_hook(self.extra.setdefault("after", {}), hook)

    @property
    def _post_accumulate_grad_hooks(self) -> "Any":
        return None if self.extra is None else self.extra.get("after")

    @_post_accumulate_grad_hooks.setter
    def _post_accumulate_grad_hooks(self, hooks) -> None:
        if self.extra is None:
            self.extra = {}
        self.extra["after"] = {} if hooks is None else <dict?>hooks

    @property
    def _backward_hooks(self) -> "Any":
        return None if self.extra is None else self.extra.get("hooks")

    @_backward_hooks.setter
    def _backward_hooks(self, hooks) -> None:
        if self.extra is not None and "hooks" in self.extra:
            self.extra["hooks"].clear()
        for key, hook in (hooks or {}).items():
            tensor_hooks(self)[key] = hook

    @_backward_hooks.deleter
    def _backward_hooks(self) -> None:
        raise RuntimeError("Deletion of _backwards_hooks not allowed!")

    def retain_grad(self) -> None:
        """Keeps .grad of this non-leaf tensor in backward."""
        if (modes().transforms or modes().level) and in_transform():
            raise unsupported_in_transform("retain_grad", "")
        if not needs_grad(self):
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        refresh_view(self)
        if self.fn is None or (self.extra is not None and "retain" in self.extra):
            return
        if self.extra is None:
            self.extra = {}
        self.extra["retain"] = True
        keep = weakref.ref(self)

        def store(grad):
            cdef TensorBase t = keep()
            if t is not None:
                t.grad_object = grad.clone() if t.grad_object is None else t.grad_object + grad
        tensor_hooks(self)[RETAIN] = store

    @property
    def retains_grad(self) -> bool:
        """Whether retain_grad() keeps .grad of this non-leaf tensor."""
        return self.extra is not None and "retain" in self.extra

    # ---- values
    def item(self) -> "Number":
        """The one item as a Python number."""
        if self.count != 1:
            raise RuntimeError(f"a Tensor with {self.count} elements cannot be converted to Scalar")
        if modes().dispatch_mode_count or has_own_dispatch(self):
            return hot_call1(hot._local_scalar_dense, self)
        return stored_item(self)

    def tolist(self) -> "Any":
        """The items as nested lists of Python numbers; of a tensor without dims the number."""
        return list_of(self)

    def __bool__(self):
        if self.count != 1:
            if self.count == 0:
                raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(item_of(self))

    def __int__(self):
        warn_of_number(self)
        return int(real_number(self, kInt64))

    def __float__(self):
        warn_of_number(self)
        return float(real_number(self, kDouble))

    def __complex__(self):
        return complex(single_item(self))

    def __index__(self):
        if self.dt >= kHalf or self.count != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(item_of(self))

    def __len__(self):
        if self.rank == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.sizes[0]

    def __getitem__(self, index):
        return get_item(self, index)

    def __setitem__(self, index, value):
        set_item(self, index, value)

    def __delitem__(self, index):
        raise TypeError("Tensor does not support deleting items")

    def __iter__(self):
        if self.rank == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    # ---- operators
    def __add__(self, other): return binary(hot.add, self, other)
    def __radd__(self, other): return right(hot.add, hot.add, self, other)
    def __iadd__(self, other):
        # a subclass has this function as sq_inplace_concat too, where CPython does not check for NotImplemented
        result = binary(hot.add_, self, other)
        return result if result is not NotImplemented else added_by_other(self, other)
    def __sub__(self, other): return binary(hot.sub, self, other)
    def __rsub__(self, other): return right(hot.sub, hot.rsub, self, other)
    def __isub__(self, other): return binary(hot.sub_, self, other)
    def __mul__(self, other): return binary(hot.mul, self, other)
    def __rmul__(self, other): return right(hot.mul, hot.mul, self, other)
    def __imul__(self, other): return binary(hot.mul_, self, other)
    def __truediv__(self, other): return binary(hot.div, self, other)
    def __rtruediv__(self, other):
        return self.reciprocal() * other if is_array(other) else reflected(hot.div, self, other)
    def __itruediv__(self, other): return binary(hot.div_, self, other)
    def __floordiv__(self, other): return binary(hot.floor_divide, self, other)
    def __rfloordiv__(self, other): return reflected(hot.floor_divide, self, other)
    def __ifloordiv__(self, other): return binary(hot.floor_divide_, self, other)
    def __mod__(self, other): return binary(hot.remainder, self, other)
    def __rmod__(self, other): return reflected(hot.remainder, self, other)
    def __imod__(self, other): return binary(hot.remainder_, self, other)
    def __pow__(self, other, modulo): return binary(hot.pow, self, other) if modulo is None else NotImplemented
    def __rpow__(self, other, modulo): return reflected(hot.pow, self, other)
    def __ipow__(self, other, modulo): return binary(hot.pow_, self, other)
    def __matmul__(self, other): return binary(hot.matmul, self, other)
    def __rmatmul__(self, other): return reflected(hot.matmul, self, other)
    def __and__(self, other): return binary(hot.bitwise_and, self, other)
    def __rand__(self, other): return right(hot.bitwise_and, hot.bitwise_and, self, other)
    def __iand__(self, other): return binary(hot.bitwise_and_, self, other)
    def __or__(self, other): return binary(hot.bitwise_or, self, other)
    def __ror__(self, other): return right(hot.bitwise_or, hot.bitwise_or, self, other)
    def __ior__(self, other): return binary(hot.bitwise_or_, self, other)
    def __xor__(self, other): return binary(hot.bitwise_xor, self, other)
    def __rxor__(self, other): return right(hot.bitwise_xor, hot.bitwise_xor, self, other)
    def __ixor__(self, other): return binary(hot.bitwise_xor_, self, other)
    def __lshift__(self, other): return binary(hot.bitwise_left_shift, self, other)
    def __rshift__(self, other): return binary(hot.bitwise_right_shift, self, other)
    def __rlshift__(self, other): return reflected(hot.bitwise_left_shift, self, other)
    def __rrshift__(self, other): return reflected(hot.bitwise_right_shift, self, other)
    def __ilshift__(self, other): return binary(hot.bitwise_left_shift_, self, other)
    def __irshift__(self, other): return binary(hot.bitwise_right_shift_, self, other)
    def __neg__(self): return hot_call1(hot.neg, self)
    def __pos__(self):
        if self.dt == kBool:
            raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
        return self

    def __abs__(self): return hot_call1(hot.abs, self)

    def __invert__(self):
        if self.dt >= kHalf:
            raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
        return hot_call1(hot.bitwise_not, self)

    def __richcmp__(self, other, int op):
        if (op == Py_EQ or op == Py_NE) and is_array(other):
            other = from_interface(other, True)
        return binary(comparison(op), self, other)

    def __hash__(self):
        return id(self)


cdef tuple given_inputs(object inputs):
    """The inputs= of backward as a tuple, or None."""
    if inputs is None:
        return None
    found = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    if not found:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    return found


cdef int wrap_dim_strict(int64_t d, int rank) except -1:
    if rank == 0:
        raise IndexError(f"Dimension specified as {d} but tensor has no dimensions")
    return wrap_dim(d, rank)


cdef dict tensor_hooks(TensorBase t):
    """The dict of gradient hooks of t, on its node or, for a leaf, on itself."""
    cdef Node fn
    refresh_view(t)
    fn = <Node>t.fn
    if fn is None:
        if t.extra is None:
            t.extra = {}
        return t.extra.setdefault("hooks", {})
    return hooks_at(fn, t.output_nr)
