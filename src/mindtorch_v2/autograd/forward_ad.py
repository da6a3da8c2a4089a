"""Forward mode: tensors with tangents, and the layer that carries tangents through every op.

The derivative of an op follows from its row: a view shows the tangent the same way, a pointwise op multiplies by the
slope that its gradient formula gives, a row may say more (`forward=`), and for all others the gradient formula, which is
linear in the gradient, is transposed by differentiating it.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase, _op_named
from mindtorch_v2._tensor import Tensor
from mindtorch_v2.autograd.engine import grad as _gradients

_storage_address = _C._storage_address

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


def _no_forward_out(op: Any) -> NotImplementedError:
    return NotImplementedError(f"Trying to use forward AD with {op.name}_out that does not support it because it is an out= "
                               "function")


def _any_recorded(out: Any, slots: tuple) -> bool:
    """Whether a history would be written to out=, which is refused before its tangent is."""
    return any(isinstance(x, TensorBase) and x.requires_grad for x in (*(out if type(out) is tuple else (out,)), *slots))


def not_implemented(name: str) -> NotImplementedError:
    """torch's error where an op has no forward derivative."""
    return NotImplementedError(f"Trying to use forward AD with {name} that does not support it because it has not been implemented "
                               "yet.\nPlease file an issue to PyTorch at https://github.com/pytorch/pytorch/issues/new?template="
                               "feature-request.yml so that we can prioritize its implementation or submit a PR adding the "
                               "implementation to derivatives.yaml")


class Level:
    """A layer that changes what functions compute: forward mode, vmap, functionalize."""

    def _inside(self, body: Callable[[], Any]) -> Any:
        """Runs body where this level is the innermost."""
        before = _C._push_transform(self)
        try:
            return body()
        finally:
            _C._pop_transform(before)


