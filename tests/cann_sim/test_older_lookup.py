"""Counts, searches, bags, temporal classification and scalars by the older interface, against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import same
from older import Older
from torch import Tensor
from torch.nn import functional as F

R = torch.Generator().manual_seed(9)
ONE, ROW = torch.tensor(0.5), torch.tensor([0.5])
AT = torch.tensor([0])
INT = torch.zeros((), dtype=torch.int32)

# Axis 0 (and -1) of a scalar is valid, as in torch.
SCALARS: list[tuple[str, list[Any], dict[str, Any], list[Tensor]]] = [
    ("ReduceSum", [ONE, [0]], {}, [ONE]), ("ReduceAll", [ONE > 0, [-1]], {}, [ONE > 0]), ("ReduceMax", [ONE, [0]], {"keep_dims": True}, [ONE]),
    ("ReduceLogSumExp", [ONE, [0]], {}, [ONE]), ("ArgMaxV2", [ONE, [0]], {}, [INT]), ("ArgMaxWithValue", [ONE], {"dimension": 0}, [INT, ONE]),
    ("SoftmaxV2", [ONE], {"axes": [0]}, [ONE * 2]), ("LogSoftmaxV2", [ONE], {"axes": [-1]}, [ONE * 0]),
    ("SoftmaxGrad", [ONE * 2, ONE], {"axes": [0]}, [ONE * 0]), ("Sort", [ONE], {"axis": -1}, [ONE, INT]), ("TopKV2", [ONE, [1]], {"dim": 0}, [ONE, INT]),
    ("Cumsum", [ONE, [0]], {}, [ONE]), ("Cumprod", [ONE, [0]], {}, [ONE]), ("Cummax", [ONE], {"dim": 0}, [ONE, INT]), ("ReverseV2", [ONE, [0]], {}, [ONE]),
    ("GatherV2", [ONE, torch.tensor(0), [0]], {}, [ONE]), ("GatherElements", [ONE, torch.tensor(0)], {"dim": 0}, [ONE]),
    ("ScatterElements", [ONE, torch.tensor(0), ONE * 3], {"axis": 0}, [ONE * 3]), ("InplaceIndexAdd", [ONE, AT, ROW], {"axis": 0}, [ONE * 2]),
    ("Roll", [ONE], {"shifts": [1], "dims": [0]}, [ONE]), ("RepeatInterleave", [ONE, [3]], {"axis": 0}, [ROW.repeat(3)]),
    ("Renorm", [ONE * 4], {"p": 2.0, "dim": 0, "maxnorm": 1.0}, [ONE]), ("LpNormV2", [-ONE], {"axes": [0], "p": 2.0}, [ONE]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes", "wanted"), SCALARS, ids=[c[0] for c in SCALARS])
def test_a_scalar_has_axis_0(older: Older, op: str, inputs: list[Any], attributes: dict[str, Any], wanted: list[Tensor]) -> None:
    for got, want in zip(older(op, inputs, [torch.full_like(w, 7) for w in wanted], **attributes), wanted, strict=True):
        same(got, want)


def test_a_mask_and_what_it_chooses_from_broadcast(older: Older) -> None:
    x, mask = torch.rand(3, 1, generator=R), torch.tensor([True, False, True, True])
    same(older.sized("MaskedSelect", [x, mask], [torch.zeros(12)])[0], x.masked_select(mask))


def test_tiles_of_nothing(older: Older) -> None:
    assert older("Tile", [torch.ones(2, 3), [0, 2]], [torch.ones(0, 6)])[0].shape == (0, 6)


def test_counts_of_one_distinct_item(older: Older) -> None:
    none = torch.zeros((), dtype=torch.int64)
    found = older.sized("UniqueWithCountsAndSorting", [ONE], [ROW * 0, none, torch.full((1,), -1)], return_counts=True, return_inverse=False)
    same(found[0], ROW)
    assert found[2].tolist() == [1]


@pytest.mark.parametrize("axis", [0, -1])
def test_distinct_slices(older: Older, axis: int) -> None:
    x = torch.tensor([[1, 2, 2, 2], [0, 5, 5, 5], [0, 5, 5, 5], [1, 2, 2, 2]], dtype=torch.float32)
    room = [x * 0, *(torch.zeros(4, dtype=torch.int64) for _ in range(3))]
    items, _, counts, inverse = older.sized("UniqueWithCountsExt2", [x, [axis]], room, sorted=True, return_inverse=True)
    for got, want in zip((items, inverse, counts), x.unique(dim=axis, return_inverse=True, return_counts=True), strict=True):
        same(got, want)
    runs = older.sized("UniqueConsecutive", [x], room[:3], axis=axis, return_idx=True, return_counts=True)
    for got, want in zip(runs, x.unique_consecutive(dim=axis, return_inverse=True, return_counts=True), strict=True):
        same(got, want)


def test_rows_and_ranges(older: Older) -> None:
    x, rows = torch.rand(4, 3, generator=R), torch.rand(2, 3, generator=R)
    same(older("ScatterUpdate", [x, torch.tensor([2, 0]), rows], [x * 0])[0], x.index_copy(0, torch.tensor([2, 0]), rows))
    same(older("RangeD", [torch.zeros(3)], [torch.zeros(3)], start=1.0, limit=2.5, delta=0.5)[0], torch.tensor([1.0, 1.5, 2.0]))
    same(older("Slice", [x, [1, 0], [2, 3]], [torch.zeros(6)])[0], x[1:3].reshape(-1))  # the items under another shape
    scales = torch.renorm(x * 9, 2, 0, 1.0) / (x * 9)
    same(older("Renorm", [x * 9], [x * 0], p=2.0, dim=0, maxnorm=1.0)[0], scales, rtol=1e-4, atol=1e-5)


def test_counts_and_searches(older: Older) -> None:
    at = torch.tensor([1, 3, 1, 0], dtype=torch.int32)
    weights = torch.rand(4, generator=R)
    size = torch.tensor(5, dtype=torch.int32)
    same(older("Bincount", [at, size, weights], [torch.zeros(5)])[0], torch.bincount(at, weights, 5))
    same(older("Bincount", [at, size, torch.empty(0)], [torch.zeros(5, dtype=torch.int64)])[0], torch.bincount(at, minlength=5))
    rows, values = torch.rand(2, 6, generator=R).sort(1)[0], torch.rand(2, 4, generator=R)
    for right in (False, True):
        values[:, 0] = rows[:, 2]
        same(older("SearchSorted", [rows, values], [torch.zeros(2, 4, dtype=torch.int64)], right=right)[0], torch.searchsorted(rows, values, right=right))
    same(older("GatherV2D", [rows, torch.tensor([1, 0, 1])], [torch.zeros(3, 6)], axis=0)[0], rows[[1, 0, 1]])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(older: Older, mode: str) -> None:
    table, places, begins = torch.rand(6, 3, generator=R), torch.tensor([0, 2, 5, 1, 1]).int(), torch.tensor([0, 3]).int()
    weights = torch.rand(5, generator=R) if mode == "sum" else None
    outputs = [torch.zeros(2, 3), places * 0, begins * 0, torch.zeros(2, 3).int() if mode == "max" else begins * 0]
    inputs = [table, places, begins] + ([weights] if mode == "sum" else [])
    got = older("EmbeddingBag", inputs, outputs, mode=mode, padding_idx=1, include_last_offset=False)
    same(got[0], F.embedding_bag(places, table, begins, mode=mode, per_sample_weights=weights, padding_idx=1))
    assert got[1].tolist() == [0, 0, 0, 1, 1] and got[2].tolist() == [3, 0]
    if mode == "max":
        assert got[3][0].tolist() == torch.tensor([0, 2, 5])[table[[0, 2, 5]].argmax(0)].tolist()


def test_temporal_classification(older: Older) -> None:
    steps, samples, classes, longest = 7, 3, 5, 3
    logits = torch.randn(steps, samples, classes, generator=R).log_softmax(-1).requires_grad_()
    targets = torch.randint(1, classes, (samples, longest), generator=R)
    inputs, lengths = torch.tensor([7, 5, 6]), torch.tensor([3, 1, 2])
    want = F.ctc_loss(logits, targets, inputs, lengths, reduction="none")
    weights = torch.tensor([1.0, -2.0, 0.5])
    slope = torch.autograd.grad(want, logits, weights)[0]
    x = logits.detach()
    loss, alpha = older("CTCLossV2", [x, targets, inputs, lengths], [torch.zeros(samples), torch.zeros(samples, steps, 8)], blank=classes * longest)
    same(loss, want.detach(), rtol=1e-4, atol=1e-5)
    back = older("CTCLossV2Grad", [weights, x, targets, inputs, lengths, loss, alpha], [x * 0], blank=0, zero_infinity=False)[0]
    same(back, slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margins_of_many_labels(older: Older, reduction: str) -> None:
    x, targets = torch.rand(2, 4, generator=R), torch.tensor([[3, 0, -1, 1], [-1, 2, 0, 1]]).int()
    want = F.multilabel_margin_loss(x, targets.long(), reduction=reduction)
    loss, marks = older("MultilabelMarginLoss", [x, targets], [torch.zeros_like(want), targets * 0], reduction=reduction)
    same(loss, want)
    assert marks.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]


def test_masks_by_their_seeds(older: Older) -> None:
    seeds = lambda a, b: [torch.tensor(a).int(), torch.tensor(b).int(), [0, 4]]
    draw = lambda a, b: older("StatelessDropOutGenMask", [[4096], torch.tensor(0.75), *seeds(a, b)], [torch.zeros(512, dtype=torch.uint8)])[0]
    first = draw(1, 2)
    same(draw(1, 2), first)
    assert not torch.equal(draw(1, 3), first) and not torch.equal(draw(2, 2), first)
    kept = sum(bin(b).count("1") for b in first.tolist())
    assert 0.72 < kept / 4096 < 0.78


@pytest.mark.parametrize("shifted", [False, True])
def test_the_scale_with_the_least_error(older: Older, shifted: bool) -> None:
    x = torch.randn(64, generator=R)
    counts = torch.histc(x, 128).cumsum(0).int()
    scale, offset = (t.item() for t in older("IFMR", [x, x.min().reshape(1), x.max().reshape(1), counts], [ROW * 0, ROW * 0],
                     min_percentile=0.999999, max_percentile=0.999999, search_range=[0.7, 1.3], search_step=0.01, with_offset=shifted))  # fmt: skip
    top = x.max() if shifted else x.abs().max()
    low = x.min() if shifted else torch.tensor(0.0)

    def error(s: float, o: float) -> float:
        return float((((x / s).round() + o).clamp(-128, 127) - o).mul(s).sub(x).square().sum())

    tried = [float((top * (0.7 + 0.01 * k) - low) / (255 if shifted else 127)) for k in range(60)]
    offsets = [-(round(float(low) / s) + 128) if shifted else 0 for s in tried]
    assert error(scale, offset) <= min(map(error, tried, offsets)) * 1.05
    assert abs(offset) <= 128 and (shifted or offset == 0)


def test_windows_of_gradients_and_divisors(older: Older) -> None:
    x = torch.randn(1, 2, 4, 5, 4, generator=R)
    got = older("AvgPool3D", [x], [torch.zeros(1, 2, 2, 2, 2)], ksize=[2, 2, 3], strides=[2, 2, 1], pads=[0] * 6, divisor_override=-2)[0]
    same(got, F.avg_pool3d(x, (2, 2, 3), (2, 2, 1), divisor_override=-2), rtol=1e-5, atol=1e-5)
    image = torch.randn(1, 2, 5, 7, generator=R, requires_grad=True)
    y = F.max_pool2d(image, 3, 2, dilation=(1, 2))
    dy = torch.randn(y.shape, generator=R)
    want = torch.autograd.grad(y, image, dy)[0]
    windows = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 1, 2, 1]}
    same(older("MaxPoolGradWithArgmaxV1", [image.detach(), dy, torch.zeros(1, 2, 9, 2, dtype=torch.int16)], [image.detach() * 0], **windows)[0], want)
