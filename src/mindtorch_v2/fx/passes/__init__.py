"""Passes over graphs: shapes, splitting, drawing, partitions. Each is loaded at its first use: torch.fx itself needs one."""
import mindtorch_v2 as torch

torch._deferred.defer(__name__, {name: f"fx.passes.{name}" for name in (
    "dialect", "fake_tensor_prop", "graph_drawer", "graph_manipulation", "infra", "operator_support", "param_fetch", "pass_manager",
    "shape_prop", "split_module", "split_utils", "tools_common", "utils")})
del torch
