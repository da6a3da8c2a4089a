"""The parser of CANN's tables: what it reads, and that it refuses what it does not know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cann_tables
from cann_tables import Argument

ROOT = Path(__file__).parents[2]


def test_every_row_is_read() -> None:
    ops = cann_tables.ops()
    assert len({op.name for op in ops}) == len(ops) > 1000
    add = cann_tables.op("aclnnAdd")
    assert add is not None and add.arguments is not None and add.since == cann_tables.OLDEST
    assert [(a.kind, a.name) for a in add.arguments] == [
        ("tensor", "self"), ("tensor", "other"), ("scalar", "alpha"), ("out", "out")
    ]  # fmt: skip
    assert cann_tables.op("aclnnNoSuchOp") is None
    assert any(op.arguments is None for op in ops)
    assert cann_tables.numbers()["ACL_FLOAT16"] == 1 and len(cann_tables.functions()) > 700


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor x", Argument("tensor", "x")),
        ("tensor x? f16/bf16 2 dense", Argument("tensor", "x", True, ("f16", "bf16"), (2, 2), False, True)),
        ("out y 1-3", Argument("out", "y", ranks=(1, 3))),
        ("out y 0-8~", Argument("out", "y", ranks=(0, 8), ranks_guessed=True)),
    ],
)
def test_an_argument(text: str, expected: Argument) -> None:
    assert Argument.parse(text) == expected


@pytest.mark.parametrize("text", ["tensors_ x", "tensor x f17", "tensor x 3-2", "tensor x max8", "tensor x 1-2-3", "tensor x 0-9"])
def test_an_unknown_word_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown"):
        Argument.parse(text)


def test_guesses_are_marked() -> None:
    """A range that is not in the documents is marked as ours: "x + 1.5" depends on one."""
    adds = cann_tables.op("aclnnAdds")
    assert adds is not None and adds.arguments is not None
    assert adds.arguments[0].ranks == (0, 8) and adds.arguments[0].ranks_guessed


def test_the_tables_have_one_reader() -> None:
    names = "|".join(re.escape(path.name) for path in (ROOT / "src" / "cann_tables").glob("*.txt"))
    folders = [ROOT / name for name in ("src", "csrc", "tests", "benchmarks")]
    readers = [p for folder in folders for p in folder.rglob("*.py") if re.search(rf'"({names})"', p.read_text())]
    assert [p.parent.name for p in readers] == ["cann_tables"]
