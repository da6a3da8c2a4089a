"""Runs random calls through PyTorch and mindtorch_v2 and compares what both accept, refuse and compute.

`python tests/mindtorch_v2/fuzz_parity.py [--seed N] [--executions N] [--jobs J] [NAME…]`. Calls run in forked children, so
that a crash or a hang is counted. `--index N` with one NAME runs one execution here and shows it. Differences that are
accepted stand in parity_known.py. Exit code 1: a crash, a hang or a difference that is not accepted there."""
from __future__ import annotations

import collections
import json
import math
import mmap
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import fuzz_options
import oracle
import parity_draw as draw
import parity_known as known
import torch
from oracle import op_db

import mindtorch_v2 as mt
from mindtorch_v2._ops.table import functions, methods, namespaces
from mindtorch_v2._schema import parse

Random = random.Random
Arguments = tuple[list, dict]
WORDS = ("sum", "mean", "none", "floor", "trunc", "constant", "reflect", "replicate", "circular", "linear", "bilinear", "nearest",
         "prod", "amax", "amin", "same", "valid", "left", "right", "higher", "lower", "midpoint", "nuc", "fro", "ij", "xy",
         "reduced", "complete", "r", "tanh", "backward", "ortho", "forward", "x")
RANDOM = {"bernoulli", "dropout", "multinomial", "normal", "poisson", "rand", "randn", "randint", "randperm", "rrelu", "uniform",
          "exponential", "geometric", "cauchy", "log_normal", "random", "binomial", "sample", "lowrank", "dirichlet", "gamma",
          "attention", "fractional", "svd", "pca"}
# They change the process, or large numbers among their arguments are sizes and counts. In PyTorch lu_unpack and ldl_solve write
# outside of their memory where pivots are out of range, rrelu_with_noise where noise is not contiguous, and resize_as_ leaves
# what cannot be read.
LEFT_ALONE = {"from_file", "share_memory_", "pin_memory", "data_ptr", "set_", "cuda", "empty_permuted", "lu_unpack", "resize_as_",
              "rrelu_with_noise", "rrelu_with_noise_", "ldl_solve", "linalg.ldl_solve"}
NO_OUT = {"tril", "triu"}              # PyTorch writes to an out= of several matrices as if it were contiguous
TAME = ("zeros", "ones", "empty", "full", "eye", "arange", "linspace", "logspace", "range", "repeat", "tile", "rand", "new",
        "expand", "resize", "indices", "combinations", "window", "vander", "fold", "bincount", "hist", "broadcast", "strided",
        "pad", "power", "polygamma", "cartesian", "multinomial", "pool", "upsample", "interpolate", "shuffle", "fft", "split",
        "chunk", "one_hot", "gamma", "conv", "embedding", "stft", "unflatten")
REFUSALS = {"RuntimeError", "TypeError", "ValueError", "IndexError", "NotImplementedError", "LinAlgError"}
TOLERANCE = {torch.float16: 8e-3, torch.bfloat16: 6.4e-2, torch.float32: 4e-5, torch.complex64: 4e-5,
             torch.float64: 1e-8, torch.complex128: 1e-8}


class Target:
    """One function that both libraries have, and how its arguments are drawn."""

    def __init__(self, name: str, theirs: Callable[..., Any], ours: Callable[..., Any],
                 drawn: Callable[[Random], Arguments]) -> None:
        self.name, self.theirs, self.ours, self.drawn = name, theirs, ours, drawn
        self.changes_self = name.endswith("_") and not name.endswith("__")
        self.seeded = any(word in name for word in RANDOM)


# ---- targets -------------------------------------------------------------------------------------------------------------
def from_table(name: str, theirs: Any, ours: Any, method: bool) -> Target:
    schemas = [parse(overload.schema) for overload in ours.overloads]
    tame = any(word in name for word in TAME)
    out = not method and name not in NO_OUT
    return Target(name, theirs, ours, lambda rng: draw.call(rng, rng.choice(schemas), WORDS, method, tame, out))


