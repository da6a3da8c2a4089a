"""Layers for fuzz.py: tensors without memory, handlers and transforms that answer with anything, calls of bound overloads."""
from __future__ import annotations

from typing import Any

from fuzz_programs import OPS, change, combine, view
from fuzz_programs import Program as PlainProgram
from fuzz_targets import arguments, read, schema_of
from fuzz_values import COMMON, DTYPES, SHAPES, Random, Theme, fitting, tensor, thing

import mindtorch_v2 as mt
from mindtorch_v2._C import _core

ROWS = [(name, op) for name, op in OPS if isinstance(op, _core.Op) and op.overloads]


class Silent(mt.Tensor):
    """A tensor without memory or kernels."""


class Answering(mt.Tensor):
    """A tensor without memory; an op returns a random result."""
    rng: Random

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if cls.rng.random() < 0.1 else answer(cls.rng, args)


class Transform:
    """Answers a call itself, records it as another's, or passes it on."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    def interpose(self, op: Any, overload: Any, slots: tuple[Any, ...], out: Any) -> Any:
        way = self.rng.randrange(6)
        if way == 0:
            return NotImplemented
        if way == 1:
            return answer(self.rng, slots)
        if way < 4:
            row = overload if way == 2 else self.rng.choice(op.overloads)
            return _core._call_recorded(op, row, slots, lambda: answer(self.rng, slots))
        return _core._call_bound(op, overload, slots, out)


def answer(rng: Random, args: Any) -> Any:
    way = rng.randrange(6)
    if way == 0:
        return thing(rng, Theme(rng))
    if way == 1:
        return tuple(wrapper(rng) for _ in range(rng.randrange(4)))
    if way == 2 and args:
        return rng.choice(args)
    return mt.ones(rng.choice(SHAPES)) if way == 3 else wrapper(rng)


def wrapper(rng: Random) -> Any:
    """A tensor without memory, some of them larger than any memory."""
    shape = rng.choice((*SHAPES, (1 << 20, 1 << 20), (1 << 40,)))
    # Large and strided may be given memory by resize_, and is then slow.
    strides = None if rng.random() < 0.6 or max(shape, default=0) > 100 else [rng.randrange(9) for _ in shape]
    dtype = rng.choice(COMMON if rng.random() < 0.7 else DTYPES)
    return _core._make_wrapper(rng.choice((Silent, Answering)), shape, strides, dtype, rng.choice(("cpu", "cpu", "meta", "npu:0")),
                               dtype.is_floating_point and rng.random() < 0.3, rng.choice((0, 0, 3)))


def mixed(rng: Random, values: Any, depth: int = 0) -> list[Any]:
    """The values, with wrappers in the places of a third of the tensors. A list may hold itself."""
    return [wrapper(rng) if isinstance(value, mt.Tensor) and rng.random() < 0.35 else
            mixed(rng, value, depth + 1) if type(value) is list and depth < 2 else value for value in values]


def call(rng: Random) -> None:
    name, op = rng.choice(ROWS)
    theme = Theme(rng)
    if rng.random() < 0.3:
        overload = rng.choice(op.overloads)
        given = [fitting(p.kind, rng, theme, p.name) if rng.random() < 0.95 else thing(rng, theme)
                 for p in schema_of(overload.schema).params]
        out = None if rng.random() < 0.5 else tensor(rng, theme) if rng.random() < 0.5 else thing(rng, theme)
        read(_core._call_bound(op, overload, tuple(mixed(rng, given)), out))
        return
    args, keywords = arguments(name, op, rng, theme)
    args, keywords = mixed(rng, args), dict(zip(keywords, mixed(rng, keywords.values())))
    read(op(*args, **keywords))
    for value in (*args, *keywords.values()):
        if isinstance(value, mt.Tensor):
            read(value)


def chain(rng: Random) -> None:
    p = PlainProgram(rng)
    p.tensors += [wrapper(rng), tensor(rng, Theme(rng)), wrapper(rng)]
    for _ in range(rng.randrange(2, 8)):
        try:
            rng.choice((combine, change, view))(p)
        except (KeyboardInterrupt, SystemError):
            raise
        except Exception:
            pass
    for x in list(p.tensors):
        read(x)


def layers(rng: Random) -> None:
    """One call or a few, in a third of the cases under a transform, which does not stay."""
    Answering.rng = rng
    before = _core._push_transform(Transform(rng)) if rng.random() < 0.3 else None
    try:
        (chain if rng.random() < 0.2 else call)(rng)
    finally:
        if before is not None:
            _core._pop_transform(before)
