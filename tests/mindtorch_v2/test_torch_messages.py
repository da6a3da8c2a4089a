"""What torch says of calls that are wrong or deprecated, word for word: its own tests look for these words."""
from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from twin import check_lines, run_lines

import mindtorch_v2 as mt


@pytest.mark.parametrize("line", [
    "torch.nn.functional.silu(torch.tensor([1j], requires_grad=True))", "torch.ones(2).int().round(decimals=0)",
    "torch.nn.functional.embedding(torch.tensor([0]), torch.ones(2, 2, dtype=torch.complex64, requires_grad=True))",
    "torch.zeros(3, dtype=torch.complex64).index_reduce(0, torch.tensor([0]), torch.ones(1, dtype=torch.complex64), 'prod')",
    "torch.sparse.mm(torch.eye(3).int().to_sparse_csr(), torch.ones(3, 2).int(), 'sum')",
    "torch.sparse.sampled_addmm(torch.eye(2).to_sparse_csr(), torch.ones(2, 2, requires_grad=True), torch.ones(2, 2), "
    "out=torch.eye(2).to_sparse_csr())",
    "torch.cat((None,))", "torch.stack([torch.ones(2), None])", "torch.tensor([1j]).abs_()", "torch.sign(torch.tensor([1j]))", "torch.signbit(torch.tensor([1j]))",
    "torch.floor(torch.tensor([1j]))", "torch.ceil(torch.tensor([1j]))", "torch.trunc(torch.tensor([1j]))",
    "torch._check(1)", "torch._check_with(IndexError, False, lambda: 'x')", "torch.iinfo(torch.bool)",
    "torch.ones(1, 1).dim_order(ambiguity_check=True)", "torch.ones(2, 3).dim_order(ambiguity_check='x')",
    "torch.heaviside(torch.ones(2), torch.ones(2).int())", "torch.optim.SparseAdam([torch.ones(2, dtype=torch.complex64)])",
    "torch.ones(2, 3)[::0]", "torch.ones(2, 3)[::-1]", "torch.ones(2, 3).__setitem__(0, torch.ones(2))",
    "torch.asarray([1, 2], copy=False)", "torch.asarray(torch.ones(2), dtype=torch.int32, copy=False)",
    "torch.asarray(torch.ones(2), device='meta', copy=False)", "torch.cartesian_prod(torch.ones(2, 2))", "torch.compile(1)",
    "torch.Generator().manual_seed(1.5)", "torch.manual_seed(2 ** 70)", "torch.set_num_threads('a')", "torch.device('cpu', -2)",
    "torch.is_floating_point(1)", "torch.is_complex(1)", "torch.numel(1)", "torch.finfo(torch.int32)", "torch.iinfo(torch.float32)",
    "torch.Size([1.5])", "torch.ones(2, 3, 4).H", "torch.einsum('ij,jk->ik', torch.ones(2, 3), torch.ones(2, 3))",
    "torch.std(torch.ones(2).long())", "torch.broadcast_tensors(torch.ones(2), torch.ones(3))",
    "torch.nn.functional.local_response_norm(torch.ones(2, 3), 2)", "torch.nn.utils.rnn.PackedSequence(torch.ones(3))",
    "torch.narrow(torch.ones(3), 0, torch.tensor(0.5), 1)", "torch.multinomial(torch.ones(4), 2, out=torch.empty(2))",
    "torch.complex(torch.ones(2), torch.ones(2), out=torch.empty(2, dtype=torch.complex128))",
    "torch.nn.functional.nll_loss(torch.ones(3, 4), torch.tensor([0, 1, 2]), weight=torch.ones(4, dtype=torch.float64))",
    "torch.select_scatter(torch.ones(2, 2, dtype=torch.complex64, requires_grad=True), torch.ones(2, dtype=torch.complex64), 0, 0)",
    "torch.nn.functional.max_pool3d(torch.ones(0, 1, 2, 10), 2)", "torch.triu_indices(2, 2, dtype=torch.float32)",
    "torch.histogramdd(torch.ones(3, 2, dtype=torch.float16), [2, 2])", "torch.histogram(torch.ones(3).half(), 2)",
    "torch.clamp(torch.ones(3), torch.ones(3), 1.0)", "torch.hash_tensor(torch.arange(3), mode=1)",
    "torch.hash_tensor(torch.ones(0, 3), (-2, 0))", "torch.cdist(torch.ones(3).half(), torch.ones(3).half())",
    "torch.cdist(torch.ones(3, 2).half(), torch.ones(3, 2).half())", "torch.nn.functional.glu(torch.tensor(1))",
    "torch.nn.functional.glu(torch.ones(4).int())", "torch.histc(torch.ones(3).half(), 3, max=2 ** 63)",
    "torch.segment_reduce(torch.arange(3), 'bad', indices=torch.tensor([0]))",
    "torch.segment_reduce(torch.arange(3), 'sum', lengths=torch.tensor([3]))",
    "torch.nn.functional.multi_margin_loss(torch.ones(2, 3).half(), torch.tensor([0, 1]), p=3)",
    "torch.ones(3, dtype=torch.complex64).index_reduce(0, torch.tensor([0]), torch.ones(1), 'amax')",
    "torch.ones(3, dtype=torch.complex64).scatter_reduce(0, torch.tensor([0]), torch.ones(1), 'amax')",
    "torch.nn.functional.cross_entropy(torch.ones(2, 3).byte(), torch.tensor([0, 1]).int())"])
