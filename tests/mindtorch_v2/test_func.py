"""torch.func and torch.vmap against torch: derivatives of trees, nesting, what stays differentiable, errors."""

from __future__ import annotations

from typing import Any

import pytest
from twin import check_lines, error, twin

import mindtorch_v2 as mt

A = [[0.3, -1.2, 0.7], [0.1, 2.0, -0.4]]


def _along(f: Any, fn: Any, x: Any) -> Any:
    """The value and the derivative along x itself, which is no constant to the levels outside."""
    return f.jvp(fn, (x,), (x,))


DERIVATIVES = {
    "grad": lambda f, x: f.grad(lambda z: z.sin().pow(2).sum())(x),
    "grad of grad": lambda f, x: f.grad(lambda z: f.grad(lambda w: (w**4).sum())(z).sum())(x),
    "two arguments": lambda f, x: f.grad_and_value(lambda p, q: (p * q).sum(), argnums=(0, 1))(x, x + 1),
    "trees": lambda f, x: f.grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": [x * 2]}),
    "unused": lambda f, x: f.grad(lambda p, q: p.sum(), argnums=1)(x, x),
    "aux": lambda f, x: f.grad(lambda z: (z.sum(), {"twice": z * 2}), has_aux=True)(x),
    "jacrev": lambda f, x: f.jacrev(lambda z: z.cumsum(1))(x),
    "jacrev, trees": lambda f, x: f.jacrev(lambda p, q: {"sum": p + q, "dot": (p * q).sum()}, argnums=(0, 1))(x, x * 3),
    "jacobians of numbers": lambda f, x: (f.jacrev(lambda z: z**2)(x[0, 0]), f.jacfwd(lambda z: z**2)(x[0, 0])),
    "jacfwd": lambda f, x: f.jacfwd(lambda z: z[0].outer(z[1]))(x),
    "hessian": lambda f, x: f.hessian(lambda z: z.exp().prod())(x[0]),
    "jvp": lambda f, x: f.jvp(lambda p, q: (p * q, p), (x, x + 1), (x * 0 + 1, x * 0 + 2)),
    "vjp": lambda f, x: f.vjp(lambda p: p @ p.T, x)[1](x @ x.T),
    "jvp of jvp": lambda f, x: _along(f, lambda z: _along(f, lambda w: w.prod(), z)[1], x[0] + 3),
    "three jvps": lambda f, x: _along(f, lambda z: _along(f, lambda v: _along(f, lambda w: w.prod(), v)[1], z)[1], x[0] + 3),
    "grad of a tangent": lambda f, x: f.grad(lambda v: f.jvp(lambda w: w.prod(), (x[0],), (v,))[1])(x[1]).detach(),
    "vmap of grad": lambda f, x: f.vmap(f.grad(lambda z: (z**3).sum()))(x),
    "grad of vmap": lambda f, x: f.grad(lambda z: f.vmap(lambda r: r.prod())(z).sum())(x),
    "hessian of a batch": lambda f, x: f.vmap(f.hessian(lambda z: (z**3).sum()))(x),
}  # fmt: skip
MAPS = {
    "rows": lambda f, x: f.vmap(lambda r: r.sum())(x),
    "columns": lambda f, x: f.vmap(lambda r: r * 2, in_dims=1, out_dims=1)(x),
    "one shared": lambda f, x: f.vmap(lambda p, q: p + q, in_dims=(0, None))(x, x),
    "trees": lambda f, x: f.vmap(lambda d: {"a": d["a"] + 1, "b": (d["a"], d["a"].sum())})({"a": x}),
    "nested dims": lambda f, x: f.vmap(lambda d, n: d["a"] * n, in_dims=({"a": 1}, None), out_dims=-1)({"a": x}, 3),
    "twice": lambda f, x: f.vmap(f.vmap(lambda z: z * z))(x),
}


