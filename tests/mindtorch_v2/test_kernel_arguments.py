"""Kernels check what they index by: calls that are nearly right, of every row, end in a result or an exception."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mindtorch_v2 as mt

HERE = Path(__file__).parent


@pytest.mark.parametrize("call", [
    lambda aten: aten._eye_(mt.ones(5), 3, 3),
    lambda aten: aten._fft_c2r(mt.ones(3, 0, dtype=mt.complex64), [1], 0, 4),
    lambda aten: aten._fft_c2r(mt.ones(3, 0, dtype=mt.complex64), [0, 1], 0, 4),
    lambda aten: aten._attention(mt.ones(4, 4, 3, 8), mt.ones(4, 4, 6, 8), mt.ones(5)),
    lambda aten: aten._linalg_lstsq(mt.ones(3, 3, 0, 3), mt.ones(3, 2, 3), "gelsy", None),
    lambda aten: aten._masked_scatter(mt.ones(5, 0), mt.ones(1, dtype=mt.bool), mt.ones(5, 5)),
    lambda aten: aten.native_group_norm(mt.ones(1, 2), mt.ones(2, dtype=mt.int64), None, 1, 2, 1, 1, 1e-5),
    lambda aten: aten._searchsorted(mt.ones(()), mt.ones(()), mt.ones(3, dtype=mt.int64), False, True),
    lambda aten: aten.grid_sampler_2d(mt.ones(()), mt.ones(2, 13, 10, 2), 0, 0, False),
    lambda aten: aten.avg_pool2d_backward(mt.ones(1, 3, 3, 3), mt.ones(1, 3, 9, 9), 2**31, 3, 0, False, True, None),
    lambda aten: aten.reflection_pad1d_backward(mt.ones(2, 3, 4), mt.ones(2, 3, 4), [-2**63, -2**63]),   # their sum is 0
    lambda aten: aten.replication_pad2d_backward(mt.ones(1, 2, 4, 4), mt.ones(1, 2, 4, 4), [-2**63, -2**63] * 2),
    lambda aten: aten.constant_pad_nd(mt.ones(3), [-2**63, 2**63 - 1]),
])
def test_refused(call):
    with pytest.raises((RuntimeError, IndexError)):
        call(mt.ops.aten)


def test_attention_without_queries():
    query = mt.ones(2, 0, 0, 3, 4, requires_grad=True)
    key = mt.ones(2, 0, 2, 5, 4, requires_grad=True)
    mt.ops.aten._attention(query, key, key, enable_gqa=True)[0].sum().backward()
    query, key = mt.ones(2, 0, 3, 4, requires_grad=True), mt.ones(2, 2, 5, 4, requires_grad=True)
    mt.ops.aten._attention(query, key, key, enable_gqa=True)[0].sum().backward()
    assert not key.grad.any()


def test_calls_nearly_right() -> None:
    command = [sys.executable, "-X", "faulthandler", str(HERE / "fuzz_rows.py"), "--samples", "1", "--rounds", "12"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-4000:]


def test_more_rows_than_memory_has_counters() -> None:
    """A table without columns takes no memory, but its rows were to be counted."""
    indices = mt.zeros(4, dtype=mt.int64)
    made = mt.ops.aten.embedding_dense_backward(mt.empty(4, 0), indices, 2**62, -1, True)
    assert tuple(made.shape) == (2**62, 0)


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "conv3d", "conv_transpose3d"])
@pytest.mark.parametrize("stride", [2**63 - 1, 2**62, 2**32])
def test_a_stride_that_is_never_walked(name: str, stride: int) -> None:
    n = int(name[-2])
    size = 1 if "transpose" in name else 4
    x = mt.ones((1, 1) + (size,) * n, requires_grad=True)
    made = getattr(mt, name)(x, mt.ones((1, 1) + (1,) * n), stride=stride)
    made.sum().backward()
    assert made.numel() == 1 and made.item() == 1 and x.grad.sum().item() == 1


def test_round_to_the_lowest_decimals() -> None:
    assert mt.round(mt.tensor([1.5]), decimals=-(2**63)).tolist() != [1.5]
