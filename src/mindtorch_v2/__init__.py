"""PyTorch's eager API on the CPU and on Huawei Ascend NPUs: `import mindtorch_v2 as torch`."""
from math import e, inf, nan, pi

from mindtorch_v2 import _C, _deferred
from mindtorch_v2._C import (
    AcceleratorError, OutOfMemoryError, StorageBase, can_cast, device, dtype, get_default_device, get_default_dtype,
    get_num_threads, layout, memory_format, promote_types, set_default_device, set_default_dtype, set_num_threads,
)
from mindtorch_v2._dtype import by_name as _dtypes, finfo, iinfo
from mindtorch_v2._shape import Size
from mindtorch_v2._storage import UntypedStorage
from mindtorch_v2._typed_storage import TypedStorage
from mindtorch_v2._printing import get_printoptions, set_printoptions
from mindtorch_v2 import _tensor
from mindtorch_v2._tensor import Tensor

from mindtorch_v2 import _ops, autograd
from mindtorch_v2._backends import registry as _registry
from mindtorch_v2._backends.cpu import ops as _cpu_ops
from mindtorch_v2.autograd import (
    enable_grad, inference_mode, is_anomaly_check_nan_enabled, is_anomaly_enabled, no_grad, set_grad_enabled,
)
from mindtorch_v2._construct import (
    as_tensor, asarray, from_dlpack, from_numpy, frombuffer, is_complex, is_floating_point, is_grad_enabled,
    is_inference_mode_enabled, is_storage, is_tensor, numel, result_type, tensor,
    from_file, get_device, is_conj, is_distributed, is_inference, is_neg, is_signed,
)
from mindtorch_v2 import _nested, _sparse
from mindtorch_v2 import (
    _absent, _asserts, _config, _facade, _legacy, _named, _symbolic, backends, compiler, cuda, jit, overrides, random,
    torch_version, version,
)
from mindtorch_v2._legacy import set_default_tensor_type
from mindtorch_v2.overrides import _assert
from mindtorch_v2._symbolic import (
    SymBool, SymFloat, SymInt, sym_float, sym_fresh_size, sym_int, sym_ite, sym_max, sym_min, sym_not, sym_sqrt, sym_sum,
    _sym_acos, _sym_asin, _sym_atan, _sym_cos, _sym_cosh, _sym_log2, _sym_sin, _sym_sinh, _sym_sqrt, _sym_tan, _sym_tanh,
)
from mindtorch_v2.compiler import compile
from mindtorch_v2.random import (
    Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state,
)

globals().update(_dtypes)
globals().update(_config.settings)
globals().update(_asserts.asserts)
globals().update(_legacy.tensor_types | _legacy.storage_types)
globals().update({name: _C._named_constant(name) for name in
                  ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "strided",
                   "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")})
globals().update({name: function if isinstance(function, _C.Op) else overrides._overridable(function)
                  for name, function in _ops.functions.items()})
globals().update({function.__name__: overrides._overridable(function)
                  for function in (sym_float, sym_int, sym_ite, sym_max, sym_min, sym_not, sym_sum, *_symbolic.functions)})
globals()["sym_sqrt"] = _sym_sqrt
_C._nn.__dict__.update(_ops.namespaces["nn"])
for _space in ("fft", "linalg", "special"):      # torch._C._fft.fft_fft: the names in code that torch.fx generates
    vars(_C)[f"_{_space}"] = _facade.module(_C.__name__, f"_{_space}", f"Ops of torch.{_space}.", **{
        f"{_space}_{name}": op for name, op in _ops.namespaces[_space].items()})
for _space in _absent.INNER:
    vars(getattr(_C, _space)).update({**_absent.INNER[_space], **vars(getattr(_C, _space))})
_tensor.install_methods({name: overrides._overridable(found) for name, found in _absent.METHODS.items()}
                        | _legacy.removed_methods | _ops.methods)
from mindtorch_v2 import _transforms, fft, linalg, special
from mindtorch_dropin import install
globals().update({name: overrides._overridable(found) for name, found in _absent.FUNCTIONS.items()
                  if name not in globals() and name not in _absent.SCHEMAS})
