"""Hooks on tensors, nodes, leaves and saved tensors, and anomaly mode; the same body runs under torch."""
from __future__ import annotations

import warnings
from typing import Any

import pytest
from twin import error, twin

import mindtorch_v2 as mt


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), dtype=t.float64, requires_grad=True)


@twin
def test_tensor_hooks_run_in_order_and_may_change_the_gradient(t):
    x = leaf(t)
    y = x * x
    seen = []
    y.register_hook(lambda g: seen.append(g.clone()))
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append(g.clone()))
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    return seen, x.grad


@twin
def test_hook_removal(t):
    x = leaf(t)
    first = x.register_hook(lambda g: g * 10)
    second = x.register_hook(lambda g: g + 1)
    first.remove()
    first.remove()
    (x * 2).sum().backward()
    one = x.grad.clone()
    second.remove()
    (x * 2).sum().backward()
    with x.register_hook(lambda g: g * 0):
        (x * 2).sum().backward()
    return one, x.grad


@twin
def test_hook_that_removes_itself(t):
    x = leaf(t)
    calls = []

    def once(g):
        calls.append(1)
        handle.remove()
    handle = x.register_hook(once)
    x.sum().backward()
    x.sum().backward()
    return len(calls), x.grad


@twin
def test_leaf_hook_runs_once_on_the_summed_gradient(t):
    x = leaf(t)
    seen = []
    x.register_hook(lambda g: seen.append(g.clone()))
    (x * 2 + x * 3).sum().backward()
    return seen


@twin
def test_hooks_refuse(t):
    x = leaf(t)
    return (error(lambda: t.ones(2).register_hook(lambda g: g), 30),
            error(lambda: (x * 2).register_post_accumulate_grad_hook(lambda p: None), 30),
            error(lambda: t.ones(2).register_post_accumulate_grad_hook(lambda p: None), 30))


@twin
def test_retain_grad_sees_the_gradient_after_hooks(t):
    x = leaf(t)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    return y.grad, x.grad


@twin
def test_hooks_stay_with_the_value_from_before_an_in_place_change(t):
    x = leaf(t)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(("before", g.clone())))
    y.mul_(3)
    y.register_hook(lambda g: seen.append(("after", g.clone())))
    (y * y).sum().backward()
    return seen, x.grad


@twin
def test_hooks_of_a_view_whose_base_changes(t):
    x = leaf(t)
    seen = []
    y = x * 2
    v = y[1:]
    v.register_hook(lambda g: seen.append(g.clone()))
    v.retain_grad()
    y.mul_(3)
    (v * 2).sum().backward()
    return seen, v.grad, x.grad


@twin
def test_post_accumulate_hook(t):
    x = leaf(t)
    seen = []
    handle = x.register_post_accumulate_grad_hook(lambda p: seen.append((p is x, p.grad.clone())))
    (x * 2).sum().backward()
    (x * 3).sum().backward(inputs=[x])
    t.autograd.grad((x * 4).sum(), x)
    handle.remove()
    (x * 3).sum().backward()
    return seen, x.grad


@twin
def test_post_accumulate_hook_may_step_and_free(t):
    x = leaf(t)

    def step(p):
        with t.no_grad():
            p.sub_(p.grad, alpha=0.5)
        p.grad = None
    x.register_post_accumulate_grad_hook(step)
    (x * x).sum().backward()
    return x, x.grad


@twin
def test_node_hooks(t):
    x = leaf(t)
    y = x * x
    seen = []
    y.grad_fn.register_prehook(lambda grads: seen.append(("pre", grads[0].clone())))
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    handle = y.grad_fn.register_hook(lambda ins, outs: seen.append(("post", len(ins), outs[0].clone())))
    y.grad_fn.register_hook(lambda ins, outs: tuple(g * 10 for g in ins))
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return seen, x.grad


@twin
def test_order_of_tensor_and_node_hooks(t):
    x = leaf(t)
    y = x * 2
    order = []
    y.grad_fn.register_prehook(lambda grads: order.append("node pre"))
    y.register_hook(lambda g: order.append("tensor"))
    y.retain_grad()
    y.grad_fn.register_hook(lambda ins, outs: order.append("node post"))
    x.register_hook(lambda g: order.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda p: order.append("after"))
    y.sum().backward()
    return order


@twin
def test_hooks_of_captured_tensors(t):
    x = leaf(t)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    return t.autograd.grad((y * y).sum(), [y, x])


@pytest.mark.parametrize("mode", ["all", "any"])
@twin
def test_multi_grad_hook(t, mode):
    x, y, z = leaf(t), leaf(t), leaf(t)
    seen = []

    def hook(grads):
        seen.append([None if g is None else g.clone() for g in grads] if mode == "all" else grads.clone())
    handle = t.autograd.graph.register_multi_grad_hook([x, y, z], hook, mode=mode)
    (x * 2 + y * 3 + z).sum().backward()
    (x * 2 + y * 3).sum().backward()
    (x * 5).sum().backward()
    handle.remove()
    (x * 2 + y * 3).sum().backward()
    return len(seen), seen if mode == "all" else None


