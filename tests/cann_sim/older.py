"""One call of the older op interface (aclopCompileAndExecute): tensors in, tensors out."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from client import ACL_DTYPES, CannError, DeviceTensor, client
from torch import Tensor

import cann_sim

HOST = 1  # aclMemType ACL_MEMTYPE_HOST
ND, UNDEFINED = 2, -1  # aclFormat, aclDataType


class Older:
    """The compiler library, and one call of it: tensors in, tensors out."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(f"{cann_sim.home()}/lib64/libacl_op_compiler.so", mode=ctypes.RTLD_GLOBAL)
        for name in ("aclCreateTensorDesc", "aclCreateDataBuffer", "aclopCreateAttr"):
            client().function(name).restype = ctypes.c_void_p

    def __call__(self, op: str, inputs: list[Any], outputs: list[Tensor], **attributes: Any) -> list[Tensor]:
        return self.run("aclopCompileAndExecute", op, inputs, outputs, attributes)[0]

    def sized(self, op: str, inputs: list[Any], outputs: list[Tensor], **attributes: Any) -> list[Tensor]:
        """Of an op whose values tell the shapes of its outputs: each output cut to what its description says afterwards."""
        made, shapes = self.run("aclopCompileAndExecuteV2", op, inputs, outputs, attributes)
        return [m.flatten()[: int(torch.Size(s).numel())].reshape(s) for m, s in zip(made, shapes, strict=True)]

    def run(self, function: str, op: str, inputs: list[Any], outputs: list[Tensor],
            attributes: dict[str, Any]) -> tuple[list[Tensor], list[list[int]]]:
        attr = ctypes.c_void_p(client().function("aclopCreateAttr")())
        for name, value in attributes.items():
            self.set(attr, name.encode(), value)
        made = [self.operand(x) for x in inputs]
        results = [(self.operand(x), x) for x in outputs]
        array = lambda items: (ctypes.c_void_p * max(len(items), 1))(*items)
        try:
            code = getattr(self.library, function)(
                op.encode(), len(made), array([m[0] for m in made]), array([m[1] for m in made]), len(results),
                array([m[0][0] for m in results]), array([m[0][1] for m in results]), attr, 0, 0, None, client().stream,
            )  # fmt: skip
            if code:
                raise CannError(code, op, client().message())
            client().must("aclrtSynchronizeStream", client().stream)
            return [m[2].read() for m, _ in results], [self.shape(m[0]) for m, _ in results]
        finally:
            client().function("aclopDestroyAttr")(attr)
            for desc, buffer, tensor in [*made, *(m for m, _ in results)]:
                client().function("aclDestroyTensorDesc")(ctypes.c_void_p(desc))
                client().function("aclDestroyDataBuffer")(ctypes.c_void_p(buffer))
                if isinstance(tensor, DeviceTensor):
                    tensor.free()

    def shape(self, desc: int) -> list[int]:
        sizes, size = [], ctypes.c_int64()
        for d in range(client().function("aclGetTensorDescNumDims")(ctypes.c_void_p(desc))):
            client().must("aclGetTensorDescDimV2", ctypes.c_void_p(desc), ctypes.c_size_t(d), ctypes.byref(size))
            sizes.append(size.value)
        return sizes

    def operand(self, x: Any | None) -> tuple[int, int, Any]:
        """A tensor on the device, a list of numbers as an int64 tensor on the host, or None for an absent one."""
        if x is None:
            desc = client().function("aclCreateTensorDesc")(UNDEFINED, 0, None, ND)
            return desc, client().function("aclCreateDataBuffer")(None, ctypes.c_size_t(0)), None
        if isinstance(x, list):
            x = torch.tensor(x)
            held: Any = x
            address = x.data_ptr()
        else:
            held = client().tensor(x.contiguous())
            address = held.address.value
        dims = (ctypes.c_int64 * max(x.dim(), 1))(*x.shape)
        desc = client().function("aclCreateTensorDesc")(ACL_DTYPES[x.dtype], x.dim(), dims, ND)
        if isinstance(held, Tensor):
            client().must("aclSetTensorPlaceMent", ctypes.c_void_p(desc), HOST)
        nbytes = ctypes.c_size_t(x.numel() * x.element_size())
        return desc, client().function("aclCreateDataBuffer")(ctypes.c_void_p(address), nbytes), held

    def set(self, attr: ctypes.c_void_p, name: bytes, value: Any) -> None:
        must = client().must
        if isinstance(value, bool):
            must("aclopSetAttrBool", attr, name, ctypes.c_uint8(value))
        elif isinstance(value, int):
            must("aclopSetAttrInt", attr, name, ctypes.c_int64(value))
        elif isinstance(value, float):
            must("aclopSetAttrFloat", attr, name, ctypes.c_float(value))
        elif isinstance(value, str):
            must("aclopSetAttrString", attr, name, value.encode())
        elif isinstance(value[0], float):
            must("aclopSetAttrListFloat", attr, name, len(value), (ctypes.c_float * len(value))(*value))
        else:
            must("aclopSetAttrListInt", attr, name, len(value), (ctypes.c_int64 * len(value))(*value))
