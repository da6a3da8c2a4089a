"""Ops with a third function, ...GetMaxWorkspaceSize: what a client that captures a graph asks before it knows the lengths."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from client import client

import cann_tables

PLAIN = {"double": ctypes.c_double(0.0), "int64": ctypes.c_int64(0), "bool": ctypes.c_bool(False)}


def test_it_is_as_much_as_any_lengths_need() -> None:
    row = next(op for op in cann_tables.ops() if op.name == "aclnnFusedInferAttentionScoreV3")
    assert row.first_phases == (row.name + "GetWorkspaceSize", row.name + "GetMaxWorkspaceSize")
    query, key = client().tensor(torch.randn(1, 2, 4, 16).half()), client().tensor(torch.randn(1, 2, 6, 16).half())
    given: dict[str, Any] = {
        "query": query.handle, "attentionOut": query.handle, "numHeads": ctypes.c_int64(2), "scaleValue": ctypes.c_double(1.0),
        "inputLayout": b"BNSD", "preTokens": ctypes.c_int64(65535), "nextTokens": ctypes.c_int64(65535), "numKeyValueHeads": ctypes.c_int64(2),
    }  # fmt: skip
    make = client().function("aclCreateTensorList")
    make.restype = ctypes.c_void_p
    for name in ("key", "value"):
        given[name] = ctypes.c_void_p(make((ctypes.c_void_p * 1)(key.handle), ctypes.c_uint64(1)))
    sizes = []
    for phase in row.first_phases:
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        values = [given.get(a.name, PLAIN.get(a.kind)) for a in row.arguments or ()]
        client().must(phase, *values, ctypes.byref(size), ctypes.byref(executor))
        client().must("aclDestroyAclOpExecutor", executor)
        sizes.append(size.value)
    assert sizes[1] >= sizes[0]
