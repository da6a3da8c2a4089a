"""torch._inductor: PyTorch's compiler backend, which is not here. Its settings are kept, whatever compiles refuses."""
from __future__ import annotations

from typing import Any

from mindtorch_v2 import _facade

_WHY = "mindtorch_v2 compiles nothing: every op runs when it is called"
config: Any = _facade.settings(__name__, "config", "Settings of the compiler: stored, and not read.",
                          cpp_wrapper=False, fallback_random=False, size_asserts=False, freezing=False,
                          max_autotune=False, triton=_facade.settings(__name__, "triton_config", "Settings of Triton."))
utils: Any = _facade.module(__name__, "utils", "Which devices the compiler would serve beside the CPU.",
                       GPU_TYPES=["cuda", "mps", "xpu", "mtia"])
cpu_vec_isa: Any = _facade.module(__name__, "cpu_vec_isa", "Vector instructions that the compiler would use: none.",
                             pick_vec_isa=lambda: None, valid_vec_isa_list=list,
                             **_facade.absents("VecAMX VecISA", _WHY, "torch._inductor.cpu_vec_isa."))
globals().update(_facade.refusals("aot_compile aoti_compile_and_package aoti_load_package compile standalone_compile "
                                  "cudagraph_mark_step_begin", _WHY, "torch._inductor."))


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, object]:
    """Empty: there are no modes."""
    return {}


def list_options() -> list[str]:
    """Empty: there are no options."""
    return []