class Samples:
    """The samples of an OpInfo entry, made when they are first asked for."""

    def __init__(self, info: Any) -> None:
        self.info, self.held = info, None

    def __call__(self, rng: Random) -> Arguments:
        if self.held is None:
            self.held = self.made()
        if not self.held:
            raise LookupError("no sample suits")
        main, arguments, sizes = rng.choice(self.held)
        change = draw.Change(rng, main, sizes)
        args, kwargs = change.applied(arguments)
        return list(args), kwargs

    def made(self) -> list:
        torch.default_generator.manual_seed(0)
        supported = self.info.supported_dtypes("cpu")
        main = next((d for d in (torch.float64, torch.float32, torch.int64, torch.bool, torch.complex64) if d in supported), None)
        found = []
        if main is None:
            return found
        grad = self.info.supports_autograd and main.is_floating_point
        for _, sample in oracle.chosen(self.info.sample_inputs("cpu", main, requires_grad=grad), 12, 0):
            try:
                arguments = draw.hold(([sample.input, *sample.args], dict(sample.kwargs)))
            except KeyError:
                continue
            found.append((main, arguments, draw.sizes_in(arguments)))
        return found


def indexing(rng: Random) -> Arguments:
    d = draw.Draw(rng)

    def one() -> Any:
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice((0, 1, -1, 2, -3, True, False))
        if kind < 6:
            pick = (None, None, 0, 1, -1, 2, 3, -7)
            return slice(rng.choice(pick), rng.choice(pick), rng.choice((None, 1, 2, 3, 0, -1)))
        if kind == 6:
            return rng.choice((None, ...))
        if kind == 7:
            return [rng.randrange(-2, 2) for _ in range(rng.randrange(3))]
        if kind == 8:
            return d.a_tensor("mask")
        return draw.tensor(rng, rng.choice(((2,), (1,), (), (2, 2), (0,))), torch.int64, "unit") if kind < 11 else d.anything()
    index = one() if rng.random() < 0.4 else tuple(one() for _ in range(rng.randrange(4)))
    return [d.a_tensor(), index], {}


def assigning(rng: Random) -> Arguments:
    (x, index), _ = indexing(rng)
    d = draw.Draw(rng)
    d.dtype, d.grad = x.theirs.dtype, False
    value = d.number() if rng.random() < 0.5 else draw.tensor(rng, rng.choice(((), (1,), (3,), (2, 3))), d.dtype, d.theme)
    return [x, index, value], {}


