"""Tensors that are read conjugated or negated: marks on views, resolved before any kernel, written through, kept in files."""
from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import mindtorch_v2 as mt

VALUES = [[1 + 2j, -3 + 0.5j, 2 - 1j], [0.25 - 4j, 1j, -2 + 0j]]


def made(lib: Any, device: str = "cpu") -> Any:
    return lib.tensor(VALUES, dtype=lib.complex64).to(device)


def seen(x: Any) -> Any:
    """What both libraries have to agree on."""
    if not hasattr(x, "is_conj"):
        return x
    name = type(x.grad_fn).__name__ if x.grad_fn is None else x.grad_fn.name()
    return x.is_conj(), x.is_neg(), x._is_view(), str(x.dtype).removeprefix("mindtorch_v2.").removeprefix("torch."), name, x.tolist()


CALLS: list[Callable[[Any, Any], Any]] = [
    lambda t, x: x.conj(), lambda t, x: x.conj().conj(), lambda t, x: x._neg_view(), lambda t, x: x.conj().imag,
    lambda t, x: x.conj().real, lambda t, x: x.mH, lambda t, x: x.H, lambda t, x: x.adjoint(), lambda t, x: x.conj().clone(),
    lambda t, x: x.conj().contiguous(), lambda t, x: x.conj().t().contiguous(), lambda t, x: x.conj().reshape(6),
    lambda t, x: x.conj().t().reshape(6), lambda t, x: x.conj().detach(), lambda t, x: x.conj().resolve_conj(),
    lambda t, x: x.conj()._neg_view().resolve_neg(), lambda t, x: x.conj()[0], lambda t, x: x.conj()[:, t.tensor([0, 2])],
    lambda t, x: x.conj() * x, lambda t, x: x.conj() @ x.mT, lambda t, x: t.cat([x.conj(), x]), lambda t, x: x.conj().sum(),
    lambda t, x: x.conj().to(t.complex128), lambda t, x: x.conj()[0, 0].item(), lambda t, x: t.tensor(x.conj().tolist()),
    lambda t, x: t.view_as_complex(t.view_as_real(x)._neg_view()), lambda t, x: t.ones(2).conj(), lambda t, x: x.conj().abs(),
    lambda t, x: t.add(x, 1, out=t.empty(2, 3, dtype=t.complex64).conj()), lambda t, x: t.empty_like(x.conj()).zero_(),
    lambda t, x: copy.deepcopy(x.conj()), lambda t, x: copy.copy(x.conj()), lambda t, x: pickle.loads(pickle.dumps(x.conj())),
    lambda t, x: t.where(x.conj().imag > 0, x.conj(), x), lambda t, x: x.real.conj(), lambda t, x: x.conj().is_set_to(x),
    lambda t, x: t.fft.fft(x.conj()), lambda t, x: t.linalg.norm(x.mH), lambda t, x: x.conj().prod(1),
    lambda t, x: t.conj_physical(x.conj()), lambda t, x: x.conj().expand(2, 2, 3).sum(0), lambda t, x: complex(x.conj()[1, 0]),
]


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_as_torch(call: Callable[[Any, Any], Any]) -> None:
    mine, its = call(mt, made(mt)), call(torch, made(torch))
    if isinstance(its, torch.Tensor):
        assert seen(mine)[:5] == seen(its)[:5]
        torch.testing.assert_close(torch.tensor(mine.tolist()), torch.tensor(its.tolist()))
    else:
        assert mine == its


def test_memory_is_shared() -> None:
    x = made(mt)
    assert x.conj().data_ptr() == x.data_ptr() == x.mH.data_ptr()
    assert x.conj()._base is x and x.conj().imag._base is x


CHANGES: list[Callable[[Any, Any], Any]] = [
    lambda t, x: x.conj().mul_(2j), lambda t, x: x.conj().copy_(x * 1j), lambda t, x: x.copy_(x.conj()),
    lambda t, x: x.conj()[0].add_(1 + 1j), lambda t, x: x.conj().imag.fill_(3.0), lambda t, x: x.conj().imag.mul_(2.0),
    lambda t, x: x._neg_view().sub_(1), lambda t, x: x.conj().zero_(), lambda t, x: x.conj().index_fill_(1, t.tensor([1]), 2j),
    lambda t, x: x.conj().masked_fill_(x.real > 0, 1j), lambda t, x: x.add_(x.conj()), lambda t, x: x.mH.mul_(x.t() + 1),
    lambda t, x: x.conj().exp_(), lambda t, x: x.conj().__setitem__((slice(None), 0), 5j), lambda t, x: x.conj()._neg_view().mul_(3j),
    lambda t, x: t.mul(x, 2j, out=x.conj()),
]


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_writes_go_through(change: Callable[[Any, Any], Any]) -> None:
    mine, its = made(mt), made(torch)
    change(mt, mine)
    change(torch, its)
    torch.testing.assert_close(torch.tensor(mine.tolist()), torch.tensor(its.tolist()))


