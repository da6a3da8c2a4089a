"""The recorded graph as Python sees it: saved values, metadata, leaves' nodes, calls of nodes; also run under torch."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from twin import check_lines, error, outcome, same, twin

import mindtorch_v2 as mt


def leaf(t, *shape):
    return t.linspace(0.5, 2.0, 4 if not shape else int(t.tensor(shape).prod()), dtype=t.float64).reshape(
        shape or (4,)).requires_grad_()


def saved_names(node):
    return sorted(k for k in dir(node) if "saved" in k and not k.startswith("__"))


OPS = {"mul": lambda t, x: x * leaf(t), "exp": lambda t, x: x.exp(), "sum": lambda t, x: x.sum([0]),
       "softmax": lambda t, x: x.softmax(0), "pow": lambda t, x: x ** 2, "relu": lambda t, x: x.relu(),
       "max": lambda t, x: x.max(0).values, "sin": lambda t, x: x.sin(), "view": lambda t, x: x.view(2, 2),
       "cumsum": lambda t, x: x.cumsum(0)}


@pytest.mark.parametrize("op", OPS)
@twin
def test_saved_values_have_torchs_names(t, op):
    node = OPS[op](t, leaf(t)).grad_fn
    return [(k, getattr(node, k)) for k in saved_names(node) if not k.startswith("_raw")], \
        [k for k in saved_names(node) if k.startswith("_raw")]


@twin
def test_raw_saved_tensors_take_hooks(t):
    x = leaf(t)
    y = x * x
    raw = y.grad_fn._raw_saved_self
    same = raw.data is x, raw.unpack() is x
    packed = []
    raw.register_hooks(lambda v: packed.append(v.detach().clone()) or 0, lambda i: packed[i])
    y.sum().backward()
    return same, packed, x.grad


@twin
def test_raw_saved_tensors_refuse(t):
    x = leaf(t)
    y = x * x
    raw = y.grad_fn._raw_saved_self
    raw.register_hooks(lambda v: v, lambda v: v)
    again = error(lambda: raw.register_hooks(lambda v: v, lambda v: v))
    y.sum().backward()
    z = x.exp().grad_fn
    return (again, error(lambda: raw.register_hooks(lambda v: v, lambda v: v)), error(lambda: y.grad_fn._saved_self),
            error(lambda: type(raw)()), error(lambda: z._raw_saved_result.register_hooks(lambda v: v.add_(1), lambda v: v)),
            hasattr(z, "_raw_saved_self"))


@twin
def test_nodes_carry_metadata_and_can_be_called(t):
    x = leaf(t)
    y = x * x
    y.grad_fn.metadata["who"] = "me"
    meta = y.grad_fn._input_metadata[0]
    return (y.grad_fn.metadata, tuple(meta.shape), str(meta.dtype), str(meta.device), y.grad_fn(t.ones(4, dtype=t.float64)),
            x.exp().grad_fn(t.ones(4, dtype=t.float64)), error(lambda: y.grad_fn()), error(lambda: y.grad_fn(1)))


@twin
def test_the_node_of_a_leaf(t):
    x = leaf(t)
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    edge = t.autograd.graph.get_gradient_edge(x)
    node(t.ones(4, dtype=t.float64))
    return (node is y.grad_fn.next_functions[0][0], edge.node is node, node.variable is x, node.name(), node.next_functions,
            isinstance(node, t.autograd.graph.Node), node.metadata, node._sequence_nr(), repr(node).split(" ")[0], x.grad,
            t.autograd.grad(y.sum(), edge))


@twin
def test_a_node_with_many_inputs_keeps_each_of_them(t):
    leaves = [t.full((2,), float(i), requires_grad=True) for i in range(12)]
    joined = t.cat(leaves)
    (joined * t.arange(24.)).sum().backward()
    return ([fn.variable is leaf for (fn, nr), leaf in zip(joined.grad_fn.next_functions, leaves, strict=True)],
            [leaf.grad for leaf in leaves])


@twin
def test_shapes_stay_what_they_were(t):
    x = t.ones(2, 3, requires_grad=True)
    seen = x.shape
    others = [t.empty(n, 0).shape == (n, 0) for n in range(2000)]        # more than any cache of shapes keeps
    return (type(seen) is t.Size, tuple(seen), seen == t.ones(2, 3).shape, all(others),
            type(x.sum().grad_fn._saved_self_sym_sizes) is tuple, tuple(x.shape))


@pytest.mark.parametrize("line", [
    "y = Same.apply(x); y.add_(1)", "y = Same.apply(x * 1); (y._is_view(), y.add_(1))", "a, b = Both.apply(x * 1); a.add_(1)",
    "a, b = x.unbind(); a.add_(1)", "a = torch.ones(2, 2)\nwith torch.no_grad(): v = a[0]\nv.requires_grad_(); v.add_(1)",
    "(x * 1).view(2).detach_()", "torch.autograd.grad(x.sum(), [])", "torch.autograd.backward(x.sum(), grad_tensors=x, grad_variables=x)",
    "torch.utils.checkpoint.checkpoint(lambda x: x.exp(), x, use_reentrant=True).sum().backward(inputs=[x])",
    "torch.autograd.grad(torch.autograd.graph.get_gradient_edge(x * 2), x, torch.ones(2))",
    "torch._C._functions.DelayedError('later', 1)(x).sum().backward()", "torch._C._functions.UndefinedGrad()(x).sum().backward(); x.grad",
    "(torch._C._current_autograd_node(), torch._C._current_graph_task_id())", "torch._C._will_engine_execute_node((x * 2).grad_fn)",
    "repr(x.clone().copy_(x).grad_fn)[:14]"])
def test_what_torch_says_of_graphs(line: str) -> None:
    *before, last = line.replace("; ", "\n").split("\n")
    check_lines("""
