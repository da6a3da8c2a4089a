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


class _Layer(torch.autograd.Function):
    """One direction of a layer by the kernel that knows all steps: (gates, h, c, w_hh, b_hh, mode, reverse) to the outputs
    and, of LSTM, the cell states of all times."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        output, cells, kept = torch._recurrent_layer(*given)
        ctx.save_for_backward(*given[:5], output, cells, kept)
        ctx.rest = given[5:]                     # mode and direction
        return output, cells

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_cells: Tensor) -> Any:
        gates, h, c, w_hh, b_hh, output, cells, kept = ctx.saved_tensors
        mode, reverse = ctx.rest
        if not torch.is_grad_enabled():
            return (*torch._recurrent_layer_backward(grad, grad_cells, gates, h, c, w_hh, b_hh, output, cells, kept, mode,
                                                     reverse), None, None)
        # a derivative of the derivative: that of the loop
        weights = [None, w_hh] if b_hh is None else [None, w_hh, None, b_hh]
        made, states = _loop(list(STEPS.values())[mode], gates, (h,) if c is None else (h, c), weights, reverse)
        results, into = [made], [grad]
        if c is not None:
            results.append(torch.stack([state[1] for state in states]))
            into.append(grad_cells)
        needed = ctx.needs_input_grad[:5]
        wanted = [x for x, need in zip((gates, h, c, w_hh, b_hh), needed) if need]
        slopes = iter(torch.autograd.grad(results, wanted, into, create_graph=True, allow_unused=True))
        return (*(next(slopes) if need else None for need in needed), None, None)


def _loop(step: Callable[..., Any], gates: Tensor, state: State, weights: list[Any],
          reverse: bool) -> tuple[Tensor, list[State]]:
    """The outputs, and the states in the order of time."""
    states = []
    times = gates.unbind(0)
    for gate in reversed(times) if reverse else times:
        state = step(gate, state, weights)
        states.append(state)
    if reverse:
        states.reverse()
    return torch.stack([state[0] for state in states]), states


def _kernel_fits(gates: Tensor, state: State, weights: list[Any]) -> bool:
    """Whether one kernel serves all steps: float32 on the CPU, no projection, and no vmap or forward mode."""
    return (gates.is_cpu and gates.dtype is torch.float32 and len(weights) in (2, 4)
            and gates.dim() == 3 and 0 not in gates.shape and not torch._C._transforms()
            and all(x.is_cpu and x.dtype is gates.dtype for x in (*state, *weights)))


def _padded_direction(
    step: Callable[..., Any], x: Tensor, state: State, weights: list[Any], reverse: bool
) -> tuple[Tensor, State]:
    """One direction of one layer over (time, batch, features)."""
    gates = project_input(x, weights)
    if _kernel_fits(gates, state, weights):
        mode = list(STEPS.values()).index(step)
        c = state[1] if len(state) == 2 else None
        given = gates, state[0], c, weights[1], weights[3] if len(weights) == 4 else None, mode, reverse
        recorded = torch.is_grad_enabled() and any(isinstance(i, torch.Tensor) and i.requires_grad for i in given)
        out, cells = _Layer.apply(*given) if recorded else torch._recurrent_layer(*given, keep=False)[:2]
        last = 0 if reverse else -1
        return out, (out[last],) if c is None else (out[last], cells[last])
    out, states = _loop(step, gates, state, weights, reverse)
    return out, states[0 if reverse else -1]


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
