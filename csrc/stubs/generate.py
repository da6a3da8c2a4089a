"""Writes, at build time, the type stubs of what is made from tables at import; nothing of it is kept in the tree.

Usage: generate.py SOURCE OUT LIBRARY…: a copy of the packages below SOURCE, as links, goes to OUT, the compiled libraries
into its core, and a stub beside every module whose names a type checker cannot find. OUT is also what mypy reads.
"""
from __future__ import annotations

import importlib
import sys
from pathlib import Path

PACKAGES = ("mindtorch_v2", "mindtorch_dropin", "cann_sim", "cann_tables")


def link(source: Path, out: Path, libraries: list[Path]) -> None:
    """The packages as a user would get them, without a copy; what is gone from the sources goes."""
    wanted = {out / path.relative_to(source): path for package in PACKAGES for path in (source / package).rglob("*")
              if path.is_file() and path.suffix not in (".pyx", ".pxi", ".pxd", ".h", ".cpp", ".pyc")}
    folders = {library: "distributed" if library.name.startswith(("_mpi.", "_process.")) else "_C" for library in libraries}
    wanted |= {out / "mindtorch_v2" / folder / library.name: library for library, folder in folders.items()}
    for old in out.rglob("*"):
        if old.is_symlink() and old not in wanted:
            old.unlink()
    for place, path in wanted.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(path)


def put(path: Path, text: str) -> Path:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def main(source: Path, out: Path, libraries: list[Path]) -> None:
    link(source, out, libraries)
    sys.path.insert(0, str(out))
    torch = importlib.import_module("mindtorch_v2")
    import core
    import modules

    package = out / "mindtorch_v2"
    found = {}
    for file in sorted(package.rglob("*.py")):
        name = ".".join(file.relative_to(out).with_suffix("").parts).removesuffix(".__init__")
        found[file] = importlib.import_module(name)      # all of them first: some put names into others
    special = {package / "_C" / "_core.pyi": core.write(torch, source / "mindtorch_v2"),
               package / "_C" / "__init__.pyi": modules.write_core_package(torch._C),
               package / "return_types.pyi": modules.write_return_types(torch.return_types)}
    special |= {package / "distributed" / f"{file.stem}.pyi": core.write_alone(file)
                for file in (source / "mindtorch_v2" / "distributed").glob("*.pyx")}
    made = {put(path, text) for path, text in special.items()}
    for file, module in found.items():
        text = modules.write(module, file) if file.with_suffix(".pyi") not in made else None
        if text is not None:
            made.add(put(file.with_suffix(".pyi"), text))
    for old in set(package.rglob("*.pyi")) - made:
        old.unlink()
    print(f"stubs: {len(made)} files")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), [Path(a).resolve() for a in sys.argv[3:]])
