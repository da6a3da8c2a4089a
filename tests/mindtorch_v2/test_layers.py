"""What stands between an op and its kernel: function modes, dispatch modes, tensor classes, transforms, fake tensors."""

from __future__ import annotations

import importlib
import operator
import threading
from typing import Any

import pytest
import torch
from twin import error, outcome, same, twin

import mindtorch_v2 as mt
from mindtorch_v2 import _C
from mindtorch_v2._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode
from mindtorch_v2.autograd import forward_ad


def log_mode(t: Any) -> Any:
    class Log(t.utils._python_dispatch.TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            self.seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))
    return Log()


def wrapper_class(t: Any) -> Any:
    class Wrapper(t.Tensor):
        __torch_function__ = t._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls: type, inner: Any) -> Any:
            return t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            def bare(x: Any) -> Any:
                return x.inner if isinstance(x, Wrapper) else x
            result = func(*[bare(x) for x in args], **(kwargs or {}))
            return Wrapper(result) if isinstance(result, t.Tensor) else result
    return Wrapper


@twin
def test_a_dispatch_mode_runs_below_autograd(t: Any) -> Any:
    x, w, log = t.ones(2, 3, requires_grad=True), t.full((3, 3), 2.0, requires_grad=True), log_mode(t)
    with log:
        y = (x @ w).relu() + 1
        y.mul_(2)
        y[0].exp().sum().backward()
    inside = [name for name in log.seen if name in ("relu", "add", "mul_", "exp", "sum")]
    return x.grad, w.grad, inside, y.requires_grad


@twin
def test_a_mode_may_change_what_an_op_gives(t: Any) -> Any:
    class Twice(t.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            result = func(*args, **(kwargs or {}))
            return result * 2 if func.overloadpacket.__name__ == "sin" else result
    x = t.tensor([1.0, 2.0], requires_grad=True)
    with Twice():
        y = x.sin()
    y.sum().backward()
    return y.detach(), x.grad


@twin
def test_a_tensor_class_computes_for_itself(t: Any) -> Any:
    kind = wrapper_class(t)
    x = kind(t.arange(3.0)).requires_grad_()
    y = (x.exp() * x + x[1]).sum()
    y.backward()
    return type(y) is kind, y.inner.detach(), type(x.grad) is kind, x.grad.inner


@twin
def test_a_function_mode_sees_indexing(t: Any) -> Any:
    class See(t.overrides.TorchFunctionMode):
        names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            self.names.append(func.__name__)
            return func(*args, **(kwargs or {}))
    with See() as mode:
        t.ones(2)[0].neg()
    return [name for name in mode.names if name in ("__getitem__", "neg")]


def test_layers_belong_to_a_thread() -> None:
    log, other = log_mode(mt), []
    with log:
        thread = threading.Thread(target=lambda: other.append(mt.ones(2).neg()))
        thread.start()
        thread.join()
    assert "neg" not in log.seen and len(other) == 1 and not _C._dispatch_mode_stack()


def test_an_exception_leaves_no_layer_behind() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError
    for transform in (mt.vmap(broken), lambda x: mt.func.jvp(broken, (x,), (x,)), mt.func.grad(broken)):
        with pytest.raises(ZeroDivisionError):
            transform(mt.ones(2))
    assert not _C._transforms()
    with pytest.raises(RuntimeError):
        mt.vmap(lambda x: x @ mt.ones(7))(mt.ones(2, 3))
    assert not _C._transforms()


def test_memory_that_a_wrapper_does_not_have_is_not_read() -> None:
    bare = _C._make_wrapper(type("Bare", (mt.Tensor,), {}), (1 << 20,), None, mt.float32, "cpu")
    for read in (lambda: bare.tolist(), lambda: bare.numpy(), lambda: mt.Tensor.add(bare, 1), lambda: bare[7].item(),
                 lambda: bare.clone(), lambda: mt.ones(1 << 20).copy_(bare)):
        with pytest.raises(RuntimeError):
            read()


@pytest.mark.parametrize("call", [
    lambda: _C._call_bound(mt.add, mt.mul.overloads[0], ()), lambda: _C._call_bound(mt.add, mt.add.overloads[0], (1,)),
    lambda: _C._call_bound(mt.add, mt.add.overloads[0], ("a", object(), [])),
    lambda: _C._call_recorded(mt.add, mt.add.overloads[0], (mt.ones(1), mt.ones(1), 1), lambda: 3),
    lambda: _C._pop_transform(([], 3)), lambda: _C._pop_transform((1, 2)), lambda: _C._pop_transform((["x"], -1)),
    lambda: _C._make_wrapper(mt.Tensor, (-1,), None, mt.float32, "cpu"), lambda: _C._make_wrapper(int, (), None, None, 0),
    lambda: _C._set_tangent(mt.ones(2), "level", mt.ones(3)), lambda: _C._set_tangent(mt.ones(2), [], mt.ones(2)),
])  # fmt: skip
def test_what_transforms_call_survives_any_argument(call: Any) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError, OverflowError)):
        call()


