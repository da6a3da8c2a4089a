"""backward() and grad(): what they compute, what they refuse, modes, leaves; the same body runs under torch."""
from __future__ import annotations

import pytest
from twin import error, twin


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), dtype=t.float64, requires_grad=True)


# ---- backward and grad ---------------------------------------------------------------------------------------------
@twin
def test_backward_accumulates(t):
    x = leaf(t)
    (x * x).sum().backward()
    first = x.grad.clone()
    (x * 3).sum().backward()
    return first, x.grad


@twin
def test_backward_adds_in_place_to_an_existing_grad(t):
    x = leaf(t)
    x.grad = t.ones(3, dtype=t.float64)
    held = x.grad
    x.sum().backward()
    return held, held is x.grad, held.data_ptr() == x.grad.data_ptr()


@twin
def test_gradient_given(t):
    x = leaf(t)
    (x * x).backward(t.tensor([1.0, 10.0, 100.0], dtype=t.float64))
    return x.grad


@twin
def test_several_roots(t):
    x, y = leaf(t), leaf(t, 4.0, 5.0, 6.0)
    t.autograd.backward([(x * y).sum(), (x + y)], [None, t.full((3,), 2.0, dtype=t.float64)])
    return x.grad, y.grad


@twin
def test_one_root_twice(t):
    x = leaf(t)
    y = (x * x).sum()
    t.autograd.backward([y, y])
    return x.grad


@twin
def test_root_inside_the_graph_of_another(t):
    x = leaf(t)
    y = x * x
    z = (y * 3).sum()
    t.autograd.backward([z, y], [None, t.ones(3, dtype=t.float64)])
    return x.grad


@twin
def test_leaf_as_root(t):
    x = leaf(t, 2.0)
    x.backward(t.tensor([5.0], dtype=t.float64))
    return x.grad, t.autograd.grad(x, x, t.tensor([3.0], dtype=t.float64))


@twin
def test_grad_leaves_grad_alone(t):
    x = leaf(t)
    g, = t.autograd.grad((x ** 3).sum(), x)
    return g, x.grad, g.requires_grad


@twin
def test_grad_of_an_intermediate(t):
    x = leaf(t)
    y = x * 2
    z = y * y
    return t.autograd.grad(z.sum(), [y, x])


@twin
def test_grad_of_one_input_twice(t):
    x = leaf(t)
    return t.autograd.grad((x * x).sum(), [x, x])


@twin
def test_grad_of_input_that_another_input_depends_on(t):
    x = leaf(t)
    y = x.exp()
    z = (y * x).sum()
    return t.autograd.grad(z, [x, y])


@twin
def test_backward_inputs_limits_accumulation(t):
    x, w = leaf(t), leaf(t, 4.0, 5.0, 6.0)
    y = x * w
    (y * y).sum().backward(inputs=[x])
    return x.grad, w.grad


@twin
def test_backward_inputs_on_an_intermediate(t):
    x = leaf(t)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward(inputs=[y, x])
    return y.grad, x.grad


@twin
def test_unused_inputs(t):
    x, y = leaf(t), leaf(t)
    refused = error(lambda: t.autograd.grad(x.sum(), [x, y]), 60)
    return (refused, t.autograd.grad(x.sum(), [x, y], allow_unused=True),
            t.autograd.grad(x.sum(), [x, y], materialize_grads=True),
            error(lambda: t.autograd.grad(x.sum(), y, allow_unused=False, materialize_grads=True), 40))


@twin
def test_grad_of_a_non_differentiable_input(t):
    x, y = leaf(t), t.ones(3)
    return error(lambda: t.autograd.grad(x.sum(), y), 40), error(lambda: t.ones(3).sum().backward(), 30)


@twin
def test_implicit_start_only_for_real_scalars(t):
    x, z = leaf(t), t.ones(1, dtype=t.complex128, requires_grad=True)
    one = t.ones(1, 1, requires_grad=True)
    (one * 3).backward()
    return (error(lambda: (x * 2).backward(), 50), error(lambda: (z * 2).backward(), 50), one.grad,
            error(lambda: t.autograd.backward((x * 2), t.ones(2, dtype=t.float64)), 18))


