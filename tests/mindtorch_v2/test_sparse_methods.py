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


@pytest.mark.parametrize("line", [
    "s == s", "s < 1", "s % 2", "s & s", "s.exp()", "s.clamp(0)", "s[0:1]", "s[torch.tensor([0])]", "s.mean()", "torch.equal(s, s)",
    "torch.softmax(s, 0)", "c.cos()", "1 / s", "2 ** s", "s.pow_(2)", "s.repeat(2, 1)", "s.bool() + s.bool()", "1 + s",
    "torch.ones(2, 2).int().add_(s)", "torch.abs(s, out=torch.zeros(2, 2))", "torch.sparse.sum(s.to_dense())",
    "torch.sparse.softmax(s.to_dense(), 0)", "torch.bmm(s, torch.eye(2))", "torch.bmm(torch.stack([s, s]), torch.ones(3, 2, 2))",
    "torch.stack([s, s]) @ torch.ones(2, 2, 2)", "torch.cat([s, torch.sparse_coo_tensor((2, 4))])", "torch.stack([s, s.to_dense()])",
    "torch.addmm(torch.eye(2), s, s)", "torch.addmm(s, s, s)", "torch.ones((2, 2), layout=torch.sparse_coo)", "s.new_ones((2, 2))",
    "torch.zeros((2, 2), layout=torch.sparse_bsr)", "torch.sparse_coo_tensor(s, torch.ones(3), (2, 2))", "torch.sparse_coo_tensor()",
    "torch.sparse_coo_tensor(torch.ones(2, 1).long())", "torch.sparse_coo_tensor([[0]], [1], (1,), requires_grad=True)",
    "torch.sparse_coo_tensor([[0]], [1], 'x')", "s.new((2, 3))", "torch.sparse.FloatTensor(s)", "c.sparse_mask(s)",
    "s.requires_grad_().sparse_resize_((3, 3), 2, 0)", "s.sparse_resize_((1, 2), 2, 0)", "s.resize_as_sparse_(s.to_dense())",
    "torch.testing.assert_close(s, s * 2)", "torch.testing.assert_close(s, s[[0]])", "torch.testing.assert_close(c, 2 * c)",
    "c[0:1]", "c.unsqueeze(0)", "c.T", "torch.cat([c, c])", "c.reshape(4)", "c.flatten()", "c // 2", "torch.sparse.sum(c, 0)",
    "c.to_dense().to_sparse_bsr((1, 2)).to_sparse_bsc((1, 1))", "torch.sparse.sampled_addmm(c.t(), torch.eye(2), torch.eye(2))",
    "torch.testing.assert_close(s, torch.eye(2).to_sparse())", "torch.masked.softmax(s, 0)", "torch.masked.var(c, 0)",
    "torch.masked.argmax(s, 0)", "torch.masked.norm(c, 2, 0)", "torch.sparse.sampled_addmm(s, torch.eye(2), torch.eye(2))",
    "torch.sparse.mm(s, torch.eye(2), 'amax')", "torch.sparse.sampled_addmm(torch.eye(2), torch.eye(2), torch.eye(2))",
    "torch.sparse.to_sparse_semi_structured(s.to_dense())"])
def test_refusals(line: str) -> None:
    given = "import warnings; warnings.simplefilter('ignore')\ns = torch.tensor([[1., 0], [2, 3]]).to_sparse()\nc = s.to_sparse_csr()"
    shown = "(type(e).__name__, str(e).partition('. This could be')[0])"       # what follows there lists torch's own builds
    check_lines(f"{given}\ntry:\n    {line}\nexcept Exception as e:\n    shown = {shown}\nshown")


@pytest.mark.parametrize("line", [
    "u * s", "s * u", "u * u", "u * (s * 0).coalesce()", "torch.hspmm(s, torch.ones(2, 2), out=torch.sparse_coo_tensor((2, 2)))",
    "torch.view_as_real(s.to(torch.complex64))", "s.to(torch.complex64).imag", "torch._sparse_sparse_matmul(s, u)",
    "torch.sparse_coo_tensor(2)", "(s.new_zeros((2, 2), layout=torch.strided) + 1).to_sparse()", "torch.zeros(1, 1, layout=torch.sparse_coo)",
    "torch.full_like(s, 2., layout=torch.strided).to_sparse()", "torch.sparse.DoubleTensor(s._indices(), s._values())",
    "torch.ones(2, 2, 2).matmul(s).to_sparse()", "torch.full_like(s.to_sparse_csr(), 2).to_sparse()",
    "torch.ones(2, 2).to_sparse_bsr((1, 2)).to_sparse()", "torch.ones(2, 2).to_sparse_bsr((2, 1)).to_sparse()"])
def test_values_of_coo(line: str) -> None:
    given = ("import warnings; warnings.simplefilter('ignore')\ns = torch.tensor([[1., 0], [2, 3]]).to_sparse()\n"
             "u = torch.sparse_coo_tensor([[1, 0, 1], [1, 1, 1]], [1., 2., 3.], (2, 2))")
    check_lines(f"{given}\nr = {line}\n(r._indices(), r._values(), r.shape, r.is_coalesced(), r.dtype)")


@pytest.mark.parametrize("line", [
    "repr(p)", "isinstance(p, torch.nn.Parameter), p.requires_grad", "torch.save(p, f), f.seek(0), repr(torch.load(f))", "isinstance(p, torch.FloatTensor), isinstance(p, torch.sparse.FloatTensor)"])
def test_a_sparse_parameter(line: str) -> None:
    given = "import copy, io\nf = io.BytesIO()\np = torch.nn.Parameter(torch.eye(2).to_sparse())"
    check_lines(f"{given}\n({line})[-1]" if "save" in line else f"{given}\n{line}")


@pytest.mark.parametrize("line", [
    "R.to_dense(torch.float64)", "R + 2.0", "R + R.double()", "R.half() @ torch.ones(4, 2).half()", "R.to_sparse_bsr((3, 2))",
    "R.to_sparse().to_sparse_bsr((3, 2))", "D.to_sparse_bsr((0, 2))", "torch.stack([D, D]).to_sparse_csr().select(1, 0)",
    "torch.stack([D, D]).to_sparse_csr().transpose(0, 1)", "torch.stack([D, D], 2).to_sparse_csr(dense_dim=1).transpose(0, 1)",
    "torch.sparse_csr_tensor([0, 1], [0], [1.0], layout=torch.sparse_csc)", "R.to_sparse() * R", "(R * R.to_sparse()).values()",
    "torch.sparse.mm(R.to_sparse_csc(), D, 'mean')", "torch.sparse_bsr_tensor([0], [0], torch.ones(1, 1, 1), (1, 1), check_invariants=True)"])
def test_refusals_of_compressed_layouts(line: str) -> None:
    check_lines(f"D = torch.arange(16.0).reshape(4, 4) % 3\nR = D.to_sparse_csr()\n{line}", message=True)