# x[k] where every sample has a k of its own; of the errors the first words, in which torch names its own op.
INDEXED = {
    "rows": lambda x, k: x[k],
    "an item": lambda x, k: x[k, 1],
    "columns": lambda x, k: x[:, k],
    "the last": lambda x, k: x[..., k],
    "new dim": lambda x, k: x[None, k],
    "with a list": lambda x, k: x[[0, 1], k],
    "with another": lambda x, k: x[k, k],
    "of the sample": lambda x, k: (x + k).sum(0)[k],
    "a number given": lambda x, k: (x + k)[1],
    "a slice": lambda x, k: x[k:k + 1],
    "a condition": lambda x, k: x[k > 0],
    "a mask": lambda x, k: x[(k > 0).expand(4)],
    "item": lambda x, k: x.select(0, k),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVATIVES)
@twin
def test_derivative(t: Any, name: str) -> Any:
    return DERIVATIVES[name](t.func, t.tensor(A))


@pytest.mark.parametrize("name", MAPS)
@twin
def test_vmap(t: Any, name: str) -> Any:
    return MAPS[name](t.func, t.tensor(A))


@pytest.mark.parametrize("name", INDEXED)
@twin
def test_an_index_of_each_sample(t: Any, name: str) -> Any:
    x, k = t.arange(12.).reshape(4, 3), t.tensor([0, 2, 1])
    found: list[Any] = []
    raised = error(lambda: found.append(t.vmap(lambda i: INDEXED[name](x, i))(k)), 60)
    return raised, found


@twin
def test_an_index_of_each_sample_of_two_levels(t: Any) -> Any:
    x, k = t.arange(12.).reshape(4, 3), t.tensor([0, 2, 1])
    return t.vmap(lambda i: t.vmap(lambda j: x[i, j])(k))(k)


@twin
def test_values_of_samples_are_assigned(t: Any) -> Any:
    def assign(v: Any, k: Any) -> Any:
        y = v * t.ones(4, 3)
        y[0] = v
        y[k, 1] = -1.
        return y
    return t.vmap(assign)(t.tensor([1., 2., 3.]), t.tensor([3, 1, 2]))


@twin
def test_results_stay_differentiable_in_what_else_takes_part(t: Any) -> Any:
    x, w = t.tensor(A), t.ones(3, requires_grad=True)
    through = t.func.grad(lambda z: (w * z**2).sum())(x)
    through.sum().backward()
    plain = t.func.grad(lambda z: (z**2).sum())(x)
    outer = x.clone().requires_grad_()
    t.func.grad(lambda z: (z**3).sum())(outer).sum().backward()
    return through, w.grad, plain, outer.grad


DRAWS = {"rand_like": lambda t, x, g: t.rand_like(x), "dropout": lambda t, x, g: t.dropout(x, 0.5, True),
         "bernoulli": lambda t, x, g: t.bernoulli(x, generator=g), "bernoulli.p": lambda t, x, g: t.bernoulli(x, 0.5, generator=g),
         "normal": lambda t, x, g: t.normal(x, 1.0, generator=g), "normal.size": lambda t, x, g: t.normal(0.0, 1.0, (5,), generator=g),
         "multinomial": lambda t, x, g: t.multinomial(x, 2, generator=g), "poisson": lambda t, x, g: t.poisson(x, generator=g),
         "uniform_": lambda t, x, g: x.clone().uniform_(generator=g), "bernoulli_": lambda t, x, g: x.clone().bernoulli_(x, generator=g),
         "shared uniform_": lambda t, x, g: t.ones(5).uniform_(generator=g)}


@pytest.mark.parametrize("randomness", ["error", "same", "different"])
@pytest.mark.parametrize("name", DRAWS)
@twin
def test_who_draws_the_same_numbers(t: Any, name: str, randomness: str) -> Any:
    """Shapes, whether all samples got the same numbers, and what is refused: of batched tensors, of shared ones, generators."""
    found = []
    for in_dim, own in ((0, False), (0, True), (None, True)):
        x, generator = t.linspace(0.1, 0.9, 20).view(4, 5), t.Generator().manual_seed(3) if own else None
        def draw(_: Any, x: Any, generator: Any = generator) -> Any:
            return DRAWS[name](t, x if in_dim == 0 else x[0], generator)
        try:
            y = t.vmap(draw, in_dims=(0, in_dim), randomness=randomness)(t.ones(4), x)
            found.append((tuple(y.shape), all(t.equal(row, y[0]) for row in y)))
        except RuntimeError as refused:
            found.append(str(refused)[:60])
    return found


