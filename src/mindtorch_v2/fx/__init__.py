"""torch.fx: programs recorded as graphs, changed, and turned back into Python."""
import mindtorch_v2 as torch
from mindtorch_v2.fx import (
    _compatibility,
    _lazy_graph_module,
    _pytree,
    _symbolic_trace,
    annotate,
    config,
    graph,
    graph_module,
    immutable_collections,
    interpreter,
    node,
    operator_schemas,
    proxy,
    subgraph_rewriter,
    tensor_type,
    traceback,
)
from mindtorch_v2.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap
from mindtorch_v2.fx.graph import CodeGen, Graph
from mindtorch_v2.fx.graph_module import GraphModule
from mindtorch_v2.fx.interpreter import Interpreter, Transformer
from mindtorch_v2.fx.node import Node, has_side_effect, map_arg
from mindtorch_v2.fx.proxy import Proxy
from mindtorch_v2.fx.subgraph_rewriter import replace_pattern

__all__ = ["CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "ProxyableClassMeta", "Tracer",
           "Transformer", "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap"]

torch._deferred.defer(__name__, {"experimental": "fx.experimental", "passes": "fx.passes"})   # half of the import's time
del torch
