"""Rows of torch's ops with a leading underscore, and of those without a public function: each is a call of public ops."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, op, ops
from mindtorch_v2._tensor import Tensor

_INT32, _INT64 = _C._dtype_named("int32"), _C._dtype_named("int64")


def _check_bool(self: Tensor, name: str) -> None:
    if self.dtype._name != "bool":
        raise RuntimeError(f"{name}: expected a bool tensor, got {self.dtype}")


@composite("_is_all_true(Tensor self) -> Tensor", out=False)
def _is_all_true(self: Tensor) -> Tensor:
    """Whether all items of a bool tensor are True."""
    _check_bool(self, "_is_all_true")
    return self.all()


@composite("_is_any_true(Tensor self) -> Tensor", out=False)
def _is_any_true(self: Tensor) -> Tensor:
    """Whether any item of a bool tensor is True."""
    _check_bool(self, "_is_any_true")
    return self.any()


op("_shape_as_tensor(Tensor self) -> Tensor", variants="function", out=False,
   body=lambda self: self.new_tensor(list(self.shape), dtype=_INT64, device="cpu"), doc="The sizes as an int64 tensor.")
# What a record of a program names, and what views of the core are made of.
op("_unsafe_view(Tensor self, SymInt[] size) -> Tensor", out=False, body=lambda self, size: self.view(size),
   doc="view, of a tensor that nothing else looks at.")
op("_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)", variants="function", out=False,
   body=lambda self, size, stride: self.as_strided(size, stride), doc="A view in the given geometry.")
op("lift(Tensor self) -> Tensor", variants="", out=False, body=lambda self: self, doc="The tensor itself.")
op("lift_fresh(Tensor(a) self) -> Tensor(a)", variants="", out=False, body=lambda self: self, doc="The tensor itself.")
op("lift_fresh_copy(Tensor self) -> Tensor", variants="", out=False, body=lambda self: self.clone(), doc="A copy of the tensor.")
op("is_same_size(Tensor self, Tensor other) -> bool", variants="", out=False,
   body=lambda self, other: self.shape == other.shape, doc="Whether two tensors have the same shape.")
# What a program recorded with symbolic sizes asks of tensors.
op("sym_size.int(Tensor self, int dim) -> SymInt", variants="", out=False, body=lambda self, dim: self.size(dim),
   doc="The size of a dim.")
op("sym_stride.int(Tensor self, int dim) -> SymInt", variants="", out=False, body=lambda self, dim: self.stride(dim),
   doc="The stride of a dim.")
op("sym_numel(Tensor self) -> SymInt", variants="", out=False, body=lambda self: self.numel(), doc="The number of items.")
op("sym_storage_offset(Tensor self) -> SymInt", variants="", out=False, body=lambda self: self.storage_offset(),
   doc="Where the items begin in the storage.")
op("_dim_arange(Tensor like, int dim) -> Tensor", variants="function", out=False,
   body=lambda like, dim: ops.arange(like.size(dim), dtype=_INT64, device=like.device),
   doc="The places along a dim.")
op("_conj_physical(Tensor self) -> Tensor", body=lambda self: ops.conj_physical(self), doc="conj_physical.")
op("_logcumsumexp(Tensor self, int dim) -> Tensor", variants="function",
   body=lambda self, dim: ops.logcumsumexp(self, dim), doc="logcumsumexp.")
op("_has_compatible_shallow_copy_type(Tensor self, Tensor from) -> bool", variants="function", out=False,
   body=lambda self, other: self.device.type == other.device.type and self.layout == other.layout,
   doc="Whether self may take over the memory of the other: both lie on devices of one type in one layout.")


@composite("_debug_has_internal_overlap(Tensor self) -> int", variants="function", out=False)
def _internal_overlap(self: Tensor) -> int:
    """1 where two items share memory because a stride is 0, 0 where none do, 2 where the strides alone do not say."""
    reach = 1
    for stride, size in sorted((stride, size) for stride, size in zip(self.stride(), self.shape) if size != 1):
        if stride == 0 and size > 1:
            return 1
        if stride != reach:
            return 2 if self.numel() else 0
        reach *= size
    return 0


# ---- products, distances ------------------------------------------------------------------------------------------
@composite("_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, "
           "bool use_gelu=False) -> Tensor")
def _addmm_activation(self: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float, use_gelu: bool) -> Tensor:
    """relu of addmm, or gelu."""
    made = ops.addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return ops.gelu(made) if use_gelu else ops.relu(made)


op("_add_relu.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", variants="function",
   body=lambda self, other, alpha: ops.relu(ops.add(self, other, alpha=alpha)), doc="relu of a sum.")


@composite("_int_mm(Tensor self, Tensor mat2) -> Tensor", variants="function")
def _int_mm(self: Tensor, mat2: Tensor) -> Tensor:
    """The int32 product of two int8 matrices."""
    for name, x in (("self", self), ("mat2", mat2)):
        if x.dim() != 2:
            raise RuntimeError(f"Expected {name} to be of dimension 2 but got {x.dim()}")
    if self.size(1) != mat2.size(0):
        raise RuntimeError(f"self.size(1) needs to match mat2.size(0) but got {self.size(1)} and {mat2.size(0)}")
    for name, x in (("self", self), ("mat2", mat2)):
        if x.dtype._name != "int8":
            raise RuntimeError(f"int_mm_out_cpu: Expected {name} dtype to be int8 or uint8 but got {_C._core._c_word(x.dtype)}")
    return ops.mm(self.to(_INT32), mat2.to(_INT32))


@composite("_trilinear(Tensor i1, Tensor i2, Tensor i3, int[] expand1, int[] expand2, int[] expand3, int[] sumdim, "
           "int unroll_dim=1) -> Tensor", variants="function")
def _trilinear(i1: Tensor, i2: Tensor, i3: Tensor, expand1: Sequence[int], expand2: Sequence[int],
               expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int) -> Tensor:
    """The product of three tensors, each with new dims at the places it names, summed over sumdim."""
    made = []
    for x, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for place in sorted(places):
            x = x.unsqueeze(place)
        made.append(x)
    product = made[0] * made[1] * made[2]
    return product.sum(tuple(sumdim)) if sumdim else product


_CDIST = {None: "use_mm_for_euclid_dist_if_necessary", 0: "use_mm_for_euclid_dist_if_necessary",
          1: "use_mm_for_euclid_dist", 2: "donot_use_mm_for_euclid_dist"}
op("_cdist_forward(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor", variants="function",
   body=lambda x1, x2, p, compute_mode: ops.cdist(x1, x2, p, _CDIST[compute_mode]), doc="cdist, its mode as a number.")
op("_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", variants="function",
   body=lambda x1, x2: ops.cdist(x1, x2, 2.0, "use_mm_for_euclid_dist"), doc="cdist of two, by a product of matrices.")


# ---- norms and softmax --------------------------------------------------------------------------------------------
@composite("_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, "
           "Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)", variants="function")
def _batch_norm_of_running(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor,
                           running_var: Tensor, momentum: float, eps: float) -> tuple[Tensor, ...]:
    """Batch normalization by the running statistics."""
    return tuple(ops.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps))


@composite("_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor", variants="function")
def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None, mask_type: int | None) -> Tensor:
    """softmax of the items that the mask leaves (where it is False); zeros elsewhere, NaN where it leaves none of a row."""
    if mask.dtype._name != "bool":
        raise RuntimeError("Mask should be a boolean tensor")
    if mask_type not in (None, 0, 1, 2):
        raise RuntimeError(f"Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), or 2 (default_mask), got {mask_type}")
    if mask_type == 0 and mask.dim() == 2 and self.dim() == 4:
        mask = mask.expand(self.shape)
    elif mask_type == 1 and mask.dim() == 2 and self.dim() == 4:
        mask = mask.view(self.size(0), 1, 1, self.size(-1)).expand(self.shape)
    return ops.softmax(self.masked_fill(mask, float("-inf")), -1 if dim is None else dim)


@composite("_masked_softmax_backward(Tensor grad_output, Tensor output, Tensor mask, int? dim=None) -> Tensor", variants="")
def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None) -> Tensor:
    made = ops._softmax_backward_data(grad_output, output.masked_fill(mask, 0), -1 if dim is None else dim, output.dtype)
    return made.masked_fill(mask.expand(made.shape), 0)


# ---- convolutions by the names of torch's kernels -----------------------------------------------------------------
def _check_convolution(name: str, n: int, self: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool,
                       **lists: Sequence[int]) -> None:
    """What torch's kernel of that name refuses, and a weight that has another size than kernel_size, which it reads wrongly."""
    for word, value in lists.items():
        if len(value) != n:
            raise RuntimeError(f"It is expected {word} equals to {n}, but got size {len(value)}")
    if name == "slow_conv3d":
        self.size(1), weight.size(1)                           # an IndexError, as torch
    for word in ("kernel_size", "stride"):
        if min(lists[word]) <= 0:
            raise RuntimeError(f"{word.replace('_', ' ')} should be greater than zero, but got {list(lists[word])}")
    ranks = (n + 2,) if name in ("thnn_conv2d", "slow_conv3d") else (n + 1, n + 2)
    if self.dim() not in ranks:
        raise RuntimeError(f"{name}: expected an input of {' or '.join(map(str, ranks))} dimensions, got {list(self.shape)}")
    if weight.dim() != n + 2 or tuple(weight.shape[2:]) != tuple(lists["kernel_size"]):
        raise RuntimeError(f"{name}: weight[2:] of {list(weight.shape)} must be equal to kernel_size {list(lists['kernel_size'])}")
    channels = self.size(-n - 1)
    if weight.size(0 if transposed else 1) != channels:
        raise RuntimeError(f"{name}: the weight {list(weight.shape)} does not suit an input of {channels} channels")
    outputs = weight.size(1 if transposed else 0)
    if bias is not None and tuple(bias.shape) != (outputs,):
        raise RuntimeError(f"Expected a tensor of dimension 1 and tensor.size[0] == {outputs} but got: dimension {bias.dim()}")


