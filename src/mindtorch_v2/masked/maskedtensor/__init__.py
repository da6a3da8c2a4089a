"""Tensors with masks: the class, and what ops do with data and mask."""
from __future__ import annotations

from mindtorch_v2.masked.maskedtensor import _ops_refs  # noqa: F401  (its entries are noted as it is imported)
from mindtorch_v2.masked.maskedtensor.binary import _apply_native_binary, _is_native_binary  # noqa: F401
from mindtorch_v2.masked.maskedtensor.core import MaskedTensor, is_masked_tensor  # noqa: F401
from mindtorch_v2.masked.maskedtensor.creation import as_masked_tensor, masked_tensor  # noqa: F401
from mindtorch_v2.masked.maskedtensor.passthrough import _apply_pass_through_fn, _is_pass_through_fn  # noqa: F401
from mindtorch_v2.masked.maskedtensor.reductions import _apply_reduction, _is_reduction  # noqa: F401
from mindtorch_v2.masked.maskedtensor.unary import _apply_native_unary, _is_native_unary  # noqa: F401
