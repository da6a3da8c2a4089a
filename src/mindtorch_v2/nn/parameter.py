"""Parameter, Buffer and their uninitialised forms: tensors that a Module registers by type."""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy
from types import MethodWrapperType
from typing import Any, SupportsIndex

import mindtorch_v2 as torch


class _ParameterMeta(type):
    """Lets a custom tensor subclass count as a Parameter through its `_is_param` mark."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Parameter and isinstance(instance, torch.Tensor):
            if getattr(instance, "_is_param", False):
                return True
        return super().__instancecheck__(instance)


class Parameter(torch.Tensor, metaclass=_ParameterMeta):
    """A leaf tensor that a Module adds to its parameters when it is assigned as an attribute."""

    # Results of operations on a Parameter are plain tensors.
    __torch_function__: Any = torch._tensor._disabled_torch_function_impl

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = torch.empty(0)
        kind = type(data)
        if kind is torch.Tensor or kind is Parameter:
            return torch.Tensor._make_subclass(cls, data, requires_grad)
        t = data.detach().requires_grad_(requires_grad)
        if type(t) is not kind:
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {kind.__name__} "
                "requires that detach() returns an instance of the same type, but return "
                f"type {type(t).__name__} was found instead. To use the type as a "
                "Parameter, please correct the detach() semantics defined by "
                "its __torch_dispatch__() implementation."
            )
        t._is_param = True
        return t

    def __deepcopy__(self, memo: dict[Any, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is not None:
            return known
        data = self.data.clone(memory_format=torch.preserve_format)
        memo[id(self)] = result = type(self)(data, self.requires_grad)
        return result

    def __repr__(self) -> str:  # type: ignore[override]
        # As a plain leaf: neither the class name nor a grad_fn belongs into the text.
        plain = torch.Tensor._make_subclass(torch.Tensor, self.data, self.requires_grad)
        return "Parameter containing:\n" + repr(plain)

    def __reduce_ex__(self, proto: SupportsIndex) -> tuple[Any, ...]:
        state = torch._tensor_pickling.state_of(self)
        args: tuple[Any, ...] = (self.data, self.requires_grad, OrderedDict())
        if type(self) is not Parameter:
            return torch._tensor._rebuild_from_type_v2, (torch._utils._rebuild_parameter, type(self), args, state)
        if state:
            return torch._utils._rebuild_parameter_with_state, (*args, state)
        return torch._utils._rebuild_parameter, args


class UninitializedTensorMixin:
    """A tensor whose shape is not known yet: only conversion and materialisation are allowed."""

    data: Any
    requires_grad: Any
    cls_to_become: Any
    _allowed = frozenset(
        "_has_compatible_shallow_copy_type _to_copy bool char copy_ cpu cuda double float get_device half int is_complex "
        "is_floating_point long npu short size to".split()
    )

    def materialize(self, shape: tuple[Any, ...], device: Any = None, dtype: Any = None) -> None:
        """Become a real tensor of the given shape, in place."""
        data = self.data
        device = data.device if device is None else device
        dtype = data.dtype if dtype is None else dtype
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. "
            "This error usually happens in `load_state_dict` when trying to load "
            "an uninitialized parameter into an initialized one. "
            "Call `forward` to initialize the parameters before accessing their attributes."
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. "
            "Call `forward` to initialize the parameters before calling "
            "`module.share_memory()`."
        )

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_property = isinstance(func, MethodWrapperType)            # __get__ or __set__ of one
        if not is_property and getattr(func, "__name__", "") not in cls._allowed:
            raise ValueError(
                f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
                f"`LazyModule` or explicitly manipulating `torch.nn.parameter.{cls.__name__}` objects. When using "
                "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}>"

    def __reduce_ex__(self, proto: SupportsIndex) -> tuple[Any, ...]:
        return self.__class__, (self.requires_grad,)


def is_lazy(param: Any) -> bool:
    """Say whether a parameter or buffer still waits for its shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A Parameter whose shape the first forward call decides."""

    cls_to_become = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> UninitializedParameter:
        data = torch.empty(0, device=device, dtype=dtype)
        return torch.Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo: dict[Any, Any]) -> UninitializedParameter:
        if id(self) not in memo:
            data = self.data
            memo[id(self)] = type(self)(self.requires_grad, data.device, data.dtype)
        return memo[id(self)]


class _BufferMeta(type):
    """Lets any tensor marked `_is_buffer` count as a Buffer."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer and isinstance(instance, torch.Tensor):
            if getattr(instance, "_is_buffer", False):
                return True
        return super().__instancecheck__(instance)


class Buffer(torch.Tensor, metaclass=_BufferMeta):
    """A tensor that a Module adds to its buffers when it is assigned as an attribute."""

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = torch.empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t


class UninitializedBuffer(UninitializedTensorMixin, torch.Tensor):  # type: ignore[misc]
    """A buffer whose shape the first forward call decides."""

    persistent: bool
    cls_to_become = torch.Tensor

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> UninitializedBuffer:
        data = torch.empty(0, device=device, dtype=dtype)
        result = torch.Tensor._make_subclass(cls, data, requires_grad)
        result.persistent = persistent
        result._is_buffer = True
        return result

    def __deepcopy__(self, memo: dict[Any, Any]) -> UninitializedBuffer:
        if id(self) not in memo:
            data, keep = self.data, deepcopy(self.persistent)
            memo[id(self)] = type(self)(self.requires_grad, data.device, data.dtype, keep)
        return memo[id(self)]


torch._C._register_class("Parameter", Parameter)
