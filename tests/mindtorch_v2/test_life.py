"""How tensor objects and the front door's names come and go: spare objects, attributes, weak references, modules loaded late."""
import gc
import subprocess
import sys
import weakref

import pytest

import mindtorch_v2 as torch


class Sub(torch.Tensor):
    pass


def test_a_reused_object_is_as_new() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    y = (x * 2).transpose(0, 1)[1:]      # an offset, odd strides, a base, a history
    y.mul_(3)
    place = id(y)
    del y
    fresh = [torch.empty(2, dtype=torch.int64) for _ in range(8)]
    again = next(t for t in fresh if id(t) == place)
    assert again.is_contiguous() and again.storage_offset() == 0 and again.dtype is torch.int64
    assert not again.requires_grad and again.is_leaf and again.grad_fn is None and again.grad is None
    assert again._base is None and again._version == 0 and not again.is_inference() and again.device.type == "cpu"


def test_attributes_and_weak_references_stay_with_their_tensor() -> None:
    x = torch.ones(2)
    x.note = "mine"
    seen = []
    ref = weakref.ref(x, seen.append)
    kept = x.__dict__
    del x
    assert ref() is None and seen == [ref] and kept == {"note": "mine"}
    assert not any(hasattr(torch.ones(2), "note") for _ in range(8))


def test_a_cycle_through_an_attribute_is_collected() -> None:
    x = torch.ones(2)
    x.me = x
    ref = weakref.ref(x)
    del x
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("make", [lambda: torch.ones(1), lambda: torch.ones(1).as_subclass(Sub),
                                  lambda: torch.nn.Parameter(torch.ones(1))])
def test_freed_tensors_give_their_class_back(make) -> None:
    cls = type(make())
    kept = [make() for _ in range(3000)]         # more than are kept for reuse
    full = sys.getrefcount(cls)
    del kept
    gc.collect()
    assert sys.getrefcount(cls) <= full - 1900


def test_a_long_chain_of_attributes_is_freed_without_recursion() -> None:
    last = torch.ones(1)
    for _ in range(100_000):
        t = torch.ones(1)
        t.before = last
        last = t
    del t, last


def test_a_tensor_freed_while_an_error_is_raised() -> None:
    def fail() -> None:
        x = torch.ones(3, requires_grad=True) * 2
        (x.view(3) + 1).view(7)
    for _ in range(10):
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            fail()


def test_a_gradient_with_other_references_is_copied() -> None:
    a, b, g = (torch.ones(2, requires_grad=i < 2) for i in range(3))
    (a + b).backward(g)
    assert len({a.grad.data_ptr(), b.grad.data_ptr(), g.data_ptr()}) == 3


def test_rooms_of_the_front_door_are_loaded_at_first_use() -> None:
    code = """
import sys, mindtorch_v2 as torch
assert "mindtorch_v2.nn" not in sys.modules and "nn" in dir(torch)
assert torch.nn is sys.modules["mindtorch_v2.nn"] and torch.nn is torch.nn
assert torch.load is torch.serialization.load
try:
    torch.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_of_the_core_are_registered_once() -> None:
    roles = {"Tensor": torch.Tensor, "Parameter": torch.nn.Parameter, "Size": torch.Size,
             "UntypedStorage": torch.UntypedStorage, "Generator": torch.Generator}
    for role, cls in roles.items():
        with pytest.raises(RuntimeError, match=f"the class of {role} is registered already"):
            torch._C._register_class(role, cls)
        with pytest.raises(TypeError, match="expected a subclass of"):
            torch._C._register_class(role, int)
    with pytest.raises(ValueError, match="expected one of Tensor, Parameter"):
        torch._C._register_class("Device", torch.device)


def test_opting_out_of_overriding_calls_the_function_itself() -> None:
    class Quiet(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    x = torch.ones(2).as_subclass(Quiet)
    assert type(x + 1) is torch.Tensor
    assert type(Quiet.__torch_function__(torch.add, (Quiet,), (x, 1))) is torch.Tensor