globals().update({name: found for name, found in (_absent.QSCHEMES | _absent.SCHEMAS).items() if name not in globals()})
qscheme = _absent.qscheme
globals().update(_legacy.removed)
Storage, legacy_contiguous_format = FloatStorage, contiguous_format      # noqa: F821  names of the tables above
has_lapack = has_spectral = True
has_mkl = has_openmp = False
newaxis = None
__version__: torch_version.TorchVersion = torch_version.TorchVersion(version.__version__)

# Floor 5 and the npu are loaded at their first use: `import mindtorch_v2` does not wait for them.
_DEFERRED = ("npu", "nn", "optim", "utils", "serialization", "multiprocessing", "signal", "testing", "types",
          "accelerator", "mps", "mtia", "_compile",
          "return_types", "storage", "__config__", "_dynamo", "xpu", "amp", "cpu", "distributions",
          "func", "profiler", "library", "hub", "_subclasses", "sparse", "nested", "distributed", "futures", "functional", "ao",
          "_utils", "__future__",
          "_utils_internal", "_jit_internal", "_tensor_str", "_inductor", "_refs", "_prims", "_prims_common", "_native",
          "_logging", "_vendor", "_custom_op", "_weights_only_unpickler", "_higher_order_ops", "_library",
          "masked", "quasirandom", "_custom_ops", "onnx", "_VF")
_FROM = {"GradScaler": "amp.grad_scaler", "svd_lowrank": "_lowrank", "pca_lowrank": "_lowrank", "lobpcg": "_lobpcg",
         "to_dlpack": "utils.dlpack", "_disable_dynamo": "_compile", "cond": "functional",
         "while_loop": "functional",
         "vmap": "func", "ops": "library", "Future": "futures", "ScriptModule": "_jit_internal", "ScriptObject": "_jit_internal",
         "Event": "accelerator",
         "Stream": "accelerator",
         "get_device_module": "accelerator", "_register_device_module": "accelerator",
         "load": "serialization", "save": "serialization",
         "PyTorchFileReader": "_file_records", "PyTorchFileWriter": "_file_records"}
_FROM |= dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), "_VF")
_FROM |= dict.fromkeys((
    "autocast", "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype",
    "is_autocast_cache_enabled", "set_autocast_cache_enabled", "clear_autocast_cache", "autocast_increment_nesting",
    "autocast_decrement_nesting", "is_autocast_cpu_enabled", "set_autocast_cpu_enabled", "get_autocast_cpu_dtype",
    "set_autocast_cpu_dtype", "get_autocast_gpu_dtype", "set_autocast_gpu_dtype"), "amp.autocast_mode")
_DEFERRED += ("fx", "export", "_export", "monitor", "_commands", "_functorch", "_guards", "_progress", "_decomp", "package")
_deferred.defer(__name__, {name: _FROM.get(name, name) for name in (*_DEFERRED, *_FROM)}, plain_lookup=True)
vars(cuda).update(_legacy.cuda_tensor_types)
_deferred.defer(autograd.__name__, {**dict.fromkeys(
    ("profiler", "kineto_available", "DeviceType", "ProfilerActivity", "ProfilerState", "_supported_activities",
     "_record_function_with_args_enter", "_record_function_with_args_exit"), "autograd.profiler"),
                                    **dict.fromkeys(("_check_batched", "_check_batched_forward"), "_functorch.batched_checks")})
_deferred.defer(_ops.__name__, {"npu": "_ops.npu", **dict.fromkeys(
    ("OpOverload", "OpOverloadPacket", "_OpNamespace", "_Ops", "HigherOrderOperator"), "library")}, otherwise=_named.of("_ops"))
