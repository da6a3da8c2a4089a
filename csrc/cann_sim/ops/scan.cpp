// Scans along one dim: cumsum, cumprod, cummax, cummin.
#include "ops/result.h"

namespace cann_sim {
namespace {

void check_scan(const Call& c, int64_t dim, int out) {
  const TensorMeta& self = c.tensor(0);
  expect_computes(c, 0);
  expect_computes(c, out);
  wrap_dim(dim, self.ndim);
  expect_same_shape(c, 0, out);
}

void scan(const Value& out, const Value& self, const char* kernel, int64_t dim, DType dtype) {
  into(out, dtype, [&](const Value& to) { call_kernel(kernel, {to, self}, {integer(dim)}); });
}

// aclnnCumsum(self, dim, dtype, out); aclnnCumprod takes its dim as a scalar, and in place has no output.
void check_cumsum(const Call& c) {
  check_scan(c, c.integer(1), 3);
  const DType dtype = asked_dtype(c, 2, 3);
  EXPECT(dtype == dtype_of(c.tensor(3).dtype), "dtype of %s for out of %s", mt::dtype_name(dtype),
         describe(c.tensor(3)).c_str());
}
void check_cumprod(const Call& c) {
  check_scan(c, c.scalar(1).i, 3);
  EXPECT(asked_dtype(c, 2, 3) != mt::kBool, "a running product of bool");
}
void cumsum(Run& r) { scan(r.tensor(3), r.tensor(0), "cumsum", r.call.integer(1), asked_dtype(r.call, 2, 3)); }
void cumprod(Run& r) { scan(r.tensor(3), r.tensor(0), "cumprod", r.call.scalar(1).i, asked_dtype(r.call, 2, 3)); }
void check_inplace_cumprod(const Call& c) { check_scan(c, c.scalar(1).i, 0); }
void inplace_cumprod(Run& r) {
  Value self = r.tensor(0);
  scan(self, self, "cumprod", r.call.scalar(1).i, self.dtype);
}

// aclnnCumsumV2(self, dim, exclusive, reverse, out): exclusive starts with 0 and leaves the last item out.
void check_cumsum_v2(const Call& c) {
  check_scan(c, c.integer(1), 4);
  expect_castable(c, 0, 4);
}
void cumsum_v2(Run& r) {
  Value self = r.tensor(0), out = r.tensor(4);
  const bool exclusive = r.call.integer(2), reverse = r.call.integer(3);
  if (self.ndim == 0) return exclusive ? fill(out, 0) : copy(out, self);
  const int64_t dim = wrap_dim(r.call.integer(1), self.ndim), n = self.size(dim);
  const Sizes dims{dim};
  Value items = self, sums = empty(self.shape(), self.dtype);
  if (n == 0) return;
  if (reverse) {
    items = empty(self.shape(), self.dtype);
    call_kernel("flip", {items, self}, {list(dims)});
  }
  if (exclusive) {
    fill(sums.narrow(dim, 0, 1), 0);
    call_kernel("cumsum", {sums.narrow(dim, 1, n - 1), items.narrow(dim, 0, n - 1)}, {integer(dim)});
  } else {
    call_kernel("cumsum", {sums, items}, {integer(dim)});
  }
  if (reverse) into(out, self.dtype, [&](const Value& to) { call_kernel("flip", {to, sums}, {list(dims)}); });
  else copy(out, sums);
}

// aclnnCummax(self, dim, values, indices)
void check_running(const Call& c) {
  check_scan(c, c.integer(1), 2);
  expect_same_shape(c, 0, 3);
  expect_castable(c, 0, 2);
}
void running(Run& r, const char* kernel) {
  call_kernel(kernel, {r.tensor(2), r.tensor(3), r.tensor(0)}, {integer(r.call.integer(1))});
}

const Op ops[] = {
    {"aclnnCumsum", check_cumsum, cumsum},
    {"aclnnCumsumV2", check_cumsum_v2, cumsum_v2},
    {"aclnnCumprod", check_cumprod, cumprod},
    {"aclnnInplaceCumprod", check_inplace_cumprod, inplace_cumprod},
    {"aclnnCummax", check_running, [](Run& r) { running(r, "cummax"); }},
    {"aclnnCummin", check_running, [](Run& r) { running(r, "cummin"); }},
};

}  // namespace
}  // namespace cann_sim
