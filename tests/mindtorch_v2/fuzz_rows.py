"""Calls every row with arguments that are nearly right: those of OpInfo's samples, one or two of them changed.

As a tool: `python tests/mindtorch_v2/fuzz_rows.py [--seed N] [--rounds N] [--samples N] [NAME…]`. Each row's name is
printed before its calls: after a crash the last line says where. With a kernel library built with -fsanitize=address,
reading beyond a tensor's sizes or memory ends the run too."""
from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import warnings
from typing import Any

import oracle
import torch

import mindtorch_v2 as mt
from mindtorch_v2 import _C
from mindtorch_v2._ops.table import ops

DTYPES = list(oracle.NAMES)
NUMBERS = (0, -1, 1, 2, 3, -2, 5, 7, 100, 2**31, -2**31, 2**40, 2**62, -2**63, 2**63 - 1)
FLOATS = (0.0, -1.0, 1e300, float("inf"), float("nan"), 0.5)
SHAPES = ((), (0,), (1,), (5,), (0, 0), (1, 1, 1), (2, 2, 2, 2, 2))
MOST_CALLS = 10                        # kept of each row
SECONDS = 60                           # for the calls of one row; a hang ends the run
MEMORY = 4 << 30                       # beyond what the libraries have mapped; more is refused as by a smaller machine


class Recorder:
    """A function mode that keeps the arguments of every op, also of those that ops call, and lets the call go on."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[list[Any], dict[str, Any]]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kept = self.calls.setdefault(getattr(func, "__name__", str(func)), [])
        if len(kept) < MOST_CALLS:
            kept.append(([copied(a) for a in args], {k: copied(v) for k, v in (kwargs or {}).items() if k != "out"}))
        return NotImplemented


def copied(x: Any) -> Any:
    if isinstance(x, mt.Tensor):
        return x.detach().clone() if x.numel() < 10_000 else mt.ones(tuple(min(n, 3) for n in x.shape), dtype=x.dtype)
    return type(x)(copied(i) for i in x) if type(x) in (list, tuple) else x


def record(samples: int) -> dict[str, list]:
    recorder, modes = Recorder(), _C._core._function_mode_stack()
    for info in oracle.op_db:
        dtype = next((d for d in (torch.float32, torch.int64) if d in info.supported_dtypes("cpu")), None)
        if dtype is None:
            continue
        modes.append(recorder)
        try:
            oracle.run(info, dtype, info.supports_autograd and dtype.is_floating_point, 0, samples)
        except (oracle.Absent, AssertionError, RuntimeError, TypeError, ValueError, NotImplementedError, KeyError):
            pass                       # what ran before is recorded; test_ops.py holds the results
        finally:
            modes.clear()
    return recorder.calls


def changed_tensor(x: Any, rng: random.Random) -> Any:
    shape, choice = list(x.shape), rng.randrange(8)
    if choice == 0 and shape:
        shape.pop(rng.randrange(len(shape)))
    elif choice == 1:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((0, 1, 2, 3)))
    elif choice == 2 and shape:
        at = rng.randrange(len(shape))
        shape[at] = max(0, shape[at] + rng.choice((-1, 1, 2, 5)))
    elif choice == 3 and shape:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1))
    elif choice == 4:
        return x.to(rng.choice(DTYPES))
    elif choice == 5:
        shape = rng.choice(SHAPES)
    elif choice == 6:
        rng.shuffle(shape)
    elif x.dtype is mt.int64 and x.numel():
        x = x.clone()
        x.view(-1)[rng.randrange(x.numel())] = rng.choice(NUMBERS)
        return x
    return mt.ones(shape, dtype=x.dtype)


def changed(x: Any, rng: random.Random) -> Any:
    """Another value of the same kind, now and then of another."""
    if isinstance(x, mt.Tensor):
        return changed_tensor(x, rng) if rng.random() < 0.95 else None
    if isinstance(x, (list, tuple)):
        items, choice = list(x), rng.randrange(4)
        if choice == 0 and items:
            items.pop()
        elif choice == 1:
            items.append(items[-1] if items else 1)
        elif items:
            at = rng.randrange(len(items))
            items[at] = changed(items[at], rng)
        return items
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return rng.choice(NUMBERS) if rng.random() < 0.6 else x + rng.choice((-1, 1))
    if isinstance(x, float):
        return rng.choice(FLOATS)
    return rng.choice((None, 0, 1, mt.ones(3))) if x is None else x


def call(function: Any, args: list[Any], kwargs: dict[str, Any], backward: bool) -> None:
    for x in args:
        if backward and isinstance(x, mt.Tensor) and x.is_leaf and (x.is_floating_point() or x.is_complex()):
            x.requires_grad_()
    result = function(*args, **kwargs)
    for r in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(r, mt.Tensor) and r.requires_grad and not r.is_leaf:
            r.abs().sum().backward()
            break


def fuzz(name: str, calls: list, rounds: int, seed: int) -> None:
    function = getattr(ops, name, None) or getattr(mt.Tensor, name, None)
    rng = random.Random(f"{name} {seed}")
    for _ in range(rounds if function else 0):
        args, kwargs = rng.choice(calls)
        args, kwargs = [copied(a) for a in args], {k: copied(v) for k, v in kwargs.items()}
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if args and (not kwargs or rng.random() < 0.85):
                at = rng.randrange(len(args))
                args[at] = changed(args[at], rng)
            elif kwargs:
                key = rng.choice(list(kwargs))
                kwargs[key] = changed(kwargs[key], rng)
        try:
            call(function, args, kwargs, rng.random() < 0.3)
        except Exception:              # any exception will do: what is looked for ends the process
            continue


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    calls = record(options.samples)
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
    for name in options.names or sorted(calls):
        print(name, flush=True)
        signal.alarm(SECONDS)
        fuzz(name, calls[name], options.rounds, options.seed)
    print("all rows answered", len(calls))


if __name__ == "__main__":
    sys.exit(main())
