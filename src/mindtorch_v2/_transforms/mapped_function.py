"""The rule of vmap for a custom function that asks for one (generate_vmap_rule): the function over a whole batch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindtorch_v2._C import TensorBase
from mindtorch_v2.autograd.function import Function


class _SampleContext:
    """The context that the user's functions see inside the level. What they keep for later lies in the context of the
    batch; all else they set on it stays here."""

    def __init__(self, outer: Any) -> None:
        self._outer = outer
        self.saved_tensors: tuple = ()
        self.shapes: list[Any] = []
        self.needs_input_grad = outer.needs_input_grad

    def save_for_backward(self, *tensors: Any) -> None:
        self.for_backward = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.for_forward = tensors

    def mark_dirty(self, *args: Any) -> None:
        raise RuntimeError("NYI: mark_dirty of an autograd.Function with generate_vmap_rule=True")

    def mark_non_differentiable(self, *args: Any) -> None:
        self.plain = args

    def set_materialize_grads(self, value: bool) -> None:
        self._outer.set_materialize_grads(value)


def mapped_function(function: Any, level: Any, batched: list[bool]) -> Any:
    """A custom function of whole batches that does for every sample what `function` does. Which arguments have the batch is
    fixed; which results have it is known after forward, as `batched_outputs`."""
    def wrapped(values: Any, flags: Any) -> list[Any]:
        return [level.wrap(v, f) if isinstance(v, TensorBase) else v for v, f in zip(values, flags, strict=True)]

    def unwrapped(made: Any) -> tuple[tuple, list[bool]]:
        pairs = [level.unwrap(x) for x in made]
        return tuple(v for v, _ in pairs), [f for _, f in pairs]

    class Mapped(Function):
        generate_vmap_rule = True
        batched_outputs: list[bool] = []

        @staticmethod
        def forward(*args: Any) -> Any:
            made = level._inside(lambda: function.forward(*wrapped(args, batched)))
            several = isinstance(made, tuple)
            values, Mapped.batched_outputs = unwrapped(made if several else (made,))
            return values if several else values[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            several = isinstance(output, tuple)
            outer = output if several else (output,)
            outputs = tuple(wrapped(outer, Mapped.batched_outputs))
            ctx.sample = sample = _SampleContext(ctx)
            given = tuple(wrapped(inputs, batched))
            sample.shapes = [x.shape if isinstance(x, TensorBase) else None for x in given]
            level._inside(lambda: function.setup_context(sample, given, outputs if several else outputs[0]))
            for name, save in (("for_backward", ctx.save_for_backward), ("for_forward", ctx.save_for_forward)):
                values, flags = unwrapped(vars(sample).pop(name, ()))
                setattr(sample, name + "_flags", flags)
                save(*values)
            marked = {id(x) for x in vars(sample).pop("plain", ())}
            ctx.mark_non_differentiable(*(o for o, x in zip(outer, outputs) if id(x) in marked))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            flags = [b and g is not None for g, b in zip(grads, Mapped.batched_outputs, strict=True)]
            made = _run(ctx, "for_backward", function.backward, grads, flags)
            made = made if isinstance(made, tuple) else (made,)
            extra = len(made) - len(batched)
            return tuple(_fitted(*each) for each in zip(made, [*batched, *[False] * extra], [*ctx.sample.shapes, *[None] * extra]))

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            made = _run(ctx, "for_forward", function.jvp, tangents, [b and t is not None for t, b in zip(tangents, batched)])
            several = isinstance(made, tuple)
            found = tuple(_with_batch(x, flag) for x, flag in zip(made if several else (made,), Mapped.batched_outputs))
            return found if several else found[0]

    def _run(ctx: Any, kind: str, body: Callable[..., Any], given: tuple, flags: list[bool]) -> Any:
        sample = ctx.sample
        sample.saved_tensors = tuple(wrapped(ctx.saved_tensors, getattr(sample, kind + "_flags")))
        sample.needs_input_grad = ctx.needs_input_grad
        return level._inside(lambda: body(sample, *wrapped(given, flags)))

    def _with_batch(x: Any, flag: bool) -> Any:
        if not isinstance(x, TensorBase):
            return x
        value, has = level.unwrap(x)
        return value.expand(level.size, *value.shape) if flag and not has else value

    def _fitted(x: Any, flag: bool, shape: Any) -> Any:
        """A gradient, in the shape of the argument; of one that all samples share it is the sum of theirs."""
        if not isinstance(x, TensorBase):
            return x
        if shape is not None and x.shape != shape:               # it was broadcast in a sample
            x = level._inside(lambda: x.sum_to_size(shape))
        value, has = level.unwrap(x)
        if has and not flag:
            return value.sum(0)
        return value.expand(level.size, *value.shape) if flag and not has else value

    Mapped.__name__ = Mapped.__qualname__ = f"Vmapped{function.__name__}"
    Mapped._backward_cls.__name__ = f"Vmapped{function.__name__}Backward"
    return Mapped