# ---- forward mode -----------------------------------------------------------------------------------------------------
@twin
def test_dual_numbers(t: Any) -> Any:
    fw = t.autograd.forward_ad
    x = t.tensor([1.0, 2.0], requires_grad=True)
    with fw.dual_level():
        dual = fw.make_dual(x, t.tensor([1.0, -1.0]))
        y = (dual * dual).sin()
        y[0] *= 3
        primal, tangent = fw.unpack_dual(y)
    tangent.sum().backward()
    return primal.detach(), tangent.detach(), x.grad, fw.unpack_dual(y).tangent


@twin
def test_dual_numbers_refuse(t: Any) -> Any:
    fw, x = t.autograd.forward_ad, t.ones(2)
    found = [error(lambda: fw.make_dual(x, x)), error(fw.exit_dual_level)]
    with fw.dual_level():
        found += [error(fw.enter_dual_level), error(lambda: fw.make_dual(t.ones(2, dtype=t.int64), x))]
    return found


def test_tangents_end_with_their_level() -> None:
    x = mt.ones(2)
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, mt.ones(2)).exp()
    assert not _C._has_tangents(y) and not _C._has_tangents(x)


def test_a_dual_level_belongs_to_its_thread() -> None:
    found: list[Any] = []

    def other() -> None:
        with forward_ad.dual_level():
            x = forward_ad.make_dual(mt.ones(2), mt.full((2,), 3.0))
            found.append(forward_ad.unpack_dual(x * 2).tangent.tolist())
    with forward_ad.dual_level():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert forward_ad.unpack_dual(forward_ad.make_dual(mt.ones(1), mt.ones(1)) * 5).tangent.tolist() == [5.0]
    assert found == [[6.0, 6.0]]


def test_transforms_on_an_npu(npu: Any) -> None:
    def loss(w: Any, x: Any) -> Any:
        return (x @ w).tanh().softmax(0).log().sum()
    w, x = mt.randn(3, 4), mt.randn(5, 3)
    for f in (mt.vmap(mt.func.grad(loss), in_dims=(None, 0)), mt.func.jacfwd(mt.vmap(loss, in_dims=(None, 0)))):
        assert mt.allclose(f(w.npu(), x.npu()).cpu(), f(w, x), atol=1e-5)


# ---- vmap ---------------------------------------------------------------------------------------------------------------
@twin
def test_random_numbers_of_a_batch(t: Any) -> Any:
    x = t.zeros(3, 4)
    shapes = [t.vmap(lambda z: z + t.rand(4), randomness=r)(x) for r in ("same", "different")]
    same = bool((shapes[0][0] == shapes[0][1]).all()), bool((shapes[1][0] == shapes[1][1]).all())
    return same, [tuple(s.shape) for s in shapes], error(lambda: t.vmap(lambda z: z + t.rand(4))(x))


