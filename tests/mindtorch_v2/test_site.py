"""The documentation: links lead somewhere, translations have the same commands, the site lists every page, comparisons work."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import docs_commands
import pytest
import readme_figures

ROOT = docs_commands.ROOT
DOCS = ROOT / "docs"
MADE = {"architecture.md", "contributing.md", "security.md", "changelog.md", "license.md"}  # of the site, by docs/make_site.py
TRANSLATIONS = {"README.zh-CN.md": "README.md", "docs/zh/getting-started.md": "docs/getting-started.md"}
PAGES = [*docs_commands.pages(), *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"))]


def anchors(path: Path) -> set[str]:
    """What headings of a page are called in links."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\s-]", "", title.replace("`", "")).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", text):
        if target.startswith(("http://", "https://")):
            continue
        place = (path.parent / target).resolve() if target else path
        if place.parent == DOCS and place.name in MADE or place.is_relative_to(DOCS / "reference"):
            continue
        assert place.exists(), f"{target} of {path.name}"
        assert not anchor or anchor[1:] in anchors(place), f"{target}{anchor} of {path.name}: {sorted(anchors(place))}"


def code(path: Path) -> list[str]:
    """The blocks of a page without comments."""
    return [re.sub(r"\s+#.*", "", block.text) for block in docs_commands.blocks(path.read_text())]


@pytest.mark.parametrize("name", TRANSLATIONS)
def test_translations_have_the_same_commands_and_parts(name: str) -> None:
    ours, theirs = ROOT / name, ROOT / TRANSLATIONS[name]
    assert code(ours) == code(theirs)
    for mark in (r"^## ", r"^\|", r"^- "):
        assert len(re.findall(mark, ours.read_text(), re.M)) == len(re.findall(mark, theirs.read_text(), re.M)), mark


def test_the_site_lists_every_page(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "make_site.py", tmp_path, "--pages-only"], check=True, capture_output=True)
    made = {path.relative_to(tmp_path / "pages").as_posix() for path in (tmp_path / "pages").rglob("*.md")}
    listed = set(re.findall(r"([\w./-]+\.md)$", (DOCS / "mkdocs.yml").read_text(), re.M))
    assert made == listed
    text = (tmp_path / "pages" / "reference" / "torch.md").read_text()
    section = text.partition("\n### addmm\n")[2].partition("\n### ")[0]
    for part in ("addmm(input: Tensor", "npu: aclnnAddmm", "float16", "bfloat16"):
        assert part in section, section
    assert text.count("\n### ") > 700


def test_what_a_page_shows_is_compared() -> None:
    shown = "$ f   # a comment\none … three\n…\nlast\n$ g\n"
    first, second = docs_commands.commands(shown)
    assert (first.text, second.text, second.prints) == ("f", "g", None) and first.prints is not None
    assert docs_commands.matches(first.prints, "one two three\n\nany\nmore\nlast\n")
    assert docs_commands.matches(first.prints, "one 2 three\nlast\n")
    assert not docs_commands.matches(first.prints, "one two\nlast\n") and not docs_commands.matches(first.prints, "one 2 three\nelse\n")


def test_what_is_not_run_has_a_reason() -> None:
    for path in docs_commands.pages():
        assert path.read_text().count("<!-- not run") == sum(bool(block.reason) for block in docs_commands.blocks(path.read_text())), path


@pytest.mark.parametrize("name", readme_figures.READMES)
def test_figures_are_those_of_the_pages_behind_them(name: str) -> None:
    text = (ROOT / name).read_text()
    assert readme_figures.updated(text) == text, "run python tests/mindtorch_v2/readme_figures.py"
    stale = re.sub(r"\| \d+ / ", "| 1 / ", text)
    assert stale != text and readme_figures.updated(stale) == text


def test_rows_that_compare_name_the_command_behind_them() -> None:
    """Each row of the README's tables of comparison and support ends in a command that exists."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in readme_figures.READMES:
        tables = re.findall(r"(?:^\|.*\n)+", (ROOT / name).read_text(), re.M)
        for row in [row for table in tables[:2] for row in table.splitlines()[2:]]:
            command = re.match(r"`(?:make ([\w-]+)|python -m mindtorch_v2 info)`", row.split("|")[4].strip())
            assert command and (command[1] is None or command[1] in targets), row


@pytest.mark.parametrize("path", [path for path in docs_commands.pages() if path.name in docs_commands.FIRST],
                         ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_first_pages_activate_the_venv_before_they_use_it(path: Path) -> None:
    shown = [command.text for block in docs_commands.blocks(path.read_text()) if docs_commands.is_commands(block)
             for command in docs_commands.commands(block.text)]
    before = shown[:shown.index(docs_commands.ACTIVATE)]
    assert before and all(command.startswith("make ") for command in before)