@twin
def test_results_are_recorded_only_where_the_caller_records(t: Any) -> Any:
    f, x = t.func, t.tensor([1.0, 2.0], requires_grad=True)
    with t.no_grad():
        inside = f.grad(lambda y: (y ** 2).sum())(x), f.grad(lambda y: (y * x).sum())(x.detach()), f.vjp(t.sin, x)[0]
    return inside, f.grad(lambda y: (y ** 2).sum())(x), error(lambda: f.vjp(lambda y: [], x), 60)


@twin
def test_one_seed_for_every_sample(t: Any) -> Any:
    return t.vmap(lambda z: z + t.rand(2), randomness="same")(t.tensor(A)[:, :2])


def test_one_seed_for_every_sample_on_the_npu(npu: Any) -> None:
    rows = mt.vmap(lambda z: z + mt.rand_like(z), randomness="same")(mt.zeros(3, 4, device="npu"))
    assert mt.equal(rows[0], rows[1]) and mt.equal(rows[1], rows[2]) and len(set(rows[0].tolist())) == 4


@twin
def test_errors(t: Any) -> Any:
    f, x = t.func, t.tensor(A)
    calls = [lambda: f.grad(lambda z: z)(x), lambda: f.grad(lambda z: 3)(x), lambda: f.grad(lambda z: z.sum(), 4)(x),
             lambda: f.vmap(lambda p, q: p)(x, x.T), lambda: f.vmap(lambda z: z)(3.0),
             lambda: f.vmap(lambda z: z, 5)(x),
             lambda: f.vmap(lambda z: z, randomness="often")(x), lambda: f.vmap(lambda: x)(),
             lambda: f.functional_call(t.nn.Linear(2, 2), ({"a": x}, {"a": x}), (x,))]  # fmt: skip
    return [error(call) for call in calls]


class Square(mt.autograd.Function):
    """x², saving its argument for backward and for forward mode."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g

    @staticmethod
    def jvp(ctx, t):
        return 2 * ctx.saved_tensors[0] * t

    @staticmethod
    def vmap(info, in_dims, x):
        return Square.apply(x), in_dims[0]


class Exponential(Square):
    """exp(x), saving its result."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        return ctx.saved_tensors[0] * g

    @staticmethod
    def jvp(ctx, t):
        return ctx.saved_tensors[0] * t

    @staticmethod
    def vmap(info, in_dims, x):
        return Exponential.apply(x), in_dims[0]


@pytest.mark.parametrize("function, expected", [(Square, 2.0), (Exponential, mt.tensor([0.5, 1.0]).exp())])
def test_forward_mode_over_the_backward_of_a_custom_function(function, expected):
    """What forward saved has its tangents when backward reads it."""
    found = mt.func.hessian(lambda x: function.apply(x).sum())(mt.tensor([0.5, 1.0]))
    mt.testing.assert_close(found, mt.eye(2) * expected)


REFUSALS = {
    "grad(f, has_aux=True)(x)": "should be a tuple", "grad(lambda x: (x.sum(), 1), has_aux=True)(x)": "unsupported type",
    "grad(f, argnums=(0, 0))(x, x)": "unique", "grad(f, argnums=(0, -2))(x, x)": "unique", "grad(f, argnums=())(x)": "non-empty",
    "grad(f, argnums='a')(x)": "argnums", "grad(f)(3.0)": "transform API", "vjp(lambda x: 5, x)": "only tensors",
    "vjp(f, x, has_aux=True)": "should be a tuple", "jacrev(lambda x: x + 1j)(x)": "outputs to be real",
    "jacrev(f)(x + 1j)": "inputs to be real", "jacfwd(lambda x: x + 1j)(x)": "outputs to be real",
    "functional_call(None, 3, x)": "to be a dict", "vmap(f, out_dims='a')(x)": "must be an int",
    "vmap(lambda x: x.data)(x)": "not allowed"}


@pytest.mark.parametrize("call", REFUSALS)
@twin
def test_calls_that_transforms_refuse(t, call):
    scope = {"f": lambda x, *y: x.sum(), "x": t.ones(2), "vmap": t.vmap, **{name: getattr(t.func, name) for name in t.func.__all__}}
    said = error(lambda: eval(call, scope), 300)
    return said.partition(":")[0], REFUSALS[call] in said


