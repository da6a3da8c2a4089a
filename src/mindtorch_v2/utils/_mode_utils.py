"""Small questions about dispatch modes."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import mindtorch_v2 as torch


@contextlib.contextmanager
def no_dispatch() -> Iterator[None]:
    """A with block in which no dispatch mode is open and no class of tensors answers by its __torch_dispatch__."""
    before = torch._C._core._set_classes_off(True)
    try:
        with torch.utils._python_dispatch._disable_current_modes():
            yield
    finally:
        torch._C._core._set_classes_off(before)


def all_same_mode(modes: Any) -> bool:
    """Whether all of them are one mode."""
    return all(mode == modes[0] for mode in modes)
