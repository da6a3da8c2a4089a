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
def test_an_inference_tensor_is_no_out_outside(lib: Any) -> None:
    with lib.inference_mode():
        t = lib.ones(2)
        lib.add(t, t, out=t)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode is not allowed"):
        lib.sin(lib.ones(2), out=t)


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


# ---- composites that are one node ---------------------------------------------------------------------------------------
def nodes_of(lib: Any) -> dict[str, Any]:
    """Name of the op -> its result, of inputs that are no leaves."""
    f = lib.nn.functional
    lib.manual_seed(0)
    x, t = (lib.rand(3, 4, dtype=lib.float64, requires_grad=True) * 1 for _ in range(2))
    index, signs = lib.tensor([1, 0, 3]), lib.tensor([[0, 2, -1, 1]] * 3)
    losses = {name: lambda r, name=name: getattr(f, name)(x, t, reduction=r) for name in (
        "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits")}
    losses["soft_margin_loss"] = lambda r: f.soft_margin_loss(x, t.detach(), reduction=r)
    losses["multi_margin_loss"] = lambda r: f.multi_margin_loss(x, index, reduction=r)
    losses["multilabel_margin_loss"] = lambda r: f.multilabel_margin_loss(x, signs, reduction=r)
    others = {"stack": lib.stack([x, t], 2), "stack of planes": lib.stack([x.t(), t.t()]),
              "unpool": f.max_unpool2d(x.view(3, 2, 2), lib.tensor([[[0, 2], [8, 10]]] * 3), 2), "glu": f.glu(x), "mm": x @ t.t(),
              "mv": x @ t[0], "dot": x[0] @ t[0], "cross": lib.linalg.cross(x[:, :3], t[:, :3]),
              "prelu": f.prelu(x - 0.5, t[0]), "addbmm": lib.addbmm(x[:, :3], x.view(4, 3, 1), t.view(4, 1, 3))}
    return {"inputs": (x, t), **{f"{name} {r}": make(r) for name, make in losses.items() for r in ("none", "mean", "sum")},
            **others}


@pytest.mark.parametrize("name", [name for name in nodes_of(judge) if name != "inputs"])
def test_an_op_is_one_node_that_notices_changes_of_its_inputs(name: str) -> None:
    """Names of nodes, gradients of first and second order, and the refusal after an input has changed in place."""
    def run(lib: Any) -> Any:
        found = nodes_of(lib)
        (x, t), y = found["inputs"], found[name]
        first = lib.autograd.grad(y.square().sum(), [x, t], create_graph=True, allow_unused=True)
        used = [g for g in first if g is not None and g.requires_grad]
        second = lib.autograd.grad(sum(g.square().sum() for g in used), x, allow_unused=True)[0] if used and \
            "multi" not in name else None
        with lib.no_grad():
            x.add_(1)
        try:
            y.sum().backward()
            said = "nothing"
        except RuntimeError as e:
            said = str(e)
        return y.grad_fn.name(), [None if g is None else g.tolist() for g in first], \
            None if second is None else second.tolist(), said
    ours, theirs = run(torch), run(judge)
    assert ours[0] == theirs[0] and ours[3] == theirs[3]
    for a, b in ((ours[1], theirs[1]), (ours[2], theirs[2])):
        for ga, gb in zip(a or [], b or [], strict=True):
            assert (ga is None) == (gb is None)
            if ga is not None:
                judge.testing.assert_close(judge.tensor(ga), judge.tensor(gb))


@BOTH
def test_backward_reaches_the_bias_of_a_linear_layer_first(lib: Any) -> None:
    net = lib.nn.Sequential(lib.nn.Linear(3, 3), lib.nn.ReLU(), lib.nn.Linear(3, 3), lib.nn.LayerNorm(3))
    order: list[str] = []
    for name, p in net.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: order.append(name))
    net(lib.ones(2, 3)).sum().backward()
    assert order == ["3.weight", "3.bias", "2.bias", "2.weight", "0.bias", "0.weight"]


NAMED = ["x.sum()", "x.sum(1)", "x.mean()", "x.mean(1)", "x.prod()", "x.prod(1)", "x ** 2", "x ** x", "2 ** x", "lin(x)", "plain(x)",
         "lin(x).mean((0, 1))"]


@BOTH
def test_a_row_that_is_several_ops_in_torch_has_their_names(lib: Any) -> None:
    scope = {"x": lib.rand(2, 3, requires_grad=True), "lin": lib.nn.Linear(3, 3), "plain": lib.nn.Linear(3, 3, bias=False)}
    names = [type(eval(text, dict(scope)).grad_fn).__name__ for text in NAMED]
    assert names == ["SumBackward0", "SumBackward1", "MeanBackward0", "MeanBackward1", "ProdBackward0", "ProdBackward1",
                     "PowBackward0", "PowBackward1", "PowBackward2", "AddmmBackward0", "MmBackward0", "MeanBackward1"]


@BOTH
@pytest.mark.parametrize("body", [
    "f.soft_margin_loss(x, x)", "f.nll_loss(x, index, weight=x[0])", "f.cross_entropy(x, index, weight=x[0])",
    "f.binary_cross_entropy_with_logits(x, y, pos_weight=x[0])", "f.binary_cross_entropy(y, y, weight=x)",
    "f.batch_norm(x, x[0], y[0], training=True)", "f.multi_margin_loss(x, index, weight=x[0])"])
def test_arguments_that_must_not_need_a_gradient(lib: Any, body: str) -> None:
    scope = {"f": lib.nn.functional, "x": lib.rand(2, 3, requires_grad=True), "y": lib.rand(2, 3), "index": lib.tensor([0, 1])}
    with pytest.raises(RuntimeError, match="is not differentiable with respect to argument '[a-z_]+'. This input cannot have"):
        eval(body, scope)


@BOTH
def test_a_changed_view_is_named_by_what_it_is_now(lib: Any) -> None:
    x = lib.ones(4, requires_grad=True) * 1
    v, mask = x.view(2, 2), lib.ones(2, 2, dtype=lib.bool)
    y, z = v.sin(), lib.where(mask, v, v)
    x.add_(1)
    with pytest.raises(RuntimeError, match=r"\[torch.FloatTensor \[2, 2\]\], which is output 0 of AsStrided, is at version"):
        y.sum().backward()
    mask.zero_()
    with pytest.raises(RuntimeError, match=r"\[CPUBoolType \[2, 2\]\] is at version 1"):
        z.sum().backward()
    with pytest.raises(TypeError, match="incompatible function arguments"), lib.autograd.graph.saved_tensors_hooks(1, 2):
        pass
