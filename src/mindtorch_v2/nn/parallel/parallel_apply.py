"""Modules run on their inputs, one after another: kernels use all threads of the machine anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def parallel_apply(modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Sequence[Any] | None = None,
                   devices: Sequence[Any] | None = None) -> list[Any]:
    """The result of each module for its inputs."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named: Sequence[Any] = kwargs_tup or ({},) * len(modules)
    found = []
    for module, given, options in zip(modules, inputs, named):
        given = given if isinstance(given, (list, tuple)) else (given,)
        found.append(module(*given, **options))
    return found


