"""pyACL's conventions over libascendcl.so by ctypes, for a CANN without its `acl` module; ops are launched elsewhere.

As in pyACL: C's out-parameters come back, before the status; handles and pointers are ints (0 is NULL); structs are
dicts; arguments are positional; a failure is a returned code, never an exception. A function that the library lacks is
no attribute of the module, so that `hasattr` probes for it. ctypes releases the GIL during every call.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class _Location(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint32), ("type", ctypes.c_int32)]


class _PhysicalProperties(ctypes.Structure):
    _fields_ = [("handleType", ctypes.c_int32), ("allocationType", ctypes.c_int32), ("memAttr", ctypes.c_int32),
                ("location", _Location), ("reserve", ctypes.c_uint64)]


class _PointerAttributes(ctypes.Structure):
    _fields_ = [("location", _Location), ("page_size", ctypes.c_uint32), ("rsv", ctypes.c_uint32 * 4)]


class _Utilization(ctypes.Structure):
    _fields_ = [("cube_utilization", ctypes.c_int32), ("vector_utilization", ctypes.c_int32),
                ("aicpu_utilization", ctypes.c_int32), ("memory_utilization", ctypes.c_int32),
                ("utilization_extend", ctypes.c_void_p)]


class _PackageVersion(ctypes.Structure):
    _fields_ = [("version", ctypes.c_char * 128), ("major_version", ctypes.c_char * 64),
                ("minor_version", ctypes.c_char * 64), ("release_version", ctypes.c_char * 64),
                ("patch_version", ctypes.c_char * 64), ("reserved", ctypes.c_char * 128)]


_TYPES: dict[str, Any] = {
    "i32": ctypes.c_int32, "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64,
    "size": ctypes.c_size_t, "f32": ctypes.c_float, "f16": ctypes.c_uint16, "ptr": ctypes.c_void_p,
    "str": ctypes.c_char_p, "physical": _PhysicalProperties, "attributes": _PointerAttributes,
    "utilization": _Utilization, "version": _PackageVersion, "none": None,
}

# One function a line: pyACL's name, the C function with its parameters in C's order, what C returns if not a status.
# ">" is an out-parameter, "&" a struct given by address.
_ACL = """
finalize aclFinalize()
finalize_reference aclFinalizeReference(>u64)
get_version aclrtGetVersion(>i32 >i32 >i32)
get_soc_name aclrtGetSocName() str
get_recent_err_msg aclGetRecentErrMsg() str
get_cann_version aclsysGetCANNVersion(i32 >version)
get_cann_attribute aclGetCannAttribute(i32 >i32)
get_device_capability aclGetDeviceCapability(u32 i32 >i64)
data_type_size aclDataTypeSize(i32) size
float16_to_float aclFloat16ToFloat(f16) f32
float_to_float16 aclFloatToFloat16(f32) f16
create_data_buffer aclCreateDataBuffer(ptr size) ptr
destroy_data_buffer aclDestroyDataBuffer(ptr)
get_data_buffer_addr aclGetDataBufferAddr(ptr) ptr
get_data_buffer_size_v2 aclGetDataBufferSizeV2(ptr) size
update_data_buffer aclUpdateDataBuffer(ptr ptr size)
destroy_tensor_desc aclDestroyTensorDesc(ptr) none
"""
_RT = """
set_device aclrtSetDevice(i32)
reset_device aclrtResetDevice(i32)
reset_device_force aclrtResetDeviceForce(i32)
get_device aclrtGetDevice(>i32)
get_device_count aclrtGetDeviceCount(>u32)
get_run_mode aclrtGetRunMode(>i32)
set_ts_device aclrtSetTsDevice(i32)
set_device_sat_mode aclrtSetDeviceSatMode(i32)
get_device_sat_mode aclrtGetDeviceSatMode(>i32)
get_device_utilization_rate aclrtGetDeviceUtilizationRate(i32 >utilization)
query_device_status aclrtQueryDeviceStatus(i32 >i32)
device_task_abort aclrtDeviceTaskAbort(i32 u32)
device_can_access_peer aclrtDeviceCanAccessPeer(>i32 i32 i32)
device_disable_peer_access aclrtDeviceDisablePeerAccess(i32)
device_get_stream_priority_range aclrtDeviceGetStreamPriorityRange(>i32 >i32)
device_get_bare_tgid aclrtDeviceGetBareTgid(>i32)
get_device_info aclrtGetDeviceInfo(u32 i32 >i64)
create_context aclrtCreateContext(>ptr i32)
destroy_context aclrtDestroyContext(ptr)
set_context aclrtSetCurrentContext(ptr)
get_context aclrtGetCurrentContext(>ptr)
ctx_get_current_default_stream aclrtCtxGetCurrentDefaultStream(>ptr)
ctx_set_sys_param_opt aclrtCtxSetSysParamOpt(i32 i64)
ctx_get_sys_param_opt aclrtCtxGetSysParamOpt(i32 >i64)
set_sys_param_opt aclrtSetSysParamOpt(i32 i64)
get_sys_param_opt aclrtGetSysParamOpt(i32 >i64)
create_stream aclrtCreateStream(>ptr)
create_stream_with_config aclrtCreateStreamWithConfig(>ptr u32 u32)
destroy_stream aclrtDestroyStream(ptr)
destroy_stream_force aclrtDestroyStreamForce(ptr)
stream_query aclrtStreamQuery(ptr >i32)
stream_abort aclrtStreamAbort(ptr)
stream_get_id aclrtStreamGetId(ptr >i32)
synchronize_stream aclrtSynchronizeStream(ptr)
synchronize_stream_with_timeout aclrtSynchronizeStreamWithTimeout(ptr i32)
set_stream_failure_mode aclrtSetStreamFailureMode(ptr u64)
set_stream_overflow_switch aclrtSetStreamOverflowSwitch(ptr u32)
get_stream_overflow_switch aclrtGetStreamOverflowSwitch(ptr >u32)
synchronize_device aclrtSynchronizeDevice()
synchronize_device_with_timeout aclrtSynchronizeDeviceWithTimeout(i32)
create_event aclrtCreateEvent(>ptr)
create_event_with_flag aclrtCreateEventWithFlag(>ptr u32)
create_event_ex_with_flag aclrtCreateEventExWithFlag(>ptr u32)
destroy_event aclrtDestroyEvent(ptr)
record_event aclrtRecordEvent(ptr ptr)
reset_event aclrtResetEvent(ptr ptr)
stream_wait_event aclrtStreamWaitEvent(ptr ptr)
query_event aclrtQueryEvent(ptr >i32)
query_event_status aclrtQueryEventStatus(ptr >i32)
query_event_wait_status aclrtQueryEventWaitStatus(ptr >i32)
synchronize_event aclrtSynchronizeEvent(ptr)
synchronize_event_with_timeout aclrtSynchronizeEventWithTimeout(ptr i32)
event_elapsed_time aclrtEventElapsedTime(>f32 ptr ptr)
event_get_timestamp aclrtEventGetTimestamp(ptr >u64)
set_op_wait_timeout aclrtSetOpWaitTimeout(u32)
set_op_execute_time_out aclrtSetOpExecuteTimeOut(u32)
malloc aclrtMalloc(>ptr size i32)
malloc_align32 aclrtMallocAlign32(>ptr size i32)
malloc_cached aclrtMallocCached(>ptr size i32)
free aclrtFree(ptr)
malloc_host aclrtMallocHost(>ptr size)
free_host aclrtFreeHost(ptr)
memcpy aclrtMemcpy(ptr size ptr size i32)
memcpy_async aclrtMemcpyAsync(ptr size ptr size i32 ptr)
memcpy_async_with_condition aclrtMemcpyAsyncWithCondition(ptr size ptr size i32 ptr)
memcpy2d aclrtMemcpy2d(ptr size ptr size size size i32)
memcpy2d_async aclrtMemcpy2dAsync(ptr size ptr size size size i32 ptr)
memset aclrtMemset(ptr size i32 size)
memset_async aclrtMemsetAsync(ptr size i32 size ptr)
get_mem_info aclrtGetMemInfo(i32 >size >size)
reserve_mem_address aclrtReserveMemAddress(>ptr size size ptr u64)
release_mem_address aclrtReleaseMemAddress(ptr)
malloc_physical aclrtMallocPhysical(>ptr size &physical u64)
free_physical aclrtFreePhysical(ptr)
map_mem aclrtMapMem(ptr size size ptr u64)
unmap_mem aclrtUnmapMem(ptr)
mem_get_allocation_granularity aclrtMemGetAllocationGranularity(&physical i32 >size)
mem_export_to_shareable_handle aclrtMemExportToShareableHandle(ptr i32 u64 >u64)
mem_import_from_shareable_handle aclrtMemImportFromShareableHandle(u64 i32 >ptr)
pointer_get_attributes aclrtPointerGetAttributes(ptr >attributes)
host_register aclrtHostRegister(ptr u64 i32 >ptr)
host_unregister aclrtHostUnregister(ptr)
cmo_async aclrtCmoAsync(ptr size i32 ptr)
subscribe_report aclrtSubscribeReport(u64 ptr)
unsubscribe_report aclrtUnSubscribeReport(u64 ptr)
process_report aclrtProcessReport(i32)
peek_at_last_error aclrtPeekAtLastError(i32)
get_last_error aclrtGetLastError(i32)
get_thread_last_task_id aclrtGetThreadLastTaskId(>u32)
"""


def _as_python(value: Any) -> Any:
    """What pyACL gives for a C value: bytes are str, structs dicts, arrays lists, NULL is 0."""
    if isinstance(value, ctypes._SimpleCData):
        value = 0 if value.value is None else value.value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, ctypes.Structure):
        return {field[0]: _as_python(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, ctypes.Array):
        return list(value)
    return value


def _as_struct(kind: Any, fields: dict[str, Any]) -> Any:
    """A C struct from pyACL's dict; what is not named is 0."""
    struct = kind()
    kinds = dict(kind._fields_)
    for name, value in fields.items():
        setattr(struct, name, _as_struct(kinds[name], value) if isinstance(value, dict) else value)
    return struct


