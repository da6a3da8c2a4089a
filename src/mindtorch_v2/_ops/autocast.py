"""What torch.autocast does with the arguments of which op, per device type; the casting itself is _C/autocast.pxi.

Ops that stand in no list run in the dtypes they are given. A composite without a policy is cast where its parts are."""
from __future__ import annotations

from mindtorch_v2 import _C
from mindtorch_v2._ops.table import ops

_LOSSES = """cosine_embedding_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss
multi_margin_loss multilabel_margin_loss nll_loss nll_loss2d poisson_nll_loss smooth_l1_loss soft_margin_loss
triplet_margin_loss binary_cross_entropy_with_logits cross_entropy_loss"""

_PRODUCTS = """addbmm addmm baddbmm bmm conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
convolution linalg_vecdot linear matmul mm prelu scaled_dot_product_attention"""

# As PyTorch on the CPU.
_CPU = {
    "lower": _PRODUCTS,
    "float32": _LOSSES + """
adaptive_avg_pool3d adaptive_max_pool3d avg_pool3d binary_cross_entropy cdist cholesky cholesky_inverse
cholesky_solve ctc_loss fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft
fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftn fractional_max_pool2d fractional_max_pool3d geqrf
grid_sampler grid_sampler_2d grid_sampler_3d inverse linalg_cholesky linalg_cholesky_ex linalg_cond linalg_eig
linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_lstsq
linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve lu_solve
max_pool3d max_unpool2d max_unpool3d nanquantile orgqr ormqr pinverse polar prod qr quantile reflection_pad1d
reflection_pad2d replication_pad1d replication_pad2d replication_pad3d svd trace triangular_solve
view_as_complex""",
    "widest": "cat index_copy stack",
}

# As torch_npu, which takes PyTorch's lists for CUDA. einsum, chain_matmul and the recurrent cells are not here: they
# are functions of matmul and linear, which are.
_NPU = {
    "lower": _PRODUCTS + " addmv addr linalg_multi_dot mv",
    "float32": _LOSSES + """
acos asin cdist cosh cosine_similarity dist erfinv exp expm1 frobenius_norm group_norm layer_norm log log10
log1p log2 log_softmax logsumexp native_layer_norm norm nuclear_norm pdist pow reciprocal renorm rms_norm rsqrt
sinh softmax softplus tan upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d
upsample_nearest2d upsample_nearest3d upsample_trilinear3d _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""",
    "float32 result": "cumprod cumsum linalg_matrix_norm linalg_vector_norm prod sum",
    "widest": "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add vdot",
    "refused": "binary_cross_entropy",
}

for _device_type, _lists in (("cpu", _CPU), ("npu", _NPU)):
    for _policy, _names in _lists.items():
        for _name in _names.split():
            _C._set_cast_policy(getattr(ops, _name), _device_type, _policy)
