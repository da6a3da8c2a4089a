"""The record of calls: what each launch was given, and the file of CANN_SIM_CALLS."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from client import Client

from cann_sim import calls


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    calls.record(True)
    yield made
    calls.record(False)


def launches() -> list[str]:
    return [text for count, text in calls.recorded() if text.startswith("aclnn") for _ in range(count)]


def test_a_launch_with_its_arguments(client: Client) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    for _ in range(2):
        client.call("aclnnAdd", x.t()[1:], torch.ones(4), 2.0, torch.empty(5, 4))
    (line,) = set(launches())
    assert len(launches()) == 2
    assert line.startswith("aclnnAdd(self=f32[5,4]:[1,6]") and "other=f32[4]" in line and "out=f32[5,4]" in line
    assert "alpha=" in line and " workspace " in line


def test_other_functions_by_name(client: Client) -> None:
    client.must("aclrtSynchronizeDevice")
    assert ("aclrtSynchronizeDevice" in {text for _, text in calls.recorded()})
    calls.record(True)
    assert calls.recorded() == []


def test_numbers_of_other_functions(client: Client) -> None:
    address = ctypes.c_void_p()
    client.must("aclrtMalloc", ctypes.byref(address), ctypes.c_size_t(1000), 1)
    client.must("aclrtMemset", address, ctypes.c_size_t(1000), 7, ctypes.c_size_t(10))
    client.must("aclrtFree", address)
    made = [text for _, text in calls.recorded()]
    assert made == ["aclrtMalloc(size=1000, policy=1)", "aclrtMemset(maxCount=1000, value=7, count=10)", "aclrtFree"]


def test_the_file(run_python: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "calls.txt"
    run_python("import acl; acl.init(); acl.rt.set_device(0); acl.rt.synchronize_device(); acl.finalize()", CANN_SIM_CALLS=str(file))
    lines = [line.split(" ", 1) for line in file.read_text().splitlines()]
    assert ["1", "aclInit"] in lines and ["1", "aclrtSynchronizeDevice"] in lines
    assert [name for _, name in lines].index("aclInit") < [name for _, name in lines].index("aclrtSynchronizeDevice")
