"""Ops that a program defines, against torch: by name, with gradients, devices and fakes; and torch.ops.aten."""

from __future__ import annotations

from typing import Any

import pytest
from twin import error, twin

import mindtorch_v2 as mt


def defined(t: Any) -> Any:
    """An op with a gradient; torch reads the annotations of its function, so that they are torch's own classes."""
    def scaled(x, y, factor=2.0):
        return x * y * factor
    scaled.__annotations__ = {"x": t.Tensor, "y": t.Tensor, "factor": float, "return": t.Tensor}
    op = t.library.custom_op("mylib::scaled", scaled, mutates_args=())

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, ctx.factor = inputs
        ctx.save_for_backward(x, y)

    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y * ctx.factor, g * x * ctx.factor if ctx.needs_input_grad[1] else None, None

    op.register_autograd(backward, setup_context=setup)
    op.register_fake(lambda x, y, factor=2.0: t.empty_like(x))
    return op


@twin
def test_an_op_by_its_name_with_a_gradient(t: Any) -> Any:
    op = defined(t)
    x, y = t.tensor([1.0, 2.0], requires_grad=True), t.tensor([3.0, 4.0])
    out = t.ops.mylib.scaled(x, y, 3.0)
    out.sum().backward()
    plain = t.ops.mylib.scaled.default(y, y)
    return out, x.grad, plain, op(y, y, factor=1.0), op(x.detach(), y).requires_grad


@twin
def test_errors(t: Any) -> Any:
    calls = [lambda: t.ops.nowhere.nothing(), lambda: t.ops.aten.no_such_op,
             lambda: t.library.custom_op("noname", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor"),
             lambda: t.library.Library("other", "SOMETHING")]  # fmt: skip
    return [error(call) for call in calls]


@twin
def test_libraries_and_torchs_own_ops(t: Any) -> Any:
    lib = t.library.Library(f"lib{t.__name__}", "FRAGMENT")
    lib.define("twice(Tensor x) -> Tensor")
    lib.impl("twice", lambda x: x * 2, "CPU")
    x, a = t.tensor([1.0, -2.0]), t.ops.aten
    return (getattr(t.ops, f"lib{t.__name__}").twice(x), a.mul.Tensor(x, x), a.relu(x), a.clamp(x, min=0.0),
            a.sum.dim_IntList(x, [0]))


def test_a_kernel_for_each_device(npu: Any) -> None:
    op = mt.library.custom_op("mylib::where_am_i", lambda x: x + 1, mutates_args=(), device_types="cpu",
                              schema="(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="'mylib::where_am_i' with arguments from the 'PrivateUse1' backend"):
        op(mt.ones(1, device="npu"))
    op.register_kernel("npu", lambda x: x + 2)
    assert op(mt.ones(1)).item() == 2 and op(mt.ones(1, device="npu")).item() == 3
    assert tuple(defined(mt)(mt.ones(2, 3, device="meta"), mt.ones(2, 3, device="meta")).shape) == (2, 3)
