"""The home is laid out like an installed toolkit, and cann-sim runs programs on it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import cann_sim
import cann_tables
from cann_sim.cli import main
from cann_tables import trust


def cann_sim_command(*args: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cann_sim", *args]
    return subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize(
    "path",
    [
        "version.info", "ascend_toolkit_install.info", "runtime/version.info", "compiler/version.info",
        "opp/version.info", "python/site-packages/acl/__init__.py", "lib64/libascendcl.so", "lib64/libnnopbase.so", "lib64/libopapi.so",
        "lib64/libhccl.so", "lib64/libacl_op_compiler.so", "lib64/libge_runner.so", "lib64/libgraph.so",
        "lib64/libacl_tdt_channel.so", "lib64/libascend_hal.so",
        "include/acl/acl.h", "include/aclnnop/aclnn_add.h", "include/hccl/hccl.h", "bin/npu-smi", "driver/version.info",
        "acllib/lib64/libascendcl.so", "fwkacllib/lib64/libascendcl.so", "acllib/include/acl/acl.h",
    ],
)  # fmt: skip
def test_layout(path: str) -> None:
    assert (Path(cann_sim.home()) / path).is_file()


def test_home_follows_its_variable_and_refuses_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_SIM_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="libascendcl.so"):
        cann_sim.home()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libascendcl.so").touch()
    assert cann_sim.home() == str(tmp_path)
    assert cann_sim.env({})["ASCEND_HOME_PATH"] == str(tmp_path)


def made_home(home: Path) -> Path:
    (home / "lib64").mkdir(parents=True, mode=0o755)
    (home / "lib64/libascendcl.so").touch()
    for folder in (home, home / "lib64"):
        folder.chmod(0o755)
    return home


def test_a_relative_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_home(tmp_path / "made")
    monkeypatch.chdir(tmp_path)
    for path in ("made", "./made"):
        monkeypatch.setenv("CANN_SIM_HOME", path)
        with pytest.raises(ValueError, match=f"CANN_SIM_HOME='{path}' is a relative path"):
            cann_sim.home()


@pytest.mark.parametrize(("place", "mode"), [("lib64", 0o777), ("", 0o777), ("lib64", 0o1777), ("..", 0o777)])
def test_a_home_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, mode: int
) -> None:
    home = made_home(tmp_path / "outer" / "made")
    monkeypatch.setenv("CANN_SIM_HOME", str(home))
    assert cann_sim.home() == str(home)
    folder = (home / place).resolve()
    folder.chmod(mode)
    with pytest.raises(PermissionError, match=rf"{folder} \(mode {mode:04o}, owner \w+\).*CANN_SIM_ALLOW_WRITABLE=1"):
        cann_sim.home()
    monkeypatch.setenv("CANN_SIM_ALLOW_WRITABLE", "1")
    assert cann_sim.home() == str(home)
    monkeypatch.delenv("CANN_SIM_ALLOW_WRITABLE")
    folder.chmod(0o1777 if place == ".." else 0o755)  # above the home sticky is enough
    assert cann_sim.home() == str(home)


def test_owners_and_groups_of_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = made_home(tmp_path / "made")
    monkeypatch.setenv("CANN_SIM_HOME", str(home))
    (home / "lib64").chmod(0o775)
    monkeypatch.setattr(trust, "_is_own_group", lambda gid: False)
    with pytest.raises(PermissionError, match="can be written by the group"):
        cann_sim.home()
    (home / "lib64").chmod(0o755)
    if os.geteuid() == 0:  # only root can change the owner of files
        os.chown(home / "lib64", 54321, -1)
        with pytest.raises(PermissionError, match="owner 54321.*belongs to another user"):
            cann_sim.home()


def test_env_prepends_to_search_paths_once() -> None:
    home = cann_sim.home()
    base = {"LD_LIBRARY_PATH": "/a:/b", "PYTHONPATH": "/c", "HOME": "/d", "CANN_SIM_BLAS": "/e"}
    once = cann_sim.env(base)
    assert once == {
        "ASCEND_HOME_PATH": home,
        "ASCEND_TOOLKIT_HOME": home,
        "ASCEND_OPP_PATH": f"{home}/opp",
        "CANN_INSTALL_DIR": home,
        "LD_LIBRARY_PATH": f"{home}/lib64:/a:/b",
        "PYTHONPATH": f"{home}/python/site-packages:/c",
        "PATH": f"{home}/bin:{home}/tools/profiler/bin",
        "CPATH": f"{home}/include",
        "LIBRARY_PATH": f"{home}/lib64",
        "PKG_CONFIG_PATH": f"{home}/lib64/pkgconfig",
        "CMAKE_PREFIX_PATH": home,
    }
    assert cann_sim.env(base | once) == once
    alone = cann_sim.env({})
    assert alone["LD_LIBRARY_PATH"] == f"{home}/lib64"  # no empty part: it would mean the current folder
    assert Path(alone["CANN_SIM_BLAS"]).is_file()


def test_run_gives_a_program_this_cann(run_python: Callable[..., str]) -> None:
    code = "import acl; print(acl.init(), acl.rt.get_device_count(), acl.get_soc_name(), acl.finalize())"
    assert run_python(code, CANN_SIM_DEVICES="5", CANN_SIM_SOC="Ascend910B4").split("\n")[0] == "0 (5, 0) Ascend910B4 0"


def test_run_passes_arguments_and_status_on() -> None:
    done = cann_sim_command("run", "sh", "-c", 'echo "$@"; exit 3', "sh", "--help", "-x", "a b")
    assert (done.returncode, done.stdout) == (3, "--help -x a b\n")


def test_a_closed_pipe_ends_the_program_quietly() -> None:
    command = f"{sys.executable} -m cann_sim run yes | head -1; {sys.executable} -m cann_sim info | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("y\nhome")
    assert done.stderr == ""


def test_run_of_an_unknown_program() -> None:
    done = cann_sim_command("run", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_env_prints_what_a_shell_can_read() -> None:
    exports = cann_sim_command("env").stdout
    done = subprocess.run(["sh", "-c", exports + "echo $ASCEND_OPP_PATH"], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == f"{cann_sim.home()}/opp"


def test_info_counts_the_ops_of_the_tables() -> None:
    done = cann_sim_command("info", CANN_SIM_DEVICES="3", CANN_SIM_MEMORY="16G", CANN_SIM_VERSION="8.3.0")
    assert done.returncode == 0, done.stderr
    head, *groups = done.stdout.split("\n\n")
    assert "CANN 8.3.0" in head and "3 x Ascend910B2, 16.0 GiB each" in head
    names = [text.split(":")[1].split() for text in groups]
    assert f"{len(names[0])} computed, {len(names[1])} refused with 561003, {len(names[2])} absent" in head
    assert sorted(sum(names, [])) == sorted(op.name for op in cann_tables.ops())
    assert "aclnnAdd" in names[0]


SOURCES = sorted((Path(__file__).parents[2] / "src" / "cann_sim").rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_the_package_needs_only_python(path: Path) -> None:
    """It needs nothing but Python, says what lives in each file, and keeps them small."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    assert len(path.read_text().splitlines()) <= 600
    tops = {alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    tops |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    foreign = tops - set(sys.stdlib_module_names)
    own = {"cann_tables"} if path.parent.name == "cann_sim" else set()  # not the acl module, which others load
    assert foreign <= own | ({"numpy"} if path.name == "util.py" else set())


def test_a_command_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
