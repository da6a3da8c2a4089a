"""What `python -m mindtorch_v2 info` queries from CANN, the driver and the devices, and its advice for common problems."""
from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from typing import Any, TypedDict

import cann_tables
from cann_tables import advice
from mindtorch_v2 import _config
from mindtorch_v2._backends.npu import acl_loader, errors, ops, runtime, soc
from mindtorch_v2._ops import foreach, table
from mindtorch_v2._ops import npu as npu_rows
from mindtorch_v2._row import Npu
from mindtorch_v2.npu import devices, memory

Facts = dict[str, Any]


class Problem(TypedDict):
    """Something that is wrong, and the command or text that helps."""
    what: str
    remedy: str


DRIVER_FILES = ("/usr/local/Ascend/driver/version.info", "/usr/local/Ascend/version.info")
DEVICE_FILES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc", "/dev/davinci[0-9]*")
GROUP = "HwHiAiUser"                              # owns the device files, as the driver installs them


def cann() -> Facts:
    """Which CANN is loaded, from where, and how its runtime is called; `error` where there is none."""
    places = {name: path or "(not set)" for name, path in _config.ascend_homes().items()}
    try:
        module = acl_loader.ensure_acl()
    except (errors.CannNotFoundError, errors.UntrustedCannError, OSError) as error:
        return {"error": str(error), "kind": type(error).__name__, "places": places}
    return {"home": acl_loader.home(), "version": acl_loader.cann_version(), "libraries": acl_loader.libraries(),
            "acl": getattr(module, "__file__", None) or "binding of mindtorch_v2", "places": places}


def driver() -> Facts:
    """The driver's version, and whether this user can open the device files that it makes."""
    found: Facts = {"version": None, "files": {}}
    for file in DRIVER_FILES:
        if found["version"] is None and os.path.exists(file):
            with open(file, encoding="utf-8", errors="replace") as text:
                stated = re.search(r"^\s*Version\s*=\s*(\S+)", text.read(), re.IGNORECASE | re.MULTILINE)
            found["version"] = stated[1] if stated else None
    for pattern in DEVICE_FILES:
        for file in sorted(glob.glob(pattern)):
            found["files"][file] = os.access(file, os.R_OK | os.W_OK)
    return found


def symbols() -> Facts:
    """The aclnn ops of the tables that this CANN has, and those that rows of the op table name and it lacks."""
    known = [op.name for op in cann_tables.ops()]
    missing = [name for name in known if not acl_loader.has_symbol(f"{name}GetWorkspaceSize")]
    lacking = set(missing)
    rows: dict[str, list[str]] = {}
    for schema, row in table.rows:
        for name in calls_of(row["npu"]) & lacking:
            rows.setdefault(name, []).append(schema.name)
    return {"known": len(known), "missing": sorted(missing), "rows_without": {name: rows[name] for name in sorted(rows)}}


def rows() -> dict[str, dict[str, str]]:
    """How each row that names a call of CANN is served with this CANN on this SoC: a word of ops.service() -> row -> op."""
    found: dict[str, dict[str, str]] = {"serves": {}, "falls back": {}, "refuses": {}}
    for schema, row in (*table.rows, *npu_rows.written):
        name = f"{schema.name}.{schema.overload}" if schema.overload else schema.name
        needed = ops.BODIES[name].needs if name in ops.BODIES else ""
        forms = needed or row["npu"] or foreach.calls.get(name)
        if forms:
            forms = Npu(forms) if isinstance(forms, str) else forms
            found[ops.service(name, forms, row["body"] is not None)][name] = forms.call.partition("(")[0]
    return found


def calls_of(npu: Any) -> set[str]:
    """The aclnn ops that a row's calls name."""
    if npu is None:
        return set()
    texts = [npu] if isinstance(npu, str) else [npu.call, npu.without_optional or "", *npu.number.values()]
    return {found[1] for text in texts if (found := re.match(r"(aclnn\w+)", text or ""))}


def device(index: int) -> Facts:
    """One device, which is started for it."""
    stated = devices.get_device_properties(index)
    free, total = memory.mem_get_info(index)
    return {"index": index, "name": stated.name, "free_bytes": free, "total_bytes": total,
            "cube_cores": stated.cube_core_num, "vector_cores": stated.vector_core_num}


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change what CANN or this library does."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(advice.VARIABLES)}


def probe() -> Facts:
    """Everything that needs CANN's libraries in the process: what they are, their symbols, each device."""
    found: Facts = {"cann": cann()}
    if "error" in found["cann"]:
        return found
    found["symbols"] = symbols()
    try:
        found["count"] = runtime.device_count()
        found["soc"], found["family"] = soc.name(), soc.family()
        found["rows"] = rows()
        found["torch_npu"] = {"offered": len(npu_rows.functions), "refused": len(npu_rows.refused_names())}
        found["devices"] = [device(index) for index in range(found["count"])]
    except (RuntimeError, OSError) as error:
        found["device_error"] = str(error)
    return found


def problems(facts: Facts) -> list[Problem]:
    """What is wrong in the facts of probe() and driver(), worst first."""
    if "died" in facts:
        return [Problem(what=f"CANN ended the process that asked it ({facts['died']})",
                        remedy="run `npu-smi info`; if that fails too, restart the host or install the driver again")]
    stated = facts["cann"]
    if "error" in stated:
        what = stated["error"].removesuffix(acl_loader.INSTALL)
        return [Problem(what=what.rstrip(), remedy=advice.WITHOUT_A_CARD if what == stated["error"] else acl_loader.INSTALL)]
    found = _device_problems(facts)
    lacking = facts["symbols"]["rows_without"]
    if lacking:
        names = ", ".join(sorted({row for rows in lacking.values() for row in rows})[:12])
        found.append(Problem(what=f"CANN {stated['version']} lacks {len(lacking)} aclnn ops that ops of torch name ({names} …)",
                             remedy="they are made of others or refused by name, as `ops of torch` says; a later CANN has them"))
    return found


def _device_problems(facts: Facts) -> list[Problem]:
    files, count = facts["driver"]["files"], facts.get("count", 0)
    closed = [file for file, usable in files.items() if not usable]
    hidden = facts["settings"].get("ASCEND_RT_VISIBLE_DEVICES")
    found: list[Problem] = []
    if "device_error" in facts:
        found.append(Problem(what=facts["device_error"], remedy=_pairing(facts)))
    elif not count and closed:
        found.append(Problem(what=f"this user may not open {', '.join(closed)}",
                             remedy=f"sudo usermod -aG {GROUP} $USER, then log in again"))
    elif not count and hidden is not None:
        found.append(Problem(what=f"ASCEND_RT_VISIBLE_DEVICES={hidden} leaves no device", remedy="unset ASCEND_RT_VISIBLE_DEVICES"))
    elif not count:
        missing = "there are no device files /dev/davinci*" if not files else "CANN sees no device"
        found.append(Problem(what=missing, remedy="install the Ascend driver and check `npu-smi info`. " + advice.WITHOUT_A_CARD))
    return found


def _pairing(facts: Facts) -> str:
    version = facts["driver"]["version"]
    known = f"driver {version}" if version else "a driver of unknown version"
    return (f"CANN {facts['cann']['version']} runs with {known} here: check in CANN's release notes that they belong together, "
            "and that `npu-smi info` shows the device healthy and free")


def schemas() -> list[Any]:
    """The schemas of all rows."""
    return [schema for schema, _ in table.rows]
