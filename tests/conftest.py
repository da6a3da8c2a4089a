"""For all tests: random numbers that do not depend on which tests ran before in the same process."""

from __future__ import annotations

import random
import sys

import numpy
import pytest


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds every generator that a test may draw from without naming one, of the libraries already imported."""
    random.seed(0)
    numpy.random.seed(0)
    for name in ("torch", "mindtorch_v2"):
        if (library := sys.modules.get(name)) is not None:
            library.manual_seed(0)
