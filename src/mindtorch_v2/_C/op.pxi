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
        return f"<built-in function {self.name}>"

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __qualname__(self) -> str:
        return self.name

    @property
    def __module__(self) -> str:
        prefix = self.name.partition("_")[0]
        below = "." + prefix if prefix in ("linalg", "fft", "special") else ""
        return package_name + ("" if self.namespace == "torch" else ".ops." + self.namespace) + below

    # For help() and tools; made from the rows on first use.
    @property
    def __doc__(self) -> str:
        return self.description.document(self)

    @property
    def __signature__(self) -> "Signature":
        return self.description.signature(self)

    @property
    def __text_signature__(self) -> str:
        return self.description.text_signature(self)

    def __reduce__(self) -> tuple:
        return _op_named, (self.name, self.namespace)

    def __call__(self, *args, **kwargs):         # replaced by the vectorcall slot; kept for introspection
        return PyObject_Call(self, args, kwargs)


cdef dict all_ops = {}                           # (namespace, name) -> Op


def _op_named(name, namespace="torch") -> "Op":
    return all_ops[namespace, name]


cdef void _enable_vectorcall():
    """Op calls go through the vectorcall slot, and a method call on a tensor makes no bound method."""
    cdef Op probe = Op("probe")
    mt_enable_vectorcall(<PyTypeObject*>Op, <char*>&probe.vectorcall - <char*><PyObject*>probe)

_enable_vectorcall()


cdef class _HotOps:
    """Ops that the core itself calls: each attribute is the op of that name, which refuses until its row is read."""

cdef frozenset hot_names = frozenset([name for name in _HotOps.__dict__ if not name.startswith("__")])
cdef _HotOps hot = _HotOps()
for _hot_name in hot_names:
    setattr(hot, _hot_name, Op(_hot_name))
