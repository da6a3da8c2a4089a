"""CANN_SIM_CARD: processes that share the memory of a card, and what npu-smi says of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_headers import npu_smi
from test_runtime_modes import START, run

HOLD = """
rt.must("aclInit", None)
rt.must("aclrtSetDevice", 0)
held = rt.malloc(600 << 20)
print("holding", flush=True)
sys.stdin.read()
"""
ASK = """
free, total = ctypes.c_size_t(), ctypes.c_size_t()
rt.must("aclrtGetMemInfo", 1, ctypes.byref(free), ctypes.byref(total))
print(free.value >> 20, total.value >> 20)
"""


@pytest.fixture
def card() -> Iterator[dict[str, str]]:
    """The settings of a card of 1 GiB for each of two devices, which no other test shares."""
    name = f"test-{os.getpid()}"
    yield {"CANN_SIM_CARD": name, "CANN_SIM_MEMORY": "1G", "CANN_SIM_DEVICES": "2"}
    Path(f"/dev/shm/cann_sim.{os.getuid()}.{name}").unlink(missing_ok=True)


def holder(card: dict[str, str]) -> subprocess.Popen[str]:
    """A process that holds 600 MiB of device 0 until its input ends."""
    made = subprocess.Popen([sys.executable, "-c", START + HOLD], env=os.environ | card, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "holding\n"
    return made


def test_what_one_process_holds_another_lacks(card: dict[str, str]) -> None:
    with holder(card) as neighbour:
        free, total = map(int, run(ASK, **card).stdout.split())
        assert total == 1024 and 400 <= free <= 424
        run("""
assert rt.aclrtMalloc(out(), 500 << 20, 0) == 207001 and "other processes" in rt.message()
rt.malloc(300 << 20)
rt.must("aclrtSetDevice", 1)
rt.malloc(900 << 20)
""", **card)
        assert int(run(ASK, **card | {"ASCEND_RT_VISIBLE_DEVICES": "1"}).stdout.split()[0]) >= 1020
        neighbour.kill()                          # the kernel takes the slot back, whatever the end
        neighbour.wait()
        assert int(run(ASK, **card).stdout.split()[0]) >= 1020


def test_without_the_setting_devices_are_each_processs_own(card: dict[str, str]) -> None:
    with holder(card) as neighbour:
        alone = {name: value for name, value in card.items() if name != "CANN_SIM_CARD"}
        assert int(run(ASK, **alone).stdout.split()[0]) >= 1020
        neighbour.kill()


def test_npu_smi_lists_the_processes(card: dict[str, str]) -> None:
    with holder(card) as neighbour:
        shown = npu_smi("info", **card | {"ASCEND_RT_VISIBLE_DEVICES": "1"}).stdout
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if str(neighbour.pid) in line]
        assert [row[0].split() + row[1:] for row in rows] == [  # 2 MiB behind it are for kernels that read past the end
            ["0", "0", str(neighbour.pid), rows[0][2], "602"]]
        assert rows[0][2].startswith("python") and "No running processes found in NPU 1" in shown
        used = re.search(r"(\d+) +/ 1024 *\|$", shown, re.M)
        assert used and int(used[1]) >= 600 and len({len(line) for line in shown.splitlines()}) == 1
        neighbour.kill()
    assert "No running processes found in NPU 0" in npu_smi("info", **card).stdout


def test_a_name_that_could_lead_elsewhere_is_refused() -> None:
    run("assert rt.aclInit(None) == 100000 and 'CANN_SIM_CARD' in rt.message()", opened=False, CANN_SIM_CARD="../x")