@twin
def test_what_a_batch_refuses(t: Any) -> Any:
    x = t.ones(2, 3)
    bodies = (lambda z: z if z.sum() > 0 else -z, lambda z: z.sum().item(), lambda z: t.zeros(3).add_(z), lambda z: 1)
    return [error(lambda b=body: t.vmap(b)(x)) for body in bodies], error(lambda: t.vmap(lambda z: z, chunk_size=0)(x))


@twin
def test_chunks_and_ensembles(t: Any) -> Any:
    x = t.arange(12.0).reshape(4, 3)
    models = [t.nn.Linear(3, 2) for _ in range(3)]
    with t.no_grad():
        for i, m in enumerate(models):
            m.weight.fill_(i + 1.0)
            m.bias.fill_(-i)
    params, buffers = t.func.stack_module_state(models)
    outputs = t.vmap(lambda p, b, z: t.func.functional_call(models[0], (p, b), (z,)), in_dims=(0, 0, None))(params, buffers, x)
    return t.vmap(lambda z: z.sin().sum(), chunk_size=3)(x), outputs.detach()


@twin
def test_gradients_of_samples_through_in_place_changes(t: Any) -> Any:
    def f(z: Any) -> Any:
        y = z * 2
        y[0] *= 3
        y.mul_(z)
        return y.sum()
    return t.vmap(t.func.grad(f))(t.tensor([[1.0, 2.0], [3.0, 4.0]]))


@twin
def test_nesting_in_any_order(t: Any) -> Any:
    f, x = t.func, t.tensor([[0.3, -1.2, 0.7], [0.1, 2.0, -0.4]])

    def g(z: Any) -> Any:
        return (z.tanh() * z.roll(1, 0)).sum()
    return (f.vmap(f.jacfwd(f.grad(g)))(x), f.jacfwd(f.vmap(f.grad(g)))(x), f.grad(lambda z: f.vmap(f.grad(g))(z).pow(2).sum())(x),
            f.jvp(f.jacrev(g), (x[0],), (x[1],)), f.vmap(lambda v: f.jvp(f.grad(g), (x[0],), (v,))[1])(x),
            f.jacrev(f.jacfwd(g))(x[1]), f.hessian(lambda z: f.vmap(g)(z).sum())(x), f.linearize(g, x[0])[1](x[1]))


# ---- fake tensors -------------------------------------------------------------------------------------------------------
def test_fake_tensors_have_shapes_and_no_values() -> None:
    with FakeTensorMode() as mode:
        net = mt.nn.Sequential(mt.nn.Conv2d(3, 8, 3), mt.nn.BatchNorm2d(8), mt.nn.ReLU(), mt.nn.Flatten(), mt.nn.Linear(392, 5))
        y = net(mt.randn(2, 3, 9, 9))
        on_npu = mt.empty(2, 3, device="npu") + 1
        corner = mt.triu_indices(3, 3)
    assert type(corner) is FakeTensor and corner.shape == (2, 6)
    assert type(y) is FakeTensor and y.shape == (2, 5) and y.requires_grad and on_npu.device == mt.device("npu:0")
    x = mode.from_tensor(mt.randn(2, 2, requires_grad=True))
    (x * 2).sum().backward()
    assert x.grad.shape == (2, 2) and x.dtype == mt.float32
    for read in (bool, float, lambda v: v.item(), lambda v: v.tolist()):
        with pytest.raises(DataDependentOutputException):
            read(x.sum())
    with mode, pytest.raises(AssertionError, match="convert all Tensors to FakeTensors"):
        mt.Tensor.add(x, mt.from_numpy(torch.ones(2).numpy()))
    with mode:
        assert mt.tensor(3.0).item() == 3.0 and mt.linspace(mt.tensor(0.0), mt.tensor(1.0), 3).shape == (3,)
        assert mt.histogram(mt.rand(4), 3)[1].shape == (4,)


