"""The runtime over a replaced acl: what is called, in which order, and what happens when a call fails. No CANN is needed."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import cann_tables
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import errors, runtime

STREAM, CONTEXT = 0x57, 0xC0


class Recorder:
    """Has only the functions it is given, records the calls and returns the configured codes, else success."""

    def __init__(self, calls: list[tuple], *names: str) -> None:
        self._calls = calls
        self._names = names
        self.answers: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self._calls.append((name, *args))
            answer = self.answers.get(name, {"create_context": (CONTEXT, 0), "create_stream": (STREAM, 0)}.get(name, 0))
            return answer(*args) if callable(answer) else answer

        return call


class Acl(Recorder):
    """An acl module with chosen functions of its own and of rt."""

    def __init__(self, rt: str, own: str = "init finalize") -> None:
        self.calls: list[tuple] = []
        super().__init__(self.calls, *own.split())
        self.rt = Recorder(self.calls, *rt.split())


OPENING = "set_device create_context create_stream destroy_stream destroy_context reset_device"
OPENED = [("init",), ("set_device", 0), ("create_context", 0), ("create_stream",)]
CLOSED = [("destroy_stream", STREAM), ("destroy_context", CONTEXT), ("reset_device", 0), ("finalize",)]


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not used an npu; a runtime that was there before is there again afterwards."""
    before = dict(runtime._runtimes)
    monkeypatch.setattr(runtime, "_runtimes", {})
    monkeypatch.setattr(runtime, "_started", None)
    monkeypatch.setattr(runtime, "_counted", (None, 0))
    monkeypatch.setattr(runtime, "_closers", [])
    monkeypatch.setattr(runtime, "_thread", runtime._Thread())
    monkeypatch.setattr(runtime, "_RUNTIME_CLEANUP_REGISTERED", True)  # nothing is left behind for the exit of pytest
    yield
    _C._npu_set_bound(-1)
    _C._npu_set_current_device(0)
    for index in (0, 1):
        _C._npu_set_default_stream(index, before[index].stream if index in before else 0)


def use(monkeypatch: pytest.MonkeyPatch, acl: Any) -> Any:
    monkeypatch.setattr(runtime, "acl", acl)
    return acl


def by_hand() -> runtime._Runtime:
    made = runtime._Runtime()
    made.initialized, made.stream, made.context, made.device_id = True, STREAM, CONTEXT, 0
    return made


def test_init_and_finalize_call_only_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING))
    made = runtime._Runtime()
    assert not made.initialized and made.stream is None and made.context is None
    made.init(0)
    made.init(0)
    assert acl.calls == OPENED and made.initialized
    assert (made.device_id, made.stream, made.context) == (0, STREAM, CONTEXT)
    made.finalize()
    assert acl.calls == OPENED + CLOSED and not made.initialized
    made.finalize()
    assert acl.calls == OPENED + CLOSED


def test_acl_may_be_initialised_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING))
    acl.answers["init"] = 100002
    made = runtime._Runtime()
    made.init(0)
    assert made.initialized


def test_acl_is_loaded_by_the_first_init(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = Acl(OPENING)
    use(monkeypatch, None)
    monkeypatch.setattr(runtime, "ensure_acl", lambda: acl)
    runtime._Runtime().init(0)
    assert runtime.acl is acl


def test_cleanup_is_registered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Acl(OPENING))
    monkeypatch.setattr(runtime, "_RUNTIME_CLEANUP_REGISTERED", False)
    registered: list[Any] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    first, second = runtime._Runtime(), runtime._Runtime()
    first.init(0)
    first.init(0)
    second.init(1)
    assert registered == [first.finalize] and runtime._RUNTIME_CLEANUP_REGISTERED


def test_one_exit_ends_all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " set_context"))
    acl.rt.answers["create_context"] = lambda device: (CONTEXT + device, 0)
    first, second = runtime.get_runtime(0), runtime.get_runtime(1)
    assert acl.calls.count(("init",)) == 1
    acl.calls.clear()
    first.finalize()
    assert acl.calls == [
        ("set_context", CONTEXT), ("destroy_stream", STREAM), ("destroy_context", CONTEXT), ("reset_device", 0),
        ("set_context", CONTEXT + 1), ("destroy_stream", STREAM), ("destroy_context", CONTEXT + 1), ("reset_device", 1),
        ("finalize",),
    ]  # fmt: skip
    assert not first.initialized and not second.initialized


