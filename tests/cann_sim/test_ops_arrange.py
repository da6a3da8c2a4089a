"""Ops that make and rearrange tensors against torch: creation, cat, slices, padding, repetition, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from client import Scalar, client, same
from samples import LAYOUTS, dtypes, sample

INVALID, NULL = 161002, 161001
EIGHT = (2, 1, 3, 2, 2, 1, 2, 2)


def equal(got: torch.Tensor, want: torch.Tensor) -> None:
    """Moved, not computed: bit for bit."""
    assert got.dtype == want.dtype and got.shape == want.shape
    a, b = (x.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for x in (got, want))
    assert torch.equal(a, b)


# ---- creation ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", dtypes("aclnnArange", 3), ids=str)
@pytest.mark.parametrize("bounds", [(0, 7, 1), (5, -4, -2), (1.5, 4.0, 0.25), (0, 0, 1)], ids=str)
def test_arange(dtype: torch.dtype, bounds: tuple[Any, ...]) -> None:
    want = torch.arange(*bounds).to(dtype) if not dtype.is_floating_point else torch.arange(*bounds, dtype=dtype)
    if not dtype.is_floating_point and isinstance(bounds[0], float):
        pytest.skip("torch steps in integers here, which 0.25 is not")
    same(client().call("aclnnArange", *bounds, torch.empty_like(want)), want)
    same(client().call("aclnnArange", *bounds, torch.empty(2 * len(want), dtype=dtype)[::2]), want)


@pytest.mark.parametrize("bounds", [(0, 6, 2), (0.0, 1.0, 0.25), (3, -3, -1)], ids=str)
def test_range_holds_its_end(bounds: tuple[Any, ...]) -> None:
    n = int((bounds[1] - bounds[0]) / bounds[2]) + 1
    want = torch.tensor([bounds[0] + bounds[2] * i for i in range(n)], dtype=torch.float32)
    same(client().call("aclnnRange", *bounds, torch.empty(n)), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnLinspace", 3), ids=str)
@pytest.mark.parametrize("steps", [0, 1, 5, 8])
def test_linspace(dtype: torch.dtype, steps: int) -> None:
    want = torch.linspace(2, 90, steps, dtype=dtype)
    same(client().call("aclnnLinspace", 2, 90, steps, torch.empty(steps, dtype=dtype)), want)


def test_logspace() -> None:
    same(client().call("aclnnLogSpace", 0, 3, 5, 2.0, torch.empty(5)), torch.logspace(0, 3, 5, 2))


@pytest.mark.parametrize("dtype", dtypes("aclnnEye", 2), ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (4, 1), (0, 3)], ids=str)
def test_eye(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    want = torch.eye(*shape, dtype=dtype)
    same(client().call("aclnnEye", *shape, torch.empty_like(want)), want)
    same(client().call("aclnnEye", *shape, torch.empty(shape[::-1], dtype=dtype).t()), want)


# ---- cat, stack --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnCat", moved=True), ids=str)
def test_cat_and_stack(dtype: torch.dtype, layout: str) -> None:
    whole = sample(torch.uint8, 2, 12, 3).to(dtype)
    parts = [LAYOUTS[layout](p.clone()) for p in whole.split([5, 0, 7], 1)]
    equal(client().call("aclnnCat", parts, 1, torch.empty_like(whole)), whole)
    equal(
        client().call("aclnnCat", [*parts, torch.empty(0, dtype=dtype)], -2, LAYOUTS[layout](torch.empty_like(whole))),
        whole,
    )
    if dtype in dtypes("aclnnStack", moved=True):
        three = [LAYOUTS[layout](p.clone().squeeze(0)) for p in whole.view(3, 2, 12).split(1)]
        for dim in (0, 1, -1):
            want = torch.stack([t.contiguous() for t in three], dim)
            equal(client().call("aclnnStack", three, dim, torch.empty_like(want)), want)


def test_cat_casts_to_the_output() -> None:
    a, b = sample(torch.int32, 3), sample(torch.float16, 2)
    same(client().call("aclnnCat", [a, b], 0, torch.empty(5)), torch.cat([a.float(), b.float()]))


# ---- permute, expand, repeat, flip, roll -------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnPermute", moved=True), ids=str)
def test_permute(dtype: torch.dtype, layout: str) -> None:
    for order in ((2, 0, 1), (0, 1, 2), (-1, 1, 0)):
        x = LAYOUTS[layout](sample(torch.uint8, 2, 3, 4).to(dtype))
        want = x.permute(order).contiguous()
        equal(client().call("aclnnPermute", x, order, torch.empty_like(want)), want)
    x = sample(torch.float32, *EIGHT)
    order = (7, 5, 3, 1, 0, 2, 4, 6)
    equal(client().call("aclnnPermute", x, order, torch.empty_like(x.permute(order))), x.permute(order))


@pytest.mark.parametrize("dtype", dtypes("aclnnExpand"), ids=str)
@pytest.mark.parametrize("shape, size", [((), (2, 3)), ((3, 1), (2, -1, 4)), ((1, 4), (3, 4)), ((1,), (0,))], ids=str)
def test_expand(dtype: torch.dtype, shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    x = sample(dtype, *shape)
    want = x.expand(size).contiguous()
    equal(client().call("aclnnExpand", x, size, torch.empty_like(want)), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnRepeat", moved=True), ids=str)
def test_repeat(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(torch.uint8, 2, 3).to(dtype))
    for repeats in ((2, 1), (3, 2, 2), (1, 0), (1, 1)):
        want = x.contiguous().repeat(repeats)
        equal(client().call("aclnnRepeat", x, repeats, torch.empty_like(want)), want)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnFlip"), ids=str)
def test_flip(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 2, 3, 4))
    for dims in ([0], [-1, 0], [], [0, 1, 2]):
        equal(client().call("aclnnFlip", x, dims, torch.empty(2, 3, 4, dtype=dtype)), x.flip(dims))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnRoll"), ids=str)
def test_roll(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 3, 4))
    for shifts, dims in (([1], [0]), ([-5, 2], [1, 0]), ([3], []), ([0], [1])):
        equal(client().call("aclnnRoll", x, shifts, dims, torch.empty(3, 4, dtype=dtype)), x.roll(shifts, dims))


# ---- splits, slices ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnSplitTensor"), ids=str)
def test_splits(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 3, 7))
    for size in (2, 3, 7, 9):
        want = x.split(size, 1)
        got = client().call("aclnnSplitTensor", x, size, 1, [torch.empty(w.shape, dtype=dtype) for w in want])
        for a, b in zip([got] if len(want) == 1 else got, want, strict=True):
            equal(a, b)
    for a, b in zip(
        client().call("aclnnSplitWithSize", x, [1, 0, 6], -1, [torch.empty(3, n, dtype=dtype) for n in (1, 0, 6)]),
        x.split([1, 0, 6], 1), strict=True,
    ):  # fmt: skip
        equal(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnSlice"), ids=str)
def test_slices(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 5, 8))
    for start, end, step in itertools.product((0, 2, -3, -99), (3, -1, 99), (1, 3)):
        want = x[:, start:end:step]
        got = client().call("aclnnSlice", x, 1, start, end, step, torch.empty(want.shape, dtype=dtype))
        equal(got, want)
    want = x[1:4, 0:8:2]
    equal(client().call("aclnnSliceV2", x, [0, 1], [8, 4], [1, 0], [2, 1], torch.empty(want.shape, dtype=dtype)), want)


# ---- triangles, diagonals ----------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["tril", "triu"])
@pytest.mark.parametrize("dtype", dtypes("aclnnTril"), ids=str)
def test_triangles(name: str, dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 2, 3, 4))
    for diagonal in (-9, -1, 0, 2, 9):
        want = getattr(x.contiguous(), name)(diagonal)
        op = name.capitalize()
        equal(client().call(f"aclnn{op}", x, diagonal, torch.empty(2, 3, 4, dtype=dtype)), want)
        equal(client().call(f"aclnnInplace{op}", x, diagonal), want)


@pytest.mark.parametrize("dtype", dtypes("aclnnDiag"), ids=str)
@pytest.mark.parametrize("diagonal", [-4, -1, 0, 2])
def test_diagonals(dtype: torch.dtype, diagonal: int) -> None:
    for x in (sample(dtype, 3), sample(dtype, 3, 4), sample(dtype, 4, 3).t()):
        want = x.contiguous().diag(diagonal)
        equal(client().call("aclnnDiag", x, diagonal, torch.empty_like(want)), want)
    x = sample(dtype, 2, 2)
    want = x.diagflat(diagonal)
    equal(client().call("aclnnDiagFlat", x, diagonal, torch.empty_like(want)), want)


# ---- padding -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnConstantPadNd"), ids=str)
def test_constant_padding(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 2, 3, 4))
    for pad in ([1, 2], [0, 1, 2, 0], [-1, 2, 0, -2, 1, 1], []):
        want = F.pad(x, pad, value=1) if pad else x.contiguous()
        equal(client().call("aclnnConstantPadNd", x, pad, 1, torch.empty(want.shape, dtype=dtype)), want)


PADS = {1: [2, 1], 2: [1, 2, 0, 1], 3: [1, 0, 2, 1, 1, 1]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "kind, mode", [("Reflection", "reflect"), ("Replication", "replicate"), ("Circular", "circular")]
)
@pytest.mark.parametrize("nd", [1, 2, 3])
def test_edge_padding(kind: str, mode: str, nd: int, layout: str) -> None:
    if kind == "Circular" and nd == 1:
        pytest.skip("CANN has no such op")
    op = f"aclnn{kind}Pad{nd}d"
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = LAYOUTS[layout](sample(dtype, 2, 2, *(3, 4, 5)[:nd]))
        leaf = x.double().requires_grad_()
        want = F.pad(leaf, PADS[nd], mode=mode)
        grad = sample(dtype, *want.shape, seed=1)
        want.backward(grad.double())
        same(client().call(op, x, PADS[nd], torch.empty(want.shape, dtype=dtype)), want.detach().to(dtype))
        got = client().call(op + "Backward", grad, x, PADS[nd], torch.empty(x.shape, dtype=dtype))
        same(got, leaf.grad.to(dtype))


# ---- repetition, one_hot -----------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnRepeatInterleave"), ids=str)
def test_repeat_interleave(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 2, 3))
    for repeats in (torch.tensor([2]), torch.tensor([0, 1, 2, 0, 3, 1], dtype=torch.int32)):
        want = x.reshape(-1).repeat_interleave(repeats)
        equal(client().call("aclnnRepeatInterleave", x, repeats, len(want), torch.empty_like(want)), want)
    equal(
        client().call("aclnnRepeatInterleaveInt", x, 3, 18, torch.empty(18, dtype=dtype)),
        x.reshape(-1).repeat_interleave(3),
    )
    want = x.repeat_interleave(torch.tensor([1, 0, 2]), 1)
    got = client().call(
        "aclnnRepeatInterleaveWithDim", x, torch.tensor([1, 0, 2]), 1, 3, torch.empty(2, 3, dtype=dtype)
    )
    equal(got, want)
    equal(
        client().call("aclnnRepeatInterleaveIntWithDim", x, 2, -1, 6, torch.empty(2, 6, dtype=dtype)),
        x.repeat_interleave(2, 1),
    )


def test_repeat_interleave_of_places_and_its_gradient() -> None:
    repeats = torch.tensor([2, 0, 3])
    got = client().call("aclnnRepeatInterleaveTensor", repeats, 5, torch.empty(5, dtype=torch.int64))
    same(got, torch.repeat_interleave(repeats))
    grad = sample(torch.float32, 2, 5)
    got = client().call("aclnnRepeatInterleaveGrad", grad, repeats, 1, torch.empty(2, 3))
    same(got, torch.stack([grad[:, :2].sum(1), torch.zeros(2), grad[:, 2:].sum(1)], 1))


@pytest.mark.parametrize("dtype", dtypes("aclnnOneHot", 5), ids=str)
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(dtype: torch.dtype, axis: int) -> None:
    x = torch.tensor([[0, 2, 1], [1, 1, 3]])
    want = F.one_hot(x, 5).movedim(-1, axis).to(dtype) * 3 + 1
    on, off = torch.tensor([4], dtype=dtype), torch.tensor([1], dtype=dtype)
    for index in (x, x.int()):
        same(client().call("aclnnOneHot", index, 5, on, off, axis, torch.empty(want.shape, dtype=dtype)), want)
    outside = torch.tensor([-1, 7])
    same(client().call("aclnnOneHot", outside, 5, on, off, -1, torch.empty(2, 5, dtype=dtype)), off.expand(2, 5))


# ---- other shapes ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes("aclnnFlatten"), ids=str)
def test_flatten_and_shuffle(dtype: torch.dtype, layout: str) -> None:
    x = LAYOUTS[layout](sample(dtype, 2, 6, 4))
    for axis, shape in ((0, (1, 48)), (1, (2, 24)), (-1, (12, 4)), (3, (48, 1))):
        equal(client().call("aclnnFlatten", x, axis, torch.empty(shape, dtype=dtype)), x.reshape(shape))
    if dtype in dtypes("aclnnChannelShuffle"):
        want = x.reshape(2, 3, 2, 4).transpose(1, 2).reshape(2, 6, 4)
        equal(client().call("aclnnChannelShuffle", x, 3, torch.empty(2, 6, 4, dtype=dtype)), want)
    want = x.permute(2, 0, 1).reshape(8, 6)
    equal(client().call("aclnnConfusionTranspose", x, [2, 0, 1], [8, 6], True, torch.empty(8, 6, dtype=dtype))[1], want)
    want = x.reshape(8, 6).t()
    equal(client().call("aclnnConfusionTranspose", x, [1, 0], [8, 6], False, torch.empty(6, 8, dtype=dtype))[1], want)


def test_chunk_cat() -> None:
    tensors = [sample(torch.float32, *shape) for shape in ((2, 5, 3), (2, 4), (2, 1, 2))]
    want = torch._chunk_cat(tensors, 1, 3)
    same(client().call("aclnnChunkCat", tensors, 1, 3, torch.empty_like(want)), want)
    same(client().call("aclnnChunkCat", tensors, 1, 3, torch.empty_like(want, dtype=torch.float64)), want.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_gradient_of_unfold(dtype: torch.dtype) -> None:
    leaf = sample(torch.float32, 3, 9).requires_grad_()
    windows = leaf.unfold(1, 4, 2)
    grad = sample(dtype, *windows.shape, seed=2)
    windows.backward(grad.float())
    same(client().call("aclnnUnfoldGrad", grad, [3, 9], 1, 4, 2, torch.empty(3, 9, dtype=dtype)), leaf.grad.to(dtype))


def test_strided_slices() -> None:
    x = sample(torch.float32, 4, 5, 6)
    whole = 0, 0, 0, 0, 0
    cases: list[tuple[Any, ...]] = [
        (x[1:3, ::2], [1, 0], [3, 5], [1, 2], *whole),
        (x[:3, 1:], [9, 1], [3, 9], [1, 1], 1, 2, 0, 0, 0),
        (x.flip(0)[1:3], [-2], [-4], [-1], *whole),
        (x[2, 1:3], [2, 1], [3, 3], [1, 1], 0, 0, 0, 0, 1),
        (x[..., 1:4], [0, 1], [0, 4], [1, 1], 0, 0, 1, 0, 0),
        (x[None, 1:2], [0, 1], [0, 2], [1, 1], 0, 0, 0, 1, 0),
        (x[3:1], [3], [1], [1], *whole),
    ]
    for want, begin, end, strides, *masks in cases:
        same(client().call("aclnnStridedSlice", x, begin, end, strides, *masks, torch.empty(want.shape)), want)
    changed, value = x.clone(), sample(torch.float32, 4, 2, 3, seed=4)
    changed[:, 1:3, ::2] = value
    got = client().call("aclnnStridedSliceAssignV2", x, value, [1, 0], [3, 6], [1, 2], [1, 2])
    same(got, changed)


# ---- refusals ----------------------------------------------------------------------------------------------
A, B = torch.empty(2, 3), torch.empty(3, 2)
FIVE, SIX = torch.empty(5), torch.empty(6)
REFUSED: dict[str, tuple[Any, ...]] = {
    "arange size": (INVALID, "aclnnArange", 0, 4, 1, FIVE),
    "arange direction": (INVALID, "aclnnArange", 0, -5, 1, FIVE),
    "arange step": (INVALID, "aclnnArange", 0, 5, 0, FIVE),
    "arange null": (NULL, "aclnnArange", None, 5, 1, FIVE),
    "arange of bool": (INVALID, "aclnnArange", 0, 5, 1, torch.empty(5, dtype=torch.bool)),
    "linspace steps": (INVALID, "aclnnLinspace", 0, 1, -1, FIVE),
    "eye shape": (INVALID, "aclnnEye", 2, 2, A),
    "cat of nothing": (INVALID, "aclnnCat", [], 0, A),
    "cat shapes": (INVALID, "aclnnCat", [A, B], 0, torch.empty(5, 3)),
    "cat dim": (INVALID, "aclnnCat", [A, A], 2, torch.empty(2, 6)),
    "cat out": (INVALID, "aclnnCat", [A, A], 1, torch.empty(4, 3)),
    "stack shapes": (INVALID, "aclnnStack", [A, B], 0, torch.empty(2, 2, 3)),
    "permute rank": (INVALID, "aclnnPermute", A, [0], A),
    "permute twice": (INVALID, "aclnnPermute", A, [0, 0], A),
    "permute out": (INVALID, "aclnnPermute", A, [1, 0], A),
    "expand size": (INVALID, "aclnnExpand", A, [2, 4], torch.empty(2, 4)),
    "repeat rank": (INVALID, "aclnnRepeat", A, [2], A),
    "repeat negative": (INVALID, "aclnnRepeat", A, [2, -1], A),
    "flip dtype": (INVALID, "aclnnFlip", A, [0], A.int()),
    "flip twice": (INVALID, "aclnnFlip", A, [0, -2], A),
    "roll shifts": (INVALID, "aclnnRoll", A, [1, 2], [0], A),
    "split parts": (INVALID, "aclnnSplitTensor", FIVE, 2, 0, [torch.empty(2), torch.empty(3)]),
    "split by zero": (INVALID, "aclnnSplitTensor", FIVE, 0, 0, [FIVE]),
    "split sizes": (INVALID, "aclnnSplitWithSize", FIVE, [2, 2], 0, [torch.empty(2), torch.empty(2)]),
    "slice step": (INVALID, "aclnnSlice", FIVE, 0, 0, 5, -1, FIVE),
    "slice out": (INVALID, "aclnnSlice", FIVE, 0, 0, 4, 1, FIVE),
    "slices": (INVALID, "aclnnSliceV2", A, [0], [1, 1], [0], [1], A),
    "triangle of a row": (INVALID, "aclnnTril", FIVE, 0, FIVE),
    "diag": (INVALID, "aclnnDiag", FIVE, 1, torch.empty(5, 5)),
    "pad too much": (INVALID, "aclnnConstantPadNd", FIVE, [1, 1, 1, 1], 0, FIVE),
    "pad odd": (INVALID, "aclnnConstantPadNd", FIVE, [1], 0, SIX),
    "pad crops all": (INVALID, "aclnnConstantPadNd", FIVE, [-3, -3], 0, FIVE),
    "reflection": (INVALID, "aclnnReflectionPad1d", torch.empty(1, 3), [3, 0], torch.empty(1, 6)),
    "reflection rank": (INVALID, "aclnnReflectionPad1d", FIVE, [1, 0], SIX),
    "replication": (INVALID, "aclnnReplicationPad1d", torch.empty(1, 3), [1], torch.empty(1, 4)),
    "repeats": (INVALID, "aclnnRepeatInterleave", A, torch.tensor([1, 2]), 3, torch.empty(3)),
    "repeats size": (INVALID, "aclnnRepeatInterleaveInt", A, 2, 11, torch.empty(11)),
    "flatten": (INVALID, "aclnnFlatten", A, 1, B),
    "shuffle": (INVALID, "aclnnChannelShuffle", torch.empty(1, 5, 2), 2, torch.empty(1, 5, 2)),
    "confusion": (INVALID, "aclnnConfusionTranspose", A, [1, 0], [5], True, FIVE),
    "chunks": (INVALID, "aclnnChunkCat", [A, B], 0, 0, A),
    "windows": (INVALID, "aclnnUnfoldGrad", torch.empty(2, 3), [5], 0, 3, 0, FIVE),
    "strides": (INVALID, "aclnnStridedSlice", A, [0], [1], [0], 0, 0, 0, 0, 0, A),
    "assigned": (INVALID, "aclnnStridedSliceAssignV2", A, B, [0], [1], [1], None),
    "one hot": (INVALID, "aclnnOneHot", torch.tensor([1]), 3, torch.ones(1), torch.zeros(1), -1, torch.empty(1, 4)),
    "one hot values": (INVALID, "aclnnOneHot", torch.tensor([1]), 2, torch.ones(2), torch.zeros(1), -1, A[:1, :2]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    code, op, *args = REFUSED[case]
    client().expect_code(code, op, *args)


def test_scalars_of_other_dtypes_count() -> None:
    got = client().call(
        "aclnnArange", Scalar(0, torch.int32), Scalar(3, torch.float32), Scalar(1, torch.int8), torch.empty(3)
    )
    same(got, torch.arange(3.0))
