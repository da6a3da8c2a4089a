"""Softmax along the last dim takes another way by the length of the rows, by their number and by that of the threads."""
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import mindtorch_v2 as mt


@pytest.fixture(params=[1, 16])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = mt.get_num_threads()
    mt.set_num_threads(request.param)
    yield request.param
    mt.set_num_threads(before)


SHAPES = [(40, items) for items in (1, 2, 7, 8, 9, 15, 16, 17, 24, 25, 31, 32, 33, 100, 255, 256, 257)] + [
    (3, 20), (5, 70001), (1, 50257), (2, 2, 65536)]


@pytest.mark.parametrize("odd", [None, -np.inf, np.inf, np.nan], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(shape, dtype, odd, threads):
    values = np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype) * 3
    if odd is not None:
        values[..., shape[-1] // 2] = odd
        values[0] = odd
    grad = np.linspace(-1, 1, values.size, dtype=dtype).reshape(shape)
    for name in ("softmax", "log_softmax"):
        results = []
        for lib in (mt, torch):
            x = lib.tensor(values, requires_grad=True)
            y = getattr(lib, name)(x, -1)
            y.backward(lib.tensor(grad))
            results.append((y.detach().numpy(), x.grad.numpy()))
        for ours, theirs in zip(*results, strict=True):
            step = 3e-5 if dtype == "float32" else 1e-12
            np.testing.assert_allclose(ours, theirs, rtol=step, atol=step, err_msg=name)


def test_in_place(threads):
    for shape in ((40, 37), (3, 70000)):
        x = mt.randn(*shape)
        wanted = x.softmax(1)
        assert mt.softmax(x, 1, out=x).equal(wanted)