def test_a_runtime_of_another_acl_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Acl(OPENING))
    real = runtime.get_runtime(0)
    use(monkeypatch, Acl(OPENING))
    made = runtime._Runtime()
    made.init(0)
    made.finalize()
    assert real.initialized and not made.initialized


@pytest.mark.parametrize("failing", ["set_device", "create_context", "create_stream"])
def test_half_an_init_is_taken_back(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    acl = use(monkeypatch, Acl(OPENING))
    acl.rt.answers[failing] = 507033 if failing == "set_device" else (0, 507033)
    made = runtime._Runtime()
    with pytest.raises(RuntimeError, match=r"ACL_ERROR_RT_DEV_SETUP_ERROR \(507033\)"):
        made.init(0)
    assert not made.initialized and made.stream is None and made.context is None
    undone = {"set_device": [], "create_context": ["reset_device"], "create_stream": ["destroy_context", "reset_device"]}
    assert [call[0] for call in acl.calls[acl.calls.index((failing,) if failing == "create_stream" else (failing, 0)) + 1 :]] == undone[failing]
    del acl.rt.answers[failing]
    made.init(0)  # the next try works
    assert made.initialized and acl.calls.count(("init",)) == 1
    made.finalize()
    assert acl.calls[-1] == ("finalize",)


def test_finalize_after_a_failed_init_ends_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING))
    acl.rt.answers["set_device"] = 107001
    made = runtime._Runtime()
    with pytest.raises(RuntimeError, match="107001"):
        made.init(9)
    made.finalize()
    made.finalize()
    assert acl.calls == [("init",), ("set_device", 9), ("finalize",)]


def test_finalize_goes_on_after_failures(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    acl = use(monkeypatch, Acl(OPENING))

    def explode(*args: Any) -> int:
        raise OSError("gone")

    made = runtime._Runtime()
    made.init(0)
    acl.rt.answers.update(destroy_stream=507010, destroy_context=explode)
    made.finalize()
    assert acl.calls[-4:] == CLOSED and not made.initialized
    said = capsys.readouterr().err
    assert "[aclrtDestroyStream] failed with ACL_ERROR_RT_LOST_HEARTBEAT (507010)" in said
    assert "[aclrtDestroyContext] gone" in said


def test_finalize_without_acl_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    runtime._Runtime().finalize()


def test_finalize_drains_before_it_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " synchronize_stream free"))
    made = runtime._Runtime()
    made.init(0)
    made.defer_free(5)
    acl.calls.clear()
    made.finalize()
    assert acl.calls == [("synchronize_stream", STREAM), ("free", 5), *CLOSED]


def test_memory_is_freed_between_the_drain_and_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " synchronize_stream"))
    runtime.on_close(lambda device: acl.calls.append(("closer", device)))
    made = runtime.get_runtime(0)
    acl.calls.clear()
    made.finalize()
    assert acl.calls == [("synchronize_stream", STREAM), ("closer", 0), *CLOSED]


def test_deferred_memory_is_freed_behind_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("synchronize_stream free", own=""))
    made = by_hand()
    made.defer_free(1)
    made.defer_free(2)
    assert acl.calls == []
    made.synchronize()
    assert acl.calls == [("synchronize_stream", STREAM), ("free", 1), ("free", 2)]
    made.synchronize()
    assert acl.calls[3:] == [("synchronize_stream", STREAM)]


def test_a_failed_synchronize_says_the_code_and_keeps_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("synchronize_stream free", own=""))
    made = by_hand()
    made.defer_free(1)
    acl.rt.answers["synchronize_stream"] = 507015
    with pytest.raises(RuntimeError, match=r"ACL_ERROR_RT_AICORE_EXCEPTION \(507015\).*ACL_LAUNCH_BLOCKING"):
        made.synchronize()
    assert ("free", 1) not in acl.calls  # the device may still use it
    acl.rt.answers.clear()
    made.synchronize()
    assert ("free", 1) in acl.calls


def test_a_failed_free_is_said_after_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("synchronize_stream free", own=""))
    acl.rt.answers["free"] = lambda pointer: 100000 if pointer == 1 else 0
    made = by_hand()
    made.defer_free(1)
    made.defer_free(2)
    with pytest.raises(RuntimeError, match="100000"):
        made.synchronize()
    assert acl.calls[1:] == [("free", 1), ("free", 2)]


