"""torch.library.opcheck: whether an op does what its schema, its fake implementation and its gradient say."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._library.operator import operators

_pytree = torch.utils._pytree


class OpCheckError(Exception):
    """An op does not do what was said of it."""


def _copied(tree: Any) -> Any:
    def copy(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
    return _pytree.tree_map(copy, tree)


def _tensors(tree: Any) -> list[Any]:
    return [x for x in _pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _schema(op: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Arguments change, and results share their memory, only where the schema says so."""
    args, kwargs = _copied((args, kwargs))
    before = _copied((args, kwargs))
    results = _tensors(op(*args, **kwargs))
    places = {x.untyped_storage()._cdata for x in results if x.layout == torch.strided}
    arguments = op._schema.arguments
    given = [*args, *(kwargs[a.name] for a in arguments[len(args):] if a.name in kwargs)]
    old = [*before[0], *(before[1][a.name] for a in arguments[len(args):] if a.name in kwargs)]
    named = [*arguments[:len(args)], *(a for a in arguments[len(args):] if a.name in kwargs)]
    for argument, now, then in zip(named, given, old):
        for x, y in zip(_tensors(now), _tensors(then)):
            if not argument.is_write and not torch.equal(x.detach().nan_to_num(), y.detach().nan_to_num()):
                raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was mutated")
            if argument.alias_info is None and x.untyped_storage()._cdata in places:
                raise RuntimeError(f"Argument {argument.name} is not defined to alias output but was aliasing")


def _autograd_registration(op: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """An op of tensors that need gradients has a kernel of autograd, or is made of ops that have."""
    if not any(x.requires_grad for x in _tensors((args, kwargs))):
        return
    known = operators.get(op.name())
    if known is None or {"Autograd", "AutogradCPU", "CompositeImplicitAutograd"} & set(known.kernels):
        return
    raise AssertionError(
        f"Operator {op.name()} does not have an autograd kernel registered, but an output requires grad. If your "
        "operator is differentiable, register its gradient with torch.library.register_autograd; if not, register "
        "torch.library.fallthrough_kernel for Autograd.")


def _faketensor(op: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """Results on fake tensors look like those on real ones."""
    args, kwargs = _copied((args, kwargs))
    with torch._subclasses.fake_tensor.FakeTensorMode() as mode:
        fakes = _pytree.tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, (args, kwargs))
        shown = _tensors(op(*fakes[0], **fakes[1]))
    real = _tensors(op(*args, **kwargs))
    if len(shown) != len(real):
        raise AssertionError(f"the fake implementation gave {len(shown)} tensors, the op {len(real)}")
    for x, y in zip(shown, real):
        for what in ("shape", "dtype", "device"):
            if getattr(x, what) != getattr(y, what):
                raise torch._subclasses.fake_tensor.MetadataMismatchError(
                    f"Real tensor propagation found a metadata mismatch between fake tensor {x} and real tensor {y}: "
                    f"{what} {getattr(x, what)} and {getattr(y, what)}")


def _aot_dispatch(op: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    """A graph recorded of the op gives its results, and where they are differentiated there are gradients."""
    def run(f: Callable[..., Any]) -> list[Any]:
        given, named = _copied((args, kwargs))
        results = _tensors(f(*given, **named))
        live = [x for x in results if x.requires_grad]
        if live:
            sum(x.abs().sum() if x.is_complex() else x.sum() for x in live).backward()
        return [*(x.detach() for x in results), *(x.grad for x in _tensors((given, named)) if x.requires_grad)]
    expected = run(op)
    given, named = _copied((args, kwargs))
    with torch.no_grad():
        graph = torch.fx.experimental.proxy_tensor.make_fx(lambda *a: op(*a, **named), tracing_mode="fake")(*given)
        found = _tensors(graph(*_copied(args)))
    torch.testing.assert_close(found, expected[:len(found)], equal_nan=True)


_CHECKS = {"test_schema": _schema, "test_autograd_registration": _autograd_registration, "test_faketensor": _faketensor,
           "test_aot_dispatch_dynamic": _aot_dispatch}


def opcheck(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *,
            test_utils: str | Sequence[str] = tuple(_CHECKS), raise_exception: bool = True, atol: float | None = None,
            rtol: float | None = None) -> dict[str, Any]:
    """Runs the checks on one call; gives "SUCCESS" or the error for each."""
    op = getattr(op, "_opoverload", op)
    if isinstance(op, torch._ops.OpOverloadPacket):
        op = getattr(op, op.overloads()[0])
    if not isinstance(op, torch._ops.OpOverload):
        raise ValueError("opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. "
                         f"torch.ops.aten.sin.default, got {type(op)}")
    if isinstance(test_utils, str) and test_utils not in ("ALL", *_CHECKS):
        raise ValueError(f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of "
                         f"{tuple(_CHECKS)} but it was not")
    chosen = tuple(_CHECKS) if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not isinstance(args, tuple):
        raise ValueError(f"opcheck(op, args, ...): expected args to be tuple, got {type(args)}")
    found: dict[str, Any] = {}
    for name in chosen:
        try:
            _CHECKS[name](op, args, kwargs or {})
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)") from error
            found[name] = error
    return found
