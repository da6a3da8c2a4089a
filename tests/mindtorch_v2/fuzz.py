"""Throws odd objects at every op: whatever comes, the answer is a result or an exception, never a crash.

As a tool: `python tests/mindtorch_v2/fuzz.py [--seed N] [--rounds N] [--turn N] [NAME…]`. Every target runs in a child
process of its own; those that crashed, hung or broke the interpreter's rules are named with the turn it happened at, and
the exit code is then 1. `--turn N` alone, without a child, is for a debugger."""
from __future__ import annotations

import argparse
import array
import ctypes
import inspect
import mmap
import os
import random
import resource
import signal
import struct
import sys
import warnings
from collections.abc import Callable
from typing import Any

import mindtorch_v2 as mt
from mindtorch_v2._ops.table import functions, methods, namespaces, ops
from mindtorch_v2._schema import parse

try:
    import numpy
except ImportError:
    numpy = None

Random = random.Random
DTYPES = (mt.bool, mt.uint8, mt.int8, mt.int16, mt.int32, mt.int64, mt.float16, mt.bfloat16, mt.float32, mt.float64,
          mt.complex64, mt.complex128)
COMMON = (mt.float32, mt.float32, mt.float32, mt.float64, mt.int64, mt.complex64)
SHAPES = ((), (0,), (1,), (3,), (5,), (2, 3), (3, 3), (4, 4), (0, 3), (3, 0), (2, 3, 4), (2, 3, 3), (2, 0, 3),
          (1, 2, 4, 4), (2, 3, 4, 4), (2, 4, 0, 3), (1, 1, 2, 3, 3), (1, 2, 3, 4, 4), (17,), (33, 2), (1,) * 8)
SMALL = (0, 1, -1, 2, 3, 7, -5, True, False, 0.0, 0.5, -1.5)
NUMBERS = (*SMALL, 2**31, -2**31 - 1, -2**63, 2**63 - 1, 2**62, 2**70, 1e300, -1e300, float("inf"), float("-inf"),
           float("nan"), 1j, 5e-324)
WORDS = ("sum", "mean", "floor", "trunc", "", "ij,jk->ik", "...ij->...ji", "constant", "reflect", "linear", "bilinear",
         "prod", "amax", "add", "same", "valid", "left", "higher", "nuc", "fro", "U", "reduced", "gelsd", "é\0ß", "\ud800", "x" * 300)
# Sizes this large are refused or slow, not unsafe: ops that would fill memory are kept to small numbers.
HUNGRY = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "range", "repeat", "tile", "one_hot",
          "rand", "randn", "randint", "randperm", "new_zeros", "new_ones", "new_empty", "new_full", "expand", "new", "resize",
          "tril_indices", "triu_indices", "repeat_interleave", "combinations", "kaiser_window", "vander", "unfold",
          "bincount", "histc", "histogram", "histogramdd", "unflatten", "broadcast_to", "empty_strided", "new_empty_strided",
          "as_strided", "pad", "constant_pad_nd", "matrix_power", "polygamma", "cartesian_prod", "multinomial"}
# Not for random calls: they change the process, wait, or write files.
LEFT_ALONE = {"set_num_threads", "set_num_interop_threads", "save", "load", "compile", "set_default_device", "set_default_dtype",
              "set_default_tensor_type", "set_printoptions", "share_memory_", "pin_memory", "manual_seed", "seed",
              "set_rng_state", "from_file", "_print", "set_flush_denormal", "use_deterministic_algorithms"}


