"""torch.nn.attention: which implementation scaled_dot_product_attention may take; and flex_attention."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator

import mindtorch_v2 as torch
from mindtorch_v2.nn.attention import flex_attention

__all__ = ["SDPBackend", "WARN_FOR_UNFUSED_KERNELS", "flex_attention", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """The implementations that torch names."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_FLAGS = {
    SDPBackend.MATH: "math_sdp", SDPBackend.FLASH_ATTENTION: "flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient_sdp", SDPBackend.CUDNN_ATTENTION: "cudnn_sdp",
}  # fmt: skip


@contextlib.contextmanager
def sdpa_kernel(backends: Iterable[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[None]:
    """A with block that sets torch.backends.cuda's flags, and sets them back.

    Each device has one implementation here (on an npu CANN's flash attention, where it takes the arguments), so that
    the flags are stored and choose nothing.
    """
    allowed = {backends} if isinstance(backends, SDPBackend) else set(backends)
    if not allowed or not all(isinstance(b, SDPBackend) for b in allowed):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances")
    flags = torch.backends.cuda
    before = {name: getattr(flags, f"{name}_enabled")() for name in _FLAGS.values()}
    try:
        for backend, name in _FLAGS.items():
            getattr(flags, f"enable_{name}")(backend in allowed)
        yield
    finally:
        for name, value in before.items():
            getattr(flags, f"enable_{name}")(value)
