"""torch.amp: what autocast casts on the CPU, with torch as the judge, and on an npu; GradScaler; custom_fwd."""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import oracle
import pytest
import torch
from twin import error, twin

import mindtorch_v2 as mt

# Calls with a float32 matrix x, the same in the block's dtype h, labels y and a weight w.
CALLS: dict[str, Callable[..., Any]] = {
    "matmul": lambda t, x, h, y, w: x @ w,
    "mm": lambda t, x, h, y, w: t.mm(x, h),
    "bmm": lambda t, x, h, y, w: t.bmm(x[None], w[None]),
    "addmm": lambda t, x, h, y, w: t.addmm(x, x, w),
    "baddbmm": lambda t, x, h, y, w: t.baddbmm(x[None], x[None], w[None]),
    "linear": lambda t, x, h, y, w: t.nn.functional.linear(x, w, x[0]),
    "conv2d": lambda t, x, h, y, w: t.nn.functional.conv2d(x[None, None], w[None, None]),
    "conv_transpose2d": lambda t, x, h, y, w: t.nn.functional.conv_transpose2d(x[None, None], w[None, None]),
    "attention": lambda t, x, h, y, w: t.nn.functional.scaled_dot_product_attention(x[None], w[None], x[None]),
    "einsum": lambda t, x, h, y, w: t.einsum("ij,jk->ik", x, w),
    "prelu": lambda t, x, h, y, w: t.nn.functional.prelu(x, w[0, :1]),
    "mv": lambda t, x, h, y, w: t.mv(x, w[0]),
    "softmax": lambda t, x, h, y, w: h.softmax(-1),
    "log_softmax": lambda t, x, h, y, w: t.nn.functional.log_softmax(h, -1),
    "layer_norm": lambda t, x, h, y, w: t.nn.functional.layer_norm(h, (4,)),
    "exp": lambda t, x, h, y, w: h.exp(),
    "log": lambda t, x, h, y, w: h.abs().log(),
    "pow": lambda t, x, h, y, w: h**2,
    "sum": lambda t, x, h, y, w: h.sum(),
    "prod": lambda t, x, h, y, w: h.prod(),
    "cumsum": lambda t, x, h, y, w: h.cumsum(0),
    "norm": lambda t, x, h, y, w: h.norm(),
    "cross_entropy": lambda t, x, h, y, w: t.nn.functional.cross_entropy(h, y),
    "mse_loss": lambda t, x, h, y, w: t.nn.functional.mse_loss(h, x),
    "smooth_l1_loss": lambda t, x, h, y, w: t.nn.functional.smooth_l1_loss(h, x),
    "bce_with_logits": lambda t, x, h, y, w: t.nn.functional.binary_cross_entropy_with_logits(h, x.sigmoid()),
    "interpolate": lambda t, x, h, y, w: t.nn.functional.interpolate(h[None, None], scale_factor=2.0),
    "addcmul": lambda t, x, h, y, w: t.addcmul(h, h, x),
    "atan2": lambda t, x, h, y, w: t.atan2(h, x),
    "cat": lambda t, x, h, y, w: t.cat([h, x]),
    "stack": lambda t, x, h, y, w: t.stack([h, x]),
    "add": lambda t, x, h, y, w: h + x,
    "relu": lambda t, x, h, y, w: h.relu(),
    "gelu": lambda t, x, h, y, w: t.nn.functional.gelu(h),
    "mean": lambda t, x, h, y, w: h.mean(),
    "embedding": lambda t, x, h, y, w: t.nn.functional.embedding(y, w),
    "in place": lambda t, x, h, y, w: x.clone().addmm_(x, x),
    "out": lambda t, x, h, y, w: t.mm(x, x, out=t.empty(4, 4, device=x.device)),
    "float16 in": lambda t, x, h, y, w: h @ h,
}  # fmt: skip
# What an npu leaves in, or brings to, the dtype of the block.
LOWER = {"matmul", "mm", "bmm", "addmm", "baddbmm", "linear", "conv2d", "conv_transpose2d", "attention", "einsum",
         "prelu", "mv", "relu", "gelu", "mean", "float16 in"}  # fmt: skip


