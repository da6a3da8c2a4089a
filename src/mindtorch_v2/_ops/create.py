"""Rows of the ops that make tensors."""
from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import _core as core
from mindtorch_v2._ops import batching, batching_nn, forward
from mindtorch_v2._ops.table import Spec, composite, op, ops
from mindtorch_v2._tensor import Tensor

_OPTIONS = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
            "bool? requires_grad=False, MemoryFormat? memory_format=None")

for _name in ("empty", "zeros", "ones"):
    op(f"{_name}(SymInt[] size, {_OPTIONS}) -> Tensor", native=_name, variants="function")
    op(f"{_name}_like(Tensor self, {_OPTIONS}) -> Tensor",
       batch=batching.leading, native=f"{_name}_like", variants="function", out=False)
op(f"full(SymInt[] size, Scalar fill_value, {_OPTIONS}) -> Tensor", native="full", variants="function")
op("empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
   "bool? pin_memory=None, bool? requires_grad=False) -> Tensor", out=False,
   native="empty_strided", variants="function")


@composite(f"full_like(Tensor self, Scalar fill_value, {_OPTIONS}) -> Tensor", out=False, variants="function", whole=True,
           forward=forward.constant)
def _full_like(self: Tensor, fill_value: complex, dtype: _C.dtype | None, layout: _C.layout | None,
               device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None,
               memory_format: _C.memory_format | None) -> Tensor:
    filled = ops.empty_like(self, dtype=dtype, device=device, memory_format=memory_format).fill_(fill_value)
    return filled._requires_grad_(True) if requires_grad else filled


for _name in ("empty", "zeros", "ones"):
    def _new(self: Tensor, size: Sequence[int], dtype: _C.dtype | None, layout: _C.layout | None,
             device: str | _C.device | None, pin_memory: bool | None, requires_grad: bool | None,
             _make: _C.Op = getattr(ops, _name)) -> Tensor:
        return _make(size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=bool(requires_grad))
    op(f"new_{_name}(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
       "bool? pin_memory=None, bool? requires_grad=False) -> Tensor", out=False,
       batch=batching_nn.new_like, forward=forward.constant, body=_new, variants="method", whole=True)


@composite("new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
           "Device? device=None, bool? pin_memory=None, bool? requires_grad=False) -> Tensor", out=False,
           batch=batching_nn.new_like, forward=forward.constant, variants="method", whole=True)
def _new_full(self: Tensor, size: Sequence[int], fill_value: complex, dtype: _C.dtype | None, layout: _C.layout | None,
              device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    return ops.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device,
                    requires_grad=bool(requires_grad))


@composite("new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, "
           "Layout? layout=None, Device? device=None, bool? pin_memory=None, bool? requires_grad=False) -> Tensor",
           out=False, batch=batching_nn.new_strided, forward=forward.constant, variants="method", whole=True)
def _new_empty_strided(self: Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: _C.dtype | None,
                       layout: _C.layout | None, device: _C.device | None, pin_memory: bool | None,
                       requires_grad: bool | None) -> Tensor:
    return ops.empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device,
                             requires_grad=bool(requires_grad))


@composite("scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
           "bool? pin_memory=None, bool? requires_grad=False) -> Tensor", out=False, variants="function", whole=True)
def _scalar_tensor(s: float, dtype: _C.dtype | None, layout: _C.layout | None, device: _C.device | None,
                   pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """A 0-dim tensor; of the default dtype unless one is given."""
    return ops.full((), s, dtype=dtype or _C.get_default_dtype(), device=device, requires_grad=bool(requires_grad))


@composite("fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)")
def _fill_tensor(self: Tensor, value: Tensor) -> Tensor:
    if value.dim() != 0:
        raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                           f"{value.dim()} dimensions.")
    return self.copy_(value)


op("fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)", batch=batching.leading, kernel="fill", guard="fits",
   npu="aclnnInplaceFillScalar(self, value)", grad={"self": lambda g: ops.zeros_like(g)})