def assign(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


def constructing(rng: Random) -> Arguments:
    d = draw.Draw(rng)

    def nested(depth: int) -> Any:
        if depth == 0:
            return d.number() if rng.random() < 0.97 else d.anything()
        return [nested(depth - 1) for _ in range(rng.choice((0, 1, 2, 2) if rng.random() < 0.05 else (2,)))]
    kwargs = {"dtype": rng.choice(draw.DTYPES)} if rng.random() < 0.5 else {}
    return [nested(rng.randrange(4)) if rng.random() < 0.9 else d.anything()], kwargs


def converting(rng: Random) -> Arguments:
    d = draw.Draw(rng)
    kwargs = {"memory_format": rng.choice(draw.FORMATS)} if rng.random() < 0.2 else {}
    return [d.a_tensor(), rng.choice((*draw.DTYPES, d.a_tensor(), "cpu")) if rng.random() < 0.95 else d.anything()], kwargs


def only_self(rng: Random) -> Arguments:
    return [draw.Draw(rng).a_tensor()], {}


ATTRIBUTES = ("T", "H", "mT", "mH", "real", "imag", "shape", "ndim", "itemsize", "nbytes", "is_leaf", "tolist", "item", "numel",
              "size", "stride", "dim", "element_size", "is_contiguous", "is_signed", "__len__", "__bool__", "__int__",
              "__float__", "__index__", "__complex__", "is_nonzero", "double", "half", "bool", "char", "byte", "cfloat", "int")


def attribute(name: str) -> Callable[[Any], Any]:
    def get(x: Any) -> Any:
        found = getattr(x, name)
        return found() if callable(found) and not isinstance(found, (torch.Tensor, mt.Tensor)) else found
    return get


def named(space: Any, name: str) -> Any:
    for part in name.split("."):
        space = getattr(space, part, None)
    return space


def targets() -> dict[str, Target]:
    """Every function that both libraries have, by name."""
    found = []
    for prefix, ours_in, theirs_in in (("", functions, torch), ("Tensor.", methods, torch.Tensor), ("nn.", namespaces["nn"],
                                       torch._C._nn), *((f"{n}.", namespaces[n], getattr(torch, n))
                                                        for n in ("linalg", "special", "fft"))):
        for name, ours in ours_in.items():
            theirs = getattr(theirs_in, name, None)
            if callable(theirs) and hasattr(ours, "overloads") and not name.startswith("_") and name not in LEFT_ALONE:
                found.append(from_table(prefix + name, theirs, ours, prefix == "Tensor."))
    for info in op_db:
        try:
            ours = oracle.function_of(info)
        except oracle.Absent:
            continue
        name = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
        if info.name not in LEFT_ALONE:
            found.append(Target("info." + name, info.op, ours, Samples(info)))
    found += [Target("indexing", torch.Tensor.__getitem__, mt.Tensor.__getitem__, indexing),
              Target("assigning_", assign, assign, assigning), Target("tensor", torch.tensor, mt.tensor, constructing),
              Target("Tensor.to", torch.Tensor.to, mt.Tensor.to, converting)]
    found += [Target(f"Tensor.{n}", attribute(n), attribute(n), only_self) for n in ATTRIBUTES]
    return {target.name: target for target in sorted(found, key=lambda t: t.name)}


# ---- comparing -----------------------------------------------------------------------------------------------------------
class Difference(Exception):
    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind, self.detail = kind, detail


def compare_values(x: Any, y: Any, kind: str, least: float = 0.0) -> None:
    """x is ours, y PyTorch's; shapes and dtypes are the same. least: the tolerance where that of the dtype is less."""
    y = y.detach().resolve_conj().resolve_neg()
    x = oracle.to_torch(x)
    if torch.equal(x, y):
        if y.dtype.is_floating_point and y.numel() and not torch.equal(x.signbit() & (x == 0), y.signbit() & (y == 0)):
            raise Difference("sign of zero", f"{x.reshape(-1)[:8].tolist()}, expected {y.reshape(-1)[:8].tolist()}")
        return
    tolerance = TOLERANCE.get(y.dtype)
    if tolerance is not None:
        if y.dtype.is_complex:                   # part by part: a NaN in one leaves the other to be compared
            x, y = torch.view_as_real(x.contiguous()), torch.view_as_real(y.contiguous())
        a, b = x.double(), y.double()
        size = b.abs().masked_fill(~b.isfinite(), 0)
        bound = max(tolerance, least) * (1 + size.max().item())
        bad = (a != b) & ~(a.isnan() & b.isnan()) & ~((a - b).abs() <= bound)
    else:
        bad = x != y
    if bad.any():
        at = bad.reshape(-1).nonzero()[0].item()
        worst = ((a - b).abs()[bad].max() / (1 + size.max())).item() if tolerance is not None else math.inf
        off = f", off by {worst:.0e}" if math.isfinite(worst) else ""
        raise Difference(kind, f"[{at}] {x.reshape(-1)[at].item()!r}, expected {y.reshape(-1)[at].item()!r}{off}")


def compare(ours: Any, theirs: Any, kind: str = "value", least: float = 0.0) -> None:
    """Raises Difference where two results differ."""
    a, b = oracle.flat(ours), oracle.flat(theirs)
    if len(a) != len(b):
        raise Difference("structure", f"{len(a)} results, expected {len(b)}")
    for x, y in zip(a, b):
        if isinstance(y, torch.Tensor):
            if not isinstance(x, mt.Tensor):
                raise Difference("structure", f"{type(x).__name__}, expected a tensor")
            if y.dtype not in draw.DTYPES or y.layout != torch.strided:
                continue
            if oracle.NAMES[x.dtype] != y.dtype:
                raise Difference("dtype", f"{x.dtype}, expected {y.dtype}")
            if x.shape != tuple(y.shape):
                raise Difference("shape", f"{tuple(x.shape)}, expected {tuple(y.shape)}")
            compare_values(x, y, kind, least)
        elif isinstance(y, torch.dtype):
            if oracle.DTYPES.get(y) is not x:
                raise Difference("value", f"{x}, expected {y}")
        elif isinstance(y, (int, float, complex, str)):
            same = type(x) is type(y) and (x == y or x != x and y != y)
            if not same and not (isinstance(y, (float, complex)) and abs(x - y) < 1e-5 * max(1, abs(y))):
                raise Difference("value", f"{x!r}, expected {y!r}")


def outcome(function: Callable[..., Any], args: list, kwargs: dict) -> tuple[Any, Exception | None]:
    try:
        return function(*args, **kwargs), None
    except SystemError:                           # native code broke the rules of the interpreter
        raise
    except Exception as error:
        return None, error


def short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).split(chr(10))[0][:140]}"