def _plain(function: Any, kinds: list[Any], result: Any) -> Callable[..., Any]:
    """A function without out-parameters: the C function itself, its types set."""
    function.argtypes, function.restype = kinds, result
    if result not in (ctypes.c_char_p, ctypes.c_void_p):
        return function

    def call(*args: Any) -> Any:
        value = function(*args)
        return value or 0 if result is ctypes.c_void_p else _as_python(value)
    return call


def _with_outputs(name: str, function: Any, words: list[str]) -> Callable[..., Any]:
    """A function with out-parameters or structs: (outputs, status)."""
    kinds = [_TYPES[word.lstrip(">&")] for word in words]
    marks = [word[0] if word[0] in ">&" else "" for word in words]
    function.argtypes = [ctypes.POINTER(kind) if mark else kind for kind, mark in zip(kinds, marks)]
    function.restype = ctypes.c_int32
    given, returned = len(marks) - marks.count(">"), marks.count(">")

    def call(*args: Any) -> Any:
        if len(args) != given:
            raise TypeError(f"{name} takes {given} arguments, got {len(args)}")
        rest = iter(args)
        places = [kind() if mark == ">" else _as_struct(kind, next(rest)) if mark else next(rest)
                  for kind, mark in zip(kinds, marks)]
        status = function(*[ctypes.byref(place) if mark else place for place, mark in zip(places, marks)])
        if not returned:
            return status
        outputs = [place for place, mark in zip(places, marks) if mark == ">"]
        return (*map(_as_python, outputs), status)
    return call


