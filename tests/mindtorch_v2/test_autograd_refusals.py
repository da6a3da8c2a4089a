"""What autograd refuses, and in which order it looks: views of custom functions, jacobian, out= of dual numbers; as in torch."""
from __future__ import annotations

from twin import error, twin


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), dtype=t.float64, requires_grad=True)


# ---- views that functions make and change --------------------------------------------------------------------------
def changes(t):
    class Changes(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2
    return Changes


@twin
def test_a_function_may_not_change_one_of_several_views_or_a_view_of_a_leaf(t):
    part = (leaf(t) * 1).unbind(0)[0]
    whole = leaf(t) * 1
    changed = changes(t).apply(whole[:2])
    whole.sum().backward()
    return (error(lambda: changes(t).apply(part)), error(lambda: changes(t).apply(leaf(t)[:2])),
            error(lambda: changes(t).apply(leaf(t))), changed, whole)


@twin
def test_a_view_that_a_function_made_unrecorded_may_not_change(t):
    class View(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g
    x = leaf(t)
    with t.no_grad():
        y = View.apply(x)
    return error(lambda: y.mul_(2)), error(lambda: View.apply(x * 1).mul_(2))


@twin
def test_once_differentiable_leaves_an_error_in_the_graph(t):
    class Once(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x ** 2

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * 2
    x, w = leaf(t), leaf(t)
    g, = t.autograd.grad(Once.apply(x), x, w, create_graph=True)
    return g.grad_fn.name(), error(lambda: g.sum().backward())


@twin
def test_jacobian_looks_at_inputs_and_outputs_before_it_refuses(t):
    jacobian = t.autograd.functional.jacobian
    x = t.ones(2)
    return (error(lambda: jacobian(t.exp, 3, strategy="forward-mode")), error(lambda: jacobian(t.exp, x, strategy="forward-mode")),
            error(lambda: jacobian(lambda x: x.detach(), x, strict=True, vectorize=True)),
            error(lambda: jacobian(lambda x: 3, x, strict=True, vectorize=True)),
            error(lambda: jacobian(t.exp, x, strict=True, vectorize=True)))


@twin
def test_a_number_that_is_assigned_brings_its_tangent(t):
    forward = t.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(t.ones(3), t.arange(3.0))
        x = t.zeros(3)
        x[0] = dual[2]
        return forward.unpack_dual(x).tangent, error(lambda: t.add(t.ones(3), t.ones(3), out=dual))
