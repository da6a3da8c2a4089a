# The Python classes whose instances the core makes. Each is registered once, by the file that defines it.

cdef dict class_roles = {"Tensor": TensorBase, "Parameter": TensorBase, "Size": tuple, "UntypedStorage": StorageBase,
                         "Generator": GeneratorBase, "SymInt": int, "SymFloat": float}       # role -> what the class has to derive from
cdef set taken_roles = set()


def _register_class(str role, cls) -> None:
    """Says which Python class the core uses in a role, once for the process.

    Tensor: of results. Parameter: a subclass of it that overrides nothing, so that ops need not look. Size: of shapes.
    UntypedStorage: of what untyped_storage() gives. Generator: of default generators; the CPU's is made now. SymInt,
    SymFloat: of numbers that stay what they are in a call's arguments."""
    global size_class, storage_class, default_generator, symint_class, symfloat_class
    if role not in class_roles:
        raise ValueError(f"expected one of {', '.join(class_roles)}, got {role!r}")
    check_class(cls, class_roles[role])
    if role in taken_roles:
        raise RuntimeError(f"the class of {role} is registered already")
    if role == "Tensor":
        take_tensor_class(cls)
    elif role == "Parameter":
        take_parameter_class(cls)
    elif role == "Size":
        size_class = cls
    elif role == "UntypedStorage":
        storage_class = cls
    elif role == "SymInt":
        symint_class = cls
    elif role == "SymFloat":
        symfloat_class = cls
    else:
        default_generator = cls()
    taken_roles.add(role)
