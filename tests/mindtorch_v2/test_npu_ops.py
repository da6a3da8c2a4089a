"""Ops on the npu, judged by PyTorch on the CPU: every entry of its OpInfo database that we offer, and random numbers.

How ops are launched, and what happens when one fails, is tested in test_npu_launch.py."""
from __future__ import annotations

import math
import re
from types import ModuleType
from typing import Any

import oracle
import pytest
import torch
from test_ops import HALF, KNOWN, KNOWN_DTYPE, KNOWN_GRAD, OFFERED, SEED, entries, quiet, supports  # noqa: F401

import mindtorch_v2 as mt
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._backends.npu import ops as npu_ops
from mindtorch_v2._backends.npu.body import Body
from mindtorch_v2._ops import table

pytestmark = pytest.mark.usefixtures("npu")

# What an op says that the npu cannot do: our own words, or CANN's code with the aclnn op's name.
REFUSAL = re.compile(r"\[\w+\] no kernel for npu|\[aclnn\w+\] failed with ACLNN_ERR_PARAM_INVALID")

# entry -> why the npu refuses it
REFUSED: dict[str, str] = {
    name: why for why, names in (
        ("CANN has no eigenvalues of matrices that are not Hermitian", "linalg.eig linalg.eigvals"),
        ("CANN has no factors of symmetric matrices", "linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve"),
    ) for name in names.split()
}
# entry -> why another test holds it
ELSEWHERE = {"to": "its samples copy to the CPU without waiting; test_npu_launch.py waits",
             "svd_lowrank": "its start is drawn on the device, so that other vectors come out where singular values are close",
             "sparse.sampled_addmm": "test_sparse_training.py has what of sparse tensors runs on an npu",
             "sparse.mm.reduce": "test_sparse_training.py has what of sparse tensors runs on an npu"}
# Draws of their own: test_random_entries and the tests below hold them.
RANDOM = frozenset(
    "normal normal.in_place normal.number_mean randn randn_like rand_like randint randint_like multinomial bernoulli "
    "nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout "
    "nn.functional.rrelu nn.functional.feature_alpha_dropout.with_train nn.functional.scaled_dot_product_attention "
    "nn.functional.multi_head_attention_forward".split())
# entry -> how many times the float32 tolerance it needs, on the CPU as well
WIDE = {"matrix_exp": 200.0, "polygamma": 10.0, "hermite_polynomial_he": 10.0, "hermite_polynomial_h": 10.0}
# Gradients in float32 differ from torch's by more than a few roundings, here and on the CPU: sums of large terms.
ROUGH_GRAD = {"matrix_exp": 2000.0, "grid_sampler_2d": 100.0, "grid_sampler_3d": 100.0, "digamma": 50.0,
              "nn.functional.ctc_loss": 50.0, "linalg.householder_product": 100.0, "logcumsumexp": 100.0,
              "nn.functional.conv_transpose3d": 50.0}
# dtype -> the entries that are refused in it, beyond those of REFUSED. CANN convolves and pools no integers.
REFUSED_BY_DTYPE = {
    "bool": "", "float16": "", "bfloat16": "",
    "int64": "nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d "
             "nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d "
             "nn.functional.conv_transpose2d nn.functional.conv_transpose3d "
             "nn.functional.local_response_norm nn.functional.max_pool2d nn.functional.max_pool3d",
}
# Primitives that neither CANN nor a kernel serves on the npu: their composites do not use them there, or refuse.
NO_KERNEL = ("_attention _attention_backward _cdist_apart _cdist_slopes _pdist_apart _pdist_slopes "
             "_ctc_ways _ctc_slopes _multi_margin _multi_margin_slopes _multilabel_margin _multilabel_margin_slopes "
             "_bag_places _bag_layout _pair_loss _order_rows _trigamma "
             "_cross_entropy _cross_entropy_backward _householder_product "
             "_tril_indices _triu_indices _linalg_eig _linalg_eigvals _linalg_ldl_factor_ex _linalg_ldl_solve "
             "_recurrent_layer _recurrent_layer_backward _upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward")


