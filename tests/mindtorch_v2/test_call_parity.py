"""The comparison of calls with torch_npu's: what counts as the same, and what it says of the rest."""
from __future__ import annotations

import re
from collections.abc import Sequence

import call_parity
import call_runtime

ADD = "aclnnAdd(self=f32[2], other=f32[2], alpha=s64 1, out=f32[2]) workspace {}"


def verdict(ours: dict[str, object], theirs: dict[str, object], known: Sequence[tuple[re.Pattern[str], str]] = (),
            attested: frozenset[str] = frozenset()) -> tuple[str, str]:
    found = call_parity.judge("add", "float32", "forward", ours, theirs, list(known), attested)
    return found.outcome, found.detail


def test_outcomes() -> None:
    one, unstated = {"calls": [ADD.format(0)]}, "aclnnSinc(self=f16[2], out=f16[2]) workspace 0"
    assert verdict(one, {"calls": [ADD.format(512)]}) == ("same", "")
    assert verdict({"calls": []}, {"calls": []}) == ("host", "")
    assert verdict({"error": "E"}, one) == ("ours refuses", "E") and verdict(one, {"error": "E"})[0] == "torch_npu refuses"
    more = {"calls": [ADD.format(0), unstated]}
    assert verdict(more, one, attested=frozenset({call_parity.signature(ADD.format(0))})) == ("open", "- aclnnSinc(self=f16[2], out=f16[2])")
    assert verdict(more, one, [(re.compile("^add .*-aclnnSinc$"), "why")])[0] == "documented"
    twice = {"calls": [ADD.format(0)] * 2}                               # as often counts
    assert verdict(twice, one)[0] == "documented"                        # by the table of aclnnAdd's dtypes
    assert verdict(twice, one, attested=frozenset({call_parity.signature(ADD.format(0))}))[0] == "attested"


def test_what_the_tables_state() -> None:
    assert call_parity.is_stated("aclnnAdd(self=f32[2], other=bf16[2], alpha=s64 1, out=f32[2])")
    assert not call_parity.is_stated("aclnnAdd(self=f32[2], other=u64[2], alpha=s64 1, out=f32[2])")
    assert not call_parity.is_stated("aclnnSinc(self=f32[2], out=f32[2])")           # no dtypes are known
    assert not call_parity.is_stated("aclnnAdaptiveAvgPool2d(self=f32[2], outputSize=[1], out=f32[2])")      # ranks


def test_the_report_names_open_differences() -> None:
    sample = {"forward": {"calls": [ADD.format(0)]}}
    other = {"forward": {"calls": ["aclnnSinc(self=f16[2], out=f16[2]) workspace 0"]}}
    verdicts = call_parity.compare({"add float32": [sample, other], "mul float16": [sample]},
                                   {"add float32": [sample, sample], "mul float16": [sample]})
    text = call_parity.report(verdicts, "make call-parity")
    assert "2 ops compared; 1 without an open difference." in text and "- `add` (1), float32, forward" in text
    assert "| **all** | 2 |  |  | 1 |" in text


def test_kinds_of_names() -> None:
    names = ("add", "module nn.Linear", "optimizer SGD", "model LSTM", "modular")
    assert [call_parity.Verdict(name, "float32", "forward", "same", "").kind for name in names] == [
        "op", "module", "optimizer", "model", "op"]


def test_functions_of_the_runtime() -> None:
    """What only one of both calls is open unless a line says why; what only asks does not count."""
    ours = {"start": ["aclInit", "aclrtCreateContext(deviceId=0)", "aclrtGetDevice", "aclInit"]}
    theirs = {"start": ["aclInit", "aclrtSetDeviceSatMode(mode=1)", "aclrtQueryEventStatus"]}
    found = call_runtime.compare(ours, theirs, [(re.compile("^runtime start -aclrtCreateContext"), "a context of its own")])
    assert [(d.call, d.ours, d.reason) for d in found["start"]] == [
        ("aclrtCreateContext(deviceId=0)", True, "a context of its own"), ("aclrtSetDeviceSatMode(mode=1)", False, "")]
    text = call_runtime.report(found, ours, theirs)
    assert "| start | 1 | 1 | 1 |" in text
    assert "- a context of its own: only this library: `aclrtCreateContext(deviceId=0)`" in text
    assert text.endswith("- **open**: only torch_npu: `aclrtSetDeviceSatMode(mode=1)`\n")


def test_reasons_are_patterns_with_reasons() -> None:
    for pattern, why in call_parity.reasons():
        assert pattern.pattern and len(why.split()) > 3
