# Overloads: what a schema row becomes. How the arguments of a call are bound to it: binding.pxi.

KINDS = ("Tensor", "Tensor[]", "Scalar", "int", "int[]", "float", "float[]", "bool", "bool[]", "str",
         "ScalarType", "Device", "Layout", "MemoryFormat", "Generator", "Scalar[]", "any")
# What an error message calls each kind.
KIND_WORDS = ("Tensor", "tuple of Tensors", "Number", "int", "tuple of ints", "float", "tuple of floats", "bool",
              "tuple of bools", "str", "torch.dtype", "torch.device", "torch.layout", "torch.memory_format",
              "torch.Generator", "tuple of Scalars", "object")
# NumPy's words, accepted in place of torch's.
cdef dict keyword_aliases = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "x1": "self",
                             "x2": "other", "a": "self"}


cdef class Formula:
    """A backward formula: a Python function, the inputs whose gradients it gives and where its arguments come from."""


cdef class Overload:
    """One schema row: its parameters, how its result follows, its kernels and its gradient."""

    @property
    def is_composite(self):
        return self.family == F_COMPOSITE and self.body is not None

    @property
    def is_pointwise(self):
        return self.family == F_POINTWISE

    @property
    def is_view(self):
        return self.family == F_VIEW

    @property
    def is_random(self):
        """Whether it takes a generator."""
        return self.generator_at >= 0

    @property
    def has_gradient(self):
        """Whether the row has formulas of its own."""
        return self.tracked

    def gradients(self):
        """The formulas: the names of the inputs whose gradients each gives, the function, whether it gives a tuple."""
        cdef Formula f
        cdef int i
        cdef list found = [], names
        for f in self.formulas or ():
            names = []
            for i in range(f.ninputs):
                names.append(self.names[self.tensor_at[f.inputs[i]]])
            found.append((tuple(names), f.fn, f.joint))
        return found

    def signature(self, int own=0, bint inplace=False):
        """The parameters as an error message shows them; own: without self."""
        shown = []
        for i, name in enumerate(self.names):
            if i == self.npositional:
                shown.append("*")
            if i < own:
                continue
            word = KIND_WORDS[self.kind[i]] + ("" if self.required[i] else f" {name} = {self.defaults[i]}")
            shown.append(word if not self.required[i] else f"{word} {'input' if name == 'self' else name}")
        if self.takes_out and not own and not inplace:
            shown += ["*"] * (self.nparams == self.npositional)
            shown.append("Tensor out = None" if self.nreturns < 2 else "tuple of Tensors out = None")
        return ", ".join(shown)