@twin
def test_an_index_without_dims_for_each_sample(t):
    x = t.arange(6.0).view(2, 3)
    picked = t.vmap(lambda x, i: x.index_select(0, i.view(1)))(x, t.tensor([2, 0]))
    if t is mt:         # torch repeats the item along the dim
        picked = t.vmap(lambda x, i: x.index_select(0, i))(x, t.tensor([2, 0]))
    return picked, t.func.replace_all_batch_norm_modules_(t.nn.BatchNorm1d(2)).running_mean


@pytest.mark.parametrize("line", [
    "vmap(lambda x: x)(torch.tensor(1.0))", "vmap(lambda x: x, in_dims=1)(torch.ones(3))", "vmap(lambda x: x)(1)",
    "vmap(lambda x: x, in_dims=(0, 0))(torch.ones(3))", "vmap(lambda x: (x, x), out_dims=(0, 0, 0))(torch.ones(3))",
    "vmap(lambda x: x if x > 0 else -x)(torch.ones(3))", "vmap(lambda x: x.nonzero())(torch.ones(3, 2))",
    "vmap(lambda x: torch.where(x))(torch.ones(3, 2))", "vmap(torch.unique_consecutive)(torch.ones(3, 2))",
    "vmap(lambda x: x.tolist())(torch.ones(3, 2))", "vmap(lambda x: x.data_ptr())(torch.ones(3, 2))",
    "vmap(lambda x: torch.zeros(3).select(0, 0).copy_(x))(torch.ones(2))", "torch.func.grad(lambda x: x)(torch.ones(3))",
    "torch.func.grad(lambda x: 1)(torch.ones(3))", "torch.func.jvp(lambda x: x, (torch.ones(3),), (torch.ones(4),))",
    "torch.func.jvp(lambda x: 1, (torch.ones(3),), (torch.ones(3),))", "torch.func.jacrev(lambda x: x, chunk_size=0)(torch.ones(2))",
    "vmap(torch.mul, in_dims=(0, 'a'))(torch.ones(2), torch.ones(2))", "vmap(torch.equal)(torch.ones(2), torch.ones(2))",
    "import functools; vmap(functools.partial(torch.mul, 2), in_dims=4)(torch.ones(3))", "vmap(torch.allclose)(*torch.ones(2, 2))",
    "vmap(lambda x: vmap(lambda y: x, out_dims=None)(torch.ones(2)))(torch.ones(3))",
    "vmap(lambda x: torch.zeros(3).add_(x))(torch.ones(2, 3))", "vmap(lambda x: torch.zeros(3).clamp_min_(x))(torch.ones(2, 3))",
    "vmap(lambda x: x.as_strided((9,), (1,)))(torch.ones(2, 3))", "vmap(lambda x: x.as_strided((2,), (1,), 1))(torch.ones(2, 3))",
    "vmap(lambda x: x.contiguous(memory_format=torch.channels_last))(torch.ones(2, 1, 1, 2, 2))",
    "vmap(lambda x: x.clone(memory_format=torch.channels_last))(torch.ones(2, 1, 1, 2, 2))",
    "vmap(torch.func.grad(lambda x: x if x > 0 else -x))(torch.ones(3))", "torch.func.grad(torch.sum)(torch.arange(3))",
    "torch.func.grad(lambda x: x.sum())(torch.ones(2) + 1j)", "torch.func.grad(torch.sum, argnums=(0, 'a'))(torch.ones(2))",
    "torch.func.vjp(lambda x: x > 0, torch.ones(2))", "torch.func.vjp(torch.sum, torch.ones(2))[1](1.0)",
    "torch.func.jvp(lambda x: (), (torch.ones(2),), (torch.ones(2),))", "torch.func.jacfwd(torch.sum)(torch.arange(3))",
    "with torch.autograd.forward_ad.dual_level(): torch.func.jvp(torch.sin, (torch.ones(2),), (torch.ones(2),))"])
def test_what_transforms_say(line: str) -> None:
    check_lines("vmap = torch.func.vmap\n" + line, message=True)


