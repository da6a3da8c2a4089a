"""What PyTorch's lists claim of ops: a slice of parity_ops.py, and single claims that it found to be wrong once."""
from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import parity_ops
import pytest
import torch
import twin

import mindtorch_v2 as mt

HERE = Path(__file__).resolve().parent


def test_a_slice_of_all_claims_holds(tmp_path: Path) -> None:
    """Every 401st item; which ones fail at all is in the output of `make parity-ops`."""
    run = subprocess.run([sys.executable, str(HERE / "parity_ops.py"), "--out", str(tmp_path), "--part", "11/401", "--few", "1"],
                         capture_output=True, text=True)
    found = parity_ops.read(tmp_path / "here.jsonl")
    assert len(found) > 30 and {"holds"} < {r["verdict"] for r in found} | {"excepted"}
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_claim_that_does_not_hold_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ['{"key": ["out", "add", "float32"], "verdict": "fails", "why": "AssertionError: 3 and 4"}',
             '{"key": ["out", "sub", "float32"], "verdict": "fails", "why": "AssertionError: 5 and 6"}',
             '{"key": ["out", "mul", "float32"], "verdict": "holds", "why": ""}']
    (tmp_path / "here.jsonl").write_text("\n".join(lines))
    (tmp_path / "there.jsonl").write_text('{"key": ["out", "sub", "float32"], "verdict": "fails", "why": "as well"}')
    assert parity_ops.report(tmp_path) == 1
    assert "| out | 1 | 1 | 1 |" in capsys.readouterr().out


