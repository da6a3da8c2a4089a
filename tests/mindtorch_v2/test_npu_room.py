"""Tensors whose storage was made too small for them: every way to the npu's memory refuses them before CANN sees them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import aclnn, runtime

WORDS = "storage of this tensor was resized to"


def shrunk(device: str = "npu", nbytes: int = 4) -> Any:
    """Twelve floats over a storage that holds one."""
    x = torch.arange(12, dtype=torch.float32, device=device).reshape(3, 4)
    x.untyped_storage().resize_(nbytes)
    return x


def fine() -> Any:
    return torch.ones(3, 4, device="npu")


USES: dict[str, Callable[[Any], Any]] = {
    "an operand": lambda x: x + 1,
    "the other operand": lambda x: fine() * x,
    "a view": lambda x: x[1:].exp(),
    "a transposed view": lambda x: x.t() + 1,
    "an item": lambda x: x[2, 3].item(),
    "a reduction": lambda x: x.sum(),
    "a product": lambda x: x @ x.t(),
    "in place": lambda x: x.add_(1),
    "in place, other": lambda x: fine().mul_(x),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2),
    "random numbers": lambda x: x.normal_(),
    "out": lambda x: torch.mul(fine(), 2, out=x),
    "a copy to the cpu": lambda x: x.cpu(),
    "a copy of a view to the cpu": lambda x: x[:, ::2].cpu(),
    "tolist": lambda x: x.tolist(),
    "print": lambda x: repr(x),
    "a copy from the cpu": lambda x: x.copy_(torch.ones(3, 4)),
    "a cast copy from the cpu": lambda x: x.copy_(torch.ones(3, 4, dtype=torch.float64)),
    "a copy into a view from the cpu": lambda x: x.t().copy_(torch.ones(4, 3)),
    "a copy within the npu": lambda x: fine().copy_(x),
    "a copy into it within the npu": lambda x: x.copy_(fine()),
    "a clone": lambda x: x.clone(),
    "a cast": lambda x: x.half(),
    "foreach": lambda x: torch._foreach_add([fine(), x], 1),
    "foreach in place": lambda x: torch._foreach_mul_([x, fine()], 2),
    "foreach, other list": lambda x: torch._foreach_add([fine(), fine()], [fine(), x]),
    "a list": lambda x: torch.cat([fine(), x]),
    "an index": lambda x: fine()[shrunk_index()],
    "a call by name": lambda x: aclnn.call("aclnnAdd", x, fine(), 1, fine()),
    "a result of a call by name": lambda x: aclnn.call("aclnnAdd", fine(), fine(), 1, x),
    "relu(runtime)": lambda x: aclnn.relu(x, fine(), runtime.get_runtime(0)),
    "inplace_zero(runtime)": lambda x: aclnn.inplace_zero(x, runtime.get_runtime(0)),
    "a result of unknown size": lambda x: x.nonzero(),
}  # fmt: skip


def shrunk_index() -> Any:
    index = torch.tensor([0, 1, 2], device="npu")
    index.untyped_storage().resize_(8)
    return index


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
@pytest.mark.parametrize("nbytes", [4, 0])
def test_a_tensor_beyond_its_storage_is_refused(npu: ModuleType, use: Callable[[Any], Any], nbytes: int) -> None:
    x = shrunk(nbytes=nbytes)
    with pytest.raises(RuntimeError, match=WORDS):
        use(x)
    assert (fine() + 1).sum().item() == 24  # and the device is well


def test_what_still_fits_is_read(npu: ModuleType) -> None:
    x = torch.arange(12.0, device="npu").reshape(3, 4)
    x.untyped_storage().resize_(5 * 4)
    assert x[0].tolist() == [0, 1, 2, 3] and x[1, 0].item() == 4 and (x[0] + x[0]).tolist() == [0, 2, 4, 6]
    assert x[:0].sum().item() == 0  # nothing is read of a tensor without items
    x.untyped_storage().resize_(12 * 4)
    assert x[:1].tolist() == [[0, 1, 2, 3]] and x.zero_().sum().item() == 0


def test_a_source_on_the_cpu_is_looked_at_too(npu: ModuleType) -> None:
    for source in (shrunk("cpu"), shrunk("cpu").t()):
        with pytest.raises(RuntimeError, match=WORDS):
            source.npu()
        with pytest.raises(RuntimeError, match=WORDS):
            torch.ones(source.shape, device="npu").copy_(source)
    host = shrunk("cpu")
    with pytest.raises(RuntimeError, match=WORDS):
        host.copy_(fine())


def test_copies_between_npus_are_refused(two: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    x = shrunk("npu:0")
    with pytest.raises(RuntimeError, match=WORDS):
        x.to("npu:1")
    with pytest.raises(RuntimeError, match=WORDS):
        x.copy_(torch.ones(3, 4, device="npu:1"))
    with pytest.raises(RuntimeError, match=WORDS):
        torch.ones(4, 3, device="npu:1").copy_(x.t())


def test_a_capture_refuses_it_and_goes_on(npu: ModuleType) -> None:
    x, bad, y = fine(), shrunk(), torch.zeros(3, 4, device="npu")
    (x + 1).sum()
    graph = npu.NPUGraph()
    with npu.graph(graph):
        with pytest.raises(RuntimeError, match=WORDS):
            y.copy_(bad)
        y.copy_(x)
    graph.replay()
    assert y.sum().item() == 12


class Shrinks:
    """A number that makes a tensor's storage smaller when it is asked what it is."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def __index__(self) -> int:
        self.act()
        return 1


