"""Host memory that ops reach: registered as mapped, its device address is its own."""

from __future__ import annotations

import ctypes

import torch
from client import client
from older import ND, Older

FLOAT = 0  # aclDataType


def run(older: Older, address: int, items: int) -> int:
    """OnesLike over these items, in place."""
    dims = (ctypes.c_int64 * 1)(items)
    desc = ctypes.c_void_p(client().function("aclCreateTensorDesc")(FLOAT, 1, dims, ND))
    buffer = ctypes.c_void_p(client().function("aclCreateDataBuffer")(ctypes.c_void_p(address), ctypes.c_size_t(4 * items)))
    one = lambda x: (ctypes.c_void_p * 1)(x)
    attr = ctypes.c_void_p(client().function("aclopCreateAttr")())
    code = older.library.aclopCompileAndExecute(b"OnesLike", 1, one(desc), one(buffer), 1, one(desc), one(buffer), attr, 0, 0, None, client().stream)
    for name, made in (("aclDestroyTensorDesc", desc), ("aclDestroyDataBuffer", buffer), ("aclopDestroyAttr", attr)):
        client().function(name)(made)
    return int(code)


def test_ops_reach_it_as_long_as_it_is_registered(older: Older) -> None:
    x, device = torch.zeros(2048), ctypes.c_void_p()
    host = ctypes.c_void_p(x.data_ptr())
    assert run(older, x.data_ptr(), 16) == 100000
    client().must("aclrtHostRegister", host, ctypes.c_uint64(8192), 0, ctypes.byref(device))
    assert run(older, device.value or 0, 16) == 0
    client().must("aclrtSynchronizeStream", client().stream)
    assert x[:16].sum() == 16 and x[16:].sum() == 0
    assert run(older, x.data_ptr() + 8160, 16) == 100000  # reaches beyond what is registered
    client().must("aclrtHostUnregister", host)
    assert run(older, x.data_ptr(), 16) == 100000
