"""The cases of `python -m mindtorch_v2 selftest`: each runs on a device and is judged by the CPU."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import mindtorch_v2 as torch
from mindtorch_v2._commands import samples


class Case(NamedTuple):
    """One thing to try: returns nothing, raises Wrong, or raises whatever the library raised."""
    name: str
    run: Callable[[], None]


class Wrong(Exception):
    """The device gave another answer than the CPU."""


class NoSample(Exception):
    """There are no arguments of this dtype that the CPU takes, or no gradient in torch."""


def expect(what: str, got: Any, wanted: Any) -> None:
    """Equal, or Wrong with both."""
    if got != wanted:
        raise Wrong(f"{what}: {got!r}, expected {wanted!r}")


# ---- how near ----------------------------------------------------------------------------------------------------------
# Relative error by dtype; absolute error is the same share of the largest expected item. Cube units multiply float32 in
# HF32 (11 bits) where CANN is allowed to, and add float16 products up in float32 or in float16, by the SoC.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.complex64: 1e-4,
              torch.complex128: 1e-6}
CUBE = ("mm", "matmul", "conv", "linear", "attention", "baddbmm", "addbmm", "bilinear", "cdist", "mv", "einsum", "addr", "outer")
CUBE_TOLERANCE = {torch.float32: 5e-3, torch.complex64: 5e-3}


def compare(name: str, got: Any, wanted: Any) -> None:
    """Shapes, dtypes and values of results (tensors, numbers, lists of them) of the device against the CPU's."""
    if isinstance(wanted, (tuple, list)):
        expect(f"{name}: results", len(got), len(wanted))
        for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
            compare(f"{name}[{i}]", one, other)
    elif isinstance(wanted, torch.Tensor):
        expect(f"{name}: shape", tuple(got.shape), tuple(wanted.shape))
        expect(f"{name}: dtype", got.dtype, wanted.dtype)
        near(name, got.cpu(), wanted)
    elif isinstance(wanted, float):
        near(name, torch.tensor(got, dtype=torch.float64), torch.tensor(wanted, dtype=torch.float64))
    else:
        expect(name, got, wanted)


def near(name: str, got: Any, wanted: Any) -> None:
    """Values within the tolerance of their dtype; NaN and infinities at the same places."""
    if wanted.dtype not in TOLERANCES:
        if not torch.equal(got, wanted):
            raise Wrong(f"{name}: {(got != wanted).sum().item()} of {wanted.numel()} items differ: {shown(got, wanted)}")
        return
    cube = any(word in name for word in CUBE)
    limit = CUBE_TOLERANCE.get(wanted.dtype, TOLERANCES[wanted.dtype]) if cube else TOLERANCES[wanted.dtype]
    wide = torch.complex128 if wanted.is_complex() else torch.float64
    got, wanted = got.to(wide), wanted.to(wide)
    finite = wanted[torch.isfinite(wanted)].abs()
    largest = finite.max().item() if finite.numel() else 0.0
    if not torch.allclose(got, wanted, rtol=limit, atol=limit * max(largest, 1e-3), equal_nan=True):
        off = (got - wanted).abs().max().item()
        raise Wrong(f"{name}: off by {off:.3g}, allowed {limit:g} of {largest:.3g}: {shown(got, wanted)}")


def shown(got: Any, wanted: Any) -> str:
    """The first items of both."""
    return f"{got.flatten()[:6].tolist()} instead of {wanted.flatten()[:6].tolist()}"


# ---- ops ---------------------------------------------------------------------------------------------------------------
DTYPES = ("float32", "float16", "bfloat16", "int64", "bool", "complex64")
# What is internal runs inside the others.
LEFT_OUT = ("_", "empty", "new_empty", "resize", "record_stream", "to_sparse", "sparse")


# Factors are not unique: signs of eigenvectors, pivots of equal size. unique_dim has no gradient in torch.
AMBIGUOUS = ("linalg_eigh", "linalg_eig", "linalg_svd", "svd", "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu", "unique_dim")


