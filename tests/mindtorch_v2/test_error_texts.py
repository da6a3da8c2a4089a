"""The most common failures: what the message says happened, where, and what to do. Of the distributed ones (a rank
that is gone or late) test_distributed.py holds the texts, of `info` test_commands.py."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch as judge

import cann_sim
import mindtorch_v2 as torch
from cann_sim import faults
from mindtorch_v2._backends.npu import errors, out_of_memory

GIB = 1 << 30


# ---- as torch says it ----------------------------------------------------------------------------------------------------
def leaf(t: Any) -> Any:
    return t.ones(3, requires_grad=True)


def backward_twice(t: Any) -> None:
    y = leaf(t).exp().sum()
    y.backward()
    y.backward()


def changed_result(t: Any) -> None:
    y = leaf(t).exp()
    y.add_(1)
    y.sum().backward()


def changed_input(t: Any) -> None:
    x = leaf(t) * 1
    y = x.sin()
    x.add_(1)
    y.sum().backward()


def inference_tensor(t: Any) -> None:
    with t.inference_mode():
        made = t.ones(3)
    (leaf(t) * made).sum().backward()


AS_TORCH: dict[str, Callable[[Any], Any]] = {
    "in place on a leaf": lambda t: leaf(t).add_(1),
    "backward twice": backward_twice,
    "a result changed in place": changed_result,
    "an input changed in place": changed_input,
    "an inference tensor in a graph": inference_tensor,
    "backward without a graph": lambda t: t.ones(3).sum().backward(),
    "backward of a vector": lambda t: (leaf(t) * 2).backward(),
    "grad of what was not used": lambda t: t.autograd.grad(leaf(t).sum(), [leaf(t)]),
    "integers that require grad": lambda t: t.ones(3, dtype=t.int64).requires_grad_(),
    "numpy of a tensor with history": lambda t: leaf(t).numpy(),
    "deepcopy of a tensor with history": lambda t: copy.deepcopy(leaf(t) * 2),
    "shapes of a product": lambda t: t.ones(3, 4) @ t.ones(3, 4),
    "features of a layer": lambda t: t.nn.Linear(4, 2)(t.ones(3, 5)),
    "dtypes of a product": lambda t: t.ones(3, 3) @ t.ones(3, 3).double(),
    "half precision into a float32 layer": lambda t: t.nn.Linear(2, 2)(t.ones(2, 2).half()),
    "shapes that do not broadcast": lambda t: t.ones(3) + t.ones(4),
    "shapes that do not expand": lambda t: t.ones(2, 3).expand(4, 4),
    "shapes that do not concatenate": lambda t: t.cat([t.ones(2, 3), t.ones(3, 4)]),
    "samples of different sizes": lambda t: t.utils.data.default_collate([t.ones(2), t.ones(3)]),
    "view of a wrong size": lambda t: t.ones(6).view(4, -1),
    "view of a transposed tensor": lambda t: t.ones(2, 3).t().view(6),
    "channels of a convolution": lambda t: t.nn.functional.conv2d(t.ones(1, 3, 8, 8), t.ones(4, 2, 3, 3)),
    "rank of a convolution's input": lambda t: t.nn.Conv2d(3, 4, 3)(t.ones(8)),
    "batch norm of one sample": lambda t: t.nn.BatchNorm1d(3)(t.ones(1, 3)),
    "index out of range": lambda t: t.ones(3)[5],
    "dimension out of range": lambda t: t.ones(2).sum(5),
    "class out of range": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.tensor([1, 7])),
    "classes as floats": lambda t: t.nn.functional.cross_entropy(t.ones(2, 3), t.ones(2)),
    "token out of range": lambda t: t.nn.functional.embedding(t.tensor([9]), t.ones(3, 2)),
    "tokens as floats": lambda t: t.nn.functional.embedding(t.ones(2), t.ones(3, 2)),
    "truth of several items": lambda t: bool(t.ones(2)),
    "item of several items": lambda t: t.ones(2).item(),
    "out= of another dtype": lambda t: t.add(t.ones(2), 1, out=t.ones(2, dtype=t.int32)),
    "ragged lists": lambda t: t.tensor([[1, 2], [3]]),
    "keys of a checkpoint": lambda t: t.nn.Linear(3, 4).load_state_dict({"weight": t.ones(2, 2), "other": t.ones(1)}),
    "a checkpoint that is not there": lambda t: t.load("/nope.pt"),
    "an optimizer of nothing": lambda t: t.optim.SGD([], lr=0.1),
    "an optimizer of a result": lambda t: t.optim.SGD([leaf(t) * 2], lr=0.1),
    "a negative learning rate": lambda t: t.optim.Adam([leaf(t)], lr=-1),
    "a collective without a group": lambda t: t.distributed.all_reduce(t.ones(2)),
    "cuda": lambda t: t.ones(2, device="cuda"),
    "a module without forward": lambda t: t.nn.Module()(1),
}


@pytest.mark.parametrize("name", AS_TORCH)
def test_messages_are_torchs(name: str) -> None:
    said = []
    for library in (judge, torch):
        with pytest.raises(Exception) as caught:
            AS_TORCH[name](library)
        said.append((type(caught.value).__name__, str(caught.value)))
    assert said[0] == said[1]


def test_the_same_on_an_npu(npu: ModuleType) -> None:
    with pytest.raises(RuntimeError, match=re.escape("mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)")):
        torch.ones(3, 4, device="npu") @ torch.ones(3, 4, device="npu")
    with pytest.raises(TypeError, match=r"can't convert npu:0 device type tensor to numpy. Use Tensor.cpu\(\) to copy"):
        torch.ones(2, device="npu").numpy()
    both = "Expected all tensors to be on the same device, but found at least two devices, npu:0 and cpu!"
    for call in (lambda: torch.ones(2, device="npu") + torch.ones(2), lambda: torch.nn.Linear(2, 2)(torch.ones(2, device="npu"))):
        with pytest.raises(RuntimeError, match=both):
            call()
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        torch.randn(2, device="npu", generator=torch.Generator())


# ---- CANN and its devices ------------------------------------------------------------------------------------------------
def run(code: str, **environment: str) -> str:
    """What a process without CANN says last."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": ":".join(filter(None, sys.path)), **environment}
    ended = subprocess.run([sys.executable, "-c", code], env=bare, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stderr


def test_no_cann() -> None:
    said = run("import mindtorch_v2 as torch; torch.ones(2, device='npu')")
    assert "CANN was not found: neither lib" in said
    assert "Install the Ascend driver and the CANN toolkit (https://www.hiascend.com/cann), or set ASCEND_HOME_PATH" in said
    assert "programs run on a simulated one: `cann-sim run python program.py`" in said


def test_a_relative_home_and_one_that_others_write_to(tmp_path: Path) -> None:
    code = "import mindtorch_v2 as torch; torch.ones(2, device='npu')"
    assert "ASCEND_HOME_PATH" in (said := run(code, ASCEND_HOME_PATH="cann")) and "full path" in said
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libascendcl.so").write_text("")
    os.chmod(tmp_path / "lib64", 0o777)
    assert str(tmp_path / "lib64") in (said := run(code, ASCEND_HOME_PATH=str(tmp_path))) and "MINDTORCH_ALLOW_WRITABLE_CANN=1" in said


@pytest.fixture
def plan(npu: ModuleType) -> Iterator[Callable[[str], None]]:
    torch.ones(2, device="npu").exp()  # the device is started: a plan counts from here
    yield faults.set_faults
    faults.set_faults("")


@pytest.mark.parametrize("code, said", [
    (207004, "CANN is installed but sees no device: check `npu-smi info`"),
    (207006, "`sudo usermod -aG HwHiAiUser .USER` and a new login"),
    (507033, r"another process or container may hold it \(`npu-smi info` lists processes\), or driver and CANN do not belong together"),
    (507899, "`python -m mindtorch_v2 info` shows whether driver and CANN belong together"),
    (507046, "another rank has not come to a collective"), (207008, "keep fewer torch.npu.Stream alive"),
    (561112, "install the kernels package of CANN for this SoC"), (107030, "the host may not wait while a graph is captured"),
])  # fmt: skip
def test_codes_say_what_to_do(npu: ModuleType, code: int, said: str) -> None:
    text = str(errors.error_of(code, "aclrtSetDevice(0)", words="its own words"))
    assert re.match(rf"\[aclrtSetDevice\(0\)\] failed with ACL\w+ \({code}\): .*{said}", text), text
    assert "\nCANN says: its own words" in text


def test_no_such_device(npu: ModuleType) -> None:
    with pytest.raises(torch.AcceleratorError, match=r"107001\): no such device: torch.npu.device_count\(\) says how many"):
        torch.ones(2, device="npu:14")


def test_no_kernel_on_this_soc(plan: Callable[[str], None]) -> None:
    plan("aclnnExp:1=561003")
    with pytest.raises(torch.AcceleratorError) as caught:
        torch.ones(3, 41, device="npu").exp()    # a shape that no other test has left an executor for
    assert "the op has no kernel for this SoC or dtype\nCANN says: " in str(caught.value)
    assert str(caught.value).endswith("The call: aclnnExp(float32[3, 41], float32[3, 41])")


def test_a_dtype_that_an_op_does_not_take(npu: ModuleType) -> None:
    with pytest.raises(torch.AcceleratorError) as caught:
        torch.ones(3, device="npu").to(torch.float8_e4m3fn) + 1
    assert "The call: aclnnAdds(float8_e4m3fn[3], 1, 1, float8_e4m3fn[3])\naclnnAdds takes self in bfloat16, bool," in str(caught.value)


def test_a_graph_that_waits(npu: ModuleType) -> None:
    x = torch.ones(3, device="npu")
    said = r"item\(\), cpu\(\), printing a tensor, nonzero\(\) and copies"
    with pytest.raises(torch.AcceleratorError, match=said), npu.graph(npu.NPUGraph()):
        (x + 1).sum().item()
    assert (x + 1).sum().item() == 6


LATE = """
import mindtorch_v2 as torch
from cann_sim import faults
def step(x):
    return x.exp()
x = torch.ones(3, 4, device="npu")
faults.set_faults("op aclnnExp:1=507015")
step(x)
x + 1
try:
    torch.npu.synchronize()
except torch.AcceleratorError as error:
    raise SystemExit("said: " + str(error))
"""


@pytest.mark.parametrize("keeps", ["0", "1"])
def test_a_late_fault_names_the_op_its_arguments_and_the_line(npu: ModuleType, keeps: str) -> None:
    said = run(LATE, MINDTORCH_LAUNCH_LINES=keeps, **{k: v for k, v in os.environ.items() if k.startswith(("ASCEND_", "LD_", "CANN_"))})
    assert "ACL_ERROR_RT_AICORE_EXCEPTION (507015): the device stopped" in said
    assert "ACL_LAUNCH_BLOCKING=1 shows it at its own line, MINDTORCH_LAUNCH_LINES=1 keeps the lines" in said
    launched = "Launched last of it: aclnnExp(float32[3, 4], float32[3, 4])"
    assert launched + (" at <string>:5 in step\n" if keeps == "1" else "\n") in said


def test_fork_after_the_first_use(npu: ModuleType) -> None:
    torch.ones(1, device="npu")
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            torch.ones(1, device="npu")
        except RuntimeError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000).decode() == ("Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, "
                                            "you must use the 'spawn' start method")  # fmt: skip
    os.close(read)
    os.close(write)


