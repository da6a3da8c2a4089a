"""Random values for fuzz.py: tensors of every kind, fitting arguments, wrong ones, and objects that act up when asked."""
from __future__ import annotations

import functools
import gc
import random
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as mt

Random = random.Random
DTYPES = (mt.bool, mt.uint8, mt.int8, mt.int16, mt.int32, mt.int64, mt.float16, mt.bfloat16, mt.float32, mt.float64,
          mt.complex64, mt.complex128)
COMMON = (mt.float32, mt.float32, mt.float32, mt.float64, mt.int64, mt.complex64)
SHAPES = ((), (0,), (1,), (3,), (5,), (2, 3), (3, 3), (4, 4), (0, 3), (3, 0), (2, 3, 4), (2, 3, 3), (2, 0, 3),
          (1, 2, 4, 4), (2, 3, 4, 4), (2, 4, 0, 3), (1, 1, 2, 3, 3), (1, 2, 3, 4, 4), (17,), (33, 2), (1,) * 8)
SMALL = (0, 1, -1, 2, 3, 7, -5, True, False, 0.0, 0.5, -1.5)
NUMBERS = (*SMALL, 2**31, -2**31 - 1, -2**63, 2**63 - 1, 2**62, 2**70, 1e300, -1e300, float("inf"), float("-inf"),
           float("nan"), 1j, 5e-324)
INTEGERS, SMALL_INTEGERS = ([n for n in numbers if isinstance(n, int)] for numbers in (NUMBERS, SMALL))
WORDS = ("sum", "mean", "floor", "trunc", "", "ij,jk->ik", "...ij->...ji", "constant", "reflect", "linear", "bilinear",
         "prod", "amax", "add", "same", "valid", "left", "higher", "nuc", "fro", "U", "reduced", "gelsd", "é\0ß", "\ud800",
         "x" * 300, "cpu", "meta", "npu", "cuda:3")
SPREADS = ((0, 3), (-2, 4), (0, 1), (1, 1), (-100, 200), (-1e18, 2e18))


class Theme:
    """What the arguments of one call have in common, so that some calls get past the first checks.

    The tensors of a program are its pool: most arguments are drawn from there, and Meddlers change them."""

    def __init__(self, rng: Random, pool: list[Any] | None = None) -> None:
        self.shape = rng.choice(SHAPES) if rng.random() < 0.6 else None
        self.dtype = rng.choice(COMMON if rng.random() < 0.7 else DTYPES) if rng.random() < 0.7 else None
        self.tame = rng.random() < 0.6            # whether numbers stay small
        self.pool = pool if pool is not None else []


# ---- tensors ---------------------------------------------------------------------------------------------------------
@functools.cache
def base(shape: tuple[int, ...], dtype: Any, spread: tuple[float, float]) -> Any:
    """The same numbers whatever was asked before: a turn does not depend on the turns of its child before it."""
    rng, count = random.Random(f"{shape} {dtype} {spread}"), 1
    for size in shape:
        count *= size
    data = [spread[0] + rng.random() * spread[1] for _ in range(count)]
    return mt.tensor(data, dtype=mt.float64).reshape(shape).to(dtype)


def make_bases() -> None:
    """Most tensors are clones of these; made before a fork they are there in every child."""
    for shape in SHAPES:
        for dtype in DTYPES:
            for spread in SPREADS[:2]:
                base(shape, dtype, spread)


def some_shape(rng: Random, theme: Theme) -> tuple[int, ...]:
    if theme.shape is None or rng.random() < 0.1:
        return rng.choice(SHAPES)
    shape = list(theme.shape)
    change = rng.randrange(12)
    if change == 0 and shape:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 5))
    elif change == 1:
        shape = shape[1:]
    elif change == 2:
        shape = shape[:1]
    elif change == 3:
        shape = shape[1:2]
    elif change == 4:
        shape = [*shape, 2]
    elif change == 5:
        shape = shape[::-1]
    return tuple(shape)


def tensor(rng: Random, theme: Theme, index: bool = False) -> Any:
    if theme.pool and rng.random() < 0.7:
        return rng.choice(theme.pool)
    dtype = theme.dtype if theme.dtype is not None and rng.random() < 0.9 else rng.choice(DTYPES)
    if index and rng.random() < 0.8:
        dtype = rng.choice((mt.int64, mt.int64, mt.int32))
    made = base(some_shape(rng, theme), dtype, rng.choice(SPREADS) if rng.random() < 0.3 else SPREADS[0]).clone()
    if rng.random() < 0.05 and made.numel():
        made.view(-1)[rng.randrange(made.numel())] = rng.choice((float("nan"), float("inf"))) if dtype.is_floating_point else 2
    return odd_form(rng, made)


