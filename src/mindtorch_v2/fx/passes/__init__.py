"""Passes over graphs: shapes, splitting, drawing, partitions. Each is loaded at its first use: torch.fx itself needs one."""
import mindtorch_v2 as torch

torch._deferred.defer(__name__, {name: f"fx.passes.{name}" for name in (
    "dialect", "fake_tensor_prop", "graph_drawer", "graph_manipulation", "infra", "operator_support", "param_fetch", "pass_manager",
    "shape_prop", "split_module", "split_utils", "tools_common", "utils")})
_WHY = "this pass over graphs is not offered"
for _name, _classes, _functions in (
        ("net_min_base", "_MinimizerBase _MinimizerSettingBase FxNetMinimizerBadModuleError FxNetMinimizerResultMismatchError "
         "FxNetMinimizerRunFuncError", ""),
        ("splitter_base", "_SplitterBase _SplitterSettingBase FxNetAccNodesFinder FxNetSplitterInternalError SplitResult Subgraph "
         "NodeEvent NodeEventTracker", "generate_inputs_for_submodules"),
        ("reinplace", "", "reinplace"), ("runtime_assert", "", "insert_deferred_runtime_asserts"),
        ("graph_transform_observer", "GraphTransformObserver", ""), ("_tensorify_python_scalars", "", "tensorify_python_scalars"),
        ("regional_inductor", "", "regional_inductor")):
    globals()[_name] = torch._facade.module(
        __name__, _name, f"Refuses: {_WHY}.", **torch._facade.absents(_classes, _WHY, f"torch.fx.passes.{_name}."),
        **torch._facade.refusals(_functions, _WHY, f"torch.fx.passes.{_name}."))
del torch
