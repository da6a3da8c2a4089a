// Reductions to moments and norms: var, std, their pairs with the mean, vector norms, logsumexp.
#include "ops/reduce.h"

namespace cann_sim {
namespace {

// ---- variance: (self, dim?, correction or unbiased, keepdim, outs...) ---------------------------------------------
template <int... outs> void check_moments(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  const uint64_t mask = dim_mask(c.ints(1), self.ndim);
  (expect_reduced(c, outs, self, mask, c.integer(3)), ...);
  (expect_castable(c, 0, outs), ...);
}
void moments(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(4), r.tensor(0)}, {list_of(r.call, 1), number(double(r.call.integer(2)))});
}
void moments_and_mean(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(4), r.tensor(5), r.tensor(0)},
              {list_of(r.call, 1), number(double(r.call.integer(2)))});
}

// ---- norms: (self, ord, dims, keepdim, out) or (self, ord, dims, keepdim, dtype, out) -----------------------------
template <int out> void check_norm(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  expect_reduced(c, out, self, dim_mask(c.ints(2), self.ndim), c.integer(3));
  expect_castable(c, 0, out);
}
void norm(Run& r, int out, const mt::Attr& dtype) {
  call_kernel("linalg_vector_norm", {r.tensor(out), r.tensor(0)},
              {scalar(r.call.scalar(1)), list_of(r.call, 2), integer(r.call.integer(3)), dtype});
}
void check_vector_norm(const Call& c) {
  check_norm<5>(c);
  const int64_t dtype = c.integer(4);
  if (dtype == ACL_DT_UNDEFINED) return;
  const DType asked = dtype_of(aclDataType(dtype));
  EXPECT(!mt::is_integral(asked), "dtype of %s is not floating", mt::dtype_name(asked));
}
void vector_norm(Run& r) {
  const int64_t dtype = r.call.integer(4);
  norm(r, 5, dtype == ACL_DT_UNDEFINED ? none() : integer(dtype_of(aclDataType(dtype))));
}

// ---- logsumexp: (self, dims, keepdim, out) ------------------------------------------------------------------------
void check_log_sum_exp(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  expect_reduced(c, 3, self, dim_mask(c.ints(1), self.ndim), c.integer(2));
}
void log_sum_exp(Run& r) { call_kernel("logsumexp", {r.tensor(3), r.tensor(0)}, {list_of(r.call, 1)}); }

const Op ops[] = {
    {"aclnnVar", check_moments<4>, [](Run& r) { moments(r, "var"); }},
    {"aclnnVarCorrection", check_moments<4>, [](Run& r) { moments(r, "var"); }},
    {"aclnnStd", check_moments<4>, [](Run& r) { moments(r, "std"); }},
    {"aclnnVarMean", check_moments<4, 5>, [](Run& r) { moments_and_mean(r, "var_mean"); }},
    {"aclnnStdMeanCorrection", check_moments<4, 5>, [](Run& r) { moments_and_mean(r, "std_mean"); }},
    {"aclnnNorm", check_norm<4>, [](Run& r) { norm(r, 4, none()); }},
    {"aclnnLinalgVectorNorm", check_vector_norm, vector_norm},
    {"aclnnLogSumExp", check_log_sum_exp, log_sum_exp},
};

}  // namespace
}  // namespace cann_sim
