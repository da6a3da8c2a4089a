"""The check of OpenBLAS when it is opened: one that multiplies wrongly is refused by name, and plainer kernels are taken."""
from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = importlib.util.find_spec("scipy_openblas32")
assert SPEC is not None and SPEC.submodule_search_locations
FOLDER = Path(SPEC.submodule_search_locations[0]) / "lib"
PLAINER = "NEOVERSEN1" if platform.machine() == "aarch64" else "Haswell"
# Stands before the library and spoils one item of large products, unless WHEN_ASKED_FOR kernels are asked for.
SPOILED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
typedef void (*Gemm)(const char*, const char*, const int*, const int*, const int*, const REAL*, const REAL*, const int*,
                     const REAL*, const int*, const REAL*, REAL*, const int*, size_t, size_t);
static int spoils;
__attribute__((constructor)) static void begin(void) {
  const char* core = getenv("OPENBLAS_CORETYPE");
  spoils = !core || strcmp(core, "WHEN_ASKED_FOR");
}
const char* scipy_openblas_get_corename(void) { return spoils ? "SPOILED" : "RIGHT"; }
void NAME(const char* ta, const char* tb, const int* m, const int* n, const int* k, const REAL* alpha, const REAL* a,
          const int* lda, const REAL* b, const int* ldb, const REAL* beta, REAL* c, const int* ldc, size_t x, size_t y) {
  ((Gemm)dlsym(RTLD_NEXT, "NAME"))(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, x, y);
  if (spoils && *m >= 64 && *n >= 16 && *tb == 'T') c[*ldc * (*n - 1) + *m - 1] += 1;
}
"""
PROGRAM = """
import sys, mindtorch_v2 as torch
torch._C._core._set_blas_path(sys.argv[1])
x = torch.arange(64 * 64).reshape(64, 64).to(torch.float32) % 7
try:
    print(bool(((x @ x.T) == (x.double() @ x.T.double())).all()))
except RuntimeError as error:
    print(error)
"""


def spoiled(folder: Path, right: str, kind: str = "float", name: str = "scipy_sgemm_") -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    assert compiler, "a C compiler builds the package, and this test's library"
    source, made = folder / "spoiled.c", folder / "libspoiled.so"
    source.write_text(SPOILED.replace("REAL", kind).replace("NAME", name).replace("WHEN_ASKED_FOR", right))
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, source, f"-L{FOLDER}", "-Wl,--no-as-needed",
                    "-lscipy_openblas", f"-Wl,-rpath,{FOLDER}", "-ldl"], check=True)
    return made


def run(library: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, str(library)], env=os.environ | environ, capture_output=True, text=True,
                          timeout=600)


@pytest.mark.parametrize(("kind", "name"), [("float", "scipy_sgemm_"), ("double", "scipy_dgemm_")])
def test_a_wrong_library_is_refused_with_name_and_core_type(tmp_path: Path, kind: str, name: str) -> None:
    library = spoiled(tmp_path, "never", kind, name)
    said = run(library).stdout
    assert said.startswith("no OpenBLAS here multiplies correctly:\n") and said.count(f"{library}, core type SPOILED: ") == 3
    assert f"{kind[0] if kind == 'double' else 's'}gemm" in said and "64 x 64 x 64, NT" in said


def test_the_next_kernels_are_taken(tmp_path: Path) -> None:
    library = spoiled(tmp_path, PLAINER)
    done = run(library, OPENBLAS_CORETYPE="")
    assert done.stdout.strip() == "True", done.stderr
    assert f"{library}, core type SPOILED: sgemm" in done.stderr and f"used instead: {library}, core type RIGHT" in done.stderr


def test_the_environment_stays_as_it_was(tmp_path: Path) -> None:
    program = PROGRAM + "import ctypes\nget = ctypes.CDLL(None).getenv\nget.restype = ctypes.c_char_p\n" \
        "print(get(b'OPENBLAS_CORETYPE'))"
    environ = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    done = subprocess.run([sys.executable, "-c", program, str(spoiled(tmp_path, PLAINER))], env=environ, capture_output=True,
                          text=True, timeout=600)
    assert done.stdout.split() == ["True", "None"], done.stderr


def test_the_installed_library_is_right() -> None:
    done = run(FOLDER / "libscipy_openblas.so")
    assert done.stdout.strip() == "True" and done.stderr == ""
