"""What pickle and copy make of a tensor, by the functions that PyTorch's pickles name: either library reads what the other wrote.

torch.save's files are made of the same calls, and read by constructors that check them (_rebuilding.py).
"""
from __future__ import annotations

import copyreg
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import dtype as DType
from mindtorch_v2._typed_storage import NAMED_TYPES, TypedStorage


def empty_beside(storage: Any, dtype: DType) -> Any:
    """A tensor without items on the device of a storage, which set_ then gives it."""
    made = _C._from_data([], dtype, False)
    return made if storage.device.type == "cpu" else made.to(storage.device)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor over a typed storage."""
    return empty_beside(storage._untyped_storage, storage.dtype).set_(storage._untyped_storage, storage_offset, size, stride)


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
                       metadata: Any = None) -> Any:
    """The same with what it needs for backward, and whether it is read conjugated or negated."""
    made = _rebuild_tensor(storage, storage_offset, size, stride)
    made = made._conj().detach() if metadata and metadata.get("conj") else made      # no view of another
    made = made._neg_view().detach() if metadata and metadata.get("neg") else made
    made.requires_grad = requires_grad
    for hook in (backward_hooks or {}).values():
        made.register_hook(hook)
    return made


def _rebuild_tensor_v3(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
                       dtype: DType, metadata: Any = None) -> Any:
    """The same over an untyped storage, for dtypes that came after typed storages."""
    typed = TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
    return _rebuild_tensor_v2(typed, storage_offset, size, stride, requires_grad, backward_hooks, metadata)


def _rebuild_meta_tensor_no_storage(dtype: DType, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor on meta."""
    made: Any = _C._op_named("empty_strided")(size, stride, dtype=dtype, device="meta")
    made.requires_grad = requires_grad
    return made


def _rebuild_wrapper_subclass(cls: type, dtype: DType, size: Any, stride: Any, storage_offset: int, layout: Any, device: Any,
                              requires_grad: bool) -> Any:
    """A tensor without memory of a class that computes in __torch_dispatch__; what it holds is in its state."""
    make: Any = cls._make_wrapper_subclass      # type: ignore[attr-defined]
    return make(cls, size, strides=stride, storage_offset=storage_offset, dtype=dtype, layout=layout, device=device,
                requires_grad=requires_grad)


def set_old_state(self: Any, state: Any) -> None:
    """What old pickles call: a storage and how it is read, or the data with what autograd knew of it."""
    if not self.is_leaf:
        raise RuntimeError("__setstate__ can be only called on leaf Tensors")
    if len(state) == 4:
        self.set_(*state)
        return
    if len(state) == 5:
        self.data = state[0]
        state = (state[3], state[4], state[2])
    self.requires_grad, _, self._backward_hooks = state


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    """A tensor of a subclass, with its attributes."""
    made: Any = func(*args)
    made = made if type(made) is new_type else made.as_subclass(new_type)
    if getattr(new_type, "__setstate__", set_old_state) is not set_old_state:
        made.__setstate__(state)
        return made
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    made.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(made, name, value)
    return made


def state_of(tensor: Any) -> Any:
    """Attributes of a tensor, and those in slots; None where it has none."""
    own = getattr(type(tensor), "__getstate__", None)
    if own is not getattr(_C.TensorMethods, "__getstate__", None):
        return own(tensor)      # type: ignore[misc]
    names = copyreg._slotnames(type(tensor))        # type: ignore[attr-defined]
    slots = {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}
    return (dict(tensor.__dict__), slots) if slots else dict(tensor.__dict__) or None


def _is_empty_shell(tensor: Any, plain: Any) -> bool:
    """Whether the class of a tensor has its values, and the tensor no memory."""
    return hasattr(type(tensor), "__torch_dispatch__") and tensor.numel() > 0 and plain.untyped_storage(tensor).nbytes() == 0


def reduce(tensor: Any, plain: type) -> tuple[Any, ...]:
    """The call that rebuilds a tensor."""
    kind, state = type(tensor), state_of(tensor)
    geometry = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    func: Callable[..., Any]
    if kind is not plain and _is_empty_shell(tensor, plain):
        func = _rebuild_wrapper_subclass
        args: tuple[Any, ...] = (kind, tensor.dtype, *geometry[1:], geometry[0], tensor.layout, tensor.device,
                                 tensor.requires_grad)
    elif tensor.is_meta:
        func, args = _rebuild_meta_tensor_no_storage, (tensor.dtype, geometry[1], geometry[2], tensor.requires_grad)
    else:
        marks = {bit: True for bit, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_set}
        rest: tuple[Any, ...] = (*geometry, tensor.requires_grad, OrderedDict())
        if (tensor.dtype, "cpu") in NAMED_TYPES:
            typed = TypedStorage(wrap_storage=tensor.untyped_storage(), dtype=tensor.dtype, _internal=True)
            func, args = _rebuild_tensor_v2, (typed, *rest, *([marks] if marks else []))
        else:
            untyped = tensor.untyped_storage()
            func, args = _rebuild_tensor_v3, (untyped, *rest, tensor.dtype, *([marks] if marks else []))
    if kind is plain and not state:
        return func, args
    return _rebuild_from_type_v2, (func, kind, args, state)


# Pickles name them there.
_PACKAGE = __name__.rpartition(".")[0]
_rebuild_from_type_v2.__module__ = f"{_PACKAGE}._tensor"
for _function in (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_meta_tensor_no_storage,
                  _rebuild_wrapper_subclass):
    _function.__module__ = f"{_PACKAGE}._utils"
