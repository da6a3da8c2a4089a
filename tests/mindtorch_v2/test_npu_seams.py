"""The places where a test or a tool may step in: the runtime's synchronize(), the acl module, the settings that are read
again. No op may go around them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import acl_loader, aclnn, allocator, convert, runtime
from mindtorch_v2.npu import devices


@pytest.fixture(params=["instance", "class"])
def synchronized(npu: ModuleType, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[int]:
    """The devices whose synchronize() was called, replaced on one runtime or on all."""
    calls: list[int] = []
    torch.ones(1, device="npu")
    real = runtime._Runtime.synchronize
    for name in ("ACL_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING"):
        monkeypatch.delenv(name, raising=False)

    def replaced(self: Any) -> None:
        calls.append(self.device_id)
        real(self)

    if request.param == "class":
        monkeypatch.setattr(runtime._Runtime, "synchronize", replaced)
    else:
        for index in range(min(npu.device_count(), 2)):
            owner = runtime.get_runtime(index)
            monkeypatch.setattr(owner, "synchronize", lambda owner=owner: replaced(owner))
    return calls


READS = {
    "cpu": lambda x: x.cpu(), "to": lambda x: x.to("cpu"), "item": lambda x: x[0].item(), "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.cpu().numpy(), "copy_": lambda x: torch.empty(4).copy_(x), "strided": lambda x: x[::2].cpu(),
    "cast": lambda x: torch.empty(4, dtype=torch.float64).copy_(x), "bool": lambda x: bool(x[0] == 1), "repr": repr,
}  # fmt: skip


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_waits_through_the_runtime(synchronized: list[int], read: Any) -> None:
    x = torch.ones(4, device="npu") * 2
    assert synchronized == []
    read(x)
    assert synchronized and set(synchronized) == {0}


def test_a_copy_is_right_although_the_seam_does_nothing(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    x = torch.ones(1000, device="npu") + 1
    monkeypatch.setattr(runtime.get_runtime(0), "synchronize", lambda: calls.append(1))
    assert x.cpu().sum().item() == 2000 and calls == [1]


def test_a_staged_copy_between_npus_waits_through_the_runtime(
    two: ModuleType, synchronized: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "can_access", lambda source, target: False)
    x = torch.ones(4, device="npu:0") * 3
    assert x.to("npu:1").tolist() == [3.0] * 4
    assert synchronized == [0, 1]  # the way to the host, and the list


def test_a_non_blocking_copy_does_not_wait(synchronized: list[int]) -> None:
    x, host = torch.ones(4, device="npu"), torch.empty(4, pin_memory=True)
    host.copy_(x, non_blocking=True)
    assert synchronized == []
    torch.npu.synchronize()
    assert host.tolist() == [1.0] * 4 and synchronized == [0]


OPS = {
    "add": lambda x: x + x, "in place": lambda x: x.mul_(2), "out": lambda x: torch.add(x, 1, out=torch.empty(4, device="npu")),
    "matmul": lambda x: x @ x, "fill": lambda x: x.zero_(), "foreach": lambda x: torch._foreach_add([x, x], 1),
    "by name": lambda x: aclnn.call("aclnnMul", x, x, x), "add(runtime)": lambda x: aclnn.add(x, x, x, runtime.get_runtime(0)),
    "random": lambda x: x.normal_(), "copy": lambda x: x.clone(), "to the npu": lambda x: x.copy_(torch.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())
def test_launch_blocking_waits_for_every_op(synchronized: list[int], monkeypatch: pytest.MonkeyPatch, op: Any) -> None:
    x = torch.ones(4, device="npu")
    op(x)
    assert synchronized == []
    for name in ("ACL_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING"):
        monkeypatch.setenv(name, "1")
        op(x)
        assert synchronized and set(synchronized) == {0}
        monkeypatch.setenv(name, "0")
        synchronized.clear()
        op(x)
        assert synchronized == []


def test_ops_of_unknown_size_are_waited_for_too(synchronized: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(4, device="npu")
    x.nonzero()
    assert synchronized == []  # it waits for its stream, to know the size
    monkeypatch.setenv("ACL_LAUNCH_BLOCKING", "1")
    x.nonzero()
    assert synchronized


def test_a_capture_is_not_waited_for(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.ones(4, device="npu"), torch.zeros(4, device="npu")
    y.copy_(x + 1)
    monkeypatch.setenv("ACL_LAUNCH_BLOCKING", "1")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        y.copy_(x + 1)
    y.zero_()
    graph.replay()
    assert y.tolist() == [2.0] * 4


def test_a_failing_wait_is_the_error_of_its_op(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(4, device="npu")
    monkeypatch.setenv("ACL_LAUNCH_BLOCKING", "1")
    rt = runtime.acl.rt
    failing = {name: lambda *_: 507015 for name in ("synchronize_stream", "synchronize_device")}
    with monkeypatch.context() as context:
        context.setattr(runtime, "acl", Replaced(runtime.acl, rt=Replaced(rt, **failing)))
        with pytest.raises(torch.AcceleratorError, match=r"^\[aclrtSynchronizeDevice of aclnnExp\] failed with ACL_ERROR_RT_AICORE_EXCEPTION \(507015\)"):
            x.exp()
        context.setattr(runtime._Runtime, "synchronize", lambda self: (_ for _ in ()).throw(KeyError("mine")))
        with pytest.raises(KeyError, match="mine"):
            x.exp()
    assert x.exp().sum().item() > 10


class Replaced:
    """Another object, some of its attributes replaced."""

    def __init__(self, real: Any, **other: Any) -> None:
        self._real = real
        self.__dict__.update(other)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Counted(Replaced):
    """Another object, the names of the functions that are called written down."""

    def __init__(self, real: Any, calls: list[str]) -> None:
        super().__init__(real)
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if not callable(found):
            return found

        def call(*args: Any) -> Any:
            self._calls.append(name)
            return found(*args)

        return call


@pytest.mark.parametrize(
    "use, wanted",
    [
        (lambda: torch.npu.synchronize(), {"synchronize_stream", "synchronize_device"}),
        (lambda: torch.ones(4).npu(), {"synchronize_stream", "memcpy"}),          # asynchronous copies are for pinned memory
        (lambda: torch.ones(4, device="npu").cpu(), {"synchronize_stream", "memcpy"}),
        (lambda: torch.npu.mem_get_info(), {"get_mem_info"}),
        (lambda: torch.npu.Event(enable_timing=True).record(), {"record_event"}),
        (lambda: torch.npu.get_device_properties(), {"get_mem_info"}),
        (lambda: [torch.empty(1 << 26, device="npu") is None, torch.npu.empty_cache()], {"free"}),
        (lambda: torch.npu.can_device_access_peer(0, 1), {"device_can_access_peer"}),
        (lambda: torch.empty(1 << 26, device="npu"), {"malloc_align32"}),
        (lambda: torch.ones(64).pin_memory(), set()),
    ],
)
def test_calls_go_through_the_modules_acl(npu: ModuleType, monkeypatch: pytest.MonkeyPatch, use: Any, wanted: set[str]) -> None:
    if npu.device_count() < 2:
        pytest.skip("needs two npus")
    torch.ones(1, device="npu")
    torch.npu.empty_cache()
    calls: list[str] = []
    count = runtime._counted[1]
    acl = Replaced(runtime.acl, rt=Counted(runtime.acl.rt, calls))
    monkeypatch.setattr(runtime, "acl", acl)
    monkeypatch.setattr(runtime, "_counted", (acl, count))
    use()
    assert not wanted or wanted & set(calls)


def test_memory_functions_use_the_replaceable_allocator(npu: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    own = allocator.NpuAllocator(device_id=0)
    monkeypatch.setattr(torch.npu, "_get_allocator", lambda device=None: own)
    monkeypatch.setattr(own, "memory_stats", lambda: {"allocated_bytes.all.current": 7})
    assert torch.npu.memory_allocated() == 7


# ---- whether there is a device ----------------------------------------------------------------------------------------
@pytest.fixture
def no_cann(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A process without CANN; one item for every search of the file system."""
    searches: list[int] = []
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("_ACL_READY", False), ("_ACL_MODULE", None), ("_LIBRARIES", {}), ("_symbols", {}), ("_home", "")):
        monkeypatch.setattr(acl_loader, name, value)
    monkeypatch.setattr(acl_loader, "_existing_dirs", lambda: searches.append(1) or [])
    monkeypatch.setattr(runtime, "acl", None)
    monkeypatch.setattr(runtime, "_counted", (None, 0))
    monkeypatch.setattr(devices, "_absent", (None, None))
    return searches