class Forward(Level):
    """One level of forward mode: a layer that notes the tangent of what an op gives."""

    follows = True                   # False: switched off for a while, results have no tangents
    of_a_function = True                 # torch.func's; not that of enter_dual_level
    is_level = False                     # torch.func counts it as one that differentiates

    def __init__(self) -> None:
        self._noted: list[Any] = []

    # ---- tangents
    def tangent(self, x: Any) -> Any:
        return _C._tangent(x, self) if isinstance(x, TensorBase) else None

    def note(self, x: Any, tangent: Any) -> None:
        """x has that tangent at this level."""
        _C._set_tangent(x, self, tangent)
        self._noted.append(weakref.ref(x))

    def end(self) -> None:
        """The tangents of this level go."""
        for ref in self._noted:
            x = ref()
            if x is not None:
                _C._set_tangent(x, self, None)
        self._noted.clear()

    # ---- the layer
    def interpose(self, op: Any, row: Any, slots: tuple, out: Any) -> Any:
        if not self.follows or not self.of_a_function and _C._is_inference_mode():
            return NotImplemented
        if out is not None and _C._is_grad_enabled() and _any_recorded(out, slots):
            return NotImplemented                # refused below, for its history
        if any(self.tangent(x) is not None for x in (out if type(out) is tuple else (out,))):
            raise _no_forward_out(op)
        tangents = [tuple(self.tangent(t) for t in s) if type(s) is tuple else self.tangent(s) for s in slots]
        if not any(t is not None and (type(t) is not tuple or any(i is not None for i in t)) for t in tangents):
            return NotImplemented
        if out is not None:
            raise _no_forward_out(op)
        if op.inplace_of is not None:
            return self._inside(lambda: slots[0].copy_(_C._call_bound(op.inplace_of, row, slots)))
        if row.is_composite and row.forward is None:
            return self._compose(row, slots, tangents)
        if row.mutates:
            return self._change(op, row, slots, tangents)
        result, slopes = self._derive(op, row, slots, tangents)
        for x, t in zip(_tensors(result), slopes, strict=True):
            if t is not None and x is not None and (x.is_floating_point() or x.is_complex()):
                self.note(x, t.expand(x.shape) if t.shape != x.shape else t)
        return result

    def takes_part(self, args: tuple) -> bool:
        """Whether an argument of a custom function has a tangent."""
        return any(self.tangent(x) is not None for x in args)

    def apply_function(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The call of a custom function with tangents among its arguments: its jvp says those of the results."""
        given = [self.tangent(x) for x in args]
        bare = tuple(x if t is None else without(self, x) for x, t in zip(args, given))
        outer = _C._transforms()
        answered = any(layer.takes_part(bare) for layer in outer)
        node, result = function._call(bare, kwargs, (lambda *a, **k: function._call_layers(outer, a, k)) if answered else None)
        tangents = tuple(_zero_like(x) if t is None and node.materialize_grads and _differentiable(x) else t
                         for x, t in zip(args, given))
        found = node.push_forward(function, tangents)
        results = result if isinstance(result, tuple) else (result,)
        slopes = found if isinstance(found, tuple) else (found,)
        if len(slopes) != len(results):
            raise RuntimeError("Function's jvp returned an invalid number of forward gradients (expected "
                               f"{len(results)} but got {len(slopes)})")
        changed = {id(x): t for x, t in zip(bare, given) if any(x is d for d in node.dirty_tensors or ())}
        viewed = {_storage_address(x): t for x, t in zip(bare, given) if _has_memory(x)}
        for i, (x, t) in enumerate(zip(results, slopes)):
            _check_pushed(i, x, t, changed, viewed)
            if t is not None and _differentiable(x):
                self.note(x, t)
        for number, saved in node.reattach(bare, args):      # backward is differentiated too, and reads what forward saved
            if slopes[number] is not None and _differentiable(saved):
                self.note(saved, slopes[number])
        return result

    def _compose(self, row: Any, slots: tuple, tangents: list[Any]) -> Any:
        """The body of other ops, which follow tangents by themselves; where it gives its first argument other sizes or
        strides, the tangent takes the same."""
        before = (slots[0].shape, slots[0].stride()) if row.mutates else None
        result = self._inside(lambda: row.body(*slots))
        if before is not None and result is slots[0] and (result.shape, result.stride()) != before and tangents[0] is not None:
            turned = tangents[0].view_as(tangents[0])
            row.body(turned, *slots[1:])
            self.note(result, turned)
        return result

    def _derive(self, op: Any, row: Any, slots: tuple, tangents: list[Any]) -> tuple[Any, Sequence[Any]]:
        """The result, and the tangents of its tensors."""
        if row.forward is not None:
            result = _C._call_bound(op, row, slots)
            found = row.forward(row, slots, tangents, result)
            if found is not NotImplemented:
                return result, found if isinstance(found, (tuple, list)) else (found,)
            return transposed(self, op, row, slots, tangents)
        if row.view_kind == "as_strided" and tangents[0].stride() == slots[0].stride():
            result = _C._call_bound(op, row, slots)
            tangent = _in_memory_of(slots[0], tangents[0], result)
            start = tangent.storage_offset() + result.storage_offset() - slots[0].storage_offset()
            return result, (tangent.as_strided(result.shape, result.stride(), start),)
        if row.is_view and row.view_kind != "as_strided":        # it reads memory that the tangent lays out otherwise
            result = _C._call_bound(op, row, slots)
            if row.view_kind == "detach" or not row.has_gradient:
                return result, (None,)
            along = tangents[0] if slots[0].is_conj() or slots[0].is_neg() else _resolved(tangents[0])
            return result, (_C._call_bound(op, row, (along, *slots[1:])),)
        if not row.has_gradient:
            result = _C._call_bound(op, row, slots)
            if row.node_name == "NotImplemented" and any(t.is_floating_point() for t in _tensors(result)):
                raise not_implemented(op.name)
            return result, (None,) * len(_tensors(result))
        if row.is_pointwise and not any(isinstance(s, TensorBase) and s.is_complex() for s in slots):
            result = _C._call_bound(op, row, slots)
            return result, (pointwise(row, slots, tangents, result),)
        return transposed(self, op, row, slots, tangents)

    def _change(self, op: Any, row: Any, slots: tuple, tangents: list[Any]) -> Any:
        """An op that changes its first argument."""
        self_, rest = slots[0], tangents[1:]
        if row.is_random or op.name in ("zero_", "fill_"):
            changed = None
        elif row.has_gradient and _is_linear(row):
            changed = [_zero_like(s) if t is None and _differentiable(s) else
                       s if t is None or type(t) is tuple else t for s, t in zip(slots[1:], rest, strict=True)]
        else:
            raise NotImplementedError(f"Trying to use forward AD with {op.name} that does not support it because it has "
                                      "not been implemented yet.")
        _C._call_bound(op, row, slots)
        own = self.tangent_to_change(self_, next((c for c in changed or () if isinstance(c, TensorBase)), self_))
        if changed is None:
            own.zero_()
        else:
            _C._call_bound(op, row, (own, *[0 if n == "value" else c for n, c in zip(row.names[1:], changed, strict=True)]))
        return self_

    def tangent_to_change(self, x: Any, like: Any) -> Any:
        """The tangent of x, into which something like `like` is about to be written: that of a view is a view of its
        base's."""
        own = self.tangent(x)
        if own is not None:
            return own
        base = x._base
        if base is None:
            own = like.new_zeros(x.shape, dtype=x.dtype)
        else:
            whole = self.tangent(base)
            if whole is None:
                whole = like.new_empty_strided(base.shape, base.stride(), dtype=x.dtype).zero_()
                self.note(base, whole)
            own = whole.as_strided(x.shape, x.stride(), x.storage_offset() - base.storage_offset())
        self.note(x, own)
        return own


def _has_memory(x: Any) -> bool:
    """Whether x is a tensor over memory: those of a transform are none."""
    return isinstance(x, Tensor) and x._readable


def _check_pushed(place: int, result: Any, tangent: Any, changed: dict[int, Any], viewed: dict[int, Any]) -> None:
    """Refuses a tangent that a jvp made otherwise than forward made the result: in place, as a view. `viewed`: by the address of
    the memory of an argument, its tangent."""
    if tangent is not None and not isinstance(tangent, TensorBase):
        raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {place}.")
    if tangent is None or not isinstance(result, TensorBase):
        return
    if id(result) in changed:
        if changed[id(result)] is not None and tangent is not changed[id(result)]:
            raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace. If the forward "
                               "is modifying an input inplace, then the jvp function must modify the corresponding gradient "
                               "inplace.")
    elif result._is_view() or _has_memory(result) and _storage_address(result) in viewed:
        if _has_memory(tangent) and not tangent._is_view():
            raise RuntimeError("A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning "
                               "a view.")
        given: Any = viewed.get(_storage_address(result)) if _has_memory(result) else None
        if _has_memory(given) and _has_memory(tangent) and _storage_address(given) != _storage_address(tangent):
            raise RuntimeError("A custom Function is returning a view but the jvp is not returning a view of the given grad input.")