@pytest.mark.parametrize("change", CHANGES[:-1], ids=range(len(CHANGES) - 1))
@pytest.mark.parametrize("marked", [False, True])
def test_gradients_of_writes(change: Callable[[Any, Any], Any], marked: bool) -> None:
    """Through the base of the view, and through a base that has the mark itself."""
    found = []
    for lib in (mt, torch):
        leaf = made(lib).requires_grad_()
        scale = lib.tensor([1.0, 2.0, 3.0], requires_grad=True)
        lazy = marked and lib is mt              # torch's own view_as_real refuses such a base in backward
        x = made(lib).conj().detach().copy_(leaf * scale) if lazy else leaf * scale
        assert x.is_conj() is lazy
        change(lib, x)
        (x * x.detach().sin()).abs().sum().backward()
        found.append((leaf.grad.tolist(), scale.grad.tolist()))
    for mine, its in zip(*found):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(its))


def test_second_derivatives() -> None:
    x = made(mt).to(mt.complex128).requires_grad_()
    f = lambda v: (v.conj() * v * v.mH.sum(), v.conj().imag ** 2, (v.clone().conj().mul_(v)).real)  # noqa: E731
    assert mt.autograd.gradcheck(f, (x,), check_forward_ad=True, fast_mode=True)
    assert mt.autograd.gradgradcheck(f, (x,), fast_mode=True)


def test_a_leaf_with_a_mark() -> None:
    leaf = made(mt).conj().detach().requires_grad_()
    assert leaf.is_leaf and leaf.is_conj()
    (leaf * leaf).real.sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(torch.tensor(leaf.grad.tolist()), 2 * made(torch))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.mul_(2)


def test_refused_as_torch_refuses() -> None:
    for call in (lambda t: t.view_as_real(made(t).conj()), lambda t: made(t).conj().view(t.float32), lambda t: made(t).conj().numpy(),
                 lambda t: made(t).conj().imag.numpy(), lambda t: made(t).conj().imag.view(t.int32),
                 lambda t: made(t).conj().__array__()):
        errors = []
        for lib in (mt, torch):
            with pytest.raises(RuntimeError) as caught:
                call(lib)
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_files_keep_the_marks() -> None:
    for write, read in ((mt, torch), (torch, mt), (mt, mt)):
        buffer = io.BytesIO()
        x = made(write)
        write.save([x.conj(), made(write).conj().imag, x], buffer)
        buffer.seek(0)
        conj, imag, plain = read.load(buffer)
        assert conj.is_conj() and imag.is_neg() and conj.data_ptr() == plain.data_ptr()
        assert conj.tolist() == x.conj().tolist() and imag.tolist() == x.conj().imag.tolist()


def test_on_an_npu(npu: ModuleType) -> None:
    x, y = made(mt, "npu"), made(torch)
    assert x.conj().is_conj() and x.conj().data_ptr() == x.data_ptr()
    for mine, its in ((x.conj() * x, y.conj() * y), (x.conj().imag, y.conj().imag), (x.conj().cpu(), y.conj()),
                      (x.conj().imag.neg(), y.conj().imag.neg())):
        torch.testing.assert_close(torch.tensor(mine.tolist()), torch.tensor(its.tolist()))
    x.conj().imag.mul_(2.0)
    y.conj().imag.mul_(2.0)
    torch.testing.assert_close(torch.tensor(x.tolist()), torch.tensor(y.tolist()))


def test_under_transforms() -> None:
    x = made(mt)
    torch.testing.assert_close(torch.tensor(mt.vmap(lambda v: v.conj() * v)(x).tolist()),
                               torch.tensor((made(torch).conj() * made(torch)).tolist()))
    value, tangent = mt.func.jvp(lambda v: v.conj(), (x,), (1j * x,))
    assert tangent.tolist() == (1j * x).conj().tolist() and value.tolist() == x.conj().tolist()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_marked_gradient_steps(name: str) -> None:
    """The fused steps read memory, not views."""
    found = []
    for grad in (mt.tensor([-1.0, 2.0]), mt.tensor([1.0, -2.0])._neg_view()):
        w = mt.nn.Parameter(mt.ones(2))
        w.grad = grad
        getattr(mt.optim, name)([w], lr=0.1).step()
        found.append(w.tolist())
    assert found[0] == found[1]