def call(t: Any, name: str, device: str, dtype: Any) -> tuple[Any, Any]:
    """The result of a call in a block, and the gradient of the weight where there is one."""
    t.manual_seed(7)
    x, w = t.randn(4, 4).to(device), t.randn(4, 4).to(device).requires_grad_()
    with t.autocast(device, dtype=dtype):
        made = CALLS[name](t, x, x.to(dtype), t.tensor([0, 1, 2, 3]).to(device), w)
    if made.requires_grad:
        made.float().pow(2).sum().backward()
    return made.detach(), w.grad


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_casts_on_the_cpu(name: str, dtype: str) -> None:
    ours, theirs = (call(t, name, "cpu", getattr(t, dtype)) for t in (mt, torch))
    for mine, its in zip(ours, theirs):
        assert (mine is None) == (its is None)
        if its is not None:
            assert oracle.DTYPES[its.dtype] is mine.dtype
            torch.testing.assert_close(torch.tensor(mine.tolist()), torch.tensor(its.tolist()), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [mt.float16, mt.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_casts_on_an_npu(npu: ModuleType, name: str, dtype: Any) -> None:
    made, grad = call(mt, name, "npu", dtype)
    assert made.dtype is (dtype if name in LOWER else mt.float32)
    plain = mt.autocast("cpu", enabled=False)
    mt.manual_seed(7)
    x, w = mt.randn(4, 4), mt.randn(4, 4).requires_grad_()
    with plain:
        expected = CALLS[name](mt, x, x, mt.tensor([0, 1, 2, 3]), w).detach()
    mt.testing.assert_close(made.cpu().float(), expected, rtol=0.05, atol=0.1)
    assert grad is None or grad.dtype is mt.float32


def test_an_npu_refuses_binary_cross_entropy(npu: ModuleType) -> None:
    x = mt.rand(4, device="npu")
    with mt.autocast("npu"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        mt.nn.functional.binary_cross_entropy(x, x)


def test_device_types_are_apart(npu: ModuleType) -> None:
    x = mt.ones(4, 4)
    with mt.autocast("npu"):
        assert (x @ x).dtype is mt.float32 and (x.npu() @ x.npu()).dtype is mt.float16
        with mt.autocast("cpu"):
            assert (x @ x).dtype is mt.bfloat16


# ---- blocks ---------------------------------------------------------------------------------------------------------
@twin
def test_nested_blocks(t: Any) -> Any:
    x = t.ones(2, 2)
    seen = [(x @ x).dtype]
    with t.autocast("cpu"):
        seen.append((x @ x).dtype)
        with t.autocast("cpu", dtype=t.float16):
            seen.append((x @ x).dtype)
            with t.autocast("cpu", enabled=False):
                seen.append((x @ x).dtype)
            seen.append((x @ x).dtype)
        seen.append((x @ x).dtype)
    return [*seen, (x @ x).dtype, t.is_autocast_enabled("cpu"), t.get_autocast_dtype("cpu")]


@twin
def test_a_block_ends_with_an_error(t: Any) -> Any:
    with pytest.raises(KeyError), t.autocast("cpu"):
        raise KeyError
    return t.is_autocast_enabled("cpu")


@twin
def test_decorator(t: Any) -> Any:
    @t.autocast("cpu", dtype=t.float16)
    def f(x: Any) -> Any:
        return x @ x

    return f(t.ones(2, 2)), f.__name__, f(t.ones(2, 2))


@twin
def test_weights_are_cast_once_a_block(t: Any) -> Any:
    x, w = t.ones(2, 2), t.ones(2, 2, requires_grad=True)

    def cast_of(made: Any) -> Any:
        return made.grad_fn.next_functions[1][0]

    def used_twice(**how: Any) -> bool:
        with t.autocast("cpu", **how):
            return cast_of(t.mm(x, w)) is cast_of(t.mm(x, w))

    with t.autocast("cpu"):
        first = cast_of(t.mm(x, w))
        with t.autocast("cpu"):
            nested = cast_of(t.mm(x, w)) is first
    with t.autocast("cpu"):
        again = cast_of(t.mm(x, w)) is first
    return used_twice(), used_twice(cache_enabled=False), nested, again, t.is_autocast_cache_enabled()


def test_a_changed_weight_is_cast_again() -> None:
    x, w = mt.ones(2, 2), mt.ones(2, 2, requires_grad=True)
    with mt.autocast("cpu"):
        before = x @ w
        with mt.no_grad():
            w.mul_(3)
        assert (x @ w).tolist() == (before * 3).tolist()


def test_a_weight_seen_without_gradients_gets_them_later() -> None:
    x, w = mt.ones(2, 2), mt.ones(2, 2, requires_grad=True)
    with mt.autocast("cpu"):
        with mt.no_grad():
            assert not (x @ w).requires_grad
        (x @ w).sum().backward()
    assert w.grad.tolist() == [[2, 2], [2, 2]]


def test_the_state_belongs_to_a_thread() -> None:
    seen: list[bool] = []
    with mt.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(mt.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
    assert seen == [False]


@twin
def test_state_functions(t: Any) -> Any:
    t.set_autocast_enabled("cpu", True)
    t.set_autocast_dtype("cpu", t.float16)
    on = t.is_autocast_enabled("cpu"), t.is_autocast_cpu_enabled()
    on += t.get_autocast_dtype("cpu"), t.get_autocast_cpu_dtype()
    depth = t.autocast_increment_nesting(), t.autocast_decrement_nesting()
    t.set_autocast_enabled("cpu", False)
    t.set_autocast_dtype("cpu", t.bfloat16)
    t.clear_autocast_cache()
    return on, depth, t.is_autocast_enabled("cpu"), t.amp.is_autocast_available("cpu"), t.is_autocast_enabled("cuda")


@twin
def test_refusals(t: Any) -> Any:
    return [error(lambda: t.autocast(3)), error(lambda: t.autocast("toaster")), error(lambda: t.autocast())]


@pytest.mark.parametrize("how", [("cpu", "float32"), ("cuda", None)])
@twin
def test_warnings(t: Any, how: tuple[str, str | None]) -> Any:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with t.autocast(how[0], dtype=how[1] and getattr(t, how[1])):
            made = t.ones(2, 2) @ t.ones(2, 2)
    return made.dtype, [str(w.message) for w in said]


def test_torch_npu_amp(npu: ModuleType) -> None:
    x = mt.ones(4, 4, device="npu")
    with npu.amp.autocast():
        assert (x @ x).dtype is mt.float16 and npu.is_autocast_enabled() and npu.get_autocast_dtype() is mt.float16
    with npu.amp.autocast(dtype=mt.bfloat16):
        assert (x @ x).dtype is mt.bfloat16
    assert not npu.is_autocast_enabled() and mt.bfloat16 in npu.get_amp_supported_dtype()


# ---- functions with a backward of their own ------------------------------------------------------------------------
@pytest.mark.parametrize("cast_inputs", [None, "float32"])
@twin
def test_custom_fwd(t: Any, cast_inputs: str | None) -> Any:
    seen = []

    class Product(t.autograd.Function):
        @staticmethod
        @t.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs and getattr(t, cast_inputs))
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            seen.append((a.dtype, t.is_autocast_enabled("cpu")))
            return a @ b

        @staticmethod
        @t.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append((grad.dtype, t.is_autocast_enabled("cpu")))
            return grad @ b.mT, a.mT @ grad

    a, b = t.ones(2, 2, dtype=t.bfloat16, requires_grad=True), t.ones(2, 2, requires_grad=True)
    with t.autocast("cpu"):
        made = Product.apply(a, b)
    made.sum().backward()
    return made, a.grad, b.grad, seen


def test_checkpoint_runs_again_in_the_same_precision() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        made = x @ x
        seen.append(made.dtype)
        return made

    with mt.autocast("cpu"):
        made = mt.utils.checkpoint.checkpoint(f, mt.ones(2, 2, requires_grad=True), use_reentrant=False,
                                               early_stop=False)
    made.sum().backward()
    assert seen == [mt.bfloat16, mt.bfloat16]


# ---- GradScaler ----------------------------------------------------------------------------------------------------
def scaled_steps(t: Any, device: str) -> list[Any]:
    """Steps of which two are bad: the scale, the tracker and the weight after each."""
    w = t.ones(3).to(device).requires_grad_()
    optimizer = t.optim.SGD([w], lr=0.5)
    scaler, seen = t.amp.GradScaler(device, init_scale=8.0, growth_interval=2), []
    for step in range(7):
        optimizer.zero_grad()
        factor = float("inf") if step in (2, 5) else 0.25
        scaler.scale((w * factor).sum()).backward()
        if step == 3:
            scaler.unscale_(optimizer)
            t.nn.utils.clip_grad_norm_([w], 0.1)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), w.detach().cpu().tolist()))
    state = scaler.state_dict()
    other = t.amp.GradScaler(device)
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    return [seen, state, other.state_dict() == state]


