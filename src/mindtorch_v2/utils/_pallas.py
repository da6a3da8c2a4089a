"""Whether Pallas compiles kernels here: it does not."""


def has_pallas() -> bool:
    """False."""
    return False


has_pallas_package = has_jax_package = has_cpu_pallas = has_cuda_pallas = has_tpu_pallas = has_pallas
