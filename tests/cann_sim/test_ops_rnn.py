"""LSTM and GRU in libopapi, forward and backward, against torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from client import client, same
from layouts import sample

INVALID, NULL = 161002, 161001
STEPS, BATCH, INPUTS, WIDTH = 5, 3, 4, 2
SAVED = {torch.nn.LSTM: 7, torch.nn.GRU: 5}
NETS = [
    pytest.param(
        kind, layers, both, bias, id=f"{kind.__name__}-{layers}{'-both' if both else ''}{'-bias' if bias else ''}"
    )
    for kind in SAVED
    for layers in (1, 2)
    for both in (False, True)
    for bias in (False, True)
]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


def weights(net: torch.nn.RNNBase) -> list[torch.Tensor]:
    return [p for group in net.all_weights for p in group]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if want.dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    same(got, want, **tolerance)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("kind", "layers", "both", "bias"), NETS)
def test_network(
    kind: type[torch.nn.RNNBase], layers: int, both: bool, bias: bool, dtype: torch.dtype, batch_first: bool
) -> None:
    is_lstm, runs = kind is torch.nn.LSTM, layers * (2 if both else 1)
    net = kind(INPUTS, WIDTH, layers, bias=bias, batch_first=batch_first, bidirectional=both)
    for p in net.parameters():
        p.data = p.data.to(dtype).float()
    shape = (BATCH, STEPS, INPUTS) if batch_first else (STEPS, BATCH, INPUTS)
    x = sample(shape, dtype).float().requires_grad_()
    states = [sample((runs, BATCH, WIDTH), dtype).float().requires_grad_() for _ in range(2 if is_lstm else 1)]
    output, last = net(x, tuple(states) if is_lstm else states[0])
    finals = list(last) if is_lstm else [last]

    params = [p.detach().to(dtype) for p in weights(net)]
    data, first = x.detach().to(dtype), [s.detach().to(dtype) for s in states]
    saved = [[torch.empty(STEPS, BATCH, WIDTH, dtype=dtype) for _ in range(runs)] for _ in range(SAVED[kind])]
    outs = [torch.empty_like(t, dtype=dtype) for t in (output, *finals)]
    name, begin = ("aclnnLSTM", first) if is_lstm else ("aclnnGRU", first[0])
    got = client().call(name, data, params, begin, None, bias, layers, 0.0, True, both, batch_first, *outs, *saved)
    for g, want in zip(got, (output, *finals), strict=False):
        close(g, want.detach().to(dtype))

    grads = [sample(tuple(t.shape), dtype) for t in (output, *finals)]
    torch.autograd.backward((output, *finals), [g.float() for g in grads])
    flat = list(got[len(outs) :])
    kept = [flat[k * runs : (k + 1) * runs] for k in range(SAVED[kind])]
    results = [torch.empty_like(data), *(torch.empty_like(s) for s in first), [torch.empty_like(p) for p in params]]
    if is_lstm:
        form = (None, bias, layers, 0.0, True, both, batch_first, None)
        back = client().call("aclnnLstmBackward", data, first, params, *grads, *kept, *form, *results)
    else:
        form = (None, bias, layers, both, batch_first)
        back = client().call("aclnnGRUBackward", data, params, first[0], *grads, *kept, *form, *results)
    wants = [x.grad, *(s.grad for s in states), *(p.grad for p in weights(net))]
    for g, want in zip(back, wants, strict=True):
        close(g, want.to(dtype))


def test_without_first_states_or_anything_saved() -> None:
    net = torch.nn.LSTM(INPUTS, WIDTH)
    x = sample((STEPS, BATCH, INPUTS), torch.float32)
    with torch.no_grad():
        output, (h, c) = net(x)
    params = [p.detach() for p in weights(net)]
    outs = [torch.empty_like(t) for t in (output, h, c)]
    got = client().call("aclnnLSTM", x, params, None, None, True, 1, 0.0, False, False, False, *outs, *([None] * 7))
    for g, want in zip(got, (output, h, c), strict=True):
        close(g, want)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_sequences_of_several_lengths(both: bool, flat: bool) -> None:
    """batchSizes: padded data in, the results of torch's packed sequences out, and 0 where a sequence has no step."""
    lengths, runs = torch.tensor([5, 3, 2]), 4 if both else 2
    net = torch.nn.LSTM(INPUTS, WIDTH, 2, bidirectional=both)
    x = sample((STEPS, BATCH, INPUTS), torch.float32).requires_grad_()
    states = [sample((runs, BATCH, WIDTH), torch.float32).requires_grad_() for _ in range(2)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
    output, last = net(packed, tuple(states))
    output = torch.nn.utils.rnn.pad_packed_sequence(output)[0]

    params, data, first = [p.detach() for p in weights(net)], x.detach().flatten(0, 1), [s.detach() for s in states]
    form = (True, 2, 0.0, True, both, False)
    saved = [[torch.empty(STEPS, BATCH, WIDTH) for _ in range(runs)] for _ in range(7)]
    shape = (STEPS * BATCH, output.shape[2]) if flat else tuple(output.shape)
    outs = [torch.empty(shape), *(torch.empty_like(t) for t in last)]
    got = client().call("aclnnLSTM", data, params, first, packed.batch_sizes, *form, *outs, *saved)
    for g, want in zip(got, (output, *last), strict=False):
        close(g.reshape(want.shape), want.detach())

    grads = [sample(tuple(t.shape), torch.float32) for t in (output, *last)]
    torch.autograd.backward((output, *last), grads)
    flat_saved = list(got[3:])
    kept = [flat_saved[k * runs : (k + 1) * runs] for k in range(7)]
    results = [torch.empty_like(data), *(torch.empty_like(s) for s in first), [torch.empty_like(p) for p in params]]
    grads[0] = grads[0].reshape(shape)
    back = client().call("aclnnLstmBackward", data, first, params, *grads, *kept, packed.batch_sizes, *form, None, *results)
    wants = [x.grad.flatten(0, 1), *(s.grad for s in states), *(p.grad for p in weights(net))]
    for g, want in zip(back, wants, strict=True):
        close(g, want)


GROWING = """
import sys
sys.path.insert(0, {folder!r})
import torch
from client import CannError, client
h = torch.zeros(1, 3, 2)
weights = [torch.zeros(8, 4), torch.zeros(8, 2)]
form = (False, 1, 0.0, False, False, False)
try:
    client().call("aclnnLSTM", torch.zeros(6, 4), weights, [h, h], torch.tensor([2, 3]), *form, torch.empty(6, 2), h, h, *[None] * 7)
except CannError as error:
    print(error.code, error.message)
"""


def test_lengths_that_grow_are_a_fault_of_the_device(run_python: Callable[..., str]) -> None:
    said = run_python(GROWING.format(folder=str(Path(__file__).parent)))
    assert said.startswith("507") and "batchSizes must not grow" in said, said


@pytest.mark.parametrize("bias", [False, True])
def test_lstm_cell(bias: bool) -> None:
    gates = [sample((BATCH, 4 * WIDTH), torch.float32).requires_grad_() for _ in range(2)]
    biases = [sample((4 * WIDTH,), torch.float32) if bias else None for _ in range(2)]
    cx = sample((BATCH, WIDTH), torch.float32).requires_grad_()
    total = gates[0] + gates[1] + (biases[0] + biases[1] if bias else 0)
    i, f, g, o = total.chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * cx + i * g
    hy = o * torch.tanh(cy)
    raw = [t.detach() for t in (*gates, cx)]
    outs = [torch.empty(BATCH, WIDTH), torch.empty(BATCH, WIDTH), torch.empty(BATCH, 4 * WIDTH)]
    got = client().call("aclnnThnnFusedLstmCell", *raw, *biases, *outs)
    for a, want in zip(got, (hy, cy, torch.cat((i, f, g, o), 1)), strict=True):
        close(a, want.detach())
    dhy, dcy = sample((BATCH, WIDTH), torch.float32), sample((BATCH, WIDTH), torch.float32)
    torch.autograd.backward((hy, cy), (dhy, dcy))
    results = [torch.empty(BATCH, 4 * WIDTH), torch.empty(BATCH, WIDTH), torch.empty(4 * WIDTH) if bias else None]
    back = client().call("aclnnThnnFusedLstmCellBackward", dhy, dcy, raw[2], got[1], got[2], bias, *results)
    for a, want in zip(back, (gates[0].grad, cx.grad, gates[0].grad.sum(0)), strict=False):
        close(a, want)


def only_on_a_310p() -> None:
    """Run by the test below in a process whose SoC has the kernels."""
    live = torch.tensor([3, 3, 2, 1, 1])
    for both, bias in ((False, False), (True, True)):
        runs, net = 2 if both else 1, torch.nn.LSTM(INPUTS, WIDTH, bias=bias, bidirectional=both).half().float()
        x, h, c = (sample(shape, torch.float16) for shape in ((STEPS, BATCH, INPUTS), (runs, BATCH, WIDTH), (runs, BATCH, WIDTH)))
        given: list[torch.Tensor | None] = []
        for group in net.all_weights:
            given += [p.detach().half() for p in group] + [None] * (4 - len(group))
        inputs = (x, h, c, *(given + [None] * 4)[:8])
        outs = torch.empty(STEPS, BATCH, runs * WIDTH).half(), torch.empty_like(h), torch.empty_like(c)
        want, last = net(x.float(), (h.float(), c.float()))
        for got, right in zip(client().call("aclnnBidirectionLSTM", *inputs, 1, bias, False, both, *outs), (want, *last), strict=True):
            close(got, right.detach().half())
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.float(), [5, 3, 2])
        assert packed.batch_sizes.tolist() == live.tolist()
        output, last = net(packed, (h.float(), c.float()))
        padded = torch.nn.utils.rnn.pad_packed_sequence(output)[0]
        made = client().call("aclnnBidirectionLSTMV2", *inputs, live, 1, bias, False, both, True, *outs)
        for got, right in zip(made, (padded, *last), strict=True):
            close(got, right.detach().half())
        client().expect_code(INVALID, "aclnnBidirectionLSTM", *inputs, 2, bias, False, both, *outs)
        client().expect_code(INVALID, "aclnnBidirectionLSTM", *inputs, 1, bias, False, both, outs[0][1:].clone(), *outs[1:])
        client().expect_code(INVALID, "aclnnBidirectionLSTMV2", *inputs, None, 1, bias, False, both, True, *outs)
    client().expect_code(INVALID, "aclnnBidirectionLSTM", *inputs[:9], None, None, 1, True, False, True, *outs)


