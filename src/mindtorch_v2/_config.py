"""Settings of the whole process, each with a sentence; read here and nowhere else."""
from __future__ import annotations

import os
import re
import warnings
from typing import Any

from mindtorch_v2 import _C

_deterministic, _warn_only = False, False       # use_deterministic_algorithms; the kernels here always are
_fills_memory = True                            # torch.utils.deterministic.fill_uninitialized_memory
_matmul_precision = "highest"                   # float32 products are always computed in float32
_warn_always = False                            # warnings of the library are given every time
allow_internal_format = False                   # torch.npu.config: tensors stay in the plain format, whatever is permitted
# What torch.backends.cuda permits of attention; on the cpu the first and the third are there to choose from.
attention_ways = dict.fromkeys(("flash_sdp", "mem_efficient_sdp", "math_sdp", "cudnn_sdp", "overrideable_sdp"), True)
_interop_threads = 1                            # there is one pool of threads, whatever is set


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for reproducible kernels. All kernels here are, so what changes is what torch promises beside: memory that is not
    set is filled, and the few ops that torch refuses on a CPU are refused."""
    global _deterministic, _warn_only
    if not isinstance(mode, bool):
        raise TypeError("_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not "
                        f"{type(mode).__name__}")
    if not isinstance(warn_only, bool):
        raise TypeError("_set_deterministic_algorithms(): argument 'warn_only' must be bool, not "
                        f"{type(warn_only).__name__}")
    _deterministic, _warn_only = mode, mode and bool(warn_only)
    _C._set_fills_memory(_deterministic and _fills_memory)


def set_fills_memory(mode: bool) -> None:
    """Whether memory that is not set is filled while deterministic algorithms are asked for."""
    global _fills_memory
    _fills_memory = mode
    _C._set_fills_memory(_deterministic and _fills_memory)


def fills_memory() -> bool:
    """What set_fills_memory was given."""
    return _fills_memory


def alert_not_deterministic(caller: str) -> None:
    """What torch says of an op whose result depends on the order of writes, where deterministic algorithms are asked for."""
    if not _deterministic:
        return
    text = f"{caller} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    if _warn_only:
        warnings.warn(f"{text}, warn_only=True)'. You can file an issue at https://github.com/pytorch/pytorch/issues to help us "
                      "prioritize adding deterministic support for this operation.", stacklevel=3)
    else:
        raise RuntimeError(f"{text})'. You can turn off determinism just for this operation, or you can use the 'warn_only=True' "
                           "option, if that's acceptable for your application. You can also file an issue at "
                           "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for "
                           "this operation.")


def are_deterministic_algorithms_enabled() -> bool:
    """Whether use_deterministic_algorithms(True) is in force."""
    return _deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it is in force with warn_only."""
    return _warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0/"default", 1/"warn" or 2/"error"."""
    words = {"default": 0, "warn": 1, "error": 2}
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    level = words.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        expected = "one of `default`, `warn`, `error`" if isinstance(debug_mode, str) else "0, 1, or 2"
        raise RuntimeError(f"invalid value of debug_mode, expected {expected}, but got {debug_mode}")
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2."""
    return 0 if not _deterministic else 1 if _warn_only else 2


