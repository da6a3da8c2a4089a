"""The Tensor class: its methods that are not ops, and the ops of the table as methods."""
from __future__ import annotations

import copy as _copy
import copyreg
import importlib
import warnings
from collections.abc import Callable
from typing import Any, SupportsIndex

from mindtorch_v2 import _C, _config
from mindtorch_v2._C import TensorMethods, _disabled_torch_function_impl
from mindtorch_v2._C import device as Device
from mindtorch_v2._C import dtype as DType
from mindtorch_v2._dlpack import DLDeviceType, to_capsule_device
from mindtorch_v2._legacy_new import check_class, check_legacy_device, legacy_error, legacy_tensor
from mindtorch_v2._offered_members import offer_members
from mindtorch_v2._printing import tensor_repr
from mindtorch_v2._shape import Size, walk_order
from mindtorch_v2._tensor_pickling import _rebuild_from_type_v2 as _rebuild_from_type_v2
from mindtorch_v2._tensor_pickling import empty_beside, reduce, set_old_state
from mindtorch_v2._typed_storage import NAMED_TYPES, TypedStorage, warn_of_removal


def _warn_of_reversing() -> None:
    _config.warn_once("The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it "
                      "will throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
                      "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.", 4)


def _warn_of_scalar(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)


class Tensor(TensorMethods):
    """A multi-dimensional array of items of one dtype, on one device."""

    __slots__ = ()               # the core has the places of __dict__ and of weak references
    __array_priority__ = 1000    # NumPy leaves mixed expressions to the tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            raise legacy_error(args, kwargs)
        check_legacy_device("cpu", kwargs.pop("device", None))
        made = legacy_tensor(*args, device="cpu", **kwargs)
        return made if cls is Tensor else made.as_subclass(cls)

    _grad, _grad_fn = TensorMethods.grad, TensorMethods.grad_fn

    @property
    def _cdata(self) -> int:
        return id(self)

    def _use_count(self) -> int:
        """One: a tensor is its Python object, nothing else owns it."""
        return 1

    # ---- overriding
    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that computes in __torch_dispatch__ says there what results are, unless it has a __torch_function__ too."""
        super().__init_subclass__(**kwargs)
        default = getattr(cls.__torch_function__, "__func__", None) is Tensor.__torch_function__.__func__   # type: ignore
        if "__torch_dispatch__" in vars(cls) and default:
            cls.__torch_function__ = _disabled_torch_function_impl   # type: ignore[method-assign]
        elif not default and cls.__torch_function__ is not _disabled_torch_function_impl:
            offer_members(cls, Tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The default: the result of an op on a subclass is of that subclass."""
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        previous = _C._set_function_off(True)
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            _C._set_function_off(previous)
        return _as_class(result, cls) if func not in _plain_results else result

    def as_subclass(self, cls: type) -> Any:
        """The same tensor as an instance of a subclass."""
        check_class(cls)
        view = self.alias() if hasattr(self, "alias") else self
        made: Any = TensorMethods.__new__(cls)
        _C._adopt(made, view)
        return made

    @staticmethod
    def _make_subclass(cls: type, data: Any, require_grad: bool = False) -> Any:
        if not isinstance(require_grad, bool):
            raise TypeError("_make_subclass(): argument 'require_grad' (position 3) must be bool, not "
                            f"{type(require_grad).__name__}")
        check_class(cls)
        if not isinstance(data, TensorMethods):
            raise TypeError(f"_make_subclass(): argument 'data' (position 2) must be Tensor, not {type(data).__name__}")
        made: Any = TensorMethods.__new__(cls)
        _C._adopt(made, data.detach())
        TensorMethods.requires_grad.__set__(made, require_grad)      # type: ignore[attr-defined]  # its class is not asked
        return made

    @staticmethod
    def _make_wrapper_subclass(cls: type, size: Any, strides: Any = None, storage_offset: Any = None,
                               memory_format: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
                               pin_memory: bool = False, requires_grad: bool = False,
                               dispatch_sizes_strides_policy: Any = None, dispatch_device: bool = False,
                               dispatch_layout: bool = False, **kwargs: Any) -> Any:
        """A tensor without memory, whose class computes in __torch_dispatch__."""
        if not hasattr(cls, "__torch_dispatch__"):
            raise TypeError(f"{cls.__name__} must define __torch_dispatch__")
        return _C._make_wrapper(cls, size, strides, dtype or _C.get_default_dtype(), device or "cpu", requires_grad,
                                storage_offset or 0)

    @property
    def _readable(self) -> bool:
        """Whether Python may take the values out: not where they stand for many samples, have a tangent, or are none."""
        if type(self) is not Tensor and self.numel() and TensorMethods.untyped_storage(self).nbytes() == 0:
            return False                         # a wrapper: its class has the values
        return not self.is_meta and not _C._has_tangents(self)

    def _known(self) -> Any:
        """item() where the value may be taken out, else None: what only checks it does without there."""
        return self.item() if self._readable else None

    def _fresh(self) -> Any:
        """The same value without history."""
        return self.detach()

    def _of_all_samples(self) -> Any:
        """The values, inside vmap those of all samples at once: for what need not be exact for each."""
        return self

    # ---- conversion
    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """The tensor with another dtype, device or memory format; itself when nothing changes."""
        if type(self) is not Tensor and _overridden(self):
            return _override(Tensor.to, self, args, kwargs)
        return _C._to(self, *_parse_to(*args, **kwargs))

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the tensor's type, or the tensor cast to one."""
        if dtype is None:
            return _type_name(self.dtype, self.device)
        if isinstance(dtype, str):
            name = dtype.rpartition(".")[2]
            if not dtype.startswith("torch.") or name not in _TYPE_NAMES:
                raise ValueError(f"invalid type: '{dtype}'")
            dtype = _TYPE_NAMES[name]
        if isinstance(dtype, (bool, int, float, bytes)):
            raise TypeError("dtype must be a type, str, or dtype object")
        dtype = getattr(dtype, "dtype", dtype)
        return self.to(dtype)

    def cpu(self, memory_format: Any = None) -> Tensor:
        """The tensor in the host's memory."""
        return _C._to(self, None, Device("cpu"), False, False, None)

    def npu(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        """The tensor on an npu, the current one unless another is given."""
        return _C._to(self, None, Device("npu" if device is None else device), non_blocking, False, None)

    def type_as(self, other: Any) -> Tensor:
        """The tensor with the dtype and the device of another."""
        return _C._to(self, other.dtype, other.device, False, False, None)

    def numpy(self, *, force: bool = False) -> Any:
        """A NumPy array over the same memory."""
        if force:
            return self.detach().cpu().resolve_conj().numpy()
        if self.requires_grad and _C._is_grad_enabled():
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return numpy_module().asarray(_C._array_view(self.detach() if self.requires_grad else self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        return _C._from_data(array, _C._dtype_named("bool") if array.dtype == bool else None, True)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: bool | None = None) -> Any:
        if stream is not None and type(stream) is not int:
            raise TypeError("stream must be ``int`` or ``none``")
        assert stream is None or self.device.type != "cpu", "stream should be None on cpu."
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.is_conj():
            raise BufferError("Can't export tensors with the conjugate bit set")
        if self.layout is not _C._named_constant("strided"):
            raise BufferError("Can't export tensors with layout other than torch.strided")
        moved = to_capsule_device(self, dl_device, copy)
        return _C._to_dlpack(moved, max_version is not None and max_version[0] >= 1, moved is not self)

    def __dlpack_device__(self) -> tuple[DLDeviceType, int]:
        if self.device.type != "cpu":
            raise ValueError(f"Unknown device type {self.device.type} for Dlpack")
        return DLDeviceType.kDLCPU, 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Refuses: there are no CUDA tensors."""
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is "
                             "required use tensor.cuda() to copy tensor to device memory.")

    def storage(self) -> TypedStorage:
        """The storage as items of the tensor's dtype."""
        warn_of_removal(stacklevel=3)
        return self._typed_storage()

    def _typed_storage(self) -> TypedStorage:
        """storage(), without a word that it is deprecated."""
        return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)

    def _fix_weakref(self) -> None:
        """Nothing to do: a weak reference never sees a tensor whose end has begun."""

    def storage_type(self) -> Any:
        """The class of its storage: torch.FloatStorage, or TypedStorage where its dtype has none of its own."""
        return NAMED_TYPES.get((self.dtype, self.device.type), TypedStorage)

    def is_shared(self) -> bool:
        """Whether the storage lies in memory that forked processes share."""
        return self.untyped_storage().is_shared()

    def share_memory_(self) -> Tensor:
        """Moves the storage to memory that processes forked from now on share."""
        self.untyped_storage().share_memory_()
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the storage lies in page-locked memory."""
        return self.untyped_storage()._pinned

    def pin_memory(self, device: Any = None) -> Tensor:
        """A copy in page-locked memory, from which an npu copies faster; itself when it is pinned."""
        if self.device.type != "cpu":
            raise RuntimeError(f"cannot pin '{_type_name(self.dtype, self.device)}' only dense CPU tensors can be pinned")
        if self.is_pinned():
            return self
        return _C._op_named("empty_like")(self, pin_memory=True, requires_grad=False).copy_(self)

    def cuda(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no CUDA here."""
        raise AssertionError("Torch not compiled with CUDA enabled: the devices are cpu and npu")

    def xpu(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no XPU here."""
        raise AssertionError("Torch not compiled with XPU enabled: the devices are cpu and npu")

    def ipu(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no IPU here."""
        raise RuntimeError("PyTorch is not linked with support for ipu devices: the devices are cpu and npu")

    def mtia(self, *args: Any, **kwargs: Any) -> Any:
        """Raises: there is no MTIA here."""
        raise AssertionError("Torch not compiled with MTIA enabled: the devices are cpu and npu")

    def reinforce(self, reward: Any) -> None:
        """Raises, as torch does."""
        raise RuntimeError("reinforce() was removed.\nUse torch.distributions instead.")

    def const_data_ptr(self) -> int:
        """data_ptr(), for reading only: a tensor of _lazy_clone() goes on sharing its memory."""
        start = _C._data_address(self)
        return start + self.storage_offset() * self.element_size() if start else 0

    def module_load(self, other: Tensor, assign: bool = False) -> Tensor:
        """What load_state_dict puts in this tensor's place: other, or its values in this tensor's class."""
        return other.detach() if assign else self.copy_(other).detach()

    def narrow_copy(self, dim: int, start: int, length: int) -> Tensor:
        """A copy of length places of a dim."""
        return self.narrow(dim, start, length).clone()

    def record_stream(self, s: Any) -> None:
        """Keeps the memory from being reused before the work queued on another stream is done."""
        if self.device.type != "npu":
            raise NotImplementedError("Could not run 'aten::record_stream' with arguments from the "
                                      f"'{self.device.type.upper()}' backend.")
        self.untyped_storage()._record_stream(s.npu_stream)

    # ---- new tensors like this one
    def new_tensor(self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
                   pin_memory: bool = False) -> Tensor:
        """A copy of data, with this tensor's dtype and device unless others are given."""
        if isinstance(data, Tensor):
            warnings.warn("To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
                          "sourceTensor.detach().clone().requires_grad_(True), rather than "
                          "tensor.new_tensor(sourceTensor).", UserWarning, stacklevel=2)
        if isinstance(data, Tensor) and data.layout is not _C._named_constant("strided"):
            made = data.detach().to(dtype=dtype or self.dtype, copy=True)
        else:
            made = _C._from_data(data, dtype or self.dtype, False)
        made = _C._to(made, None, device or self.device, False, False, None)
        made = made.pin_memory() if pin_memory else made
        return made.requires_grad_(True) if requires_grad else made

    def new(self, *args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        """torch.Tensor(…) with this tensor's dtype and device."""
        if "dtype" in kwargs:
            raise legacy_error(args, kwargs)
        check_legacy_device(self.device.type, device)
        return legacy_tensor(*args, dtype=self.dtype, device=device or self.device, **kwargs)

    def dim_order(self, *, ambiguity_check: Any = False) -> tuple[int, ...]:
        """The dims from outermost to innermost in memory; ambiguity_check: whether there must be no other order, or which
        memory formats may decide it."""
        formats = ambiguity_check if isinstance(ambiguity_check, list) else []
        if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, _C.memory_format) for f in formats):
            raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
        strides = self.stride()
        if ambiguity_check is not False and (1 in self.shape or any(a == b for a, b in zip(strides, strides[1:]))) and \
                sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
            raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory "
                               "formats.")
        for format, order in ((_CONTIGUOUS, (*range(self.dim()),)), (_CHANNELS_LAST, (0, *range(2, self.dim()), 1))):
            other = _CHANNELS_LAST if format is _CONTIGUOUS else _CONTIGUOUS
            if self.is_contiguous(memory_format=format) and not self.is_contiguous(memory_format=other):
                return order
        found, ambiguous = walk_order(self.shape, [strides])
        if ambiguity_check is not False and ambiguous:
            raise RuntimeError("The tensor does not have unique dim order.")
        return tuple(found)

    def is_nonzero(self) -> bool:
        """Whether the one item is not zero."""
        return bool(self)

    def is_same_size(self, other: Any) -> bool:
        """Whether another tensor has the same shape."""
        return self.shape == other.shape

    def is_distributed(self) -> bool:
        """False: a tensor is of one process."""
        return False

    # ---- shape as attributes
    @property
    def T(self) -> Tensor:
        """The dims in reverse order."""
        if self.dim() == 0:
            _warn_of_scalar("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.")
        elif self.dim() != 2:
            _warn_of_reversing()
        return self.permute(*range(self.dim() - 1, -1, -1)) if self.dim() else self

    @property
    def mT(self) -> Tensor:
        """Every matrix transposed: the last two dims swapped."""
        if self.dim() == 1:
            raise RuntimeError("tensor.mT is only supported on matrices or batches of matrices. Got 1-D tensor.")
        if not self.dim():
            _warn_of_scalar("Tensor.mT is deprecated on 0-D tensors. This function is the identity in these cases.")
        return self.transpose(-2, -1) if self.dim() else self

    @property
    def H(self) -> Tensor:
        """A matrix transposed and conjugated."""
        if self.dim() not in (0, 2):
            raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self.dim()}-D tensor."
                               + (" For batches of matrices, consider using tensor.mH" if self.dim() > 2 else ""))
        if not self.dim():
            _warn_of_scalar("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().")
        return self.mH if self.dim() else self.conj()

    @property
    def mH(self) -> Tensor:
        """Every matrix transposed and conjugated."""
        if self.dim() == 1:
            raise RuntimeError("tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor.")
        if not self.dim():
            _warn_of_scalar("Tensor.mH is deprecated on 0-D tensors. Consider using x.conj().")
        return self.transpose(-2, -1).conj() if self.dim() else self.conj()

    @property
    def real(self) -> Tensor:
        """The real parts, as a view."""
        return _parts(self).select(-1, 0) if self.is_complex() else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real.copy_(value)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, as a view."""
        if not self.is_complex():
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        return (_parts(self)._neg_view() if self.is_conj() else _parts(self)).select(-1, 1)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag.copy_(value)

    # ---- printing, copying, pickling
    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if type(self) is not Tensor and _overridden(self):
            return _override(Tensor.__repr__, self, (), {})
        return tensor_repr(self)

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and not self.is_meta and type(self) is Tensor:
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, (Tensor, int, float, complex, bool)):
            found: Any = element == self
            return bool(found.any().item())
        raise RuntimeError("Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                           f"{type(element)}.")

    def __reversed__(self) -> Tensor:
        """The tensor from its last row to its first."""
        return self.flip(0) if self.dim() else self

    def _is_zerotensor(self) -> bool:
        """False: zeros are items in memory."""
        return False

    def _view_func(self, new_base: Tensor) -> Tensor | None:
        """The view that self is of its base, of another base; None where self is no view or the other is not like its base."""
        base = self._base
        if base is None or (base.shape, base.stride(), base.dtype, base.device) != (
                new_base.shape, new_base.stride(), new_base.dtype, new_base.device):
            return None
        return self._view_func_unsafe(new_base)

    def _view_func_unsafe(self, new_base: Tensor, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None) -> Tensor | None:
        """The same without looking whether the other is like the base."""
        base = self._base
        if base is None:
            return None
        begin = self.storage_offset() * self.itemsize - base.storage_offset() * base.itemsize
        found = new_base if self.dtype is base.dtype else new_base.view(self.dtype)
        found = found.as_strided(self.shape, self.stride(), found.storage_offset() + begin // self.itemsize)
        found = found if self.is_conj() == base.is_conj() else found.conj()
        return found if self.is_neg() == base.is_neg() else found._neg_view()

    def _rev_view_func_unsafe(self, new_view: Tensor, symint_visitor_fn: Any = None,
                              tensor_visitor_fn: Any = None) -> Tensor | None:
        """A base of another view: the view of it that has self's base's sizes and strides."""
        base = self._base
        if base is None:
            return None
        found = new_view if new_view.is_conj() == base.is_conj() else new_view.conj()
        found = found if found.is_neg() == base.is_neg() else found._neg_view()
        if found.dtype is not base.dtype:
            found = found.as_strided((found.untyped_storage().nbytes() // found.itemsize,), (1,), 0).view(base.dtype)
        return found.as_strided(base.shape, base.stride(), base.storage_offset())

    _has_symbolic_sizes_strides = False

    def __deepcopy__(self, memo: dict[Any, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                               "protocol at the moment.  If you were attempting to deepcopy a module, this may be "
                               "because of a torch.nn.utils.weight_norm usage, see "
                               "https://github.com/pytorch/pytorch/pull/103001")
        if id(self) in memo:
            return memo[id(self)]
        if self.is_meta or self.is_conj() or self.is_neg():
            data = self.detach().clone()
        else:
            storage = self.untyped_storage().__deepcopy__(memo)
            data = empty_beside(storage, self.dtype).set_(storage, self.storage_offset(), tuple(self.shape), self.stride())
        made = data if type(self) is Tensor else data.as_subclass(type(self))
        made.requires_grad = self.requires_grad
        if self.grad is not None:
            made.grad = self.grad.__deepcopy__(memo)
        made.__dict__.update(_deep(self.__dict__, memo))
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return reduce(self, Tensor)

    __setstate__ = set_old_state

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)) | set(self.__dict__))


def _parts(self: Tensor) -> Any:
    """A complex tensor's memory as pairs; of one that is read conjugated, the imaginary parts are still to be negated."""
    return _C._op_named("view_as_real")(self._conj() if self.is_conj() else self)


