"""What programs see of autograd beside gradients: order of nodes, profiles of backward, anomaly reports, warnings, tangents."""
from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch as judge

import mindtorch_v2 as torch

BOTH = pytest.mark.parametrize("lib", [torch, judge], ids=["here", "torch"])


def messages(caught: list[Any]) -> list[str]:
    return [str(w.message).split(" (Triggered")[0] for w in caught]


@BOTH
def test_the_running_backward_tells_the_order_of_its_nodes(lib: Any) -> None:
    x = lib.tensor(1.0, requires_grad=True)
    z = x.clone().exp()
    seen: list[list[str]] = []
    z.register_hook(lambda g: seen.append([n.name() for n in lib._C._current_graph_task_execution_order()]))
    with pytest.raises(RuntimeError, match="multithreading disabled"):
        z.backward(retain_graph=True)
    with lib.autograd.set_multithreading_enabled(False):
        assert not lib._C._is_multithreading_enabled()
        z.backward()
    assert lib._C._is_multithreading_enabled()
    assert seen == [["ExpBackward0", "CloneBackward0", "torch::autograd::AccumulateGrad"]]


@BOTH
def test_a_profile_has_the_nodes_of_backward(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with lib.autograd.profiler.profile() as prof:
        assert lib.autograd._profiler_enabled()
        x.exp().sum().backward()
    assert not lib.autograd._profiler_enabled()
    events = {e.name: e for e in prof.function_events}
    for name in ("ExpBackward0", "torch::autograd::AccumulateGrad"):
        assert name in events and f"autograd::engine::evaluate_function: {name}" in events
    assert events["aten::exp"].sequence_nr == events["ExpBackward0"].sequence_nr >= 0


@BOTH
def test_anomaly_mode_tells_which_backward_recorded_the_failing_node(lib: Any) -> None:
    class Bad(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    class Outer(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return Bad.apply(g * ctx.saved_tensors[0])

    x = lib.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught, lib.autograd.detect_anomaly():
        warnings.simplefilter("always")
        g, = lib.autograd.grad(Outer.apply(x).sum(), x, create_graph=True)
        assert "traceback_" in g.grad_fn.metadata
        with pytest.raises(RuntimeError, match="Function 'BadBackward' returned nan values in its 0th output."):
            g.sum().backward()
    found = [text for text in messages(caught) if not text.startswith("Anomaly Detection")]
    assert found[0].startswith("Error detected in BadBackward. Traceback of forward call that caused the error:")
    assert found[1].startswith("\n\nPrevious calculation was induced by OuterBackward. Traceback of forward call")


@BOTH
def test_backward_with_create_graph_warns_of_the_cycle(lib: Any) -> None:
    before = lib.is_warn_always_enabled()
    lib.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle"):
            (lib.ones(2, requires_grad=True) ** 2).sum().backward(create_graph=True)
    finally:
        lib.set_warn_always(before)


@BOTH
def test_a_view_made_in_inference_mode_is_not_changed_outside(lib: Any) -> None:
    y = lib.ones(2, requires_grad=True) * 2
    with lib.inference_mode():
        v = y.view(2)
    with pytest.raises(RuntimeError, match="A view was created in inference mode and is being modified inplace in normal mode"):
        v.add_(1)


@BOTH
def test_what_cannot_be_deleted_or_marked(lib: Any) -> None:
    x = lib.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Deleting tensor data is not allowed"):
        del x.data
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        del x.requires_grad
    with pytest.raises(RuntimeError, match="Deletion of _backwards_hooks not allowed!"):
        del x._backward_hooks
    x.register_hook(lambda g: g * 100)
    x._backward_hooks = None
    x.sum().backward()
    assert x.grad.tolist() == [1, 1]

    class Marks(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, mark: str) -> Any:
            getattr(ctx, mark)(1)
            return x * 1
    for mark, text in (("mark_dirty", "can only accept variables"), ("mark_non_differentiable", "only accepts variable arg")):
        with pytest.raises(RuntimeError, match=f"{mark} {text}"):
            Marks.apply(x, mark)
    assert Marks._backward_cls.__mro__[1] is lib.autograd.function.BackwardCFunction
    assert isinstance(Marks, lib.autograd.function.FunctionMeta)


@BOTH
def test_a_dual_tensor_shows_its_tangent(lib: Any) -> None:
    ad = lib.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(lib.ones(2), lib.zeros(2))
        assert repr(dual) == "tensor([1., 1.], tangent=tensor([0., 0.]))"
        with pytest.raises(NotImplementedError, match="forward AD with add_out that does not support it because it is an out="):
            lib.add(dual, dual, out=lib.zeros(2))
        with ad._set_fwd_grad_enabled(False):
            assert ad.unpack_dual(dual * 2).tangent is None
        assert ad.unpack_dual(dual * 2).tangent is not None


@BOTH
def test_a_jvp_does_as_its_forward_did(lib: Any) -> None:
    ad = lib.autograd.forward_ad

    def function(forward: Any, jvp: Any) -> Any:
        return type("F", (lib.autograd.Function,), {"forward": staticmethod(forward), "jvp": staticmethod(jvp)})

    def changed(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)
    cases = [(function(lambda ctx, x: x * 2, lambda ctx, t: (t, t)), "invalid number of forward gradients"),
             (function(lambda ctx, x: x.view_as(x), lambda ctx, t: t * 1), "returning a view .or an input as-is. but the jvp"),
             (function(changed, lambda ctx, t: t * 2), "not modifying the forward mode gradients inplace")]
    with ad.dual_level():
        for f, text in cases:
            with pytest.raises(RuntimeError, match=text):
                f.apply(ad.make_dual(lib.ones(2), lib.ones(2)))
        kept = function(changed, lambda ctx, t: t.mul_(2))
        assert ad.unpack_dual(kept.apply(ad.make_dual(lib.ones(2), lib.ones(2)))).tangent.tolist() == [2, 2]


def test_a_function_runs_as_a_recorded_graph() -> None:
    from mindtorch_v2._prims.executor import make_traced
    x = torch.arange(3.0)
    assert make_traced(lambda a, *, k: torch.add(a, k) * a)(x, k=2, executor="aten").tolist() == [0, 3, 8]
    with pytest.raises(ValueError, match="Allowed values are: aten"):
        make_traced(torch.add)(x, x, executor="nvfuser")


NODES: dict[str, Any] = {
    "max": lambda t, x: x.max(), "max.dim": lambda t, x: x.max(0)[0], "median.dim": lambda t, x: x.median(0)[0],
    "clamp": lambda t, x: x.clamp(0, 1), "clamp_min": lambda t, x: t.clamp_min(x, x), "pad": lambda t, x: t.nn.functional.pad(
        x[None], (1, 1), mode="reflect"), "fft": lambda t, x: t.fft.rfft(x), "pool": lambda t, x: t.nn.functional.avg_pool2d(x[None], 1),
    "upsample": lambda t, x: t.nn.functional.interpolate(x[None, None], 4, mode="bilinear"), "where": lambda t, x: t.where(x > 1, x, x),
    "cross_entropy": lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([0, 1])), "log1p": lambda t, x: x.log1p(),
    "masked_fill": lambda t, x: x.masked_fill(x > 1, 0.0), "gather": lambda t, x: x.gather(0, t.zeros(1, 2, dtype=t.long)),
}


@BOTH
def test_nodes_have_torchs_names_and_inputs(lib: Any) -> None:
    x = lib.arange(4.0).reshape(2, 2).requires_grad_()
    theirs = judge.arange(4.0).reshape(2, 2).requires_grad_()
    for name, make in NODES.items():
        node, expected = make(lib, x).grad_fn, make(judge, theirs).grad_fn
        assert node.name() == expected.name(), name
        if name != "where":
            assert len(node.next_functions) == len(expected.next_functions), name
    assert (x.sort(dim=-1)[0].grad_fn._saved_dim, x.topk(1)[0].grad_fn._saved_dim) == (2**64 - 1, 2**64 - 1)


@BOTH
def test_what_a_factory_gives_was_never_changed(lib: Any) -> None:
    made = [lib.rand(2), lib.randn(2), lib.arange(3.0), lib.linspace(0, 1, 3), lib.eye(2), lib.randperm(3), lib.randint(3, (2,)),
            lib.rand_like(lib.ones(2)), lib.normal(0.0, 1.0, (2,)), lib.logspace(0, 1, 2)]
    assert [x._version for x in made] == [0] * len(made)
    assert made[0].add_(1)._version == 1


@BOTH
def test_modes_say_what_they_are(lib: Any) -> None:
    mode = lib.no_grad()
    assert mode.prev is False and type(mode).__module__.endswith(".autograd.grad_mode")
    with mode:
        assert mode.prev is True
    assert repr(lib.set_grad_enabled(True)) == "torch.autograd.grad_mode.set_grad_enabled(mode=True)"
    with pytest.raises(TypeError, match=r"argument 'enabled' \(position 1\) must be bool, not int"):
        lib.autograd.set_detect_anomaly(3)
    assert lib.autograd.anomaly_mode.detect_anomaly is lib.autograd.detect_anomaly
