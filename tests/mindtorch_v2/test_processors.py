"""How many threads a process starts with: the environment, the affinity mask, and the limits of control groups."""
from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NO_LIMIT = 2**31 - 1


def threads(**environ: str) -> int:
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    program = "import mindtorch_v2 as torch; print(torch.get_num_threads())"
    return int(subprocess.run([sys.executable, "-c", program], env=kept | environ, capture_output=True, text=True,
                              check=True).stdout)


def test_the_environment_decides():
    allowed = len(os.sched_getaffinity(0))
    assert threads() <= allowed
    assert threads(OMP_NUM_THREADS="3") == 3
    assert threads(OMP_NUM_THREADS="5,2") == 5
    assert threads(OMP_NUM_THREADS="3", MKL_NUM_THREADS="7") == 7
    assert threads(OMP_NUM_THREADS="none") <= allowed and threads(OMP_NUM_THREADS="-1") <= allowed


@pytest.fixture(scope="module")
def limit(tmp_path_factory):
    """cgroup_processors() of csrc/kernels/processors.h, for a file system below another root."""
    folder = tmp_path_factory.mktemp("processors")
    (folder / "limit.cpp").write_text(
        '#include "processors.h"\nextern "C" int limit(const char* root) { return mt::cgroup_processors(root); }\n')
    library = folder / "limit.so"
    subprocess.run([os.environ.get("CXX", "g++"), "-std=c++17", "-shared", "-fPIC", f"-I{ROOT / 'csrc' / 'kernels'}",
                    folder / "limit.cpp", "-o", library], check=True)
    return ctypes.CDLL(str(library)).limit


@pytest.mark.parametrize("files, expected", [
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, NO_LIMIT),
    ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
      "sys/fs/cgroup/a/cpu.max": "400000 100000\n"}, 4),
    ({"proc/self/cgroup": "0::/not/seen/here\n", "sys/fs/cgroup/cpu.max": "300000 100000\n"}, 3),
    ({"proc/self/cgroup": "5:cpuset:/x\n4:cpu,cpuacct:/docker/1\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ({"proc/self/cgroup": "4:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, NO_LIMIT),
    ({"proc/self/cgroup": "what\n:::\n0::\n", "sys/fs/cgroup/cpu.max": "is this\n"}, NO_LIMIT),
    ({}, NO_LIMIT),
])
def test_quotas_of_control_groups(limit, tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert limit(str(tmp_path).encode()) == expected