def compare_outcomes(ours: tuple, theirs: tuple, when: str = "") -> bool:
    """Whether both gave a result; raises where one did not or they refuse by another type."""
    if theirs[1] is None and ours[1] is not None:
        raise Difference(when + "refused", short(ours[1]))
    if theirs[1] is not None and ours[1] is None:
        raise Difference(when + "accepted", f"expected {short(theirs[1])}")
    if theirs[1] is not None:
        a, b = (type(side[1]).__name__.lstrip("_") for side in (ours, theirs))
        if a != b:
            raise Difference(when + ("refusal" if a in REFUSALS else "exception"),
                             f"{short(ours[1])}, expected {short(theirs[1])}")
    return theirs[1] is None


def compare_gradients(ours: Any, theirs: Any, given: list[draw.Pair], rng: Random, note: Callable[[int], None]) -> None:
    results = [(x, y) for x, y in zip(oracle.flat(ours), oracle.flat(theirs)) if isinstance(y, torch.Tensor)]
    for x, y in results:
        if x.requires_grad != y.requires_grad:
            raise Difference("requires_grad", f"{x.requires_grad}, expected {y.requires_grad}")
    results = [(x, y) for x, y in results if y.requires_grad and y.dtype in (torch.float64, torch.complex128)]
    inputs = [p.leaf or p for p in given]
    inputs = [p for p in inputs if p.theirs.requires_grad and p.theirs.dtype in (torch.float64, torch.complex128)]
    if not results or not inputs:
        return
    starts = [draw.tensor(rng, tuple(y.shape), y.dtype, "plain") for _, y in results]
    note(0)
    expected = outcome(torch.autograd.grad, [[y for _, y in results], [p.theirs for p in inputs], [s.theirs for s in starts]],
                       {"allow_unused": True})
    note(1)
    got = outcome(mt.autograd.grad, [[x for x, _ in results], [p.ours for p in inputs], [s.ours for s in starts]],
                  {"allow_unused": True})
    if not compare_outcomes(got, expected, "backward "):
        return
    for x, y in zip(got[0], expected[0]):
        if x is not None and y is not None:
            if tuple(x.shape) != tuple(y.shape):
                raise Difference("gradient", f"shape {tuple(x.shape)}, expected {tuple(y.shape)}")
            try:
                compare_values(x, y, "gradient")
            except Difference as difference:
                if difference.kind != "sign of zero":
                    if not all(s.theirs.is_contiguous() for s in starts):
                        difference.detail += " (from strided gradients)"
                    raise
        elif (x is None) != (y is None) and bool(((y if x is None else x) != 0).any()):
            raise Difference("gradient", f"is {'missing' if x is None else 'unexpected'}")


def execute(target: Target, seed: int, index: int, note: Callable[[int], None]) -> tuple[Arguments, Difference | None]:
    """One call in both libraries; note(1) says that ours is running."""
    rng = random.Random(f"{seed} {target.name} {index}")
    args, kwargs = target.drawn(rng)
    if kwargs.get("unsafe"):                      # segment_reduce: PyTorch reads and writes outside of its memory
        kwargs["unsafe"] = False
    given = draw.pairs([args, kwargs])
    if target.changes_self:
        for pair in given:
            if pair.theirs.requires_grad and rng.random() < 0.8:
                leaf = draw.Pair(pair.theirs, pair.ours)
                pair.theirs, pair.ours, pair.leaf = pair.theirs.clone(), pair.ours.clone(), leaf
    if target.seeded:
        torch.default_generator.manual_seed(42)   # the seed that OpInfo's own wrapper of random functions sets
        mt.manual_seed(42)
    note(0)
    theirs = outcome(target.theirs, draw.of_theirs(args), draw.of_theirs(kwargs))
    note(1)
    try:
        ours = outcome(target.ours, draw.of_ours(args), draw.of_ours(kwargs))
        if compare_outcomes(ours, theirs):
            least = 4e-5 if "out" in kwargs else 0.0       # both may compute in float32 for an out= of float64
            compare(*[known.comparable(target.name, r[0]) for r in (ours, theirs)], least=least)
            compare_gradients(ours[0], theirs[0], given, rng, note)
            for pair in given:                    # what was changed in place, and what should not have been
                compare(pair.ours, pair.theirs, "changed input", least)
    except Difference as found:
        difference = found
    except Exception as error:                    # a result that cannot even be read
        difference = Difference("unreadable", short(error))
    else:
        difference = None
    if difference is not None:
        difference.detail += f" {{{' '.join(tags(target.name, args, given, kwargs))}}}"
    return (args, kwargs), difference


