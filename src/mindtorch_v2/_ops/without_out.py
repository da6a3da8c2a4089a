"""Which functions torch offers without out=; those of the table that stand here refuse it too."""
from __future__ import annotations

from mindtorch_v2._ops.table import functions

_NAMES = """
adaptive_avg_pool1d adaptive_max_pool1d adjoint affine_grid_generator allclose alpha_dropout argwhere as_strided
as_strided_scatter avg_pool1d bartlett_window batch_norm bilinear binary_cross_entropy_with_logits bincount
blackman_window broadcast_to celu channel_shuffle chunk clone combinations conj constant_pad_nd conv1d conv2d
conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution corrcoef cosine_embedding_loss
cosine_similarity count_nonzero cov ctc_loss cumulative_trapezoid det detach diag_embed diagflat diagonal
diagonal_scatter dist dropout dsplit embedding embedding_bag empty_like empty_permuted empty_strided equal
feature_alpha_dropout feature_dropout fill flatten flip fliplr flipud full_like grid_sampler grid_sampler_2d
grid_sampler_3d group_norm hamming_window hann_window hinge_embedding_loss histogramdd hsplit index_fill
index_put instance_norm isclose isfinite isinf isnan isreal kaiser_window kl_div layer_norm logdet
margin_ranking_loss masked_fill masked_scatter matrix_exp max_pool1d max_pool1d_with_indices max_pool2d
max_pool3d moveaxis movedim narrow native_channel_shuffle native_dropout native_group_norm native_layer_norm
norm_except_dim ones_like pairwise_distance pdist permute pinverse pixel_shuffle pixel_unshuffle poisson
poisson_nll_loss positive prelu put rand_like randint_like randn_like ravel relu repeat_interleave reshape
resolve_conj resolve_neg rms_norm roll rot90 rrelu rsub scalar_tensor select select_scatter selu
split_with_sizes squeeze std_mean swapaxes swapdims t tensor_split tile trace transpose trapezoid trapz
tril_indices triplet_margin_loss triu_indices unbind unflatten unsafe_chunk unsafe_split unsafe_split_with_sizes
unsqueeze vander var_mean view_as_complex view_as_real vsplit zeros_like
"""

for _name in _NAMES.split():
    for _overload in functions[_name].overloads:
        _overload.takes_out = False
