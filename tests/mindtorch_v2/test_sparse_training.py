"""Sparse gradients in training against PyTorch, and sparse tensors in files, copies and other processes."""

from __future__ import annotations

import copy
import io
import pickle
from types import ModuleType
from typing import Any

import pytest
import torch
from test_sparse import LAYOUTS, Samples, agree, described, outcome

import mindtorch_v2

OPTIMIZERS = {
    "SGD": lambda T, p: T.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2),
    "SGD nesterov": lambda T, p: T.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD maximize": lambda T, p: T.optim.SGD(p, lr=0.1, maximize=True),
    "Adagrad": lambda T, p: T.optim.Adagrad(p, lr=0.1, lr_decay=0.01),
    "Adagrad decay": lambda T, p: T.optim.Adagrad(p, lr=0.1, weight_decay=0.1),
    "SparseAdam": lambda T, p: T.optim.SparseAdam(p, lr=0.1),
    "SparseAdam maximize": lambda T, p: T.optim.SparseAdam(p, lr=0.1, maximize=True),
    "Adam": lambda T, p: T.optim.Adam(p),
    "AdamW": lambda T, p: T.optim.AdamW(p),
    "RMSprop": lambda T, p: T.optim.RMSprop(p),
    "Adadelta": lambda T, p: T.optim.Adadelta(p),
}


def weight_of(T: Any) -> Any:
    return T.arange(12.0).reshape(4, 3).div(10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_with_sparse_gradients(name: str) -> None:
    def program(T: Any) -> Any:
        table = T.nn.Embedding.from_pretrained(weight_of(T), freeze=False, sparse=True)
        stepper = OPTIMIZERS[name](T, table.parameters())
        for rows in ([0, 2, 2], [1, 2], [3, 3, 0]):
            stepper.zero_grad()
            table(T.tensor(rows)).pow(2).sum().backward()
            stepper.step()
        return table.weight.detach()
    agree(program)


def test_sparse_adam_requires_sparse_gradients_of_dense_parameters() -> None:
    def dense_gradient(T: Any) -> Any:
        p = T.ones(2, requires_grad=True)
        p.sum().backward()
        T.optim.SparseAdam([p]).step()
    agree(dense_gradient)
    agree(lambda T: T.optim.SparseAdam([Samples(T).coo().requires_grad_(True)]))
    agree(lambda T: T.optim.SparseAdam([T.ones(2)], lr=-1.0))


@pytest.mark.parametrize("padding", [None, 1])
def test_sparse_gradients_of_embeddings(padding: int | None) -> None:
    def embedding(T: Any) -> Any:
        weight = weight_of(T).requires_grad_(True)
        T.nn.functional.embedding(T.tensor([[0, 1], [2, 1]]), weight, padding_idx=padding, sparse=True).pow(2).sum().backward()
        return weight.grad
    agree(embedding)
    for mode in ("sum", "mean"):
        def bag(T: Any) -> Any:
            weight = weight_of(T).requires_grad_(True)
            T.nn.functional.embedding_bag(T.tensor([0, 1, 2, 1, 3]), weight, T.tensor([0, 2, 2]), mode=mode, sparse=True,
                                          padding_idx=padding).pow(2).sum().backward()
            return weight.grad.layout == T.sparse_coo, weight.grad.to_dense()
        agree(bag)
    agree(lambda T: T.nn.functional.embedding(
        T.tensor([0]), weight_of(T).requires_grad_(True), scale_grad_by_freq=True, sparse=True).sum().backward())


def test_gradients_of_embeddings_add_up() -> None:
    def program(T: Any) -> Any:
        weight = weight_of(T).requires_grad_(True)
        seen = []
        for rows in ([0, 1], [1, 1]):
            T.nn.functional.embedding(T.tensor(rows), weight, sparse=True).sum().backward()
            seen.append(weight.grad.clone().coalesce())
        (weight.sum() + T.nn.functional.embedding(T.tensor([2]), weight, sparse=True).sum()).backward()
        return [*seen, weight.grad]
    agree(program)


# ---- files and copies ----------------------------------------------------------------------------------------------
def samples(T: Any) -> list[Any]:
    make = Samples(T)
    return [make.coo(), make.coo(coalesced=True), make.coo((3, 2, 2), 1), T.sparse_coo_tensor((2, 3)),
            *[make.compressed(layout) for layout in LAYOUTS], make.compressed("sparse_csr", 2, 4, 6)]


@pytest.mark.parametrize("writer", [torch, mindtorch_v2])
@pytest.mark.parametrize("reader", [torch, mindtorch_v2])
def test_files_go_both_ways(writer: Any, reader: Any) -> None:
    file = io.BytesIO()
    writer.save({"all": samples(writer)}, file)
    file.seek(0)
    loaded = reader.load(file)["all"]
    assert str(described(loaded)) == str(described(samples(torch)))


def test_files_load_without_their_values() -> None:
    file = io.BytesIO()
    mindtorch_v2.save(samples(mindtorch_v2), file)
    file.seek(0)
    for loaded, written in zip(mindtorch_v2.load(file, map_location="meta"), samples(mindtorch_v2)):
        assert loaded.is_meta and loaded.layout == written.layout and loaded.shape == written.shape


def test_files_with_parts_that_do_not_fit_are_refused() -> None:
    for bad in (torch.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,)),
                torch.sparse_csr_tensor([0, 1, 2], [0, 9], [1.0, 2.0], (2, 2))):
        file = io.BytesIO()
        torch.save(bad, file)
        file.seek(0)
        with pytest.raises(pickle.UnpicklingError, match="do not fit together"):
            mindtorch_v2.load(file)


