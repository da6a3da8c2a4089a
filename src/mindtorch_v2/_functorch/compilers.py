"""torch._functorch.compilers: `nop` gives back the graph; the others belong to a compiler that is not here."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

globals().update(torch._facade.refusals(
    "debug_compile draw_graph_compile memory_efficient_fusion nnc_jit print_compile ts_compile simple_ts_compile",
    "this compiler is not offered", "torch._functorch.compilers."))
default_decompositions: set[Any] = set()


def nop(fx_g: Any, _: Any) -> Any:
    """The graph as it is."""
    return fx_g

torch._named.complete(__name__)
