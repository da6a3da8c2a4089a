"""The compiled core and its kernel library; `_nn` holds the ops that torch keeps in torch._C._nn."""
import importlib.util
import os
import sys
import types

from mindtorch_v2._C import _core
from mindtorch_v2._C._core import *  # noqa: F403
from mindtorch_v2._C._core import (  # noqa: F401
    _adam_step,
    _adopt,
    _alias_device,
    _alias_of,
    _array_view,
    _autocast_nesting,
    _autocast_state,
    _backend,
    _bf16_unit,
    _call_bound,
    _call_recorded,
    _check_apart,
    _check_mixed,
    _check_normalized,
    _clear_autocast_cache,
    _close_level,
    _cpp_name,
    _cpu_empty_cache,
    _cpu_memory_limit,
    _cpu_memory_stats,
    _current_autograd_node,
    _current_graph_task_id,
    _current_run,
    _data_address,
    _default_generator,
    _define,
    _define_inplace,
    _disabled_torch_function_impl,
    _dispatch_mode_stack,
    _dtype_named,
    _fixed_slots,
    _forbid_saved_hooks,
    _from_array,
    _from_data,
    _from_dlpack,
    _get_privateuse1_backend_name,
    _has_cpu_kernel,
    _has_kernel,
    _has_storage,
    _has_tangents,
    _hccl_bind,
    _in_level,
    _in_transform,
    _is_anomaly,
    _is_anomaly_nan,
    _is_autocast_cache_enabled,
    _is_cow_tensor,
    _is_function_off,
    _is_grad_enabled,
    _is_inference_mode,
    _level_count,
    _make_wrapper,
    _many_views,
    _method_of,
    _named_constant,
    _named_results,
    _npu_aclnn_available,
    _npu_aclnn_symbols_ok,
    _npu_bind,
    _npu_call,
    _npu_call_dynamic,
    _npu_current_device,
    _npu_current_stream,
    _npu_default_generator,
    _npu_end_lifetime,
    _npu_is_blocking,
    _npu_is_bound,
    _npu_keep_launch_lines,
    _npu_last_launches,
    _npu_manual_seed_all,
    _npu_pause_blocking,
    _npu_prepared_count,
    _npu_rng_states,
    _npu_set_blocking,
    _npu_set_bound,
    _npu_set_current_device,
    _npu_set_current_stream,
    _npu_set_default_stream,
    _npu_set_rng_states,
    _npu_unbind,
    _op_named,
    _op_packet,
    _open_level,
    _pop_dispatch_mode,
    _pop_function_mode,
    _pop_saved_hooks,
    _pop_transform,
    _push_dispatch_mode,
    _push_function_mode,
    _push_saved_hooks,
    _push_transform,
    _queue_callback,
    _refuse_backward,
    _register_backend,
    _register_class,
    _registered_backend,
    _rename_package,
    _rename_privateuse1_backend,
    _rename_type,
    _run_backward,
    _run_kernel,
    _said_type,
    _served_by,
    _set_acl_dtypes,
    _set_anomaly,
    _set_autocast,
    _set_autocast_cache_enabled,
    _set_fills_memory,
    _set_function_off,
    _set_grad_enabled,
    _set_hccl_dtypes,
    _set_inference_mode,
    _set_kernel,
    _set_tangent,
    _sgd_step,
    _storage_address,
    _suggested_format,
    _take_wrapper,
    _tangent,
    _to,
    _to_dlpack,
    _transforms,
    _will_engine_execute_node,
    _will_run,
)

_kernel_level: str = _core._load_kernels(os.path.dirname(os.path.abspath(__file__)))
_nn = sys.modules[f"{__name__}._nn"] = types.ModuleType(f"{__name__}._nn", "Ops of layers.")


def _get_cpu_capability() -> str:
    """The instruction set of the kernels in use, by PyTorch's names."""
    return "DEFAULT" if _kernel_level == "base" else _kernel_level.upper()


def _blas_file() -> str | None:
    """The BLAS library of the scipy-openblas32 package, found without importing the package."""
    spec = importlib.util.find_spec("scipy_openblas32")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = os.path.join(folder, "lib", "libscipy_openblas.so")
        if os.path.exists(file):
            return file
    return None


_file = _blas_file()
if _file:
    _core._set_blas_path(_file)
