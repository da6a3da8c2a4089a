"""Rows of the ops that make tensors."""
from __future__ import annotations

from mindtorch_v2._ops.table import composite, op, ops

_OPTIONS = ("*, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, "
            "bool? requires_grad=False, MemoryFormat? memory_format=None")

for _name in ("empty", "zeros", "ones"):
    op(f"{_name}(SymInt[] size, {_OPTIONS}) -> Tensor", native=_name, variants="function")
    op(f"{_name}_like(Tensor self, {_OPTIONS}) -> Tensor", native=f"{_name}_like", variants="function")
op(f"full(SymInt[] size, Scalar fill_value, {_OPTIONS}) -> Tensor", native="full", variants="function")
op("empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
   "bool? pin_memory=None, bool? requires_grad=False) -> Tensor", native="empty_strided", variants="function")


@composite(f"full_like(Tensor self, Scalar fill_value, {_OPTIONS}) -> Tensor", variants="function")
def _full_like(self, fill_value, dtype, layout, device, pin_memory, requires_grad, memory_format):
    filled = ops.empty_like(self, dtype=dtype, device=device, memory_format=memory_format).fill_(fill_value)
    return filled.requires_grad_(True) if requires_grad else filled


for _name in ("empty", "zeros", "ones"):
    def _new(self, size, dtype, layout, device, pin_memory, requires_grad, _make=getattr(ops, _name)):
        return _make(size, dtype=dtype or self.dtype, device=device or self.device, requires_grad=bool(requires_grad))
    op(f"new_{_name}(Tensor self, SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
       "bool? pin_memory=None, bool? requires_grad=False) -> Tensor", body=_new, variants="method")


@composite("new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
           "Device? device=None, bool? pin_memory=None, bool? requires_grad=False) -> Tensor", variants="method")
def _new_full(self, size, fill_value, dtype, layout, device, pin_memory, requires_grad):
    return ops.full(size, fill_value, dtype=dtype or self.dtype, device=device or self.device,
                    requires_grad=bool(requires_grad))


@composite("new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None, "
           "Layout? layout=None, Device? device=None, bool? pin_memory=None, bool? requires_grad=False) -> Tensor",
           variants="method")
def _new_empty_strided(self, size, stride, dtype, layout, device, pin_memory, requires_grad):
    return ops.empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


@composite("scalar_tensor(Scalar s, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
           "bool? pin_memory=None) -> Tensor", variants="function")
def _scalar_tensor(s, dtype, layout, device, pin_memory):
    return ops.full((), s, dtype=dtype, device=device)


op("fill_.Scalar(Tensor(a!) self, Scalar value) -> Tensor(a!)", kernel="fill",
   npu="aclnnInplaceFillScalar(self, value)", grad={"self": lambda g: ops.zeros_like(g)})


@composite("fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)")
def _fill_tensor(self, value):
    if value.dim() != 0:
        raise RuntimeError("fill_ only supports 0-dimension value tensor but got tensor with "
                           f"{value.dim()} dimensions.")
    return self.copy_(value)
