"""torch._functorch.config: settings of a compiler that is not here; they are stored and not read."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

functionalize_rng_ops = False
fake_tensor_allow_meta = True
fake_tensor_crossref = False
debug_assert = False
debug_partitioner = False
donated_buffer = False
enable_autograd_cache = False
activation_memory_budget = 1.0
recompute_views = False
unlift_effect_tokens = False
cse = True
treat_parameters_as_free_to_save = True


@contextmanager
def patch(arg1: Any = None, arg2: Any = None, **changes: Any) -> Iterator[None]:
    """Set values for the length of a with block."""
    given = {**(arg1 if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}), **changes}
    before = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(before)
