"""Rows over lists of tensors: torch._foreach_*, and the ops of loss scaling. How they run is in `_C/foreach.pxi`."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, op, ops
from mindtorch_v2._row import Npu
from mindtorch_v2._schema import parse

# CANN's name of a foreach op, in torch's words.
_UNARY: dict[str, str | None] = {word.lower(): f"aclnnForeach{word}(self, out)" for word in
          ("Abs Acos Asin Atan Cos Cosh Erf Erfc Exp Expm1 Log Log10 Log1p Log2 Neg Reciprocal Sigmoid Sign Sin Sinh "
           "Sqrt Tan Tanh").split()}
_UNARY |= {name: f"aclnnForeachRoundOffNumberV2(self, {mode}, out)" for name, mode in
           {"round": 1, "floor": 2, "ceil": 3, "trunc": 5, "frac": 7}.items()}
_UNARY |= dict.fromkeys(("lgamma", "rsqrt"))               # CANN has none
# torch's name -> (the op of each, CANN's word)
_BINARY = {"add": ("add", "Add"), "sub": ("sub", "Sub"), "mul": ("mul", "Mul"), "div": ("div", "Div"),
           "clamp_max": ("clamp_max", "Minimum"), "clamp_min": ("clamp_min", "Maximum"),
           "maximum": ("clamp_min", "Maximum"), "minimum": ("clamp_max", "Minimum"), "pow": ("pow", "Pow")}
calls: dict[str, Npu] = {}                                 # a row's full name -> its call over whole lists


def _row(schema: str, each: str | Callable[..., Any], npu: str | Npu | None = None, norm: bool = False) -> None:
    """A row: what is done with the items ("add(self, other, alpha=alpha)": an op and parameters of the row), and the
    aclnn op that does it for all. norm: the result is one number a tensor."""
    parsed = parse(schema)
    arguments: list[tuple[int, str]] = []
    if isinstance(each, str):
        name, _, words = each.rstrip(")").partition("(")
        each, params = getattr(ops, name), [p.name for p in parsed.params]
        for word in words.split(", "):
            keyword, _, param = word.rpartition("=")
            arguments.append((params.index(param), keyword))
    npu = Npu(npu) if isinstance(npu, str) else npu
    if npu is not None:
        calls[f"{parsed.name}.{parsed.overload}" if parsed.overload else parsed.name] = npu
    body = _C.Foreach(schema, [tuple(p) for p in parsed.params], each, arguments, npu, norm)
    what = parsed.name.removeprefix("_foreach_")
    op(schema, body=body, variants="function", doc=f"{what} of each tensor of a list.")


def _both(name: str, overload: str, params: str, each: str, npu: str | None = None, changing: str = "") -> None:
    """The rows of an op and of its in-place form; changing: its op of each, where the name says it wrong."""
    function, _, words = each.partition("(")
    _row(f"_foreach_{name}{overload}(Tensor[] self{params}) -> Tensor[]", each, npu)
    _row(f"_foreach_{name}_{overload}(Tensor(a!)[] self{params}) -> ()", f"{changing or function + '_'}({words}", npu)


def _binary(name: str, each: str, word: str) -> None:
    other = "exponent" if name == "pow" else "other"
    number, numbers = ("exponent", "exponent") if name == "pow" else ("scalar", "scalars")
    alpha = name in ("add", "sub")
    # The tensor of one number comes first: a number would be read from it at once, and the host would wait.
    if name in ("add", "mul", "div"):
        _both(name, ".Tensor", ", Tensor other" + (", *, Scalar alpha=1" if alpha else ""),
              f"{each}(self, other{', alpha=alpha' if alpha else ''})", f"aclnnForeach{word}Scalar(self, other, out)")
    _both(name, ".Scalar", f", Scalar {number}", f"{each}(self, {number})",
          f"aclnnForeach{word}ScalarV2(self, {number}, out)")
    if alpha:
        _both(name, ".List", f", Tensor[] {other}, *, Scalar alpha=1", f"{each}(self, {other}, alpha=alpha)",
              f"aclnnForeach{word}ListV2(self, {other}, alpha, out)")
    else:
        plain = {"clamp_min": "maximum", "clamp_max": "minimum"}.get(each, each)     # takes bools; has no in-place form
        _both(name, ".List", f", Tensor[] {other}", f"{plain}(self, {other})",
              f"aclnnForeach{word}List(self, {other}, out)", f"{each}_")
    _both(name, ".ScalarList", f", Scalar[] {numbers}", f"{each}(self, {numbers})",
          f"aclnnForeach{word}ScalarList(self, {numbers}, out)")


def _packed(name: str) -> Callable[..., Any]:
    """addcmul or addcdiv with their numbers in one tensor of the host."""
    def unpacked(self: Sequence[Any], tensor1: Sequence[Any], tensor2: Sequence[Any], scalars: Any) -> Any:
        if scalars.device.type != "cpu":
            raise RuntimeError(f"Expected scalars to be on CPU, got {scalars.device} instead.")
        if not scalars.is_contiguous():
            raise RuntimeError("Expected scalars to be contiguous.")
        if scalars.dim() != 1:
            raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scalars.dim()} instead.")
        if len(scalars) != len(self):
            raise RuntimeError(f"Expected length of scalars to match input of length {len(self)} but got "
                               f"{len(scalars)} instead.")
        return getattr(ops, name)(self, tensor1, tensor2, scalars.tolist())
    return unpacked


def _ternary(name: str) -> None:
    word, lists = name.capitalize(), ", Tensor[] tensor1, Tensor[] tensor2"
    _row(f"_foreach_{name}.Tensor(Tensor[] self{lists}, Tensor scalars) -> Tensor[]", _packed(f"_foreach_{name}"))
    _row(f"_foreach_{name}_.Tensor(Tensor(a!)[] self{lists}, Tensor scalars) -> ()", _packed(f"_foreach_{name}_"))
    _both(name, ".Scalar", f"{lists}, Scalar value=1", f"{name}(self, tensor1, tensor2, value=value)",
          f"aclnnForeach{word}ScalarV2(self, tensor1, tensor2, value, out)")
    _both(name, ".ScalarList", f"{lists}, Scalar[] scalars", f"{name}(self, tensor1, tensor2, value=scalars)",
          f"aclnnForeach{word}ScalarList(self, tensor1, tensor2, scalars, out)")


def _powsum(self: Sequence[Any], ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The sum of |x| ** ord of each tensor."""
    return tuple(ops.sum(ops.pow(ops.abs(t if dtype is None else t.to(dtype)), ord)) for t in self)


