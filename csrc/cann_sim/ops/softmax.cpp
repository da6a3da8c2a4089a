// Softmax and log-softmax with their gradients, and the scaled masked form of attention. Losses over them: loss.cpp.
#include <algorithm>

#include "ops/op.h"

namespace cann_sim {
namespace {

// A 0-dim tensor has one row of one item.
Value rows(const Value& v) { return v.ndim ? v : v.unsqueeze(0); }

// ---- (self, dim, out) ------------------------------------------------------------------------------------------
void check_forward(const Call& c) {
  wrap_dim(c.integer(1), std::max(c.tensor(0).ndim, 1));
  expect_same_shape(c, 2, 0);
}
void forward(Run& r, const char* kernel) {
  Value self = rows(r.tensor(0));
  call_kernel(kernel, {rows(r.tensor(2)), self}, {integer(wrap_dim(r.call.integer(1), self.ndim)), integer(0)});
}

// ---- (gradOutput, output, dim, out) ----------------------------------------------------------------------------
void check_backward(const Call& c) {
  wrap_dim(c.integer(2), std::max(c.tensor(0).ndim, 1));
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 3, 0);
}
void backward(Run& r, const char* kernel) {
  Value grad = rows(r.tensor(0));
  call_kernel(kernel, {rows(r.tensor(3)), grad, rows(r.tensor(1))},
              {integer(wrap_dim(r.call.integer(2), grad.ndim)), none()});
}

const Op softmax("aclnnSoftmax", check_forward, [](Run& r) { forward(r, "_softmax"); });
const Op log_softmax("aclnnLogSoftmax", check_forward, [](Run& r) { forward(r, "_log_softmax"); });
const Op softmax_backward("aclnnSoftmaxBackward", check_backward,
                          [](Run& r) { backward(r, "_softmax_backward_data"); });
const Op log_softmax_backward("aclnnLogSoftmaxBackward", check_backward,
                              [](Run& r) { backward(r, "_log_softmax_backward_data"); });

// ---- softmax(x * scale) over the last dim, masked items (mask true) taken as -10000 ----------------------------
constexpr double kMasked = -10000;

void check_mask(const Call& c, int x, int mask, int out, bool fixed_triu_mask) {
  EXPECT(!fixed_triu_mask, "fixedTriuMask true is not supported");
  EXPECT(c.tensor(x).ndim == 4 && c.tensor(mask).ndim == 4, "x and mask must have 4 dims, got %d and %d",
         c.tensor(x).ndim, c.tensor(mask).ndim);
  EXPECT(broadcast_sizes(sizes_of(c.tensor(x)), sizes_of(c.tensor(mask))) == sizes_of(c.tensor(x)),
         "mask %s does not broadcast to x %s", describe(c.tensor(mask)).c_str(), describe(c.tensor(x)).c_str());
  expect_same_shape(c, out, x);
}

// (x, mask, scale, fixedTriuMask, y)
void check_masked(const Call& c) { check_mask(c, 0, 1, 4, c.integer(3)); }
void masked(Run& r) {
  Value x = r.tensor(0), mask = r.tensor(1), scaled = empty(x.shape(), mt::kFloat);
  call_pointwise("mul", mt::kFloat, {scaled, x, full({}, mt::kFloat, r.call.number(2))});
  call_pointwise("where", mt::kFloat, {scaled, mask, full({}, mt::kFloat, kMasked), scaled});
  call_kernel("_softmax", {r.tensor(4), scaled}, {integer(x.ndim - 1), integer(0)});
}

// (gradOutput, y, mask, scale, fixTriuMask, out): a masked item has no gradient
void check_masked_backward(const Call& c) {
  check_mask(c, 0, 2, 5, c.integer(4));
  expect_same_shape(c, 1, 0);
}
void masked_backward(Run& r) {
  Value grad = r.tensor(0), slope = empty(grad.shape(), mt::kFloat);
  call_kernel("_softmax_backward_data", {slope, grad, r.tensor(1)}, {integer(grad.ndim - 1), none()});
  call_pointwise("mul", mt::kFloat, {slope, slope, full({}, mt::kFloat, r.call.number(3))});
  call_pointwise("where", mt::kFloat, {r.tensor(5), r.tensor(2), full({}, mt::kFloat, 0), slope});
}

const Op scaled_masked_softmax("aclnnScaledMaskedSoftmax", check_masked, masked);
const Op scaled_masked_softmax_backward("aclnnScaledMaskedSoftmaxBackward", check_masked_backward, masked_backward);

}  // namespace
}  // namespace cann_sim