vars(_ops)["DispatchKey"] = _absent.DispatchKey
# Names of torch's core that few programs read, by torch._C and torch._C._autograd.
_CORE_NAMES = (
    "_get_deterministic_algorithms _get_deterministic_algorithms_warn_only _get_float32_matmul_precision "
    "_get_warnAlways _is_autocast_available _get_deterministic_fill_uninitialized_memory _get_cudnn_enabled "
    "_get_mkldnn_enabled _get_flash_sdp_enabled _get_math_sdp_enabled _get_mem_efficient_sdp_enabled "
    "_get_cudnn_sdp_enabled _get_overrideable_sdp_enabled _set_sdp_use_flash _set_sdp_use_math _set_sdp_use_mem_efficient "
    "_set_sdp_use_cudnn _set_sdp_use_overrideable _get_cublas_allow_tf32 "
    "_get_default_device _autocast_supported_devices _is_any_autocast_enabled "
    "_get_thread_name _has_cuda _has_cudnn _has_mps _has_xpu _has_magma Generator Size Future _VariableFunctions "
    "_to_dlpack_versioned _torchDeviceToDLDevice "
    "_VariableFunctionsClass _has_torch_function_unary _has_torch_function_variadic _infer_size _is_alias_of _increment_version "
    "_get_tensor_metadata _group_tensors_by_device_and_dtype _is_torch_function_enabled "
    "_is_torch_function_mode_enabled _is_fwd_grad_enabled _enter_dual_level _exit_dual_level "
    "_jit_get_schemas_for_operator _dispatch_has_kernel _dispatch_has_kernel_for_dispatch_key "
    "_jit_can_fuse_on_cpu _jit_can_fuse_on_gpu _jit_texpr_fuser_enabled _jit_nvfuser_enabled _jit_set_profiling_mode "
    "_jit_set_profiling_executor _jit_override_can_fuse_on_cpu _jit_override_can_fuse_on_gpu _jit_set_texpr_fuser_enabled "
    "_jit_set_nvfuser_enabled _jit_set_nvfuser_guard_mode _set_math_sdp_allow_fp16_bf16_reduction "
    "_get_graph_executor_optimize _set_print_stack_traces_on_fatal_signal "
    "_set_deterministic_algorithms _set_warnAlways _push_on_torch_dispatch_stack _pop_torch_dispatch_stack _storage_id "
    "_WeakTensorRef _TensorBase _get_autograd_fallback_mode _set_autograd_fallback_mode")
_AUTOGRAD_NAMES = (
    "CreationMeta _push_saved_tensors_default_hooks _pop_saved_tensors_default_hooks "
    "_saved_tensors_hooks_get_disabled_error_message _saved_tensors_hooks_is_enabled "
    "_saved_tensors_hooks_disable _saved_tensors_hooks_enable _unsafe_set_version_counter _supported_activities "
    "_top_saved_tensors_default_hooks _get_sequence_nr kineto_available DeviceType "
    "_profiler_enabled")
_deferred.defer(_C.__name__, {"PyTorchFileReader": "_file_records", "PyTorchFileWriter": "_file_records",
                              "_AutoDispatchBelowAutograd": "_library.operator",
                              "_AutoDispatchBelowADInplaceOrView": "_library.operator",
                              **dict.fromkeys(("_set_worker_pids", "_remove_worker_pids", "_error_if_any_worker_fails",
                                               "_set_worker_signal_handlers"), "utils.data._utils.signal_handling"),
                              **dict.fromkeys(_CORE_NAMES.split(), "_core_names")}, plain_lookup=True, otherwise=_named.of("_C"))
_deferred.defer(_C._autograd.__name__, dict.fromkeys(_AUTOGRAD_NAMES.split(), "_core_names"), plain_lookup=True,
                otherwise=_named.of("_C._autograd"))
_deferred.defer(_C._functorch.__name__, {}, otherwise=_named.of("_C._functorch"))
_deferred.defer(_C._profiler.__name__, {}, otherwise=_named.of("_C._profiler"))


def __dir__() -> list[str]:
    return sorted({*globals(), *_DEFERRED, *_FROM})


globals()["__all__"] = sorted(_name for _name, _found in {**_FROM, **globals()}.items()
                              if not _name.startswith("_") and not isinstance(_found, type(_C)) and _name not in _DEFERRED)
