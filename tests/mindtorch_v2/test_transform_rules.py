"""Transforms against torch where an op needs a rule: batches of any of its arguments, without the loop over samples; custom
functions at every level; what the functions of torch.func refuse."""

from __future__ import annotations

from typing import Any

import pytest
from twin import check_lines, error, twin

A = [[0.3, -1.2, 0.7], [0.1, 2.0, -0.4]]
# name -> a function of (t, x, y), x a batch of vectors of 3 and y shared, or the other way round
RULES = {
    "select_scatter": lambda t, x, y: x.select_scatter(y.sum(), 0, 1),
    "slice_scatter": lambda t, x, y: x.slice_scatter(y[:2], 0, 1),
    "diagonal_scatter": lambda t, x, y: t.outer(x, x).diagonal_scatter(y),
    "index_put": lambda t, x, y: x.index_put((t.tensor([0, 2]),), y[:2]),
    "masked_fill": lambda t, x, y: x.masked_fill(y > 0, 7.0),
    "masked_fill of a matrix": lambda t, x, y: t.outer(x, x).masked_fill(y > 0, 7.0),
    "linear, bias": lambda t, x, y: t.nn.functional.linear(x, t.ones(3, 3).to(x), y),
    "linear without rows": lambda t, x, y: t.nn.functional.linear(t.ones(0, 3) * x, t.ones(2, 3) * y),
    "conv1d": lambda t, x, y: t.nn.functional.conv1d(x.view(1, 3, 1), y.view(1, 3, 1), y[:1]),
    "conv1d, bias": lambda t, x, y: t.nn.functional.conv1d(t.ones(2, 3, 4).to(x), t.ones(3, 3, 1).to(x) * x.view(3, 1, 1), y),
    "conv_transpose1d": lambda t, x, y: t.nn.functional.conv_transpose1d(x.view(1, 3, 1), y.view(3, 1, 1), y[:1]),
    "roll along a dim": lambda t, x, y: t.outer(x, y).roll(1, 0) + t.outer(x, y).roll(-1, 1),
    "flip of no dims": lambda t, x, y: t.outer(x, y).flip(()),
    "gather of a number": lambda t, x, y: x.sum().gather(0, (y[:1] * 0).long()),
    "linspace": lambda t, x, y: t.linspace(x[0], y[0], 5, dtype=t.float64),
    "logspace": lambda t, x, y: t.logspace(x[0], y[0], 4, 3.0, dtype=t.float64),
    "matrix_exp": lambda t, x, y: t.linalg.matrix_exp(t.outer(x, y) * 3),
    "rms_norm": lambda t, x, y: t.nn.functional.rms_norm(x, (3,), y),
    "index_fill": lambda t, x, y: x.index_fill(0, (y > 0).long()[:2], 5.0),
    "index_fill by a tensor": lambda t, x, y: x.index_fill(0, t.tensor([1]), y[0]),
    "index_add": lambda t, x, y: t.outer(x, x).index_add(1, (y > 0).long()[:2], t.outer(y, y)[:, :2], alpha=2),
    "index_copy": lambda t, x, y: x.index_copy(0, (y > 0).long()[:1] * 2, y[:1]),
    "lstsq": lambda t, x, y: t.linalg.lstsq(t.outer(x, x) + t.eye(3), t.outer(y, x), driver="gels")[0],
    "embedding": lambda t, x, y: t.nn.functional.embedding((y > 0).long(), t.outer(x, x), padding_idx=1),
    "masked_select": lambda t, x, y: (t.outer(x, y) if x.dim() else x).masked_select(t.tensor([True, False, True])),
    "nll_loss": lambda t, x, y: t.nn.functional.nll_loss(t.outer(x, y), (y > 0).long(), t.tensor([1., 2., 3.]).to(x)),
}  # fmt: skip
SHARED = {"none": (0, 0), "the second": (0, None), "the first": (None, 0)}


def samples(t: Any, dims: tuple[int | None, ...]) -> list[Any]:
    x = t.tensor(A, dtype=t.float64)
    return [z if d == 0 else z[0] for z, d in zip((x, x.flip(0) + 0.1), dims)]


