"""torch.npu, settings: what torch_npu lets a program choose about how ops run, and CANN's dump of their data."""
from __future__ import annotations

import enum
import math
import re
import warnings
from typing import Any, NoReturn

from mindtorch_v2 import _config, npu
from mindtorch_v2._backends.npu import aclnn, capi, cube, ipc, runtime, soc, streams
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


def _order(version: str) -> tuple[int, ...]:
    """8.1.RC1 as numbers that grow with versions: a release candidate comes before the release, an alpha or beta before that."""
    found = re.match(r"(\d+)\.(\d+)\.(?:(RC)?(\d+))(?:\.?(alpha|beta)(\d+))?", version, re.IGNORECASE)
    if found is None:
        raise RuntimeError(f"expected a version of CANN such as 8.1.RC1 or 8.5.0, got {version!r}")
    major, minor, candidate, number, stage, count = found.groups()
    early = {"alpha": 0, "beta": 1}.get((stage or "").lower(), 2)
    return int(major), int(minor), 0 if candidate else 1, int(number), early, int(count or 0)


def _is_gte_cann_version(version: str, module: str = "CANN") -> bool:
    """Whether CANN, or a package of it, is this version or a later one."""
    return _order(get_cann_version(module)) >= _order(version)


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
    """What ops may do. They run in the plain format, whatever is permitted."""

    @property
    def allow_internal_format(self) -> bool:
        return _config.allow_internal_format

    @allow_internal_format.setter
    def allow_internal_format(self, permitted: bool) -> None:
        _config.allow_internal_format = bool(permitted)


config = _Permissions()


class CubeMathType(enum.IntEnum):
    """How products of float32 matrices may round: CANN's cubeMathType."""
    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3
    USE_FP32_ADD = 4


class _Rounding:
    """torch.npu.conv: whether float32 factors may be rounded to HF32."""
    _kind = "conv"

    @property
    def allow_hf32(self) -> bool:
        return cube.allows_hf32[self._kind]

    @allow_hf32.setter
    def allow_hf32(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(f"allow_hf32 must be a bool, but got {type(value).__name__}")
        cube.allows_hf32[self._kind] = value
        aclnn.allow_rounding()


class _MatmulRounding(_Rounding):
    """torch.npu.matmul: the same for matrices; cube_math_type is what CANN is asked for whatever allow_hf32 says."""
    _kind = "matmul"

    @property
    def cube_math_type(self) -> CubeMathType | None:
        return None if cube.forced is None else CubeMathType(cube.forced)

    @cube_math_type.setter
    def cube_math_type(self, value: CubeMathType) -> None:
        if not isinstance(value, CubeMathType):
            raise TypeError("value should be one of Enum CubeMathType when setting cube_math_type, but got "
                            f"{type(value)}")
        cube.forced = value.value
        aclnn.allow_rounding()


matmul, conv = _MatmulRounding(), _Rounding()


_SWITCHES = {"enable": True, "disable": False}


def set_option(option: dict[str, Any]) -> None:
    """torch_npu's options by name: those of HF32 as `torch.npu.matmul` and `conv` have them. Others are for ops that CANN
    compiles when they are called, of which there are none here: they are warned of."""
    if not isinstance(option, dict):
        raise TypeError("npu option must be a dict.")
    for name, value in option.items():
        if name in ("ALLOW_MATMUL_HF32", "ALLOW_CONV_HF32"):
            if value not in _SWITCHES:
                raise ValueError(f"value of {name} should be in {list(_SWITCHES)} but got {value}")
            (matmul if "MATMUL" in name else conv).allow_hf32 = _SWITCHES[value]
        elif name == "MM_BMM_ND_ENABLE":
            set_mm_bmm_format_nd(value != "disable")
        else:
            warnings.warn(f"torch.npu.set_option: {name} has no effect: ops go straight to CANN's aclnn kernels", stacklevel=2)


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
