"""Whether Triton compiles kernels here: it does not."""


def has_triton() -> bool:
    """False."""
    return False


has_triton_package = has_triton_tma = has_triton_tma_device = has_triton_stable_tma_api = has_triton