LINES = [
    "torch._native_batch_norm_legit(torch.ones(2, 3), None, None, True, 0.1, 1e-5, out=(torch.ones(0),) * 3)[0].shape",
    "torch.sum(torch.ones(2), 0, out=torch.ones(()).double())", "torch.cat([torch.ones(2)], out=torch.ones(2).double())",
    "torch.argsort(torch.tensor([2, 1]), stable=False, out=torch.tensor([0, 0]))",
    "[r.requires_grad for r in torch.native_layer_norm(torch.ones(2, 2, requires_grad=True), [2], None, None, 1e-5)]",
    "torch.add(1, 2)", "torch.add(2.5, 2)", "torch.sub(3, 1.5)", "torch.mul(2, 3)", "torch.div(7, 2, rounding_mode='floor')",
    "torch.floor_divide(7, 2)", "torch.eq(1, torch.ones(2))", "torch.lt(1.0, torch.ones(2))", "torch.fmod(5, torch.ones(2))",
    "torch.atan2(torch.ones(2), 1.0)", "torch.hypot(1.0, torch.ones(2))", "torch.copysign(1.0, torch.ones(2))",
    "torch.special.airy_ai(torch.ones(2, dtype=torch.float16))", "torch.special.zeta(torch.ones(2).bfloat16() + 1, 2.0)",
    "torch.digamma(torch.ones(2, dtype=torch.float16))", "torch.abs(torch.ones(2, dtype=torch.bool))",
    "torch.clamp(torch.ones(2, dtype=torch.bool), 0, 1)", "torch.isin(torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bool))",
    "torch.nn.functional.glu(torch.ones(4, dtype=torch.int64))", "torch.cdist(torch.ones(2, 2).half(), torch.ones(2, 2).half())",
    "torch.nn.functional.max_pool1d(torch.ones(1, 4, dtype=torch.int64), 2)",
    "torch.ones(2, dtype=torch.complex64).index_reduce(0, torch.tensor([0]), torch.ones(1, dtype=torch.complex64), 'prod')",
    "torch.cdist(torch.ones(2, 2), torch.ones(2, 2), out=torch.ones(2, 2))", "torch.unique(torch.ones(2), out=torch.ones(2))",
    "torch.ones(2).new_zeros(2, out=torch.ones(2))", "torch.median(torch.ones(2), out=torch.ones(()))",
    "torch.hash_tensor(torch.arange(5.0))", "torch.hash_tensor(torch.arange(6).view(2, 3), 1)",
    "torch.hash_tensor(torch.ones(2, 3, 2), (0, 2), keepdim=True)", "torch.hash_tensor(torch.empty(0, 2), 0)",
    "torch.hash_tensor(torch.tensor([True, False]))", "torch.hash_tensor(torch.ones(2)._neg_view())",
]
MESSAGES = [
    "torch.nn.functional.max_pool1d(torch.ones(1, 4, 4), 2, padding=-1, return_indices=True)",
    "torch.mm(torch.ones(2, 2), torch.ones(2, 2), out=torch.ones(2, 2).double())",
    "torch.gather(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(1).half())",
    "torch.sort(torch.ones(2), out=(torch.ones(2), torch.ones(2, dtype=torch.int32)))",
    "torch.amax(torch.ones(2, 3), 0, out=torch.ones(3, dtype=torch.int32))",
    "torch.index_select(torch.ones(2), 0, torch.tensor([0]), out=torch.ones(1).double())",
    "torch.cummax(torch.ones(2), 0, out=(torch.ones(2).double(), torch.tensor([0, 0])))",
    "torch.matmul(torch.ones(2), torch.ones(2), out=torch.ones(()).double())",
    "torch.linalg.inv(torch.eye(2), out=torch.ones(2, 2, dtype=torch.complex64))",
    "torch.argsort(torch.ones(2), out=torch.tensor([0, 0]))",
    "torch.nn.functional.conv_transpose2d(torch.ones(1, 1, 2, 2).int(), torch.ones(1, 1, 2, 2).int())",
    "torch.ones(1).view(0, -1)", "torch.mean(torch.ones(2), dtype=torch.int64)", "torch.eye(2, -3)",
    "torch.complex(torch.ones(2), torch.ones(2, dtype=torch.int32))", "torch.vsplit(torch.ones(2), 1)",
    "torch.movedim(torch.ones(2, 3), (0, -2), (0, 1))", "torch.nn.functional.max_pool1d(torch.ones(1, 4), 2, stride=0)",
    "torch.nn.functional.max_pool2d(torch.ones(1, 4, 4), 2, padding=-1)", "torch.nn.functional.softshrink(torch.ones(2), -0.5)",
    "torch.nn.functional.multi_margin_loss(torch.ones(5, 4), torch.zeros(3, dtype=torch.int64))",
    "torch.signal.windows.general_cosine(3, a=[0.5], layout=torch.sparse_coo)",
    "torch.nn.functional.linear_cross_entropy(torch.ones(2, 3, 4), torch.ones(5, 4), torch.zeros(2, dtype=torch.int64))",
    "torch.nn.LinearCrossEntropyOptions(batch_chunk_size=0)", "torch.nn.LinearCrossEntropyOptions(chunking_method='x')",
]


@pytest.mark.parametrize("lines", LINES)
def test_as_torch(lines: str) -> None:
    twin.check_lines(lines)


