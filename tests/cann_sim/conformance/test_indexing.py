"""Indexing, ordering, masks and shapes through torch_npu: the many ways in which it calls a few aclnn ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_npu

torch.manual_seed(0)
X, M, AT, N = torch.randn(3, 4, 5), torch.randn(4, 6), torch.tensor([1, 3, 0, 2, 2]), torch.randint(0, 10, (3, 4))


def put(m: torch.Tensor, key: Any, value: Any) -> torch.Tensor:
    m = m.clone()
    m[key] = value
    return m


Case = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], Any]
CASES: dict[str, Case] = {
    "x[:, at]": lambda x, m, at, n: x[:, at],
    "x[..., at]": lambda x, m, at, n: x[..., at],
    "x[at, :, at]": lambda x, m, at, n: x[at % 3, :, at],
    "x[at, at]": lambda x, m, at, n: x[at[:, None] % 3, at[None]],
    "m[-at]": lambda x, m, at, n: m[-at],
    "m[None, :, at]": lambda x, m, at, n: m[None, :, at],
    "m[none]": lambda x, m, at, n: m[at[:0]],
    "x[mask]": lambda x, m, at, n: x[x > 0],
    "x[small mask]": lambda x, m, at, n: x[x[:, :, 0] > 0],
    "m[:, mask]": lambda x, m, at, n: m[:, m[0] > 0],
    "m[empty mask]": lambda x, m, at, n: m[m > 99],
    "m[1] = ": lambda x, m, at, n: put(m, 1, 7.0),
    "m[at] = ": lambda x, m, at, n: put(m, at, 1.0),
    "m[at] = row": lambda x, m, at, n: put(m, at, m[0] * 0),
    "m[:, at] = ": lambda x, m, at, n: put(m, (slice(None), at[:2]), m[:, :2]),
    "m[at, at] = ": lambda x, m, at, n: put(m, (at[:2], at[:2]), m[0, :2]),
    "m[mask] = ": lambda x, m, at, n: put(m, m > 0, 0.0),
    "m[empty mask] = ": lambda x, m, at, n: put(m, m > 99, 5.0),
    "m[1:3, ::2] = ": lambda x, m, at, n: put(m, (slice(1, 3), slice(None, None, 2)), 2.0),
    "index_put": lambda x, m, at, n: m.index_put((at,), m[:1].expand(5, 6), accumulate=True),
    "gather": lambda x, m, at, n: m.gather(1, m.argsort(1)),
    "take": lambda x, m, at, n: m.take(at * 4),
    "scatter": lambda x, m, at, n: m.scatter(1, at[:4, None], m[:, :1]),
    "scatter value": lambda x, m, at, n: m.scatter(1, at[:4, None], 9.0),
    "scatter_add": lambda x, m, at, n: m.scatter_add(0, at[None].expand(4, 5), m),
    "scatter_reduce": lambda x, m, at, n: m.scatter_reduce(0, at[None].expand(4, 5), m, "sum"),
    "index_add": lambda x, m, at, n: m.index_add(0, at, m[:1].expand(5, 6), alpha=2),
    "index_copy": lambda x, m, at, n: m.index_copy(0, at[:2], m[2:]),
    "index_fill": lambda x, m, at, n: m.index_fill(1, at[:2], 7.0),
    "masked_select": lambda x, m, at, n: m.masked_select(m > 0),
    "masked_scatter": lambda x, m, at, n: m.masked_scatter(m > 0, m.flip(0)),
    "nonzero": lambda x, m, at, n: (m > 0).nonzero(as_tuple=True),
    "unique": lambda x, m, at, n: torch.unique(n, return_inverse=True, return_counts=True),
    "unique rows": lambda x, m, at, n: torch.unique(n % 2, dim=0, return_inverse=True, return_counts=True),
    "unique neighbours": lambda x, m, at, n: torch.unique_consecutive(at, return_inverse=True, return_counts=True),
    "unique of nothing": lambda x, m, at, n: torch.unique(m[:0]),
    "sort": lambda x, m, at, n: x.sort(1, descending=True),
    "topk": lambda x, m, at, n: x.topk(2, 1, largest=False),
    "kthvalue": lambda x, m, at, n: x.kthvalue(2, 1),
    "median": lambda x, m, at, n: x.median(1),
    "quantile": lambda x, m, at, n: m.quantile(0.3, 1),
    "searchsorted": lambda x, m, at, n: torch.searchsorted(at.sort()[0].float(), m, right=True),
    "bincount": lambda x, m, at, n: at.bincount(),
    "histc": lambda x, m, at, n: m.histc(5, -1, 1),
    "cummax": lambda x, m, at, n: x.cummax(1),
    "var_mean": lambda x, m, at, n: torch.var_mean(x, (0, 2)),
    "vector_norm": lambda x, m, at, n: torch.linalg.vector_norm(x, 3, (0, 1)),
    "aminmax": lambda x, m, at, n: torch.aminmax(x, dim=1),
    "sum of nothing": lambda x, m, at, n: m[:0].sum(0),
    "cat of mixed dtypes": lambda x, m, at, n: torch.cat([n, n.float()]),
    "cat with nothing": lambda x, m, at, n: torch.cat([m[0][:0], m[0]]),
    "stack": lambda x, m, at, n: torch.stack([m, m], -1),
    "flip": lambda x, m, at, n: x.flip(0, 2),
    "roll": lambda x, m, at, n: x.roll((1, -2), (0, 2)),
    "repeat_interleave": lambda x, m, at, n: m.repeat_interleave(at[:4], 0),
    "pad reflect": lambda x, m, at, n: F.pad(x[None], (1, 2, 1, 1), mode="reflect"),
    "pad replicate": lambda x, m, at, n: F.pad(x[None, None], (1, 1, 1, 1, 1, 1), mode="replicate"),
    "pad circular": lambda x, m, at, n: F.pad(x[None], (1, 2, 1, 1), mode="circular"),
    "pad crops": lambda x, m, at, n: F.pad(m, (-1, -2)),
    "diag_embed": lambda x, m, at, n: m.diag_embed(),
    "one_hot": lambda x, m, at, n: F.one_hot(n, 12),
    "embedding_bag": lambda x, m, at, n: F.embedding_bag(at, m, at[:2].sort()[0] * 0, mode="mean"),
    "renorm": lambda x, m, at, n: x.renorm(2, 1, 1.5),
    "eight dims": lambda x, m, at, n: m.view(1, 2, 1, 2, 1, 2, 3, 1).permute(7, 6, 5, 4, 3, 2, 1, 0).sum((1, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, check: Callable[..., None]) -> None:
    check(CASES[name], X, M, AT, N)


GRADIENTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "index": lambda m, at: m[at].pow(2),
    "gather": lambda m, at: m.gather(1, at[:4, None].expand(4, 2)),
    "masked_fill": lambda m, at: m.masked_fill(m > 0, 0).pow(2),
    "masked_select": lambda m, at: m.masked_select(m > 0).pow(2),
    "max": lambda m, at: m.max(1)[0],
    "prod": lambda m, at: m.prod(1),
    "std": lambda m, at: m.std(1),
    "norm": lambda m, at: m.norm(),
    "cumprod": lambda m, at: m.cumprod(1),
    "cummax": lambda m, at: m.cummax(1)[0],
    "sort": lambda m, at: m.sort(1)[0] * at[:4, None],
    "topk": lambda m, at: m.topk(2)[0],
    "median": lambda m, at: m.median(1)[0],
    "pad": lambda m, at: F.pad(m[None], (2, 1), mode="reflect").pow(2),
    "repeat_interleave": lambda m, at: m.repeat_interleave(2, 0).pow(2),
    "unfold": lambda m, at: m.unfold(1, 3, 2).pow(2),
    "embedding": lambda m, at: F.embedding(at, m, padding_idx=1),
    "scatter_add": lambda m, at: torch.zeros_like(m).scatter_add(0, at[None, :4].expand(4, 4), m[:, :4]).pow(2),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str, check: Callable[..., None]) -> None:
    check(GRADIENTS[name], M.clone().requires_grad_(), AT)


def test_rows_by_an_index_of_two_dims(check: Callable[..., None]) -> None:
    check(lambda x, at: torch_npu.npu_gather_sparse_index(x, at) if x.device.type == "npu" else x[at],
          torch.randn(16, 6).requires_grad_(), torch.randint(0, 16, (2, 3)))
