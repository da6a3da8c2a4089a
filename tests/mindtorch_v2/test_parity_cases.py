"""Calls that fuzz_parity.py found to differ from PyTorch once, a line each: accepted, refused and computed alike."""
from __future__ import annotations

import pytest
import twin

import mindtorch_v2 as mt

# ---- numbers that do not fit into the dtype that they are to become ------------------------------------------------------
NUMBERS = ("300", "-1", "1e5", "-8.5", "1e39", "3.4e38", "float('inf')", "float('nan')", "2**40", "2**63", "2 + 0j", "1e5 + 0j",
           "1e40 + 0j", "1e40j", "65520.")
DTYPES = ("bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "complex64")
WRITTEN = """x.fill_(v)|x[:1].fill_(v)|x[:0].fill_(v)|torch.full((2,), v, dtype=x.dtype)|torch.full((0,), v, dtype=x.dtype)|x.new_full((2, 0), v)
torch.scalar_tensor(v, dtype=x.dtype)|torch.tensor([v], dtype=x.dtype)|assign(0)|assign(slice(0, 2))|assign(m)|x.masked_fill(m, v)
x.index_fill(0, i, v)|x.scatter(0, i, v)|x.masked_fill(m, torch.tensor(v))|x.index_fill(0, i, torch.tensor(v))
torch.constant_pad_nd(x, (1, 1), v)|torch.add(x, x, alpha=v)|torch.addcmul(x, x, x, value=v)|torch.addmm(x, x[:, None], x[None], beta=v)
torch.nn.functional.leaky_relu(x, v)|torch.nn.functional.hardtanh(x, 0, v)|torch.nn.functional.elu(x, v)|torch.clamp(x, max=v)
torch.where(m, x, v)|torch.nn.functional.threshold(x, 0.5, v)|torch.linspace(0, v, 3, dtype=x.dtype).shape
torch.arange(0, 2, v, dtype=x.dtype).shape"""
# What PyTorch has no kernel for, or no dtype: both say so in their own way.
OTHER = (("hardtanh", "bool"), ("hardtanh", "uint8"), ("where", "float16"), ("linspace", "bool"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", WRITTEN.replace("\n", "|").split("|"))
def test_a_number_fits_or_is_refused(line: str, dtype: str) -> None:
    if any(name in line and dtype == kind for name, kind in OTHER):
        return
    for number in NUMBERS:
        twin.check_lines(f"""
x, v, i, m = torch.tensor([0, 1], dtype=torch.{dtype}), {number}, torch.tensor([0]), torch.tensor([True, False])
def assign(index): x[index] = v; return x
{line}""")


@pytest.mark.parametrize("dtype", ["int8", "float16", "bfloat16", "float32", "complex64"])
def test_words_of_an_overflow(dtype: str) -> None:
    twin.check_lines(f"torch.zeros(2, dtype=torch.{dtype}).fill_(1e40)", message=True)


@pytest.mark.parametrize("exponent", ["300", "1e5", "2**40", "1e39", "-1", "2.5"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "float16", "bfloat16", "float32"])
def test_exponents_that_fit(dtype: str, exponent: str) -> None:
    twin.check_lines(f"torch.tensor([0, 1], dtype=torch.{dtype}) ** ({exponent})")


# ---- one line each -------------------------------------------------------------------------------------------------------
LINES = """
x.index_put_([t], v)
x.index_put_([t, t], v)
torch.tensor(0.).index_put_([t], v)
x.index_put_([torch.tensor(1, dtype=torch.uint8)] * 3, v)
torch.tensor(0.).index_put_([], v)
x.index_put([], torch.ones(3))
torch._C._nn.adaptive_avg_pool2d(torch.ones(2, 3, 3), [3])
torch._C._nn.adaptive_avg_pool3d(torch.ones(1, 2, 3, 3), [3])
torch._C._nn.adaptive_avg_pool2d(torch.ones(2, 3, 3), 3)
torch.clamp_min(1, torch.ones(3))
torch.clamp(1, torch.ones(3))
torch.max_pool1d_with_indices(torch.tensor(1.), [2])
torch.max_pool1d_with_indices(torch.ones(2, 2, 2, 2), [2])
torch.zeros(0, 3).bernoulli_(torch.ones(5, 3))
torch.zeros(0).bernoulli_(torch.ones(2, 0))
torch.zeros(3).bernoulli_(torch.ones(2, 3))
float(torch.tensor(2 + 0j))
int(torch.tensor(2 + 0j))
int(torch.tensor(2 + 1j))
float(torch.tensor(2 + 1j))
int(torch.ones(2))
float(torch.ones(0))
complex(torch.ones(2))
torch.diff(torch.ones(3, 3), 0, 7)
torch.diff(torch.tensor(1.), 0)
torch.nuclear_norm(torch.ones(2, 2), True)
torch.nuclear_norm(torch.ones(2, 2, 2), (0, 1), True).shape
torch.nuclear_norm(torch.ones(2, 2), 1)
torch.zeros(0, dtype=torch.complex64).random_(3)
torch.zeros(0, dtype=torch.bool).random_(3)
torch.zeros(0, dtype=torch.int8).random_(-200, 5)
torch.randint(0, 1, (2, 0), dtype=torch.complex64)
torch.embedding(torch.zeros(1, 0), torch.tensor([1]))
torch.index_select(torch.zeros(1, 0), 0, torch.tensor([1]))
torch.zeros(2, 3).flip(torch.tensor(1))
torch.allclose(v, v, rtol=float('nan'))
torch.signal.windows.gaussian(0, std=-1)
torch.signal.windows.exponential(0, tau=-1)
torch.linspace(0.5, 3.7, 3, out=torch.zeros(3, dtype=torch.uint8))
torch.linspace(-1, 2, 3, dtype=torch.uint8)
torch.linspace(0, 300, 1, dtype=torch.uint8)
torch.arange(0.5, 3.7, out=torch.zeros(3, dtype=torch.uint8))
torch.zeros([2], out=torch.tensor(5, dtype=torch.uint8))
torch.full([2], 3.5, out=torch.zeros(2, dtype=torch.uint8))
torch.zeros([2], dtype=torch.float64, out=torch.zeros(2))
torch.nn.functional.max_pool3d(torch.ones(1, 2, 6, 6, 6), 3, 2, 2, 2)
torch.nn.functional.max_pool2d(torch.ones(2, 6, 6), 3, 2, 2, 2)
torch.histogramdd(torch.ones(5, 2), [2, 0])
torch.histogramdd(torch.ones(5, 2), [torch.zeros(0), torch.ones(2)])
torch.histogramdd(torch.ones(5, 2), [torch.ones(1), torch.ones(2)])
torch.histogramdd(torch.ones(5, 2), 2, weight=torch.ones(3))
torch.histogramdd(torch.ones(5, 2), 2, range=[0., 1.])
torch.histogramdd(torch.ones(5, 2), [torch.ones(2).double(), torch.ones(2)])
torch.histogramdd(torch.ones(5, 2).long(), 2)
torch.histogram(torch.ones(5, 2), 3, weight=torch.ones(10))
torch.nn.functional.multi_margin_loss(torch.tensor([[1., 2, 3]]), torch.tensor([1]), margin=True)
torch.nn.functional.multi_margin_loss(torch.tensor([[1., 2, 3]]), torch.tensor([1], dtype=torch.int32))
torch.nn.functional.multi_margin_loss(torch.tensor([[1, 2, 3]]), torch.tensor([1]))
torch._C._nn.cross_entropy_loss(torch.ones(2, 3), torch.tensor([1, 1]), label_smoothing=-1.5)
torch._C._nn.cross_entropy_loss(torch.ones(2, 3), torch.ones(2, 3), label_smoothing=0.1, ignore_index=0)
torch.zeros(5).index_add(0, torch.tensor(0), torch.tensor(2.))
torch.zeros(5).put(torch.tensor([0]), torch.ones(2))
torch.ormqr(torch.zeros(2, 1, 4, 3), torch.zeros(3), torch.zeros(2, 1, 4, 3))
torch.rrelu(torch.tensor([2.]), upper=2 + 0j)
torch.rrelu(torch.tensor([2.]), lower=-2**70)
torch.tensor([True, False]).clamp(2)
torch.tensor([1, 5]).clamp(max=2 + 0j)
torch.triplet_margin_loss(torch.ones(2).long(), torch.ones(2).long(), torch.ones(2).long(), eps=torch.tensor(4))
torch.unravel_index(torch.ones(2), (2, 2))
torch.ones(3).new_empty_strided((2, 2), (2, 1), requires_grad=True).requires_grad
torch.linalg.vecdot(x, x, dim=7)
torch.linalg.vecdot(x, x[:1])
torch.linalg.vecdot(torch.tensor([1j, 2]), torch.tensor([1j, 2j]), dim=-5)
torch.linalg.vecdot(x[None], x, dim=7)
torch.linspace(1., 2., 1, out=torch.ones(()))
torch.linspace(1., 2., 4, out=torch.ones(4, 4)[::2, ::2])
torch.linspace(torch.tensor(1.), torch.tensor(2.), 0, out=torch.ones(2, 0))
torch.linspace(1., 2., 3, out=torch.ones(2, 2))
torch.logspace(1., 2., 1, out=torch.ones(()))
torch.arange(4, out=torch.ones(2, 2).t())
torch.arange(0, 4, 2, out=torch.ones(2, 1))
torch.range(1, 4, out=torch.ones(2, 2))
torch.constant_pad_nd(torch.ones(3, dtype=torch.uint8), [], -1.5)
torch.constant_pad_nd(torch.ones(3, dtype=torch.uint8), [-1, 0], 1e10)
torch.constant_pad_nd(torch.ones(3, dtype=torch.uint8), [-1, 1], 1e10)
x.map_(torch.ones(3, requires_grad=True), lambda a, b: a)
x.map2_(x, torch.ones(3, requires_grad=True), lambda a, b, c: a)
torch.tensor([complex("nan"), complex("inf"), 1e30, 3e9, -7.5 + 1j]).to(torch.int32)
torch.zeros(4, dtype=torch.int16).copy_(torch.tensor([complex("nan"), 3e9, 70000, -70000], dtype=torch.complex128))
torch.native_layer_norm(torch.ones(3, 0), (0,), None, None, 1e-5)
torch.rrelu(x[:0], float("-inf"), 1.)
torch.rrelu(x, 0., float("nan"))
torch._C._nn.huber_loss(t.int(), t.int(), 1, float("nan"))
torch.cumulative_trapezoid(torch.tensor([2**62, 2**62, 2**62, 2**62]))
torch.linalg.pinv(torch.eye(2), 2**70)
torch.linalg.matrix_rank(torch.eye(2), -2**70)
x.masked_fill_(torch.tensor(True), torch.tensor(1 - 2j, requires_grad=True))
x.index_put_([torch.tensor([True, False, True])], v.double())
x.index_put([torch.tensor([True, False, True])], torch.tensor([1.5]).half())
x.index_put_([torch.tensor([True, False, True])], torch.tensor(1j))
x.index_put_([torch.tensor([True, False, True])], v.double(), accumulate=True)
x.index_put_([torch.tensor([0, 2])], v.double())
x.masked_fill(torch.tensor(True), torch.tensor(1 - 2j, requires_grad=True))
x.byte().masked_fill_(torch.tensor(True), torch.tensor(300., requires_grad=True))
v.flatten(1)
v.flatten(-2)
v.flatten(0, 1)
v.flatten(-1, 0)
v.repeat_interleave(torch.tensor([1, 2]), -1)
v.repeat_interleave(torch.tensor([2]), 0)
v.repeat_interleave(torch.tensor([2]))
torch.einsum('...ik, ...j -> ij', torch.ones(1, 2, 1, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8))
torch.einsum('ij,k,l->', torch.ones(2, 1, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8), torch.ones(1, dtype=torch.uint8))
torch.einsum('ijk,jl->il', torch.ones(2, 2, 3, dtype=torch.uint8), torch.ones(2, 2, dtype=torch.uint8))
torch.einsum('ij,jk->ik', torch.ones(2, 3, dtype=torch.int32), torch.ones(1, 2, dtype=torch.int32))
torch.einsum('i,j->ij', torch.ones(2), torch.ones(2, dtype=torch.int32))
torch.bernoulli(x, out=torch.ones(3, dtype=torch.uint8))
torch.bernoulli(x, out=torch.ones(2, dtype=torch.bool))
torch.bernoulli(x + 2, out=torch.ones(3, dtype=torch.uint8))
torch._C._nn.softshrink(x, 2 + 0j).abs()
torch._C._nn.softshrink(x, 2j)
torch.rrelu(-v, True, True)
torch.rrelu(-v, 2**62, 2**62)
torch.rrelu(-v, 1, 2**63)
torch.rrelu(-v, 0.5, 2**63)
torch._C._nn.rrelu_with_noise(-v, v, False, True)
torch.addcdiv(v, 2, v, v, out=torch.zeros(()))
torch.addcmul(v, 2, v, v, out=torch.zeros(()))
torch.linalg.householder_product(torch.ones(3, 0), torch.ones(0, requires_grad=True)).requires_grad
torch.linalg.householder_product(torch.ones(3, 0, requires_grad=True), torch.ones(0)).requires_grad
x.to_sparse(0)
v.to_sparse(0).sparse_dim()
torch.eye(3).to_sparse(dense_dim=1).to_dense()
torch.eye(3).to_sparse(dense_dim=1).sparse_dim()
x.to_sparse(dense_dim=1)
x.to_sparse(dense_dim=2)
torch.lu_solve(x[:0], torch.ones(2, 4, 4), torch.tensor(1).int())
torch._unsafe_masked_index(x[:0, None][:, :0], t.expand(2, 2), [torch.tensor([[1], [0]]), torch.tensor([[4, 2]])], 3.)
torch.segment_reduce(torch.tensor([1., -1, -2]), "sum", offsets=torch.tensor([1, 3]))
torch.segment_reduce(torch.tensor([1., -1, -2]), "min", offsets=torch.tensor([1, 2, 2]), initial=2)
torch.segment_reduce(x, "amax", lengths=torch.tensor([3]))
torch.segment_reduce(x, "sum", lengths=torch.tensor([3]), axis=2)
torch.segment_reduce(x, "sum", lengths=torch.tensor([3.]))
torch.segment_reduce(x, "sum", offsets=torch.tensor([]).long())
torch.segment_reduce(x, "what", lengths=torch.tensor([3]))
torch.nn.functional.embedding_bag(torch.tensor([0, 1]), torch.ones(4, 2), torch.tensor([]).long(), mode="sum")
torch.nn.functional.embedding_bag(torch.tensor([0, 9]), torch.ones(4, 2), torch.tensor([]).long(), mode="mean")
torch.eye(4).to_sparse_bsr(2).values()
torch.eye(4).to_sparse(layout=torch.sparse_bsc, blocksize=2).values()
torch.eye(4).to_sparse_bsr((2,))
x.float(memory_format=3)
x.to(torch.float32, memory_format=object())
x.to(torch.float64, memory_format="x")
torch.masked.argmin(t[None])
torch.masked.argmin(t[None], mask=t)
torch.masked.logsumexp(t[None], 0)
torch.masked.prod(torch.ones(2, 3), dim=(-1, -1), keepdim=True)
torch.masked.prod(torch.ones(2, 3), dim=(0, 0))
torch.masked.median(torch.tensor([float("nan"), 1., 2.]))
torch.masked.median(torch.tensor([1, 2]), mask=torch.tensor([False, False]))
torch.rrelu(torch.tensor([1., -2.]).half())
torch.linalg.vander(torch.tensor([True]))
torch.linalg.vander(torch.ones(2).bfloat16())
torch.histogram(torch.tensor([.5, 1.5, 1.75]).bfloat16(), torch.tensor([0., 1., 2.]).bfloat16())
torch.histogram(torch.tensor([.5, 1.5]).half(), torch.tensor([0., 1., 2.]).half(), weight=torch.tensor([2., 3.]).half(), density=True)
torch.histogram(torch.tensor([.5, 1.5]).half(), 3)
torch.rrelu_(torch.tensor([1., -2.]).half(), -1.5)
torch.rrelu(torch.tensor([1., -2.]).half(), 0.1, 0.3, True)
"""


@pytest.mark.parametrize("line", LINES.strip().split("\n"))
def test_alike(line: str) -> None:
    twin.check_lines(f"x, t, v = torch.zeros(3), torch.tensor(True), torch.tensor(1.)\n{line}")


# ---- refused by the same type of exception ---------------------------------------------------------------------------------
REFUSED = """
torch.maximum(c, c)|torch.minimum(c, c)|torch.fmax(c, c)|torch.fmin(c, c[:0])|torch.heaviside(c, c)|torch.isneginf(c)|torch.isposinf(c)
torch.deg2rad(c)|torch.rad2deg(c)|torch.relu(b)|torch.nn.functional.relu6(b)|torch.nn.functional.hardtanh(b)|torch.addcdiv(i, i, i)
torch.argmax(c)|torch.argmin(c, 0)|torch.max(c, 0)|torch.clamp(c, 1)|i.cauchy_()|i.exponential_()|i[:0].exponential_()|i.multinomial(1)
torch.linalg.lu_factor(m.long())|torch.linalg.eigh(m.long())|torch.linalg.qr(m.half())|torch.linalg.svd(m.half())
torch.linalg.cholesky(m.half())|torch.linalg.det(m.half())|torch.linalg.slogdet(m.half())|torch.linalg.solve(m.half(), m.half())
torch.cholesky(m.long())|torch.linalg.eig(m.half())|torch.linalg.lstsq(m.long(), m.long())|torch.linalg.matrix_norm(m.half(), 2)
torch.polar(c.real.half(), c.real.half())|torch.linalg.cross(m.bool(), m.bool())|torch.bincount(m)|torch.bincount(b)
torch.baddbmm(x, x, x)|torch.baddbmm(m, m, m[None])|torch.addbmm(x, x, x)|torch.addr(m, m, m)|torch.addr(x, x, torch.tensor(1.))
torch.split_with_sizes(torch.tensor(1.), [1])|torch.slice_scatter(torch.tensor(1.), torch.tensor(1.))|torch.vander(torch.tensor(1.))
torch.rms_norm(x, (2, 2, 2))|torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False)|torch.group_norm(x, 1)
torch._C._nn.avg_pool2d(x, 2)|torch.repeat_interleave(m)|torch.nn.functional.mse_loss(i, i)|torch.nn.functional.huber_loss(b, b)
torch.histogram(i, m)|torch.diff(m, 1, 7, prepend=x)|x[2**63]|torch.fill(x, torch.tensor(1., requires_grad=True)).requires_grad
torch.linspace(torch.tensor(0., requires_grad=True), 3, 3).tolist()|torch.add(x, x, alpha=torch.tensor(1., requires_grad=True))"""


@pytest.mark.parametrize("line", REFUSED.strip().replace("\n", "|").split("|"))
def test_refused_alike(line: str) -> None:
    twin.check_lines(f"""
x, m, i, b = torch.ones(2), torch.eye(3), torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)
c = torch.ones(2, dtype=torch.complex64)
{line}""")


@pytest.mark.parametrize("line", ["torch.maximum(c, c)", "torch.isneginf(c)", "torch.deg2rad(c)", "torch.relu(c != 0)", "torch.argmax(c)",
                                  "torch.linalg.qr(torch.ones(2, 2).half())", "torch.heaviside(c[:0], c[:0])"])
def test_words_of_a_dtype_without_a_kernel(line: str) -> None:
    twin.check_lines(f"c = torch.ones(2, dtype=torch.complex64)\n{line}", message=True)


@pytest.mark.parametrize("line", ["sum(x, 0", "nansum(x, 0", "mean(x, 0", "nanmean(x, 0", "cumsum(x, 0", "cumprod(x[1:9], 0",
                                  "logsumexp(x / 100, 0", "sum(x.long(), 0", "prod(x[1:4], 0"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_sums_are_made_in_the_dtype_of_out(line: str, dtype: str) -> None:
    twin.check_lines(f"""
x = torch.arange(96.).to(torch.bfloat16)
y = torch.{line}, out=torch.zeros((), dtype=torch.{dtype}))
(y.double() * 1000).round() / 1000""")


def test_sums_in_an_out_of_integers() -> None:
    twin.check_lines("torch.sum(torch.tensor([1.5, 1.5]), 0, out=torch.tensor(0))")
    twin.check_lines("torch.cumsum(torch.tensor([1.5, 1.5]), 0, out=torch.zeros(2, dtype=torch.int64))")
    twin.check_lines("torch.mean(torch.tensor([1.5, 1.5]), 0, out=torch.tensor(0))")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("line", ["x * 1.1", "1.1 * x", "x / 1.1", "x + 1.1", "1.1 - x", "torch.add(x, x, alpha=1.1)", "x[7] * 1.1",
                                  "torch.sub(x, y, alpha=0.3)", "torch.rsub(x, y, alpha=0.3)", "x.clone().mul_(0.1)",
                                  "x[:50] * 0.1", "x.view(2, 256).t() * 1.1", "torch.add(x, 2.5, alpha=0.3)", "x > 1.1", "x.clamp(1.1)",
                                  "x * torch.tensor(1.1)"])
def test_numbers_beside_16_bits(line: str, dtype: str) -> None:
    """mul and div take a number as it is; add and others round it, and alpha, to the tensor's dtype. Not of a few items:
    there PyTorch rounds the product with alpha too, which it does not do where it computes with vectors."""
    twin.check_lines(f"""
x = (torch.arange(512) / 7).to(torch.{dtype})
y = (torch.arange(512) / 13).to(torch.{dtype})
{line}""")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float16", "int64"])
@pytest.mark.parametrize("value", ["1 + 1j", "300", "-1.5", "1e30", "[1]"])
def test_fill_with_a_tensor_casts(value: str, dtype: str) -> None:
    twin.check_lines(f"torch.fill(torch.zeros(2, dtype=torch.{dtype}), torch.tensor({value}))")
    twin.check_lines(f"torch.zeros(2, dtype=torch.{dtype}).fill_(torch.tensor({value}))")


def test_assigning_to_false_looks_at_nothing() -> None:
    twin.check_lines("""
x = torch.zeros(17)
x[False] = torch.ones(3)
x.sum()""")


def test_a_mask_that_is_false_writes_nothing() -> None:
    """PyTorch ends in an internal error where the values have the shape of self."""
    x = mt.zeros(3).index_put_([mt.tensor(False)], mt.ones(3))
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("shape, strides", [((3, 3), (1, 3)), ((2, 3), (1, 2)), ((4, 2, 3), (1, 12, 4))])
@pytest.mark.parametrize("line", ["x.bernoulli(0.5)", "x.bernoulli_(0.5)", "x.bernoulli_(torch.full(shape, 0.5))"])
def test_bernoulli_draws_in_the_order_of_torch(line: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    twin.check_lines(f"""
shape, strides = {shape}, {strides}
x = torch.empty_strided(shape, strides)
torch.manual_seed(42)
{line}""")


@pytest.mark.parametrize("line", ["torch.rand(2, 3, 4, out=x)", "torch.randn((2, 3, 4), out=x)", "torch.randint(9, (2, 3, 4), out=x)",
                                  "torch.randint(-9, 9, (2, 3, 4), out=x)", "torch.normal(1., 2., (2, 3, 4), out=x)",
                                  "torch.rand(4, 6, out=x)", "torch.randint(9, (2, 12), out=x)"])
def test_out_is_drawn_in_the_order_of_its_memory(line: str) -> None:
    twin.check_lines(f"""
x = torch.zeros(2, 4, 3).transpose(1, 2)
torch.manual_seed(42)
{line}""")


@pytest.mark.parametrize("norm", ["torch.rms_norm(x, (0,), w)", "torch.layer_norm(x, (0,), w)", "torch.rms_norm(x[:, None], (1, 0))"])
def test_gradient_of_a_norm_of_no_items(norm: str) -> None:
    twin.check_lines(f"""
x, w = torch.ones(3, 0, requires_grad=True), torch.ones(0, requires_grad=True)
torch.autograd.grad({norm}.sum(), [x, w], allow_unused=True)[0]""")


@pytest.mark.parametrize("number", ["-1", "1e300", "float('nan')"])
def test_words_of_softshrink(number: str) -> None:
    twin.check_lines(f"torch.nn.functional.softshrink(torch.ones(2), {number})", message=True)


@pytest.mark.parametrize("value, divisor", [("0", "1e-200"), ("2.5", "1e200"), ("1", "0."), ("False", "3.")])
def test_gradient_of_a_quotient_that_overflows(value: str, divisor: str) -> None:
    twin.check_lines(f"""
a, b = (torch.tensor([x], requires_grad=True, dtype=torch.float64) for x in (1., {divisor}))
torch.autograd.grad(torch.addcdiv(torch.ones(1, dtype=torch.float64), a, b, value={value}), [a, b])""")


@pytest.mark.parametrize("initial", [None, 0, 1, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_gradient_of_segments(reduce: str, initial: float | None) -> None:
    for values in ("[2., 2, -1, -2, 1]", "[1., 1, 1, 1, 1]", "[0., 0, 1, 0, 2]", "[2., nan, 1, nan, nan]"):
        for where in ("lengths=torch.tensor([0, 1, 2, 2])", "offsets=torch.tensor([1, 2, 4])"):
            twin.check_lines(f"""
nan = float("nan")
x = torch.tensor({values}, dtype=torch.float64, requires_grad=True)
y = torch.segment_reduce(x, "{reduce}", {where}, initial={initial})
y.tolist(), (torch.autograd.grad(y, x, torch.arange(1., len(y) + 1, dtype=torch.float64))[0] + 0.).tolist()""")


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_of_a_matrix_that_is_not_finite(driver: str) -> None:
    """LAPACK searches forever for the singular values of some, so they are not handed to it; PyTorch's answer is an error."""
    for wrong in ("nan", "inf"):
        a = mt.tensor([[3.0, 1.0, 0.0], [float(wrong), 2.5, 0.0], [2.5, -1.0, 0.0]], dtype=mt.float64)
        found = mt.linalg.lstsq(a, mt.ones(3, 3, dtype=mt.float64), driver=driver)
        assert found.solution.isnan().all() and found.singular_values.isnan().all()


def test_product_over_no_items_with_odd_strides() -> None:
    """Rows of no items that do not lie behind each other are copied, and have a leading dimension then."""
    a, b = mt.ones(2, 3, 4)[:, ::2, :0].transpose(0, 1), mt.ones(2, 0, 5)
    assert mt.matmul(a.transpose(0, 1).expand(2, 2, 2, 0), b).eq(0).all()
    assert mt.baddbmm(mt.ones(2, 2, 5), mt.empty_strided((2, 2, 0), (3, 0, 2)), b).eq(1).all()


def test_parameters_of_a_norm_are_tensors() -> None:
    with pytest.raises(TypeError):
        mt._C._core._check_mixed(mt.ones(1), 3)
    with pytest.raises(TypeError):
        mt._C._core._check_mixed(None, mt.ones(1))


def test_convolution_of_padding_alone() -> None:
    """A plane of no items; PyTorch refuses it in some dtypes."""
    for dtype in (mt.float16, mt.float32, mt.float64):
        x, w, b = mt.ones(1, 3, 0, 0, dtype=dtype), mt.ones(3, 3, 3, 3, dtype=dtype), mt.ones(3, dtype=dtype)
        assert mt.nn.functional.conv2d(x, w, b, stride=2, padding=2).tolist() == [[[[1.0]]] * 3]


def test_a_leaf_that_is_a_view() -> None:
    twin.check_lines("""
leaf = torch.zeros(9).as_strided((3, 3), (3, 1)).requires_grad_()
leaf[0].fill_(1.)""", message=True)


def test_gradient_of_scatter_reduce_without_indices() -> None:
    twin.check_lines("""
x, src = torch.zeros(2, 0, 3, requires_grad=True), torch.zeros(2, 2, 0, 3, requires_grad=True)
out = x.clone().scatter_reduce_(-3, torch.zeros(2, 0, 3).long(), src, "amax")
[None if g is None else g.shape for g in torch.autograd.grad(out, [x, src], torch.zeros(2, 0, 3), allow_unused=True)]""")


@pytest.mark.parametrize("reduce", ["sum", "amax", "prod", "mean"])
def test_gradient_of_scatter_reduce_of_a_src_without_dims(reduce: str) -> None:
    twin.check_lines(f"""
x, src = torch.ones(1, requires_grad=True), torch.tensor(2., requires_grad=True)
[g.tolist() for g in torch.autograd.grad(x.scatter_reduce(0, torch.tensor([0]), src, "{reduce}").sum(), [x, src])]""")


def test_gradient_of_view_as_real_of_one_item() -> None:
    twin.check_lines("""
x = torch.ones(1, dtype=torch.complex64, requires_grad=True)
torch.autograd.grad(torch.view_as_real_copy(x), x, torch.ones(5).as_strided((1, 2), (3, 1)))""")


# ---- Tensor.where --------------------------------------------------------------------------------------------------------
def test_the_method_where_has_its_name() -> None:
    twin.check_lines("torch.Tensor.where.__name__")
    twin.check_lines("torch.ones(2).where(torch.tensor([True, False]), 3)")
    twin.check_lines("torch.ones(2).where('x', 3)")
    with pytest.raises(TypeError, match=r"^where\(\)"):
        mt.ones(2).where("x", 3)
    assert mt.where is not mt.Tensor.where and not hasattr(mt.ops.aten, "_where_method")


def test_where_for_torch_function() -> None:
    twin.check_lines("""
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, func is torch.Tensor.where or repr(func)
torch.ones(2).as_subclass(Sub).where(torch.tensor([True, False]), 3)""")


# ---- the outer product of any dtypes ---------------------------------------------------------------------------------------
KINDS = ("bool", "int8", "int64", "bfloat16", "float32", "complex64")


@pytest.mark.parametrize("vec2", KINDS)
@pytest.mark.parametrize("vec1", KINDS)
@pytest.mark.parametrize("self", KINDS)
def test_addr_promotes(self: str, vec1: str, vec2: str) -> None:
    for line in ("addr(x, v, w)", "addr(x[0, 0], v, w)", "addr(x, v, w, beta=2, alpha=3)", "addr(x, v, w, beta=0.5)",
                 "addr(x, v, w, alpha=True)", "addr(x, v, w, out=torch.empty(2, 3))"):
        twin.check_lines(f"""
x, v = torch.arange(6).reshape(2, 3).sub(2).to(torch.{self}), torch.tensor([-1, 2]).to(torch.{vec1})
w = torch.tensor([1, 0, 3]).to(torch.{vec2})
torch.{line}""", message="out" not in line)


@twin.twin
def test_addr_gives_each_its_gradient(t):
    x, v, w = t.ones(3, requires_grad=True), t.ones(2, dtype=t.float64, requires_grad=True), t.arange(3).double()
    result = t.addr(x, v, w, beta=2, alpha=3)
    result.sum().backward()
    return result, x.grad, v.grad
