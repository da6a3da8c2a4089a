"""Views: random chains of view ops and writes through them, compared with torch in values, strides, offsets, bases."""
from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from oracle import to_torch
from twin import check_lines, error, twin

import mindtorch_v2 as mt

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SHAPES = st.lists(st.integers(0, 4), min_size=0, max_size=4)


def pair(shape):
    n = 1
    for size in shape:
        n *= size
    return mt.arange(n, dtype=mt.float64).view(shape), torch.arange(n, dtype=torch.float64).view(shape)


def check(ours, theirs):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.stride() == theirs.stride(), (tuple(ours.shape), ours.stride(), theirs.stride())
    assert ours.storage_offset() == theirs.storage_offset()
    assert ours.is_contiguous() == theirs.is_contiguous()
    assert torch.equal(to_torch(ours), theirs)


def draw_view(draw, x):
    """One random view op that fits x, as a function of a tensor."""
    rank = x.dim()
    dim = draw(st.integers(-max(rank, 1), max(rank, 1) - 1))
    kinds = ["unsqueeze", "squeeze", "view", "expand", "alias", "T", "reshape"]
    if rank:
        kinds += ["slice", "slice", "select", "transpose", "permute", "squeeze_dim", "narrow", "flip_dims", "unfold"]
    if rank >= 2:
        kinds += ["diagonal", "flatten", "movedim"]
    kind = draw(st.sampled_from(kinds))
    size = x.size(dim) if rank else 0
    if kind == "unsqueeze":
        return lambda t: t.unsqueeze(dim)
    if kind == "squeeze":
        return lambda t: t.squeeze()
    if kind == "squeeze_dim":
        return lambda t: t.squeeze(dim)
    if kind == "alias":
        return lambda t: t[...]
    if kind == "T":
        return lambda t: t.permute(list(range(t.dim() - 1, -1, -1)))
    if kind in ("view", "reshape"):
        factors = draw(st.permutations(list(x.shape)))
        return lambda t: getattr(t, kind)(factors)
    if kind == "expand":
        lead = draw(st.integers(0, 2))
        return lambda t: t.expand((2,) * lead + tuple(3 if n == 1 else -1 for n in t.shape))
    if kind == "slice":
        start, stop = draw(st.integers(-5, 5)), draw(st.integers(-5, 5))
        step = draw(st.integers(1, 3))
        return lambda t: t[(slice(None),) * (dim % rank) + (slice(start, stop, step),)]
    if kind == "select":
        index = draw(st.integers(-size, size - 1)) if size else 0
        return lambda t: t.select(dim, index)
    if kind == "narrow":
        start = draw(st.integers(0, size))
        length = draw(st.integers(0, size - start))
        return lambda t: t.narrow(dim, start, length)
    if kind == "transpose":
        other = draw(st.integers(-rank, rank - 1))
        return lambda t: t.transpose(dim, other)
    if kind in ("permute", "flip_dims"):
        order = draw(st.permutations(range(rank)))
        return lambda t: t.permute(order)
    if kind == "unfold":
        width, step = draw(st.integers(0, max(size, 1))), draw(st.integers(1, 3))
        return lambda t: t.unfold(dim, width, step)
    if kind == "diagonal":
        offset = draw(st.integers(-3, 3))
        return lambda t: t.diagonal(offset, 0, -1)
    if kind == "flatten":
        return lambda t: t.flatten(0, 1)
    return lambda t: t.movedim(0, -1)


@QUICK
@given(st.data(), SHAPES)
def test_chains_of_views_and_writes(data, shape):
    ours, theirs = pair(shape)
    base_ours, base_theirs = ours, theirs
    for step in range(data.draw(st.integers(1, 6))):
        view = draw_view(data.draw, theirs)
        try:
            next_theirs = view(theirs)
        except (RuntimeError, IndexError) as refused:
            with pytest.raises(type(refused)):
                view(ours)
            continue
        ours, theirs = view(ours), next_theirs
        check(ours, theirs)
        shares = theirs.untyped_storage().data_ptr() == base_theirs.untyped_storage().data_ptr()
        assert (ours.untyped_storage().data_ptr() == base_ours.untyped_storage().data_ptr()) == shares or \
            theirs.untyped_storage().nbytes() == 0
        if data.draw(st.booleans()):
            value = float(100 + step)
            outcome = error(lambda: theirs.mul_(2).add_(value))
            assert error(lambda: ours.mul_(2).add_(value)) == outcome
            assert torch.equal(to_torch(base_ours), base_theirs)
    assert (ours._base is base_ours._base if ours is base_ours else
            ours._base is None or ours._base is (base_ours._base if base_ours._base is not None else base_ours) or
            ours.untyped_storage().data_ptr() != base_ours.untyped_storage().data_ptr())
    assert ours._is_view() == theirs._is_view()