def ours(name: str) -> str:
    return name.rpartition(".")[2]


def refused(info: Any) -> bool:
    """Runs an entry; whether the npu refused it. Raises what is no refusal."""
    try:
        oracle.run(info, torch.float32, False, SEED, 1, device="npu")
    except (NotImplementedError, RuntimeError) as error:
        if REFUSAL.search(str(error)):
            return True
        raise
    return False


def wanted(*leave_out: Any) -> Any:
    return lambda name, info: not any(name in names for names in leave_out)


@pytest.mark.parametrize("info", entries(supports(torch.float32), wanted(REFUSED, RANDOM, ELSEWHERE)))
def test_values(info: Any) -> None:
    oracle.run(info, torch.float32, False, SEED, 3, WIDE.get(ours(info.name), 1.0), "npu")


@pytest.mark.parametrize("info", entries(supports(torch.float32), lambda name, info: info.supports_autograd,
                                         wanted(REFUSED, RANDOM, ELSEWHERE, KNOWN_GRAD)))
def test_gradients(info: Any) -> None:
    wide = ROUGH_GRAD.get(info.name, WIDE.get(ours(info.name), 1.0))
    oracle.run(info, torch.float32, True, SEED, 2, 4 * wide, "npu")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments_raise(name: str) -> None:
    assert refused(OFFERED[name]), f"{name} works now: take it out of REFUSED"


# ---- other dtypes ----------------------------------------------------------------------------------------------------
def sweep(dtype: Any) -> tuple[list[str], set[str], list[str]]:
    """One sample of every entry in a dtype: what agrees, what is refused, and what is wrong."""
    works, cannot, wrong = [], set(), []
    for name, info in OFFERED.items():
        if dtype not in info.supported_dtypes("cpu") or (name, str(dtype)) in KNOWN_DTYPE or \
                any(name in names for names in (KNOWN, RANDOM, REFUSED, ELSEWHERE)):
            continue
        try:
            oracle.run(info, dtype, False, SEED, 1, 4.0 if dtype in HALF else WIDE.get(ours(name), 1.0), "npu")
            works.append(name)
        except Exception as error:
            if REFUSAL.search(str(error)):
                cannot.add(name)
            else:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    return works, cannot, wrong


@pytest.mark.parametrize("dtype", REFUSED_BY_DTYPE)
def test_dtypes(dtype: str) -> None:
    _, cannot, wrong = sweep(getattr(torch, dtype))
    assert not wrong, "\n".join(wrong)
    assert cannot == set(REFUSED_BY_DTYPE[dtype].split())


@pytest.mark.parametrize("dtype, least", [("float64", 520), ("complex64", 330)])
def test_dtypes_with_little_support_in_cann(dtype: str, least: int) -> None:
    """Ops agree, or refuse by name."""
    works, _, wrong = sweep(getattr(torch, dtype))
    assert not wrong, "\n".join(wrong)
    assert len(works) >= least


def test_dtypes_are_cast_only_where_no_digit_is_lost() -> None:
    x = mt.tensor([3, 1, 200], dtype=mt.uint8, device="npu")
    assert (-x).tolist() == [253, 255, 56]
    assert x.max(0)[0].item() == 200
    assert mt.tensor([2 ** 40 + 1], device="npu").ceil().item() == 2 ** 40 + 1
    assert mt.tensor([7], device="npu").lgamma().item() == pytest.approx(math.log(720), rel=1e-6)
    assert mt.tensor([True, True], device="npu").cumsum(0).tolist() == [1, 2]


