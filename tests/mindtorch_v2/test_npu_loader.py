"""How CANN is found and loaded: folders, generations, one time only, and again after a failure. No CANN is needed here."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import cann_tables
from mindtorch_v2._backends.npu import acl_binding, acl_loader, capi
from mindtorch_v2._backends.npu.errors import CannNotFoundError, MissingSymbolError, UntrustedCannError

OLD = ("libascendcl.so", "libnnopbase.so", "libopapi.so", "libaclnn_math.so")
NEW = ("libacl_rt.so", "libascendcl.so", "libnnopbase.so", "libopapi_math.so", "libopapi_nn.so", "libopapi.so")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test begins without CANN and leaves no trace."""
    for name in ("LD_LIBRARY_PATH", "ASCEND_OPP_PATH", "ASCEND_AICPU_PATH", "TOOLCHAIN_HOME", "ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.setenv(name, "set, so that the end of the test takes it back")
        monkeypatch.delenv(name)
    monkeypatch.setattr(acl_loader, "_ACL_READY", False)
    monkeypatch.setattr(acl_loader, "_ACL_MODULE", None)
    monkeypatch.setattr(acl_loader, "_LIBRARIES", {})
    monkeypatch.setattr(acl_loader, "_symbols", {})
    monkeypatch.setattr(acl_loader, "_home", "")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that would be opened, in order."""
    files: list[str] = []

    def cdll(path: str, mode: int) -> SimpleNamespace:
        assert mode == ctypes.RTLD_GLOBAL
        files.append(path)
        return SimpleNamespace(_name=path)

    monkeypatch.setattr(acl_loader.ctypes, "CDLL", cdll)
    return files


def toolkit(home: Path, names: tuple[str, ...], folder: str = "lib64") -> Path:
    for name in names:
        file = home / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return home


def names_of(files: list[str]) -> list[str]:
    return [os.path.basename(file) for file in files]


def test_loaded_once_by_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def slow_import() -> str:
        calls.append(1)
        time.sleep(0.05)
        return "acl"

    monkeypatch.setattr(acl_loader, "_preload_libs", lambda folders: None)
    monkeypatch.setattr(acl_loader, "_import_acl", slow_import)
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(acl_loader.ensure_acl())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["acl"] * 16 and len(calls) == 1 and acl_loader._ACL_READY
    assert acl_loader.ensure_acl() == "acl" and len(calls) == 1


def test_a_failure_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([ImportError("first"), "acl"])

    def import_acl() -> str:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(acl_loader, "_preload_libs", lambda folders: None)
    monkeypatch.setattr(acl_loader, "_import_acl", import_acl)
    with pytest.raises(ImportError, match="first"):
        acl_loader.ensure_acl()
    assert not acl_loader._ACL_READY and acl_loader._ACL_MODULE is None
    assert acl_loader.ensure_acl() == "acl"


def test_without_cann_the_error_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", ("{ASCEND_HOME_PATH}/lib64",))
    monkeypatch.setenv("ASCEND_HOME_PATH", "/nowhere/cann")
    with pytest.raises(CannNotFoundError) as caught:
        acl_loader.ensure_acl()
    text = str(caught.value)
    for part in ("libascendcl.so", "ASCEND_HOME_PATH=/nowhere/cann", "ASCEND_TOOLKIT_HOME=(not set)", "/usr/local/Ascend", "Install"):
        assert part in text


@pytest.mark.parametrize("folder", ["lib64", f"{platform.machine()}-linux/lib64"])
def test_home_path_comes_before_the_usual_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str], folder: str
) -> None:
    mine, usual = toolkit(tmp_path / "mine", OLD, folder), toolkit(tmp_path / "usual", NEW)
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", (f"{{ASCEND_HOME_PATH}}/{folder}", f"{usual}/lib64"))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(mine))
    monkeypatch.setattr(acl_loader, "_import_acl", lambda: "acl")
    acl_loader.ensure_acl()
    assert opened == [str(mine / folder / name) for name in OLD]  # nothing of the other toolkit
    assert os.environ["LD_LIBRARY_PATH"] == str(mine / folder)
    assert acl_loader._home == str(mine)


def test_a_home_without_libraries_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    (tmp_path / "empty" / "lib64").mkdir(parents=True)
    usual = toolkit(tmp_path / "usual", OLD)
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", ("{ASCEND_HOME_PATH}/lib64", f"{usual}/lib64"))
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(acl_loader, "_import_acl", lambda: "acl")
    acl_loader.ensure_acl()
    assert {os.path.dirname(file) for file in opened} == {str(usual / "lib64")}
    assert "empty" not in os.environ["LD_LIBRARY_PATH"]


def test_the_newest_version_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("8.1.RC1", "8.10.0", "8.9.0"):
        toolkit(tmp_path / version, OLD)
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", (f"{tmp_path}/[0-9]*/lib64",))
    found = acl_loader._existing_dirs()
    assert [Path(folder).parent.name for folder in found] == ["8.10.0", "8.9.0", "8.1.RC1"]
    assert acl_loader._of_one_home(found) == [str(tmp_path / "8.10.0" / "lib64")]


def test_the_driver_belongs_to_every_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, driver = toolkit(tmp_path / "home", OLD), tmp_path / "driver" / "lib64"
    driver.mkdir(parents=True)
    monkeypatch.setattr(acl_loader, "_DRIVER_LIB_DIRS", (str(driver),))
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", (f"{home}/lib64", str(driver)))
    assert acl_loader._of_one_home(acl_loader._existing_dirs()) == [str(home / "lib64"), str(driver)]


@pytest.mark.parametrize("names, wanted", [(OLD, OLD), (NEW, NEW[:-1])], ids=["until 8.3", "from 8.5"])
def test_generations_are_not_mixed(tmp_path: Path, opened: list[str], names: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    acl_loader._preload_libs([str(toolkit(tmp_path, names) / "lib64")])
    assert tuple(names_of(opened)) == wanted


@pytest.mark.parametrize("name", ["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"])
def test_a_relative_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str], name: str) -> None:
    toolkit(tmp_path / "cann", OLD)
    monkeypatch.chdir(tmp_path)
    for path in ("cann", "./cann", "~/cann"):
        monkeypatch.setenv(name, path)
        with pytest.raises(UntrustedCannError, match=f"{name}='{path}' is a relative path"):
            acl_loader.ensure_acl()
    assert opened == []
    monkeypatch.delenv(name)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path / "cann"))
    assert str(tmp_path / "cann" / "lib64") in acl_loader._existing_dirs()


def test_what_a_library_needs_is_opened_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = toolkit(tmp_path, (*OLD, "libruntime.so"))
    opened: list[str] = []

    def cdll(path: str, mode: int) -> SimpleNamespace:
        if path.endswith("libascendcl.so") and not any(file.endswith("libruntime.so") for file in opened):
            raise OSError("libruntime.so: cannot open shared object file: No such file or directory")
        opened.append(path)
        return SimpleNamespace(_name=path)

    monkeypatch.setattr(acl_loader.ctypes, "CDLL", cdll)
    acl_loader._preload_libs([str(home / "lib64")])
    assert names_of(opened) == ["libruntime.so", *OLD]


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cdll(path: str, mode: int) -> SimpleNamespace:
        raise OSError("libascend_hal.so: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(acl_loader.ctypes, "CDLL", cdll)
    with pytest.raises(CannNotFoundError, match=r"libascendcl.so cannot be loaded: libascend_hal.so.*Ascend driver"):
        acl_loader._preload_libs([str(toolkit(tmp_path, OLD) / "lib64")])


def test_what_set_env_would_set_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    home = toolkit(tmp_path, OLD)
    (home / "opp").mkdir()
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", "/chosen")
    acl_loader._preload_libs([str(home / "lib64")])
    assert os.environ["ASCEND_OPP_PATH"] == str(home / "opp")
    assert os.environ["ASCEND_HOME_PATH"] == str(home)
    assert os.environ["ASCEND_TOOLKIT_HOME"] == "/chosen"
    assert "TOOLCHAIN_HOME" not in os.environ  # there is no such folder


def test_ld_library_path_grows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/b")
    for _ in range(2):
        acl_loader._prepend_ld_library_path(["/a", "/b"])
    assert os.environ["LD_LIBRARY_PATH"] == "/a:/b"
    acl_loader._prepend_ld_library_path([])
    assert os.environ["LD_LIBRARY_PATH"] == "/a:/b"


def test_ld_library_path_keeps_the_order_of_a_toolkits_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child of `cann-sim run` found linker scripts in x86_64-linux/lib64 before the libraries in lib64."""
    monkeypatch.setenv("LD_LIBRARY_PATH", "/other:/home/lib64")
    acl_loader._prepend_ld_library_path(["/home/lib64", "/home/x86_64-linux/lib64"])
    assert os.environ["LD_LIBRARY_PATH"] == "/home/lib64:/home/x86_64-linux/lib64:/other"


@pytest.mark.parametrize("there", ["nothing", "a driver", "a broken toolkit"])
def test_a_search_in_vain_leaves_the_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str) -> None:
    """Loading a file that names an npu looks for CANN: that must not be seen in the process where there is none."""
    home = tmp_path / "home"
    (home / "lib64").mkdir(parents=True)
    if there == "a broken toolkit":
        toolkit(home, ("libascendcl.so",))        # an empty file
    monkeypatch.setattr(acl_loader, "_CANDIDATE_LIB_DIRS", () if there == "nothing" else (f"{home}/lib64",))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/b")
    monkeypatch.setenv("ASCEND_OPP_PATH", "/opp")
    before, changed = dict(os.environ), []
    watching = [True]

    def watch(event: str, args: tuple[object, ...]) -> None:
        if watching and event in ("os.putenv", "os.unsetenv"):
            changed.append(args)

    sys.addaudithook(watch)
    with pytest.raises(CannNotFoundError):
        acl_loader.ensure_acl()
    watching.clear()                              # a hook cannot be taken out
    assert dict(os.environ) == before
    if there != "a broken toolkit":
        assert changed == []


