"""Differences to PyTorch that fuzz_parity.py accepts, with a reason each."""
from __future__ import annotations

import re
from typing import Any

import oracle

ANY = r".*"
SMALL = r"off by \de-(0[4-9]|[1-9]\d)"          # in the detail of a value or gradient: at most a rounding of float32, or nearly
# torch.<name>, Tensor.<name>, a namespace's <name> or an entry of OpInfo, in place or not
NAME = r"(info\.|Tensor\.)?(nn\.functional\.|nn\.|linalg\.|special\.|fft\.|masked\.)?"


def named(names: str) -> str:
    """A pattern for these functions, patterns themselves, in all their forms."""
    return NAME + r"(" + "|".join(names.split()) + r")_?(\.\w+)?"


DECOMPOSED = named("cholesky cholesky_ex cholesky_inverse cholesky_solve cond det eig eigh eigvals eigvalsh "
                   "geqrf householder_product inv inv_ex inverse ldl_factor ldl_factor_ex ldl_solve logdet lstsq lu lu_factor "
                   "lu_factor_ex lu_solve lu_unpack matrix_exp matrix_norm matrix_power matrix_rank norm "
                   "nuclear_norm orgqr ormqr pca_lowrank pinv pinverse qr slogdet solve solve_ex "
                   "solve_triangular svd svd_lowrank svdvals tensorinv tensorsolve triangular_solve vander")

# What an error is about, by its words: the first that matches. Two errors about different things are no contradiction.
SUBJECTS = (
    ("words", r"argument must be either|compute_mode|None is not a valid"),
    ("arguments", r"^TypeError: |OverflowError|Overflow when unpacking"),
    ("memory", r"memory location|in-place operation|written-to|share memory|overlap|resiz"),
    ("gradient", r"automatic differentiation|requires? grad|differentiable|derivative|require gradients|Variable"),
    ("shape", r"multi-target not supported"),
    ("two dtypes",
     r"mixed dtype|scalar type \w+ but found|can't be cast|same dtype|Found dtype|out tensor to have dtype|"
                   r"did not match|[Tt]ype promoting|output tensor's dtype|input and out to match|Bad in-place|"
                   r"to have scalar type|be of scalar type|scalar_type \w+ but found|for (values|indices) output|"
                   r"safely castable|Expected canCast|for argument 'out'|"
                   r"acc_dtype must be|weight type|expected \w+ to have floating point dtype"),
    ("dtype",
     r"not implemented for '|dtype|scalar type|[Ff]loating|complex|[Ii]ntegral|[Ii]nteger|[Bb]ool|precision|types "
     r"other|"
              r"Unsupported|Float or Double|non-negative integral|support|torch\.\w*int\d+"),
    ("shape",
     r"[Dd]im|shape|size|\d-?D|rank|elements|length|matri|vector|batch|empty|must match|broadcast|index|indices|square|"
              r"channels|number of|stride|out of range|tuple|list|reduc"),
)


def subject(error: str) -> str:
    """What an error is about: one of SUBJECTS, or a value."""
    return next((name for name, words in SUBJECTS if re.search(words, error)), "value")


def with_subjects(detail: str) -> str:
    """The detail of a refusal with what both errors are about in front: <ours|theirs>."""
    ours, _, theirs = detail.rpartition("{")[0].partition(", expected ")
    return f"<{subject(ours)}|{subject(theirs)}> {detail}"


