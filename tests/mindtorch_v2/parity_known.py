"""Differences to PyTorch that fuzz_parity.py accepts, with a reason each."""
from __future__ import annotations

import re
from typing import Any

import oracle

ANY = r".*"
# torch.<name>, Tensor.<name>, a namespace's <name> or an entry of OpInfo, in place or not
NAME = r"(info\.|Tensor\.)?(nn\.functional\.|nn\.|linalg\.|special\.|fft\.)?"


def named(names: str) -> str:
    """A pattern for these functions, patterns themselves, in all their forms."""
    return NAME + r"(" + "|".join(names.split()) + r")_?(\.\w+)?"


DECOMPOSED = named("cholesky cholesky_ex cholesky_inverse cholesky_solve cond det eig eigh eigvals eigvalsh "
                   "geqrf householder_product inv inv_ex inverse ldl_factor logdet lstsq lu lu_factor "
                   "lu_factor_ex lu_solve lu_unpack matrix_exp matrix_norm matrix_power matrix_rank norm "
                   "nuclear_norm orgqr ormqr pca_lowrank pinv pinverse qr slogdet solve solve_ex "
                   "solve_triangular svd svd_lowrank svdvals tensorinv tensorsolve triangular_solve vander")

# (targets, kinds, words of the detail, reason): patterns, the first two matched as a whole. The detail ends in tags
# that say what was among the arguments: {complex empty extreme grad half int nonfinite out}.
ACCEPTED: tuple[tuple[str, str, str, str], ...] = (
    # ---- what is not promised
    (named("new_empty empty empty_like empty_strided empty_permuted new_empty_strided resize resize_as"),
     "value|changed input", "", "memory that is not set"),
    (ANY,
     "(backward )?refusal", "",
     "a call that is wrong in two ways is refused for either; which is looked at first is free"),
    (named("put index_put index_copy scatter as_strided_scatter index_fill"),
     "value|changed input", "", "several values for one place: any of them may stay"),
    (named("bucketize searchsorted"), "value", "", "the boundaries are not sorted"),
    (named("sort argsort msort topk kthvalue median nanmedian mode"),
     "gradient|value", "", "which of equal items is chosen"),
    (ANY,
     "value|gradient", r"(nan|inf).*expected|expected.*(nan|inf)(?s:.)*\{[^}]*(complex|extreme|half)",
     "where a complex, huge or 16-bit number overflows depends on the order of the operations"),
    (DECOMPOSED, ANY, r"\{[^}]*(nonfinite|extreme)", "LAPACK says nothing of matrices with NaN, inf or overflow"),
    (DECOMPOSED,
     ANY, r"\{[^}]*singular", "a singular matrix: no result is unique, and pivots of zero come by rounding"),
    (named("eigh eig svd svd_lowrank pca_lowrank qr lstsq"),
     "gradient|value", "^(?!.*empty)", "vectors are unique up to a phase, and so are gradients through them"),
    (named(r"fft ifft rfft irfft hfft ihfft \w*fft2 \w*fftn stft istft"),
     "value|gradient", r"\{[^}]*(nonfinite|extreme)", "NaN and inf spread by the order of the sums"),
    # ---- PyTorch's own faults
    (ANY,
     "accepted", "INTERNAL ASSERT|undefined Tensor|report a(n enhancement| bug)",
     "PyTorch fails with an internal error"),
    (ANY, "accepted", "MKL FFT error|Unsupported memory format", "PyTorch's library refuses the sizes or strides"),
    (ANY,
     "(backward )?accepted", r"view size is not compatible|narrow\(\): length|cannot reshape tensor of 0|"
     "invalid slice",
     "PyTorch stumbles over strides or empty tensors inside"),
    (named("as_strided new_empty_strided repeat tile expand"),
     "refused", "negative", "PyTorch makes tensors of negative size"),
    (named("bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai digamma psi polygamma i0 i0e i1 i1e "
           r"modified_bessel_i0 modified_bessel_i1 scaled_modified_bessel_k\d modified_bessel_k\d "
           r"spherical_bessel_j0 (shifted_)?chebyshev_polynomial_\w hermite_polynomial_\w+ "
           r"laguerre_polynomial_\w legendre_polynomial_\w zeta igamma igammac gammainc gammaincc log_ndtr ndtri "
           "lgamma mvlgamma erfcx"),
     "value|gradient|sign of zero|refused", "", "PyTorch is off by up to 1e-6, and wrong at poles and at inf"),
    (named("cov corrcoef"), "changed input|accepted", "", "PyTorch changes its input"),
    (named("native_group_norm group_norm"),
     "value|gradient|accepted", "", "PyTorch reads parameters as if they were contiguous"),
    (named("gather"), "value", r"\{[^}]*int", "PyTorch misreads int32 indices that are expanded"),
    (r"nn\.elu_", "gradient", "", "in place PyTorch takes the slope by the sign of the result, which is wrong for scale < 0"),
    (named("clamp clip"), "backward accepted", "doesn't match the broadcast shape", "PyTorch adds in place to a smaller slope"),
    (named("histc"), "value", r"\{[^}]*(half|extreme)", "PyTorch's bins in 16 bits, or beyond the largest float, are off"),
    (named("histogramdd"), "value", "", "the edges are not sorted"),
    (ANY, "backward accepted", "In-place .* with a negative slope", "there is a gradient"),
    (named("unique unique_consecutive"), "value", r"\{[^}]*nonfinite", "along a dim PyTorch orders NaN by an accident"),
    (named("rrelu_with_noise"), "changed input", "", "PyTorch writes to noise as if it were contiguous"),
    (named("sum nansum mean cumsum"), "value|gradient", r"\{[^}]*extreme", "what a huge number swallows depends on the order"),
    (named("nansum"), "value", r"\{[^}]*nonfinite", "PyTorch makes the largest number of inf"),
    (named("lu tensorinv tensorsolve"), "value|refused", "", "singular once the dims are folded, or too small to be divided by"),
    (named("instance_norm"), "changed input", r"\{[^}]*nonfinite", "NaN or inf: which of them running statistics become"),
    (named("polar"), "gradient", "", "PyTorch's slope is wrong below zero"),
    (named("hardsigmoid"), "gradient", "", "PyTorch has 1/6 in float32"),
    (named("var std var_mean std_mean"), "gradient", "", "with dim=[] PyTorch divides by the items of no dim"),
    (named(r"scatter_reduce vander huber_loss adaptive_\w+_pool\dd max_unpool\dd"),
     "backward accepted", "", "PyTorch's backward fails for arguments that its forward took"),
    (named("float_power pow"), "value", r"expected nan.*\{[^}]*complex", "0 to the power of 0"),
    (named(r"multilabel_margin_loss interpolate upsample_\w+"),
     "value", "", "PyTorch's mean of nothing, its integer arithmetic"),
    (named("silu mish"), "gradient", "complex", "PyTorch has no complex derivative"),
    # ---- more than PyTorch
    (ANY,
     "accepted", "not implemented for '|Unsupported input type|boolean tensor|bool is not supported|"
     "got (Bool|Half|BFloat16) |could not infer output dtype. Input",
     "a dtype that PyTorch has no kernel for"),
    (ANY, "accepted", "Promotion for uint16, uint32, uint64", "an int beyond int64 is no uint64: there is no such dtype here"),
    (named("gather"), "unreadable", "Sparse", "with sparse_grad PyTorch's gradient is sparse"),
    (ANY, "accepted", "pin_memory", "pinned memory needs no accelerator here"),
    (ANY, "accepted", "expected TypeError", "one row serves several of PyTorch's signatures, and their keywords"),
    (ANY,
     "accepted", "automatic differentiation|Autograd not support|not differentiable with respect",
     "there is a gradient"),
    (named("acosh arccosh asinh arcsinh atanh arctanh histogramdd _chunk_cat"),
     "backward accepted", "not implemented", "there is a gradient"),
    (ANY, "accepted", r"\{[^}]*out( singular)?\}", "out= takes every dtype that the result can be cast to"),
    (named(r"bilinear conv_transpose\dd adaptive_\w+_pool\dd interpolate native_batch_norm batch_norm unique "
           r"unique_consecutive norm_except_dim vecdot ormqr index_reduce conv2d pixel_\w+ addmv matrix_rank "
           r"scaled_dot_product_attention fractional_max_pool\dd linear_cross_entropy cross_entropy cholesky "
           r"lstsq lu_unpack cumulative_trapezoid trapezoid trapz \w*softmax \w*logsumexp cat cumm\w+ svdvals "
           "svd tensorsolve cosine_similarity embedding_renorm histogram tensor_split multi_margin_loss "
           r"index_put index_select conv_transpose\dd lu_factor_ex mode take_along_dim"),
     "accepted|refused|shape|dtype|exception", "empty",
     "empty tensors: PyTorch's answer depends on which library serves the call"),
    (named(r"conv_transpose\dd"),
     "accepted", "Output size is too small", "an empty result, as PyTorch has it where oneDNN serves"),
    (ANY,
     "refused", "(not implemented for '|Expected a floating point|Low precision|other than float|"
     r"can't be cast).*\{[^}]*empty",
     "an empty tensor of a dtype without a kernel: PyTorch does not look at it"),
    (ANY,
     "refused", "single memory location|view of a leaf",
     "in place over memory that overlaps itself, or changes a leaf: refused alike"),
    (ANY, "refused", "functions with out=", "PyTorch looks for gradients beside out= in most functions, not in all"),
    (ANY,
     "refused", r"not implemented for '(Complex\w+|Bool|Long)'", "order, sums and pools of numbers that have none"),
    (named(r"hardshrink amax amin aminmax grid_sampler_\dd grid_sample scaled_dot_product_attention hardswish "
           r"elu prelu cumprod relu6 celu leaky_relu \w*_loss\w* cdist pdist maximum minimum fmax fmin clamp "
           "clip clamp_min clamp_max hypot renorm logaddexp logaddexp2 prod nan_to_num fmod remainder "
           r"huber_loss embedding_bag hardtanh mean sum sinc int expm1 \w*pool\dd\w* softshrink lu_solve dist "
           "logsumexp softmin xlogy xlog1py pow angle sgn batch_norm instance_norm layer_norm rms_norm "
           r"group_norm native_layer_norm bilinear einsum matmul addm?[mv]? baddbmm bmm conv\w* inner dot vdot "
           "trapz trapezoid cumulative_trapezoid std var std_mean var_mean ldexp addcdiv addcmul lerp __rdiv__ "
           "reciprocal div true_divide divide rsub log1p atan2 i0"),
     "value|gradient", r"\{[^}]*(nonfinite|half|empty|complex)",
     "NaN, inf and 16 bits: which operand wins, which branch is taken"),
    # ---- arguments that one side checks
    (named("abs absolute cumprod cumsum resize squeeze squeeze_copy addr addmm affine_grid_generator "
           "binary_cross_entropy_with_logits cdist celu cross fftshift ifftshift fftfreq rfftfreq hardtanh "
           "scaled_dot_product_attention soft_margin_loss native_dropout huber_loss cross_entropy_loss "
           "cross_entropy logspace logsumexp repeat_interleave unique unique_consecutive vander norm_except_dim "
           r"gelu rrelu_with_noise range instance_norm randint_like tensor_split max_unpool\dd vector_norm norm "
           "histogram empty batch_norm bernoulli renorm lcm"),
     "accepted", "^(?!.*OverflowError)", "an argument that changes nothing, or could mean one thing only: served"),
    (ANY, "accepted", r"(OverflowError|without overflow).*\{[^}]*empty", "no number is looked at where there are no items"),
    (named(r"addr apply map map2 contiguous complex view_as_complex view_copy grid_sampler_\dd eye logspace "
           "zeros ones randperm randn margin_ranking_loss native_batch_norm rrelu_with_noise trapz trapezoid "
           r"cosine_similarity hinge_embedding_loss fractional_max_pool\dd pad lu lu_factor solve_triangular "
           "linear_cross_entropy to nan_to_num min max scaled_dot_product_attention"),
     "refused", "", "forms that PyTorch takes beside the documented ones"),
    (named("unique unique_consecutive histogram histogramdd lstsq native_batch_norm native_layer_norm normal "
           "detach_copy bernoulli median nanmedian trapz trapezoid vander fftfreq rfftfreq full randn randperm "
           r"zeros ones eq ne lt le gt ge not_equal less less_equal greater greater_equal \w+_copy linspace "
           "logspace arange empty rand eye range"),
     "requires_grad", "", "results that have no gradient, or one of zeros: only the flag differs"),
    (named("hinge_embedding_loss margin_ranking_loss native_dropout poisson_nll_loss trapz trapezoid "
           "multi_margin_loss scaled_dot_product_attention soft_margin_loss"),
     "dtype|shape", "", "losses of integers"),
    (named("zero resize resize_as"), ANY, "", "OpInfo calls another function"),
    (named("rand_like randn rand"), "value", "", "OpInfo calls another function; out= of another dtype"),
    (ANY, "sign of zero", "", "sums and products of zeros: the order of the operations shows"),
    (named(r"native_batch_norm batch_norm narrow_copy pdist as_strided_scatter fractional_max_pool\dd cov "
           "unique_consecutive logspace ldexp"),
     "value|gradient|changed input|structure", "",
     "overlapping statistics, a start below zero, ties, integers that overflow: PyTorch's result is one of several"),
    (named("scatter_add dist embedding_renorm interpolate nll_loss logaddexp native_channel_shuffle igamma "
           "igammac gammainc gammaincc heaviside rrelu_with_noise huber_loss"),
     "backward (accepted|refused)", "", "whether a gradient that is not needed or of mixed dtypes is asked for"),
    (named("where"), "structure|value|accepted|shape", "", "Tensor.where has its own test"),
    (named(r"rfftfreq norm_except_dim unique_consecutive gcd lcm conv\dd ldexp huber_loss"),
     "shape|dtype|value", "",
     "negative lengths, one dim, the sign of a divisor of the least int: PyTorch's answer is an accident"),
    (named(r"hardshrink addcdiv addcmul index_add new_empty_strided avg_pool\dd fractional_max_pool\dd vecdot"),
     "accepted", "", "an argument that changes nothing, or could mean one thing only: served"),
    (named(r"bincount arange full cumulative_trapezoid broadcast_to lu_solve nansum adaptive_\w+_pool\dd "
           r"max_unpool\dd"),
     "refused", "", "forms that PyTorch takes beside the documented ones"),
    (ANY, "accepted", "single memory location", "several values for one place: any of them may stay"),
    (named("scatter_add triangular_solve floor_divide fill"), "requires_grad", "", "only the flag differs"),
    (named("addcdiv index_fill pixel_shuffle mean sum elu ldexp scatter float_power layer_norm floor_divide zeta "
           "scatter_add index_put"),
     "backward (accepted|refused)", "",
     "gradients of mixed dtypes, of empty tensors, of a value changed in place: one side cannot"),
    ("indexing|assigning_",
     "refused|accepted", r"\{[^}]*empty|tensors used as indices", "an index of no items may have any dtype"),
    (ANY, "exception", "CannNotFoundError|OverflowError", "a number that does not fit is looked at before the rest"),
    (named("roll multilabel_margin_loss"), "refused", "empty|bool", "forms that PyTorch takes beside the documented ones"),
)


def reason(target: str, kind: str, detail: str) -> int:
    """Which row accepts this difference; -1: none."""
    for at, (targets, kinds, words, _) in enumerate(ACCEPTED):
        if re.fullmatch(kinds, kind) and re.fullmatch(targets, target) and re.search(words, detail):
            return at
    return -1


def comparable(target: str, result: Any) -> Any:
    """What of a result can be compared: all, but where it is unique only up to a sign or a phase."""
    name = target.removeprefix("info.").removeprefix("Tensor.")
    return oracle.UP_TO_PHASE[name](result) if name in oracle.UP_TO_PHASE else result
