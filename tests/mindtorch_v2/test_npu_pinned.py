"""Pinned memory and storages of npus: copies that run while the host goes on, resizing, pickling, copying."""

from __future__ import annotations

import copy
import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch

# In delay mode work starts late and in any order that is allowed: memory that is reused too early shows other values.
TO_THE_NPU = """
for n in range(40):
    source = torch.full((5000,), float(n)).pin_memory()
    target = source.to("npu", non_blocking=True)
    del source
    others = [torch.full((5000,), -1.0, pin_memory=True) for _ in range(3)]
    assert target.min().item() == target.max().item() == n, (n, target)
"""
TO_THE_HOST = """
for n in range(40):
    source = torch.full((5000,), float(n), device="npu") * 2
    kept = source.to("cpu", non_blocking=True)
    source.to("cpu", non_blocking=True)           # no reference left: the copy must not write into the next tensor in that memory
    others = [torch.full((5000,), -1.0, pin_memory=True) for _ in range(3)]
    assert kept.is_pinned()
    torch.npu.synchronize()
    assert kept.min().item() == kept.max().item() == 2 * n, (n, kept)
    assert all(o.min() == o.max() == -1 for o in others)
"""
WITHOUT_PINNED = """
for n in range(40):
    source = torch.full((5000,), float(n))
    target = source.to("npu", non_blocking=True)
    source.fill_(-1)                              # pageable memory was read before the copy returned
    back = torch.empty(5000)
    back.copy_(target, non_blocking=True)
    assert back.min() == back.max() == n
"""
RESIZED = """
side = torch.npu.Stream()
for n in range(40):
    x = torch.full((5000,), float(n), device="npu") * 1
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        x.resize_(9000)                           # the old block is freed on the other stream while the copy may wait
    others = [torch.full((5000,), -1.0, device="npu") for _ in range(3)]
    torch.npu.current_stream().wait_stream(side)
    assert x[:5000].min().item() == x[:5000].max().item() == n, n
"""
LOADER = """
data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
for workers in (0, 2):
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
        assert x.is_pinned() and y.is_pinned()
        seen.append((x.to("npu", non_blocking=True), y.to("npu", non_blocking=True)))
        del x, y
    assert torch.cat([x for x, _ in seen]).cpu().tolist() == data.tensors[0].tolist()
    assert torch.cat([y for _, y in seen]).cpu().tolist() == data.tensors[1].tolist()
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("body", [TO_THE_NPU, TO_THE_HOST, WITHOUT_PINNED, RESIZED, LOADER],
                         ids=["to npu", "to host", "pageable", "resized", "loader"])  # fmt: skip
def test_copies_under_delays(npu: ModuleType, body: str, seed: int) -> None:
    env = {**os.environ, "CANN_SIM_MODE": "delay", "CANN_SIM_SEED": str(seed), "CANN_SIM_STRICT": "1"}
    code = "import mindtorch_v2 as torch\ndef body():\n" + body.replace("\n", "\n    ") + "\nbody()\n"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr


def run_late(code: str) -> None:
    """Runs a program on a device whose tasks are late, queued behind one that keeps the stream busy."""
    begin = (
        "import mindtorch_v2 as torch\n"
        "x = torch.ones(1000, device='npu')\n"
        "torch.npu.synchronize()\n"
        "torch.ones(1500, 1500, device='npu') @ torch.ones(1500, 1500, device='npu')\n"
    )
    env = {**os.environ, "CANN_SIM_MODE": "delay", "CANN_SIM_SEED": "1", "ACL_LAUNCH_BLOCKING": "0"}
    done = subprocess.run([sys.executable, "-c", begin + code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_pinned_copy_does_not_wait(npu: ModuleType) -> None:
    code = (
        "made = [(x * n).to('cpu', non_blocking=True) for n in range(20)]\n"
        "assert not torch.npu.current_stream().query()\n"
        "torch.npu.synchronize()\n"
        "assert [m[0].item() for m in made] == list(range(20))\n"
    )
    run_late(code)


def test_memory_that_no_copy_uses_waits_for_none(npu: ModuleType) -> None:
    code = (
        "in_use = lambda: torch.npu.host_memory_stats()['active_bytes.current']\n"
        "for n in range(20):\n"
        "    (x * n).to('cpu', non_blocking=True)\n"
        "torch.empty(100_000, pin_memory=True)\n"
        "assert in_use() < 400_000 and not torch.npu.current_stream().query()\n"
    )
    run_late(code)


# ---- where pinned memory comes from --------------------------------------------------------------------------------
def in_use() -> int:
    return torch.npu.host_memory_stats()["active_bytes.current"]


def in_use_at_rest(npu: ModuleType) -> int:
    """in_use() when the copies of other tests are done: asking takes blocks back, which then wait for their streams."""
    in_use()
    npu.synchronize()
    return in_use()


def test_pinned_memory_is_the_allocators(npu: ModuleType) -> None:
    before = in_use_at_rest(npu)
    x = torch.arange(1000.0).pin_memory()
    assert in_use() - before == 4096 and x.is_pinned() and npu.is_pinned(x) and x.untyped_storage().is_pinned()
    view = x[10:20]
    assert view.is_pinned() and x.pin_memory() is x and npu.pin_memory(x) is x
    del x
    assert in_use() - before == 4096 and view.tolist() == list(range(10, 20))
    del view
    assert in_use() == before


MAKERS: dict[str, Any] = {
    "empty": lambda: torch.empty(3, pin_memory=True),
    "zeros": lambda: torch.zeros(3, pin_memory=True),
    "full": lambda: torch.full((3,), 2.0, pin_memory=True),
    "ones_like": lambda: torch.ones_like(torch.zeros(3), pin_memory=True),
    "empty_strided": lambda: torch.empty_strided((3,), (2,), pin_memory=True),
    "arange": lambda: torch.arange(3, pin_memory=True),
    "rand": lambda: torch.rand(3, pin_memory=True),
    "randn with a gradient": lambda: torch.randn(3, pin_memory=True, requires_grad=True),
    "eye": lambda: torch.eye(3, pin_memory=True),
    "tensor": lambda: torch.tensor([1, 2], pin_memory=True),
    "new_tensor": lambda: torch.ones(1).new_tensor([1.0], pin_memory=True),
    "new_empty": lambda: torch.ones(1).new_empty(4, pin_memory=True),
    "storage": lambda: torch.UntypedStorage(8).pin_memory(),
    "strided": lambda: torch.arange(6.0).reshape(2, 3).t().pin_memory(),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_makers_pin(npu: ModuleType, name: str) -> None:
    before = in_use_at_rest(npu)
    made = MAKERS[name]()
    assert made.is_pinned() and in_use() > before and getattr(made, "is_leaf", True)


def test_only_cpu_memory_is_pinned(npu: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.ones(2, device="npu").pin_memory()
    with pytest.raises(RuntimeError, match="dense CPU tensors can be pinned"):
        torch.ones(2, device="npu", pin_memory=True)


def test_a_process_may_end_with_pinned_tensors(npu: ModuleType) -> None:
    code = (
        "import mindtorch_v2 as torch\n"
        "x = torch.ones(1000).pin_memory()\n"
        "y = x.to('npu', non_blocking=True)\n"
        "z = y.to('cpu', non_blocking=True)\n"
        "w = torch.ones(9).pin_memory()\n"
        "del w\n"
    )
    env = {**os.environ, "CANN_SIM_STRICT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "mindtorch_v2" not in done.stderr, done.stderr


def test_a_loader_says_where_there_is_no_npu(tmp_path: Path) -> None:
    code = (
        "import mindtorch_v2 as torch\n"
        "assert [b.is_pinned() for b in torch.utils.data.DataLoader([1.0, 2.0], pin_memory=True)] == [False, False]\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("ASCEND")} | {"ASCEND_HOME_PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "no accelerator is found" in done.stderr, done.stderr


# ---- storages ------------------------------------------------------------------------------------------------------
def test_out_is_resized(npu: ModuleType) -> None:
    x = torch.arange(6.0, device="npu")
    out = torch.empty(0, device="npu")
    assert torch.add(x, x, out=out) is out and out.tolist() == [0, 2, 4, 6, 8, 10]
    values, places = torch.empty(0, device="npu"), torch.empty(0, dtype=torch.int64, device="npu")
    torch.topk(x, 2, out=(values, places))
    assert values.tolist() == [5, 4] and places.tolist() == [5, 4]


def test_resizing_keeps_what_fits(npu: ModuleType) -> None:
    x = torch.arange(6.0, device="npu")
    before = npu.memory_allocated()
    x.resize_(100, 100)
    assert x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5] and npu.memory_allocated() > before
    storage = x.untyped_storage()
    storage.resize_(8)
    assert len(storage) == 8 and npu.memory_allocated() == before
    storage.resize_(0)
    assert storage.data_ptr() == 0
    assert torch.empty(0, device="npu").set_(storage).tolist() == []


def test_storage_methods(npu: ModuleType) -> None:
    storage = torch.tensor([1, 2, 3], dtype=torch.uint8, device="npu").untyped_storage()
    twin = storage.clone()
    assert twin.device == storage.device and twin.data_ptr() != storage.data_ptr() and twin.tolist() == [1, 2, 3]
    storage.fill_(9)
    assert storage.cpu().tolist() == [9, 9, 9] and twin.tolist() == [1, 2, 3]
    storage.copy_(twin)
    assert storage.tolist() == [1, 2, 3] and storage.is_npu and not storage.is_cuda
    assert storage.get_device() == npu.current_device()
    host = storage.cpu()
    assert host.cpu().data_ptr() == host.data_ptr() and host.npu().tolist() == [1, 2, 3]
    typed = torch.arange(3.0, device="npu").storage()
    assert typed.cpu().tolist() == [0, 1, 2] and typed.cpu().device.type == "cpu" and typed.clone().device.type == "npu"


def test_deepcopy_shares_what_was_shared(npu: ModuleType) -> None:
    x = torch.arange(6.0, device="npu")
    whole, part = copy.deepcopy([x, x[2:]])
    part.fill_(7)
    assert whole.tolist() == [0, 1, 7, 7, 7, 7] and x.tolist() == [0, 1, 2, 3, 4, 5]
    model = torch.nn.Linear(2, 3).npu()
    other = copy.deepcopy(model)
    assert other.weight.device.type == "npu" and torch.equal(other.weight, model.weight)
    assert isinstance(other.weight, torch.nn.Parameter)
    with torch.no_grad():
        other.weight.add_(1)
    assert not torch.equal(other.weight, model.weight)


def test_pickling(npu: ModuleType) -> None:
    x = torch.arange(6.0, device="npu")
    whole, part = pickle.loads(pickle.dumps([x, torch.nn.Parameter(x[::2])]))
    assert whole.device == x.device and whole.tolist() == x.tolist()
    assert part.tolist() == [0, 2, 4] and part.requires_grad and isinstance(part, torch.nn.Parameter)


@pytest.mark.parametrize("where, device", [(None, "npu:1"), ("cpu", "cpu"), ("npu", "npu"), ("npu:0", "npu:0"),
                                           ({"npu:1": "npu:0"}, "npu:0"), (lambda storage, place: storage, "cpu"),
                                           (torch.device("npu", 1), "npu:1")])  # fmt: skip
def test_saved_tensors_come_back(npu: ModuleType, where: Any, device: str) -> None:
    x = torch.arange(6.0, device="npu:1")
    file = io.BytesIO()
    torch.save({"x": x, "view": x[1:3], "model": torch.nn.Linear(2, 2, device="npu:1").state_dict()}, file)
    file.seek(0)
    back = torch.load(file, map_location=where)
    expected = torch.device("npu", npu.current_device()) if device == "npu" else torch.device(device)
    assert back["x"].device == back["model"]["weight"].device == expected
    assert back["view"].tolist() == [1, 2]
    back["x"].fill_(3)
    assert back["view"].tolist() == [3, 3]        # one storage, as before


@pytest.mark.parametrize("where, device", [(None, "npu:0"), ("cpu", "cpu"), (lambda storage, place: None, "npu:0")])
def test_a_file_from_before_the_zip(npu: ModuleType, where: Any, device: str) -> None:
    """Its bytes stand behind the object: they are brought to storages that are there already."""
    x, file = torch.zeros(3, device="npu:0"), io.BytesIO()
    torch.save([x, x[1:]], file)
    with zipfile.ZipFile(file) as archive:
        body = archive.read("archive/data.pkl")
    parts = [pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {})] + [body, pickle.dumps(["0"], 2)]
    whole, view = torch.load(io.BytesIO(b"".join(parts) + struct.pack("<qfff", 3, 1, 2, 3)), map_location=where)
    assert whole.device == torch.device(device) and whole.tolist() == [1, 2, 3] and view.tolist() == [2, 3]


def test_a_full_npu_is_named_as_such(npu: ModuleType) -> None:
    """In a process of its own: what other tests left has room for the tensor."""
    done = subprocess.run([sys.executable, "-c", """
import io
import mindtorch_v2 as torch
file = io.BytesIO()
torch.save(torch.ones(1 << 20), file)
file.seek(0)
torch.npu.set_per_process_memory_fraction(1e-6)
try:
    torch.load(file, map_location="npu:0")
except torch.OutOfMemoryError:
    print("out of memory")
"""], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("out of memory\n", "")
