"""The arguments that fuzz_launch.py draws: tensors of every dtype, device and geometry, numbers, lists and odd objects."""
from __future__ import annotations

import random
from typing import Any

import fuzz_values

import mindtorch_v2 as mt

Random = random.Random
DTYPES = (mt.bool, mt.uint8, mt.int8, mt.int16, mt.int32, mt.int64, mt.float16, mt.bfloat16, mt.float32, mt.float64,
          mt.complex64, mt.complex128)
COMMON = (mt.float32, mt.float32, mt.float16, mt.int64, mt.int32, mt.bool)
SHAPES = ((), (0,), (1,), (3,), (2, 3), (3, 3), (4, 4), (0, 3), (3, 0), (2, 3, 4), (2, 3, 3), (1, 2, 4, 4), (2, 3, 4, 4),
          (1, 1, 2, 3, 3), (17,), (33, 2), (1,) * 8)
SMALL = (0, 1, -1, 2, 3, 7, -5, True, False, 0.0, 0.5, -1.5)
HUGE = (2**31, -2**31 - 1, 2**31 - 1, -2**63, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, -2**70, 1e300, -1e300, 1e39,
        float("inf"), float("-inf"), float("nan"), 1j, 5e-324, complex("nan"))
WORDS = ("sum", "mean", "none", "tanh", "", "floor", "trunc", "constant", "reflect", "ij,jk->ik", "BSH", "BNSD", "TND", "é",
         "a\0b", "\ud800", "x" * 300)
# Tensor methods and the kinds of their arguments.
METHODS = tuple((name, tuple(kinds.split())) for name, _, kinds in (line.partition(":") for line in (
    "add:tensor", "mul:tensor", "sub:scalar", "div:tensor", "add_:tensor", "mul_:scalar", "relu:", "exp:", "tanh_:", "sum:ints",
    "mean:ints", "amax:ints bool", "matmul:tensor", "t:", "clone:", "contiguous:", "zero_:", "fill_:scalar", "eq:tensor",
    "where:tensor tensor", "clamp:scalar scalar", "index_select:int64 tensor", "gather:int64 tensor", "scatter_:int64 tensor tensor",
    "masked_fill_:tensor scalar", "nonzero:", "masked_select:tensor", "argmax:int64", "topk:int64", "sort:int64", "cumsum:int64",
    "softmax:int64", "view:ints", "reshape:ints", "expand:ints", "permute:ints", "transpose:int64 int64", "narrow:int64 int64 int64",
    "select:int64 int64", "repeat:ints", "flip:ints", "roll:ints ints", "tril_:int64", "pow:tensor", "copy_:tensor", "normal_:",
    "uniform_:scalar scalar", "random_:", "bernoulli_:scalar", "item:", "__getitem__:thing", "__setitem__:thing thing", "bmm:tensor",
    "addmm:tensor tensor", "lerp_:tensor scalar", "unique:", "bool:", "half:", "to:dtype", "type:dtype", "isnan:", "std:ints",
    "norm:scalar", "index_fill_:int64 tensor scalar", "put_:tensor tensor", "take:tensor", "scatter_add_:int64 tensor tensor",
    "resize_:ints", "as_strided:ints ints int64", "set_:tensor", "detach:", "requires_grad_:bool", "diagonal:", "unfold:int64 int64 int64",
    "cross:tensor", "outer:tensor", "logical_not:", "bitwise_and:tensor", "logsumexp:ints", "var:ints", "prod:",
)))
DAMAGING = ("resize_", "set_")                    # methods after which a tensor is no longer a good one


class Odd(fuzz_values.Odd):
    """The same, which is no condition and no key either."""

    def __bool__(self) -> Any:
        return 3  # noqa: PLE0304 - that is what is odd

    def __hash__(self) -> Any:
        raise KeyError


