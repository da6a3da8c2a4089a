"""Asks how the rows are served on each CANN and SoC that the simulator can be, and writes the table: `make version-matrix`.

    python tests/mindtorch_v2/version_matrix.py [docs/card.md]
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from card_page import write_section

VERSIONS = ("8.0", "8.1", "8.2", "8.3", "8.5")
SOCS = ("910A", "910B", "910_93", "310P", "950")
ASK = "import json, mindtorch_v2.npu.report as report; print(json.dumps(report.rows()))"
Rows = dict[str, dict[str, str]]


def ask(version: str, soc: str) -> Rows:
    """report.rows() of one CANN on one SoC."""
    environ = {**os.environ, "CANN_SIM_VERSION": version, "CANN_SIM_SOC": soc}
    command = [str(Path(sys.executable).parent / "cann-sim"), "run", sys.executable, "-c", ASK]
    answer: Rows = json.loads(subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout)
    return answer


def counts(rows: Rows) -> str:
    return " / ".join(str(len(rows[how])) for how in ("serves", "falls back", "refuses"))


def named(rows: Rows, how: str, but: Rows | None = None) -> str:
    """The rows of one kind with their calls, in which another CANN or SoC differs."""
    names = {name: call for name, call in sorted(rows[how].items()) if but is None or name not in but[how]}
    lists = [name for name in names if name.startswith("_foreach_")]
    found = [f"`{name}` ({call})" for name, call in names.items() if name not in lists]
    return ", ".join(found + [f"{len(lists)} of `torch._foreach_*`"] * bool(lists)) or "none"


def text(found: dict[tuple[str, str], Rows]) -> str:
    """The section of docs/card.md."""
    lines = ["Made by `make version-matrix`: the simulator as each version (`CANN_SIM_VERSION`) and SoC (`CANN_SIM_SOC`). Of the rows "
             "that name an aclnn op, how many are served by it / fall back to a body of other ops / refuse by name. What a version has "
             "and a SoC has kernels of is as far as `src/cann_tables/versions.txt` knows: symbols are attested by headers of 8.1, 8.5, 9.0 "
             "and by the torch_npu that was released for each version, kernels by CANN's documents.", "",
             "| CANN | " + " | ".join(SOCS) + " |", "|---" * (len(SOCS) + 1) + "|"]
    lines += [f"| {version} | " + " | ".join(counts(found[version, soc]) for soc in SOCS) + " |" for version in VERSIONS]
    lines += ["", "What differs, by version on a 910B:", ""]
    for version in VERSIONS:
        here = found[version, "910B"]
        lines += [f"- {version}: refuses {named(here, 'refuses')}; falls back {named(here, 'falls back')}"]
    lines += ["", "and by SoC with 8.5, beside a 910B:", ""]
    base = found["8.5", "910B"]
    for soc in SOCS:
        here = found["8.5", soc]
        lines += [f"- {soc}: refuses {named(here, 'refuses', base)}; falls back {named(here, 'falls back', base)}"] * (soc != "910B")
    return "\n".join([*lines, "", "910A and 310P have no bfloat16 (CANN refuses it with 161002), and multiply float32 as float16: rows "
                      "ask for that there (cubeMathType 2), as torch_npu does."])


def main() -> None:
    found = {(version, soc): ask(version, soc) for version in VERSIONS for soc in SOCS}
    section = text(found)
    if len(sys.argv) > 1:
        write_section(Path(sys.argv[1]), "Versions and SoCs", section)
    else:
        print(section)


if __name__ == "__main__":
    main()
