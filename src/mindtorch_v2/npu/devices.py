"""torch.npu, devices: which there are, which is current, what they are and can do. Streams and memory are not here."""
from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from mindtorch_v2 import _C, npu
from mindtorch_v2._backends.npu import acl_loader, capi, errors, runtime, soc, streams
from mindtorch_v2._backends.npu.errors import check

_HBM_MEM = 1                                      # ACL_HBM_MEM
_CUBE_CORES, _VECTOR_CORES = 0, 1                 # aclrtDevResLimitType

# (major, minor) by the SoC's family. CANN has no such number; code written for CUDA compares it, so a later generation
# is greater.
_CAPABILITIES = {
    "Ascend910": (9, 0), "Ascend910B": (9, 1), "Ascend910_93": (9, 2), "Ascend910_55": (9, 5), "Ascend950": (9, 5),
    "Ascend310": (3, 0), "Ascend310P": (3, 1), "Ascend310B": (3, 2),
}


def is_available(verbose: bool = False) -> bool:
    """Whether CANN is installed and sees a device; verbose prints what was found, or looked for and not found."""
    try:
        count = _count(look_again=verbose)
        if verbose:
            found = f"CANN {acl_loader.cann_version()} sees {count} npu devices"
            hint = ": check `npu-smi info`, the Ascend driver, and that this user may open /dev/davinci*"
            print(found if count else found + hint)
    except (RuntimeError, OSError) as error:
        if isinstance(error, errors.UntrustedCannError) and not verbose:
            warnings.warn(str(error), stacklevel=2)
        count = 0
        if verbose:
            print(error)
    return count > 0


def device_count() -> int:
    """How many npus there are; 0 where there is no CANN."""
    try:
        return _count(look_again=False)
    except errors.UntrustedCannError as error:
        warnings.warn(str(error), stacklevel=2)
    except errors.CannNotFoundError:
        pass                                      # a machine without npus is no error
    return 0


_absent: tuple[Any, errors.CannNotFoundError | None] = (None, None)


def _count(look_again: bool) -> int:
    """How many devices CANN sees. Where there was no CANN the file system is not searched again, as long as what says
    where it may be is the same: programs ask this in every loop."""
    global _absent
    places = acl_loader.places()
    if runtime.acl is None and _absent[0] == places and _absent[1] is not None and not look_again:
        raise type(_absent[1])(*_absent[1].args)
    try:
        return runtime.device_count()
    except errors.CannNotFoundError as error:
        _absent = (places, type(error)(*error.args))   # without the frames of this one
        raise


def init() -> None:
    """Starts the current device; the first use does that by itself."""
    runtime.get_runtime(runtime.current_device())


def is_initialized() -> bool:
    """Whether a device is in use."""
    return runtime.is_initialized()


def _device_index(device: Any = None) -> int:
    """The index of what the user gave: None or "npu" is the current device. A negative one is -1, and what that means
    the caller says; larger ones than any npu has are refused here, for CANN and the core count in 32 bits."""
    if device is None:
        return runtime.current_device()
    if isinstance(device, int):
        if device < 0:
            return -1
        runtime.check_ordinal(device)
        return device
    place = _C.device(device)
    if place.type != "npu":
        raise ValueError(f"Expected a npu device, but got: {device}")
    return runtime.current_device() if place.index is None else place.index


def current_device() -> int:
    """The index of the current device of this thread."""
    return runtime.current_device()


def set_device(device: Any) -> None:
    """Makes a device the current one of this thread; a negative index changes nothing."""
    index = _device_index(device)
    if index >= 0:
        runtime.set_current_device(index)


class device:
    """A with block on another device; None and a negative index change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else _device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> device:
        self.prev_idx = current_device()
        if self.idx != self.prev_idx:
            set_device(self.idx)
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.prev_idx != current_device():
            runtime.set_current_device(self.prev_idx)


class device_of(device):
    """A with block on the device of a tensor or storage; one that is on no npu changes nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == "npu" else None)


def synchronize(device: Any = None) -> None:
    """Waits for all work on all streams of a device."""
    with streams.waiting("torch.npu.synchronize"):
        runtime.get_runtime(_device_index(device)).synchronize()


