// Layer, RMS, group and batch norm with their gradients. Fused ones: norm_fused.cpp; synchronised ones: norm_sync.cpp.
#include <algorithm>
#include <string>

#include "ops/result.h"

namespace cann_sim {
namespace {

// An output that the mask requests; the others stay absent, and the kernels skip them.
Value wanted(Run& r, Span<int64_t> mask, int bit, int i) { return mask[bit] ? r.tensor(i) : Value(); }

void expect_mask(const Call& c, int mask, int first_out) {
  EXPECT(c.ints(mask).size() == 3, "outputMask must have 3 items, got %ld", long(c.ints(mask).size()));
  for (int k = 0; k < 3; ++k)
    EXPECT(!c.ints(mask)[k] || c.given(first_out + k), "outputMask asks for %s, which is not given",
           c.row->args[first_out + k].name);
}

// An optional vector of one item a channel.
void expect_channels(const Call& c, int i, int64_t channels) {
  if (c.given(i)) expect_numel(c, i, channels);
}

// ---- layer norm ------------------------------------------------------------------------------------------------
// The rows of an input whose last dims are `shape`.
int64_t expect_rows(const Call& c, int input, const Sizes& shape) {
  Sizes in = sizes_of(c.tensor(input));
  EXPECT(!shape.empty() && shape.size() <= in.size() && std::equal(shape.rbegin(), shape.rend(), in.rbegin()),
         "the normalized shape does not end the shape of %s", describe(c.tensor(input)).c_str());
  int64_t rows = 1;
  for (size_t d = 0; d + shape.size() < in.size(); ++d) rows *= in[d];
  return rows;
}
Sizes normalized_shape(const Call& c, int i) { return Sizes(c.ints(i).begin(), c.ints(i).end()); }

// (input, normalizedShape, weight?, bias?, eps, out, mean?, rstd?)
void check_layer_norm(const Call& c) {
  Sizes shape = normalized_shape(c, 1);
  int64_t rows = expect_rows(c, 0, shape);
  for (int i : {2, 3})
    if (c.given(i)) expect_shape(c, i, shape);
  expect_same_shape(c, 5, 0);
  for (int i : {6, 7})
    if (c.given(i)) expect_numel(c, i, rows);
}
void layer_norm(Run& r) {
  call_kernel("native_layer_norm",
              {r.tensor(5), r.tensor(6), r.tensor(7), r.tensor(0), r.tensor(2), r.tensor(3)},
              {list_of(r.call, 1), number(r.call.number(4))});
}

// (gradOut, input, normalizedShape, mean, rstd, weight?, bias?, outputMask, gradInput?, gradWeight?, gradBias?)
void check_layer_norm_backward(const Call& c) {
  Sizes shape = normalized_shape(c, 2);
  int64_t rows = expect_rows(c, 1, shape);
  expect_mask(c, 7, 8);
  expect_same_shape(c, 0, 1);
  for (int i : {3, 4}) expect_numel(c, i, rows);
  if (c.given(5)) expect_shape(c, 5, shape);
  if (c.ints(7)[0]) expect_same_shape(c, 8, 1);
  for (int k : {1, 2})
    if (c.ints(7)[k]) expect_shape(c, 8 + k, shape);
}
void layer_norm_backward(Run& r) {
  Span<int64_t> mask = r.call.ints(7);
  call_kernel("native_layer_norm_backward",
              {wanted(r, mask, 0, 8), wanted(r, mask, 1, 9), wanted(r, mask, 2, 10), r.tensor(0), r.tensor(1),
               r.tensor(3), r.tensor(4), r.tensor(5), r.tensor(6)},
              {list_of(r.call, 2), none()});
}

// ---- RMS norm: gamma has the normalized shape ------------------------------------------------------------------
// (x, gamma, epsilon, y, rstd)
void check_rms_norm(const Call& c) {
  int64_t rows = expect_rows(c, 0, sizes_of(c.tensor(1)));
  expect_same_shape(c, 3, 0);
  expect_numel(c, 4, rows);
}
void rms_norm(Run& r) {
  Value gamma = r.tensor(1);
  Sizes shape = gamma.shape();
  call_kernel("_fused_rms_norm", {r.tensor(3), r.tensor(4), r.tensor(0), gamma},
              {list(shape), number(r.call.number(2))});
}
// Gemma's weights are kept as the distance from 1.
void gemma_rms_norm(Run& r) {
  Value gamma = r.tensor(1), one_more = empty(gamma.shape(), mt::kFloat);
  call_pointwise("add", mt::kFloat, {one_more, gamma, full({}, mt::kFloat, 1)}, {number(1)});
  Sizes shape = gamma.shape();
  call_kernel("_fused_rms_norm", {r.tensor(3), r.tensor(4), r.tensor(0), one_more},
              {list(shape), number(r.call.number(2))});
}

// (dy, x, rstd, gamma, dx, dgamma)
void check_rms_norm_grad(const Call& c) {
  int64_t rows = expect_rows(c, 1, sizes_of(c.tensor(3)));
  expect_same_shape(c, 0, 1);
  expect_numel(c, 2, rows);
  expect_same_shape(c, 4, 1);
  expect_same_shape(c, 5, 3);
}
void rms_norm_grad(Run& r) {
  Value gamma = r.tensor(3);
  Sizes shape = gamma.shape();
  call_kernel("_fused_rms_norm_backward", {r.tensor(4), r.tensor(5), r.tensor(0), r.tensor(1), r.tensor(2), gamma},
              {list(shape), none()});
}

// ---- group norm ------------------------------------------------------------------------------------------------
// N, C, HxW, group at `first`
void expect_groups(const Call& c, int input, int first) {
  int64_t n = c.integer(first), channels = c.integer(first + 1), length = c.integer(first + 2),
          groups = c.integer(first + 3);
  EXPECT(n >= 0 && channels >= 0 && length >= 0, "N, C and HxW must not be negative");
  EXPECT(groups > 0 && channels % groups == 0, "C %ld is not divisible by group %ld", long(channels), long(groups));
  int64_t items;
  EXPECT(!__builtin_mul_overflow(n, channels, &items) && !__builtin_mul_overflow(items, length, &items),
         "N %ld, C %ld and HxW %ld have more items than 64 bits count", long(n), long(channels), long(length));
  expect_numel(c, input, items);
}
// (self, gamma?, beta?, N, C, HxW, group, eps, out, mean, rstd)
void check_group_norm(const Call& c) {
  expect_groups(c, 0, 3);
  for (int i : {1, 2}) expect_channels(c, i, c.integer(4));
  expect_same_shape(c, 8, 0);
  for (int i : {9, 10}) expect_shape(c, i, {c.integer(3), c.integer(6)});
}
void group_norm(Run& r) {
  const Call& c = r.call;
  call_kernel("native_group_norm", {r.tensor(8), r.tensor(9), r.tensor(10), r.tensor(0), r.tensor(1), r.tensor(2)},
              {integer(c.integer(3)), integer(c.integer(4)), integer(c.integer(5)), integer(c.integer(6)),
               number(c.number(7))});
}
// (gradOut, input, mean, rstd, gamma?, N, C, HxW, group, outputMask, gradInput?, gradGamma?, gradBeta?)
void check_group_norm_backward(const Call& c) {
  expect_groups(c, 1, 5);
  expect_mask(c, 9, 10);
  expect_same_shape(c, 0, 1);
  for (int i : {2, 3}) expect_numel(c, i, c.integer(5) * c.integer(8));
  expect_channels(c, 4, c.integer(6));
  if (c.ints(9)[0]) expect_same_shape(c, 10, 1);
  for (int k : {1, 2})
    if (c.ints(9)[k]) expect_numel(c, 10 + k, c.integer(6));
}
void group_norm_backward(Run& r) {
  const Call& c = r.call;
  Span<int64_t> mask = c.ints(9);
  call_kernel("native_group_norm_backward",
              {wanted(r, mask, 0, 10), wanted(r, mask, 1, 11), wanted(r, mask, 2, 12), r.tensor(0), r.tensor(1),
               r.tensor(2), r.tensor(3), r.tensor(4)},
              {integer(c.integer(5)), integer(c.integer(6)), integer(c.integer(7)), integer(c.integer(8)), none()});
}

// ---- batch norm ------------------------------------------------------------------------------------------------
Value or_full(const Value& v, int64_t channels, double otherwise) {
  return v.given() ? v : full({channels}, mt::kFloat, otherwise);
}

// (input, weight?, bias?, runningMean?, runningVar?, training, momentum, eps, output, saveMean, saveInvstd)
void check_batch_norm(const Call& c) {
  int64_t channels = c.tensor(0).sizes[1];
  for (int i = 1; i <= 4; ++i) expect_channels(c, i, channels);
  expect_same_shape(c, 8, 0);
  for (int i : {9, 10})
    EXPECT(c.tensor(i).numel() == channels || (!c.integer(5) && c.tensor(i).numel() == 0), "%s %s must have %ld items",
           c.row->args[i].name, describe(c.tensor(i)).c_str(), long(channels));
}
// What the gradient would need in evaluation; the kernel writes it in training only.
void save_running(const Value& mean, const Value& var, double eps, const Value& save_mean, const Value& save_invstd) {
  if (save_mean.numel()) copy(save_mean, mean);
  if (!save_invstd.numel()) return;
  Value spread = empty(var.shape(), mt::kFloat);
  call_pointwise("add", mt::kFloat, {spread, var, full({}, mt::kFloat, eps)}, {number(1)});
  call_pointwise("rsqrt", mt::kFloat, {save_invstd, spread});
}
void batch_norm(Run& r) {
  const Call& c = r.call;
  Value input = r.tensor(0), mean = r.tensor(3), var = r.tensor(4), save_mean = r.tensor(9), save_invstd = r.tensor(10);
  if (!c.integer(5)) {
    mean = or_full(mean, input.size(1), 0);
    var = or_full(var, input.size(1), 1);
    save_running(mean, var, c.number(7), save_mean, save_invstd);
  }
  call_kernel("native_batch_norm", {r.tensor(8), save_mean, save_invstd, input, r.tensor(1), r.tensor(2), mean, var},
              {integer(c.integer(5)), number(c.number(6)), number(c.number(7))});
}

// (gradOut, input, weight?, runningMean?, runningVar?, saveMean?, saveInvstd?, training, eps, outputMask, then the
//  gradients of input, weight and bias, each of which may be absent). aclnnFastBatchNormBackward has a version number
//  before these.
int first_gradient(const Call& c) { return c.row->nargs - 3; }
void check_batch_norm_backward(const Call& c) {
  EXPECT(c.tensor(1).ndim >= 2, "input %s has no channels", describe(c.tensor(1)).c_str());
  const int64_t channels = c.tensor(1).sizes[1];
  const int out = first_gradient(c);
  expect_mask(c, 9, out);
  expect_same_shape(c, 0, 1);
  expect_channels(c, 2, channels);
  const int mean = c.integer(7) ? 5 : 3;
  for (int i : {mean, mean + 1}) expect_channels(c, i, channels);
  EXPECT(!c.integer(7) || (c.given(5) && c.given(6)), "training needs saveMean and saveInvstd");
  if (c.ints(9)[0]) expect_same_shape(c, out, 1);
  for (int k : {1, 2})
    if (c.ints(9)[k]) expect_numel(c, out + k, channels);
}
void batch_norm_backward(Run& r) {
  const Call& c = r.call;
  Span<int64_t> mask = c.ints(9);
  Value input = r.tensor(1);
  const int out = first_gradient(c);
  call_kernel("native_batch_norm_backward",
              {wanted(r, mask, 0, out), wanted(r, mask, 1, out + 1), wanted(r, mask, 2, out + 2), r.tensor(0), input,
               r.tensor(2), or_full(r.tensor(3), input.size(1), 0), or_full(r.tensor(4), input.size(1), 1), r.tensor(5),
               r.tensor(6)},
              {integer(c.integer(7)), number(c.number(8)), none()});
}

// ---- instance norm: (x [N, C, H, W], gamma, beta, dataFormat, eps, y, mean, variance) ------------------------------
void check_instance_norm(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(std::string(c.string(3)) == "NCHW", "dataFormat %s is not supported: only NCHW", c.string(3));
  for (int i : {1, 2}) expect_numel(c, i, x.sizes[1]);
  expect_same_shape(c, 5, 0);
  for (int i : {6, 7}) expect_shape(c, i, {x.sizes[0], x.sizes[1], 1, 1});
}
// A group norm with one channel a group; it saves the variance itself.
void instance_norm(Run& r) {
  Value x = r.tensor(0), mean = r.tensor(6), variance = r.tensor(7);
  int64_t n = x.size(0), channels = x.size(1);
  Value mean_made = empty({n, channels}, mt::kFloat), rstd = empty({n, channels}, mt::kFloat),
        spread = empty({n, channels}, mt::kFloat);
  call_kernel(
      "native_group_norm", {r.tensor(5), mean_made, rstd, x, r.tensor(1), r.tensor(2)},
      {integer(n), integer(channels), integer(x.size(2) * x.size(3)), integer(channels), number(r.call.number(4))});
  Sizes image{2, 3};
  call_kernel("var_mean", {spread, mean_made, x}, {list(image), number(0), integer(0)});
  copy(mean, mean_made.reshape(mean.shape()));
  copy(variance, spread.reshape(variance.shape()));
}

const Op ops[] = {
    {"aclnnLayerNorm", check_layer_norm, layer_norm},
    {"aclnnLayerNormWithImplMode", check_layer_norm, layer_norm},
    {"aclnnFastLayerNorm", check_layer_norm, layer_norm},
    {"aclnnLayerNormBackward", check_layer_norm_backward, layer_norm_backward},
    {"aclnnRmsNorm", check_rms_norm, rms_norm},
    {"aclnnGemmaRmsNorm", check_rms_norm, gemma_rms_norm},
    {"aclnnRmsNormGrad", check_rms_norm_grad, rms_norm_grad},
    {"aclnnGroupNorm", check_group_norm, group_norm},
    {"aclnnGroupNormBackward", check_group_norm_backward, group_norm_backward},
    {"aclnnBatchNorm", check_batch_norm, batch_norm},
    {"aclnnBatchNormBackward", check_batch_norm_backward, batch_norm_backward},
    {"aclnnFastBatchNormBackward", check_batch_norm_backward, batch_norm_backward},
    {"aclnnInstanceNorm", check_instance_norm, instance_norm},
};

}  // namespace
}  // namespace cann_sim
