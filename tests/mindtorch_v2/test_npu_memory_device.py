"""Memory of a real or simulated npu: tensors keep their values whatever the allocator does around them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

import mindtorch_v2 as torch

MB = 1 << 20

# Tensors of many sizes are made and dropped on two streams, with work queued all the time; those alive must hold what
# was put in. Memory is a hundredth of the device, so that blocks are reused, split, freed and mapped again.
CHURN = """
import random
import mindtorch_v2 as torch

torch.npu.set_per_process_memory_fraction(64 * 2**20 / torch.npu.mem_get_info()[1])
draw, side = random.Random(7), torch.npu.Stream()

def doubled(number, n):
    if draw.random() < 0.7:
        return torch.full((n,), number, device="npu") * 2
    with torch.npu.stream(side):
        made = torch.full((n,), number, device="npu") * 2
    torch.npu.current_stream().wait_stream(side)
    made.record_stream(torch.npu.current_stream())
    return made

def check(tensor, value):
    assert tensor[0].item() == tensor.min().item() == tensor.max().item() == value

live, refused = [], 0
for step in range(600):
    number = float(draw.randrange(1000))
    try:
        live.append((doubled(number, draw.choice((1, 100, 1000, 70_000, 300_000, 1_000_000, 4_000_000))), number * 2))
    except torch.OutOfMemoryError:
        refused += 1
        while len(live) > 3:
            check(*live.pop())
    if len(live) > 12:
        check(*live.pop(draw.randrange(len(live))))
    if step % 97 == 0:
        torch.npu.empty_cache()
while live:
    check(*live.pop())
stats = torch.npu.memory_stats()
assert stats["reserved_bytes.all.peak"] <= 64 * 2**20 and stats["num_device_free"] > 10 and refused
torch.npu.empty_cache()
assert torch.npu.memory_allocated() == 0 and torch.npu.memory_reserved() == 0
"""


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("conf", ["", "expandable_segments:True", "garbage_collection_threshold:0.5"])
@pytest.mark.parametrize("mode", ["normal", "delay"])
def test_live_tensors_keep_their_values(npu: ModuleType, conf: str, mode: str) -> None:
    run(CHURN, PYTORCH_NPU_ALLOC_CONF=conf, CANN_SIM_MODE=mode, CANN_SIM_STRICT="1")


@pytest.mark.parametrize("conf", ["", "expandable_segments:True"])
def test_a_process_may_end_with_live_tensors(npu: ModuleType, conf: str) -> None:
    code = (
        "import mindtorch_v2 as torch\n"
        "x = torch.ones(1000, device='npu')\n"
        "y = torch.ones(3_000_000, device='npu') + 1\n"
        "y.record_stream(torch.npu.Stream())\n"
    )
    done = run(code, PYTORCH_NPU_ALLOC_CONF=conf, CANN_SIM_STRICT="1")
    assert (done.stdout, done.stderr) == ("", "")


def test_tensors_are_counted(npu: ModuleType) -> None:
    before = npu.memory_allocated()
    tensor = torch.empty(128, device="npu")
    assert npu.memory_allocated() - before == 1024  # 512 bytes and the padding
    view = tensor[1:]
    del tensor
    assert npu.memory_allocated() - before == 1024
    del view
    assert npu.memory_allocated() == before


def test_memory_is_reused_in_stream_order_only(npu: ModuleType) -> None:
    side = npu.Stream()
    address = torch.empty(1000, device="npu").data_ptr()
    assert torch.empty(1000, device="npu").data_ptr() == address
    with npu.stream(side):
        inside = torch.empty(1000, device="npu")
        assert inside.data_ptr() != address
    addresses = []
    thread = threading.Thread(target=lambda: addresses.append(torch.empty(1000, device="npu").data_ptr()))
    thread.start()
    thread.join()
    assert addresses == [address]  # a thread starts on the default stream


def test_record_stream_keeps_memory_until_the_other_stream_is_done(npu: ModuleType) -> None:
    side, tensor = npu.Stream(), torch.empty(1000, device="npu")
    tensor.record_stream(side)
    address = tensor.data_ptr()
    del tensor
    side.synchronize()
    assert torch.empty(1000, device="npu").data_ptr() == address
    with pytest.raises(NotImplementedError, match="record_stream"):
        torch.empty(1).record_stream(side)


def test_out_of_memory_leaves_the_device_usable(npu: ModuleType) -> None:
    before = npu.memory_allocated()
    with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory. Tried to allocate"):
        torch.empty(1 << 50, device="npu")
    assert npu.memory_allocated() == before
    assert (torch.ones(3, device="npu") + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_pool_holds_tensors(npu: ModuleType) -> None:
    pool = npu.MemPool()
    with npu.use_mem_pool(pool):
        inside = torch.ones(1000, device="npu")
    outside = torch.ones(1000, device="npu")
    (segment,) = pool.snapshot()
    assert segment["address"] <= inside.data_ptr() < segment["address"] + segment["total_size"]
    assert not segment["address"] <= outside.data_ptr() < segment["address"] + segment["total_size"]
    del pool
    assert inside.sum().item() == 1000.0  # its memory lives as long as the tensor


def test_history_names_the_line(npu: ModuleType) -> None:
    npu._record_memory_history()
    try:
        tensor = torch.empty(3 * MB, device="npu")
        blocks = [block for segment in npu.memory_snapshot()["segments"] for block in segment["blocks"]]
        (block,) = [block for block in blocks if block["address"] == tensor.data_ptr()]
        assert block["frames"][0]["name"] == "test_history_names_the_line"
    finally:
        npu._record_memory_history(None, clear_history=True)


@pytest.mark.parametrize(("mode", "events"), [("1", True), ("2", False)])
def test_where_memory_ends_a_snapshot_is_written(npu: ModuleType, tmp_path: Path, mode: str, events: bool) -> None:
    """And what is freed when the interpreter has no frame left is no trouble for the history."""
    from torch.cuda import _memory_viz as judge

    program = """
import mindtorch_v2 as torch
kept = torch.ones(1000, device="npu")
try:
    torch.empty(1 << 50, device="npu")
except torch.OutOfMemoryError as error:
    print(str(error).split("\\n")[-1])
"""
    env = os.environ | {"OOM_SNAPSHOT_ENABLE": mode, "OOM_SNAPSHOT_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=600)
    (file,) = tmp_path.iterdir()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"A snapshot of the memory was written to {file}\n", "")
    made = pickle.loads(file.read_bytes())
    names = [frame["name"] for segment in made["segments"] for block in segment["blocks"] for frame in block["frames"]]
    assert bool(made["device_traces"][0]) is events and "<module>" in names and judge.segment_plot(made)
    blocked = subprocess.run([sys.executable, "-c", program], env=env | {"OOM_SNAPSHOT_PATH": str(file)}, text=True,
                             capture_output=True, timeout=600)  # fmt: skip
    assert "Not a directory" in blocked.stdout and not blocked.returncode  # the error is still that of the memory


def test_free_and_total_memory(npu: ModuleType) -> None:
    free, total = npu.mem_get_info()
    assert 0 < free < total == npu.get_device_properties(0).total_memory
