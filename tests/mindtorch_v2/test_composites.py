"""Ops over tensors of a class without memory, next to plain ones: no value is read on the way, none written into a plain one.

`parity_ops.py --check composite composite_backward composite_forward_ad` asks the same of all ops with PyTorch's rules.
"""
from __future__ import annotations

from typing import Any

import pytest
import torch
from oracle import compare

import mindtorch_v2 as mt
from mindtorch_v2.utils._pytree import tree_map


class Held(mt.Tensor):
    """Has its values in another tensor; refuses to give one out, and to be written into a plain tensor."""

    def __new__(cls, value: Any) -> Held:
        made = mt.Tensor._make_wrapper_subclass(cls, value.shape, dtype=value.dtype, strides=value.stride(),
                                                storage_offset=value.storage_offset(),
                                                requires_grad=value.requires_grad)
        made.value = value.detach()
        if value.is_conj():
            mt._C._set_conj(made, True)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name != "_local_scalar_dense"
        assert not name.endswith("_") or isinstance(args[0], cls), f"{name} into a plain tensor"
        args, kwargs = tree_map(lambda x: x.value if isinstance(x, cls) else x, (args, kwargs or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, mt.Tensor) else x, func(*args, **kwargs))


CASES = {
    "select_scatter": lambda t, x, y: x.select_scatter(y[0], 0, 1), "slice_scatter": lambda t, x, y: x.slice_scatter(y[:1], 0, 1, 2),
    "diagonal_scatter": lambda t, x, y: x.diagonal_scatter(y[0]), "as_strided": lambda t, x, y: x.as_strided((2, 2), (1, 2)) + 0 * y[0, 0],
    "index_put": lambda t, x, y: x.index_put((t.tensor([0, 2]),), y[0]), "in place": lambda t, x, y: (x * y).mul_(y),
    "fill_": lambda t, x, y: (x * y).fill_(2) * x, "matrix_exp": lambda t, x, y: t.linalg.matrix_exp(x @ y),
    "multi_margin_loss": lambda t, x, y: t.nn.functional.multi_margin_loss(x * y, t.tensor([0, 2, 1])),
    "multilabel_margin_loss": lambda t, x, y: t.nn.functional.multilabel_margin_loss(x * y, t.tensor([[0, -1, 1]] * 3)),
    "max_unpool1d": lambda t, x, y: t.nn.functional.max_unpool1d(
        *t.nn.functional.max_pool1d((x * y)[None], 3, return_indices=True), 3),
    "ctc_loss": lambda t, x, y: t.nn.functional.ctc_loss((x * y)[:, None].log_softmax(2), t.tensor([[1, 2]]), (3,), (2,)),
    "hfft": lambda t, x, y: t.fft.hfft(x * y), "ihfft2": lambda t, x, y: t.fft.ihfft2(x * y).abs(),
    "polar": lambda t, x, y: t.polar(x.exp(), y).real, "svdvals": lambda t, x, y: t.linalg.svdvals(x @ y),
    "eigh": lambda t, x, y: t.linalg.eigh(x @ y + (x @ y).mT)[0], "eigvals": lambda t, x, y: t.linalg.eigvals(x @ y).abs(),
    "embedding_bag": lambda t, x, y: t.nn.functional.embedding_bag(t.tensor([0, 2, 1]), x * y, t.tensor([0, 2])),
    "segment_reduce": lambda t, x, y: t.segment_reduce(x * y, "sum", lengths=t.tensor([1, 2])),
    "diag_embed": lambda t, x, y: t.diag_embed(x * y), "select_copy": lambda t, x, y: t.select_copy(x * y, 0, 1),
    "fill": lambda t, x, y: t.fill(x, 2.0) * x * y,
}


@pytest.mark.parametrize("held", ["first", "second", "both"])
@pytest.mark.parametrize("case", CASES)
def test_as_of_plain_tensors(case: str, held: str) -> None:
    body = CASES[case]
    numbers = [[[2.0, 0.5, -1.0], [0.25, 3.0, 1.5], [-0.5, 1.0, 4.0]], [[1.0, 0.3, 0.2], [0.6, 2.0, 0.7], [0.1, 0.4, 1.2]]]
    theirs = [torch.tensor(n, requires_grad=True) for n in numbers]
    ours = [mt.tensor(n, requires_grad=True) for n in numbers]
    given = [Held(x) if held in (name, "both") else x for x, name in zip(ours, ("first", "second"))]
    expected, result = body(torch, *theirs), body(mt, *given)
    assert type(result) is Held
    compare(result.value, expected.detach(), case)
    wanted = torch.autograd.grad(expected.sum(), theirs, allow_unused=True)
    for mine, its in zip(mt.autograd.grad(result.sum(), given, allow_unused=True), wanted):
        assert (mine is None) == (its is None)
        if its is not None:
            compare(mine.value if isinstance(mine, Held) else mine, its, f"gradient of {case}")


def test_histogram_reads_nothing() -> None:
    x = Held(mt.tensor([1.0, 2.0, 4.0]))
    counts, edges = mt.histogram(x, 3)
    expected = torch.histogram(torch.tensor([1.0, 2.0, 4.0]), 3)
    compare(counts.value, expected.hist, "counts")
    compare(edges.value, expected.bin_edges, "edges")


def test_what_is_wrong_is_still_refused_of_plain_tensors() -> None:
    x, f = mt.ones(2, 3), mt.nn.functional
    for call in (lambda: f.multi_margin_loss(x, mt.tensor([0, 3])), lambda: f.multilabel_margin_loss(x, mt.full((2, 3), 3)),
                 lambda: f.max_unpool1d(mt.ones(1, 1, 1), mt.tensor([[[7]]]), 2),
                 lambda: f.embedding_bag(mt.tensor([0, 1]), x, mt.tensor([1])),
                 lambda: mt.segment_reduce(x, "sum", lengths=mt.tensor([1])), lambda: mt.normal(x, -x)):
        with pytest.raises(RuntimeError):
            call()
