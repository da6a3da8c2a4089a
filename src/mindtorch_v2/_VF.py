"""torch.lstm, torch.gru_cell and their like: recurrent networks as functions of flat lists of weights."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindtorch_v2 as torch

if TYPE_CHECKING:
    from mindtorch_v2.nn._functional import recurrent as _networks
else:
    _networks = torch.nn._functional.recurrent   # through the front door

Tensor = torch.Tensor


def _call(mode: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or for packed sequences
    (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)."""
    if isinstance(args[3], (list, tuple)):       # the weights: second after the hidden state in both forms
        data, batch_sizes, hx, params, biases, layers, dropout, train, bidirectional = args
        sizes, batch_first = batch_sizes.tolist(), False
    else:
        data, hx, params, biases, layers, dropout, train, bidirectional, batch_first = args
        sizes = None
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    weights = [list(params[i * each:(i + 1) * each]) for i in range(layers * directions)]
    if each != (4 if biases else 2) + (mode == "LSTM" and each in (3, 5)):
        raise RuntimeError(f"[{mode.lower()}] expected {4 if biases else 2} weights for each layer and direction, got {each}")
    state = tuple(hx) if mode == "LSTM" else (hx,)
    data = data.transpose(0, 1) if batch_first else data
    out, final = _networks.recurrent(mode, data, state, weights, sizes, bidirectional, dropout, train)
    return (out.transpose(0, 1) if batch_first else out, *final)


def _cell(mode: str, input: Tensor, state: tuple[Any, ...], *weights: Any) -> Any:
    given = [w for w in weights if w is not None]
    return _networks.STEPS[mode](_networks.project_input(input, given), state, given)


def lstm(*args: Any) -> tuple[Any, ...]:
    """Output, last hidden states and last cell states of an LSTM."""
    return _call("LSTM", args)


def gru(*args: Any) -> tuple[Any, ...]:
    """Output and last hidden states of a GRU."""
    return _call("GRU", args)


def rnn_tanh(*args: Any) -> tuple[Any, ...]:
    """Output and last hidden states of an Elman network with tanh."""
    return _call("RNN_TANH", args)


def rnn_relu(*args: Any) -> tuple[Any, ...]:
    """Output and last hidden states of an Elman network with relu."""
    return _call("RNN_RELU", args)


def lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> tuple[Any, Any]:
    """One step of an LSTM: the new hidden and cell state."""
    h, c = _cell("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of a GRU."""
    return _cell("GRU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of an Elman network with tanh."""
    return _cell("RNN_TANH", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Tensor:
    """One step of an Elman network with relu."""
    return _cell("RNN_RELU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


def __getattr__(name: str) -> Any:
    return getattr(torch, name)                  # torch._VF.stft, torch._VF.tensordot …: every function of torch
