"""torch.func.functionalize: tensors that know what they are views of, and the layer that runs in-place ops out of place."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.table import ops
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl
from mindtorch_v2._transforms.batched import kept_for_backward
from mindtorch_v2.autograd.forward_ad import Level


class Base:
    """What memory would be: a value, and what was written to views of it since."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.generation = 0
        self.written: list[tuple[Any, list[View]]] = []

    def current(self) -> Any:
        """The value with all that was written."""
        for value, views in self.written:
            self.value = _replayed(self.value, value, views)
        self.written.clear()
        return self.value


class View:
    """One step from a base to a view of it."""

    def __init__(self, name: str, slots: tuple, again: Callable[[Any], Any], views: _Ops) -> None:
        self.name, self.slots, self.again, self.views = name, slots, again, views

    def undone(self, base: Any, value: Any) -> Any:
        """The base, with a value in the place of the view."""
        rule = getattr(_Undone, self.name, None)
        if rule is not None:
            return rule(self.views, base, value, *self.slots)
        made = ops.clone(base)
        self.again(made).copy_(value)
        return made


class _Ops:
    """The ops of views, or those that copy what the view would show."""

    def __init__(self, copies: bool) -> None:
        self.copies = copies

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name + "_copy" if self.copies else name)


class _Undone:
    """By the name of a view: (ops of views, base, value, arguments of the view) -> the base with the value in it."""

    view = _unsafe_view = staticmethod(lambda views, base, value, *_: views.view(value, tuple(base.shape)))
    select = staticmethod(lambda views, base, value, *at: ops.select_scatter(base, value, *at))
    slice = staticmethod(lambda views, base, value, *at: ops.slice_scatter(base, value, *at))
    diagonal = staticmethod(lambda views, base, value, *at: ops.diagonal_scatter(base, value, *at))
    as_strided = staticmethod(lambda views, base, value, *at: ops.as_strided_scatter(base, value, *at))
    transpose = staticmethod(lambda views, base, value, *dims: views.transpose(value, *dims))
    t = staticmethod(lambda views, base, value: views.t(value))
    permute = staticmethod(lambda views, base, value, dims: views.permute(value, _inverse(dims)))
    unsqueeze = staticmethod(lambda views, base, value, dim: views.squeeze(value, dim % value.dim()))
    squeeze = staticmethod(lambda views, base, value, *dim: value if value.dim() == base.dim() else
                           views.unsqueeze(value, *dim) if dim and type(dim[0]) is int else
                           views.view(value, tuple(base.shape)))
    detach = alias = staticmethod(lambda views, base, value: value)
    view_as_real = staticmethod(lambda views, base, value: views.view_as_complex(value))
    view_as_complex = staticmethod(lambda views, base, value: views.view_as_real(value))
    _conj = staticmethod(lambda views, base, value: views._conj(value))
    _neg_view = staticmethod(lambda views, base, value: views._neg_view(value))


def _inverse(dims: Any) -> tuple[int, ...]:
    found = [0] * len(dims)
    for place, dim in enumerate(dims):
        found[dim % len(dims)] = place
    return tuple(found)


def _replayed(base: Any, value: Any, views: list[View]) -> Any:
    """The base after a value was written to a view of it."""
    if not views:
        return value
    first, *rest = views
    return first.undone(base, _replayed(first.again(base), value, rest) if rest else value)


class FunctionalTensor(Tensor):
    """A tensor whose memory nothing writes to: a value, and how it follows from a base that others share."""

    __torch_function__: Any = _disabled_torch_function_impl
    value: Any
    level: Functionalize
    base: Base
    views: list[View]
    generation: int

    @property
    def _readable(self) -> bool:
        return self.synced()._readable

    def synced(self) -> Any:
        """The value, after all that was written to its base."""
        current = self.base.current()
        if self.generation != self.base.generation:
            for view in self.views:
                current = view.again(current)
            self.value, self.generation = current, self.base.generation
        return self.value

    def _fresh(self) -> FunctionalTensor:
        return self.level.wrap(self.value, self.base, self.views, self.generation)

    def _as_view(self, shape: Any) -> bool:
        """Whether reshape needs no copy."""
        return self.synced().reshape(shape)._is_view()

    def _of_all_samples(self) -> Any:
        return self.value._of_all_samples()

    def _take_view_(self, view: Any) -> Any:
        self.value, self.base, self.views, self.generation = view.value, view.base, view.views, view.generation
        return super()._take_view_(view)

    def resize_(self, *sizes: Any, memory_format: Any = None) -> FunctionalTensor:
        """Another shape: a view of the same base as far as that has the items, else a base of its own."""
        shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        if math.prod(shape) <= self.numel():
            strides = [math.prod(shape[at + 1:]) for at in range(len(shape))]
            return self._take_view_(self.as_strided(shape, strides, self.storage_offset()))
        if self.views:
            raise RuntimeError("functionalize: a view cannot be made larger than its base")
        return self._take_view_(self.level.wrap(ops.clone(self.synced()).resize_(shape, memory_format=memory_format)))

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        return f"FunctionalTensor(lvl={self.level.depth}, value=\\\n{self.synced()!r})"


def _read(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(self.synced(), name)(*args, **kwargs)


for _name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "__bool__", "data_ptr",
              "untyped_storage"):
    setattr(FunctionalTensor, _name, _read(_name))


