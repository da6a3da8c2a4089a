"""The class of sparse tensors: a shape, a dtype and a device without memory; a pattern and its dense values beside.

Ops on them are answered by the bodies in `bodies`, one table for COO and one for the compressed layouts; history is
recorded here, above the dense ops that the bodies call.
"""
from __future__ import annotations

import copy as _copy
import functools
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._C import Node, TensorBase
from mindtorch_v2._ops.table import ops
from mindtorch_v2._sparse.pattern import COO, CSR, INT64, LAYOUTS, WORDS, Compressed, Coo, Pattern, look_up
from mindtorch_v2._tensor import Tensor, _disabled_torch_function_impl, _type_name

_PACKAGE = __name__.partition(".")[0]
bodies: dict[str, dict[str, Callable[..., Any]]] = {"coo": {}, "compressed": {}}


def body(*of_ops: Any, of: str = "coo, compressed") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a function the answer of sparse tensors to ops, given themselves or by name; of: which layouts it serves."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in of.split(", "):
            for op in of_ops:
                bodies[kind][op if isinstance(op, str) else op.name] = function
        return function
    return enter


class SparseTensor(Tensor):
    """A tensor of a sparse layout."""

    __torch_function__: Any = _disabled_torch_function_impl
    _owner: Any
    _pattern: Pattern
    _dense: Any                  # the values, without history: that is the tensor's own

    @staticmethod
    def interpose(op: Any, row: Any, slots: tuple[Any, ...], out: Any) -> Any:
        return answer(op, row, slots, out)

    @property                                    # type: ignore[misc]
    def __class__(self) -> type:
        return Tensor            # as torch: no Python class tells a sparse tensor from a dense one

    # ---- what it is
    @property
    def layout(self) -> Any:
        return self._pattern.layout

    @property
    def is_sparse(self) -> bool:                 # type: ignore[override]
        return self._pattern.layout is COO

    @property
    def is_sparse_csr(self) -> bool:             # type: ignore[override]
        return self._pattern.layout is CSR

    @property
    def _readable(self) -> bool:
        return False

    def _fresh(self) -> Any:
        return make(self._pattern, self._dense)

    def stride(self, dim: Any = None) -> Any:
        if self._pattern.layout is not COO:
            raise RuntimeError(_no_geometry(self.layout, "strides"))
        return (0,) * self.dim() if dim is None else 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        if self._pattern.layout is not COO:
            raise RuntimeError(_no_geometry(self.layout, "is_contiguous"))
        return False

    def _no_storage(self, *args: Any, **kwargs: Any) -> Any:
        kind = "SparseTensorImpl" if self._pattern.layout is COO else "SparseCsrTensorImpl"
        raise NotImplementedError(f"Cannot access storage of {kind}")

    storage = untyped_storage = _typed_storage = storage_type = share_memory_ = is_shared = _no_storage

    def _no_pointer(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    data_ptr = tolist = _no_pointer

    def _no_array(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert {WORDS[self.layout]} layout tensor to numpy. Use Tensor.to_dense() first.")

    numpy = __array__ = _no_array

    @property
    def nbytes(self) -> int:
        if self._pattern.layout is not COO:
            return self.numel() * self.element_size()
        raise RuntimeError("nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, "
                           "add the nbytes of the indices and values.  If you want the size of the  equivalent dense "
                           "tensor, multiply numel() by element_size()")

    def dim_order(self, *, ambiguity_check: Any = False) -> Any:
        raise AttributeError(f"Can't get dim order on sparse type: {self.type()} Use Tensor.to_dense() to convert to a "
                             "dense tensor first.")

    def is_pinned(self, device: Any = None) -> bool:
        return self._dense.is_pinned()

    def pin_memory(self, device: Any = None) -> Any:
        if self.is_pinned():
            return self
        parts = tuple(t.pin_memory() for t in self._pattern.parts())
        return make(self._pattern.with_parts(parts), self._dense.pin_memory())

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        if dtype is not None:
            return Tensor.type(self, dtype, non_blocking)
        if self._pattern.layout is not COO:
            raise RuntimeError(f"Unimplemented backend {backend_of(self)}")
        name = _type_name(self.dtype, self.device)
        return name.rpartition(".")[0] + ".sparse." + name.rpartition(".")[2]

    # ---- values
    def item(self) -> Any:
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self._dense.sum().to(self.dtype).item() if self._dense.numel() else ops.zeros((), dtype=self.dtype).item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            what = "no values" if self.numel() == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous")
        return bool(self.item())

    is_nonzero = __bool__

    def __float__(self) -> float:
        return float(self._one_item())

    def __int__(self) -> int:
        return int(self._one_item())

    def _one_item(self) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __complex__(self) -> complex:
        return complex(self._one_item())

    # Python calls the reflected slot of a subclass on the right first: the operands are swapped back.
    def __radd__(self, other: Any) -> Any:
        return ops.add(other, self) if isinstance(other, TensorBase) else ops.add(self, other)

    def __rsub__(self, other: Any) -> Any:
        return ops.sub(other, self)

    def __rmul__(self, other: Any) -> Any:
        return ops.mul(other, self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("Cannot assign to a sparse tensor")

    @property
    def data(self) -> Any:
        return make(self._pattern, self._dense)

    @data.setter
    def data(self, value: Any) -> None:
        if type(value) is not SparseTensor:
            raise RuntimeError("Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have "
                               "incompatible tensor type.")
        _C._take_wrapper(self, value.detach())
        self._pattern, self._dense = value._pattern, value._dense

    def new(self, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        return new_like(self, *args, device=device, **kwargs)

    def set_(self, *args: Any, **kwargs: Any) -> Any:
        raise refusal("set_", self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if not self.is_leaf:
            return Tensor.__deepcopy__(self, memo)
        if id(self) in memo:
            return memo[id(self)]
        made = self.detach().clone()._requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            setattr(made, "_is_param", True)     # noqa: B010
        if self.grad is not None:
            made.grad = _copy.deepcopy(self.grad, memo)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain = self.detach()
        if getattr(self, "_is_param", False):
            return sys.modules[_PACKAGE]._utils._rebuild_parameter, (plain, self.requires_grad, OrderedDict())
        if self.is_sparse:
            parts: tuple[Any, ...] = plain._indices(), plain._values(), plain.size(), plain.is_coalesced()
        elif self.layout in (LAYOUTS["sparse_csr"], LAYOUTS["sparse_bsr"]):
            parts = plain.crow_indices(), plain.col_indices(), plain.values(), plain.size()
        else:
            parts = plain.ccol_indices(), plain.row_indices(), plain.values(), plain.size()
        return _rebuild_sparse_tensor, (self.layout, parts)


SparseTensor._owner = SparseTensor
SparseTensor.__name__ = SparseTensor.__qualname__ = "Tensor"
SparseTensor.__module__ = Tensor.__module__
for _layout in ("coo", "csr", "csc", "bsr", "bsc"):
    LAYOUTS[f"sparse_{_layout}"].owner = SparseTensor


def _rebuild_sparse_tensor(layout: Any, data: tuple[Any, ...]) -> Any:
    """What pickle calls, by PyTorch's name for it."""
    if layout is COO:
        indices, values, size, *coalesced = data
        pattern: Any = Coo(indices, tuple(size), bool(coalesced and coalesced[0]))
    else:
        compressed, plain, values, size = data
        pattern = Compressed(layout, compressed, plain, tuple(size), block_of(layout, compressed, values))
    return make(pattern, values)


_rebuild_sparse_tensor.__module__ = f"{_PACKAGE}._utils"


def block_of(layout: Any, compressed: Any, values: Any) -> tuple[int, ...]:
    """The block size that values of a blocked layout have; () for others."""
    at = compressed.dim()
    return tuple(values.shape[at:at + 2]) if layout in (LAYOUTS["sparse_bsr"], LAYOUTS["sparse_bsc"]) else ()


# ---- making and history ------------------------------------------------------------------------------------------
def is_sparse(x: Any) -> bool:
    """Whether x is a sparse tensor, of any layout."""
    return type(x) is SparseTensor


def is_coo(x: Any) -> bool:
    return type(x) is SparseTensor and x._pattern.layout is COO


def make(pattern: Pattern, values: Any) -> Any:
    """A sparse tensor without history."""
    if math.prod(pattern.size) >= 1 << 63:
        raise RuntimeError("numel: integer multiplication overflow")
    made = _C._make_wrapper(SparseTensor, pattern.size, None, values.dtype, values.device)
    made._pattern, made._dense = pattern, values.detach() if values.requires_grad else values
    return made


class _Recorded(Node):
    """The node of an op that takes or gives sparse tensors."""

    def __init__(self, backward: Callable[..., Any]) -> None:
        self._backward = backward

    def apply(self, *grads: Any) -> Any:
        return self._backward(*grads)

    def _release(self) -> None:
        pass                     # what backward reads belongs to its function


@functools.cache
def _node_class(name: str) -> type[_Recorded]:
    """The class of the nodes of that name, which type(x.grad_fn) shows."""
    return type(name, (_Recorded,), {})


def is_recorded(*inputs: Any) -> bool:
    return _C._is_grad_enabled() and any(isinstance(x, TensorBase) and x.requires_grad for x in inputs)


def record(result: Any, inputs: tuple[Any, ...], backward: Callable[..., Any], name: str) -> Any:
    """The result, whose history is that backward(gradient) gives the gradients of the inputs."""
    if is_recorded(*inputs) and (result.is_floating_point() or result.is_complex()):
        node = _node_class(name)(backward)
        node._set_inputs(inputs)
        node._attach(result, 0)
    return result


def from_values(pattern: Pattern, values: Any, name: str = "SparseCooTensorWithDimsAndTensorsBackward0") -> Any:
    """A sparse tensor with the history of its values."""
    return record(make(pattern, values), (values,), lambda g: (values_at(g, pattern),), name)


def values_of(x: Any) -> Any:
    """The values of a sparse tensor with its history; a COO tensor with history is coalesced first."""
    pattern = x._pattern
    if not is_recorded(x):
        return x._dense
    return record(ops.alias(x._dense), (x,), lambda g: (from_values(pattern, g),), "ValuesBackward0")


def values_at(g: Any, pattern: Pattern) -> Any:
    """The values of a tensor, dense or sparse, at the places of a pattern; zeros where a sparse one has none."""
    if not is_sparse(g):
        return pattern.take(g)
    if pattern.same_places(g._pattern):
        return values_of(g)
    if isinstance(pattern, Compressed) or type(g._pattern) is Compressed:
        return pattern.take(bodies["compressed"]["to_dense"](g) if type(g._pattern) is Compressed else g.to_dense())
    if g._pattern.sparse_dim != pattern.sparse_dim:
        return pattern.take(g.to_dense())
    g = g.coalesce()
    at, found = look_up(g._pattern.keys(), pattern.keys())
    values = values_of(g)
    if values.shape[0] == 0:
        return values.new_zeros((pattern.nnz, *values.shape[1:]))
    taken = values.index_select(0, at)
    return ops.where(found.reshape((-1,) + (1,) * (taken.dim() - 1)), taken, ops.zeros_like(taken))


def mapped(x: Any, function: Callable[[Any], Any], name: str) -> Any:
    """function on the values, all else as it is."""
    return from_values(x._pattern, function(values_of(x)), name)


# ---- the layer ---------------------------------------------------------------------------------------------------
def _kind(slots: tuple[Any, ...], out: Any) -> tuple[str, Any]:
    """The class whose table is used, and the tensor that selects it (None: a layout= does)."""
    for slot in (*slots, out):
        for item in slot if isinstance(slot, (tuple, list)) else (slot,):
            if type(item) is SparseTensor:
                return ("coo" if item._pattern.layout is COO else "compressed"), item
    return "coo", None


def answer(op: Any, row: Any, slots: tuple[Any, ...], out: Any) -> Any:
    """The result of an op that has a sparse argument, or is to make a sparse tensor."""
    kind, first = _kind(slots, out)
    name = op.name if op.inplace_of is None else op.inplace_of.name
    table = bodies[kind]
    found = table.get(op.name) or table.get(name)
    arguments = dict(zip(row.names, slots))
    by_values = found is None and _keeps_zeros(op, row, slots)
    if by_values:
        found = _on_values(op if op.inplace_of is None else op.inplace_of)
    if found is None:
        if row.is_composite and op.inplace_of is None and out is None:
            return NotImplemented
        raise _refusal_of(op, row, arguments, first, out)
    if out is not None and first is out and arguments.get("dtype", out) is None:          # a factory
        arguments["dtype"] = out.dtype
    if out is None and op.inplace_of is None or op.name in table and op.inplace_of is not None:
        return found(**arguments)
    target = slots[0] if out is None else out
    if out is not None and _C._is_grad_enabled() and any(isinstance(t, TensorBase) and t.requires_grad for t in (*slots, out)):
        raise RuntimeError(f"{op.name}(): functions with out=... arguments don't support automatic differentiation, but one of "
                           "the arguments requires grad.")
    if by_values and not (is_sparse(target) and is_sparse(slots[0])):
        raise RuntimeError("Expected self.is_sparse() && result.is_sparse() to be true, but got false.  (Could this error "
                           "message be improved?  If so, please report an enhancement request to PyTorch.)")
    if op.inplace_of is not None:
        check_inplace(target)
        if by_values and is_coo(target) and not target._pattern.coalesced:
            raise RuntimeError(f"{op.name} requires coalesced input")
    return become(target, found(**arguments), op.inplace_of is not None)


# What torch computes item by item on sparse tensors; all of them give zero for zero. nan_to_num: COO only; angle: not COO.
_ON_VALUES = frozenset("""abs absolute angle asin arcsin asinh arcsinh atan arctan atanh arctanh ceil deg2rad erf erfinv expm1
    fix floor frac isinf isnan isneginf isposinf log1p nan_to_num rad2deg relu round sgn signbit sin sinh sqrt tan tanh
    threshold_backward trunc""".split()) | {ops.sign.name}
_COO_ONLY = frozenset(("nan_to_num",))


def _keeps_zeros(op: Any, row: Any, slots: tuple[Any, ...]) -> bool:
    """Whether the values are all that an op changes."""
    name = op.name if op.inplace_of is None else op.inplace_of.name
    if name == "angle" and is_coo(slots[0]) or name == "round" and row.overload_name:
        return False
    return name in _ON_VALUES and (name not in _COO_ONLY or is_coo(slots[0]) or not is_sparse(slots[0]))


def node_of(name: str) -> str:
    """torch's name of the node of an op."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Backward0"


def _on_values(op: Any) -> Callable[..., Any]:
    """The body of an op that keeps zeros; it is not linear, so equal indices are summed before."""
    node = node_of(op.name)

    def apply(self: Any, **others: Any) -> Any:
        x = self.coalesce() if is_coo(self) else self
        return mapped(x, lambda v: op(v, **others), node)
    return apply


# What torch calls first for an op, or its overload: that is what its error names.
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_NAMED_AS = {
    **dict.fromkeys(("slice", "narrow", "diagonal"), ops.as_strided.name), "index": "index.Tensor",
    "softmax": "_softmax", "log_softmax": "_log_softmax", "mean": "mean.dim", "sort": "sort.stable",
    "count_nonzero": "count_nonzero.dim_IntList", "isfinite": "ne.Scalar", "ones_like": f"{ops.fill_.name}.Scalar",
    "_logsumexp": f"{ops.logsumexp.name}.out", "_clamp_number": "clamp", "_bernoulli_scalar_": "bernoulli_.float",
    **{op.name: op.name[1:] for op in (ops._nonzero, ops._masked_select, ops._median, ops._equal, ops._histc)},
    **{f"logical_{word}": f"logical_{word}.out" for word in ("not", "and", "or", "xor")},
    **{name: f"{name}.Tensor" for name in ("remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor")}}


_BY_STRIDES = frozenset(("slice", "narrow", "diagonal", ops.unsqueeze.name, "squeeze", ops.split.name, "chunk", "kron"))


def _no_geometry(layout: Any, what: str) -> str:
    return f"Sparse {WORDS[layout][6:].upper()} tensors do not have {what}"


def _refusal_of(op: Any, row: Any, arguments: dict[str, Any], x: Any, out: Any) -> Exception:
    """torch's error for an op that the class of sparse tensors has no body for."""
    name, overload = op.name, row.overload_name
    if x is not None and x.layout is not COO and out is None:
        if name in _BY_STRIDES:
            return RuntimeError(_no_geometry(x.layout, "strides"))
        if row.is_pointwise and name != "floor_divide":
            return RuntimeError(f"unsupported tensor layout: {WORDS[x.layout]}")
    if not overload and name in _NAMED_AS:
        name, _, overload = _NAMED_AS[name].partition(".")
    elif not overload and name in _COMPARISONS:
        overload = "Tensor" if isinstance(arguments.get("other"), TensorBase) else "Scalar"
    elif not overload and out is not None:
        overload = "out"
    return refusal(name, x, overload)


def check_inplace(target: Any) -> None:
    if _C._is_grad_enabled() and target.requires_grad and target.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")


def become(target: Any, result: Any, inplace: bool = True) -> Any:
    """target with the contents and the history of result; its dtype stays."""
    if not _C.can_cast(result.dtype, target.dtype):
        raise RuntimeError(f"result type {word_of(result.dtype)} can't be cast to the desired output type "
                           f"{word_of(target.dtype)}")
    if not is_sparse(target):
        if is_sparse(result) or not inplace and tuple(target.shape) != tuple(result.shape):
            result = result.to_dense() if is_sparse(result) else result
            if not inplace:
                target.resize_(result.shape)
        return target.copy_(result)
    if inplace and tuple(target.shape) != tuple(result.shape):
        raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}")
    result = result.to(target.dtype) if is_sparse(result) else result.to_sparse().to(target.dtype)
    _C._take_wrapper(target, result)
    target._pattern, target._dense = result._pattern, result._dense
    return target


def word_of(dtype: Any) -> str:
    """torch's name of a dtype in messages: Float, Long."""
    return _C.TYPE_WORDS[dtype._id]


def backend_of(x: Any) -> str:
    """What torch calls the backend of a tensor: SparseCPU, SparseCsrCPU; CPU of a dense one."""
    place = x.device.type
    word = {"cpu": "CPU", "meta": "Meta", "npu": "PrivateUse1"}.get(place, place.upper())
    return ("Sparse" if x.layout is COO else "SparseCsr" if is_sparse(x) else "") + word


def refusal(name: str, x: Any, overload: str = "", backend: str = "SparseCPU") -> NotImplementedError:
    """torch's error for an op that a sparse tensor has not; backend: where there is no tensor to say it."""
    backend = backend if x is None else backend_of(x)
    full = f"{name}.{overload}" if overload else name
    return NotImplementedError(
        f"Could not run 'aten::{full}' with arguments from the '{backend}' backend. This could be because the operator "
        "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        "build).")


def new_like(x: Any, *args: Any, device: Any = None) -> Any:
    """x.new(…): sizes, a Size, or indices and values with or without a size."""
    place = x.device if device is None else _C.device(device)
    if place.type != x.device.type:
        raise RuntimeError(f"legacy constructor expects device type: {x.device.type} but device type: {place.type} was "
                           "passed")
    if not args or all(isinstance(a, int) for a in args):
        return ops.sparse_coo_tensor(args or (0,), dtype=x.dtype, device=place)
    if len(args) == 1 and isinstance(args[0], type(x.shape)):
        return ops.sparse_coo_tensor(args[0], dtype=x.dtype, device=place)
    if len(args) == 1 and isinstance(args[0], tuple):
        raise TypeError("SparseTensor.new(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() or construct a "
                        "strided tensor and convert it to sparse via to_sparse.")
    if len(args) in (2, 3) and all(isinstance(a, TensorBase) for a in args[:2]):
        if args[0].dtype is not INT64:
            raise RuntimeError("indices must be an int64 tensor")
        return ops.sparse_coo_tensor(*args, device=place)
    got = ", ".join("Tensor" if isinstance(a, TensorBase) else type(a).__name__ for a in args)
    place_word = "*, torch.device device = None"
    raise TypeError(f"new() received an invalid combination of arguments - got ({got}), but expected one of:\n * ({place_word})\n"
                    f" * (Tensor indices, Tensor values, {place_word})\n"
                    f" * (Tensor indices, Tensor values, tuple of ints size, {place_word})\n"
                    f" * (tuple of ints size, {place_word})\n")