# ---- out of memory -------------------------------------------------------------------------------------------------------
def text_of(npu: ModuleType, monkeypatch: pytest.MonkeyPatch, requested: int, free: int, **stats: int) -> str:
    """What the allocator of a device of 64 GiB says, for its books."""
    books = npu._get_allocator(0)
    monkeypatch.setattr(type(books), "_mem_get_info", lambda self: (free, 64 * GIB))
    names = {"reserved": "reserved_bytes.all.current", "active": "active_bytes.all.current", "allocated": "allocated_bytes.all.current"}
    stated = dict(books._stats.items()) if hasattr(books._stats, "items") else {}
    monkeypatch.setattr(books, "_stats", stated | {names[k]: v for k, v in stats.items()})
    return books._out_of_memory_text(requested)


NPU_SMI_910B = """
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.rc2                 Version: 24.1.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B3               | OK            | 91.0        36                0    / 0             |
| 0                         | 0000:41:00.0  | 0           0    / 0          3401 / 65536         |
+===========================+===============+====================================================+
| 5     910B3               | Alarm         | 95.4        37                0    / 0             |
| 0                         | 0000:42:00.0  | 0           0    / 0          3400 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 2                                                            |
+===========================+===============+====================================================+
| 5       0                 | 1333928       |                          | 122                     |
| 5       0                 | 55115         | python                   | 30784                   |
+===========================+===============+====================================================+
"""
NPU_SMI_A3 = """
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 157.3       32                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3130 / 65536         |
+---------------------------+---------------+----------------------------------------------------+
| 0     Ascend910           | OK            | -           32                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          3130 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip       | Process id    | Process name| Process memory(MB) |Process id in container|
+===========================+===============+====================================================+
| 0       1          | 3328327       | VLLMWorker  | 50119              | 71                    |
"""


