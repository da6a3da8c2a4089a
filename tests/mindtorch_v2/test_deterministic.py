"""torch.use_deterministic_algorithms: memory that is not set is filled, and what torch refuses on a CPU is refused."""
from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import twin

import mindtorch_v2 as mt

FILLED = ["torch.empty(3)", "torch.empty_like(torch.ones(2,dtype=torch.complex64)).real.isnan()", "torch.empty_strided((2,),(2,))",
          "torch.ones(2).new_empty(3)", "torch.Tensor(3)", "torch.empty_permuted((2,3),(1,0))", "torch.ones(2).resize_(4)",
          "torch.ones(4).resize_(2)", "torch.empty(2,device='meta').shape"]
FILLED += [f"torch.empty(3,dtype=torch.{kind})" for kind in
           "bool uint8 int8 int16 int32 int64 float16 bfloat16 float64 uint16 uint32".split()]
FILLED += [f"torch.ones(1,dtype=torch.{kind}).resize_(3)" for kind in "bool int8 int64 float16 bfloat16 float64".split()]
REFUSED = ["torch.nn.MaxUnpool2d(2)(torch.ones(1,1,2,2),torch.zeros(1,1,2,2,dtype=torch.long))",
           "torch.nn.MaxUnpool1d(2)(torch.ones(1,1,2),torch.tensor([[[0,2]]]))",
           "torch.nn.MaxUnpool3d(2)(torch.ones(1,1,2,2,2),torch.zeros(1,1,2,2,2,dtype=torch.long))"]


@pytest.fixture
def _deterministic() -> Iterator[None]:
    for lib in (mt, torch):
        lib.use_deterministic_algorithms(True)
    yield
    for lib in (mt, torch):
        lib.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("line", FILLED)
def test_memory_that_is_not_set_is_filled(line: str) -> None:
    twin.check_lines(line)


@pytest.mark.usefixtures("_deterministic")
@pytest.mark.parametrize("line", REFUSED)
def test_ops_that_depend_on_the_order_of_writes_are_refused(line: str) -> None:
    twin.check_lines(line, message=True)


@pytest.mark.parametrize("line", ["torch.use_deterministic_algorithms(1)", "torch.set_deterministic_debug_mode(3)",
                                  "torch.set_deterministic_debug_mode('x')", "torch.utils.deterministic.fill_uninitialized_memory"])
def test_settings(line: str) -> None:
    twin.check_lines("import torch.utils.deterministic\n" + line, message=True)


def test_filling_can_be_switched_off() -> None:
    mt.use_deterministic_algorithms(True)
    try:
        mt.utils.deterministic.fill_uninitialized_memory = False
        mt.full((64,), 3.0)
        assert not mt.empty(64).isnan().all()
        with pytest.raises(RuntimeError, match="expected a bool, but got int"):
            mt.utils.deterministic.fill_uninitialized_memory = 1
    finally:
        mt.utils.deterministic.fill_uninitialized_memory = True
        mt.use_deterministic_algorithms(False)
    assert not mt.empty(64).isnan().all()
