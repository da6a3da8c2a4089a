"""Smaller ops written from others: ldexp, frexp, gradient, geometry changed in place, copies of views."""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops import batching
from mindtorch_v2._ops.pointwise import conj
from mindtorch_v2._ops.returns import return_types
from mindtorch_v2._ops.table import alias, composite, op, ops, publish_plain
from mindtorch_v2._ops.view import wrap
from mindtorch_v2._tensor import Tensor

_INT32, _INT64, _FLOAT32, _FLOAT64 = (_C._dtype_named(name) for name in ("int32", "int64", "float32", "float64"))


# ---- numbers by their parts ----------------------------------------------------------------------------------------------
@composite("ldexp(Tensor self, Tensor other) -> Tensor", inplace=True, node=True,
           grad={"self": lambda g, other, result: ops.ldexp(g, conj(other)),
                 "other": lambda g, result: g * conj(result) * math.log(2)})
def _ldexp(self: Tensor, other: Tensor) -> Tensor:
    """self times 2 to the power of other."""
    if not self.is_floating_point() or other.is_floating_point() or other.is_complex():
        return self * ops.pow(2.0, other)
    if other.dtype._name == "bool":
        raise NotImplementedError('"ldexp_cpu_exp" not implemented for \'Bool\'')
    half = other >> 1                            # in two steps: 2 ** other alone may be beyond floats
    return (self * ops.pow(2.0, half) * ops.pow(2.0, other - half)).to(self.dtype)


def _exponent(x: Tensor) -> Tensor:
    """The exponents of float64 numbers whose mantissas lie in [0.5, 1); 0 for zeros, infinities and nans."""
    tiny = (x.abs() < 2.0 ** -1021) & (x != 0)
    bits = ops.where(tiny, x * 2.0 ** 54, x).contiguous().view(_INT64)
    found = ((bits >> 52) & 2047) - 1022 - 54 * tiny
    return found.masked_fill((x == 0) | ~x.isfinite(), 0)


@composite("frexp(Tensor self) -> (Tensor mantissa, Tensor exponent)",
           out="torch.frexp() expects exponent to have {result_c} dtype but got {out_c}")