@twin
def test_second_backward_needs_retain_graph(t):
    x = leaf(t)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, error(y.backward, 60)


@twin
def test_graph_without_saved_tensors_runs_twice(t):
    x = leaf(t)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    return x.grad


@twin
def test_shared_part_of_the_graph_is_freed_by_the_first_backward(t):
    x = leaf(t)
    y = x.exp()
    a, b = y.sum(), (y * 2).sum()
    a.backward()
    return error(b.backward, 40)


@twin
def test_create_graph(t):
    x = leaf(t)
    g, = t.autograd.grad((x ** 3).sum(), x, create_graph=True)
    h, = t.autograd.grad(g.sum(), x, create_graph=True)
    k, = t.autograd.grad(h.sum(), x)
    return g, h, k, g.requires_grad


@twin
def test_backward_create_graph_accumulates_out_of_place(t):
    x = leaf(t)
    (x ** 3).sum().backward(create_graph=True)
    first = x.grad
    (x ** 2).sum().backward(create_graph=True)
    return first, x.grad, first is x.grad, t.autograd.grad(x.grad.sum(), x)


@twin
def test_grad_mode_inside_backward(t):
    seen = []
    x = leaf(t)
    for create in (False, True):
        y = x * x
        y.register_hook(lambda g: seen.append(t.is_grad_enabled()))
        t.autograd.grad(y.sum(), x, create_graph=create)
    return seen, t.is_grad_enabled()


@twin
def test_backward_under_no_grad(t):
    x = leaf(t)
    y = (x * x).sum()
    with t.no_grad():
        y.backward()
    return x.grad, x.grad.requires_grad


@twin
def test_is_grads_batched(t):
    x = leaf(t)
    y = x * x
    starts = t.eye(3, dtype=t.float64)
    return t.autograd.grad(y, x, starts, is_grads_batched=True)


@twin
def test_gradient_is_summed_over_broadcast_dims(t):
    x = t.randn(3, 1, 4, dtype=t.float64, requires_grad=True)
    y = t.randn(2, 1, 5, 1, dtype=t.float64, requires_grad=True)
    return t.autograd.grad((x * y).sin().sum(), [x, y])


@twin
def test_gradient_takes_the_dtype_of_its_input(t):
    x = t.ones(3, requires_grad=True)
    y = t.ones(3, dtype=t.float64, requires_grad=True)
    z = t.ones(3, dtype=t.complex128)
    (x * y * z).sum().real.backward()
    return x.grad, y.grad


@twin
def test_complex_gradient(t):
    z = t.tensor([1 + 2j, 3 - 1j], dtype=t.complex128, requires_grad=True)
    (z * z.conj()).real.sum().backward()
    first = z.grad.clone()
    (z.abs() + (z * 1j).exp().imag).sum().backward()
    return first, z.grad


@twin
def test_non_contiguous_gradient(t):
    x = t.randn(3, 4, dtype=t.float64, requires_grad=True)
    (x.t() * 2).backward(t.randn(4, 3, dtype=t.float64))
    y = t.randn(3, dtype=t.float64, requires_grad=True)
    y.sum().backward()                 # the gradient that arrives is expanded
    y.grad.add_(1)
    return x.grad, x.grad.stride(), y.grad, y.grad.stride()


@twin
def test_two_leaves_never_share_a_grad(t):
    x, y = leaf(t), leaf(t)
    (x + y).backward(t.ones(3, dtype=t.float64))
    x.grad.mul_(5)
    return x.grad, y.grad


@twin
def test_given_gradient_is_not_stolen(t):
    x, start = leaf(t), t.ones(3, dtype=t.float64)
    (x + 0).backward(start)
    x.grad.mul_(5)
    return start, x.grad


@twin
def test_diamond_graph(t):
    x = leaf(t)
    a = x.exp()
    b, c = a * 2, a.sin()
    d = b * c + a
    (d * b).sum().backward()
    return x.grad