# ---- ranges ---------------------------------------------------------------------------------------------------------
_RANGE = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
          "bool? requires_grad=False")
op("_arange_(Tensor(a!) self, Scalar start, Scalar end, Scalar step) -> Tensor(a!)", kernel="arange", variants="",
   npu="aclnnArange(start, end, step, self)")
op("_range_(Tensor(a!) self, Scalar start, Scalar end, Scalar step) -> Tensor(a!)", kernel="arange", variants="",
   npu="aclnnRange(start, end, step, self)")
op("_linspace_(Tensor(a!) self, Scalar start, Scalar end, int steps) -> Tensor(a!)", kernel="linspace", variants="",
   npu="aclnnLinspace(start, end, steps, self)")
op("_logspace_(Tensor(a!) self, Scalar start, Scalar end, int steps, float base) -> Tensor(a!)", kernel="logspace",
   variants="")
op("_eye_(Tensor(a!) self, int n, int m) -> Tensor(a!)", kernel="eye", variants="", npu="aclnnEye(n, m, self)")


def _bound(x: float, dtype: _C.dtype | None) -> float:
    """A number of arange, which counts in int64, in float32 for 16 bits, or in float64."""
    if dtype is not None and (dtype.is_complex or dtype._name == "bool"):
        raise NotImplementedError(f'"arange_cpu" not implemented for \'{_C.TYPE_WORDS[dtype._id]}\'')
    if isinstance(x, complex):
        core._check_fits(x, _C._dtype_named("float64"))
        x = x.real
    if dtype is not None and not (isinstance(x, float) and math.isnan(x)):
        wide = "int64" if not dtype.is_floating_point else "float32" if dtype.itemsize == 2 else "float64"
        core._check_fits(x, _C._dtype_named(wide))
    return x


