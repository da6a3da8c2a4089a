"""torch.quasirandom: points of Sobol's sequence, scrambled on request.

quasirandom.bin holds the direction numbers of S. Joe and F. Y. Kuo (new-joe-kuo-6.21201) as one string of bits: for every
dimension from the second on, and for each degree s its primitive polynomials in their order, the s - 1 inner coefficients
and the numbers m_1 … m_s less their last bit, which is 1.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

import mindtorch_v2 as torch

__all__ = ["SobolEngine"]

_BITS = 30
_FILE = Path(__file__).with_suffix(".bin")
# How many primitive polynomials there are of degree 1, 2, 3 …
_POLYNOMIALS = (1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176, 144, 630, 756, 1800, 2048, 7710, 7776)


def _directions(dimension: int) -> Any:
    """The direction numbers, (dimension, 30): column j is a multiple of 2 ** (29 - j)."""
    bits = f"{int.from_bytes(b'1' + _FILE.read_bytes()):b}"[6:]      # less the 1, which keeps leading zeros
    degrees = [s for s, count in enumerate(_POLYNOMIALS, 1) for _ in range(count)]
    rows, at = [[1] * _BITS], 0
    for s in degrees[:dimension - 1]:
        taps = [k for k in range(1, s) if bits[at + k - 1] == "1"]
        at += s - 1
        m = []
        for j in range(s):
            m.append(int("0" + bits[at:at + j], 2) * 2 + 1)
            at += j
        for j in range(s, _BITS):
            value = m[j - s] ^ m[j - s] << s
            for k in taps:
                value ^= m[j - k] << k
            m.append(value)
        rows.append(m)
    shifts = torch.arange(_BITS - 1, -1, -1)
    return torch.tensor(rows[:dimension], dtype=torch.int64) << shifts


class SobolEngine:
    """Draws points that fill the unit cube evenly: Sobol's sequence in up to 21201 dimensions."""
    MAXBIT = _BITS
    MAXDIM = 1 + sum(_POLYNOMIALS)

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = _directions(dimension)
        self.shift = torch.zeros(dimension, dtype=torch.int64)
        if scramble:
            self._scramble()
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2 ** _BITS).reshape(1, -1)
        self.num_generated = 0

    def _scramble(self) -> None:
        """Owen's scrambling, as far as a random lower triangular matrix and a shift give it."""
        generator = None
        if self.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.seed)
        flips = torch.randint(2, (self.dimension, _BITS), generator=generator)
        self.shift = (flips << torch.arange(_BITS)).sum(1)
        matrices = torch.randint(2, (self.dimension, _BITS, _BITS), generator=generator).tril(-1)
        matrices = (matrices + torch.eye(_BITS, dtype=torch.int64)).to(torch.float32)
        places = torch.arange(_BITS - 1, -1, -1)                     # the first row of a matrix makes the highest bit
        bits = (self.sobolstate.unsqueeze(-1) >> places & 1).to(torch.float32)
        mixed = (bits @ matrices.mT).to(torch.int64) % 2
        self.sobolstate = (mixed << places).sum(-1)

    def _points(self, first: int, n: int) -> Any:
        """Points number first … first + n - 1, as integers of 30 bits: the directions at the bits of the Gray code."""
        number = torch.arange(first, first + n)
        gray = (number ^ number >> 1).unsqueeze(1)
        made = self.shift.expand(n, -1).clone()
        for j in range(max(first + n - 1, 1).bit_length()):
            made ^= torch.where((gray >> j & 1).to(torch.bool), self.sobolstate[:, j], 0)
        return made

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next n points, (n, dimension)."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if self.num_generated + n > 2 ** _BITS:
            raise ValueError(f"[SobolEngine] the sequence has {2 ** _BITS} points, got {self.num_generated} + {n}")
        points = self._points(self.num_generated, n)
        self._moved(n)
        result = points.to(dtype) / 2 ** _BITS
        return result if out is None else out.resize_as_(result).copy_(result)

    def _moved(self, n: int) -> None:
        self.num_generated += n
        self.quasi = self._points(max(self.num_generated - 1, 0), 1)[0]

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2 ** m points, where that keeps the sequence's balance."""
        n = 2 ** m
        total = self.num_generated + n
        if total & (total - 1) != 0:
            raise ValueError(f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points "
                             f"have been previously generated, then: n={self.num_generated}+2**{m}={total}. If you still want "
                             "to do this, please use 'SobolEngine.draw()' instead.")
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out n points."""
        self._moved(n)
        return self

    def __repr__(self) -> str:
        text = f"dimension={self.dimension}" + (", scramble=True" if self.scramble else "")
        return f"{type(self).__name__}({text}{'' if self.seed is None else f', seed={self.seed}'})"