def declared(find: Callable[[str], Any], table: str) -> dict[str, Callable[..., Any]]:
    """The functions of a table by pyACL's names; find gives a ctypes function, or None for one that is not there."""
    made: dict[str, Callable[..., Any]] = {}
    for line in filter(None, table.split("\n")):
        name, _, declaration = line.partition(" ")
        symbol, _, rest = declaration.partition("(")
        parameters, _, result = rest.partition(")")
        function = find(symbol)
        words = parameters.split()
        if function is None:
            continue
        if any(word[0] in ">&" for word in words):
            made[name] = _with_outputs(name, function, words)
        else:
            made[name] = _plain(function, [_TYPES[word] for word in words], _TYPES[result.strip() or "i32"])
    return made


def load(library: ctypes.CDLL) -> SimpleNamespace:
    """An object with the functions of pyACL's `acl` and `acl.rt`, over an opened libascendcl.so."""
    def find(symbol: str) -> Any:
        return getattr(library, symbol, None)

    acl = SimpleNamespace(**declared(find, _ACL), rt=SimpleNamespace(**declared(find, _RT)))
    start = library.aclInit
    start.argtypes, start.restype = [ctypes.c_char_p], ctypes.c_int32
    acl.init = lambda config_path="": start(config_path.encode() or None)
    enable = library.aclrtDeviceEnablePeerAccess
    enable.argtypes, enable.restype = [ctypes.c_int32, ctypes.c_uint32], ctypes.c_int32
    acl.rt.device_enable_peer_access = lambda peer, flags=0: enable(peer, flags)
    acl.util = SimpleNamespace(ptr_to_bytes=ctypes.string_at)
    return acl