class without_loops:
    """Ops without a rule of vmap are an error."""

    def __init__(self, t: Any) -> None:
        self.core = t._C._functorch

    def __enter__(self) -> None:
        self.core._set_vmap_fallback_enabled(False)

    def __exit__(self, *exc: Any) -> None:
        self.core._set_vmap_fallback_enabled(True)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("name", RULES)
@twin
def test_rule(t: Any, name: str, shared: str) -> Any:
    dims = SHARED[shared]
    if (name, shared) == ("index_fill by a tensor", "the first"):    # torch fills every sample with the last one's value
        dims = (0, 0)
    with without_loops(t):
        return t.vmap(lambda x, y: RULES[name](t, x, y), in_dims=dims)(*samples(t, dims))


# without those that torch does not differentiate, or differentiates another way than a loop over the samples
SMOOTH = sorted(RULES.keys() - {"logspace", "linspace", "lstsq", "masked_fill", "masked_fill of a matrix", "rms_norm",
                                "embedding", "select_scatter"})  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
@twin
def test_derivatives_of_samples(t: Any, name: str) -> Any:
    """Reverse and forward mode inside vmap, and reverse mode around it."""
    def back(x: Any, y: Any) -> Any:
        value, fn = t.func.vjp(lambda *z: RULES[name](t, *z), x, y)
        return fn(t.ones_like(value))

    def along(x: Any, y: Any) -> Any:
        return t.func.jvp(lambda *z: RULES[name](t, *z), (x, y), (y, x))[1]

    def around(*z: Any) -> Any:
        return t.vmap(lambda x, y: RULES[name](t, x, y))(*z)
    x, y = samples(t, (0, 0))
    value, fn = t.func.vjp(around, x, y)
    return t.vmap(back)(x, y), t.vmap(along)(x, y), fn(t.ones_like(value))


SLOPES = {
    "conv2d": lambda t, x: t.nn.functional.conv2d(x.view(1, 2, 2, 3), x.view(2, 2, 1, 3), x.view(-1)[:2]),
    "conv_transpose1d": lambda t, x: t.nn.functional.conv_transpose1d(x.view(1, 2, 6), x.view(2, 2, 3), groups=2),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x.view(4, 3), (3,), x.view(-1)[:3], x.view(-1)[:3]),
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x.view(3, 2, 2), None, None, x.view(-1)[:2], x.view(-1)[2:4], True),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x.view(1, 4, 3), 2, x.view(-1)[:4], x.view(-1)[:4]),
    "rms_norm": lambda t, x: t.nn.functional.rms_norm(x.view(4, 3), (3,), x.view(-1)[:3]),
    "nearest": lambda t, x: t.nn.functional.interpolate(x.view(2, 2, 3), size=5, mode="nearest"),
    "bilinear": lambda t, x: t.nn.functional.interpolate(x.view(1, 2, 2, 3), size=(3, 4), mode="bilinear"),
    "unfold": lambda t, x: x.view(-1).unfold(0, 4, 2),
    "grid_sample": lambda t, x: t.nn.functional.grid_sample(x.view(1, 2, 2, 3), x.view(1, 2, 3, 2).tanh(), align_corners=False),
    "embedding": lambda t, x: t.nn.functional.embedding(t.tensor([0, 2, 2]), x.view(4, 3), padding_idx=0),
    "index_select": lambda t, x: x.view(4, 3).index_select(0, t.tensor([1, 1])),
    "cumprod of nothing": lambda t, x: x.view(-1)[:0].cumprod(0).sum() + x.sum(),
    "prod of nothing": lambda t, x: x.view(-1)[:0].prod() + x.sum(),
    "select": lambda t, x: x.view(4, 3).select(1, 0),
    "diagonal": lambda t, x: x.view(4, 3).diagonal(),
}  # fmt: skip


