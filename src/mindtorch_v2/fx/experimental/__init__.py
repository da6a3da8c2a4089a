"""torch.fx.experimental: recording below autograd, rewriting of sources, folding of constants, fusing for inference."""
import mindtorch_v2 as torch
from mindtorch_v2.fx.experimental import (
    _config,
    const_fold,
    normalize,
    optimization,
    proxy_tensor,
    rewriter,
    symbolic_shapes,
)

_WHY = "symbols in place of sizes, and partitions over devices, are not offered"
for _name, _classes in (
        ("accelerator_partitioner", "DAG DAGNode PartitionResult Partitioner"), ("partitioner_utils", "Device NodeLatency "
         "Partition PartitionLatency PartitionMode PartitionerConfig"),
        ("meta_tracer", "MetaAttribute MetaDeviceAttribute MetaProxy MetaTracer"),
        ("sym_node", "DynamicInt SymNode"), ("validator", "BisectValidationException ValidationException"),
        ("recording", "FakeTensorMeta NotEqualError ShapeEnvEvent"), ("unification", "Var"), ("migrate_gradual_types", ""),
        ("_backward_state", "BackwardState"), ("_constant_symnode", "ConstantIntNode")):
    _place = f"torch.fx.experimental.{_name}"
    globals()[_name] = torch._facade.module(
        __name__, _name, f"Refuses: {_WHY}.", **torch._facade.absents(_classes, _WHY, f"{_place}."),
        __getattr__=torch._facade.refuse_all(_place, _WHY))
del torch
