"""A small ctypes client of CANN's C ABI for tests: torch tensors in, aclnn calls by name, torch tensors out."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import cann_sim
import cann_tables

ACL_DTYPES = {
    torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.int32: 3, torch.uint8: 4, torch.int16: 6, torch.uint16: 7,
    torch.uint32: 8, torch.int64: 9, torch.uint64: 10, torch.float64: 11, torch.bool: 12, torch.complex64: 16,
    torch.complex128: 17, torch.bfloat16: 27, torch.complex32: 33, torch.float8_e5m2: 35, torch.float8_e4m3fn: 36,
    torch.float8_e8m0fnu: 37,
}  # fmt: skip
ND, NCL, NCHW, NCDHW = 2, 47, 0, 30
FORMATS = {3: NCL, 4: NCHW, 5: NCDHW}  # by rank, as torch_npu passes them; every other rank is ND
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
SCALARS = {  # a scalar's torch dtype: the C type that holds it (complex, 16-bit floats: as bytes of a torch tensor)
    torch.float32: ctypes.c_float, torch.float64: ctypes.c_double, torch.int64: ctypes.c_int64,
    torch.bool: ctypes.c_bool, torch.int32: ctypes.c_int32, torch.int16: ctypes.c_int16,
    torch.int8: ctypes.c_int8, torch.uint8: ctypes.c_uint8,
}  # fmt: skip
PLAIN = {
    "int64": ctypes.c_int64, "int32": ctypes.c_int32, "int8": ctypes.c_int8, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool, "double": ctypes.c_double, "float": ctypes.c_float,
}  # fmt: skip


COMPUTED = {  # the tables' names of the dtypes that ops compute with; others are only moved
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "bool": torch.bool,
    "u8": torch.uint8, "s8": torch.int8, "s16": torch.int16, "s32": torch.int32, "s64": torch.int64,
    "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip


class Row:
    """One op of the tables, with torch's dtypes."""

    def __init__(self, op: cann_tables.Op) -> None:
        self.name, self.args = op.name, op.arguments or ()
        self.kinds = [a.kind for a in self.args]
        self.dynamic_output = "dynamic_output" in op.facts

    def dtypes(self, i: int) -> list[torch.dtype]:
        """The dtypes that argument i computes with; all when its row names none."""
        return [COMPUTED[d] for d in self.args[i].dtypes if d in COMPUTED] or list(COMPUTED.values())

    def dense(self, i: int) -> bool:
        return self.args[i].dense


@cache
def rows() -> dict[str, Row]:
    return {op.name: Row(op) for op in cann_tables.ops() if op.arguments is not None}


class Scalar:
    """A number of a chosen dtype; a plain bool, int, float or complex goes as bool, int64, float64 or complex128."""

    def __init__(self, value: complex, dtype: torch.dtype) -> None:
        self.value, self.dtype = value, dtype


class CannError(RuntimeError):
    def __init__(self, code: int, where: str, message: str) -> None:
        super().__init__(f"{where} returned {code}: {message}")
        self.code, self.message = code, message


class DeviceTensor:
    """An aclTensor over device memory with the storage, strides and offset of the torch tensor it was made from."""

    def __init__(self, client: Client, source: torch.Tensor, format: int | None = None) -> None:
        self.client, self.dtype = client, source.dtype
        self.sizes, self.strides, self.offset = tuple(source.shape), source.stride(), source.storage_offset()
        self.nbytes = source.untyped_storage().nbytes()
        self.address = ctypes.c_void_p()
        client.must("aclrtMalloc", ctypes.byref(self.address), ctypes.c_size_t(max(self.nbytes, 1)), 0)
        if self.nbytes:
            data = ctypes.c_void_p(source.untyped_storage().data_ptr())
            client.copy(self.address, data, self.nbytes, HOST_TO_DEVICE)
        format = FORMATS.get(len(self.sizes), ND) if format is None else format
        self.handle = client.describe(self, format)

    def read(self, sizes: Sequence[int] | None = None) -> torch.Tensor:
        """What the device holds, under the same strides; `sizes` for an output whose shape the op decided."""
        whole = torch.empty(self.nbytes, dtype=torch.uint8)
        if self.nbytes:
            self.client.copy(ctypes.c_void_p(whole.data_ptr()), self.address, self.nbytes, DEVICE_TO_HOST)
        whole = whole.view(self.dtype)
        if sizes is not None:
            return whole[: torch.Size(sizes).numel()].view(*sizes)
        return whole.as_strided(self.sizes, self.strides, self.offset)

    def view_shape(self) -> list[int]:
        dims, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
        self.client.must("aclGetViewShape", self.handle, ctypes.byref(dims), ctypes.byref(count))
        found = dims[: count.value]
        ctypes.CDLL(None).free(dims)
        return found

    def free(self, handle: bool = True) -> None:
        if handle:
            self.client.must("aclDestroyTensor", self.handle)
        self.client.must("aclrtFree", self.address)