def _each(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value)


def _convolving(name: str, n: int, transposed: bool, dilated: bool) -> Callable[..., Any]:
    def body(self: Tensor, weight: Tensor, kernel_size: Sequence[int], bias: Tensor | None, stride: Sequence[int],
             padding: Sequence[int], *rest: Sequence[int]) -> Tensor:
        more, dilation = _each(rest[0] if transposed else 0, n), _each(rest[-1] if transposed or dilated else 1, n)
        stride, padding = _each(stride, n), _each(padding, n)
        _check_convolution(name, n, self, weight, bias, transposed, kernel_size=_each(kernel_size, n), stride=stride,
                           padding=padding, output_padding=more, dilation=dilation)
        batched = self.dim() == n + 2
        out = ops.convolution(self if batched else self.unsqueeze(0), weight, bias, stride, padding, dilation, transposed, more, 1)
        return out if batched else out.squeeze(0)
    return body


for _name, _n, _more in (("thnn_conv2d", 2, ""), ("slow_conv3d", 3, ""), ("slow_conv_dilated2d", 2, "d"),
                         ("slow_conv_dilated3d", 3, "d"), ("slow_conv_transpose2d", 2, "td"),
                         ("slow_conv_transpose3d", 3, "td")):
    _tail = (f", SymInt[{_n}] output_padding=0" if "t" in _more else "") + (f", SymInt[{_n}] dilation=1" if _more else "")
    op(f"{_name}(Tensor self, Tensor weight, SymInt[{_n}] kernel_size, Tensor? bias=None, SymInt[{_n}] stride=1, "
       f"SymInt[{_n}] padding=0{_tail}) -> Tensor", variants="nn", body=_convolving(_name, _n, "t" in _more, bool(_more)),
       doc="A convolution, by the name of one of torch's kernels.")


