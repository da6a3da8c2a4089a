"""torch_npu.testing.common_distributed: tests of several ranks, with HCCL where there is an npu for each, else with gloo."""
from __future__ import annotations

import functools
import unittest
from collections.abc import Callable
from typing import Any, NamedTuple

import mindtorch_v2 as torch


class TestSkip(NamedTuple):
    """How a process of a test that cannot run ends."""
    exit_code: int
    message: str


TestSkip.__test__ = False                        # type: ignore[attr-defined]  # a name of torch_npu's that pytest would collect
TEST_SKIPS = {
    "multi-npu": TestSkip(75, "Multi-NPU condition not satisfied"),
    **{f"multi-npu-{n}": TestSkip(75, f"Need at least {n} ASCEND devices") for n in range(1, 9)},
    "hccl": TestSkip(76, "c10d not compiled with HCCL support"),
    "known_issues": TestSkip(77, "Test skipped due to known issues"),
}


def _has_npus(count: int) -> bool:
    return torch.npu.is_available() and torch.npu.device_count() >= count


def skipIfUnsupportMultiNPU(npu_number_needed: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Skips a test where there are fewer npus."""
    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not _has_npus(npu_number_needed):
                raise unittest.SkipTest(f"Multi-NPU {npu_number_needed} condition not satisfied")
            return func(*args, **kwargs)
        return run
    return decorate


def init_pg(backend: str = "hccl", world_size: int = 1, rank: int = 0, file_name: str = "file://") -> None:
    """Joins the group of a test by a file."""
    if backend not in ("hccl", "gloo"):
        raise RuntimeError(f"Backend {backend} not supported!")
    if backend == "hccl" and not _has_npus(world_size):
        raise RuntimeError(f"Need at least {world_size} ASCEND devices")
    if backend == "hccl":
        torch.npu.set_device(rank)
    torch.distributed.init_process_group(backend=backend, world_size=world_size, rank=rank, init_method=f"file://{file_name}")


def with_comms(func: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a method of a test of several ranks in its group: self has world_size, rank, file_name and destroy_pg()."""
    @functools.wraps(func)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        init_pg("hccl" if _has_npus(self.world_size) else "gloo", self.world_size, self.rank, self.file_name)
        torch.manual_seed(0)
        func(self, *args, **kwargs)
        self.destroy_pg()
    return run
