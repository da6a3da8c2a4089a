// Pointwise ops of several operands: arithmetic, division in its roundings, powers, extremes, clamping, bits, where.
// Comparisons are in compare.cpp.
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

constexpr PointwiseOp kArithmetic[] = {
    {"aclnnAdd", "aclnnInplaceAdd", "add", Rule::promote, "01", "2"},
    {"aclnnAdds", "aclnnInplaceAdds", "add", Rule::promote, "01", "2"},
    {"aclnnAddV3", "aclnnInplaceAddV3", "add", Rule::promote, "01", "2"},
    {"aclnnSub", "aclnnInplaceSub", "sub", Rule::promote, "01", "2"},
    {"aclnnSubs", "aclnnInplaceSubs", "sub", Rule::promote, "01", "2"},
    {"aclnnRsub", nullptr, "rsub", Rule::promote, "01", "2"},
    {"aclnnRsubs", nullptr, "rsub", Rule::promote, "01", "2"},
    {"aclnnMul", "aclnnInplaceMul", "mul", Rule::promote, "01"},
    {"aclnnMuls", "aclnnInplaceMuls", "mul", Rule::promote, "01"},
    {"aclnnDiv", "aclnnInplaceDiv", "div", Rule::floating, "01"},
    {"aclnnDivs", "aclnnInplaceDivs", "div", Rule::floating, "01"},
    {"aclnnFloorDivide", "aclnnInplaceFloorDivide", "div_floor", Rule::promote, "01"},
    {"aclnnFloorDivides", "aclnnInplaceFloorDivides", "div_floor", Rule::promote, "01"},
    {"aclnnRemainderTensorTensor", "aclnnInplaceRemainderTensorTensor", "remainder", Rule::promote, "01"},
    {"aclnnRemainderTensorScalar", "aclnnInplaceRemainderTensorScalar", "remainder", Rule::promote, "01"},
    {"aclnnRemainderScalarTensor", nullptr, "remainder", Rule::promote, "01"},
    {"aclnnFmodTensor", "aclnnInplaceFmodTensor", "fmod", Rule::promote, "01"},
    {"aclnnFmodScalar", "aclnnInplaceFmodScalar", "fmod", Rule::promote, "01"},
    {"aclnnPowTensorTensor", "aclnnInplacePowTensorTensor", "pow", Rule::promote, "01"},
    {"aclnnPowTensorScalar", "aclnnInplacePowTensorScalar", "pow_scalar", Rule::attributes, "0", "1"},
    {"aclnnPowScalarTensor", nullptr, "pow", Rule::promote, "01"},
    {"aclnnAtan2", "aclnnInplaceAtan2", "atan2", Rule::floating, "01"},
    {"aclnnLogAddExp", nullptr, "logaddexp", Rule::floating, "01"},
    {"aclnnLogAddExp2", nullptr, "logaddexp2", Rule::floating, "01"},
    {"aclnnXLogYTensor", "aclnnInplaceXLogYTensor", "xlogy", Rule::floating, "01"},
    {"aclnnXLogYScalarOther", "aclnnInplaceXLogYScalarOther", "xlogy", Rule::floating, "01"},
    {"aclnnXLogYScalarSelf", nullptr, "xlogy", Rule::floating, "01"},
    {"aclnnXlog1py", nullptr, "special_xlog1py", Rule::floating, "01"},
    {"aclnnHeaviside", nullptr, "heaviside", Rule::promote, "01"},
    {"aclnnMaximum", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnMinimum", nullptr, "minimum", Rule::promote, "01"},
    {"aclnnClampMin", nullptr, "clamp", Rule::attributes, "0", "1-"},
    {"aclnnClampMax", "aclnnInplaceClampMax", "clamp", Rule::attributes, "0", "-1"},
    {"aclnnClampMinTensor", "aclnnInplaceClampMinTensor", "maximum", Rule::promote, "01"},
    {"aclnnClampMaxTensor", "aclnnInplaceClampMaxTensor", "minimum", Rule::promote, "01"},
    {"aclnnLerp", "aclnnInplaceLerp", "lerp", Rule::floating, "012"},
    {"aclnnLerps", "aclnnInplaceLerps", "lerp", Rule::floating, "012"},
    {"aclnnAddcmul", "aclnnInplaceAddcmul", "addcmul", Rule::promote, "012", "3"},
    {"aclnnAddcdiv", "aclnnInplaceAddcdiv", "addcdiv", Rule::floating, "012", "3"},
    {"aclnnGcd", nullptr, "gcd", Rule::promote, "01"},
    {"aclnnBitwiseAndTensor", "aclnnInplaceBitwiseAndTensor", "bitwise_and", Rule::promote, "01"},
    {"aclnnBitwiseAndTensorOut", "aclnnInplaceBitwiseAndTensorOut", "bitwise_and", Rule::promote, "01"},
    {"aclnnBitwiseAndScalar", "aclnnInplaceBitwiseAndScalar", "bitwise_and", Rule::promote, "01"},
    {"aclnnBitwiseOrTensor", "aclnnInplaceBitwiseOrTensor", "bitwise_or", Rule::promote, "01"},
    {"aclnnBitwiseOrScalar", "aclnnInplaceBitwiseOrScalar", "bitwise_or", Rule::promote, "01"},
    {"aclnnBitwiseXorTensor", "aclnnInplaceBitwiseXorTensor", "bitwise_xor", Rule::promote, "01"},
    {"aclnnBitwiseXorScalar", "aclnnInplaceBitwiseXorScalar", "bitwise_xor", Rule::promote, "01"},
    {"aclnnLeftShift", nullptr, "bitwise_left_shift", Rule::promote, "01"},
    {"aclnnLeftShifts", nullptr, "bitwise_left_shift", Rule::promote, "01"},
    {"aclnnRightShift", nullptr, "bitwise_right_shift", Rule::promote, "01"},
    {"aclnnSWhere", nullptr, "where", Rule::select, "012"},
};
REGISTER_POINTWISE(kArithmetic);

// ---- divisions whose rounding is an argument: 0 none, 1 towards zero, 2 towards minus infinity -----
constexpr PointwiseOp kDivisions[] = {
    {"aclnnDivMod", nullptr, "div", Rule::floating, "01"},
    {"aclnnDivMod", nullptr, "div_trunc", Rule::promote, "01"},
    {"aclnnDivMod", nullptr, "div_floor", Rule::promote, "01"},
};
const mt::Pointwise* division(int64_t mode) {
  static const mt::Pointwise* const found[] = {kernel_of(kDivisions[0]), kernel_of(kDivisions[1]),
                                               kernel_of(kDivisions[2])};
  return found[mode];
}
void check_division(const Call& c) {
  const int64_t mode = c.integer(2);
  EXPECT(mode >= 0 && mode <= 2, "%s: expected mode 0, 1 or 2, got %ld", c.name(), mode);
  check_pointwise(c, kDivisions[mode], division(mode));
}
void run_division(Run& run) {
  const int64_t mode = run.call.integer(2);
  run_pointwise(run, kDivisions[mode], division(mode));
}
const Op divisions[] = {
    {"aclnnDivMod", check_division, run_division}, {"aclnnInplaceDivMod", check_division, run_division},
    {"aclnnDivMods", check_division, run_division}, {"aclnnInplaceDivMods", check_division, run_division}};

// ---- clamping between two bounds, of which one may be absent -----------------------------------------
constexpr PointwiseOp kClamp[] = {
    {"aclnnClamp", nullptr, "clamp", Rule::attributes, "0", "12"},
    {"aclnnClampTensor", nullptr, "clamp_tensor", Rule::promote, "012"},
    {"aclnnClampTensor", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnClampTensor", nullptr, "minimum", Rule::promote, "02"},
};
void expect_a_bound(const Call& c) {
  if (!c.given(1) && !c.given(2))
    refuse(ACLNN_ERR_PARAM_NULLPTR, "%s: clipValueMin and clipValueMax are both null", c.name());
}
void check_clamp(const Call& c) {
  expect_a_bound(c);
  check_row<kClamp, 0>(c);
}
void check_clamp_tensor(const Call& c) {
  expect_a_bound(c);
  (!c.given(2) ? check_row<kClamp, 2> : !c.given(1) ? check_row<kClamp, 3> : check_row<kClamp, 1>)(c);
}
void run_clamp_tensor(Run& run) {
  (!run.given(2) ? run_row<kClamp, 2> : !run.given(1) ? run_row<kClamp, 3> : run_row<kClamp, 1>)(run);
}
const Op clamp("aclnnClamp", check_clamp, run_row<kClamp, 0>);
const Op clamp_tensor("aclnnClampTensor", check_clamp_tensor, run_clamp_tensor);

// ---- the sum and the extremes of a list of tensors of one shape ---------------------------------
DType list_dtype(const Call& c) {
  DType common = dtype_of(c.tensors(0)[0].dtype);
  for (const TensorMeta& t : c.tensors(0)) common = promote(common, dtype_of(t.dtype));
  return common;
}
void check_list(const Call& c) {
  EXPECT(c.args[0].count > 0, "%s: expected at least one tensor", c.name());
  Sizes sizes;
  for (const TensorMeta& t : c.tensors(0)) sizes = broadcast_sizes(sizes, sizes_of(t));
  expect_shape(c, 1, sizes);
  expect_result(c, list_dtype(c), 1);
}
void fold(Run& run, const char* kernel, std::initializer_list<mt::Attr> attributes) {
  const DType compute = list_dtype(run.call);
  const std::vector<Value> all = run.tensors(0);
  Value folded = all[0].to(opmath(compute));
  for (size_t i = 1; i < all.size(); ++i) folded = pointwise(kernel, opmath(compute), {folded, all[i]}, attributes);
  copy(run.tensor(1), folded);
}
void run_sum(Run& run) { fold(run, "add", {integer(1)}); }
void run_max(Run& run) { fold(run, "maximum", {}); }
void run_min(Run& run) { fold(run, "minimum", {}); }
const Op lists[] = {{"aclnnSum", check_list, run_sum}, {"aclnnAddN", check_list, run_sum},
                    {"aclnnMaxN", check_list, run_max}, {"aclnnMinN", check_list, run_min}};

// ---- add, then relu -----------------------------------------------------------------------------
constexpr PointwiseOp kAddRelu[] = {{"aclnnAddRelu", "aclnnInplaceAddRelu", "add", Rule::promote, "01", "2"}};
void check_add_relu(const Call& c) { check_row<kAddRelu, 0>(c); }
void run_add_relu(Run& run) {
  run_row<kAddRelu, 0>(run);
  const Value out = run.tensor(output_of(run.call));
  call_pointwise("relu", out.dtype, {out, out});
}
const Op add_relu("aclnnAddRelu", check_add_relu, run_add_relu);
const Op inplace_add_relu("aclnnInplaceAddRelu", check_add_relu, run_add_relu);

}  // namespace
}  // namespace cann_sim
