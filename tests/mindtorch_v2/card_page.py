"""docs/card.md, which several commands write a section of: replaces one and leaves the others."""
from __future__ import annotations

import re
from pathlib import Path

HEAD = "# On a card\n\nWhat is known before one is there. Each section is made by the command that it names; do not edit.\n"


def write_section(page: Path, title: str, text: str) -> None:
    """Puts a section under `## title` in place of the one that was there, or at the end."""
    before = page.read_text() if page.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", before, flags=re.MULTILINE)
    made = f"## {title}\n\n{text.strip()}\n"
    titles = [section.partition("\n")[0] for section in sections]
    if f"## {title}" in titles:
        sections[titles.index(f"## {title}")] = made
    else:
        sections.append(made)
    page.write_text("\n\n".join(part.strip() for part in (head, *sections)) + "\n")
