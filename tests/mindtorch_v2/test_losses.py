"""The losses that look at whole rows and sequences, CTC and margins, in values and gradients: PyTorch judges."""
from __future__ import annotations

import itertools

import pytest
import torch
from oracle import to_ours, to_torch

import mindtorch_v2 as mt


def both(loss, *tensors, other=()):
    """The loss and the gradients of the tensors, here and in PyTorch; the weight of each loss is one of its own."""
    found = []
    for xp in (torch, mt):
        made = [(x.clone() if xp is torch else to_ours(x)).requires_grad_() for x in tensors]
        rest = [x if xp is torch else to_ours(x) for x in other]
        out = loss(xp.nn.functional, *made, *rest)
        weights = torch.arange(1, out.numel() + 1, dtype=torch.float64).reshape(out.shape).to(tensors[0].dtype)
        grads = xp.autograd.grad(out, made, weights if xp is torch else to_ours(weights))
        found.append([out.detach(), *grads])
    for expected, got in zip(found[0], found[1], strict=True):
        rtol = 1e-9 if expected.dtype == torch.float64 else 2e-4
        torch.testing.assert_close(to_torch(got), expected, rtol=rtol, atol=rtol / 50, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc(dtype, zero_infinity, flat):
    torch.manual_seed(0)
    time, batch, classes = 23, 7, 6
    scores = torch.randn(time, batch, classes, dtype=dtype) * 3
    # Whole and short samples, one without targets, one whose targets do not fit its steps; the same label twice in a row.
    steps, lengths = [23, 20, 5, 23, 4, 1, 22], [8, 1, 3, 0, 6, 1, 8]
    targets = torch.randint(1, classes, (batch, 8))
    targets[0, 3] = targets[0, 2]
    targets[6] = torch.tensor([1, 1, 2, 2, 2, 1, 3, 3])
    given = torch.cat([row[:n] for row, n in zip(targets, lengths, strict=True)]) if flat else targets
    for reduction, blank in itertools.product(("none", "sum", "mean"), (0, 5)):
        kept = given.clamp(max=4) if blank == 5 else given
        both(lambda f, x, y, reduction=reduction, blank=blank: f.ctc_loss(
            x.log_softmax(2), y, steps, lengths, blank, reduction, zero_infinity), scores, other=[kept])


def test_ctc_of_other_layouts_and_one_sample():
    torch.manual_seed(1)
    scores = torch.randn(5, 30, 9)
    targets = torch.randint(1, 9, (5, 6), dtype=torch.int32)
    both(lambda f, x, y: f.ctc_loss(x.log_softmax(2).transpose(0, 1), y, [30] * 5, [6, 5, 4, 3, 2]), scores, other=[targets])
    both(lambda f, x, y: f.ctc_loss(x.log_softmax(1), y, (30,), (6,)), scores[0], other=[targets[0]])


def test_ctc_refuses_lengths_beyond_its_tensors():
    x = mt.randn(5, 2, 4).log_softmax(2)
    for steps, lengths in (([6, 5], [1, 1]), ([5], [1]), ([5, 5], [4, 4]), ([5, -1], [1, 1])):
        with pytest.raises(RuntimeError):
            mt._ctc_loss(x, mt.ones(2, 3, dtype=mt.int64), steps, lengths)
    with pytest.raises((RuntimeError, IndexError)):
        mt._ctc_loss(x, mt.full((2, 3), 4), [5, 5], [3, 3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", [1, 3, 8, 37])
def test_margins(dtype, classes):
    torch.manual_seed(classes)
    rows = torch.randn(11, classes, dtype=dtype)
    target, weight = torch.randint(0, classes, (11,)), torch.rand(classes, dtype=dtype)
    labels = torch.stack([torch.randperm(classes) for _ in range(11)])
    labels = labels.masked_fill(torch.arange(classes) >= torch.randint(0, classes + 1, (11, 1)), -1)
    for reduction in ("none", "sum", "mean"):
        for p, margin in ((1, 1.0), (2, 0.3)):
            both(lambda f, x, y, w, p=p, margin=margin, reduction=reduction: f.multi_margin_loss(
                x, y, p=p, margin=margin, weight=w, reduction=reduction), rows, other=[target, weight])
            both(lambda f, x, y, p=p, margin=margin, reduction=reduction: f.multi_margin_loss(
                x.t(), y, p=p, margin=margin, reduction=reduction), rows.t().contiguous(), other=[target])
        both(lambda f, x, y, reduction=reduction: f.multilabel_margin_loss(x, y, reduction=reduction), rows, other=[labels])
    both(lambda f, x, y: f.multi_margin_loss(x, y), rows[0], other=[target[0]])
    both(lambda f, x, y: f.multilabel_margin_loss(x, y), rows[0], other=[labels[0]])


def test_margins_with_nan_and_twice_the_same_label():
    rows = torch.tensor([[0.1, torch.nan, 0.3, 0.9], [1.0, 0.5, -torch.inf, 2.0]])
    both(lambda f, x, y: f.multi_margin_loss(x, y, reduction="none"), rows[1:], other=[torch.tensor([1])])
    both(lambda f, x, y: f.multilabel_margin_loss(x, y, reduction="none"), rows[1:], other=[torch.tensor([[1, 1, 3, -1]])])
    assert mt.nn.functional.multi_margin_loss(to_ours(rows[:1]), mt.tensor([0])).isnan()


def test_margins_refuse_targets_that_are_no_class():
    for target in (-1, 3):
        with pytest.raises(RuntimeError, match="target out of range"):
            mt.nn.functional.multi_margin_loss(mt.zeros(2, 3), mt.tensor([0, target]))
    for target in (-2, 3):
        with pytest.raises(RuntimeError, match="argument #2 'target' is out of range"):
            mt.nn.functional.multilabel_margin_loss(mt.zeros(2, 3), mt.tensor([[0, target, 1]] * 2))


@pytest.mark.parametrize("classes", [3, 100, 3000])
@pytest.mark.parametrize("size", [20.0, 1e4, 1e30])
def test_cross_entropy_of_large_logits_keeps_its_digits(size: float, classes: int) -> None:
    """A loss is small beside such logits: all of them alike, and one that leads by a little."""
    for lead in (0.0, 8.0):
        logits = torch.full((2, classes), size)
        logits[0, 1] += lead
        target = torch.tensor([1, 0])
        for smoothing in (0.0, 0.1):
            options = {"reduction": "none", "label_smoothing": smoothing}
            loss = mt.nn.functional.cross_entropy(to_ours(logits), to_ours(target), **options)
            expected = torch.nn.functional.cross_entropy(logits.double(), target, **options)
            torch.testing.assert_close(to_torch(loss).double(), expected, rtol=1e-6, atol=1e-7)