def _arange(start: float, end: float, step: float, dtype: _C.dtype | None, layout: _C.layout | None, device: Any,
            pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """Numbers from start to end (excluded) by step."""
    start, end, step = (_bound(x, dtype) for x in (start, end, step))
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if dtype is not None and dtype._name == "int64" and step == step:       # torch counts in the integers themselves
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
    whole = all(isinstance(x, int) for x in (start, end, step))
    if not whole and not all(math.isfinite(x) for x in (start, end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * (1 if step > 0 else -1) < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    n = -((start - end) // step) if whole else math.ceil((end - start) / step)
    dtype = dtype or (_C._dtype_named("int64") if whole else _C.get_default_dtype())
    if dtype._name in ("uint16", "uint32", "uint64"):
        raise NotImplementedError(f'"arange_cpu" not implemented for \'{_C.TYPE_WORDS[dtype._id]}\'')
    return finish(ops._arange_(ops.empty((n,), dtype=dtype, device=device), start, end, step), requires_grad)


def _in_its_shape(body: Callable[..., Any], warns: bool = False) -> Callable[..., Any]:
    """The body of out=: a tensor of as many items keeps its shape."""
    def made_for(out: Tensor, *args: float | _C.device | _C.dtype | None) -> Tensor:
        made = body(*args)
        if made.numel() == out.numel():
            return made.view(out.shape)
        if warns and out.numel():
            warnings.warn(f"The number of elements in the out tensor of shape {list(out.shape)} is {out.numel()} which does not "
                          f"match the computed number of elements {made.numel()}. Note that this may occur as a result of "
                          f"rounding error. The out tensor will be resized to a tensor of shape ({made.numel()},).", stacklevel=2)
        out.resize_(made.shape)                  # without the warning that other ops give
        return made
    return made_for


def finish(made: Tensor, requires_grad: bool | None) -> Tensor:
    """What a factory gives: its first items are no change of it."""
    core._set_version(made, 0)
    return made._requires_grad_(True) if requires_grad else made


for _overload, _params, _body in (
    ("", "Scalar end", lambda end, *rest: _arange(0, end, 1, *rest)),
    (".start", "Scalar start, Scalar end", lambda start, end, *rest: _arange(start, end, 1, *rest)),
    (".start_step", "Scalar start, Scalar end, Scalar step=1", _arange),
):
    op(f"arange{_overload}({_params}, {_RANGE}) -> Tensor", variants="function", doc=_arange.__doc__, body=_body,
       out=_in_its_shape(_body, warns=True), whole=True)


def _range(start: float, end: float, step: float, dtype: _C.dtype | None, layout: _C.layout | None,
           device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """Numbers from start to end, end included."""
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
                  "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).", stacklevel=2)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is not None and dtype._name == "int64":
        start, end, step = int(start), int(end), int(step)
    n = math.floor((end - start) / step) + 1
    return finish(ops._range_(ops.empty((n,), dtype=dtype, device=device), start, end, step), requires_grad)


op(f"range(Scalar start, Scalar end, Scalar step=1, {_RANGE}) -> Tensor", variants="function", body=_range,
   out=_in_its_shape(_range))


def _space(name: str, start: Any, end: Any, steps: int, dtype: _C.dtype | None,
           device: _C.device | None, *extra: float) -> Tensor:
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    dims = [x.dim() if hasattr(x, "dim") else 0 for x in (start, end)]
    if any(dims):
        wrong = [f"{which} with {dim} dimension(s)" for which, dim, x in zip(("start", "end"), dims, (start, end))
                 if hasattr(x, "dim")]
        raise RuntimeError(f"{name.strip('_')} only supports 0-dimensional start and end tensors, but got {' and '.join(wrong)}.")
    if any(x.is_meta for x in (start, end) if hasattr(x, "dim")):
        return ops.empty((steps,), dtype=dtype, device=device or "meta")
    if not all(x._readable for x in (start, end) if hasattr(x, "dim")):
        return _space_of_samples(start, end, steps, dtype or _C.get_default_dtype(), device, *extra)
    start, end = (x.item() if hasattr(x, "item") else x for x in (start, end))
    if dtype is None:
        dtype = _C.get_default_dtype()
        dtype = dtype.to_complex() if isinstance(start, complex) or isinstance(end, complex) else dtype
    for bound in (start, end)[:steps]:
        if isinstance(bound, complex) and not dtype.is_complex:
            kind = "double" if _C.get_default_dtype()._name == "float64" else "float"
            raise RuntimeError(f"torch.{name.strip('_')}(): inferred dtype c10::complex<{kind}> can't be safely cast to "
                               f"passed dtype {_C.TYPE_WORDS[dtype._id]}")
        core._check_fits(bound, dtype)
    if name == "_linspace_" and not (dtype.is_floating_point or dtype.is_complex):
        start, end = (int(bound) % 256 if dtype._name == "uint8" else int(bound) for bound in (start, end))
    return getattr(ops, name)(ops.empty((steps,), dtype=dtype, device=device), start, end, steps, *extra)


def _space_of_samples(start: Any, end: Any, steps: int, dtype: _C.dtype, device: Any,
                      *extra: float) -> Tensor:
    """_space between bounds that each sample of vmap has for itself; each half is counted from its own end."""
    at = ops.arange(steps, device=device)
    wide = _C._dtype_named("float64")
    start, end = (x.to(wide) if hasattr(x, "dim") else x for x in (start, end))
    step = (end - start) / max(steps - 1, 1)
    made = ops.where(at < (steps + 1) // 2, start + step * at, end - step * (steps - 1 - at))
    for base in extra:
        made = ops.pow(base, made)
    return made.to(dtype)


def _linspace(start: Tensor | float, end: Tensor | float, steps: int, dtype: _C.dtype | None, layout: _C.layout | None,
              device: _C.device | None, pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """steps numbers evenly spaced from start to end, both included."""
    return finish(_space("_linspace_", start, end, steps, dtype, device), requires_grad)


def _logspace(start: Tensor | float, end: Tensor | float, steps: int, base: float, dtype: _C.dtype | None,
              layout: _C.layout | None, device: _C.device | None, pin_memory: bool | None,
              requires_grad: bool | None) -> Tensor:
    """steps powers of base, with exponents evenly spaced from start to end."""
    return finish(_space("_logspace_", start, end, steps, dtype, device, base), requires_grad)


_SPACES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("linspace", "", _linspace), ("logspace", ", float base=10.0", _logspace))
for _name, _base, _body in _SPACES:
    for _overload, _kind in (("", "Scalar"), (".Tensor_Tensor", "Tensor")):    # a tensor that needs a gradient is no Scalar
        op(f"{_name}{_overload}({_kind} start, {_kind} end, int steps{_base}, {_RANGE}) -> Tensor", variants="function",
           numbers=_kind == "Tensor", body=_body, out=_in_its_shape(_body), whole=True)


@composite(f"eye(SymInt n, SymInt? m=None, {_RANGE}) -> Tensor", variants="function", whole=True)
def _eye(n: int, m: int | None, dtype: _C.dtype | None, layout: _C.layout | None, device: _C.device | None,
         pin_memory: bool | None, requires_grad: bool | None) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    m = n if m is None else m
    if dtype is not None and dtype._name == "complex32":
        raise NotImplementedError("\"eye\" not implemented for 'ComplexHalf'")
    if n < 0 or m < 0:
        raise RuntimeError(f"{'n' if n < 0 else 'm'} must be greater or equal to 0, got {n if n < 0 else m}")
    return finish(ops._eye_(ops.empty((n, m), dtype=dtype, device=device), n, m), requires_grad)


def _complex_rule(real: Tensor, imag: Tensor, polar: bool = False) -> Spec:
    if not polar and any(x.dtype._name not in ("float16", "float32", "float64") for x in (real, imag)):
        raise RuntimeError("Expected both inputs to be Half, Float or Double tensors but got "
                           f"{_C.TYPE_WORDS[real.dtype._id]} and {_C.TYPE_WORDS[imag.dtype._id]}")
    if real.dtype != imag.dtype:
        raise RuntimeError(f"Expected object of scalar type {_C.TYPE_WORDS[real.dtype._id]} but got scalar type "
                           f"{_C.TYPE_WORDS[imag.dtype._id]} for second argument")
    if polar and real.dtype._name == "float16":
        raise NotImplementedError("\"polar_cpu\" not implemented for 'Half'")
    if real.dtype._name not in ("float16", "float32", "float64"):
        raise RuntimeError("Expected both inputs to be Half, Float or Double tensors but got "
                           f"{_C.TYPE_WORDS[real.dtype._id]} and {_C.TYPE_WORDS[imag.dtype._id]}")
    return ops.broadcast_shapes(tuple(real.shape), tuple(imag.shape)), real.dtype.to_complex()


def _complex_out(out: Tensor, real: Tensor, imag: Tensor) -> Tensor:
    made = ops.complex(real, imag)
    if out.dtype is not made.dtype:
        raise RuntimeError(f"Expected object of scalar type {_C.TYPE_WORDS[made.dtype._id]} but got scalar type "
                           f"{_C.TYPE_WORDS[out.dtype._id]} for argument 'out'")
    return made


op("complex(Tensor real, Tensor imag) -> Tensor", out=_complex_out, format="=real",
   batch=batching.pointwise, rule=_complex_rule, variants="function", npu="aclnnComplex(real, imag, out)",
   grad={"real": lambda g, real, imag: g.real, "imag": lambda g, real, imag: g.imag})
op("polar(Tensor abs, Tensor angle) -> Tensor", format="=abs", batch=batching.pointwise, autocast={"cpu": "float32"},
   rule=lambda abs, angle: _complex_rule(abs, angle, True), variants="function", npu="aclnnPolar(abs, angle, out)",
   grad={"abs": lambda g, result: (g * result.sgn().conj()).real,
         "angle": lambda g, result: (g * (1j * result).conj()).real})
