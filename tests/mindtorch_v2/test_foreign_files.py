"""Files of torch on CUDA and of torch_npu, in the layouts that these write: what the pages of `memory` and `trace` make of them."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import torch.cuda._memory_viz as viewer

import mindtorch_v2 as torch

memory, trace, findings = torch._commands.memory, torch._commands.trace, torch._commands.trace.trace_findings
MIB = 1 << 20


# ---- a snapshot of torch.cuda.memory._dump_snapshot -----------------------------------------------------------------------
def cuda_snapshot() -> dict[str, Any]:
    """Two devices; stacks with C++ frames; a block whose free waits for a stream; expandable segments; an OOM; annotations."""
    python = {"filename": "/home/me/train.py", "line": 31, "name": "forward"}
    native = {"filename": "??", "line": 0, "name": "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)"}
    stack, other = [native, python], [{"filename": "/home/me/train.py", "line": 44, "name": "backward"}]

    def entry(action: str, size: int, time: int, frames: list[dict[str, Any]], **more: int) -> dict[str, Any]:
        return {"action": action, **more, "size": size, "stream": 0, "time_us": 1_760_000_000_000_000 + time,
                "compile_context": "N/A", "user_metadata": "", "frames": frames}  # fmt: skip

    base = 0x7F1A_4000_0000
    events = [
        entry("segment_map", 4 * MIB, 0, stack, addr=base),
        entry("alloc", 3 * MIB, 1, stack, addr=base),
        entry("alloc", MIB, 5, other, addr=base + 3 * MIB),
        entry("free_requested", 3 * MIB, 9, other, addr=base),
        entry("free_completed", 3 * MIB, 12, other, addr=base),
        entry("oom", 512 * MIB, 20, stack, device_free=7 * MIB),
        entry("snapshot", 0, 25, [], addr=0),
    ]  # fmt: skip
    segment = {
        "device": 0, "address": base, "total_size": 4 * MIB, "allocated_size": MIB, "active_size": MIB, "requested_size": MIB - 24,
        "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True, "registered": False, "frames": stack,
        "blocks": [
            {"address": base, "size": 3 * MIB, "requested_size": 3 * MIB, "state": "inactive", "frames": []},
            {"address": base + 3 * MIB, "size": MIB, "requested_size": MIB - 24, "state": "active_allocated", "frames": other},
        ],
    }  # fmt: skip
    waiting = {"address": base + 64 * MIB, "size": 2 * MIB, "requested_size": 2 * MIB, "state": "active_awaiting_free", "frames": stack}
    second = {**segment, "device": 1, "address": base + 64 * MIB, "total_size": 2 * MIB, "is_expandable": False, "blocks": [waiting]}
    return {
        "segments": [segment, second], "device_traces": [events, []],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1},
        "external_annotations": [{"stage": "START", "name": "step", "device": 0, "time_us": 1_760_000_000_000_000}],
    }  # fmt: skip


def test_a_snapshot_of_torch_on_cuda(tmp_path: Path) -> None:
    value = cuda_snapshot()
    assert "OutOfMemoryError" in viewer.trace(value) and "segments: 2" in viewer.segsum(value)  # PyTorch's own tools read the layout
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value))
    read = memory.Snapshot(str(path))
    stacks = memory.Stacks()
    first, second = (memory.Device(read, index, stacks) for index in (0, 1))
    assert (read.devices, first.peak, max(first.used)) == (2, 2, 4 * MIB)
    assert list(first.reserved) == [4 * MIB] * 7 and list(first.times) == [0, 1, 5, 9, 12, 20, 25]
    assert [(p["event"], p["size"], p["free"]) for p in first.problems] == [(5, 512 * MIB, 7 * MIB)]
    ends = dict(zip(first.size, first.end, strict=True))
    assert ends == {3.0 * MIB: 4, float(MIB): memory.NEVER}
    assert [block[:2] for block in second.facts(stacks)["segments"][0]["blocks"]] == [[2 * MIB, 2]]
    assert memory.main([str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert memory.main([str(path), "-o", str(tmp_path / "again.pickle")]) == 0
    assert "OutOfMemoryError" in viewer.trace(pickle.loads((tmp_path / "again.pickle").read_bytes()))


def test_the_list_of_segments_that_memory_snapshot_gives(tmp_path: Path) -> None:
    path = tmp_path / "segments.pickle"
    path.write_bytes(pickle.dumps(cuda_snapshot()["segments"]))
    read = memory.Snapshot(str(path))
    assert [max(memory.Device(read, index, memory.Stacks()).used) for index in (0, 1)] == [MIB - 24, 2 * MIB]


# ---- trace_view.json of torch_npu.profiler ----------------------------------------------------------------------------------
def npu_trace() -> list[dict[str, Any]]:
    """Python, CANN, hardware, communication and the analysis of overlap; times are texts with three digits."""
    def named(pid: int, name: str, label: str, threads: dict[int, str]) -> list[dict[str, Any]]:
        return [{"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}},
                {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}},
                {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}},
                *({"ph": "M", "name": "thread_name", "pid": pid, "tid": t, "args": {"name": n}} for t, n in threads.items())]  # fmt: skip

    def x(pid: int, tid: int, name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": f"{1_760_000_000_000_000 + ts:.3f}", "dur": dur, "args": args}

    task = {"Model Id": 4294967295, "Stream Id": 2, "Task Id": 5, "Batch Id": 0, "Subtask Id": 4294967295}
    stack = "/home/me/train.py(12): step;\r\n/usr/lib/python3/site-packages/torch/nn/modules/module.py(1): __call__"
    return [
        *named(10, "Python", "CPU", {1: "Thread 1"}), *named(11, "CANN", "CPU", {1: "Thread 1"}),
        *named(12, "Ascend Hardware", "NPU", {2: "Stream 2"}), *named(13, "Communication", "NPU", {0: "Group 0 Communication"}),
        *named(14, "Overlap Analysis", "NPU", {0: "Computing", 3: "Free"}),
        x(10, 1, "aten::mm", 10, 40, **{"Input Dims": [[4, 8], [8, 8]], "Input type": ["float", "float"], "Call stack": stack}),
        x(11, 1, "AscendCL@aclnnMatmul", 20, 20, Mode="ACL_OP", level="acl"),
        {"ph": "s", "name": "async_npu", "id": "7", "pid": 10, "tid": 1, "ts": "1760000000000010.000", "cat": "async_npu"},
        {"ph": "f", "bp": "e", "name": "async_npu", "id": "7", "pid": 12, "tid": 2, "ts": "1760000000000050.000", "cat": "async_npu"},
        x(12, 2, "aclnnMatmul_MatMulCommon_MatMulV2", 50, 50, **task, **{"Task Type": "AI_CORE"}),
        x(10, 1, "loader", 60, 400, **{"Call stack": stack}),
        x(12, 2, "aclnnAdd_AddAiCore_Add", 400, 30, **task, **{"Task Type": "AI_VECTOR_CORE"}),
        x(13, 0, "hcom_allReduce__123_0_1", 400, 30), x(14, 0, "Computing", 50, 50), x(14, 3, "Free", 100, 300),
        x(14, 0, "Computing", 400, 30), {"ph": "C", "name": "AI Core Freq", "pid": 15, "ts": "1760000000000001.000", "args": {"MHz": 1800}},
        x(11, 1, "AscendCL@aclrtSynchronizeStream", 480, 15),
    ]  # fmt: skip


def test_a_trace_of_torch_npu(tmp_path: Path) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(npu_trace()))
    made = trace.read([str(path)])
    kinds = {lane["group"]: (lane["device"], lane["derived"]) for lane in made.order}
    assert kinds == {"Python CPU": (False, False), "CANN CPU": (False, False), "Ascend Hardware NPU": (True, False),
                     "Communication NPU": (True, True), "Overlap Analysis NPU": (True, True)}  # fmt: skip
    rows = list(made.rows())
    idle, waits = findings.find(made, rows)
    assert [(g["time"], g["duration"], g["text"], g["source"]) for g in idle["items"]] == [
        (90, 300, "Ascend Hardware NPU: host in loader", "/home/me/train.py(12): step")]  # fmt: skip
    assert [w["text"] for w in waits["items"]] == ["AscendCL@aclrtSynchronizeStream"]
    sums = {made.name_texts[row[0]]: row[1:] for row in findings.by_name(made, rows)}
    assert sums["aclnnAdd_AddAiCore_Add"] == [1, 0, 0, 30]
    assert not sums.keys() & {"Free", "Computing", "hcom_allReduce__123_0_1"}, "summaries of tasks are no tasks"
    assert any("Task Type: AI_CORE" in text for text in made.detail_texts)


# ---- torch.profiler on CUDA ----------------------------------------------------------------------------------------------------
def test_annotations_on_a_gpu_hide_no_gap(tmp_path: Path) -> None:
    """kineto puts record_function's spans into the lanes of the kernels; a step's span covers all that the device waited."""
    def x(cat: str, name: str, pid: int, tid: int, ts: float, dur: float) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {}}

    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "ts": 0, "args": {"labels": "GPU 0"}},
        x("user_annotation", "ProfilerStep#2", 99, 99, 100, 900), x("cpu_op", "aten::mm", 99, 99, 110, 30),
        x("cuda_runtime", "cudaLaunchKernel", 99, 99, 120, 5), x("cuda_runtime", "cudaDeviceSynchronize", 99, 99, 900, 50),
        x("gpu_user_annotation", "ProfilerStep#2", 0, 7, 130, 700),
        x("kernel", "ampere_sgemm_128x64_tn", 0, 7, 130, 100), x("kernel", "reduce_kernel", 0, 7, 700, 130),
    ]  # fmt: skip
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events}, file)
    made = trace.read([str(path)])
    assert [(lane["label"], lane["device"], lane["derived"]) for lane in made.order] == [
        ("thread 99", False, False), ("stream 7", True, False), ("stream 7 (annotations)", True, True)]  # fmt: skip
    idle, waits = findings.find(made, list(made.rows()))
    assert [(g["time"], g["duration"], g["text"]) for g in idle["items"]] == [(130, 470, "python GPU 0: host in ProfilerStep#2")]
    assert [w["text"] for w in waits["items"]] == ["cudaDeviceSynchronize"]
    assert trace.main([str(path), "-o", str(tmp_path / "again.json")]) == 0
    again = trace.read([str(tmp_path / "again.json")])
    assert [g["duration"] for g in findings.find(again, list(again.rows()))[0]["items"]] == [470]