@twin
def test_tangents_that_a_function_does_not_follow(t):
    x, one, quiet = t.arange(3.0), t.ones(3), t.autograd.forward_ad._set_fwd_grad_enabled

    def inside(x):
        with quiet(False):
            shift = x ** 2
        return x ** 3 - shift

    def inner(x):
        with quiet(False):
            return x * t.func.jvp(lambda y: y ** 3, (x,), (one,))[1]
    with quiet(False):
        outside = t.func.jvp(t.sin, (x,), (one,))[1]
    return outside, t.func.jvp(inside, (x,), (one,))[1], t.func.jvp(inner, (x,), (one,))[1]


@twin
def test_draws_of_a_tangent_and_of_two_levels(t):
    x = t.arange(1.0, 13).view(2, 2, 3)
    twice = lambda f: t.vmap(t.vmap(f, randomness="different"), randomness="different")(x).shape     # noqa: E731
    return (t.func.jacfwd(t.nn.functional.dropout, randomness="different")(x[0, 0]).shape, twice(lambda x: t.multinomial(x, 2)),
            twice(lambda x: t.nn.functional.fractional_max_pool2d(x.expand(1, 3, 3), 2, output_size=1)))


def test_samples_are_shown_with_their_levels() -> None:
    check_lines("seen = []\ntorch.vmap(torch.vmap(lambda x: seen.append(repr(x)) or x))(torch.arange(4.0).view(2, 2))\nseen")


def _views_of_views(t: Any, x: Any) -> Any:
    y = x.view(-1)
    z = y.view(2, 4)
    z.add_(1)
    w = y[0:2]
    w.mul_(3)
    return x, y, z, w


def _written(t: Any, x: Any) -> Any:
    y = t.zeros(2, 4)
    t.add(x.T, 1, out=y)
    x.select(0, 1).fill_(2)
    x.permute(1, 0).copy_(y)
    return y * x.T


def _beside(t: Any, x: Any) -> Any:
    a, b = x.sin().split(2)
    a.clamp_(0.2).relu_()
    return a * b + x.unsqueeze(0).add_(1).squeeze(0)[2:]


def _windows(t: Any, x: Any) -> Any:
    x.as_strided((2,), (1,), 1).add_(10)
    x.diagonal().mul_(2)
    x.transpose(0, 1)[0].sub_(3)
    return x.t()


def _reshaped(t: Any, x: Any) -> Any:
    x.reshape(2, 4).add_(1)
    x.flatten().mul_(2)
    copied = x.t().reshape(8).sub_(1)
    wide = x.sin()
    wide.resize_(2, 3).add_(1)
    return x, copied, wide, t.add(x, 1, out=t.empty(0)), x.unfold(0, 2, 2).add_(1)


def _marked(t: Any, x: Any) -> Any:
    z = t.complex(x, x)
    t.view_as_real(z).add_(1)
    z.conj().add_(1j)
    return z


FUNCTIONAL = (_views_of_views, _written, _beside, _windows, _marked)


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("program", FUNCTIONAL)
@twin
def test_functionalized_programs_give_the_same(t, program, remove):
    x, f = t.arange(8.0).view(4, 2), t.func.functionalize(lambda x: program(t, x), remove=remove)
    changed = x.clone()
    first = f(changed)
    return first, changed, t.vmap(t.func.functionalize(lambda r: r.clone().add_(1).clamp_(2), remove=remove))(x)


@twin
def test_functionalized_reshapes(t):
    x = t.arange(8.0).view(4, 2)
    return t.func.functionalize(lambda x: _reshaped(t, x))(x), x


@pytest.mark.parametrize("program, remove", [(_views_of_views, "mutations"), (_views_of_views, "mutations_and_views"),
                                             (_windows, "mutations")])
@twin
def test_derivatives_of_functionalized_programs(t, program, remove):
    def total(results: Any) -> Any:
        return sum(y.pow(2).sum() for y in t.utils._pytree.tree_leaves(results))
    x, f = t.arange(8.0).view(4, 2), t.func.functionalize if t is mt else lambda fn, remove: fn      # torch's forget some writes
    return (t.func.grad(lambda x: total(f(lambda x: program(t, x), remove=remove)(x.clone())))(x),
            f(t.func.grad(lambda x: total(program(t, x.clone()))), remove=remove)(x))


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("program", [_views_of_views, _written, lambda t, x: t.zeros(4, 2).copy_(x)[0].mul_(x[1])])
@twin
def test_functionalized_programs_are_recorded_as(t, program, remove):
    make_fx = __import__(t.__name__ + ".fx.experimental.proxy_tensor", fromlist=["make_fx"]).make_fx
    graph = make_fx(t.func.functionalize(lambda x: program(t, x), remove=remove))(t.arange(8.0).view(4, 2))
    return graph.code.replace("mindtorch_v2", "torch")