@twin
def test_int_and_bool_results_end_the_graph(t):
    x = leaf(t)
    return ((x > 1).requires_grad, x.argmax().requires_grad, x.long().requires_grad,
            error(lambda: t.ones(3, dtype=t.int64).requires_grad_(), 40),
            error(lambda: t.tensor([1, 2], requires_grad=True)))


# ---- leaves, detach, requires_grad_ --------------------------------------------------------------------------------
@twin
def test_leaf_rules(t):
    x = leaf(t)
    y = x * 2
    z = t.ones(2)
    return (x.is_leaf, y.is_leaf, z.is_leaf, x.grad_fn, y.grad_fn.name(), y.requires_grad,
            error(lambda: y.requires_grad_(False), 50), error(lambda: setattr(y, "requires_grad", False), 50),
            y.requires_grad_(True) is y)


@twin
def test_detach(t):
    x = leaf(t)
    y = (x * 2).detach()
    d = x.detach()
    d.zero_()
    z = x * 3
    z.detach_()
    return (y.requires_grad, y.is_leaf, d.requires_grad, x, d.data_ptr() == x.data_ptr(), z.requires_grad, z.grad_fn,
            error(lambda: (x * 2)[0].detach_(), 20))


@twin
def test_detach_shares_the_version_counter_and_data_does_not(t):
    x = leaf(t)
    y = x.exp()
    y.detach().zero_()
    z = x.exp()
    z.data.zero_()
    z.sum().backward()
    return error(y.sum().backward, 40), x.grad


@twin
def test_grad_assignment(t):
    x = leaf(t)
    x.grad = None
    refused = [error(lambda: setattr(x, "grad", t.ones(2, dtype=t.float64)), 20),
               error(lambda: setattr(x, "grad", t.ones(3)), 20), error(lambda: setattr(x, "grad", 3), 20),
               error(lambda: setattr(x, "grad", x), 20)]
    x.grad = t.ones(3, dtype=t.float64)
    del x.grad
    return refused, x.grad


@twin
def test_retain_grad(t):
    x = leaf(t)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    (y * y).sum().backward()
    plain = t.ones(2)
    return y.grad, y.retains_grad, x.retains_grad, error(plain.retain_grad, 20), x.grad


@twin
def test_retain_grad_after_an_in_place_change(t):
    x = leaf(t)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return y.grad, x.grad


@twin
def test_clone_and_copies_pass_gradients(t):
    x = leaf(t)
    y = x.clone().float().double().contiguous().to(t.float32).to(t.float64)
    (y * y).sum().backward()
    return x.grad


# ---- modes ---------------------------------------------------------------------------------------------------------
@twin
def test_modes_nest(t):
    x = leaf(t)
    seen = []
    with t.no_grad():
        seen.append((x * 2).requires_grad)
        with t.enable_grad():
            seen.append((x * 2).requires_grad)
            with t.set_grad_enabled(False):
                seen.append((x * 2).requires_grad)
            seen.append(t.is_grad_enabled())
        seen.append(t.is_grad_enabled())
    seen.append(t.is_grad_enabled())
    return seen


@twin
def test_modes_are_restored_after_an_error(t):
    def fail():
        with t.no_grad(), t.inference_mode():
            raise KeyError("x")
    return error(fail), t.is_grad_enabled(), t.is_inference_mode_enabled()


@pytest.mark.parametrize("mode", ["no_grad", "enable_grad", "inference_mode"])
@pytest.mark.parametrize("called", [False, True])
@twin
def test_modes_decorate_functions(t, mode, called):
    decorator = getattr(t, mode)

    @(decorator() if called else decorator)
    def double(x, factor=2):
        "Doubles."
        return x * factor
    y = double(leaf(t))
    return y.requires_grad, double.__name__, double.__doc__, t.is_grad_enabled(), y.is_inference()


