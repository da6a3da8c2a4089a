"""Builds the documentation site: docs/, the pages at the top of the repository, and a reference made from the op table.

`make docs` calls it. Nothing is fetched, and mkdocs runs strictly: a link or an anchor that leads nowhere fails the build.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cann_tables
import mindtorch_v2 as torch
from mindtorch_v2._ops import describe

ROOT = Path(__file__).resolve().parent.parent
TOP = {"ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
       "CHANGELOG.md": "changelog.md", "LICENSE": "license.md"}  # fmt: skip
NAMESPACES = {
    "torch": torch, "torch.Tensor": torch.Tensor, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft, "torch.special": torch.special, "torch.optim": torch.optim,
    "torch.npu": torch.npu, "torch.autograd": torch.autograd, "torch.amp": torch.amp, "torch.library": torch.library,
    "torch.distributed": torch.distributed, "torch.utils.data": torch.utils.data,
}  # fmt: skip
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "s64": "int64", "s32": "int32",
          "s16": "int16", "s8": "int8", "u8": "uint8", "bool": "bool", "c64": "complex64", "c128": "complex128"}  # fmt: skip
Op = type(torch.add)


# ---- pages ---------------------------------------------------------------------------------------------------------------
def copy_pages(folder: Path) -> None:
    """All pages below one folder, with links as they are there."""
    for path in (ROOT / "docs").rglob("*.md"):
        place = folder / path.relative_to(ROOT / "docs")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path.read_text())
    for name, made in TOP.items():
        text = (ROOT / name).read_text()
        text = f"# License\n\n```\n{text}\n```\n" if name == "LICENSE" else text
        (folder / made).write_text(re.sub(r"\]\(([^)#:]+)(#[^)]*)?\)", relinked, text))


def relinked(link: re.Match[str]) -> str:
    """A link of a page at the top of the repository, for the site."""
    target = TOP.get(link[1], link[1].removeprefix("docs/"))
    return f"]({'index.md' if target == 'README.md' else target}{link[2] or ''})"


# ---- reference -----------------------------------------------------------------------------------------------------------
def write_reference(folder: Path) -> dict[str, int]:
    """A page for each namespace and an index with their numbers of names."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name, holder in NAMESPACES.items():
        entries = list(entries_of(name, holder))
        counts[name] = len(entries)
        text = f"# {name}\n\nMade from the op table and the docstrings.\n\n" + "\n".join(text for _, text in sorted(entries))
        (folder / f"{name}.md").write_text(text)
    lines = ["# API reference", "", "Every op has PyTorch's signature; below it stands what serves it on each device, and the "
             "dtypes that the calls of CANN take for the first tensor. [Coverage](../coverage.md) has the results of "
             "PyTorch's own tests by op and dtype.", "", "| namespace | names |", "|---|---|"]  # fmt: skip
    lines += [f"| [{name}]({name}.md) | {count} |" for name, count in counts.items()]
    (folder / "index.md").write_text("\n".join(lines) + "\n")
    return counts


def entries_of(name: str, holder: Any) -> Iterator[tuple[str, str]]:
    """(name, section) of every public name."""
    for word in dir(holder):
        if word.startswith("_") and not (isinstance(holder, type) and word in ("__getitem__", "__setitem__")):
            continue
        value = getattr(holder, word)
        if isinstance(value, Op):
            yield word, op_entry(word, value)
        elif callable(value) and not isinstance(value, ModuleType) and (value.__doc__ or "").strip():
            yield word, f"### {word}\n\n{first_sentence(value)}\n"


def op_entry(word: str, op: Any) -> str:
    forms = "\n".join(f"{word}{form}" for form in describe.signatures(op))
    served = "; ".join(line.strip() for line in describe._devices(op).splitlines())
    taken = npu_dtypes(served)
    said = describe.sentence(op).strip().split("\n\n")[0]
    return f"### {word}\n\n```python\n{forms}\n```\n\n{escaped(said)}\n\n*{served}*{f' ({taken})' if taken else ''}\n"


def npu_dtypes(served: str) -> str:
    """The dtypes of the first tensor of the calls of CANN."""
    found: dict[str, None] = {}
    for call in re.findall(r"aclnn\w+", served):
        known = cann_tables.op(call)
        tensors = [a for a in known.arguments if a.kind in ("tensor", "inout") and a.dtypes] if known else []
        found |= dict.fromkeys(DTYPES.get(dtype, dtype) for dtype in (tensors[0].dtypes if tensors else ()))
    return ", ".join(found)


def first_sentence(value: Any) -> str:
    return escaped(" ".join(value.__doc__.strip().split("\n\n")[0].split()))


def escaped(text: str) -> str:
    """Text whose stars, brackets and underscores are no markup."""
    return re.sub(r"([*_<>\[\]`])", r"\\\1", text)


# ---- the command ---------------------------------------------------------------------------------------------------------
def report(step: str) -> None:
    print(f"docs: {step}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="folder for the sources and the site")
    parser.add_argument("--pages-only", action="store_true", help="do not run mkdocs")
    args = parser.parse_args()
    pages = args.build / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    steps: list[tuple[str, Callable[[], Any]]] = [("pages", lambda: copy_pages(pages)),
                                                  ("reference", lambda: write_reference(pages / "reference"))]  # fmt: skip
    for name, step in steps:
        report(name)
        step()
    if args.pages_only:
        return 0
    config = (ROOT / "docs" / "mkdocs.yml").read_text()
    (args.build / "mkdocs.yml").write_text(f"docs_dir: pages\nsite_dir: site\n{config}")
    report("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", args.build / "mkdocs.yml"]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
