"""In-place changes: leaves, views, views of views, version errors, CopySlices; the same body runs under torch."""
from __future__ import annotations

import pytest
from twin import error, twin


def leaf(t, *shape):
    return t.randn(*(shape or (3,)), dtype=t.float64).requires_grad_()


# ---- what is refused -----------------------------------------------------------------------------------------------
@twin
def test_leaves_refuse(t):
    x, y = leaf(t, 3, 3), t.ones(3, 3, dtype=t.float64)
    free = t.zeros(3, 3, dtype=t.float64)
    with t.no_grad():
        x.add_(1)
    return (error(lambda: x.add_(1), 50), error(lambda: x[0].zero_(), 50), error(lambda: x.view(9).mul_(2), 50),
            error(lambda: x.t_()), error(lambda: x.__setitem__(0, 5.0), 50), x, error(lambda: x.copy_(y), 50),
            error(lambda: free.add_(x)), free.requires_grad)


@pytest.mark.parametrize("split", ["split", "chunk", "unbind", "tensor_split", "split_with_sizes", "hsplit"])
@twin
def test_views_of_multi_view_functions_refuse(t, split):
    args = {"split": (2,), "chunk": (2,), "unbind": (0,), "tensor_split": (2,), "split_with_sizes": ([2, 2],),
            "hsplit": (2,)}[split]
    y = leaf(t, 4) * 2
    part = getattr(y, split)(*args)[0]
    refused = error(lambda: part.mul_(3), 6)
    whole = getattr(y, split)(*args)[1]
    y.mul_(2)
    plain = t.ones(4)
    getattr(plain, split)(*args)[0].add_(1)
    return refused, plain, error(lambda: (whole * 2).sum().backward())


@twin
def test_iterating_refuses_in_place_too(t):
    y = leaf(t, 3, 2) * 2
    rows = list(y)
    return error(lambda: rows[0].mul_(3)), [r.requires_grad for r in rows]


@twin
def test_views_made_under_no_grad(t):
    x = leaf(t)
    y = x * 2
    with t.no_grad():
        v = y[1:]
        w = x[1:]
        w.mul_(2)
    refused = error(lambda: v.mul_(x[1:]), 30)
    plain = t.ones(3, dtype=t.float64)
    with t.no_grad():
        u = plain[1:]
    return refused, x, error(lambda: u.mul_(x[1:]), 30)


@twin
def test_expanded_targets_refuse(t):
    x = t.ones(1, 3).expand(2, 3)
    return (error(lambda: x.add_(1), 40), error(lambda: x.copy_(t.ones(2, 3)), 40),
            error(lambda: t.add(t.ones(2, 3), 1, out=x), 30), error(lambda: x.zero_(), 30))


# ---- versions ------------------------------------------------------------------------------------------------------
@twin
def test_saved_input_changed(t):
    x = leaf(t)
    a, b = x * 2, x * 3
    y = a * b
    b.add_(1)
    return error(y.sum().backward, 70)


@twin
def test_saved_result_changed(t):
    y = leaf(t).exp()
    z = y.sum()
    y.add_(1)
    return error(z.backward, 70)


@twin
def test_base_changed_after_a_view_was_saved(t):
    x = leaf(t, 4)
    y = x * 1
    v = y[:2]
    z = (v * v).sum()
    y[2:].zero_()                      # other items, the same counter
    return error(z.backward, 70)


@twin
def test_versions_count(t):
    x = t.ones(4)
    seen = [x._version]
    v = x.view(2, 2)
    v.add_(1)
    seen += [x._version, v._version]
    x[0] = 5
    x.data.add_(1)
    x.detach().add_(1)
    seen += [x._version, v._version, x.detach()._version, x.data._version]
    with t.no_grad():
        x.zero_()
    x.copy_(t.zeros(4))
    t.add(x, 1, out=x)
    return seen + [x._version]


@twin
def test_in_place_where_the_old_value_is_not_needed(t):
    x = leaf(t)
    y = x + 1
    y.add_(2)
    y.mul_(3)
    y.sub_(x)
    z = y.clone()
    z.exp_()
    (y * z).sum().backward()
    return x.grad


@pytest.mark.parametrize("op", ["exp_", "sigmoid_", "tanh_", "sqrt_", "sin_", "neg_", "abs_", "square_", "reciprocal_",
                                "log_", "zero_", "relu_", "sign_", "rsqrt_", "atan_", "floor_", "trunc_", "expm1_"])
