// Tensors made from numbers: arange, range, linspace, logspace, eye. A constant is filled in fill.cpp.
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

bool is_whole(const aclScalar& s) { return s.im == 0 && s.re == std::floor(s.re) && std::fabs(s.re) < 0x1p62; }

// How many numbers lie in [start, end), or [start, end] when closed, `step` apart. Whole numbers are counted exactly.
int64_t count(const Call& c, bool closed) {
  const aclScalar &start = c.scalar(0), &end = c.scalar(1), &step = c.scalar(2);
  EXPECT(std::isfinite(start.re) && std::isfinite(end.re), "start of %g and end of %g are not finite", start.re,
         end.re);
  EXPECT(step.re != 0 && std::isfinite(step.re), "step of %g", step.re);
  EXPECT(step.re > 0 ? end.re >= start.re : end.re <= start.re, "end of %g is not reached from %g with steps of %g",
         end.re, start.re, step.re);
  if (is_whole(start) && is_whole(end) && is_whole(step)) {
    const int64_t distance = std::llabs(end.i - start.i), by = std::llabs(step.i);
    return closed ? distance / by + 1 : (distance + by - 1) / by;
  }
  const double steps = (end.re - start.re) / step.re;
  return closed ? int64_t(std::floor(steps)) + 1 : int64_t(std::ceil(steps));
}
// Clients whose output is whole numbers may count with the whole parts of start, end and step, as PyTorch does.
int64_t whole_count(const Call& c) {
  const double start = std::trunc(c.scalar(0).re), end = std::trunc(c.scalar(1).re), step = std::trunc(c.scalar(2).re);
  return step == 0 ? -1 : int64_t(std::ceil((end - start) / step));
}
void check_arange(const Call& c) {
  const int64_t n = count(c, false);
  if (mt::is_integral(dtype_of(c.tensor(3).dtype)) && c.tensor(3).numel() == whole_count(c)) return;
  expect_numel(c, 3, n);
}
void check_range(const Call& c) { expect_numel(c, 3, count(c, true)); }
void arange(Run& r) {
  call_kernel("arange", {r.tensor(3)}, {scalar(r.call.scalar(0)), scalar(r.call.scalar(1)), scalar(r.call.scalar(2))});
}

// aclnnLinspace(start, end, steps, out), aclnnLogSpace(start, end, steps, base, out)
template <int out> void check_linspace(const Call& c) {
  EXPECT(c.integer(2) >= 0, "steps of %ld is negative", c.integer(2));
  expect_computes(c, out);
  expect_numel(c, out, c.integer(2));
}
void linspace(Run& r) {
  call_kernel("linspace", {r.tensor(3)},
              {scalar(r.call.scalar(0)), scalar(r.call.scalar(1)), integer(r.call.integer(2))});
}
void logspace(Run& r) {
  call_kernel("logspace", {r.tensor(4)}, {scalar(r.call.scalar(0)), scalar(r.call.scalar(1)),
                                          integer(r.call.integer(2)), number(r.call.number(3))});
}

// aclnnEye(n, m, out)
void check_eye(const Call& c) {
  EXPECT(c.integer(0) >= 0 && c.integer(1) >= 0, "n of %ld or m of %ld is negative", c.integer(0), c.integer(1));
  expect_shape(c, 2, {c.integer(0), c.integer(1)});
}
void eye(Run& r) { call_kernel("eye", {r.tensor(2)}); }

const Op ops[] = {
    {"aclnnArange", check_arange, arange},
    {"aclnnRange", check_range, arange},
    {"aclnnLinspace", check_linspace<3>, linspace},
    {"aclnnLogSpace", check_linspace<4>, logspace},
    {"aclnnEye", check_eye, eye},
};

}  // namespace
}  // namespace cann_sim
