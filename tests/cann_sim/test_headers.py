"""The headers of the home: they compile as C and C++, say what the tables say, and all that they declare links."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from programs import run as programs

import cann_sim
import cann_tables

HOME = Path(cann_sim.home())
INCLUDE = HOME / "include"
HEADERS = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.rglob("*.h"))
DOCS = Path(__file__).parents[2] / "docs" / "cann_sim.md"
C, CXX = Path("t.c"), Path("t.cpp")

pytestmark = pytest.mark.skipif(not (shutil.which("cc") and shutil.which("c++")), reason="there is no C or C++ compiler")


def compile_text(text: str, kind: Path, folder: Path, *flags: str) -> None:
    source = folder / kind
    source.write_text(text)
    command = [*programs.compiler(kind), *cann_sim.compile_flags(), str(source), *(flags or ("-fsyntax-only",))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[:4000]


def including(headers: list[str]) -> str:
    return "".join(f"#include <{name}>\n" for name in headers)


@pytest.mark.parametrize("kind", [C, CXX], ids=["C99", "C++11"])
def test_all_headers_compile_without_a_warning(kind: Path, tmp_path: Path) -> None:
    compile_text(including(HEADERS) + "int main(void) { return 0; }\n", kind, tmp_path)


@pytest.mark.parametrize("header", [h for h in HEADERS if not h.startswith("aclnnop/")] + ["aclnnop/aclnn_add.h"])
def test_a_header_needs_no_other(header: str, tmp_path: Path) -> None:
    compile_text(including([header, header]) + "typedef int nothing;\n", C, tmp_path)


def test_every_op_and_function_has_its_header() -> None:
    """628 of CANN 8.1's 771 op headers follow from the name; the others are rows of the table."""
    for op in cann_tables.ops():
        assert (INCLUDE / cann_tables.header(op.name)).is_file(), op.name
    assert cann_tables.header("aclnnFlashAttentionScoreV2") == "aclnnop/aclnn_flash_attention_score.h"
    assert cann_tables.header("aclnnInplaceAdd") == cann_tables.header("aclnnAdds") == "aclnnop/aclnn_add.h"
    assert cann_tables.header("aclnnNLLLoss2d") == "aclnnop/aclnn_nll_loss2d.h"
    assert cann_tables.header("aclrtMalloc") == "acl/acl_rt.h"
    assert "aclnn_add.h" in (INCLUDE / "aclnnop/level2/aclnn_add.h").read_text()


def test_sizes_of_structs_and_values_of_enums(tmp_path: Path) -> None:
    types = [t for t in cann_tables.types() if t.size]
    assert len(types) > 60
    sizes = [f"typedef char size_{t.name}[sizeof({t.name}) == {t.size} ? 1 : -1];" for t in types]
    compile_text(including(HEADERS) + "\n".join(sizes) + "\n", C, tmp_path)
    values = [f'static_assert({name} == {value}{"ull" if value >= 1 << 63 else "ll"}, "");' for name, value in cann_tables.numbers().items()]
    assert len(values) > 900
    flags = ("-fsyntax-only", "-Wno-sign-compare")  # an unsigned flag beside the plain number of the table
    compile_text(including(HEADERS) + "\n".join(values) + "\n", CXX, tmp_path, *flags)


def declared_functions() -> list[str]:
    texts = [(INCLUDE / header).read_text() for header in HEADERS]
    return sorted({name for text in texts for name in re.findall(r"^[\w *]+?\b(\w+)\([^()]*\);$", text, re.M)})


def test_every_declared_function_links(tmp_path: Path) -> None:
    names = declared_functions()
    assert len(names) > 2500 and {"aclInit", "aclnnAdd", "aclnnAddGetWorkspaceSize", "HcclAllReduce", "aclrtMalloc"} <= set(names)
    table = ",\n".join(f"  (void (*)(void)){name}" for name in names)
    libraries = {f.library[3:-3] for f in cann_tables.functions() if cann_tables.header(f.name)}
    text = including(HEADERS) + f"int main(void) {{\n  static void (*const all[])(void) = {{\n{table}}};\n  return !all[0];\n}}\n"
    program = tmp_path / "all"
    compile_text(text, C, tmp_path, *cann_sim.link_flags(), *(f"-l{name}" for name in libraries), "-o", str(program))
    subprocess.run([program], check=True, timeout=600, env=os.environ | cann_sim.env())


