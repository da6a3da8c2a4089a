"""What torch accepts is accepted, what it refuses is refused, with its exception type and message."""
from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from twin import error, twin

import mindtorch_v2 as mt


# ---- in place and without a derivative -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_", "not_equal_", "less_"])
@twin
def test_comparison_in_place_has_a_gradient_of_zeros(t: Any, name: str) -> Any:
    x = t.tensor([1.0, -2.0, 0.0], requires_grad=True)
    y = (x * 3)
    changed = getattr(y, name)(t.zeros(3))
    changed.sum().backward()
    other = t.ones(3)
    getattr(other, name)(x)
    return changed, x.grad, other, error(lambda: getattr(x, name)(t.zeros(3)), 60)


@pytest.mark.parametrize("name", ["logical_and_", "logical_or_", "logical_xor_", "logical_not_"])
@twin
def test_logic_in_place_is_no_part_of_autograd(t: Any, name: str) -> Any:
    x = t.tensor([1.0, -2.0, 0.0], requires_grad=True)
    args = () if name == "logical_not_" else (t.ones(3),)
    y = x * 3
    getattr(y, name)(*args)
    y.sum().backward()
    leaf = t.tensor([1.0, 0.0, 2.0], requires_grad=True)
    getattr(leaf, name)(*args)
    return y, x.grad, leaf


@pytest.mark.parametrize("call", [
    lambda t, x: t.heaviside(x, x), lambda t, x: (x * 1).heaviside_(x), lambda t, x: t.special.airy_ai(x),
    lambda t, x: t.special.chebyshev_polynomial_t(x, 2), lambda t, x: t.floor_divide(x, 2), lambda t, x: t.nextafter(x, x)])
@twin
def test_an_op_without_a_derivative_refuses_in_backward(t: Any, call: Any) -> Any:
    x = t.tensor([0.5, 1.0], dtype=t.float64, requires_grad=True)
    y = call(t, x)
    return y, error(lambda: y.sum().backward(), 22)


def test_the_node_of_an_op_without_a_derivative() -> None:
    x = mt.ones(2, requires_grad=True)
    node = mt.heaviside(x, x).grad_fn
    assert node.name() == "NotImplemented"
    with pytest.raises(RuntimeError, match="derivative for aten::heaviside is not implemented"):
        mt.heaviside(x, x).sum().backward()


# ---- numbers that do not fit ----------------------------------------------------------------------------------------------
FILLED = (0, 127, 128, -128, -129, 255, -255, -256, 300, 300.5, 1e6, -1.0, float("nan"), float("inf"), 1j, 2 + 0j, True, 2**31,
          2**63 - 1, 2**63, 2**64, -2**63, -2**70, 1e39, 1e300)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float32", "float64"])
@twin
def test_numbers_written_to_a_tensor(t: Any, dtype: str) -> Any:
    mask, index = t.tensor([True, False]), t.tensor([1])
    found = []
    for value in FILLED:
        for call in (lambda x, v: x.fill_(v), lambda x, v: t.full((2,), v, dtype=x.dtype), lambda x, v: x.masked_fill(mask, v),
                     lambda x, v: x.index_fill(0, index, v), lambda x, v: x.scatter(0, index, v), lambda x, v: t.full_like(x, v),
                     lambda x, v: x.new_full((1,), v), lambda x, v: x.__setitem__(0, v)):
            x = t.ones(2, dtype=getattr(t, dtype))
            said = error(lambda: call(x, value), 46)
            found.append(said if "complex Scalar" not in said else "")
            if said == "no error" and value == value and dtype not in ("float16", "bfloat16", "complex64"):
                found.append(x)
    return found


@twin
def test_numbers_that_bound_or_replace_items(t: Any) -> Any:
    x = t.ones(2, dtype=t.int8)
    return [error(lambda: call(), 58) for call in (
        lambda: x.clamp(max=300), lambda: x.clamp(min=-300), lambda: x.clamp(-128, 127), lambda: t.where(x > 0, x, 300),
        lambda: t.where(x > 0, x, 3), lambda: x + 300, lambda: x * 1000, lambda: x == 300)]


