"""FakeTensorMode: programs run for their shapes, dtypes and devices, without memory and without results.

A fake tensor says it is on a device and computes on `meta`; what an op gives is where its arguments are.
"""
from __future__ import annotations

import math
from typing import Any

import mindtorch_v2 as torch
from mindtorch_v2._subclasses._metadata import TensorMetadata as TensorMetadata
from mindtorch_v2._subclasses._metadata import extract_tensor_metadata as extract_tensor_metadata

_python_dispatch, _pytree = torch.utils._python_dispatch, torch.utils._pytree
_Mode: Any = _python_dispatch.TorchDispatchMode
_INDEX = torch.ops.aten.index.Tensor
_NUMBER = torch.ops.aten._local_scalar_dense.default
_SIZE = torch.ops.aten.sym_size.int

__all__ = ["DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "UnsupportedFakeTensorException", "unset_fake_temporarily"]


class UnsupportedFakeTensorException(RuntimeError):
    """What a fake tensor cannot stand for."""


class DynamicOutputShapeException(RuntimeError):
    """The shape of the result depends on values."""


class DataDependentOutputException(RuntimeError):
    """The result depends on values."""


class UnsupportedOperatorException(RuntimeError):
    """An op that has no rule for shapes."""


class MetadataMismatchError(RuntimeError):
    """A real tensor looks other than the fake one that stands for it."""


class FakeTensor(torch.Tensor):
    """A tensor of a FakeTensorMode: `elem` is its shape and dtype on the meta device."""

    elem: Any
    fake_mode: FakeTensorMode
    _has_symbolic_sizes_strides = False
    _sizes: tuple | None = None      # the sizes with the symbols in them, beside those that the tensor has in the example
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type, fake_mode: FakeTensorMode, elem: Any, device: Any, **kwargs: Any) -> Any:
        if elem.device.type != "meta":
            raise AssertionError(f"elem.device.type must be 'meta', got {elem.device.type}")
        made = torch.Tensor._make_wrapper_subclass(cls, elem.shape, elem.stride(), elem.storage_offset(), None, elem.dtype,
                                                   device=device, requires_grad=elem.requires_grad)
        made.elem, made.fake_mode = elem, fake_mode
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        mode = next(x.fake_mode for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, FakeTensor))
        return mode.dispatch(func, args, kwargs or {})

    @staticmethod
    def from_tensor(t: Any, fake_mode: FakeTensorMode) -> Any:
        """The fake tensor of a mode that stands for a tensor."""
        return fake_mode.from_tensor(t)

    def _symbolic_sizes(self) -> tuple:
        """The sizes: where they follow from symbols, numbers that say so."""
        known, sizes = self._sizes, self.elem.shape
        if known is None or tuple(map(torch._symbolic.plain, known)) != sizes:       # it took another shape since
            known = self._sizes = tuple(self._size_of(d, n) for d, n in enumerate(sizes))
        return known

    def _size_of(self, dim: int, size: int) -> Any:
        env = self.fake_mode.shape_env
        return torch._symbolic.symbolic(env.fresh_name(size), size, env, (_SIZE, (self, dim)))

    @property
    def shape(self) -> Any:
        """torch.Size, with symbols in it where the mode has a ShapeEnv."""
        return torch.Size(self._symbolic_sizes()) if self._has_symbolic_sizes_strides else super().shape

    def size(self, dim: Any = None) -> Any:
        """All sizes, or that of a dim."""
        if not self._has_symbolic_sizes_strides:
            return super().size() if dim is None else super().size(dim)
        if dim is None:
            return self.shape
        super().size(dim)                        # says what is wrong with a dim
        return self.shape[int(dim)]

    def numel(self) -> Any:
        """The product of the sizes."""
        return math.prod(self._symbolic_sizes()) if self._has_symbolic_sizes_strides else super().numel()

    nelement = numel

    def __len__(self) -> int:
        return len(self.elem)

    def stride(self, dim: Any = None) -> Any:
        """The steps of all dims, or of one; those of a contiguous tensor follow from its sizes."""
        if not self._has_symbolic_sizes_strides or not self.elem.is_contiguous():
            return super().stride() if dim is None else super().stride(dim)
        sizes, steps = self._symbolic_sizes(), [1]
        for n in sizes[:0:-1]:
            steps.insert(0, steps[0] * (n if torch._symbolic.plain(n) else 1))
        steps = steps[:len(sizes)]
        return tuple(steps) if dim is None else steps[dim]

    @property
    def fake_device(self) -> Any:
        return self.device

    @property
    def _readable(self) -> bool:
        return False

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise DataDependentOutputException("aten._local_scalar_dense.default")

    item = tolist = numpy = __array__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = _refuse

    def _fresh(self) -> torch.Tensor:
        return self.detach()

    def __repr__(self, **kwargs: Any) -> str:   # type: ignore[override]
        dtype = "" if self.dtype == torch.get_default_dtype() else f", dtype={self.dtype}"
        return f"FakeTensor(..., {'' if self.device.type == 'cpu' else f'device={str(self.device)!r}, '}" \
               f"size={tuple(self.shape)}{dtype}{', requires_grad=True' if self.requires_grad else ''})"

    def __deepcopy__(self, memo: dict) -> Any:
        return memo.setdefault(id(self), self.fake_mode.wrap(self.elem.clone(), self.device))