def test_errors(line: str) -> None:
    check_lines(line, message=True)


MATRIX = "M = torch.eye(3, dtype=torch.float64)\n"


@pytest.mark.parametrize("line", [
    "torch.linalg.eigvals(M[:2])", "torch.linalg.eig(M.long())", "torch.linalg.lu(M[0])", "torch.linalg.pinv(M[0])",
    "torch.linalg.pinv(M.long())", "torch.linalg.matrix_rank(M.half())", "torch.linalg.cond(M[0])", "torch.linalg.cond(M, 3)",
    "torch.matrix_exp(M.long())", "torch.logdet(M[:2])", "torch.svd(M[0])", "torch.geqrf(M[0])",
    "torch.linalg.cond(M, out=torch.empty((), dtype=torch.int64))", "torch.linalg.cond(M, out=torch.empty(()))",
    "torch.linalg.pinv(M, out=torch.empty(3, 3, dtype=torch.int64))", "torch.linalg.matrix_norm(M, out=torch.empty(()))",
    "torch.linalg.vecdot(M, M, out=torch.empty(3))", "torch.linalg.tensorinv(M, 1, out=torch.empty(3, 3, dtype=torch.int64))",
    "torch.linalg.multi_dot([M, M], out=torch.empty(3, 3))", "torch.linalg.multi_dot([M, M.float()])",
    "torch.linalg.eigvals(M, out=torch.empty(3))", "torch.cholesky_inverse(M, out=torch.empty(3, 3, dtype=torch.int64))",
    "torch.cholesky_solve(M, M, out=torch.empty(3, 3))", "torch.linalg.matrix_power(M, 2, out=torch.empty(3, 3))",
    "torch.inner(M, M, out=torch.empty(3, 3))", "torch.inner(M, M.float())", "torch.mv(M[0], M[0])", "torch.mv(M, M[0].float())",
    "torch.addmm(M.float(), M, M)", "torch.addmv(M[0], M, M[0].float())", "torch.baddbmm(M.float(), M[None], M[None])",
    "torch.addbmm(M, M[None], M[None].expand(2, 3, 3))", "torch.outer(M[0], M)", "torch.matmul(torch.tensor(1.), M)",
    "torch.matmul(M, M[0].float())", "torch.einsum('ij->i..', M)", "torch.linalg.vector_norm(M, dtype=torch.complex128)",
    "torch.linalg.cholesky_ex(M * float('nan'))[1]", "torch._int_mm(M.float(), M.float())",
    "torch.neg(M, out=torch.empty(3, 3))", "torch.abs(M.long(), out=torch.empty(3, 3))", "torch.floor(M, out=M.float())",
    "torch.nan_to_num(M, out=torch.empty(3, 3))", "torch.float_power(M, 2, out=torch.empty(3, 3))", "M.float().float_power_(2)",
    "torch._refs.T(M[None])", "torch._refs.T(M[:2])",
    "import warnings\nwith warnings.catch_warnings(record=True) as seen:\n    warnings.simplefilter('always')\n"
    "    r = torch.tensordot(M, M, 1, out=M[0].clone())\n(r, len(seen))",
    "torch.lerp(M, M.float(), 0.5)", "pow(M, 2, 3)", "torch.linspace(torch.tensor(0., device='meta'), 1, 3, device='meta').shape"])
def test_matrices_and_out(line: str) -> None:
    check_lines(MATRIX + line, message=True)


