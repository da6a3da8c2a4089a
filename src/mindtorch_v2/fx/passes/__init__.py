"""Passes over graphs: shapes, splitting, drawing, partitions."""
from mindtorch_v2.fx.passes import (
    dialect,
    fake_tensor_prop,
    graph_drawer,
    graph_manipulation,
    infra,
    operator_support,
    param_fetch,
    pass_manager,
    shape_prop,
    split_module,
    split_utils,
    tools_common,
    utils,
)
