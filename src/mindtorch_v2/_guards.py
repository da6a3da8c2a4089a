"""torch._guards: which mode of fake tensors is at work; the compiler's guards are not offered."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch


def active_fake_mode() -> Any:
    """The innermost open mode of fake tensors, or None."""
    modes = torch._C._dispatch_mode_stack()
    return next((mode for mode in reversed(modes) if isinstance(mode, torch._subclasses.FakeTensorMode)), None)


def detect_fake_mode(inputs: Any = None) -> Any:
    """The mode that is open, or that of the fake tensors among the inputs; None where there is neither."""
    fakes = [x.fake_mode for x in torch.utils._pytree.tree_leaves(inputs) if isinstance(x, torch._subclasses.FakeTensor)]
    found = [mode for mode in (active_fake_mode(), *fakes) if mode is not None]
    if any(mode is not found[0] for mode in found):
        raise AssertionError("fake mode from one place doesn't match the mode from another: mixed modes of fake tensors")
    return found[0] if found else None

torch._named.complete(__name__)
