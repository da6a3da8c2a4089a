"""masked_tensor, which makes a leaf, and as_masked_tensor, which keeps the history of its data."""
from __future__ import annotations

from mindtorch_v2.masked.maskedtensor.core import MaskedTensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data: object, mask: object, requires_grad: bool = False) -> MaskedTensor:
    """A MaskedTensor of copies of both; a leaf of the graph."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: object, mask: object) -> MaskedTensor:
    """A MaskedTensor of copies of both; gradients go on to data."""
    return MaskedTensor._from_values(data, mask)