@QUICK
@given(st.data(), SHAPES)
def test_elementwise_ops_on_views(data, shape):
    ours, theirs = pair(shape)
    for _ in range(data.draw(st.integers(0, 4))):
        view = draw_view(data.draw, theirs)
        try:
            theirs = view(theirs)
        except (RuntimeError, IndexError):
            continue
        ours = view(ours)
    for op in (lambda t, x: x + 1, lambda t, x: x * x.sum(), lambda t, x: x.clone(), lambda t, x: x.contiguous(),
               lambda t, x: x.to(t.float32), lambda t, x: t.zeros_like(x), lambda t, x: x.sin()):
        a, b = op(mt, ours), op(torch, theirs)
        assert tuple(a.shape) == tuple(b.shape)
        expanded = any(n > 1 and s == 0 for n, s in zip(theirs.shape, theirs.stride()))
        assert not b.numel() or expanded or [s for n, s in zip(b.shape, a.stride()) if n > 1] == \
            [s for n, s in zip(b.shape, b.stride()) if n > 1], (theirs.stride(), a.stride(), b.stride())
        torch.testing.assert_close(to_torch(a), b, rtol=1e-6, atol=1e-6)
    for dim in range(theirs.dim()):
        torch.testing.assert_close(to_torch(ours.sum(dim)), theirs.sum(dim))
    torch.testing.assert_close(to_torch(ours.reshape(-1)), theirs.reshape(-1))


@QUICK
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_writes_between_views_of_one_storage(data, shape):
    """copy_ between two chains of views of one tensor: torch's result where it defines one, its refusal elsewhere."""
    ours, theirs = pair(shape)
    ends = []
    for _ in range(2):
        a, b = ours, theirs
        for _ in range(data.draw(st.integers(0, 3))):
            view = draw_view(data.draw, b)
            try:
                b = view(b)
            except (RuntimeError, IndexError):
                continue
            a = view(a)
        ends.append((a, b))
    (to_a, to_b), (from_a, from_b) = ends
    expected = theirs.clone()
    source = from_b.clone()
    refused = error(lambda: to_b.copy_(from_b))
    if refused != "no error":
        assert error(lambda: to_a.copy_(from_a)) == refused
        return
    to_a.copy_(from_a)
    # torch leaves overlaps that it cannot see undefined; ours reads everything before it writes
    target = expected.as_strided(to_b.shape, to_b.stride(), to_b.storage_offset()) \
        if to_b.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr() else None
    if target is not None:
        target.copy_(source)
        assert torch.equal(to_torch(ours), expected)
    else:
        assert torch.equal(to_torch(to_a), to_b)


@QUICK
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_gradients_through_chains_with_writes(data, shape):
    views, writes = [], []
    _, probe = pair(shape)
    for _ in range(data.draw(st.integers(1, 5))):
        view = draw_view(data.draw, probe)
        try:
            probe = view(probe)
        except (RuntimeError, IndexError):
            continue
        views.append(view)
        writes.append(data.draw(st.booleans()))

    def gradient(t):
        x = (t.arange(1.0, float(pair(shape)[1].numel() + 1), dtype=t.float64).view(shape) / 10).requires_grad_()
        y = x * 2
        v = y
        for view, write in zip(views, writes):
            v = view(v)
            if write:
                v.mul_(3)
        return t.autograd.grad((v * v).sum() + y.sin().sum(), x)[0]
    try:
        expected = gradient(torch)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            gradient(mt)
        return
    torch.testing.assert_close(to_torch(gradient(mt)), expected)


# ---- cases by hand -------------------------------------------------------------------------------------------------
@twin
def test_as_strided(t):
    x = t.arange(12.0)
    return (x.as_strided((3, 4), (1, 2)), x[2:].as_strided((2, 2), (3, 1)), x[2:].as_strided((2, 2), (3, 1), 1),
            x.as_strided((2, 3), (0, 0), 5), x.as_strided((), ()), x.as_strided((0, 3), (1, 1)),
            error(lambda: x.as_strided((13,), (1,))), error(lambda: x.as_strided((2,), (-1,))),
            error(lambda: x.as_strided((2,), (1, 1))), error(lambda: x.as_strided((2,), (1,), -1)))


@twin
def test_view_as_another_dtype(t):
    x = t.arange(8, dtype=t.int32).view(2, 4)
    f = t.ones(2, 3, dtype=t.float32)
    return (x.view(t.int64), x.view(t.int16), x.view(t.float32), f.view(t.uint8), x[:, ::2].view(t.int32),
            error(lambda: x[:, ::2].view(t.int64)), error(lambda: x[:, 1:].view(t.int64)),
            error(lambda: t.tensor(1.0).view(t.int64)), error(lambda: f.view(t.float64)), x.t().view(t.float32))


@twin
def test_complex_views(t):
    z = t.arange(6.0).view(3, 2)
    c = t.view_as_complex(z)
    c[1] = 9 + 1j
    c.real[0] = 5.0
    return (z, c, t.view_as_real(c), c.imag.stride(), c.real.storage_offset(), c.imag.storage_offset(),
            error(lambda: t.view_as_complex(t.ones(3))), error(lambda: t.view_as_real(t.ones(3))),
            error(lambda: t.ones(3).imag))


