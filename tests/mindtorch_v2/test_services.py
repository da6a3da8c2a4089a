"""Services around tensors: checks, settings, foreach, trees, data loading, stubs of absent devices."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
import twin

import mindtorch_v2 as mt

Point = namedtuple("Point", "x y")


def loader_story(lib: Any) -> list[Any]:
    """Everything that loaders, samplers and splits give for one seed."""
    data = lib.utils.data
    lib.manual_seed(3)
    rows = data.TensorDataset(lib.arange(23).float().reshape(23, 1).expand(23, 3), lib.arange(23))
    story: list[Any] = []
    for workers in (0, 2):
        for options in (dict(batch_size=4), dict(batch_size=4, shuffle=True), dict(batch_size=5, drop_last=True),
                        dict(batch_size=None)):
            loader = data.DataLoader(rows, num_workers=workers, **options)
            story += [[[t.tolist() for t in batch] for batch in loader], len(loader)]
    story += [part.indices for part in data.random_split(rows, [20, 3]) + data.random_split(rows, [0.5, 0.5])]
    story += [list(data.WeightedRandomSampler([0.1, 0.2, 0.7], 10)), list(data.RandomSampler(range(40), True)),
              list(data.RandomSampler(range(4), num_samples=10)), list(data.DistributedSampler(rows, 3, 1))]
    item = {"a": 1, "b": [1.0, 2.0], "c": "x", "d": np.ones(2, np.float32), "e": (np.float64(1), lib.ones(1)),
            "f": Point(1, 2.5)}
    return [*story, str(data.default_collate([item] * 2)), len(rows + rows), str((rows + rows)[30])]


def test_loaders_give_what_torch_gives() -> None:
    for ours, theirs in zip(loader_story(mt), loader_story(torch)):
        assert ours == theirs


class Stream(mt.utils.data.IterableDataset):
    """0 … 9, shared out among workers."""

    def __iter__(self) -> Any:
        info = mt.utils.data.get_worker_info()
        return iter(range(info.id, 10, info.num_workers) if info else range(10))


@pytest.mark.parametrize("workers", [0, 2])
def test_streams(workers: int) -> None:
    batches = [b.tolist() for b in mt.utils.data.DataLoader(Stream(), batch_size=3, num_workers=workers)]
    assert sorted(v for b in batches for v in b) == list(range(10))


class Faulty(mt.utils.data.Dataset):
    """Fails at 3."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise KeyError("three")
        return mt.full((64, 64), float(index)) @ mt.eye(64)


def test_an_error_in_a_worker_comes_back() -> None:
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker process 0"):
        list(mt.utils.data.DataLoader(Faulty(), num_workers=1))


