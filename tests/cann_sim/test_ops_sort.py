"""Ordering ops against torch: sort, topk, unique, searches in sorted sequences, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from client import client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
SHAPES = [(7,), (3, 5), (2, 3, 4), (0, 3), (2, 1, 3, 2, 2, 1, 2, 2)]


def index_like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=torch.int64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", dtypes("aclnnSort"), ids=str)
def test_sort(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, *shape))
    for dim in (0, -1):
        for descending in (False, True):
            values, indices = x.sort(dim=dim, descending=descending, stable=True)
            got = client().call("aclnnSort", x, True, dim, descending, torch.empty(shape, dtype=dtype), index_like(x))
            same(got[0], values)
            same(got[1], indices)
            if dtype != torch.bool:
                same(client().call("aclnnArgsort", x, dim, descending, index_like(x)), indices)


def test_nan_is_sorted_last() -> None:
    x = torch.tensor([1.0, float("nan"), float("-inf"), -0.0, 0.0])
    got = client().call("aclnnSort", x, True, 0, False, torch.empty(5), index_like(x))
    want = x.sort(stable=True)
    same(got[0], want.values)
    same(got[1], want.indices)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnTopk"), ids=str)
def test_topk(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 9))
    for dim, k, largest in ((1, 3, True), (-1, 9, False), (0, 0, True), (0, 2, False)):
        want = x.topk(k, dim, largest).values
        values, indices = client().call(
            "aclnnTopk", x, k, dim, largest, True, torch.empty(want.shape, dtype=dtype), index_like(want)
        )
        same(values, want)
        same(x.gather(dim, indices), values)
        out = torch.empty(want.shape, dtype=dtype), index_like(want)
        same(client().call("aclnnTopkV2", x, k, dim, largest, True, 1, *out)[0], want)


def room(n: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.empty(n, dtype=dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnUnique2"), ids=str)
def test_unique(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 6))
    want = x.unique(return_inverse=True, return_counts=True)
    device = client().tensor(index_like(x))
    got = client().call("aclnnUnique2", x, True, True, True, room(24, dtype), device, room(24))
    for a, b in zip(got, want, strict=True):
        same(a, b)
    device.free()
    got = client().call("aclnnUnique2", x, True, False, False, room(24, dtype), room(0), room(0))
    same(got[0], want[0])
    inverse = client().tensor(index_like(x))
    got = client().call("aclnnUnique", x, True, True, room(24, dtype), inverse)
    same(got[0], want[0])
    same(got[1], want[1])
    inverse.free()


def test_unique_of_nothing() -> None:
    none = torch.empty(0)
    values, inverse, counts = client().call("aclnnUnique2", none, True, True, True, none, room(0), room(0))
    assert values.shape == inverse.shape == counts.shape == (0,)


@pytest.mark.parametrize("dtype", [d for d in dtypes("aclnnUniqueConsecutive") if not d.is_complex], ids=str)
def test_unique_neighbours(dtype: torch.dtype) -> None:
    x = sample(dtype, 12).sort().values.repeat(2)
    want = x.unique_consecutive(return_inverse=True, return_counts=True)
    got = client().call("aclnnUniqueConsecutive", x, True, True, 1000, room(24, dtype), room(24), room(24))
    for a, b in zip(got, want, strict=True):
        same(a, b)


@pytest.mark.parametrize("dtype", dtypes("aclnnUniqueDim"), ids=str)
def test_unique_rows(dtype: torch.dtype) -> None:
    x = sample(torch.bool, 9, 2).to(dtype)
    for dim, given in ((0, x), (1, x.t().contiguous())):
        want = given.unique(dim=dim, return_inverse=True, return_counts=True)
        got = client().call(
            "aclnnUniqueDim", given, True, True, dim, torch.empty(given.shape, dtype=dtype), room(9), room(9)
        )
        for a, b in zip(got, want, strict=True):
            same(a, b)
        runs = given.unique_consecutive(dim=dim, return_inverse=True, return_counts=True)
        got = client().call(
            "aclnnUniqueConsecutive", given, True, True, dim, torch.empty(given.shape, dtype=dtype), room(9), room(9)
        )
        for a, b in zip(got, runs, strict=True):
            same(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", dtypes("aclnnSearchSorted"), ids=str)
def test_search_sorted(dtype: torch.dtype, right: bool, layout: str) -> None:
    sequence, x = sample(dtype, 3, 6).sort(-1).values, LAYOUTS[layout](sample(dtype, 3, 4, seed=1))
    sorter = sequence.flip(-1).argsort(dim=-1, stable=True)
    for int32, kind in ((False, torch.int64), (True, torch.int32)):
        out = torch.empty(3, 4, dtype=kind)
        want = torch.searchsorted(sequence, x.contiguous(), right=right, out_int32=int32)
        same(client().call("aclnnSearchSorted", LAYOUTS[layout](sequence), x, int32, right, None, out), want)
        same(client().call("aclnnSearchSorted", sequence.flip(-1), x, int32, right, sorter, out), want)
        row = torch.searchsorted(sequence[0], x.contiguous(), right=right, out_int32=int32)
        same(client().call("aclnnBucketize", x, sequence[0], int32, right, out), row)
    got = client().call("aclnnSearchSorteds", sequence[0], 2, False, right, None, torch.empty(1, dtype=torch.int64))
    same(got[0], torch.searchsorted(sequence[0], torch.tensor(2, dtype=dtype), right=right))


A, I64, ROW = torch.empty(2, 3), torch.empty(2, 3, dtype=torch.int64), torch.empty(3)
REFUSED: dict[str, tuple[Any, ...]] = {
    "sort dim": (INVALID, "aclnnSort", A, True, 2, False, A, I64),
    "sort shape": (INVALID, "aclnnSort", A, True, 0, False, ROW, I64),
    "sort index": (INVALID, "aclnnSort", A, True, 0, False, A, I64.int()),
    "sort of complex": (INVALID, "aclnnSort", A.to(torch.complex64), True, 0, False, A, I64),
    "sort null": (NULL, "aclnnSort", A, True, 0, False, A, None),
    "argsort shape": (INVALID, "aclnnArgsort", A, 0, False, I64[0]),
    "topk k": (INVALID, "aclnnTopk", A, 4, 1, True, True, torch.empty(2, 4), torch.empty(2, 4, dtype=torch.int64)),
    "topk negative": (INVALID, "aclnnTopk", A, -1, 1, True, True, A, I64),
    "topk shape": (INVALID, "aclnnTopk", A, 2, 1, True, True, A, I64),
    "topk of bool": (INVALID, "aclnnTopk", A.bool(), 3, 1, True, True, A.bool(), I64),
    "unique room": (INVALID, "aclnnUnique2", A, True, False, False, torch.empty(5), room(0), room(0)),
    "unique dtype": (INVALID, "aclnnUnique2", A, True, False, False, room(6, torch.int32), room(0), room(0)),
    "unique inverse": (INVALID, "aclnnUnique2", A, True, True, False, torch.empty(6), room(6), room(0)),
    "unique counts": (INVALID, "aclnnUnique2", A, True, False, True, torch.empty(6), room(0), room(3)),
    "unique dim": (INVALID, "aclnnUniqueDim", A, True, False, 3, torch.empty(6), room(3), room(3)),
    "search int32": (INVALID, "aclnnSearchSorted", ROW, A, True, False, None, I64),
    "search rows": (INVALID, "aclnnSearchSorted", torch.empty(3, 4), A, False, False, None, I64),
    "search shape": (INVALID, "aclnnSearchSorted", ROW, A, False, False, None, I64[0]),
    "sorter": (INVALID, "aclnnSearchSorted", ROW, A, False, False, torch.zeros(2, dtype=torch.int64), I64),
    "boundaries": (INVALID, "aclnnBucketize", A, A, False, False, I64),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    code, op, *args = REFUSED[case]
    client().expect_code(code, op, *args)
