"""torch.library beyond one op by name, against torch: schemas from annotations, dispatch keys, layers, gradients of lists."""
from __future__ import annotations

import itertools
import typing
import warnings
from typing import Any

import pytest
from twin import error, twin

import mindtorch_v2 as mt

_numbers = itertools.count()


def space() -> str:
    """A namespace that nobody has."""
    return f"ops{next(_numbers)}"


@twin
def test_schemas_of_annotations(t: Any) -> Any:
    def scaled(x, y, n=3, *, dims=(), kind=None):
        return x
    kinds = {"x": t.Tensor, "y": t.Tensor | None, "n": int, "dims": typing.Sequence[t.Tensor],
             "kind": t.dtype | None, "return": typing.Tuple[t.Tensor, int]}   # noqa: UP006
    scaled.__annotations__ = kinds
    scaled.__kwdefaults__ = {"kind": None}
    infer = t.library.infer_schema
    found = [infer(scaled, mutates_args=()), infer(scaled, mutates_args={"x", "dims"}), infer(scaled, mutates_args="unknown"),
             infer(scaled, mutates_args=(), op_name="name")]
    wrong = []
    for name, kind in (("x", dict), ("x", typing.Tuple[int, int]), ("return", str)):   # noqa: UP006
        scaled.__annotations__ = kinds | {name: kind}
        wrong.append(error(lambda: infer(scaled, mutates_args=()), 60))
    scaled.__annotations__ = kinds
    return found, wrong, error(lambda: infer(scaled, mutates_args=["n"]), 90), error(lambda: infer(scaled, mutates_args=["q"]), 40)


@twin
def test_calls_that_fit_no_schema(t: Any) -> Any:
    n = space()
    op = t.library.custom_op(f"{n}::f", lambda x, k=2.0: x * k, mutates_args=(), schema="(Tensor x, float k=2.0) -> Tensor")
    x = t.ones(2)
    return op(x), op(x, k=3), [error(call, 300).replace(n, "ns") for call in (
        lambda: op("a"), lambda: op(), lambda: op(x, q=1), lambda: op(3.0))]


@twin
def test_gradients_of_lists_and_keywords(t: Any) -> Any:
    n, seen = space(), []
    op = t.library.custom_op(f"{n}::f", lambda xs, *, k: [x * k for x in xs], mutates_args=(),
                             schema="(Tensor[] xs, *, float k) -> Tensor[]")

    def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        seen.append((len(inputs), keyword_only_inputs, len(output)))
        ctx.k = keyword_only_inputs["k"]
    a, b = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    before = error(lambda: op([a, b], k=3.0)[0].sum().backward(), 200).replace(n, "ns")
    op.register_autograd(lambda ctx, grads: [g * ctx.k for g in grads], setup_context=setup)
    out = op([a, b], k=3.0)
    (out[0].sum() + 2 * out[1].sum()).backward()
    op.register_autograd(lambda ctx, grads: grads[0])
    return before, seen, a.grad, b.grad, error(lambda: op([a, b], k=3.0)[0].sum().backward(), 80)


@twin
def test_results_may_not_share_memory_and_changes_are_counted(t: Any) -> Any:
    n = space()
    same = t.library.custom_op(f"{n}::same", lambda x: x.view(-1), mutates_args=(), schema="(Tensor x) -> Tensor")
    add = t.library.custom_op(f"{n}::add", lambda x, y: x.add_(y) and None, mutates_args={"x"},
                              schema="(Tensor(a!) x, Tensor y) -> ()")
    x, y = t.zeros(1), t.ones(1)
    before = x._version
    add(x, y)
    return error(lambda: same(x))[:12], x, x._version > before, error(lambda: add.register_autograd(lambda ctx, g: g), 50)