@twin
def test_gradient_edges_as_inputs_and_outputs(t):
    x = leaf(t)
    y = x * x
    edge = t.autograd.graph.get_gradient_edge(y)
    leaf_edge = t.autograd.graph.get_gradient_edge(x)
    z = (y * 3).sum()
    return (t.autograd.grad(z, [edge, leaf_edge], retain_graph=True), edge.output_nr, edge.node is y.grad_fn,
            t.autograd.grad(edge, x, t.ones(3, dtype=t.float64)),
            error(lambda: t.autograd.graph.get_gradient_edge(t.ones(2))))


@twin
def test_graph_can_be_walked(t):
    x = leaf(t)
    y = (x * x).sum()
    names = []
    stack = [y.grad_fn]
    while stack:
        node = stack.pop()
        names.append(node.name())
        stack.extend(n for n, _ in node.next_functions if n is not None)
    return names, y.grad_fn.next_functions[0][0].next_functions[0][0].variable is x


@twin
def test_saved_values_are_visible_until_freed(t):
    x = leaf(t)
    y = x.exp()
    z = y * x
    seen = z.grad_fn._saved_other, y.grad_fn._saved_result
    z.sum().backward()
    return seen[0], seen[1].detach(), error(lambda: z.grad_fn._saved_other, 40)


# ---- hooks on saved tensors ----------------------------------------------------------------------------------------
@twin
def test_saved_tensors_hooks(t):
    x = leaf(t)
    packed = []

    def pack(v):
        packed.append(tuple(v.shape))
        return v.detach() * 2

    with t.autograd.graph.saved_tensors_hooks(pack, lambda v: v / 2):
        y = x.exp() * x
    y.sum().backward()
    return x.grad, len(packed)


@twin
def test_innermost_saved_tensors_hooks_win(t):
    x = leaf(t)
    seen = []

    def pack(name):
        return lambda v: (seen.append(name), v)[1]
    with t.autograd.graph.saved_tensors_hooks(pack("outer"), lambda v: v):
        a = x.exp()
        with t.autograd.graph.saved_tensors_hooks(pack("inner"), lambda v: v):
            b = a.exp()
        c = b.exp()
    c.sum().backward()
    return seen, x.grad


@twin
def test_ops_in_pack_hooks_are_not_packed(t):
    x = leaf(t)
    seen = []

    def pack(v):
        seen.append(1)
        return (v * v, v)
    with t.autograd.graph.saved_tensors_hooks(pack, lambda p: p[1]):
        y = x.exp()
    y.sum().backward()
    return len(seen), x.grad


