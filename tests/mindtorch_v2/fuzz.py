"""Throws odd objects at every op: whatever comes, the answer is a result or an exception, never a crash.

As a tool: `python tests/mindtorch_v2/fuzz.py [--seed N] [--rounds N] [NAME…]`; the op being tried is in the file
given by --trace, so that a crash can be traced to it."""
from __future__ import annotations

import argparse
import random
import resource
import warnings
from pathlib import Path
from typing import Any

import mindtorch_v2 as mt
from mindtorch_v2._ops.table import functions, methods, namespaces
from mindtorch_v2._schema import parse

DTYPES = (mt.bool, mt.uint8, mt.int32, mt.int64, mt.float16, mt.bfloat16, mt.float32, mt.float64, mt.complex64)
SHAPES = ((), (0,), (1,), (3,), (2, 3), (3, 3), (0, 3), (2, 3, 4), (2, 0, 3), (1, 2, 4, 4), (2, 3, 4, 4), (1, 1, 2, 3, 3))
NUMBERS = (0, 1, -1, 2, 3, 7, -5, 2**31, -2**63, 2**63 - 1, 2**70, True, False, 0.0, 0.5, -1.5, 1e300, float("inf"),
           float("nan"), 1j)
# Sizes this large are refused or slow, not unsafe: ops that would fill memory are kept to small numbers.
HUNGRY = {"zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "range", "repeat", "tile", "one_hot",
          "rand", "randn", "randint", "randperm", "new_zeros", "new_ones", "new_empty", "new_full", "expand",
          "tril_indices", "triu_indices", "repeat_interleave", "combinations", "kaiser_window", "vander", "unfold",
          "bincount", "histc", "histogram", "unflatten", "broadcast_to", "empty_strided", "new_empty_strided",
          "as_strided", "pad", "constant_pad_nd"}


def tensor(rng: random.Random) -> Any:
    shape, dtype = rng.choice(SHAPES), rng.choice(DTYPES)
    made = mt.zeros(shape, dtype=mt.float32)
    if made.numel():
        made = (mt.rand(shape) * 6 - 2)
    made = made.to(dtype) if dtype != mt.complex64 else made.to(mt.complex64)
    form = rng.randrange(6)
    if form == 0 and made.dim() > 1:
        made = made.transpose(0, -1)
    elif form == 1 and made.dim():
        made = made[..., ::2]
    elif form == 2:
        made = made.unsqueeze(0).expand(3, *made.shape)
    elif form == 3 and (made.is_floating_point() or made.is_complex()):
        made = made.detach().requires_grad_()
    return made


def thing(rng: random.Random, small: bool) -> Any:
    """Any object a user might pass by mistake, tensors most often."""
    kind = rng.randrange(14)
    if kind < 6:
        return tensor(rng)
    if kind < 8:
        return rng.choice(NUMBERS[:7]) if small or rng.random() < 0.7 else rng.choice(NUMBERS)
    if kind == 8:
        return [rng.choice(NUMBERS[:7]) for _ in range(rng.randrange(4))]
    if kind == 9:
        return tuple(tensor(rng) for _ in range(rng.randrange(3)))
    if kind == 10:
        return rng.choice(("sum", "mean", "floor", "", "ij,jk->ik", "constant", "reflect"))
    if kind == 11:
        return rng.choice((None, ..., slice(None), object(), {}, set(), b"x", range(3), int, mt.float32, mt.device("cpu")))
    if kind == 12:
        return rng.choice(DTYPES)
    return [[1, 2], [3, 4]]


def fitting(kind: str, rng: random.Random, small: bool) -> Any:
    """An argument of the kind that a schema asks for, its value drawn at random."""
    numbers = NUMBERS[:7] if small or rng.random() < 0.8 else NUMBERS
    if kind == "Tensor":
        return tensor(rng)
    if kind == "Tensor[]":
        return [tensor(rng) for _ in range(rng.randrange(1, 4))]
    if kind == "int[]":
        return [rng.randrange(-2, 5) for _ in range(rng.randrange(4))]
    if kind == "int":
        return rng.choice([n for n in numbers if type(n) is int])
    if kind in ("Scalar", "float"):
        return rng.choice([n for n in numbers if not isinstance(n, complex) or kind == "Scalar"])
    if kind == "bool":
        return rng.random() < 0.5
    return rng.choice(DTYPES) if kind == "ScalarType" else None


def arguments(name: str, function: Any, rng: random.Random) -> tuple[list, dict]:
    """Arguments after the schema of one overload, mostly of the right kinds, some left out or wrong."""
    small = name.strip("_") in HUNGRY or any(word in name for word in ("pool", "upsample", "window"))
    overloads = getattr(function, "overloads", None)
    if not overloads or rng.random() < 0.2:
        args = [thing(rng, small) for _ in range(rng.randrange(5))]
        if rng.random() < 0.8:
            args[:1] = [tensor(rng)]
        return args, {}
    values = {p.name: fitting(p.kind, rng, small) if rng.random() < 0.93 else thing(rng, small)
              for p in parse(rng.choice(overloads).schema).params if p.required or rng.random() < 0.4}
    return [], values


def try_op(name: str, function: Any, rng: random.Random) -> bool:
    """One call with random arguments; True when it gave a result that can be read."""
    args, keywords = arguments(name, function, rng)
    try:
        result = function(*args, **keywords)
        for item in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(item, mt.Tensor) and item.numel() < 10000:
                item.tolist()
                if item.requires_grad and item.is_floating_point():
                    item.sum().backward()
    except (KeyboardInterrupt, SystemError):     # SystemError: native code broke the rules of the interpreter
        raise
    except Exception:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))   # absurd sizes fail as out of memory, here and now
    given = 0
    public = methods | functions
    for space, items in namespaces.items():
        public |= {f"{space}.{name}": function for name, function in items.items()}
    for name, function in sorted(public.items()):
        if options.names and name not in options.names:
            continue
        rng = random.Random(f"{options.seed} {name}")
        for turn in range(options.rounds):
            if options.trace:
                options.trace.write_text(f"{name} turn {turn}")
            given += try_op(name, function, rng)
    print(f"{len(public)} ops, {given} calls gave a result")


if __name__ == "__main__":
    main()
