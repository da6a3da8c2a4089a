"""Settings of torch.fx.experimental; patch() changes some for a while."""
from __future__ import annotations

import contextlib
from typing import Any

enrich_profiler_metadata = False                 # note where generated code stands for the profiler
use_duck_shape = True                            # sizes that are equal once are one symbol; sizes are plain ints here
meta_nonzero_assume_all_nonzero = False          # nonzero of a tensor without values has as many rows as it could have
translation_validation = False                   # a second solver that would check guards; there are none
backed_size_oblivious = False                    # sizes 0 and 1 are not special
print_data_dependent_errors = False              # show which value of a tensor without values was requested
validate_shape_env_version_key = False


class patch(contextlib.ContextDecorator):
    """A with block, or decorator, in which settings have other values: patch("name", value), patch({...}), patch(name=…)."""

    def __init__(self, name: str | dict[str, Any] | None = None, value: Any = None, **changes: Any) -> None:
        if isinstance(name, str):
            changes = {name: value}
        elif name is not None:
            changes = {**name, **changes}
        unknown = [key for key in changes if key not in globals()]
        if unknown:
            raise AttributeError(f"torch.fx.experimental._config has no setting {unknown[0]!r}")
        self._changes, self._before = changes, []   # type: ignore[var-annotated]

    def __enter__(self) -> None:
        self._before.append({key: globals()[key] for key in self._changes})
        globals().update(self._changes)

    def __exit__(self, *exc: Any) -> None:
        globals().update(self._before.pop())