def agree(function: Any, *inputs: Any, tolerance: float = 1.0) -> None:
    """One function of torch's tensors and of ours on the npu."""
    oracle.compare(function(mt, *oracle.to_ours(inputs, "npu")), function(torch, *inputs), "result", tolerance)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_products_of_integers_wrap(dtype: str) -> None:
    """Sums far beyond what the floats that CANN multiplies could hold."""
    made = getattr(torch, dtype)
    limits = torch.iinfo(made)
    a, b = (torch.randint(max(limits.min, -2 ** 62), min(limits.max, 2 ** 62), shape, dtype=made)
            for shape in ((2, 3, 50), (2, 50, 4)))
    agree(lambda lib, a, b: lib.bmm(a, b), a, b)
    agree(lambda lib, a, b: lib.baddbmm(a[:, :, :4], a, b, beta=2, alpha=3), a, b)
    agree(lambda lib, a, b: (a @ b[0], a[0] @ b[0, :, 0], a[0, 0] @ b, a[0, 0].dot(b[0, :, 0])), a, b)
    agree(lambda lib, a, b: lib.nn.functional.linear(a, b[0].T, a[0, 0, :4]), a, b)
    agree(lambda lib, a, b: a[:, :0] @ b, a, b)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int16"])
def test_in_place_takes_what_the_op_takes(dtype: str) -> None:
    """CANN's in-place ops take fewer dtypes than those with an out."""
    x = torch.randn(3, 4).to(getattr(torch, dtype))
    for name in ("sin_", "tanh_", "expm1_", "neg_") if dtype != "int16" else ("ceil_", "trunc_", "neg_", "relu_"):
        agree(lambda lib, x, name=name: getattr(x.clone()[:, 1:], name)(), x)


@pytest.mark.parametrize("name", ["tanh", "log10", "erfinv", "logit"])
def test_out_may_be_wider_than_the_op(name: str) -> None:
    agree(lambda lib, x: getattr(lib, name)(x, out=x.new_empty(5, dtype=lib.float64)).float(), torch.rand(5))


def test_items_of_eight_bytes_move_and_are_ordered() -> None:
    x = torch.tensor([[math.nan, 2.0, -0.0, math.inf], [0.0, -1e300, 3.0, -math.inf]], dtype=torch.float64)
    agree(lambda lib, x: (x.sort(stable=True), x.kthvalue(2), x.max(1), x.min(0), x.median(1), x.nanmedian(1)), x)
    agree(lambda lib, x: (x.roll(1, 1), x.masked_fill(x > 0, 7), x.nan_to_num(), x.std(1), x.norm(dim=0)), x)
    z = torch.view_as_complex(torch.randn(4, 3, 2))
    index = torch.tensor([2, 0, 2])
    agree(lambda lib, z, i: (z[z.real > 0], z.gather(0, i.expand(4, 3)), z.masked_fill(z.real > 0, 1j), z.nonzero(),
                             z.index_put((i,), z[:3], accumulate=True), z.index_fill(1, i, 2), z.index_add(0, i, z[:3]),
                             z.cumprod(0)),
          z, index)
    agree(lambda lib, z: (z @ z.mH, lib.linalg.norm(z), z.var(0), z.isfinite().all(), lib.linalg.inv(z[:3])), z)


@pytest.mark.parametrize("layer", ["Tanh()", "LayerNorm(4)", "ELU()", "Mish()", "Softplus()", "LogSigmoid()", "ReLU6()",
                                   "LeakyReLU()", "Softmax(1)", "Hardswish()", "GELU()", "GELU('tanh')"])
def test_gradcheck_runs_on_the_npu(layer: str) -> None:
    module = mt.nn.Sequential(mt.nn.Linear(3, 4), eval("mt.nn." + layer)).to("npu", mt.float64)
    x = mt.randn(2, 3, dtype=mt.float64, device="npu", requires_grad=True)
    assert mt.autograd.gradcheck(lambda x: module(x), (x,))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_classes_in_float64(reduction: str) -> None:
    """The same values and slopes as on the CPU, of vectors and of images."""
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    for shape in ((4, 3), (2, 3, 2, 2)):
        x = torch.randn(shape, dtype=torch.float64)
        target = torch.randint(0, 3, (shape[0], *shape[2:]))
        target[0] = -100

        def loss(lib: Any, x: Any, target: Any, weight: Any) -> Any:
            x = x.requires_grad_()
            made = lib.nn.functional.cross_entropy(x, target, weight, reduction=reduction)
            return made, lib.autograd.grad(made.sum(), x)

        agree(loss, x, target, weight)