@pytest.mark.parametrize("line", [
    "torch.arange(0, 1, 0.1, dtype=torch.int64)", "torch.range(0, float('nan'))", "torch.range(5, 0)", "torch.range(1)",
    "torch.zeros(1, dtype=torch.int32, requires_grad=True)", "torch.ones(1).int().requires_grad_()",
    "torch.from_numpy(np.zeros(1)[0])", "torch.narrow(torch.ones(3), 0, torch.tensor([0]), 1)",
    "torch.narrow_copy(torch.ones(2), -4, 0, 0)", "m = torch.tensor([True, False])\ntorch.masked_select(m.clone(), m, out=m)",
    "i = torch.arange(3)\ntorch.gather(i.clone(), 0, i[1:], out=i[:1])", "torch.asarray(np.arange(3), dtype=torch.float32, copy=False)",
    "torch.frombuffer([1], dtype=torch.uint8)", "torch.frombuffer(bytearray(b'ab'), dtype=torch.uint8, count=0)",
    "torch.randperm(-1)", "torch.randperm(5, dtype=torch.bool)", "torch.vander(torch.arange(3), -1)", "torch.block_diag(1)",
    "torch.column_stack(())", "torch.linspace(torch.tensor([0.]), 10, 5)", "torch.ones(2, 1, 1).squeeze((1, 1))",
    "torch.ones(2).size('a')", "torch.ones(2, 3)[0, 5]", "torch.ones(2, 3)[None, 0, 5]", "torch.arange(5, dtype=torch.uint16)",
    "torch.cat((torch.ones(1), torch.ones(1)), out=torch.empty(2, dtype=torch.int64))",
    "torch.sum(torch.ones(2), 0, dtype=torch.float64, out=torch.empty(()))", "torch.max(torch.ones(2), 0, out=(torch.empty(()),))",
    "torch.where(torch.tensor([True]), torch.tensor([1]), torch.tensor([2]), out=torch.empty(1))",
    "torch.isneginf(torch.ones(1), out=torch.empty(1))", "torch.nonzero(torch.ones(1), out=torch.empty(0))",
    "torch.searchsorted(torch.tensor([1, 3]), torch.tensor([2]), out=torch.empty(1))",
    "torch.quantile(torch.ones(2), 0.5, out=torch.empty((), dtype=torch.float64))",
    "torch.frexp(torch.ones(1), out=(torch.empty(1), torch.empty(1)))", "torch.unique(torch.ones(0, 2), dim=1)",
    "torch.logsumexp(torch.ones(2), 0, out=torch.empty((), dtype=torch.int64))", "torch.argmax(torch.ones(0))",
    "torch.aminmax(torch.ones(0, 3), dim=0)", "torch.linalg.vector_norm(torch.ones(0, 2), float('inf'), 0)",
    "torch.linalg.vector_norm(torch.tensor([1j]), dtype=torch.float32)", "torch.norm(torch.ones(2, 3), 'fro', dim=(0, 1, 2))",
    "torch.dist(torch.tensor([1]), torch.tensor([2]))", "torch.cumulative_trapezoid(torch.tensor([True, False]))",
    "torch.cumulative_trapezoid(torch.ones(3), torch.ones(2))", "torch.diff(torch.ones(2, 3), prepend=torch.ones(3, 3))",
    "torch.gradient(torch.ones(3, 3), spacing=(1.,))", "torch.topk(torch.tensor([True]), 1)", "torch.bucketize(torch.ones(1), torch.ones(()))",
    "torch.index_add(torch.zeros(3), 0, torch.tensor([0, 0]), torch.tensor([1, 2]))",
    "torch.index_copy(torch.zeros(3, 2), 0, torch.tensor([0, 1]), torch.ones(2, 3))",
    "torch.index_reduce(torch.ones(3), 0, torch.tensor([0]), torch.ones(1), 'sum')",
    "torch.masked_fill(torch.ones(2), torch.tensor([1, 0]), 5)", "torch.nonzero_static(torch.ones(1), size=-1)",
    "torch.masked_scatter(torch.ones(2), torch.tensor([True, True]), torch.tensor([9, 8]))",
    "torch.ones(1).bool().abs()", "torch.tensor([1.]) << 1", "torch.tensor([1j]) < 1", "torch.tensor([1j]) // 2", "torch.ones(1).bool().floor()",
    "torch.nn.functional.gelu(torch.tensor([1]))", "torch.special.entr(torch.tensor([1j]))", "torch.mode(torch.tensor([1j]))",
    "torch.addmm(torch.ones(3), torch.ones(2, 3), torch.ones(3, 2))", "torch.addr(torch.ones(2, 2), torch.ones(2), torch.ones(3))",
    "torch.addmv(torch.ones(3), torch.ones(2, 3), torch.ones(3))", "torch.einsum('i', torch.ones(2, 3))", "torch.einsum('ii->i', torch.ones(2, 3))",
    "torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 4, 2).double())", "torch.linalg.cond(torch.ones(2, 3), 1)",
    "torch.linalg.lu_factor(torch.ones(2))", "torch.add(torch.ones(1), 'a')", "torch.sum(torch.ones(2), 0, dtype=torch.float64, out=torch.ones(()))",
    "torch.tensordot(torch.eye(2), torch.eye(2), 1, out=torch.empty(2, 2, dtype=torch.int64))", "torch.narrow_copy(torch.ones(3), 0, 0, -1)",
    "torch.cdist(torch.tensor([[1, 2]]), torch.tensor([[1, 2]]))"])
