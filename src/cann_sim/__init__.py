"""Where this CANN for any host lives and what a program needs in its environment to find it. The libraries are C++."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from cann_tables import trust

__all__ = ["compile_flags", "env", "home", "link_flags"]

# Search paths and what of the home goes in front: what programs load, what compilers and their tools look for.
SEARCHED = {
    "LD_LIBRARY_PATH": ("/lib64",),
    "PYTHONPATH": ("/python/site-packages",),
    "PATH": ("/bin", "/tools/profiler/bin"),
    "CPATH": ("/include",),
    "LIBRARY_PATH": ("/lib64",),
    "PKG_CONFIG_PATH": ("/lib64/pkgconfig",),
    "CMAKE_PREFIX_PATH": ("",),
}
LINKED = ("opapi", "nnopbase", "ascendcl")  # what a program of aclnn ops needs; others are named as well: -lhccl


def home() -> str:
    """The folder laid out like an installed toolkit; CANN_SIM_HOME names another one (a build, not installed)."""
    given = os.environ.get("CANN_SIM_HOME")
    if given and not os.path.isabs(given):
        raise ValueError(
            f"[cann_sim] CANN_SIM_HOME={given!r} is a relative path, which would make the current directory a place to "
            "load code from; set it to the full path"
        )
    found = Path(given or Path(__file__).parent / "home").resolve()
    if not (found / "lib64" / "libascendcl.so").is_file():
        raise FileNotFoundError(
            f"[cann_sim] expected lib64/libascendcl.so under {found}; "
            "install the package (make build), or let CANN_SIM_HOME name a home that was built"
        )
    objection = "" if os.environ.get("CANN_SIM_ALLOW_WRITABLE") == "1" else trust.objection(f"{found}/lib64", str(found))
    if objection:
        raise PermissionError(
            f"[cann_sim] {found}/lib64 is not used, because {objection}, or set CANN_SIM_ALLOW_WRITABLE=1 if you trust them"
        )
    return str(found)


def env(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that make a program find this CANN; search paths keep what `base` (default: os.environ) has."""
    base = os.environ if base is None else base
    root = home()

    def prepend(folders: list[str], name: str) -> str:
        rest = [part for part in base.get(name, "").split(os.pathsep) if part and part not in folders]
        return os.pathsep.join([*folders, *rest])

    found = {
        "ASCEND_HOME_PATH": root,
        "ASCEND_TOOLKIT_HOME": root,
        "ASCEND_OPP_PATH": f"{root}/opp",
        "CANN_INSTALL_DIR": root,
    }
    found |= {name: prepend([root + folder for folder in folders], name) for name, folders in SEARCHED.items()}
    blas = find_spec("scipy_openblas32")  # the libraries look beside this package; it may be elsewhere
    if blas and blas.origin and "CANN_SIM_BLAS" not in base:
        found["CANN_SIM_BLAS"] = str(Path(blas.origin).parent / "lib" / "libscipy_openblas.so")
    return found


def compile_flags() -> list[str]:
    """What a C or C++ compiler needs to find the headers."""
    return [f"-I{home()}/include"]


def link_flags() -> list[str]:
    """What a linker needs; the program finds the libraries again without LD_LIBRARY_PATH."""
    return [f"-L{home()}/lib64", f"-Wl,-rpath,{home()}/lib64", *(f"-l{name}" for name in LINKED)]