class OddInt(int):
    """An int that is another one when it is compared or asked."""

    def __index__(self) -> Any:
        return 2**80

    def __int__(self) -> Any:
        return "no"

    def __lt__(self, other: Any) -> Any:
        raise ZeroDivisionError

    __gt__ = __le__ = __eq__ = __lt__
    __hash__ = int.__hash__


class OddFloat(float):
    def __float__(self) -> Any:
        return "no"


class OddList(list):
    """A list that says other things of itself than it is."""

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Any:
        while True:
            self.append(1)
            if len(list.copy(self)) > 60:
                raise OSError
            yield self


class Acts:
    """A number that changes a tensor when it is asked what it is."""

    def __init__(self, rng: Random, pool: Pool) -> None:
        self.pool, self.target, self.size = pool, rng.choice(pool.all), rng.choice((0, 4, 4096))
        self.kind = rng.randrange(4)

    def __index__(self) -> int:
        self.pool.damaged.append(self.target)
        if self.kind == 0:
            self.target.untyped_storage().resize_(self.size)
        elif self.kind == 1:
            self.target.resize_((1,) * 6 + (2, 2))
        elif self.kind == 2:
            self.target.data = mt.ones(3)
        else:
            self.target.add_(1)
        return 1

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())


class Pool:
    """Tensors that share a few shapes and dtypes, so that some calls get past the first checks; and strange ones."""

    def __init__(self, rng: Random) -> None:
        self.shapes = [rng.choice(SHAPES) for _ in range(2)]
        self.dtypes = [rng.choice(COMMON), rng.choice(DTYPES), mt.float32]
        self.named = [(str(dtype).partition(".")[2], dtype) for dtype in self.dtypes]
        self.state = rng.getstate()
        self.damaged: list[Any] = []              # tensors that an execution has made unusable
        self.tame = False                         # whether the arguments of this execution are what they should be
        self.renew()

    def renew(self) -> None:
        """All tensors anew: the device was started again, or they were used up."""
        rng = Random()
        rng.setstate(self.state)
        self.state = rng.getstate()
        host = {shape: mt.arange(_items(shape)).reshape(shape) for shape in self.shapes}
        self.good = {(dtype, shape): [host[shape].to(dtype).npu() for _ in range(3)]
                     for dtype in self.dtypes for shape in self.shapes}
        self.plain = [t for some in self.good.values() for t in some]
        self.damaged.clear()
        self.hosts = [host[self.shapes[0]].to(dtype) for dtype in self.dtypes] + [
            mt.ones(2, 3).t(), mt.empty(0), mt.ones(4).pin_memory(), shrunk(mt.ones(5)), mt.tensor(3.0)]
        self.strange = [strange(rng, self.plain) for _ in range(10)]
        self.all = [*self.plain, *self.strange]

    def begin(self, rng: Random) -> None:
        """Another execution: good tensors in the place of damaged ones."""
        self.tame = rng.random() < 0.5
        if self.damaged:
            damaged = set(map(id, self.damaged))
            for (dtype, shape), some in self.good.items():
                some[:] = [mt.ones(shape, dtype=dtype).npu() if id(t) in damaged else t for t in some]
            self.plain = [t for some in self.good.values() for t in some]
            self.all = [*self.plain, *self.strange]
            self.damaged.clear()

    def tensor(self, rng: Random, dtypes: frozenset[str] = frozenset()) -> Any:
        """Any tensor, of one of these dtypes if there is one; a good one most often."""
        if not self.tame and rng.random() < 0.15:
            return rng.choice(self.strange)
        fitting = [dtype for name, dtype in self.named if name in dtypes] or self.dtypes
        return rng.choice(self.good[rng.choice(fitting), self.shapes[0 if rng.random() < 0.8 else 1]])

    def host(self, rng: Random) -> Any:
        return rng.choice(self.hosts)

    def argument(self, rng: Random, kind: str, optional: bool, dtypes: frozenset[str]) -> Any:
        if optional and rng.random() < 0.5 or not self.tame and rng.random() < 0.02:
            return None
        return self.of_kind(rng, kind, dtypes)

    def of_kind(self, rng: Random, kind: str, dtypes: frozenset[str] = frozenset()) -> Any:
        if not self.tame and rng.random() < 0.06:
            return self.thing(rng)
        if kind in ("tensor", "out", "inout"):
            return self.tensor(rng, dtypes)
        if kind in ("tensors", "outs", "inouts"):
            return [self.tensor(rng, dtypes) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        if kind == "ints":
            return [rng.choice((0, 1, -1, 2, 3)) for _ in range(rng.choice((0, 1, 2, 2, 4)))] if self.tame or rng.random() < 0.9 else \
                rng.choice(((0,) * 64, [1] * 65, [2**63 - 1], [2**70], [Odd()], [True], OddList([1, 2]), (Acts(rng, self),)))
        if kind in ("floats", "scalars", "bools"):
            return [self.number(rng) for _ in range(rng.choice((0, 1, 2, 3, 70)))]
        if kind == "string":
            return rng.choice(WORDS)
        if kind == "dtype":
            return rng.choice(DTYPES if not self.tame else self.dtypes) if rng.random() < 0.9 else rng.choice((int, float, "x", 3))
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "thing":
            return self.thing(rng)
        return self.number(rng)

    def number(self, rng: Random) -> Any:
        kind = 0 if self.tame else rng.random()
        return rng.choice(SMALL) if kind < 0.85 else rng.choice(HUGE) if kind < 0.97 else self.odd(rng)

    def odd(self, rng: Random) -> Any:
        return rng.choice((Odd, lambda: OddInt(3), lambda: OddFloat(2.5), lambda: Acts(rng, self), lambda: OddList([1]),
                           lambda: mt.tensor(2), object, lambda: rng.choice(self.all)))()

    def thing(self, rng: Random) -> Any:
        """Any object."""
        kind = rng.randrange(8)
        if kind < 2:
            return self.odd(rng)
        if kind == 2:
            return rng.choice(self.hosts)
        if kind == 3:
            return self.number(rng)
        if kind == 4:
            return rng.choice(WORDS)
        if kind == 5:
            return OddList([rng.choice(self.all), None, 3])
        if kind == 6:
            return [rng.choice(self.all), rng.choice(self.hosts), None, Odd()][:rng.randrange(5)]
        return rng.choice((None, ..., slice(None), {}, b"x", range(3), int, mt.float32, mt.device("npu"), iter((1, 2)), mt))


def _items(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def shrunk(t: Any, nbytes: int = 2) -> Any:
    t.untyped_storage().resize_(nbytes)
    return t


def strange(rng: Random, plain: list[Any]) -> Any:
    """A tensor that is off in one way."""
    t = rng.choice(plain).clone()
    kind = rng.randrange(14)
    if kind == 0:
        return shrunk(t, rng.choice((0, 1, 2, 8)))
    if kind == 1:
        return t.transpose(0, -1) if t.dim() else t
    if kind == 2:
        return t.unsqueeze(0).expand(3, *t.shape)
    if kind == 3:
        return t.reshape((1,) * 9 + tuple(t.shape))
    if kind == 4:
        return t.to("npu:1")
    if kind == 5:
        return t.cpu()
    if kind == 6:
        return t.to("meta")
    if kind == 7:
        return t.flatten()[1:] if t.numel() > 1 else t
    if kind == 8:
        return t.to(rng.choice(DTYPES))
    if kind == 9:
        return mt.empty(0, device="npu").as_strided((0, 5), (7, 3), rng.choice((0, 0, 9)))
    if kind == 10:
        return t.detach().float().requires_grad_()
    if kind == 11:
        return t[..., ::2] if t.dim() else t
    if kind == 12:
        return mt.tensor(rng.choice((2, 2.5, True)), device="npu")
    return mt.tensor(1 + 2j, device="npu").conj()
