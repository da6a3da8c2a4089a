"""torch.functional: the functions that PyTorch keeps in this module, under the same names as in torch."""
import mindtorch_v2 as torch

_NAMES = """atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist chain_matmul
einsum istft lu meshgrid norm split stft tensordot unique unique_consecutive unravel_index"""
__all__ = [name for name in _NAMES.split() if hasattr(torch, name)]
globals().update({name: getattr(torch, name) for name in __all__})
Size, Tensor = torch.Size, torch.Tensor
cond, while_loop = torch._higher_order_ops.cond.cond, torch._higher_order_ops.while_loop.while_loop
