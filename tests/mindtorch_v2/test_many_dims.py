"""Tensors of more than 64 dims: what torch computes of them and where it stops."""
from __future__ import annotations

import pytest
from twin import check_lines

MAKE = "x = torch.full([1] * 65, 2.0)\n"


@pytest.mark.parametrize("line", [
    "x.dim()", "x.unsqueeze(0).shape", "x[0].dim()", "(x + x).sum()", "x.permute(*range(65)).dim()", "x.transpose(0, 64).dim()",
    "x.expand(2, *[1] * 64).sum()", "torch.cat([x, x]).shape", "x.to(torch.float64).dim()", "x.tolist() == x.clone().tolist()",
    "x.sum()", "x.amax()", "x.mean()", "x.prod()", "torch.cumsum(x, 0).dim()", "torch.softmax(x, 3).dim()", "x.flatten()",
    "torch.where(x > 0, x, x).dim()", "x.gather(0, torch.zeros([1] * 65, dtype=torch.int64)).dim()"])
def test_computed(line: str) -> None:
    check_lines(MAKE + line)


@pytest.mark.parametrize("name", "sum mean amax amin argmax argmin all any var std logsumexp nansum prod max min "
                         "count_nonzero".split())
def test_reductions_along_a_dim_stop_at_64(name: str) -> None:
    check_lines(MAKE + f"torch.{name}(x, 0)", message=True)
    check_lines(MAKE.replace("65", "64") + f"torch.{name}(x, 0)")
