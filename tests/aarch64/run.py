"""Builds the package for aarch64 on this machine and runs a selection of both suites under qemu: `make test-aarch64`.

    python tests/aarch64/run.py [--build build/aarch64] [--cpu neoverse-n1,max] [--keep] [--report docs/card.md] [TEST ...]

Needs Debian's cross compiler and emulator (PROGRAMS), apt to fetch arm64 packages of Python, and pip for aarch64 wheels;
nothing of the machine is changed.
"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "mindtorch_v2"))
from card_page import write_section  # noqa: E402

PROGRAMS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "qemu-aarch64-static": "qemu-user-static", "apt-get": "apt",
            "dpkg-deb": "dpkg"}
# Debian's Python of the same minor version as the one that compiles; what its modules and NumPy link to.
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = (f"{PYTHON} {PYTHON}-minimal lib{PYTHON}-dev lib{PYTHON} lib{PYTHON}-stdlib lib{PYTHON}-minimal libc6 libstdc++6 libgcc-s1 "
            "zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1 libcrypt1 libgomp1 libgfortran5").split()
WHEELS = ("numpy", "scipy-openblas32")
PURE = ("pytest", "expecttest")
PLATFORMS = [option for tag in ("2_28", "2_27", "2_17") for option in ("--platform", f"manylinux_{tag}_aarch64")]
# What needs no PyTorch: PyPI's for aarch64 is built for CUDA, and ends in a segmentation fault under qemu. Dtypes, autograd,
# random numbers, saving, HCCL and pyACL are in the programs; then the launcher with calls at random, the memory of devices, graphs,
# gradients and fused ops on the simulated npu, and the runtime and the exports of the simulator.
PROGRAMS_ALONE = ["tests/aarch64/test_programs.py"]
SUITES = [*PROGRAMS_ALONE, *(f"tests/cann_sim/test_{name}.py" for name in ("abi", "home", "pyacl", "runtime_graphs", "runtime_refusals")),
          *(f"tests/mindtorch_v2/test_{name}.py" for name in (
              "blas", "fuzz_launch", "npu_allocator", "npu_gradients", "npu_fused", "npu_graphs", "npu_integers"))]


def run(*command: str | Path, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def check_programs() -> None:
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if missing:
        sys.exit(f"missing here: apt-get install {' '.join(missing)}")


def unpack_root(root: Path, work: Path) -> None:
    """The arm64 packages, fetched with an apt of their own: the machine's lists and architectures stay."""
    if (root / "usr" / "bin" / PYTHON).exists():
        return
    debs = work / "debs"
    for folder in (root, debs, work / "apt" / "lists" / "partial", work / "apt" / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    (work / "apt" / "status").touch()
    apt = ["apt-get", "-qq", "-o", "APT::Architecture=arm64", "-o", "APT::Architectures=arm64",
           "-o", f"Dir::State::Lists={work}/apt/lists", "-o", f"Dir::State::status={work}/apt/status",
           "-o", f"Dir::Cache={work}/apt/cache", "-o", "APT::Sandbox::User=root"]
    run(*apt, "update")
    run(*apt, "download", *(f"{name}:arm64" for name in PACKAGES), cwd=debs)
    for deb in sorted(debs.glob("*.deb")):
        run("dpkg-deb", "-x", deb, root)


def fetch_wheels(site: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--only-binary=:all:",
           "--implementation", "cp", "--python-version", PYTHON.removeprefix("python"), *PLATFORMS, "--target", str(site), "--upgrade"]
    if wanted := [name for name in WHEELS if not (site / name.replace("-", "_")).exists()]:
        run(*pip, *wanted)
    if not (site / "pytest").exists():
        run(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", site, *PURE)


def build(work: Path, root: Path, site: Path) -> None:
    """Compiles with the Cython of this Python."""
    headers = f"{root}/usr/include/{PYTHON}"
    run("cmake", "-S", ROOT, "-B", work / "cmake", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/tests/aarch64/toolchain.cmake", f"-DPython_EXECUTABLE={sys.executable}",
        f"-DPython_INCLUDE_DIR={headers}", f"-DCMAKE_CXX_FLAGS=-isystem {root}/usr/include", stdout=subprocess.DEVNULL)
    run("cmake", "--build", work / "cmake")
    for package in (ROOT / "src").iterdir():
        if package.is_dir():
            shutil.copytree(package, site / package.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.p[xy][xid]"))
    run("cmake", "--install", work / "cmake", "--prefix", site, stdout=subprocess.DEVNULL)


def make_python(work: Path, root: Path, site: Path, cpu: str) -> Path:
    """A command that is this Python under the emulator; tests start it again as sys.executable."""
    python = work / f"python-{cpu}"
    python.write_text(f"#!/bin/sh\nexec qemu-aarch64-static -cpu {cpu} -L {root} -E PYTHONHOME={root}/usr "
                      f"{root}/usr/bin/{PYTHON} \"$@\"\n")
    python.chmod(0o755)
    (site / "sitecustomize.py").write_text("import os, sys\nsys.executable = os.environ['EMULATED_PYTHON']\n")
    return python


def run_suite(python: Path, site: Path, suite: list[str]) -> tuple[int, str]:
    """The exit status of a suite, and the last line that pytest says."""
    # The emulator itself runs out of memory where a device reserves all of its own.
    environ = {**os.environ, "PYTHONPATH": str(site), "CANN_SIM_MEMORY": "1G", "ASCEND_HOME_PATH": f"{site}/cann_sim/home",
               "CANN_SIM_BLAS": f"{site}/scipy_openblas32/lib/libscipy_openblas.so", "EMULATED_PYTHON": str(python), "CC": "aarch64-linux-gnu-gcc"}
    done = subprocess.run([python, "-m", "pytest", "-p", "no:cacheprovider", *suite], cwd=ROOT, env=environ, text=True,
                          stdout=subprocess.PIPE)
    print(done.stdout, flush=True)
    return done.returncode, done.stdout.strip().rpartition("\n")[2].strip("= ")


def section(found: dict[tuple[str, str], str]) -> str:
    """Of docs/card.md."""
    lines = ["Made by `make test-aarch64`: cross-compiled by g++ for aarch64, run under `qemu-aarch64-static`; OpenBLAS is that of the "
             "wheel scipy-openblas32. Nothing that PyTorch judges is in it: PyPI's PyTorch for aarch64 does not start under qemu.", "", "| processor | tests | outcome |", "|---|---|---|"]
    return "\n".join(lines + [f"| {cpu} | `{suite}` | {said} |" for (cpu, suite), said in found.items()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "aarch64")
    parser.add_argument("--cpu", default="neoverse-n1,max", help="what qemu is; `max` has SVE and SME")
    parser.add_argument("--keep", action="store_true", help="run what was built before")
    parser.add_argument("--report", type=Path)
    parser.add_argument("tests", nargs="*")
    chosen = parser.parse_args()
    work = chosen.build.resolve()
    root, site = work / "root", work / "site"
    check_programs()
    unpack_root(root, work)
    fetch_wheels(site)
    if not chosen.keep:
        begin = time.monotonic()
        build(work, root, site)
        print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    status, found = 0, {}
    for cpu in chosen.cpu.split(","):
        python = make_python(work, root, site, cpu)
        for suite in chosen.tests or (PROGRAMS_ALONE if cpu == "max" else SUITES):
            code, found[cpu, suite] = run_suite(python, site, [suite])
            status |= code
    if chosen.report:
        write_section(chosen.report, "aarch64", section(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
