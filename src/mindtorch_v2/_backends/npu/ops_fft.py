"""Kernels of the npu for Fourier transforms: CANN has no op for them, so they are products with matrices of waves.

A complex row of n items is a real row of 2 n, so that each transform of a short dim is one real product; a long dim is
split into two short ones with a turn of every item between (Cooley and Tukey's way)."""
from __future__ import annotations

import functools
import math
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import runtime as npu_runtime
from mindtorch_v2._backends.npu import streams
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._backends.npu.torch_ops import ops

_FLOAT64 = _C._dtype_named("float64")
_SHORT = 256                                                 # up to here a dim is one product


# ---- waves: made in float64 on the host, once for each size ----------------------------------------------------------
def _waves(rows: int, columns: int, n: int, forward: bool) -> tuple[Any, Any]:
    """cos and sin of the angle of item j of n at frequency k, as (j, k)."""
    turns = ops.arange(rows).unsqueeze(1) * ops.arange(columns) % n
    angle = turns.to(_FLOAT64) * (-2 * math.pi / n if forward else 2 * math.pi / n)
    return angle.cos(), angle.sin()


@functools.lru_cache(maxsize=32)
def _matrix(kind: str, n: int, forward: bool, like: Any, index: int, _stream: int) -> Any:
    """What a row is multiplied with, in the real dtype `like` on an npu; kind tells what is complex.

    Every stream has its own: what the cache lets go is reused in the order of the stream that it was made for."""
    half = n // 2 + 1
    c, s = _waves(half if kind == "c2r" else n, half if kind == "r2c" else n, n, forward)
    if kind == "r2c":
        made = ops.stack([c, s], -1).flatten(-2)
    elif kind == "c2r":
        twice = ops.full([half, 1], 2.0, dtype=_FLOAT64)     # items but the first and the middle stand for two
        twice[0] = 1
        if n % 2 == 0:
            twice[-1] = 1
        made = ops.stack([c * twice, -s * twice], 1).flatten(0, 1)
    else:
        made = ops.stack([ops.stack([c, s], -1), ops.stack([-s, c], -1)], 1).reshape(2 * n, 2 * n)
    return made.to(like).to(f"npu:{index}")


@functools.lru_cache(maxsize=32)
def _turns(b: int, a: int, forward: bool, like: Any, index: int, _stream: int) -> Any:
    """The turn of item j of the second part at frequency k of the first."""
    c, s = _waves(b, a, a * b, forward)
    return ops.view_as_complex(ops.stack([c, s], -1).to(like).to(f"npu:{index}"))


def _forget(_device: int) -> None:
    _matrix.cache_clear()
    _turns.cache_clear()


npu_runtime.on_close(_forget)


def _place(x: Any) -> tuple[int, int]:
    return x.device.index, streams.current_stream_handle(x.device.index)


# ---- along the last dim ----------------------------------------------------------------------------------------------
def _product(rows: Any, kind: str, n: int, forward: bool) -> Any:
    """Real rows (…, m) times a matrix of waves."""
    matrix = _matrix(kind, n, forward, rows.dtype, *_place(rows))
    return ops.mm(rows.reshape(-1, rows.size(-1)), matrix).reshape((*rows.shape[:-1], matrix.size(1)))


def _real_rows(x: Any) -> Any:
    return ops.view_as_real(x.contiguous()).flatten(-2)


def _complex_rows(x: Any) -> Any:
    return ops.view_as_complex(x.unflatten(-1, (-1, 2)))


def _transform(x: Any, forward: bool) -> Any:
    """The transform of complex rows."""
    n = x.size(-1)
    a = next((d for d in range(math.isqrt(n), 1, -1) if n % d == 0), 1) if n > _SHORT else 1
    if a == 1:
        return _complex_rows(_product(_real_rows(x), "c2c", n, forward))
    turns = _turns(n // a, a, forward, ops.view_as_real(x).dtype, *_place(x))
    parts = _transform(x.unflatten(-1, (a, n // a)).transpose(-2, -1), forward) * turns
    return _transform(parts.transpose(-2, -1), forward).transpose(-2, -1).flatten(-2)


def _from_real(x: Any) -> Any:
    """The first half of the transform of real rows; the rest mirrors it."""
    n = x.size(-1)
    if n <= _SHORT:
        return _complex_rows(_product(x, "r2c", n, True))
    return _transform(ops.complex(x.contiguous(), ops.zeros_like(x)), True).narrow(-1, 0, n // 2 + 1)


def _mirrored(half: Any, n: int) -> Any:
    """All n items of a transform of real rows from the first half."""
    rest = half.narrow(-1, 1, n - half.size(-1)).flip((-1,))
    return ops.cat([half, rest.conj_physical()], -1)


def _to_real(x: Any, n: int) -> Any:
    half = n // 2 + 1
    have = x.size(-1)
    x = x.narrow(-1, 0, half) if have > half else x
    if have < half:
        x = ops.cat([x, ops.zeros([*x.shape[:-1], half - have], dtype=x.dtype, device=x.device)], -1)
    if n <= _SHORT:
        return _product(_real_rows(x), "c2r", n, False)
    return ops.view_as_real(_transform(_mirrored(x, n), False)).select(-1, 0)


# ---- along any dims --------------------------------------------------------------------------------------------------
def _along(x: Any, dim: int, function: Any) -> Any:
    return function(x.transpose(dim, -1)).transpose(dim, -1)


def _scaled(x: Any, count: int, normalization: int) -> Any:
    return x if normalization == 0 else x * (1 / math.sqrt(count) if normalization == 1 else 1 / count)


def _c2c(self: Any, dim: Any, normalization: int, forward: bool) -> Any:
    made = self
    for d in dim:
        made = _along(made, d, lambda rows: _transform(rows, forward))
    return _scaled(made, math.prod(self.size(d) for d in dim), normalization)


def _r2c(self: Any, dim: Any, normalization: int, onesided: bool) -> Any:
    *others, last = dim
    made = _along(self, last, _from_real)
    if not onesided:
        made = _along(made, last, lambda rows: _mirrored(rows, self.size(last)))
    return _scaled(_c2c(made, others, 0, True), math.prod(self.size(d) for d in dim), normalization)


def _c2r(self: Any, dim: Any, normalization: int, last_dim_size: int) -> Any:
    *others, last = dim
    made = _along(_c2c(self, others, 0, False), last, lambda rows: _to_real(rows, last_dim_size))
    return _scaled(made, math.prod(self.size(d) for d in others) * last_dim_size, normalization)


BODIES = {"_fft_c2c": Body(value=_c2c), "_fft_c2r": Body(value=_c2r), "_fft_r2c": Body(value=_r2c)}