@twin
def test_in_place_ops_of_samples_that_backward_reads(t):
    return t.vmap(t.func.grad(lambda x: x.sin().clamp_(0).relu_().sum()))(t.arange(6.0).view(2, 3))


# ---- inner parts of torch._functorch -----------------------------------------------------------------------------------
INNER = """import importlib
part = lambda name: importlib.import_module(f"{torch.__name__}._functorch.{name}")
rules, inner = part("autograd_function"), part("vmap")
x = torch.arange(6.0).view(2, 3)
class Mine(torch.autograd.Function):
    @staticmethod
    def vmap(info, in_dims, x): ...
"""


@pytest.mark.parametrize("line", [
    "inner.restore_vmap(lambda x, y: (x + y, y, 3), (0, None), 2, 'error')(x, torch.ones(3))",
    "inner.restore_vmap(lambda x: {'a': x.sum()}, ((1,),), 3, 'same')(x)", "inner.restore_vmap(lambda: torch.ones(2), (), 3, 'error')()",
    "inner.restore_vmap(lambda x: torch.rand(2) * 0 + x[0], 0, 2, 'different')(x)",
    "rules.reductify_leaf(x, 0, None, 2)", "rules.reductify_leaf(x, None, None, 2)", "rules.reductify_leaf(None, None, 0, 2)",
    "rules.reductify_leaf(torch.ones(3), None, 0, 2)", "rules.reductify_leaf(x, 0, 1, 2)", "rules.reductify_leaf(x, 0, 0, 2, [1])",
    "rules.reductify((x, x), (0, None), (None, 1), 2)", "rules.reductify(x, 1, 0, 3)",
    "rules.has_overridden_vmap_rule(Mine)", "rules.has_overridden_vmap_rule(torch.autograd.Function)",
    "rules.validate_vmap_returns_tuple_of_two_elements((1, 2, 3))", "rules.validate_vmap_returns_tuple_of_two_elements([1, 2])",
    "[(k, t.value) for k, t in torch._C._functorch.TransformType.__members__.items()]"])
def test_inner_parts(line: str) -> None:
    check_lines(INNER + line, message=True)


@twin
def test_contexts_before_others(t):
    cls = __import__(t.__name__ + "._functorch.autograd_function", fromlist=[""]).CtxWithSavedTensors

    class Saved(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, clash: bool) -> Any:
            ctx.save_for_backward(x)
            if clash:
                ctx._pt_inner_ctx = 1
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            wrapped = cls(cls(ctx, (g,)), (g * 3,))
            wrapped.mark = g * 2
            return wrapped.saved_tensors[0] + ctx.mark + ctx.saved_tensors[0], None
    x = t.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError) as error:
        Saved.apply(x, True).sum().backward()
    Saved.apply(x, False).sum().backward()
    return x.grad, str(error.value)


@twin
def test_rules_of_higher_order_ops_for_levels(t):
    kind, level = t._C._functorch.TransformType, t._C._functorch
    op = __import__(t.__name__ + "._ops", fromlist=[""]).HigherOrderOperator
    total = type("Total", (op,), {"__init__": lambda self: op.__init__(self, "total"),
                                  "__call__": lambda self, *args: op.__call__(self, *args)})()
    seen = []

    @total.py_impl(kind.Vmap)
    def batched(interpreter: Any, x: Any, dim: int) -> Any:
        seen.append((interpreter.level(), interpreter.batch_size(), interpreter.randomness(), interpreter.key()))
        if not level.is_batchedtensor(x):
            with interpreter.lower():
                return total(x, dim)
        value, at = level.get_unwrapped(x), level.maybe_get_bdim(x)
        with interpreter.lower():
            made = total(value.movedim(at, 0), dim + 1)
        return level._add_batch_dim(made, 0, interpreter.level())

    @total.py_impl(t._C.DispatchKey.AutogradCPU)
    def plain(x: Any, dim: int) -> Any:
        return x.sum(dim)
    x = t.arange(24.0).view(2, 3, 4)
    found = t.vmap(t.vmap(lambda x: total(x, 0)))(x), t.vmap(lambda y: total(x, 0) + y)(t.ones(3, 3, 4))
    return found, [(n, size, str(random).rpartition(".")[2], key.name) for n, size, random, key in seen]


