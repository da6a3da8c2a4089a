"""torch.masked.MaskedTensor: what is made, printed, computed, differentiated and refused, as in torch."""
from __future__ import annotations

import pytest
from twin import check_lines, outcome, same

import mindtorch_v2 as mt

MAKE = """
make, keep = torch.masked.masked_tensor, torch.masked.as_masked_tensor
data, mask = torch.arange(6.0).reshape(2, 3), torch.tensor([[True, False, True], [False, False, True]])
m, n = make(data, mask, requires_grad=True), make(data + 1, mask)
r = repr
"""


@pytest.mark.parametrize("line", [
    "r(m)", "r(make(torch.arange(3), torch.tensor([True, False, True])))", "r(make(torch.tensor(3.0), torch.tensor(True)))",
    "r(make(torch.tensor(3), torch.tensor(False)))", "r(make(data.bool(), mask))", "(m.shape, m.dtype, m.layout, m.requires_grad)",
    "r(m.get_mask())", "m.get_data()", "m.to_tensor(7.0)", "r(keep(data, mask))", "torch.masked.is_masked_tensor(m)",
    "m[0, 0].item()", "m[0, 1].item()", "m.is_contiguous()", "r(m.contiguous())", "r(torch.ones_like(m))"])
def test_what_it_is(line: str) -> None:
    check_lines(MAKE + line)


@pytest.mark.parametrize("line", [
    "make([1.0], mask)", "make(data, [True])", "make(m, mask)", "make(data, n)", "make(data, mask.int())", "make(data[0], mask)",
    "make(data[:, :2], mask)", "make(data.to(torch.complex64), mask)", "make(data, mask.to_sparse())",
    "make(data.to_sparse_csc(), mask.to_sparse_csc())",
    "m + make(data, ~mask)", "make(data.unsqueeze(0), "
    "mask.unsqueeze(0)).to_sparse_csr()"])
def test_refusals(line: str) -> None:
    check_lines(MAKE + line, message=True)


@pytest.mark.parametrize("line", [
    "r(n.square())", "r(2 / n)", "r(torch.isclose(n, n))", "r(n.data)", "r(m.sin())", "r(m.clamp(1, 2))", "r(-n)", "r(n.exp_())", "r(n.add_(1))", "r(m + n)", "r(m * 2)", "r(m / n)", "r(m < n)", "r(m == n)",
    "r(m + torch.ones(2, 3))", "r(torch.ones(2, 3) - m)", "r(torch.maximum(m, n))", "r(m ** 2)", "r(m.to(torch.float64))",
    "r(m.clone())", "r(m.transpose(0, 1))", "r(m[:, 1:])", "r(m.view(6))", "r(m.expand(2, 2, 3))", "r(torch.cat([m, n]))",
    "r(torch.stack([m, n]))", "r(m.split(1))", "r(torch.softmax(m, 1))", "r(torch.where(mask, m, n))", "r(m.to_sparse_coo())",
    "r(m.to_sparse_csr().to_dense())", "r(m.to_sparse_csr() + m.to_sparse_csr())", "r(m.to_sparse_coo().sin())"])
def test_ops(line: str) -> None:
    check_lines(MAKE + line)


@pytest.mark.parametrize("name", ["sum", "mean", "amin", "amax", "argmin", "argmax", "prod", "var", "std"])
def test_reductions_and_their_gradients(name: str) -> None:
    check_lines(MAKE + f"[r(x) for x in (m.{name}(), m.{name}(0), torch.{name}(m, dim=1, keepdim=True), "
                f"torch.masked.{name}(m).detach())]")
    check_lines(MAKE + f"[r(m.to_sparse_coo().{name}())]")
    if not name.startswith("arg"):
        check_lines(MAKE + f"m.{name}(1).sum().backward()\nr(m.grad)")


@pytest.mark.parametrize("line", ["(m.sin() * 2).sum()", "m[0].sum()", "m[:, 1:].sum()", "(m * n).mean()", "m.to_sparse_coo().to_dense().sum()",
                                  "torch.masked.norm(m)", "(torch.softmax(m, 1) * n).sum()", "torch.where(mask, m, n).sum()"])
def test_gradients(line: str) -> None:
    check_lines(MAKE + f"({line}).backward()\nr(m.grad)")


def test_history_of_the_data() -> None:
    check_lines(MAKE + "d = torch.arange(3.0, requires_grad=True)\n"
                "x = keep(d, torch.tensor([True, False, True]))\nx.sum().backward()\n(x.is_leaf, x.requires_grad, repr(d.grad))")


def test_each_name_of_the_tables_is_an_op() -> None:
    tables = mt.masked.maskedtensor
    same([f.overloads() != [] for f in tables.unary.NATIVE_UNARY_FNS + tables.binary.NATIVE_INPLACE_BINARY_FNS],
         [True] * (len(tables.unary.UNARY_NAMES) + len(tables.binary.INPLACE_BINARY_NAMES)))


def test_a_warning_says_that_it_is_a_prototype() -> None:
    def body(t: object) -> str:
        with pytest.warns(UserWarning, match="prototype stage"):
            t.masked.masked_tensor(t.ones(2), t.ones(2).bool())         # type: ignore[attr-defined]
        return "warned"
    same(outcome(mt, body), "warned")