def test_copies_and_pickles() -> None:
    for x in samples(mindtorch_v2):
        assert str(described(copy.deepcopy(x))) == str(described(x)) == str(described(pickle.loads(pickle.dumps(x))))
    leaf = Samples(mindtorch_v2).coo().requires_grad_(True)
    leaf.to_dense().sum().backward()
    made = copy.deepcopy(leaf)
    assert made.requires_grad and str(described(made.grad)) == str(described(leaf.grad)) and made.grad is not leaf.grad
    assert made._values().data_ptr() != leaf._values().data_ptr()


def test_workers_send_sparse_tensors() -> None:
    data = samples(mindtorch_v2)
    loaded = list(mindtorch_v2.utils.data.DataLoader(data, batch_size=None, num_workers=1))
    assert str(described(loaded)) == str(described(data))


def test_old_names_of_sparse_types() -> None:
    def program(T: Any) -> Any:
        kind = T.sparse.DoubleTensor
        made = [kind(), kind(2, 3), kind(T.tensor([[0, 1]]), T.tensor([1.0, 2.0]).double(), (3,))]
        return [*made, isinstance(made[0], kind), isinstance(T.ones(2).double(), kind)]
    agree(program)


def test_parameters_may_be_sparse() -> None:
    module = mindtorch_v2.nn.Module()
    module.weight = mindtorch_v2.nn.Parameter(Samples(mindtorch_v2).coo(coalesced=True))
    assert [name for name, _ in module.named_parameters()] == ["weight"]
    mindtorch_v2.sparse.mm(module.weight, mindtorch_v2.ones(5, 2)).sum().backward()
    assert module.weight.grad.is_sparse
    mindtorch_v2.optim.SGD(module.parameters(), lr=0.5).step()
    ours = outcome(lambda T: module.weight.detach().to_dense(), mindtorch_v2)
    start = Samples(mindtorch_v2).coo(coalesced=True)
    assert ours == described((start - start * 0 - 0.5 * module.weight.grad).to_dense())


def test_sparse_tensors_on_an_npu(npu: ModuleType) -> None:
    """The parts are on the device, and the ops are those of dense tensors there."""
    T = mindtorch_v2
    x = Samples(T).coo().npu()
    assert x.is_sparse and x.device.type == "npu" and x._values().device.type == "npu"
    dense, other = Samples(T).coo().to_dense(), T.arange(15.0).reshape(5, 3)
    assert T.equal(x.to_dense().cpu(), dense) and T.equal(x.coalesce().cpu().to_dense(), dense)
    assert T.allclose((x @ other.npu()).cpu(), dense @ other) and T.allclose((x + x).to_dense().cpu(), dense * 2)
    assert T.allclose((x * 3).cpu().to_dense(), dense * 3) and T.allclose(x.to_sparse_csr().to_dense().cpu(), dense)
    weight = T.arange(12.0).reshape(4, 3).npu().requires_grad_(True)
    T.nn.functional.embedding(T.tensor([0, 2, 2]).npu(), weight, sparse=True).sum().backward()
    assert weight.grad.is_sparse and weight.grad.to_dense().cpu().tolist() == [[1.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3]
    T.optim.SGD([weight], lr=1.0).step()
    assert weight.detach().cpu()[2].tolist() == [4.0, 5.0, 6.0]
