# Ops as torch.ops shows them: a packet for each op, and one object for each of its overloads, named as torch names them.

cdef str space_of(Op op):
    """The namespace under which torch.ops has an op."""
    return "aten" if op.namespace in ("torch", "Tensor") else op.namespace


cdef class OpOverloadPacket:
    """torch.ops.aten.add: the op, with its overloads as attributes."""
    cdef readonly Op _op
    cdef dict named                              # name -> (name, schema, tags), of all overloads
    cdef dict faces                              # name -> OpOverload
    cdef dict chosen                             # what a call looks like -> OpOverload

    def __cinit__(self, Op op not None):         # not __init__, which __new__ alone leaves out
        self._op = op
        self.named = op.description.overloads(op)
        if not self.named:                       # an op that torch does not have
            for ov in op.rows:
                name = (<Overload>ov).overload_name or "default"
                self.named[name] = (name, (<Overload>ov).schema, ())
        self.faces = {}
        self.chosen = {}

    @property
    def __name__(self):
        return self._op.name

    @property
    def __qualname__(self):
        return self._op.name

    @property
    def __module__(self):
        return f"{package_name}._ops.{space_of(self._op)}"

    @property
    def _qualified_op_name(self):
        return f"{space_of(self._op)}::{self._op.name}"

    @property
    def _schemas(self):
        return {"" if name == "default" else name: face_of(self, name)._schema for name in self.named}

    def overloads(self):
        return list(self.named)

    def __call__(self, *args, **kwargs):
        result = ask_overrides(self, args, kwargs)       # an override sees what was called
        return PyObject_Call(self._op, args, kwargs) if result is NotImplemented else result

    def __getattr__(self, name):
        if name in self.named:
            return face_of(self, name)
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"The underlying op of '{space_of(self._op)}.{self._op.name}' has no overload name '{name}'")

    def __dir__(self):
        return [*object.__dir__(self), *self.named]

    def __iter__(self):
        return iter(self.named)

    def __repr__(self):
        return f"<OpOverloadPacket(op='{space_of(self._op)}.{self._op.name}')>"

    def __str__(self):
        return f"{space_of(self._op)}.{self._op.name}"

    def __reduce__(self):
        return _op_packet, (self._op,)


cdef class OpOverload:
    """torch.ops.aten.add.Tensor: what a dispatch mode gets as its func."""
    cdef readonly OpOverloadPacket overloadpacket
    cdef readonly Overload _row
    cdef readonly str _overloadname
    cdef str text
    cdef tuple tag_words
    cdef object schema

    def __cinit__(self, OpOverloadPacket overloadpacket not None, str overloadname not None):
        if overloadname not in overloadpacket.named:
            raise AttributeError(f"{overloadpacket} has no overload named '{overloadname}'")
        self.overloadpacket, self._overloadname = overloadpacket, overloadname
        _, self.text, self.tag_words = overloadpacket.named[overloadname]
        self._row = row_of(overloadpacket._op, overloadname, self.text)

    @property
    def _overloadpacket(self):
        return self.overloadpacket

    @property
    def _op(self):
        return self.overloadpacket._op

    @property
    def op(self):
        return self.overloadpacket._op

    @property
    def tags(self):
        return list(self.tag_words)

    @property
    def __name__(self):
        return f"{self.overloadpacket._op.name}.{self._overloadname}"

    @property
    def __qualname__(self):
        return self.name()

    @property
    def __module__(self):
        return f"{package_name}._ops.{self.namespace}"

    @property
    def namespace(self):
        return space_of(self.overloadpacket._op)

    @property
    def _namespace(self):
        return self.namespace

    @property
    def _opname(self):
        return self.overloadpacket._op.name

    @property
    def _name(self):
        return self.name()

    @property
    def _schema(self):
        if self.schema is None:
            self.schema = self.overloadpacket._op.description.function_schema(f"{self.namespace}::{self.text}")
        return self.schema

    @property
    def is_view(self):
        return self._row.family == F_VIEW

    def name(self):
        shown = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"{self.namespace}::{self.overloadpacket._op.name}{shown}"

    def __call__(self, *args, **kwargs):
        result = ask_overrides(self, args, kwargs)
        return PyObject_Call(self.overloadpacket._op, args, kwargs) if result is NotImplemented else result

    def __repr__(self):
        return f"<OpOverload(op='{self.namespace}.{self.overloadpacket._op.name}', overload='{self._overloadname}')>"

    def __str__(self):
        return f"{self.namespace}.{self.__name__}"

    def __reduce__(self):
        return getattr, (self.overloadpacket, self._overloadname)

    def __deepcopy__(self, memo):
        return self


cdef dict packets = {}                           # Op -> OpOverloadPacket; ops live as long as the process


def _op_packet(Op op not None):
    """The packet of an op, the same one every time."""
    found = packets.get(op)
    if found is None:
        found = packets.setdefault(op, OpOverloadPacket(op))
    return found


def _forget_packet(Op op not None):
    """The next packet of an op has the overloads that it has by then."""
    packets.pop(op, None)


cdef Overload row_of(Op op, str name, str text):
    """The row that serves an overload: of that name, or the first that has the parameters."""
    cdef Overload ov
    for row in op.rows:
        if (<Overload>row).overload_name == ("" if name == "default" else name):
            return <Overload>row
    for row in op.rows:
        ov = <Overload>row
        if all([f" {ov.names[p]}" in text for p in range(ov.nparams) if ov.required[p]]):
            return ov
    return <Overload>op.rows[0]


cdef OpOverload face_of(OpOverloadPacket packet, str name):
    cdef OpOverload face = packet.faces.get(name)
    if face is None:
        face = packet.faces.setdefault(name, OpOverload(packet, name))
    return face


cdef object look_of(object value):
    """What of an argument decides between overloads: its type, and of a list that of its first item."""
    return (type(value), type(value[0])) if isinstance(value, (tuple, list)) and value else type(value)


cdef OpOverload op_overload(Op op, Overload ov, tuple args, dict kwargs):
    """torch's overload of a call that was bound to a row."""
    cdef OpOverloadPacket packet = <OpOverloadPacket>_op_packet(op)
    cdef str name
    if len(packet.named) == 1:
        return face_of(packet, next(iter(packet.named)))
    look = (ov, tuple([look_of(x) for x in args]), tuple([(k, look_of(x)) for k, x in kwargs.items()]))
    found = packet.chosen.get(look)
    if found is None:
        name = op.description.overload_of_call(op, ov, args, kwargs) or ov.overload_name or "default"
        if name not in packet.named:             # a row that torch has no overload for
            packet.named[name] = (name, ov.schema, ())
        found = packet.chosen.setdefault(look, face_of(packet, name))
    return <OpOverload>found


cdef tuple without_defaults(OpOverload func, tuple args):
    """The positional arguments of a call up to the last that is not what the overload takes for it."""
    cdef list arguments = func._schema.arguments
    cdef Py_ssize_t n = min(len(args), len(arguments))
    while n > 0 and (args[n - 1] is None or isinstance(args[n - 1], (bool, int, float, str))) and \
            arguments[n - 1].has_default_value() and args[n - 1] == arguments[n - 1].default_value:
        n -= 1
    return args[:n]