class FourBits(DeviceTensor):
    """A tensor of two items to a byte, the first in the low bits: its codes, of INT4 (29), FLOAT4_E2M1 (40) or FLOAT4_E1M2 (41)."""

    def __init__(self, client: Client, codes: torch.Tensor, dtype: int) -> None:
        pairs = codes.flatten().to(torch.uint8).view(-1, 2)
        super().__init__(client, pairs[:, 0] & 15 | pairs[:, 1] << 4)
        client.must("aclDestroyTensor", self.handle)
        dims = (ctypes.c_int64 * codes.dim())(*codes.shape)
        made = client.function("aclCreateTensor")(
            dims, ctypes.c_uint64(codes.dim()), dtype, None, ctypes.c_int64(0), ND, dims, ctypes.c_uint64(codes.dim()), self.address
        )  # fmt: skip
        assert made, client.message()
        self.handle, self.shape = ctypes.c_void_p(made), codes.shape

    def read(self, sizes: Sequence[int] | None = None) -> torch.Tensor:
        pairs = super().read()
        return torch.stack([pairs & 15, pairs >> 4], -1).view(self.shape)


class Coded(DeviceTensor):
    """A tensor of bytes under a data type that torch has not: its codes, of HIFLOAT8 (34) or FLOAT8_E8M0 (37), with their strides."""

    def __init__(self, client: Client, codes: torch.Tensor, dtype: int) -> None:
        super().__init__(client, codes)
        client.must("aclDestroyTensor", self.handle)
        n = len(self.sizes)
        made = client.function("aclCreateTensor")(
            (ctypes.c_int64 * n)(*self.sizes), ctypes.c_uint64(n), dtype, (ctypes.c_int64 * n)(*self.strides), ctypes.c_int64(self.offset), ND,
            (ctypes.c_int64 * 1)(self.nbytes), ctypes.c_uint64(1), self.address,
        )  # fmt: skip
        assert made, client.message()
        self.handle = ctypes.c_void_p(made)


