"""Whether Helion compiles kernels here: it does not."""


def has_helion() -> bool:
    """False."""
    return False


has_helion_package = has_helion
