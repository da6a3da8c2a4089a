"""Losses of the simulator against torch: reductions, broadcasting, weights, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, sample
from torch import Tensor
from torch.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:reduction. .mean. divides")  # kl_div: the judge does what is asked
INVALID, NULL = 161002, 161001
CLOSE = {
    torch.float16: {"rtol": 4e-3, "atol": 8e-3}, torch.bfloat16: {"rtol": 3e-2, "atol": 6e-2},
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
}  # fmt: skip
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
REDUCTIONS = ["none", "mean", "sum"]


def close(got: Tensor, want: Tensor) -> None:
    same(got, want, **CLOSE.get(want.dtype, {"rtol": 1e-9, "atol": 1e-9}))


def blank(like: Tensor) -> Tensor:
    return torch.full_like(like, 77)


def gradient(f: Callable[[Tensor], Tensor], grad: Tensor, x: Tensor) -> Tensor:
    leaf = x.detach().float().requires_grad_()
    return torch.autograd.grad(f(leaf), leaf, grad.float())[0].to(x.dtype)


PAIRS: list[tuple[str, tuple[Any, ...], Callable[..., Tensor]]] = [
    ("Mse", (), F.mse_loss), ("L1", (), F.l1_loss),
    ("SmoothL1", (0.7,), lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.7)),
    ("SmoothL1", (0.0,), lambda x, t, reduction: F.smooth_l1_loss(x, t, reduction=reduction, beta=0.0)),
    ("SoftMargin", (), lambda x, t, reduction: F.soft_margin_loss(x, t.sign(), reduction=reduction)),
    ("KlDiv", (False,), lambda x, t, reduction: F.kl_div(x, t.abs(), reduction=reduction)),
    ("KlDiv", (True,), lambda x, t, reduction: F.kl_div(x, t, reduction=reduction, log_target=True)),
]  # fmt: skip


def prepared(name: str, extra: tuple[Any, ...], t: Tensor) -> Tensor:
    """The target as the op takes it; the judges above do the same to theirs."""
    return t.sign() if name == "SoftMargin" else t.abs() if (name, extra) == ("KlDiv", (False,)) else t


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (7,), (2, 3, 2, 2), (0, 4)], ids=str)
@pytest.mark.parametrize("name, extra, judge", PAIRS)
def test_pairs(name: str, extra: Any, judge: Any, shape: Any, dtype: Any, reduction: str, layout: str) -> None:
    x, raw = LAYOUTS[layout](sample(dtype, *shape)), LAYOUTS[layout](sample(dtype, *shape, seed=1))
    t, op = prepared(name, extra, raw), f"aclnn{name}" if name == "KlDiv" else f"aclnn{name}Loss"
    want = judge(x.float(), raw.float(), reduction=reduction).to(dtype)
    code = REDUCTIONS.index(reduction)
    close(client().call(op, x, t, code, *extra, blank(want)), want)
    g = sample(dtype, *want.shape, seed=2)
    back = gradient(lambda x: judge(x, raw.float(), reduction=reduction), g, x)
    close(client().call(f"{op}Backward", g, x, t, code, *extra, blank(back)), back)


def test_pairs_broadcast() -> None:
    x, t = sample(torch.float32, 3, 1), sample(torch.float32, 4, seed=1)
    want = (x - t).square()
    close(client().call("aclnnMseLoss", x, t, 0, blank(want)), want)
    close(client().call("aclnnMseLoss", x, t, 1, torch.empty(())), want.mean())


def test_l1_of_integers() -> None:
    x, t = sample(torch.int64, 3, 4), sample(torch.int64, 3, 4, seed=1)
    same(client().call("aclnnL1Loss", x, t, 2, torch.empty((), dtype=torch.int64)), (x - t).abs().sum())


def test_kl_div_batchmean() -> None:
    x, t = sample(torch.float32, 3, 4), sample(torch.float32, 3, 4, seed=1).abs()
    close(client().call("aclnnKlDiv", x, t, 3, False, torch.empty(())), F.kl_div(x, t, reduction="batchmean"))


# ---- binary cross entropy ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_cross_entropy(dtype: torch.dtype, reduction: str, weighted: bool) -> None:
    code, shape = REDUCTIONS.index(reduction), (3, 4)
    x, t = (torch.rand(shape) * 0.9 + 0.05).to(dtype), torch.rand(shape).to(dtype)
    w = torch.rand(4).to(dtype) if weighted else None
    pos = torch.rand(4).to(dtype) if weighted else None
    wide = [None if v is None else v.float() for v in (w, pos)]

    def bce(x: Tensor) -> Tensor:
        return F.binary_cross_entropy(x, t.float(), wide[0], reduction=reduction)

    def logits(x: Tensor, t: Tensor = t) -> Tensor:
        return F.binary_cross_entropy_with_logits(x, t.float(), wide[0], reduction=reduction, pos_weight=wide[1])

    want = bce(x.float()).to(dtype)
    g = sample(dtype, *want.shape, seed=3)
    close(client().call("aclnnBinaryCrossEntropy", x, t, w, code, blank(want)), want)
    close(client().call("aclnnBinaryCrossEntropyBackward", g, x, t, w, code, blank(x)), gradient(bce, g, x))
    x = sample(dtype, *shape)
    want = logits(x.float()).to(dtype)
    close(client().call("aclnnBinaryCrossEntropyWithLogits", x, t, w, pos, code, blank(want)), want)
    name = "aclnnBinaryCrossEntropyWithLogits"
    close(client().call(f"{name}Backward", g, x, t, w, pos, code, blank(x)), gradient(logits, g, x))
    of_target = gradient(lambda t: logits(x.float(), t), g, t)
    close(client().call(f"{name}TargetBackward", g, x, t, w, pos, code, blank(t)), of_target)


def test_binary_cross_entropy_at_the_ends() -> None:
    x, t = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0, 0.0])
    close(
        client().call("aclnnBinaryCrossEntropy", x, t, None, 0, torch.empty(4)),
        F.binary_cross_entropy(x, t, reduction="none"),
    )
    big = torch.tensor([-200.0, 200.0, -200.0, 200.0])
    got = client().call("aclnnBinaryCrossEntropyWithLogits", big, t, None, None, 0, torch.empty(4))
    close(got, F.binary_cross_entropy_with_logits(big, t, reduction="none"))


# ---- classes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("ignore", [-100, 2])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("shape", [(6, 5), (5,), (2, 5, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nll(dtype: torch.dtype, shape: Any, kind: torch.dtype, reduction: str, ignore: int) -> None:
    op, code = "aclnnNLLLoss2d" if len(shape) == 4 else "aclnnNLLLoss", REDUCTIONS.index(reduction)
    x, w = LAYOUTS["sliced"](sample(dtype, *shape)), torch.rand(5).to(dtype) + 0.5
    target = torch.randint(0, 5, shape[:1] + shape[2:] if len(shape) > 1 else ()).to(kind)
    if ignore == 2 and target.numel() > 1:
        target.view(-1)[0] = 2

    def judge(x: Tensor) -> Tensor:
        return F.nll_loss(x, target.long(), w.float(), ignore_index=ignore, reduction=reduction)

    want = judge(x.float()).to(dtype)
    total = torch.where(target.long() == ignore, 0.0, w.float()[target.long()]).sum()
    got = client().call(op, x, target, w, code, ignore, blank(want), torch.empty((), dtype=dtype))
    close(got[0], want)
    if reduction != "none":
        close(got[1], total.to(dtype))
    g = sample(dtype, *want.shape, seed=3)
    back = client().call(
        f"{op}Backward", g, x, target, w, code, ignore, total.to(dtype), torch.empty(shape, dtype=dtype)
    )
    close(back, gradient(judge, g, x))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_cross_entropy(dtype: torch.dtype, reduction: str, weighted: bool, smoothing: float) -> None:
    x, target, w = sample(dtype, 6, 5), torch.tensor([0, 4, 2, 1, 1, 3]), torch.rand(5) + 0.5 if weighted else None

    def judge(x: Tensor) -> Tensor:
        return F.cross_entropy(x, target, w, ignore_index=2, reduction=reduction, label_smoothing=smoothing)

    want = judge(x.float()).reshape(-1).to(dtype)
    nothing = torch.empty(0)
    got = client().call(
        "aclnnCrossEntropyLoss",
        x,
        target,
        w,
        reduction,
        2,
        smoothing,
        0.0,
        False,
        blank(want),
        blank(x),
        nothing,
        nothing,
    )
    close(got[0], want)
    close(got[1], torch.log_softmax(x.float(), 1).to(dtype))
    g = sample(dtype, *want.shape, seed=3)
    back = gradient(lambda x: judge(x).reshape(-1), g, x)
    close(
        client().call(
            "aclnnCrossEntropyLossGrad", g, got[1], target, w, None, None, reduction, 2, smoothing, 0.0, blank(x)
        ),
        back,
    )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (4,), (3, 4)], ids=str)
def test_multilabel_margin(shape: Any, reduction: str) -> None:
    x, n = sample(torch.float32, *shape), torch.Size(shape).numel()
    target = torch.tensor([1, 3, -1, 0, -1, 0, 1, 2, 0, 1, 2, 3])[:n].reshape(shape) if shape else torch.tensor(0)
    want = F.multilabel_margin_loss(x, target, reduction=reduction)
    got = client().call("aclnnMultilabelMarginLoss", x, target, REDUCTIONS.index(reduction), blank(want), blank(x))
    close(got[0], want)
    close(got[1], torch.ops.aten.multilabel_margin_loss_forward(x, target, 0)[1])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ctc(dtype: torch.dtype, packed: bool) -> None:
    logs = torch.randn(7, 3, 5, dtype=dtype).log_softmax(-1)
    targets, inputs, lengths = torch.tensor([[1, 2, 2], [3, 0, 0], [4, 4, 1]]), [7, 5, 3], [3, 1, 3]
    taken = torch.cat([t[:n] for t, n in zip(targets, lengths, strict=True)]) if packed else targets
    for zero in (False, True):
        want, alpha = torch.ops.aten._ctc_loss(logs, taken, inputs, lengths, 0, zero)
        states = torch.empty(3, 7, 8, dtype=dtype)  # 2 * 3 + 1, in whole blocks of 32 bytes
        got = client().call("aclnnCtcLoss", logs, taken, inputs, lengths, 0, zero, blank(want), states)
        close(got[0], want)
        for n, steps in enumerate(inputs):
            close(got[1][n, :steps, : 2 * lengths[n] + 1], alpha[n, :steps, : 2 * lengths[n] + 1])
        g = torch.rand(3, dtype=dtype)
        back = torch.ops.aten._ctc_loss_backward(g, logs, taken, inputs, lengths, want, alpha, 0, zero)
        made = client().call("aclnnCtcLossBackward", g, logs, taken, inputs, lengths, *got, 0, zero, blank(logs))
        same(made[:, :2], back[:, :2], rtol=1e-4, atol=1e-4)
        assert zero is False or not made[:, 2].any()  # the last sample cannot be spelled in 3 steps


X, T = torch.ones(3, 4), torch.zeros(3, dtype=torch.int64)
LOGS, LABELS = torch.zeros(5, 2, 4), torch.ones(2, 3, dtype=torch.int64)
BAD: list[tuple[int, str, tuple[Any, ...]]] = [
    (INVALID, "aclnnCtcLoss", (LOGS, LABELS, [5, 5], [3, 2], 0, False, torch.ones(2), torch.ones(2, 5, 7))),
    (INVALID, "aclnnCtcLossBackward", (torch.ones(2), LOGS, LABELS, [5, 5], [3, 2], torch.ones(2), torch.ones(2, 5, 6), 0,
        False, LOGS)),
    (NULL, "aclnnMseLoss", (None, X, 0, X)),
    (NULL, "aclnnMseLoss", (X, X, 0, None)),
    (INVALID, "aclnnMseLoss", (X, X, 3, X)),
    (INVALID, "aclnnMseLoss", (X, X, -1, X)),
    (INVALID, "aclnnMseLoss", (X, torch.ones(5), 0, X)),
    (INVALID, "aclnnMseLoss", (X, X, 1, X)),
    (INVALID, "aclnnMseLoss", (X, X, 0, torch.ones(()))),
    (INVALID, "aclnnMseLoss", (X.long(), X.long(), 0, X.long())),
    (INVALID, "aclnnMseLossBackward", (torch.ones(2), X, X, 0, X)),
    (INVALID, "aclnnMseLossBackward", (X, X, X, 0, torch.ones(3))),
    (INVALID, "aclnnL1Loss", (X.long(), X.long(), 1, torch.zeros((), dtype=torch.int64))),
    (INVALID, "aclnnKlDiv", (X, X, 4, False, X)),
    (INVALID, "aclnnSmoothL1Loss", (X, X, 7, 1.0, X)),
    (INVALID, "aclnnBinaryCrossEntropy", (X, torch.ones(3, 5), None, 0, X)),
    (INVALID, "aclnnBinaryCrossEntropy", (X, X, torch.ones(3), 0, X)),
    (INVALID, "aclnnBinaryCrossEntropyWithLogits", (X, X, None, torch.ones(3), 0, X)),
    (INVALID, "aclnnBinaryCrossEntropyBackward", (torch.ones(2), X, X, None, 0, X)),
    (INVALID, "aclnnNLLLoss", (X, torch.zeros(4, dtype=torch.int64), torch.ones(4), 1, -100, torch.ones(()),
        torch.ones(()))),
    (INVALID, "aclnnNLLLoss", (X, T, torch.ones(3), 1, -100, torch.ones(()), torch.ones(()))),
    (INVALID, "aclnnNLLLoss", (X, T, torch.ones(4), 5, -100, torch.ones(()), torch.ones(()))),
    (INVALID, "aclnnNLLLoss", (X, T, torch.ones(4), 0, -100, torch.ones(()), torch.ones(()))),
    (NULL, "aclnnNLLLoss", (X, T, None, 1, -100, torch.ones(()), torch.ones(()))),
    (INVALID, "aclnnNLLLoss", (X, T.float(), torch.ones(4), 1, -100, torch.ones(()), torch.ones(()))),
    (INVALID, "aclnnCrossEntropyLoss", (X, T, None, "middle", -100, 0.0, 0.0, False, torch.ones(1), X, torch.ones(0),
        torch.ones(0))),
    (INVALID, "aclnnCrossEntropyLoss", (X, T, None, "mean", -100, 1.5, 0.0, False, torch.ones(1), X, torch.ones(0),
        torch.ones(0))),
    (INVALID, "aclnnMultilabelMarginLoss", (X, X.long(), 3, torch.ones(3), X)),
    (INVALID, "aclnnCtcLoss", (torch.ones(4, 2, 3), torch.ones(2, 2).long(), [4], [2, 2], 0, False, torch.ones(2),
        torch.ones(2, 4, 5))),
    (INVALID, "aclnnCtcLoss", (torch.ones(4, 2, 3), torch.ones(2, 2).long(), [4, 5], [2, 2], 0, False, torch.ones(2),
        torch.ones(2, 4, 5))),
    (INVALID, "aclnnCtcLoss", (torch.ones(4, 2, 3), torch.ones(2, 2).long(), [4, 4], [2, 2], 3, False, torch.ones(2),
        torch.ones(2, 4, 5))),
    (INVALID, "aclnnNLLLossBackward", (torch.ones(3), X, T, torch.ones(4), 1, -100, torch.ones(()), X)),
]  # fmt: skip


@pytest.mark.parametrize("code, op, args", BAD, ids=[f"{op}-{i}" for i, (_, op, _) in enumerate(BAD)])
def test_refusals(code: int, op: str, args: tuple[Any, ...]) -> None:
    client().expect_code(code, op, *args)


def test_softmax_cross_entropy_with_logits() -> None:
    x, shares = torch.randn(5, 7).t(), torch.rand(7, 5).softmax(-1)
    leaf = x.clone().requires_grad_()
    losses = F.cross_entropy(leaf, shares, reduction="none")
    slope = torch.autograd.grad(losses.sum(), leaf)[0]
    loss, backprop = client().call("aclnnSoftmaxCrossEntropyWithLogits", x, shares, torch.empty(7), blank(x))
    close(loss, losses.detach())
    close(backprop, slope)
    assert "loss" in client().expect_code(INVALID, "aclnnSoftmaxCrossEntropyWithLogits", x, shares, torch.empty(6), blank(x))
