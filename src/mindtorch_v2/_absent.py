"""Ops of PyTorch that are not here, by name: a program that reads them goes on, a call raises an error with the name."""
from __future__ import annotations

import sys
import traceback
from enum import Enum
from typing import Any

from mindtorch_v2 import _C, _facade, _function_schema

_REASONS = {
    "products of eight-bit floats are not offered": "_scaled_mm _scaled_mm_v2 _scaled_grouped_mm _scaled_grouped_mm_v2",
    "quantised tensors are not offered; their dtypes are values only": """
        _choose_qparams_per_tensor _empty_affine_quantized _empty_per_channel_affine_quantized
        _fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_tensor_affine
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper
        _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _rowwise_prune _saturate_weight_to_fp16
        _wrapped_linear_prepack _wrapped_quantized_linear_prepacked choose_qparams_optimized empty_quantized
        fake_quantize_per_channel_affine fake_quantize_per_tensor_affine fbgemm_linear_fp16_weight
        fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation
        fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix
        fused_moving_avg_obs_fake_quant int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
        q_scale q_zero_point quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm
        quantized_gru_cell quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_rnn_relu_cell quantized_rnn_tanh_cell""",
    "products with packed integer weights are not offered": """
        _convert_weight_to_int4pack _mixed_dtypes_linear _weight_int4pack_mm _weight_int4pack_mm_with_scales_and_zeros""",
    "this function of cuDNN, cuFFT, MIOpen, MPS, XLA or Vulkan has no counterpart here": """
        _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search _cudnn_ctc_loss _cudnn_init_dropout_state _cudnn_rnn
        _cudnn_rnn_flatten_weight _cufft_clear_plan_cache _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size
        _cufft_set_plan_cache_max_size _fill_mem_eff_dropout_mask_ _flash_attention_forward_no_dropout_inplace _lstm_mps
        _mps_convolution _mps_convolution_transpose _propagate_xla_data _scaled_dot_product_attention_math_for_mps
        _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
        _scaled_dot_product_flash_attention _triton_multi_head_attention
        _triton_scaled_dot_attention _use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight _use_miopen_ctc_loss
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_affine_grid_generator
        cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu
        cudnn_convolution_transpose cudnn_grid_sampler cudnn_is_acceptable miopen_batch_norm miopen_convolution
        miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss
        miopen_depthwise_convolution miopen_rnn""",
    "tensors in oneDNN's or NNPACK's formats are not offered": """
        _mkldnn_reshape _mkldnn_transpose _mkldnn_transpose_ _nnpack_spatial_convolution mkldnn_adaptive_avg_pool2d
        mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer""",
    "semi-structured sparse tensors are not offered": """
        _sparse_semi_structured_addmm _sparse_semi_structured_apply _sparse_semi_structured_apply_dense
        _sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_tile
        _to_sparse_semi_structured""",
    "nested tensors of the strided layout are not offered; use torch.nested with layout=torch.jagged": """
        _nested_compute_contiguous_strides_offsets _nested_from_padded _nested_from_padded_and_nested_example
        _nested_from_padded_tensor _nested_get_jagged_dummy _nested_get_lengths _nested_get_max_seqlen
        _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx _nested_get_values _nested_get_values_copy
        _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list
        _nested_tensor_softmax_with_shape _nested_view_from_buffer _nested_view_from_buffer_copy
        _nested_view_from_jagged _nested_view_from_jagged_copy""",
    "this inner function of PyTorch is not offered": """
        _add_batch_dim _add_relu_ _assert_scalar _assert_tensor_metadata _batch_norm_impl_index _compute_linear_combination
        _convolution_mode _copy_from _copy_from_and_resize _cummax_helper _cummin_helper
        _dirichlet_grad _efficientzerotensor _embedding_bag_forward_only _foobar _from_blob _functional_assert_async
        _functional_assert_scalar _functional_sym_constrain_range _functional_sym_constrain_range_for_size
        _fused_adagrad_ _fused_adam_ _fused_adamw_ _fused_dropout  _fused_sgd_
        _grid_sampler_2d_cpu_fallback _histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors
        _index_put_impl_ _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd
        _lu_with_info _make_dep_token _make_dual _masked_scale _native_multi_head_attention _philox_key_fold_in
        _philox_key_split _philox_normal_ _philox_uniform_ _pin_memory _print _remove_batch_dim
        _reshape_from_tensor _resize_output_ _sobol_engine_draw _sobol_engine_ff_ _sobol_engine_initialize_state_
        _sobol_engine_scramble_ _sparse_log_softmax_backward_data
        _sparse_softmax_backward_data _sparse_sparse_matmul
        _test_check_tensor _test_parallel_materialize _test_serialization_subcmul _transform_bias_rescale_qkv
        _transformer_encoder_layer_fwd _unpack_dual _unsafe_index _unsafe_index_put
        _validate_compressed_sparse_indices _validate_sparse_bsc_tensor_args _validate_sparse_bsr_tensor_args
        _validate_sparse_csc_tensor_args _validate_sparse_csr_tensor_args slice_inverse sym_constrain_range
        sym_constrain_range_for_size _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
        _fw_primal_copy _make_dual_copy _sparse_broadcast_to_copy _pack_padded_sequence _pad_packed_sequence""",
}
FUNCTIONS: dict[str, Any] = {name: found for why, names in _REASONS.items() for name, found in
             _facade.refusals(names, why, "torch.").items()}
