"""Sobol's sequence against torch's, and its refusals."""
from __future__ import annotations

import pytest
import torch
from twin import error, twin

import mindtorch_v2 as mt


@pytest.mark.parametrize("dimension", [1, 2, 7, 40, 500])
@twin
def test_points(t, dimension):
    engine = t.quasirandom.SobolEngine(dimension)
    first, more = engine.draw(3), engine.draw(6, dtype=t.float64)
    engine.fast_forward(11)
    later = engine.draw(2)
    return first, more, later, engine.num_generated, engine.reset().draw_base2(3), engine.draw_base2(3)


@pytest.mark.parametrize("dimension", [1, 3, 60])
@twin
def test_scrambled_points(t, dimension):
    engine = t.quasirandom.SobolEngine(dimension, scramble=True, seed=1234)
    made = engine.draw(9), engine.draw(4)
    engine.fast_forward(2)
    t.manual_seed(3)
    return made, engine.draw(1), repr(engine), t.quasirandom.SobolEngine(dimension, scramble=True).draw(5)


@twin
def test_refusals_and_out(t):
    engine = t.quasirandom.SobolEngine(4)
    out = t.empty(0)
    engine.draw(5, out=out)
    return (out, error(lambda: t.quasirandom.SobolEngine(0)), error(lambda: t.quasirandom.SobolEngine(21202)),
            error(lambda: engine.draw_base2(3), 40), engine.MAXDIM, engine.MAXBIT, repr(engine))


def test_direction_numbers_of_every_dimension() -> None:
    ours, theirs = mt.quasirandom._directions(21201), torch.quasirandom.SobolEngine(21201).sobolstate
    assert torch.equal(torch.from_dlpack(ours), theirs)
