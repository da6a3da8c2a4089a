"""Names of torch._C and torch._C._autograd that torch's own tests and packages ask for: each answers by the public API."""
from __future__ import annotations

import enum
import threading
import weakref
from types import SimpleNamespace
from typing import Any

import mindtorch_v2 as torch

_core: Any = torch._C

# ---- settings ------------------------------------------------------------------------------------------------------
_get_deterministic_algorithms = torch.are_deterministic_algorithms_enabled
_get_deterministic_algorithms_warn_only = torch.is_deterministic_algorithms_warn_only_enabled
_get_float32_matmul_precision = torch.get_float32_matmul_precision
_get_warnAlways = torch.is_warn_always_enabled
_is_autocast_available = torch.amp.is_autocast_available
_set_warnAlways = torch.set_warn_always


def _set_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    torch.use_deterministic_algorithms(mode, warn_only=warn_only)



def _get_deterministic_fill_uninitialized_memory() -> bool:
    setting: Any = torch.utils.deterministic
    return setting.fill_uninitialized_memory


def _get_cudnn_enabled() -> bool:
    return torch.backends.cudnn.enabled


def _get_mkldnn_enabled() -> bool:
    return torch.backends.mkldnn.enabled


def _get_flash_sdp_enabled() -> bool:
    return torch.backends.cuda.flash_sdp_enabled()


def _get_math_sdp_enabled() -> bool:
    return torch.backends.cuda.math_sdp_enabled()


def _get_mem_efficient_sdp_enabled() -> bool:
    return torch.backends.cuda.mem_efficient_sdp_enabled()


def _get_cudnn_sdp_enabled() -> bool:
    return torch.backends.cuda.cudnn_sdp_enabled()


def _get_overrideable_sdp_enabled() -> bool:
    return torch.backends.cuda.overrideable_sdp_enabled()


_set_sdp_use_flash, _set_sdp_use_math = torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.enable_math_sdp
_set_sdp_use_mem_efficient, _set_sdp_use_cudnn = torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.enable_cudnn_sdp
_set_sdp_use_overrideable = torch.backends.cuda.enable_overrideable_sdp


def _get_cublas_allow_tf32() -> bool:
    return torch.backends.cuda.matmul.allow_tf32


def _get_default_device() -> str:
    return torch.get_default_device().type


def _autocast_supported_devices() -> list[str]:
    return [name for name in ("cpu", "npu") if torch.amp.is_autocast_available(name)]


def _is_any_autocast_enabled() -> bool:
    return any(torch.is_autocast_enabled(name) for name in _autocast_supported_devices())


def _get_thread_name() -> str:
    return threading.current_thread().name


_has_cuda = _has_cudnn = _has_mps = _has_xpu = _has_magma = False


# ---- tensors -------------------------------------------------------------------------------------------------------
Generator, Size, Future = torch.Generator, torch.Size, torch.futures.Future
_OTHER_FUNCTIONS = """as_tensor asarray can_cast frombuffer from_file from_numpy get_default_dtype get_device gru gru_cell
is_complex is_conj is_distributed is_floating_point is_grad_enabled is_inference is_inference_mode_enabled is_neg is_nonzero
is_same_size is_signed lstm lstm_cell numel promote_types range result_type rnn_relu rnn_relu_cell rnn_tanh
rnn_tanh_cell sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
sparse_csr_tensor tensor tril_indices triu_indices vander _assert_async"""
_VariableFunctions = SimpleNamespace(
    **{name: getattr(torch, name) for name in [*torch._ops.functions, *torch._absent.FUNCTIONS, *_OTHER_FUNCTIONS.split()]},
    **{name: getattr(torch.Tensor, name) for name in "__and__ __lshift__ __or__ __rshift__ __xor__ detach_".split()},
    unique_dim=torch._ops.ops.unique_dim, is_vulkan_available=lambda: False, _nnpack_available=lambda: False,
    _to_cpu=lambda tensors: [x.cpu() for x in tensors])
_torchDeviceToDLDevice = torch._dlpack.capsule_device
_VariableFunctionsClass: Any = type("_VariableFunctionsClass", (), {**vars(_VariableFunctions), "__module__": _core.__name__})


def _to_dlpack_versioned(tensor: torch.Tensor) -> Any:
    """A capsule of DLPack 1.0 over a tensor's memory."""
    return torch._C._to_dlpack(tensor, True)


_has_torch_function_unary = torch.overrides.has_torch_function_unary
_has_torch_function_variadic = torch.overrides.has_torch_function_variadic


def _infer_size(a: Any, b: Any) -> Any:
    """The shape that two shapes broadcast to."""
    for number, given in enumerate((a, b), 1):
        if not isinstance(given, torch.Size):
            raise RuntimeError(f"expected a torch.Size as argument {number}")
    return torch.broadcast_shapes(a, b)


_TensorBase = _core.TensorBase


def _storage_id(x: torch.Tensor) -> int:
    """A number that only tensors of one storage have in common."""
    return x.untyped_storage()._cdata


def _push_on_torch_dispatch_stack(mode: Any) -> None:
    """Opens a mode."""
    _core._push_dispatch_mode(mode)


def _pop_torch_dispatch_stack(key: Any = None) -> Any:
    """Closes the innermost mode."""
    return _core._pop_dispatch_mode()


class _WeakTensorRef:
    """Whether a tensor is still there, without keeping it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"_WeakTensorRef(): expected a Tensor, got {type(tensor).__name__}")
        self._tensor = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether it is gone."""
        return self._tensor() is None


_WeakTensorRef.__module__ = _core.__name__


