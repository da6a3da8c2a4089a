"""C functions of CANN that pyACL has no names for, called its way: outputs before the status. No ops."""
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from mindtorch_v2._backends.npu import acl_binding, acl_loader
from mindtorch_v2._backends.npu.errors import check

# In the form of acl_binding's tables; the names are the C names in pyACL's spelling.
_TABLE = """
capture_begin aclmdlRICaptureBegin(ptr i32)
capture_end aclmdlRICaptureEnd(ptr >ptr)
capture_get_info aclmdlRICaptureGetInfo(ptr >i32 >ptr)
capture_task_grp_begin aclmdlRICaptureTaskGrpBegin(ptr)
capture_task_grp_end aclmdlRICaptureTaskGrpEnd(ptr >ptr)
capture_task_update_begin aclmdlRICaptureTaskUpdateBegin(ptr ptr)
capture_task_update_end aclmdlRICaptureTaskUpdateEnd(ptr)
model_ri_execute_async aclmdlRIExecuteAsync(ptr ptr)
model_ri_destroy aclmdlRIDestroy(ptr)
model_ri_debug_json_print aclmdlRIDebugJsonPrint(ptr str u32)
get_device_res_limit aclrtGetDeviceResLimit(i32 i32 >u32)
set_device_res_limit aclrtSetDeviceResLimit(i32 i32 u32)
get_stream_res_limit aclrtGetStreamResLimit(ptr i32 >u32)
set_stream_res_limit aclrtSetStreamResLimit(ptr i32 u32)
reset_stream_res_limit aclrtResetStreamResLimit(ptr)
get_event_id aclrtGetEventId(ptr >u32)
init_dump aclmdlInitDump()
set_dump aclmdlSetDump(str)
finalize_dump aclmdlFinalizeDump()
set_op_execute_time_out_with_ms aclrtSetOpExecuteTimeOutWithMs(u32)
"""
_ROWS = {line.partition(" ")[0]: line for line in filter(None, _TABLE.split("\n"))}


def pointer(address: int) -> ctypes.c_void_p:
    """A handle as a C function takes it: ctypes would cut a plain int to 32 bits."""
    return ctypes.c_void_p(address)


class _MemoryFault(ctypes.Structure):
    """aclrtMemUceInfo."""
    _fields_ = [("addr", ctypes.c_void_p), ("len", ctypes.c_size_t), ("reserved", ctypes.c_size_t * 14)]


_MOST_FAULTS = 128                                # MAX_MEM_UCE_INFO_ARRAY_SIZE


def memory_faults(device_id: int) -> list[tuple[int, int]]:
    """(address, bytes) of the device memory that has errors which its hardware cannot correct (aclrtGetMemUceInfo)."""
    found, count = (_MemoryFault * _MOST_FAULTS)(), ctypes.c_size_t()
    ask = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(
        acl_loader.symbol("aclrtGetMemUceInfo"))
    check(ask(device_id, ctypes.addressof(found), _MOST_FAULTS, ctypes.addressof(count)), "aclrtGetMemUceInfo")
    return [(fault.addr or 0, fault.len) for fault in found[:count.value]]


@functools.cache
def function(name: str) -> Callable[..., Any]:
    """The function of a row; raises MissingSymbolError where the installed CANN has none."""
    def find(symbol: str) -> Any:
        return ctypes.CFUNCTYPE(ctypes.c_int32)(acl_loader.symbol(symbol))
    return acl_binding.declared(find, _ROWS[name])[name]