def _deep(items: dict[Any, Any], memo: dict[Any, Any]) -> dict[Any, Any]:
    return {k: _copy.deepcopy(v, memo) for k, v in items.items()}


_plain_results: set[Any] = set()             # functions whose results stay plain (shape, device …)


def _as_class(result: Any, cls: type) -> Any:
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if type(result) in (tuple, list):
        return type(result)(_as_class(r, cls) for r in result)
    if isinstance(result, tuple) and hasattr(result, "n_fields"):        # torch.return_types
        return type(result)(tuple(_as_class(r, cls) for r in result))
    return result


def _overridden(x: Any) -> bool:
    return type(x).__torch_function__ is not _disabled_torch_function_impl and not _C._is_function_off()


def _override(func: Any, self: Any, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> Any:
    return type(self).__torch_function__(func, (type(self),), (self, *args), kwargs)


def numpy_module() -> Any:
    """NumPy, imported at the first use of an array: `import mindtorch_v2` does not need it."""
    return importlib.import_module("numpy")


def _parse_to(*args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
              memory_format: Any = None) -> tuple[Any, Any, bool, bool, Any]:
    """(dtype, device, non_blocking, copy, memory_format) of to(dtype), to(device, dtype) and to(other)."""
    rest = list(args)
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    elif rest and (rest[0] is None or isinstance(rest[0], (Device, str, int)) and not isinstance(rest[0], bool)):
        device = rest.pop(0)
    if rest and (isinstance(rest[0], DType) or rest[0] in _PYTHON_TYPES):
        dtype = rest.pop(0)
    elif len(rest) and rest[0] is None:
        rest.pop(0)
    for value, name in zip(rest, ("non_blocking", "copy")):
        if not isinstance(value, bool):
            raise TypeError(f"to() received an invalid combination of arguments - got {type(value).__name__}")
        if name == "copy":
            copy = value
        else:
            non_blocking = value
    return dtype, device, non_blocking, copy, memory_format


_CONTIGUOUS, _CHANNELS_LAST = _C._named_constant("contiguous_format"), _C._named_constant("channels_last")
_PYTHON_TYPES = (float, int, bool, complex)
_TYPE_NAMES = {word + "Tensor": _C._dtype_named(name) for word, name in zip(_C.TYPE_WORDS, _C.DTYPE_NAMES)}


def _type_name(dtype: DType, device: Device) -> str:
    word = _C.TYPE_WORDS[dtype._id]
    quantized = "quantized." if word.startswith("Q") else ""
    return f"torch.{quantized}{'' if device.type == 'cpu' else device.type + '.'}{word}Tensor"


def _cast_method(dtype: DType) -> Callable[..., Tensor]:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        return _C._to(self, dtype, None, False, False, memory_format)
    return cast


def _bool_reduction(name: str, op: str) -> Callable[..., Tensor]:
    def reduce(self: Tensor) -> Tensor:
        if self.dtype != _C._dtype_named("bool"):
            raise RuntimeError(f"Expected self.scalar_type() == at::kBool to be true, but got false in {name}")
        return _C._op_named(op)(self)
    reduce.__name__, reduce.__qualname__, reduce.__doc__ = name, f"Tensor.{name}", f"{op}() of a bool tensor."
    return reduce


def install_methods(methods: dict[str, Any]) -> None:
    """Makes the table's ops attributes of Tensor."""
    for name, function in methods.items():
        setattr(Tensor, name, _C._method_of(function) if isinstance(function, _C.Op) else function)
    for name, target in (("half", "float16"), ("bfloat16", "bfloat16"), ("float", "float32"), ("double", "float64"),
                         ("char", "int8"), ("byte", "uint8"), ("short", "int16"), ("int", "int32"), ("long", "int64"),
                         ("bool", "bool"), ("chalf", "complex32"), ("cfloat", "complex64"), ("cdouble", "complex128")):
        method = _cast_method(_C._dtype_named(target))
        method.__name__, method.__qualname__, method.__doc__ = name, f"Tensor.{name}", f"The tensor as {target}."
        setattr(Tensor, name, method)
    for name in ("shape", "device", "dtype", "requires_grad", "ndim", "is_leaf", "layout", "grad_fn"):
        _plain_results.add(getattr(TensorMethods, name).__get__)


for _name in ("is_sparse", "is_sparse_csr", "is_quantized", "is_mkldnn", "is_mps", "is_xpu", "is_nested", "is_xla",
              "is_ipu", "is_mtia", "is_vulkan", "is_maia"):
    setattr(Tensor, _name, False)       # kinds of tensors that this library does not have
for _name, _value in (("name", None), ("volatile", None), ("__rdiv__", TensorMethods.__rtruediv__),
                      ("__div__", TensorMethods.__truediv__), ("__idiv__", TensorMethods.__itruediv__)):
    setattr(Tensor, _name, _value)
for _name in ("_is_all_true", "_is_any_true"):
    setattr(Tensor, _name, _bool_reduction(_name, _name[4:7]))
copyreg.pickle(Size, lambda s: (Size, (tuple(s),)))
_C._register_class("Tensor", Tensor)
