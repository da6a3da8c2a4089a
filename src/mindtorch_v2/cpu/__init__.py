"""torch.cpu: the CPU as one device among others, for code that is written for any; and torch.cpu.amp."""
from __future__ import annotations

import platform
from typing import Any

from mindtorch_v2._C import _bf16_unit, _kernel_level
from mindtorch_v2.cpu import amp as amp


class Stream:
    """The CPU's one stream: work is done when its op returns."""

    def __init__(self, priority: int = -1) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing: there is nothing to wait for."""

    def record_event(self) -> None:
        """Nothing: every event is done."""

    def wait_event(self, event: Any) -> None:
        """Nothing: every event is done."""


class Event:
    """An event of the CPU's one stream: always done."""

    def query(self) -> bool:
        """True."""
        return True

    def record(self, stream: Any = None) -> None:
        """Nothing: what came before is done."""

    def synchronize(self) -> None:
        """Nothing: there is nothing to wait for."""

    def wait(self, stream: Any = None) -> None:
        """Nothing: there is nothing to wait for."""


class StreamContext:
    """A with block on a stream, which changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


_default_stream = Stream()


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: work is done when its op returns."""


def current_stream(device: Any = None) -> Stream:
    """The CPU's one stream."""
    return _default_stream


def stream(stream: Any) -> StreamContext:
    """A with block that changes nothing."""
    return StreamContext(stream)


def get_capabilities() -> dict[str, Any]:
    """What the kernels use of this processor."""
    if platform.machine() == "aarch64":
        return {"architecture": "aarch64", "neon": True, "bf16": _bf16_unit() == "neon_bf16",
                **dict.fromkeys(("fp16_arith", "i8mm", "dot", "sve", "sve2", "sve_bf16"), False)}
    avx2, avx512 = _is_avx2_supported(), _is_avx512_supported()
    return {"architecture": platform.machine(), "avx2": avx2, "fma3": avx2, "f16c": avx2, "avx512_f": avx512,
            "avx512_bw": avx512, "avx512_dq": avx512, "avx512_vl": avx512,
            "avx512_bf16": _is_avx512_bf16_supported(), "avx512_vnni": False,
            "amx_tile": _is_amx_tile_supported(), "amx_bf16": _is_amx_tile_supported()}


def _is_avx2_supported() -> bool:
    """Whether kernels use AVX2."""
    return _kernel_level in ("avx2", "avx512")


def _is_avx512_supported() -> bool:
    """Whether kernels use AVX-512."""
    return _kernel_level == "avx512"


def _is_avx512_bf16_supported() -> bool:
    """Whether kernels use AVX-512's products of bfloat16."""
    return _bf16_unit() in ("avx512_bf16", "amx")


def _is_amx_tile_supported() -> bool:
    """Whether kernels use AMX."""
    return _bf16_unit() == "amx"


def _is_vnni_supported() -> bool:
    """False: no kernel uses it."""
    return False


_is_amx_fp16_supported = _is_vnni_supported


def _init_amx() -> bool:
    """Whether AMX is there; the kernels ask the system for it at their first product of bfloat16."""
    return _is_amx_tile_supported()