@pytest.mark.parametrize("name", SLOPES)
@twin
def test_gradients_have_rules(t: Any, name: str) -> Any:
    """vmap over vjp without a loop over samples."""
    x = (t.arange(24, dtype=t.float64).view(2, 12) * 0.37).sin()

    def back(x: Any) -> Any:
        value, fn = t.func.vjp(lambda z: SLOPES[name](t, z), x)
        return fn(t.ones_like(value) + value.detach())[0]
    if name == "unfold":                 # torch has no rule of its own here
        return t.vmap(back)(x)
    with without_loops(t):
        return t.vmap(back)(x)


@pytest.mark.parametrize("name", ["select", "diagonal", "cumprod of nothing", "index_select", "layer_norm"])
@twin
def test_forward_mode_over_gradients_of_samples(t: Any, name: str) -> Any:
    x = (t.arange(24, dtype=t.float64).view(2, 12) * 0.37).sin()
    square = lambda z: (SLOPES[name](t, z) ** 2).sum()  # noqa: E731
    return t.vmap(lambda x: t.func.jvp(t.func.grad(square), (x,), (x,)))(x)


CHANGES = ["squeeze_(0)", "squeeze_()", "unsqueeze_(1)", "transpose_(0, 1)", "t_()", "swapaxes_(0, 1)", "index_fill_(1, k, 5.0)",
           "index_add_(1, k, x[:, :1] * 2)"]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@twin
def test_samples_change_in_place(t: Any, change: str) -> Any:
    x, k = t.arange(6.0).view(2, 1, 3), t.tensor([[2], [0]])
    return t.vmap(lambda x, k: eval("x.clone()." + change, {"x": x, "k": k}))(x, k)


@twin
def test_tangents_beside_the_memory_of_a_view(t: Any) -> Any:
    base = t.arange(12.0)
    view = base[6:9]
    along = t.ones(3) * 2
    value, slope = t.func.jvp(lambda x: x.as_strided((4,), (2,), 2), (view,), (along,))
    return value, slope


# ---- custom functions ---------------------------------------------------------------------------------------------------
def functions(t: Any) -> dict[str, Any]:
    """A cube that saves what it gives, by a rule of its own and by a generated one; one with a default; one in place."""
    class Cube(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0], output[1])
            ctx.save_for_forward(inputs[0], output[1])

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, slope = ctx.saved_tensors
            return g * slope + 6 * h * x

        @staticmethod
        def jvp(ctx: Any, along: Any) -> Any:
            x, slope = ctx.saved_tensors
            return along * slope, 6 * along * x

    class OwnRule(Cube):
        generate_vmap_rule = False

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return OwnRule.apply(x.movedim(in_dims[0], 0)), (0, 0)

    class Product(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any, times: float = 2.0) -> Any:
            return x * y * times

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            *both, ctx.times = inputs
            ctx.save_for_backward(*both)
            ctx.save_for_forward(*both)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y * ctx.times, g * x * ctx.times, None

        @staticmethod
        def jvp(ctx: Any, dx: Any, dy: Any, _: Any) -> Any:
            x, y = ctx.saved_tensors
            return (dx * y + x * dy) * ctx.times
    return {"generated": lambda x: Cube.apply(x)[0], "own rule": lambda x: OwnRule.apply(x)[0],
            "both results": lambda x: sum(OwnRule.apply(x)), "broadcast": lambda x: Product.apply(x, x[:1]),
            "by name": lambda x: Product.apply(x, y=x[:1], times=3.0)}


@pytest.mark.parametrize("name", ["generated", "own rule", "both results", "broadcast", "by name"])
@twin
def test_custom_functions_at_every_level(t: Any, name: str) -> Any:
    x, f = t.tensor(A), functions(t)[name]
    total = lambda x: f(x).sum()  # noqa: E731
    grad, vmap, jvp = t.func.grad, t.vmap, t.func.jvp
    found = [vmap(f)(x), vmap(grad(total))(x), grad(lambda x: vmap(f)(x).sum())(x), vmap(lambda x: jvp(f, (x,), (x,)))(x),
             vmap(vmap(f))(x.view(1, 2, 3)), grad(lambda x: vmap(grad(total))(x).sum())(x)]  # fmt: skip
    if name in ("generated", "broadcast"):
        found.append(jvp(vmap(f), (x,), (x,)))
    return found


