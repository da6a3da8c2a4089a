"""Indexed writes with several threads: rows that meet at one place are combined in their order, as with one thread."""
from __future__ import annotations

import numpy as np
import pytest

import mindtorch_v2 as mt


@pytest.fixture(params=[2, 16])
def threads(request):
    before = mt.get_num_threads()
    mt.set_num_threads(request.param)
    yield request.param
    mt.set_num_threads(before)


OPS = {
    "index_add": lambda x, i, v: x.index_add(0, i, v),
    "index_copy": lambda x, i, v: x.index_copy(0, i, v),
    "index_put, accumulated": lambda x, i, v: x.index_put((i,), v, accumulate=True),
    "scatter_add, expanded": lambda x, i, v: x.scatter_add(0, i[:, None].expand_as(v), v),
    "index_reduce": lambda x, i, v: x.index_reduce(0, i, v, "amax"),
    "gather, expanded": lambda x, i, v: x.gather(0, i[:, None].expand_as(v)),
}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("columns", [8, 32, 33, 200])
def test_as_with_one_thread(op, columns, threads):
    draw = np.random.default_rng(columns)
    x, values = (mt.tensor(draw.standard_normal((rows, columns)).astype("f4")) for rows in (501, 9000))
    index = mt.tensor(draw.integers(0, 501, 9000))
    if op == "index_copy":                       # of places that are written twice any value may stay
        index, values = mt.randperm(501), values[:501].repeat(1, 20)
        x = x.repeat(1, 20)
    many = OPS[op](x, index, values)
    mt.set_num_threads(1)
    assert many.equal(OPS[op](x, index, values))


def test_a_bad_index_is_named(threads):
    index = mt.zeros(5000, dtype=mt.int64)
    index[4000] = 700
    with pytest.raises(RuntimeError, match="index 700 is out of bounds"):
        mt.zeros(500, 32).index_add_(0, index, mt.ones(5000, 32))