def test_the_toolkits_acl_module_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    home = toolkit(tmp_path, OLD)
    module = home / "python" / "site-packages" / "acl.py"
    module.parent.mkdir(parents=True)
    module.write_text("answer = 42\n")
    monkeypatch.delitem(sys.modules, "acl", raising=False)
    acl_loader._preload_libs([str(home / "lib64")])
    before = list(sys.path)
    acl = acl_loader._import_acl()
    assert acl.answer == 42 and sys.path == before
    assert acl_loader._import_acl() is acl
    monkeypatch.delitem(sys.modules, "acl")


@pytest.mark.parametrize("text", [None, "raise ImportError('built for another Python')"])
def test_without_an_acl_module_the_binding_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str], text: str | None
) -> None:
    home = toolkit(tmp_path, OLD)
    if text:
        module = home / "python" / "site-packages" / "acl.py"
        module.parent.mkdir(parents=True)
        module.write_text(text)
    monkeypatch.delitem(sys.modules, "acl", raising=False)
    monkeypatch.setattr(acl_binding, "load", lambda library: ("binding", library._name))
    acl_loader._preload_libs([str(home / "lib64")])
    assert acl_loader._import_acl() == ("binding", str(home / "lib64" / "libascendcl.so"))
    assert "acl" not in sys.modules


