"""Functions at the top of torch that are not ops: questions, files, symbolic numbers, recurrent calls, what was removed."""
from __future__ import annotations

import importlib
import os
import tempfile

import pytest
from twin import error, twin


@twin
def test_questions(t):
    x = t.ones(2, dtype=t.uint8)
    return (t.is_signed(x), t.is_signed(t.ones(2)), t.is_conj(x), t.is_neg(x), t.is_inference(x), t.is_distributed(x),
            t.get_device(x), error(lambda: t.is_signed(3), 60), t.has_lapack, t.ComplexFloatStorage.__name__)


@twin
def test_numbers_that_may_be_symbolic(t):
    return (t.sym_int(3.7), t.sym_int(-3.7), t.sym_float(2), t.sym_max(1, 2.0), t.sym_max(2, 1), t.sym_min(1, 2.0),
            t.sym_not(True), t.sym_ite(True, 1, 2), t.sym_sqrt(4), t.sym_sum([1, 2]))


@pytest.mark.parametrize("name", ["eig", "solve", "symeig", "lstsq", "matrix_rank"])
@twin
def test_removed_functions_say_so(t, name):
    args = (t.eye(2),) * (2 if name in ("solve", "lstsq") else 1)
    return error(lambda: getattr(t, name)(*args), 60)


@twin
def test_tensors_over_files(t):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "numbers")
        written = t.from_file(path, shared=True, size=4, dtype=t.float32).copy_(t.arange(4.0))
        own = t.from_file(path, size=3)
        before = own.clone()
        own.zero_()
        return (written, before, t.from_file(path, size=4), os.path.getsize(path),
                list(t.UntypedStorage.from_file(path, False, 8)), len(t.UntypedStorage.from_file(path)),
                error(lambda: t.from_file(path, size=9), 4), error(lambda: t.from_file(folder + "/none", size=1), 20))


MODES = ["rnn_tanh", "rnn_relu", "gru", "lstm"]


def hidden(t, mode, *shape):
    t.manual_seed(3)
    return (t.randn(*shape), t.randn(*shape)) if mode == "lstm" else t.randn(*shape)


@pytest.mark.parametrize("mode", MODES)
@twin
def test_recurrent_networks_as_functions(t, mode):
    gates = {"gru": 3, "lstm": 4}.get(mode, 1)
    weights = [t.randn(gates * 4, n) for n in (3, 4)] + [t.randn(gates * 4) for _ in range(2)]
    h = hidden(t, mode, 1, 2, 4)
    whole = getattr(t, mode)(t.randn(5, 2, 3), h, weights, True, 1, 0.0, False, False, False)
    packed = getattr(t, mode)(t.randn(5, 3), t.tensor([2, 2, 1]), h, weights, True, 1, 0.0, False, False)
    cell = getattr(t, mode + "_cell")(t.randn(2, 3), hidden(t, mode, 2, 4), *weights)
    vf = importlib.import_module(t.__name__ + "._VF")
    return whole, packed, cell, getattr(vf, mode)(t.randn(2, 2, 3), h, weights[:2], False, 1, 0.0, False, False, True)


@twin
def test_a_tracker_lists_the_running_modules(t):
    tracker = importlib.import_module(t.__name__ + ".utils.module_tracker").ModuleTracker()
    seen = []

    class Watched(t.nn.Module):
        def forward(self, x):
            seen.append((sorted(tracker.parents), tracker.is_bw))
            y = x * 2
            y.register_hook(lambda g: seen.append(sorted(tracker.parents)))
            return y
    model = t.nn.Sequential(t.nn.Linear(2, 2), Watched(), t.nn.ReLU())
    with tracker:
        model(t.ones(1, 2)).sum().backward()
    return seen, sorted(tracker.parents)[:1]


@twin
def test_small_methods(t):
    x = t.arange(6.0)
    return (x.const_data_ptr() == x.data_ptr(), x.narrow_copy(0, 1, 2), x._lazy_clone(), x.module_load(x + 1),
            x.module_load(x * 2, assign=True), error(lambda: x.reinforce(1)), error(lambda: x.ipu()), error(lambda: x.mtia()))
