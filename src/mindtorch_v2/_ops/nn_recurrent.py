"""Rows of recurrent networks: one step as CANN has it, and a layer over all its steps for the CPU. The loops over time of
everything else are in nn/_functional/recurrent.py."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._row import Npu
from mindtorch_v2._tensor import Tensor


def _gates(input_gates: Any, hidden_gates: Any, input_bias: Any, hidden_bias: Any) -> Any:
    total = input_gates + hidden_gates
    return total if input_bias is None else total + input_bias + hidden_bias


def _activated(gates: Any) -> Any:
    """The input, forget, cell and output gates."""
    i, f, g, o = gates.chunk(4, 1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def _cell_rule(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None,
               hidden_bias: Tensor | None) -> Sequence[Spec] | None:
    """CANN takes one dtype, and gates for each item of the state."""
    rows, width = cx.shape if cx.dim() == 2 else (0, 0)
    if any(g.shape != (rows, 4 * width) or g.dtype is not cx.dtype for g in (input_gates, hidden_gates)) or \
            cx.dtype._name not in ("float16", "float32") or (input_bias is None) != (hidden_bias is None):
        return None
    return [((rows, width), cx.dtype), ((rows, width), cx.dtype), ((rows, 4 * width), cx.dtype)]


def _cell_slope(grad_hy: Tensor, grad_cy: Tensor, cx: Tensor, cy: Tensor, workspace: Tensor,
                has_bias: bool) -> Sequence[Spec | None]:
    bias = (workspace.shape[1:], cx.dtype) if has_bias else None
    return [(workspace.shape, cx.dtype), (cx.shape, cx.dtype), bias]


def _slope(grad_hy: Any, grad_cy: Any, cx: Tensor, tanh: Any, i: Any, f: Any, g: Tensor, o: Tensor) -> Any:
    """(toward the gates, toward cx)"""
    of_c = grad_cy + grad_hy * o * (1 - tanh * tanh)
    parts = of_c * g * i * (1 - i), of_c * cx * f * (1 - f), of_c * i * (1 - g * g), grad_hy * tanh * o * (1 - o)
    return ops.cat(parts, 1), of_c * f


@composite("_thnn_fused_lstm_cell_backward_impl(Tensor grad_hy, Tensor grad_cy, Tensor cx, Tensor cy, Tensor workspace, "
           "bool has_bias) -> (Tensor, Tensor, Tensor)", variants="function", rule=_cell_slope,
           npu=Npu("aclnnThnnFusedLstmCellBackward(grad_hy, grad_cy, cx, cy, workspace, has_bias, out0, out1, out2)"))
def _cell_backward(grad_hy: Tensor, grad_cy: Tensor, cx: Tensor, cy: Tensor, workspace: Tensor,
                   has_bias: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    of_gates, of_cx = _slope(grad_hy, grad_cy, cx, cy.tanh(), *_activated(workspace))
    return of_gates, of_cx, of_gates.sum(0) if has_bias else None


def _cell_grad(g: Tensor, g1: Any, input_gates: Any, hidden_gates: Any, cx: Tensor, input_bias: Any, hidden_bias: Any,
               cy: Any, workspace: Any) -> Any:
    if _C._is_grad_enabled():                    # from the gates themselves: what CANN keeps has no gradient
        i, f, c, o = _activated(_gates(input_gates, hidden_gates, input_bias, hidden_bias))
        of_gates, of_cx = _slope(g, g1, cx, (f * cx + i * c).tanh(), i, f, c, o)
        of_bias = of_gates.sum(0)
    else:
        of_gates, of_cx, of_bias = ops._thnn_fused_lstm_cell_backward_impl(g, g1, cx, cy, workspace,
                                                                          input_bias is not None)
    return of_gates, of_gates, of_cx, of_bias, of_bias


@composite("_thnn_fused_lstm_cell(Tensor input_gates, Tensor hidden_gates, Tensor cx, Tensor? input_bias=None, "
           "Tensor? hidden_bias=None) -> (Tensor, Tensor, Tensor)", variants="function", rule=_cell_rule,
           npu=Npu("aclnnThnnFusedLstmCell(input_gates, hidden_gates, cx, input_bias, hidden_bias, out0, out1, out2)"),
           grad={"input_gates, hidden_gates, cx, input_bias, hidden_bias":
                 lambda g, g1, input_gates, hidden_gates, cx, input_bias, hidden_bias, result1, result2:
                 _cell_grad(g, g1, input_gates, hidden_gates, cx, input_bias, hidden_bias, result1, result2)})
def _lstm_cell(input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None,
               hidden_bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A step of long short-term memory: the hidden state, the cell state, and what the backward of the same kind reads
    of the gates (CANN keeps them activated)."""
    gates = _gates(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = _activated(gates)
    cy = f * cx + i * g
    return o * cy.tanh(), cy, gates


# ---- one direction of a layer, all steps; csrc/kernels/recurrent.cpp ------------------------------------------------
# mode: 0 tanh, 1 relu, 2 LSTM, 3 GRU.
_GATES = (1, 1, 4, 3)


def _check_layer(name: str, gates: Tensor, hx: Tensor, cx: Tensor | None, weight_hh: Tensor, bias_hh: Tensor | None,
                 mode: int) -> tuple[int, int, int]:
    """(steps, batch, hidden); the kernel relies on every shape and dtype."""
    if not 0 <= mode < 4:
        raise RuntimeError(f"{name}: mode must be 0 (tanh), 1 (relu), 2 (LSTM) or 3 (GRU), got {mode}")
    if gates.dim() != 3 or hx.dim() != 2 or 0 in gates.shape or 0 in hx.shape:
        raise RuntimeError(f"{name}: expected gates of 3 dims and hx of 2, not empty, got {list(gates.shape)} and {list(hx.shape)}")
    steps, batch, width = gates.shape
    hidden = hx.shape[1]
    wanted: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "gates": (gates, (steps, batch, _GATES[mode] * hidden)), "hx": (hx, (batch, hidden)),
        "weight_hh": (weight_hh, (width, hidden))}
    if mode == 2:
        wanted["cx"] = cx, (batch, hidden)
    elif cx is not None:
        raise RuntimeError(f"{name}: only LSTM has a cell state")
    if bias_hh is not None:
        wanted["bias_hh"] = bias_hh, (width,)
    _expect(name, gates, wanted)
    return steps, batch, hidden