@twin
def test_unary_in_place_gradients(t, op):
    x = (t.rand(5, dtype=t.float64) + 0.5).requires_grad_()
    y = x * 1.5
    assert getattr(y, op)() is y
    (y * t.arange(5.0, dtype=t.float64)).sum().backward()
    return y, x.grad


@pytest.mark.parametrize("op", ["add_", "sub_", "mul_", "div_", "pow_", "copy_", "fmod_", "remainder_", "atan2_"])
@twin
def test_binary_in_place_gradients(t, op):
    x, w = (t.rand(2, 3, dtype=t.float64) + 0.5).requires_grad_(), (t.rand(3, dtype=t.float64) + 0.5).requires_grad_()
    y = x * 2
    getattr(y, op)(w)
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin
def test_in_place_with_itself(t):
    x = leaf(t)
    z = x * 1
    z.add_(z)
    z.sum().backward()
    return x.grad


@twin
def test_in_place_on_a_tensor_without_history_takes_one(t):
    x = leaf(t)
    y = t.zeros(3, dtype=t.float64)
    y.add_(x)
    y[0] = x[1] * 2
    z = t.zeros(2, 3, dtype=t.float64)
    z[1].copy_(x)
    (y * y).sum().backward()
    (z * z).sum().backward()
    return y.requires_grad, y.is_leaf, z.requires_grad, z.grad_fn.name(), x.grad


