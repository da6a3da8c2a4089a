"""torch._functorch.autograd_function: parts of the rules for custom functions in a level, by their names there."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindtorch_v2 as torch

VmapInfo = torch._transforms.VmapInfo


class WrappedCtx:
    """A context that stands before another: what it does not have itself is read from, and set on, that one."""

    _pt_reserved_attrs: tuple[str, ...] = ("_pt_reserved_attrs", "_pt_inner_ctx")

    def __init__(self, ctx: Any) -> None:
        if not isinstance(ctx, WrappedCtx):
            for name in type(self)._pt_reserved_attrs:
                if hasattr(ctx, name):
                    raise RuntimeError(
                        f"PyTorch reserves the {type(self)._pt_reserved_attrs} field on ctx. Please name your fields on ctx "
                        "something else to avoid name collision.")
        self._pt_inner_ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pt_inner_ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._pt_reserved_attrs:
            self.__dict__[name] = value
        else:
            setattr(self._pt_inner_ctx, name, value)


class CtxWithSavedTensors(WrappedCtx):
    """A context with other saved tensors."""

    _pt_reserved_attrs = ("_pt_new_saved_tensors", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx: Any, new_saved_tensors: Sequence[Any]) -> None:
        super().__init__(ctx)
        self._pt_new_saved_tensors = new_saved_tensors

    @property
    def saved_tensors(self) -> Sequence[Any]:
        """Those it was made with."""
        return self._pt_new_saved_tensors


def has_overridden_vmap_rule(autograd_function: Any) -> bool:
    """Whether a custom function brings a rule for a batch of its own."""
    return autograd_function.vmap is not torch.autograd.Function.vmap


def validate_vmap_returns_tuple_of_two_elements(result: Any) -> None:
    """Refuses what is not (output, out_dims)."""
    begins = ("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with "
              "the output. ")
    if not isinstance(result, tuple):
        raise RuntimeError(f"{begins}Got a {type(result)} instead")
    if len(result) != 2:
        raise RuntimeError(f"{begins}Got {len(result)} returns instead")


def reductify(grad_input: Any, grad_input_bdim: Any, input_bdim: Any, batch_size: int,
              target_shape_without_bdim_to_reduce_to: Any = None) -> tuple[Any, ...]:
    """Gradients with the batch where the inputs have it; those of inputs without a batch are summed over it."""
    grads = grad_input if isinstance(grad_input, tuple) else (grad_input,)
    places = grad_input_bdim if isinstance(grad_input_bdim, tuple) else (grad_input_bdim,)
    wanted = input_bdim if isinstance(input_bdim, tuple) else (input_bdim,)
    shapes = target_shape_without_bdim_to_reduce_to or len(grads) * (None,)
    return tuple(reductify_leaf(g, place, want, batch_size, shape)
                 for g, place, want, shape in zip(grads, places, wanted, shapes, strict=True))


def reductify_leaf(grad_input: Any, grad_input_bdim: int | None, input_bdim: int | None, batch_size: int,
                   target_shape_without_bdim_to_reduce_to: Any = None) -> Any:
    """One gradient of reductify; of a given shape per sample, each sample's is summed to it."""
    if grad_input is None or grad_input_bdim is None and input_bdim is None:
        return grad_input
    if input_bdim is None:
        return grad_input.sum(grad_input_bdim)
    if grad_input_bdim is None:
        grad_input = grad_input.unsqueeze(input_bdim)
        shape = list(grad_input.shape)
        shape[input_bdim] = batch_size
        grad_input, grad_input_bdim = grad_input.expand(shape), input_bdim
    if target_shape_without_bdim_to_reduce_to is not None:
        return torch.vmap(torch.Tensor.sum_to_size, in_dims=(grad_input_bdim, None), out_dims=input_bdim)(
            grad_input, target_shape_without_bdim_to_reduce_to)
    return grad_input if grad_input_bdim == input_bdim else grad_input.movedim(grad_input_bdim, input_bdim)

torch._named.complete(__name__)