class FakeTensorMode(_Mode):
    """A with block in which ops give fake tensors; from_tensor makes one of a real tensor."""

    def __init__(self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None,
                 static_shapes: bool | None = None, export: bool = False) -> None:
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.shape_env = shape_env
        self.static_shapes = shape_env is None if static_shapes is None else static_shapes
        self.fake_tensor_converter = FakeTensorConverter()
        self._made: Any = torch.utils.weak.WeakTensorKeyDictionary()     # by identity: tensors compare item by item

    def wrap(self, elem: Any, device: Any) -> FakeTensor:
        """A fake tensor of a shape on meta, which says it is on a device."""
        return FakeTensor(self, elem, device)

    def from_tensor(self, tensor: Any, *, static_shapes: bool | None = None, source: Any = None,
                    symbolic_context: Any = None, trace: bool = True) -> Any:
        """The fake tensor that stands for a tensor, the same one every time."""
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI")
            return tensor
        found = self._made.get(tensor)
        if found is None:
            if tensor.layout != torch.strided:
                raise UnsupportedFakeTensorException(f"a tensor of layout {tensor.layout}")
            with _python_dispatch._disable_current_modes(), torch.no_grad():
                elem = _without_items(tensor)
            found = self.wrap(elem, tensor.device)
            static = self.static_shapes if static_shapes is None else static_shapes
            if self.shape_env is not None and not static:
                self._name_sizes(found)
            if tensor.requires_grad:
                found.requires_grad_()
            self._made[tensor] = found
        return found

    def _name_sizes(self, made: FakeTensor) -> None:
        """The sizes of an input become symbols, but 0 and 1; equal sizes are one symbol."""
        made._sizes = tuple(
            n if n in (0, 1) else torch._symbolic.symbolic(self.shape_env.name_of(n), n, self.shape_env, (_SIZE, (made, d)))
            for d, n in enumerate(made.elem.shape))
        made._has_symbolic_sizes_strides = any(n not in (0, 1) for n in made.elem.shape)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """An op on meta; its results are where the arguments are."""
        if func is _NUMBER and not isinstance(args[0], FakeTensor):      # what the program wrote is known
            with _python_dispatch._disable_current_modes():
                return func(*args)
        places: list[Any] = []
        symbolic = False

        def inner(x: Any) -> Any:
            nonlocal symbolic
            if isinstance(x, FakeTensor):
                if x.fake_mode is not self:
                    raise AssertionError("Mixing fake modes NYI")
                places.append(x.device)
                symbolic = symbolic or x._has_symbolic_sizes_strides
                return x.elem
            if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                symbolic = True
                return torch._symbolic.plain(x)
            if isinstance(x, torch.Tensor) and x.device.type != "meta":
                if x.dim() and not self.allow_non_fake_inputs and func is not _INDEX:    # an index written as a list is a tensor
                    raise AssertionError(f"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                                         f"'allow_non_fake_inputs'. Found in {func}")
                places.append(x.device)
                return self.from_tensor(x).elem
            return x
        with _python_dispatch._disable_current_modes():
            if torch.Tag.data_dependent_output in func.tags or func is _NUMBER or func.overloadpacket.__name__ == "_equal":
                raise DataDependentOutputException(func)
            given, named = _pytree.tree_map(inner, args), _pytree.tree_map(inner, {k: v for k, v in kwargs.items()
                                                                                   if k != "out"})
            device = kwargs.get("device")
            if device is not None or not places and any(a.name == "device" for a in func._schema.arguments):
                named["device"] = "meta"
            place = torch.device(device) if device is not None else _common(func, places, args, kwargs)
            if "out" in kwargs:
                named["out"] = _pytree.tree_map(inner, kwargs["out"])
            try:
                result = func(*given, **named)
            except NotImplementedError as error:
                raise DynamicOutputShapeException(func) from error
            if func.overloadpacket.__name__.endswith("_"):
                return args[0]
            if "out" in kwargs:
                return kwargs["out"]
            made = _pytree.tree_map_only(torch.Tensor, lambda x: self.wrap(x if x.is_meta else x.to("meta"), place), result)
            if symbolic and self.shape_env is not None:
                for x in _pytree.tree_leaves(made):
                    if isinstance(x, FakeTensor):
                        x._has_symbolic_sizes_strides = x.dim() > 0
            return made


def _without_items(tensor: Any) -> Any:
    """A tensor on meta with the sizes, strides, offset and storage of one that has items."""
    offset = tensor.storage_offset()
    room = tensor.untyped_storage().nbytes() // max(tensor.itemsize, 1) if type(tensor) is torch.Tensor and offset else 0
    if not room:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return torch.empty(room, dtype=tensor.dtype, device="meta").as_strided(tensor.shape, tensor.stride(), offset)


class FakeTensorConverter:
    """Makes the fake tensors of a mode; the mode itself remembers which tensor each stands for."""

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Any, **kwargs: Any) -> Any:
        """The fake tensor that stands for a tensor."""
        return fake_mode.from_tensor(t)

    def from_meta_and_device(self, fake_mode: FakeTensorMode, t: Any, device: Any, **kwargs: Any) -> Any:
        """A fake tensor that says it is on a device."""
        return fake_mode.wrap(t, torch.device(device))


