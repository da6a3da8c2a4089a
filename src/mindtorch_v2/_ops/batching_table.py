"""Which op runs over a batch by which rule."""
from __future__ import annotations

from mindtorch_v2._ops import batching as b
from mindtorch_v2._ops import batching_nn as nn
from mindtorch_v2._ops.table import ops

_DIMS = """sum mean nansum any all count_nonzero amax amin max.dim min.dim var.correction std.correction
var_mean.correction std_mean.correction linalg_vector_norm _logsumexp softmax log_softmax _softmax _log_softmax
_softmax_backward_data _log_softmax_backward_data cumsum cumprod logcumsumexp cummax cummin sort topk kthvalue
median.dim nanmedian.dim mode flip gather scatter.src scatter.value scatter_add scatter_reduce _fft_c2c _fft_r2c
_fft_c2r"""
_FLAT = "prod argmax argmin aminmax max min _median _nanmedian"
_LEADING = """empty_like zeros_like ones_like clone _to_copy zero_ fill_.Scalar tril triu
_linalg_cholesky_ex cholesky_solve cholesky_inverse linalg_solve_triangular _linalg_lu_factor_ex _lu_permutation
linalg_lu_solve linalg_qr geqrf _householder_product _linalg_eigh _linalg_eig _linalg_eigvals _linalg_svd
_linalg_pinv _linalg_solve_ex _linalg_inv_ex _linalg_det _linalg_slogdet _dropout_backward"""
_SPECIAL = {
    "reshape": b.Rewrite(b.reshaped), "contiguous": b.Rewrite(b.made_contiguous),
    "matmul": b.matmul, "mm": b.product("self", "mat2"), "bmm": b.product("self", "mat2"),
    "mv": b.product("self", "vec"), "dot": b.product("self", "tensor"), "linear": b.linear,
    "addmm": b.added_product, "baddbmm": b.added_product, "addmv": b.added_product, "addr": b.added_product,
    "vdot": b.Rewrite(lambda self, other: (self.conj() * other).sum()),
    "trace": b.Rewrite(lambda self: self.diagonal().sum()),
    "_equal": None,
    "index": nn.index, "_index_put_list_": nn.index_put, "index_select": nn.index_select, "embedding": nn.embedding,
    "convolution": nn.convolution, "native_layer_norm": nn.layer_norm, "_fused_rms_norm": nn.layer_norm,
    "native_batch_norm": nn.batch_norm, "native_group_norm": nn.group_norm, "nll_loss_forward": nn.nll_loss,
    "_cross_entropy": nn.cross_entropy, "copy_": nn.copy, "repeat": nn.repeat, "cat": nn.stacked,
    "_searchsorted": nn.searchsorted,
    "new_zeros": nn.new_like, "new_ones": nn.new_like, "new_full": nn.new_like, "new_empty": nn.new_like,
    "new_empty_strided": nn.new_strided,
    "take": b.Rewrite(b.taken),
    "roll": b.roll, "complex": b.pointwise, "polar": b.pointwise,
    "index_add": b.along_shared("index"), "index_copy": b.along_shared("index"),
    "index_fill.Scalar": b.along_shared("index"), "index_reduce": b.along_shared("index"),
    "grid_sampler_2d": nn.folded(3, "input", "grid"), "grid_sampler_3d": nn.folded(4, "input", "grid"),
    "_masked_fill": b.pointwise, "masked_fill_.Scalar": b.pointwise,
    "im2col": nn.folded(3, "self"), "col2im": nn.folded(2, "self"),
}
for _n in (1, 2, 3):
    for _name in ("reflection", "replication"):
        _SPECIAL[f"{_name}_pad{_n}d"] = nn.folded(_n + 1, "self")
        _SPECIAL[f"{_name}_pad{_n}d_backward"] = nn.folded(_n + 1, "grad_output", "self")
    _linear = ("", "linear", "bilinear", "trilinear")[_n]
    for _name in (f"upsample_nearest{_n}d", f"_upsample_nearest_exact{_n}d", f"upsample_{_linear}{_n}d"):
        _SPECIAL[_name] = nn.folded(_n + 1, "self")
    for _name in (f"max_pool{_n}d_with_indices", f"avg_pool{_n}d", f"_adaptive_avg_pool{_n}d", f"adaptive_max_pool{_n}d"):
        _SPECIAL[_name] = nn.folded(_n + 1, "self")
        _SPECIAL[_name + "_backward"] = nn.folded(_n + 1, "grad_output", "self", "indices") if "max" in _name else \
            nn.folded(_n + 1, "grad_output", "self")
_SPECIAL["upsample_bicubic2d"] = nn.folded(3, "self")
_SPECIAL["constant_pad_nd"] = lambda call: call.run()
for _words, _rule in ((_DIMS, b.dims), (_FLAT, b.flat_or_dims), (_LEADING, b.leading)):
    _SPECIAL.update(dict.fromkeys(_words.split(), _rule))

for _name, _rule in _SPECIAL.items():
    _op, _, _overload = _name.partition(".")
    for _row in getattr(getattr(ops, _op, None), "overloads", ()):
        if _row.overload_name == _overload and (not _row.is_composite or _name.startswith("new_")):
            _row.batching = _rule                # a composite has its history from its parts
