"""Reading and writing at indices and by masks against torch: gather, index, scatter, embedding, masks, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from client import client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
INDEX = (torch.int64, torch.int32)


def places(n: int, *shape: int, dtype: torch.dtype = torch.int64, seed: int = 3) -> torch.Tensor:
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- gather, index_select, take ----------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnGather"), ids=str)
def test_gather(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 5))
    for dim, kind in ((0, INDEX[0]), (-1, INDEX[1])):
        index = LAYOUTS[layout](places(4, 3, 4, dtype=kind))
        same(client().call("aclnnGather", x, dim, index, torch.empty(3, 4, dtype=dtype)), x.gather(dim, index.long()))
    zero = sample(dtype)
    same(client().call("aclnnGather", zero, 0, torch.zeros((), dtype=torch.int64), torch.empty((), dtype=dtype)), zero)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnIndexSelect"), ids=str)
def test_index_select(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 5, 2))
    for dim, kind in ((0, INDEX[0]), (1, INDEX[1]), (-1, INDEX[0])):
        index = places(2, 6, dtype=kind)
        want = x.index_select(dim, index)
        same(client().call("aclnnIndexSelect", x, dim, index, torch.empty(want.shape, dtype=dtype)), want)
    if dtype in dtypes("aclnnGatherV2"):
        index = places(5, 2, 3)
        want = x[:, index]
        same(client().call("aclnnGatherV2", x, 1, index, torch.empty(want.shape, dtype=dtype)), want)


def test_gather_in_batches() -> None:
    x, index = sample(torch.float32, 3, 4, 5), places(4, 3, 2)
    want = torch.stack([x[i, index[i]] for i in range(3)])
    same(client().call("aclnnGatherV3", x, 1, index, 1, 0, torch.empty(3, 2, 5)), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnTake"), ids=str)
def test_take_and_put(dtype: torch.dtype) -> None:
    x = sample(dtype, 3, 4).t()
    for kind in INDEX:
        index = places(12, 2, 3, dtype=kind) - 3
        same(client().call("aclnnTake", x, index, torch.empty(2, 3, dtype=dtype)), x.take(index.long()))
    if dtype in dtypes("aclnnInplacePut"):
        index, source = torch.tensor([0, 5, -1]), sample(dtype, 3, seed=1)
        for accumulate in (False, True):
            want = x.clone().put_(index, source, accumulate)
            same(client().call("aclnnInplacePut", x, index, source, accumulate), want)


# ---- advanced indexing -------------------------------------------------------------------------------------
NONE = torch.empty(0, dtype=torch.int64)
KEYS: list[tuple[Any, ...]] = [
    (places(4, 3),), (places(4, 2, 3),), (None, places(3, 5)), (places(4, 2), None, places(2, 2)),
    (places(4, 2, 1), places(3, 3)), (None, None, places(2, 4) - 2), (places(4, 2), places(3, 2), places(2, 2)),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("key", range(len(KEYS)))
@pytest.mark.parametrize("dtype", dtypes("aclnnIndex"), ids=str)
def test_index_and_index_put(dtype: torch.dtype, key: int, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 4, 3, 2))
    at = tuple(slice(None) if k is None else k for k in KEYS[key])
    for kind in INDEX:
        indices = [NONE if k is None else k.to(kind) for k in KEYS[key]]
        want = x[at]
        same(client().call("aclnnIndex", x, indices, torch.empty(want.shape, dtype=dtype)), want)
        if dtype not in dtypes("aclnnIndexPutImpl"):
            continue
        values = sample(dtype, *want.shape, seed=5)
        got = client().call("aclnnIndexPutImpl", x, indices, values, True, False)
        where = tuple(
            torch.arange(n).view(-1, *[1] * (2 - d)) if k is None else k
            for d, (k, n) in enumerate(zip(KEYS[key], x.shape))
        )
        if None not in KEYS[key]:
            same(got, x.clone().index_put_(where, values, True))
        one = sample(dtype, 1, seed=7)
        changed = x.clone()
        changed[at] = one
        same(client().call("aclnnIndexPutImpl", x, indices, one, False, False), changed)


def test_masks_as_indices() -> None:
    x, mask = sample(torch.float32, 3, 4, 2), sample(torch.bool, 3, 4)
    same(client().call("aclnnIndex", x, [mask], torch.empty(int(mask.sum()), 2)), x[mask])
    got = client().call("aclnnIndexPutImpl", x, [mask], torch.zeros(1), False, False)
    same(got, x * ~mask[..., None])


def test_an_index_of_nothing_writes_nothing() -> None:
    x = sample(torch.float32, 3)
    same(client().call("aclnnIndexPutImpl", x, [NONE], torch.ones(1), False, False), x)
    same(client().call("aclnnIndex", x, [NONE], torch.empty(0)), torch.empty(0))


def test_reading_and_writing_nothing() -> None:
    x, none = sample(torch.float32, 3, 2), torch.empty(3, 0, dtype=torch.int64)
    same(client().call("aclnnGather", x, 1, none, torch.empty(3, 0)), torch.empty(3, 0))
    same(client().call("aclnnInplaceScatterValue", x, 1, none, 9.0, 0), x)
    same(client().call("aclnnIndexAdd", x, 0, NONE, x[:0], 1, torch.empty(3, 2)), x)
    same(client().call("aclnnIndexSelect", x, 0, NONE, torch.empty(0, 2)), x[:0])
    same(client().call("aclnnTake", x, NONE, torch.empty(0)), torch.empty(0))


def test_places_in_the_last_dim() -> None:
    x, at = sample(torch.float32, 3, 4, 2), torch.tensor([[0, 1], [2, 3], [1, 1]])
    want = x[at[:, 0], at[:, 1]]
    same(client().call("aclnnGatherNd", x, at, True, torch.empty(3, 2)), want)
    updates = sample(torch.float32, 3, 2, seed=9)
    changed = x.clone()
    changed[at[:, 0], at[:, 1]] = updates
    same(client().call("aclnnScatterNd", x, at, updates, torch.empty_like(x)), changed)
    same(client().call("aclnnScatterNdUpdate", x, at.int(), updates), changed)


# ---- scatter -----------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnScatter"), ids=str)
def test_scatter(dtype: torch.dtype, layout: str) -> None:
    x, src = (LAYOUTS[layout](sample(dtype, 4, 5, seed=s)) for s in (0, 1))
    index = torch.stack([torch.randperm(4, generator=torch.Generator().manual_seed(i)) for i in range(3)], 1)
    for kind in INDEX:
        want = x.scatter(0, index, src)
        same(client().call("aclnnScatter", x, 0, index.to(kind), src, 0, torch.empty(4, 5, dtype=dtype)), want)
        same(client().call("aclnnInplaceScatter", x, 0, index.to(kind), src, 0), want)
        want = x.scatter(0, index, 3)
        same(client().call("aclnnScatterValue", x, 0, index.to(kind), 3, 0, torch.empty(4, 5, dtype=dtype)), want)
        same(client().call("aclnnInplaceScatterValue", x, 0, index.to(kind), 3, 0), want)
    repeated = places(4, 3, 2)
    same(
        client().call("aclnnScatterAdd", x, 0, repeated, src.contiguous(), torch.empty(4, 5, dtype=dtype)),
        x.scatter_add(0, repeated, src),
    )
    for code, name in ((1, "add"), (2, "multiply")):
        want = x.scatter(0, index, src, reduce=name)
        same(client().call("aclnnScatter", x, 0, index, src, code, torch.empty(4, 5, dtype=dtype)), want)
        want = x.scatter(0, index, 2, reduce=name)
        same(client().call("aclnnInplaceScatterValue", x, 0, index, 2, code), want)


def test_one_tensor_as_input_and_output() -> None:
    x, index, src = sample(torch.float32, 4, 5), places(4, 3, 5), sample(torch.float32, 4, 5, seed=1)
    device = client().tensor(x)
    same(client().call("aclnnScatterAdd", device, 0, index, src, device), x.scatter_add(0, index, src))
    device.free()


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("code, name", [(1, "sum"), (2, "prod"), (3, "amax"), (4, "amin"), (5, "mean")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32], ids=str)
def test_scatter_reduce(dtype: torch.dtype, code: int, name: str, include_self: bool) -> None:
    x, src, index = sample(dtype, 4, 5), sample(dtype, 4, 5, seed=1), places(4, 4, 3)
    want = x.scatter_reduce(0, index, src, name, include_self=include_self)
    same(client().call("aclnnScatterReduce", x, 0, index, src, code, include_self, torch.empty_like(x)), want)
    same(client().call("aclnnInplaceScatterReduce", x, 0, index, src, code, include_self), want)
    unique = torch.tensor([[3, 1, 0, 2, 2]])
    same(client().call("aclnnInplaceScatterReduce", x, 0, unique, src, 0, include_self), x.scatter(0, unique, src))


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_rows_of_a_table(dtype: torch.dtype) -> None:
    table, at, updates = (
        sample(dtype, 5, 3) * 8,
        torch.tensor([[0, 3], [3, 1]]),
        sample(dtype, 2, 2, 3, seed=1).abs() + 1,
    )
    flat, rows = at.reshape(-1), updates.reshape(4, 3)
    same(client().call("aclnnTfScatterAdd", table, at, updates), table.index_add(0, flat, rows))
    for op, name in (("Mul", "prod"), ("Max", "amax"), ("Min", "amin")):
        want = table.clone().index_reduce_(0, flat, rows, name)
        same(client().call(f"aclnnScatter{op}", table, at.int(), updates, False), want)
    want = table.clone()
    for i, row in zip(flat.tolist(), rows, strict=True):
        want[i] = torch.div(want[i], row, rounding_mode=None if dtype.is_floating_point else "trunc")
    same(client().call("aclnnScatterDiv", table, at, updates, False), want)


def test_updates_of_a_cache() -> None:
    cache, updates = sample(torch.float16, 3, 2, 6, 4), sample(torch.float16, 3, 2, 2, 4, seed=1)
    want = cache.clone()
    for b, place in enumerate((4, 0, 1)):
        want[b, :, place : place + 2] = updates[b]
    same(client().call("aclnnInplaceScatterUpdate", cache, torch.tensor([4, 0, 1]), updates, -2), want)
    pairs = torch.tensor([[2, 1], [0, 4]], dtype=torch.int32)
    want = cache.clone()
    want[2, :, 1:3], want[0, :, 4:6] = updates[0], updates[1]
    same(client().call("aclnnInplaceScatterUpdate", cache, pairs, updates[:2].contiguous(), 2), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnIndexAdd"), ids=str)
def test_index_add(dtype: torch.dtype, layout: str) -> None:
    x, source = LAYOUTS[layout](sample(dtype, 4, 5)), LAYOUTS[layout](sample(dtype, 4, 3, seed=1))
    index = torch.tensor([2, 0, 2])
    alpha = 1 if dtype == torch.bool else 2
    for kind in INDEX:
        want = x.index_add(1, index, source, alpha=alpha)
        got = client().call("aclnnIndexAdd", x, 1, index.to(kind), source, alpha, torch.empty(4, 5, dtype=dtype))
        same(got, want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceIndexCopy"), ids=str)
def test_index_copy_and_fill(dtype: torch.dtype, layout: str) -> None:
    x, source = LAYOUTS[layout](sample(dtype, 4, 5)), LAYOUTS[layout](sample(dtype, 4, 2, seed=1))
    index = torch.tensor([3, 0])
    want = x.index_copy(1, index, source)
    same(client().call("aclnnInplaceIndexCopy", x, 1, index.int(), source), want)
    same(client().call("aclnnIndexCopy", x, -1, index, source, torch.empty_like(x))[1], want)
    if dtype in dtypes("aclnnIndexFillTensor"):
        want = x.index_fill(0, index, 1)
        same(client().call("aclnnIndexFillTensor", x, 0, [3, 0], 1, torch.empty(4, 5, dtype=dtype)), want)
        same(client().call("aclnnInplaceIndexFillTensor", x, 0, [-1, 0], 1), want)
        same(client().call("aclnnIndexFill", x, 0, index, 1, torch.empty(4, 5, dtype=dtype)), want)
        same(client().call("aclnnInplaceIndexFill", x, 0, index, 1), want)


# ---- masks -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceMaskedFillScalar"), ids=str)
def test_masked_fill(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 3, 4))
    for mask in (
        LAYOUTS[layout](sample(torch.bool, 3, 4, seed=1)),
        sample(torch.bool, 4),
        sample(torch.bool, 3, 1),
        torch.tensor(True),
    ):
        want = x.masked_fill(mask, 1)
        same(client().call("aclnnInplaceMaskedFillScalar", x, mask, 1), want)
        same(client().call("aclnnInplaceMaskedFillTensor", x, mask, torch.tensor(1, dtype=dtype)), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnMaskedSelect"), ids=str)
def test_masked_select(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 3, 4))
    for mask in (
        LAYOUTS[layout](sample(torch.bool, 3, 4, seed=1)),
        sample(torch.bool, 2, 1, 4),
        torch.zeros(4, dtype=torch.bool),
    ):
        room = torch.broadcast_shapes(x.shape, mask.shape).numel()
        same(client().call("aclnnMaskedSelect", x, mask, torch.empty(room, dtype=dtype)), x.masked_select(mask))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnInplaceMaskedScatter"), ids=str)
def test_masked_scatter(dtype: torch.dtype, layout: str) -> None:
    x, source = LAYOUTS[layout](sample(dtype, 3, 4)), sample(dtype, 12, seed=1)
    for mask in (sample(torch.bool, 3, 4, seed=2), sample(torch.bool, 4, seed=3)):
        same(client().call("aclnnInplaceMaskedScatter", x, mask, source), x.masked_scatter(mask, source))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnNonzero"), ids=str)
def test_nonzero(dtype: torch.dtype, layout: str) -> None:
    for shape in ((5,), (3, 4), (2, 3, 2), (0, 3)):
        x = LAYOUTS[layout](sample(dtype, *shape))
        got = client().call("aclnnNonzero", x, torch.empty(x.numel(), x.ndim, dtype=torch.int64))
        same(got, x.nonzero())
        got = client().call("aclnnNonzeroV2", x, torch.empty(x.ndim, x.numel(), dtype=torch.int64))
        same(got, x.nonzero().t())


# ---- embedding ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnEmbedding"), ids=str)
def test_embedding(dtype: torch.dtype, layout: str) -> None:
    weight = LAYOUTS[layout](sample(dtype, 6, 4))
    for kind in INDEX:
        for shape in ((), (3,), (2, 3), (0,)):
            index = places(6, *shape, dtype=kind)
            same(
                client().call("aclnnEmbedding", weight, index, torch.empty(*shape, 4, dtype=dtype)),
                weight[index.long()],
            )


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("dtype", dtypes("aclnnEmbeddingDenseBackward"), ids=str)
def test_embedding_gradient(dtype: torch.dtype, scale: bool) -> None:
    index = torch.tensor([[1, 3, 1], [0, 5, 3]])
    grad = sample(dtype, 2, 3, 4)
    for padding in (-1, 3):
        want = torch.ops.aten.embedding_dense_backward(grad.float(), index, 6, padding, scale).to(dtype)
        got = client().call(
            "aclnnEmbeddingDenseBackward", grad, index, 6, padding % 2**64, scale, torch.empty(6, 4, dtype=dtype)
        )
        same(got, want)


@pytest.mark.parametrize("dtype", dtypes("aclnnRenorm"), ids=str)
def test_renorm(dtype: torch.dtype) -> None:
    x = sample(dtype, 4, 5)
    index = torch.tensor([[1, 3], [1, 0]])
    want = x.float()
    F.embedding(index, want, max_norm=2.0, norm_type=2.0)
    same(client().call("aclnnEmbeddingRenorm", x, index, 2.0, 2.0), want.to(dtype))
    for dim in (0, 1):
        want = x.float().renorm(2.0, dim, 1.5).to(dtype)
        same(client().call("aclnnRenorm", x, 2.0, dim, 1.5, torch.empty_like(x)), want)
        same(client().call("aclnnInplaceRenorm", x, 2.0, dim, 1.5), want)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode: str) -> None:
    weight, index, offsets = sample(torch.float32, 6, 4), places(6, 7), torch.tensor([0, 3, 5])
    want = F.embedding_bag(index, weight, offsets, mode=mode)
    outs = (
        torch.empty(3, 4),
        torch.empty(7, dtype=torch.int64),
        torch.empty(3, dtype=torch.int64),
        torch.empty(3, dtype=torch.int64),
    )
    code = ["sum", "mean", "max"].index(mode)
    got = client().call("aclnnEmbeddingBag", weight, index, offsets, False, code, False, None, False, -1, *outs)
    same(got[0], want)
    same(got[1], torch.tensor([0, 0, 0, 1, 1, 2, 2]))
    same(got[2], torch.tensor([3, 2, 2]))


# ---- faults and refusals -----------------------------------------------------------------------------------
FAULT = """
import sys
sys.path.insert(0, {folder!r})
import torch
from client import CannError, client
x, at = torch.zeros(3, 4), torch.tensor([[0, 7]])
try:
    client().call({op!r}, *{arguments})
