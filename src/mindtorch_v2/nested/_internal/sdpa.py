"""Attention over nested tensors, as PyTorch's own programs import it."""
from __future__ import annotations

import mindtorch_v2 as torch

jagged_scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention
