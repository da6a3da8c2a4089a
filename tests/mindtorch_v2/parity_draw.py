"""Draws arguments for fuzz_parity.py: each tensor twice, once for PyTorch and once for mindtorch_v2, bit for bit alike."""
from __future__ import annotations

import functools
import math
import random
from typing import Any

import oracle
import torch

Random = random.Random
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (torch.bool, *INTS, *FLOATS, *COMPLEX)
USUAL = (torch.float64, torch.float64, torch.float64, torch.float32, torch.float32, torch.int64)
FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
SHAPES = ((), (0,), (1,), (3,), (5,), (2, 3), (3, 3), (4, 4), (0, 3), (3, 0), (2, 3, 4), (2, 3, 3), (1, 3, 1), (2, 0, 3),
          (2, 3, 4, 4), (2, 1, 4, 3), (2, 4, 0, 3), (1, 2, 3, 4, 4), (17,), (33, 2))
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 3.0)
NUMBERS = (0, 1, -1, 2, 3, -2, 5, True, False, 0.0, 0.5, -1.5, 2.0, 1e-3, 3.7)
ODD_NUMBERS = (-0.0, math.nan, math.inf, -math.inf, 1j, 2 + 0j, 127, 128, 255, 256, 300, -129, 2**31, -2**31 - 1, 2**53 + 1,
               2**63 - 1, -2**63, 2**63, 2**64, -2**70, 1e300, 1e40, 5e-324)
ODD_INTS = (2**31, 2**63 - 1, -2**63, 2**63, -2**70, 2**62)
POOL = 4096


class Pair:
    """One tensor of both libraries; `leaf` is what gradients are asked for when the tensor itself is a copy of it."""
    __slots__ = ("leaf", "ours", "theirs")

    def __init__(self, theirs: Any, ours: Any) -> None:
        self.theirs, self.ours, self.leaf = theirs, ours, None

    def __repr__(self) -> str:
        t = self.theirs.detach()
        layout = "" if t.is_contiguous() else f", stride={t.stride()}"
        grad = ", requires_grad" if self.theirs.requires_grad else ""
        if min(t.shape, default=0) < 0:           # PyTorch's as_strided made it; nothing of it can be read
            return f"tensor(shape={tuple(t.shape)})"
        values = t.tolist() if t.numel() <= 12 else f"{t.reshape(-1)[:8].tolist()}…"
        return f"tensor({values}, shape={tuple(t.shape)}, {str(t.dtype)[6:]}{layout}{grad})"


def of_theirs(x: Any) -> Any:
    """The arguments as PyTorch gets them."""
    if isinstance(x, Pair):
        return x.theirs
    if isinstance(x, (list, tuple)):
        return type(x)(of_theirs(i) for i in x)
    return {k: of_theirs(v) for k, v in x.items()} if isinstance(x, dict) else x


def of_ours(x: Any) -> Any:
    """The arguments as mindtorch_v2 gets them."""
    if isinstance(x, Pair):
        return x.ours
    if isinstance(x, (list, tuple)):
        return type(x)(of_ours(i) for i in x)
    if isinstance(x, dict):
        return {k: of_ours(v) for k, v in x.items()}
    if isinstance(x, torch.dtype):
        return oracle.DTYPES.get(x, x)
    return oracle.CONSTANTS.get(x, x) if isinstance(x, (torch.memory_format, torch.layout)) else x


def pairs(x: Any) -> list[Pair]:
    if isinstance(x, Pair):
        return [x]
    if isinstance(x, dict):
        return [p for v in x.values() for p in pairs(v)]
    return [p for i in x for p in pairs(i)] if isinstance(x, (list, tuple)) else []


# ---- tensors -----------------------------------------------------------------------------------------------------------
@functools.cache
def pool(dtype: Any, theme: str) -> tuple[Any, Any]:
    """Flat memory full of values of one sort, for both libraries."""
    rng, n = random.Random(f"{dtype} {theme}"), POOL
    if dtype is torch.bool:
        values = [rng.random() < 0.5 for _ in range(n)]
    elif dtype in INTS:
        info = torch.iinfo(dtype)
        low = max(info.min, -4)
        values = {"plain": lambda: rng.randint(low, 5), "small": lambda: rng.randint(0, 2), "unit": lambda: rng.randint(0, 1),
                  "ties": lambda: rng.randint(max(low, -1), 2), "special": lambda: rng.randint(low, 1),
                  "extreme": lambda: rng.choice((info.min, info.max, info.max - 1, 0, 1, max(low, -1), 100))}[theme]
        values = [values() for _ in range(n)]
    else:
        real = dtype.to_real()
        info = torch.finfo(real)
        pick = {"plain": lambda: rng.gauss(0, 2), "ties": lambda: float(rng.randint(-2, 2)), "unit": rng.random,
                "small": lambda: float(rng.randint(0, 2)), "special": lambda: rng.choice(SPECIAL),
                "extreme": lambda: rng.choice((info.max, info.min, info.tiny, info.smallest_normal / 4, info.eps, 1e4, -1e4,
                                               1.0, 0.0, -300.0, 88.0))}[theme]
        values = [complex(pick(), pick()) if dtype in COMPLEX else pick() for _ in range(n)]
    made = torch.tensor(values, dtype=dtype)
    return made, oracle.to_ours(made)