# ---- values ----------------------------------------------------------------------------------------------------------
class Theme:
    """What the arguments of one call have in common, so that some calls get past the first checks."""

    def __init__(self, rng: Random) -> None:
        self.shape = rng.choice(SHAPES) if rng.random() < 0.6 else None
        self.dtype = rng.choice(COMMON if rng.random() < 0.7 else DTYPES) if rng.random() < 0.7 else None
        self.tame = rng.random() < 0.6            # whether numbers stay small


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
    shape = some_shape(rng, theme)
    dtype = theme.dtype if theme.dtype is not None and rng.random() < 0.9 else rng.choice(DTYPES)
    if index and rng.random() < 0.8:
        dtype = rng.choice((mt.int64, mt.int64, mt.int32))
    count = 1
    for size in shape:
        count *= size
    spread = rng.choice(((-2, 4), (0, 1), (0, 3), (1, 1), (-100, 200), (-1e18, 2e18)) if rng.random() < 0.3 else ((0, 3),))
    data = [spread[0] + rng.random() * spread[1] for _ in range(count)]
    if count and rng.random() < 0.1:
        data[rng.randrange(count)] = rng.choice((float("nan"), float("inf"), -float("inf")))
    made = mt.tensor(data, dtype=mt.float64).reshape(shape).to(dtype)
    form = rng.randrange(10)
    if form == 0 and made.dim() > 1:
        made = made.transpose(0, -1)
    elif form == 1 and made.dim():
        made = made[..., ::2]
    elif form == 2:
        made = made.unsqueeze(0).expand(3, *made.shape)
    elif form < 6 and (made.is_floating_point() or made.is_complex()):
        made = made.detach().requires_grad_()
    elif form == 6 and rng.random() < 0.3:
        made = made.to("meta")
    elif form == 7 and made.dim() == 4:
        made = made.contiguous(memory_format=mt.channels_last)
    return made


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


def number(rng: Random, tame: bool) -> Any:
    return rng.choice(SMALL if tame or rng.random() < 0.6 else NUMBERS)


def thing(rng: Random, theme: Theme) -> Any:
    """Any object a user might pass by mistake, tensors most often."""
    kind = rng.randrange(17)
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
        return rng.choice((None, ..., slice(None), object(), {}, set(), b"x", range(3), int, mt.float32, mt.device("cpu"),
                           mt.device("meta"), mt.channels_last, mt.strided, len, float("nan"), mt.Generator(), mt))
    if kind == 12:
        return rng.choice(DTYPES)
    if kind == 13:
        return rng.choice((Odd(), Shrinking([1, 2, 3]), Odd, Shrinking))
    if kind == 14:
        return [1] * rng.choice((64, 65, 100, 1000))
    if kind == 15:
        return nested(rng, theme, 0)
    return [[1, 2], [3, 4]]


def nested(rng: Random, theme: Theme, depth: int) -> Any:
    """Lists in lists, not all of a kind."""
    if depth > 3 or rng.random() < 0.3:
        return thing(rng, theme) if rng.random() < 0.2 else number(rng, theme.tame)
    made = [nested(rng, theme, depth + 1) for _ in range(rng.randrange(4))]
    return made if rng.random() < 0.8 else tuple(made)


def fitting(kind: str, rng: Random, theme: Theme, name: str = "") -> Any:
    """An argument of the kind that a schema asks for, its value drawn at random."""
    if kind == "Tensor":
        return tensor(rng, theme, name in ("index", "indices", "target", "offsets", "pivots", "LU_pivots", "mask"))
    if kind == "Tensor[]":
        return [tensor(rng, theme, "ind" in name) for _ in range(rng.randrange(4))]
    if kind in ("int[]", "bool[]"):
        shape = theme.shape or ()
        if rng.random() < 0.3:
            return list(shape[rng.randrange(3):])
        if rng.random() < 0.05:
            return [rng.choice([n for n in NUMBERS if type(n) is int])] * rng.randrange(4)
        low = rng.choice((-2, 0, 0, 1))
        return [rng.randrange(low, 5) for _ in range(rng.randrange(5))] if rng.random() < 0.7 else rng.randrange(low, 4)
    if kind == "float[]":
        return [number(rng, theme.tame) for _ in range(rng.choice((0, 1, 2, 3, 70)))]
    if kind == "int":
        if theme.shape and rng.random() < 0.3:
            return rng.choice(theme.shape)
        return rng.choice([n for n in (SMALL if theme.tame else NUMBERS) if isinstance(n, int)])
    if kind in ("Scalar", "float"):
        return rng.choice([n for n in (SMALL if theme.tame else NUMBERS) if not isinstance(n, complex) or kind == "Scalar"])
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "str":
        return rng.choice(WORDS)
    if kind == "Generator":
        return rng.choice((None, mt.Generator()))
    return rng.choice(DTYPES) if kind == "ScalarType" else None


