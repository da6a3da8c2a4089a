"""Custom functions, checkpoint, gradcheck, autograd.functional, second derivatives; the same body runs under torch."""
from __future__ import annotations

import pytest
from twin import error, twin

import mindtorch_v2 as mt


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0), dtype=t.float64, requires_grad=True)


# ---- custom functions ----------------------------------------------------------------------------------------------
def cube(t):
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x ** 3

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * 3 * x ** 2
    return Cube


@twin
def test_function(t):
    x = leaf(t)
    y = cube(t).apply(x)
    g, = t.autograd.grad(y.sum(), x, create_graph=True)
    h, = t.autograd.grad(g.sum(), x)
    return y, y.grad_fn.name(), g, h, error(lambda: y.sum().backward(), 40)


@twin
def test_function_without_gradients(t):
    x = t.ones(3)
    y = cube(t).apply(x)
    with t.no_grad():
        z = cube(t).apply(leaf(t))
    return y, y.requires_grad, z, z.requires_grad, z.grad_fn


@twin
def test_function_with_other_arguments(t):
    seen = []

    class Scale(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, names, y=None, flag=True):
            ctx.factor = factor
            seen.append((ctx.needs_input_grad, names, flag, t.is_grad_enabled()))
            return x * factor

        @staticmethod
        def backward(ctx, g):
            seen.append((ctx.needs_input_grad, t.is_grad_enabled()))
            return g * ctx.factor, None, None, None, None
    x = leaf(t)
    Scale.apply(x, 2.5, ["a"], None, False).sum().backward()
    return seen, x.grad


@twin
def test_function_keywords_are_refused(t):
    return error(lambda: cube(t).apply(x=leaf(t)))


@twin
def test_function_several_outputs(t):
    seen = []

    class Both(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y, None)
            return x * y, x + y, 7

        @staticmethod
        def backward(ctx, a, b, c):
            x, y, nothing = ctx.saved_tensors
            seen.append((a.clone(), b.clone(), nothing, c))
            return a * y + b, a * x + b
    x, y = leaf(t), leaf(t, 4.0, 5.0, 6.0)
    p, q, n = Both.apply(x, y)
    p.sum().backward()
    return seen, n, x.grad, y.grad, q.output_nr


@twin
def test_function_without_materialized_gradients(t):
    seen = []

    class Both(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a is None, b is None))
            return a * 2 if b is None else b * 3
    x = leaf(t)
    Both.apply(x)[0].sum().backward()
    Both.apply(x)[1].sum().backward()
    return seen, x.grad