def test_ctrl_c_is_reported_by_the_main_process_alone():
    child = subprocess.Popen([sys.executable, "-c", """
import time
import mindtorch_v2 as torch
from mindtorch_v2.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(40)), 4, num_workers=2, persistent_workers=True)
print(sum(len(batch) for batch in loader), flush=True)  # the workers have begun, and wait for more
time.sleep(60)
"""], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout.readline() == "10\n"
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    _, errors = child.communicate(timeout=600)
    assert errors.count("Traceback") == 1 and errors.endswith("KeyboardInterrupt\n"), errors
    assert child.returncode == -signal.SIGINT


def test_an_interrupt_while_tasks_are_sent_ends_the_process() -> None:
    """Wherever it comes: a lock that it leaves held would be waited for at exit."""
    program = """
import signal, sys, time
import mindtorch_v2 as torch
signal.signal(signal.SIGALRM, signal.default_int_handler)
data = torch.utils.data.TensorDataset(torch.arange(40))
batches = iter(torch.utils.data.DataLoader(data, num_workers=1, prefetch_factor=1))
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
while True:
    batches._post(batches.tasks[0], ("epoch", None))
"""
    runs = [subprocess.Popen([sys.executable, "-c", program, str(0.05 + i / 50)], stderr=subprocess.PIPE, text=True)
            for i in range(4)]
    for run in runs:
        assert run.communicate(timeout=600)[1].splitlines()[-1] == "KeyboardInterrupt"


def test_workers_end_with_a_parent_that_was_killed() -> None:
    """One waits for a task, one is in the middle of an item: neither would check whether its parent is alive."""
    child = subprocess.Popen([sys.executable, "-c", """
import os, signal, time
import mindtorch_v2 as torch
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        if index == 2:
            print("in the midst", flush=True)
            time.sleep(3600)
        return index
for batch in torch.utils.data.DataLoader(Slow(), num_workers=2, prefetch_factor=1):
    pass
"""], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout.readline() == "in the midst\n"
    child.kill()
    try:
        assert child.communicate(timeout=600)[0] == ""   # the workers hold its stdout open until they have ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def test_the_end_of_a_worker_wakes_the_loader() -> None:
    """It does not wait until it would look: then a Ctrl-C that has ended the workers would not be seen either."""
    done = subprocess.run([sys.executable, "-c", """
import os
import mindtorch_v2 as torch
class Deadly(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return index if index < 2 else os._exit(3)
torch.utils.data.dataloader.POLL_S = 3600.0
for batch in torch.utils.data.DataLoader(Deadly(), num_workers=2, prefetch_factor=1):
    print(batch.item(), flush=True)
"""], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.startswith("0\n") and "exited unexpectedly" in done.stderr.splitlines()[-1]


def test_a_worker_that_starts_after_its_parent_has_ended_ends() -> None:
    context = mt.multiprocessing.get_context("fork")
    stranger = os.getppid()                       # this process is the parent, so that one is not
    process = context.Process(target=mt.utils.data._utils.worker.worker_loop, args=(
        stranger, (False, None, False, False), context.Pipe(duplex=False)[0], context.Queue(), 0, 0, 1, None, [1]))
    process.start()
    process.join(60)
    alive = process.is_alive()
    process.kill()
    assert not alive and process.exitcode == 1


def test_persistent_workers_serve_more_than_one_epoch() -> None:
    loader = mt.utils.data.DataLoader(mt.utils.data.TensorDataset(mt.arange(5)), num_workers=2, persistent_workers=True)
    first, second = ([b[0].item() for b in loader] for _ in range(2))
    assert first == second == [0, 1, 2, 3, 4]
    loader._iterator.close()


def test_workers_that_stay_draw_one_seed_as_in_torch() -> None:
    loader = mt.utils.data.DataLoader(mt.utils.data.TensorDataset(mt.arange(9)), shuffle=True, num_workers=1,
                                      persistent_workers=True, generator=mt.Generator().manual_seed(3))
    epochs = [[b[0].item() for b in loader] for _ in range(2)]
    theirs = torch.Generator().manual_seed(3)
    torch.empty((), dtype=torch.int64).random_(generator=theirs)
    sampler = torch.utils.data.RandomSampler(range(9), generator=theirs)
    assert epochs == [list(sampler) for _ in range(2)]
    loader._iterator.close()


def test_shared_memory_reaches_a_forked_process() -> None:
    x = mt.zeros(3).share_memory_()
    process = mt.multiprocessing.get_context("fork").Process(target=x.fill_, args=(4.0,))
    process.start()
    process.join()
    assert x.tolist() == [4, 4, 4]


TREES = [[1, (2, 3), {"a": 4, "b": [5]}], OrderedDict(x=1, y=(2,)), Point(1, [2, 3]), 5, [], None, (1, None)]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees(tree: Any) -> None:
    ours, theirs = mt.utils._pytree, torch.utils._pytree
    leaves, spec = ours.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0] and ours.tree_unflatten(leaves, spec) == tree
    assert ours.tree_map(lambda x: (x, 0), tree) == theirs.tree_map(lambda x: (x, 0), tree)
    assert ours.tree_map_only(int, lambda x: x + 1, tree) == theirs.tree_map_only(int, lambda x: x + 1, tree)
    assert [(ours.keystr(p), v) for p, v in ours.tree_leaves_with_path(tree)] == \
        [(theirs.keystr(p), v) for p, v in theirs.tree_leaves_with_path(tree)]
    assert spec == ours.tree_structure(tree) and spec.num_leaves == len(leaves)


FOREACH = """torch._foreach_add(x,1)|torch._foreach_add(x,x,alpha=2)|torch._foreach_add(x,[1.,2.])|torch._foreach_mul(x,torch.tensor(2.))
torch._foreach_addcmul(x,x,x,0.5)|torch._foreach_addcdiv(x,x,x,[1.,2.])|torch._foreach_lerp(x,x,0.5)|torch._foreach_norm(x)
torch._foreach_sqrt(x)|torch._foreach_pow(x,2)|torch._foreach_maximum(x,1.5)|torch._foreach_add_(x,1) or x|torch._foreach_zero_(x) or x
torch._foreach_copy_(x,[torch.ones(2),torch.ones(1)]) or x|torch._foreach_add([],1)|torch._foreach_sub_(x,x) or x
torch._foreach_div(x,[2.,4.])|torch._foreach_neg_(x) or x|torch._foreach_clamp_max(x,1.5)""".replace("\n", "|").split("|")


@pytest.mark.parametrize("line", FOREACH)
def test_foreach(line: str) -> None:
    twin.check_lines(f"x=[torch.tensor([1.,2.]),torch.tensor([3.])]\n{line}")


CLOSE = """(1,1)|(1,2)|(1,1.0)|(1.,1.+1e-8)|(torch.ones(2),torch.ones(2))|(torch.ones(2),torch.zeros(2))|(torch.ones(2),torch.ones(3))
(torch.ones(2),torch.ones(2).double())|([1,torch.ones(1)],[1,torch.ones(1)])|([1],[1,2])|({'a':1},{'b':1})|(torch.tensor(float('nan')),)*2
(None,None)|(None,1)|('a','a')|(torch.ones(2),torch.ones(2)+1e-7)|(np.ones(2),np.ones(2))|(torch.ones(2),np.ones(2))|(True,False)
(torch.tensor([1,2]),torch.tensor([1,3]))|(torch.tensor([1.,2.]),torch.tensor([1.,3.]))
(torch.tensor([1.,2.]).half(),torch.tensor([1.,3.]).half())|(torch.tensor([0.,1j]),torch.tensor([0.,3j]))""".replace("\n", "|").split("|")


@pytest.mark.parametrize("pair", CLOSE)
def test_assert_close(pair: str) -> None:
    twin.check_lines(f"torch.testing.assert_close(*{pair})")


STUBS = """torch.cuda.is_available()|torch.cuda.device_count()|torch.cuda.current_device()|torch.ones(1).cuda()|torch.cuda.memory_allocated()
torch.cuda.empty_cache()|torch.backends.mps.is_available()|torch.backends.cudnn.is_available()|torch.version.cuda
torch.jit.is_scripting()|torch.jit.is_tracing()|torch.compiler.is_compiling()|torch.get_float32_matmul_precision()
torch.are_deterministic_algorithms_enabled()|torch.typename(torch.ones(1))|torch.typename(1)
torch.is_nonzero(torch.tensor(2))|torch.set_deterministic_debug_mode('x')|torch.get_deterministic_debug_mode()
torch.ones(2).is_sparse|torch.ones(2).is_quantized|torch.ones(2).is_shared()""".replace(
    "\n", "|").split("|")


@pytest.mark.parametrize("line", STUBS)
def test_stubs_answer_as_torch_without_devices(line: str) -> None:
    twin.check_lines(line)


def test_compile_and_jit_give_back_what_they_get() -> None:
    def f(x: Any) -> Any:
        return x + 1

    assert mt.compile(f) is f and mt.compile(dynamic=True)(f) is f and mt.jit.script(f) is f and mt.jit.ignore(f) is f
    assert mt.jit.ignore(drop=True)(f) is f and mt.compiler.disable(f) is f and mt.compiler.disable(recursive=False)(f) is f


def test_fork_rng_leaves_the_state() -> None:
    mt.manual_seed(1)
    with mt.random.fork_rng():
        mt.rand(3)
    after = mt.rand(2).tolist()
    mt.manual_seed(1)
    assert mt.rand(2).tolist() == after


WINDOWS = ["hann_window(5)", "hann_window(5,False)", "hamming_window(6)", "hamming_window(6,True,0.5)", "blackman_window(7)",
           "bartlett_window(5)", "kaiser_window(5,True,3.0)", "hann_window(1)", "hann_window(0)", "hann_window(-1)",
           "signal.windows.hann(5)", "signal.windows.kaiser(5,beta=2.0)", "signal.windows.gaussian(5,std=2.0)",
           "signal.windows.exponential(5,tau=2.0)", "signal.windows.nuttall(6,sym=False)", "signal.windows.cosine(4)"]


@pytest.mark.parametrize("window", WINDOWS)
def test_windows(window: str) -> None:
    twin.check_lines(f"((torch.{window})*1e4).round()")
