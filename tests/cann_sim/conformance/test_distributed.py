"""Two processes, a device each, that talk through torch.distributed's hccl backend."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

PROGRAM = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
assert dist.get_world_size() == 2
mine = lambda *shape: torch.full(shape, rank + 1.0, device="npu")

def all_reduce():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8):
        x = mine(1000).to(dtype); dist.all_reduce(x); assert (x == 3).all(), (dtype, x)
    x = mine(3); dist.all_reduce(x, op=dist.ReduceOp.MAX); assert (x == 2).all()
def broadcast():
    x = mine(5); dist.broadcast(x, 1); assert (x == 2).all()
def all_gather():
    out = [torch.empty(4, device="npu") for _ in range(2)]
    dist.all_gather(out, mine(4)); assert [o[0].item() for o in out] == [1, 2]
    flat = torch.empty(8, device="npu")
    dist.all_gather_into_tensor(flat, mine(4)); assert flat.tolist() == [1] * 4 + [2] * 4
def reduce_scatter():
    out = torch.empty(4, device="npu"); dist.reduce_scatter_tensor(out, mine(8)); assert (out == 3).all()
def all_to_all():
    out = torch.empty(2, device="npu"); dist.all_to_all_single(out, torch.arange(2.0, device="npu") + 10 * rank)
    assert out.tolist() == [rank, 10 + rank]
def reduce():
    x = mine(4); dist.reduce(x, 0); assert rank == 1 or (x == 3).all()
def send_recv():
    x = mine(4)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    assert (x == 1).all()
def barrier():
    for _ in range(3): dist.barrier()
def data_parallel():
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1).npu(), device_ids=[rank])
    torch.manual_seed(rank)
    x = torch.randn(8, 4)
    model(x.npu()).sum().backward()
    grad = model.module.weight.grad
    other = grad.clone(); dist.broadcast(other, 0); assert torch.equal(other, grad)
def asynchronous():
    x = mine(100); work = dist.all_reduce(x, async_op=True); work.wait(); assert (x == 3).all()

globals()[os.environ["CASE"]]()
torch.npu.synchronize()
dist.destroy_process_group()
print("done", rank)
"""

CASES = [
    "all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce", "send_recv", "barrier",
    "data_parallel", "asynchronous",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    base = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "CASE": case}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env=base | {"RANK": str(rank)},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=600)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    assert all(f"done {rank}" in output for rank, output in enumerate(outputs))