def test_a_foreign_acl_module_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]) -> None:
    home = toolkit(tmp_path, OLD)
    module = home / "python" / "site-packages" / "acl.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    foreign = SimpleNamespace(__file__="/elsewhere/acl.py")
    monkeypatch.setitem(sys.modules, "acl", foreign)
    monkeypatch.setattr(acl_binding, "load", lambda library: "binding")
    acl_loader._preload_libs([str(home / "lib64")])
    assert acl_loader._import_acl() == "binding" and sys.modules["acl"] is foreign


def test_symbols_come_from_the_libraries_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    libc = ctypes.CDLL(None)
    monkeypatch.setattr(acl_loader, "_ACL_READY", True)
    monkeypatch.setattr(acl_loader, "_LIBRARIES", {"libascendcl.so": SimpleNamespace(abs=libc.labs), "libopapi.so": libc})
    assert acl_loader.symbol("abs") == ctypes.cast(libc.abs, ctypes.c_void_p).value


def test_a_missing_symbol_names_itself_and_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "version.info").write_text("Version=7.7.T6.0.B057:8.1.RC1\n")
    monkeypatch.setattr(acl_loader, "_ACL_READY", True)
    monkeypatch.setattr(acl_loader, "_home", str(tmp_path))
    monkeypatch.setattr(acl_loader, "_LIBRARIES", {"libopapi.so": ctypes.CDLL("libc.so.6")})
    for _ in range(2):  # a failure is not kept either
        with pytest.raises(MissingSymbolError, match=r"aclnnNotThere is not in CANN 8\.1\.RC1.*libopapi\.so"):
            acl_loader.symbol("aclnnNotThere")


