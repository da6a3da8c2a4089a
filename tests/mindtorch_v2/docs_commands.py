"""Runs every command and program of the documentation, as a reader would, and compares what they print. `make docs-test`.

A block of commands has lines that begin with "$ " and below each what it prints; "…" stands for anything, a line of it alone for
any lines. A block ```python title="x.py"``` is written to that file; other Python blocks of a page are one program, run on the
npu. A comment <!-- not run: REASON --> before a block leaves it out. Each page has a folder of its own, with links to the repository.
The pages that a reader begins with have to say `. .venv/bin/activate`: until then their commands run without the venv.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "README.zh-CN.md", "docs/**/*.md")
FENCE = re.compile(r"(?:<!-- not run: (?P<reason>.*?) -->\n)?^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)
FIRST = ("README.md", "README.zh-CN.md", "getting-started.md")
ACTIVATE = ". .venv/bin/activate"
LIMIT = 600


class Block(NamedTuple):
    """A fenced block: its language, the file it is, its text, why it is not run."""
    language: str
    title: str
    text: str
    reason: str


class Command(NamedTuple):
    """A command and what it prints; None: nothing is said."""
    text: str
    prints: str | None


def pages() -> list[Path]:
    return sorted(path for pattern in PAGES for path in ROOT.glob(pattern))


def blocks(text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        language, _, rest = match["info"].partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        found.append(Block(language, title[1] if title else "", match["text"], match["reason"] or ""))
    return found


def commands(text: str) -> list[Command]:
    """The commands of a block; a comment behind two blanks is no part of one."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((re.sub(r"\s{2,}#.*$", "", line[2:]), []))
        elif found:
            found[-1][1].append(line)
    return [Command(command, "\n".join(lines) + "\n" if any(map(str.strip, lines)) else None) for command, lines in found]


def is_commands(block: Block) -> bool:
    return block.language in ("", "console") and any(line.startswith("$ ") for line in block.text.splitlines())


def matches(expected: str, printed: str) -> bool:
    """Whether a program printed what a page shows; blank lines do not count."""
    lines = [line.rstrip() for line in expected.splitlines() if line.strip()]
    pattern = "".join("(?:.*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.split("…"))) + "[ \t]*\n" for line in lines)
    printed = "".join(line.rstrip() + "\n" for line in printed.splitlines() if line.strip())
    return re.fullmatch(pattern, printed) is not None


def environment(active: bool) -> dict[str, str]:
    """The variables of a command, with the venv of this program or without it, and without those of `make docs-test`."""
    tools = os.path.dirname(sys.executable)
    others = [folder for folder in os.environ["PATH"].split(":") if folder != tools]
    kept = {name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return kept | {"PATH": ":".join([tools] * active + others), "PYTHONWARNINGS": "ignore"}


def run(command: str, folder: Path, prints: str | None, active: bool = True) -> str:
    """"" where a command ends well and prints what it should; else what is wrong."""
    try:
        ended = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment(active), capture_output=True, text=True,
                               timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT} s"
    if ended.returncode:
        return f"exit code {ended.returncode}\n{(ended.stdout + ended.stderr)[-3000:]}"
    if prints is not None and not matches(prints, ended.stdout):
        return f"expected\n{prints}\ngot\n{ended.stdout[-3000:]}"
    return ""


def run_page(path: Path, folder: Path) -> tuple[int, list[str], list[str]]:
    """(commands that were run, what is wrong, what was left out)."""
    for entry in ROOT.iterdir():
        if entry.name not in (".git",):
            (folder / entry.name).symlink_to(entry)
    ran, wrong, left_out, program, active = 0, [], [], "", path.name not in FIRST
    for block in blocks(path.read_text()):
        if block.reason:
            left_out.append(f"{block.text.splitlines()[0]}  ({block.reason})")
        elif block.title:
            (folder / block.title).write_text(block.text)
        elif is_commands(block):
            if program:                           # what the page's program leaves behind may be what a command reads
                (folder / "page_program.py").write_text(program)
                if said := run("cann-sim run python page_program.py", folder, None):
                    wrong.append(f"the Python blocks: {said}")
            for command in commands(block.text):
                began = time.monotonic()
                said = run(command.text, folder, command.prints, active)
                ran, active = ran + 1, active or command.text == ACTIVATE
                print(f"  {time.monotonic() - began:6.1f} s  {'failed' if said else 'ok    '}  {command.text}", flush=True)
                if said:
                    wrong.append(f"$ {command.text}\n{said}")
        elif block.language == "python":
            program += block.text + "\n"
    if program:
        (folder / "page_program.py").write_text(program)
        said = run("cann-sim run python page_program.py", folder, None)
        print(f"          {'failed' if said else 'ok    '}  Python of the page", flush=True)
        wrong += [f"the Python blocks: {said}"] if said else []
    return ran, wrong, left_out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for the names of pages")
    args = parser.parse_args()
    failed = total = 0
    for path in pages():
        name = path.relative_to(ROOT).as_posix()
        if not re.search(args.only, name):
            continue
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            ran, wrong, left_out = run_page(path, Path(folder))
        total, failed = total + ran, failed + len(wrong)
        for text in left_out:
            print(f"          not run  {text}")
        for text in wrong:
            print("\n".join("    " + line for line in text.splitlines()))
    print(f"{total} commands, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
