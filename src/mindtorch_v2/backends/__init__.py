"""torch.backends: the other libraries that PyTorch may use; none is used here, and each reports that."""
from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from mindtorch_v2 import _config, _facade
from mindtorch_v2._C import _get_cpu_capability


class _Flags:
    """A with block that sets flags of a backend and sets them back."""

    def __init__(self, module: Any, given: dict[str, Any]) -> None:
        self.module, self.given = module, given

    def __enter__(self) -> None:
        self.before = {name: getattr(self.module, name) for name in self.given if hasattr(self.module, name)}
        for name, value in self.given.items():
            setattr(self.module, name, value)

    def __exit__(self, *exc: Any) -> None:
        for name, value in self.before.items():
            setattr(self.module, name, value)

    def __call__(self, function: Any) -> Any:
        """The function inside such a block."""
        @functools.wraps(function)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with _Flags(self.module, self.given):
                return function(*args, **kwargs)
        return decorated


class _Matmul:
    """torch.backends.cuda.matmul: the flags are kept and change nothing."""
    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


class _Precision:
    """How float32 may be rounded in one kind of op of a backend: kept, and changes nothing."""

    def __init__(self, words: str, value: str = "none") -> None:
        self._words, self._value = words.split(), value

    @property
    def fp32_precision(self) -> str:
        """none, or what was set."""
        return self._value

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in self._words:
            raise RuntimeError(f"Unknown precision: {value}")
        self._value = value


class _Plans:
    """torch.backends.cuda.cufft_plan_cache: empty."""
    size, max_size = 0, 0

    def clear(self) -> None:
        pass


def _switch(module: Any, name: str) -> None:
    """The functions enable_X and X_enabled over what is permitted of attention."""
    ways = _config.attention_ways
    setattr(module, f"{name}_enabled", lambda: ways[name])
    setattr(module, f"enable_{name}", lambda enabled: ways.__setitem__(name, bool(enabled)))


def _module(name: str, doc: str, available: bool = False, **contents: Any) -> types.ModuleType:
    """A backend's module: is_available, a `flags` block, and its own settings."""
    made = _facade.module(__name__, name, doc)
    made.is_available = lambda: available
    made.flags = lambda **given: _Flags(made, given)
    made.__dict__.update(contents)
    return made


def _set_cudnn_flags(**given: Any) -> None:
    for name, value in given.items():
        setattr(cudnn, name[1:], value)


cudnn: Any = _module("cudnn", "cuDNN: absent.", enabled=True, benchmark=False, deterministic=False, allow_tf32=True,
                     benchmark_limit=10, conv=_Precision("ieee tf32 none", "tf32"), rnn=_Precision("ieee tf32 none", "tf32"),
                     version=lambda: None, is_acceptable=lambda tensor: False,
                     set_flags=_set_cudnn_flags)
cuda: Any = _module("cuda", "CUDA: absent.", matmul=_Matmul(), cufft_plan_cache=_Plans(), is_built=lambda: False,
                    preferred_linalg_library=lambda backend=None: "default",
                    preferred_blas_library=lambda backend=None: "default")
for _name in _config.attention_ways:
    _switch(cuda, _name)


@contextlib.contextmanager
def _sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
                enable_cudnn: bool = True) -> Iterator[dict[Any, Any]]:
    """A with block with those ways of attention switched on or off."""
    before = {name: getattr(cuda, f"{name}_enabled")() for name in ("flash_sdp", "math_sdp", "mem_efficient_sdp", "cudnn_sdp")}
    for name, enabled in zip(before, (enable_flash, enable_math, enable_mem_efficient, enable_cudnn)):
        getattr(cuda, f"enable_{name}")(enabled)
    try:
        yield {}
    finally:
        for name, enabled in before.items():
            getattr(cuda, f"enable_{name}")(enabled)


cuda.sdp_kernel = _sdp_kernel
for _name in ("flash_attention", "efficient_attention", "cudnn_attention"):
    setattr(cuda, f"can_use_{_name}", lambda params, debug=False: False)
cuda.is_flash_attention_available = cuda.is_ck_sdpa_available = lambda: False


class _SDPAParams:
    """The arguments of an attention, of which the functions above say that no kernel of CUDA serves them."""

    def __init__(self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool, enable_gqa: bool) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


cuda.SDPAParams = _SDPAParams
mkl: Any = _module("mkl", "MKL: absent.", VERBOSE_OFF=0, VERBOSE_ON=1)
mkldnn: Any = _module("mkldnn", "oneDNN: absent.", enabled=True, VERBOSE_OFF=0, VERBOSE_ON=1,
                      matmul=_Precision("ieee tf32 bf16 none"), conv=_Precision("ieee tf32 bf16 none"),
                      rnn=_Precision("ieee tf32 bf16 none"),
                      is_acl_available=lambda: False)
openmp: Any = _module("openmp", "OpenMP: the kernels have their own threads.")
mps: Any = _module("mps", "Apple's Metal: absent.", is_built=lambda: False, is_macos13_or_newer=lambda minor=0: False,
                   is_macos_or_newer=lambda major, minor: False)
opt_einsum: Any = _module("opt_einsum", "opt_einsum: absent.", enabled=False, strategy=None, get_opt_einsum=lambda: None)
nnpack: Any = _module("nnpack", "NNPACK: absent.")
xnnpack: Any = _module("xnnpack", "XNNPACK: absent.", enabled=False)
quantized: Any = _module("quantized", "Quantized engines: none.", engine="none", supported_engines=["none"])
cusparselt: Any = _module("cusparselt", "cuSPARSELt: absent.", version=lambda: None)
cpu: Any = _module("cpu", "This processor.", available=True, get_cpu_capability=_get_cpu_capability)
kleidiai: Any = _module("kleidiai", "KleidiAI: absent.")
python_native: Any = _module("python_native", "Kernels in languages for GPUs: none.", all_dsls=[], available_dsls=[])
miopen: Any = _module("miopen", "MIOpen: absent.", immediate=False)
_fast_path = [True]
mha: Any = _module("mha", "Inference of attention layers: whether padding is left out, as torch's fast path does.",
                   get_fastpath_enabled=lambda: _fast_path[0],
                   set_fastpath_enabled=lambda value: _fast_path.__setitem__(0, bool(value)))
fp32_precision = "none"


def disable_global_flags() -> None:
    """Kept for callers: flags may always be set."""


def flags_frozen() -> bool:
    """False."""
    return False
