"""Ops of PyTorch that are not here, by name: a program that reads them goes on, one that calls them is told."""
from mindtorch_v2 import _facade

_REASONS = {
    "products of eight-bit floats are not offered": "_scaled_mm _scaled_mm_v2",
    "segment reductions are not offered; use scatter_reduce": "_segment_reduce",
    "checksums of tensors are not offered": "hash_tensor",
    "gathers without bounds checks are not offered; use indexing": "_unsafe_masked_index _unsafe_masked_index_put_accumulate",
}
FUNCTIONS = {name: found for why, names in _REASONS.items() for name, found in
             _facade.refusals(names, why, "torch.").items()}
_KERNELS = "this kernel of CUDA's is not offered; use torch.nn.functional.scaled_dot_product_attention"
ATEN = FUNCTIONS | _facade.refusals("_flash_attention_forward _efficient_attention_forward", _KERNELS, "torch.ops.aten.")


class qscheme:
    """How numbers would be quantised; the names exist for comparisons, nothing quantises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name


QSCHEMES = {name: qscheme(name) for name in ("per_tensor_affine", "per_channel_affine", "per_tensor_symmetric",
                                             "per_channel_symmetric", "per_channel_affine_float_qparams")}
