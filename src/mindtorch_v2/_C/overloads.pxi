# Ops as torch.ops shows them: a packet for each op, and one object for each of its overloads.

cdef str space_of(Op op):
    """The namespace under which torch.ops has an op."""
    return "aten" if op.namespace in ("torch", "Tensor") else op.namespace


cdef class OpOverloadPacket:
    """torch.ops.aten.add: the op, with its overloads as attributes."""
    cdef readonly Op _op
    cdef dict faces                              # Overload -> OpOverload

    def __init__(self, Op op not None):
        self._op = op
        self.faces = {}

    @property
    def __name__(self):
        return self._op.name

    @property
    def _qualified_op_name(self):
        return f"{space_of(self._op)}::{self._op.name}"

    def overloads(self):
        return [(<Overload>ov).overload_name or "default" for ov in self._op.rows]

    def __call__(self, *args, **kwargs):
        result = ask_overrides(self, args, kwargs)       # an override sees what was called
        return PyObject_Call(self._op, args, kwargs) if result is NotImplemented else result

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        for ov in self._op.rows:
            if ((<Overload>ov).overload_name or "default") == name:
                return op_overload(self._op, <Overload>ov)
        if self._op.rows and not name.startswith("_"):      # torch has a row of its own where this table has one for both
            return op_overload(self._op, <Overload>self._op.rows[0])
        raise AttributeError(f"The underlying op of '{space_of(self._op)}.{self._op.name}' has no overload name '{name}'")

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

    @property
    def _overloadname(self):
        return self._row.overload_name or "default"

    @property
    def __name__(self):
        return f"{self.overloadpacket._op.name}.{self._overloadname}"

    @property
    def __qualname__(self):
        return self.__name__

    @property
    def namespace(self):
        return space_of(self.overloadpacket._op)

    @property
    def _schema(self):
        return f"{self.namespace}::{self._row.schema}"

    @property
    def is_view(self):
        return self._row.family == F_VIEW

    def name(self):
        shown = f".{self._row.overload_name}" if self._row.overload_name else ""
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


cdef dict packets = {}                           # Op -> OpOverloadPacket; ops live as long as the process


def _op_packet(Op op not None):
    """The packet of an op, the same one every time."""
    found = packets.get(op)
    if found is None:
        found = packets.setdefault(op, OpOverloadPacket(op))
    return found


cdef OpOverload op_overload(Op op, Overload ov):
    cdef OpOverloadPacket packet = <OpOverloadPacket>_op_packet(op)
    cdef OpOverload face = packet.faces.get(ov)
    if face is None:
        face = OpOverload.__new__(OpOverload)
        face.overloadpacket, face._row = packet, ov
        face = packet.faces.setdefault(ov, face)
    return face