x = torch.ones(2, requires_grad=True)
class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
    @staticmethod
    def backward(ctx, g): return g
class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.view(-1), x.view(-1)
    @staticmethod
    def backward(ctx, a, b): return a + b
""" + "\n".join([*before, last]), message=True)


def test_nodes_that_a_backward_runs() -> None:
    """Asked from a hook: whose turn it is, and which nodes will have one."""
    def body(t: Any) -> list[Any]:
        x = t.ones(2, requires_grad=True)
        y, other = x * 2, x * 3
        z, seen = y.exp(), []
        ask = t._C._will_engine_execute_node
        z.register_hook(lambda g: seen.extend([ask(y.grad_fn), ask(other.grad_fn), t._C._current_autograd_node().name()]))
        z.sum().backward()
        return seen
    same(outcome(mt, body), outcome(torch, body))


@twin
def test_only_the_gradients_that_were_asked_for_are_computed(t):
    seen = []
    x, w, b = leaf(t, 2, 3, 5, 5), leaf(t, 4, 3, 2, 2), leaf(t, 4)
    y = t.nn.functional.conv2d(x, w, b)
    y.grad_fn.register_hook(lambda given, _: seen.append([g is not None for g in given]))
    z = x.view(30, 5) @ w.view(-1)[:10].view(5, 2)
    z.grad_fn.register_hook(lambda given, _: seen.append([g is not None for g in given]))
    for wanted in ([x], [w], [w, b], [x, w, b]):
        t.autograd.grad(y.sum(), wanted, retain_graph=True)
    for wanted in ([x], [w], [x, w]):
        t.autograd.grad(z.sum(), wanted, retain_graph=True)
    y.sum().backward(inputs=[b])
    return seen, b.grad, x.grad


@twin
def test_backward_for_a_tensor_in_the_middle_runs_its_node_too(t):
    x = leaf(t, 3)
    y = x * x
    z = y.exp()
    seen = []
    y.grad_fn.register_hook(lambda given, _: seen.append([g is None for g in given]))
    z.sum().backward(inputs=[y])
    return y.grad, x.grad, y.retains_grad, seen, error(lambda: y.sum().backward(), 12)


@twin
def test_more_gradients_than_outputs_are_ignored(t):
    x = leaf(t, 2)
    t.autograd.backward([(x * 2).sum()], [t.tensor(1.0, dtype=t.float64), t.tensor(5.0)])
    return x.grad, error(lambda: t.autograd.backward([x.sum(), x.sum()], [t.tensor(1.0, dtype=t.float64)])), \
        error(lambda: t.autograd.grad(x * 2, x, t.ones(4, 3), is_grads_batched=True))


@twin
def test_the_node_of_a_gradient_by_the_name_in_torch(t):
    x = leaf(t, 2)
    node_of = t.autograd.graph._get_grad_fn_or_grad_acc
    return node_of(x).name(), node_of(x * 2).name(), error(lambda: node_of(t.ones(2))), \
        error(t._C._current_graph_task_execution_order)


@twin
def test_inference_mode_records_nothing_whatever_is_enabled_inside(t):
    x, found = leaf(t, 2), []
    with t.inference_mode():
        with t.enable_grad():
            found.append(((x * 2).requires_grad, t.is_grad_enabled()))
            with t.no_grad():
                found.append(t.is_grad_enabled())
            found.append(t.is_grad_enabled())
        with t.inference_mode(False):
            found.append(((x * 2).requires_grad, t.is_grad_enabled()))
        found.append(t.is_grad_enabled())
    return found, t.is_grad_enabled(), (x * 2).requires_grad


@twin
def test_tangents_are_not_seen_in_inference_mode(t):
    fw = t.autograd.forward_ad
    with fw.dual_level():
        dual = fw.make_dual(t.ones(2), t.full((2,), 3.0))
        with t.inference_mode():
            found = [repr(dual), *[fw.unpack_dual(x).tangent for x in (dual, dual * 2, fw.make_dual(t.ones(2), t.ones(2)))]]
        made = fw.make_dual(t.ones(2, requires_grad=True), t.ones(2))
        return found, fw.unpack_dual(dual * 2).tangent, error(lambda: t.add(made, made, out=t.zeros(2))), \
            error(lambda: fw.exit_dual_level(level=3))