@twin
def test_bases(t):
    x = t.arange(6.0)
    v = x.view(2, 3)
    w = v[0]
    d = w.detach()
    return (x._base is None, v._base is x, w._base is x, w._is_view(), x._is_view(), d._base is None, d._is_view(),
            x.view(6)[2:].clone()._base is None, w.data_ptr() == x.data_ptr(), v[1].data_ptr() - x.data_ptr(),
            w.contiguous() is w, v.reshape(6)._base is x, v.t().reshape(6)._base is None)


@twin
def test_views_of_nothing(t):
    x = t.zeros(2, 0, 3)
    return (x.view(0, 5).stride(), x.view(-1, 3, 2).shape == (0, 3, 2), x.transpose(0, 1).stride(), x.reshape(3, 0).stride(),
            error(lambda: x.view(-1, 0)), x.sum(), x.flatten().stride(), x[:, :0].storage_offset(),
            t.zeros(0).view(0, 0).stride(), x.permute(2, 0, 1).contiguous().stride(), x.unfold(1, 0, 1).stride())


@twin
def test_refusals(t):
    x = t.arange(6.0).view(2, 3)
    return [error(call) for call in (
        lambda: x.t().view(6), lambda: x.view(4), lambda: x.view(-1, -1), lambda: x.view(-2, 3), lambda: x.transpose(0, 2),
        lambda: x.permute(0, 0), lambda: x.permute(0), lambda: x.expand(2, 4), lambda: x.expand(3), lambda: x.select(0, 2),
        lambda: x.select(2, 0), lambda: x.narrow(0, 1, 2), lambda: x.unsqueeze(3), lambda: x.diagonal(0, 1, 1),
        lambda: x.unfold(0, 3, 1), lambda: x.unfold(0, 1, 0), lambda: x[::-1], lambda: x[2], lambda: x[0, 0, 0],
        lambda: t.zeros(()).select(0, 0), lambda: x.squeeze(5), lambda: x.t()[None].t())]


@twin
def test_gradients_of_many_views_are_joined_at_once(t):
    x = t.arange(280.0).view(70, 4).requires_grad_()
    rows, parts, named, pieces = x.unbind(0), x.split(30), x.split_with_sizes([1, 3], 1), x.chunk(2, 1)
    names = [v.grad_fn.name() for v in (rows[69], parts[1], named[0], pieces[1])]
    places = [v.grad_fn is rows[0].grad_fn for v in rows[1:]]
    loss = (rows[66] * rows[3]).sum() + (parts[2] ** 2).sum() + named[1].exp().mean() + pieces[0].sum()
    (grad,) = t.autograd.grad(loss, x, create_graph=True)
    (again,) = t.autograd.grad(grad.sum() * 1e-9, x)
    inner = x.unbind(0)[1].unbind(0)[2]
    with t.no_grad():
        outside = x.unbind(0)[1]
    return (names, places, grad, again, inner.grad_fn.name(), t.autograd.grad(inner, x)[0], outside.grad_fn is None,
            t.zeros(0, 3, requires_grad=True).unbind(0), error(lambda: rows[0].add_(1)), error(lambda: parts[1].mul_(2)),
            t.zeros(0, 3, requires_grad=True).chunk(2)[0].grad_fn.name())


@pytest.mark.parametrize("equation", ["i", "->", "ij->ij", "ij->ji", "ii->i", "ij,jk->ik", "bij,bjk->bik", "ij,ij->", "i,j->ij", "...i,i->..."])
def test_einsum_is_never_the_operand_itself(equation: str) -> None:
    """Nor are the labels of an equation, which are kept, those of other sizes."""
    for size in (2, 3, 1):
        ranks = [len(part.replace("...", "_")) for part in equation.split("->")[0].split(",")]
        found = []
        for lib in (mt, torch):
            operands = [lib.arange(float(size ** rank)).reshape([size] * rank) for rank in ranks]
            made = lib.einsum(equation, *operands)
            assert all(made is not x for x in operands)
            found.append((made.tolist(), made.stride(), made._base is operands[0]))
        assert found[0] == found[1]


@pytest.mark.parametrize("index", [
    "[0, 1]", ":, [0, 1]", "[0, 1], :, [0, 1]", "..., [0, 1]", "[[0, 1], [1, 1]]", ":, [[0], [1]], [0, 1]", "T", ":, T", "T, :, T",
    "x[..., 0] > 3"])
@pytest.mark.parametrize("x", ["R.permute(2, 0, 1)", "R.transpose(0, 2)", "R", "R[:, ::2]", "R.expand(2, 2, 3, 4)[1]", "R[:1].permute(2, 0, 1)"])
def test_index_tensors_keep_the_order_of_memory(x: str, index: str) -> None:
    check_lines(f"R = torch.arange(24.).view(2, 3, 4)\nT = torch.tensor([[0, 0], [0, 0], [0, 0]]).t()\nx = {x}\nx[{index}]")