# ---- calls -----------------------------------------------------------------------------------------------------------
def is_hungry(name: str) -> bool:
    name = name.rpartition(".")[2].strip("_")
    return name in HUNGRY or any(word in name for word in ("pool", "upsample", "window", "pad", "interpolate",
                                                       "shuffle", "fft", "split", "chunk"))


def arguments(name: str, function: Any, rng: Random) -> tuple[list, dict]:
    """Arguments after the schema of one overload, mostly of the right kinds, some left out or wrong."""
    theme = Theme(rng)
    theme.tame = theme.tame or is_hungry(name)
    overloads = getattr(function, "overloads", None)
    if not overloads or rng.random() < 0.15:
        return plain_arguments(function, rng, theme)
    schema = parse(rng.choice(overloads).schema)
    values = {p.name: fitting(p.kind, rng, theme, p.name) if rng.random() < 0.95 else thing(rng, theme)
              for p in schema.params if p.required or rng.random() < 0.5}
    for p in schema.params:
        if p.optional and p.name in values and rng.random() < 0.2:
            values[p.name] = None
    positional = []
    if rng.random() < 0.3:
        for p in schema.params:
            if p.keyword_only or p.name not in values:
                break
            positional.append(values.pop(p.name))
    if rng.random() < 0.15 and not name.endswith("_"):
        values["out"] = tensor(rng, theme) if rng.random() < 0.7 or len(schema.returns) < 2 else \
            tuple(tensor(rng, theme) for _ in schema.returns)
    return positional, values


def plain_arguments(function: Any, rng: Random, theme: Theme) -> tuple[list, dict]:
    """Arguments after the Python signature, or none: any objects."""
    try:
        parameters = list(inspect.signature(function).parameters.values()) if rng.random() < 0.7 else []
    except (TypeError, ValueError):
        parameters = []
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not named:
        args = [thing(rng, theme) for _ in range(rng.randrange(5))]
        if rng.random() < 0.8:
            args[:1] = [tensor(rng, theme)]
        return args, {}
    values = {}
    for p in named:
        if p.default is p.empty:
            text = str(p.annotation)
            kind = "Tensor" if "Tensor" in text or p.name in ("self", "input", "target", "weight", "bias", "x") else \
                "int" if "int" in text else "float" if "float" in text else ""
            values[p.name] = fitting(kind, rng, theme, p.name) if kind and rng.random() < 0.9 else thing(rng, theme)
        elif rng.random() < 0.3:
            word = type(p.default).__name__
            values[p.name] = fitting(word, rng, theme, p.name) if word in ("int", "float", "bool", "str") \
                and rng.random() < 0.8 else thing(rng, theme)
    return [], values


def read(result: Any, depth: int = 0) -> None:
    """Looks at every item of a result, and runs its gradient."""
    if isinstance(result, mt.Tensor):
        if result.numel() < 10000 and not result.is_meta:
            result.tolist()
            if result.requires_grad and (result.is_floating_point() or result.is_complex()):
                total = result.sum()
                (total.real if total.is_complex() else total).backward()
        return
    if isinstance(result, (tuple, list)) and depth < 3:
        for item in result:
            read(item, depth + 1)


def called(name: str, function: Any) -> Callable[[Random], None]:
    def attempt(rng: Random) -> None:
        args, keywords = arguments(name, function, rng)
        read(function(*args, **keywords))
        for value in (*args, *keywords.values()):        # what was changed in place can still be read
            if isinstance(value, mt.Tensor) and not value.requires_grad:
                read(value)
    return attempt