def test_the_processes_of_npu_smi_by_chip() -> None:
    assert out_of_memory.by_chip(NPU_SMI_910B) == [[], [(1333928, "", 122 << 20), (55115, "python", 30784 << 20)]]
    assert out_of_memory.by_chip(NPU_SMI_A3) == [[], [(3328327, "VLLMWorker", 50119 << 20)]]
    assert out_of_memory.by_chip("DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005") == []


def test_out_of_memory_names_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "npu-smi"
    command.write_text(f"#!/bin/sh\ncat <<'E'\n{NPU_SMI_910B}| 5       0                 | {os.getpid()} | python | 1024 |\nE\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    books = out_of_memory.Books(8 * GIB, 2 * GIB, 64 * GIB, GIB, GIB, 0, None)
    assert out_of_memory.reason(1, books) == ("Other processes and the driver hold 61.00 GiB: process 55115 (python) 30.06 GiB, "
                                              "process 1333928 122.00 MiB.")
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1")
    assert "process 55115 (python) 30.06 GiB" in out_of_memory.reason(0, books)
    command.write_text(f"#!/bin/sh\ncat <<'E'\n{NPU_SMI_910B}E\n")       # a container: this process has another number there
    assert out_of_memory.reason(0, books).endswith("122.00 MiB (as the host numbers processes; one of them may be this process).")
    command.write_text("#!/bin/sh\nexit 1\n")
    assert out_of_memory.reason(0, books).endswith("hold 61.00 GiB: `npu-smi info` lists the processes on the device.")


def test_out_of_memory_where_a_neighbour_holds_the_card() -> None:
    """Both programs are of this library, on a card that they share."""
    name = f"neighbours-{os.getpid()}"
    shared = os.environ | cann_sim.env() | {"CANN_SIM_CARD": name, "CANN_SIM_MEMORY": "1G"}
    hold = "import sys, mindtorch_v2 as torch; x = torch.empty(700 << 20, dtype=torch.uint8, device='npu'); print(1, flush=True); sys.stdin.read()"
    ask = "import mindtorch_v2 as torch\ntry: torch.empty(500 << 20, dtype=torch.uint8, device='npu')\nexcept torch.OutOfMemoryError as e: print(e)"
    try:
        with subprocess.Popen([sys.executable, "-c", hold], env=shared, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as neighbour:
            assert neighbour.stdout is not None and neighbour.stdout.readline() == b"1\n"
            said = subprocess.run([sys.executable, "-c", ask], env=shared, capture_output=True, text=True, timeout=300).stdout
            neighbour.kill()
        assert re.search(rf"Other processes and the driver hold 7\d\d\.\d\d MiB: process {neighbour.pid} \(python\S*\) 7\d\d\.\d\d MiB", said), said
    finally:
        Path(f"/dev/shm/cann_sim.{os.getuid()}.{name}").unlink(missing_ok=True)


def test_out_of_memory_because_of_others(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    said = text_of(npu, monkeypatch, 8 * GIB, 2 * GIB, reserved=10 * GIB, active=10 * GIB, allocated=10 * GIB)
    assert said.startswith("NPU out of memory. Tried to allocate 8.00 GiB (NPU 0; 64.00 GiB total capacity; 10.00 GiB already allocated")
    assert said.endswith(" Other processes and the driver hold 52.00 GiB: `npu-smi info` lists the processes on the device.")
    assert "fragmentation" not in said


def test_out_of_memory_because_of_fragmentation(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = text_of(npu, monkeypatch, 8 * GIB, GIB, reserved=62 * GIB, active=30 * GIB, allocated=30 * GIB)
    assert re.search(r"32\.00 GiB of the reserved memory are free, in pieces of at most [^:]+: that is fragmentation", said)
    assert said.endswith("PYTORCH_NPU_ALLOC_CONF=expandable_segments:True avoids it.")


def test_out_of_memory_because_of_this_process(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    said = text_of(npu, monkeypatch, 8 * GIB, GIB, reserved=62 * GIB, active=61 * GIB, allocated=61 * GIB)
    assert said.endswith("This process itself holds the rest: torch.npu.memory._dump_snapshot(FILE) and `python -m mindtorch_v2 "
                         "memory FILE` show what for.")  # fmt: skip


def test_out_of_memory_because_of_a_limit_or_the_device(npu: ModuleType) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="That is more than the device has.$"):
        torch.empty(1 << 45, device="npu")
    npu.set_per_process_memory_fraction(0.001)
    try:
        with pytest.raises(torch.OutOfMemoryError, match=r"This process may take 0.001 of the device: torch.npu.set_per_process_m"):
            torch.empty(GIB, device="npu")
    finally:
        npu.set_per_process_memory_fraction(1.0)


# ---- files ---------------------------------------------------------------------------------------------------------------
class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("true",)


FILES = {
    "empty": (b"", "Ran out of input: .* is empty"),
    "html": (b"<!DOCTYPE html><title>404", "is no checkpoint: it is a page of HTML or XML: the download gave an error page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "is no checkpoint: it is a pointer of Git LFS.*git lfs pull"),
    "gzip": (gzip.compress(b"x"), "is no checkpoint: it is a gzip file: unpack it first"),
    "safetensors": (struct.pack("<Q", 30) + json.dumps({"w": {"dtype": "F32"}}).encode(), r"safetensors.torch.load_file reads it"),
    "cut": (b"PK\x03\x04abc", "PytorchStreamReader failed reading zip archive: failed finding central directory"),
    "text": (b"epoch 3\n", "is no checkpoint: it begins with b'epoch 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_checkpoints(name: str, tmp_path: Path) -> None:
    raw, said = FILES[name]
    (tmp_path / "model.pt").write_bytes(raw)
    with pytest.raises((RuntimeError, EOFError, pickle.UnpicklingError), match=said) as caught:
        torch.load(tmp_path / "model.pt")
    assert str(tmp_path / "model.pt") in str(caught.value)


def test_a_file_that_would_run_code(tmp_path: Path) -> None:
    judge.save({"a": Evil()}, tmp_path / "model.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"(?s)Weights only load failed.*GLOBAL posix.system.*model.pt: data.pkl, byte"):
        torch.load(tmp_path / "model.pt")


def test_a_checkpoint_of_a_device_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge.serialization, "location_tag", lambda storage: "cuda:0")
    judge.save(judge.ones(2), tmp_path / "model.pt")
    with pytest.raises(RuntimeError, match=r"on a CUDA device but torch.cuda.is_available.. is False.*map_location="):
        torch.load(tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt", map_location="cpu").tolist() == [1, 1]
