// Average pooling and adaptive pooling, 2-D and 3-D, with their gradients. Windows of maxima: pool_max.cpp.
#include "ops/pool.h"

namespace cann_sim {
namespace {

// ---- average: kernelSize, stride, padding, ceilMode, countIncludePad, divisorOverride at `first` ---------------
Window average_window(const Call& c, int first) {
  return {c.ints(first), c.ints(first + 1), c.ints(first + 2), {}, c.integer(first + 3) != 0};
}
std::vector<mt::Attr> average_attrs(const Call& c, int first) {
  int64_t divisor = c.integer(first + 5);  // 0: none was given
  return {list_of(c, first), list_of(c, first + 1), list_of(c, first + 2), integer(c.integer(first + 3)),
          integer(c.integer(first + 4)), divisor ? integer(divisor) : none()};
}
template <int n> void check_average(const Call& c) {  // (self, ..., out)
  expect_shape(c, c.row->nargs - 1, average_window(c, 1).pooled(c.tensor(0), n));
}
template <int n> void average(Run& r) {
  call_kernel(n == 2 ? "avg_pool2d" : "avg_pool3d", {r.tensor(r.call.row->nargs - 1), r.tensor(0)},
              average_attrs(r.call, 1));
}
template <int n> void check_average_backward(const Call& c) {  // (gradOutput, self, ..., gradInput)
  expect_shape(c, 0, average_window(c, 2).pooled(c.tensor(1), n));
  expect_same_shape(c, c.row->nargs - 1, 1);
}
template <int n> void average_backward(Run& r) {
  call_kernel(n == 2 ? "avg_pool2d_backward" : "avg_pool3d_backward",
              {r.tensor(r.call.row->nargs - 1), r.tensor(0), r.tensor(1)}, average_attrs(r.call, 2));
}

// ---- adaptive --------------------------------------------------------------------------------------------------
template <int n> Sizes adaptive_sizes(const Call& c) {  // (self, outputSize, ...)
  const TensorMeta& x = c.tensor(0);
  Span<int64_t> size = c.ints(1);
  EXPECT(x.ndim == n + 1 || x.ndim == n + 2, "expected %d or %d dims, got %s", n + 1, n + 2, describe(x).c_str());
  EXPECT(size.size() == n, "outputSize must have %d items, got %ld", n, long(size.size()));
  Sizes out = sizes_of(x);
  for (int d = 0; d < n; ++d) {
    EXPECT(size[d] >= 0, "outputSize must not be negative, got %ld", long(size[d]));
    EXPECT(x.sizes[x.ndim - n + d] > 0, "%s has no items to pool", describe(x).c_str());
    out[x.ndim - n + d] = size[d];
  }
  return out;
}
template <int n> void check_adaptive_average(const Call& c) { expect_shape(c, 2, adaptive_sizes<n>(c)); }
template <int n> void adaptive_average(Run& r) {
  call_kernel(n == 2 ? "_adaptive_avg_pool2d" : "_adaptive_avg_pool3d", {r.tensor(2), r.tensor(0)},
              {list_of(r.call, 1)});
}
// (gradOutput, self, out): any output size will do
template <int n> void check_adaptive_backward(const Call& c) {
  const TensorMeta &g = c.tensor(0), &x = c.tensor(1);
  bool fits = g.ndim == x.ndim && x.ndim > n;
  for (int d = 0; fits && d < x.ndim - n; ++d) fits = g.sizes[d] == x.sizes[d];
  EXPECT(fits, "gradOutput %s does not fit self %s", describe(g).c_str(), describe(x).c_str());
  expect_same_shape(c, c.row->nargs - 1, 1);
}
template <int n> void adaptive_average_backward(Run& r) {
  call_kernel(n == 2 ? "_adaptive_avg_pool2d_backward" : "_adaptive_avg_pool3d_backward",
              {r.tensor(2), r.tensor(0), r.tensor(1)});
}

template <int n> void check_adaptive_max(const Call& c) {  // (self, outputSize, out, indices)
  Sizes out = adaptive_sizes<n>(c);
  expect_shape(c, 2, out);
  expect_shape(c, 3, out);
}
template <int n> void adaptive_max(Run& r) {
  call_kernel(n == 2 ? "adaptive_max_pool2d" : "adaptive_max_pool3d", {r.tensor(2), r.tensor(3), r.tensor(0)},
              {list_of(r.call, 1)});
}
template <int n> void check_adaptive_max_backward(const Call& c) {  // (gradOutput, self, indices, gradInput)
  check_adaptive_backward<n>(c);
  expect_same_shape(c, 2, 0);
}
template <int n> void adaptive_max_backward(Run& r) {
  call_kernel(n == 2 ? "adaptive_max_pool2d_backward" : "adaptive_max_pool3d_backward",
              {r.tensor(3), r.tensor(0), r.tensor(1), r.tensor(2)});
}

// ---- all spatial dims at once: (self, out) ---------------------------------------------------------------------
void check_global(const Call& c) {
  Sizes out = sizes_of(c.tensor(0));
  for (size_t d = 2; d < out.size(); ++d) out[d] = 1;
  expect_shape(c, 1, out);
}
void global(Run& r, const char* kernel) {
  Value x = r.tensor(0), out = r.tensor(1);
  Sizes dims;
  for (int d = 2; d < x.ndim; ++d) dims.push_back(d), out = out.squeeze(-1);
  call_kernel(kernel, {out, x}, {list(dims), integer(0), none()});
}

const Op ops[] = {
    {"aclnnAvgPool2d", check_average<2>, average<2>},
    {"aclnnAvgPool3d", check_average<3>, average<3>},
    {"aclnnAvgPool2dBackward", check_average_backward<2>, average_backward<2>},
    {"aclnnAvgPool3dBackward", check_average_backward<3>, average_backward<3>},
    {"aclnnAdaptiveAvgPool2d", check_adaptive_average<2>, adaptive_average<2>},
    {"aclnnAdaptiveAvgPool3d", check_adaptive_average<3>, adaptive_average<3>},
    {"aclnnAdaptiveAvgPool2dBackward", check_adaptive_backward<2>, adaptive_average_backward<2>},
    {"aclnnAdaptiveAvgPool3dBackward", check_adaptive_backward<3>, adaptive_average_backward<3>},
    {"aclnnAdaptiveMaxPool2d", check_adaptive_max<2>, adaptive_max<2>},
    {"aclnnAdaptiveMaxPool3d", check_adaptive_max<3>, adaptive_max<3>},
    {"aclnnAdaptiveMaxPool2dBackward", check_adaptive_max_backward<2>, adaptive_max_backward<2>},
    {"aclnnAdaptiveMaxPool3dBackward", check_adaptive_max_backward<3>, adaptive_max_backward<3>},
    {"aclnnGlobalAveragePool", check_global, [](Run& r) { global(r, "mean"); }},
    {"aclnnGlobalMaxPool", check_global, [](Run& r) { global(r, "amax"); }},
};

}  // namespace
}  // namespace cann_sim