# ---- derivatives of rows --------------------------------------------------------------------------------------------
def pointwise(row: Any, slots: tuple, tangents: list[Any], result: Any) -> Any:
    """The sum over the inputs of slope times tangent; the gradient formula of an input gives both in one."""
    total = None
    known = dict(zip(row.names, slots, strict=True))
    for inputs, formula, joint in row.gradients():
        for i, name in enumerate(inputs):
            tangent = tangents[row.names.index(name)]
            if tangent is None:
                continue
            tangent = tangent.to(result.dtype) if tangent.dtype != result.dtype else tangent
            g = tangent.expand(result.shape) if tangent.shape != result.shape else tangent
            found = formula(*[argument(n, known, g, result, inputs, name)
                              for n in formula.__code__.co_varnames[:formula.__code__.co_argcount]])
            found = found[i] if joint else found
            if found is not None:
                total = found if total is None else total + found
    return total


def argument(name: str, known: dict[str, Any], g: Any, result: Any, inputs: tuple, asked: str) -> Any:
    """What a formula's parameter of that name stands for: see set_formulas in the core."""
    if name in known:
        return known[name]
    if name in ("g", "g0"):
        return g
    if name == "gs":
        return [g]
    if name in ("result", "result0"):
        return result
    if name == "results":
        return [result]
    if name == "needs":
        return tuple(n == asked for n in inputs)
    stem, _, what = name.rpartition("_")
    value = known[stem]
    if what == "shape":
        return tuple(value.shape) if isinstance(value, TensorBase) else ()
    if what == "geometry":
        return tuple(value.shape), value.stride(), value.storage_offset()
    return getattr(value, what) if isinstance(value, TensorBase) else None