def test_layers_that_one_generation_has() -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_ops_rnn as t; t.only_on_a_310p()"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"CANN_SIM_SOC": "310P"}, check=True)


X, P = torch.zeros(STEPS, BATCH, INPUTS), [torch.zeros(8, 4), torch.zeros(8, 2)]
H, Y, S = torch.zeros(1, BATCH, WIDTH), torch.zeros(STEPS, BATCH, WIDTH), [None] * 7
P3 = [torch.zeros(6, 4), torch.zeros(6, 2)]
PLAIN, TRAIN = (False, 1, 0.0, False, False, False), (False, 1, 0.0, True, False, False)
REFUSED: list[tuple[int, str, tuple[Any, ...]]] = [
    (NULL, "aclnnLSTM", (None, P, [H, H], None, *PLAIN, Y, H, H, *S)),
    (NULL, "aclnnLSTM", (X, P, [H, H], None, *PLAIN, None, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P[:1], [H, H], None, *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, [*P, *P], [H, H], None, *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, [P[1], P[1]], [H, H], None, *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P, [Y, Y], None, *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P, [H, H], None, *PLAIN, X, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P, [H, H], None, *PLAIN, Y, H, Y, *S)),
    (INVALID, "aclnnLSTM", (X[0].clone(), P, [H, H], None, *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P, [H, H], torch.full((STEPS,), BATCH), *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnLSTM", (X, P, [H, H], None, *TRAIN, Y, H, H, [H], *S[1:])),
    (INVALID, "aclnnLSTM", (X.flatten(0, 1)[1:].clone(), P, [H, H], torch.full((STEPS,), BATCH), *PLAIN, Y, H, H, *S)),
    (INVALID, "aclnnGRU", (X.flatten(0, 1), P3, H, torch.full((STEPS,), BATCH), *PLAIN, Y, H, *S[:5])),
    (INVALID, "aclnnGRU", (X, P, H, None, *PLAIN, Y, H, *S[:5])),
    (INVALID, "aclnnThnnFusedLstmCell", (X[0], X[0], H[0], None, None, H[0], H[0], X[0])),
]


@pytest.mark.parametrize(("code", "name", "args"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_refused(code: int, name: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, name, *args)