def test_operators_of_a_tensor_and_a_subclass_keep_their_order() -> None:
    """Python asks the class of the right operand first, where it is a subclass; the function that is overridden is still left op right."""
    def body(t: Any) -> list[Any]:
        seen = []

        class Seeing(t.Tensor):
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append([type(a).__name__ for a in args])
                return super().__torch_function__(func, types, args, kwargs)
        plain, x = t.full((2,), 5), t.full((2,), 3).as_subclass(Seeing)
        for f in (operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor, operator.mod, operator.pow):
            f(plain, x), f(x, plain)
        both = list(seen)
        return [both, (plain - x).tolist(), (2 - x).tolist(), (2 * x).tolist()]
    same(outcome(mt, body), outcome(torch, body))


def test_ops_that_make_tensors_arrive_as_themselves() -> None:
    """Composites that are one op of ATen: a mode sees that op, as in torch, and not the ops of its body."""
    def body(t: Any) -> list[str]:
        mode = importlib.import_module(t.__name__ + ".utils._python_dispatch").TorchDispatchMode
        seen = []

        class Seeing(mode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))
        x = t.ones(2, 3, requires_grad=True)
        with Seeing():
            x.new_zeros(3), x.new_full((2,), 1.0), x.new_empty((2,)), x.new_ones((2,)), x.new_empty_strided((2,), (1,))
            t.arange(3), t.eye(2), t.linspace(0, 1, 3), t.full_like(x, 1), t.rand(2), t.randn_like(x), t.randperm(3)
            t.randint(3, (2,)), t.scalar_tensor(1.0)
            (x[0] + x[:, 1:].sum()).sum().backward()
        return [name for name in seen if "detach" not in name]
    same(outcome(mt, body), outcome(torch, body))


@pytest.mark.parametrize("lib", [mt, torch], ids=["here", "torch"])
def test_an_op_that_looks_at_values_arrives_as_one(lib: Any) -> None:
    seen = []

    class Names(lib.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))
    with Names():
        lib.linalg.solve(lib.eye(2), lib.ones(2))
        lib.equal(lib.ones(2), lib.ones(2))
        lib.allclose(lib.ones(2), lib.ones(2))
    assert {"aten._linalg_check_errors.default", "aten.equal.default", "aten.allclose.default"} <= set(seen)
    assert "aten._local_scalar_dense.default" not in seen
    with pytest.raises(lib.linalg.LinAlgError, match="The solver failed because the input matrix is singular"), Names():
        lib.linalg.solve(lib.zeros(2, 2), lib.ones(2))


@twin
def test_numbers_in_tensors_are_read_by_modes_and_classes(t: Any) -> Any:
    seen: list[str] = []

    class Names(t.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f"mode {func}")
            return func(*args, **(kwargs or {}))

    class Wrapped(t.Tensor):
        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(f"class {func}")
            found = func(*(x.inner if isinstance(x, cls) else x for x in args), **(kwargs or {}))
            return cls(found) if isinstance(found, t.Tensor) else found
    x = t.ones(1)
    y, n = Wrapped(x * 3), Wrapped((x * 2).long())
    with Names():
        plain = x.item(), float(x), int(x), bool(x), complex(x), t.ops.aten._local_scalar_dense(x)
    return plain, (y.item(), float(y), int(y), bool(y > 2), complex(y), [1, 2, 3][n], t.zeros(3)[n.sum():].shape), seen


@twin
def test_hardsigmoid_has_one_derivative(t: Any) -> Any:
    x = t.tensor([0.5, 4.0], requires_grad=True)
    slope, = t.autograd.grad(t.nn.functional.hardsigmoid(x).sum(), x, create_graph=True)
    return slope.detach(), error(lambda: slope.sum().backward(), 100)
