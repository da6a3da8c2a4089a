"""torch.npu.npu_config: names of torch.npu where torch_npu has them too. Nothing is defined here."""
# ruff: noqa: F401
from mindtorch_v2.npu.devices import get_device_limit, set_device_limit
from mindtorch_v2.npu.settings import CubeMathType as _CubeMathType
from mindtorch_v2.npu.settings import (
    finalize_dump,
    get_mm_bmm_format_nd,
    init_dump,
    is_jit_compile_false,
    set_compile_mode,
    set_dump,
    set_mm_bmm_format_nd,
    set_option,
)
from mindtorch_v2.npu.streams import get_stream_limit, reset_stream_limit, set_stream_limit
