"""The recorded graph as Python sees it: saved values, metadata, leaves' nodes, calls of nodes; also run under torch."""
from __future__ import annotations

import pytest
from twin import error, twin


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