def folded(t: Any) -> list:
    """A tensor as the matrices that a decomposition may see: its last two dims, or all dims in two groups of one size."""
    half = [t.reshape(math.prod(t.shape[:k]), -1) for k in range(1, t.dim()) if math.prod(t.shape[:k]) ** 2 == t.numel()]
    return ([t] if t.dim() > 1 else []) + (half if t.dim() > 2 else [])


def at_limit(values: torch.Tensor, limits: list[float]) -> bool:
    """Whether a singular value is, but for rounding, one of the limits, as it stands or as a part of the largest value."""
    parts = [values, values / values[..., :1]]
    return any(bool(((part - limit).abs() <= 1e-5 * abs(limit)).any()) for part in parts for limit in limits if limit)


def tags(name: str, args: list, given: list[draw.Pair], kwargs: dict) -> list[str]:
    """What of the arguments matters to the rows of parity_known.py."""
    numbers = [x for x in [*args, *kwargs.values()] if isinstance(x, (int, float))]
    tensors = [pair.theirs.detach() for pair in given if min(pair.theirs.shape, default=0) >= 0]
    found = {"out"} if "out" in kwargs else set()
    found |= {"grad" for pair in given if pair.theirs.requires_grad}
    found |= {"complex" for t in tensors if t.is_complex()} | {"empty" for t in tensors if not t.numel()}
    small = (torch.float16, torch.bfloat16)
    found |= {"half" for t in tensors if t.dtype in small} | {"half" for x in [*args, *kwargs.values()] if x in small}
    found |= {"mixed"} if len({t.dtype for t in tensors if t.dtype in TOLERANCE}) > 1 else set()
    found |= {"nonfinite" for t in tensors if not t.isfinite().all()}
    found |= {"extreme" for t in tensors if t.numel() and (t.double() if not t.is_complex() else t).abs().max().item() > 1e5}
    found |= {"bool" for t in tensors if t.dtype == torch.bool} | {"int" for t in tensors if t.dtype in draw.INTS}
    found |= {"unsorted" for t in tensors if t.dim() == 1 and not t.is_complex() and not (t[1:] >= t[:-1]).all()}
    found |= {"negative" for x in numbers if x < 0} | {"large" for x in numbers if abs(x) > 30}
    found |= {"strided" for pair in draw.pairs([kwargs.get("out", ())]) if not pair.theirs.is_contiguous()}
    matrices = [m for t in tensors if t.numel() and t.dtype in TOLERANCE and t.isfinite().all() for m in folded(t)]
    spread = [torch.linalg.svdvals(t if t.is_complex() or t.dtype is torch.float32 else t.double()) for t in matrices]
    found |= {"singular" for s in spread if (s[..., -1] <= (1e-6 if s.dtype == torch.float64 else 1e-3) * s[..., 0]).any()}
    if "matrix_rank" in name:
        limits = [*map(float, numbers), *(x for t in tensors if t.dim() < 2 and not t.is_complex() for x in t.double().reshape(-1).tolist())]
        triangles = [torch.linalg.eigvalsh(m.double()).abs().sort(descending=True)[0] for m in matrices
                     if m.shape[-1] == m.shape[-2] and not m.is_complex()]
        found |= {"limit" for s in [*spread, *triangles] if at_limit(s, limits)}
    return sorted(found)


