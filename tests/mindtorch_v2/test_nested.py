"""Nested tensors of the jagged layout against PyTorch: each program runs in both libraries."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_sparse import rounded

import mindtorch_v2


def described(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [described(v) for v in value]
    if not isinstance(value, (torch.Tensor, mindtorch_v2.Tensor)):
        return value
    if str(value.layout) == "torch.jagged":
        return "nested", value.dim(), value._ragged_idx, described(value.values()), described(value.offsets())
    return str(value.dtype), tuple(value.shape), rounded(value.detach().tolist())


def outcome(program: Callable[[Any], Any], library: Any) -> Any:
    try:
        return described(program(library))
    except Exception as error:  # noqa: BLE001 - errors are results here
        return type(error).__name__, str(error)[:40]


def agree(program: Callable[[Any], Any]) -> None:
    assert str(outcome(program, mindtorch_v2)) == str(outcome(program, torch))


def sample(T: Any, *rest: int, requires_grad: bool = False) -> Any:
    """Two sequences of 2 and 4 rows."""
    rest = rest or (3,)
    parts = [T.arange(float(n * T.ones(rest).numel())).reshape(n, *rest) / 3 for n in (2, 4)]
    return T.nested.nested_tensor(parts, layout=T.jagged, requires_grad=requires_grad)


PROGRAMS = {
    "sizes": lambda T, x: (x.size(1) == (x * 2).size(1), x.size(1) == sample(T).size(1), x.size(1) >= 2, str(2 * x.size(1))[:3]),
    "narrow with holes": lambda T, x: T.nested.narrow(
        T.arange(24.0).reshape(2, 4, 3), 1, T.tensor([0, 1]), T.tensor([2, 3]), layout=T.jagged).lengths(),
    "parts": lambda T, x: (x.values(), x.offsets(), x.lengths(), x.unbind(), len(x), x.dim(), x.numel(), x.size(0), x.size(2),
                           x.is_nested, str(x.layout), x[1]),
    "padded": lambda T, x: (x.to_padded_tensor(0.0), T.nested.to_padded_tensor(x, -1.0, (2, 5, 3))),
    "pointwise": lambda T, x: (x + x, x * 2, -x, x.relu(), x.exp(), T.nn.functional.gelu(x), x.sigmoid() * x),
    "broadcast": lambda T, x: (x * T.ones(3), x + T.arange(6.0).reshape(2, 1, 3), T.where(x > 1, x, x * 0)),
    "others": lambda T, x: x + sample(T),
    "add_": lambda T, x: x.add_(1),
    "sum": lambda T, x: (x.sum(), x.sum(1), x.sum(2), x.sum(-1, keepdim=True), x.mean(1), x.amax(1)),
    "any": lambda T, x: (x.any(), x.all()),
    "softmax": lambda T, x: (x.softmax(-1), x.softmax(1), T.nn.functional.log_softmax(x, -1)),
    "linear": lambda T, x: T.nn.functional.linear(x, T.arange(6.0).reshape(2, 3), T.ones(2)),
    "layer_norm": lambda T, x: T.nn.functional.layer_norm(x, (3,), T.ones(3), T.ones(3)),
    "matmul": lambda T, x: (x @ T.ones(3, 2), x.bmm(T.ones(2, 3, 2))),
    "transpose": lambda T, x: x.transpose(1, 2),
    "unsqueeze": lambda T, x: x.unsqueeze(-1),
    "view": lambda T, x: (x.view(2, -1, 1, 3), x.reshape(2, -1, 3, 1)),
    "view by size": lambda T, x: x.view(x.size(0), x.size(1), 3, 1),
    "select": lambda T, x: (x.select(0, 1), x.select(2, 0)),
    "split": lambda T, x: (x.chunk(2, -1), x.split([1, 2], -1)),
    "cat": lambda T, x: T.cat([x, x], -1),
    "cat 0": lambda T, x: T.cat([x, x], 0),
    "copies": lambda T, x: (x.clone(), x.detach(), x.double(), T.zeros_like(x), x.contiguous()),
    "from jagged": lambda T, x: T.nested.nested_tensor_from_jagged(T.arange(12.0).reshape(6, 2), T.tensor([0, 2, 6])),
    "from lengths": lambda T, x: T.nested.nested_tensor_from_jagged(T.arange(6.0), lengths=T.tensor([2, 4])),
    "from nothing": lambda T, x: T.nested.nested_tensor_from_jagged(T.arange(6.0)),
    "dtypes": lambda T, x: T.nested.nested_tensor([T.ones(2), T.ones(2).double()], layout=T.jagged),
    "items": lambda T, x: (x[0, 1], x[..., 0], x[1, :, 2]),
    "item of the ragged dim": lambda T, x: x[:, 0],
    "one dim": lambda T, x: (*x.max(1), *x.min(-1), x.max(), x.prod(1), x.argmax(1), x.argmin(-1, keepdim=True)),
    "orders": lambda T, x: (x.permute(0, 2, 1), x.unsqueeze(-1).squeeze(-1), x.expand_as(x)),
    "batch moved": lambda T, x: x.transpose(0, 1),
    "filled": lambda T, x: (x.masked_fill(x > 1, 0.0), x.clone().zero_(), x.clone().fill_(2)),
    "over padded": lambda T, x: x + T.arange(24.0).reshape(2, 4, 3),
    "cut": lambda T, x: x.to_padded_tensor(0.0, output_size=(2, 3, 3)),
    "rms_norm": lambda T, x: T.nn.functional.rms_norm(x, (3,)),
    "lengths": lambda T, x: (x._max_seqlen, x._min_seqlen),
    "narrow": lambda T, x: T.nested.narrow(T.ones(2, 4, 3), 1, T.tensor([0, 1]), T.tensor([2, 3]), layout=T.jagged).unbind(),
    "masked_select": lambda T, x: T.nested.masked_select(T.ones(2, 3), T.tensor([[True, False, True], [True, True, True]])),
    "none": lambda T, x: T.nested.nested_tensor([], layout=T.jagged),
    "copied": lambda T, x: (copy.deepcopy(x), pickle.loads(pickle.dumps(x))),
    "embedding": lambda T, x: T.nn.functional.embedding(
        T.nested.nested_tensor([T.tensor([0, 1]), T.tensor([2])], layout=T.jagged), T.arange(8.0).reshape(4, 2)),
    "module": lambda T, x: T.nn.Sequential(T.nn.ReLU(), T.nn.LayerNorm(3), T.nn.Dropout(0.0))(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_jagged(name: str) -> None:
    agree(lambda T: PROGRAMS[name](T, sample(T)))


@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_that_of_each_sequence(causal: bool) -> None:
    T = mindtorch_v2
    attend = T.nn.functional.scaled_dot_product_attention
    x = sample(T, 2, 4, requires_grad=True)
    q = x.transpose(1, 2)
    result = attend(q, q * 0.5, q - 1, is_causal=causal).transpose(1, 2)
    result.values().pow(2).sum().backward()
    parts = [t.detach().transpose(0, 1).requires_grad_(True) for t in x.unbind()]
    each = [attend(t, t * 0.5, t - 1, is_causal=causal) for t in parts]
    sum(t.pow(2).sum() for t in each).backward()
    assert T.allclose(result.values(), T.cat(each, 1).transpose(0, 1))
    assert T.allclose(x.grad.values(), T.cat([t.grad for t in parts], 1).transpose(0, 1), atol=1e-5)


def test_gradients_are_those_of_each_sequence() -> None:
    T = mindtorch_v2

    def run(nested: bool) -> list[Any]:
        weight = T.arange(6.0).div(9).reshape(2, 3).requires_grad_(True)
        parts = [T.ones(2, 3, requires_grad=True), T.ones(1, 3, requires_grad=True)]
        if nested:
            x = T.nested.as_nested_tensor(parts, layout=T.jagged)
            T.nn.functional.linear(x, weight).softmax(-1).sum(1).pow(2).sum().backward()
        else:
            sum(T.nn.functional.linear(t, weight).softmax(-1).sum(0).pow(2).sum() for t in parts).backward()
        return [weight.grad, *[t.grad for t in parts]]
    assert all(T.allclose(a, b, atol=1e-6) for a, b in zip(run(True), run(False)))


def test_leaves() -> None:
    def program(T: Any) -> Any:
        leaf = sample(T, requires_grad=True)
        (leaf * leaf).values().sum().backward()
        return leaf.grad, leaf.is_leaf, leaf.requires_grad, (leaf * 2).is_leaf
    agree(program)


def test_unsupported_calls_raise() -> None:
    x = sample(mindtorch_v2)
    with pytest.raises(NotImplementedError, match="cumsum"):
        x.cumsum(1)
    with pytest.raises(NotImplementedError, match="layout torch.strided"):
        mindtorch_v2.nested.nested_tensor([mindtorch_v2.ones(2)], layout=mindtorch_v2.strided)
    with pytest.raises(RuntimeError, match="no memory of its own"):
        x.numpy()