for _name, _npu in _UNARY.items():
    _both(_name, "", "", f"{_name}(self)", _npu)
for _name, (_each, _word) in _BINARY.items():
    _binary(_name, _each, _word)
for _name in ("addcmul", "addcdiv"):
    _ternary(_name)
_row("_foreach_pow.ScalarAndTensor(Scalar self, Tensor[] exponent) -> Tensor[]", "pow(self, exponent)",
     "aclnnForeachPowScalarAndTensor(self, exponent, out)")
_both("lerp", ".Scalar", ", Tensor[] tensors1, Scalar weight", "lerp(self, tensors1, weight)",
      "aclnnForeachLerpScalar(self, tensors1, weight, out)")
_both("lerp", ".List", ", Tensor[] tensors1, Tensor[] weights", "lerp(self, tensors1, weights)",
      "aclnnForeachLerpList(self, tensors1, weights, out)")
_both("lerp", ".ScalarList", ", Tensor[] tensors1, Scalar[] weight", "lerp(self, tensors1, weight)")
_row("_foreach_zero_(Tensor(a!)[] self) -> ()", "zero_(self)",
     Npu("aclnnForeachZeroInplace(self)", any_dtype=True))
_row("_foreach_copy_(Tensor(a!)[] self, Tensor[] src, bool non_blocking=False) -> ()", "copy_(self, src, non_blocking)",
     Npu("aclnnForeachCopy(src, self)", any_dtype=True))
