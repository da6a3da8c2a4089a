"""The comparison of calls with torch_npu's: what counts as the same, and what it says of the rest."""
from __future__ import annotations

import re

import call_parity

ADD = "aclnnAdd(self=f32[2], other=f32[2], alpha=s64 1, out=f32[2]) workspace {}"


def verdict(ours: dict[str, object], theirs: dict[str, object], known: list[tuple[re.Pattern[str], str]] = []) -> tuple[str, str]:  # noqa: B006
    found = call_parity.judge("add", "float32", "forward", ours, theirs, known)
    return found.outcome, found.detail


def test_outcomes() -> None:
    one, cast = {"calls": [ADD.format(0)]}, "aclnnCast(self=f16[2], dtype=0, out=f32[2]) workspace 0"
    assert verdict(one, {"calls": [ADD.format(512)]}) == ("same", "")
    assert verdict({"calls": []}, {"calls": []}) == ("host", "")
    assert verdict({"error": "E"}, one) == ("ours refuses", "E") and verdict(one, {"error": "E"})[0] == "torch_npu refuses"
    more = {"calls": [ADD.format(0), cast]}
    assert verdict(more, one) == ("open", "- aclnnCast(self=f16[2], dtype=0, out=f32[2])")
    assert verdict(more, one, [(re.compile("^add .*-aclnnCast$"), "why")])[0] == "documented"
    assert verdict({"calls": [ADD.format(0)] * 2}, one)[0] == "open"     # as often counts


def test_the_report_names_open_differences() -> None:
    sample = {"forward": {"calls": [ADD.format(0)]}}
    other = {"forward": {"calls": [ADD.format(0).replace("f32[2], alpha", "f16[2], alpha")]}}
    verdicts = call_parity.compare({"add float32": [sample, sample], "mul float16": [sample]},
                                   {"add float32": [sample, other], "mul float16": [sample]})
    text = call_parity.report(verdicts, "make call-parity")
    assert "2 ops compared; 1 without an open difference." in text and "- `add` (1), float32, forward" in text
    assert "| **all** | 2 |  | 1 |" in text


def test_reasons_are_patterns_with_reasons() -> None:
    for pattern, why in call_parity.reasons():
        assert pattern.pattern and len(why.split()) > 3