def method(name: str) -> Callable[[Random], None]:
    def attempt(rng: Random) -> None:
        theme = Theme(rng)
        theme.tame = theme.tame or is_hungry(name)
        x = tensor(rng, theme)
        args = [fitting(rng.choice(("Tensor", "int", "int[]", "Scalar", "str", "ScalarType", "bool")), rng, theme)
                if rng.random() < 0.7 else thing(rng, theme) for _ in range(rng.randrange(4))]
        found = getattr(x, name)
        read(found(*args) if callable(found) else found)
        read(x)
    return attempt


# ---- everything that is no op ------------------------------------------------------------------------------------------
def odd_index(rng: Random, theme: Theme) -> Any:
    def one() -> Any:
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice((0, 1, -1, 2, -4, 2**63 - 1, -2**63, 2**70, True, False))
        if kind < 5:
            pick = (None, 0, 1, -1, 2, 3, -7, 2**63, -2**63)
            return slice(rng.choice(pick), rng.choice(pick), rng.choice(pick))
        if kind == 5:
            return rng.choice((None, ...))
        if kind < 9:
            return tensor(rng, theme, rng.random() < 0.7)
        if kind == 9:
            return [rng.randrange(-3, 3) for _ in range(rng.randrange(4))]
        if kind == 10:
            return slice(thing(rng, theme), thing(rng, theme), None)
        return thing(rng, theme)
    return one() if rng.random() < 0.4 else tuple(one() for _ in range(rng.choice((0, 1, 2, 3, 4, 70))))


def indexing(rng: Random) -> None:
    theme = Theme(rng)
    read(tensor(rng, theme)[odd_index(rng, theme)])


def assigning(rng: Random) -> None:
    theme = Theme(rng)
    x = tensor(rng, theme)
    x = x.detach() if rng.random() < 0.5 else x * 1
    x[odd_index(rng, theme)] = thing(rng, theme) if rng.random() < 0.5 else number(rng, False)
    read(x)


def constructing(rng: Random) -> None:
    theme = Theme(rng)
    make = rng.choice((mt.tensor, mt.as_tensor, mt.asarray, mt.Tensor, mt.FloatTensor, mt.Size, tensor(rng, theme).new_tensor))
    options = {"dtype": rng.choice(DTYPES)} if rng.random() < 0.4 else {}
    read(make(nested(rng, theme, 0) if rng.random() < 0.7 else thing(rng, theme), **options))


def buffers(rng: Random) -> list[Any]:
    given: list[Any] = [b"", b"abcdefgh" * 3, bytearray(17), memoryview(bytes(24))[::2], array.array("d", [1, 2]),
                        array.array("u", "ab"), Odd(), (ctypes.c_int * 3)(), memoryview(bytearray(16)).cast("i")]
    if numpy is not None:
        base = numpy.arange(24).reshape(2, 3, 4)
        given += [base[::-1], base[:, ::2], base.T, base.astype(">i4"), base.astype("f2"), numpy.array(3.5), numpy.array([]),
                  numpy.array(["a"]), numpy.array([None, 1]), numpy.zeros(3, "M8[s]"), numpy.zeros(3, "i4,f8"),
                  numpy.float32(2), numpy.broadcast_to(numpy.ones(1), (2, 5)), numpy.frombuffer(b"12345678", "i4"),
                  numpy.lib.stride_tricks.as_strided(numpy.zeros(9, "u1")[1:].view("i4"), (2,), (3,)), numpy.zeros((0, 2)),
                  numpy.zeros(4, "c16")[1:], numpy.zeros(3, "u2"), numpy.zeros(2, "g"), numpy.ma.masked_array([1, 2])]
    return given


def exchanging(rng: Random) -> None:
    theme = Theme(rng)
    given = rng.choice(buffers(rng)) if rng.random() < 0.8 else thing(rng, theme)
    way = rng.randrange(6)
    if way == 0:
        read(mt.frombuffer(given, dtype=rng.choice(DTYPES), count=rng.choice((-1, 0, 1, 2, 100, 2**62, -3)),
                           offset=rng.choice((0, 1, 4, 8, -1, 100, 2**62))))
    elif way == 1:
        read(mt.from_numpy(given))
    elif way == 2:
        capsule = tensor(rng, theme).detach().__dlpack__() if rng.random() < 0.7 else given
        read(mt.from_dlpack(capsule))
        read(mt.from_dlpack(capsule))                      # a capsule can be taken once
    elif way == 3:
        read(rng.choice((mt.tensor, mt.as_tensor, mt.asarray))(given))
    elif way == 4:
        x = tensor(rng, theme).detach().numpy()
        x.sum()
        read(mt.from_numpy(x[::-1] if x.ndim else x))
    else:
        tensor(rng, theme)[...] = given