@twin
def test_ints_beyond_64_bits(t: Any) -> Any:
    x, i = t.ones(2, 3), t.ones(3, dtype=t.int64)
    return [i + 2**63, x + 2**63, x.lt(2**63), *[error(call) for call in (
        lambda: x + 2**64, lambda: x + -2**70, lambda: x.sum(2**63), lambda: x.sum(-2**70), lambda: x.transpose(0, 2**63),
        lambda: x.sum([2**63]), lambda: t.zeros(2**63), lambda: t.zeros((2, -2**70)), lambda: x.view(2**70),
        lambda: x.permute(0, 2**65), lambda: x.unsqueeze(2**63), lambda: x.softmax(2**64), lambda: t.add(i, i, alpha=2**70))]]


@twin
def test_what_other_is_multiplied_with(t: Any) -> Any:
    i, f, b = t.ones(2, dtype=t.int64), t.ones(2), t.ones(2, dtype=t.bool)
    return [error(call, 40) for call in (
        lambda: t.add(i, i, alpha=1.5), lambda: t.sub(i, i, alpha=1.5), lambda: t.add(f, f, alpha=True),
        lambda: t.add(b, b, alpha=True), lambda: t.add(f, f, alpha=1j),
        lambda: i.add_(i, alpha=2.0), lambda: t.add(f, i, alpha=1.5))]


# ---- arguments ------------------------------------------------------------------------------------------------------------
@twin
def test_none_and_numbers_among_tensors(t: Any) -> Any:
    x = t.ones(2)
    return [error(lambda: call(given), 70) for call in (t.stack, t.hstack, t.vstack, t.cat, t.dstack)
            for given in ([x, None], [None], [1, 2], None, [x, 3.0])]


@twin
def test_out_where_torch_has_none(t: Any) -> Any:
    x, out = t.ones(2, 2), t.empty(2, 2)
    return [error(lambda: call()) for call in (
        lambda: t.relu(x, out=out), lambda: t.clone(x, out=out), lambda: t.isnan(x, out=out), lambda: t.flip(x, [0], out=out),
        lambda: t.add(x, x, out=out), lambda: t.empty_like(x, out=out), lambda: t.squeeze(x, out=out))]


@twin
def test_out_of_a_comparison_beside_gradients(t: Any) -> Any:
    x = t.ones(2, requires_grad=True)
    return t.eq(x, x, out=t.empty(2, dtype=t.bool)), t.logical_not(x, out=t.empty(2)), error(lambda: t.exp(x, out=t.empty(2)))


@pytest.mark.parametrize("name, dtype", [("bitwise_and", "float32"), ("gcd", "float64"), ("frac", "int64"), ("floor", "bool"),
                                         ("erfinv", "complex64"), ("ge", "complex64"), ("fmod", "complex128"), ("frac", "float16")])
@twin
def test_empty_operands_are_refused_by_their_dtype(t: Any, name: str, dtype: str) -> Any:
    x = t.empty(0, dtype=getattr(t, dtype))
    unary = name in ("frac", "floor", "erfinv")
    return error(lambda: getattr(t, name)(x) if unary else getattr(t, name)(x, x))


@twin
def test_dtypes_of_parameters_of_norms(t: Any) -> Any:
    x, half, wide = t.ones(2, 3), t.ones(2, 3).bfloat16(), t.ones(2, 3).double()
    w, w16, w64 = t.ones(3), t.ones(3).bfloat16(), t.ones(3).double()
    f = t.nn.functional
    given = [(x, w64, w64), (wide, w, w), (half, w, w), (half, w16, w), (x, w16, w16), (x, w, w64), (x, None, w64),
             (half, w16, w16)]
    return [[error(lambda: call(*args), 60) for args in given] for call in (
        lambda v, w, b: f.layer_norm(v, (3,), w, b), lambda v, w, b: f.group_norm(v, 3, w, b),
        lambda v, w, b: f.batch_norm(v, b, b, w, b, training=True), lambda v, w, b: f.instance_norm(v.unsqueeze(-1).expand(2, 3, 4),
                                                                                                    weight=w, bias=b))]


@twin
def test_rms_norm_keeps_the_dtype_of_its_input(t: Any) -> Any:
    return t.nn.functional.rms_norm(t.ones(2, 3), (3,), t.ones(3).double())


@twin
def test_ranks_of_what_is_no_matrix(t: Any) -> Any:
    return [error(lambda: t.linalg.matrix_rank(given)) for given in (3, 2.5, t.ones(3), t.ones(2, 2, dtype=t.int64), [1])]