def set_float32_matmul_precision(precision: str) -> None:
    """Allows less exact float32 products ("high", "medium"); here they are always exact."""
    global _matmul_precision
    if precision in ("highest", "high", "medium"):
        _matmul_precision = precision
    else:
        warnings.warn(f"{precision} is not one of 'highest', 'high', or 'medium'; the current setting "
                      f"{_matmul_precision!r} stays", stacklevel=2)


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision was given."""
    return _matmul_precision


_warned: set[str] = set()


def warn_once(text: str, stacklevel: int = 3, kind: str = "") -> None:
    """A warning that a process sees once, as torch gives its own; every time after set_warn_always(True). kind: of texts of
    which a process sees one."""
    if (kind or text) not in _warned or _warn_always:
        _warned.add(kind or text)
        warnings.warn(text, stacklevel=stacklevel)


def set_warn_always(b: bool) -> None:
    """Whether warnings are given every time or once."""
    global _warn_always
    _warn_always = bool(b)
    _C._core._set_warn_always(_warn_always)
    if _warn_always:
        warnings.filterwarnings("always", module=__package__)


def is_warn_always_enabled() -> bool:
    """What set_warn_always was given."""
    return _warn_always


def set_num_interop_threads(n: int) -> None:
    """Kept for callers: ops run one after another here."""
    global _interop_threads
    if n <= 0:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop_threads = int(n)


def get_num_interop_threads() -> int:
    """What set_num_interop_threads was given."""
    return _interop_threads


def set_flush_denormal(mode: bool) -> bool:
    """False: this library does not flush denormal numbers to zero."""
    return False


def ascend_homes() -> dict[str, str]:
    """Where the user says that CANN is: the variables that CANN's own set_env.sh sets; "" where one is not set."""
    return {name: os.environ.get(name, "") for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")}


def user_home() -> str:
    """HOME: below it CANN may be, in ~/Ascend; "" where it is not set."""
    return os.environ.get("HOME", "")


def launch_blocking() -> bool:
    """ACL_LAUNCH_BLOCKING=1, or torch_npu's ASCEND_LAUNCH_BLOCKING=1: every op on an npu is waited for where it is."""
    return "1" in (os.environ.get("ACL_LAUNCH_BLOCKING"), os.environ.get("ASCEND_LAUNCH_BLOCKING"))


def launch_blocking_source() -> tuple[dict[bytes, bytes], tuple[bytes, ...]]:
    """The environment and the names in it, as launch_blocking() reads them, for the launcher: it looks before every op,
    where a call of Python would be too slow."""
    return os.environ._data, (b"ACL_LAUNCH_BLOCKING", b"ASCEND_LAUNCH_BLOCKING")   # type: ignore[attr-defined]


def launch_lines() -> bool:
    """MINDTORCH_LAUNCH_LINES=1: every launch on an npu keeps the line of Python that it came from, for the message about a
    fault that is noticed later."""
    return os.environ.get("MINDTORCH_LAUNCH_LINES") == "1"


def allow_writable_cann() -> bool:
    """MINDTORCH_ALLOW_WRITABLE_CANN=1: CANN is loaded although others than root and this user can change its files."""
    return os.environ.get("MINDTORCH_ALLOW_WRITABLE_CANN") == "1"


def npu_alloc_conf() -> str:
    """PYTORCH_NPU_ALLOC_CONF, or PYTORCH_ALLOC_CONF: settings of the npu allocator; "" where neither is set."""
    found = [os.environ[name] for name in ("PYTORCH_NPU_ALLOC_CONF", "PYTORCH_ALLOC_CONF") if name in os.environ]
    if len(found) > 1:
        raise RuntimeError("PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF are both set: keep one of them")
    return found[0] if found else ""


def npu_visible_devices() -> list[int] | None:
    """ASCEND_RT_VISIBLE_DEVICES: the devices that CANN leaves, as the host numbers them; None: all. Read by CANN itself."""
    text = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
    return None if text is None else [int(number) for number in re.findall(r"\d+", text)]


def npu_memory_caching() -> bool:
    """False with PYTORCH_NO_NPU_MEMORY_CACHING=1: freed memory of an npu is returned at once, as memory checkers need."""
    return os.environ.get("PYTORCH_NO_NPU_MEMORY_CACHING") != "1"


def npu_oom_snapshot() -> tuple[str | None, str]:
    """OOM_SNAPSHOT_ENABLE and OOM_SNAPSHOT_PATH: what is recorded, "all" (1) or "state" (2), for a file that is written
    where an npu has no memory left, and that file's folder; None: there is no such file."""
    mode = os.environ.get("OOM_SNAPSHOT_ENABLE", "0")
    return {"0": None, "2": "state"}.get(mode, "all"), os.environ.get("OOM_SNAPSHOT_PATH") or "."


def mpi_library() -> str:
    """MINDTORCH_MPI_LIBRARY: the MPI library of torch.distributed, where it is not the one of the mpich package."""
    return os.environ.get("MINDTORCH_MPI_LIBRARY", "")


def hccl_blocking_wait() -> bool:
    """HCCL_BLOCKING_WAIT=1: Work.wait() of npu tensors blocks the host, so that a failure is raised where it happened."""
    return os.environ.get("HCCL_BLOCKING_WAIT", "0") == "1"


def weights_only(asked: bool | None, default: bool) -> bool:
    """How torch.load reads: TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 trusts no file whatever the call says,
    TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 trusts every file where the call says nothing."""
    names = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    restrict, trust = (os.environ.get(name, "0").lower() in ("1", "y", "yes", "true") for name in names)
    if restrict and trust:
        raise RuntimeError(f"Only one of `{names[0]}` or `{names[1]}` should be set, but both were set.")
    if trust and asked is None:
        warnings.warn(f"Environment variable {names[1]} detected, since the`weights_only` argument was not explicitly "
                      "passed to `torch.load`, forcing weights_only=False.", UserWarning, stacklevel=3)
        return False
    return restrict or (default if asked is None else bool(asked))


settings: dict[str, Any] = {function.__name__: function for function in (
    use_deterministic_algorithms, are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled, set_deterministic_debug_mode, get_deterministic_debug_mode,
    set_float32_matmul_precision, get_float32_matmul_precision, set_warn_always, is_warn_always_enabled,
    set_num_interop_threads, get_num_interop_threads, set_flush_denormal)}