# ---- running -------------------------------------------------------------------------------------------------------------
def child(units: list[tuple[Target, int, int]], seed: int, seconds: int, notes: mmap.mmap, log: Any) -> None:
    """Runs units from the (unit, index) that notes name, and keeps the notes; never returns."""
    at, start, _, done = struct.unpack("qqqq", notes[:32])
    try:
        for unit in range(at, len(units)):
            target, first, last = units[unit]
            for index in range(max(first, start), last):
                signal.setitimer(signal.ITIMER_REAL, seconds)

                def note(side: int, unit: int = unit, index: int = index) -> None:
                    notes[:32] = struct.pack("qqqq", unit, index, side, done)
                try:
                    (args, kwargs), difference = execute(target, seed, index, note)
                except LookupError:
                    break
                done += 1
                if difference is not None:
                    shown = f"{args!r} {kwargs or ''}"[:400]
                    log.write(json.dumps([target.name, difference.kind, index, difference.detail, shown]) + "\n")
            start = 0
            if isinstance(target.drawn, Samples):
                target.drawn.held = None
        notes[:32] = struct.pack("qqqq", len(units), 0, 0, done)
        log.flush()
        os._exit(0)
    except BaseException as error:
        log.flush()
        print(f"{target.name} {index}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(70)


class Job:
    """A share of the units, run by one child after another."""

    def __init__(self, units: list, seed: int, seconds: int) -> None:
        self.units, self.seed, self.seconds = units, seed, seconds
        self.notes = mmap.mmap(-1, 32)
        self.log = tempfile.TemporaryFile("w+", buffering=1)
        self.folder = tempfile.TemporaryDirectory()      # where calls that write files find a place

    def start(self) -> int:
        pid = os.fork()
        if pid == 0:
            os.chdir(self.folder.name)
            child(self.units, self.seed, self.seconds, self.notes, self.log)
        return pid

    def ended(self, status: int) -> tuple[str, str, int, int] | None:
        """(target, how, index, side) where the child did not end well; the next child goes on behind it."""
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return None
        unit, index, side, done = struct.unpack("qqqq", self.notes[:32])
        self.notes[:32] = struct.pack("qqqq", unit, index + 1, 0, done)
        how = "hang" if -code == signal.SIGALRM else signal.Signals(-code).name if code < 0 else f"exit {code}"
        return self.units[unit][0].name, how, index, side


def run(chosen: list[Target], seed: int, executions: int, jobs: int, seconds: int) -> int:
    """All targets in children; prints what differs and returns the exit code."""
    began = time.monotonic()
    each = max(1, executions // len(chosen))
    units = [(target, 0, each) for target in chosen]
    random.Random(seed).shuffle(units)
    shares = [Job(units[n::jobs], seed, seconds) for n in range(jobs)]
    alive = {share.start(): share for share in shares}
    crashes, hangs, theirs = [], [], []
    while alive:
        pid, status = os.wait()
        share = alive.pop(pid)
        ended = share.ended(status)
        if ended is not None:
            name, how, index, side = ended
            (theirs if side == 0 else hangs if how == "hang" else crashes).append(f"{name} --index {index}: {how}")
            alive[share.start()] = share
    done = sum(struct.unpack("qqqq", share.notes[:32])[3] for share in shares)
    groups: dict[tuple[str, str], list] = collections.defaultdict(list)
    matched: collections.Counter[int] = collections.Counter()
    for share in shares:
        share.log.seek(0)
        for line in share.log:
            name, kind, index, detail, shown = json.loads(line)
            row = known.reason(name, kind, detail)
            if row < 0:
                groups[kind, name].append((index, detail, shown))
            else:
                matched[row] += 1
    for line in crashes + hangs:
        print(f"CRASH {line}")
    for line in theirs:
        print(f"PyTorch itself ended at {line}")
    for (kind, name), found in sorted(groups.items()):
        index, detail, shown = min(found, key=lambda f: len(f[2]))
        print(f"{kind:10} {name} ×{len(found)} --index {index}: {detail}\n           {shown}")
    if each >= 1000 and len(chosen) > 1000:
        for row, (names, kinds, words, why) in enumerate(known.ACCEPTED):
            if not matched[row]:
                print(f"accepted but not seen: {names} {kinds} {words} ({why})")
    total = sum(len(found) for found in groups.values())
    print(f"parity: {done} executions, {len(crashes)} crashes, {len(hangs)} hangs, {total} differences in {len(groups)} groups, "
          f"{time.monotonic() - began:.0f} s")
    return 1 if crashes or hangs or groups else 0


def show(target: Target, seed: int, index: int) -> int:
    (args, kwargs), difference = execute(target, seed, index, lambda side: None)
    print(target.name, args, kwargs)
    for side, function, of in (("theirs", target.theirs, draw.of_theirs), ("ours", target.ours, draw.of_ours)):
        args, kwargs = target.drawn(random.Random(f"{seed} {target.name} {index}"))
        result, error = outcome(function, of(args), of(kwargs))
        print(f"{side}: {short(error) if error else result}")
    print(f"{difference.kind}: {difference.detail}" if difference else "no difference")
    return 1 if difference else 0


def main() -> int:
    parser = fuzz_options.parser(__doc__, 20000)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--index", type=int)
    parser.add_argument("--seconds", type=int, default=30, help="a call that takes longer hangs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mt.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))     # absurd sizes fail as out of memory, here and now
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = targets()
    chosen = [found[name] for name in options.names] if options.names else list(found.values())
    if options.index is not None:
        return show(chosen[0], options.seed, options.index)
    return run(chosen, options.seed, options.executions, options.jobs, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
