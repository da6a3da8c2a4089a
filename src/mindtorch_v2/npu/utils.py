"""torch.npu.utils: names of torch.npu where torch_npu has them too. Nothing is defined here."""
# ruff: noqa: F401
from mindtorch_v2.npu.devices import (
    current_blas_handle,
    current_device,
    device,
    device_of,
    is_bf16_supported,
    set_device,
    set_op_timeout_ms,
    synchronize,
)
from mindtorch_v2.npu.memory import check_uce_in_memory
from mindtorch_v2.npu.settings import (
    _is_gte_cann_version,
    clear_npu_overflow_flag,
    finalize_dump,
    get_cann_version,
    get_npu_overflow_flag,
    get_sync_debug_mode,
    get_task_queue_enable,
    init_dump,
    ipc_collect,
    is_support_inf_nan,
    npu_check_overflow,
    set_dump,
    set_sync_debug_mode,
    set_task_queue_enable,
)
from mindtorch_v2.npu.streams import StreamContext, current_stream, default_stream, set_stream, stream