def _is_alias_of(a: Any, b: Any) -> bool:
    """Whether two tensors have one storage."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _increment_version(tensors: Any) -> None:
    torch.autograd.graph.increment_version(tensors)


def _get_tensor_metadata(x: Any) -> dict[str, bool]:
    """What a tensor is marked with: that it stands for its conjugate or its negative."""
    return {name: True for name, marked in dict(conj=x.is_conj(), neg=x.is_neg()).items() if marked}


def _group_tensors_by_device_and_dtype(lists: Any, with_indices: bool = False) -> dict[Any, Any]:
    """Lists of tensors of equal length, cut by the device and dtype of the first list's."""
    groups: dict[Any, Any] = {}
    for i, first in enumerate(lists[0]):
        rows, places = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for row, given in zip(rows, lists):
            if given:
                row.append(given[i])
        if with_indices:
            places.append(i)
    return groups


def _is_torch_function_enabled() -> bool:
    return not _core._is_function_off()


def _is_torch_function_mode_enabled() -> bool:
    return _core._len_torch_function_stack() > 0


# ---- forward mode, schemas -----------------------------------------------------------------------------------------
def _is_fwd_grad_enabled() -> bool:
    return torch.autograd.forward_ad._is_fwd_grad_enabled()


def _enter_dual_level() -> int:
    return torch.autograd.forward_ad.enter_dual_level()


def _exit_dual_level(level: int | None = None) -> None:
    torch.autograd.forward_ad.exit_dual_level(level=level)


def _packet(name: str) -> Any:
    """torch.ops' packet for a name such as aten::add; None where there is none."""
    space, _, op = name.partition("::")
    return getattr(getattr(torch.ops, space), op, None)


def _jit_get_schemas_for_operator(name: str) -> list[Any]:
    """The schemas of all overloads of an op, by its name with the namespace."""
    packet = _packet(name)
    return [] if packet is None else [getattr(packet, overload)._schema for overload in packet.overloads()]


def _dispatch_has_kernel(name: str) -> bool:
    """Whether there is an op of this name and overload."""
    op, _, overload = name.partition(".")
    packet = _packet(op)
    return packet is not None and (overload or "default") in packet.overloads()


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    """Whether an op has a kernel for a key; of torch's own, cpu's and meta's serve every op."""
    key = getattr(key, "name", key)
    found = torch._library.operator.operators.get(name)
    if found is not None:
        return key in found.kernels or key == "Meta" and found.fake.kernel is not None
    return _dispatch_has_kernel(name) and key in ("CPU", "Meta", "CompositeImplicitAutograd")


def _get_autograd_fallback_mode() -> str:
    return torch._library.operator.modes.fallback


def _set_autograd_fallback_mode(mode: str) -> None:
    torch._library.operator.set_autograd_fallback_mode(mode)


# ---- torch._C._autograd --------------------------------------------------------------------------------------------
class CreationMeta(enum.Enum):
    """How a view was made, where that forbids to change it in place."""
    DEFAULT, IN_CUSTOM_FUNCTION, MULTI_OUTPUT_NODE, NO_GRAD_MODE, INFERENCE_MODE = range(5)


_push_saved_tensors_default_hooks = _core._push_saved_hooks
_pop_saved_tensors_default_hooks = _core._pop_saved_hooks


def _saved_tensors_hooks_get_disabled_error_message() -> str | None:
    """What saved_tensors_hooks would raise here; None where they are allowed."""
    message = _core._forbid_saved_hooks(None)
    _core._forbid_saved_hooks(message)
    return message


def _saved_tensors_hooks_is_enabled() -> bool:
    return _saved_tensors_hooks_get_disabled_error_message() is None


def _saved_tensors_hooks_disable(message: str) -> None:
    _core._forbid_saved_hooks(message)


def _saved_tensors_hooks_enable() -> None:
    _core._forbid_saved_hooks(None)


def _top_saved_tensors_default_hooks(ignore_is_tracing: bool) -> tuple[Any, Any] | None:
    """The innermost pack and unpack hooks."""
    return _core._core._current_saved_hooks()


def _get_sequence_nr() -> int:
    """The number that the next node gets."""
    return torch.ones((), requires_grad=True).clone().grad_fn._sequence_nr() + 1


def _unsafe_set_version_counter(tensors: Any, versions: Any) -> None:
    """Sets the versions of tensors."""
    for x, version in zip((tensors,) if isinstance(tensors, torch.Tensor) else tensors,
                          (versions,) if isinstance(versions, int) else versions, strict=True):
        _core._core._set_version(x, version)


def _supported_activities() -> set[Any]:
    return torch.autograd._supported_activities()


def kineto_available() -> bool:
    """Whether the profiler is there."""
    return torch.autograd.kineto_available()


DeviceType, _profiler_enabled = torch.autograd.profiler.DeviceType, torch.autograd._profiler_enabled


# ---- the compiler of TorchScript, which is not here: its switches are off and stay so ------------------------------------
def _switch_off(enable: bool) -> bool:
    """False: what it would switch is not there."""
    return False


def _get_graph_executor_optimize(new: bool | None = None) -> bool:
    """True, as where nothing was set; a new setting has nothing to change."""
    return True


def _set_print_stack_traces_on_fatal_signal(enable: bool) -> None:
    """Kept for callers: Python's faulthandler does that."""


def _jit_can_fuse_on_cpu() -> bool:
    """False."""
    return False


_jit_can_fuse_on_gpu = _jit_texpr_fuser_enabled = _jit_nvfuser_enabled = _jit_can_fuse_on_cpu
_jit_set_profiling_mode = _jit_set_profiling_executor = _jit_override_can_fuse_on_cpu = _switch_off
_jit_override_can_fuse_on_gpu = _jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _switch_off
_jit_set_nvfuser_guard_mode = _set_math_sdp_allow_fp16_bf16_reduction = _switch_off