except CannError as error:
    print(error.code, error.message)
"""
FAULTS = {
    "aclnnGather": "(x, 1, at, torch.empty(1, 2))",
    "aclnnIndexSelect": "(x, 0, at[0], torch.empty(2, 4))",
    "aclnnIndex": "(x, [at], torch.empty(1, 2, 4))",
    "aclnnEmbedding": "(x, at, torch.empty(1, 2, 4))",
    "aclnnInplaceScatterValue": "(x, 0, at, 1.0, 0)",
    "aclnnTake": "(x, at * 2, torch.empty(1, 2))",
}


@pytest.mark.parametrize("op", FAULTS)
def test_an_index_out_of_range_is_a_fault_of_the_device(op: str, run_python: Callable[..., str]) -> None:
    """Only the device sees it: both phases succeed, and the next synchronisation fails and names the op."""
    code = FAULT.format(folder=str(Path(__file__).parent), op=op, arguments=FAULTS[op])
    said = run_python(code)
    assert said.startswith("507") and op in said, said


A, ROW, I64 = torch.empty(2, 3), torch.empty(3), torch.zeros(2, 3, dtype=torch.int64)
ONE = torch.zeros(1, dtype=torch.int64)
REFUSED: dict[str, tuple[Any, ...]] = {
    "gather rank": (INVALID, "aclnnGather", A, 0, ONE, torch.empty(1)),
    "gather size": (INVALID, "aclnnGather", A, 1, torch.zeros(3, 1, dtype=torch.int64), torch.empty(3, 1)),
    "gather dim": (INVALID, "aclnnGather", A, 2, I64, A),
    "gather index dtype": (INVALID, "aclnnGather", A, 0, A, A),
    "gather out": (INVALID, "aclnnGather", A, 0, I64, ROW),
    "gather out dtype": (INVALID, "aclnnGather", A, 0, I64, A.double()),
    "gather null": (NULL, "aclnnGather", A, 0, None, A),
    "select rank": (INVALID, "aclnnIndexSelect", A, 0, I64, A),
    "select shape": (INVALID, "aclnnIndexSelect", A, 0, ONE, A),
    "take shape": (INVALID, "aclnnTake", A, ONE, ROW),
    "take from nothing": (INVALID, "aclnnTake", torch.empty(0), ONE, torch.empty(1)),
    "put count": (INVALID, "aclnnInplacePut", A, ONE, ROW, False),
    "index rank": (INVALID, "aclnnIndex", ROW, [ONE, ONE], torch.empty(1)),
    "index shape": (INVALID, "aclnnIndex", A, [ONE], torch.empty(1, 2)),
    "index broadcast": (INVALID, "aclnnIndex", A, [I64[0, :2], I64[0]], ROW),
    "index dtype": (INVALID, "aclnnIndex", A, [torch.zeros(2)], A),
    "put values": (INVALID, "aclnnIndexPutImpl", A, [ONE], torch.empty(2), False, False),
    "put dtype": (INVALID, "aclnnIndexPutImpl", A, [ONE], torch.empty(1, 3, dtype=torch.int32), False, False),
    "scatter src": (INVALID, "aclnnScatter", A, 0, I64, torch.empty(1, 3), 0, A),
    "scatter rank": (INVALID, "aclnnScatter", A, 0, ONE, A, 0, A),
    "scatter reduce": (INVALID, "aclnnScatter", A, 0, I64, A, 5, A),
    "scatter dtype": (INVALID, "aclnnScatter", A, 0, I64, A.double(), 0, A),
    "scatter value null": (NULL, "aclnnInplaceScatterValue", A, 0, I64, None, 0),
    "scatter mean": (INVALID, "aclnnScatterReduce", A, 0, I64, A, 6, True, A),
    "table rows": (INVALID, "aclnnTfScatterAdd", A, ONE, A),
    "table index": (INVALID, "aclnnTfScatterAdd", A, torch.zeros(1), A[:1]),
    "cache batches": (INVALID, "aclnnInplaceScatterUpdate", A, ONE, A, 1),
    "cache axis": (INVALID, "aclnnInplaceScatterUpdate", A, torch.zeros(2, dtype=torch.int64), A, 0),
    "add rows": (INVALID, "aclnnIndexAdd", A, 0, ONE, A, 1, A),
    "add alpha": (NULL, "aclnnIndexAdd", A, 0, ONE, A[:1], None, A),
    "copy rows": (INVALID, "aclnnInplaceIndexCopy", A, 1, ONE, A),
    "fill index": (INVALID, "aclnnInplaceIndexFillTensor", A, 0, [2], 1),
    "mask shape": (INVALID, "aclnnInplaceMaskedFillScalar", A, torch.zeros(2, dtype=torch.bool), 1),
    "mask dtype": (INVALID, "aclnnInplaceMaskedFillScalar", A, torch.zeros(2, 3), 1),
    "mask grows self": (INVALID, "aclnnInplaceMaskedFillScalar", A, torch.zeros(4, 2, 3, dtype=torch.bool), 1),
    "mask value": (NULL, "aclnnInplaceMaskedFillScalar", A, torch.zeros(3, dtype=torch.bool), None),
    "select room": (INVALID, "aclnnMaskedSelect", A, torch.zeros(2, 3, dtype=torch.bool), torch.empty(5)),
    "scatter source dtype": (INVALID, "aclnnInplaceMaskedScatter", A, torch.zeros(2, 3, dtype=torch.bool), ROW.int()),
    "nonzero room": (INVALID, "aclnnNonzero", A, torch.empty(5, 2, dtype=torch.int64)),
    "nonzero columns": (INVALID, "aclnnNonzero", A, torch.empty(6, 3, dtype=torch.int64)),
    "embedding rank": (INVALID, "aclnnEmbedding", ROW, ONE, torch.empty(1, 3)),
    "embedding out": (INVALID, "aclnnEmbedding", A, ONE, torch.empty(1, 2)),
    "embedding index": (INVALID, "aclnnEmbedding", A, torch.zeros(1), torch.empty(1, 3)),
    "embedding rows": (INVALID, "aclnnEmbeddingDenseBackward", A, torch.zeros(2, dtype=torch.int64), 4, 0, False, A),
    "renorm": (INVALID, "aclnnRenorm", A, 2.0, 0, -1.0, A),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    code, op, *args = REFUSED[case]
    client().expect_code(code, op, *args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
def test_values_at_one_place_are_added(dtype: torch.dtype) -> None:
    places = torch.tensor([[0, 1], [2, 0], [0, 1], [1, 1]])
    values = (torch.arange(12).reshape(4, 3) - 5).to(dtype)
    flat, which = (places[:, 0] * 2 + places[:, 1]).unique(return_inverse=True)
    got = client().call("aclnnCoalesceSparse", flat, which, places, values, torch.zeros(3, 2, dtype=torch.int64), torch.ones(3, 3).to(dtype))
    want = torch.sparse_coo_tensor(places.t(), values, (3, 2, 3)).coalesce()
    assert torch.equal(got[0], want.indices().t()) and torch.equal(got[1], want.values())
    client().expect_code(161002, "aclnnCoalesceSparse", flat, which, places[:3].clone(), values, torch.zeros(3, 2, dtype=torch.int64), torch.ones(3, 3).to(dtype))
