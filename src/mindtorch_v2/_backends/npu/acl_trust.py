"""Refuses files of CANN that another user can change; the rule is cann_tables.trust's."""
from __future__ import annotations

from cann_tables import trust
from mindtorch_v2 import _config
from mindtorch_v2._backends.npu.errors import UntrustedCannError


def refuse_untrusted(path: str, home: str) -> None:
    """Raises where another user can change what is loaded from path, a file or folder of the toolkit at home."""
    if _config.allow_writable_cann():
        return
    objection = trust.objection(path, home)
    if objection:
        raise UntrustedCannError(f"{path} is not loaded, because {objection}, or set MINDTORCH_ALLOW_WRITABLE_CANN=1 if "
                                 "you trust them")