def transposed(layer: Forward, op: Any, row: Any, slots: tuple, tangents: list[Any]) -> tuple[Any, Sequence[Any]]:
    """The result and its tangents: the gradients of the inputs are linear in those of the results, so their derivative by
    those, applied to the tangents, is the forward derivative."""
    recorded = _C._is_grad_enabled()
    outside = [layer for layer in _C._transforms() if isinstance(layer, Forward)]
    kept = recorded and any(t.requires_grad or any(_recorded(level, t) for level in outside)
                            for t in _tensors(slots) + [t for t in _tensors(tangents) if t is not None])
    _C._set_grad_enabled(True)
    try:
        starts: list[Any] = []
        along: list[Any] = []
        fixed = _C._fixed_slots(row)
        given = tuple(s if i in fixed else tuple(_start(x, t, starts, along) for x, t in zip(s, ts, strict=True))
                      if type(s) is tuple else _start(s, ts, starts, along)
                      for i, (s, ts) in enumerate(zip(slots, tangents, strict=True)))
        if kept:
            for x, t in zip(starts, along, strict=True):         # the op's own gradient reads them, not the inputs
                layer.note(x, t)
        _inner.layers.append(layer)
        try:
            result = _C._call_bound(op, row, given)
        finally:
            _inner.layers.pop()
        outputs = [x for x in _tensors(result) if x is not None]
        slopes: list[Any] = [None] * len(outputs)
        live = [x for x in outputs if x.requires_grad]
        if live:
            ghosts = [_zero_like(x)._requires_grad_() for x in live]
            back = _gradients(live, starts, ghosts, create_graph=True, allow_unused=True)
            used = [(g, t) for g, t in zip(back, along, strict=True) if g is not None and g.requires_grad]
            found: Sequence[Any] = [None] * len(live)
            if used:
                found = _gradients([g for g, _ in used], ghosts, [t.to(g.dtype) for g, t in used], create_graph=True,
                                   allow_unused=True)
            for x, t in zip(live, found, strict=True):
                at = next(i for i, o in enumerate(outputs) if o is x)
                slopes[at] = t if t is None or kept else _fresh(t)
    finally:
        _C._set_grad_enabled(recorded)
    return (result if kept else _map(result, _fresh)), slopes


class _Inner(threading.local):
    """The levels inside the one that answers, each of which waits for the op to be recorded."""

    def __init__(self) -> None:
        self.layers: list[Forward] = []


_inner = _Inner()


def _start(x: Any, tangent: Any, starts: list[Any], along: list[Any]) -> Any:
    """An input with a tangent as the start of a graph, connected to the graph that it is part of."""
    if tangent is None or not (x.is_floating_point() or x.is_complex()):
        return x
    x = _resolved(x)                                             # what the op saves is resolved, and has to be this very tensor
    made = x.view_as(x) if x.requires_grad else _fresh(x)._requires_grad_()
    for layer in _inner.layers:
        noted = layer.tangent(x)
        if noted is not None:
            layer.note(made, noted)
    starts.append(made)
    along.append(tangent)
    return made


def _recorded(layer: Forward, x: Any) -> bool:
    """Whether x has a tangent of that level with a history."""
    tangent = layer.tangent(x)
    return tangent is not None and tangent.requires_grad


def _fresh(x: Any) -> Any:
    """x without history, with the tangents of the levels outside, none of which has a history either."""
    made = x._fresh()
    for layer in _C._transforms():
        tangent = layer.tangent(x) if isinstance(layer, Forward) else None
        if tangent is not None:
            layer.note(made, _fresh(tangent) if tangent.requires_grad else tangent)
    return made


def _in_memory_of(x: Any, tangent: Any, seen: Any) -> Any:
    """x's tangent; where `seen`, which is as_strided of x, reads memory beside x, with zeros there."""
    if tangent.storage_offset() + seen.storage_offset() >= x.storage_offset() and _reach(seen) <= _reach(x):
        return tangent
    low = min(x.storage_offset(), seen.storage_offset())
    high = max(_reach(x), _reach(seen))
    made = tangent.new_zeros(high - low).as_strided(x.shape, x.stride(), x.storage_offset() - low)
    return made.copy_(tangent)


def _reach(x: Any) -> int:
    """Where the memory of x ends, in items."""
    if x.numel() == 0:
        return x.storage_offset()
    return x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1


def _resolved(x: Any) -> Any:
    """x, neither read conjugated nor negated."""
    return x.resolve_conj().resolve_neg() if x.is_conj() or x.is_neg() else x


def _is_linear(row: Any) -> bool:
    """Whether no formula reads a value that has a gradient itself, nor a result."""
    formulas = row.gradients()
    inputs = {name for names, _, _ in formulas for name in names}
    read = {n for _, f, _ in formulas for n in f.__code__.co_varnames[:f.__code__.co_argcount]}
    return not any(n in inputs or n.startswith("result") for n in read)


def _differentiable(x: Any) -> bool:
    return isinstance(x, TensorBase) and (x.is_floating_point() or x.is_complex())


