"""Every op: the table and the rows by family."""
from mindtorch_v2._ops import (
    create, einsum, index, index_arrange, index_mask, linalg, nn, pointwise, random, reduce, scan, shape,
    sort, statistics, view,
)
from mindtorch_v2._ops import (
    nn_attention, nn_conv, nn_embed, nn_image, nn_loss, nn_margin, nn_norm, nn_pool, nn_recurrent,
    nn_sample,
)
from mindtorch_v2._ops import composite, composite_window, foreach, fused_step
from mindtorch_v2._ops import backward, grouped, packed_weights, private, segment
from mindtorch_v2._ops import decompose, factor_ldl, fft, matrix, solve, special, spectral
from mindtorch_v2._ops.table import functions, methods, namespaces, ops