def _expect(name: str, like: Tensor, wanted: Mapping[str, tuple[Tensor | None, tuple[int, ...]]]) -> None:
    for argument, (x, shape) in wanted.items():
        if x is None or tuple(x.shape) != shape or x.dtype is not like.dtype:
            got = "None" if x is None else f"{list(x.shape)} of {x.dtype}"
            raise RuntimeError(f"{name}: expected {argument} of shape {list(shape)} and {like.dtype}, got {got}")


def _layer_sizes(batch: int, hidden: int, steps: int, mode: int, keep: bool = True) -> tuple[tuple[int, ...], ...]:
    """Of the outputs, the cell states and what the backward reads of the gates."""
    gates = 4 * hidden if mode > 1 and keep else 0
    return (steps, batch, hidden), (steps, batch, hidden if mode == 2 else 0), (steps, batch, gates)


def _layer_rule(gates: Tensor, hx: Tensor, cx: Tensor | None, weight_hh: Tensor, bias_hh: Tensor | None, mode: int,
                reverse: bool, keep: bool = True) -> Sequence[Spec]:
    steps, batch, hidden = _check_layer("_recurrent_layer", gates, hx, cx, weight_hh, bias_hh, mode)
    return [(size, gates.dtype) for size in _layer_sizes(batch, hidden, steps, mode, keep)]


def _layer_slope(grad: Tensor, grad_cells: Tensor, gates: Tensor, hx: Tensor, cx: Tensor | None, weight_hh: Tensor,
                 bias_hh: Tensor | None, output: Tensor, cells: Tensor, kept: Tensor, mode: int,
                 reverse: bool) -> Sequence[Spec | None]:
    name = "_recurrent_layer_backward"
    sizes = _layer_sizes(*_check_layer(name, gates, hx, cx, weight_hh, bias_hh, mode)[1:], gates.shape[0], mode)
    _expect(name, gates, {"grad": (grad, sizes[0]), "grad_cells": (grad_cells, sizes[1]), "output": (output, sizes[0]),
                          "cells": (cells, sizes[1]), "kept": (kept, sizes[2])})
    return [None if x is None else (x.shape, gates.dtype) for x in (gates, hx, cx, weight_hh, bias_hh)]


op("_recurrent_layer(Tensor gates, Tensor hx, Tensor? cx, Tensor weight_hh, Tensor? bias_hh, int mode, bool reverse, "
   "bool keep=True) -> (Tensor, Tensor, Tensor)", rule=_layer_rule, variants="function", out=False)
op("_recurrent_layer_backward(Tensor grad, Tensor grad_cells, Tensor gates, Tensor hx, Tensor? cx, Tensor weight_hh, "
   "Tensor? bias_hh, Tensor output, Tensor cells, Tensor kept, int mode, bool reverse) "
   "-> (Tensor, Tensor, Tensor, Tensor, Tensor)", rule=_layer_slope, variants="function", out=False)