@twin
def test_keywords(t: Any) -> Any:
    x = t.arange(6.0)
    return x.split(split_size=2), x.split(split_size=4, dim=0), t.split(x, split_size_or_sections=3)


# ---- results --------------------------------------------------------------------------------------------------------------
@twin
def test_real_and_imag_as_functions(t: Any) -> Any:
    z = t.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    t.real(z).sum().backward()
    return t.real(z), t.imag(z), t.real(t.ones(2)), z.grad, error(lambda: t.imag(t.ones(2)), 30)


def test_a_part_is_a_view() -> None:
    z = mt.zeros(2, dtype=mt.complex64)
    mt.real(z).fill_(3)
    mt.imag(z).fill_(4)
    assert z.tolist() == [3 + 4j, 3 + 4j]


@twin
def test_broadcast_shapes_gives_a_size(t: Any) -> Any:
    shape = t.broadcast_shapes((2, 1), (3,), 1)
    return type(shape).__name__, tuple(shape), shape.numel()


def test_a_generator_can_be_pickled() -> None:
    made = mt.Generator().manual_seed(5)
    mt.rand(7, generator=made)
    again = pickle.loads(pickle.dumps(made))
    assert again.initial_seed() == 5 and again.device == made.device
    assert mt.equal(mt.rand(9, generator=again), mt.rand(9, generator=made))


def test_numpy_under_no_grad() -> None:
    x = mt.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()
    with mt.no_grad():
        assert x.numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_transposed_convolution_may_have_no_output(n: int) -> None:
    sides = []
    for t in (torch, mt):                        # of 16 bits: for others torch's answer depends on which library serves it
        x, w = t.ones(1, 2, *[1] * n).bfloat16(), t.ones(2, 3, *[2] * n).bfloat16()
        sides.append(tuple(getattr(t.nn.functional, f"conv_transpose{n}d")(x, w, padding=1).shape))
    assert sides[0] == sides[1] == (1, 3, *[0] * n)


@twin
def test_transposed_convolution_of_nothing(t: Any) -> Any:
    convolve = t.nn.functional.conv_transpose2d
    return (error(lambda: convolve(t.ones(1, 2, 0, 3), t.ones(2, 3, 2, 2)), 60),
            error(lambda: convolve(t.ones(2, 4, 4, 4), t.ones(4, 1, 0, 0), groups=4)))


@pytest.mark.parametrize("batch, left, right, outer", [((3,), 4, 2, 0), ((0,), 4, 2, 3), ((2, 3), 4, 2, 5), ((), 4, 2, 5)])
@twin
def test_bilinear_without_features(t: Any, batch: tuple, left: int, right: int, outer: int) -> Any:
    return t.nn.functional.bilinear(t.ones(*batch, left), t.ones(*batch, right), t.ones(outer, left, right), t.ones(outer))


# ---- found by fuzz_parity.py ----------------------------------------------------------------------------------------------
@twin
def test_gradients_at_ties_and_kinks(t: Any) -> Any:
    def slopes(call: Any, *values: Any) -> list:
        inputs = [t.tensor(v, dtype=t.float64, requires_grad=True) for v in values]
        call(*inputs).sum().backward()
        return [x.grad for x in inputs]
    target = t.tensor([0, 1])
    return [slopes(t.atan2, [0.0, 1.0], [0.0, 2.0]), slopes(t.acosh, [-2.0, 3.0]),
            slopes(t.clamp_min, [1.0, 2.0, 0.0], [1.0, 1.0, 1.0]),
            slopes(t.clamp_max, [1.0, 2.0, 0.0], [1.0, 1.0, 1.0]), slopes(lambda x, y: t.clamp(x, max=y), [2.0], [2.0]),
            slopes(lambda x: t.nn.functional.multi_margin_loss(x, target), [[1.0, 0.0, 2.0], [2.0, 2.0, 1.0]]),
            slopes(lambda x: t.nn.functional.multilabel_margin_loss(x, t.tensor([[0, -1, 1]])), [[1.0, 0.0, 2.0]]),
            slopes(lambda x, y: t.cosine_similarity(x, y, 1, 2.0), [[0.5, 0.1]], [[3.0, 1.0]])]


