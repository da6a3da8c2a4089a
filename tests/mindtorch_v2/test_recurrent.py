"""Recurrent layers on the CPU, where one kernel computes all steps: values, gradients and their gradients as PyTorch's."""
from __future__ import annotations

import numpy as np
import pytest
import torch

import mindtorch_v2 as mt

LAYERS = {
    "one layer": {},
    "no bias": {"bias": False},
    "two layers, both directions": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
}


@pytest.fixture(params=[1, 2, 16])
def threads(request):
    before = mt.get_num_threads()
    mt.set_num_threads(request.param)
    yield request.param
    mt.set_num_threads(before)


def twins(kind, features, hidden, **options):
    """The same network in both libraries."""
    torch.manual_seed(0)
    theirs, ours = getattr(torch.nn, kind)(features, hidden, **options), getattr(mt.nn, kind)(features, hidden, **options)
    ours.load_state_dict({name: mt.tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()})
    return (torch, theirs), (mt, ours)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def run(lib, net, x, states, second=False):
    """Outputs, last states and gradients of a loss that reads all of them."""
    x = lib.tensor(x, requires_grad=True)
    states = [lib.tensor(s, requires_grad=True) for s in states]
    out, last = net(x, None if not states else tuple(states) if len(states) > 1 else states[0])
    last = last if isinstance(last, tuple) else (last,)
    loss = out.sin().sum() + sum((i + 1) * s.square().sum() for i, s in enumerate(last))
    given = [x, *states, *net.parameters()]
    grads = lib.autograd.grad(loss, given, create_graph=second)
    if second:
        grads = lib.autograd.grad(sum(g.square().sum() for g in grads), given)
    return [value.detach().numpy() for value in (out, *last, *grads)]


def check(ours, theirs, tolerance=2e-5):
    for got, wanted in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_values_and_gradients(kind, options, threads):
    pairs = twins(kind, 13, 72, **options)
    theirs, ours = (run(lib, net, numbers(6, 9, 13), []) for lib, net in pairs)
    check(ours, theirs)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 1), (3, 17), (33, 40), (16, 256)])
def test_sizes_and_initial_states(kind, batch, hidden, threads):
    pairs = twins(kind, 5, hidden)
    states = [numbers(1, batch, hidden) for _ in range(2 if kind == "LSTM" else 1)]
    theirs, ours = (run(lib, net, numbers(4, batch, 5), states) for lib, net in pairs)
    check(ours, theirs)


@pytest.mark.parametrize("options", [{"nonlinearity": "relu"}, {"nonlinearity": "relu", "bidirectional": True}])
def test_relu(options):
    theirs, ours = (run(lib, net, numbers(5, 3, 4), []) for lib, net in twins("RNN", 4, 20, **options))
    check(ours, theirs)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_second_derivatives(kind):
    theirs, ours = (run(lib, net, numbers(4, 2, 3), [], second=True) for lib, net in twins(kind, 3, 6, bidirectional=True))
    check(ours, theirs, 1e-4)


def test_states_that_are_not_contiguous():
    states = [numbers(3, 20, 1).transpose(2, 0, 1) for _ in range(2)]
    theirs, ours = (run(lib, net, numbers(4, 3, 5), states) for lib, net in twins("LSTM", 5, 20))
    check(ours, theirs)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_vmap_and_forward_mode_agree_with_the_kernel(kind):
    net, x, along = getattr(mt.nn, kind)(3, 8), mt.randn(4, 5, 2, 3), mt.randn(5, 2, 3)
    mt.testing.assert_close(mt.vmap(lambda v: net(v)[0])(x), mt.stack([net(v)[0] for v in x]))
    _, slope = mt.func.jvp(lambda v: net(v)[0], (x[0],), (along,))
    step = 1e-3
    difference = (net(x[0] + step * along)[0] - net(x[0] - step * along)[0]) / (2 * step)
    mt.testing.assert_close(slope, difference, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("change", [
    {"mode": 4}, {"mode": -1}, {"mode": 0}, {"hx": (3, 5)}, {"hx": (4,)}, {"weight_hh": (16, 5)}, {"bias_hh": (15,)},
    {"cx": None}, {"cx": (4, 4)}, {"gates": (0, 3, 16)}, {"gates": (2, 3, 0)}, {"gates": (3, 16)},
])
def test_the_op_refuses_what_does_not_fit(change):
    shapes = {"gates": (2, 3, 16), "hx": (3, 4), "cx": (3, 4), "weight_hh": (16, 4), "bias_hh": (16,), "mode": 2} | change
    given = {name: mt.zeros(shape) if isinstance(shape, tuple) else shape for name, shape in shapes.items()}
    with pytest.raises(RuntimeError, match="_recurrent_layer"):
        mt._recurrent_layer(**given, reverse=False)


def test_the_backward_refuses_what_does_not_fit():
    given = [mt.zeros(2, 3, 16), mt.zeros(3, 4), mt.zeros(3, 4), mt.zeros(16, 4), None]
    output, cells, kept = mt._recurrent_layer(*given, 2, False)
    with pytest.raises(RuntimeError, match="grad of shape"):
        mt._recurrent_layer_backward(output[:1], cells, *given, output, cells, kept, 2, False)
    with pytest.raises(RuntimeError, match="kept of shape"):
        mt._recurrent_layer_backward(output, cells, *given, output, cells, kept[:, :, 1:], 2, False)
    with pytest.raises(RuntimeError, match="not implemented for 'Double'"):
        mt._recurrent_layer(*(x if x is None else x.double() for x in given), 2, False)