def test_the_file_system_is_searched_once(no_cann: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        assert torch.npu.is_available() is False and torch.npu.device_count() == 0
    assert len(no_cann) == 1
    monkeypatch.setenv("ASCEND_HOME_PATH", "/nowhere")
    assert torch.npu.is_available() is False and torch.npu.is_available() is False and len(no_cann) == 2
    assert torch.npu.is_available(verbose=True) is False and len(no_cann) == 3  # verbose: not from the cache


def test_a_cann_that_comes_later_is_found_by_its_use(no_cann: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.npu.is_available() is False
    monkeypatch.setattr(runtime, "acl", Replaced(None, rt=Replaced(None, get_device_count=lambda: (3, 0))))
    assert torch.npu.is_available() is True and torch.npu.device_count() == 3


def test_without_cann_there_are_no_peers(no_cann: list[int]) -> None:
    with pytest.warns(UserWarning, match="npu:0 is not there: no npu is available"):
        assert torch.npu.can_device_access_peer(0, 1) is False


def test_an_untrusted_cann_is_said(no_cann: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise devices.errors.UntrustedCannError("not loaded because of its mode")

    monkeypatch.setattr(acl_loader, "_existing_dirs", refuse)
    with pytest.warns(UserWarning, match="not loaded because of its mode"):
        assert torch.npu.is_available() is False
    with pytest.warns(UserWarning, match="not loaded because of its mode"):
        assert torch.npu.device_count() == 0
