"""Products with weights of 4 and 8 bits that are packed first. The packed form is this library's own, as it is in torch."""
from __future__ import annotations

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import composite, ops
from mindtorch_v2._tensor import Tensor

_UINT8, _INT8, _INT32, _FLOAT32 = (_C._dtype_named(name) for name in ("uint8", "int8", "int32", "float32"))
_GROUPS = (32, 64, 128, 256)
_FOUR_BITS = 8                                   # half of the range of 4 bits: what stands for zero


def _nibbles(packed: Tensor) -> Tensor:
    """The numbers from 0 to 15 in bytes, two of each: the lower four bits first."""
    return ops.stack([packed & 15, packed >> 4], -1).flatten(-2)


@composite("_convert_weight_to_int4pack_for_cpu(Tensor self, int innerKTiles) -> Tensor", variants="function", out=False)
def _pack_four_bits(self: Tensor, innerKTiles: int) -> Tensor:
    """Numbers from 0 to 15, two in a byte, for _weight_int4pack_mm_for_cpu."""
    name = "_convert_weight_to_int4pack_cpu"
    if self.dtype is not _INT32:
        raise RuntimeError(f"{name} : expect weight to be kInt.")
    if self.dim() != 2:
        raise RuntimeError(f"{name} : expect weight to be 2D tensor.")
    if self.size(0) % 16:
        raise RuntimeError(f"{name} : expect N to be dividable by 16")
    if self.size(1) % 2:
        raise RuntimeError("_convert_weight_to_int4pack: expect K to be dividable by 2")
    return (self[:, ::2] | self[:, 1::2] << 4).to(_UINT8)


@composite("_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros) -> Tensor",
           variants="function", out=False)
def _four_bit_product(self: Tensor, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor) -> Tensor:
    """self @ w.T for w of 4 bits: (w - 8) * scale + zero, with a scale and a zero for each group of a row."""
    name, rows, depth = "_weight_int4pack_mm_cpu", mat2.size(0), self.size(-1)
    if not self.is_floating_point() or self.dim() != 2:
        raise RuntimeError(f"{name} : expect A to be a 2D tensor of floating point numbers.")
    if mat2.dtype is not _UINT8:
        raise RuntimeError(f"{name} : expect B to be uint8 tensor.")
    if mat2.size(1) * 2 != depth:
        raise RuntimeError(f"{name} : expect B.size(1) to be K/2, got {mat2.size(1)}")
    if qGroupSize not in _GROUPS:
        raise RuntimeError(f"{name}: expect qGroupSize to be 32, 64, 128 or 256, got {qGroupSize}")
    if qScaleAndZeros.dim() != 3 or tuple(qScaleAndZeros.shape[1:]) != (rows, 2):
        raise RuntimeError(f"{name}: expect qScaleAndZeros to be 3d tensor with sizes [:, {rows}, 2]")
    scale, zero = (qScaleAndZeros.to(_FLOAT32).select(2, i).repeat_interleave(qGroupSize, 0).t() for i in (0, 1))
    weight = (_nibbles(mat2).to(_FLOAT32) - _FOUR_BITS) * scale + zero
    return (self.to(_FLOAT32) @ weight.t()).to(self.dtype)


@composite("_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor", variants="function", out=False)
def _eight_bit_product(self: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """self @ mat2.T for mat2 of 8 bits, with a scale for each row of it."""
    name = "_weight_int8pack_mm_cpu"
    if not self.is_floating_point() or self.dim() != 2:
        raise RuntimeError(f"{name} : expect A to be a 2D tensor of floating point numbers.")
    if mat2.dtype is not _INT8:
        raise RuntimeError(f"{name} : expect B to be int8 tensor.")
    if mat2.dim() != 2 or mat2.size(1) != self.size(1):
        raise RuntimeError(f"{name} : expect B.size(1) == {self.size(1)}")
    if tuple(scales.shape) != (mat2.size(0),):
        raise RuntimeError(f"{name} : expect scales to be 1d tensor with size {mat2.size(0)}")
    return (self.to(_FLOAT32) @ mat2.to(_FLOAT32).t() * scales.to(_FLOAT32)).to(self.dtype)


@composite("_dyn_quant_pack_4bit_weight(Tensor weights, Tensor scales_zeros, Tensor? bias, int block_size, int in_features, "
           "int out_features) -> Tensor", variants="function", out=False)
def _pack_with_scales(weights: Tensor, scales_zeros: Tensor, bias: Tensor | None, block_size: int, in_features: int,
                      out_features: int) -> Tensor:
    """Bytes of two 4-bit numbers, their scales and a bias in one tensor, for _dyn_quant_matmul_4bit."""
    if weights.dtype is not _UINT8:
        raise RuntimeError("_dyn_quant_pack_4bit_weight_cpu : expect weight to be uint8.")
    parts = (weights, scales_zeros) if bias is None else (weights, scales_zeros, bias)
    return ops.cat([part.reshape(-1).to(_FLOAT32) for part in parts])


@composite("_dyn_quant_matmul_4bit(Tensor inp, Tensor packed_weights, int block_size, int in_features, int out_features) -> Tensor",
           variants="function", out=False)
def _product_with_scales(inp: Tensor, packed_weights: Tensor, block_size: int, in_features: int, out_features: int) -> Tensor:
    """inp @ w.T + bias of what _dyn_quant_pack_4bit_weight packed: w is a 4-bit number less 8, times its block's scale."""
    if inp.dtype is not _FLOAT32 and inp.dtype._name != "bfloat16":
        raise RuntimeError("_dyn_quant_matmul_4bit_cpu : expect input to be float32 or bfloat16 tensor.")
    if block_size <= 0 or in_features % block_size:
        raise RuntimeError(f"_dyn_quant_matmul_4bit_cpu: Block size {block_size} should divide {in_features}")
    halves, blocks = in_features // 2 * out_features, in_features // block_size * out_features
    numbers = packed_weights[:halves].reshape(out_features, in_features // 2).to(_UINT8)
    scale = packed_weights[halves:halves + blocks].reshape(out_features, -1).repeat_interleave(block_size, 1)
    weight = (_nibbles(numbers).to(_FLOAT32) - _FOUR_BITS) * scale
    bias = packed_weights[halves + blocks:]
    found = inp.to(_FLOAT32).reshape(-1, in_features) @ weight.t()
    return (found if bias.numel() == 0 else found + bias).to(inp.dtype)