@pytest.mark.parametrize("lines", MESSAGES)
def test_refused_in_torchs_words(lines: str) -> None:
    twin.check_lines(lines, message=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_in_pieces_is_the_loss(reduction: str, weighted: bool) -> None:
    mt.manual_seed(0)
    x, w, b = (mt.randn(*size, requires_grad=True) for size in ((7, 4), (5, 4), (5,)))
    target = mt.tensor([0, 4, 1, 1, 2, 3, 0])
    given: dict[str, Any] = {"linear_bias": b, "reduction": reduction, "ignore_index": 1,
                             "weight": mt.rand(5) if weighted else None}
    found = []
    for options in (None, mt.nn.LinearCrossEntropyOptions(batch_chunk_size=2)):
        loss = mt.nn.functional.linear_cross_entropy(x, w, target, options=options, **given)
        found.append([loss, *mt.autograd.grad(loss.sum(), (x, w, b))])
    for a, c in zip(*found):
        mt.testing.assert_close(a, c)


def test_masks_of_masked_results() -> None:
    for lib in (mt, torch):
        x, mask = lib.ones(2, 3), lib.tensor([[True, False, True], [False, False, False]])
        assert lib.masked._input_mask(x, mask=mask[0]).tolist() == [[True, False, True]] * 2
        assert lib.masked._output_mask(lib.masked.sum, x, 1, mask=mask).tolist() == [True, False]
        assert lib.masked._output_mask(lib.masked.softmax, x, 1, mask=mask).tolist() == mask.tolist()
        assert lib.masked._output_mask(lib.masked.norm, x, 2.0, 0, keepdim=True, mask=mask).tolist() == [[True, False, True]]


def test_nodes_are_of_classes_with_torchs_names() -> None:
    for lib in (mt, torch):
        x = lib.ones(2, requires_grad=True)
        y = (x * 2 + 1).exp()
        names = []
        node = y.grad_fn
        while node is not None:
            names.append(type(node).__name__)
            assert isinstance(node, lib.autograd.graph.Node)
            node = node.next_functions[0][0] if node.next_functions else None
        assert names == ["ExpBackward0", "AddBackward0", "MulBackward0", "AccumulateGrad"]
        y.sum().backward()
        assert x.grad is not None


def test_a_context_takes_any_attribute() -> None:
    class Times(mt.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.op = 3
            return x * 3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.op
    x = mt.ones(2, requires_grad=True)
    Times.apply(x).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_gradients_of_convolutions_by_size() -> None:
    found = []
    for lib in (mt, torch):
        x, w = (lib.arange(n).float().reshape(shape) for n, shape in ((16, (1, 2, 8)), (12, (3, 2, 2))))
        g = lib.ones(1, 3, 4)
        found.append([lib.nn.grad.conv1d_input(x.shape, w, g, stride=2).tolist(),
                      lib.nn.grad.conv1d_weight(x, w.shape, g, stride=2).tolist()])
    assert found[0] == found[1]


def test_a_softmax_of_nothing_has_no_gradient() -> None:
    for lib in (mt, torch):
        x = lib.tensor([[1.0, 2.0], [float("-inf")] * 2], requires_grad=True)
        (lib._safe_softmax(x, -1)[:, 0]).sum().backward()
        assert x.grad is not None and x.grad[1].tolist() == [0.0, 0.0] and x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_second_derivatives_of_complex_functions(name: str) -> None:
    x = mt.tensor([0.3 + 0.4j, -1.0 + 0.2j], dtype=mt.complex128, requires_grad=True)
    assert mt.autograd.gradgradcheck(getattr(mt, name), x)


def test_views_are_made_again_of_other_bases() -> None:
    for lib in (mt, torch):
        plain = lib.arange(12.0).view(3, 4).clone()
        both = lib.complex(plain, plain)
        with lib.autograd._force_original_view_tracking(True):
            pairs = (plain, plain[1]), (plain, plain.t()), (plain, plain[:, 1:3]), (both, lib.view_as_real(both))
        for base, view in pairs:
            assert view._view_func_unsafe(base + 1).shape == view.shape
            back = view._rev_view_func_unsafe(view.detach())
            assert (back.shape, back.stride(), back.dtype) == (base.shape, base.stride(), base.dtype) and lib.equal(back, base)


def test_references_have_torchs_names() -> None:
    for place in ("", "special", "nn.functional", "fft", "_conversions", "linalg"):
        ours, theirs = (importlib.import_module(f"{lib}._refs{place and '.'}{place}") for lib in ("mindtorch_v2", "torch"))
        assert ours.__all__ == theirs.__all__ and all(callable(getattr(ours, name)) for name in ours.__all__)
    assert mt._refs.rtruediv(2.0, mt.tensor([4.0])).tolist() == [2.0]
    assert mt._refs.trunc_divide(mt.tensor(-3), mt.tensor(2)).item() == -1


def test_fake_tensors_of_what_only_values_say() -> None:
    for lib in (mt, torch):
        fake = importlib.import_module(f"{lib.__name__}._subclasses.fake_tensor")
        with fake.FakeTensorMode() as mode:
            x = lib.ones(3)
            with pytest.raises(fake.DataDependentOutputException):
                lib.allclose(x, x)
            assert x[[0, 2]].shape == (2,)
        view = mode.from_tensor(lib.arange(6.0)[2:5])
        assert (view.storage_offset(), tuple(view.shape)) == (2, (3,))
