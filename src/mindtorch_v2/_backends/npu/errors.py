"""CANN's status codes as Python exceptions: the call, the code and its name, CANN's own words. Touches no device."""
from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from mindtorch_v2 import _C

UNINITIALIZED = 100001       # ACL_ERROR_UNINITIALIZE: aclInit has not run
REPEAT_INITIALIZE = 100002   # ACL_ERROR_REPEAT_INITIALIZE: other code in this process has called aclInit
DEVICE_TASK_ABORT = 107022   # ACL_ERROR_RT_DEVICE_TASK_ABORT: what was queued was dropped
NOT_SUPPORTED = 207000       # ACL_ERROR_RT_FEATURE_NOT_SUPPORT
OUT_OF_MEMORY = (207001, 207018)
NO_OBJECT = 561103           # ACLNN_ERR_INNER_NULLPTR, said where a function of CANN returns NULL instead of a status

# A line is a first code and the names from it on, without ACL_ERROR_ (161, 361 and 561 thousand: ACLNN_ERR_).
_NAMES = """
100000: INVALID_PARAM UNINITIALIZE REPEAT_INITIALIZE INVALID_FILE WRITE_FILE INVALID_FILE_SIZE PARSE_FILE
100026: UNSUPPORTED_DATA_TYPE FORMAT_NOT_MATCH
100033: REPEAT_SUBSCRIBE STREAM_NOT_SUBSCRIBE THREAD_NOT_SUBSCRIBE WAIT_CALLBACK_TIMEOUT REPEAT_FINALIZE
107000: RT_PARAM_INVALID RT_INVALID_DEVICEID RT_CONTEXT_NULL RT_STREAM_CONTEXT RT_MODEL_CONTEXT RT_STREAM_MODEL
107006: RT_EVENT_TIMESTAMP_INVALID RT_EVENT_TIMESTAMP_REVERSAL RT_ADDR_UNALIGNED RT_FILE_OPEN RT_FILE_WRITE
107011: RT_STREAM_SUBSCRIBE RT_THREAD_SUBSCRIBE RT_GROUP_NOT_SET RT_GROUP_NOT_CREATE RT_STREAM_NO_CB_REG
107016: RT_INVALID_MEMORY_TYPE RT_INVALID_HANDLE RT_INVALID_MALLOC_TYPE RT_WAIT_TIMEOUT RT_TASK_TIMEOUT
107021: RT_SYSPARAMOPT_NOT_SET RT_DEVICE_TASK_ABORT RT_STREAM_ABORT RT_CAPTURE_DEPENDENCY RT_STREAM_UNJOINED
107026: RT_MODEL_CAPTURED RT_STREAM_CAPTURED RT_EVENT_CAPTURED RT_STREAM_NOT_CAPTURED RT_CAPTURE_MODE_NOT_SUPPORT
107031: RT_STREAM_CAPTURE_IMPLICIT STREAM_CAPTURE_CONFLICT STREAM_TASK_GROUP_STATUS STREAM_TASK_GROUP_INTR
107035: RT_TASK_ABORT_STOP RT_STREAM_CAPTURE_UNMATCHED RT_MODEL_RUNNING RT_STREAM_CAPTURE_WRONG_THREAD
200000: BAD_ALLOC API_NOT_SUPPORT INVALID_DEVICE MEMORY_ADDRESS_UNALIGNED RESOURCE_NOT_MATCH INVALID_RESOURCE_HANDLE
200006: FEATURE_UNSUPPORTED
207000: RT_FEATURE_NOT_SUPPORT RT_MEMORY_ALLOCATION RT_MEMORY_FREE RT_AICORE_OVER_FLOW RT_NO_DEVICE
207005: RT_RESOURCE_ALLOC_FAIL RT_NO_PERMISSION RT_NO_EVENT_RESOURCE RT_NO_STREAM_RESOURCE RT_NO_NOTIFY_RESOURCE
207010: RT_NO_MODEL_RESOURCE RT_NO_CDQ_RESOURCE RT_OVER_LIMIT RT_QUEUE_EMPTY RT_QUEUE_FULL RT_REPEATED_INIT
207016: RT_AIVEC_OVER_FLOW RT_OVER_FLOW RT_DEVICE_OOM
300000: STORAGE_OVER_LIMIT
500000: INTERNAL_ERROR FAILURE GE_FAILURE RT_FAILURE DRV_FAILURE PROFILING_FAILURE
507000: RT_INTERNAL_ERROR RT_TS_ERROR RT_STREAM_TASK_FULL RT_STREAM_TASK_EMPTY RT_STREAM_NOT_COMPLETE RT_END_OF_SEQUENCE
507006: RT_EVENT_NOT_COMPLETE RT_CONTEXT_RELEASE_ERROR RT_SOC_VERSION RT_TASK_TYPE_NOT_SUPPORT RT_LOST_HEARTBEAT
507011: RT_MODEL_EXECUTE RT_REPORT_TIMEOUT RT_SYS_DMA RT_AICORE_TIMEOUT RT_AICORE_EXCEPTION RT_AICORE_TRAP_EXCEPTION
507017: RT_AICPU_TIMEOUT RT_AICPU_EXCEPTION RT_AICPU_DATADUMP_RSP_ERR RT_AICPU_MODEL_RSP_ERR RT_PROFILING_ERROR
507022: RT_IPC_ERROR RT_MODEL_ABORT_NORMAL RT_KERNEL_UNREGISTERING RT_RINGBUFFER_NOT_INIT RT_RINGBUFFER_NO_DATA
507027: RT_KERNEL_LOOKUP RT_KERNEL_DUPLICATE RT_DEBUG_REGISTER_FAIL RT_DEBUG_UNREGISTER_FAIL RT_LABEL_CONTEXT
507032: RT_PROGRAM_USE_OUT RT_DEV_SETUP_ERROR RT_VECTOR_CORE_TIMEOUT RT_VECTOR_CORE_EXCEPTION
507036: RT_VECTOR_CORE_TRAP_EXCEPTION RT_CDQ_BATCH_ABNORMAL
507042: RT_AICORE_TRAP_READ_OVERFLOW RT_AICORE_TRAP_WRITE_OVERFLOW RT_VECTOR_CORE_TRAP_READ_OVERFLOW
507045: RT_VECTOR_CORE_TRAP_WRITE_OVERFLOW RT_STREAM_SYNC_TIMEOUT RT_EVENT_SYNC_TIMEOUT RT_FFTS_PLUS_TIMEOUT
507049: RT_FFTS_PLUS_EXCEPTION RT_FFTS_PLUS_TRAP_EXCEPTION RT_SEND_MSG RT_COPY_DATA RT_DEVICE_MEM_ERROR
507054: RT_HBM_MULTI_BIT_ECC_ERROR RT_SUSPECT_DEVICE_MEM_ERROR RT_LINK_ERROR RT_SUSPECT_REMOTE_ERROR
507899: RT_DRV_INTERNAL_ERROR RT_AICPU_INTERNAL_ERROR RT_SOCKET_CLOSE RT_AICPU_INFO_LOAD_RSP_ERR
507903: RT_STREAM_CAPTURE_INVALIDATED
161001: PARAM_NULLPTR PARAM_INVALID
361001: RUNTIME_ERROR
561000: INNER INNER_INFERSHAPE_ERROR INNER_TILING_ERROR INNER_FIND_KERNEL_ERROR
561101: INNER_CREATE_EXECUTOR INNER_NOT_TRANS_EXECUTOR INNER_NULLPTR INNER_WRONG_ATTR_INFO_SIZE INNER_KEY_CONFLICT
561106: INNER_INVALID_IMPL_MODE INNER_OPP_PATH_NOT_FOUND INNER_LOAD_JSON_FAILED INNER_JSON_VALUE_NOT_FOUND
561110: INNER_JSON_FORMAT_INVALID INNER_JSON_DTYPE_INVALID INNER_OPP_KERNEL_PKG_NOT_FOUND INNER_OP_FILE_INVALID
561114: INNER_ATTR_NUM_OUT_OF_BOUND INNER_ATTR_LEN_NOT_ENOUGH INNER_INPUT_NUM_IN_JSON_TOO_LARGE INNER_INPUT_JSON_IS_NULL
561118: INNER_STATIC_WORKSPACE_INVALID INNER_STATIC_BLOCK_DIM_INVALID
"""