def _common(func: Any, places: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
    """The device of the arguments; tensors of no dims on the cpu go anywhere."""
    if not places:
        return torch.get_default_device()
    tensors = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    chosen = places[0]
    for x in tensors:
        if x.device == chosen or x.dim() == 0 and x.device.type == "cpu":
            continue
        if chosen.type != "cpu" or any(t.dim() and t.device == chosen for t in tensors):
            raise RuntimeError(f"Unhandled FakeTensor Device Propagation for {func}, found two different devices {chosen}, "
                               f"{x.device}")
        chosen = x.device
    return chosen


def unset_fake_temporarily() -> Any:
    """A with block in which no mode is open."""
    return _python_dispatch._disable_current_modes()


def is_fake(x: Any) -> bool:
    """Whether x is a fake tensor."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: Any) -> Any:
    """The mode of a fake tensor, also of one inside a subclass that holds tensors; None of others."""
    if isinstance(t, FakeTensor):
        return t.fake_mode
    if not _python_dispatch.is_traceable_wrapper_subclass(t):
        return None
    modes = [maybe_get_fake_mode(getattr(t, name)) for name in t.__tensor_flatten__()[0]]
    if any(mode is not modes[0] for mode in modes):
        raise AssertionError("all inner tensors must be of one FakeTensorMode")
    return modes[0]


def get_plain_tensors(subclass: Any, *, out: list[Any]) -> list[Any]:
    """The tensors that a subclass holds, and those inside these, in `out`."""
    if not _python_dispatch.is_traceable_wrapper_subclass(subclass):
        out.append(subclass)
        return out
    for name in subclass.__tensor_flatten__()[0]:
        inner = getattr(subclass, name)
        if isinstance(inner, torch.Tensor):
            get_plain_tensors(inner, out=out)
        else:
            out.append(inner)
    return out


class FakeCopyMode(torch.overrides.TorchFunctionMode):
    """A with block in which copies of tensors (clone, copy.deepcopy) are fake ones of a mode."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.clone:
            return func(self.fake_mode.from_tensor(args[0]), **kwargs)
        if func is torch.Tensor.__deepcopy__:
            source, memo = args
            if id(source) not in memo:
                made = self.fake_mode.from_tensor(source)
                parameter = isinstance(source, torch.nn.Parameter)
                memo[id(source)] = torch.nn.Parameter(made, source.requires_grad) if parameter else made
            return memo[id(source)]
        with torch.overrides.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)


torch._named.complete(__name__)