def test_errors_of_creation_reductions_and_indexing(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("line", [
    "torch.nonzero(torch.tensor([[0, 1], [2, 0]]))", "torch.argwhere(torch.ones(2, 3)).stride()",
    "torch.nonzero_static(torch.ones(2, 3), size=4).stride()", "torch.unravel_index(torch.tensor([5, 1]), (2, 3))", "torch.unravel_index(torch.tensor([]).long(), ())",
    "torch.range(0.5, 3, dtype=torch.int64)", "torch.ones(2).add_(2, torch.arange(2.))", "torch.sub(torch.ones(2), 2, torch.ones(2))",
    "torch.addmm(2, torch.ones(2, 2), 3, torch.eye(2), torch.ones(2, 2))", "torch.ones(2).addmv(2, torch.eye(2), torch.ones(2))",
    "torch.ones(1, 2, 2).baddbmm_(2, 3, torch.ones(1, 2, 2), torch.ones(1, 2, 2))", "x = torch.empty(3)\ntorch.zeros(2, out=x)\nx"])
def test_strides_and_shapes(line: str) -> None:
    check_lines(line)


@pytest.mark.parametrize("line", [
    "torch.ones(3, dtype=torch.chalf).sum()", "torch.nn.functional.pad(torch.ones(1, 2, 3, dtype=torch.bool), (1, 1), mode='reflect')",
    "torch.nn.functional.avg_pool3d(torch.ones(1, 2, 3, 4, 5, dtype=torch.float16), 1)", "torch.eye(2, dtype=torch.chalf)",
    "torch.nn.functional.interpolate(torch.ones(1, 2, 3, dtype=torch.uint8), 4, mode='linear')",
    "torch.segment_reduce(torch.ones(4, dtype=torch.int64), 'sum', lengths=torch.tensor([2, 2]))",
    "torch.nn.functional.adaptive_avg_pool2d(torch.ones(1, 2, 3, 4, dtype=torch.int64), 2)",
    "torch.ones(2, 2, dtype=torch.chalf).gather(0, torch.zeros(2, 2, dtype=torch.int64))",
    "torch.nn.functional.prelu(torch.arange(3), torch.arange(1))",
    "torch.clamp(torch.tensor([True]), torch.tensor([False]), torch.tensor([True]))"])
def test_dtypes_without_a_kernel(line: str) -> None:
    check_lines(line)


@pytest.mark.parametrize("line", [
    "torch.tensor(torch.ones(2))", "torch.ones(2, 3)[torch.ones(2, 3).byte()]", "torch.asarray(torch.ones(2, requires_grad=True))",
    "torch.nn.Linear(1, 1).register_full_backward_hook(lambda m, i, o: None) and None",
    "torch.add(torch.ones(1), 1, out=torch.empty(2))", "torch.zeros(2, out=torch.ones(3))", "torch.eye(2, out=torch.empty(3))",
    "torch.arange(5, out=torch.empty(2))", "torch.linspace(0, 1, 3, out=torch.empty(2))",
    "torch.ones(4).expand(3, 4).masked_fill_(torch.ones(4).bool(), 2)"])
def test_warnings(line: str) -> None:
    def said(library: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            eval(line, {"torch": library})
        return [str(w.message).partition(" (Triggered internally")[0] for w in caught]
    assert said(mt) == said(torch)


def test_hooks_of_modules_warn_where_they_see_less() -> None:
    def said(library: Any, kind: str) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            layer = library.nn.Linear(1, 1)
            getattr(layer, kind)(lambda module, given, results: None)
            layer(library.ones(1, 1)).sum().backward()
        return [f"{w.category.__name__}: {w.message}" for w in caught if "deprecated" in str(w.message) or "firing" in str(w.message)]
    for kind in ("register_full_backward_hook", "register_backward_hook"):
        assert said(mt, kind) == said(torch, kind) != []


def test_requires_grad_of_asarray() -> None:
    lines = "x = torch.ones(2, requires_grad=True)\n[torch.asarray(x, **k).requires_grad for k in ({}, {'copy': True}, " \
            "{'requires_grad': False}, {'requires_grad': True}, {'dtype': torch.float64})] + [torch.asarray(x) is x]"
    assert run_lines(lines, mt) == run_lines(lines, torch)


@pytest.mark.parametrize("line", [
    "torch.nn.functional.avg_pool1d(x[0, 0], 2, None)", "torch.nn.functional.avg_pool2d(x, 2, stride=None)",
    "torch.nn.functional.avg_pool3d(x, 1, None)", "torch.max_pool2d(x, 2, None)", "torch.max_pool3d(x, 1, stride=None)",
    "torch.amax(x, None)", "x.amin(dim=None, keepdim=True)", "torch.roll(x, 3, None)", "torch.hash_tensor(x, None)",
    "torch.clamp(x, 3, torch.tensor(5))", "torch.clamp(x, torch.tensor(3.0), 5)",
    "torch.histogram(x.half(), 3, range=(0, 24))", "torch.histogramdd(x.half().reshape(-1, 1), [torch.tensor([0.0, 5]).half()])",
    "torch.cdist(x[0, 0].half(), x[0, 0].half(), compute_mode='use_mm_for_euclid_dist').dtype"])
def test_none_for_an_empty_list_and_scalars_for_numbers(line: str) -> None:
    check_lines("x = torch.arange(24.0).reshape(1, 2, 3, 4)\n" + line)


INDEXED = """x[torch.tensor([1])] = torch.tensor([9])|x[[0]] = torch.tensor(9)|x[0, torch.tensor([0])] = torch.tensor(1.).double()
x[x > 3] = torch.tensor(9)|x[(x > 3).byte()] = 7.|x[torch.tensor([1, 0]).byte()] = torch.zeros(3, 4)|x[True] = torch.zeros(9)
x[True] = x|x[None] = x|x[0] = torch.zeros(2, 3, 4)|x[0, 0, 0] = torch.zeros(2)|x[0] = torch.tensor(1j)|x[{0}]|x[object()]|x[1j]
x[[1j]]|x[[1.9]]|x[0, 0, 0][:]|x[0, 0, 0][0:1] = 1|x[0, 0, 0][-1]|x[0, 0, 0][0] = 1|x[0, 0, 0][::-1]|x[torch.tensor(.5):]
x[torch.tensor([0, 1]):]|x[torch.Size([0, 1])]|x.requires_grad_()[:10**20]|x[torch.tensor(1).byte()]|x[:, True]|x[0.5:]
x.cumsum(dim=True)|torch.zeros(True)|torch.zeros(np.int64(2), np.int64(1))|x.resize_()|x.resize_(2, 3, memory_format=torch.channels_last)
x.resize_(1, 2, 3, 4, memory_format=torch.channels_last)|x.data = torch.ones(2, device="meta")|x.grad = torch.ones(2, 3, 4).double()
x.set_(torch.zeros(2, device="meta"))|x += "a"|torch.ones(3).mH|torch.clamp(torch.tensor([1j]), torch.tensor(1.))""".replace(
    "\n", "|").split("|")


@pytest.mark.parametrize("line", INDEXED)
def test_indices_and_other_memory(line: str) -> None:
    value = "" if " = " in line or " += " in line else "r = "
    check_lines(f"x = torch.arange(24.).reshape(2, 3, 4)\nr = 0\n{value}{line}\nx, r", message=True)


def test_expanded_tensors_warn() -> None:
    for line, word in (("index_fill_(0, torch.tensor([0]), 2)", r"tensor\[mask\] = scalar"),
                       ("index_put_((torch.tensor([0]),), torch.ones(1))", r"tensor\[indices\] = tensor")):
        with pytest.warns(UserWarning, match=word):
            eval(f"mt.zeros(1).expand(4).{line}", {"mt": mt, "torch": mt})


@pytest.mark.parametrize("index", ["[[0, 1], [1, 2]]", "[0, slice(None)]", "[None, 0]"])
def test_sequences_that_stand_for_tuples_warn(index: str) -> None:
    with pytest.warns(UserWarning, match="Using a non-tuple sequence"):
        found = mt.arange(24.).reshape(2, 3, 4)[eval(index)]
    assert found.tolist() == mt.arange(24.).reshape(2, 3, 4)[tuple(eval(index))].tolist()


_MATRIX = "torch.manual_seed(0)\nA = torch.randn(2, 4, 3, dtype=torch.float64)\nS = A.mT @ A + torch.eye(3)\nB = S[..., :2]\nL = S.tril()\n"


@pytest.mark.parametrize("call", """linalg.inv(S)|inverse(S)|linalg.inv_ex(S)|linalg.cholesky(S)|linalg.cholesky_ex(S, upper=True)
cholesky_inverse(L)|cholesky_solve(B, L)|linalg.solve(S, B)|linalg.solve(S, B.mT, left=False)|linalg.solve_ex(S, B)
linalg.solve(S[0], S[0, 0])|linalg.solve_triangular(L, B, upper=False)|linalg.solve_triangular(L, B.mT, upper=False, left=False)
triangular_solve(B, L, upper=False)|linalg.lu_factor(S)|linalg.lu_factor_ex(A)|linalg.lu(A)|linalg.lu_solve(*torch.linalg.lu_factor(S), B)
lu_solve(B, *torch.linalg.lu_factor(S))|linalg.qr(A)|linalg.qr(A.mT)|linalg.qr(A, mode='complete')|linalg.qr(A, mode='r')|qr(A)
geqrf(A)|linalg.householder_product(*torch.geqrf(A))|ormqr(*torch.geqrf(A), A)|linalg.eigh(S)|linalg.eig(S)|linalg.svd(A)
linalg.svd(A, full_matrices=False)|svd(A)|linalg.ldl_factor(S)|linalg.ldl_factor_ex(S)|linalg.lstsq(S, B)
linalg.ldl_solve(*torch.linalg.ldl_factor(S), B)|linalg.inv(S[:0])""".replace("\n", "|").split("|"))
def test_factorisations_lie_column_by_column(call: str) -> None:
    """As LAPACK leaves them, and torch with it."""
    check_lines(f"{_MATRIX}r = torch.{call}\n[p.stride() for p in (r if isinstance(r, tuple) else (r,))]")


@pytest.mark.parametrize("line", [
    "o = torch.empty(0)\ntorch.linalg.inv(torch.eye(3), out=o)\no.stride()",
    "o, p = torch.empty(0), torch.empty(0)\ntorch.linalg.qr(torch.eye(3), out=(o, p))\no.stride(), p.stride()",
    "o = torch.empty(0)\ntorch.add(torch.ones(2, 3).t(), 1, out=o)\no.stride()",
    "o = torch.empty(0, dtype=torch.long)\ntorch.nonzero(torch.ones(3), out=o)\no.stride()"])
def test_out_takes_the_strides_of_the_result(line: str) -> None:
    check_lines(line)


@pytest.mark.parametrize("line", [
    "torch.ones(2).add(1, out=torch.empty(0))", "torch.ones(2).abs(out=torch.empty(0))", "torch.ones(2).abs(1)",
    "torch.add(torch.ones(2), 1, out=(torch.empty(0),))", "torch.exp(torch.ones(2), out=[torch.empty(0)])",
    "torch.arange(4).put_(torch.arange(4), torch.arange(4, 8))", "i = torch.arange(4)\ni.put_(i, i)",
    "x = torch.ones(4)\nx.put_(torch.arange(4), x)", "x = torch.ones(8)\nx[:4].put_(torch.arange(4), x[2:6])",
    "x = torch.ones(8)\nx[:4].put_(torch.arange(4), x[4:])\nx", "i = torch.arange(4)\ntorch.nonzero(i, out=i)",
    "torch.ones(2).map_(torch.ones(2).double(), lambda a, b: a)", "torch.ones(2, requires_grad=True).apply_(abs)",
    "torch.ones(2).map2_(torch.ones(2), torch.ones(2).int(), max)", "torch.ones(2, requires_grad=True).map_(torch.ones(2), max)",
    "torch.ones(2).type(3)", "torch._C.TensorBase()", "torch.from_dlpack(torch.ones(2), device='meta')",
    "x = torch.empty(0)\nx.__setstate__((torch.FloatStorage(6).fill_(2), 0, (2, 3), (3, 1)))\nx",
    "torch.empty(0).__setstate__(3)", "(torch.ones(2, requires_grad=True) * 1).__setstate__((1, 2, 3, 4))"])
def test_out_of_methods_and_shared_memory(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("call", ["sort(torch.tensor([2., 1.]))", "linalg.qr(torch.eye(2))", "max(torch.eye(2), 0)"])
def test_named_results_are_struct_sequences(call: str) -> None:
    def told(library: Any) -> list[Any]:
        made = eval(f"torch.{call}", {"torch": library})
        kind = type(made)
        return [repr(made), kind.__name__, kind.__module__, kind.n_fields, kind.n_sequence_fields, kind.n_unnamed_fields,
                kind.__match_args__, hasattr(made, "_fields"), type(made[:1]).__name__]
    assert told(mt) == told(torch)
    kind = type(eval(f"torch.{call}", {"torch": mt}))
    for wrong in ((1,), 5, (1, 2, 3)):
        with pytest.raises(TypeError):
            kind(wrong)
    with pytest.raises(AttributeError):
        eval(f"torch.{call}", {"torch": mt}).n_fields = 1


def test_what_is_written_to_out_has_a_class_of_its_own() -> None:
    for library in (mt, torch):
        made = library.sort(library.tensor([2., 1.]), out=(library.empty(0), library.empty(0, dtype=library.int64)))
        assert type(made) is library.return_types.sort_out and type(made).__name__ == "sort_out"
    assert type(copy.copy(mt.sort(mt.tensor([2., 1.])))) is mt.return_types.sort
    assert type(pickle.loads(pickle.dumps(mt.sort(mt.tensor([2., 1.]))))) is mt.return_types.sort
    assert [type(x).__name__ for x in mt.utils._pytree.tree_leaves(mt.sort(mt.tensor([2., 1.])))] == ["Tensor", "Tensor"]


@pytest.mark.parametrize("other", ["numpy.ones(3)", "numpy.array(2.)", "numpy.array([1, 2, 3])", "numpy.float32(2)", "numpy.bool_(True)",
                                   "numpy.int16(3)", "numpy.complex128(1j)"])
@pytest.mark.parametrize("kind", ["float32", "int32"])
@pytest.mark.parametrize("expression", [
    "T + N", "N + T", "T - N", "N - T", "N / T", "T / N", "T // N", "T == N", "T < N", "N < T", "torch.add(T, N)", "torch.full((2,), N)",
    "torch.clamp(T, N)", "T.fill_(N)"])
def test_mixes_with_numpy(expression: str, kind: str, other: str) -> None:
    line = expression.replace("torch", "$").replace("T", f"torch.arange(1, 4, dtype=torch.{kind})").replace("N", other)
    check_lines("import numpy\n" + line.replace("$", "torch"))


@pytest.mark.parametrize("index", ["m", "m[:, None].expand(4, 3)", "m[:, None].expand(4, 3).contiguous()", "m.byte()", "m[:3]", "(m,)"])
@pytest.mark.parametrize("value", ["7", "1.5", "True", "torch.tensor(2)", "torch.tensor([2.5])", "torch.tensor(1j)", "300"])
@pytest.mark.parametrize("kind", ["float32", "uint8", "bool"])
def test_a_mask_filled_with_a_number(index: str, value: str, kind: str) -> None:
    check_lines(f"x = torch.zeros(4, 3, dtype=torch.{kind})\nm = torch.tensor([True, False, True, False])\nx[{index}] = {value}\nx, x._version")


@pytest.mark.parametrize("value", ["7", "1.5", "300", "-1", "2 ** 70", "float('nan')"])
@pytest.mark.parametrize("line", ["x[0] = V\nx", "x[-3] = V\nx", "x[0, 1] = V\nx, x._version"])
@pytest.mark.parametrize("kind", ["float32", "uint8", "bool", "float16", "complex64"])
def test_an_item_set_to_a_number(line: str, kind: str, value: str) -> None:
    check_lines(f"x = torch.zeros(2, 3, dtype=torch.{kind})\n{line.replace('V', value)}")


@pytest.mark.parametrize("call", ["cholesky(A)", "qr(A)", "triangular_solve(A, A)", "lu_solve(A, *torch.linalg.lu_factor(A))",
                                  "cross(A, A)", "add(A, 1, A)"])
def test_deprecated_functions_warn_once(call: str) -> None:
    """A process sees the words once, or every time when it asks for that."""
    def said(library: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            eval(f"torch.{call}", {"torch": library, "A": library.eye(3)})
        return [str(w.message).partition(" (Triggered internally")[0] for w in caught]
    words = []
    for library in (mt, torch):
        said(library)
        assert said(library) == []
        library.set_warn_always(True)
        try:
            words.append(said(library))
        finally:
            library.set_warn_always(False)
    assert words[0] == words[1] and len(words[0]) == 1


@pytest.mark.parametrize("line", [
    "torch.ldexp(torch.ones(2, dtype=torch.float16), torch.tensor([1, 2]))", "torch.ldexp(torch.tensor([1e-30]), torch.tensor([200]))",
    "torch.ldexp(torch.ones(2), torch.ones(2) > 0)", "torch.ldexp(torch.ones(2), torch.tensor(2.))",
    "torch.mvlgamma(torch.ones(2) > 0, 1)",
    "torch.sort(torch.ones(2, dtype=torch.complex64))", "torch.topk(torch.ones(2, dtype=torch.complex64), 1)",
    "torch.ones(2, 3)[np.array(1)].storage_offset()", "torch.ones(2, 3)[np.array(True)].shape", "torch.ones(2, 3)[0, np.float32(1)]",
    "torch.ones(2, 3)[torch.tensor([True, False, True]), 'a']", "torch.ones(2, 3)[torch.tensor([True, False, True]), ::-1]",
    "torch.ones(2, 3)[torch.tensor([True, False, True]), 5]", "torch.ones(3, 2)[torch.tensor([True, False]), torch.tensor([0.])]",
    "torch.ones(3, 2)[torch.tensor([True, False]), True]", "torch.ones(2).__setitem__(False, 'a')",
    "torch.ones(2, 3).__setitem__(..., np.ones(2))", "torch.add(torch.ones(2), np.ones(2))"])
def test_odd_dtypes_and_indices(line: str) -> None:
    check_lines(line, message=True)


@pytest.mark.parametrize("line", [
    "T.sum('a')", "T.sum('a', 'b')", "T.sum('a', 1, 2)", "T.sum(dim='a')", "T.sum(foo=1)", "torch.sum(T, 1, 'a')", "torch.sum('a')",
    "torch.add(T)", "torch.add(T, T, T)", "T.add(alpha=2)", "T.add(T, T, 1, dtype=T)", "T.add_(1.5, 'a', T)", "torch.clamp(T, 1, T)",
    "T.clamp('a', 'b')", "T.max('a')", "T.max(dim=1.5)", "T.max(1, foo=2)", "T.max(bar=1, foo=2)", "T.lt((1, 'a'))", "T.lt([])",
    "T.lt(None)", "T.scatter(0, 1, 2)", "torch.randint(3)",
    "torch.arange()", "torch.linspace(0, 1)", "torch.zeros((True, 2))", "torch.zeros([2.5])", "torch.zeros((2,), (3,))",
    "torch.flip(T, (1, 'a'))", "T.view(2, 'a')", "T.view(1.5)", "T.reshape(None)", "torch.empty(foo=1)",
    "torch.cat([T, 1])", "torch.stack(T)", "torch.dot(T)", "torch.dot(T, other=T)", "torch.sin(T, input=T)", "torch.sin(T, out=[T])",
    "T.sin(1)", "T.sin(foo=1)", "T.std(T, (1, 2), (1, 2), dim=None)", "torch._foreach_add([T], 'a')",
    "torch.tensor_split(T)", "torch.narrow(T, 0, 'a', 1)", "T.index_fill(0, T, 'a')", "T.masked_fill(1, 2)", "T.scatter_reduce(0, T, T)"])
def test_calls_that_fit_no_signature(line: str) -> None:
    check_lines(f"T = torch.ones(2)\ntry:\n    {line}\nexcept TypeError as error:\n    said = str(error)\nsaid")


@pytest.mark.parametrize("line", [
    "torch.zeros(3, dtype=torch.complex32).index_add(0, torch.tensor([0, 2, 0]), torch.full((3,), 1 + 2j, dtype=torch.complex32){})"
    ".to(torch.complex64)".replace("{}", alpha) for alpha in ("", ", alpha=2j")] + [
    "torch.zeros(3, dtype=torch.complex32).index_put((torch.tensor([0, 0]),), torch.full((2,), 1j, dtype=torch.complex32), True)"
    ".to(torch.complex64)",
    "torch.empty(2, 3, device='meta').nonzero_static(size=4).shape", "torch.zeros(10, device='meta').as_strided((2, 2), (1, 2), 10).shape",
    "torch.linalg.householder_product(torch.ones(5, 5, device='meta'), torch.ones(5, device='meta')).stride()",
    "torch.ones(3, device='meta').index_put((torch.ones(3, device='meta').bool(),), torch.ones((), device='meta')).shape",
    "torch.sparse.mm(torch.eye(3).half().to_sparse_csr(), torch.ones(3, 2).half(), 'sum')"])
def test_rare_dtypes_and_sizes_without_values(line: str) -> None:
    check_lines(line)