@twin
def test_one_argument_of_a_custom_function_is_shared(t: Any) -> Any:
    class Product(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return g * w, g * x
    w = t.tensor([1.0, 2.0, 3.0])
    return t.func.grad(lambda x, w: t.vmap(Product.apply, in_dims=(0, None))(x, w).sum(), argnums=(0, 1))(t.tensor(A), w)


# ---- what is refused ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("line", [
    "grad(lambda z: (z * y.copy_(z)).sum())(x)", "vjp(lambda z: y.zero_() + z, x)", "jvp(lambda z: z * y.copy_(z), (x,), (x,))",
    "grad(lambda z: grad(lambda w: (w * z.zero_()).sum())(z).sum())(x)", "grad(lambda z: vmap(lambda w: w * y.zero_())(z).sum())(x)",
    "vmap(lambda x: x.requires_grad_())(x)", "grad(lambda z: y.requires_grad_().sum())(x)",
    "grad(lambda z: z.sum().backward())(x)", "vmap(lambda z: torch.autograd.backward(z.sum()))(x)",
    "vmap(lambda z: torch.add(z, z, out=y))(x)", "vmap(lambda z: y.lerp_(z, 0.5))(x)", "vmap(lambda z: y.fill_(z.sum()))(x)",
    "vmap(lambda z: y.index_put_((torch.tensor([0]),), z[:1]))(x)", "vmap(lambda z: z.untyped_storage())(x)",
    "vmap(lambda z: z.masked_select(z > 0))(x)", "vmap(lambda z, w: z, in_dims=(None, None))(x, x)",
    "vmap(lambda z: z.is_contiguous(memory_format=torch.channels_last))(x)", "jvp(torch.sin, (), ())",
    "jvp(torch.sin, (1.0,), (1.0,))", "jvp(lambda x: x, (x,), (x,), has_aux=True)", "jacfwd(torch.sin, chunk_size=2)",
    "linearize(torch.sin, x)[1](torch.ones(4))"])
def test_refusal(line: str) -> None:
    names = "grad jacfwd jvp linearize vjp vmap".split()
    check_lines("".join(f"{name} = torch.func.{name}\n" for name in names) + "x, y = torch.ones(2, 3), torch.ones(3)\n" + line,
                message=True)


@twin
def test_what_a_function_makes_may_change(t: Any) -> Any:
    def f(x: Any) -> Any:
        made = x * 0
        made.copy_(x)
        return (made.mul_(3) * x).sum()
    x = t.tensor(A[0])
    return t.func.grad(f)(x.clone()), t.vmap(t.func.grad(f))(t.tensor(A)), t.func.jvp(f, (x.clone(),), (x.clone(),))