# ---- casts by name, and copies of what a view would be ----------------------------------------------------------------
for _word, _name in (("Byte", "uint8"), ("Char", "int8"), ("Double", "float64"), ("Float", "float32"), ("Half", "float16"),
                     ("Int", "int32"), ("Long", "int64"), ("Short", "int16")):
    def _cast(self: Tensor, non_blocking: bool, _dtype: _C.dtype = _C._dtype_named(_name)) -> Tensor:
        return ops._to_copy(self, dtype=_dtype) if self.dtype is not _dtype else self
    op(f"_cast_{_word}(Tensor self, bool non_blocking=False) -> Tensor", variants="function", out=False, body=_cast,
       doc=f"The tensor as {_name}.")
for _name in ("_conj", "_neg_view"):
    op(f"{_name}_copy(Tensor self) -> Tensor", variants="function",
       body=lambda self, _view=getattr(ops, _name): ops.clone(_view(self)), doc=f"{_name} with memory of its own.")
for _name in ("indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices", "_indices", "_values"):
    op(f"{_name}_copy(Tensor self) -> Tensor", variants="function",
       body=lambda self, _part=_name: getattr(self, _part)().clone(), doc=f"A copy of {_name}() of a sparse tensor.")
op("_reshape_alias_copy(Tensor self, SymInt[] size, SymInt[] stride) -> Tensor", variants="function",
   body=lambda self, size, stride: ops.clone(ops.as_strided(self, size, stride, self.storage_offset())),
   doc="The same memory with other sizes and strides, copied.")
