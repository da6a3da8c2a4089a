"""Dtypes beside the common ones on an npu: bytes move, CANN casts what it has, the rest is refused by name."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

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