def test_every_thread_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " set_context"))
    acl.rt.answers["create_context"] = lambda device: (CONTEXT + device, 0)
    runtime.get_runtime(0)
    assert ("set_context", CONTEXT) not in acl.calls  # aclrtCreateContext binds by itself
    runtime.get_runtime(1)
    runtime.get_runtime(0)
    runtime.get_runtime(0)
    assert acl.calls[-1] == ("set_context", CONTEXT) and acl.calls.count(("set_context", CONTEXT)) == 1
    acl.calls.clear()

    def work() -> None:
        runtime.bind_thread(0)
        runtime.bind_thread(0)
        runtime.bind_thread(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert acl.calls == [("set_context", CONTEXT), ("set_context", CONTEXT + 1)]


def test_a_new_context_is_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle may be the same number; what a thread has cached is stale."""
    acl = use(monkeypatch, Acl(OPENING + " set_context"))
    runtime.get_runtime(0)
    answers: list[str] = []
    step, done = threading.Event(), threading.Event()

    def work() -> None:
        runtime.bind_thread(0)
        done.set()
        step.wait()
        acl.calls.clear()
        runtime.bind_thread(0)
        answers.extend(call[0] for call in acl.calls)

    thread = threading.Thread(target=work)
    thread.start()
    done.wait()
    runtime.get_runtime(0).finalize()
    runtime.get_runtime(0)
    step.set()
    thread.join()
    assert answers == ["set_context"]


def test_racing_threads_start_a_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " set_context"))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(runtime.get_runtime(0))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16 and len(set(map(id, found))) == 1
    assert acl.calls.count(("set_device", 0)) == 1


def test_devices_are_counted_once_and_without_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("get_device_count"))
    acl.rt.answers["get_device_count"] = (2, 0)
    assert runtime.device_count() == 2 and runtime.device_count() == 2
    assert acl.calls == [("get_device_count",)]


def test_a_cann_that_counts_only_after_init(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("get_device_count"))
    acl.rt.answers["get_device_count"] = lambda: (2, 0) if ("init",) in acl.calls else (0, 100001)
    assert runtime.device_count() == 2


def test_the_current_device_is_per_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl("get_device_count"))
    acl.rt.answers["get_device_count"] = (2, 0)
    runtime.set_current_device(1)
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(runtime.current_device()))
    thread.start()
    thread.join()
    assert runtime.current_device() == 1 and seen == [0]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        runtime.set_current_device(2)


def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    acl = use(monkeypatch, Acl(OPENING + " set_context"))
    made = runtime.get_runtime(0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            acl.calls.clear()
            runtime.get_runtime(0)
            said = "no error"
        except RuntimeError as error:
            said = str(error)
        made.finalize()
        os.write(write, f"{said}|{runtime.is_initialized()}|{acl.calls}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    said, initialized, calls = os.read(read, 4096).decode().split("|")
    assert "Cannot re-initialize NPU in forked subprocess" in said and "'spawn' start method" in said
    assert initialized == "False" and calls == "[]"
    assert runtime.get_runtime(0) is made and runtime.is_initialized()  # the parent goes on


def test_a_fork_before_the_first_use_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Acl(OPENING))
    child = os.fork()
    if child == 0:
        os._exit(0 if runtime.get_runtime(0).initialized else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- errors -----------------------------------------------------------------------------------------------------------
def test_an_error_has_name_code_advice_and_cann_s_words(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SimpleNamespace(get_recent_err_msg=lambda: "EZ9999: inner error\n"))
    with pytest.raises(RuntimeError) as caught:
        errors.raise_for(561003, "aclnnAdd")
    assert str(caught.value).splitlines() == [
        "[aclnnAdd] failed with ACLNN_ERR_INNER_FIND_KERNEL_ERROR (561003): the op has no kernel for this SoC or dtype",
        "CANN says: EZ9999: inner error",
    ]


def test_an_unknown_code_is_still_given(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, SimpleNamespace(get_recent_err_msg=lambda: None))
    with pytest.raises(RuntimeError, match=r"^\[x\] failed with an unknown CANN error \(123456\)$"):
        errors.check(123456, "x")
    errors.check(0, "x")


def test_error_names_agree_with_the_table_of_cann() -> None:
    codes: dict[int, set[str]] = {}
    for name, number in cann_tables.numbers().items():
        if name.startswith(("ACL_ERROR_", "ACLNN_ERR_")):
            codes.setdefault(number, set()).add(name)
    assert len(errors._CODES) > 150
    assert not {code: name for code, name in errors._CODES.items() if name not in codes.get(code, ())}


def test_exit_is_quiet_where_no_npu_was_used() -> None:
    code = "import mindtorch_v2 as torch; torch.npu.is_available()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
