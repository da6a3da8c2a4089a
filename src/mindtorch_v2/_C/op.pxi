# Ops: the objects that torch.add and Tensor.add are. An op has the function by which it is called; who defines it gives
# that (define.pxi).

cdef PyObject* undefined(PyObject* self, PyObject** args, size_t nargsf, PyObject* kwnames) except NULL:
    """The call of an op that is not defined."""
    raise NotImplementedError(f"[{(<Op>self).name}] is not in the op table")


cdef class OpDescription:
    """Documentation and signature of an op. The op table derives its own; this base class shows the rows only."""

    def document(self, Op op not None) -> str:
        return "\n".join([(<Overload>row).schema for row in op.rows])

    def signature(self, Op op not None) -> "Signature | None":
        """None: inspect reads the text."""
        return None

    def text_signature(self, Op op not None) -> str:
        return "(*args, **kwargs)"

    def overloads(self, Op op not None) -> dict:
        """What torch.ops has of it, as name -> (name, schema, tags); empty: the rows are what there is."""
        return {}

    def overload_of_call(self, Op op not None, Overload row not None, tuple args, dict kwargs) -> "str | None":
        """The name of the overload that a call bound to a row is; None: the row's own."""
        return None

    def call_error(self, Op op not None, tuple args, dict kwargs, bint method) -> Exception:
        """What is said of a call that fits no row; method: of Tensor, whose self is the first of args."""
        return TypeError(f"{op.name}(): arguments that suit none of: {self.document(op)}")

    def is_of_layers(self, Op op not None) -> bool:
        """Whether torch has it in torch._C._nn alone."""
        return False

    def shown(self, Op op not None) -> str:
        """Its repr()."""
        return f"<built-in function {op.name}>"

    def reduced(self, Op op not None, bint method) -> "str | tuple | None":
        """How it is pickled; None: by its name in the table of ops. method: of Tensor."""
        return None

    def function_schema(self, str text) -> object:
        """A schema as an object."""
        return text


cdef OpDescription rows_alone = OpDescription()


cdef class Op:
    """A torch function: callable as torch.f(x), and as x.f() once it is an attribute of Tensor."""

    def __cinit__(self, str name, Op inplace_of=None, str namespace="torch"):
        self.name = name
        self.inplace_of = inplace_of
        self.rows = [] if inplace_of is None else inplace_of.rows
        self.vectorcall = <vectorcallfunc>undefined
        self.namespace = namespace
        self.function = self
        self.description = rows_alone if inplace_of is None else inplace_of.description

    @property
    def __class__(self):
        """What torch's are: isinstance(torch.add, types.BuiltinFunctionType) decides which way programs go."""
        return types.BuiltinFunctionType

    @property
    def overloads(self) -> "tuple[Overload, ...]":
        return tuple(self.rows)

    def __get__(self, instance, owner) -> "Any":
        return self if instance is None else PyMethod_New(self, instance)

    def __repr__(self) -> str:
        return self.description.shown(self)

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __qualname__(self) -> str:
        return self.name

    @property
    def __module__(self) -> str:
        prefix = self.name.partition("_")[0]
        below = "._C._" + prefix if prefix in ("linalg", "fft", "special") else "._C._nn" if self.description.is_of_layers(self) else ""
        return package_name + ("" if self.namespace == "torch" else ".ops." + self.namespace) + below

    # For help() and tools; made from the rows on first use.
    @property
    def __doc__(self) -> str:
        return self.description.document(self.function)

    # torch's functions have none, and programs that are told so go another way: fx, lists of functions to wrap.
    @property
    def __signature__(self) -> "Signature | None":
        return None if package_name == "torch" else self.description.signature(self.function)

    @property
    def __text_signature__(self) -> "str | None":
        return None if package_name == "torch" else self.description.text_signature(self.function)

    def __reduce__(self) -> "str | tuple":
        return self.description.reduced(self, False) or (_op_named, (self.name, self.namespace))

    def __call__(self, *args, **kwargs):         # replaced by the vectorcall slot; kept for introspection
        return PyObject_Call(self, args, kwargs)


# An op as a method of Tensor: the same call, and its own object for __torch_function__ and for tables of functions.
cdef class OpMethod(Op):

    @property
    def __doc__(self) -> str:
        return self.description.document(self.function)

    @property
    def __class__(self):
        return types.MethodDescriptorType

    @property
    def __objclass__(self) -> type:
        return TensorBase

    @property
    def __qualname__(self) -> str:
        return f"TensorBase.{self.name}"

    def __repr__(self) -> str:
        return f"<method '{self.name}' of '{package_name}._C.TensorBase' objects>"

    def __reduce__(self) -> "str | tuple":
        return self.description.reduced(self, True) or (_method_named, (self.name, self.namespace))


cdef dict op_methods = {}                        # Op -> OpMethod


cdef object stand_for(Op op, Op called):
    """Makes an op another face of one: what is called is the same."""
    op.rows, op.inplace_of, op.function = called.rows, called.inplace_of, called.function
    op.vectorcall, op.description, op.doc = called.vectorcall, called.description, called.doc
    op.cast_policy = called.cast_policy
    return op


def _method_of(Op op not None) -> "Op":
    """The method of Tensor that an op is: always the same object."""
    method = op_methods.get(op)
    if method is None:
        method = op_methods[op] = stand_for(OpMethod(op.name, None, op.namespace), op)
    return method


cdef dict all_ops = {}                           # (namespace, name) -> Op


def _alias_of(Op op not None, str name not None) -> "Op":
    """A function of another name that is an op: layers of functions see it, those below the op."""
    if (op.namespace, name) in all_ops:
        raise ValueError(f"{name} is an op already")
    made = all_ops[op.namespace, name] = stand_for(Op(name, None, op.namespace), op)
    return made


def _op_named(name, namespace="torch") -> "Op":
    return all_ops[namespace, name]


def _method_named(name, namespace="torch") -> "Op":
    return _method_of(all_ops[namespace, name])


cdef void _enable_vectorcall():
    """Op calls go through the vectorcall slot, and a method call on a tensor makes no bound method."""
    cdef Op probe = Op("probe")
    for kind in (Op, OpMethod):
        mt_enable_vectorcall(<PyTypeObject*>kind, <char*>&probe.vectorcall - <char*><PyObject*>probe)

_enable_vectorcall()


cdef class _HotOps:
    """Ops that the core itself calls: each attribute is the op of that name, which refuses until its row is read."""

cdef frozenset hot_names = frozenset([name for name in _HotOps.__dict__ if not name.startswith("__")])
cdef _HotOps hot = _HotOps()
for _hot_name in hot_names:
    setattr(hot, _hot_name, Op(_hot_name))
