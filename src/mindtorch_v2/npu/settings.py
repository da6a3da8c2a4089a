"""torch.npu, settings: what torch_npu lets a program choose about how ops run, and CANN's dump of their data."""
from __future__ import annotations

import math
import warnings
from typing import Any, NoReturn

from mindtorch_v2 import npu
from mindtorch_v2._backends.npu import capi, ipc, runtime, soc, streams
from mindtorch_v2._backends.npu.errors import check
from mindtorch_v2.npu.devices import init

_NO_FLAG = "the overflow flag of a SoC without infinities is not read here; torch.amp.GradScaler looks at the gradients"
_PACKAGES = ("CANN", "RUNTIME", "COMPILER", "HCCL", "TOOLKIT", "OPP", "OPP_KERNEL", "DRIVER")   # aclCANNPackageName
_SYNC_DEBUG_MODES = ("default", "warn", "error")

# torch_npu's numbers of SoCs: each list counts on from its first.
_SOC_VERSIONS = {
    100: "Ascend910PremiumA Ascend910ProA Ascend910A Ascend910ProB Ascend910B",
    200: "Ascend310P1 Ascend310P2 Ascend310P3 Ascend310P4 Ascend310P5 Ascend310P7",
    220: "Ascend910B1 Ascend910B2 Ascend910B2C Ascend910B3 Ascend910B4 Ascend910B4-1",
    240: "Ascend310B1 Ascend310B2 Ascend310B3 Ascend310B4",
    250: "Ascend910_9391 Ascend910_9392 Ascend910_9381 Ascend910_9382 Ascend910_9372 Ascend910_9362",
    260: "Ascend950",
}


def get_soc_version() -> int:
    """torch_npu's number of the current device's SoC; -1: it has none."""
    name = npu.get_device_name()
    for first, names in _SOC_VERSIONS.items():
        if name in names.split():
            return first + names.split().index(name)
    return 260 if name.startswith(("Ascend950", "Ascend910_95")) else -1


def get_cann_version(module: str = "CANN") -> str:
    """The version of CANN, or of a package of it: RUNTIME, COMPILER, HCCL, TOOLKIT, OPP, OPP_KERNEL, DRIVER."""
    if module not in _PACKAGES:
        raise ValueError(f"expected one of {', '.join(_PACKAGES)}, got {module!r}")
    found, code = runtime.load_acl().get_cann_version(_PACKAGES.index(module))
    check(code, "aclsysGetCANNVersion")
    return found["version"]


# ---- waiting -------------------------------------------------------------------------------------------------------
def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where an op makes the host wait for a device: 0 or "default" nothing, 1 or "warn", 2 or "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if not 0 <= debug_mode <= 2:
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1 or 2, got {debug_mode}")
    streams.sync_debug_mode = int(debug_mode)


def get_sync_debug_mode() -> int:
    """What set_sync_debug_mode set."""
    return streams.sync_debug_mode


# ---- choices that torch_npu has because it has several ways --------------------------------------------------------
class _Permissions:
    """What ops may do. They run in the plain format and the dtype they are given, whatever is permitted."""

    def __init__(self, **permitted: bool) -> None:
        self.__dict__.update(permitted)


config = _Permissions(allow_internal_format=False)
matmul = _Permissions(allow_hf32=False)
conv = _Permissions(allow_hf32=False)


def _only(given: Any, ours: Any, what: str) -> None:
    if given != ours:
        warnings.warn(f"torch.npu.{what} has no effect: ops go straight to CANN's aclnn kernels", stacklevel=3)


def set_compile_mode(jit_compile: bool = False) -> None:
    """jit_compile=False is how it is: aclnn's kernels are compiled already."""
    _only(jit_compile, False, "set_compile_mode(jit_compile=True)")


def is_jit_compile_false() -> bool:
    """True."""
    return True


def set_mm_bmm_format_nd(is_nd: bool = True) -> None:
    """is_nd=True is how it is: matrices are in the plain format."""
    _only(is_nd, True, "set_mm_bmm_format_nd(False)")


def get_mm_bmm_format_nd() -> bool:
    """True."""
    return True


def set_task_queue_enable(mode: int) -> None:
    """0 is how it is: there is no queue between an op and CANN."""
    _only(mode, 0, f"set_task_queue_enable({mode})")


def get_task_queue_enable() -> int:
    """0."""
    return 0


ipc_collect = ipc.collect


# ---- overflow ------------------------------------------------------------------------------------------------------
def is_support_inf_nan() -> bool:
    """Whether a sum that overflows is infinite; the first generation keeps the greatest number and sets a flag."""
    init()
    return soc.has_cube_and_vector_cores()


def get_npu_overflow_flag() -> NoReturn:
    """Refuses: SoCs that have infinities have no such flag, and that of the others is not read here."""
    if is_support_inf_nan():
        raise RuntimeError("Unsupported api when soc_version >= Ascend910B1, please use npu_check_overflow")
    raise NotImplementedError(_NO_FLAG)


def clear_npu_overflow_flag() -> None:
    """Nothing to clear on SoCs that have infinities; the flag of the others is not read here."""
    if not is_support_inf_nan():
        raise NotImplementedError(_NO_FLAG)
    warnings.warn("When soc_version >= Ascend910B1, clear_npu_overflow_flag is useless. Please remove it.", stacklevel=2)


def npu_check_overflow(grad: Any) -> bool:
    """Whether a number, or the sum of a tensor, is infinite or no number."""
    return not math.isfinite(grad if isinstance(grad, float) else float(grad.float().sum()))


# ---- CANN's dump of ops' data --------------------------------------------------------------------------------------
def init_dump() -> None:
    """Makes CANN ready to write ops' inputs and outputs to files."""
    init()
    check(capi.function("init_dump")(), "aclmdlInitDump")


def set_dump(cfg_file: str) -> None:
    """Begins to write them, as a configuration file of CANN's says."""
    runtime.get_runtime(runtime.current_device())
    check(capi.function("set_dump")(str(cfg_file).encode()), "aclmdlSetDump")


def finalize_dump() -> None:
    """Ends what init_dump() began."""
    runtime.get_runtime(runtime.current_device())
    check(capi.function("finalize_dump")(), "aclmdlFinalizeDump")
