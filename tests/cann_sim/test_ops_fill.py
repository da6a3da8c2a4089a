"""Fills, casts and copies in libopapi against torch."""

from __future__ import annotations

import ctypes
import time

import pytest
import torch
from client import COMPUTED, client, rows, same
from layouts import OUTPUTS, like, sample

INVALID = 161002


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(7)


@pytest.mark.parametrize("dtype", COMPUTED.values())
def test_fill(dtype: torch.dtype) -> None:
    value = 1 - 2j if dtype.is_complex else True if dtype == torch.bool else 3
    for layout in OUTPUTS.values():
        x = layout(lambda shape: sample(shape, dtype))
        same(client().call("aclnnInplaceFillScalar", x, value), torch.full_like(x, value))
        if dtype in rows()["aclnnInplaceFillTensor"].dtypes(0):
            same(client().call("aclnnInplaceFillTensor", x, torch.tensor([value]).to(dtype)), torch.full_like(x, value))
        same(client().call("aclnnInplaceZero", x), torch.zeros_like(x))
        if dtype in rows()["aclnnInplaceOne"].dtypes(0):
            same(client().call("aclnnInplaceOne", x), torch.ones_like(x))


def test_a_fill_leaves_the_rest_of_the_storage() -> None:
    whole = torch.arange(24.0).view(4, 6)
    device = client().tensor(whole[1:3, ::2])
    client().call("aclnnInplaceZero", device)
    whole[1:3, ::2] = 0
    device.sizes, device.strides, device.offset = (4, 6), (6, 1), 0
    same(device.read(), whole)
    device.free()


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", [(3, 3), (7, 3), (3, 7), (3, 3, 3)])
def test_fill_diagonal(shape: tuple[int, ...], wrap: bool) -> None:
    x = sample(shape, torch.float32)
    if len(shape) > 2:
        client().expect_code(INVALID, "aclnnInplaceFillDiagonal", x, 9.0, wrap)
    else:
        same(client().call("aclnnInplaceFillDiagonal", x, 9.0, wrap), x.clone().fill_diagonal_(9.0, wrap))


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("source", COMPUTED.values())
@pytest.mark.parametrize("target", COMPUTED.values())
def test_cast_and_copy(source: torch.dtype, target: torch.dtype) -> None:
    x = sample((3, 4), source, 0 if target == torch.uint8 else -3)
    same(client().call("aclnnCast", x.t(), target, like(x.t(), target)), x.t().to(target))
    out = sample((2, 3, 4), target).transpose(0, 1)
    same(client().call("aclnnInplaceCopy", out, x.unsqueeze(1)), x.unsqueeze(1).to(target).expand(3, 2, 4))


def test_a_copy_needs_scratch_for_its_source_only() -> None:
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    x, y = client().tensor(torch.rand(4, 6)), client().tensor(torch.rand(6, 4).t())
    for into, source, wanted in ((y, x, 0), (x, y, 512)):
        client().must("aclnnInplaceCopyGetWorkspaceSize", into.handle, source.handle, ctypes.byref(size), ctypes.byref(executor))
        client().must("aclDestroyAclOpExecutor", executor)
        assert size.value == wanted
    x.free()
    y.free()


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_dtypes_that_are_only_moved(dtype: torch.dtype) -> None:
    x = torch.arange(12).to(dtype).view(3, 4)
    assert client().call("aclnnInplaceCopy", torch.zeros(4, 3, dtype=dtype), x.t()).tolist() == x.t().tolist()
    assert client().call("aclnnCast", x, dtype, torch.zeros(3, 4, dtype=dtype)).tolist() == x.tolist()
    assert client().call("aclnnEqual", x, x, torch.zeros(1, dtype=torch.bool)).item() is True
    client().expect_code(INVALID, "aclnnAdd", x, x, 1, x)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.complex32])
@pytest.mark.parametrize("other", [*COMPUTED.values(), torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.filterwarnings("ignore:Casting complex values", "ignore:ComplexHalf")
def test_dtypes_that_are_only_converted(dtype: torch.dtype, other: torch.dtype) -> None:
    x = sample((3, 4), torch.float32, 0, 100).to(dtype).t()
    if not dtype.is_complex:
        signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        x[0, 0] = torch.tensor(-1, dtype=signed).view(dtype)  # all bits: beyond the signed type
    for source, target in ((x, other), (sample((4, 3), other, 0, 100).to(other), dtype)):
        if target == source.dtype or {source.dtype, target} == {torch.uint64, torch.float16}:
            continue  # torch rounds 2**64 to float16 by way of float32, and gives infinity either way
        want = source.to(target)
        got = client().call("aclnnCast", source, target, torch.empty_like(want))
        assert got.dtype == target
        same(got.to(torch.complex128), want.to(torch.complex128))


def test_a_stream_sleeps() -> None:
    begin = time.monotonic()
    client().call("aclnnSleep", [20_000_000])
    assert time.monotonic() - begin >= 0.02
    client().expect_code(161002, "aclnnSleep", [-1])
