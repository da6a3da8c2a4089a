"""What autograd holds: deep graphs, threads, freed graphs, no leaks of objects or memory."""
from __future__ import annotations

import gc
import threading
import weakref

import pytest

import mindtorch_v2 as mt
from mindtorch_v2 import _C

DEPTH = 100_000


def deep(n: int = DEPTH):
    x = mt.ones(1, requires_grad=True)
    y = x
    for _ in range(n):
        y = y + 1
    return x, y


def test_deep_chain_runs_backward():
    x, y = deep()
    y.backward()
    assert x.grad.item() == 1


def test_deep_chain_is_freed_without_recursion():
    x, y = deep()
    gone = weakref.ref(y)
    del y
    assert gone() is None
    _, y = deep()                      # and again from another thread, whose stack is smaller
    holder = [y]
    del y
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    assert not holder


def test_deep_chain_of_multiplications_and_of_functions():
    class Same(mt.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 1

        @staticmethod
        def backward(ctx, g):
            return g
    x = mt.ones(1, requires_grad=True)
    y = x
    for _ in range(5000):
        y = Same.apply(y * 1.0)
    y.backward()
    assert x.grad.item() == 1
    del y


def test_deep_chain_of_in_place_changes():
    x = mt.ones(4, requires_grad=True)
    y = x * 1
    for _ in range(5000):
        y[1:3].add_(1.0)
        y.mul_(1.0)
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 1]
    del y


def test_wide_graph():
    x = mt.ones(1, requires_grad=True)
    sum((x * float(i) for i in range(5000)), mt.zeros(1)).backward()
    assert x.grad.item() == sum(range(5000))


# ---- threads -------------------------------------------------------------------------------------------------------
def in_threads(work, n: int = 8) -> None:
    failures: list[BaseException] = []

    def guarded(i: int) -> None:
        try:
            work(i)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_backward_from_several_threads_on_separate_graphs():
    def work(i: int) -> None:
        for _ in range(30):
            x = mt.full((300, 100), float(i), requires_grad=True)     # large enough to run without the GIL
            (x * x + x.sin()).sum().backward()
            assert mt.allclose(x.grad, 2 * x.detach() + x.detach().cos())
    in_threads(work)


def test_backward_from_several_threads_to_one_leaf():
    x = mt.ones(200, 100, dtype=mt.float64, requires_grad=True)
    in_threads(lambda i: [(x * 2).sum().backward() for _ in range(20)], 4)
    assert bool((x.grad == 160).all())


def test_grad_mode_belongs_to_the_thread():
    x = mt.ones(3, requires_grad=True)
    inside = threading.Event()
    seen = []

    def other() -> None:
        inside.wait()
        seen.append((mt.is_grad_enabled(), (x * 2).requires_grad, mt.is_inference_mode_enabled()))
    thread = threading.Thread(target=other)
    thread.start()
    with mt.no_grad(), mt.inference_mode():
        inside.set()
        thread.join()
    assert seen == [(True, True, False)]