def test_import_loads_no_cann_and_starts_no_thread() -> None:
    code = """
import sys, threading
import mindtorch_v2 as torch
torch.npu.current_device(), torch.device("npu:1"), torch.npu.is_initialized()
files = open("/proc/self/maps").read()
assert "ascendcl" not in files and "libacl_rt" not in files and "acl" not in sys.modules
assert threading.active_count() == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


# ---- the binding, on plain C functions ------------------------------------------------------------------------------
def test_outputs_come_before_the_status() -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int32, ctypes.POINTER(ctypes.c_float))
    def create(handle: object, number: int, milliseconds: object) -> int:
        handle[0] = 0x1000 + number if number else None
        milliseconds[0] = 0.5
        return 7

    made = acl_binding.declared({"aclX": create}.get, "x aclX(>ptr i32 >f32)\ny aclY()\n")
    assert made["x"](3) == (0x1003, 0.5, 7) and made["x"](0) == (0, 0.5, 7)
    assert "y" not in made  # what a library does not have, the module does not have
    with pytest.raises(TypeError, match="takes 1 arguments, got 2"):
        made["x"](1, 2)


def test_structs_are_dicts_and_strings_str() -> None:
    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(acl_binding._PhysicalProperties), ctypes.POINTER(acl_binding._PhysicalProperties))
    def copy(given: object, made: object) -> int:
        made[0] = given[0]
        return 0

    text = ctypes.create_string_buffer(b"Ascend910B2")
    name = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(text))
    none = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: None)
    table = "copy aclCopy(&physical >physical)\nname aclName() str\nnone aclNone() str\n"
    made = acl_binding.declared({"aclCopy": copy, "aclName": name, "aclNone": none}.get, table)
    given = {"handleType": 0, "allocationType": 0, "memAttr": 4, "location": {"id": 1, "type": 1}, "reserve": 9}
    assert made["copy"](given) == (given, 0)
    assert made["name"]() == "Ascend910B2" and made["none"]() is None


C_KINDS = {  # what C's parameter types are called in the binding's tables
    "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "size_t": "size", "float": "f32", "aclFloat16": "f16",
    "aclrtPhysicalMemProp": "&physical", "aclrtPtrAttributes": "attributes", "aclrtUtilizationInfo": "utilization",
    "aclCANNPackageVersion": "version",
}  # fmt: skip
HANDLES = ("aclrtStream", "aclrtEvent", "aclrtContext", "aclrtDrvMemHandle", "aclmdlRI", "aclrtTaskGrp", "void*", "aclDataBuffer*", "aclTensorDesc*")


def kind_of(c_type: str) -> tuple[str, bool]:
    """(kind, whether it is an address) of a C parameter."""
    plain = c_type.replace("const", "").strip()
    if plain in HANDLES:
        return "ptr", False
    if plain == "char*":
        return "str", False
    address = plain.endswith("*")
    plain = plain.removesuffix("*").strip()
    return ("ptr" if plain in HANDLES else C_KINDS.get(plain, "i32")), address  # else an enum


def test_the_binding_agrees_with_the_table_of_c_functions() -> None:
    declarations = {f.name: [p.strip().rpartition(" ")[0] for p in f.arguments.split(",") if p.strip()]
                    for f in cann_tables.functions() if f.result}
    rows = [row for table in (acl_binding._ACL, acl_binding._RT, capi._TABLE) for row in table.split("\n") if row]
    assert len(rows) > 100
    wrong = []
    for row in rows:
        symbol, _, rest = row.partition(" ")[2].partition("(")
        ours = rest.partition(")")[0].split()
        theirs = [kind_of(p) for p in declarations[symbol]]
        same = len(ours) == len(theirs) and all(
            word.lstrip(">&") == kind.lstrip("&") and (word[0] in ">&") == address for word, (kind, address) in zip(ours, theirs)
        )
        if not same:
            wrong.append((row, declarations[symbol]))
    assert not wrong