@twin
def test_saved_tensors_hooks_in_a_function(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = x * x
            ctx.save_for_backward(x, out)
            return out

        @staticmethod
        def backward(ctx, g):
            x, out = ctx.saved_tensors
            return 2 * x * g + 0 * out
    x = leaf(t)
    seen = []
    with t.autograd.graph.saved_tensors_hooks(lambda v: (seen.append(1), v.detach().clone())[1], lambda v: v):
        y = Square.apply(x)
    y.sum().backward()
    return len(seen), x.grad


@twin
def test_wrong_unpack_result_is_refused(t):
    x = leaf(t)
    with t.autograd.graph.saved_tensors_hooks(lambda v: 5, lambda v: v):
        y = x.exp()
    return error(y.sum().backward)


@twin
def test_error_in_pack_leaves_modes_alone(t):
    x = leaf(t)

    def fail(v):
        raise KeyError("no")

    def call():
        with t.autograd.graph.saved_tensors_hooks(fail, fail):
            x.exp()
    refused = error(call)
    y = x.exp()
    y.sum().backward()
    return refused, t.is_grad_enabled(), x.grad


@twin
def test_save_on_cpu(t):
    x = leaf(t)
    with t.autograd.graph.save_on_cpu():
        y = x.exp() * x
    y.sum().backward()
    return x.grad


@twin
def test_disable_saved_tensors_hooks(t):
    x = leaf(t)

    def call():
        with t.autograd.graph.disable_saved_tensors_hooks("not here"), \
                t.autograd.graph.saved_tensors_hooks(lambda v: v, lambda v: v):
            x.exp()
    return error(call, 30), x.exp().requires_grad


# ---- anomaly mode --------------------------------------------------------------------------------------------------
@twin
def test_anomaly_mode_finds_nan(t):
    x = leaf(t, -1.0, 0.0)
    with t.autograd.detect_anomaly():
        y = x.sqrt()
        found = error(lambda: (y * 2).sum().backward(), 60)
    x.grad = None
    with t.autograd.detect_anomaly(check_nan=False):
        x.sqrt().sum().backward()
    return found, x.grad, t.is_anomaly_enabled(), t.is_anomaly_check_nan_enabled()


def test_anomaly_mode_shows_the_forward_line():
    def the_forward_function(x):
        return x.sqrt()
    x = mt.tensor([-1.0], requires_grad=True)
    with warnings.catch_warnings(record=True) as caught, mt.autograd.detect_anomaly():
        warnings.simplefilter("always")
        y = the_forward_function(x)
        with pytest.raises(RuntimeError, match="SqrtBackward0.*nan"):
            y.sum().backward()
    shown = [str(w.message) for w in caught if "forward call" in str(w.message)]
    assert len(shown) == 1 and "the_forward_function" in shown[0] and "SqrtBackward0" in shown[0]


@twin
def test_set_detect_anomaly_as_a_function_and_block(t):
    before = t.is_anomaly_enabled()
    t.autograd.set_detect_anomaly(True)
    on = t.is_anomaly_enabled()
    t.autograd.set_detect_anomaly(False)
    with t.autograd.set_detect_anomaly(True):
        inside = t.is_anomaly_enabled()
    return before, on, inside, t.is_anomaly_enabled()


def test_anomaly_mode_names_a_version_error():
    with warnings.catch_warnings(record=True) as caught, mt.autograd.detect_anomaly():
        warnings.simplefilter("always")
        x = mt.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
    assert any("ExpBackward0" in str(w.message) for w in caught)


@twin
def test_callbacks_at_the_end_of_backward(t):
    """After all gradients, those of leaves too; one may add another; outside of backward there is nothing to wait for."""
    engine, x, seen = t.autograd.Variable._execution_engine, leaf(t), []

    def at_end():
        seen.append(x.grad.clone())
        engine.queue_callback(lambda: seen.append("second"))
    y = x * x
    y.register_hook(lambda g: engine.queue_callback(at_end))
    y.sum().backward()
    (x * 3).sum().backward()
    return seen, x.grad, error(lambda: engine.queue_callback(at_end))


@twin
def test_hooks_of_a_leafs_node_run_around_the_sum(t: Any) -> Any:
    x, log = t.ones(2, requires_grad=True), []
    node = (x * 1).grad_fn.next_functions[0][0]
    node.register_prehook(lambda grads: log.append(("pre", len(grads))) or (grads[0] * 3,))
    node.register_hook(lambda given, grads: log.append(("post", len(given), grads[0].clone())))
    x.register_hook(lambda g: log.append("tensor"))
    x.register_post_accumulate_grad_hook(lambda leaf: log.append("summed") or leaf)
    (x * 2).sum().backward()
    return log, x.grad


@twin
def test_hooks_where_no_gradient_comes(t: Any) -> Any:
    class Nothing(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return None
    x, log = t.ones(2, requires_grad=True), []
    y = x * 2
    y.register_hook(lambda g: log.append(g))
    y.retain_grad()
    y.grad_fn.register_prehook(lambda grads: log.append(grads))
    Nothing.apply(y).sum().backward()
    z = x * 3
    z.grad_fn.register_prehook(lambda grads: log.append("asked for, not run"))
    return log, y.grad, x.grad, t.autograd.grad((z * 2).sum(), z)


@twin
def test_hooks_after_accumulation_are_seen_and_return_nothing(t):
    x = leaf(t)
    before = x._post_accumulate_grad_hooks
    handle = x.register_post_accumulate_grad_hook(lambda p: None)
    seen = len(x._post_accumulate_grad_hooks)
    handle.remove()
    x.register_post_accumulate_grad_hook(lambda p: 5)
    return before, seen, error(lambda: (x * 2).sum().backward())


@twin
def test_hooks_of_a_saved_tensor_are_two_callables(t):
    saved = leaf(t).sin().grad_fn._raw_saved_self
    return (error(lambda: saved.register_hooks(lambda x: x), 100), error(lambda: saved.register_hooks(1, 2), 100),
            error(t._C._autograd.SavedTensor))


@twin
def test_a_gradient_with_a_history_is_copied_into_grad(t):
    x, y = leaf(t), leaf(t)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (x * x * y).sum().backward(create_graph=True)
        given = t.ones(3, dtype=t.float64)
        z = leaf(t)
        z.backward(given, create_graph=True)
        given.zero_()
    first = x.grad.grad_fn.name(), z.grad
    again, = t.autograd.grad(x.grad.sum(), y)
    return first, x.grad, again


@twin
def test_nodes_are_made_by_ops_only(t):
    return error(type((leaf(t) * 2).grad_fn))