@twin
def test_keys_of_a_library(t: Any) -> Any:
    n = space()
    with t.library._scoped_library(n, "FRAGMENT") as lib:
        lib.define("f(Tensor x) -> Tensor")
        op, x = getattr(t.ops, n).f, t.ones(2, requires_grad=True)
        missing = error(lambda: op(x), 60).replace(n, "ns")
        lib.impl("f", lambda x: x.detach() * 2, "CPU")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            op(x).sum().backward()

        class Twice(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                with t._C._AutoDispatchBelowAutograd():
                    return op(x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2
        lib.impl("f", Twice.apply, "Autograd")
        out = op(x)
        out.sum().backward()
        lib.define("g(Tensor x) -> Tensor")
        lib.impl("g", lambda x: x * 3, "CompositeImplicitAutograd")
        composed = getattr(t.ops, n).g(x)
        wrong = [error(call, 70).replace(n, "ns") for call in (
            lambda: lib.define("f(Tensor x) -> Tensor"), lambda: lib.define("nothing"), lambda: lib.impl("f", 3, "CPU"),
            lambda: lib.impl("f", len, "NOKEY"), lambda: t.library.define(f"{n}::h", "h(Tensor x) -> Tensor"))]
    return missing, [str(w.message)[:90].replace(n, "ns") for w in said if "autograd kernel" in str(w.message)], x.grad, \
        out.grad_fn.name(), composed, composed.grad_fn.name(), wrong, error(lambda: getattr(t.ops, n).f), error(lambda: lib.define(""))


@twin
def test_layers_see_the_op(t: Any) -> Any:
    from importlib import import_module
    modes = import_module(f"{t.__name__}.utils._python_dispatch")
    n, seen = space(), []
    op = t.library.custom_op(f"{n}::f", lambda x, y: x * y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")

    class Log(modes.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func).replace(n, "ns"))
            return func(*args, **(kwargs or {}))
    x, y = t.arange(6.0).view(3, 2), t.ones(2)
    with Log():
        op(x, y)
    slow = t.vmap(op, in_dims=(0, None))(x, y)
    op.register_vmap(lambda info, dims, x, y: (seen.append((info.batch_size, dims)) or op(x, y) + 1, 0))
    fast = t.vmap(op, in_dims=(0, None))(x, y)
    op.register_vmap(lambda info, dims, x, y: x)
    wrong = error(lambda: t.vmap(op)(x, x), 60)
    op.register_autocast("cpu", t.bfloat16)
    with t.autocast("cpu", dtype=t.bfloat16):
        cast = op(x, y).dtype
    return seen, slow, fast, wrong, cast, op(x, y).dtype


@twin
def test_opcheck(t: Any) -> Any:
    n = space()
    good = t.library.custom_op(f"{n}::good", lambda x: x.sin(), mutates_args=(), schema="(Tensor x) -> Tensor")
    good.register_fake(lambda x: t.empty_like(x))
    good.register_autograd(lambda ctx, g: g * ctx.c, setup_context=lambda ctx, inputs, output: setattr(ctx, "c", inputs[0].cos()))
    changes = t.library.custom_op(f"{n}::bad", lambda x: x.add_(1).clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    wrong = t.library.custom_op(f"{n}::wrong", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    wrong.register_fake(lambda x: x.new_empty(9))
    check, x = t.library.opcheck, t.ones(3)
    return check(good, (x.clone().requires_grad_(),)), [error(call)[:12] for call in (
        lambda: check(changes, (x,), test_utils="test_schema"), lambda: check(wrong, (x,), test_utils="test_faketensor"),
        lambda: check(good, (x,), test_utils="no_such_test"), lambda: check(3, (x,)))]


@pytest.mark.parametrize("call", [lambda: mt.library.Library("aten", "IMPL").impl("sin", abs, "CPU"),
                                  lambda: mt.library.triton_op("a::b", abs, mutates_args=())])
def test_what_is_not_offered_refuses(call: Any) -> None:
    with pytest.raises(NotImplementedError):
        call()
