"""torch.ao.quantization.quant_type: when numbers would be quantised, as a value to hand on."""
import enum


class QuantType(enum.IntEnum):
    """When numbers would be quantised."""

    DYNAMIC = 0
    STATIC = 1
    QAT = 2
    WEIGHT_ONLY = 3