@twin
def test_scaler_on_the_cpu(t: Any) -> Any:
    return scaled_steps(t, "cpu")


def test_scaler_on_an_npu(npu: ModuleType) -> None:
    cpu, npu_steps = scaled_steps(mt, "cpu"), scaled_steps(mt, "npu")
    assert cpu[1:] == npu_steps[1:] and [s[:2] for s in cpu[0]] == [s[:2] for s in npu_steps[0]]
    mt.testing.assert_close([s[2] for s in npu_steps[0]], [s[2] for s in cpu[0]])


@twin
def test_scaler_refuses(t: Any) -> Any:
    w = t.ones(1, requires_grad=True)
    optimizer = t.optim.SGD([w], lr=0.5)
    scaler = t.amp.GradScaler("cpu")
    seen = [error(lambda: scaler.step(optimizer)), error(lambda: scaler.update()), error(lambda: scaler.scale(3))]
    scaler.scale(w.sum()).backward()
    scaler.unscale_(optimizer)
    seen.append(error(lambda: scaler.unscale_(optimizer), 60))
    seen.append(error(lambda: pickle.dumps(scaler), 40))
    scaler.step(optimizer)
    seen += [error(lambda: scaler.step(optimizer), 60), error(lambda: scaler.unscale_(optimizer), 60)]
    half = t.ones(1, dtype=t.float16, requires_grad=True)
    scaler.update()
    scaler.scale(half.sum()).backward()
    seen.append(error(lambda: scaler.unscale_(t.optim.SGD([half], lr=0.1)), 60))
    return [*seen, error(lambda: scaler.load_state_dict({}), 40)]


