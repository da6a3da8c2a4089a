"""Which SoC the devices are, and which family it belongs to: CANN has some kernels for some families only."""
from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import cann_tables
from mindtorch_v2._backends.npu import runtime
from mindtorch_v2._backends.npu.errors import check

# A family by the beginning of a name, as CANN's platform files group them. "Ascend910B" without a digit is an Ascend910.
_FAMILIES = {
    r"910B\d": "Ascend910B", r"910_93": "Ascend910_93", r"910_55": "Ascend910_55", r"(910_95|950)": "Ascend950",
    r"910": "Ascend910", r"310P": "Ascend310P", r"310B": "Ascend310B", r"310": "Ascend310",
}
CUBE_AND_VECTOR = ("Ascend910B", "Ascend910_93", "Ascend950")   # Atlas A2, A3 and later


_known: tuple[Any, str] = None, ""               # CANN as it was loaded, and what it called the SoC


def name() -> str:
    """What CANN calls the SoC; "" where it says nothing. All devices of a host have the same."""
    global _known
    acl = runtime.load_acl()
    if acl is not _known[0] or not _known[1]:
        ask = getattr(acl, "get_soc_name", None)
        _known = acl, (ask() if ask else "") or ""
        if ask and not _known[1]:
            warnings.warn("CANN does not say what the SoC is (aclrtGetSocName): nothing that only some SoCs have is used",
                          stacklevel=2)
    return _known[1]


def family() -> str:
    """The family of the SoC, such as "Ascend910B"; "" for one that is not known."""
    return family_of(name())


@functools.cache
def family_of(soc: str) -> str:
    """The family of a SoC by its name."""
    return next((found for start, found in _FAMILIES.items() if re.match(f"Ascend{start}", soc)), "")


def has_cube_and_vector_cores() -> bool:
    """Whether this is an Atlas A2 or later: sums that overflow are infinite, and float32 is multiplied as such."""
    return family() in CUBE_AND_VECTOR


def has_kernels(op: str) -> bool:
    """Whether CANN has kernels of an aclnn op for this SoC; of one that is not known, those that all have."""
    families = cann_tables.families(op)
    return families is None or family() in families


_INFINITIES = 1                                  # ACL_RT_OVERFLOW_MODE_INFNAN


def _keep_infinities(device_id: int) -> None:
    """Sums that overflow are to be infinite where the cores can have it so, whatever another program set; torch_npu too says it."""
    set_mode = getattr(runtime.load_acl().rt, "set_device_sat_mode", None)
    if set_mode is not None and has_cube_and_vector_cores():
        check(set_mode(_INFINITIES), f"aclrtSetDeviceSatMode of device {device_id}")


runtime.on_open(_keep_infinities)
