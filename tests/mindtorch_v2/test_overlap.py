"""What out= and in-place ops may share memory with: torch refuses the rest."""
from __future__ import annotations

import pytest
import twin

import mindtorch_v2 as mt

SHARED = """torch.cat([x[:3],x[:3]],out=x)|torch.cat([x[:3],y[:3]],out=y[3:].repeat(2))|torch.stack([x[:3],x[:3]],out=x.view(2,3))
torch.gather(x[:3],0,i,out=x[:3])|torch.gather(x[:3],0,i,out=x[2:5])|torch.gather(j,0,i,out=i)|torch.gather(x[:3],0,i,out=x[3:])
torch.take(x,i,out=x[:3])|torch.masked_select(x,x>-9,out=x)|torch.masked_select(m,m,out=m)|torch.index_select(x,0,i,out=x[1:4])
torch.kthvalue(x.view(2,3),1,out=(x[:2],j[:2]))|torch.scatter(x,0,i,1.,out=x)|torch.scatter_add(y,0,i,x[:3],out=x)
torch.index_add(y,0,i,x[:3],out=x)|torch.index_copy(x,0,i,y[:3],out=x)|x.scatter_(0,i,x[1:4])|j.scatter_(0,j,j.clone())
x.index_add_(0,i,x[:3])|x.copy_(x.flip(0))|torch.add(x[1:],1,out=x[:-1])|torch.add(x,1,out=x)|torch.cat([x,y],out=x.new_empty(0))"""


@pytest.mark.parametrize("call", SHARED.replace("\n", "|").split("|"))
def test_memory_that_is_read_and_written(call: str) -> None:
    twin.check_lines(f"x=torch.arange(6.)\ny=torch.ones(6)\ni=torch.tensor([0,1,2])\nj=torch.tensor([2,1,0])\nm=torch.ones(3)>0\n{call}",
               message=True)


@pytest.mark.parametrize("call", [
    "torch.where(torch.tensor([1,0]),1,2)", "torch.where(torch.tensor([1.,0.]),torch.ones(2),torch.zeros(2))",
    "torch.all(torch.ones(2),0,out=torch.empty(1))", "torch.any(torch.ones(2),0,out=torch.empty((),dtype=torch.uint8))",
    "torch.broadcast_shapes((2,),(3,))", "torch.broadcast_shapes((-1,),(3,))", "torch.isin(1,1).shape",
    "torch.nonzero(torch.eye(2),as_tuple=True)",
    "torch.nn.functional.fractional_max_pool2d(torch.ones(1,1,4,4),2,2,_random_samples=torch.ones(1,1,2).double())"])
def test_arguments_that_an_op_does_not_take(call: str) -> None:
    twin.check_lines(call, message="isin" not in call)


def test_range_is_deprecated() -> None:
    with pytest.warns(UserWarning, match="torch.range is deprecated"):
        assert mt.range(0, 2).tolist() == [0, 1, 2]