class Functionalize(Level):
    """The level of one call: a layer that gives ops without side effects to those outside."""

    is_level, of_a_function = True, False
    differentiated = False

    def __init__(self, without_views: bool) -> None:
        self.without_views, self.views = without_views, _Ops(without_views)
        self.depth = 1 + sum(t.is_level for t in _C._transforms()) + _C._level_count()

    def takes_part(self, args: tuple) -> bool:
        """False: a custom function is what its forward does."""
        return False

    # ---- tensors
    def wrap(self, value: Any, base: Base | None = None, views: list[View] | None = None, generation: int = 0) -> FunctionalTensor:
        made = _C._make_wrapper(FunctionalTensor, value.shape, value.stride(), value.dtype, value.device, False,
                                value.storage_offset())
        self.differentiated = self.differentiated or value.requires_grad
        made.value, made.level, made.views, made.generation = value, self, views or [], generation
        made.base = base or Base(value)
        return made

    def owns(self, x: Any) -> bool:
        return type(x) is FunctionalTensor and x.level is self

    def unwrap(self, x: Any) -> Any:
        return x.synced() if self.owns(x) else x

    def _unwrapped(self, slot: Any) -> Any:
        return tuple(self.unwrap(t) for t in slot) if type(slot) is tuple else self.unwrap(slot)

    def _wrapped(self, result: Any) -> Any:
        if isinstance(result, TensorBase):
            return self.wrap(result)
        if isinstance(result, (tuple, list)):
            made = [self._wrapped(r) for r in result]
            return made if type(result) is list else tuple(made)
        return result

    def _write(self, x: Any, value: Any) -> None:
        """What an op in place does: the value becomes that of x, and of whatever shares its base."""
        if not self.owns(x):
            raise RuntimeError("mutating a non-functional tensor with a functional tensor is not allowed. Please ensure that all "
                               "of your inputs are wrapped inside of a functionalize() call.")
        if value.shape != x.shape and not x.numel() and not x.views:        # an out= that was made for this
            x._take_view_(self.wrap(value, x.base))
        if value.shape != x.shape:
            raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(value.shape)}")
        x.value = value if value.dtype == x.dtype else ops._to_copy(value, dtype=x.dtype)
        x.base.written.append((x.value, x.views))
        x.base.generation += 1
        x.synced()

    def _overwrite(self, x: Any, made: Any) -> Any:
        """x, after an op in place that is made of others."""
        if made.requires_grad or not self.owns(x) or made.shape != x.shape:
            return x.copy_(made)
        self._write(x, self.unwrap(made))
        return x

    # ---- the layer
    def interpose(self, op: Any, row: Any, slots: tuple, out: Any) -> Any:
        tensors = [t for s in slots for t in (s if type(s) is tuple else (s,)) if isinstance(t, TensorBase)]
        outs = out if isinstance(out, (tuple, list)) else (out,)
        if not any(self.owns(t) for t in (*tensors, *outs)) and (tensors or row.is_composite):
            return NotImplemented
        if row.batching in batching.AS_MEMORY_ALLOWS:           # a view, or the tensor itself, or a copy
            return self._inside(lambda: row.batching.body(*slots))
        if row.is_composite and not row.is_view:
            if op.inplace_of is not None:
                return self._inside(lambda: self._overwrite(slots[0], row.body(kept_for_backward(slots[0]), *slots[1:])))
            made = self._inside(lambda: row.body(*slots))
            if out is None:
                return made
            results = made if isinstance(made, (tuple, list)) else (made,)
            for place, result in zip(outs, results):
                self._write(place, self.unwrap(result))
            return out
        return _C._call_recorded(op, row, slots, lambda: self._answer(op, row, slots, out))

    def _answer(self, op: Any, row: Any, slots: tuple, out: Any) -> Any:
        if op.inplace_of is not None or row.mutates:
            self._write(slots[0], self._changed(op, row, slots))
            return slots[0]
        if row.is_view and self.owns(slots[0]):
            return self._view(op, row, slots)
        result = _C._call_bound(op, row, tuple(self._unwrapped(s) for s in slots))
        if out is None:
            return self._wrapped(result)
        for place, value in zip(out if isinstance(out, (tuple, list)) else (out,),
                                result if isinstance(result, (tuple, list)) else (result,)):
            self._write(place, value)
        return out

    def _changed(self, op: Any, row: Any, slots: tuple) -> Any:
        """What an op in place would leave in its first argument."""
        values = tuple(self._unwrapped(s) for s in slots)
        if op.inplace_of is not None:
            return _C._call_bound(op.inplace_of, row, values)
        pure = getattr(ops, op.name.removesuffix("_"), None)
        if pure is not None and pure is not op:
            return pure(*values)
        made = ops.clone(values[0])
        _C._call_bound(op, row, (made, *values[1:]))
        return made

    def _view(self, op: Any, row: Any, slots: tuple) -> Any:
        """A view, whose base what was written to later is found in: its argument need not be up to date."""
        source = slots[0]
        rest = tuple((s,) if n == "size" and type(s) is int and op.name != "unfold" else s
                     for n, s in zip(row.names[1:], slots[1:]))

        def again(x: Any) -> Any:
            if self.without_views and (copying := getattr(ops, op.name + "_copy", None)) is not None:
                overload = next(o for o in copying.overloads if o.overload_name == row.overload_name)
                return _C._call_bound(copying, overload, (x, *rest))
            return _C._call_bound(op, row, (x, *rest))
        result = again(source.value)
        if isinstance(result, TensorBase):
            return self.wrap(result, source.base, [*source.views, View(op.name, rest, again, self.views)])
        return tuple(self.wrap(part, source.base, [*source.views, View(
            "", rest, lambda x, i=i: again(x)[i], self.views)]) for i, part in enumerate(result))   # type: ignore[misc]