def test_every_body_has_a_row() -> None:
    """Each record belongs to a row that can use it: functions of a call need one, and nothing serves twice."""
    rows = {f"{schema.name}.{schema.overload}".rstrip("."): row for schema, row in table.rows}
    for name, body in npu_ops.BODIES.items():
        row, own = rows[name], [body.kernel, body.value, body.sized]
        beside = [body.fallback, body.on_empty, body.on_capture]
        assert row["body"] is None or row["rule"] is not None, f"{name}: a composite that no kernel is looked for of"
        assert sum(f is not None for f in own) == (0 if any(beside) else 1), name
        assert not any(beside) or row["npu"] is not None, f"{name}: the row names no call"
        assert body.on_capture is None or aclnn.draws(row["npu"]), f"{name}: draws nothing"


def test_an_op_has_one_body() -> None:
    one = {"add": Body()}
    with pytest.raises(ValueError, match="one body: .'add'."):
        npu_ops._merged(one, {"mul": Body()}, one)


def test_a_refusal_tells_what_cann_takes() -> None:
    with pytest.raises(RuntimeError, match="aclnnErfinv takes self in bfloat16, bool, float16, float32"):
        mt.rand(3, dtype=mt.float64, device="npu").erfinv()


def test_complex_integers_are_not_drawn() -> None:
    for bounds in ((), (0, 4)):
        with pytest.raises(RuntimeError, match=r"check_random_bounds|\[random_\]"):
            mt.zeros(2, dtype=mt.complex64, device="npu").random_(*bounds)


# ---- values that are easy to get wrong -------------------------------------------------------------------------------
def test_corrections_of_variances_may_be_fractions() -> None:
    agree(lambda lib, x: (x.var(0, correction=0.5), lib.std_mean(x, 1, correction=1.5)), torch.randn(4, 5))


def test_running_logarithms_of_sums_know_no_later_item() -> None:
    x = torch.tensor([[1.0, 2.0, 100.0, math.inf, 3.0], [-math.inf, -math.inf, 5.0, math.nan, 1.0]])
    agree(lambda lib, x: x.logcumsumexp(1), x)


def test_sums_of_integers_in_products() -> None:
    a, b = torch.ones(2, 3, dtype=torch.int32), torch.ones(3, dtype=torch.int32)
    agree(lambda lib, a, b: lib.einsum("ik,j->ij", a, b), a, b)
    agree(lambda lib, a, b: lib.tensordot(a, b[:1], ([1], [0])), a, b)


def test_ranges_of_integers_begin_and_end_at_integers() -> None:
    agree(lambda lib, x: lib.linspace(4.3, -3, 50, dtype=lib.int32, device=x.device), torch.ones(1))


def test_second_gradients_of_group_norm_of_nothing() -> None:
    def second(lib: Any, x: Any) -> Any:
        x = x.requires_grad_()
        (first,) = lib.autograd.grad(lib.nn.functional.group_norm(x, 3).sum(), x, create_graph=True)
        return lib.autograd.grad(first.sum(), x)

    agree(second, torch.empty(0, 6, 2))


def test_the_smallest_integer_has_a_size() -> None:
    agree(lambda lib, x: lib.copysign(x, 1.0), torch.tensor([-128, 5], dtype=torch.int8))


