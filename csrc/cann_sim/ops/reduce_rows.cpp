// Reductions that need a whole row at once (median, nanmedian, kthvalue, trace) and counting into bins.
#include <cmath>

#include "ops/reduce.h"

namespace cann_sim {
namespace {

// ---- medians: (self, out) and (self, dim, keepdim, values, indices) -----------------------------------------------
void check_median(const Call& c) {
  expect_computes(c, 0);
  expect_numel(c, 1, 1);
  expect_castable(c, 0, 1);
}
void median(Run& r, const char* kernel) { call_kernel(kernel, {r.tensor(1), r.tensor(0)}); }

void check_row(const Call& c, int64_t dim, bool keepdim, int values) {
  const TensorMeta& self = c.tensor(0);
  const uint64_t mask = uint64_t(1) << wrap_dim(dim, self.ndim);
  expect_computes(c, 0);
  expect_items(self, mask);
  expect_reduced(c, values, self, mask, keepdim);
  expect_reduced(c, values + 1, self, mask, keepdim);
  expect_castable(c, 0, values);
}
void check_median_dim(const Call& c) { check_row(c, c.integer(1), c.integer(2), 3); }
void median_dim(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(3), r.tensor(4), r.tensor(0)}, {integer(r.call.integer(1))});
}

// aclnnKthvalue(self, k, dim, keepdim, values, indices)
void check_kthvalue(const Call& c) {
  const TensorMeta& self = c.tensor(0);
  check_row(c, c.integer(2), c.integer(3), 4);
  const int64_t n = self.ndim ? self.sizes[wrap_dim(c.integer(2), self.ndim)] : 1, k = c.integer(1);
  EXPECT(k >= 1 && k <= n, "k of %ld is outside of [1, %ld]", k, n);
}
void kthvalue(Run& r) {
  Value self = r.tensor(0);
  if (r.call.tensor(4).numel() == 0) return;
  into(r.tensor(4), self.dtype, [&](const Value& values) {
    call_kernel("kthvalue", {values, r.tensor(5), self},
                {integer(r.call.integer(1)), integer(r.call.integer(2)), integer(r.call.integer(3))});
  });
}

// ---- aclnnTrace(self, out) ----------------------------------------------------------------------------------------
void check_trace(const Call& c) {
  expect_computes(c, 0);
  expect_computes(c, 1);
  expect_numel(c, 1, 1);
}
void trace(Run& r) {
  Value self = r.tensor(0);
  call_kernel("trace", {r.tensor(1), self.dtype == mt::kBool ? self.to(mt::kInt64) : self});
}

// ---- counting -----------------------------------------------------------------------------------------------------
// aclnnBincount(self, weights?, minlength, out): the client has looked for the largest value and sized out.
void check_bincount(const Call& c) {
  const TensorMeta &self = c.tensor(0), &out = c.tensor(3);
  EXPECT(self.ndim == 1, "self of %s is not 1-D", describe(self).c_str());
  EXPECT(out.ndim == 1, "out of %s is not 1-D", describe(out).c_str());
  EXPECT(c.integer(2) >= 0, "minlength of %ld is negative", c.integer(2));
  EXPECT(out.sizes[0] >= c.integer(2), "out has %ld items, fewer than minlength %ld", out.sizes[0], c.integer(2));
  if (c.given(1)) expect_same_shape(c, 0, 1);
}
void bincount(Run& r) {
  call_kernel("bincount", {r.tensor(3), r.tensor(0), r.tensor(1)}, {integer(r.call.integer(2))});
}

// aclnnHistc(self, bins, min, max, out): integers are counted as numbers that hold them exactly.
void check_histc(const Call& c) {
  EXPECT(c.integer(1) > 0, "bins of %ld is not positive", c.integer(1));
  expect_shape(c, 4, {c.integer(1)});
  EXPECT(c.scalar(2).re <= c.scalar(3).re, "max of %g is less than min of %g", c.scalar(3).re, c.scalar(2).re);
  EXPECT(std::isfinite(c.scalar(2).re) && std::isfinite(c.scalar(3).re), "min and max are not finite");
}
void histc(Run& r) {
  Value self = r.tensor(0);
  if (mt::is_integral(self.dtype)) self = self.to(self.dtype >= mt::kInt32 ? mt::kDouble : mt::kFloat);
  call_kernel("histc", {r.tensor(4), self},
              {integer(r.call.integer(1)), scalar(r.call.scalar(2)), scalar(r.call.scalar(3))});
}

const Op ops[] = {
    {"aclnnMedian", check_median, [](Run& r) { median(r, "median"); }},
    {"aclnnNanMedian", check_median, [](Run& r) { median(r, "nanmedian"); }},
    {"aclnnMedianDim", check_median_dim, [](Run& r) { median_dim(r, "median_dim"); }},
    {"aclnnNanMedianDim", check_median_dim, [](Run& r) { median_dim(r, "nanmedian_dim"); }},
    {"aclnnKthvalue", check_kthvalue, kthvalue},
    {"aclnnTrace", check_trace, trace},
    {"aclnnBincount", check_bincount, bincount},
    {"aclnnHistc", check_histc, histc},
};

}  // namespace
}  // namespace cann_sim