# ---- what a device is -------------------------------------------------------------------------------------------
@dataclass(frozen=True, repr=False)
class _NPUDeviceProperties:
    name: str
    total_memory: int
    cube_core_num: int
    vector_core_num: int
    L2_cache_size: int
    major: int = field(default=0)
    minor: int = field(default=0)

    @property
    def multi_processor_count(self) -> int:
        """What CUDA's name for it is: the cores that multiply matrices."""
        return self.cube_core_num

    def __repr__(self) -> str:
        return (f"_NPUDeviceProperties(name='{self.name}', total_memory={self.total_memory >> 20}MB, "
                f"cube_core_num={self.cube_core_num}, vector_core_num={self.vector_core_num}, "
                f"L2_cache_size={self.L2_cache_size >> 20}MB)")


def _get_device_name(device_id: int) -> str:
    runtime.get_runtime(device_id)
    return soc.name() or "Ascend"


def _get_device_capability(device_id: int) -> tuple[int, int]:
    name = npu._get_device_name(device_id)
    family = soc.family_of(name)
    if family:
        return _CAPABILITIES[family]
    warnings.warn(f"the generation of npu:{device_id} ({name}) is not known; its capability is given as (0, 0)",
                  stacklevel=3)
    return (0, 0)


def _total_memory(device_id: int) -> int:
    runtime.get_runtime(device_id)
    _, total, code = runtime.acl.rt.get_mem_info(_HBM_MEM)
    check(code, "aclrtGetMemInfo")
    return total


def _core_facts(device_id: int) -> tuple[int, int, int]:
    """Cores for matrices, cores for vectors, bytes of L2: aclDeviceInfo 0, 1, 2."""
    runtime.get_runtime(device_id)
    facts = []
    for attribute in (0, 1, 2):
        value, code = runtime.acl.get_device_capability(device_id, attribute)
        check(code, "aclGetDeviceCapability")
        facts.append(value)
    return facts[0], facts[1], facts[2]


def _or_default(ask: Any, device_id: int, default: Any) -> Any:
    """What CANN says, or a default with a warning where it has no such call or refuses it."""
    try:
        return ask(device_id)
    except (AttributeError, RuntimeError) as error:
        warnings.warn(f"the properties of npu:{device_id} are incomplete: {error}", stacklevel=3)
        return default


