"""Recurrent steps and their loops over time, for padded and for packed sequences."""

from __future__ import annotations

from typing import Any, Callable

import mindtorch_v2 as torch
from mindtorch_v2.nn._functional.dropout import dropout

Tensor = torch.Tensor
# A hidden state: (h,) or, for LSTM, (h, c).
State = tuple[Any, ...]


def rnn_tanh_step(gates: Tensor, state: State, weights: list[Any]) -> State:
    """tanh of the projected input plus the projected hidden state."""
    return (torch.tanh(gates + _hidden(state[0], weights)),)


def rnn_relu_step(gates: Tensor, state: State, weights: list[Any]) -> State:
    """relu of the projected input plus the projected hidden state."""
    return (torch.relu(gates + _hidden(state[0], weights)),)


def lstm_step(gates: Tensor, state: State, weights: list[Any]) -> State:
    """Long short-term memory: input, forget, cell and output gates, in that order."""
    h, c = state
    if gates.is_npu:
        h, c, _ = torch._thnn_fused_lstm_cell(gates, _hidden(h, weights), c)
    else:
        i, f, g, o = (gates + _hidden(h, weights)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    if len(weights) in (3, 5):
        h = torch._C._nn.linear(h, weights[-1])
    return h, c


def gru_step(gates: Tensor, state: State, weights: list[Any]) -> State:
    """Gated recurrent unit: reset, update and new gates, in that order."""
    (h,) = state
    r, z, n = gates.chunk(3, -1)
    hr, hz, hn = _hidden(h, weights).chunk(3, -1)
    r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
    n = (n + r * hn).tanh()
    return (n + z * (h - n),)


STEPS: dict[str, Callable[..., Any]] = {
    "RNN_TANH": rnn_tanh_step,
    "RNN_RELU": rnn_relu_step,
    "LSTM": lstm_step,
    "GRU": gru_step,
}


def _hidden(h: Tensor, weights: list[Any]) -> Tensor:
    """The projection of the hidden state; weights are w_ih, w_hh[, b_ih, b_hh][, w_hr]."""
    return torch._C._nn.linear(h, weights[1], weights[3] if len(weights) >= 4 else None)


def project_input(x: Tensor, weights: list[Any]) -> Tensor:
    """The projection of the input, for all times at once."""
    return torch._C._nn.linear(x, weights[0], weights[2] if len(weights) >= 4 else None)


def _padded_direction(
    step: Callable[..., Any], x: Tensor, state: State, weights: list[Any], reverse: bool
) -> tuple[Tensor, State]:
    """One direction of one layer over (time, batch, features)."""
    gates = project_input(x, weights).unbind(0)
    outputs = []
    for gate in reversed(gates) if reverse else gates:
        state = step(gate, state, weights)
        outputs.append(state[0])
    if reverse:
        outputs.reverse()
    return torch.stack(outputs), state


def _packed_forward(
    step: Callable[..., Any], gates: list[Any], state: State, weights: list, sizes: list[int]
) -> tuple[Tensor, State]:
    """Sequences end one after another: their last states are put aside on the way."""
    outputs, finished = [], []
    for gate, size in zip(gates, sizes):
        rows = state[0].size(0)
        if size < rows:
            finished.append(tuple(s[size:] for s in state))
            state = tuple(s[:size] for s in state)
        state = step(gate, state, weights)
        outputs.append(state[0])
    finished.append(state)
    finished.reverse()
    return torch.cat(outputs), tuple(torch.cat(parts) for parts in zip(*finished))


def _packed_reverse(
    step: Callable[..., Any], gates: list[Any], initial: State, weights: list, sizes: list[int]
) -> tuple[Tensor, State]:
    """Backwards in time sequences begin one after another, with their initial states."""
    outputs = []
    state = tuple(s[: sizes[-1]] for s in initial)
    for gate, size in zip(reversed(gates), reversed(sizes)):
        rows = state[0].size(0)
        if size > rows:
            state = tuple(torch.cat([s, i[rows:size]]) for s, i in zip(state, initial))
        state = step(gate, state, weights)
        outputs.append(state[0])
    outputs.reverse()
    return torch.cat(outputs), state


def recurrent(
    mode: str,
    x: Tensor,
    state: State,
    all_weights: list[list[Any]],
    sizes: list[int] | None,
    bidirectional: bool,
    dropout_p: float,
    training: bool,
) -> tuple[Tensor, State]:
    """All layers and directions; state tensors are (layers * directions, batch, hidden)."""
    step = STEPS[mode]
    directions = 2 if bidirectional else 1
    layers = len(all_weights) // directions
    finals: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            start, weights = tuple(s[index] for s in state), all_weights[index]
            if sizes is None:
                out, final = _padded_direction(step, x, start, weights, direction == 1)
            else:
                run: Any = _packed_reverse if direction else _packed_forward
                gates = list(project_input(x, weights).split(sizes))
                out, final = run(step, gates, start, weights, sizes)
            outputs.append(out)
            finals.append(final)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout_p > 0 and layer < layers - 1:
            x = dropout(x, dropout_p, training)
    return x, tuple(torch.stack(parts) for parts in zip(*finals))
