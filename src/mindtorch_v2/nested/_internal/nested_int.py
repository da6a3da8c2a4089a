"""The size of a ragged dim, as PyTorch's programs import it."""
from __future__ import annotations

import mindtorch_v2 as torch

NestedIntNode = torch._nested.NestedInt