_row("_foreach_clone(Tensor[] self, *, MemoryFormat? memory_format=None) -> Tensor[]",
     "clone(self, memory_format=memory_format)", Npu("aclnnForeachCopy(self, out)", any_dtype=True))
_row("_foreach_norm.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]",
     "linalg_vector_norm(self, ord, dtype=dtype)", "aclnnForeachNorm(self, ord, out)", norm=True)
_row("_foreach_powsum.Scalar(Tensor[] self, Scalar ord=2, ScalarType? dtype=None) -> Tensor[]", _powsum)
_row("_foreach_max(Tensor[] self) -> Tensor[]", "max(self)")
_row("_foreach_mm(Tensor[] self, Tensor[] mat2) -> Tensor[]", "mm(self, mat2)")


# ---- loss scaling ----------------------------------------------------------------------------------------------------
def _one(t: Any, name: str, dtype: str) -> None:
    if t.numel() != 1:
        raise RuntimeError(f"{name} must be a 1-element tensor.")
    if t.dtype is not _C._dtype_named({"float": "float32", "int": "int32"}[dtype]):
        raise RuntimeError(f"{name} must be a{'n' if dtype == 'int' else ''} {dtype} tensor.")


def _unscale_each(self: Sequence[Any], found_inf: Any, inv_scale: Any) -> None:
    for grad in self:
        found_inf.copy_(ops.maximum(found_inf, (~grad.isfinite()).any().to(found_inf.dtype).reshape(found_inf.shape)))
        grad.mul_(inv_scale.to(grad.dtype).reshape(()))


_SCHEMA = "_amp_foreach_non_finite_check_and_unscale_(Tensor(a!)[] self, Tensor(b!) found_inf, Tensor inv_scale) -> ()"
_unscale = _C.Foreach(_SCHEMA, [tuple(p) for p in parse(_SCHEMA).params], _unscale_each, [],
                      Npu("aclnnForeachNonFiniteCheckAndUnscale(self, found_inf, inv_scale)"))


@composite(_SCHEMA, variants="function")
def _amp_foreach_non_finite_check_and_unscale_(self: Sequence[Any], found_inf: Any, inv_scale: Any) -> None:
    """Multiplies every tensor by inv_scale; found_inf becomes 1 where one has an item that is not finite."""
    _one(inv_scale, "inv_scale", "float")
    _one(found_inf, "found_inf", "float")
    if any(not t.is_floating_point() for t in self):
        raise NotImplementedError("_amp_foreach_non_finite_check_and_unscale_ is for tensors of floats")
    if self:
        _unscale(self, found_inf, inv_scale)


def _scale_rule(self: Any, growth_tracker: Any, found_inf: Any, *_: Any) -> tuple[Any, Any]:
    return self.shape, self.dtype


@composite("_amp_update_scale_(Tensor(a!) self, Tensor(b!) growth_tracker, Tensor found_inf, "
           "float scale_growth_factor, float scale_backoff_factor, int growth_interval) -> Tensor(a!)",
           variants="function", rule=_scale_rule,
           npu="aclnnAmpUpdateScale(self, growth_tracker, found_inf, scale_growth_factor, scale_backoff_factor, "
               "growth_interval, self, growth_tracker)")
def _amp_update_scale_(self: Any, growth_tracker: Any, found_inf: Any, scale_growth_factor: float,
                       scale_backoff_factor: float, growth_interval: int) -> Any:
    """Makes the scale smaller after a bad step, larger after growth_interval good ones; the host waits for nothing."""
    _one(growth_tracker, "growth_tracker", "int")
    _one(self, "current_scale", "float")
    _one(found_inf, "found_inf", "float")
    bad, good_steps = found_inf > 0, growth_tracker + 1
    grow, grown = good_steps == growth_interval, self * scale_growth_factor
    better = ops.where(grow & grown.isfinite(), grown, self)     # at the end of float32's range it stays
    self.copy_(ops.where(bad, self * scale_backoff_factor, better))
    growth_tracker.copy_(ops.where(bad | grow, growth_tracker * 0, good_steps))
    return self
