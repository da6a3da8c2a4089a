"""torch.utils.swap_tensors, and modules that convert and load by it: torch.__future__."""
from __future__ import annotations

import weakref
from collections.abc import Iterator

import pytest

import mindtorch_v2 as torch


@pytest.fixture
def _swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.parametrize("shapes", [((2,), (3, 4)), ((2, 3), (1,) * 9), ((1,) * 9, (1,) * 12)])
def test_two_tensors_change_places(shapes: tuple) -> None:
    a, b = torch.ones(shapes[0]), torch.zeros(shapes[1], dtype=torch.int64)
    a.mark = 1
    places = a.data_ptr(), b.data_ptr()
    torch.utils.swap_tensors(a, b)
    assert a.shape == shapes[1] and b.shape == shapes[0] and (b.data_ptr(), a.data_ptr()) == places
    assert a.dtype is torch.int64 and b.mark == 1 and not hasattr(a, "mark") and (b + 1).sum() == 2 * b.numel()


def test_history_and_class_go_along() -> None:
    x = torch.ones(2, requires_grad=True)
    y, p = x * 3, torch.nn.Parameter(torch.zeros(4))
    torch.utils.swap_tensors(y, p)
    assert type(y) is torch.nn.Parameter and type(p) is torch.Tensor and y.is_leaf
    p.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_what_is_weakly_referred_to_stays() -> None:
    a = torch.ones(2)
    ref = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref associated with it"):
        torch.utils.swap_tensors(a, torch.ones(2))
    assert ref() is a


@pytest.mark.usefixtures("_swapping")
def test_modules_convert_and_load_by_swapping() -> None:
    module = torch.nn.Linear(2, 2)
    weight, before = module.weight, id(module.weight)
    module(torch.ones(1, 2)).sum().backward()
    grad = weight.grad
    module.double()
    assert module.weight is weight and id(weight) == before and weight.dtype is torch.float64
    assert weight.grad is grad and grad.dtype is torch.float64
    module.to("meta")
    assert module.weight is weight and weight.is_meta
    module.to_empty(device="cpu")
    module.load_state_dict({"weight": torch.ones(2, 2), "bias": torch.zeros(2)})
    assert module.weight is weight and weight.tolist() == [[1, 1], [1, 1]] and weight.requires_grad


def test_overwriting_makes_new_parameters() -> None:
    module = torch.nn.Linear(2, 2)
    weight = module.weight
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        assert module.double().weight is not weight and weight.dtype is torch.float32
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)
