// Ops whose result is bool: comparisons, logic, classes of numbers, membership, and whether two tensors are equal.
#include "ops/pointwise.h"

#include <cmath>

namespace cann_sim {
namespace {

constexpr PointwiseOp kComparisons[] = {
    {"aclnnEqTensor", "aclnnInplaceEqTensor", "eq", Rule::boolean, "01"},
    {"aclnnEqScalar", "aclnnInplaceEqScalar", "eq", Rule::boolean, "01"},
    {"aclnnNeTensor", "aclnnInplaceNeTensor", "ne", Rule::boolean, "01"},
    {"aclnnNeScalar", "aclnnInplaceNeScalar", "ne", Rule::boolean, "01"},
    {"aclnnGtTensor", "aclnnInplaceGtTensor", "gt", Rule::boolean, "01"},
    {"aclnnGtScalar", "aclnnInplaceGtScalar", "gt", Rule::boolean, "01"},
    {"aclnnGeTensor", "aclnnInplaceGeTensor", "ge", Rule::boolean, "01"},
    {"aclnnGeScalar", "aclnnInplaceGeScalar", "ge", Rule::boolean, "01"},
    {"aclnnLtTensor", "aclnnInplaceLtTensor", "lt", Rule::boolean, "01"},
    {"aclnnLtScalar", "aclnnInplaceLtScalar", "lt", Rule::boolean, "01"},
    {"aclnnLeTensor", "aclnnInplaceLeTensor", "le", Rule::boolean, "01"},
    {"aclnnLeScalar", "aclnnInplaceLeScalar", "le", Rule::boolean, "01"},
    {"aclnnLogicalAnd", "aclnnInplaceLogicalAnd", "logical_and", Rule::boolean, "01"},
    {"aclnnLogicalOr", "aclnnInplaceLogicalOr", "logical_or", Rule::boolean, "01"},
    {"aclnnLogicalXor", nullptr, "logical_xor", Rule::boolean, "01"},
    {"aclnnLogicalNot", "aclnnInplaceLogicalNot", "logical_not", Rule::boolean},
    {"aclnnIsFinite", nullptr, "isfinite", Rule::boolean},
    {"aclnnIsInf", nullptr, "isinf", Rule::boolean},
    {"aclnnIsPosInf", nullptr, "isposinf", Rule::boolean},
    {"aclnnIsNegInf", nullptr, "isneginf", Rule::boolean},
    {"aclnnSignbit", nullptr, "signbit", Rule::boolean},
};
REGISTER_POINTWISE(kComparisons);

bool all_true(const Value& mask) {
  const Value flat = mask.dense();
  const bool* p = flat.ptr<bool>();
  for (int64_t i = 0, n = flat.numel(); i < n; ++i)
    if (!p[i]) return false;
  return true;
}

// equal(self, other): one bool for two whole tensors; other shapes are an answer, not an error.
void check_equal(const Call& c) {
  expect_one_element(c, 2);
  expect_same_dtype(c, 0, 1);
}
void run_equal(Run& run) {
  const Value a = run.tensor(0), b = run.tensor(1);
  const bool same = a.shape() == b.shape() && all_true(pointwise("eq", a.dtype, {a, b}));
  fill(run.tensor(2), same);
}

// isclose(self, other, rtol, atol, equal_nan): |self - other| <= atol + rtol |other|, and equal items are always close.
void check_close(const Call& c) {
  EXPECT(c.number(2) >= 0 && c.number(3) >= 0, "%s: rtol %g and atol %g must not be negative", c.name(), c.number(2),
         c.number(3));
  dtype_of(c.tensor(0).dtype), dtype_of(c.tensor(1).dtype);
  expect_broadcast(c, {0, 1}, 5);
}
void run_close(Run& run) {
  const double rtol = run.call.number(2), atol = run.call.number(3);
  const bool equal_nan = run.call.integer(4);
  const Value out = run.tensor(5), close = empty(out.shape(), mt::kBool);
  const Value a = run.tensor(0).to(mt::kDouble).expand(out.shape()).dense();
  const Value b = run.tensor(1).to(mt::kDouble).expand(out.shape()).dense();
  const double *x = a.ptr<double>(), *y = b.ptr<double>();
  for (int64_t i = 0, n = close.numel(); i < n; ++i) {
    const bool near = std::isfinite(y[i]) && std::fabs(x[i] - y[i]) <= atol + rtol * std::fabs(y[i]);
    close.ptr<bool>()[i] = x[i] == y[i] || near || (equal_nan && x[i] != x[i] && y[i] != y[i]);
  }
  copy(out, close);
}

// isin: whether the items are among others; `invert` selects those that are not.
void check_in_scalar(const Call& c) {  // (element, testElement number, assumeUnique, invert, out)
  dtype_of(c.tensor(0).dtype);
  expect_broadcast(c, {0}, 4);
}
void run_in_scalar(Run& run) {
  const Value element = run.tensor(0);
  const aclScalar& test = run.call.scalar(1);
  const char* kernel = run.call.integer(3) ? "ne" : "eq";
  call_pointwise(kernel, promote(element.dtype, test), {run.tensor(4), element, value_of(test)});
}
void check_scalar_in(const Call& c) {  // (element number, testElements, assumeUnique, invert, out)
  dtype_of(c.tensor(1).dtype);
  expect_one_element(c, 4);
}
void run_scalar_in(Run& run) {
  const Value tests = run.tensor(1);
  const aclScalar& element = run.call.scalar(0);
  const bool absent = all_true(pointwise("ne", promote(tests.dtype, element), {tests, value_of(element)}));
  fill(run.tensor(4), absent == bool(run.call.integer(3)));
}

const Op equal_op("aclnnEqual", check_equal, run_equal);
const Op close_op("aclnnIsClose", check_close, run_close);
const Op in_scalar_op("aclnnIsInTensorScalar", check_in_scalar, run_in_scalar);
const Op scalar_in_op("aclnnIsInScalarTensor", check_scalar_in, run_scalar_in);

}  // namespace
}  // namespace cann_sim