@twin
def test_hooks_and_old_functions_have_no_place_in_reverse_mode(t: Any) -> Any:
    class Old(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    def hooked() -> Any:
        with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            return t.func.grad(lambda x: x.sum())(x)
    x = t.ones(3)
    with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        free = t.func.jvp(t.sin, (x,), (x,))[1]
    refused = [error(lambda: transform(lambda x: Old.apply(x).sum()), 200) for transform in
               (lambda f: t.func.grad(f)(x), lambda f: t.vmap(f)(x), lambda f: t.func.jvp(f, (x,), (x,)))]  # fmt: skip
    return error(hooked, 200), refused, free, t.autograd.forward_ad.dual_level is not None and Old.apply(x)


@twin
def test_requires_grad_inside_a_dual_level(t: Any) -> Any:
    with t.autograd.forward_ad.dual_level():
        return t.ones(2).requires_grad_().requires_grad


@twin
def test_levels_are_counted(t: Any) -> Any:
    core, seen = t._C._functorch, []

    def f(x: Any) -> Any:
        seen.append((core.current_level(), core.is_gradtrackingtensor(x), core.is_batchedtensor(x),
                     core.is_functorch_wrapped_tensor(x * 2), t._C._are_functorch_transforms_active()))
        return x.sum()
    x = t.ones(2, 3)
    t.func.grad(f)(x)
    t.vmap(f)(x)
    t.func.grad(lambda x: t.func.grad(f)(x).sum())(x)
    t.func.jvp(f, (x,), (x,))
    return seen, core.maybe_current_level(), core.is_gradtrackingtensor(x), t._C._are_functorch_transforms_active()


@pytest.mark.parametrize("line", [
    "torch.cdist(x, y)", "torch.nn.functional.pdist(x)", "torch.cholesky(x @ x.mT + torch.eye(3))", "torch.igamma(x, y)",
    "x.index_reduce(0, index, y[:2], 'prod')", "torch.segment_reduce(x, 'sum', lengths=torch.tensor([2, 1]))",
    "torch.nn.functional.embedding_bag(index[None], x)", "torch.nn.functional.multi_margin_loss(x, torch.tensor([0, 1, 2]))",
    "torch.nn.functional.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2))", "torch.ormqr(x, x[0], x)", "torch.geqrf(x)[0]",
    "torch.nn.functional.ctc_loss(x[:, None].log_softmax(2), torch.tensor([[1]]), (3,), (1,))", "torch.special.zeta(y + 2, x)",
    "torch._standard_gamma(x)"])
def test_ops_without_a_forward_derivative(line: str) -> None:
    check_lines("x, y, index = torch.rand(3, 3), torch.rand(3, 3), torch.tensor([0, 2])\n"
                f"torch.func.jvp(lambda x: {line}, (x,), (x,))", message=True)


WITHOUT_RULE = {
    "le_": lambda t, x: x.clone().le_(x), "square_": lambda t, x: x.clone().square_(), "isclose": lambda t, x: t.isclose(x, x),
    "bilinear": lambda t, x: t.nn.functional.bilinear(x[None], x[None], t.ones(1, 3, 3).to(x)), "pow_": lambda t, x: x.clone().pow_(x),
    "quantile": lambda t, x: t.quantile(x, 0.5), "soft_margin": lambda t, x: t.nn.functional.soft_margin_loss(x, x),
    "hermite": lambda t, x: t.special.hermite_polynomial_h(x, t.ones(3).to(x)), "le": lambda t, x: x.le(x), "cov": lambda t, x: t.cov(x),
    "own": lambda t, x: t._test_functorch_fallback(x, x), "resize_": lambda t, x: x.clone().resize_(2, 1).shape,
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT_RULE)
@twin
def test_what_has_no_rule_in_torch_is_refused_where_the_fallback_is_off(t: Any, name: str) -> Any:
    x = t.tensor(A, dtype=t.float64)

    def call() -> Any:
        t.func.vmap(lambda r: (r * 0).sum() if WITHOUT_RULE[name](t, r) is None else r * 0)(x)

    with without_loops(t):
        refused = error(call)
    call()
    return refused


@twin
def test_attention_and_batch_norm_of_samples(t: Any) -> Any:
    f = t.nn.functional
    q = (t.arange(240.0, dtype=t.float64).reshape(2, 3, 2, 4, 5) / 50).sin()
    k, v, mask = q.cos(), q.exp(), t.arange(32.0, dtype=t.float64).reshape(2, 4, 4).sin()

    def masked(q: Any, k: Any, v: Any, m: Any) -> Any:
        return f.scaled_dot_product_attention(q, k, v, attn_mask=m)

    attended = [t.vmap(masked, in_dims=dims)(q, k, v, m) for dims, m in (((0, 0, 0, 0), mask), ((0, 0, 0, None), mask[0]))]
    slopes = t.vmap(t.func.grad(lambda q, k, v: f.scaled_dot_product_attention(q, k, v).sum()))(q, k, v)
    x, w, mean, var = q[0, 0, 0].view(4, 5), q[:, 0, 0, 0], t.zeros(5).double(), t.ones(5).double()
    normed = t.vmap(lambda w: f.batch_norm(x, mean, var, w, None, True))(w)
    promoted = [t.vmap(lambda a: a.half() * t.ones((), dtype=t.float64))(t.arange(3)).dtype == t.float64]
    return [a.mul(1e6).round() for a in (*attended, slopes, normed, mean, var)], promoted


@pytest.mark.parametrize("dims", [(None, 0, 0), (0, None, 0), (0, 0, None), (None, 0, None), (0, None, None)])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "cross_entropy"])
@twin
def test_gradients_of_norms_and_losses_need_no_loop(t: Any, name: str, dims: tuple[int | None, ...]) -> Any:
    """Of samples that share some of their arguments."""
    f = t.nn.functional
    x, weight, g = t.arange(12.0).reshape(2, 2, 3).sin(), t.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), t.arange(12.0).reshape(2, 2, 3).cos()
    calls = {"layer_norm": lambda x, w: f.layer_norm(x, (3,), w), "rms_norm": lambda x, w: f.rms_norm(x, (3,), w),
             "group_norm": lambda x, w: f.group_norm(x.T[None], 1, w)[0].T,
             "cross_entropy": lambda x, w: f.cross_entropy(x, t.tensor([2, 0]), w.detach(), reduction="none")[:, None].expand(2, 3)}

    def back(x: Any, w: Any, g: Any) -> Any:
        return t.func.vjp(calls[name], x, w)[1](g) if name != "cross_entropy" else t.func.vjp(lambda x: calls[name](x, w), x)[1](g)
    with without_loops(t):
        return t.vmap(back, in_dims=dims)(*(v if d == 0 else v[0] for v, d in zip((x, weight, g), dims)))


