"""Random numbers of tests: one seed around a call."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mindtorch_v2 as torch


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """A with block after which generators are where they were."""
    state = torch.get_rng_state()
    on_npu = torch.npu.get_rng_state_all() if torch.npu.is_initialized() else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if on_npu is not None:
            torch.npu.set_rng_state_all(on_npu)


def wrapper_set_seed(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The op with the seed 42; generators are where they were afterwards."""
    with freeze_rng_state():
        torch.manual_seed(42)
        return op(*args, **kwargs)