# (targets, kinds, words of the detail, reason): patterns, the first two matched as a whole. The detail ends in tags
# that say what was among the arguments: {complex empty extreme grad half int large limit mixed negative nonfinite out
# singular strided unsorted};
# that of a refusal for which both have another type of exception begins with their subjects.
ACCEPTED: tuple[tuple[str, str, str, str], ...] = (
    # ---- what is not promised
    (named("new_empty empty empty_like empty_strided empty_permuted new_empty_strided resize resize_as"),
     "value|changed input", "", "memory that is not set"),
    (ANY,
     "(backward )?refusal", r"^<([\w ]+)\|(?!\1>)",
     "a call that is wrong in two ways is refused for either; which is looked at first is free"),
    (named(r"slow_conv\w*"), "refused", "must be equal to kernel_size|padding",
     "PyTorch reads the weight as if it had kernel_size, which is that of other items or of none"),
    (ANY, "refusal", r"^<arguments\|arguments>.*Overflow when unpacking",
     "of two wrong arguments either is looked at first"),
    (named(r"grid_sampler_\dd avg_pool2d im2col adaptive_avg_pool\dd index_reduce index_add index_copy ormqr embedding "
           r"embedding_bag mv scatter scatter_add scatter_reduce pinv native_batch_norm narrow_copy nll_loss\w* "
           r"cross_entropy_loss histogramdd \w*fft\w* instance_norm group_norm batch_norm stack addmv "
           r"scaled_dot_product_attention ldl_solve thnn_conv2d slow_conv\w*"),
     "refusal", "^<(shape|value).*expected (IndexError: (Dim|start|index_copy)|ValueError: running)",
     "PyTorch reads a size before it counts the dims, or the dims before an argument's other faults"),
    (named("addbmm baddbmm unsafe_split split_copy split unflatten vecdot affine_grid_generator batch_norm "
           "scaled_dot_product_attention cumulative_trapezoid trapz trapezoid native_batch_norm narrow_copy "
           "nll_loss_nd diag_embed ctc_loss "
           r"fractional_max_pool\dd rms_norm"),
     "refusal",
     "^<shape.*> (IndexError: (Dim|argmax|index|invalid|too many)|ValueError: (Input|Expected)).*expected "
     "(Runtime|Value)Error",
     "of two sizes that are wrong the "
     "other one is looked at first"),
    (named("index_select embedding index_fill index_add index_copy"),
     "refusal", r"^<(shape|memory).*(INDICES|index_select.. self|setStorage|index out of range in self)",
     "an index out of range is an IndexError here whichever of PyTorch's loops would read it"),
    (named("tensorinv"), "refusal", "invalid slice", "PyTorch stumbles over a tensor without dims"),
    (named("amax amin linear_cross_entropy broadcast_shapes tensor_split embedding_bag"),
     "refusal", "^<shape", "of two sizes that are wrong the other one is looked at first"),
    (named(r"unique unique_consecutive stft matrix_rank nuclear_norm nanmean rfftfreq cumprod cumsum lu_solve "
           r"batch_norm "
           r"native_batch_norm adaptive_avg_pool\dd interpolate embedding_bag cross cov clamp\w* mse_loss "
           r"smooth_l1_loss "
           r"binary_cross_entropy\w* multilabel_margin_loss gelu softshrink histc relu6 hardtanh "
           r"fractional_max_pool\dd scaled_dot_product_attention _batch_norm_with_update _native_batch_norm_legit"),
     "refusal", r"^<dtype\|dtype>", "a part of the function here, another one there has no kernel for the dtype"),
    (named("conv1d conv2d conv3d"), "refusal", "^<two dtypes|^<dtype",
     "PyTorch looks for a kernel before it compares dtypes"),
    (named("scatter scatter_add"), "backward refusal", "invalid gradient", "an index without items may have any rank"),
    (named("ctc_loss nansum pinv"), "refusal", "^<dtype", "of two dtypes that are wrong the other one is looked at first"),
    (named("svdvals svd randperm"), "refusal", "^<dtype|^<value",
     "the dtype and another argument: either is looked at first"),
    (named("geqrf"), "backward refusal", "^<gradient",
     "there is no derivative; PyTorch raises either of two types"),
    (named("put index_put index_copy scatter as_strided_scatter index_fill"),
     "value|changed input", "", "several values for one place: any of them may stay"),
    (named("tril triu fill_diagonal"), "value|changed input", "",
     "a tensor that overlaps itself: any of several values may stay"),
    (named("bucketize"), "value", r"\{[^}]*unsorted", "the boundaries are not sorted"),
    (named("searchsorted"), "value", "", "the boundaries are not sorted"),
    (named("sort argsort msort topk kthvalue median nanmedian mode quantile nanquantile"),
     "gradient|value", "", "which of equal items is chosen"),
    (named("embedding_bag"), "value", r"\{[^}]*unsorted", "the offsets do not ascend"),
    (named("multi_head_attention_forward"), "value", r"\{[^}]*half", "a softmax of large numbers of 16 bits"),
    (named("isin"), "value", "", "assume_unique of items that are not"),
    (named("lu lu_factor lu_factor_ex geqrf"), "value", "",
     "of equal pivots either is chosen, and either sign of a column"),
    (ANY,
     "value|gradient", r"(nan|inf).*expected|expected.*(nan|inf)(?s:.)*\{[^}]*(complex|extreme|half)",
     "where a complex, huge or 16-bit number overflows depends on the order of the operations"),
    (DECOMPOSED, ANY, r"\{[^}]*(nonfinite|extreme)", "LAPACK says nothing of matrices with NaN, inf or overflow"),
    (DECOMPOSED,
     ANY, r"\{[^}]*singular", "a singular matrix: no result is unique, and pivots of zero come by rounding"),
    (named("eigh eig svd svd_lowrank pca_lowrank qr lstsq"),
     "gradient|value|changed input", "^(?!.*empty)",
     "vectors are unique up to a phase, and so are gradients through them"),
    (named("svd_lowrank pca_lowrank"), "gradient", "empty", "vectors are unique up to a phase, and so are gradients through them"),
    (named("logcumsumexp"), "value|gradient", r"\{[^}]*complex",
     "the sign of pi in a logarithm; inf in one part of a number"),
    (named("stft as_strided_copy as_strided"), "gradient", "",
     "of a leaf whose items share memory PyTorch divides the gradient among them"),
    (r"nn\.smooth_l1_loss", "gradient", "", "at 0 with beta=0: any slope from -1 to 1; nn.functional calls l1_loss"),
    (named(r"fft ifft rfft irfft hfft ihfft \w*fft2 \w*fftn stft istft"),
     "value|gradient", r"\{[^}]*(nonfinite|extreme)", "NaN and inf spread by the order of the sums"),
    # ---- PyTorch's own faults
    (ANY,
     "accepted", "INTERNAL ASSERT|undefined Tensor|report a(n enhancement| bug)",
     "PyTorch fails with an internal error"),
    (ANY, "refusal", "expected RuntimeError: .*INTERNAL ASSERT", "PyTorch fails with an internal error"),
    (ANY, "accepted", "MKL FFT error|Unsupported memory format", "PyTorch's library refuses the sizes or strides"),
    (ANY,
     "(backward )?accepted", r"view size is not compatible|narrow\(\): length|cannot reshape tensor of 0|"
     "invalid slice|storage_offset divisible",
     "PyTorch stumbles over strides or empty tensors inside"),
    (named("as_strided new_empty_strided empty_strided repeat tile expand rand randint"),
     "refused", "negative|-1", "PyTorch makes tensors of negative sizes and strides"),
    (named("as_strided_scatter"), "refused", "out of bounds for storage", "PyTorch writes outside of the memory"),
    (named("fill_diagonal"), "accepted", "setStorage",
     "PyTorch counts the diagonal by strides that are not those of rows"),
    (named("vector_norm dist pairwise_distance triplet_margin_loss"), "value", r"expected (inf|nan)(?s:.)*\{[^}]*large",
     "a sum of high powers overflows in PyTorch, and the difference of two such norms is NaN"),
    (named("pairwise_distance"), "value", SMALL + r"(?s:.)*\{[^}]*large", "powers so high that their sum is a denormal number"),
    (named("var_mean std_mean"), "value", SMALL, "items that cancel: a mean is off by a rounding of the largest item"),
    (r"(info\._)?segment_reduce(\.offsets)?", "value", "", "offsets behind the last item: PyTorch reads what lies there"),
    (named("cov"), "dtype", r"\{[^}]*int", "weights without dims beside integers: PyTorch fails unless the integers have none too"),
    (named("_?segment_reduce"), "accepted", r"expected RuntimeError: min\(\)", "no segment: PyTorch looks for the least length"),
    (named("_?segment_reduce"), "gradient", r"^\[\d+\] -.*expected -",
     "of several items with the extreme's value: PyTorch divides among them only a gradient above 0"),
    (named("renorm"), "value", r"^\[\d+\] -?0\.0, expected",
     "an order beyond float32: a norm that overflows here is 1 in PyTorch, as inf to the power of 1/inf"),
    (named("rrelu_with_noise"), "shape", r"\{[^}]*out", "PyTorch does not resize out="),
    (named("slice_scatter"), "accepted", "Negative strides", "a step beyond int64 overflows in PyTorch"),
    (named("max_pool1d"), "backward refused", "index out of range",
     "a window without an item: PyTorch ends the process"),
    (named("tensorsolve tensorinv"), "value", "expected -?inf", "a denormal number: PyTorch multiplies by its inverse"),
    (named("native_dropout"), "gradient", "", "with train=None PyTorch's backward does not scale"),
    (named("block_diag"), "gradient", r"\{[^}]*empty", "PyTorch's backward drops the row of an empty vector"),
    (named("ormqr orgqr householder_product"), "gradient", "expected (nan|-?inf)",
     "PyTorch divides by what is 0 where a reflection's factor is 0 or 1"),
    (named("scatter_reduce"), "gradient", "", "PyTorch broadcasts the gradient where src is larger than index"),
    (named("sub subtract rsub"), "value|gradient", r"e\+1\d", "minus the least int64 is itself in PyTorch"),
    (named("group_norm native_group_norm narrow_copy cumprod gather view_as_real_copy nll_loss nll_loss_nd "
           "cross_entropy_loss"),
     "backward accepted",
     "does not have a device|must match|can't be cast|int64 tensor|stride 1|invalid for input of size|size mismatch",
     "PyTorch's backward fails for arguments that its forward took"),
    (named("fftfreq rfftfreq"), "value", r"\{[^}]*out[^}]*strided", "PyTorch writes half of it to out= as if that were contiguous"),
    (named("fftfreq rfftfreq"), "shape", r"\{[^}]*empty[^}]*out",
     "an out= of no items keeps its shape in PyTorch"),
    (named("kl_div"), "value", SMALL + r"(?s:.)*\{[^}]*mixed", "a logarithm in the target's float32"),
    (named("kl_div ndtr remainder renorm floor_divide pairwise_distance"), "value", r"\{[^}]*(half|singular)",
     "16 bits, and quotients beyond the largest float"),
    (named("corrcoef histogram frexp"), "value|gradient", r"\{[^}]*(extreme|grad)",
     "integers that overflow, ranges and slopes that do"),
    (named("affine_grid_generator binary_cross_entropy_with_logits"), "backward accepted",
     "invalid gradient|doesn't match",
     "PyTorch's backward fails for arguments that its forward took"),
    (named("binary_cross_entropy_with_logits"), "value", "", "out= of another dtype: PyTorch sums in float32"),
    (named("eigvals norm"), "gradient", "", "eigenvalues or singular values that are nearly equal"),
    (named("embedding_bag"), "refused", "1D or 2D", "offsets beside rows of indices, which PyTorch does not look at"),
    (named("native_batch_norm col2im"), "accepted", "TensorAccessor|spatial size|both be None",
     "served, where PyTorch's loop counts dims itself"),
    (named("replication_pad2d bucketize logsumexp"), "refused", "too small|without overflow|can't be cast",
     "an empty result, a number beyond the boundaries' dtype, out= of a real dtype: PyTorch takes them"),
    ("indexing", "refused", "Dimension out of range", "a second Ellipsis, which PyTorch places behind the last dim"),
    ("tensor", "dtype", "", "lists of different lengths: PyTorch looks at the first only"),
    (named("index_put"), "accepted", "only supports boolean masks", "a mask of bytes is a mask"),
    (ANY, "backward accepted", r"Expected isFloatingType\(grad",
     "PyTorch cannot bring a complex gradient to a real input"),
    (named("addbmm"), "accepted", "can't be cast", "of an empty batch PyTorch multiplies self in place"),
    (named("binary_cross_entropy"), "value|shape|accepted", "",
     "a target of another shape, which only nn.functional refuses"),
    (named("pairwise_distance dist view_as_complex_copy"), "dtype|refused", r"(float16|Half).*\{[^}]*half",
     "there is no complex dtype of 16-bit parts"),
    (named("uniform"), "refused", r"\{[^}]*complex", "of no complex items PyTorch does not look at the range"),
    (named("bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai digamma psi polygamma i0 i0e i1 i1e "
           r"modified_bessel_i0 modified_bessel_i1 scaled_modified_bessel_k\d modified_bessel_k\d "
           r"spherical_bessel_j0 (shifted_)?chebyshev_polynomial_\w hermite_polynomial_\w+ "
           r"laguerre_polynomial_\w legendre_polynomial_\w zeta igamma igammac gammainc gammaincc log_ndtr ndtri "
           "lgamma mvlgamma erfcx"),
     "value|gradient|sign of zero|refused", "", "PyTorch is off by up to 1e-6, and wrong at poles and at inf"),
    (named("cov corrcoef"), "changed input|accepted", "", "PyTorch changes its input"),
    (named("native_group_norm group_norm"),
     "value|gradient|accepted", "", "PyTorch reads parameters as if they were contiguous"),
    (named("gather scatter_add"), "value|gradient", r"\{[^}]*int", "PyTorch misreads int32 indices that are expanded"),
    (r"nn\.elu_", "gradient", r"\{[^}]*negative",
     "in place PyTorch takes the slope by the sign of the result, which is wrong for scale < 0"),
    (named("clamp clip"), "backward accepted", "doesn't match the broadcast shape",
     "PyTorch adds in place to a smaller slope"),
    (named("histc"), "value", r"\{[^}]*(half|extreme)",
     "PyTorch's bins in 16 bits, or beyond the largest float, are off"),
    (named("histogramdd"), "value", r"\{[^}]*unsorted", "the edges are not sorted"),
    (ANY, "backward accepted", "In-place .* with a negative slope", "there is a gradient"),
    (named("unique unique_consecutive"), "value|shape", r"\{[^}]*nonfinite",
     "along a dim PyTorch orders NaN by an accident"),
    (named("rrelu_with_noise"), "changed input", "", "PyTorch writes to noise as if it were contiguous"),
    (named("sum nansum mean nanmean cumsum"), "value|gradient", r"\{[^}]*extreme",
     "what a huge number swallows depends on the order"),
    (named("nansum"), "value", r"\{[^}]*nonfinite", "PyTorch makes the largest number of inf"),
    (named("instance_norm"), "changed input", r"\{[^}]*nonfinite",
     "NaN or inf: which of them running statistics become"),
    (named("polar"), "gradient", "", "PyTorch's slope is wrong below zero"),
    (named("hardsigmoid"), "gradient", SMALL, "PyTorch has 1/6 in float32"),
    (named("celu"), "gradient", SMALL, "PyTorch has 1/alpha in float32"),
    (named("pow float_power"), "gradient", SMALL + r"(?s:.)*\{[^}]*(int|mixed)",
     "PyTorch takes the logarithm of an integer base in float32"),
    (named("pow float_power"), "gradient", r"off by \de-(0[2-9]|\d\d)(?s:.)*\{[^}]*half[^}]*mixed",
     "PyTorch takes the logarithm of 16 bits in them"),
    (r"nn\.mse_loss", "gradient", "", "a target of another shape: PyTorch divides by the items of self alone"),
    (named("instance_norm"), "gradient", "from strided gradients",
     "PyTorch misreads a gradient whose dims are permuted; the numeric gradient agrees with this library"),
    (named("matrix_rank"), "value", r"\{[^}]*limit", "a singular value at the limit, but for rounding"),
    (named("var std var_mean std_mean"), "gradient", "", "with dim=[] PyTorch divides by the items of no dim"),
    (named(r"scatter_reduce vander huber_loss adaptive_\w+_pool\dd max_unpool\dd channel_shuffle view_as_real"),
     "backward accepted", "", "PyTorch's backward fails for arguments that its forward took"),
    (named("float_power pow"), "value", r"expected nan.*\{[^}]*complex", "0 to the power of 0"),
    (named(r"multilabel_margin_loss interpolate upsample_\w+"),
     "value|dtype|shape", "", "PyTorch's mean of nothing, its integer arithmetic"),
    (named("silu mish"), "gradient", "complex", "PyTorch has no complex derivative"),
    # ---- more than PyTorch
    (ANY,
     "accepted", "not implemented for '|Unsupported input type|boolean tensor|bool is not supported|"
     "got (Bool|Half|BFloat16) |could not infer output dtype. Input",
     "a dtype that PyTorch has no kernel for"),
    (ANY, "accepted", "Promotion for uint16, uint32, uint64",
     "an int beyond int64 is no uint64: there is no such dtype here"),
    (named("gather embedding"), "unreadable", "Sparse", "with sparse_grad PyTorch's gradient is sparse"),
    (ANY, "accepted", "pin_memory", "pinned memory needs no accelerator here"),
    (ANY, "accepted", "expected TypeError", "one row serves several of PyTorch's signatures, and their keywords"),
    (ANY,
     "accepted", "automatic differentiation|Autograd not support|not differentiable with respect",
     "there is a gradient"),
    (named("acosh arccosh asinh arcsinh atanh arctanh histogramdd _chunk_cat"),
     "backward accepted", "not implemented", "there is a gradient"),
    (named("embedding"), "backward accepted", "not supported with sparse gradients", "there is a gradient"),
    (ANY, "accepted", r"\{[^}]*\bout\b", "out= takes every dtype that the result can be cast to"),
    (named(r"bilinear conv_transpose\dd adaptive_\w+_pool\dd interpolate native_batch_norm batch_norm unique "
           "_batch_norm_with_update _native_batch_norm_legit "
           r"unique_consecutive norm_except_dim vecdot ormqr index_reduce conv2d pixel_\w+ addmv matrix_rank "
           r"scaled_dot_product_attention fractional_max_pool\dd linear_cross_entropy cross_entropy cholesky "
           r"lstsq lu_unpack cumulative_trapezoid trapezoid trapz \w*softmax \w*logsumexp cat cumm\w+ svdvals "
           r"concat\w* native_group_norm cross_entropy_loss cdist conv1d smooth_l1_loss "
           "svd tensorsolve cosine_similarity embedding_renorm histogram tensor_split multi_margin_loss "
           r"index_put index_select conv_transpose\dd lu_factor_ex mode take_along_dim"),
     "accepted|refused|shape|dtype|exception", "empty",
     "empty tensors: PyTorch's answer depends on which library serves the call"),
    (named("matmul bmm baddbmm"), "refused", r"same dtype(?s:.)*\{[^}]*empty",
     "two dtypes: PyTorch looks at them in a product of matrices, and not in a batch of products where nothing is multiplied"),
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
           r"elu selu cross_entropy acosh arccosh prelu cumprod relu6 celu leaky_relu \w*_loss\w* cdist pdist "
           r"maximum minimum fmax fmin clamp "
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
    (named("addmm addmv addbmm baddbmm"), "refused", r"without overflow.*\{[^}]*empty",
     "a factor of nothing: PyTorch does not look at it where there are no items"),
    (ANY, "accepted", r"(OverflowError|without overflow).*\{[^}]*empty",
     "no number is looked at where there are no items"),
    (named(r"addr apply map map2 contiguous complex view_as_complex view_copy grid_sampler_\dd eye logspace "
           "zeros ones randperm randn margin_ranking_loss native_batch_norm rrelu_with_noise trapz trapezoid "
           r"cosine_similarity hinge_embedding_loss fractional_max_pool\dd pad lu lu_factor solve_triangular "
           "linear_cross_entropy to nan_to_num min max scaled_dot_product_attention"),
     "refused", "", "forms that PyTorch takes beside the documented ones"),
    (named("unique unique_consecutive histogram histogramdd lstsq native_batch_norm native_layer_norm normal "
           "detach_copy bernoulli median nanmedian trapz trapezoid vander fftfreq rfftfreq full randn randperm "
           r"zeros ones eq ne lt le gt ge not_equal less less_equal greater greater_equal \w+_copy linspace "
           "logspace arange empty rand eye range heaviside matrix_norm masked_fill gather "
           "bincount scatter multilabel_margin_loss randint"),
     "requires_grad", "", "results that have no gradient, or one of zeros: only the flag differs"),
    (named("hinge_embedding_loss margin_ranking_loss native_dropout poisson_nll_loss trapz trapezoid "
           "multi_margin_loss scaled_dot_product_attention soft_margin_loss"),
     "dtype|shape", "", "losses of integers"),
    (named("pca_lowrank svd_lowrank"), "accepted", "same dtype|scalar type", "integers: PyTorch draws floats beside them and fails later"),
    (named("_batch_norm_with_update _native_batch_norm_legit"), "changed input|requires_grad", "",
     "statistics that overlap themselves, and whether saved statistics belong to the graph"),
    (named("to_padded_tensor to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc"), "refusal", "",
     "dense tensors, or too few dims: refused by both, in PyTorch by whatever it calls first"),
    (named("soft_margin_loss"), "refused", "bool tensor", "a target of bools: PyTorch multiplies before it negates"),
    (named("hardtanh"), "refused", "uint8_t", "PyTorch takes limits of integers without their fraction"),
    (named(r"bilinear ctc_loss hinge_embedding_loss nll_loss\w* multi_margin_loss linear logit lerp ormqr"),
     "accepted", "same dtype|targets|without overflow|scalar type|must be a matrix|same number of dim",
     "an argument that could mean one thing only: served"),
    (named("cumprod cumsum sum nansum prod mean"), "refused", "can't be cast",
     "no items, one item or out=: PyTorch casts to self's dtype"),
    (r"Tensor\.to", "dtype", "expected torch.bool", "True for a dtype is bool in PyTorch, and non_blocking here"),
    (named("copy"), "refused", "Overflow when unpacking", "an int beyond int64 is no number of torch's int64"),
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
    (named("amax amin instance_norm lstsq"), "refused", "NoneType|more than 1 value|does not fit",
     "None for no dims, one value a channel, batches that broadcast: PyTorch takes them"),
    (named("cholesky"), "accepted", "positive-definite", "a minor that is 0 but for rounding"),
    (named("roll multilabel_margin_loss"), "refused", "empty|bool|NoneType",
     "forms that PyTorch takes beside the documented ones"),
)


def reason(target: str, kind: str, detail: str) -> int:
    """Which row accepts this difference; -1: none."""
    if kind.endswith("refusal"):
        detail = with_subjects(detail)
    for at, (targets, kinds, words, _) in enumerate(ACCEPTED):
        if re.fullmatch(kinds, kind) and re.fullmatch(targets, target) and re.search(words, detail):
            return at
    return -1


def comparable(target: str, result: Any) -> Any:
    """What of a result can be compared: all, but where it is unique only up to a sign or a phase."""
    name = target.removeprefix("info.").removeprefix("Tensor.")
    return oracle.UP_TO_PHASE[name](result) if name in oracle.UP_TO_PHASE else result
