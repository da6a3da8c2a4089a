"""torch.autocast and what belongs to it: its state, custom_fwd and custom_bwd for autograd functions."""
from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C, _named
from mindtorch_v2._backends.npu import errors, runtime
from mindtorch_v2._tensor import Tensor

_DTYPES = {"cpu": ("bfloat16", "float16"), "npu": ("float16", "bfloat16")}
_ABSENT = ("cuda", "xpu", "mps", "hpu", "xla", "mtia", "ipu", "maia")   # torch's types that this library has not


def _dtypes_of(device_type: str) -> tuple[str, ...] | None:
    """The dtypes that autocast computes in on a device type, None where it knows no such type. A backend from outside is
    served as the npu is."""
    if device_type == _C._get_privateuse1_backend_name() and _C._registered_backend(device_type).ready:
        return _DTYPES["npu"]
    return _DTYPES.get(device_type)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows a device type."""
    return _dtypes_of(device_type) is not None


def _has_npu() -> bool:
    try:
        return runtime.device_count() > 0
    except errors.CannNotFoundError:
        return False


# ---- the state of the running thread ------------------------------------------------------------------------------
def is_autocast_enabled(device_type: str = "npu") -> bool:
    """Whether autocast is on for a device type."""
    return device_type not in _ABSENT and _C._autocast_state(device_type)[0]


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches autocast of a device type; with a bool alone, of npus."""
    kind, on = ("npu", device_type) if enabled is None else (device_type, enabled)
    _C._set_autocast(kind, bool(on), None)


def get_autocast_dtype(device_type: str) -> Any:
    """The dtype that autocast computes in on a device type."""
    return _C._dtype_named("float16") if device_type in _ABSENT else _C._autocast_state(device_type)[1]


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the dtype that autocast computes in on a device type."""
    _C._set_autocast(device_type, None, dtype)


def _check_dtype(device_type: str, dtype: Any) -> bool:
    """Whether autocast can compute in a dtype; a warning where it cannot."""
    supported = [_C._dtype_named(name) for name in _dtypes_of(device_type) or ()]
    if dtype in supported:
        return True
    kind = device_type.upper()
    names = ", ".join(str(known).replace("mindtorch_v2", "torch") for known in supported)
    warnings.warn(f"In {kind} autocast, but the target dtype is not supported. Disabling autocast.\n{kind} Autocast "
                  f"only supports dtypes of {names} currently.", stacklevel=4)
    return False


class autocast:
    """A with block, or a decorator, in which ops of a device type run in lower precision where that is safe."""

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True,
                 cache_enabled: bool | None = None) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if _dtypes_of(device_type) is None and device_type not in _ABSENT:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = _C._is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        if enabled and (device_type in _ABSENT or device_type == "npu" and not _has_npu()):
            or_else = " or torch_xla is imported" if device_type == "cuda" else ""   # torch's words
            warnings.warn(f"{device_type.upper()} is not available{or_else}. Disabling autocast.", stacklevel=2)
            enabled = False
        self._enabled = bool(enabled) and _check_dtype(device_type, self.fast_dtype)
        self._before: list[tuple[bool, Any, bool]] = []

    def __enter__(self) -> autocast:
        if _dtypes_of(self.device) is not None:
            self._before.append((*_C._autocast_state(self.device), _C._is_autocast_cache_enabled()))
            _C._set_autocast(self.device, self._enabled, self.fast_dtype)
            _C._set_autocast_cache_enabled(self._cache_enabled)
        _C._autocast_nesting(1)
        return self

    def __exit__(self, *exc: Any) -> None:
        if _C._autocast_nesting(-1) == 0:
            _C._clear_autocast_cache()
        if self._before:
            enabled, dtype, cache_enabled = self._before.pop()
            _C._set_autocast(self.device, enabled, dtype)
            _C._set_autocast_cache_enabled(cache_enabled)

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)
        return decorated


# ---- functions with a backward of their own -----------------------------------------------------------------------
def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """The floating-point tensors of a device type in a dtype, in containers too; float64 stays."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type
        return value.to(dtype) if eligible and value.dtype is not _C._dtype_named("float64") else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        cast = [_cast(item, device_type, dtype) for item in value]
        return type(value)(*cast) if hasattr(value, "_fields") else type(value)(cast)
    return value


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """For the forward of an autograd.Function: custom_bwd gives its backward the same autocast state. With cast_inputs
    the function gets its tensors in that dtype, and runs without autocast."""
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        args[0]._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))
    return decorated


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Any:
    """For the backward of an autograd.Function whose forward has custom_fwd."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)
    return decorated


# The rest of what stands in torch itself, partly from before there was one function for all device types.
is_autocast_cache_enabled, set_autocast_cache_enabled = _C._is_autocast_cache_enabled, _C._set_autocast_cache_enabled
clear_autocast_cache = _C._clear_autocast_cache
autocast_increment_nesting = functools.partial(_C._autocast_nesting, 1)
autocast_decrement_nesting = functools.partial(_C._autocast_nesting, -1)
is_autocast_cpu_enabled = functools.partial(is_autocast_enabled, "cpu")
set_autocast_cpu_enabled = functools.partial(set_autocast_enabled, "cpu")
get_autocast_cpu_dtype = functools.partial(get_autocast_dtype, "cpu")
set_autocast_cpu_dtype = functools.partial(set_autocast_dtype, "cpu")
get_autocast_gpu_dtype = functools.partial(get_autocast_dtype, "npu")
set_autocast_gpu_dtype = functools.partial(set_autocast_dtype, "npu")

_named.complete(__name__)
