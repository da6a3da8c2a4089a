"""Rows of one step of a recurrent network. The loops over time are in nn/_functional/recurrent.py."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import Spec, composite, ops
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
