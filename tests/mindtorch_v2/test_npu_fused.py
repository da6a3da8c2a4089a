"""Composites that CANN has one op for: which ops are launched, that op and body agree, and when the body serves.

As a program it runs CASES with a mark after each part; the simulator's trace shows what was launched between two marks."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import mindtorch_v2 as mt
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn
from mindtorch_v2._ops import table

F = mt.nn.functional


def given(*shape: int, low: float = 0.1, high: float = 0.9) -> Any:
    """Numbers that differ, in (low, high)."""
    n = mt.Size(shape).numel()
    return (mt.arange(n, dtype=mt.float32) * 7 % n / n * (high - low) + low).reshape(shape)


def signs(*shape: int) -> Any:
    return (mt.arange(mt.Size(shape).numel(), dtype=mt.float32) % 2 * 2 - 1).reshape(shape)


X, Y = given(4, 6), given(4, 6, low=0.2)
WEIGHT = given(6)
LABELS = mt.tensor([[3, 0, -1, 1, 1, 2], [0, 1, -1, 1, 1, 2], [5, -1, 1, 1, 1, 2], [-1, 1, 1, 1, 1, 2]])
POOLED, PLACES = F.max_pool2d(given(1, 2, 4, 4), 2, return_indices=True)
POOLED3, PLACES3 = F.max_pool3d(given(1, 2, 4, 4, 4), 2, return_indices=True)
# name -> (function of tensors, tensors: the first gets a gradient, ops of the forward, ops of the backward)
Case = tuple[Callable[..., Any], tuple[Any, ...], str, str]
CASES: dict[str, Case] = {
    "mse_loss": (F.mse_loss, (X, Y), "MseLoss", "MseLossBackward"),
    "mse_loss, each": (lambda x, y: F.mse_loss(x, y, reduction="none"), (X, Y), "MseLoss", "MseLossBackward"),
    "l1_loss": (F.l1_loss, (X, Y), "L1Loss", "L1LossBackward"),
    "smooth_l1_loss": (lambda x, y: F.smooth_l1_loss(x, y, beta=0.3), (X, Y), "SmoothL1Loss", "SmoothL1LossBackward"),
    "huber_loss": (lambda x, y: F.huber_loss(x, y, delta=0.3), (X, Y), "SmoothL1Loss Muls",
                   "Muls SmoothL1LossBackward"),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="sum"), (X, Y), "KlDiv", "KlDivBackward"),
    "soft_margin_loss": (F.soft_margin_loss, (X, signs(4, 6)), "SoftMarginLoss", "SoftMarginLossBackward"),
    "binary_cross_entropy": (F.binary_cross_entropy, (X, Y), "BinaryCrossEntropy", "BinaryCrossEntropyBackward"),
    "binary_cross_entropy_with_logits": (
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w), (X, Y, WEIGHT),
        "BinaryCrossEntropyWithLogits", "BinaryCrossEntropyWithLogitsBackward"),
    "ctc_loss": (lambda x, y: F.ctc_loss(x, y, [5, 4], [3, 2], reduction="sum"),
                 (given(5, 2, 4).log_softmax(-1), mt.tensor([[1, 2, 1], [2, 3, 1]])), "CtcLoss ReduceSum",
                 "CtcLossBackward"),
    "glu": (F.glu, (X,), "Glu", "GluBackward"),
    "hardshrink": (F.hardshrink, (X,), "Hardshrink", "HardshrinkBackward"),
    "softshrink": (F.softshrink, (X,), "Softshrink", "SoftshrinkBackward"),
    "logit": (mt.logit, (X,), "Logit", "LogitGrad"),
    "prelu": (F.prelu, (X, WEIGHT), "Prelu", "PreluBackward"),
    "rrelu": (lambda x: F.rrelu(x, training=True), (signs(4, 6),), "RReluWithNoise", "Mul"),
    "logsigmoid": (F.logsigmoid, (X,), "LogSigmoid", "LogSigmoidBackward"),
    "layer_norm": (lambda x: F.layer_norm(x, (6,)), (X,), "LayerNorm", "LayerNormBackward"),   # no zeros for the moments
    "selu": (F.selu, (X,), "Elu", "EluBackward"),
    "lstm cell": (lambda x, h, c: mt._thnn_fused_lstm_cell(x, h, c)[0], (given(2, 12), given(2, 12), given(2, 3)),
                  "ThnnFusedLstmCell", "InplaceZero ThnnFusedLstmCellBackward"),
    "embedding_bag": (lambda w, i, o: F.embedding_bag(i, w, o, mode="sum"), (X, mt.tensor([3, 1, 2]), mt.tensor([0, 2])),
                      "EmbeddingBag", "IndexSelect EmbeddingDenseBackward"),
    "chunk": (lambda x: mt.mul(*x.chunk(2, 1)), (X,), "Mul", "Mul*2 Cat"),
    "unbind": (lambda x: mt.mul(*x.unbind(0)[:2]), (X[:2],), "Mul", "Mul*2 Stack"),
    "logsumexp": (lambda x: x.logsumexp(1), (X,), "LogSumExp", "Sub Exp Mul"),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 2), (given(1, 2, 5, 5),), "AdaptiveAvgPool2d",
                            "AdaptiveAvgPool2dBackward"),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), (given(1, 2, 5, 5, 5),), "AdaptiveAvgPool3d",
                            "AdaptiveAvgPool3dBackward"),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x, i, 2), (POOLED, PLACES), "MaxUnpool2d", "Gather"),
    "max_unpool3d": (lambda x, i: F.max_unpool3d(x, i, 2), (POOLED3, PLACES3), "MaxUnpool3d", "Gather"),
    "cross": (lambda x, y: mt.linalg.cross(x, y), (given(4, 3), given(4, 3, low=0.3)), "LinalgCross", "LinalgCross"),
    "cdist": (mt.cdist, (X, Y), "Cdist", "CdistBackward"),
    "addbmm": (mt.addbmm, (given(4, 4), given(2, 4, 6), given(2, 6, 4)), "Addbmm", ""),
    "stack": (lambda x, y: mt.stack([x, y]), (X, Y), "Stack", ""),
    "clamp": (mt.clamp, (X, Y * 0.5, Y), "ClampTensor", "GeTensor LeTensor BitwiseAndTensor InplaceFillScalar SWhere"),
    # without a gradient
    "affine_grid": (lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=False), (given(2, 2, 3),), "AffineGrid", "-"),
    "renorm": (lambda x: mt.renorm(x, 2, 0, 0.5), (X,), "Renorm", "-"),
    "pdist": (F.pdist, (X,), "Pdist", "-"),
    "logdet": (mt.logdet, (mt.eye(3).expand(2, 3, 3) * 2,), "Logdet", "-"),
    "triangular_solve": (mt.triangular_solve, (given(3, 2), mt.eye(3)), "TriangularSolve", "-"),
    "multilabel_margin_loss": (F.multilabel_margin_loss, (X, LABELS), "MultilabelMarginLoss", "-"),
    "conv_tbc": (mt.conv_tbc, (given(5, 2, 3), given(2, 3, 4), given(4)), "ConvTbc", "-"),
    "isclose": (mt.isclose, (X, Y), "IsClose", "-"),
    "isin": (lambda x: mt.isin(x, 2), (mt.tensor([3, 2]),), "EqScalar", "-"),
    "argsort": (mt.argsort, (X,), "Argsort", "-"),
    "one_hot": (lambda x: F.one_hot(x, 4), (mt.tensor([3, 1]),), "OneHot", "-"),
    "fill_diagonal_": (lambda x: x.fill_diagonal_(3), (X.clone(),), "InplaceFillDiagonal", "-"),
    "embedding_renorm_": (lambda x, i: mt.embedding_renorm_(x, i, 0.5, 2.0), (X.clone(), mt.tensor([3, 1])),
                          "EmbeddingRenorm", "-"),
    "unique slices": (lambda x: mt.unique(x, dim=0), (X,), "UniqueDim InplaceCopy*2", "-"),
    "unique runs of slices": (lambda x: mt.unique_consecutive(x, dim=0), (X,), "UniqueConsecutive InplaceCopy*2", "-"),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (given(1, 4, 2, 2),), "InplaceCopy", "-"),
}
BY_BODY = "affine_grid renorm pdist logdet triangular_solve multilabel_margin_loss conv_tbc".split()  # their gradients
FIXED = {"soft_margin_loss": (1,), "binary_cross_entropy_with_logits": (2,)}     # places of tensors without a gradient, as in torch
MARK = "aclnnErfinv"


def mark() -> None:
    mt.ones(1, device="npu").erfinv()


def run_cases() -> None:
    """Inputs, mark, forward, mark, backward, mark: of each case."""
    for fn, tensors, _, backward in CASES.values():
        first, *rest = (t.to("npu") for t in tensors)
        start = mt.ones_like(fn(first.clone(), *rest)) if backward != "-" else None  # and constants are made
        fn(first.clone(), *rest)
        if start is not None:
            first.requires_grad_()
        mark()
        made = fn(first, *rest)
        mark()
        if start is not None:
            mt.autograd.grad(made, first, start)
        mark()


def shortened(names: list[str]) -> str:
    """"Add Mul*2" of aclnnAdd, aclnnMul, aclnnMul."""
    counted: list[list[Any]] = []
    for name in names:
        if counted and counted[-1][0] == name:
            counted[-1][1] += 1
        else:
            counted.append([name, 1])
    return " ".join(name.removeprefix("aclnn") + (f"*{n}" if n > 1 else "") for name, n in counted)


def test_each_composite_is_one_op(npu: Any, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    done = subprocess.run([sys.executable, __file__], env=os.environ | {"CANN_SIM_TRACE": str(file)}, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    parts: list[list[str]] = [[]]
    for event in json.loads(file.read_text()):
        if event["name"] == MARK:
            parts[-1:] = [parts[-1][:-1], []]                # without the mark's own ones
        elif not event["name"].startswith("aclrt"):
            parts[-1].append(event["name"])
    found = {name: (shortened(parts[3 * i + 1]), shortened(parts[3 * i + 2])) for i, name in enumerate(CASES)}
    assert found == {name: (forward, backward.replace("-", "")) for name, (_, _, forward, backward) in CASES.items()}


# ---- op and body ------------------------------------------------------------------------------------------------------
@contextmanager
def bodies() -> Iterator[None]:
    """Composites run as they are written, on the npu too."""
    def set_all(kernel: Any) -> None:
        for schema, row in table.rows:
            if row["body"] and row["rule"] is not None:
                op = _C._op_named(schema.name)
                at = next(i for i, ov in enumerate(op.overloads) if ov.overload_name == schema.overload)
                _C._set_kernel(op, at, "npu", kernel)
    set_all(False)
    try:
        yield
    finally:
        set_all(None)                                        # looked for again


def outcome(name: str, device: str, order: int = 1) -> list[Any]:
    """What a case gives, and its gradients to all floats, on a device; order 2: the gradients of those."""
    fn, tensors, _, backward = CASES[name]
    differentiable = backward != "-" or name in BY_BODY
    tensors = tuple(t.clone().to(device) for t in tensors)
    floats = [t.requires_grad_() for i, t in enumerate(tensors)
              if differentiable and t.is_floating_point() and i not in FIXED.get(name, ())]
    made = fn(*tensors)
    made = list(made) if isinstance(made, tuple) else [made]
    results = [m.detach() for m in made]
    for i in range(order if floats else 0):
        made = [m for m in made if m.requires_grad]
        starts = [(mt.arange(m.numel(), dtype=m.dtype) % 5 - 1.5).reshape(m.shape).to(device) for m in made]
        if not made:
            break
        made = list(mt.autograd.grad(made, floats, starts, allow_unused=True, create_graph=i + 1 < order))
        made = [mt.zeros_like(f) if m is None else m for m, f in zip(made, floats, strict=True)]
        results += [m.detach() for m in made]
    return results


def agree(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        mt.testing.assert_close(a.cpu(), b.cpu(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in CASES if name != "rrelu"])        # whose draws differ
def test_op_and_body_agree(npu: Any, name: str) -> None:
    fused = outcome(name, "npu")
    with bodies():
        agree(fused, outcome(name, "npu"))
    with mt.no_grad():                                       # ops without a gradient of their own serve here only
        made = CASES[name][0](*(t.clone().npu() for t in CASES[name][1]))
        agree(list(made) if isinstance(made, tuple) else [made], fused[:2 if isinstance(made, tuple) else 1])


@pytest.mark.parametrize("name", [name for name, (*_, backward) in CASES.items()
                                  if backward != "-" and name not in ("rrelu", "ctc_loss", "clamp",
                                                                              "cdist")])        # none on a cpu, as in torch
def test_second_derivatives(npu: Any, name: str) -> None:
    agree(outcome(name, "npu", 2), outcome(name, "cpu", 2))


# ---- what CANN's op does not take: the body serves --------------------------------------------------------------------
OTHERS: dict[str, Callable[[str], Any]] = {
    "float64": lambda d: F.mse_loss(X.double().to(d), Y.double().to(d)),
    "integers": lambda d: F.l1_loss(mt.tensor([1, 5], device=d), mt.tensor([4, 3], device=d), reduction="sum"),
    "two dtypes": lambda d: F.mse_loss(X.to(d), Y.double().to(d)),
    "no items": lambda d: F.mse_loss(mt.ones(0, 3, device=d), mt.ones(0, 3, device=d), reduction="sum"),
    "no dims": lambda d: F.binary_cross_entropy_with_logits(mt.tensor(0.3, device=d), mt.tensor(0.5, device=d)),
    "a number on the cpu": lambda d: mt.isclose(X.to(d), mt.tensor(0.5), atol=0.3),
    "broadcast": lambda d: mt.nn.functional.smooth_l1_loss(X.to(d), Y[:1].to(d)),
    "a gradient without a formula": lambda d: mt.autograd.grad(
        F.kl_div(X.to(d), (y := Y.clone().to(d).requires_grad_()), reduction="sum"), y)[0],
    "the gradient of a target": lambda d: mt.autograd.grad(
        F.binary_cross_entropy(X.to(d), (y := Y.clone().to(d).requires_grad_()), X.to(d)), y)[0],
    "a range that ends with its end": lambda d: mt.range(0, 5, device=d),
    "classes to count": lambda d: F.one_hot(mt.tensor([3, 1], device=d)),
    "beta of 0": lambda d: F.smooth_l1_loss(X.to(d), Y.to(d), beta=0.0),
    "stable": lambda d: mt.tensor([2, 1, 2, 1], device=d).argsort(stable=True),
    "a cube's diagonal": lambda d: mt.zeros(3, 3, 3, device=d).fill_diagonal_(2.0),
    "no targets": lambda d: F.ctc_loss(given(5, 2, 4).log_softmax(-1).to(d), mt.tensor([[1], [1]], device=d), [5, 5],
                                       [1, 0], reduction="none"),
    "a scalar weight": lambda d: F.prelu(signs(4, 6).to(d), mt.tensor(0.25, device=d)),
}


@pytest.mark.filterwarnings("ignore")                        # broadcast losses warn
@pytest.mark.parametrize("what", OTHERS)
def test_the_body_serves_the_rest(npu: Any, what: str) -> None:
    made = OTHERS[what]("npu")
    assert made.is_npu
    agree([made], [OTHERS[what]("cpu")])


@pytest.mark.parametrize("call, message", [
    (lambda x: F.glu(x[:, :3]), "must be even"), (lambda x: mt.renorm(x, -1, 0, 1), "non-positive-norm"),
    (lambda x: mt.stack([x, x[:2]]), "equal size"), (lambda x: F.prelu(x, x[0, :3]), "Mismatch"),
    (lambda x: mt.linalg.cross(x, x), "length 3"), (lambda x: mt.isclose(x, x.double()), "did not match"),
    (lambda x: F.pdist(x[0]), "2D tensors"), (lambda x: mt.cdist(x, x[:, :2]), "same number of columns")])
def test_the_same_errors_as_on_the_cpu(npu: Any, call: Callable[[Any], Any], message: str) -> None:
    for x in (X, X.npu()):
        with pytest.raises(RuntimeError, match=message):
            call(x)


def test_a_composite_does_without_an_op_that_cann_lacks(npu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = outcome("cdist", "cpu")
    monkeypatch.setattr(aclnn, "has", lambda name: False)
    with bodies():
        pass                                                 # clears the cache
    try:
        agree(outcome("cdist", "npu"), expected)
    finally:
        with bodies():
            pass


def test_what_a_composite_names_has_an_effect() -> None:
    for schema, row in table.rows:
        assert not (row["body"] and row["npu"]) or row["rule"] is not None, schema.name
    with pytest.raises(ValueError, match="needs a rule"):
        table.composite("_untested(Tensor self) -> Tensor", npu="aclnnAbs(self, out)")(lambda self: self)


if __name__ == "__main__":
    run_cases()
