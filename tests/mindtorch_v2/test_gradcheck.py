"""gradcheck and gradgradcheck: what they find wrong in a function, and what they say of it, as in torch."""
from __future__ import annotations

import pytest
from twin import check_lines

import mindtorch_v2 as mt

MAKE = """
gradcheck, gradgradcheck, Function = torch.autograd.gradcheck, torch.autograd.gradgradcheck, torch.autograd.Function
x = torch.tensor([0.5, 1.5], dtype=torch.float64, requires_grad=True)
class Wrong(Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 3
class NotScaled(Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): return g + 1e-7
class Needs(Function):
    @staticmethod
    def forward(ctx, x): ctx.set_materialize_grads(False); return x * 1
    @staticmethod
    def backward(ctx, g):
        if g is None: raise RuntimeError("none")
        return g * 1
class NoBatches(Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        if g.sum().item() > 1e9: return g * 0
        return g * 1
class Changing(Function):
    count = 0
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        Changing.count += 1
        return g * (1 + 1e-7 * Changing.count)
class WrongTangent(Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
    @staticmethod
    def jvp(ctx, t): return t * 3
"""


@pytest.mark.parametrize("line", [
    "gradcheck(Wrong.apply, x)", "gradcheck(lambda x: x.detach() * 2, x)", "gradcheck(lambda x: x, x.detach())",
    "gradcheck(lambda x: x * 1, x[:1].expand(3))", "gradcheck(lambda x: x.to_sparse(), x)", "gradcheck(NotScaled.apply, x)",
    "gradcheck(lambda x: x, x, check_forward_ad=False, check_backward_ad=False)",
    "gradcheck(lambda x: x, x, check_batched_grad=True, check_backward_ad=False, check_forward_ad=True)",
    "gradcheck(lambda x: x, x, check_batched_forward_grad=True)", "gradcheck(Changing.apply, x)",
    "gradcheck(Needs.apply, x)", "gradgradcheck(lambda x: x, x, check_fwd_over_rev=False, check_rev_over_rev=False)",
    "gradcheck(lambda x: (x * 1j + x).conj() * Wrong.apply(x), x)"])
def test_what_is_refused(line: str) -> None:
    check_lines(MAKE + line, message=True)


@pytest.mark.parametrize("line", [
    "gradcheck(Wrong.apply, x, raise_exception=False)", "gradcheck(Changing.apply, x, nondet_tol=1e-3)",
    "gradcheck(Needs.apply, x, check_undefined_grad=False)", "gradcheck(lambda x: x.sin(), x, check_forward_ad=True)",
    "gradcheck(lambda x: (x.sin(), x.prod()), x, check_batched_grad=True, check_forward_ad=True, "
    "check_batched_forward_grad=True)", "gradcheck(WrongTangent.apply, x)", "gradcheck(WrongTangent.apply, x, check_forward_ad=True, raise_exception=False)",
    "gradcheck(NoBatches.apply, x, check_batched_grad=True, raise_exception=False)",
    "gradgradcheck(lambda x: x.exp() * x, x, check_fwd_over_rev=True)", "gradcheck(lambda x: x * (1 + 2j), x)",
    "gradcheck(lambda x: x.abs(), x.detach().to(torch.complex128).requires_grad_(), check_forward_ad=True)",
    "gradcheck(Wrong.apply, x, fast_mode=True, raise_exception=False)"])
def test_what_holds(line: str) -> None:
    check_lines(MAKE + line)


def test_a_wrong_tangent_is_named() -> None:
    class WrongTangent(mt.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: mt.Tensor) -> mt.Tensor:
            return x * 2

        @staticmethod
        def jvp(ctx: object, t: mt.Tensor) -> mt.Tensor:
            return t * 3
    x = mt.ones(2, dtype=mt.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match="Jacobian computed with forward mode mismatch for output 0 with respect to input 0"):
        mt.autograd.gradcheck(WrongTangent.apply, x, check_forward_ad=True, check_backward_ad=False)


@pytest.mark.parametrize("dtype", [mt.float64, mt.complex128])
def test_fast_mode_calls_few_times(dtype: mt.dtype) -> None:
    calls = []

    def function(x: mt.Tensor) -> mt.Tensor:
        calls.append(1)
        return x.sin() * x
    x = mt.randn(20, 30, dtype=dtype, requires_grad=True)
    state = mt.get_rng_state()
    assert mt.autograd.gradcheck(function, x, fast_mode=True, check_forward_ad=True)
    assert len(calls) < 12
    assert mt.equal(state, mt.get_rng_state())
    assert mt.autograd.gradgradcheck(function, x, fast_mode=True)
    assert len(calls) < 30


def test_fast_mode_shows_both_jacobians() -> None:
    class Tripled(mt.autograd.Function):
        @staticmethod
        def forward(ctx: mt.autograd.function.FunctionCtx, x: mt.Tensor) -> mt.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: mt.autograd.function.FunctionCtx, g: mt.Tensor) -> mt.Tensor:
            return g * 3
    with pytest.raises(RuntimeError, match="(?s)Jacobian mismatch for output 0.*fast mode"):
        mt.autograd.gradcheck(Tripled.apply, mt.rand(3, dtype=mt.float64, requires_grad=True), fast_mode=True)


@pytest.mark.parametrize("line", [
    "gradcheck(Wrong.apply, (x,), check_forward_ad=True)", "gradcheck(lambda x: x.abs().sqrt().sum() / 0, (x,))",
    "gradcheck(lambda x: (x * 2, x.detach()), (x,), check_forward_ad=True)",
])
def test_backward_is_judged_before_forward_mode(line: str) -> None:
    check_lines(MAKE + line)