# What the user can do about the codes that are met most.
_ADVICE = {
    107001: "no such device: torch.npu.device_count() says how many there are",
    107002: "this thread has no device yet: use torch.npu.set_device() first",
    107003: "a stream or event was used on another device than its own",
    107019: "a wait took longer than its limit: a task on the device hangs, or another rank has not come to a collective",
    107020: "a task on the device took longer than its limit",
    107030: ("the host may not wait while a graph is captured: item(), cpu(), printing a tensor, nonzero() and copies from "
             "pageable memory belong outside of it"),
    207006: ("this user may not use the device: `ls -l /dev/davinci*` shows the group that may (HwHiAiUser), "
             "`sudo usermod -aG HwHiAiUser $USER` and a new login make you one of it"),
    207007: "all events of the device are in use: keep fewer torch.npu.Event alive",
    207008: "all streams of the device are in use: keep fewer torch.npu.Stream alive",
    207004: "CANN is installed but sees no device: check `npu-smi info` and that this user may open /dev/davinci*",
    207001: "device memory is exhausted",
    207018: "device memory is exhausted",
    500004: "the driver refused: `python -m mindtorch_v2 info` shows whether driver and CANN belong together",
    507033: ("the device could not be started: another process or container may hold it (`npu-smi info` lists processes), or "
             "driver and CANN do not belong together (`python -m mindtorch_v2 info` shows both)"),
    507046: "the device did not finish in time: a task hangs, or another rank has not come to a collective",
    507047: "the device did not finish in time: a task hangs, or another rank has not come to a collective",
    507899: ("the driver failed: `python -m mindtorch_v2 info` shows whether driver and CANN belong together, `npu-smi info` "
             "whether the device is healthy"),
    561003: "the op has no kernel for this SoC or dtype",
    561103: "CANN has made no object",
    561107: "set ASCEND_OPP_PATH to the opp folder of the CANN toolkit",
    561112: "install the kernels package of CANN for this SoC (Ascend-cann-kernels)",
}
# After one of these the context refuses work until the device is reset: lost device, core exceptions, memory errors.
_DEVICE_FAULTS = frozenset({507010, 507011, *range(507013, 507019), *range(507034, 507037), *range(507042, 507046),
                            *range(507048, 507051), *range(507053, 507058)})


