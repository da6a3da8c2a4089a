"""Rows of torch_npu's recurrent layers, in CANN's order of gates, and of causal convolutions and delta rules over sequences."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2._ops.npu.rows import INT64, grad_of, row, wide
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor


# ---- LSTM: gates i, f, j, o -----------------------------------------------------------------------------------------
def _steps(count: int, backwards: bool) -> Any:
    return range(count - 1, -1, -1) if backwards else range(count)


def _lstm(input: Tensor, weight: Tensor, bias: Tensor | None, seq_mask: Tensor | None, h: Tensor, c: Tensor,
          direction: bool) -> tuple[Tensor, ...]:
    """y, h, c, i, j, f, o and tanh(c) of every step; weight is (input + hidden, 4 hidden)."""
    h, c = (x.reshape(input.size(1), -1) for x in (h, c))
    made: dict[int, tuple] = {}
    for t in _steps(input.size(0), direction):
        gates = ops.matmul(ops.cat([input[t], h], 1), weight)
        i, f, j, o = (gates if bias is None else gates + bias).chunk(4, 1)
        i, j, f, o = i.sigmoid(), j.tanh(), f.sigmoid(), o.sigmoid()
        c = f * c + i * j
        tanhc = c.tanh()
        h = o * tanhc
        made[t] = (h, h, c, i, j, f, o, tanhc)
    return tuple(ops.stack([made[t][k] for t in range(input.size(0))]) for k in range(8))


@row()
def npu_lstm(input: Tensor, weight: Tensor, bias: Tensor, seq_mask: Tensor, h: Tensor, c: Tensor, has_biases: bool,
             num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool, flag_seq: bool,
             direction: bool) -> tuple[Tensor, ...]:
    """One LSTM layer over (steps, batch, features): y, h and c of every step, and its gates."""
    _refuse("npu_lstm", num_layers, dropout, bidirectional, batch_first)
    return _lstm(input, weight, bias if has_biases else None, seq_mask, h, c, direction)


def _refuse(name: str, num_layers: int, dropout: float, bidirectional: bool, batch_first: bool) -> None:
    if num_layers != 1 or dropout or bidirectional or batch_first:
        raise NotImplementedError(f"[{name}] one layer in one direction without dropout, steps first, is what CANN has")


@row()
def npu_lstm_backward(grady: Tensor | None, gradh: Tensor | None, gradc: Tensor | None, input: Tensor, weight: Tensor,
                      bias: Tensor, hx: Tensor, cx: Tensor, y_output: Tensor, h_output: Tensor, c_output: Tensor,
                      i: Tensor, j: Tensor, f: Tensor, o: Tensor, tanhc: Tensor) -> tuple[Tensor, ...]:
    """The gradients of npu_lstm: of the input, the weight, the bias, h and c."""
    def forward(x: Tensor, w: Tensor, b: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = _lstm(x, w, b, None, h, c, False)
        return made[0], made[1][-1], made[2][-1]
    return grad_of(forward, (input, weight, bias, hx, cx), (grady, _of_last_step(gradh), _of_last_step(gradc)))


def _of_last_step(grad: Tensor | None) -> Tensor | None:
    """Of a gradient (steps, batch, hidden) of states, CANN takes the part of the last step."""
    return grad if grad is None or grad.dim() == 2 else grad[-1]


def _cell(input: Tensor, w_ih: Tensor, w_hh: Tensor, h: Tensor, c: Tensor, b_ih: Tensor | None,
          b_hh: Tensor | None) -> tuple[Tensor, ...]:
    gates = ops.matmul(input, w_ih) + ops.matmul(h, w_hh)
    for b in (b_ih, b_hh):
        gates = gates if b is None else gates + b
    i, f, j, o = gates.chunk(4, 1)
    i, j, f, o = i.sigmoid(), j.tanh(), f.sigmoid(), o.sigmoid()
    c = f * c + i * j
    tanhc = c.tanh()
    return o * tanhc, c, i, j, f, o, tanhc


@row()
def npu_lstm_cell(input: Tensor, w_ih: Tensor, w_hh: Tensor, h: Tensor, c: Tensor, b_ih: Tensor | None,
                  b_hh: Tensor | None) -> tuple[Tensor, ...]:
    """One step of an LSTM: y, h, c and its gates; weights are (input, 4 hidden) and (hidden, 4 hidden)."""
    y, c, *gates = _cell(input, w_ih, w_hh, h, c, b_ih, b_hh)
    return y.unsqueeze(0), y, c, *(x.unsqueeze(0) for x in gates)


@row()
def npu_lstm_cell_backward(grady: Tensor | None, gradh: Tensor | None, gradc: Tensor | None, input: Tensor,
                           w_ih: Tensor, w_hh: Tensor, h: Tensor, c: Tensor, y_output: Tensor, h_output: Tensor,
                           c_output: Tensor, i: Tensor, j: Tensor, f: Tensor, o: Tensor,
                           tanhc: Tensor) -> tuple[Tensor, ...]:
    """The gradients of npu_lstm_cell: of the input, both weights, both biases, h and c."""
    bias = input.new_zeros([w_ih.size(1)])

    def forward(x: Tensor, a: Tensor, b: Tensor, p: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, state, *_ = _cell(x, a, b, p, q, k, None)
        return y.unsqueeze(0), y, state
    dx, da, db, dh, dc, dbias = grad_of(forward, (input, w_ih, w_hh, h, c, bias), (grady, gradh, gradc))
    return dx, da, db, dbias, dbias, dh, dc


# ---- GRU: gates reset, update, new ----------------------------------------------------------------------------------
def _gru(input: Tensor, hx: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor,
         bias_hidden: Tensor) -> tuple[Tensor, ...]:
    """y, h, update, reset, new, and the hidden part of new, of every step."""
    h, made = hx.reshape(input.size(1), -1), []
    for x in input.unbind(0):
        gates, hidden = ops.matmul(x, weight_input), ops.matmul(h, weight_hidden)
        gates = gates if bias_input is None else gates + bias_input
        hidden = hidden if bias_hidden is None else hidden + bias_hidden
        (ri, zi, ni), (rh, zh, nh) = gates.chunk(3, 1), hidden.chunk(3, 1)
        update, reset = (zi + zh).sigmoid(), (ri + rh).sigmoid()
        new = (ni + reset * nh).tanh()
        h = (1 - update) * new + update * h
        made.append((h, h, update, reset, new, nh))
    return tuple(ops.stack(parts) for parts in zip(*made, strict=True))


@row()
def npu_gru(input: Tensor, hx: Tensor, weight_input: Tensor, weight_hidden: Tensor, bias_input: Tensor,
            bias_hidden: Tensor, seq_length: Tensor, has_biases: bool, num_layers: int, dropout: float, train: bool,
            bidirectional: bool, batch_first: bool) -> tuple[Tensor, ...]:
    """One GRU layer over (steps, batch, features): y and h of every step, and its gates."""
    _refuse("npu_gru", num_layers, dropout, bidirectional, batch_first)
    return _gru(input, hx, weight_input, weight_hidden, *((bias_input, bias_hidden) if has_biases else (None, None)))


@row()
def npu_gru_backward(grady: Tensor | None, gradh: Tensor | None, input: Tensor, weight_input: Tensor,
                     weight_hidden: Tensor, bias_input: Tensor, bias_hidden: Tensor, seq_length: Tensor, hx: Tensor,
                     y_output: Tensor, h_output: Tensor, output_updata: Tensor, output_reset: Tensor,
                     output_new: Tensor, hidden_new: Tensor) -> tuple[Tensor, ...]:
    """The gradients of npu_gru: of both weights, the input, both biases, and h."""
    def forward(wi: Tensor, wh: Tensor, x: Tensor, bi: Tensor, bh: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        made = _gru(x, h, wi, wh, bi, bh)
        return made[0], made[1][-1]
    return grad_of(forward, (weight_input, weight_hidden, input, bias_input, bias_hidden, hx), (grady, _of_last_step(gradh)))


# ---- causal convolution ---------------------------------------------------------------------------------------------
def _causal(input: Tensor, weight: Tensor, mask: Tensor | None) -> Tensor:
    """Each feature of (steps, batch, features) with the steps before it, by a kernel (width, features)."""
    x, w = wide(input), wide(weight)
    width = w.size(0)
    padded = ops.constant_pad_nd(x, [0, 0, 0, 0, width - 1, 0], 0)
    made = sum(padded[k:k + x.size(0)] * w[k] for k in range(width))
    if mask is not None:
        made = made * mask.t().unsqueeze(-1)
    return made.to(input.dtype)


@row()
def npu_masked_causal_conv1d(input: Tensor, weight: Tensor, mask: Tensor | None) -> Tensor:
    """Each feature of (steps, batch, features) with the steps before it, by a kernel of three; 0 where the mask is False."""
    return _causal(input, weight, mask)


@row()
def npu_masked_causal_conv1d_backward(grad_output: Tensor, input: Tensor, weight: Tensor,
                                      mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of npu_masked_causal_conv1d: of the input and the weight."""
    return grad_of(lambda x, w: _causal(x, w, mask), (input, weight), (grad_output,))


