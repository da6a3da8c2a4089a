"""Tensors between processes: those of the cpu are one piece of memory on both sides."""

from __future__ import annotations

import os
from typing import Any

import pytest

import mindtorch_v2 as torch


def _writes(queue: Any, back: Any, given: Any, weight: Any) -> None:
    """Changes what it was given by argument and by queue, and sends a tensor of its own and a view of it."""
    given.add_(1)
    weight.data.mul_(2)
    queue.get()[1:].fill_(7)
    mine = torch.arange(4.0)
    back.put((mine, mine[2:], torch.tensor(3), torch.zeros(0, 2)))
    queue.get()                                   # until the other side has what it needs
    back.put((mine.tolist(), type(weight).__name__, weight.requires_grad))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_memory_is_shared(method: str) -> None:
    context = torch.multiprocessing.get_context(method)
    queue, back = context.Queue(), context.Queue()
    given, sent, weight = torch.zeros(3), torch.ones(3), torch.nn.Parameter(torch.ones(2))
    given.share_memory_()
    weight.share_memory_()
    process = context.Process(target=_writes, args=(queue, back, given, weight))
    process.start()
    queue.put(sent)
    mine, view, number, nothing = back.get(timeout=600)
    assert given.tolist() == [1, 1, 1] and sent.tolist() == [1, 7, 7] and weight.tolist() == [2, 2]
    assert number.item() == 3 and nothing.shape == (0, 2) and sent.is_shared() and mine.is_shared()
    view.fill_(9)
    assert mine.tolist() == [0, 1, 9, 9], "a tensor and its view came as two pieces of memory"
    queue.put(None)
    assert back.get(timeout=600) == ([0, 1, 9, 9], "Parameter", True)
    process.join()
    assert process.exitcode == 0


def test_what_cannot_be_shared_is_refused_or_copied() -> None:
    pickler = torch.multiprocessing.reductions.reduction.ForkingPickler
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        pickler.dumps(x * 2)
    array = torch.arange(3).numpy()
    held = torch.from_numpy(array)                # NumPy has the address
    assert torch.equal(pickler.loads(pickler.dumps(held)), held)
    assert torch.equal(pickler.loads(pickler.dumps(torch.eye(2).to_sparse())).to_dense(), torch.eye(2))


def test_descriptors_are_closed() -> None:
    def number() -> int:
        return len(os.listdir("/proc/self/fd"))
    before = number()
    for _ in range(50):
        torch.ones(10).share_memory_()
    assert number() == before
