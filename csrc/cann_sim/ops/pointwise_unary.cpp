// Pointwise ops of one tensor: elementary and special functions, rounding, signs, parts of complex numbers. Activations
// of neural networks are in activation.cpp.
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

constexpr PointwiseOp kFunctions[] = {
    {"aclnnAcos", "aclnnInplaceAcos", "acos", Rule::floating},
    {"aclnnAcosh", "aclnnInplaceAcosh", "acosh", Rule::floating},
    {"aclnnAsin", "aclnnInplaceAsin", "asin", Rule::floating},
    {"aclnnAsinh", "aclnnInplaceAsinh", "asinh", Rule::floating},
    {"aclnnAtan", "aclnnInplaceAtan", "atan", Rule::floating},
    {"aclnnAtanh", "aclnnInplaceAtanh", "atanh", Rule::floating},
    {"aclnnCos", "aclnnInplaceCos", "cos", Rule::floating},
    {"aclnnCosh", "aclnnInplaceCosh", "cosh", Rule::floating},
    {"aclnnSin", "aclnnInplaceSin", "sin", Rule::floating},
    {"aclnnSinh", "aclnnInplaceSinh", "sinh", Rule::floating},
    {"aclnnTan", "aclnnInplaceTan", "tan", Rule::floating},
    {"aclnnTanh", "aclnnInplaceTanh", "tanh", Rule::floating},
    {"aclnnExp", "aclnnInplaceExp", "exp", Rule::floating},
    {"aclnnExp2", "aclnnInplaceExp2", "exp2", Rule::floating},
    {"aclnnExpm1", "aclnnInplaceExpm1", "expm1", Rule::floating},
    {"aclnnLog", "aclnnInplaceLog", "log", Rule::floating},
    {"aclnnLog10", "aclnnInplaceLog10", "log10", Rule::floating},
    {"aclnnLog1p", "aclnnInplaceLog1p", "log1p", Rule::floating},
    {"aclnnLog2", "aclnnInplaceLog2", "log2", Rule::floating},
    {"aclnnSqrt", "aclnnInplaceSqrt", "sqrt", Rule::floating},
    {"aclnnRsqrt", "aclnnInplaceRsqrt", "rsqrt", Rule::floating},
    {"aclnnReciprocal", "aclnnInplaceReciprocal", "reciprocal", Rule::floating},
    {"aclnnErf", "aclnnInplaceErf", "erf", Rule::floating},
    {"aclnnErfc", "aclnnInplaceErfc", "erfc", Rule::floating},
    {"aclnnErfinv", "aclnnInplaceErfinv", "erfinv", Rule::floating},
    {"aclnnDigamma", nullptr, "digamma", Rule::floating},
    {"aclnnLgamma", nullptr, "lgamma", Rule::floating},
    {"aclnnSinc", "aclnnInplaceSinc", "sinc", Rule::floating},
    {"aclnnNeg", "aclnnInplaceNeg", "neg"},
    {"aclnnAbs", nullptr, "abs", Rule::real},
    {"aclnnSign", nullptr, "sgn"},
    {"aclnnSquare", nullptr, "square"},
    {"aclnnFloor", "aclnnInplaceFloor", "floor"},
    {"aclnnCeil", "aclnnInplaceCeil", "ceil"},
    {"aclnnTrunc", "aclnnInplaceTrunc", "trunc"},
    {"aclnnFrac", "aclnnInplaceFrac", "frac"},
    {"aclnnRound", "aclnnInplaceRound", "round", Rule::promote, "0", "-"},
    {"aclnnRoundDecimals", "aclnnInplaceRoundDecimals", "round", Rule::promote, "0", "1"},
    {"aclnnNanToNum", "aclnnInplaceNanToNum", "nan_to_num", Rule::promote, "0", "123"},
    {"aclnnBitwiseNot", nullptr, "bitwise_not"},
};
REGISTER_POINTWISE(kFunctions);

// ---- complex numbers and their parts ------------------------------------------------------------
void check_part(const Call& c) {
  expect_broadcast(c, {0}, 1);
  expect_result(c, real_of(dtype_of(c.tensor(0).dtype)), 1);
}
void run_real(Run& run) {
  const Value self = run.tensor(0);
  copy(run.tensor(1), mt::is_complex(self.dtype) ? pointwise("real", self.dtype, {self}) : self);
}
void run_angle(Run& run) {
  const Value self = run.tensor(0);
  const DType compute = mt::is_integral(self.dtype) ? mt::kFloat : self.dtype;
  call_pointwise("angle", compute, {run.tensor(1), self});
}
void check_angle(const Call& c) {
  expect_broadcast(c, {0}, 1);
  const DType self = dtype_of(c.tensor(0).dtype);
  expect_result(c, mt::is_integral(self) ? mt::kFloat : real_of(self), 1);
}

// complex(real, imag) and polar(abs, angle): two real tensors of one dtype become one of twice the size.
void check_pair(const Call& c) {
  expect_same_dtype(c, 0, 1);
  expect_broadcast(c, {0, 1}, 2);
  const DType part = dtype_of(c.tensor(0).dtype), whole = dtype_of(c.tensor(2).dtype);
  EXPECT((part == mt::kFloat && whole == mt::kComplexFloat) || (part == mt::kDouble && whole == mt::kComplexDouble),
         "%s: expected float32 parts and a complex64 result or float64 and complex128, got %s and %s", c.name(),
         describe(c.tensor(0)).c_str(), describe(c.tensor(2)).c_str());
}
void run_complex(Run& run) { call_kernel("complex", {run.tensor(2), run.tensor(0), run.tensor(1)}); }
void run_polar(Run& run) { call_kernel("polar", {run.tensor(2), run.tensor(0), run.tensor(1)}); }

const Op real_op("aclnnReal", check_part, run_real);
const Op angle_op("aclnnAngleV2", check_angle, run_angle);
const Op complex_op("aclnnComplex", check_pair, run_complex);
const Op polar_op("aclnnPolar", check_pair, run_polar);

}  // namespace
}  // namespace cann_sim
