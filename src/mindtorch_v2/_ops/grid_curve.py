"""The second derivative of sampling images at grids, of tensor ops: the kernels have the first."""
from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

from mindtorch_v2._ops.reduce import INT64
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor

_NEAREST, _CUBIC = 1, 2                          # interpolation modes; 0 is linear
_ZEROS, _REFLECTED = 0, 2                        # borders; 1 takes the nearest pixel


class _Tap(NamedTuple):
    """A pixel along one dim: where it is, its weight, and the weight's first and second derivative by the coordinate."""

    at: Tensor
    weights: tuple[Tensor, Tensor, Tensor]


def _bounded(x: Tensor, slope: Tensor, size: int, border: int, align: bool) -> tuple[Tensor, Tensor]:
    """A pixel coordinate brought into the image, and its slope."""
    if border == _ZEROS:
        return x, slope
    if border == _REFLECTED:
        low, span = (0.0, size - 1) if align else (-0.5, size)
        if span == 0:
            x, slope = ops.zeros_like(x), ops.zeros_like(slope)
        else:
            away = (x - low).abs()
            rest, even = away.fmod(span), away.div(span).floor().fmod(2) == 0
            sign = ops.where(x < low, -slope, slope)
            x, slope = ops.where(even, rest + low, span - rest + low), ops.where(even, sign, -sign)
    inside = (x > 0) & (x < size - 1)
    return ops.where(x > 0, x, 0).clamp(max=size - 1), ops.where(inside, slope, 0)


def _cubic(f: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Weights, slopes and curves of the four pixels around a point that lies f behind the second."""
    a, made = -0.75, []
    for place, (v, sign) in enumerate(((f + 1, 1), (f, 1), (1 - f, -1), (2 - f, -1))):
        if place in (1, 2):
            weights = ((a + 2) * v - (a + 3)) * v * v + 1, (3 * (a + 2) * v - 2 * (a + 3)) * v, 6 * (a + 2) * v - 2 * (a + 3)
        else:
            weights = ((a * v - 5 * a) * v + 8 * a) * v - 4 * a, (3 * a * v - 10 * a) * v + 8 * a, 6 * a * v - 10 * a
        made.append((weights[0], weights[1] * sign, weights[2]))
    return made


def _taps(g: Tensor, size: int, mode: int, border: int, align: bool) -> list[_Tap]:
    """The pixels along one dim that a coordinate of the grid reads; those outside the image weigh nothing."""
    scale = (size - 1) / 2 if align else size / 2
    x = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
    unit = ops.full_like(x, scale)
    if mode == _CUBIC:
        base = x.floor()
        taps = [(_bounded(base - 1 + k, unit, size, border, align)[0], (w, s * scale, c * scale * scale))
                for k, (w, s, c) in enumerate(_cubic(x - base))]
    else:
        x, slope = _bounded(x, unit, size, border, align)
        one, none = ops.ones_like(x), ops.zeros_like(x)
        below = x.floor()
        taps = [(x.round(), (one, none, none))] if mode == _NEAREST else \
            [(below, (1 - (x - below), -slope, none)), (below + 1, (x - below, slope, none))]
    made = []
    for at, weights in taps:
        inside = (at >= 0) & (at < size)
        made.append(_Tap(ops.where(inside, at, 0).to(INT64), tuple(ops.where(inside, w, 0) for w in weights)))
    return made


def _weight(taps: tuple[_Tap, ...], *by: int) -> Tensor:
    """The weight of a pixel, or its derivative by the coordinates along these dims."""
    return prod((tap.weights[by.count(d)] for d, tap in enumerate(taps[1:], 1)), start=taps[0].weights[by.count(0)])


def sampled_twice(gs: Any, grad_output: Tensor, input: Tensor, grid: Tensor, mode: int, border: int, align: bool,
                  needs: tuple[bool, bool, bool]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of grid_sampler_nd_backward: those of grad_output, input and grid."""
    of_input, of_grid = gs
    n, channels, *sizes = input.shape
    rank, points = len(sizes), grid.shape[1:-1]
    name = f"grid_sampler_{rank}d"
    found: list[Any] = [None, None, None]
    if of_input is not None:                     # linear in grad_output: the samples of the other factor
        if needs[0]:
            found[0] = getattr(ops, name)(of_input, grid, mode, border, align)
        if needs[2]:
            found[2] = getattr(ops, name + "_backward")(grad_output, of_input, grid, mode, border, align, (False, True))[1]
    if of_grid is None:
        return found[0], found[1], found[2]
    g, pixels, places, along = grad_output.flatten(2), input.flatten(2), grid.flatten(1, -2), of_grid.flatten(1, -2)
    to_g, to_input, to_grid = ops.zeros_like(g), ops.zeros_like(pixels), [ops.zeros_like(g[:, 0]) for _ in range(rank)]
    axes = [_taps(places[..., d], sizes[-1 - d], mode, border, align) for d in range(rank)]      # width comes first
    for taps in product(*axes):
        at = taps[-1].at
        for d in range(rank - 2, -1, -1):
            at = at * sizes[-1 - d] + taps[d].at
        at = at.unsqueeze(1).expand(n, channels, -1)
        values = pixels.gather(2, at)
        slope = sum(_weight(taps, d) * along[..., d] for d in range(rank)).unsqueeze(1)
        to_g = to_g + slope * values
        to_input = to_input.scatter_add(2, at, slope * g)
        share = (g * values).sum(1)
        to_grid = [total + share * sum(_weight(taps, d, e) * along[..., e] for e in range(rank))
                   for d, total in enumerate(to_grid)]
    whole = to_g.view(grad_output.shape), to_input.view(input.shape), ops.stack(to_grid, -1).view(n, *points, rank)
    for i, made in enumerate(whole):
        if needs[i]:
            found[i] = made if found[i] is None else found[i] + made
    return found[0], found[1], found[2]