def test_what_an_argument_does_to_another_is_seen(npu: ModuleType) -> None:
    """Objects are asked what they are before the first tensor is described to CANN."""
    a, out = fine(), fine()
    with pytest.raises(RuntimeError, match=WORDS):
        aclnn.call("aclnnAdd", a, fine(), Shrinks(lambda: a.untyped_storage().resize_(0)), out)
    b = fine()
    aclnn.call("aclnnAdd", b, fine(), Shrinks(lambda: b.untyped_storage().resize_(1 << 20)), out)
    assert out.sum().item() == 24  # the storage has moved; its new place was read
    c, many = torch.ones(2, 3, device="npu"), (1,) * 7 + (2, 3)
    with pytest.raises(RuntimeError, match="at most 8 dims"):
        aclnn.call("aclnnAdd", c, c, Shrinks(lambda: c.resize_(many)), torch.ones(2, 3, device="npu"))
    d = fine()
    with pytest.raises(RuntimeError, match=r"expected tensors on npu:0, got one on cpu"):
        aclnn.call("aclnnAdd", d, fine(), Shrinks(lambda: setattr(d, "data", torch.ones(3, 4))), out)


def test_a_span_is_of_a_dense_tensor_that_fits(npu: ModuleType) -> None:
    x = fine()
    for t, address, nbytes in ((x, x.data_ptr(), 48), (x[1:], x.data_ptr() + 16, 32)):
        assert (_C.DenseSpan(t).address, _C.DenseSpan(t).nbytes) == (address, nbytes)
    with pytest.raises(RuntimeError, match="expected a contiguous tensor"):
        _C.DenseSpan(x.t())
    with pytest.raises(RuntimeError, match=WORDS):
        _C.DenseSpan(shrunk())


def test_memory_that_is_copied_stays_until_it_was_waited_for(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of CANN give other threads a turn, and those may change the storage."""
    source, x, rt = torch.ones(1 << 16), torch.ones(1 << 16, device="npu") * 3, runtime.acl.rt
    real, others = rt.memcpy, []

    def meanwhile(*args: Any) -> int:
        source.untyped_storage().resize_(0)
        others.extend(torch.full((1 << 16,), 7.0) for _ in range(4))  # in memory that is free now
        return real(*args)

    monkeypatch.setattr(rt, "memcpy", meanwhile)
    made = source.npu()
    target, source = torch.zeros(1 << 16), torch.zeros(4)
    assert made.cpu().sum().item() == 1 << 16
    source = target
    target.copy_(x)
    assert all((other == 7).all() for other in others)


@pytest.mark.parametrize(
    "name, arguments, error",
    [
        ("aclnnArgMax", (fine, -(2**40), False, fine), None),  # int64: CANN's own refusal
        ("aclnnMatmul", (fine, fine, fine, 300), OverflowError),  # int8
        ("aclnnMatmul", (fine, fine, fine, 1.5), TypeError),
        ("aclnnMatmul", (fine, fine, fine, float("nan")), TypeError),
        ("aclnnMatmul", (fine, fine, fine, 1j), TypeError),
        ("aclnnMatmul", (fine, fine, fine, None), TypeError),
        ("aclnnAdd", (fine, fine, 2**70, fine), OverflowError),
        ("aclnnAdd", (fine, fine, "1", fine), TypeError),
        ("aclnnAdd", (fine, fine, 1, 3.0), RuntimeError),  # the result would be lost
        ("aclnnAdd", (fine, fine, 1, lambda: torch.ones(())), RuntimeError),
        ("aclnnForeachAbs", (lambda: [fine()], lambda: [torch.ones(())]), RuntimeError),
        ("aclnnGeluBackwardV2", (fine, fine, "none\0x", fine), ValueError),
        ("aclnnGeluBackwardV2", (fine, fine, 3, fine), TypeError),
    ],
)
def test_values_that_c_cannot_hold_are_refused(npu: ModuleType, name: str, arguments: tuple[Any, ...], error: Any) -> None:
    with pytest.raises(error or RuntimeError):
        aclnn.call(name, *(a() if callable(a) else a for a in arguments))
    assert (fine() + 1).sum().item() == 24
