"""torch.utils.checkpoint: what is computed again, when the replay stops, what a policy keeps; also run under torch."""
from __future__ import annotations

import functools
import importlib

import pytest
from twin import error, twin


def part(t):
    return importlib.import_module(t.__name__ + ".utils.checkpoint")


def leaf(t, *shape):
    return t.full(shape or (3,), 0.5, dtype=t.float64).requires_grad_()


@pytest.mark.parametrize("how", ["default", "argument", "block"])
@twin
def test_replay_stops_early(t, how):
    ran = []

    def body(x):
        ran.append("start")
        y = x.sin().exp()
        ran.append("end")
        return y
    x = leaf(t)
    if how == "block":
        with part(t).set_checkpoint_early_stop(False):
            y = part(t).checkpoint(body, x, use_reentrant=False)
    else:
        y = part(t).checkpoint(body, x, use_reentrant=False, **({"early_stop": False} if how == "argument" else {}))
    y.sum().backward()
    return ran, x.grad


@twin
def test_nested_checkpoints(t):
    c, ran = part(t), []

    def inner(x):
        ran.append("inner")
        return x.sin().exp()

    def outer(x):
        ran.append("outer")
        return c.checkpoint(inner, x * 2, use_reentrant=False).cos()
    x = leaf(t)
    c.checkpoint(outer, x, use_reentrant=False).sum().backward()
    return x.grad, ran[:2]


@pytest.mark.parametrize("change", ["shape", "fewer", "more"])
@twin
def test_a_replay_that_differs_is_refused(t, change):
    calls = []

    def body(x):
        calls.append(0)
        first = len(calls) == 1
        if change == "shape":
            return x.sin().exp() if first else x.sin()[:1].exp()
        return x.sin().exp() if first == (change == "fewer") else x.sin()
    x = leaf(t)
    return error(lambda: part(t).checkpoint(body, x, use_reentrant=False, early_stop=False).sum().backward(), 110)


@twin
def test_arguments_that_are_refused(t):
    c, x = part(t), leaf(t)
    return (error(lambda: c.checkpoint(t.sin, x, use_reentrant=False, determinism_check="no")),
            error(lambda: c.checkpoint(t.sin, x, use_reentrant=True, context_fn=lambda: None)),
            error(lambda: c.detach_variable([x])), c.detach_variable((x * 2, 1))[0].is_leaf, c.get_device_states(x))


@pytest.mark.parametrize("given", ["policy", "list"])
@twin
def test_a_policy_keeps_results(t, given):
    c, asked = part(t), []

    def policy(ctx, op, *args, **kwargs):
        asked.append((ctx.is_recompute, str(op)))
        keep = op == t.ops.aten.mm.default
        return c.CheckpointPolicy.MUST_SAVE if keep else c.CheckpointPolicy.PREFER_RECOMPUTE
    chosen = policy if given == "policy" else [t.ops.aten.mm.default]
    a, b = leaf(t, 2, 2), leaf(t, 2, 2)
    y = c.checkpoint(lambda a, b: (a @ b).sin().exp().sum(), a, b, use_reentrant=False,
                     context_fn=functools.partial(c.create_selective_checkpoint_contexts, chosen))
    y.backward()
    return a.grad, b.grad, asked


@twin
def test_kept_results_serve_once_and_unchanged(t):
    c = part(t)

    def run(change):
        x = leaf(t, 2, 2)
        y = c.checkpoint(lambda x: (x @ x).sin(), x, use_reentrant=False,
                         context_fn=functools.partial(c.create_selective_checkpoint_contexts, lambda *_, **__: True))
        y.sum().backward(retain_graph=True)
        return x.grad
    return (run(False), error(lambda: c.create_selective_checkpoint_contexts([t.sin])),
            error(lambda: c.create_selective_checkpoint_contexts(3)), [p.name for p in c.CheckpointPolicy])


@pytest.mark.parametrize("op", ["reshape", "flatten", "contiguous", "reshape_copy", "view", "clone"])
@twin
def test_history_under_a_dispatch_mode(t, op):
    modes = importlib.import_module(t.__name__ + ".utils._python_dispatch")
    seen = []

    class Watch(modes.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    x = leaf(t, 2, 3)
    with Watch():
        y = {"reshape": lambda x: x.reshape(6), "flatten": lambda x: x.flatten(), "contiguous": lambda x: x.t().contiguous(),
             "reshape_copy": lambda x: x.t().reshape(6), "view": lambda x: x.view(6), "clone": lambda x: x.clone()}[op](x * 2)
    y.sum().backward()
    return y.requires_grad, x.grad, len(seen) > 0


def waves(x):
    return x.sin().exp(), x.cos().sin()


@pytest.mark.parametrize("program", ["again", "twice", "group", "changed", "hooks", "debug", "hint"])
@twin
def test_runs_of_backward_over_one_checkpoint(t, program):
    """Each run of backward replays once and gives each tensor once; the arguments are watched as saved tensors are."""
    calls = []

    def body(x):
        calls.append(1)
        return x.sin().exp() if program in ("debug", "hint") and len(calls) > 1 else waves(x)[0] + waves(x)[1]
    x, seen = leaf(t), []
    with t.autograd.graph.saved_tensors_hooks(lambda v: seen.append("pack") or v, lambda v: seen.append("unpack") or v):
        y = part(t).checkpoint(body, x, use_reentrant=False, debug=program == "debug")
    if program == "changed":
        x.detach().add_(1)
        with t.no_grad():
            x.add_(1)
    if program == "group":
        with part(t).GraphExecGroup():
            y.sum().backward(retain_graph=True)
            refused = error(lambda: y.sum().backward(), 90)
        return len(calls), refused, error(lambda: part(t).GraphExecGroup().__enter__())
    if program == "twice":
        node = y.grad_fn.next_functions[0][0]
        return node._saved_result, error(lambda: node._saved_result)
    refused = error(lambda: y.sum().backward(retain_graph=True), 110)
    again = error(lambda: y.sum().backward(), 40) if program == "again" else ""
    return len(calls), refused, again, seen


@pytest.mark.parametrize("ops", [lambda t: [t.mm], lambda t: [t.ops.aten.mm], lambda t: 3])
@twin
def test_lists_of_ops_that_a_policy_refuses(t, ops):
    return error(lambda: part(t).create_selective_checkpoint_contexts(ops(t)), 58)
