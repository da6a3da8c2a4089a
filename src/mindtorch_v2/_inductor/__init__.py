"""torch._inductor: PyTorch's compiler backend, which is not here. Its settings are kept, whatever compiles refuses."""
from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import mindtorch_v2 as torch

_facade = torch._facade
_WHY = "mindtorch_v2 compiles nothing: every op runs when it is called"
config: Any = _facade.settings(__name__, "config", "Settings of the compiler: stored, and not read.",
                          cpp_wrapper=False, compile_threads=1, fallback_random=False, size_asserts=False, freezing=False,
                          max_autotune=False, triton=_facade.settings(__name__, "triton_config", "Settings of Triton."))
GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]
utils: Any = _facade.module(__name__, "utils", "Which devices the compiler would serve beside the CPU.",
                            GPU_TYPES=GPU_TYPES, OrderedSet=torch.utils._ordered_set.OrderedSet,
                            get_gpu_type=lambda: "cuda", is_big_gpu=lambda *x: False,
                            is_gpu=lambda device: device in GPU_TYPES,
                            maybe_profile=lambda should_profile, *args, **kwargs: nullcontext(),
                            **_facade.refusals("get_gpu_shared_memory run_and_get_code run_and_get_triton_code fresh_cache "
                                               "fresh_inductor_cache run_and_get_cpp_code", _WHY, "torch._inductor.utils."))
exc: Any = _facade.module(__name__, "exc", "What compiling would raise.",
                          InvalidCxxCompiler=type("InvalidCxxCompiler", (RuntimeError,), {}),
                          CppCompileError=type("CppCompileError", (RuntimeError,), {}))


class CppCodeCache:
    """Where compiled programs would be kept."""

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuses, in the way of a host without a compiler: programs ask by it whether they can compile."""
        raise exc.InvalidCxxCompiler(f"[torch._inductor.codecache.CppCodeCache] {_WHY}")


async_compile: Any = _facade.module(__name__, "async_compile", "Compilers in other processes: none.",
                                    **_facade.absents("AsyncCompile", _WHY, "torch._inductor.async_compile."))
codecache: Any = _facade.module(__name__, "codecache", "Where compiled programs would be kept.", CppCodeCache=CppCodeCache)
codegen: Any = _facade.module(__name__, "codegen", "What would write programs.")
codegen.common = _facade.module(
    codegen.__name__, "common", "Which devices programs could be written for: none.", **_facade.refusals(
        "get_custom_backend_config_for_device get_custom_backend_pass_for_device get_scheduling_for_device "
        "get_wrapper_codegen_for_device init_backend_registration register_backend_for_device", _WHY,
        "torch._inductor.codegen.common."))
codegen.wrapper = _facade.module(codegen.__name__, "wrapper", "What would call compiled programs.",
                                 **_facade.absents("PythonWrapperCodegen", _WHY, "torch._inductor.codegen.wrapper."))
compile_fx: Any = _facade.module(__name__, "compile_fx", "The compiler of graphs.", **_facade.refusals(
    "compile_fx compile_fx_inner shape_env_from_inputs", _WHY, "torch._inductor.compile_fx."))
custom_graph_pass: Any = _facade.module(__name__, "custom_graph_pass", "Passes over graphs that are compiled.", **_facade.absents(
    "CustomGraphModulePass CustomGraphPass", _WHY, "torch._inductor.custom_graph_pass."))
graph: Any = _facade.module(__name__, "graph", "Graphs on their way to a program.",
                            **_facade.absents("GraphLowering", _WHY, "torch._inductor.graph."))
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


test_case: Any = _facade.module(__name__, "test_case", "The base class of tests: torch.testing._internal's.")
torch._deferred.defer(test_case.__name__, dict.fromkeys(("TestCase", "run_tests"), "testing._internal.common_utils"))
torch._named.complete(codecache.__name__, utils.__name__, exc.__name__)
