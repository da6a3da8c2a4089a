"""Sparse tensors: masked reductions, the methods of compressed tensors alone, and functions with messages of PyTorch."""
from __future__ import annotations

import pytest
from twin import check_lines


@pytest.mark.parametrize("line", [
    "{f}(x, mask=m.to_sparse())", "{f}(x, 0, mask=m.to_sparse())", "{f}(x, 1, keepdim=True, mask=m)",
    "{f}(x.to_sparse_csr(), 0, keepdim=True, mask=m.to_sparse_csr())", "{f}(x.to_sparse_csr(), 1, keepdim=True, mask=m)",
    "{f}(x.to_sparse_csr(), (0, 1), keepdim=True, mask=m.to_sparse_csr())", "{f}(x.to_sparse_csr(), 0, mask=m)",
    "{f}(x)", "{f}(x.to_sparse_csc(), mask=m)", "{f}(x.to_sparse_csr(), keepdim=True)",
    "torch.masked.sum(x.to_dense().to_sparse(1), 1, mask=m.to_sparse(1))", "{f}(x, mask=(m & False).to_sparse())",
    "{f}(x.select(0, 1), mask=m[:, 0])"])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
def test_masked_reductions(name: str, line: str) -> None:
    given = ("import warnings; warnings.simplefilter('ignore')\nx = torch.tensor([[1., 0, 2], [0, 3, 4]]).to_sparse()\n"
             "m = torch.tensor([[True, True, False], [False, True, True]])")
    shown = "(r._indices().tolist(), r._values(), r.is_coalesced()) if r.is_sparse else (r.crow_indices(), r.col_indices(), r.values())"
    check_lines(f"{given}\nr = {line.format(f='torch.masked.' + name)}\n{shown}", message=True)


@pytest.mark.parametrize("line", [
    "(lambda y: (y, y.resize_(4, 5))[0])(x)", "x.resize_(2, 2)", "x.resize_(6)", "x.resize_(1, 3)",
    "x.clone().normal_(2, 0.0)", "(torch.manual_seed(3), torch.randn_like(x, dtype=torch.float64))[1]", "torch._sparse_csr_sum(x, 0, True)", "torch._sparse_csr_prod(x, [0, 1], True)",
    "torch.zeros_like(torch.ones(2, 3, 2).to_sparse(2), layout=torch.sparse_csr)"])
def test_methods_of_csr(line: str) -> None:
    given = "import warnings; warnings.simplefilter('ignore')\nx = torch.tensor([[1., 0, 2], [0, 3, 4]]).to_sparse_csr()"
    check_lines(f"{given}\nr = {line}\n(r.crow_indices(), r.col_indices(), r.values(), tuple(r.shape))", message=True)


@pytest.mark.parametrize("line", [
    "torch._convert_indices_from_coo_to_csr(torch.tensor([0, 0, 1, 3]), 4)",
    "torch._convert_indices_from_coo_to_csr(torch.tensor([0.5]), 4)", "torch._convert_indices_from_coo_to_csr(torch.tensor([[0]]), 4)",
    "torch._convert_indices_from_csr_to_coo(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), transpose=True, out_int32=True)",
    "torch._convert_indices_from_csr_to_coo(torch.tensor([[0, 1], [0, 1]]), torch.tensor([[0], [2]]))",
    "torch.native_norm(s, 1)", "s._sparse_mask_projection(s)._values()", "torch.tensor(s)._values()", "s.new_tensor(s).is_sparse",
    "torch.nn.functional.embedding(torch.tensor([1, 0]), s).to_dense()", "torch.zeros(2, 2, out=s.int()).dtype == torch.int32",
    "float(s)", "s.sum().float() ** 1", "s.index_select(0, torch.tensor(0))", "s.clone(memory_format=torch.preserve_format)",
    "torch.smm(s, torch.eye(2))._nnz()", "s.to_dense(dtype=torch.float64)", "s.int() ** 0.5", "torch.sparse.softmax(s.int(), 0)",
    "torch.mm(c, c.to_sparse_bsr((1, 1)))", "torch.sparse.mm(c, c.to_sparse_csc())", "torch.addmm(c, c, torch.eye(2))",
    "torch.mm(torch.eye(2), c)", "torch.triangular_solve(torch.ones(2, 1), c, upper=False)[0]",
    "type(s.requires_grad_().clone().grad_fn).__name__"])
def test_other_functions(line: str) -> None:
    given = ("import warnings; warnings.simplefilter('ignore')\ns = torch.tensor([[1., 0], [2, 3]]).to_sparse()\n"
             "c = s.to_sparse_csr()")
    check_lines(f"{given}\n{line}", message=True)