@twin
def test_function_non_differentiable_outputs(t):
    seen = []

    class Sort(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            counts = x * 0
            ctx.mark_non_differentiable(order, counts)
            ctx.save_for_backward(order)
            return values, order, counts

        @staticmethod
        def backward(ctx, g, nothing, zero):
            seen.append((nothing, zero))
            order, = ctx.saved_tensors
            return t.zeros_like(g).index_add(0, order, g)
    x = leaf(t, 3.0, 1.0, 2.0)
    values, order, counts = Sort.apply(x)
    (values * t.arange(3.0, dtype=t.float64)).sum().backward()
    return values, order, values.requires_grad, order.requires_grad, counts.requires_grad, x.grad, seen


@twin
def test_function_that_changes_its_input(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2
    x = leaf(t)
    y = x * 3
    z = Double.apply(y)
    z.sum().backward()
    base = leaf(t) * 1
    view = base[1:]
    Double.apply(view)
    return z is y, y._version, y.grad_fn.name(), x.grad, error(lambda: Double.apply(leaf(t)), 40), base


@twin
def test_function_that_changes_a_view(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2
    x = leaf(t)
    y = x * 3
    v = y[1:]
    Double.apply(v)
    (y * y).sum().backward()
    return y, x.grad


@twin
def test_function_that_returns_its_input(t):
    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x, y.view(3)

        @staticmethod
        def backward(ctx, g, h):
            return g * 10, h * 100
    x, y = leaf(t), leaf(t)
    a, b = Identity.apply(x, y)
    (a + b).sum().backward()
    return a is x, a.data_ptr() == x.data_ptr(), x.is_leaf, x.grad, y.grad


@twin
def test_function_setup_context(t):
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(x, power):
            return x ** power, x.detach() * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.power = inputs
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(x, output[0])

        @staticmethod
        def backward(ctx, g, nothing):
            x, y = ctx.saved_tensors
            return g * ctx.power * y / x, None
    x = leaf(t)
    y, z = Cube.apply(x, 3)
    g, = t.autograd.grad(y.sum(), x, create_graph=True)
    return y, z.requires_grad, g, t.autograd.grad(g.sum(), x)


@twin
def test_once_differentiable(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]
    x = leaf(t)
    g, = t.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    first, = t.autograd.grad(Square.apply(x).sum(), x)
    return first, g.requires_grad, error(lambda: g.sum().backward(), 50)


@twin
def test_what_once_differentiable_gives_is_no_part_of_the_graph(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * g
    x = leaf(t)
    start = t.ones_like(x).requires_grad_()
    g, = t.autograd.grad(Square.apply(x), x, start, create_graph=True)
    return (g, t.autograd.grad(g.sum(), x, allow_unused=True) if not g.requires_grad else error(lambda: g.sum().backward(), 50))


@twin
def test_saved_tensors_of_a_function_before_they_are_unpacked(t):
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            before = ctx.saved_tensors, ctx.to_save, ctx.dirty_tensors, ctx.non_differentiable
            ctx.save_for_backward(x, None, before and x * 2)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]
    x = leaf(t)
    y = Twice.apply(x)
    raw = y.grad_fn._raw_saved_tensors
    raw[0].register_hooks(lambda s: s * 2, lambda s: s + 1)
    errors = [error(lambda: raw[0].register_hooks(lambda s: s, lambda s: s), 90),
              error(lambda: raw[1].register_hooks(lambda s: s, lambda s: s), 70),
              error(lambda: t.autograd.SavedTensor(), 60)]
    shown = len(raw), isinstance(raw[0], t.autograd.SavedTensor), raw[0].data, len(y.grad_fn.next_functions)
    y.sum().backward()
    return (x.grad, *shown, *errors, error(lambda: y.grad_fn._raw_saved_tensors, 60))


@twin
def test_a_function_may_not_change_a_leaf(t):
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2
    whole = leaf(t)
    part = t.ones(4)[1:].requires_grad_()                       # a leaf that is a view
    return [error(lambda: Double.apply(x)) for x in (whole, part)] + [Double.apply(t.ones(2))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@twin
def test_a_function_is_no_object_to_call(t):
    return type(cube(t)()).__name__, error(lambda: cube(t)()(leaf(t)), 50)


@twin
def test_saving_outputs_makes_second_derivatives(t):
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return g * y
    x = leaf(t)
    g, = t.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    h, = t.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, t.autograd.grad(h.sum(), x)


@twin
def test_saved_tensor_changed_in_place(t):
    x = leaf(t)
    y = x * 2
    z = cube(t).apply(y)
    y.add_(1)
    return error(z.sum().backward, 60)


@twin
def test_saved_tensors_are_freed(t):
    x = leaf(t)
    y = cube(t).apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return x.grad, error(y.sum().backward, 40), error(lambda: y.grad_fn.saved_tensors, 40)


@twin
def test_function_errors(t):
    class NoBackward(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    class Raises(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError("mine")

    class SavesOther(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x * 2
    x = leaf(t)
    return (error(NoBackward.apply(x).sum().backward), error(Raises.apply(x).sum().backward, 10), t.is_grad_enabled(),
            error(lambda: SavesOther.apply(x)), error(lambda: NoBackward()(x)))


@twin
def test_function_gradient_for_an_input_that_needs_none(t):
    class Mul(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x
    x, y = leaf(t), t.ones(3, dtype=t.float64)
    Mul.apply(x, y).sum().backward()
    return x.grad, y.grad


@twin
def test_function_hooks(t):
    seen = []
    x = leaf(t)
    y = cube(t).apply(x)
    y.grad_fn.register_prehook(lambda gs: seen.append(len(gs)))
    y.grad_fn.register_hook(lambda a, b: (a[0] * 2,))
    y.register_hook(lambda g: g * 3)
    y.sum().backward()
    return seen, x.grad


# ---- checkpoint ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("reentrant", [False, True])
@twin
def test_checkpoint(t, reentrant):
    from_utils = t.utils.checkpoint.checkpoint
    calls = []
    w = leaf(t, 2.0, 2.0, 2.0)

    def part(x, scale, extra=None):
        calls.append(t.is_grad_enabled())
        return (x * w).sin() * scale, x.exp()
    x = leaf(t)
    a, b = from_utils(part, x * 1, 3.0, use_reentrant=reentrant)
    (a.sum() + (b * b).sum()).backward()
    return len(calls), x.grad, w.grad


@pytest.mark.parametrize("reentrant", [False, True])
@twin
def test_checkpoint_replays_random_numbers(t, reentrant):
    x = t.ones(50, dtype=t.float64, requires_grad=True)

    def part(v):
        return t.nn.functional.dropout(v, 0.5) * t.rand(50, dtype=t.float64)
    y = t.utils.checkpoint.checkpoint(part, x, use_reentrant=reentrant)
    after = t.rand(3)
    y.sum().backward()
    return y.detach(), after, x.grad, t.rand(3)


@twin
def test_checkpoint_nested(t):
    check = t.utils.checkpoint.checkpoint
    x = leaf(t)

    def inner(v):
        return v.exp().sin()

    def outer(v):
        return check(inner, v * 2, use_reentrant=False) + v.cos()
    check(outer, x, use_reentrant=False).sum().backward()
    return x.grad


@twin
def test_checkpoint_double_backward_and_grad(t):
    x = leaf(t)
    y = t.utils.checkpoint.checkpoint(lambda v: (v ** 3).sin(), x, use_reentrant=False)
    g, = t.autograd.grad(y.sum(), x, create_graph=True)
    return g, t.autograd.grad(g.sum(), x)


@twin
def test_checkpoint_sequential(t):
    layers = [lambda v: v * 2, lambda v: v.sin(), lambda v: v.exp(), lambda v: v * v, lambda v: v + 1]
    x = leaf(t)
    t.utils.checkpoint.checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()
    return x.grad


@twin
def test_checkpoint_detects_another_computation(t):
    x, turn = leaf(t), []

    def part(v):
        turn.append(1)
        return v.exp() if len(turn) == 1 else v * 1
    y = t.utils.checkpoint.checkpoint(part, x, use_reentrant=False)
    return error(y.sum().backward)


# ---- gradcheck -----------------------------------------------------------------------------------------------------
def test_gradcheck_accepts_and_refuses():
    x = mt.randn(3, 2, dtype=mt.float64, requires_grad=True)
    z = mt.randn(3, dtype=mt.complex128, requires_grad=True)
    y = mt.randn(2, dtype=mt.float64)

    class Wrong(mt.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2.01
    assert mt.autograd.gradcheck(lambda a, b: (a * b).sin().sum(1), (x, y))
    assert mt.autograd.gradcheck(lambda v: (v * v.conj()).real + (v ** 2).imag, (z,))
    assert mt.autograd.gradcheck(lambda v: (v.exp(), v * 1j), (z,))
    assert mt.autograd.gradgradcheck(lambda a, b: (a ** 3 * b).sum(), (x, y))
    assert mt.autograd.gradgradcheck(lambda v: v ** 3, (z,))
    with pytest.raises(mt.autograd.GradcheckError):
        mt.autograd.gradcheck(Wrong.apply, (x,))
    assert not mt.autograd.gradcheck(Wrong.apply, (x,), raise_exception=False)
    assert not mt.autograd.gradgradcheck(lambda v: Wrong.apply(v) * v, (x,), raise_exception=False)
    with pytest.raises(ValueError):
        mt.autograd.gradcheck(lambda v: v, (y,))


# ---- autograd.functional -------------------------------------------------------------------------------------------
FUNCTIONS = {
    "one to one": (lambda x: (x ** 3).sin(), 1),
    "two to one": (lambda x, y: (x * y).sum(0) + y, 2),
    "two to two": (lambda x, y: (x.exp() * y, y ** 2), 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@twin
def test_jacobian(t, name):
    fn, n = FUNCTIONS[name]
    args = tuple(t.randn(3, dtype=t.float64) for _ in range(n))
    return t.autograd.functional.jacobian(fn, args if n > 1 else args[0])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@twin
def test_products_with_the_jacobian(t, name, kind):
    fn, n = FUNCTIONS[name]
    args = tuple(t.randn(3, dtype=t.float64) for _ in range(n))
    args = args if n > 1 else args[0]
    like = args if kind == "jvp" else fn(*args) if n > 1 else fn(args)
    v = tuple(t.randn_like(x) for x in like) if isinstance(like, tuple) else t.randn_like(like)
    return getattr(t.autograd.functional, kind)(fn, args, v)


@pytest.mark.parametrize("kind", ["hvp", "vhp"])
@twin
def test_products_with_the_hessian(t, kind):
    x, y = t.randn(3, dtype=t.float64), t.randn(3, dtype=t.float64)
    fn = lambda a, b: (a ** 3 * b.exp()).sum()
    return (getattr(t.autograd.functional, kind)(fn, (x, y), (t.randn_like(x), t.randn_like(y))),
            t.autograd.functional.hessian(fn, (x, y)), t.autograd.functional.hessian(lambda a: (a ** 4).sum(), x))


@twin
def test_functional_strictness(t):
    f = t.autograd.functional
    x = t.randn(2, dtype=t.float64)
    return (f.jacobian(lambda v: t.ones(2, dtype=t.float64), x), error(lambda: f.jacobian(
        lambda v: t.ones(2, dtype=t.float64), x, strict=True)), error(lambda: f.vjp(lambda v: v * 2, x)),
        error(lambda: f.hessian(lambda v: v * 2, x)), f.vjp(lambda v: v.sum(), x))


@twin
def test_functional_with_create_graph(t):
    x = t.randn(2, dtype=t.float64, requires_grad=True)
    j = t.autograd.functional.jacobian(lambda v: v ** 3, x, create_graph=True)
    return j, t.autograd.grad(j.sum(), x)


# ---- second derivatives --------------------------------------------------------------------------------------------
SECOND = {
    "exp": lambda x: x.exp(), "log": lambda x: x.log(), "sqrt": lambda x: x.sqrt(), "tanh": lambda x: x.tanh(),
    "sigmoid": lambda x: x.sigmoid(), "pow": lambda x: x ** x, "div": lambda x: x[:1] / x, "sin": lambda x: x.sin(),
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(0), "prod": lambda x: x.prod(1),
    "norm": lambda x: x.norm(), "matmul": lambda x: x @ x.t() @ x, "var": lambda x: x.var(0), "std": lambda x: x.std(),
    "logsumexp": lambda x: x.logsumexp(1), "cumsum": lambda x: x.cumsum(0) ** 2, "cumprod": lambda x: x.cumprod(1),
    "max": lambda x: x.max(1).values ** 2, "sort": lambda x: x.sort(0).values ** 3, "index": lambda x: x[[0, 2, 0]] ** 2,
    "gather": lambda x: x.gather(0, (x * 0).long()) ** 3, "cat": lambda x: (x.sin().t(), x.t() ** 2, x.t())[0] ** 2,
    "where": lambda x: (x > 1).to(x.dtype) * x ** 3, "clamp": lambda x: x.clamp(0.8, 1.2) ** 3, "abs": lambda x: x.abs() ** 3,
    "expand": lambda x: x[:, :1].expand(3, 5) ** 2, "atan2": lambda x: x.atan2(x.t()[:3, :3].sum()), "erf": lambda x: x.erf(),
    "unfold": lambda x: x.unfold(0, 2, 1) ** 3, "diagonal": lambda x: x.diagonal() ** 3, "roll": lambda x: x.roll(1, 0) ** 2,
    "mean": lambda x: x.mean(1) ** 3, "lerp": lambda x: x.lerp(x ** 2, x), "addcmul": lambda x: x.addcmul(x, x ** 2),
}


@pytest.mark.parametrize("name", SECOND)
@twin
def test_second_derivative(t, name):
    x = (t.rand(3, 4, dtype=t.float64) + 0.5).requires_grad_()
    y = SECOND[name](x)
    g, = t.autograd.grad((y * t.linspace(1.0, 2.0, y.numel(), dtype=t.float64).view(y.shape)).sum(), x,
                         create_graph=True)
    h, = t.autograd.grad((g ** 2).sum(), x, create_graph=True, allow_unused=True)
    return y, g, h, t.autograd.grad(h.sin().sum(), x, allow_unused=True) if h is not None else None


@twin
def test_arguments_given_by_name_take_their_places(t):
    class Scaled(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor, shift=0.5):
            ctx.factor = factor
            ctx.seen = ctx.needs_input_grad
            return x * factor + shift

        @staticmethod
        def backward(ctx, g):
            return tuple([g * ctx.factor, None, None][:len(ctx.needs_input_grad)])

    class Kept(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.to_save = 1
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g
    x = t.ones(2, dtype=t.float64, requires_grad=True)
    calls = [lambda: Scaled.apply(x, factor=3.0), lambda: Scaled.apply(x, 2.0, shift=1.0), lambda: Scaled.apply(factor=2.0, x=x)]
    made = [call() for call in calls]
    return [(y, y.grad_fn.seen, t.autograd.grad(y.sum(), x)) for y in made], [error(call) for call in (
        lambda: Scaled.apply(x, shift=2.0), lambda: Scaled.apply(x, other=2), lambda: Scaled.apply(x, 2.0, factor=3.0),
        lambda: Scaled.apply(factor=2.0), lambda: Kept.apply(x))]