def to(device: str, value: Any) -> Any:
    """A copy of arguments on a device."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device)
    return [to(device, item) for item in value] if isinstance(value, (list, tuple)) else value


def op_cases(device: str, quick: bool) -> Iterator[Case]:
    """Every op that a sample can be made for, in each dtype that the CPU takes it in."""
    for schema in schemas():
        for dtype in DTYPES[:1] if quick else DTYPES:
            yield Case(f"{label(schema)} {dtype}", partial(check_op, schema, getattr(torch, dtype), device))


def schemas() -> list[Any]:
    """Ops that return something new; gradients call those of backward as they are meant to be called."""
    return [s for s in torch.npu.report.schemas() if not any(p.mutable for p in s.params)
            and not s.name.startswith(LEFT_OUT) and not s.name.endswith("_backward")]


def label(schema: Any) -> str:
    return schema.name + (f".{schema.overload}" if schema.overload else "")


def check_op(schema: Any, dtype: Any, device: str) -> None:
    """One call on both devices."""
    arguments = samples.sample(schema, dtype)
    if arguments is None:
        raise NoSample
    wanted = samples.call(schema, to("cpu", arguments))
    got = samples.call(schema, to(device, arguments))
    if is_random(schema) or schema.name in AMBIGUOUS:
        got, wanted = forms(got), forms(wanted)
    compare(label(schema), got, wanted)


def is_random(schema: Any) -> bool:
    return any(p.kind == "Generator" for p in schema.params) or "dropout" in schema.name or "rand" in schema.name


def forms(results: Any) -> Any:
    """Shapes and dtypes alone."""
    if isinstance(results, (tuple, list)):
        return [forms(result) for result in results]
    return (str(results.dtype), tuple(results.shape)) if isinstance(results, torch.Tensor) else type(results).__name__


def gradient_cases(device: str, quick: bool) -> Iterator[Case]:
    """The gradients of the same samples."""
    for schema in schemas():
        for dtype in ("float32",) if quick else ("float32", "float16"):
            yield Case(f"{label(schema)} {dtype}", partial(check_gradient, schema, getattr(torch, dtype), device))


def check_gradient(schema: Any, dtype: Any, device: str) -> None:
    arguments = samples.sample(schema, dtype)
    if arguments is None or is_random(schema) or schema.name in AMBIGUOUS:
        raise NoSample
    try:
        wanted = gradients(schema, arguments, "cpu")
    except (NotImplementedError, RuntimeError) as error:
        raise NoSample from error
    if not wanted:
        raise NoSample
    compare(f"gradient of {label(schema)}", gradients(schema, arguments, device), wanted)


def gradients(schema: Any, arguments: list[Any], device: str) -> list[Any]:
    """Of the sum of all results, each weighed by where it stands."""
    placed = to(device, arguments)
    leaves = [a.requires_grad_() for a in flat(placed) if a.is_floating_point()]
    results = [r for r in flat(samples.call(schema, placed)) if r.requires_grad and r.is_floating_point()]
    if not leaves or not results:
        return []
    weights = [torch.linspace(0.5, 1.5, r.numel(), dtype=torch.float64).reshape(r.shape).to(r.dtype).to(device) for r in results]
    found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    return [g for g in found if g is not None]


def flat(value: Any) -> list[Any]:
    """The tensors in arguments or results."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in flat(item)] if isinstance(value, (list, tuple)) else []


# ---- everything else ---------------------------------------------------------------------------------------------------
def check_copies(device: str, dtype: str) -> None:
    host = torch.arange(1000).to(getattr(torch, dtype)).reshape(10, 100)
    compare("there and back", host.to(device), host)
    compare("a transposed copy", host.to(device).t().contiguous(), host.t().contiguous())
    compare("into a part", host.to(device)[2:5, ::3].clone(), host[2:5, ::3].clone())


def check_large_copy(device: str) -> None:
    host = torch.arange(8 << 20, dtype=torch.int32)
    pinned = host.pin_memory()
    there = pinned.to(device, non_blocking=True)
    compare("pinned memory", there, host)


def check_memory(device: str) -> None:
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated(device)
    held = [torch.empty(1 << 20, dtype=torch.uint8, device=device) for _ in range(8)]
    taken = torch.npu.memory_allocated(device) - before
    if not 8 << 20 <= taken <= 9 << 20:           # rounded up, as the allocator does it
        raise Wrong(f"8 MiB in 8 tensors count as {taken} bytes")
    del held
    expect("after release", torch.npu.memory_allocated(device), before)
    free, total = torch.npu.mem_get_info(device)
    if not 0 < free <= total:
        raise Wrong(f"mem_get_info says {free} of {total} bytes free")


def check_reuse(device: str) -> None:
    """Memory that is used again, in many sizes, keeps what belongs to each."""
    kept = []
    for i in range(200):
        tensor = torch.full((1 + 37 * i % 5000,), float(i), device=device)
        if i % 3 == 0:
            kept.append((i, tensor))
    for i, tensor in kept:
        expect(f"tensor {i}", (tensor.min().item(), tensor.max().item()), (float(i), float(i)))