@twin
def test_modes_decorate_generators(t):
    @t.no_grad()
    def steps():
        got = yield t.is_grad_enabled()
        try:
            yield got, t.is_grad_enabled()
        except ValueError:
            yield "caught", t.is_grad_enabled()
        return 5
    outside = []
    g = steps()
    values = [next(g)]
    outside.append(t.is_grad_enabled())
    values.append(g.send("sent"))
    outside.append(t.is_grad_enabled())
    values.append(g.throw(ValueError()))
    try:
        next(g)
    except StopIteration as stop:
        values.append(stop.value)
    closed = steps()
    next(closed)
    closed.close()
    return values, outside, t.is_grad_enabled()


@twin
def test_generator_may_handle_more_than_one_error(t):
    @t.no_grad()
    def steps():
        for i in range(3):
            try:
                yield i
            except ValueError:
                pass
        yield t.is_grad_enabled()
    g = steps()
    return next(g), g.throw(ValueError()), g.throw(ValueError()), g.throw(ValueError())


@twin
def test_set_grad_enabled_as_a_function_and_decorator(t):
    t.set_grad_enabled(False)
    off = t.is_grad_enabled()
    t.set_grad_enabled(True)

    @t.set_grad_enabled(False)
    def inner():
        return t.is_grad_enabled()
    return off, inner(), t.is_grad_enabled(), inner()


@twin
def test_inference_mode(t):
    x = leaf(t)
    with t.inference_mode():
        y = x * 2
        inside = t.is_inference_mode_enabled(), y.requires_grad, y.is_inference(), x.is_inference()
        y.add_(1)
        with t.inference_mode(False):
            z = x * 2
    return (inside, z.requires_grad, z.is_inference(), error(lambda: y.add_(1), 30), error(lambda: x * y, 30),
            error(lambda: y.requires_grad_(), 20), y.clone().is_inference(), (y + 1).is_inference())


@twin
def test_factories_under_no_grad(t):
    with t.no_grad():
        x = t.ones(2, requires_grad=True)
        y = x * 2
    return x.requires_grad, y.requires_grad, (x * 2).requires_grad


# ---- deep graphs, reentrant backward, threads ----------------------------------------------------------------------
@twin
def test_nan_and_inf_gradients_pass_through(t):
    x = leaf(t, 0.0, -1.0, 4.0)
    (x.sqrt() + x.log()).sum().backward()
    return x.grad


@twin
def test_backward_inside_backward(t):
    x, w = leaf(t), leaf(t, 2.0, 2.0, 2.0)
    y = x * x

    def hook(g):
        with t.enable_grad():
            inner = (w * w * 3).sum()
        inner.backward()
        return g * 2
    y.register_hook(hook)
    y.sum().backward()
    return x.grad, w.grad


@twin
def test_deeply_nested_backward(t):
    class Nest(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            if ctx.depth == 0:
                return g, None
            with t.enable_grad():
                x = t.ones(1, dtype=t.float64, requires_grad=True)
                y = (Nest.apply(x, ctx.depth - 1) * 2).sum()
            return g * t.autograd.grad(y, x)[0], None
    x = leaf(t, 1.0)
    Nest.apply(x, 40).sum().backward()
    return x.grad


@twin
def test_error_in_a_hook_leaves_the_engine_usable(t):
    x = leaf(t)
    y = x * x

    def fail(g):
        raise ValueError("from the hook")
    handle = y.register_hook(fail)
    refused = error(lambda: y.sum().backward(retain_graph=True), 20)
    handle.remove()
    usable = t.is_grad_enabled()
    y.sum().backward()
    return refused, usable, x.grad


@twin
def test_wrong_gradients_from_a_function_are_refused(t):
    def returning(value):
        class Wrong(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, y):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return value(g)
        x = leaf(t)
        refused = error(lambda: Wrong.apply(x, leaf(t)).sum().backward())
        (x * 2).sum().backward()
        return refused, x.grad
    return [returning(v) for v in (lambda g: g, lambda g: (g, g, g), lambda g: (g[:2], None), lambda g: (1.0, None),
                                   lambda g: (g, None, None))]