AcceleratorError = _C.AcceleratorError


class CannNotFoundError(RuntimeError):
    """No usable CANN on this machine."""


class UntrustedCannError(CannNotFoundError):
    """A CANN that is not loaded, because of who could change its files or of how its place was given."""


class MissingSymbolError(LookupError, RuntimeError):
    """The CANN that is installed does not export a function."""


def _numbered(table: str) -> dict[int, str]:
    names: dict[int, str] = {}
    for line in table.split("\n"):
        first, _, words = line.partition(":")
        for code, word in enumerate(words.split(), int(first or 0)):
            names[code] = ("ACLNN_ERR_" if code // 1000 in (161, 361, 561) else "ACL_ERROR_") + word
    return names


_CODES = _numbered(_NAMES)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
# Device faults that were described since the runtime began: its end need not repeat them.
reported: set[int] = set()

# The runtime puts here what gives the acl module in use: this module is below it and must not import it.
acl_in_use: Callable[[], Any] = lambda: None


# What is above puts here functions that may know why work on a device failed, such as a rank that is gone.
causes: list[Callable[[], BaseException | None]] = []


def code_name(code: int) -> str:
    """CANN's name of a status code."""
    return _CODES.get(code, "an unknown CANN error")


def is_device_fault(code: int) -> bool:
    """Whether the device takes no more work from this process after this code."""
    return code in _DEVICE_FAULTS


def recent_message() -> str:
    """CANN's message of this thread's last error, which reading clears; "" where there is none."""
    ask = getattr(acl_in_use(), "get_recent_err_msg", None)
    return ((ask() if ask else None) or "").strip()


def describe(code: int, what: str, call: str = "", words: str | None = None) -> str:
    """One message about a failed call: what failed, the code and its name, what to do, CANN's own message (fetched here
    where they are not given), and the op with its arguments: call, or where work queued earlier failed, what was
    launched last."""
    text = f"[{what}] failed with {code_name(code)} ({code})"
    if code in _ADVICE:
        text += f": {_ADVICE[code]}"
    elif is_device_fault(code):
        reported.add(code)
        text += (": the device stopped and takes no more work from this process, until torch.npu.restart_device(device, "
                 "rebuild_all_resources=True) begins without its tensors. An earlier op may have failed: "
                 "ACL_LAUNCH_BLOCKING=1 shows it at its own line, "
                 "MINDTORCH_LAUNCH_LINES=1 keeps the lines of the last launches")
    words = recent_message() if words is None else words
    if words:
        text += f"\nCANN says: {words}"
    if call:
        text += f"\nThe call: {call}"
    elif code // 1000 == 507:                                # a failure on the device: of something that was queued before
        text += _launches(words)
    return text


def _launches(words: str) -> str:
    """The last launches of the op that CANN's words name; where they name none, the last launches."""
    launches = _C._npu_last_launches(_C._npu_current_device())
    named = [call for name, call in launches
             if re.search(rf"(?<![a-z]){name.removeprefix('aclnn')}(?![a-z])", words.replace("aclnn", ""), re.IGNORECASE)]
    calls = list(dict.fromkeys(named or [call for _, call in launches]))[:3]
    return f"\nLaunched last{' of it' if named else ''}: {'; '.join(calls)}" if calls else ""


def line_of_program() -> str:
    """The innermost line of Python that is not of this package: "train.py:12 in step"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def error_of(code: int, what: str, call: str = "", words: str | None = None) -> RuntimeError:
    """The exception of a status code that is not 0; what names the call or the op."""
    words = recent_message() if words is None else words
    cause = next(filter(None, (ask() for ask in causes)), None) if _of_queued_work(code) else None
    text = describe(code, what, call, words) + (f"\n{type(cause).__name__}: {cause}" if cause else "")
    error: Any = _C.AcceleratorError(text)
    error.error_code, error.words, error.what, error.__cause__ = code, words, what, cause
    return error


def _of_queued_work(code: int) -> bool:
    """Whether a wait says with this code that work queued before has failed or was aborted."""
    return code // 1000 == 507 or code in (107022, 107023)   # tasks of a device or of a stream were aborted


def of_op(error: RuntimeError, name: str, call: str) -> RuntimeError:
    """The error of a wait as that of the op that was waited for; one without CANN's code as it is."""
    code = getattr(error, "error_code", 0)
    what, words = getattr(error, "what", "a wait"), getattr(error, "words", "")
    return error_of(code, f"{what} of {name}", call, words) if code else error


def raise_for(code: int, what: str) -> NoReturn:
    """Raises the exception of a status code that is not 0."""
    raise error_of(code, what)


def check(code: int, what: str) -> None:
    """Raises unless code is 0."""
    if code:
        raise_for(code, what)
