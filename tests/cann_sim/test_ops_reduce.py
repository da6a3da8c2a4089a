"""Reductions and scans against torch: the dtypes of the tables, shapes, layouts, outputs of other dtypes, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import Scalar, client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
SHAPES = [(), (5,), (3, 4), (2, 3, 4), (2, 1, 3, 2, 2, 1, 2, 2)]
DIMS = [[], [0], [-1], [0, -1]]


def dims_for(shape: tuple[int, ...]) -> list[list[int]]:
    return [d for d in DIMS if len({i % max(len(shape), 1) for i in d}) == len(d)]


def reduced(shape: tuple[int, ...], dims: list[int], keepdim: bool) -> tuple[int, ...]:
    return tuple(torch.zeros(shape).sum(dims or None, keepdim=keepdim).shape) if shape else ()


def number_of(x: torch.Tensor) -> torch.Tensor:
    """For judges that torch has no kernel of this dtype for."""
    return x.double() if x.dtype.is_floating_point else x


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.int64


def whole_or_dims(f: Callable[..., torch.Tensor], x: torch.Tensor, dims: list[int], keepdim: bool) -> torch.Tensor:
    return f(x, dim=dims or list(range(x.ndim)), keepdim=keepdim)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnReduceSum"), ids=str)
def test_sum(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x, asked = LAYOUTS[layout](sample(dtype, *shape)), sum_dtype(dtype)
    for dims in dims_for(shape):
        for keepdim in (False, True):
            out = torch.empty(reduced(shape, dims, keepdim), dtype=asked)
            got = client().call("aclnnReduceSum", x, dims, keepdim, asked, out)
            same(got, x.sum(dims or None, keepdim=keepdim, dtype=asked))


@pytest.mark.parametrize("op, judge", [("aclnnReduceNansum", torch.nansum), ("aclnnReduceSum", torch.sum)])
def test_sum_of_nan(op: str, judge: Callable[..., torch.Tensor]) -> None:
    x = torch.tensor([[1.0, float("nan")], [2.0, 3.0]])
    same(client().call(op, x, [1], False, torch.float32, torch.empty(2)), judge(x, dim=1))


@pytest.mark.parametrize("out", [torch.float16, torch.float64, torch.int32])
def test_sum_is_computed_in_the_requested_dtype_and_stored_in_the_output(out: torch.dtype) -> None:
    x = torch.tensor([0.75, 0.75, 1.5])
    got = client().call("aclnnReduceSum", x, [0], False, torch.float32, torch.empty((), dtype=out))
    same(got, torch.tensor(3.0).to(out))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnMean"), ids=str)
def test_mean(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    asked = dtype if dtype.is_floating_point or dtype.is_complex else torch.float32
    for dims in dims_for(shape):
        want = x.to(asked).mean(dims or None)
        same(client().call("aclnnMean", x, dims, False, asked, torch.empty_like(want)), want)
        got = client().call("aclnnMeanV2", x.to(asked), dims, False, False, torch.empty_like(want))
        same(got, want)


def test_mean_over_no_dims_can_do_nothing() -> None:
    x = sample(torch.float32, 2, 3)
    same(client().call("aclnnMeanV2", x, [], False, True, torch.empty(2, 3)), x)
    same(client().call("aclnnMaxV2", x, [], False, True, torch.empty(2, 3)), x)
    same(client().call("aclnnMaxV2", x, [1], False, True, torch.empty(2)), x.amax(1))
    positive = x.abs() + 1
    same(client().call("aclnnReduceLogSum", positive, [0], True, False, torch.empty(1, 3)), positive.sum(0, True).log())
    same(client().call("aclnnReduceLogSum", positive, [], True, True, torch.empty(2, 3)), positive.log())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["amax", "amin"])
@pytest.mark.parametrize("dtype", dtypes("aclnnAmax"), ids=str)
def test_extremes(name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    for dims in dims_for(shape):
        want = getattr(x, name)(dims, keepdim=True)
        same(client().call(f"aclnn{name.capitalize()}", x, dims, True, torch.empty_like(want)), want)
    whole = getattr(x, name)()
    same(client().call({"amax": "aclnnMax", "amin": "aclnnMin"}[name], x, torch.empty_like(whole)), whole)
    low, high = client().call("aclnnAminmaxAll", x, torch.empty_like(whole), torch.empty_like(whole))
    same(low, x.amin())
    same(high, x.amax())


def test_both_extremes_along_dims() -> None:
    x = sample(torch.int16, 3, 4, 2)
    low, high = client().call(
        "aclnnAminmax", x, [0, 2], False, torch.empty(4, dtype=x.dtype), torch.empty(4, dtype=x.dtype)
    )
    same(low, x.amin((0, 2)))
    same(high, x.amax((0, 2)))
    out = torch.empty(3, 1, 2, dtype=torch.float32)
    low, high = client().call("aclnnAminmaxDim", x, 1, True, out, out)
    same(low, x.amin(1, True).float())
    same(high, x.amax(1, True).float())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("dtype", dtypes("aclnnMaxDim"), ids=str)
def test_extremes_with_places(name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    index = dtypes(f"aclnn{name.capitalize()}Dim", 4)[0]
    for keepdim in (False, True):
        values, indices = getattr(x, name)(-1, keepdim)
        out = torch.empty_like(values), torch.empty_like(indices, dtype=index)
        got = client().call(f"aclnn{name.capitalize()}Dim", x, -1, keepdim, *out)
        same(got[0], values)
        same(got[1], indices.to(index))
    if dtype != torch.bool:
        place = getattr(x, "arg" + name)(0)
        got = client().call(f"aclnnArg{name.capitalize()}", x, 0, False, torch.empty_like(place))
        same(got, place)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnProd"), ids=str)
def test_prod(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x, asked = LAYOUTS[layout](sample(dtype, *shape[:2])), sum_dtype(dtype)
    want = x.prod(dtype=asked)
    same(client().call("aclnnProd", x, asked, torch.empty_like(want)), want)
    for keepdim in (False, True):
        want = x.prod(0, keepdim, dtype=asked)
        same(client().call("aclnnProdDim", x, 0, keepdim, asked, torch.empty_like(want)), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["all", "any"])
@pytest.mark.parametrize("dtype", dtypes("aclnnAll"), ids=str)
def test_truth(name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    for dims in dims_for(shape):
        want = whole_or_dims(getattr(torch, name), x.bool(), dims, True)
        got = client().call(f"aclnn{name.capitalize()}", x, dims, True, torch.empty_like(want))
        same(got, want)


MOMENTS = {"aclnnVarCorrection": torch.var, "aclnnStd": torch.std, "aclnnVar": torch.var}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES[1:], ids=str)
@pytest.mark.parametrize("op", MOMENTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnVar"), ids=str)
def test_variance(op: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    for dims in dims_for(shape):
        for correction in (0, 1):
            if correction and x.sum(dims or None).numel() == x.numel():
                continue
            want = MOMENTS[op](x, dims or None, correction=correction)
            same(client().call(op, x, dims or None, correction, False, torch.empty_like(want)), want)


def test_variance_and_mean_together() -> None:
    x = sample(torch.float32, 4, 5, 3)
    for op, judge in (("aclnnVarMean", torch.var_mean), ("aclnnStdMeanCorrection", torch.std_mean)):
        want = judge(x, [0, 2], correction=1, keepdim=True)
        got = client().call(op, x, [0, 2], 1, True, *map(torch.empty_like, want))
        for a, b in zip(got, want, strict=True):
            same(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ord", [0.0, 1.0, 2.0, 3.0, float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", dtypes("aclnnNorm"), ids=str)
def test_norms(ord: float, dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 3, 4, 5))
    for dims in ([], [1], [0, -1]):
        want = torch.linalg.vector_norm(x, ord, dims or None, dtype=torch.float64).to(dtype)
        same(client().call("aclnnNorm", x, ord, dims, False, torch.empty_like(want)), want)
        got = client().call("aclnnLinalgVectorNorm", x, ord, dims, False, torch.float32, torch.empty_like(want))
        same(got, want)


@pytest.mark.parametrize("dtype", dtypes("aclnnLogSumExp"), ids=str)
def test_log_sum_exp(dtype: torch.dtype) -> None:
    x = sample(dtype, 3, 4)
    out = dtype if dtype.is_floating_point else torch.float32
    want = number_of(x).double().logsumexp(1).to(out)
    same(client().call("aclnnLogSumExp", x, [1], False, torch.empty(3, dtype=out)), want)


# ---- rows --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnMedian"), ids=str)
def test_median(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 5))
    for op, judge in (("Median", torch.median), ("NanMedian", torch.nanmedian)):
        same(client().call(f"aclnn{op}", x, torch.empty((), dtype=dtype)), judge(x))
        values, indices = client().call(
            f"aclnn{op}Dim", x, 1, True, torch.empty(4, 1, dtype=dtype), torch.empty(4, 1, dtype=torch.int64)
        )
        same(values, judge(x, 1, True).values)
        same(x.gather(1, indices), values)


@pytest.mark.parametrize("dtype", dtypes("aclnnKthvalue"), ids=str)
def test_kthvalue(dtype: torch.dtype) -> None:
    x = sample(dtype, 3, 6)
    for k in (1, 4):
        values, indices = client().call(
            "aclnnKthvalue", x, k, 1, False, torch.empty(3, dtype=dtype), torch.empty(3, dtype=torch.int64)
        )
        same(values, x.kthvalue(k, 1).values)
        same(x.gather(1, indices[:, None])[:, 0], values)


@pytest.mark.parametrize("dtype", dtypes("aclnnTrace"), ids=str)
def test_trace(dtype: torch.dtype) -> None:
    x = sample(dtype, 3, 5).t()
    want = (
        (x.long() if dtype == torch.bool else x).trace()
        if dtype not in (torch.float16, torch.bfloat16)
        else x.double().trace().to(dtype)
    )
    same(client().call("aclnnTrace", x, torch.empty_like(want)), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnBincount"), ids=str)
def test_bincount(dtype: torch.dtype) -> None:
    x, weights = sample(dtype, 20).abs(), sample(torch.float64, 20)
    same(
        client().call("aclnnBincount", x, None, 0, torch.empty(9, dtype=torch.int64)),
        torch.bincount(x.long(), minlength=9),
    )
    got = client().call("aclnnBincount", x, weights, 9, torch.empty(9, dtype=torch.float64))
    same(got, torch.bincount(x.long(), weights, 9))


@pytest.mark.parametrize("dtype", dtypes("aclnnHistc"), ids=str)
def test_histc(dtype: torch.dtype) -> None:
    x = sample(dtype, 4, 9)
    for low, high in ((0, 0), (-2, 4)):
        want = x.float().histc(5, low, high).to(dtype)
        same(client().call("aclnnHistc", x, 5, low, high, torch.empty(5, dtype=dtype)), want)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("shapes", [((4, 3), (5, 3)), ((2, 4, 3), (2, 5, 3)), ((0, 3), (5, 3))], ids=str)
def test_gradient_of_distances(p: float, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (sample(torch.float32, *s, seed=i).requires_grad_() for i, s in enumerate(shapes))
    distance = torch.cdist(a, b, p)
    grad = sample(torch.float32, *distance.shape, seed=3)
    distance.backward(grad)
    inputs = grad, a.detach(), b.detach(), distance.detach()
    same(client().call("aclnnCdistBackward", *inputs, p, torch.empty_like(a)), a.grad)


# ---- scans -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", dtypes("aclnnCumprod"), ids=str)
def test_scans(name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    for dim in {0, -1}:
        want = getattr(x, name)(dim, dtype=dtype)
        dim_argument = dim if name == "cumsum" else Scalar(dim, torch.int64)
        same(client().call(f"aclnn{name.capitalize()}", x, dim_argument, dtype, torch.empty_like(x)), want)
    if name == "cumprod":
        same(client().call("aclnnInplaceCumprod", x, Scalar(-1, torch.int32)), want if shape else x)


def test_cumsum_of_truth_counts() -> None:
    x = sample(torch.bool, 3, 5)
    same(client().call("aclnnCumsum", x, 1, torch.int64, torch.empty(3, 5, dtype=torch.int64)), x.cumsum(1))


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumsum_from_the_other_end_and_without_the_last(exclusive: bool, reverse: bool) -> None:
    x = sample(torch.int64, 3, 5)
    items = x.flip(1) if reverse else x
    want = items.cumsum(1) - (items if exclusive else 0)
    got = client().call("aclnnCumsumV2", x, 1, exclusive, reverse, torch.empty_like(x))
    same(got, want.flip(1) if reverse else want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", dtypes("aclnnCummax"), ids=str)
def test_running_extremes(name: str, dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    want = getattr(x, name)(0)
    for index in (torch.int64, torch.int32):
        got = client().call(f"aclnn{name.capitalize()}", x, 0, torch.empty_like(x), torch.empty(shape, dtype=index))
        same(got[0], want.values)
        same(got[1], want.indices.to(index))


def test_a_number_is_a_row_of_one() -> None:
    x, index = torch.tensor(2.5), torch.empty((), dtype=torch.int64)
    for op, arguments in {
        "aclnnMaxDim": (0, False), "aclnnMinDim": (-1, True), "aclnnMedianDim": (0, False),
        "aclnnKthvalue": (1, 0, True), "aclnnTopk": (1, 0, True, True),
    }.items():  # fmt: skip
        values, indices = client().call(op, x, *arguments, torch.empty(()), index)
        same(values, x)
        same(indices, torch.tensor(0))
    same(client().call("aclnnArgMax", x, 0, False, index), torch.tensor(0))
    same(client().call("aclnnFlip", x, [0], torch.empty(())), x)
    got = client().call("aclnnSort", x, True, 0, False, torch.empty(()), index)
    same(got[0], x)
    same(got[1], torch.tensor(0))


# ---- nothing to reduce, and refusals -----------------------------------------------------------------------
def test_reductions_of_nothing() -> None:
    none = torch.empty(0, 3)
    same(client().call("aclnnReduceSum", none, [0], False, torch.float32, torch.empty(3)), torch.zeros(3))
    same(client().call("aclnnProd", none, torch.float32, torch.empty(())), torch.tensor(1.0))
    same(client().call("aclnnAny", none, [], False, torch.empty((), dtype=torch.bool)), torch.tensor(False))
    same(client().call("aclnnAmax", none, [1], False, torch.empty(0)), torch.empty(0))
    same(client().call("aclnnCumsum", none, 0, torch.float32, torch.empty(0, 3)), none)


F32, I64, BOOL = (torch.empty(2, 3, dtype=d) for d in (torch.float32, torch.int64, torch.bool))
ROW, PAIR, ONE = torch.empty(3), torch.empty(2), torch.empty(())
REFUSED: dict[str, tuple[Any, ...]] = {
    "dim out of range": (INVALID, "aclnnReduceSum", F32, [2], False, torch.float32, ROW),
    "a dim twice": (INVALID, "aclnnReduceSum", F32, [1, -1], False, torch.float32, PAIR),
    "wrong shape": (INVALID, "aclnnReduceSum", F32, [0], False, torch.float32, PAIR),
    "dims are kept": (INVALID, "aclnnReduceSum", F32, [0], True, torch.float32, ROW),
    "no dtype": (INVALID, "aclnnReduceSum", F32, [0], False, 4711, ROW),
    "float into bool": (INVALID, "aclnnReduceSum", F32, [0], False, torch.float32, torch.empty(3, dtype=torch.bool)),
    "null self": (NULL, "aclnnReduceSum", None, [0], False, torch.float32, ROW),
    "null out": (NULL, "aclnnReduceSum", F32, [0], False, torch.float32, None),
    "null dims": (NULL, "aclnnReduceSum", F32, None, False, torch.float32, ROW),
    "max of nothing": (INVALID, "aclnnMax", torch.empty(0), ONE),
    "amax of nothing": (INVALID, "aclnnAmax", torch.empty(0, 3), [0], False, ROW),
    "complex extreme": (INVALID, "aclnnAmax", torch.empty(2, dtype=torch.complex64), [0], False, ONE),
    "index dtype": (INVALID, "aclnnMaxDim", F32, 0, False, ROW, torch.empty(3)),
    "argmax of bool": (INVALID, "aclnnArgMax", BOOL, 0, False, torch.empty(3, dtype=torch.int64)),
    "argmax shape": (INVALID, "aclnnArgMax", F32, 0, False, torch.empty(2, dtype=torch.int64)),
    "prod dim": (INVALID, "aclnnProdDim", F32, -3, False, torch.float32, ROW),
    "variance of integers": (INVALID, "aclnnVarCorrection", I64, [0], 1, False, ROW),
    "mean of variance": (INVALID, "aclnnVarMean", F32, [0], 1, False, ROW, PAIR),
    "norm dtype": (INVALID, "aclnnLinalgVectorNorm", F32, 2.0, [0], False, torch.int64, ROW),
    "null norm order": (NULL, "aclnnNorm", F32, None, [0], False, ROW),
    "kth": (INVALID, "aclnnKthvalue", F32, 4, 1, False, PAIR, torch.empty(2, dtype=torch.int64)),
    "kth zero": (INVALID, "aclnnKthvalue", F32, 0, 1, False, PAIR, torch.empty(2, dtype=torch.int64)),
    "median of bool": (INVALID, "aclnnMedian", BOOL, torch.empty((), dtype=torch.bool)),
    "bins": (INVALID, "aclnnHistc", F32, 0, 0, 1, torch.empty(0)),
    "bins out": (INVALID, "aclnnHistc", F32, 4, 0, 1, ROW),
    "histc order": (INVALID, "aclnnHistc", F32, 3, 2, 1, ROW),
    "bincount of floats": (INVALID, "aclnnBincount", ROW, None, 0, torch.empty(3, dtype=torch.int64)),
    "bincount rank": (INVALID, "aclnnBincount", I64, None, 0, torch.empty(3, dtype=torch.int64)),
    "cumsum dtype": (INVALID, "aclnnCumsum", F32, 0, torch.float16, F32),
    "cumsum dim": (INVALID, "aclnnCumsum", F32, 2, torch.float32, F32),
    "cumsum shape": (INVALID, "aclnnCumsum", F32, 0, torch.float32, ROW),
    "cummax index": (INVALID, "aclnnCummax", F32, 0, F32, F32),
    "trace rank": (INVALID, "aclnnTrace", ROW, ONE),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    code, op, *args = REFUSED[case]
    client().expect_code(code, op, *args)