def storages(rng: Random) -> None:
    theme = Theme(rng)
    x = tensor(rng, theme).detach()
    storage = x.untyped_storage() if rng.random() < 0.7 else x.storage()
    names = [n for n in dir(storage) if (not n.startswith("_") or n in ("__getitem__", "__setitem__", "__len__", "__iter__",
             "__eq__", "__deepcopy__", "__reduce__")) and n not in LEFT_ALONE]
    for _ in range(3):
        found = getattr(storage, rng.choice(names))
        if callable(found):
            try:
                found(*[rng.choice((0, 1, 3, -1, 64, 2**40, 2**63, storage, x, thing(rng, theme)))
                        for _ in range(rng.randrange(3))])
            except Exception:
                pass
    read(x)                                               # a storage made smaller is refused, not read past its end
    read(x + 1)


def setting(rng: Random) -> None:
    theme = Theme(rng)
    x, y = tensor(rng, theme), tensor(rng, theme)
    way = rng.randrange(8)
    if way == 0:
        setattr(x, rng.choice(("data", "grad", "requires_grad", "_base", "names", "real", "imag", "shape", "dtype")),
                y if rng.random() < 0.6 else thing(rng, theme))
    elif way == 1:
        x.detach().set_(rng.choice((y.untyped_storage(), y, y.storage())), rng.choice((0, 1, -1, 2**62)),
                        fitting("int[]", rng, theme), fitting("int[]", rng, theme))
    elif way == 2:
        x = x.detach()
        x.resize_(fitting("int[]", rng, theme))
        x.zero_()
    elif way == 3:
        x = x.as_strided(fitting("int[]", rng, theme), fitting("int[]", rng, theme), rng.choice((None, 0, 1, -1, 5, 2**62)))
    elif way == 4:
        x = x.view(rng.choice(DTYPES))
    elif way == 5:
        x.__setstate__(thing(rng, theme))
    elif way == 6:
        x = mt.Tensor.__new__(mt.Tensor)
        x.set_(y)
    else:
        function, args = x.__reduce_ex__(2)[:2]
        args = list(args)
        args[rng.randrange(len(args))] = thing(rng, theme)
        x = function(*args)
    read(x)
    read(x * 1)