# ---- factors that CANN lacks -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(70, 70), (2, 40, 70), (70, 33)])
def test_lu_beyond_one_panel(shape: tuple[int, ...]) -> None:
    agree(lambda lib, a: lib.linalg.lu_factor(a), torch.randn(shape, dtype=torch.float64))


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1, 2], [3, 4, 5], [6, 7, 8]]])
def test_singular_matrices_raise(rows: list[list[float]]) -> None:
    A = mt.tensor(rows, device="npu")
    with pytest.raises(mt.linalg.LinAlgError, match="singular"):
        mt.linalg.solve(A, A)
    with pytest.raises(mt.linalg.LinAlgError, match=f"diagonal element {len(rows)} is zero"):
        mt.linalg.inv(A)
    small = mt.tensor([[1.0, 0.0], [0.0, 1e-30]], device="npu")
    assert mt.linalg.solve(small, mt.ones(2, device="npu")).tolist() == pytest.approx([1.0, 1e30])


def test_svd_of_an_empty_matrix_has_full_bases() -> None:
    agree(lambda lib, a: lib.linalg.svd(a), torch.empty(3, 0))


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name: str) -> None:
    """From small to large, about the peak and far from it, and on all the edges."""
    a = torch.tensor([0, 1e-3, 0.5, 3, 30, 99, 101, 1e4, math.inf, -1], dtype=torch.float64).unsqueeze(1)
    x = a.nan_to_num(posinf=9) * torch.tensor([0, 0.1, 0.7, 1, 1.1, 1.6, 5], dtype=torch.float64)
    x = torch.cat([x, torch.tensor([0, 0.3, math.inf, -1]).expand(len(a), 4)], 1)
    agree(lambda lib, a, x: getattr(lib, name)(a, x), a, x)


# ---- how many ops there are ------------------------------------------------------------------------------------------
def direct() -> set[str]:
    """torch's ops whose rows name an aclnn op of the table, or whose kernel calls CANN itself."""
    named = {schema.name for schema, row in table.rows if row["npu"]}
    return named | {name.partition(".")[0] for name, body in npu_ops.BODIES.items() if body.fallback is None}


def test_at_least_250_ops_go_through_aclnn_directly() -> None:
    assert len({schema.name for schema, row in table.rows if row["npu"]}) >= 250
    assert len(direct()) >= 380


def test_rows_name_aclnn_ops_that_exist_with_as_many_arguments() -> None:
    for schema, row in table.rows:
        forms = row["npu"] or getattr(row["body"], "npu", None)          # of lists: a Foreach
        for mapping in (forms.call, *forms.number.values(), forms.without_optional) if forms else ():
            if mapping is not None:
                name, words = aclnn.read_mapping(mapping)
                assert len(aclnn.signature(name)) == len(words), f"{schema.name}: {mapping}"


def test_few_primitives_have_no_kernel() -> None:
    """What is neither a view, nor made by the core itself, nor written in other ops, nor served by CANN."""
    missing = {schema.name for schema, row in table.rows if row["rule"] is not None and row["body"] is None
               and not callable(row["kernel"]) and schema.name not in direct()}
    assert missing == set(NO_KERNEL.split())


# ---- random numbers --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_entries_are_reproducible(name: str) -> None:
    info = OFFERED[name]
    fn = oracle.function_of(info)
    torch.manual_seed(SEED)
    for _, sample in oracle.chosen(info.sample_inputs("cpu", torch.float32), 3, SEED):
        x, args, kwargs = oracle.to_ours((sample.input, list(sample.args), dict(sample.kwargs)), "npu")
        expected = info.op(sample.input, *sample.args, **sample.kwargs)
        results = []
        for _ in range(2):
            mt.manual_seed(7)
            results.append(oracle.flat(fn(x.clone() if isinstance(x, mt.Tensor) else x, *args, **kwargs)))
        for first, second, theirs in zip(*results, oracle.flat(expected), strict=True):
            if isinstance(theirs, torch.Tensor):
                assert first.is_npu and tuple(first.shape) == tuple(theirs.shape)
                assert oracle.NAMES[first.dtype] == theirs.dtype
                assert mt.equal(first, second)