def _frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissas in [0.5, 1) and exponents with self = mantissa * 2 ** exponent."""
    if not self.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    exponent = _exponent(self.detach().to(_FLOAT64))
    half = ops._div_trunc(exponent, 2)
    wide = self.to(_FLOAT64) * ops.pow(2.0, -half.to(_FLOAT64)) * ops.pow(2.0, (half - exponent).to(_FLOAT64))
    return return_types["frexp"]((wide.to(self.dtype), exponent.to(_INT32)))


@composite("positive(Tensor(a) self) -> Tensor(a)", out=False)
def _positive(self: Tensor) -> Tensor:
    """self; bool tensors are refused."""
    if self.dtype._name == "bool":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return self


# ---- gradient by differences ------------------------------------------------------------------------------------------------
def _differences(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    """Central differences along dim, one-sided at both ends; spacing is a number or the points themselves."""
    n = x.size(dim)

    def part(a: int, b: int) -> Tensor:
        return ops.slice(x, dim, a, b)

    def steps(v: Tensor) -> Tensor:
        return v.reshape([-1] + [1] * (x.dim() - 1 - wrap(dim, x.dim())))
    if not hasattr(spacing, "dtype"):
        inner = (part(2, n) - part(0, n - 2)) / (2 * spacing)
        if edge_order == 1:
            first, last = (part(1, 2) - part(0, 1)) / spacing, (part(n - 1, n) - part(n - 2, n - 1)) / spacing
        else:
            first = (-1.5 * part(0, 1) + 2 * part(1, 2) - 0.5 * part(2, 3)) / spacing
            last = (0.5 * part(n - 3, n - 2) - 2 * part(n - 2, n - 1) + 1.5 * part(n - 1, n)) / spacing
        return ops.cat([first, inner, last], dim)
    d = spacing[1:] - spacing[:-1]
    left, right = steps(d[:-1]), steps(d[1:])
    inner = (-right / (left * (left + right)) * part(0, n - 2) + (right - left) / (left * right) * part(1, n - 1)
             + left / (right * (left + right)) * part(2, n))
    if edge_order == 1:
        first = (part(1, 2) - part(0, 1)) / d[0]
        last = (part(n - 1, n) - part(n - 2, n - 1)) / d[-1]
    else:
        a, b, c, e = d[0], d[1], d[-2], d[-1]
        first = (-(2 * a + b) / (a * (a + b)) * part(0, 1) + (a + b) / (a * b) * part(1, 2)
                 - a / (b * (a + b)) * part(2, 3))
        last = (e / (c * (c + e)) * part(n - 3, n - 2) - (e + c) / (c * e) * part(n - 2, n - 1)
                + (2 * e + c) / (e * (c + e)) * part(n - 1, n))
    return ops.cat([first, inner, last], dim)


def gradient(input: Tensor, *, spacing: Any = 1, dim: int | tuple[int, ...] | None = None,
             edge_order: int = 1) -> tuple[Tensor, ...]:
    """The gradient along each dim, by central differences."""
    rank = input.dim()
    spacing = 1 if spacing is None else spacing
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    dims = list(range(rank)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    dims = [wrap(d, rank) for d in dims]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {next(d for d in dims if dims.count(d) > 1)} appears multiple times in the list of dims")
    spacings = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(dims)
    if len(spacings) != len(dims) and dim is None:
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar, or a list of length equal to "
                           f"'self.dim() = {rank}', since dim argument was not given, but got a list of length {len(spacings)}")
    if len(spacings) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar or it's spacing and dim arguments to "
                           f"have the same length, but got a spacing argument of length {len(spacings)} and a dim argument "
                           f"of length {len(dims)}.")
    for s in spacings:
        if hasattr(s, "device") and s.device != input.device:
            raise RuntimeError("torch.gradient expected each tensor to be on the same device, but got devices "
                               f"{input.device} and {s.device}!")
    if input.dtype._name == "uint8":
        raise RuntimeError("torch.gradient does not support uint8 input.")
    for d, s in zip(dims, spacings):
        if input.size(d) < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
        if hasattr(s, "dtype") and s.dim() > 1:
            raise RuntimeError("torch.gradient expected each element of spacing to have one dimension, but got an element with "
                               f"{s.dim()} dimensions!")
        if hasattr(s, "dtype") and s.dim() and s.numel() != input.size(d):
            raise RuntimeError("torch.gradient expected each element of spacing to have one dimension, "
                               f"but expected {input.size(d)} points, got a tensor of shape {list(s.shape)}")
    return tuple(_differences(input, d, s if not hasattr(s, "dim") or s.dim() else s.item(), edge_order)
                 for d, s in zip(dims, spacings))


# ---- indices ------------------------------------------------------------------------------------------------------------
def unravel_index(indices: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Coordinates, a tensor a dim, of positions in a flattened tensor of that shape."""
    if not hasattr(indices, "dtype"):
        raise TypeError("unravel_index() 'indices' must be a Tensor, but got " + str(type(indices)))
    if indices.is_floating_point() or indices.is_complex() or indices.dtype._name == "bool":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(not isinstance(n, int) for n in shape):
        raise TypeError("unravel_index() 'shape' must be int or sequence of ints")
    if any(n < 0 for n in shape):
        raise ValueError("'shape' cannot have negative values, but got " + str(shape))
    found, step, indices = [], 1, indices.to(_C._dtype_named("int64"))
    for n in reversed(shape):
        found.append(ops.floor_divide(indices, step) % n)
        step *= n
    return () if not found else ops.stack(found[::-1], -1).unbind(-1)     # views of one tensor, as torch has them