def odd_form(rng: Random, made: Any) -> Any:
    form = rng.randrange(11)
    if form == 0 and made.dim() > 1:
        return made.transpose(0, -1)
    if form == 1 and made.dim():
        return made[..., ::2]
    if form == 2:
        return made.unsqueeze(0).expand(3, *made.shape)
    if form < 6 and (made.is_floating_point() or made.is_complex()):
        return made.detach().requires_grad_()
    if form == 6 and rng.random() < 0.3:
        return made.to("meta")
    if form == 7 and made.dim() == 4:
        return made.contiguous(memory_format=mt.channels_last)
    if form == 8 and rng.random() < 0.3:
        return made.as_subclass(rng.choice((Plain, Contrary)))
    return made


class Plain(mt.Tensor):
    """A subclass that changes nothing."""


class Contrary(mt.Tensor):
    """A subclass whose __torch_function__ sometimes gives something else than was asked for."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = len(args) + len(kwargs or ())
        if answer % 4 == 3:
            return NotImplemented
        result = super().__torch_function__(function, types, args, kwargs or {})
        return 3 if answer % 4 == 0 else result


# ---- objects that act up ------------------------------------------------------------------------------------------------
class Odd:
    """An object that answers every conversion with something unusable."""

    def __len__(self) -> int:
        return -3

    def __index__(self) -> Any:
        return "no"

    def __float__(self) -> Any:
        raise ZeroDivisionError

    def __getitem__(self, at: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter((1, self))

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return 3

    def __dlpack__(self, **kwargs: Any) -> Any:
        return None

    def __dlpack_device__(self) -> Any:
        return "x"

    @property
    def shape(self) -> Any:
        raise KeyError("shape")


class Shrinking(list):
    """A list that loses its items while it is read."""

    def __getitem__(self, at: Any) -> Any:
        self.clear()
        return 1

    def __iter__(self) -> Any:
        while len(self):
            yield self.pop()


class Meddler:
    """An object that changes the tensors of the call, or the lists they are in, whenever it is asked something."""

    def __init__(self, rng: Random, pool: list[Any], answer: Any = 1, victims: list[Any] | None = None) -> None:
        self.rng, self.pool, self.answer, self.left = rng, pool, answer, 3
        self.victims = victims if victims is not None else []       # lists that are arguments themselves

    def act(self) -> Any:
        self.left -= 1
        if self.left >= 0:
            try:
                meddle(self.rng, self.pool, self.victims)
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, MemoryError):
                pass                                                # refused: as good an answer as any
        return self.answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:           # a hook
        self.act()
        return self.rng.choice((None, *args, *self.pool[:1]))

    def __index__(self) -> int:
        return self.act()

    __int__ = __len__ = __hash__ = __index__

    def __float__(self) -> float:
        return float(self.act())

    def __bool__(self) -> bool:
        return bool(self.act())

    def __complex__(self) -> complex:
        return complex(self.act())

    def __iter__(self) -> Any:
        for item in (1, 2):
            self.act()
            yield item

    def __getitem__(self, at: Any) -> Any:
        self.act()
        if isinstance(at, int) and at > 2:
            raise IndexError
        return self.rng.choice((1, *self.pool[:1]))

    def __eq__(self, other: Any) -> bool:
        self.act()
        return True

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.act()
        return self.pool[0].detach().numpy() if self.pool else None

    def __dlpack__(self, **kwargs: Any) -> Any:
        self.act()
        return self.pool[0].detach().__dlpack__()

    def __dlpack_device__(self) -> Any:
        self.act()
        return (1, 0)

    def __del__(self) -> None:
        self.act()


class MeddlingTensor(mt.Tensor):
    """A subclass that changes tensors in its __torch_function__."""

    meddler: Any = None

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        meddler, cls.meddler = cls.meddler, None
        if meddler is not None:
            meddler.act()
        return super().__torch_function__(function, types, args, kwargs or {})


def meddle(rng: Random, pool: list[Any], victims: list[Any]) -> None:
    """A change that another frame makes during the call."""
    way = rng.randrange(13)
    if way < 2 and victims:
        rng.choice(victims).clear()
        return
    if not pool:
        return
    x, y = rng.choice(pool), rng.choice(pool)
    if way < 4:
        x.detach().resize_(rng.choice(((0,), (1,), (4096,), (2, 2), ())))
    elif way == 4:
        x.set_(y)
    elif way == 5:
        x.set_()
    elif way == 6:
        x.data = rng.choice((y.detach(), mt.empty(0), mt.zeros(100)))
    elif way == 7:
        x.untyped_storage().resize_(rng.choice((0, 1, 1 << 16)))
    elif way == 8:
        x.requires_grad_(rng.random() < 0.5)
    elif way == 9:
        x.sum().backward()
    elif way == 10:
        x.grad = rng.choice((None, y))
    elif way == 11:
        pool.clear()
        gc.collect(0)
    else:
        x.t_() if rng.random() < 0.5 else x.detach_()


def strange(rng: Random, theme: Theme) -> Any:
    """An object of a class of its own."""
    kind = rng.randrange(9)
    if kind == 0:
        return rng.choice((Odd(), Odd, Shrinking))
    if kind == 1:
        return Shrinking([1, 2, 3])
    if kind == 2:
        itself: list[Any] = [1]
        itself.append(rng.choice((itself, (itself,))))
        return itself
    if kind == 3 and theme.pool:
        made = rng.choice(theme.pool).detach().as_subclass(MeddlingTensor)
        MeddlingTensor.meddler = Meddler(rng, theme.pool)
        return made
    if kind == 4:
        victim: list[Any] = [rng.choice(theme.pool)] if theme.pool else [1]
        victim.append(Meddler(rng, theme.pool, number(rng, True), [victim]))
        victim.extend([1] * rng.randrange(3))
        return victim
    return Meddler(rng, theme.pool, rng.choice((0, 1, 2, -1, 7)))


# ---- any argument ----------------------------------------------------------------------------------------------------
def number(rng: Random, tame: bool) -> Any:
    return rng.choice(SMALL if tame or rng.random() < 0.6 else NUMBERS)


CONSTANTS: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: ..., lambda: slice(None), object, dict, set, lambda: b"x", lambda: range(3), lambda: int,
    lambda: mt.float32, lambda: mt.device("cpu"), lambda: mt.device("meta"), lambda: mt.device("npu", 7),
    lambda: mt.channels_last, lambda: mt.strided, lambda: len, lambda: float("nan"), mt.Generator, lambda: mt,
    lambda: mt.Tensor, lambda: mt.Size((2, 3)), lambda: mt.nn.Linear(2, 3), lambda: {"a": mt.ones(2), 3: [mt.ones(())]})


def thing(rng: Random, theme: Theme) -> Any:
    """Any object a user might pass by mistake, tensors most often."""
    kind = rng.randrange(18)
    if kind < 6:
        return tensor(rng, theme, rng.random() < 0.3)
    if kind < 8:
        return number(rng, theme.tame)
    if kind == 8:
        return [number(rng, theme.tame) for _ in range(rng.randrange(5))]
    if kind == 9:
        return tuple(tensor(rng, theme) for _ in range(rng.randrange(3)))
    if kind == 10:
        return rng.choice(WORDS)
    if kind == 11:
        return rng.choice(CONSTANTS)()
    if kind == 12:
        return rng.choice(DTYPES)
    if kind < 15:
        return strange(rng, theme)
    if kind == 15:
        return [1] * rng.choice((64, 65, 100, 1000))
    if kind == 16:
        return nested(rng, theme, 0)
    return [[1, 2], [3, 4]]


def nested(rng: Random, theme: Theme, depth: int) -> Any:
    """Lists in lists, not all of a kind."""
    if depth > 3 or rng.random() < 0.3:
        return thing(rng, theme) if rng.random() < 0.2 else number(rng, theme.tame)
    made = [nested(rng, theme, depth + 1) for _ in range(rng.randrange(4))]
    return made if rng.random() < 0.8 else tuple(made)


def integers(rng: Random, theme: Theme) -> Any:
    shape = theme.shape or ()
    if rng.random() < 0.3:
        return list(shape[rng.randrange(3):])
    if rng.random() < 0.05:
        return [rng.choice(INTEGERS)] * rng.randrange(4)
    if rng.random() < 0.05:
        return [Meddler(rng, theme.pool, rng.randrange(4)), *[1] * rng.randrange(3)]
    low = rng.choice((-2, 0, 0, 1))
    return [rng.randrange(low, 5) for _ in range(rng.randrange(5))] if rng.random() < 0.7 else rng.randrange(low, 4)


def fitting(kind: str, rng: Random, theme: Theme, name: str = "") -> Any:
    """A random argument of the type in a schema."""
    if kind == "Tensor":
        return tensor(rng, theme, name in ("index", "indices", "target", "offsets", "pivots", "LU_pivots", "mask"))
    if kind == "Tensor[]":
        return [tensor(rng, theme, "ind" in name) for _ in range(rng.randrange(4))]
    if kind in ("int[]", "bool[]"):
        return integers(rng, theme)
    if kind == "float[]":
        return [number(rng, theme.tame) for _ in range(rng.choice((0, 1, 2, 3, 70)))]
    if kind == "int":
        if theme.shape and rng.random() < 0.3:
            return rng.choice(theme.shape)
        return rng.choice(SMALL_INTEGERS if theme.tame else INTEGERS)
    if kind in ("Scalar", "float"):
        found = rng.choice(SMALL if theme.tame else NUMBERS)
        return found if kind == "Scalar" or not isinstance(found, complex) else 0.5
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "str":
        return rng.choice(WORDS)
    if kind == "Generator":
        return rng.choice((None, mt.Generator()))
    return rng.choice(DTYPES) if kind == "ScalarType" else None