def get_device_name(device_name: Any = None) -> str:
    """The name of a device's SoC."""
    return npu._get_device_name(_device_index(device_name))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor): the generation of a device as two numbers that grow; see docs/npu.md."""
    return npu._get_device_capability(_device_index(device))


def get_device_properties(device_name: Any = None) -> _NPUDeviceProperties:
    """Name, memory, cores and cache of a device."""
    index = _device_index(device_name)
    cube, vector, cache = _or_default(_core_facts, index, (0, 0, 0))
    major, minor = npu._get_device_capability(index)
    return _NPUDeviceProperties(npu._get_device_name(index), _or_default(_total_memory, index, 0), cube, vector, cache,
                                major, minor)


def is_bf16_supported(including_emulation: bool = False) -> bool:
    """Whether a device computes in bfloat16: all but the first generation and the 310 family."""
    return get_device_capability() >= (9, 1)


def utilization(device: Any = None) -> int:
    """How busy the busiest kind of core of a device was lately, in percent."""
    index = _device_index(device)
    runtime.get_runtime(index)
    rates, code = runtime.acl.rt.get_device_utilization_rate(index)
    check(code, "aclrtGetDeviceUtilizationRate")
    return max(rates["cube_utilization"], rates["vector_utilization"], 0)   # -1 is a rate that is not counted


def npurt() -> Any:
    """CANN's runtime functions under pyACL's names: `acl.rt`."""
    return runtime.load_acl().rt


def current_blas_handle() -> None:
    """None: CANN has no such handle."""


# ---- devices among each other -------------------------------------------------------------------------------------
def can_device_access_peer(device_id: int, peer_device_id: int) -> bool:
    """Whether a device can read and write the memory of another; False with a warning where there is no such device."""
    count = device_count()
    for index in (device_id, peer_device_id):
        if not 0 <= index < count:
            warnings.warn(f"npu:{index} is not there: " + (f"CANN sees {count} npus" if count else "no npu is available"),
                          stacklevel=2)
            return False
    if device_id == peer_device_id:
        return False
    runtime.get_runtime(device_id)
    can, code = runtime.acl.rt.device_can_access_peer(device_id, peer_device_id)
    check(code, "aclrtDeviceCanAccessPeer")
    return bool(can)


def _peers(device_id: int, peer_device_id: int | None) -> tuple[int, int]:
    pair = (current_device(), device_id) if peer_device_id is None else (device_id, peer_device_id)
    if not can_device_access_peer(*pair):
        raise RuntimeError(f"npu:{pair[0]} cannot access the memory of npu:{pair[1]}: CANN reports no path there")
    runtime.get_runtime(pair[0])
    return pair


def enable_peer_access(device_id: int, peer_device_id: int | None = None) -> None:
    """Lets a device access the memory of its peer, one way; with one index, the current device that of the index."""
    _, peer = _peers(device_id, peer_device_id)
    check(runtime.acl.rt.device_enable_peer_access(peer, 0), f"aclrtDeviceEnablePeerAccess({peer})")


def disable_peer_access(device_id: int, peer_device_id: int | None = None) -> None:
    """Ends what enable_peer_access began."""
    _, peer = _peers(device_id, peer_device_id)
    check(runtime.acl.rt.device_disable_peer_access(peer), f"aclrtDeviceDisablePeerAccess({peer})")


# ---- limits and recovery -------------------------------------------------------------------------------------------
def set_device_limit(device: Any, cube_num: int = -1, vector_num: int = -1) -> None:
    """How many cores of a device this process may use; -1 leaves a number as it is. Needs CANN 8.5."""
    index = runtime.get_runtime(_device_index(device)).device_id
    for kind, number in ((_CUBE_CORES, cube_num), (_VECTOR_CORES, vector_num)):
        if number != -1:
            check(capi.function("set_device_res_limit")(index, kind, number), "aclrtSetDeviceResLimit")


def get_device_limit(device: Any) -> dict[str, int]:
    """The cores that this process may use on a device. Needs CANN 8.5."""
    index = runtime.get_runtime(_device_index(device)).device_id
    limits = {}
    for name, kind in (("cube_core_num", _CUBE_CORES), ("vector_core_num", _VECTOR_CORES)):
        limits[name], code = capi.function("get_device_res_limit")(index, kind)
        check(code, "aclrtGetDeviceResLimit")
    return limits


def set_op_timeout_ms(timeout: int) -> None:
    """How long one op may run on a device before it is ended with an error."""
    init()
    check(capi.function("set_op_execute_time_out_with_ms")(timeout), "aclrtSetOpExecuteTimeOutWithMs")


def stop_device(device_id: int) -> None:
    """Ends all tasks that wait or run on a device; restart_device() makes it take work again."""
    runtime.get_runtime(device_id)
    check(runtime.acl.rt.device_task_abort(device_id, 0), "aclrtDeviceTaskAbort")


def restart_device(device_id: int, rebuild_all_resources: bool = False,
                   disable_tensor_unsafe_check: bool = False) -> None:
    """Takes up work after stop_device(): collects the error that the ended tasks left. Tensors they wrote are lost.
    With rebuild_all_resources it also does so after a fault of the device: all its tensors, streams, events and graphs
    end, and using one of them is an error, whether that is to be checked or not."""
    if rebuild_all_resources:
        runtime.restart(device_id)
        return
    runtime.get_runtime(device_id)
    code = runtime.acl.rt.synchronize_device()
    if code != errors.DEVICE_TASK_ABORT:
        check(code, "aclrtSynchronizeDevice")


def _get_accelerator(check: bool = False) -> Any:
    """torch._C._get_accelerator: the device type of the accelerator; without one the cpu, or an error."""
    if is_available():
        return _C.device("npu")
    if check:
        raise RuntimeError("Cannot access accelerator device when none is available.")
    return _C.device("cpu")


vars(_C)["_get_accelerator"] = _get_accelerator
