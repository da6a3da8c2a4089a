// Ops over lists of tensors: pointwise ops for every item, norms, rounding by a mode, copies and zeros. The fused steps
// of optimizers are in optim.cpp.
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

constexpr PointwiseOp kLists[] = {
    // one list
    {"aclnnForeachAbs", nullptr, "abs"},
    {"aclnnForeachAcos", "aclnnForeachACosInplace", "acos", Rule::floating},
    {"aclnnForeachAsin", nullptr, "asin", Rule::floating},
    {"aclnnForeachAtan", nullptr, "atan", Rule::floating},
    {"aclnnForeachCos", nullptr, "cos", Rule::floating},
    {"aclnnForeachCosh", nullptr, "cosh", Rule::floating},
    {"aclnnForeachErf", nullptr, "erf", Rule::floating},
    {"aclnnForeachErfc", nullptr, "erfc", Rule::floating},
    {"aclnnForeachExp", nullptr, "exp", Rule::floating},
    {"aclnnForeachExpm1", nullptr, "expm1", Rule::floating},
    {"aclnnForeachLog", "aclnnForeachLogInplace", "log", Rule::floating},
    {"aclnnForeachLog10", nullptr, "log10", Rule::floating},
    {"aclnnForeachLog1p", nullptr, "log1p", Rule::floating},
    {"aclnnForeachLog2", nullptr, "log2", Rule::floating},
    {"aclnnForeachNeg", nullptr, "neg"},
    {"aclnnForeachReciprocal", nullptr, "reciprocal", Rule::floating},
    {"aclnnForeachSigmoid", nullptr, "sigmoid", Rule::floating},
    {"aclnnForeachSign", nullptr, "sign"},
    {"aclnnForeachSin", nullptr, "sin", Rule::floating},
    {"aclnnForeachSinh", nullptr, "sinh", Rule::floating},
    {"aclnnForeachSqrt", nullptr, "sqrt", Rule::floating},
    {"aclnnForeachTan", nullptr, "tan", Rule::floating},
    {"aclnnForeachTanh", nullptr, "tanh", Rule::floating},
    // two lists; alpha is a tensor of one number, or a scalar in the second version
    {"aclnnForeachAddList", "aclnnForeachAddListInplace", "add", Rule::promote, "01", "2"},
    {"aclnnForeachAddListV2", nullptr, "add", Rule::promote, "01", "2"},
    {"aclnnForeachSubList", "aclnnForeachSubListInplace", "sub", Rule::promote, "01", "2"},
    {"aclnnForeachSubListV2", nullptr, "sub", Rule::promote, "01", "2"},
    {"aclnnForeachMulList", "aclnnForeachMulListInplace", "mul", Rule::promote, "01"},
    {"aclnnForeachDivList", "aclnnForeachDivListInplace", "div", Rule::floating, "01"},
    {"aclnnForeachMaximumList", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnForeachMinimumList", nullptr, "minimum", Rule::promote, "01"},
    {"aclnnForeachPowList", nullptr, "pow", Rule::promote, "01"},
    // a list and a number: a tensor of one, a scalar, or a scalar for each tensor
    {"aclnnForeachMulScalar", "aclnnForeachMulScalarInplace", "mul", Rule::promote, "01"},
    {"aclnnForeachMulScalarV2", nullptr, "mul", Rule::promote, "01"},
    {"aclnnForeachMulScalarList", nullptr, "mul", Rule::promote, "01"},
    {"aclnnForeachDivScalar", nullptr, "div", Rule::floating, "01"},
    {"aclnnForeachDivScalarV2", nullptr, "div", Rule::floating, "01"},
    {"aclnnForeachDivScalarList", nullptr, "div", Rule::floating, "01"},
    {"aclnnForeachMaximumScalar", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnForeachMaximumScalarV2", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnForeachMaximumScalarList", nullptr, "maximum", Rule::promote, "01"},
    {"aclnnForeachMinimumScalar", nullptr, "minimum", Rule::promote, "01"},
    {"aclnnForeachMinimumScalarV2", nullptr, "minimum", Rule::promote, "01"},
    {"aclnnForeachMinimumScalarList", nullptr, "minimum", Rule::promote, "01"},
    {"aclnnForeachPowScalar", nullptr, "pow", Rule::promote, "01"},
    {"aclnnForeachPowScalarV2", nullptr, "pow_scalar", Rule::attributes, "0", "1"},
    {"aclnnForeachPowScalarList", nullptr, "pow_scalar", Rule::attributes, "0", "1"},
    {"aclnnForeachPowScalarAndTensor", nullptr, "pow", Rule::promote, "01"},
    // x + number and x - number: the kernels want an alpha, which is 1
    {"aclnnForeachAddScalar", nullptr, "add", Rule::promote, "01", "+"},
    {"aclnnForeachAddScalarV2", nullptr, "add", Rule::promote, "01", "+"},
    {"aclnnForeachAddScalarList", nullptr, "add", Rule::promote, "01", "+"},
    {"aclnnForeachSubScalar", "aclnnForeachSubScalarInplace", "sub", Rule::promote, "01", "+"},
    {"aclnnForeachSubScalarV2", nullptr, "sub", Rule::promote, "01", "+"},
    {"aclnnForeachSubScalarList", nullptr, "sub", Rule::promote, "01", "+"},
    // three lists
    {"aclnnForeachLerpList", nullptr, "lerp", Rule::floating, "012"},
    {"aclnnForeachLerpScalar", nullptr, "lerp", Rule::floating, "012"},
    {"aclnnForeachAddcmulList", nullptr, "addcmul", Rule::promote, "012", "3"},
    {"aclnnForeachAddcmulScalar", nullptr, "addcmul", Rule::promote, "012", "3"},
    {"aclnnForeachAddcmulScalarV2", nullptr, "addcmul", Rule::promote, "012", "3"},
    {"aclnnForeachAddcmulScalarList", nullptr, "addcmul", Rule::promote, "012", "3"},
    {"aclnnForeachAddcdivList", nullptr, "addcdiv", Rule::floating, "012", "3"},
    {"aclnnForeachAddcdivScalar", nullptr, "addcdiv", Rule::floating, "012", "3"},
    {"aclnnForeachAddcdivScalarV2", nullptr, "addcdiv", Rule::floating, "012", "3"},
    {"aclnnForeachAddcdivScalarList", nullptr, "addcdiv", Rule::floating, "012", "3"},
};
REGISTER_FOREACH(kLists);

// ---- rounding by a mode: a tensor of one number, or a scalar in the second version --------------
constexpr PointwiseOp kRoundings[] = {
    {"to even", nullptr, "round", Rule::promote, "0", "-"}, {"down", nullptr, "floor"}, {"up", nullptr, "ceil"},
    {"to zero", nullptr, "trunc"}, {"fraction", nullptr, "frac"},
};
const PointwiseOp& rounding(int64_t mode) {
  switch (mode) {
    case 2: return kRoundings[1];
    case 3: return kRoundings[2];
    case 5: return kRoundings[3];
    case 7: return kRoundings[4];
    default: return kRoundings[0];  // 1, and what every other mode falls back to
  }
}
void check_round(const Call& c) {
  if (c.row->args[1].kind == Kind::k_tensor) expect_one_element(c, 1);
  check_foreach(c, kRoundings[0], kernel_of(kRoundings[0]));
}
void run_round(Run& run) {
  const bool by_tensor = run.call.row->args[1].kind == Kind::k_tensor;
  const int64_t mode = by_tensor ? *run.tensor(1).reshape({}).to(mt::kInt64).ptr<int64_t>() : run.call.scalar(1).i;
  run_foreach(run, rounding(mode), kernel_of(rounding(mode)));
}
const Op round_op("aclnnForeachRoundOffNumber", check_round, run_round);
const Op round_v2_op("aclnnForeachRoundOffNumberV2", check_round, run_round);

// ---- norms: one number for each tensor ----------------------------------------------------------
void expect_outputs(const Call& c, int i) {
  EXPECT(c.args[0].count == c.args[i].count, "%s: %d tensors and %d outputs", c.name(), c.args[0].count,
         c.args[i].count);
}
void check_norm(const Call& c) {  // (x, ord, out)
  expect_outputs(c, 2);
  for (int32_t k = 0; k < c.args[0].count; ++k) {
    dtype_of(c.tensors(0)[k].dtype), dtype_of(c.tensors(2)[k].dtype);
    EXPECT(c.tensors(2)[k].numel() == 1, "%s: output %d must have one element, and is %s", c.name(), k,
           describe(c.tensors(2)[k]).c_str());
  }
}
void run_norm(Run& run) {
  const std::vector<Value> x = run.tensors(0), out = run.tensors(2);
  for (size_t k = 0; k < x.size(); ++k) {
    const Value norm = empty({}, x[k].dtype);
    call_kernel("linalg_vector_norm", {norm, x[k]}, {scalar(run.call.scalar(1)), none(), integer(0), none()});
    copy(out[k], norm);
  }
}
const Op norm_op("aclnnForeachNorm", check_norm, run_norm);

// ---- copies and zeros ---------------------------------------------------------------------------
void check_copy(const Call& c) {
  expect_outputs(c, 1);
  for (int32_t k = 0; k < c.args[0].count; ++k) {
    const TensorMeta &from = c.tensors(0)[k], &to = c.tensors(1)[k];
    EXPECT(sizes_of(from) == sizes_of(to), "%s: item %d is %s, and its output %s", c.name(), k, describe(from).c_str(),
           describe(to).c_str());
    if (from.dtype != to.dtype) dtype_of(from.dtype), dtype_of(to.dtype);
  }
}
void run_copy(Run& run) {
  const std::vector<Value> x = run.tensors(0), out = run.tensors(1);
  for (size_t k = 0; k < x.size(); ++k) copy(out[k], x[k]);
}
void run_zero(Run& run) {
  for (const Value& x : run.tensors(0)) fill(x, 0);
}
const Op copy_op("aclnnForeachCopy", check_copy, run_copy);
const Op zero_op("aclnnForeachZeroInplace", nullptr, run_zero);

}  // namespace
}  // namespace cann_sim
