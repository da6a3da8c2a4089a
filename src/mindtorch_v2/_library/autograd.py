"""The gradient of an op that a program defined, as a custom function of autograd."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._library.operator import _AutoDispatchBelowAutograd

_pytree = torch.utils._pytree


@dataclass
class Info:
    """What a program said of the gradient: backward(ctx, *grads), and setup_context(ctx, inputs, output)."""
    _backward_fn: Callable[..., Any] | None
    _setup_context_fn: Callable[..., Any] | None


class _Call:
    """One call: how the arguments and the results are made of the tensors that autograd sees."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.out_spec: Any = None


def make_autograd_impl(operator: Any, info: Any) -> Callable[..., Any]:
    """The kernel for Autograd: records the call where an argument needs a gradient. `info` is read when it is needed."""
    lists = any(p.kind.endswith("[]") and p.kind.startswith("Tensor") for p in operator.params)
    count, names = operator.positional, [p.name for p in operator.params[operator.positional:]]
    shown = f"{operator.space}.{operator.name}.{operator.overload}"

    class Generated(torch.autograd.Function):
        @staticmethod
        def forward(call: Any, *flat: Any) -> Any:
            args = _pytree.tree_unflatten(list(flat), call.spec)
            with _AutoDispatchBelowAutograd():
                result = operator.run_below(args)
            outputs, call.out_spec = _pytree.tree_flatten(result)
            return tuple(outputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            call, *flat = inputs
            ctx._call = call
            if info._setup_context_fn is None:
                return
            args = _pytree.tree_unflatten(flat, call.spec)
            given = {"ctx": ctx, "inputs": tuple(args[:count]), "output": _pytree.tree_unflatten(list(output), call.out_spec)}
            if names:
                given["keyword_only_inputs"] = dict(zip(names, args[count:]))
            needed = ctx.needs_input_grad
            ctx.needs_input_grad = _needed(needed, call, count)
            try:
                info._setup_context_fn(**given)
            finally:
                ctx.needs_input_grad = needed

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if info._backward_fn is None:
                raise RuntimeError(f"Trying to backward through {shown} but no autograd formula was registered. "
                                   "Please use register_autograd to add one.")
            call, needed = ctx._call, ctx.needs_input_grad
            ctx.needs_input_grad = _needed(needed, call, count)
            given = _pytree.tree_unflatten(list(grads), call.out_spec)
            try:
                found = info._backward_fn(ctx, *(given if isinstance(given, tuple) and operator.several else (given,)))
            finally:
                ctx.needs_input_grad = needed
            whole = (*(found if isinstance(found, tuple) else (found,)), *(None for _ in names))
            return (None, *(_flattened(whole, call.spec) if lists else whole))

        @staticmethod
        def vmap(info_: Any, in_dims: tuple, call: Any, *flat: Any) -> Any:
            return _mapped(operator, call, info_, in_dims[1:], flat)

    stem = f"GeneratedBackwardFor_{operator.space}_{operator.name}_{operator.overload}"
    Generated.__name__ = Generated.__qualname__ = stem
    Generated._backward_cls.__name__ = stem + "Backward"

    def kernel(*args: Any, **named: Any) -> Any:
        whole = [*args, *(named[name] for name in names)]
        flat, spec = _pytree.tree_flatten(whole)
        if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in flat):
            with _AutoDispatchBelowAutograd():
                return operator.run_below(whole)
        call = _Call(spec)
        outputs = Generated.apply(call, *flat)
        return _pytree.tree_unflatten(list(outputs), call.out_spec)
    return kernel


def _needed(flags: tuple, call: Any, count: int) -> tuple:
    """needs_input_grad in the structure of the arguments."""
    return tuple(_pytree.tree_unflatten(list(flags[1:]), call.spec)[:count])


def _flattened(grads: tuple, spec: Any) -> list[Any]:
    """What backward returned, tensor by tensor; a None for a list is one for each of its tensors."""
    children = spec.children()
    whole = [[None] * c.num_leaves if g is None and not c.is_leaf() else g for g, c in zip(grads, children)]
    flat, found = _pytree.tree_flatten((*whole, *grads[len(whole):]), is_leaf=lambda x: x is None)
    if found != _pytree.tree_structure(tuple(_pytree.tree_unflatten([0] * spec.num_leaves, spec))):
        # torch counts a value of its own among the inputs
        inputs = _pytree.tree_unflatten([0] * spec.num_leaves, spec)
        shown = _pytree.tree_structure((*grads, None)), _pytree.tree_structure((*inputs, 0))
        raise RuntimeError("Expected the return from backward to be of the same structure as the inputs. Got: "
                           f"{shown[0]} (return from backward), {shown[1]} (inputs)")
    return flat


def _mapped(operator: Any, call: Any, info: Any, dims: tuple, flat: tuple) -> Any:
    """The recorded call for all samples of a level of vmap: by the function that the program gave, else one by one."""
    count = operator.positional
    args, places = _pytree.tree_unflatten(list(flat), call.spec), _pytree.tree_unflatten(list(dims), call.spec)
    if operator.vmap is not None:
        named = dict(zip([p.name for p in operator.params[count:]], args[count:]))
        output, out_dims = operator.vmap(info, tuple(places[:count]), *args[:count], **named)
        leaves, call.out_spec = _pytree.tree_flatten(output)
        return tuple(leaves), tuple(_pytree._broadcast_to_and_flatten(out_dims, call.out_spec) or ())
    rows = []
    for i in range(info.batch_size):
        one = [x if d is None else x.select(d, i) for x, d in zip(flat, dims)]
        leaves, call.out_spec = _pytree.tree_flatten(operator.op(*_pytree.tree_unflatten(one, call.spec)[:count], **dict(zip(
            [p.name for p in operator.params[count:]], _pytree.tree_unflatten(one, call.spec)[count:]))))
        rows.append(leaves)
    return tuple(torch.stack(column) for column in zip(*rows, strict=True)), (0,) * len(rows[0])