op("_aminmax(Tensor self) -> (Tensor, Tensor)", variants="function", out=False,
   body=lambda self: tuple(ops.aminmax(self)), doc="The least and the greatest item.")
op("_unique(Tensor self, bool sorted=True, bool return_inverse=False) -> (Tensor, Tensor)", variants="function",
   out=False, body=lambda self, sorted, return_inverse: ops._unique2(self, sorted, return_inverse)[:2],
   doc="Distinct items, and where each item is among them.")
op("_is_zerotensor(Tensor self) -> bool", out=False, body=lambda self: False, doc="False: no tensor is zeros without memory.")
op("dequantize(Tensor self) -> Tensor", out=False, body=lambda self: ops._to_copy(self, dtype=_C._dtype_named("float32"))
   if self.dtype is not _C._dtype_named("float32") else self, doc="The tensor as float32.")


# ---- ops that torch has so that its dispatcher can be tried -------------------------------------------------------------
op("_test_functorch_fallback(Tensor self, Tensor other) -> Tensor", variants="function", out=False,
   rule=lambda self, other: (self.shape, self.dtype), kernel=lambda outs, args: outs[0].copy_(args[0]), grad={},
   doc="A copy of self, which vmap makes sample by sample.")
op("_test_autograd_multiple_dispatch.fullcoverage(Tensor self) -> Tensor", variants="function",
   rule=lambda self: (self.shape, self.dtype), kernel=lambda outs, args: outs[0].copy_(args[0]),
   grad={"self": lambda g, self_shape: g.expand(self_shape) + 1}, doc="A copy of self, with a gradient of its own.")
op("_test_autograd_multiple_dispatch.ntonly(Tensor self, bool b) -> Tensor", variants="function", out=False,
   body=lambda self, b: self.clone(), doc="A copy of self.")
op("_test_autograd_multiple_dispatch_view(Tensor(a) self) -> Tensor(a)", variants="function", out=False,
   body=lambda self: self.view(-1), doc="A view of self with one dim.")
op("_test_autograd_multiple_dispatch_view_copy(Tensor self) -> Tensor", variants="function",
   body=lambda self: self.view(-1).clone(), doc="A copy of self with one dim.")
