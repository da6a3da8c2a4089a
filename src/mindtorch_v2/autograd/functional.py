"""Derivatives of functions: vjp, jvp, jacobian, hessian, hvp, vhp."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2._C import TensorBase, _op_named
from mindtorch_v2.autograd.engine import grad
from mindtorch_v2.autograd.modes import enable_grad


def _as_tuple(values: Any, name: str) -> tuple[bool, tuple]:
    if isinstance(values, TensorBase):
        return False, (values,)
    if not isinstance(values, (tuple, list)) or not all(isinstance(v, TensorBase) for v in values):
        raise TypeError(f"The {name} given must be either a Tensor or a tuple of Tensors, got {type(values).__name__}")
    return True, tuple(values)


def _prepare(inputs: tuple, create_graph: bool) -> tuple:
    """Inputs to differentiate by: connected to the caller's graph only when asked."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _finish(values: tuple, is_tuple: bool, keep: bool) -> Any:
    values = values if keep else tuple(v.detach() for v in values)
    return values if is_tuple else values[0]


def _gradients(outputs: tuple, inputs: tuple, starts: tuple, create_graph: bool, strict: bool) -> tuple:
    used = [(o, s) for o, s in zip(outputs, starts) if o.requires_grad]
    if not used:
        if strict:
            raise RuntimeError("The output of the user-provided function is independent of the input. "
                               "This is not allowed in strict mode.")
        return tuple(_op_named("zeros_like")(x) for x in inputs)
    found = grad([o for o, _ in used], inputs, [s for _, s in used], create_graph=create_graph, retain_graph=True,
                 allow_unused=True)
    if strict and any(g is None for g in found):
        raise RuntimeError("The output of the user-provided function is independent of an input. "
                           "This is not allowed in strict mode.")
    return tuple(_op_named("zeros_like")(x) if g is None else g for g, x in zip(found, inputs))


def vjp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), vᵀ · Jacobian)."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs")
        prepared = _prepare(given, create_graph)
        outputs_tuple, outputs = _as_tuple(func(*prepared), "outputs of the user-provided function")
        if v is None:
            if len(outputs) != 1 or outputs[0].numel() != 1:
                raise RuntimeError("The vector v can only be None if the user-provided function returns a single "
                                   "Tensor with a single element.")
            starts: tuple = (_op_named("ones_like")(outputs[0]),)
        else:
            starts = _as_tuple(v, "v")[1]
        found = _gradients(outputs, prepared, starts, create_graph, strict)
    return _finish(outputs, outputs_tuple, create_graph), _finish(found, is_tuple, create_graph)


def jvp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), Jacobian · v), by differentiating the vjp."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs")
        prepared = _prepare(given, create_graph)
        directions = _as_tuple(v, "v")[1] if v is not None else tuple(_op_named("ones_like")(x) for x in prepared)
        outputs_tuple, outputs = _as_tuple(func(*prepared), "outputs of the user-provided function")
        starts = tuple(_op_named("zeros_like")(o).requires_grad_() for o in outputs)
        first = _gradients(outputs, prepared, starts, True, strict)
        found = grad([f for f in first if f.requires_grad], starts,
                     [d for d, f in zip(directions, first) if f.requires_grad], create_graph=create_graph,
                     allow_unused=True) if any(f.requires_grad for f in first) else (None,) * len(starts)
        found = tuple(_op_named("zeros_like")(o) if g is None else g for g, o in zip(found, outputs))
    return _finish(outputs, outputs_tuple, create_graph), _finish(found, outputs_tuple, create_graph)


def jacobian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """The Jacobian of func at inputs, shaped (*output shape, *input shape)."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs")
        prepared = _prepare(given, create_graph)
        outputs_tuple, outputs = _as_tuple(func(*prepared), "outputs of the user-provided function")
        blocks = []
        for out in outputs:
            rows: list[list[Any]] = [[] for _ in prepared]
            for i in range(out.numel()):
                start = _op_named("zeros")(out.numel(), dtype=out.dtype, device=out.device)
                start[i] = 1
                found = _gradients((out,), prepared, (start.view(out.shape),), create_graph, strict)
                for row, g in zip(rows, found):
                    row.append(g)
            blocks.append(tuple(_op_named("stack")(row).view(tuple(out.shape) + tuple(x.shape)) if row else
                                out.new_zeros(tuple(out.shape) + tuple(x.shape)) for row, x in zip(rows, prepared)))
    shaped = tuple(_finish(b, is_tuple, create_graph) for b in blocks)
    return shaped if outputs_tuple else shaped[0]


def _scalar(func: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        out = func(*args)
        if not isinstance(out, TensorBase) or out.numel() != 1:
            raise RuntimeError("The function given to hessian, hvp or vhp should return a single Tensor with a "
                               "single element")
        return out.reshape(())
    return checked


def hessian(func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The matrix of second derivatives of a scalar function."""
    is_tuple, given = _as_tuple(inputs, "inputs")

    def first(*args: Any) -> Any:
        found = jacobian(_scalar(func), args, create_graph=True)
        return found if is_tuple else found[0]

    found = jacobian(first, given, create_graph=create_graph, strict=strict)
    return found if is_tuple else found[0]


def vhp(func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """(func(inputs), vᵀ · Hessian)."""
    with enable_grad():
        is_tuple, given = _as_tuple(inputs, "inputs")
        prepared = _prepare(given, create_graph)
        out = _scalar(func)(*prepared)
        first = _gradients((out,), prepared, (_op_named("ones_like")(out),), True, strict)
        starts = _as_tuple(v, "v")[1] if v is not None else tuple(_op_named("ones_like")(x) for x in prepared)
        found = _gradients(first, prepared, starts, create_graph, strict)
    return _finish((out,), False, create_graph), _finish(found, is_tuple, create_graph)


hvp = vhp   # the Hessian of a twice differentiable function is symmetric
