"""Methods and properties of Tensor that are not ops: a subclass with a __torch_function__ of its own is offered them too."""
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C

NOT_METHODS = frozenset("""__delattr__ __delitem__ __dir__ __getattribute__ __hash__ __init__ __init_subclass__ __iter__
__new__ __setattr__ __subclasshook__ __torch_function__ _addmm_activation _conj _conj_physical _is_all_true
_is_any_true _is_zerotensor _lazy_clone _make_subclass _make_wrapper_subclass _neg_view _to_sparse _typed_storage
_view_func as_subclass eig lstsq new new_empty new_empty_strided new_full new_ones new_tensor new_zeros reinforce solve
stride symeig to_padded_tensor to_sparse_bsc to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr unflatten
__class__ __str__ __sizeof__ __reduce__ __getstate__ __copy__ __pow__ __rpow__ __ipow__ __neg__ __pos__ __abs__
__array_priority__ __cuda_array_interface__""".split())
_PRIVATE_METHODS = frozenset("""_autocast_to_full_precision _autocast_to_reduced_precision _backward_hooks _base _cdata
_clear_non_serializable_cached_data _coalesced_ _dimI _dimV _grad _grad_fn _indices _is_view _nested_tensor_size
_nested_tensor_storage_offsets _nested_tensor_strides _nnz _post_accumulate_grad_hooks _sparse_mask_projection
_to_dense _values _version""".split())
_SPECIAL_METHODS = frozenset("""__add__ __and__ __array__ __array_wrap__ __bool__ __complex__ __contains__ __deepcopy__ __div__
__dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __format__ __ge__ __getitem__ __gt__ __iadd__ __iand__
__idiv__ __ifloordiv__ __ilshift__ __imod__ __imul__ __index__ __int__ __invert__ __ior__ __irshift__ __isub__ __ixor__
__le__ __len__ __long__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __nonzero__ __or__ __radd__ __rand__
__rdiv__ __reduce_ex__ __repr__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__
__rrshift__ __rshift__ __rsub__ __rxor__ __setitem__ __setstate__ __sub__ __truediv__ __xor__""".split())
# What Python calls without a name. Operators are ops, and offered as such.
_CONVERSIONS = frozenset("""__array__ __bool__ __complex__ __contains__ __deepcopy__ __dlpack__ __dlpack_device__ __float__
__format__ __index__ __int__ __len__ __reduce_ex__ __repr__ __reversed__""".split())
_PLAIN_KINDS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def may_be_taken_over(name: str) -> bool:
    """Whether torch offers this member of Tensor to classes that take functions over."""
    if name.startswith("__"):
        return name in _SPECIAL_METHODS
    return name in _PRIVATE_METHODS if name.startswith("_") else name not in NOT_METHODS


def _ask(function: Callable[..., Any], self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the class says of the call; outside of a handler of its own."""
    if _C._is_function_off():
        return function(self, *args, **kwargs)
    result = self.__torch_function__(function, (type(self),), (self, *args), kwargs)
    if result is NotImplemented:
        raise TypeError(f"no implementation found for '{function}' on types that implement __torch_function__: {[type(self)]}")
    return result


def _offered(member: Any) -> Any:
    """The member as it stands in a class that takes functions over."""
    if type(member) in _PLAIN_KINDS:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return _ask(member, self, args, kwargs)
        method.__name__, method.__doc__ = member.__name__, member.__doc__
        return method
    return property(lambda self: _ask(member.__get__, self, (), {}), lambda self, value: _ask(member.__set__, self, (value,), {}),
                    lambda self: _ask(member.__delete__, self, (), {}), member.__doc__)


_members: dict[str, Any] = {}          # of Tensor: found when the first such class is made


def offer_members(cls: type, tensor: type) -> None:
    """Puts the members that no class below Tensor has into a class, so that its __torch_function__ sees them."""
    if not _members:
        every = {name: member for base in reversed(tensor.__mro__[:-1]) for name, member in vars(base).items()}
        _members.update({
            name: _offered(member) for name, member in every.items() if may_be_taken_over(name) and
            (name in _CONVERSIONS or not name.startswith("__")) and
            (type(member) in _PLAIN_KINDS or type(member) in (property, types.GetSetDescriptorType))})
    own = {name for base in cls.__mro__[:cls.__mro__.index(tensor)] for name in vars(base)}
    for name, member in _members.items():
        if name not in own:
            setattr(cls, name, member)