# ---- delta rules ----------------------------------------------------------------------------------------------------
def _delta(state: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, decay: Tensor | None,
           scale: float) -> tuple[Tensor, Tensor]:
    """One step: (state, out). state is (heads, value depth, key depth)."""
    state = state if decay is None else state * decay.exp().reshape(-1, 1, 1)
    found = ops.matmul(state, k.unsqueeze(-1)).squeeze(-1)
    step = v - found if beta is None else (v - found) * beta.unsqueeze(-1)
    state = state + step.unsqueeze(-1) * k.unsqueeze(-2)
    return state, ops.matmul(state, q.unsqueeze(-1)).squeeze(-1) * scale


def _heads(x: Tensor, heads: int) -> Tensor:
    """Vectors of as many heads as the values have."""
    return wide(x).repeat_interleave(heads // x.size(1), 1)


def _ruled(query: Tensor, key: Tensor, value: Tensor, beta: Tensor | None, g: Tensor | None, scale: float | None,
           lengths: list[int], begin: Callable[..., Any], store: Callable[..., Any]) -> Tensor:
    """The outputs of every token; begin(b) gives a sequence's first state, store(token, state) keeps one."""
    heads = value.size(1)
    q, k, v = _heads(query, heads), _heads(key, heads), wide(value)
    scale = 1.0 if scale is None else scale
    outs, at = [], 0
    for b, length in enumerate(lengths):
        state = begin(b)
        for t in range(at, at + length):
            state, out = _delta(state, q[t], k[t], v[t], None if beta is None else wide(beta)[t],
                                None if g is None else wide(g)[t], scale)
            outs.append(out)
            store(b, t, state)
        at += length
    return ops.stack(outs).to(value.dtype)


@row()
def npu_chunk_gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, beta: Tensor | None,
                               initial_state: Tensor | None, actual_seq_lengths: Tensor | None, scale: float | None,
                               g: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gated delta rule over whole sequences: the outputs, and the last state of each sequence."""
    lengths = [query.size(0)] if actual_seq_lengths is None else actual_seq_lengths.tolist()
    last: dict[int, Any] = {}

    def begin(b: int) -> Tensor:
        if initial_state is None:
            return wide(value).new_zeros([value.size(1), value.size(2), key.size(2)])
        return wide(initial_state)[b]
    out = _ruled(query, key, value, beta, g, scale, lengths, begin, lambda b, t, state: last.__setitem__(b, state))
    return out, ops.stack([last[b] if b in last else begin(b) for b in range(len(lengths))]).to(
        value.dtype if initial_state is None else initial_state.dtype)


@row()
def npu_recurrent_gated_delta_rule(query: Tensor, key: Tensor, value: Tensor, state: Tensor, beta: Tensor | None,
                                   scale: float | None, actual_seq_lengths: Any, ssm_state_indices: Tensor | None,
                                   num_accepted_tokens: Tensor | None, g: Tensor | None, gk: Tensor | None) -> Tensor:
    """The gated delta rule over the few new tokens of each sequence; every token's state is kept at its index of state."""
    if gk is not None:
        raise NotImplementedError("[npu_recurrent_gated_delta_rule] gk is not offered, as in CANN")
    lengths = actual_seq_lengths.tolist()
    index = (ops.arange(query.size(0), device=query.device) if ssm_state_indices is None else ssm_state_indices).to(INT64).tolist()
    taken = [1] * len(lengths) if num_accepted_tokens is None else num_accepted_tokens.tolist()
    starts = [sum(lengths[:b]) for b in range(len(lengths))]
    kept = state.clone()

    def store(b: int, t: int, made: Tensor) -> None:
        state[index[t]].copy_(made)
    return _ruled(query, key, value, beta, g, scale, lengths, lambda b: wide(kept[index[starts[b] + taken[b] - 1]]), store)


@row()
def npu_recurrent_gated_delta_rule_functional(query: Tensor, key: Tensor, value: Tensor, state: Tensor,
                                              beta: Tensor | None, scale: float | None,
                                              actual_seq_lengths: Tensor | None, ssm_state_indices: Tensor | None,
                                              num_accepted_tokens: Tensor | None, g: Tensor | None,
                                              gk: Tensor | None) -> tuple[Tensor, Tensor]:
    """npu_recurrent_gated_delta_rule, and a copy of state with the new ones in it."""
    made = state.clone()
    out = npu_recurrent_gated_delta_rule(query, key, value, made, beta=beta, scale=scale, actual_seq_lengths=actual_seq_lengths,
                                         ssm_state_indices=ssm_state_indices, num_accepted_tokens=num_accepted_tokens, g=g, gk=gk)
    return out, made