_METHODS = {
    "quantised tensors are not offered; their dtypes are values only": """int_repr q_per_channel_axis
        q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme""",
    "this inner method of PyTorch is not offered": """slice_inverse to_mkldnn _nested_tensor_size
        _nested_tensor_storage_offsets _nested_tensor_strides _autocast_to_full_precision
        _autocast_to_reduced_precision _clear_non_serializable_cached_data _philox_normal_ _philox_uniform_ _to_dense
        _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr""",
}
METHODS = {name: found for why, names in _METHODS.items() for name, found in
           _facade.refusals(names, why, "torch.Tensor.").items()}
INNER = {space: _facade.refusals(names, "this inner function of PyTorch is not offered", f"torch._C.{space}.") for space, names in {
    "_nn": """_conv_depthwise2d _test_ambiguous_defaults _test_optional_filled_intlist _test_optional_floatlist
        _test_optional_intlist _test_string_default _test_warn_in_autograd conv_depthwise3d flatten_dense_tensors
        mkldnn_linear mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight pad_sequence unflatten_dense_tensors""",
    "_linalg": "_linalg_eigvals linalg__powsum"}.items()}
_KERNELS = "this kernel of CUDA's is not offered; use torch.nn.functional.scaled_dot_product_attention"
ATEN = FUNCTIONS | _facade.refusals("_flash_attention_forward _efficient_attention_forward", _KERNELS, "torch.ops.aten.")
ATEN |= _facade.refusals("_pin_memory _sparse_addmm _sparse_mm_reduce_impl", "this inner op is not offered", "torch.ops.aten.")
for _found in ATEN.values():
    _found.default = _found       # the overload that programs use as a key


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


class DispatchKey(Enum):
    """Names of the layers and devices between which PyTorch's core chooses; here they name kernels of a program's own ops."""
    Undefined, CPU, CUDA, XPU, PrivateUse1, Meta, SparseCPU, Autograd, AutogradCPU, AutogradCUDA, AutogradPrivateUse1, \
        AutocastCPU, AutocastCUDA, AutocastXPU, AutocastPrivateUse1, CompositeImplicitAutograd, \
        CompositeExplicitAutograd, BackendSelect, Python, ADInplaceOrView, Functionalize, FuncTorchBatched, \
        CompositeExplicitAutogradNonFunctional, AutogradXPU, AutogradMeta, AutogradOther, MPS, HPU, MTIA, QuantizedCPU, \
        PythonTLSSnapshot, PreDispatch, PythonDispatcher, Conjugate, Negative, ZeroTensor, FuncTorchVmapMode, \
        FuncTorchGradWrapper, FuncTorchDynamicLayerFrontMode, FuncTorchDynamicLayerBackMode = range(40)


class DispatchKeySet:
    """Several of them."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether it is one of them."""
        return key in self._keys

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """These and one more."""
        return DispatchKeySet(*self._keys, key)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)


def _gather_traceback(python: bool = True, script: bool = True, cpp: bool = True) -> traceback.StackSummary:
    """The lines that are running; there is no TorchScript and no symbol of C++ among them."""
    frames = traceback.walk_stack(sys._getframe(1)) if python else iter(())
    return traceback.StackSummary.extract(frames, lookup_lines=False)


def _symbolize_tracebacks(to_symbolize: list[traceback.StackSummary]) -> list[list[dict[str, Any]]]:
    """Such lines as records, the innermost first."""
    return [[{"name": frame.name, "filename": frame.filename, "line": frame.lineno} for frame in stack] for stack in to_symbolize]


vars(_C).update(_set_conj=lambda x, conj: _C._core._mark(x, conj, x.is_neg()),
                _set_neg=lambda x, neg: _C._core._mark(x, x.is_conj(), neg),
                _len_torch_dispatch_stack=lambda: len(_C._dispatch_mode_stack()),
                _get_dispatch_stack_at=lambda i: _C._dispatch_mode_stack()[i])
vars(_C)["_profiler"] = _facade.module(_C.__name__, "_profiler", "Stacks of calls.", gather_traceback=_gather_traceback,
                                       symbolize_tracebacks=_symbolize_tracebacks,
                                       _ExperimentalConfig=_facade.absent("torch._C._profiler._ExperimentalConfig",
                                                                          "settings of PyTorch's own profiler are not offered"))
vars(_C).update(_facade.absents("Value", "there is no graph of TorchScript", "torch._C."))
vars(_C)["_ExcludeDispatchKeyGuard"] = _facade.absent("torch._C._ExcludeDispatchKeyGuard", "dispatch keys only name things here")
vars(_C)["_distributed_rpc"] = _facade.module(_C.__name__, "_distributed_rpc", "Remote calls, which are not offered.",
                                              _is_current_rpc_agent_set=lambda: False)
_SCHEMA_NAMES = ("AnyType", "NoneType", "TensorType", "NumberType", "IntType", "FloatType", "ComplexType", "BoolType", "StringType",
                 "DeviceObjType", "ListType", "OptionalType", "SymIntType", "FunctionSchema", "Argument", "Tag", "parse_schema")
SCHEMAS = {name: getattr(_function_schema, name) for name in _SCHEMA_NAMES}
vars(_C).update(SCHEMAS | {"Type": _function_schema.Type, "_AliasInfo": _function_schema._AliasInfo})
vars(_C).update(DispatchKey=DispatchKey, DispatchKeySet=DispatchKeySet, _TensorMeta=type)      # the metaclass of Tensor