def _zero_like(x: Any) -> Any:
    return _C._op_named("zeros_like")(x)


def _tensors(value: Any) -> list[Any]:
    """The tensors of a result or of arguments; None keeps its place in a tuple of results."""
    if isinstance(value, TensorBase):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _tensors(item)]
    return []


def _map(value: Any, fn: Any) -> Any:
    if isinstance(value, TensorBase):
        return fn(value)
    if isinstance(value, (tuple, list)):
        return type(value)([_map(v, fn) for v in value])
    return value


# ---- torch.autograd.forward_ad --------------------------------------------------------------------------------------
class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent, or None."""

    primal: Any
    tangent: Any


class DualLevel(Forward):
    """The level of enter_dual_level; the transforms of the thread own it while it is open."""

    before: Any
    is_shown = True                  # repr() of a tensor shows the tangent
    of_a_function = False


def _opened() -> DualLevel | None:
    return next((t for t in reversed(_C._transforms()) if isinstance(t, DualLevel)), None)


def refuse_nesting(kind: type[Forward]) -> None:
    """Refuses to open a level where one of a kind is open: those of enter_dual_level and of torch.func do not mix."""
    if any(isinstance(t, kind) for t in _C._transforms()):
        raise RuntimeError("Nested forward mode AD is not supported at the moment")


def enter_dual_level() -> int:
    """Opens a level; returns its number."""
    refuse_nesting(Forward)
    level = DualLevel()
    level.before = _C._push_transform(level)
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level; all tangents go."""
    layer = _opened()
    if layer is None and level is None:
        raise RuntimeError("Dual level must be a positive number.")
    if layer is None or level not in (None, 0):
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created. This is not "
                           "supported.")
    _C._pop_transform(layer.before)
    layer.end()


class dual_level:
    """A with block in which tensors may have tangents."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """The tensor with a tangent, for the innermost level."""
    if not tensor.is_floating_point() and not tensor.is_complex():
        raise ValueError(f"Expected primal to be floating point or complex, but got: {tensor.dtype}")
    if not tangent.is_floating_point() and not tangent.is_complex():
        raise ValueError(f"Expected tangent to be floating point or complex, but got: {tangent.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                           f"not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
                           f"{list(tangent.shape)}.")
    layer = _opened()
    if layer is None:
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() "
                           "first.")
    if layer.tangent(tensor) is not None:
        raise RuntimeError("Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not "
                           "supported.")
    if level not in (None, 0):
        raise RuntimeError("Invalid level given to _make_dual")
    if layer.tangent(tangent) is not None:
        raise RuntimeError("Setting a forward grad that itself has a forward gradient at the same level0 is not supported.")
    made = tensor.view_as(tensor)
    if not _C._is_inference_mode():              # in which nothing has a tangent
        layer.note(made, _laid_out_as(tensor, tangent))
    return made


def _laid_out_as(tensor: Any, tangent: Any) -> Any:
    """The tangent, or a copy of it with the strides of its tensor."""
    if tangent.stride() == tensor.stride() or type(tangent) is not Tensor or not tangent.numel() or not tangent._readable:
        return tangent
    made = _op_named("empty_like")(tensor, dtype=tangent.dtype, device=tangent.device)
    return made.copy_(tangent) if made.stride() == tensor.stride() else tangent        # those of a dense tensor


class _set_fwd_grad_enabled:
    """Whether the open levels follow tangents, at once and until the with block ends."""

    def __init__(self, mode: bool) -> None:
        self.previous = [(t, t.follows) for t in _C._transforms() if isinstance(t, Forward)]
        for layer, _ in self.previous:
            layer.follows = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        for layer, follows in self.previous:
            layer.follows = follows


def _is_fwd_grad_enabled() -> bool:
    """Whether tangents are followed."""
    layer = next((t for t in reversed(_C._transforms()) if isinstance(t, Forward)), None)
    return layer is None or layer.follows


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor without its tangent, and the tangent."""
    layer = _opened()
    if layer is not None and not isinstance(tensor, TensorBase):
        raise TypeError(f"_unpack_dual(): argument 'dual' (position 1) must be Tensor, not {type(tensor).__name__}")
    tangent = None if layer is None or _C._is_inference_mode() else layer.tangent(tensor)
    if layer is None or tangent is None:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(without(layer, tensor), tangent)


def without(layer: Forward, x: Any) -> Any:
    """x without its tangent of one level."""
    made = x.view_as(x)
    _C._set_tangent(made, layer, None)
    return made
