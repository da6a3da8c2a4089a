"""torch.SymInt and its like: classes to ask isinstance about. Sizes are plain ints here, so no object is one."""


class SymInt:
    """An int that stands for a size; never made."""


class SymFloat:
    """A float computed from sizes; never made."""


class SymBool:
    """A bool computed from sizes; never made."""