def differentiating(rng: Random) -> None:
    theme = Theme(rng)

    def one() -> Any:
        return rng.choice((None, tensor(rng, theme), tensor(rng, theme), number(rng, True), thing(rng, theme)))

    class Strange(mt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(*[a for a in args if isinstance(a, mt.Tensor)][:rng.randrange(3)])
            if rng.random() < 0.2:
                ctx.mark_dirty(*args[:1])
            if rng.random() < 0.2:
                ctx.mark_non_differentiable(one())
            choice = rng.randrange(5)
            return args[0] if choice == 0 else args[0] * 1 if choice < 3 else (args[0] * 1, one()) if choice == 3 else one()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if rng.random() < 0.3:
                read(ctx.saved_tensors)
            choice = rng.randrange(4)
            return grads[0] if choice == 0 else one() if choice == 1 else tuple(one() for _ in range(rng.randrange(4)))

    x = mt.rand(rng.choice(SHAPES)).requires_grad_()
    way = rng.randrange(4)
    if way < 2:
        y = Strange.apply(x, *[one() for _ in range(rng.randrange(2))])
        y = y[0] if isinstance(y, tuple) else y
    else:
        y = (x * 2).exp()
        if way == 2:
            rng.choice((x, y)).register_hook(lambda g: one())
            y.grad_fn.register_hook(lambda *gs: one())
            y.grad_fn.register_prehook(lambda *gs: one())
    mt.autograd.grad(rng.choice((y, [y, y], y.sum())), rng.choice((x, [x, x], y, one())),
                     rng.choice((None, one(), [one()], mt.ones_like(y))), allow_unused=True, create_graph=rng.random() < 0.3)


def generators(rng: Random) -> None:
    theme = Theme(rng)
    g = mt.Generator()
    rng.choice((g.set_state, g.manual_seed, g.get_state, mt.set_rng_state))(thing(rng, theme))
    g.set_state(mt.randint(0, 256, (rng.choice((0, 5, 5056, 6000)),), dtype=mt.uint8))
    mt.rand(3, generator=g)


def targets() -> dict[str, Callable[[Random], None]]:
    """Every place to throw at, by name."""
    found: dict[str, Callable[[Random], None]] = {
        f.__name__: f for f in (indexing, assigning, constructing, exchanging, storages, setting, differentiating, generators)}
    public = methods | functions
    for space, items in namespaces.items():
        public |= {f"{space}.{name}": function for name, function in items.items()}
    known = {id(function) for function in public.values()}
    public |= {f"ops.{name}": function for name, function in vars(ops).items() if id(function) not in known}
    public |= {f"F.{name}": f for name, f in vars(mt.nn.functional).items()
               if inspect.isfunction(f) and not name.startswith("_") and id(f) not in known}
    public |= {f"torch.{name}": getattr(mt, name) for name in dir(mt) if name not in functions and not name.startswith("_")
               and inspect.isroutine(getattr(mt, name))}
    found |= {name: called(name, function) for name, function in public.items()
              if name.rpartition(".")[2] not in LEFT_ALONE}
    found |= {f"Tensor.{name}": method(name) for name in dir(mt.Tensor)
              if name not in methods and name not in LEFT_ALONE and name not in
              ("__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__del__")}
    return dict(sorted(found.items()))


# ---- running -----------------------------------------------------------------------------------------------------------
def one_turn(name: str, attempt: Callable[[Random], None], seed: int, turn: int) -> bool:
    """True when the call gave a result that can be read."""
    rng = random.Random(f"{seed} {name} {turn}")
    mt.manual_seed(rng.randrange(1 << 30))
    try:
        attempt(rng)
    except (KeyboardInterrupt, SystemError):              # SystemError: native code broke the rules of the interpreter
        raise
    except Exception:
        return False
    return True


def in_child(name: str, attempt: Callable[[Random], None], seed: int, rounds: int, seconds: int, notes: mmap.mmap) -> int:
    """Runs the turns in a child and returns what it ended with; notes holds (turn, results)."""
    notes[:16] = bytes(16)
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    given = 0
    try:
        for turn in range(rounds):
            signal.alarm(seconds)
            notes[:16] = struct.pack("qq", turn, given)
            given += one_turn(name, attempt, seed, turn)
        notes[:16] = struct.pack("qq", rounds, given)
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(70)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--turn", type=int)
    parser.add_argument("--seconds", type=int, default=20, help="a call that takes longer hangs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))   # absurd sizes fail as out of memory, here and now
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen = {name: f for name, f in targets().items() if not options.names or name in options.names}
    if options.turn is not None:
        for name, attempt in chosen.items():
            print(name, one_turn(name, attempt, options.seed, options.turn))
        return 0
    notes, given, bad = mmap.mmap(-1, 16), 0, []
    for name, attempt in chosen.items():
        ended = in_child(name, attempt, options.seed, options.rounds, options.seconds, notes)
        turn, results = struct.unpack("qq", notes[:16])
        given += results
        if ended:
            why = "hang" if -ended == signal.SIGALRM else signal.Signals(-ended).name if ended < 0 else f"exit {ended}"
            bad.append(f"{name} --seed {options.seed} --turn {turn}: {why}")
            print(bad[-1], flush=True)
    print(f"{len(chosen)} targets, {given} calls gave a result, {len(bad)} crashed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
