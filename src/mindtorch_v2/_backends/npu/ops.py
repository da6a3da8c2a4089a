"""Kernels of the npu: how an op row finds its aclnn op, random ops in graphs, and results that only the data can size."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn, graph_random, soc, streams
from mindtorch_v2._backends.npu.graph_random import captured
from mindtorch_v2._schema import Schema, parse
from mindtorch_v2._shape import broadcast

Kernel = Callable[..., Any]
# op name -> fn(outs, args), or fn(*args) where only the kernel can size the results
KERNELS: dict[str, Kernel] = {}
# op name -> fn(outs, args) for dtypes that the row's aclnn op does not take
OTHERS: dict[str, Kernel] = {}
# op name -> fn(outs, args) where the first tensor has no items, and CANN has no word for the result
EMPTIES: dict[str, Kernel] = {}
# aclnn op -> fn(outs, args) while a graph is captured, for those that CANN has in no form that reads the seed from memory
IN_GRAPHS: dict[str, Kernel] = {}
# aclnn ops that composites do without on older SoCs: every CANN has them, but no kernel there
LATER_SOCS = ("aclnnApplyAdamWV2", "aclnnFlashAttentionScore", "aclnnThnnFusedLstmCell",
              "aclnnThnnFusedLstmCellBackward")
_empty = _C._op_named("empty")
_INT64, _BOOL = _C._dtype_named("int64"), _C._dtype_named("bool")


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Registers a kernel for ops by name; it is asked before the row's own mapping."""
    def register(function: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, function))
        return function
    return register


def resolve(name: str, schema: str, mapping: str | None, composite: bool = False) -> Any:
    """The kernel of an op at its first use on an npu; None: there is none. A composite does without an op that the
    installed CANN lacks, or has no kernel of for this SoC."""
    if name in KERNELS:
        return KERNELS[name]
    if not mapping or composite and not _is_here(aclnn.read_mapping(mapping)[0]):
        return None
    plan = aclnn.plan(mapping, parse(schema), kept="seed" not in aclnn.read_mapping(mapping)[1])
    if "seed" in aclnn.read_mapping(mapping)[1]:
        plan.captured = functools.partial(_draw_into_graph, plan, mapping, parse(schema))
    if name in OTHERS:
        for form in filter(None, (plan, plan.in_place, plan.without)):
            form.other = OTHERS[name]
    plan.empty = EMPTIES.get(name)
    return plan


def _is_here(name: str) -> bool:
    return aclnn.has(name) and (name not in LATER_SOCS or soc.has_cube_and_vector_cores())


def _draw_into_graph(plan: Any, mapping: str, schema: Schema, outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    """A random op while graphs are captured, this one or others: a replay reads seed and offset from memory."""
    index, generator = outs[0].device.index, args[next(i for i, p in enumerate(schema.params) if p.kind == "Generator")]
    graph = captured(generator or _C._npu_default_generator(index))
    if graph is None:
        _C._npu_call(plan, index, args, outs)
    elif plan.name in IN_GRAPHS:
        IN_GRAPHS[plan.name](outs, args)
    else:
        replayed = aclnn.plan(mapping.replace("(", "Tensor(", 1).replace("offset", "offset, begin"), schema,
                              extra=("seed", "offset", "begin"), kept=False)
        _C._npu_call(replayed, index, args + graph.draw(outs[0].numel()), outs)


def next_state(generator: Any, out: Any) -> tuple[int, int]:
    """(seed, offset) of the draws for one output."""
    generator = generator or _C._npu_default_generator(out.device.index)
    if captured(generator) is not None:
        raise RuntimeError("this random op cannot be captured: CANN has no form of it that reads the seed from memory, "
                           "so that every replay would draw the same numbers")
    return generator._next_seed_offset(out.numel())


def composed(*names: str, registry: dict[str, Kernel] = KERNELS) -> Callable[[Kernel], Kernel]:
    """Registers ops that CANN lacks and others make up: the function gives the value of the one result."""
    def register(function: Kernel) -> Kernel:
        def launch(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
            before = _C._is_grad_enabled()
            _C._set_grad_enabled(False)           # the row records its own gradient
            try:
                outs[0].copy_(function(*args))
            finally:
                _C._set_grad_enabled(before)
        registry.update(dict.fromkeys(names, launch))
        return function
    return register


class _Ops:
    """Ops by name, for kernels that others make up."""

    def __getattr__(self, name: str) -> Any:
        return _C._op_named(name)


ops = _Ops()


# ---- results that only the data can size -----------------------------------------------------------------------------
def dynamic(name: str, device: int, args: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """Calls an op that finds out how large its outputs are; waits, and gives their real shapes."""
    streams.about_to_wait(name)
    return _C._npu_call_dynamic(aclnn.plan_of(name, False), device, args, ())


@kernel("_nonzero")
def _nonzero(self: Any) -> Any:
    self = self != 0 if self.is_complex() else self          # CANN's takes real items
    rank, n = self.dim(), self.numel()
    out = _empty((n, rank), dtype=_INT64, device=self.device)
    if n == 0:
        return out
    if rank == 0:
        return out[:int(self.item() != 0)]
    (shape,) = dynamic("aclnnNonzero", self.device.index, (self, out))
    return out[:shape[0]].clone()


@kernel("_masked_select")
def _masked_select(self: Any, mask: Any) -> Any:
    shape = broadcast(self.shape, mask.shape)
    self, mask = self.detach().expand(shape), mask.expand(shape)
    moved = self.view(_INT64) if self.dtype._name == "complex64" else self       # 8 bytes that only move
    out = _empty((self.numel(),), dtype=moved.dtype, device=self.device)
    if self.numel() == 0:
        return out.view(self.dtype)
    (shape,) = dynamic("aclnnMaskedSelect", self.device.index, (moved, mask, out))
    return out[:shape[0]].clone().view(self.dtype)


# ---- constants that CANN wants as tensors ----------------------------------------------------------------------------
_CAUSAL = 2048                                    # CANN's size of the mask that stands for any causal one


def _make_constant(name: str, size: Any, dtype: Any, device: int) -> Any:
    """Ones, or True above the diagonal; copied from the host, which waits, so that every stream may read them."""
    made = ops.ones(size, dtype=dtype) if name == "ones" else ops.ones([_CAUSAL, _CAUSAL], dtype=_BOOL).triu(1)
    return made.to(f"npu:{device}")


def _index_put_complex(outs: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    """Real and imaginary parts are a dim that no index names; with it a number from the host is no scalar any more."""
    real, values = (ops.view_as_real(x.detach()) for x in (outs[0], args[2].to(outs[0].device)))
    aclnn.call("aclnnIndexPutImpl", real, args[1], values, args[3], False)


OTHERS["_index_put_list_"] = _index_put_complex
_C._npu_set_hooks(graph_random.active, _make_constant)
_C._set_kernel_resolver("npu", resolve)