class Client:
    """One device, one stream. `call` runs both phases of an op and waits for it."""

    def __init__(self, device: int = 0) -> None:
        lib64 = Path(cann_sim.home()) / "lib64"
        self.libraries = [
            ctypes.CDLL(str(lib64 / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
            for name in ("ascendcl", "nnopbase", "opapi")
        ]
        self.function("aclGetRecentErrMsg").restype = ctypes.c_char_p
        for name in ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList"):
            self.function(f"aclCreate{name}").restype = ctypes.c_void_p
        code = self.function("aclInit")(None)
        if code not in (0, 100002):  # 100002: ACL was initialised elsewhere in this process
            raise CannError(code, "aclInit", self.message())
        self.must("aclrtSetDevice", device)
        self.stream = ctypes.c_void_p()
        self.must("aclrtCreateStream", ctypes.byref(self.stream))

    @cache  # noqa: B019 - a client lives as long as its process
    def function(self, name: str) -> Any:
        for library in self.libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise AttributeError(f"no library exports {name}")

    def must(self, name: str, *args: Any) -> None:
        if code := self.function(name)(*args):
            raise CannError(code, name, self.message())

    def message(self) -> str:
        return (self.function("aclGetRecentErrMsg")() or b"").decode()

    def copy(self, into: ctypes.c_void_p, source: ctypes.c_void_p, nbytes: int, kind: int) -> None:
        self.must("aclrtMemcpy", into, ctypes.c_size_t(nbytes), source, ctypes.c_size_t(nbytes), kind)

    def tensor(self, source: Any, format: int | None = None) -> DeviceTensor:
        """On the device with the source's own strides: hand in `x.t()` or `x[:, ::2]` to test views."""
        return DeviceTensor(self, source if isinstance(source, torch.Tensor) else torch.as_tensor(source), format)

    def describe(self, t: DeviceTensor, format: int) -> ctypes.c_void_p:
        n = len(t.sizes)
        dims, strides = (ctypes.c_int64 * n)(*t.sizes), (ctypes.c_int64 * n)(*t.strides)
        storage = (ctypes.c_int64 * 1)(t.nbytes // t.dtype.itemsize)
        made = self.function("aclCreateTensor")(
            dims, ctypes.c_uint64(n), ACL_DTYPES[t.dtype], strides, ctypes.c_int64(t.offset), format, storage,
            ctypes.c_uint64(1), t.address,
        )  # fmt: skip
        if not made:
            raise CannError(0, "aclCreateTensor", self.message())
        return ctypes.c_void_p(made)

    def scalar(self, value: Any) -> ctypes.c_void_p:
        if not isinstance(value, Scalar):
            types = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
            value = Scalar(value, types[type(value)])
        if ctype := SCALARS.get(value.dtype):
            held, address = (cell := ctype(value.value)), ctypes.addressof(cell)
        else:
            held = torch.tensor(value.value, dtype=value.dtype)
            address = held.data_ptr()
        made = self.function("aclCreateScalar")(ctypes.c_void_p(address), ACL_DTYPES[value.dtype])
        del held  # the scalar copied it
        return ctypes.c_void_p(made)

    def array(self, kind: str, items: Iterable[Any]) -> ctypes.c_void_p:
        name, ctype = {
            "ints": ("Int", ctypes.c_int64), "floats": ("Float", ctypes.c_float), "bools": ("Bool", ctypes.c_bool)
        }[kind]  # fmt: skip
        items = list(items)
        made = self.function(f"aclCreate{name}Array")((ctype * len(items))(*items), ctypes.c_uint64(len(items)))
        return ctypes.c_void_p(made)

    def call(self, name: str, *args: Any) -> Any:
        """Runs the op and returns its outputs (out and inout arguments) as torch tensors: one, or a tuple.

        Tensors may be torch tensors, None where optional, or DeviceTensors that the caller keeps.
        """
        row, call = rows()[name], Arguments(self)
        try:
            raw = [call.convert(kind, arg) for kind, arg in zip(row.kinds, args, strict=True)]
            self._two_phases(name, raw)
            outs = [
                made.read(made.view_shape() if row.dynamic_output else None) for made, is_out in call.tensors if is_out
            ]
        finally:
            call.destroy()
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _two_phases(self, name: str, raw: list[Any]) -> None:
        size, executor, workspace = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
        self.must(f"{name}GetWorkspaceSize", *raw, ctypes.byref(size), ctypes.byref(executor))
        if size.value:
            self.must("aclrtMalloc", ctypes.byref(workspace), ctypes.c_size_t(size.value), 0)
        try:
            self.must(name, workspace, size, executor, self.stream)
            self.must("aclrtSynchronizeStream", self.stream)
        finally:
            if workspace:
                self.must("aclrtFree", workspace)

    def expect_code(self, code: int, name: str, *args: Any) -> str:
        """The call must be refused with this code; returns the message, which must name the op."""
        try:
            self.call(name, *args)
        except CannError as error:
            assert error.code == code, str(error)
            assert name in error.message, (
                f"{name} refused with {code}, but its message does not name it: {error.message!r}"
            )
            return error.message
        raise AssertionError(f"{name} was accepted, {code} expected")


class Arguments:
    """The CANN objects made for one call, to be destroyed after it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tensors: list[tuple[DeviceTensor, bool]] = []  # with whether the op writes it
        self.made: list[tuple[DeviceTensor, bool]] = []  # ours to free; whether its handle is still ours
        self.others: list[tuple[str, ctypes.c_void_p]] = []

    def convert(self, kind: str, arg: Any) -> Any:
        if kind in PLAIN:
            return PLAIN[kind](arg)
        if kind == "dtype":
            return ctypes.c_int32(ACL_DTYPES.get(arg, arg))
        if arg is None:
            return ctypes.c_void_p(None)
        if kind == "string":
            return ctypes.c_char_p(arg.encode())
        if kind in ("tensor", "out", "inout"):
            return self._tensor(arg, kind != "tensor", listed=False)
        if kind in ("tensors", "outs", "inouts"):
            items = [self._tensor(a, kind != "tensors", listed=True) for a in arg]
            return self._list("TensorList", items)
        if kind == "scalar":
            return self._own("Scalar", self.client.scalar(arg))
        if kind == "scalars":
            return self._list("ScalarList", [self.client.scalar(a) for a in arg])
        return self._own(
            {"ints": "Int", "floats": "Float", "bools": "Bool"}[kind] + "Array", self.client.array(kind, arg)
        )

    def _tensor(self, arg: Any, is_out: bool, listed: bool) -> ctypes.c_void_p:
        if not isinstance(arg, DeviceTensor):
            arg = self.client.tensor(arg)
            self.made.append((arg, not listed))  # a list destroys its elements
        self.tensors.append((arg, is_out))
        return arg.handle

    def _list(self, what: str, items: list[ctypes.c_void_p]) -> ctypes.c_void_p:
        handles = (ctypes.c_void_p * len(items))(*items)
        made = self.client.function(f"aclCreate{what}")(handles, ctypes.c_uint64(len(items)))
        return self._own(what, ctypes.c_void_p(made))

    def _own(self, what: str, handle: ctypes.c_void_p) -> ctypes.c_void_p:
        self.others.append((what, handle))
        return handle

    def destroy(self) -> None:
        for what, handle in self.others:
            self.client.must(f"aclDestroy{what}", handle)
        for made, own_handle in self.made:
            made.free(handle=own_handle)


@cache
def client() -> Client:
    """The process's client: aclInit is once per process."""
    return Client()


TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 2e-5, torch.complex64: 2e-5}


def same(got: torch.Tensor, want: torch.Tensor, **tolerance: float) -> None:
    """Equal in shape and dtype, and close in value as the dtype allows; NaN equals NaN."""
    close = TOLERANCE.get(want.dtype, 1e-9)
    torch.testing.assert_close(got, want, equal_nan=True, **(tolerance or {"rtol": close, "atol": close}))


def same_roughly(got: torch.Tensor, want: torch.Tensor, atol: float = 2e-2) -> None:
    """Equal in dtype, and close as half precision is after several products."""
    assert got.dtype is want.dtype
    torch.testing.assert_close(got.float(), want.float(), rtol=1e-2, atol=atol)