# ---- what is freed, and when ---------------------------------------------------------------------------------------
def dead(make) -> bool:
    """Whether what make() returned a weak reference to is gone without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        return make()() is None
    finally:
        gc.enable()


def saved_input():
    x = mt.ones(3, requires_grad=True)
    y = x * 2
    z = (y * y).sum()
    gone = weakref.ref(y)
    del y
    z.backward()
    return gone


def saved_result():
    x = mt.ones(3, requires_grad=True)
    y = x.exp()
    return weakref.ref(y)


def graph_after_backward():
    x = mt.ones(3, requires_grad=True)
    y = (x.exp() * x).sum()
    y.backward()
    return weakref.ref(y)


def graph_without_backward():
    x = mt.ones(3, requires_grad=True)
    return weakref.ref((x.exp().sin() * x).softmax(0).sum())


def view_and_base():
    x = mt.ones(4, requires_grad=True)
    y = x * 2
    y[1:].mul_(3)
    return weakref.ref(y)


def hooked():
    x = mt.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    y.sum().backward()
    return weakref.ref(y)


def checkpointed():
    x = mt.ones(3, requires_grad=True)
    y = mt.utils.checkpoint.checkpoint(lambda v: v.exp().sin(), x, use_reentrant=False)
    y.sum().backward()
    return weakref.ref(y)


def several_outputs():
    x = mt.ones(3, 3, requires_grad=True)
    values, indices = x.max(1)
    values.sum().backward()
    return weakref.ref(values)


def error_in_backward():
    x = mt.ones(3, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: 1 / 0)
    try:
        y.sum().backward()
    except ZeroDivisionError:
        pass
    return weakref.ref(y)


@pytest.mark.parametrize("make", [saved_input, saved_result, graph_after_backward, graph_without_backward,
                                  view_and_base, hooked, checkpointed, several_outputs, error_in_backward],
                         ids=lambda f: f.__name__)
def test_freed_by_reference_counting(make):
    assert dead(make)


def test_function_graph_is_freed():
    class Keeps(mt.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

    def make():
        x = mt.ones(3, requires_grad=True)
        y = Keeps.apply(x)
        y.sum().backward()
        return weakref.ref(y)
    assert dead(make)


def step_plain():
    x = mt.ones(40, 30, requires_grad=True)
    w = mt.ones(30, 20, requires_grad=True)
    ((x @ w).relu().softmax(1).log() * 2 + 1).mean().backward()


def step_in_place():
    x = mt.ones(40, requires_grad=True)
    y = x * 2
    y[3:7].mul_(2)
    y[::2] = 5.0
    y.add_(1).sum().backward()


def step_second():
    x = mt.ones(40, requires_grad=True)
    g, = mt.autograd.grad((x ** 3).sin().sum(), x, create_graph=True)
    (g * g).sum().backward()


def step_errors():
    x = mt.ones(40, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError):
        y.sum().backward()
    with pytest.raises(TypeError):
        mt.add(x, "no")
    with pytest.raises(RuntimeError):
        x + mt.ones(7)


def step_hooks():
    x = mt.ones(40, requires_grad=True)
    with mt.autograd.graph.saved_tensors_hooks(lambda v: v * 1, lambda v: v):
        y = x.exp() * x
    y.register_hook(lambda g: g * 2)
    y.retain_grad()
    mt.autograd.graph.register_multi_grad_hook([x, y], lambda gs: None)
    y.sum().backward()


def step_checkpoint():
    x = mt.ones(40, requires_grad=True)
    mt.utils.checkpoint.checkpoint(lambda v: (v.exp() * v).sin(), x, use_reentrant=False).sum().backward()
    mt.utils.checkpoint.checkpoint(lambda v: (v.exp() * v).sin(), x, use_reentrant=True).sum().backward()


def step_views():
    x = mt.ones(4, 6, requires_grad=True)
    parts = x.t().reshape(3, 8).split(4, 1)
    mt.cat([p.flatten()[1:] for p in parts]).unsqueeze(0).sum().backward()
    list(x)


STEPS = {"plain": (step_plain, 2000), "in place": (step_in_place, 400), "second": (step_second, 300),
         "errors": (step_errors, 200), "hooks": (step_hooks, 200), "checkpoint": (step_checkpoint, 200),
         "views": (step_views, 300)}


def allocated() -> int:
    stats = _C._cpu_memory_stats()
    return stats["allocated_bytes"] if "allocated_bytes" in stats else stats["allocated"]


@pytest.mark.parametrize("name", STEPS)
def test_repetition_does_not_grow(name):
    step, times = STEPS[name]
    for _ in range(20):
        step()
    gc.collect()
    objects, memory = len(gc.get_objects()), allocated()
    for _ in range(times):
        step()
    gc.collect()
    grown = len(gc.get_objects()) - objects
    assert grown < 20, f"{grown} objects more after {times} steps"
    assert allocated() - memory <= 4096, f"{allocated() - memory} bytes more after {times} steps"


def test_a_concurrent_second_backward_raises_as_a_later_one() -> None:
    """Another thread walks the graph back and frees it while this one unpacks what a node has saved."""
    mine, free = threading.get_ident(), threading.Event()

    def unpack(value: mt.Tensor) -> mt.Tensor:
        if threading.get_ident() == mine and not free.is_set():
            other = threading.Thread(target=loss.backward)
            other.start()
            other.join()
            free.set()
        return value

    x, y = (mt.full((3,), float(k), requires_grad=True) for k in (2, 5))
    with mt.autograd.graph.saved_tensors_hooks(lambda t: t, unpack):
        loss = (x * y).sum()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    assert x.grad.tolist() == [5.0] * 3 and y.grad.tolist() == [2.0] * 3   # those of the other thread