@twin
def test_views_without_items_reach_no_memory(t: Any) -> Any:
    return t.vmap(lambda x: x.as_strided((0, 2), (2, 1), 5))(t.ones(2, 3)).shape


@twin
def test_unpooling_of_samples_whose_channels_lie_last(t: Any) -> Any:
    x = t.arange(48.0).reshape(2, 1, 4, 2, 3).transpose(2, 4)
    index = t.arange(6).reshape(1, 1, 2, 3).expand(1, 3, 2, 3).permute(0, 1, 3, 2)[..., :2].contiguous()
    x = x[..., :2].reshape(2, 1, 3, 2, -1)[..., :2].to(memory_format=t.contiguous_format)
    return t.vmap(lambda x: t.nn.functional.max_unpool2d(x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1), index[:, :, :2], 2))(x)


@twin
def test_tangents_take_the_strides_of_their_tensor(t: Any) -> Any:
    turned = t.arange(6.0).reshape(2, 3).T
    with t.autograd.forward_ad.dual_level():
        duals = [t.autograd.forward_ad.make_dual(x, t.ones(3, 2)) for x in (turned, t.arange(12.0).reshape(3, 4)[:, ::2])]
        return [t.autograd.forward_ad.unpack_dual(d.sin()).tangent for d in duals]


@twin
def test_forward_derivatives_of_losses_with_weights_of_each_sample(t: Any) -> Any:
    x, along, weights = t.tensor([0.1, 0.7, -0.3]), t.tensor([1.0, 2.0, 3.0]), t.tensor([[1.0, 2.0, 3.0], [0.5, 0.1, 0.2]])

    def slope(weight: Any, reduction: str) -> Any:
        return t.func.jvp(lambda x: t.nn.functional.nll_loss(x, t.tensor(2), weight, reduction=reduction), (x,), (along,))
    return [t.vmap(lambda w: slope(w, reduction))(weights) for reduction in ("none", "sum", "mean")]


@twin
def test_custom_functions_that_return_views_push_forward_in_vmap(t: Any) -> Any:
    class Row(t.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x[1]

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return Row.apply(tangent)
    x = t.arange(12.0).reshape(2, 3, 2)
    return t.vmap(lambda x: t.func.jvp(Row.apply, (x,), (x.exp(),)))(x)
