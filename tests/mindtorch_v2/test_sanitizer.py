"""What `make test-sanitize` relies on: every library is instrumented, and memory that the CPU's allocator keeps is poisoned."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mindtorch_v2 as torch

pytestmark = pytest.mark.skipif("libasan" not in os.environ.get("LD_PRELOAD", ""),
                                reason="a build with the address sanitizer: make test-sanitize")
PREPARE = "import ctypes, mindtorch_v2 as torch; x = torch.ones({count}); at = x.data_ptr(); "


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_core_and_kernels_are_instrumented() -> None:
    built = [file for file in sorted(Path(torch._C.__file__).parent.glob("*.so"))
             if file.name != "libmt_core.so"]        # the parts' variables: it has no code of its own
    assert len(built) > 1
    for file in built:
        content = file.read_bytes()
        assert b"__asan_report_load" in content and b"__ubsan_handle" in content, file.name


@pytest.mark.parametrize("count", [3, 300, 20000, 3_000_000])
def test_bytes_past_a_tensor_are_poisoned(count: int) -> None:
    assert run(PREPARE.format(count=count) + f"ctypes.string_at(at, {4 * count})").returncode == 0
    ended = run(PREPARE.format(count=count) + f"ctypes.string_at(at + {4 * count}, 2)")
    assert ended.returncode and "AddressSanitizer" in ended.stderr


@pytest.mark.parametrize("count", [30, 20000, 3_000_000])
def test_memory_of_a_released_tensor_is_poisoned(count: int) -> None:
    ended = run(PREPARE.format(count=count) + "del x; ctypes.string_at(at + 64, 2)")
    assert ended.returncode and "AddressSanitizer" in ended.stderr


def test_memory_that_is_used_again_is_not() -> None:
    code = "; ".join(f"y = torch.zeros({count}); y.sum(); del y" for count in (40, 33, 20000, 19000, 3_000_000, 2_900_000) * 2)
    ended = run(f"import mindtorch_v2 as torch; {code}; torch._C._cpu_empty_cache(); torch.ones(3_000_000)")
    assert ended.returncode == 0, ended.stderr
