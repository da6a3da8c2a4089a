"""Dtypes beside the common ones on an npu: bytes move, CANN casts what it has, the rest is refused by name."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from call_recorder import Simulator

import mindtorch_v2 as mt

UNSIGNED = ["uint16", "uint32", "uint64"]
RARE = [*UNSIGNED, "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "complex32"]


def bytes_of(x: Any) -> bytes:
    return bytes(x.contiguous().untyped_storage().tolist())


@pytest.mark.parametrize("name", [*RARE, "bits8", "uint4", "quint8"])
def test_npu_moves_and_fills_any_dtype(npu, name):
    """As bits: CANN need not know the dtype."""
    dtype = getattr(mt, name)
    x = mt.arange(16, dtype=mt.uint8).view(dtype)
    y = x.npu()
    assert y.dtype is dtype and bytes_of(y.cpu()) == bytes(range(16)) == bytes_of(y.clone().cpu())
    assert bytes_of(y[1:].contiguous().cpu()) == bytes_of(x[1:].clone())
    assert bytes_of(mt.zeros(3, dtype=dtype, device="npu").cpu()) == bytes(3 * dtype.itemsize)
    if name in RARE:
        for value in (1, 2):
            assert bytes_of(mt.full((3,), value, dtype=dtype, device="npu").cpu()) == bytes_of(mt.full((3,), value, dtype=dtype))


@pytest.mark.parametrize("name", [*UNSIGNED, "float8_e4m3fn", "float8_e5m2", "complex32"])
def test_npu_casts_what_cann_casts(npu, name):
    dtype, wide = getattr(mt, name), mt.complex64 if name == "complex32" else mt.float32
    x = mt.tensor([0, 1, 2.5, 3.5, 100, 240]).to(wide)
    assert bytes_of(x.npu().to(dtype).cpu()) == bytes_of(x.to(dtype))
    assert bytes_of(x.to(dtype).npu().to(wide).cpu()) == bytes_of(x.to(dtype).to(wide))


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e8m0fnu", "bits8"])
def test_npu_names_what_cann_lacks(npu, name):
    x = mt.zeros(4, dtype=mt.uint8).view(getattr(mt, name)).npu()
    with pytest.raises((NotImplementedError, RuntimeError), match=name):
        x.float()
    with pytest.raises(RuntimeError):
        x + x


def test_npu_erfcx_is_exact_in_double(npu):
    values = torch.cat([torch.linspace(-5, 30, 400, dtype=torch.float64), torch.tensor([4.999999, 5.0, 1e8, float("inf")],
                                                                                       dtype=torch.float64)])
    ours = mt.special.erfcx(mt.tensor(values.tolist(), dtype=mt.float64, device="npu"))
    np.testing.assert_allclose(ours.cpu().numpy(), torch.special.erfcx(values).numpy(), 2e-14)


@pytest.mark.parametrize("name", ["int32", "int64", "uint8", "int8", "int16"])
def test_npu_histc_counts_integers(npu, name):
    """As torch's devices do; its cpu counts floats only."""
    values = [0, 1, 1, 5, 9, 10, 3, 3]
    theirs = torch.histc(torch.tensor(values, dtype=torch.float32), 5, 0, 10)
    ours = mt.histc(mt.tensor(values, dtype=getattr(mt, name), device="npu"), 5, 0, 10)
    assert ours.tolist() == theirs.tolist() and ours.dtype is getattr(mt, name)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_npu_convolutions_of_complex_numbers(npu, transposed, bias):
    """Made of real ones, gradients to all three included."""
    def run(library: Any, device: str) -> list[Any]:
        library.manual_seed(0)
        given = [library.randn(*shape, dtype=library.complex64).to(device).requires_grad_()
                 for shape in ((2, 4, 6), (4, 4, 3), (4,))][:3 if bias else 2]
        function = library.nn.functional.conv_transpose1d if transposed else library.nn.functional.conv1d
        made = function(*given, stride=2, padding=1)
        made.abs().sum().backward()
        return [made.detach(), *(x.grad for x in given)]

    for ours, theirs in zip(run(mt, "npu"), run(torch, "cpu"), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours.cpu().numpy()), theirs, rtol=1e-4, atol=1e-4)


def test_npu_convolution_names_the_dtype_it_lacks(npu):
    x = mt.ones(1, 1, 4, dtype=mt.float64, device="npu")
    with pytest.raises(NotImplementedError, match=r"\[convolution\] no kernel for npu in torch.float64"):
        mt.nn.functional.conv1d(x, x)


@pytest.mark.parametrize("name", ["float32", "complex64"])
def test_npu_singular_values_alone(npu, name):
    """aclnnSvd gets sigma in the dtype of its input, and u and v of their shapes although it fills neither."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 3, dtype=getattr(torch, name))
    y, record = mt.from_numpy(x.numpy()).npu(), Simulator()
    record.start()
    made = mt.linalg.svdvals(y)
    launches = [call for call in record.launches() if call.startswith("aclnnSvd(")]
    torch.testing.assert_close(torch.from_numpy(made.cpu().numpy()), torch.linalg.svdvals(x), rtol=1e-4, atol=1e-4)
    short = {"float32": "f32", "complex64": "c64"}[name]
    assert f"sigma={short}[2,3]" in launches[0] and f"u={short}[2,4,3]" in launches[0] and f"v={short}[2,3,3]" in launches[0]
