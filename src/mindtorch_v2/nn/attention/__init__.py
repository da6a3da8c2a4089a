"""torch.nn.attention: which implementation scaled_dot_product_attention may take; and flex_attention."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator
from typing import Any

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

    def __str__(self) -> str:
        return f"SDPBackend.{self.name}"


_WAYS = {
    SDPBackend.CUDNN_ATTENTION: "cudnn_sdp", SDPBackend.FLASH_ATTENTION: "flash_sdp",
    SDPBackend.EFFICIENT_ATTENTION: "mem_efficient_sdp", SDPBackend.MATH: "math_sdp", SDPBackend.OVERRIDEABLE: "overrideable_sdp",
}  # fmt: skip
_priority = [0, 1, 2, 3, 4]                      # torch's order of preference, which no choice here needs


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    """Those that are permitted, in the order of preference on request."""
    ways = [backend for backend, name in _WAYS.items() if getattr(torch.backends.cuda, f"{name}_enabled")()]
    return sorted(ways, key=_priority.index) if with_priority else ways


def _sdpa_kernel(backends: Iterable[SDPBackend], set_priority: bool = False) -> None:
    backends = list(backends)
    for backend, name in _WAYS.items():
        getattr(torch.backends.cuda, f"enable_{name}")(backend in backends)
    if set_priority:
        _priority[:] = [int(b) for b in backends] + [n for n in _priority if n not in backends]


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[Any, Any]]:
    """A with block in which attention may take these ways only, as torch.backends.cuda's flags say.

    On the cpu FLASH_ATTENTION is the fused kernel and MATH goes step by step; no other is there. An npu has one
    implementation, CANN's flash attention, where it takes the arguments: there the flags choose nothing.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    before = _cur_sdpa_kernel_backends(with_priority=set_priority)
    try:
        _sdpa_kernel(dict.fromkeys([backends] if isinstance(backends, SDPBackend) else backends), set_priority)
        yield {}
    finally:
        _sdpa_kernel(before, set_priority)
