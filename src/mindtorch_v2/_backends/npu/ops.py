"""How an op row finds its kernel on an npu: its record in BODIES, or a plan of the calls that the row names."""
from __future__ import annotations

import functools
import threading
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import (
    aclnn,
    graph_random,
    ops_dtypes,
    ops_factor,
    ops_fft,
    ops_gamma,
    ops_index,
    ops_layers,
    ops_linalg,
    ops_nn,
    ops_older,
    ops_pointwise,
    ops_random,
    ops_reduce,
    ops_special,
    soc,
)
from mindtorch_v2._backends.npu.body import Args, Body, Outs, Writer, quiet, writer_of, writes
from mindtorch_v2._backends.npu.torch_ops import ops
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import Schema, parse

_NOTHING = Body()


def _merged(*tables: dict[str, Body]) -> dict[str, Body]:
    """All records in one table; an op has one, wherever it stands."""
    made: dict[str, Body] = {}
    for table in tables:
        twice = made.keys() & table.keys()
        if twice:
            raise ValueError(f"an op has one body: {sorted(twice)}")
        made |= table
    return made


# An op with its overload, as torch names it ("max.dim"), -> its record.
BODIES = _merged(*(file.BODIES for file in (
    ops_dtypes, ops_factor, ops_fft, ops_gamma, ops_index, ops_layers, ops_linalg, ops_nn, ops_older, ops_pointwise, ops_random,
    ops_reduce, ops_special)))


def resolve(row: Any, optional: bool = False) -> Any:
    """The kernel of a row (an overload) at its first use on an npu; None: there is none. optional: the caller, such as
    a composite, does without a call that the installed CANN lacks, or has no kernel of for this SoC."""
    name = f"{row.name}.{row.overload_name}" if row.overload_name else row.name
    body = BODIES.get(name, _NOTHING)
    own = writer_of(name, body)
    if own is not None:
        return own
    forms: Npu | None = row.npu
    if forms is None or optional and not is_here(forms):
        return None
    schema = parse(row.schema)
    if body.fallback is not None and not is_here(forms):
        return _without_call(writes(body.fallback), forms, schema)
    plan = aclnn.plan(forms, schema, fallback=writes(body.fallback) if body.fallback else None)
    plan.on_empty = quiet(body.on_empty) if body.on_empty else None
    if aclnn.draws(forms):
        on_capture = quiet(body.on_capture) if body.on_capture else None
        plan.on_capture = functools.partial(_draw_into_graph, plan, forms, schema, on_capture)
    return plan


def _without_call(fallback: Writer, forms: Npu, schema: Schema) -> Writer:
    """The fallback of a row whose call is missing. Some are made of the same op in another dtype: those end in the call
    itself, which says by name that it is missing."""
    running = threading.local()

    def run(outs: Outs, args: Args) -> None:
        if getattr(running, "is_set", False):
            _C._npu_call(aclnn.plan(forms, schema), next(out for out in outs if out is not None).device.index, args, outs)
            return
        running.is_set = True
        try:
            fallback(outs, args)
        finally:
            running.is_set = False
    return run


def is_here(forms: Npu) -> bool:
    """Whether the installed CANN has a row's call, and a kernel of it for this SoC."""
    return _has(aclnn.read_mapping(forms.call)[0])


def _has(name: str) -> bool:
    return aclnn.has(name) and soc.has_kernels(name)


def service(name: str, forms: Npu, has_body: bool) -> str:
    """How a row with calls is served here: "serves", "falls back" to a body of other ops, or "refuses" by name."""
    body = BODIES.get(name, _NOTHING)
    if writer_of(name, body) is not None:
        return "serves" if not body.needs or _has(body.needs) else "refuses"
    if is_here(forms):
        return "serves"
    return "falls back" if has_body or body.fallback is not None else "refuses"


def _draw_into_graph(plan: Any, forms: Npu, schema: Schema, on_capture: Any, outs: Outs, args: Args) -> None:
    """A random op while graphs are captured, this one or others: a replay reads seed and offset from memory."""
    index, generator = outs[0].device.index, args[next(i for i, p in enumerate(schema.params) if p.kind == "Generator")]
    graph = graph_random.captured(generator or _C._npu_default_generator(index))
    if graph is None:
        _C._npu_call(plan, index, args, outs)
    elif on_capture is not None:
        on_capture(outs, args)
    else:
        replayed = forms.call.replace("(", "Tensor(", 1).replace("offset", "offset, begin")
        made = aclnn.plan(Npu(replayed), schema, extra=("seed", "offset", "begin"), kept=False)
        _C._npu_call(made, index, args + graph.draw(outs[0].numel()), outs)


# ---- constants that CANN takes as tensors ----------------------------------------------------------------------------
_CAUSAL = 2048                                    # CANN's size of the mask that stands for any causal one
_BOOL = _C._dtype_named("bool")


def make_constant(name: str, size: Any, dtype: Any, device: int) -> Any:
    """Ones, or True above the diagonal; copied from the host, which waits, so that every stream may read them."""
    made = ops.ones(size, dtype=dtype) if name == "ones" else ops.ones([_CAUSAL, _CAUSAL], dtype=_BOOL).triu(1)
    return made.to(f"npu:{device}")