@twin
def test_values_that_were_wrong(t: Any) -> Any:
    strided = t.arange(6.0).view(2, 3).t()
    same = strided.resize_(3, 2)
    return (t.tensor(3.0).topk(0), same, same.stride(), t.special.airy_ai(t.tensor([1e-300, -1e-300, 1e-9], dtype=t.float64)),
            t.equal(t.tensor([1]), t.tensor([1.0])), t.equal(t.tensor([1]), t.tensor([1.5])),
            t.tensor(2.0).mT, t.tensor(2.0).adjoint(),
            error(lambda: t.ones(2).adjoint()), t.take_along_dim(t.arange(4.0), t.tensor([2], dtype=t.int32)))


@twin
def test_losses_without_a_reduction_given(t: Any) -> Any:
    x, y = t.tensor([0.5, 0.25]), t.tensor([0.75, 1.0])
    return (t.kl_div(x, y), t.hinge_embedding_loss(x, y), t.margin_ranking_loss(x, y, y), t.binary_cross_entropy_with_logits(x, y),
            t.nn.functional.kl_div(x, y), t.nn.functional.hinge_embedding_loss(x, y))


@twin
def test_gradients_with_operands_of_other_dtypes(t: Any) -> Any:
    def slope(call: Any, *values: float) -> Any:
        x = t.tensor(values, dtype=t.float64, requires_grad=True)
        call(x).sum().backward()
        return x.grad
    other, f = t.tensor([0, 5, 7]), t.nn.functional
    return (slope(lambda x: t.xlogy(x, other), 0.0, 1.0, 2.0), slope(lambda x: t.xlogy(x, 5), 1.0),
            slope(lambda x: t.special.xlog1py(x, other), 0.0, 1.0, 2.0), slope(lambda x: (x * 1).logit_(-1), 2.0, 0.5, -3.0),
            slope(lambda x: f.binary_cross_entropy_with_logits(x, t.tensor([0.25, 1.0]).bfloat16()), 0.5, 1.0))


@pytest.mark.parametrize("target", ["float32", "float64", "bfloat16"])
@twin
def test_the_target_gives_a_loss_of_logits_its_dtype(t: Any, target: str) -> Any:
    made, loss = t.ones(2, dtype=getattr(t, target)), t.nn.functional.binary_cross_entropy_with_logits
    return [str(loss(t.ones(2, dtype=dtype), made, weight, pos_weight=pos).dtype).split(".")[1]
            for dtype in (t.float32, t.float64) for weight in (None, t.ones(2).double()) for pos in (None, t.ones(2).double())]


@pytest.mark.parametrize("extra", [["nan", "inf"], ["nan", "nan"], ["nan", "-inf"], ["inf"], []])
@twin
def test_isin_beside_nan(t: Any, extra: list[str]) -> Any:
    tests = t.tensor([float(x) for x in [*extra, *range(20)]])
    x = t.tensor([float("inf"), float("-inf"), float("nan"), 3.0, 19.0, 19.5, -1.0])
    return t.isin(x, tests), t.isin(x, t.full((20,), float("nan"))), t.isin(x, tests, invert=True)


@twin
def test_nan_and_inf_become_integers_before_they_are_summed(t: Any) -> Any:
    x = t.tensor([float("nan"), 1.0, float("inf"), 2.7])
    return [call(x.to(dtype), dtype=to) for dtype in (t.float16, t.float32, t.float64) for to in (t.int32, t.int64)
            for call in (t.sum, lambda v, dtype: t.cumsum(v, 0, dtype=dtype), lambda v, dtype: t.cumprod(v, 0, dtype=dtype))]


@twin
def test_sixteen_bits_are_rounded_before_a_wider_out(t: Any) -> Any:
    x, columns = t.tensor([0.3, 1000.77]).half(), t.tensor([[0.3], [0.77]]).bfloat16()
    return [[call(x, out=t.empty(2, dtype=dtype)).tolist() for call in (t.sin, t.sqrt, t.reciprocal)]
            + [t.add(x, x[0], out=t.empty(2, dtype=dtype)).tolist(), t.eq(x, x, out=t.empty(2, dtype=dtype)).tolist(),
               t.add(columns, columns.t(), out=t.empty(2, 2, dtype=dtype).t()).tolist()] for dtype in (t.float32, t.float64)]


