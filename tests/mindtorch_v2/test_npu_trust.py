"""From where CANN is loaded, by who can write there; and a first use that is interrupted anywhere leaves nothing behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import mindtorch_v2 as torch
from cann_tables import trust
from mindtorch_v2 import _C
from mindtorch_v2._backends.npu import acl_binding, acl_loader, runtime
from mindtorch_v2._backends.npu.errors import UntrustedCannError

STATE = (("_ACL_READY", False), ("_ACL_MODULE", None), ("_symbols", {}), ("_home", ""))
VARIABLES = ("LD_LIBRARY_PATH", *acl_loader._EXPORTED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit of empty files with an acl module, in a process that has not loaded CANN."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "")              # so that the end of the test takes back what it gets
        monkeypatch.delenv(name)
    for name, value in STATE:
        monkeypatch.setattr(acl_loader, name, value)
    monkeypatch.setattr(acl_loader, "_LIBRARIES", {})
    for name in {"acl", "acl.rt", *(name for name in sys.modules if name.startswith("acl."))}:
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))   # so that the end of the test takes back what comes
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("MINDTORCH_ALLOW_WRITABLE_CANN", raising=False)
    monkeypatch.setattr(acl_loader.ctypes, "CDLL", lambda path, mode: SimpleNamespace(_name=path))
    made = tmp_path / "cann"
    for file in ("lib64/libascendcl.so", "lib64/libopapi.so", "python/site-packages/acl/__init__.py",
                 "python/site-packages/acl/rt.py"):
        (made / file).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        (made / file).touch(mode=0o644)
    (made / "python/site-packages/acl/__init__.py").write_text("from acl import rt\nvalue = 1\n")
    for folder in (made, made / "lib64", made / "python", made / "python/site-packages", made / "python/site-packages/acl"):
        folder.chmod(0o755)
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", ("{ASCEND_HOME_PATH}/lib64",))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(made))
    return made


# ---- who can write there ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", ["lib64", "", "lib64/libascendcl.so", "python/site-packages/acl/__init__.py", "python"])
def test_world_writable_files_are_not_loaded(home: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (home / place).chmod(0o777)
    with pytest.raises(UntrustedCannError) as caught:
        acl_loader.ensure_acl()
    for words in (str(home / place), "mode 0777", "every user", "MINDTORCH_ALLOW_WRITABLE_CANN=1"):
        assert words in str(caught.value)
    assert acl_loader._LIBRARIES == {} and "acl" not in sys.modules
    monkeypatch.setenv("MINDTORCH_ALLOW_WRITABLE_CANN", "1")
    assert acl_loader.ensure_acl().value == 1


def test_a_sticky_folder_is_no_excuse_inside_the_home(home: Path) -> None:
    (home / "lib64").chmod(0o1777)
    with pytest.raises(UntrustedCannError, match="mode 1777"):
        acl_loader.ensure_acl()


def test_a_folder_above_the_home_must_be_sticky(home: Path) -> None:
    home.parent.chmod(0o777)
    with pytest.raises(UntrustedCannError, match=f"{home.parent} .mode 0777"):
        acl_loader.ensure_acl()
    home.parent.chmod(0o1777)                     # sticky, as /tmp: other users cannot replace the home folder
    assert acl_loader.ensure_acl().value == 1


def test_links_are_followed(home: Path) -> None:
    real = home.parent / "elsewhere"
    real.mkdir(mode=0o755)
    (home / "lib64/libopapi.so").rename(real / "libopapi.so")
    (home / "lib64/libopapi.so").symlink_to(real / "libopapi.so")
    real.chmod(0o777)
    with pytest.raises(UntrustedCannError, match=f"{real} .mode 0777"):
        acl_loader.ensure_acl()
    real.chmod(0o755)
    assert acl_loader.ensure_acl().value == 1


def test_groups(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "lib64").chmod(0o775)
    monkeypatch.setattr(trust, "_is_own_group", lambda gid: False)
    with pytest.raises(UntrustedCannError, match="can be written by the group"):
        acl_loader.ensure_acl()
    monkeypatch.setattr(trust, "_is_own_group", lambda gid: True)
    assert acl_loader.ensure_acl().value == 1


def test_private_groups_are_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    user = SimpleNamespace(pw_name="ann", pw_gid=1000)
    groups = {1000: [], 2000: ["ann"], 3000: ["ann", "bob"]}
    monkeypatch.setattr(trust.pwd, "getpwuid", lambda uid: user)
    monkeypatch.setattr(trust.grp, "getgrgid", lambda gid: SimpleNamespace(gr_mem=groups[gid]))
    assert [trust._is_own_group(gid) for gid in (0, 1000, 2000, 3000, 9999)] == [True, True, False, False, False]
    groups[1000] = ["bob"]
    assert not trust._is_own_group(1000)


def test_owners(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {0, os.geteuid(), os.stat(trust.__file__).st_uid} <= trust._trusted_owners()
    monkeypatch.setattr(trust, "_trusted_owners", lambda: {54321})
    with pytest.raises(UntrustedCannError, match="belongs to another user"):
        acl_loader.ensure_acl()


# ---- a first use that is interrupted ----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit, ValueError])
@pytest.mark.parametrize("at", ["from acl import rt", "value = 1"])
def test_a_partly_imported_acl_module_is_removed(home: Path, kind: type[BaseException], at: str) -> None:
    module = home / "python/site-packages/acl/__init__.py"
    module.write_text(f"from acl import rt\nraise {kind.__name__}('x')\nvalue = 1\n")
    if at == "from acl import rt":
        module.write_text("from acl import rt\nvalue = 1\n")
        (home / "python/site-packages/acl/rt.py").write_text(f"raise {kind.__name__}('x')\n")
    before = {name: os.environ.get(name) for name in VARIABLES}
    with pytest.raises(kind):
        acl_loader.ensure_acl()
    assert not [name for name in sys.modules if name == "acl" or name.startswith("acl.")]
    assert acl_loader._LIBRARIES == {} and acl_loader._home == "" and not acl_loader._ACL_READY
    assert {name: os.environ.get(name) for name in VARIABLES} == before
    module.write_text("from acl import rt\nvalue = 2222\n")
    (home / "python/site-packages/acl/rt.py").write_text("answer = 5\n")
    assert acl_loader.ensure_acl().value == 2222 and acl_loader.ensure_acl().rt.answer == 5


def test_a_module_that_cannot_be_made_is_replaced_by_the_binding(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: Any) -> None:
        raise ImportError("undefined symbol: PyUnicode_FromX")

    monkeypatch.setattr(acl_loader, "module_from_spec", refuse)
    monkeypatch.setattr(acl_binding, "load", lambda library: "binding")
    assert acl_loader.ensure_acl() == "binding"


STEPS = ("_existing_dirs", "_of_one_home", "_prepend_ld_library_path", "_preload_libs", "_open", "_export_home", "_import_acl")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_the_loader_may_be_the_last(home: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool) -> None:
    real = getattr(acl_loader, step)

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(acl_loader, step, real)
        if after:
            real(*args)
        raise KeyboardInterrupt

    before = {name: os.environ.get(name) for name in VARIABLES}
    monkeypatch.setattr(acl_loader, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        acl_loader.ensure_acl()
    assert acl_loader._LIBRARIES == {} and acl_loader._home == "" and not acl_loader._ACL_READY
    assert {name: os.environ.get(name) for name in VARIABLES} == before
    assert acl_loader.ensure_acl().value == 1 and set(acl_loader._LIBRARIES) == {"libascendcl.so", "libopapi.so"}


def test_a_failed_toolkit_is_not_mixed_with_the_next(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cdll(path: str, mode: int) -> Any:
        if path.startswith(str(home)) and path.endswith("libopapi.so"):
            raise OSError("libopapi.so: file too short")
        return SimpleNamespace(_name=path)

    monkeypatch.setattr(acl_loader.ctypes, "CDLL", cdll)
    with pytest.raises(RuntimeError, match="file too short"):
        acl_loader.ensure_acl()
    other = tmp_path / "other" / "lib64"
    other.mkdir(parents=True)
    (other / "libacl_rt.so").touch()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(other.parent))
    monkeypatch.setattr(acl_binding, "load", lambda library: library._name)
    assert acl_loader.ensure_acl() == str(other / "libacl_rt.so")
    assert set(acl_loader._LIBRARIES) == {"libacl_rt.so"} and os.environ["LD_LIBRARY_PATH"] == str(other)


class Books:
    """An acl module that counts open objects; it can run a hook around one of its calls."""

    def __init__(self, step: str, around: Callable[[Callable[[], Any]], Any]) -> None:
        self.step, self.around = step, around
        self.open: dict[str, int] = {"device": 0, "context": 0, "stream": 0}
        self.rt = SimpleNamespace(
            set_device=lambda d: self.call("set_device", "device", 1), reset_device=lambda d: self.call("reset", "device", -1),
            create_context=lambda d: (7, self.call("create_context", "context", 1)),
            destroy_context=lambda c: self.call("destroy_context", "context", -1),
            create_stream=lambda: (8, self.call("create_stream", "stream", 1)),
            destroy_stream=lambda s: self.call("destroy_stream", "stream", -1),
            set_context=lambda c: 0, synchronize_stream=lambda s: 0)  # fmt: skip
        self.init = lambda: self.call("init", "", 0)
        self.finalize = lambda: 0

    def call(self, name: str, what: str, more: int) -> int:
        def act() -> int:
            if what:
                self.open[what] += more
            return 0

        if name != self.step:
            return act()
        self.step = ""
        return self.around(act)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = dict(runtime._runtimes)
    for name, value in (("_runtimes", {}), ("_started", None), ("_counted", (None, 0)), ("_closers", []),
                        ("_thread", runtime._Thread()), ("_RUNTIME_CLEANUP_REGISTERED", True)):
        monkeypatch.setattr(runtime, name, value)
    yield
    _C._npu_set_bound(-1)
    _C._npu_set_default_stream(0, before[0].stream if 0 in before else 0)


CALLS = ("init", "set_device", "create_context", "create_stream")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
@pytest.mark.parametrize("step", CALLS)
def test_every_call_of_a_start_may_be_the_last(alone: None, monkeypatch: pytest.MonkeyPatch, step: str, kind: Any) -> None:
    def stop(act: Callable[[], int]) -> int:
        raise kind

    acl = Books(step, stop)
    monkeypatch.setattr(runtime, "acl", acl)
    with pytest.raises(kind):
        runtime.get_runtime(0)
    assert acl.open == {"device": 0, "context": 0, "stream": 0} and not runtime.is_initialized()
    assert _C._npu_current_stream(0) != 8
    made = runtime.get_runtime(0)
    assert made.initialized and acl.open == {"device": 1, "context": 1, "stream": 1}
    assert _C._npu_current_stream(0) == 8


@pytest.mark.parametrize("step", CALLS)
def test_a_key_pressed_while_cann_works_loses_no_handle(alone: None, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """The signal is handled once the call is done and its result kept, not between the two."""
    def press(act: Callable[[], int]) -> int:
        signal.raise_signal(signal.SIGINT)
        return act()

    acl = Books(step, press)
    monkeypatch.setattr(runtime, "acl", acl)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        runtime.get_runtime(0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    made = runtime.get_runtime(0)
    assert made.initialized and acl.open == {"device": 1, "context": 1, "stream": 1}
    assert _C._npu_current_stream(0) == 8
    made.finalize()
    assert acl.open == {"device": 0, "context": 0, "stream": 0}


def test_other_threads_start_devices_too(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    acl = Books("", lambda act: act())
    monkeypatch.setattr(runtime, "acl", acl)
    thread = threading.Thread(target=runtime.get_runtime)
    thread.start()
    thread.join()
    assert acl.open["context"] == 1


@pytest.mark.parametrize("step", ["destroy_stream", "destroy_context", "reset"])
def test_an_end_that_is_interrupted_is_an_end(alone: None, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def stop(act: Callable[[], int]) -> int:
        raise KeyboardInterrupt

    acl = Books(step, stop)
    monkeypatch.setattr(runtime, "acl", acl)
    made = runtime.get_runtime(0)
    with pytest.raises(KeyboardInterrupt):
        made.finalize()
    assert not made.initialized
    again = runtime.get_runtime(0)
    assert again.initialized and again.context == 7


EVERY_LINE = """
import os, sys, threading
import mindtorch_v2 as torch
from mindtorch_v2._backends.npu import acl_loader, runtime