def check_too_much(device: str) -> None:
    _, total = torch.npu.mem_get_info(device)
    try:
        torch.empty(4 * total, dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:
        compare("after that", torch.ones(4, device=device) + 1, torch.full((4,), 2.0))
        return
    raise Wrong(f"{4 * total} bytes were given out by a device of {total}")


def check_streams(device: str) -> None:
    first, second = torch.npu.Stream(device), torch.npu.Stream(device)
    x = torch.ones(256, 256, device=device)
    torch.npu.synchronize(device)
    with torch.npu.stream(first):
        for _ in range(20):
            x = x + 1
        ready = torch.npu.Event()
        ready.record()
    with torch.npu.stream(second):
        second.wait_event(ready)
        y = x * 2
    second.synchronize()
    compare("a chain over two streams", y, torch.full((256, 256), 42.0))


def check_events(device: str) -> None:
    start, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    x = torch.ones(512, 512, device=device)
    start.record()
    for _ in range(10):
        x = x @ x * 1e-3
    end.record()
    end.synchronize()
    elapsed = start.elapsed_time(end)
    if not (end.query() and elapsed >= 0):
        raise Wrong(f"an event that was waited for is not done, or {elapsed} ms passed")


def check_graph(device: str) -> None:
    x = torch.ones(64, device=device)
    out = x * 2 + 1
    torch.npu.synchronize(device)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = x * 2 + 1
    x.copy_(torch.full((64,), 5.0))
    graph.replay()
    torch.npu.synchronize(device)
    compare("a replayed graph", out, torch.full((64,), 11.0))


def check_random(device: str) -> None:
    torch.npu.manual_seed(7)
    state = torch.npu.get_rng_state(device)
    first = torch.randn(10000, device=device)
    torch.npu.set_rng_state(state, device)
    if not torch.equal(first.cpu(), torch.randn(10000, device=device).cpu()):
        raise Wrong("the same state draws other numbers")
    mean, spread = first.mean().item(), first.std().item()
    if abs(mean) > 0.06 or abs(spread - 1) > 0.06:
        raise Wrong(f"10000 normal numbers have mean {mean:.3f} and standard deviation {spread:.3f}")


def check_two(device: str) -> None:
    count = torch.npu.device_count()
    for other in (f"npu:{i}" for i in range(count)):
        host = torch.arange(1000.0)
        compare(f"{device} to {other}", host.to(device).to(other) + 1, host + 1)


def check_saving(device: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "state.pt")
        torch.save({"x": torch.arange(5.0, device=device)}, path)
        compare("a saved tensor", torch.load(path)["x"], torch.arange(5.0))


def check_training(device: str, dtype: str) -> None:
    """Twenty steps of a small network on both devices."""
    there, here = train(device, dtype), train("cpu", dtype)
    for step, (got, wanted) in enumerate(zip(there, here, strict=True)):
        if not abs(got - wanted) <= 0.02 * abs(wanted) + 1e-3:
            raise Wrong(f"loss of step {step}: {got}, on the CPU {wanted}")
    if not there[-1] < there[0]:
        raise Wrong(f"the loss went from {there[0]} to {there[-1]}")


def train(device: str, dtype: str) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.LayerNorm(64), torch.nn.GELU(), torch.nn.Linear(64, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(64, 16).to(device), (torch.arange(64) % 4).to(device)
    losses = []
    for _ in range(20):
        with torch.autocast(device.partition(":")[0], dtype=getattr(torch, dtype), enabled=dtype != "float32"):
            loss = torch.nn.functional.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def part(*checks: tuple[Any, ...]) -> Callable[[str, bool], Iterator[Case]]:
    """A part of cases, each a name, a function and its arguments after the device."""
    return lambda device, quick: (Case(name, partial(check, device, *rest)) for name, check, *rest in checks)


PARTS: dict[str, Callable[[str, bool], Iterator[Case]]] = {
    "copies": part(*((f"copies {dtype}", check_copies, dtype) for dtype in ("float32", "float16", "bfloat16", "int64", "bool")),
                   ("pinned memory", check_large_copy)),
    "memory": part(("allocation and release", check_memory), ("reuse", check_reuse), ("too much", check_too_much)),
    "streams": part(("two streams", check_streams), ("events", check_events)),
    "graphs": part(("capture and replay", check_graph)),
    "random": part(("states and distribution", check_random)),
    "devices": part(("copies between devices", check_two)),
    "saving": part(("save and load", check_saving)),
    "training": part(("float32", check_training, "float32"), ("bfloat16", check_training, "bfloat16")),
    "ops": op_cases,
    "gradients": gradient_cases,
}
