"""torch_npu's profiler on the simulator: the tables that it makes of what `msprof` exports."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import torch
from torch_npu import profiler


def test_tables_of_the_device(tmp_path: Path) -> None:
    level = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1, export_type=[profiler.ExportType.Text, profiler.ExportType.Db]
    )
    with profiler.profile(
        schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path)),
        experimental_config=level,
    ) as session:
        for _ in range(2):
            (torch.ones(3, 8).npu() @ torch.ones(8, 4).npu()).sum().item()
            session.step()
    (folder,) = tmp_path.glob("*/ASCEND_PROFILER_OUTPUT")
    kernels = list(csv.DictReader((folder / "kernel_details.csv").open()))
    assert {"aclnnMatmul", "aclnnReduceSum"} <= {row["Name"] for row in kernels}
    assert {row["Step Id"] for row in kernels} == {"0", "1"}
    assert [row["Step"] for row in csv.DictReader((folder / "step_trace_time.csv").open())] == ["0", "1"]
    events = json.loads((folder / "trace_view.json").read_text())
    assert any(e.get("cat") == "async_npu" for e in events)  # an arrow from an op of torch to its kernel
    with sqlite3.connect(folder / "ascend_pytorch_profiler.db") as base:
        names = {row[0] for row in base.execute("SELECT value FROM STRING_IDS")}
        apis = base.execute("SELECT COUNT(*) FROM PYTORCH_API").fetchone()[0]
    assert "aclnnMatmul" in names and apis