FILES = {module.__file__ for module in (acl_loader, runtime)}


class Injector:
    def __init__(self, at):
        self.at, self.seen = at, 0

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.seen += 1
            if self.seen == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self.trace


def child(at):
    injector, came = Injector(at), 0
    sys.settrace(injector.trace)
    try:
        torch.ones(3, device="npu").sum().item()
    except KeyboardInterrupt:
        came = 1
    sys.settrace(None)
    x = torch.ones(3, device="npu")
    assert (x + x).sum().item() == 6.0 and torch.npu.is_initialized()
    assert torch.npu.current_stream().npu_stream == runtime.get_runtime(0).stream != 0
    if not came:
        assert injector.seen < at
    runtime.get_runtime(0).finalize()
    sys.stdout.flush()
    os._exit(10 + came)


first, step = int(sys.argv[1]), int(sys.argv[2])
at = first
while True:
    pid = os.fork()
    if pid == 0:
        try:
            child(at)
        except BaseException as error:
            print("line", at, type(error).__name__, error, flush=True)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == 10:
        break
    assert code == 11, (at, code)
    at += step
print("lines", at)
"""


def test_an_interrupt_at_any_line_of_the_first_use(npu: ModuleType) -> None:
    """On the real libraries: after an exception at a line of the loader or the runtime the next use works. Every line
    would take minutes; these are some."""
    env = os.environ | {"PYTHONPATH": str(Path(torch.__file__).parents[1])}
    for name in VARIABLES[:1]:
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", EVERY_LINE, "1", "47"], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) > 200


def test_the_libraries_are_still_there(npu: ModuleType) -> None:
    """What the tests above replaced is back."""
    assert isinstance(acl_loader._LIBRARIES.get("libascendcl.so"), ctypes.CDLL)
    assert torch.ones(2, device="npu").sum().item() == 2
