"""vmap's levels: tensors that hold a whole batch and look like one sample, and the layer that computes with them."""
from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from mindtorch_v2 import _C
from mindtorch_v2._C import TensorBase
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.table import ops
from mindtorch_v2._printing import in_levels
from mindtorch_v2._shape import broadcast
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl
from mindtorch_v2._transforms.mapped_function import mapped_function
from mindtorch_v2._transforms.without_rule import refusal
from mindtorch_v2.autograd.forward_ad import Level


def _data_dependent(message: str) -> RuntimeError:
    """The error for a Python decision on the values of a batch."""
    return _marked(RuntimeError("vmap: It looks like you're " + message))


def _marked(error: RuntimeError) -> RuntimeError:
    error.data_dependent = True          # type: ignore[attr-defined]
    return error


_MEMORY = ("tolist", "numpy", "__array__", "data_ptr", "untyped_storage")     # what reads more than one number


class BatchedTensor(Tensor):
    """A batch that looks like one sample. Its memory is the value's, which has the batch as dim 0 where `batched`."""

    _no_memory = ("Either your tensor may have escaped from inside a function being vmapped and this is a user error (see "
                  "https://pytorch.org/functorch/stable/ux_limitations.html), or there is an internal functorch error in "
                  "`gen_vmap_plumbing` Please file an issue if it looks like the latter")     # where an op would read it

    __torch_function__: Any = _disabled_torch_function_impl
    value: Any
    level: Vmap
    batched: bool

    @property
    def _readable(self) -> bool:
        return not self.batched and self.value._readable and not self.value.requires_grad

    def __bool__(self) -> bool:
        if not self.batched:
            return bool(self.value)
        if _C._in_level(self) and _C._in_transform():        # a level that differentiates sees it first
            raise _data_dependent(_SEVERAL_REASONS)
        raise _data_dependent(
            "attempting to use a Tensor in some data-dependent control flow. We don't support "
            "that yet, please file an issue at https://github.com/pytorch/pytorch/issues .")

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        inner = textwrap.indent(repr(self.value), "    ")
        shown = f"BatchedTensor(lvl={self.level.depth}, bdim={0 if self.batched else None}, value=\n{inner}\n)"
        return in_levels(self, shown, self.level.depth)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def _as_view(self, shape: Any) -> bool:
        """Whether reshape needs no copy."""
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        whole = (self.level.size, *size) if self.batched else size
        return self.value._as_view(whole) if type(self.value) is BatchedTensor else self.value.reshape(whole)._is_view()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        if memory_format not in (None, _C._named_constant("contiguous_format")):
            raise RuntimeError("NYI: querying is_contiguous inside of vmap for memory_format other than torch.contiguous_format")
        return self.value.is_contiguous()

    def _unsupported(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("vmap: a batched tensor has no memory of its own to set, resize or share")

    set_ = share_memory_ = _unsupported

    def resize_(self, *sizes: Any, memory_format: Any = None) -> BatchedTensor:
        """Other sizes for every sample, in the memory of the whole batch."""
        shape = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
        if memory_format not in (None, _C._named_constant("contiguous_format")):
            raise RuntimeError("resize_: batching rule only supports None or Contiguous MemoryFormat")
        if not self.batched:
            self._unsupported()
        self.value.resize_((self.level.size, *shape))
        _C._take_wrapper(self, self.level.wrap(self.value))
        return self

    @property              # type: ignore[misc]
    def data(self) -> Any:
        """Refuses."""
        raise RuntimeError("accessing `data` under vmap transform is not allowed")

    def _check_index(self) -> None:
        """Refuses an index whose values decide how many items there are. All others are read by the op, not before it."""
        if self.batched and self.dtype in (_C._dtype_named("bool"), _C._dtype_named("uint8")):
            raise RuntimeError("vmap: We do not support batching operators that can support dynamic shape. Attempting to "
                               "batch over indexing with a boolean mask.")

    def _fresh(self) -> BatchedTensor:
        return self.level.wrap(self.value, self.batched)

    def _of_all_samples(self) -> Any:
        return self.value._of_all_samples()

    def _take_view_(self, view: Any) -> Any:
        self.value._take_view_(view.value)
        return super()._take_view_(view)


def kept_for_backward(x: Any) -> Any:
    """What an op computes with that then writes to x: another tensor, where backward will read it."""
    return ops.clone(x) if x.requires_grad and _C._is_grad_enabled() else x


_SEVERAL_REASONS = (
    "either (1) calling .item() on a Tensor or (2) attempting to use a Tensor in some data-dependent control flow or (3) "
    "encountering this error in PyTorch internals. For (1): we don't support vmap over calling .item() on a Tensor, please try "
    "to rewrite what you're doing with other operations. For (2): we don't support data-dependent control flow in vmap yet, "
    "please file an issue at https://github.com/pytorch/pytorch/issues . For (3): please file an issue.")


def _read(name: str) -> Callable[..., Any]:
    """A method that reads values: of what all samples share it can."""
    def method(self: BatchedTensor, *args: Any, **kwargs: Any) -> Any:
        if not self.batched:
            return getattr(self.value, name)(*args, **kwargs)
        if name in _MEMORY:
            if name == "untyped_storage":
                raise NotImplementedError("Cannot access storage of BatchedTensorImpl")
            raise _marked(RuntimeError("Cannot access data pointer of Tensor that doesn't have storage"))
        raise _data_dependent(
            "calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
            "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside "
            "PyTorch internals, please file a bug report.")
    return method


for _name in ("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__index__", "__complex__", "data_ptr",
              "untyped_storage"):
    setattr(BatchedTensor, _name, _read(_name))


_EXTENDING = "For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"


def _incompatible(output: Any, dims: Any) -> RuntimeError:
    return RuntimeError("The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. Expected "
                        f"out_dims={dims} to be compatible with the structure of `output`. out_dims has structure "
                        f"{_structure(dims)} but output has structure {_structure(output)}. {_EXTENDING}")


def _structure(tree: Any) -> str:
    """A tree as torch shows its TreeSpec."""
    if not isinstance(tree, (tuple, list)):
        return "*"
    return f"TreeSpec({type(tree).__name__}, None, [" + ",\n  ".join(map(_structure, tree)) + "])"


class VmapInfo(NamedTuple):
    """What a rule of a custom function is told of the level."""
    batch_size: int
    randomness: str


class Vmap(Level):
    """One level of vmap: a layer that runs each op once for all samples."""

    of_a_function = is_level = True

    def __init__(self, size: int, randomness: str = "error") -> None:
        self.size, self.randomness = size, randomness
        self.differentiated = False      # whether history is recorded below this level
        self.answers = False             # whether it answers an op, with the fallback off
        self.depth = 1 + sum(t.is_level for t in _C._transforms()) + _C._level_count()

    # ---- tensors
    def wrap(self, value: Any, batched: bool = True) -> BatchedTensor:
        """A tensor of this level; a batched value has the batch as its dim 0."""
        shape, strides = value.shape, value.stride()
        made = _C._make_wrapper(BatchedTensor, shape[1:] if batched else shape, strides[1:] if batched else strides,
                                value.dtype, value.device, False, value.storage_offset())
        self.differentiated = self.differentiated or value.requires_grad
        made.value, made.level, made.batched = value, self, batched
        return made

    def owns(self, x: Any) -> bool:
        return type(x) is BatchedTensor and x.level is self

    def unwrap(self, x: Any) -> tuple[Any, bool]:
        """(value, whether it has the batch)"""
        return (x.value, x.batched) if type(x) is BatchedTensor and x.level is self else (x, False)

    def takes_part(self, args: tuple) -> bool:
        """Whether an argument of a custom function is a sample."""
        return any(self.owns(x) and x.batched for x in args)

    def apply_function(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The call of a custom function with samples among its arguments: by its own rule, or by that of the ops in it."""
        own = getattr(function.vmap, "__qualname__", "") != "Function.vmap"
        name = function.__name__
        if own and function.generate_vmap_rule:
            raise RuntimeError(f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overridden vmap "
                               "staticmethod. Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to "
                               f"avoid ambiguity. {_EXTENDING}")
        if not own and not function.generate_vmap_rule:
            raise RuntimeError(f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement "
                               f"the vmap staticmethod or set generate_vmap_rule=True. {_EXTENDING}")
        rule = self._own_rule if own else self._generated_rule
        if not _C._is_grad_enabled() or not any(self.owns(x) and x.requires_grad for x in args):
            return rule(function, args, kwargs)

        def forward(*given: Any, **named: Any) -> Any:
            inner = _C._transforms()
            _C._pop_transform((inner, inner.index(self)))
            try:
                return rule(function, given, named)
            finally:
                _C._pop_transform((inner, len(inner)))
        return self._inside(lambda: function._call(args, kwargs, forward)[1])

    def _own_rule(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        pairs = [self.unwrap(x) for x in args]
        info = VmapInfo(self.size, self.randomness)
        answer = function.vmap(info, tuple(0 if batched else None for _, batched in pairs), *(v for v, _ in pairs), **kwargs)
        changed = {id(value): x for x, (value, _) in zip(args, pairs)}       # what is returned as it came stays the same
        return self.wrap_output(answer, changed)

    def wrap_output(self, answer: Any, same: dict[int, Any]) -> Any:
        """What a function's rule for a batch gave, (output, out_dims), as samples; `same` has tensors that stay themselves."""
        if not isinstance(answer, tuple) or len(answer) != 2:
            got = f"{len(answer)} returns" if isinstance(answer, tuple) else f"a {type(answer)}"
            raise RuntimeError("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
                               f"compatible with the output. Got {got} instead")
        return self._placed(*answer, same)

    def _placed(self, output: Any, dims: Any, same: dict[int, Any]) -> Any:
        """An output, or a list of them, with the batch at the dims that were named."""
        if isinstance(output, (tuple, list)):
            if isinstance(dims, (tuple, list)) and len(dims) != len(output):
                raise _incompatible(output, dims)
            places = dims if isinstance(dims, (tuple, list)) else [dims] * len(output)
            return type(output)([self._placed(x, d, same) for x, d in zip(output, places)])
        if isinstance(dims, (tuple, list)):
            raise _incompatible(output, dims)
        return same[id(output)] if id(output) in same else output if dims is None else self.wrap(output.movedim(dims, 0))

    def _generated_rule(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        pairs = [self.unwrap(x) for x in args]
        mapped = mapped_function(function, self, [batched for _, batched in pairs])
        output = mapped.apply(*(value for value, _ in pairs), **kwargs)
        several = isinstance(output, tuple)
        made = [self.wrap(x, flag) if isinstance(x, TensorBase) else x
                for x, flag in zip(output if several else (output,), mapped.batched_outputs, strict=True)]
        return tuple(made) if several else made[0]

    # ---- the layer
    def interpose(self, op: Any, row: Any, slots: tuple, out: Any) -> Any:
        values, flags, ours, batch = [], [], False, False
        for slot in slots:
            flag: Any = False
            if type(slot) is BatchedTensor:
                if slot.level is self:
                    ours, flag, slot = True, slot.batched, slot.value
                    batch = batch or flag
            elif type(slot) is tuple and slot and any(type(t) is BatchedTensor for t in slot):
                pairs = [self.unwrap(t) for t in slot]
                ours = ours or any(self.owns(t) for t in slot)
                flag, slot = [f for _, f in pairs], tuple(v for v, _ in pairs)
                batch = batch or any(flag)
            elif type(slot) is tuple:
                flag = [False] * len(slot)
            values.append(slot)
            flags.append(flag)
        if row.is_random:
            return self._draw(op, row, slots, values, flags, batch)
        if not ours:
            return NotImplemented
        if out is not None:
            raise RuntimeError(f"Batching rule not implemented for aten::{_full_name(op, row, 'out')}; the fallback path doesn't "
                               "work on out= or view ops.")
        if batch and not fallback.enabled:
            return self._refusing(op, row, slots, values, flags)
        return self._answer(op, row, slots, values, flags, batch)

    def _refusing(self, op: Any, row: Any, slots: tuple, values: list[Any], flags: list[Any]) -> Any:
        """The answer while the fallback is off: none to an op that torch has no rule for; what such an op is made of here is
        no question of its own."""
        error = None if self.answers else refusal(op, row, slots)
        if error is not None:
            raise error
        before, self.answers = self.answers, True
        try:
            return self._answer(op, row, slots, values, flags, True)
        finally:
            self.answers = before

    def _answer(self, op: Any, row: Any, slots: tuple, values: list[Any], flags: list[Any], batch: bool) -> Any:
        changes = op.inplace_of is not None or row.mutates
        if changes and batch and flags[0] is not True:
            if op.name in _BROADCAST:
                whole = (self.size, *broadcast(slots[0].shape, slots[1].shape))
                raise RuntimeError(f"output with shape {list(slots[0].shape)} doesn't match the broadcast shape {list(whole)}")
            raise RuntimeError(_cannot_hold(*_named_change(op, row, self.depth)))
        if isinstance(row.batching, batching.Rewrite):
            return self._inside(lambda: row.batching.body(*slots))
        if row.is_composite and (row.batching is None or not batch):
            return self._body(op, row, slots)
        rule = row.batching if batch else _shared
        if rule is None:
            rule = batching.pointwise if row.is_pointwise else None

        def answer() -> Any:
            result = rule(batching.Call(op, row, self.size, slots, values, flags)) if rule is not None else NotImplemented
            if isinstance(result, batching.Recall):
                result = self._unwrapped(self._inside(result.body))
                if changes:
                    values[0].copy_(result)
            elif result is NotImplemented:
                result = self._loop(op, row, values, flags)
            return slots[0] if changes else self._wrapped(result, batch)
        return _C._call_recorded(op, row, slots, answer)

    def _wrapped(self, result: Any, batch: bool) -> Any:
        return batching._map(result, lambda t: self.wrap(t, batch))

    def _unwrapped(self, result: Any) -> Any:
        """Results of this level as values that all have the batch."""
        def value(t: Any) -> Any:
            found, batched = self.unwrap(t)
            return found if batched else found.expand(self.size, *found.shape)
        return batching._map(result, value)

    def _body(self, op: Any, row: Any, slots: tuple) -> Any:
        """A composite: its parts are batched one by one; where it decides by values, sample by sample."""
        def body() -> Any:
            return row.body(*(slots if op.inplace_of is None else (kept_for_backward(slots[0]), *slots[1:])))
        try:
            made = self._inside(body)
        except RuntimeError as error:
            if not hasattr(error, "data_dependent"):
                raise
            values, flags = [], []
            for slot in slots:
                if any(self.owns(t) and t.requires_grad for t in (slot if type(slot) is tuple else (slot,))):
                    raise                        # sample by sample there would be no history
                pairs = [self.unwrap(t) for t in slot] if type(slot) is tuple else None
                value, flag = self.unwrap(slot) if pairs is None else (tuple(v for v, _ in pairs), [f for _, f in pairs])
                values.append(value)
                flags.append(flag)
            return self._wrapped(self._loop(op, row, values, flags), True)
        if op.inplace_of is not None:
            return self._inside(lambda: slots[0].copy_(made))
        return made

    def _loop(self, op: Any, row: Any, values: list[Any], flags: list[Any]) -> Any:
        """Sample by sample."""
        if not fallback.enabled:
            raise RuntimeError(f"aten::{op.name} hit the vmap fallback which is currently disabled")
        if fallback.warns and (fallback.always_warns or op.name not in _warned):
            _warned.add(op.name)
            warnings.warn(f"There is a performance drop because we have not yet implemented the batching rule for "
                          f"aten::{_full_name(op, row)}. Please file us an issue on GitHub so that we can prioritize its "
                          "implementation.", UserWarning, stacklevel=3)
        results = []
        for i in range(self.size):
            results.append(_C._call_bound(op, row, tuple(_sample(v, f, i) for v, f in zip(values, flags))))
        if op.inplace_of is not None or row.mutates:
            return values[0]
        if not results:
            raise RuntimeError(f"vmap: {op.name} over a batch of size 0 has no batching rule")
        return self._stacked(results)

    @staticmethod
    def _stacked(results: list[Any]) -> Any:
        if isinstance(results[0], TensorBase):
            return ops.stack(results)
        if not isinstance(results[0], (tuple, list)):
            return results[0]
        return type(results[0])([Vmap._stacked(list(column)) for column in zip(*results, strict=True)])

    def _draw(self, op: Any, row: Any, slots: tuple, values: list[Any], flags: list[Any], batch: bool) -> Any:
        """Random numbers: as `randomness` says an error, each sample's own, or the same for all."""
        if self.randomness == "error":
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the "
                               "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
                               "of vmap")
        changes, same = op.inplace_of is not None or row.mutates, self.randomness == "same"
        if changes:
            self._check_drawn_into(op, flags, same)
        elif same and batch and row.batching is not batching.drawn_like:
            raise RuntimeError(_SAME_OF_BATCH)
        if not batch:
            if same:
                return NotImplemented
            drawn = [_C._call_bound(op, row, tuple(values)) for _ in range(self.size)]
            return self._wrapped(self._stacked(drawn), True)
        if same and not changes:                             # shapes decide, and all samples have one
            drawn = _C._call_bound(op, row, tuple(_sample(v, f, 0) for v, f in zip(values, flags)))
            return self._wrapped(drawn, False)
        if row.is_composite:
            return self._body(op, row, tuple(self._filled(x) for x in slots))

        def answer() -> Any:
            if same:                                         # numbers for one sample, written to all
                place = ops.empty_like(values[0].select(0, 0))
                values[0].copy_(_C._call_bound(op, row, (place, *values[1:])))
            elif row.batching in (None, batching.drawn_like):
                result = _C._call_bound(op, row, tuple(values))
            else:
                result = row.batching(batching.Call(op, row, self.size, slots, values, flags))
            return slots[0] if changes else self._wrapped(result, True)
        return _C._call_recorded(op, row, slots, answer)

    def _filled(self, slot: Any) -> Any:
        """A tensor argument as one that has the batch."""
        if not isinstance(slot, TensorBase):
            return slot
        value, batched = self.unwrap(slot)
        return slot if batched else self.wrap(value.expand(self.size, *value.shape))

    @staticmethod
    def _check_drawn_into(op: Any, flags: list[Any], same: bool) -> None:
        """Refuses draws in place that a tensor shared by all samples cannot hold, or that differ where they must not."""
        if True in flags[1:]:
            if same:
                raise RuntimeError(_SAME_OF_BATCH)
            if flags[0] is not True:
                raise RuntimeError(_cannot_hold(f"inplace {op.name.rstrip('_')}", "in a vmap"))
        elif flags[0] is not True and not same:
            raise RuntimeError("vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear "
                               "like same randomness. If this is necessary for your usage, please file an issue with "
                               "functorch.")


_SAME_OF_BATCH = ("Vmap does not currently support same randomness with a batched tensor input. Please file an issue with "
                  "functorch")


def _cannot_hold(name: str, where: str) -> str:
    """What is said of an in-place op whose tensor is shared by all samples, but not its other arguments."""
    return (f"vmap: {name}(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args that has "
            "more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped over "
            f"{where}. Please try to use out-of-place operators instead of {name}. If said operator is being called inside "
            "the PyTorch framework, please file a bug report instead.")


# How torch names what cannot be written to a tensor that all samples share: words for arithmetic, the op's name where it
# has a rule, else the fallback's. A few ops broadcast, and then say that the result does not fit.
_ARITHMETIC = ("mul_", "sub_", "div_", "copy_", "masked_fill_", "logical_and_", "logical_or_", "logical_xor_", "clamp_min_",
               "clamp_max_")
_BROADCAST = ("add_", "atan2_", "bitwise_and_", "bitwise_or_", "bitwise_xor_", "bitwise_left_shift_", "bitwise_right_shift_",
              "copysign_", "gcd_", "lcm_")
_WITH_RULES = ("fill", "index_put", "index_add", "index_fill", "scatter_add")


def _named_change(op: Any, row: Any, depth: int) -> tuple[str, str]:
    if op.name in _ARITHMETIC:
        return "inplace arithmetic", "in a vmap"
    name = op.name.removeprefix("_").replace("_list_", "_")
    return (name, "in a vmap") if name.startswith(_WITH_RULES) else (f"aten::{name}", f"at level {depth}")


def _full_name(op: Any, row: Any, overload: str = "") -> str:
    """An op and its overload, as torch names them."""
    overload = overload or row.overload_name
    name = op.name.removeprefix("_")
    return f"{name}.{overload}" if overload else name


class Fallback:
    """Whether ops without a batching rule run sample by sample, and whether a warning says so, once for an op or always."""
    enabled, warns, always_warns = True, True, False


fallback = Fallback()
_warned: set[str] = set()


def _shared(call: batching.Call) -> Any:
    """Tensors of the level, none of them batched: one call for all samples."""
    return call.run()


def _sample(value: Any, flag: Any, i: int) -> Any:
    if flag is True:
        return value.select(0, i)
    if isinstance(flag, list) and any(flag):
        return tuple(v.select(0, i) if f else v for v, f in zip(value, flag))
    return value
