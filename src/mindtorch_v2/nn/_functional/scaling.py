"""How the factors of scaled products of narrow floats lie."""
from __future__ import annotations

import enum


class ScalingType(enum.Enum):
    """How the factors of a scaled product of narrow floats lie."""
    TensorWise, RowWise, BlockWise1x16, BlockWise1x32, BlockWise1x128, BlockWise128x128 = range(6)


class SwizzleType(enum.Enum):
    """Whether the factors of a scaled product are stored out of order."""
    NO_SWIZZLE, SWIZZLE_32_4_4 = range(2)