# ---- views ---------------------------------------------------------------------------------------------------------
VIEWS = {
    "slice": lambda v: v[1:3],
    "step": lambda v: v[::2],
    "select": lambda v: v[:, 1],
    "transpose": lambda v: v.t(),
    "view": lambda v: v.view(2, 8),
    "diagonal": lambda v: v.diagonal(),
    "unsqueeze": lambda v: v.unsqueeze(1),
    "as_strided": lambda v: v.as_strided((2, 2), (5, 1), 3),
    "narrow": lambda v: v.narrow(1, 1, 2),
    "view of view": lambda v: v.t()[1:, ::2],
    "long chain": lambda v: v.view(2, 2, 4).transpose(0, 2)[1:3, 0].t()[1],
    "unfold": lambda v: v.unfold(0, 2, 2),
    "flatten": lambda v: v.flatten()[3:9],
    "movedim": lambda v: v.movedim(0, 1)[2:],
    "scalar": lambda v: v[1, 2],
    "empty": lambda v: v[2:2],
}
CHANGES = {
    "mul_": lambda v, w: v.mul_(w.sum()),
    "exp_": lambda v, w: v.exp_(),
    "zero_": lambda v, w: v.zero_(),
    "fill_": lambda v, w: v.fill_(w[0, 0]),
    "copy_": lambda v, w: v.copy_(w[0, 0].expand_as(v) * 2),
    "set": lambda v, w: v.__setitem__(..., w[1, 1] ** 2),
    "add_": lambda v, w: v.add_(w[0, 1].sin()),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("change", CHANGES)
@twin
def test_change_through_a_view(t, view, change):
    x, w = leaf(t, 4, 4), leaf(t, 4, 4)
    y = x * 2
    v = VIEWS[view](y)
    before = (v * 3).sum()             # reads the value from before, saves nothing of it
    CHANGES[change](v, w)
    after = (v ** 2).sum() + (y.sin() * t.arange(16.0, dtype=t.float64).view(4, 4)).sum()
    return (y, v, v.grad_fn is not None, y.grad_fn.name(), v._base is y,
            t.autograd.grad(before + after, [x, w], allow_unused=True))


@pytest.mark.parametrize("view", VIEWS)
@twin
def test_base_changes_under_a_view(t, view):
    x, w = leaf(t, 4, 4), leaf(t, 4, 4)
    y = x * 2
    v = VIEWS[view](y)
    y.mul_(w)
    (v ** 2).sum().backward()
    return v, x.grad, w.grad


@twin
def test_several_views_of_one_base(t):
    x = leaf(t, 4, 4)
    y = x * 2
    a, b = y[:2], y[:, 1:]
    a.mul_(3)
    b.add_(a[:, :1].sum())
    c = b[1]
    a[0].zero_()
    (a.sum() + (b * b).sum() + c.exp().sum() + y.sin().sum()).backward()
    return y, a, b, c, x.grad


@twin
def test_transposed_and_expanded_bases(t):
    x = leaf(t, 3, 4)
    y = (x.t() * 2)
    y[1].mul_(3)
    z = (x * 1).t().contiguous().t()
    z[:, 1] = 7.0
    (y.sum() + (z * z).sum()).backward()
    return y, z, x.grad


@twin
def test_history_before_and_after_through_one_view(t):
    x = leaf(t, 4)
    y = x * 2
    v = y[:2]
    for factor in (2.0, 3.0, 4.0):
        v.mul_(factor)
        y.add_(v.sum())
    y.sum().backward()
    return y, x.grad


@twin
def test_double_backward_through_copy_slices(t):
    x, w = leaf(t, 4), leaf(t, 2)
    y = x ** 3
    y[1:3] = w ** 2 * x[:2]
    y[0].mul_(w[0])
    first = t.autograd.grad((y ** 2).sum(), [x, w], create_graph=True)
    return first, t.autograd.grad(sum((g ** 2).sum() for g in first), [x, w])


@twin
def test_setitem_with_indices(t):
    x, w = leaf(t, 4, 3), leaf(t, 2, 3)
    y = x * 2
    y[t.tensor([0, 2])] = w
    y[y > 1.0] = 0.5
    y[1, t.tensor([0, 1])] += w[0, :2]
    z = t.zeros(4, 3, dtype=t.float64)
    z[:, 1] = w[0, 0]
    z[t.tensor([True, False, True, False])] = w * 2
    ((y * y).sum() + (z * z).sum()).backward()
    return y, z, x.grad, w.grad


@twin
def test_metadata_changes_in_place(t):
    x = leaf(t, 2, 1, 3)
    y = x * 2
    y.squeeze_(1)
    y.t_()
    y.unsqueeze_(0)
    y.transpose_(0, 1)
    (y * t.arange(6.0, dtype=t.float64).view(3, 1, 2)).sum().backward()
    return y, y.stride(), x.grad


@twin
def test_out_arguments_and_gradients(t):
    x = leaf(t)
    free = t.zeros(3, dtype=t.float64)
    refused = error(lambda: t.mul(x, 2, out=free), 20)
    with t.no_grad():
        t.mul(x, 2, out=free)
    return refused, free, free.requires_grad, error(lambda: t.mul(free, 2, out=x), 20)


@twin
def test_requires_grad_after_views(t):
    base = t.zeros(4, dtype=t.float64)
    v = base[:2]
    v.requires_grad_()
    return v.requires_grad, base.requires_grad, v.is_leaf, error(lambda: v.add_(1), 30)


@twin
def test_view_of_a_leaf_reads_later_changes(t):
    w = leaf(t, 4)
    v = w[:2]
    with t.no_grad():
        w.mul_(2)
    (v * 3).sum().backward()
    return v, w.grad


@twin
def test_view_as_real_and_complex_in_place(t):
    z = t.randn(3, dtype=t.complex128).requires_grad_()
    y = z * 2
    t.view_as_real(y)[:, 0].mul_(3)
    y.imag.add_(1)
    (y.abs() ** 2).sum().backward()
    return y, z.grad


@twin
def test_partly_overlapping_assignment(t):
    def refused(body):
        x = t.arange(12.0)
        return error(lambda: body(x), 60), x
    return [refused(body) for body in (
        lambda x: x[1:].copy_(x[:-1]), lambda x: x.view(3, 4)[:, :3].copy_(x.view(3, 4)[:, 1:]),
        lambda x: x[:9].view(3, 3).copy_(x[:9].view(3, 3).t()), lambda x: x[:5].add_(x[1:6]),
        lambda x: t.add(x[1:6], 1, out=x[:5]), lambda x: x[:5].add_(x[7:]), lambda x: x.add_(x))]


# ---- views that are older than their base's history ------------------------------------------------------------------
@twin
def test_views_follow_a_base_that_gets_a_history_later(t):
    b, w = t.zeros(4, 4), t.ones(4, 4).requires_grad_()
    rows, part, turned = b[:2], b[:2][:, 1:], b.t()
    rows.mul_(2)
    before = rows.requires_grad, rows.is_leaf
    b.copy_(w * 3)
    (part.sum() * 2 + turned[0].sum() + rows.pow(2).sum()).backward()
    return before, part.requires_grad, rows.is_leaf, rows.grad_fn.name(), w.grad


@pytest.mark.parametrize("use", ["sum", "clone", "cat", "view", "setitem", "matmul", "grad", "hook"])
@twin
def test_every_way_of_reading_such_a_view_is_recorded(t, use):
    b, w = t.zeros(2, 2), t.ones(2, 2).requires_grad_()
    v = b.view(4)
    b.add_(w)
    seen = []
    if use == "hook" and v.grad_fn is not None:      # torch crashes where it was not asked for before
        v.register_hook(lambda g: seen.append(g.tolist()))
    if use == "setitem":
        y = t.zeros(4)
        y[:] = v
    else:
        y = {"sum": lambda: v.sum(), "clone": lambda: v.clone(), "cat": lambda: t.cat([v, v]), "view": lambda: v[1:],
             "matmul": lambda: v @ v, "grad": lambda: v, "hook": lambda: v * 2}[use]()
    return t.autograd.grad(y.sum(), w), seen


@twin
def test_a_view_of_another_view_that_was_changed(t):
    b, w = t.zeros(4), t.ones(4).requires_grad_()
    left, middle = b[:2], b[1:3]
    middle.mul_(w[:2])
    middle.add_(w[:2])
    return left.requires_grad, b.requires_grad, t.autograd.grad(left.sum(), w)


@twin
def test_complex_parts_that_are_older_than_the_history(t):
    b, w = t.zeros(2, dtype=t.complex64), t.ones(2, dtype=t.complex64).requires_grad_()
    parts = t.view_as_real(b)
    b.add_(w * 2)
    return t.autograd.grad(parts[:, 0].sum(), w)


@twin
def test_what_such_views_say_and_refuse(t):
    b, w = t.zeros(4), t.ones(4).requires_grad_()
    with t.no_grad():
        hidden = b[:2]
    first = b.unbind(0)[0]
    flat, words, copied = b.view(4), b.view(t.int32), b.detach()
    b.add_(w)
    return (hidden.requires_grad, first.requires_grad, flat.requires_grad, words.requires_grad, copied.requires_grad,
            error(lambda: hidden * 2), error(lambda: hidden.add_(1)), error(lambda: first * 2), error(lambda: first.add_(1)),
            words._is_view(), flat._is_view())


@twin
def test_views_of_a_leaf_made_before_or_without_recording(t):
    b = t.zeros(4)
    v = b[:2]
    b.requires_grad_()
    w = t.ones(3).requires_grad_()
    with t.no_grad():
        u = w[:2]
    y = (v * u).sum()
    y.backward()
    return v.requires_grad, u.requires_grad, u.is_leaf, y.requires_grad, v.grad, b.grad, error(lambda: v.add_(1))


# ---- what backward reads: lists of tensors, outputs without a gradient, inference tensors ---------------------------
@pytest.mark.parametrize("places", ["one", "two", "put"])
@twin
def test_indices_may_not_change_before_backward(t, places):
    x = leaf(t, 4, 4)
    i, j = t.tensor([0, 1]), t.tensor([1, 2])
    i.add_(0)
    y = {"one": lambda: x[i], "two": lambda: x[i, j], "put": lambda: x.index_put((i, j), leaf(t, 2))}[places]()
    (i if places == "one" else j).zero_()
    return error(lambda: y.sum().backward())


@twin
def test_indices_that_stay_are_read(t):
    x, i = leaf(t, 4, 4), t.tensor([0, 1])
    i.add_(1)
    x[i, i].sum().backward()
    return x.grad


@pytest.mark.parametrize("op", ["cummax", "max", "sort", "median"])
@twin
def test_a_changed_output_without_gradient_is_told_without_its_op(t, op):
    values, places = getattr(leaf(t, 4, 4) * 1, op)(0)
    places.zero_()
    return error(lambda: values.sum().backward())


@twin
def test_inference_tensors_keep_their_size_and_memory_outside(t):
    with t.inference_mode():
        x = t.ones(2)
    return error(lambda: x.resize_(3), 60), error(lambda: x.set_(t.ones(3)), 60), error(lambda: x.t_(), 60)


@twin
def test_the_op_of_a_message_keeps_a_backward_in_its_name(t):
    class BackwardOfNothing(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g
    copied = t.zeros(3, dtype=t.float64).copy_(leaf(t))
    product = copied * copied
    with t.no_grad():
        copied.zero_()
    return error(lambda: BackwardOfNothing.apply(leaf(t, 3)).add_(1)), error(lambda: product.sum().backward())


# ---- what a node saves ---------------------------------------------------------------------------------------------
def places(t, *numbers):
    return t.tensor(numbers)


# name -> an op of tensors, whose changes the test makes; and how many of them need a gradient
SAVES = {
    "gather": (lambda t, x: x.gather(0, places(t, 2, 0)), 1), "take": (lambda t, x: x.take(places(t, 2, 0)), 1),
    "masked_select": (lambda t, x: x.masked_select(t.tensor([True, False, True])), 1), "cummax": (lambda t, x: x.cummax(0)[0], 1),
    "cummin": (lambda t, x: x.cummin(0)[0], 1), "erfinv": (lambda t, x: x.erfinv(), 1),
    "matrix_exp": (lambda t, x: x.outer(x).matrix_exp(), 1), "complex": (lambda t, x, y: t.complex(x, y), 2),
    "polar": (lambda t, x, y: t.polar(x, y), 2), "index_add": (lambda t, x, y: x.index_add(0, places(t, 2, 0, 1), y), 2),
    "index_copy": (lambda t, x, y: x.index_copy(0, places(t, 2, 0, 1), y), 2),
    "put": (lambda t, x, y: x.put(places(t, 2, 0, 1), y), 2), "dist": (lambda t, x, y: x.dist(y, 3), 2),
    "trunc": (lambda t, x, y: t.div(x, y, rounding_mode="trunc"), 2), "floor": (lambda t, x, y: t.div(x, y, rounding_mode="floor"), 2),
    "ldexp": (lambda t, x, y: t.ldexp(x, y), 2), "mvlgamma": (lambda t, x: (x + 3).mvlgamma(2), 1),
    "renorm": (lambda t, x: x.outer(x).renorm(2, 0, 0.5), 1), "rfft": (lambda t, x: t.fft.rfft(x), 1),
    "i1": (lambda t, x: t.special.i1(x), 1), "log_ndtr": (lambda t, x: t.special.log_ndtr(x), 1),
    "cross_entropy": (lambda t, x: t.nn.functional.cross_entropy(x, t.tensor(1)), 1),
}


@pytest.mark.parametrize("name", SAVES)
@twin
def test_backward_refuses_changes_of_what_torch_saves_and_no_others(t, name):
    op, count = SAVES[name]
    found = []
    for changed in (None, *range(count), "result"):
        inputs = [(leaf(t) / 4).detach().requires_grad_() for _ in range(count)]
        made = op(t, *[x * 1 for x in inputs] if changed is None else inputs)
        with t.no_grad():
            if changed is not None:
                (made if changed == "result" else inputs[changed]).mul_(1)
        grads = error(lambda: made.sum().abs().backward(), 14) or [x.grad for x in inputs]      # noqa: B023
        found.append((type(made.grad_fn).__name__ if name not in ("matrix_exp", "cross_entropy") else "", grads))
    return found


@twin
def test_logits_may_change_after_cross_entropy(t):
    x, target = leaf(t, 4, 3), t.tensor([0, 2, 1, 1])
    logits = x * 2
    loss = t.nn.functional.cross_entropy(logits, target, label_smoothing=0.1)
    logits.add_(1).zero_()
    first, = t.autograd.grad(loss, x, create_graph=True, retain_graph=True)
    second, = t.autograd.grad(first.square().sum(), x)
    return first, second, logits


IN_PLACE = {
    "cumsum_": lambda t, x: x.cumsum_(0), "cumprod_": lambda t, x: x.cumprod_(0), "addmm_": lambda t, x: x.addmm_(t.ones_like(x), t.ones_like(x)),
    "addmv_": lambda t, x: x[0].clone().addmv_(x, x[1]), "baddbmm_": lambda t, x: x.clone()[None].baddbmm_(x[None], x[None]),
    "triu_": lambda t, x: x.triu_(), "tril_": lambda t, x: x.tril_(1), "renorm_": lambda t, x: x.renorm_(2, 1, 0.5),
    "ldexp_": lambda t, x: x.ldexp_(t.ones_like(x)), "mvlgamma_": lambda t, x: x.abs_().add_(3).mvlgamma_(2),
    "a view": lambda t, x: (x, x[1].cumprod_(0))[0],
}


@pytest.mark.parametrize("name", IN_PLACE)
@twin
def test_an_in_place_op_has_its_own_node(t, name):
    x = leaf(t, 3, 3)
    y = IN_PLACE[name](t, x * 1)
    first, = t.autograd.grad((y * y).sum(), x, create_graph=True)
    second, = t.autograd.grad(first.square().sum(), x)
    z = IN_PLACE[name](t, x * 1)
    with t.no_grad():
        z.mul_(1)
    return y.grad_fn.name(), y, first, second, error(lambda: z.sum().backward(), 14)
