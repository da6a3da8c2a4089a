"""`python -m mindtorch_v2 memory` and `trace`: what the pages know of a recording, hostile files, and the pages in a browser."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import browser
import pytest
import torch as judge

import mindtorch_v2 as torch

memory, trace, findings = torch._commands.memory, torch._commands.trace, torch._commands.trace.trace_findings
MIB = 1 << 20


def frame(line: int, name: str = "step", file: str = "/home/me/train.py") -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


def event(action: str, addr: int, size: int, time: int, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": list(frames)}


def snapshot() -> dict[str, Any]:
    """Two segments; a block from before the history; one freed; a failure; one alive with its stack."""
    inner = frame(5, "linear", "/x/site-packages/torch/nn.py")
    history = [
        event("alloc", 0x1000000, 4 * MIB, 10, inner, frame(7)),
        event("free_completed", 0x5000000, 2 * MIB, 20, frame(8)),
        event("alloc", 0x1400000, MIB, 30, frame(9)),
        event("segment_alloc", 0x5000000, 8 * MIB, 35, frame(9)),
        event("oom", 0, 64 * MIB, 40, frame(10)) | {"device_free": 3 * MIB},
        event("free_requested", 0x1000000, 4 * MIB, 50, frame(11)),
        event("free_completed", 0x1000000, 4 * MIB, 50, frame(11)),
    ]  # fmt: skip

    def block(address: int, size: int, state: str, *frames: dict[str, Any]) -> dict[str, Any]:
        return {"address": address, "size": size, "requested_size": size, "state": state, "frames": list(frames)}

    first = [block(0x1000000, 4 * MIB, "inactive"), block(0x1400000, MIB, "active_allocated", frame(9)),
             block(0x1500000, MIB, "active_allocated", frame(3)), block(0x1600000, 2 * MIB, "inactive")]  # fmt: skip
    common = {"device": 0, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False}
    segments = [{**common, "address": 0x1000000, "total_size": 8 * MIB, "blocks": first},
                {**common, "address": 0x5000000, "total_size": 8 * MIB, "blocks": [block(0x5000000, 8 * MIB, "inactive")]}]  # fmt: skip
    return {"segments": segments, "device_traces": [history]}


def written(path: Path, value: Any) -> str:
    path.write_bytes(pickle.dumps(value))
    return str(path)


# ---- memory --------------------------------------------------------------------------------------------------------------
def test_allocations_have_their_begin_end_stack_and_place(tmp_path: Path) -> None:
    device = memory.Device(memory.Snapshot(written(tmp_path / "s", snapshot())), 0, stacks := memory.Stacks())
    rows = list(zip(device.begin, device.end, device.size, device.stack, device.y, strict=True))
    texts = list(stacks.stacks)
    assert [(b, e, s / MIB) for b, e, s, _, _ in rows] == [(0, 6, 4), (0, 1, 2), (2, memory.NEVER, 1), (0, memory.NEVER, 1)]
    assert [list(stacks.frames)[n][2] for n in texts[rows[0][3]]] == [5, 7] and rows[1][3] == 0
    assert [y / MIB for *_, y in rows] == [0, 8, 4, 5], "addresses lie one behind another, without the gap between segments"
    assert [n / MIB for n in device.used] == [7, 5, 6, 6, 6, 6, 2] and device.peak == 0
    assert [n / MIB for n in device.reserved] == [8, 8, 8, 16, 16, 16, 16]
    assert device.problems[0]["size"] == 64 * MIB and device.problems[0]["free"] == 3 * MIB
    (group,) = memory.fragmentation(device.segments)
    assert (group["free"], group["largest"], group["segments"]) == (14 * MIB, 8 * MIB, 2)


def test_a_snapshot_of_this_library(npu: ModuleType, tmp_path: Path) -> None:
    npu.memory._record_memory_history(max_entries=1000)
    try:
        kept = torch.ones(MIB, device="npu")
        npu.memory._dump_snapshot(str(tmp_path / "s.pickle"))
    finally:
        npu.memory._record_memory_history(None)
    device = memory.Device(memory.Snapshot(str(tmp_path / "s.pickle")), 0, stacks := memory.Stacks())
    mine = [n for n, size in enumerate(device.size) if size == 4 * MIB and device.end[n] == memory.NEVER]
    assert mine and kept.numel() == MIB
    frames = [list(stacks.frames)[n] for one in mine for n in list(stacks.stacks)[device.stack[one]]]
    assert any(file.endswith("test_pages.py") for _, file, _ in frames), frames


def test_a_snapshot_goes_to_torchs_viewer_and_to_perfetto(tmp_path: Path) -> None:
    given = written(tmp_path / "s.pickle", snapshot())
    for name in ("out.pickle", "out.json", "out.json.gz"):
        assert memory.main([given, "-o", str(tmp_path / name)]) == 0
    assert pickle.loads((tmp_path / "out.pickle").read_bytes()) == snapshot()
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="PyTorch's own reader of snapshots")
    assert "total_reserved: 16.0MiB" in viz.segsum(pickle.loads((tmp_path / "out.pickle").read_bytes()))
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    assert [e["args"]["in use"] / MIB for e in events if e["ph"] == "C"] == [7, 5, 6, 6, 6, 6, 2]
    assert json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))["traceEvents"] == events
    with pytest.raises(SystemExit):
        memory.main([given, "-o", "out.txt"])


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/evil-snapshot",)

    def __repr__(self) -> str:
        return "Evil()"


@pytest.mark.parametrize("value", [Evil(), {"segments": [Evil()]}, {"segments": 3}, [1, 2], {"other": []}, 7,
                                   {"segments": [], "device_traces": [3]}], ids=repr)  # fmt: skip
def test_hostile_and_wrong_snapshots_are_refused_or_empty(tmp_path: Path, value: Any) -> None:
    path = written(tmp_path / "s", value)
    if value == [1, 2]:
        assert memory.Snapshot(path).segments == []  # a list of no segments
        return
    with pytest.raises(RuntimeError, match=r"^\[memory\] .*") as caught:
        memory.Snapshot(path)
    assert not os.path.exists("/tmp/evil-snapshot") and "\n" not in str(caught.value).strip()


def test_a_small_file_that_names_one_list_very_often(tmp_path: Path) -> None:
    blocks = [{"size": 1}] * 20_000
    with pytest.raises(RuntimeError, match="more than 20,000,000 blocks"):
        memory.Snapshot(written(tmp_path / "s", {"segments": [{"blocks": blocks, "n": n} for n in range(2_000)]}))
    with pytest.raises(RuntimeError, match="more than 20,000,000 events"):
        memory.Snapshot(written(tmp_path / "s", {"segments": [], "device_traces": [blocks] * 2_000}))


def test_files_that_are_no_pickles_say_so(tmp_path: Path) -> None:
    for raw in (b"", b"no pickle", b"\x80\x04r" + struct.pack("<I", 0xFFFFFFF0), pickle.dumps(snapshot())[:-40]):
        (tmp_path / "s").write_bytes(raw)
        with pytest.raises(RuntimeError, match="is no memory snapshot: .*_dump_snapshot"):
            memory.Snapshot(str(tmp_path / "s"))


# ---- traces --------------------------------------------------------------------------------------------------------------
def host_and_device() -> list[dict[str, Any]]:
    """Times as torch_npu writes them; the device waits from 130 to 330, where the host is in a loader."""
    def x(pid: int, tid: int, name: str, ts: float, dur: float, cat: str = "", **args: Any) -> dict[str, Any]:
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": f"{ts:.3f}", "dur": dur, "cat": cat, "args": args}

    return [
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}},
        {"ph": "M", "name": "thread_name", "pid": 9, "tid": 3, "args": {"name": "Stream 3"}},
        x(1, 1, "train.py(12): step", 1000, 700, "python_function"),
        x(1, 1, "aten::linear", 1010, 90, "cpu_op", **{"Input Dims": [[4, 8], [8, 8]]}),
        x(1, 1, "aten::addmm", 1020, 30, "cpu_op"),
        x(1, 1, "loader", 1110, 250, "user_annotation"),
        x(1, 1, "aten::item", 1500, 150, "cpu_op"),
        x(1, 1, "aclrtSynchronizeStream", 1510, 130),
        x(9, 3, "MatMul", 1050, 80), x(9, 3, "Add", 1330, 200),
        {"ph": "B", "pid": 1, "tid": 2, "name": "worker", "ts": 1000}, {"ph": "E", "pid": 1, "tid": 2, "ts": 1200},
        x(1, 1, "broken", -5, 1), {"ph": "X", "name": "no time", "pid": 1, "tid": 1}, "noise", {"ph": "C"},
    ]  # fmt: skip


def read(path: Path, value: Any) -> Any:
    path.write_text(json.dumps(value))
    return trace.read([str(path)])


def test_lanes_rows_gaps_and_waits_of_a_trace(tmp_path: Path) -> None:
    made = read(tmp_path / "t.json", host_and_device())
    assert [(lane["group"], lane["label"], lane["device"]) for lane in made.order] == [
        ("process 1", "thread 1", False), ("process 1", "thread 2", False), ("Ascend Hardware", "Stream 3", True)]  # fmt: skip
    rows = list(made.rows())
    for lane, depth, first, count in rows:  # events of a row do not overlap
        for e in range(first, first + count - 1):
            assert made.time[e] + made.duration[e] <= made.time[e + 1], (lane, depth)
    depths = {made.name_texts[n]: d for n, d in zip(made.name, made.depth, strict=True)}
    assert depths["train.py(12): step"] == 0 and depths["aten::addmm"] == 2 and depths["aclrtSynchronizeStream"] == 2
    assert made.skipped == 2
    idle, waits = findings.find(made, rows)
    assert [(g["duration"], g["text"], g["source"]) for g in idle["items"]] == [
        (200, "Ascend Hardware: host in loader", "train.py(12): step")]  # fmt: skip
    assert [(w["text"], w["duration"], w["source"]) for w in waits["items"]] == [("aten::item", 150, "train.py(12): step")]
    sums = {made.name_texts[row[0]]: row[1:] for row in findings.by_name(made, rows)}
    assert sums["aten::linear"] == [1, 90, 60, 0] and sums["Add"] == [1, 0, 0, 200]


def test_traces_of_torch_and_of_this_library_open(tmp_path: Path) -> None:
    for library, name in ((judge, "theirs"), (torch, "ours")):
        with library.profiler.profile(record_shapes=True, with_stack=True) as prof:
            library.ones(3, 4).relu().sum().item()
        prof.export_chrome_trace(str(tmp_path / name))
        made = trace.read([str(tmp_path / name)])
        assert "aten::relu" in made.name_texts and "Input Dims: [[3, 4]" in "".join(made.detail_texts), name
        assert trace.main([str(tmp_path / name), "-o", str(tmp_path / "again.json")]) == 0
        again = trace.read([str(tmp_path / "again.json")])
        assert len(again.time) == len(made.time) and sorted(again.name_texts) == sorted(made.name_texts)
    assert "test_pages.py(" in (tmp_path / "ours").read_text()


def test_files_of_one_clock_go_into_one_page(tmp_path: Path) -> None:
    events = host_and_device()
    (tmp_path / "host.json").write_text(json.dumps({"traceEvents": events[2:8]}))
    task = {"ph": "X", "pid": 0, "tid": 2, "name": "aclnnAdd", "ts": 1060.0, "dur": 3.0}
    with gzip.open(tmp_path / "device.json.gz", "wt") as file:
        json.dump([task], file)
    made = trace.read([str(tmp_path / "host.json"), str(tmp_path / "device.json.gz")])
    assert [lane["device"] for lane in made.order] == [False, True] and made.order[1]["label"] == "stream 2"


@pytest.mark.parametrize("raw", [b"", b"{", b"3", b'{"traceEvents": 3}', b"[]", b"[" * 100000, b"\x1f\x8bxx"], ids=len)
def test_files_that_are_no_traces_say_so(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(RuntimeError, match=r"^\[trace\] .*t( is no trace: |, found none)"):
        trace.read([str(tmp_path / "t")])


# ---- in a browser --------------------------------------------------------------------------------------------------------
needs_browser = pytest.mark.skipif(browser.EXECUTABLE is None, reason="no Chromium on PATH, and CHROMIUM names none")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    with browser.Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def colors(chromium: browser.Browser, canvas: str) -> int:
    """How many colors a canvas shows."""
    return chromium.evaluate(f"(() => {{ const c = document.getElementById('{canvas}');"
                             "return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size; })()")  # fmt: skip


@needs_browser
def test_the_page_of_a_snapshot(chromium: browser.Browser, tmp_path: Path) -> None:
    value = snapshot()
    value["device_traces"][0][0]["frames"][1]["name"] = "</script><img src=x onerror=alert(1)>"
    out = tmp_path / "page.html"
    memory.main([written(tmp_path / "s", value), "-o", str(out)])
    assert out.stat().st_size < 60_000, "the page without data is small"
    chromium.open(out)
    assert "7 events, 4 allocations, 2 segments; peak 7.00 MiB in use, 8.00 MiB reserved" in chromium.text("#facts")
    assert chromium.text("#moment") == "At the peak: 7.00 MiB in 3 allocations, by stack"
    ranked = chromium.evaluate("[...document.querySelectorAll('#ranked li')].map(e => e.textContent)")
    assert ranked[0].startswith("4.00 MiB 57.1%") and "train.py:7" in ranked[0] and "in nn.py:5 linear" in ranked[0]
    assert colors(chromium, "map") >= 4 and colors(chromium, "segments") >= 3
    chromium.click("#ranked li")
    assert "/home/me/train.py:7 </script><img src=x" in chromium.text("#chosen pre")
    assert chromium.evaluate("document.images.length") == 0
    for _ in range(6):
        chromium.press("]")
    assert chromium.text("#moment").startswith("At event 6: 2.00 MiB in 2 allocations")
    chromium.press("p")
    assert chromium.text("#moment").startswith("At the peak")
    chromium.click("#problems li")
    assert chromium.text("#moment").startswith("At event 4") and "train.py:10" in chromium.text("#chosen")
    chromium.click("#map", 0.05, 0.02)
    assert "4.00 MiB allocated at event 0, freed at event 6" in chromium.text("#chosen")
    chromium.click("#segments", 0.9, 0.2)
    assert "2.00 MiB free" in chromium.text("#chosen")
    assert "14.0 MiB8.00 MiB43%" in chromium.text("#fragmentation")
    before = chromium.evaluate("axis.range.join()")
    chromium.press("+")
    chromium.press("ArrowRight")
    assert chromium.evaluate("axis.range.join()") != before
    chromium.press("t")
    assert chromium.evaluate("document.getElementById('axis').value") == "time"
    assert chromium.errors == []


@needs_browser
def test_the_page_of_a_trace(chromium: browser.Browser, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(host_and_device()))
    trace.main([str(tmp_path / "t.json"), "-o", str(tmp_path / "page.html")])
    chromium.open(tmp_path / "page.html")
    assert "9 events in 3 lanes, 700 us; 2 without a time left out" in chromium.text("#facts")
    found = chromium.evaluate("[...document.querySelectorAll('#findings li')].map(e => e.textContent)")
    assert found == ["200 us Ascend Hardware: host in loader  train.py(12): step", "150 us aten::item  train.py(12): step"]
    assert colors(chromium, "lanes") > 8
    chromium.click("#lanes", 0.5, 48 / chromium.evaluate("data.height"))  # the outermost row of the first lane
    assert "train.py(12): step" in chromium.text("#chosen")
    before = chromium.evaluate("axis.range.join()")
    chromium.click("#findings li")
    assert chromium.evaluate("axis.range.join()") != before and chromium.evaluate("marked[1]") == 200
    chromium.press("/")
    for letter in "linear":
        chromium.press(letter)
    chromium.press("Enter")
    assert "1 found" in chromium.text("#facts") and "Input Dims: [[4, 8], [8, 8]]" in chromium.text("#chosen")
    assert chromium.evaluate("document.querySelectorAll('#summary tr').length") == 10
    assert chromium.errors == []


@needs_browser
def test_a_million_events(chromium: browser.Browser, tmp_path: Path) -> None:
    """The page is made of columns, so the file is made of them here: reading a million events as JSON takes longer."""
    made, n = trace.Trace(), 1_000_000
    made.files, per = ["million"], n // 8
    for name in ("aten::add", "aten::mul", "aten::mm"):
        made.names(name)
    for lane in range(8):
        made.lanes["1", str(lane), False] = {"number": lane, "key": ("1", str(lane), False), "categories": {"kernel" if lane > 3 else ""},
                                             "tasks": 0, "events": per}  # fmt: skip
        made.time.extend(range(0, 10 * per, 10))
        made.duration.extend([9.0] * per)
        made.name.extend([0, 1, 2, 1] * (per // 4))
        made.lane.extend([lane] * per)
        made.detail.extend([0] * per)
    made.arrange()
    (tmp_path / "page.html").write_text(trace.page_of(made))
    chromium.open(tmp_path / "page.html")
    assert "1,000,000 events in 8 lanes" in chromium.text("#facts")
    for _ in range(12):
        chromium.press("+")
    assert colors(chromium, "lanes") > 3
    chromium.click("#lanes", 0.5, 48 / chromium.evaluate("data.height"))
    assert "9.00 us" in chromium.text("#chosen") and chromium.errors == []