N = 20000
# draw -> (mean, standard deviation)
DRAWS: dict[str, tuple[Any, float, float]] = {
    "rand": (lambda: mt.rand(N, device="npu"), 0.5, math.sqrt(1 / 12)),
    "randn": (lambda: mt.randn(N, device="npu"), 0, 1),
    "rand_like": (lambda: mt.rand_like(mt.empty(N, device="npu")), 0.5, math.sqrt(1 / 12)),
    "randint": (lambda: mt.randint(3, 9, (N,), device="npu").float(), 5.5, math.sqrt(35 / 12)),
    "normal": (lambda: mt.normal(2.0, 3.0, (N,), device="npu"), 2, 3),
    "normal of tensors": (lambda: mt.normal(mt.full((N,), 2.0, device="npu"), mt.full((N,), 3.0, device="npu")), 2, 3),
    "uniform_": (lambda: mt.empty(N, device="npu").uniform_(-1, 3), 1, math.sqrt(16 / 12)),
    "exponential_": (lambda: mt.empty(N, device="npu").exponential_(2.0), 0.5, 0.5),
    "geometric_": (lambda: mt.empty(N, device="npu").geometric_(0.25), 4, math.sqrt(12)),
    "log_normal_": (lambda: mt.empty(N, device="npu").log_normal_(0, 0.5).log(), 0, 0.5),
    "cauchy_": (lambda: (mt.empty(N, device="npu").cauchy_(1, 2) > 1).float(), 0.5, 0.5),
    "random_": (lambda: mt.empty(N, dtype=mt.int32, device="npu").random_(0, 4).float(), 1.5, math.sqrt(15 / 12)),
    "bernoulli": (lambda: mt.bernoulli(mt.full((N,), 0.3, device="npu")), 0.3, math.sqrt(0.21)),
    "bernoulli_": (lambda: mt.empty(N, device="npu").bernoulli_(0.3), 0.3, math.sqrt(0.21)),
    "poisson of few": (lambda: mt.poisson(mt.full((N,), 2.5, device="npu")), 2.5, math.sqrt(2.5)),
    "poisson of many": (lambda: mt.poisson(mt.full((N,), 400.0, device="npu")), 400, 20),
    "dropout": (lambda: mt.nn.functional.dropout(mt.ones(N, device="npu"), 0.2), 1, 0.5),
    "multinomial": (lambda: mt.multinomial(mt.tensor([1.0, 3.0], device="npu"), N, True).float(), 0.75,
                    math.sqrt(3 / 16)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_distributions(name: str) -> None:
    draw, mean, deviation = DRAWS[name]
    mt.manual_seed(3)
    first, second = draw(), draw()
    mt.manual_seed(3)
    assert mt.equal(first, draw()), "the seed decides"
    assert not mt.equal(first, second), "each draw goes on"
    assert first.mean().item() == pytest.approx(mean, abs=5 * deviation / math.sqrt(N))
    assert first.std().item() == pytest.approx(deviation, rel=0.06)


def test_permutations() -> None:
    mt.manual_seed(1)
    first, second = mt.randperm(1000, device="npu"), mt.randperm(1000, device="npu")
    assert first.sort()[0].tolist() == list(range(1000)) and not mt.equal(first, second)


def test_a_generator_of_its_own(npu: ModuleType) -> None:
    generator = mt.Generator(device="npu").manual_seed(5)
    first = mt.rand(8, device="npu", generator=generator)
    state = npu.get_rng_state()
    assert mt.equal(first, mt.rand(8, device="npu", generator=generator.manual_seed(5)))
    assert mt.equal(state, npu.get_rng_state()), "the device's own generator did not move"


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8", "bool", "float16", "bfloat16",
                                   "float32", "float64", "complex64", "complex128"])
def test_truth_of_all_dims_and_of_none(name: str, dtype: str) -> None:
    values = [[1, 0], [1, 0]]
    theirs, ours = torch.tensor(values).to(getattr(torch, dtype)), mt.tensor(values).to(getattr(mt, dtype)).npu()
    for given in ((), ((),), ((0,),), ((0, 1),), (1,)):
        assert getattr(ours, name)(*given).cpu().tolist() == getattr(theirs, name)(*given).tolist(), given