SAMPLES = """import importlib
x, v, s, kept = torch.arange(6.0).view(2, 3), torch.arange(3.0), torch.tensor(2.0), []
F, grad, vmap, jvp = torch.nn.functional, torch.func.grad, torch.vmap, torch.func.jvp
def told(transform, *args):
    transform(lambda x: kept.append(repr(x)) or x.sum())(*args)
    return kept
"""


@pytest.mark.parametrize("line", [
    "vmap(lambda x: x, out_dims=(1,))(x)", "importlib.import_module(torch.__name__ + '._functorch.apis').chunk_vmap(torch.sin, chunks=0)(x)",
    "vmap(lambda x: F.one_hot(x))(torch.tensor([0, 1]))", "vmap(lambda x: F.one_hot(x, 3))(torch.tensor([[0, 1], [2, 2]]))",
    "vmap(lambda x: x.new_empty(2).shape)(x)", "grad(lambda x: v.mul_(x).sum())(v)", "grad(lambda x: v.add_(2).sum())(v)",
    "torch.func.vjp(torch.sin, x)[1]()", "vmap(lambda x: kept.append(x) or x)(x), kept[0] + 1",
    "vmap(torch.linalg.slogdet)(torch.eye(2).expand(3, 2, 2))", "torch.func.functionalize(lambda x: torch.max(x, 0))(x)",
    "told(grad, x)", "told(lambda f: lambda x: jvp(f, (x,), (x,)), x)", "told(vmap, x)", "told(torch.func.jacfwd, v)",
    "told(lambda f: grad(lambda x: vmap(f)(x).sum()), x)", "told(lambda f: lambda x: grad(grad(f))(x), s)",
    "told(lambda f: lambda x: vmap(grad(f))(x), x)", "vmap.__module__.rpartition('.')[2]",
    "torch.utils._pytree.tree_flatten(torch.Size([2, 3]))[0]", "torch.utils._pytree.tree_map(lambda n: n + 1, [torch.Size([2, 3])])"])
def test_what_levels_say_and_show(line: str) -> None:
    check_lines(SAMPLES + line, message=True)


@pytest.mark.parametrize("pattern, given", [
    ("a b -> b a", {}), ("a b -> (b a)", {}), ("a b->b a ", {}), ("(a c) b -> c b a", {"a": 2}), ("a (b c) -> (a c) b 1", {"b": 2}),
    ("... b -> (... b)", {}), ("... -> ...", {}), ("a ... -> ... a", {}), ("a b -> a () b", {}), ("a b", {}), ("a b -> b", {}),
    ("a b -> (a b", {}), ("a b -> a b a", {}), ("a b c -> a b c", {}), ("a 2 -> a", {}), ("a1 _b -> a1", {}), ("a b -> a b ...", {}),
    ("1 -> 1", {}), ("a b -> b a", {"d": 3}), ("a+b -> b", {}), ("a (b (c)) -> a b c", {}), ("a b) -> a b", {}), ("a . -> a", {})])
@twin
def test_rearranged(t, pattern, given):
    x = t.arange(8.0).view(2, 4)
    try:
        return t.func.rearrange(x, pattern, **given), t.func.rearrange([x[0], x[1]], pattern, **given)
    except ValueError as error:
        return str(error)


@twin
def test_sizes_that_a_dim_does_not_have(t):
    return [isinstance(error, Exception) for pattern, given in (("(a b) c -> a b c", {}), ("(a b) c -> a b c", {"a": 3}))
            for error in [_caught(lambda p=pattern, g=given: t.func.rearrange(t.ones(2, 3), p, **g))]]


def _caught(f: Any) -> Any:
    try:
        return f()
    except Exception as error:
        return error