@composite("_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor", variants="function")
def _chunk_cat(tensors: tuple[Tensor, ...], dim: int, num_chunks: int) -> Tensor:
    """Chunks every tensor along dim, padded to equal chunks, and joins the flattened chunks."""
    if num_chunks < 1:
        raise RuntimeError("_chunk_cat expects positive num_chunks")
    if not tensors:
        raise RuntimeError("_chunk_cat expects a non-empty input tensor list")
    if dim < 0 and len({t.dim() for t in tensors}) > 1:
        raise RuntimeError("_chunk_cat expects non-negative dim when input tensors have different ndims")
    rows = []
    for t in tensors:
        if not t.numel():
            raise RuntimeError("_chunk_cat expects non-empty tensor")
        if t.dim() <= dim:
            raise RuntimeError("_chunk_cat expects dim < ndim for all input tensors")
        if t.shape[:dim] != tensors[0].shape[:dim]:
            raise RuntimeError("_chunk_cat expects same sizes of 0,...,dim-1 dimensions for all tensors")
        at = wrap(dim, t.dim())
        size = -(-t.size(at) // num_chunks) * num_chunks
        if size != t.size(at):
            shape = list(t.shape)
            shape[at] = size - shape[at]
            t = ops.cat([t, t.new_zeros(shape)], at)
        rows.append(t.reshape(tuple(t.shape[:at]) + (num_chunks, -1)))
    return ops.cat(rows, dim + 1 if dim >= 0 else -1)


@composite("fill.Tensor(Tensor self, Tensor value) -> Tensor", out=False, variants="function", whole="unrecorded")
def _fill_from(self: Tensor, value: Tensor) -> Tensor:
    """A tensor like self, every item the value."""
    if value.dim() != 0:
        raise RuntimeError(f"fill only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions.")
    return self.clone().copy_(value)                         # a cast, where fill_ refuses a number that does not fit


@composite("copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", out=False, variants="", whole="unrecorded")
def _copy(self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    """What self is after self.copy_(src)."""
    return batching.copied_beside(self, src).copy_(src, non_blocking)


@composite("zero(Tensor self) -> Tensor", out=False, variants="", whole="unrecorded")
def _zero(self: Tensor) -> Tensor:
    """What self is after self.zero_()."""
    return ops.zeros_like(self)


@composite("fill.Scalar(Tensor self, Scalar value) -> Tensor", out=False, variants="function", whole="unrecorded")
def _fill(self: Tensor, value: float) -> Tensor:
    return self.clone().fill_(value)


@composite("empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None, Layout? layout=None, "
           "Device? device=None, bool? pin_memory=None, bool? requires_grad=False) -> Tensor", out=False,
           variants="function")
def _empty_permuted(size: tuple[int, ...], physical_layout: tuple[int, ...], dtype: _C.dtype | None,
                    layout: _C.layout | None, device: _C.device | None, pin_memory: bool | None,
                    requires_grad: bool | None) -> Tensor:
    """An empty tensor whose dims lie in memory in the given order, outermost first."""
    if len(physical_layout) == len(size):
        for at, d in enumerate(physical_layout):
            if not 0 <= d < len(size):
                raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {d} at index "
                                   f"{at}).  NB: negative dims not currently supported; file an issue if you want it.")
    if len(physical_layout) != len(size) or sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(f"Number of dimensions in size does not match the length of the physical_layout; i.e. "
                           f"len(size) = {len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
                           if len(physical_layout) != len(size) else "Duplicate dim not allowed")
    strides, step = [0] * len(size), 1
    for d in reversed(physical_layout):
        strides[d] = step
        step *= max(size[d], 1)
    return ops.empty_strided(size, strides, dtype=dtype, device=device, requires_grad=bool(requires_grad))


# ---- geometry in place --------------------------------------------------------------------------------------------------
for _name in ("squeeze", "unsqueeze", "t", "transpose", "as_strided"):
    for _overload in getattr(ops, _name).overloads:
        _schema = _overload.schema.replace("Tensor(a)", "Tensor(a!)").replace(_name, _name + "_", 1)
        op(_schema, variants="function, method" if _name == "as_strided" else "method",
           body=lambda self, *args, _view=getattr(ops, _name): self._take_view_(_view(self, *args)))
op("swapaxes_(Tensor(a!) self, int axis0, int axis1) -> Tensor(a!)", variants="method",
   body=lambda self, axis0, axis1: self.transpose_(axis0, axis1), doc="transpose_(), with NumPy's names.")
alias("swapdims_", "transpose_", "method")


@composite("resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)")
def _resize_as_(self: Tensor, the_template: Tensor, memory_format: _C.memory_format | None) -> Tensor:
    """Gives self the shape of another tensor."""
    self.resize_(tuple(the_template.shape))
    if memory_format is not None and memory_format != _C._named_constant("contiguous_format"):
        form = _C._named_constant("channels_last") if memory_format == _C._named_constant("preserve_format") and \
            the_template.dim() == 4 and not the_template.is_contiguous() else memory_format
        if form != _C._named_constant("preserve_format"):
            like = ops.empty_like(self, memory_format=form, device="meta")
            self._take_view_(self.as_strided(self.shape, like.stride()))
    return self


@composite("fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)", variants="method",
           rule=lambda self, fill_value, wrap: (self.shape, self.dtype) if self.dim() == 2 else None,
           npu="aclnnInplaceFillDiagonal(self, fill_value, wrap)")
def _fill_diagonal_(self: Tensor, fill_value: float, wrap: bool) -> Tensor:
    """Fills the main diagonal; wrap: it begins anew below a tall matrix's square."""
    if self.dim() < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.dim() > 2 and len(set(self.shape)) != 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    n, step = min(self.shape), sum(self.stride())
    self.as_strided((n,), (step,), self.storage_offset()).fill_(fill_value)
    rows, columns = self.shape[:2]
    if wrap and self.dim() == 2 and rows > columns + 1:
        for row in range(columns + 1, rows, columns + 1):
            self[row:row + columns].diagonal().fill_(fill_value)
    return self


# ---- copies of views ----------------------------------------------------------------------------------------------------
def _copied(made: Any) -> Tensor | tuple[Tensor, ...]:
    whole = _C._named_constant("contiguous_format")
    return made.clone(memory_format=whole) if hasattr(made, "dtype") else tuple(m.clone(memory_format=whole) for m in made)


def _checked(view: _C.Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if view is ops.narrow and args[0].is_cpu and args[0].dim():      # not what the view says of the same arguments
        self, dim, start, length = args
        if dim >= self.dim():
            raise RuntimeError("Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.")
        if length < 0:
            raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({self.size(dim)}).")
    return args


for _name in ("alias", "as_strided", "detach", "diagonal", "expand", "narrow", "permute", "select", "slice", "split",
              "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as_complex",
              "view_as_real"):
    for _overload in list(getattr(ops, _name).overloads):
        _schema = _overload.schema.replace("Tensor(a)", "Tensor").replace(_name, _name + "_copy", 1)
        op(_schema, variants="function", doc=f"A copy of what {_name} shows.", out="exact", whole="unrecorded",
           body=lambda *args, _view=getattr(ops, _name), _n=_overload.npositional: _copied(_view(*_checked(_view, args[:_n]))))


# ---- items through Python -----------------------------------------------------------------------------------------------
def _numbers(x: Tensor) -> list[float]:
    return x.reshape(-1).tolist()


def _without_grad(name: str, *tensors: Tensor) -> None:
    if any(t.requires_grad for t in tensors):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")


def _check_kinds(name: str, self: Tensor, others: dict[str, Tensor]) -> None:
    """Refuses tensors of another dtype or device than self's."""
    for which, other in others.items():
        if other.dtype is not self.dtype or other.device != self.device:
            raise TypeError(f"{name}: expected {self.type()} for {which} (got {other.type()})")


@composite("apply_(Tensor self, any callable) -> Tensor", variants="method")
def _apply_(self: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Replaces every item by callable(item); for small CPU tensors."""
    _without_grad("apply_", self)
    if self.is_meta:
        return self
    made = [callable(v) for v in _numbers(self)]
    return self.copy_(_C._from_data(made, self.dtype, False).reshape(self.shape))


@composite("map_(Tensor self, Tensor tensor, any callable) -> Tensor", variants="method")
def _map_(self: Tensor, tensor: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Replaces every item by callable(item, item of tensor)."""
    _without_grad("map_", self, tensor)
    _check_kinds("map_", self, {"'other'": tensor})
    made = [callable(a, b) for a, b in zip(_numbers(self), _numbers(tensor.expand_as(self)))]
    return self.copy_(_C._from_data(made, self.dtype, False).reshape(self.shape))


@composite("map2_(Tensor self, Tensor x, Tensor y, any callable) -> Tensor", variants="method")
def _map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Replaces every item by callable(item, item of x, item of y)."""
    _without_grad("map2_", self, x, y)
    _check_kinds("map2_", self, {"argument 'x'": x, "argument 'y'": y})
    others = (_numbers(t.expand_as(self)) for t in (x, y))
    made = [callable(*items) for items in zip(_numbers(self), *others)]
    return self.copy_(_C._from_data(made, self.dtype, False).reshape(self.shape))


def _resized(self: Tensor, shape: Sequence[int], name: str = "resize") -> Tensor:
    warnings.warn(f"non-inplace {name} is deprecated", stacklevel=3)
    if math.prod(shape) != self.numel():
        raise RuntimeError(f"requested resize to {'x'.join(map(str, shape))} ({math.prod(shape)} elements in total), but "
                           f"the given tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} elements). "
                           "autograd's resize can only change the shape of a given tensor, while preserving the number "
                           "of elements. ")
    return self.contiguous().view(shape)


op("resize(Tensor self, SymInt[] size) -> Tensor", variants="method", doc="view, under a deprecated name.",
   body=_resized)
op("resize_as(Tensor self, Tensor tensor) -> Tensor", variants="method", doc="view_as, under a deprecated name.",
   body=lambda self, tensor: _resized(self, tuple(tensor.shape), "resize_as"))
publish_plain(gradient, unravel_index)