@twin
def test_scaler_off(t: Any) -> Any:
    w = t.ones(2, requires_grad=True)
    optimizer = t.optim.SGD([w], lr=0.5)
    scaler = t.amp.GradScaler("cpu", enabled=False)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return w, scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()


@twin
def test_new_scale(t: Any) -> Any:
    scaler = t.amp.GradScaler("cpu")
    made = scaler.scale([t.ones(1), t.ones(2)])
    scaler.update(4.0)
    first = scaler.get_scale()
    scaler.update(t.tensor(3.0))
    return made, first, scaler.get_scale()


@pytest.mark.parametrize("device, dtype", [("cpu", mt.bfloat16), ("npu", mt.float16), ("npu", mt.bfloat16)])
def test_a_model_learns(npu: ModuleType, device: str, dtype: Any) -> None:
    mt.manual_seed(7)
    model = mt.nn.Sequential(mt.nn.Linear(8, 32), mt.nn.LayerNorm(32), mt.nn.GELU(), mt.nn.Linear(32, 4)).to(device)
    x, y = mt.randn(64, 8).to(device), mt.randint(0, 4, (64,)).to(device)
    optimizer = mt.optim.AdamW(model.parameters(), lr=0.01)
    scaler = mt.amp.GradScaler(device)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        with mt.autocast(device, dtype=dtype):
            out = model(x)
            loss = mt.nn.functional.cross_entropy(out, y)
        assert out.dtype is dtype and loss.dtype is mt.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0] and all(p.dtype is mt.float32 for p in model.parameters())
