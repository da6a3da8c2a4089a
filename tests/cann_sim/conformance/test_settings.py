"""torch_npu under settings that are fixed when a process begins: its allocator's, and the simulator's faults and modes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import torch\n" + code]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=600)


TRAINING = """
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).npu()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
x, y = torch.randn(128, 64).npu(), torch.randint(0, 8, (128,)).npu()
losses = []
for _ in range(10):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(round(losses[-1], 4))
"""


@pytest.fixture(scope="module")
def expected() -> str:
    done = run(TRAINING)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
        {"PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:64,garbage_collection_threshold:0.8"},
        {"ASCEND_LAUNCH_BLOCKING": "1"},
        {"CANN_SIM_STRICT": "1"},
        {"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": "1"},
        {"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": "2"},
        {"CANN_SIM_SOC": "Ascend910_9391"},
        {"CANN_SIM_VERSION": "8.3.0"},
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)
def test_training_does_not_depend_on_settings(settings: dict[str, str], expected: str) -> None:
    done = run(TRAINING, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == expected


def test_visible_devices() -> None:
    done = run("print(torch.npu.device_count())", ASCEND_RT_VISIBLE_DEVICES="1", CANN_SIM_DEVICES="4")
    assert done.stdout.split()[-1] == "1", done.stderr


def test_memory_runs_out_where_the_setting_says() -> None:
    code = """
held = []
try:
    while True: held.append(torch.ones(16 << 20, device="npu"))
except torch.OutOfMemoryError as error:
    print(len(held), "NPU out of memory" in str(error))
held.clear()
print(torch.ones(4, device="npu").sum().item())
"""
    count, said, total = run(code, CANN_SIM_MEMORY="1G").stdout.split()[-3:]
    assert 8 <= int(count) <= 16
    assert (said, total) == ("True", "4.0")


FAULTS: dict[str, tuple[str, str, str]] = {  # plan, program, what torch_npu's error says
    "first phase": ("aclnnAdd:1=561002", 'torch.ones(4, device="npu") + torch.ones(4, device="npu")', "561002"),
    "on the device": (
        "op aclnnAdd:1=507015", 'torch.ones(4, device="npu").add(torch.ones(4, device="npu")); torch.npu.synchronize()', "507015"
    ),
    "lost": ("lost:0@3", 'for _ in range(9): torch.ones(4, device="npu").cpu()', "50701"),
    "copy": ("aclrtMemcpy:*=507899,aclrtMemcpyAsync:*=507899", "torch.ones(4).npu()", "507899"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAULTS)
def test_planned_faults_reach_the_user(case: str) -> None:
    plan, code, words = FAULTS[case]
    done = run(code, CANN_SIM_FAULTS=plan, TASK_QUEUE_ENABLE="0")
    assert done.returncode != 0
    assert words in done.stderr, done.stderr