# ---- programs ---------------------------------------------------------------------------------------------------
def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    listing = re.search(r"```cpp\n(.*?)```", DOCS.read_text(), re.S)
    assert listing and listing[1] == (programs.FOLDER / "add.cpp").read_text().split("\n", 1)[1]
    done = programs.run(programs.build(programs.FOLDER / "add.cpp", tmp_path), {})
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 6 9 12 ", "")


@pytest.mark.parametrize("name", ["streams.c", "products.cpp", "capture.cpp", "allreduce.cpp", "single_op.c", "graph_engine.cpp"])
def test_a_program(name: str, tmp_path: Path) -> None:
    done = programs.run(programs.build(programs.FOLDER / name, tmp_path), {"CANN_SIM_STRICT": "1"})
    assert (done.returncode, done.stderr) == (0, "")


def command(*words: str) -> str:
    return subprocess.run(words, env=os.environ | cann_sim.env(), capture_output=True, text=True, check=True, timeout=600).stdout


def test_flags_of_the_command() -> None:
    home = str(HOME)
    both = command(sys.executable, "-m", "cann_sim", "cc").split()
    assert both == cann_sim.compile_flags() + cann_sim.link_flags()
    assert command(sys.executable, "-m", "cann_sim", "cc", "--cflags").split() == [f"-I{home}/include"]
    assert f"-L{home}/lib64" in command(sys.executable, "-m", "cann_sim", "cc", "--libs").split()


def test_a_compiler_in_the_environment_needs_no_flags(tmp_path: Path) -> None:
    program = tmp_path / "streams"
    command("cc", "-std=c99", str(programs.FOLDER / "streams.c"), "-lascendcl", "-o", str(program))
    assert command(str(program)) == "streams: OK\n"


@pytest.mark.parametrize("folder", ["acllib", "fwkacllib", "runtime", "compiler", f"{os.uname().machine}-linux"])
def test_older_folders_compile_and_link(folder: str, tmp_path: Path) -> None:
    program, there = tmp_path / "streams", HOME / folder
    source = str(programs.FOLDER / "streams.c")
    subprocess.run(["cc", f"-I{there}/include", source, f"-L{there}/lib64", "-lascendcl", "-o", program], check=True, timeout=600)
    assert command(str(program)) == "streams: OK\n"


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="there is no pkg-config")
def test_pkg_config() -> None:
    words = command("pkg-config", "--cflags", "--libs", "cann").split()
    assert {"-lascendcl", "-lopapi", "-lnnopbase"} <= set(words)
    assert (Path(words[0].removeprefix("-I")) / "acl" / "acl.h").is_file()


@pytest.mark.skipif(not shutil.which("cmake"), reason="there is no CMake")
def test_find_package(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(client LANGUAGES CXX)\nfind_package(CANN 8.0 REQUIRED)\n"
        f"add_executable(client {programs.FOLDER / 'add.cpp'})\ntarget_link_libraries(client PRIVATE CANN::opapi)\n"
    )
    command("cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"))
    command("cmake", "--build", str(tmp_path / "build"))
    assert command(str(tmp_path / "build" / "client")) == "3 6 9 12 "


# ---- npu-smi ----------------------------------------------------------------------------------------------------
def npu_smi(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | cann_sim.env() | settings
    return subprocess.run(["npu-smi", *words], env=environment, capture_output=True, text=True, timeout=600)


def test_npu_smi_answers_for_the_devices() -> None:
    done = npu_smi("info", CANN_SIM_DEVICES="3", CANN_SIM_SOC="Ascend910B4", CANN_SIM_MEMORY="16G")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[6].split()[2] == "910B4"  # where build scripts look for the SoC
    assert len({len(line) for line in lines}) == 1, done.stdout
    assert sum("910B4" in line for line in lines) == 3 and lines[7].split()[-2] == "16384"
    assert "Total Count                    : 3" in npu_smi("info", "-l", CANN_SIM_DEVICES="3").stdout


def test_npu_smi_refuses_what_it_does_not_know() -> None:
    done = npu_smi("set", "-t", "reset")
    assert done.returncode == 1 and "not available" in done.stderr
