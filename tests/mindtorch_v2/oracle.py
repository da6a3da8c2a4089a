"""The judge: runs PyTorch's OpInfo samples through mindtorch_v2 and compares values, dtypes, shapes and gradients.

As a tool: `python tests/mindtorch_v2/oracle.py [--grad] [--dtype float32] [--seed N] NAME…` (no name: every entry)."""
from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import sys
import traceback
import warnings
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db

import mindtorch_v2 as mt

common_utils.extract_test_fn = lambda: None      # it walks the stack at every sample, in search of a unittest.TestCase

DTYPES = {getattr(torch, n): getattr(mt, n) for n in
          ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
           "complex64", "complex128")}
NAMES = {v: k for k, v in DTYPES.items()} | {getattr(mt, n): getattr(torch, n) for n in ("uint16", "uint32", "uint64")}
CONSTANTS = {getattr(torch, n): getattr(mt, n) for n in
             ("strided", "contiguous_format", "preserve_format", "channels_last", "channels_last_3d")}


class Absent(Exception):
    """mindtorch_v2 has no such function."""


def to_ours(x: Any, device: str = "cpu") -> Any:
    """A torch object as ours: tensors with the same strides, dtypes, containers; what is on the cpu goes to device."""
    if isinstance(x, torch.Tensor):
        base = x.detach().resolve_conj().resolve_neg()
        flat = base.as_strided((base.untyped_storage().nbytes() // base.itemsize,), (1,), 0)     # the whole storage
        raw = mt.from_dlpack(flat.view(torch.uint8)) if flat.dtype == torch.bool else mt.from_dlpack(flat)
        ours = (raw.clone().view(mt.bool) if flat.dtype == torch.bool else raw.clone()).to(device)
        return ours.as_strided(tuple(base.shape), base.stride(), base.storage_offset()).detach().requires_grad_(x.requires_grad)
    if isinstance(x, torch.dtype):
        return DTYPES[x]
    if isinstance(x, (torch.memory_format, torch.layout)):
        return CONSTANTS[x]
    if isinstance(x, torch.device):
        return mt.device(device if x.type == "cpu" else str(x))
    if isinstance(x, torch.Size):
        return mt.Size(x)
    if isinstance(x, torch.nn.LinearCrossEntropyOptions):
        given = {field.name: getattr(x, field.name) for field in dataclasses.fields(x)}
        return mt.nn.LinearCrossEntropyOptions(**to_ours(given, device))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return tuple(to_ours(i, device) for i in x)
    if isinstance(x, (list, tuple)):
        return type(x)(to_ours(i, device) for i in x)
    if isinstance(x, dict):
        return {k: mt.device(device) if k == "device" and v == "cpu" else to_ours(v, device) for k, v in x.items()}
    return x


def to_torch(x: Any) -> Any:
    """One of our tensors as torch's, strides kept."""
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.numel() == 0:
        return torch.empty_strided(tuple(x.shape), x.stride(), dtype=NAMES[x.dtype])
    if x.dtype is mt.bool:
        return torch.from_dlpack(x.view(mt.uint8)).view(torch.bool)
    return torch.from_dlpack(x)


def ours_named(name: str) -> Any:
    """Our function for an OpInfo name such as `nn.functional.relu` or `linalg.norm`."""
    found: Any = mt
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise Absent(name)
    return found


# Entries whose OpInfo takes arguments in an order of its own.
ADAPTED = {
    "normal.number_mean": lambda std, mean, *args, **kw: mt.normal(mean, std, *args, **kw),
    "normal.in_place": lambda x, *args, **kw: x.normal_(*args, **kw),
    "where": lambda x, condition, other, **kw: mt.where(condition, x, other, **kw),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "H": lambda x: x.H, "mH": lambda x: x.mH, "T": lambda x: x.T, "mT": lambda x: x.mT,
    "item": lambda x: x.item(),
    "nn.functional.embedding": lambda weight, index, **options: mt.nn.functional.embedding(index, weight, **options),
    "nn.functional.embedding_bag":
        lambda weight, index, **options: mt.nn.functional.embedding_bag(index, weight, **options),
    "polygamma": lambda x, n, **kw: mt.polygamma(n, x, **kw),
    "linalg.pinv.singular": lambda a, b: mt.linalg.pinv(a @ b.mT),
    "linalg.lstsq.grad_oriented": lambda a, b, driver: mt.linalg.lstsq(a, b, driver=driver)[:2],
    "svd_lowrank": lambda a, b, **kw: mt.svd_lowrank(a @ b.mT, **kw),
    "pca_lowrank": lambda a, b, **kw: mt.pca_lowrank(a @ b.mT, **kw),
    "einsum": lambda tensors, equation: mt.einsum(equation, tensors),
    "special.polygamma": lambda x, n, **kw: mt.special.polygamma(n, x, **kw),
}


# Results that are unique only up to a sign or phase: what of them is compared.
UP_TO_PHASE = {
    "svd": lambda r: (abs(r[0][..., :r[1].shape[-1]]), r[1], abs(r[2][..., :r[1].shape[-1]])),
    "linalg.svd": lambda r: (abs(r[0][..., :r[1].shape[-1]]), r[1], abs(r[2][..., :r[1].shape[-1], :])),
    "svd_lowrank": lambda r: (abs(r[0]), r[1], abs(r[2])), "pca_lowrank": lambda r: (abs(r[0]), r[1], abs(r[2])),
    "linalg.eigh": lambda r: (r[0], abs(r[1])), "linalg.eig": lambda r: (r[0], abs(r[1])),
    "linalg.eigvals": lambda r: (r.real.sort(-1)[0], r.imag.sort(-1)[0]),        # in the order in which LAPACK found them
}


def function_of(info: Any) -> Any:
    """The callable of an entry, on our side: looked up by name, or its torch-level wrapper's method."""
    for name in (f"{info.name}.{info.variant_test_name}", info.name):
        if name in ADAPTED:
            return ADAPTED[name]
    if info.name in mt._dtypes:              # x.float(), x.half() …
        return getattr(mt.Tensor, info.name)
    try:
        return ours_named(info.name)
    except Absent:
        method = getattr(mt.Tensor, info.name.rpartition(".")[2], None)
        if method is None or "." in info.name:
            raise
        return method


def flat(x: Any) -> list:
    if isinstance(x, (list, tuple)):
        return [i for part in x for i in flat(part)]
    if isinstance(x, dict):
        return flat(list(x.values()))
    return [x]


TOLERANCE = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (1.6e-2, 1.6e-2), torch.float32: (1e-5, 2e-5),
             torch.float64: (1e-8, 1e-8), torch.complex64: (1e-5, 2e-5), torch.complex128: (1e-8, 1e-8)}


def compare(ours: Any, theirs: Any, what: str, tolerance: float = 1.0) -> None:
    """Raises AssertionError where the two differ in structure, dtype, shape or value."""
    a, b = flat(ours), flat(theirs)
    assert len(a) == len(b), f"{what}: {len(a)} results, expected {len(b)}"
    for i, (x, y) in enumerate(zip(a, b)):
        if isinstance(y, torch.Tensor):
            assert isinstance(x, mt.Tensor), f"{what}[{i}]: {type(x).__name__}, expected a tensor"
            assert NAMES[x.dtype] == y.dtype, f"{what}[{i}]: {x.dtype}, expected {y.dtype}"
            assert tuple(x.shape) == tuple(y.shape), f"{what}[{i}]: {tuple(x.shape)}, expected {tuple(y.shape)}"
            atol, rtol = TOLERANCE.get(y.dtype, (0, 0))
            torch.testing.assert_close(to_torch(x), y.detach().resolve_conj().resolve_neg(), equal_nan=True,
                                       atol=atol * tolerance, rtol=rtol * tolerance, check_stride=False,
                                       msg=lambda m, i=i: f"{what}[{i}]: {m}")
        elif isinstance(y, torch.dtype):
            assert DTYPES[y] is x, f"{what}[{i}]: {x}, expected {y}"
        elif isinstance(y, (int, float, bool, complex)):
            assert type(x) is type(y) and (x == y or (x != x and y != y) or abs(x - y) < 1e-5 * max(1, abs(y))), \
                f"{what}[{i}]: {x!r}, expected {y!r}"


def chosen(samples: Any, limit: int, seed: int, among: int = 40) -> list:
    """At most limit samples with their numbers: the first, and others of the first `among` by the seed."""
    numbered = list(enumerate(itertools.islice(samples, among if limit > 1 else 1)))
    if len(numbered) <= limit:
        return numbered
    return [numbered[0], *sorted(random.Random(seed).sample(numbered[1:], limit - 1), key=lambda pair: pair[0])]


def run(info: Any, dtype: Any, grad: bool, seed: int, limit: int | None = None, tolerance: float = 1.0,
        device: str = "cpu") -> int:
    """Every sample of one entry; returns how many ran. Raises at the first difference."""
    fn = function_of(info)
    torch.default_generator.manual_seed(seed)      # torch.manual_seed formats the stack, once a device type
    ran = 0
    samples = info.sample_inputs("cpu", dtype, requires_grad=grad)
    for number, sample in enumerate(samples) if limit is None else chosen(samples, limit, seed):
        try:
            ours_in = to_ours((sample.input, list(sample.args), dict(sample.kwargs)), device)
        except KeyError:
            continue                       # a dtype or layout we do not have
        what = f"{info.name} sample {number}"
        torch.default_generator.manual_seed(42)    # the seed that OpInfo's own wrapper of random functions sets
        mt.manual_seed(42)
        theirs = info.op(sample.input, *sample.args, **sample.kwargs)
        if any(isinstance(t, torch.Tensor) and (t.layout != torch.strided or t.dtype not in DTYPES)
               for t in flat(theirs)):
            continue
        ours = fn(ours_in[0], *ours_in[1], **ours_in[2])
        if info.name in UP_TO_PHASE:
            ours, theirs = UP_TO_PHASE[info.name](ours), UP_TO_PHASE[info.name](theirs)
        compare(ours, theirs, what, tolerance)
        if grad:
            compare_gradients(ours, theirs, ours_in, sample, what, tolerance, info)
        ran += 1
    return ran


def compare_gradients(ours: Any, theirs: Any, ours_in: Any, sample: Any, what: str, tolerance: float,
                      info: Any) -> None:
    process = sample.output_process_fn_grad
    if process is not None and getattr(process, "__name__", "") != "<lambda>":
        ours, theirs = process(ours), process(theirs)
    pairs = [(x, y) for x, y in zip(flat(ours), flat(theirs)) if isinstance(y, torch.Tensor) and y.requires_grad]
    if not pairs:
        return
    inputs = [(x, y) for x, y in zip(flat(list(ours_in)), flat([sample.input, list(sample.args), dict(sample.kwargs)]))
              if isinstance(y, torch.Tensor) and y.requires_grad]
    if not inputs:
        return
    starts = [torch.randn_like(y) for _, y in pairs]
    expected = torch.autograd.grad([y for _, y in pairs], [y for _, y in inputs], starts, allow_unused=True)
    got = mt.autograd.grad([x for x, _ in pairs], [x for x, _ in inputs],
                           [to_ours(s, str(x.device)) for s, (x, _) in zip(starts, pairs)], allow_unused=True)
    for i, (x, y) in enumerate(zip(got, expected)):
        if y is None or x is None:
            zero = x if y is None else y
            assert zero is None or not bool((zero != 0).any()), \
                f"{what}: gradient {i} is {'missing' if x is None else 'unexpected'}"
            continue
        compare(x, y, f"{what}: gradient {i}", tolerance)


def report(names: list[str], dtype: Any, grad: bool, seed: int, verbose: bool, limit: int | None,
           device: str = "cpu") -> int:
    """Runs the entries and prints a line for each that fails; returns how many failed."""
    warnings.simplefilter("ignore")
    absent, failed, passed = [], [], []
    for info in op_db:
        full = info.name + ("." + info.variant_test_name if info.variant_test_name else "")
        if names and info.name not in names and full not in names:
            continue
        if dtype not in info.supported_dtypes("cpu") or (grad and not info.supports_autograd):
            continue
        try:
            ran = run(info, dtype, grad, seed, limit, device=device)
            passed.append(f"{full}({ran})")
        except Absent:
            absent.append(full)
        except Exception as error:
            failed.append(full)
            message = str(error).strip().split("\n")
            print(f"FAIL {full}: {type(error).__name__}: {' | '.join(message[:1 if not verbose else 12])[:400]}")
            if verbose and not isinstance(error, AssertionError):
                traceback.print_exc()
    print(f"passed {len(passed)}, failed {len(failed)}, absent {len(absent)}")
    if absent:
        print("absent:", " ".join(absent))
    return len(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    sys.exit(bool(report(options.names, getattr(torch, options.dtype), options.grad, options.seed, options.verbose,
                         options.limit, options.device)))
