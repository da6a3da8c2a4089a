"""A C++ client, compiled over the headers: threads, streams, events, memory and graphs at once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import cann_sim

COMPILER = shutil.which(os.environ.get("CXX", "g++"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not COMPILER:
        pytest.skip("there is no C++ compiler")
    made = tmp_path_factory.mktemp("client") / "client"
    flags = cann_sim.compile_flags() + cann_sim.link_flags()
    command = [COMPILER, "-std=c++17", "-O1", Path(__file__).parent / "client.cpp", *flags, "-lpthread", "-o", made]
    subprocess.run(command, check=True)
    return made


@pytest.mark.parametrize(
    "settings",
    [{}, {"CANN_SIM_STRICT": "1"}, *({"CANN_SIM_MODE": "delay", "CANN_SIM_SEED": str(seed)} for seed in range(4))],
    ids=str,
)
def test_everything_at_once(client: Path, settings: dict[str, str]) -> None:
    done = subprocess.run([client, "10"], env=os.environ | settings, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # nothing leaked either: strict mode would say so


def test_the_cost_of_queueing_is_measured(client: Path) -> None:
    """`client bench` prints what a task costs the host; no bound is held here, machines are noisy."""
    text = subprocess.run(
        [client, "bench"], env=os.environ | {"CANN_SIM_MODE": "null"}, capture_output=True, text=True, check=True
    ).stdout
    assert float(text.split("one task: ")[1].split()[0]) > 0, text