def layout(rng: Random, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """(strides, offset, items of memory) of a random view with this shape."""
    kind, rank = rng.randrange(12), len(shape)
    order = list(range(rank))
    step = offset = 0
    flat = -1
    if kind == 0 and rank > 1:
        rng.shuffle(order)
    elif kind == 1 and rank > 1:
        order[-1], order[-2] = order[-2], order[-1]
    elif kind == 2 and rank:
        step = rng.randrange(1, 3)
    elif kind == 3 and rank:
        flat = rng.randrange(rank)
    elif kind == 4 and rank > 3:
        order = [0, *range(2, rank), 1]
    if kind in (2, 5):
        offset = rng.randrange(1, 6)
    strides, size = [0] * rank, 1 + step
    for d in reversed(order):
        if d != flat:
            strides[d] = size
            size *= max(shape[d], 1)
    return tuple(strides), offset, offset + size


def tensor(rng: Random, shape: tuple[int, ...], dtype: Any, theme: str = "plain", values: Any = None,
           grad: bool = False) -> Pair:
    """A tensor of this shape: values of a theme, or those given, in a random layout."""
    strides, offset, extent = layout(rng, shape)
    if values is not None and 0 in strides:
        strides, offset, extent = values.contiguous().stride(), 0, values.numel()
    if values is None:
        theirs, ours = pool(dtype, theme)
        if extent > POOL:
            theirs, ours = theirs.repeat(extent // POOL + 1), ours.repeat(extent // POOL + 1)
        start = rng.randrange(max(1, POOL - extent))
        theirs, ours = theirs[start:start + extent].clone(), ours[start:start + extent].clone()
    else:
        theirs = torch.zeros(extent, dtype=dtype)
        theirs.as_strided(shape, strides, offset).copy_(values)
        ours = oracle.to_ours(theirs)
    made = Pair(theirs.as_strided(shape, strides, offset), ours.as_strided(shape, strides, offset))
    if grad and (dtype.is_floating_point or dtype.is_complex):
        made.theirs.requires_grad_()
        made.ours.requires_grad_()
    return made


# ---- arguments after a schema --------------------------------------------------------------------------------------------
class Draw:
    """What the arguments of one call have in common, so that most calls get past the first checks."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.shape = rng.choice(SHAPES)
        self.dtype = rng.choice(USUAL if rng.random() < 0.6 else DTYPES)
        self.theme = rng.choice(("plain", "plain", "plain", "ties", "unit", "special", "small"))
        if rng.random() < 0.04:
            self.theme = "extreme"
        self.grad = rng.random() < 0.35
        self.odd = rng.random() < 0.08            # whether numbers may be huge, and one argument of a wrong kind
        self.tame = False                         # no large numbers: they would be sizes

    def a_shape(self) -> tuple[int, ...]:
        rng, shape = self.rng, self.shape
        change = rng.randrange(16)
        if change == 0 and shape:
            at = rng.randrange(len(shape))
            return (*shape[:at], rng.choice((0, 1, 2, 5)), *shape[at + 1:])
        if change == 1 and shape:
            at = rng.randrange(len(shape))
            return (*shape[:at], 1, *shape[at + 1:])
        if change == 2:
            return shape[1:]
        if change == 3:
            return ()
        if change == 4:
            return rng.choice(SHAPES)
        return (2, *shape) if change == 5 and len(shape) < 5 else shape

    def a_tensor(self, name: str = "self") -> Pair:
        rng = self.rng
        dtype, theme = self.dtype, self.theme
        if name in ("index", "indices", "target", "offsets", "pivots", "LU_pivots") and rng.random() < 0.85:
            dtype, theme = rng.choice((torch.int64, torch.int64, torch.int32)), "small"
        elif name in ("mask", "condition") and rng.random() < 0.85:
            dtype = torch.bool
        elif rng.random() < 0.12:
            dtype = rng.choice(DTYPES)
        shape = self.shape if name == "self" else self.a_shape()
        return tensor(rng, shape, dtype, theme, grad=self.grad and rng.random() < 0.8)

    def an_int(self, name: str) -> int:
        rng, rank = self.rng, len(self.shape)
        if self.odd and not self.tame and rng.random() < 0.2:
            return rng.choice(ODD_INTS)
        if "dim" in name or name == "axis":
            return rng.randrange(-rank - 1, rank + 1) if rng.random() < 0.1 or not rank else rng.randrange(-rank, rank)
        if self.shape and rng.random() < 0.4:
            return rng.choice(self.shape)
        return rng.choice((0, 1, 1, 2, 2, 3, -1, -2, 5))

    def ints(self, name: str, size: int) -> Any:
        rng, rank = self.rng, len(self.shape)
        if "dim" in name or name == "axis":
            if rng.random() < 0.3:
                return self.an_int(name)
            if name == "dims" and rng.random() < 0.8:
                return rng.sample(range(rank), rank)
            dims = rng.sample(range(-rank, rank), rng.randrange(rank + 1)) if rank else [0][:rng.randrange(2)]
            return dims if rng.random() < 0.5 else tuple(dims)
        if name in ("size", "sizes", "shape"):
            if rng.random() < 0.6:
                return self.a_shape() if rng.random() < 0.5 else [-1, *self.a_shape()[1:]]
            return [rng.choice((0, 1, 2, 3, 4, -1)) for _ in range(rng.randrange(4))]
        if size and rng.random() < 0.7:
            return [rng.choice((1, 1, 2, 2, 3, 0)) for _ in range(size)]
        return [rng.choice((0, 1, 1, 2, 3, -1)) for _ in range(rng.randrange(5))]

    def number(self) -> Any:
        return self.rng.choice(ODD_NUMBERS if self.odd and not self.tame and self.rng.random() < 0.4 else NUMBERS)

    def fitting(self, kind: str, name: str, size: int, words: tuple[str, ...]) -> Any:
        """An argument of the type in a schema."""
        rng = self.rng
        if kind == "Tensor":
            return self.a_tensor(name)
        if kind == "Tensor[]":
            return [self.a_tensor("self" if rng.random() < 0.8 else name) for _ in range(rng.choice((1, 2, 2, 3, 0)))]
        if kind == "int":
            return self.an_int(name)
        if kind == "int[]":
            return self.ints(name, size)
        if kind in ("Scalar", "float"):
            return self.number()
        if kind in ("float[]", "Scalar[]"):
            return [self.number() for _ in range(rng.randrange(4))]
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "bool[]":
            return [rng.random() < 0.5 for _ in range(3)]
        if kind == "str":
            return rng.choice(words)
        if kind == "ScalarType":
            return rng.choice(DTYPES)
        if kind == "MemoryFormat":
            return rng.choice(FORMATS)
        return None

    def anything(self) -> Any:
        """What a user might pass by mistake."""
        rng = self.rng
        return rng.choice((None, None, 1, 1.5, True, "x", "sum", [], [1, 2], (0,), [None], 1j, 2**63, -2**70, {}, b"x", object(),
                           torch.float32, [1.5], ["a"], [[1]], self.a_tensor(), [self.a_tensor(), None],
                           tensor(rng, (), torch.int64, "small"), tensor(rng, (2,), torch.float32)))


def call(rng: Random, schema: Any, words: tuple[str, ...], method: bool, tame: bool, out: bool) -> tuple[list, dict]:
    """Arguments for one overload, mostly of the right kinds."""
    draw = Draw(rng)
    draw.tame = tame
    values = {p.name: draw.fitting(p.kind, p.name, p.list_size, words) for p in schema.params
              if p.kind != "Generator" and (p.required or rng.random() < 0.35)}
    for p in schema.params:
        if p.optional and p.name in values and rng.random() < 0.15:
            values[p.name] = None
    if draw.odd and values and rng.random() < 0.7:
        values[rng.choice(list(values))] = draw.anything()
    positional = []
    for at, p in enumerate(schema.params):
        if p.keyword_only or p.name not in values or (at and rng.random() < 0.15):
            break
        positional.append(values.pop(p.name))
    if "self" in values and not method:
        values["input"] = values.pop("self")
    if out and rng.random() < 0.08:
        outs = [draw.a_tensor() if rng.random() < 0.5 else tensor(rng, (0,), draw.dtype) for _ in schema.returns]
        values["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    return positional, values


# ---- arguments after a sample of OpInfo ------------------------------------------------------------------------------------
class Held:
    """A tensor of a sample: its shape, dtype and values."""
    __slots__ = ("dtype", "grad", "shape", "values")

    def __init__(self, t: Any) -> None:
        self.shape, self.dtype, self.grad = tuple(t.shape), t.dtype, t.requires_grad
        self.values = t.detach().resolve_conj().resolve_neg().clone()


def hold(x: Any) -> Any:
    """A sample's arguments with their tensors as Held; KeyError where they have what only PyTorch has."""
    if isinstance(x, torch.Tensor):
        if x.dtype not in DTYPES or x.layout != torch.strided or x.numel() > 1000:
            raise KeyError(x.dtype)
        return Held(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return tuple(hold(i) for i in x)
    if isinstance(x, (list, tuple)):
        return [hold(i) for i in x] if isinstance(x, list) else tuple(hold(i) for i in x)
    if isinstance(x, dict):
        return {k: hold(v) for k, v in x.items()}
    if isinstance(x, torch.dtype) and x not in DTYPES or isinstance(x, (torch.device, torch.Generator)) or callable(x):
        raise KeyError(x)
    return x


class Change:
    """How one execution differs from the sample it follows."""

    def __init__(self, rng: Random, main: Any, sizes: list[int]) -> None:
        self.rng, self.main = rng, main
        self.dtype = rng.choice(DTYPES) if rng.random() < 0.3 else torch.float64 if rng.random() < 0.4 else main
        self.theme = rng.choice((None, None, None, "plain", "ties", "special", "unit", "small"))
        self.grad = rng.random() < 0.5
        self.size = (rng.choice(sizes), rng.choice((0, 0, 1, 2, 3))) if sizes and rng.random() < 0.2 else None
        self.number = rng.random() < 0.1          # whether a number, flag or word may change

    def applied(self, x: Any) -> Any:
        rng = self.rng
        if isinstance(x, Held):
            return self.a_tensor(x)
        if isinstance(x, (list, tuple)):
            return type(x)(self.applied(i) for i in x)
        if isinstance(x, dict):
            return {k: self.applied(v) for k, v in x.items() if not (self.number and rng.random() < 0.1)}
        if self.number and rng.random() < 0.3:
            if isinstance(x, bool):
                return not x
            if isinstance(x, int):
                return rng.choice((x + 1, x - 1, 0, -1, 1, 2))
            if isinstance(x, float):
                return rng.choice(NUMBERS)
        return x

    def a_tensor(self, held: Held) -> Pair:
        rng, shape, dtype = self.rng, held.shape, held.dtype
        theme, values = self.theme, held.values
        if dtype == self.main:
            dtype = self.dtype
            values = None if theme else values.to(dtype)
        elif rng.random() < 0.95:
            theme = None
        else:
            theme, values = theme or "small", None
        if self.size and self.size[0] in shape:
            shape = tuple(self.size[1] if n == self.size[0] else n for n in shape)
            values, theme = None, theme or ("small" if dtype in INTS else "plain")
        return tensor(rng, shape, dtype, theme or "plain", values, self.grad and (held.grad or rng.random() < 0.1))


def sizes_in(x: Any) -> list[int]:
    if isinstance(x, Held):
        return list(x.shape)
    if isinstance(x, dict):
        x = list(x.values())
    return [n for i in x for n in sizes_in(i)] if isinstance(x, (list, tuple)) else []