def test_bins_of_a_range_that_overflows() -> None:
    x = mt.tensor([-3e38, 0.0, 3e38])
    assert mt.histc(x, 4).tolist() == mt.histc(x, 4, -3e38, 3e38).tolist() == [1, 0, 1, 1]
    assert mt.histc(mt.tensor([0.0, 1.0, 3.4e38]), 100)[-1].item() == 1


@pytest.mark.parametrize("name", ["any", "all"])
@twin
def test_truth_of_no_dims(t: Any, name: str) -> Any:
    x, call = t.tensor([[1, 0], [0, 0]]), getattr(t, name)
    return (call(x, dim=[]), call(x, dim=(), keepdim=True), call(x.to(t.uint8), dim=[]), call(t.ones(0, 2), dim=[]), call(x),
            call(t.tensor(2), dim=[]))


@twin
def test_one_class_for_one_sample(t: Any) -> Any:
    x, f = t.arange(3.0), t.nn.functional
    return [error(lambda: loss(x, t.tensor(target), reduction=reduction)) for loss in (f.nll_loss, f.cross_entropy)
            for target in ([1], [1, 2], [0, 1, 2], 2) for reduction in ("none", "mean")]


@twin
def test_arguments_that_are_refused(t: Any) -> Any:
    x, wide, index = t.ones(2, 2), t.ones(2, 2).double(), t.tensor([5])
    norms = [(wide, t.float32), (x, t.complex64), (x + 0j, t.float32), (x, t.int32), (x, t.float64)]
    return [[error(lambda: t.linalg.matrix_norm(given, order, dtype=dtype)) for given, dtype in norms for order in (1, "fro")],
            [error(lambda: t.cumulative_trapezoid(x, dx=dx)) for dx in (False, True, 1j, 2)],
            [error(lambda: t.rrelu(x, bound, 1)) for bound in (-2**70, 2**70, -2)],
            [error(call) for call in (
                lambda: t.empty(0, 3).scatter_(0, t.tensor([[5]]), 1.0), lambda: t.empty(0).scatter_(0, index, t.ones(1)),
                lambda: t.empty(0).scatter_add_(0, index, t.ones(1)), lambda: t.empty(0).scatter(0, index[:0], 1.0))]]


@twin
def test_where_as_a_method_by_keywords(t: Any) -> Any:
    x = t.tensor([1.0, 2.0])
    return x.where(condition=x > 1, other=x * 3), x.where(x > 1, other=0), x.where(other=x, condition=x > 1)


@twin
def test_filling_what_has_no_dims(t: Any) -> Any:
    return [error(lambda: t.tensor(1.0).index_fill(0, t.tensor(index, dtype=t.int64), 2.0)) for index in ([], [0], [0, 0], 0, [0, 5])]


@twin
def test_dims_that_are_refused(t: Any) -> Any:
    x, index = t.ones(3, 0), t.tensor([0])
    return [error(call) for call in (
        lambda: x.index_fill(0, index, 2.0), lambda: x.index_fill(1, index[:0], 2.0),
        lambda: t.nn.functional.multilabel_margin_loss(t.ones(2, 2), t.zeros(2, 2, dtype=t.int32)),
        lambda: t.frobenius_norm(t.ones(1, 2, 3), [0, 1, 2]), lambda: t.frobenius_norm(t.ones(1, 2, 3), [0, 1]))]


@pytest.mark.parametrize("shape, dim", [((3, 0), 1), ((0,), 0), ((0, 2), 0)])
def test_filling_a_dim_of_no_items(shape: tuple, dim: int) -> None:
    with pytest.raises(IndexError, match=f"index 0 is out of bounds for dimension {dim} with size 0"):
        mt.ones(*shape).index_fill_(dim, mt.tensor([0]), 2.0)


@twin
def test_a_target_of_certainty_has_an_infinite_slope(t: Any) -> Any:
    x, target = t.tensor([0.0, 1.0, 0.25]), t.tensor([1.0, 0.5, 0.5], requires_grad=True)
    t.nn.functional.binary_cross_entropy(x, target, reduction="sum").backward()
    return target.grad, t.linalg.matrix_norm(t.ones(2, 2), True), t.nansum(t.tensor([float("nan"), float("inf"), 3.5]), dtype=t.int32)
