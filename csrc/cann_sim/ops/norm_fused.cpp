// Norms fused with what surrounds them in transformers: a residual added before, a scale or an activation after.
#include <algorithm>
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

Value floats(const Sizes& shape) { return empty(shape, mt::kFloat); }
void add(const Value& out, const Value& a, const Value& b, double factor = 1) {  // a + factor * b
  call_pointwise("add", mt::kFloat, {out, a, b}, {number(factor)});
}
void multiply(const Value& out, const Value& a, const Value& b) { call_pointwise("mul", mt::kFloat, {out, a, b}); }
Value constant(double x) { return full({}, mt::kFloat, x); }

// Rows of x over the last dims, which are gamma's.
int64_t expect_rows(const Call& c, int x, int gamma) {
  Sizes in = sizes_of(c.tensor(x)), last = sizes_of(c.tensor(gamma));
  EXPECT(!last.empty() && last.size() <= in.size() && std::equal(last.rbegin(), last.rend(), in.rbegin()),
         "%s %s does not end the shape of %s", c.row->args[gamma].name, describe(c.tensor(gamma)).c_str(),
         describe(c.tensor(x)).c_str());
  int64_t n = c.tensor(gamma).numel();
  return n ? c.tensor(x).numel() / n : 0;
}
void expect_stats(const Call& c, int i, int64_t rows) {
  if (c.given(i)) expect_numel(c, i, rows);
}
Value given_or(const Value& v, const Sizes& shape) { return v.given() ? v : floats(shape); }

// ---- x1 + x2, then RMS norm: (x1, x2, gamma, epsilon, y, [y2,] rstd?, x?) --------------------------------------
struct AddRms { int y, y2, rstd, x; };  // outputs; -1: the op has none
constexpr AddRms kAddRms{4, -1, 5, 6}, kCast{4, 5, 6, 7}, kInPlace{0, -1, 4, 1};

template <const AddRms& at> void check_add_rms(const Call& c) {
  int64_t rows = expect_rows(c, 0, 2);
  expect_same_shape(c, 1, 0);
  for (int i : {at.y, at.y2, at.x})
    if (i >= 0 && c.given(i)) expect_same_shape(c, i, 0);
  expect_stats(c, at.rstd, rows);
}
template <const AddRms& at> void add_rms(Run& r) {
  Value gamma = r.tensor(2), sum = floats(r.tensor(0).shape());
  add(sum, r.tensor(0), r.tensor(1));
  Value y = floats(sum.shape()),
        rstd = given_or(r.tensor(at.rstd), {sum.numel() / std::max<int64_t>(gamma.numel(), 1)});
  Sizes shape = gamma.shape();
  call_kernel("_fused_rms_norm", {y, rstd, sum, gamma}, {list(shape), number(r.call.number(3))});
  for (int i : {at.y, at.y2})
    if (i >= 0) copy(r.tensor(i), y);
  if (r.given(at.x)) copy(r.tensor(at.x), sum);
}

// ---- layer norm of a sum ---------------------------------------------------------------------------------------
void layer_norm(const Value& y, const Value& mean, const Value& rstd, const Value& x, const Value& gamma,
                const Value& beta, double eps, const Sizes& shape) {
  call_kernel("native_layer_norm", {y, mean, rstd, x, gamma, beta}, {list(shape), number(eps)});
}
void layer_norm_backward(const Value& dx, const Value& dgamma, const Value& dbeta, const Value& dy, const Value& x,
                         const Value& mean, const Value& rstd, const Value& gamma) {
  Sizes shape = gamma.shape();
  call_kernel("native_layer_norm_backward", {dx, dgamma, dbeta, dy, x, mean, rstd, gamma, Value()},
              {list(shape), none()});
}

// (x1, x2, gamma, beta, bias?, epsilon, additionalOutput, y, mean, rstd, x)
void check_add_layer(const Call& c) {
  int64_t rows = expect_rows(c, 0, 2);
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 3, 2);
  if (c.given(4))
    EXPECT(broadcast_sizes(sizes_of(c.tensor(4)), sizes_of(c.tensor(0))) == sizes_of(c.tensor(0)),
           "bias %s does not broadcast to x1 %s", describe(c.tensor(4)).c_str(), describe(c.tensor(0)).c_str());
  expect_same_shape(c, 7, 0);
  expect_stats(c, 8, rows);
  expect_stats(c, 9, rows);
  if (c.integer(6)) expect_same_shape(c, 10, 0);
}
void add_layer(Run& r) {
  Value gamma = r.tensor(2), sum = floats(r.tensor(0).shape());
  add(sum, r.tensor(0), r.tensor(1));
  if (r.given(4)) add(sum, sum, r.tensor(4));
  layer_norm(r.tensor(7), r.tensor(8), r.tensor(9), sum, gamma, r.tensor(3), r.call.number(5), gamma.shape());
  if (r.call.integer(6)) copy(r.tensor(10), sum);
}
// (dy, x1, x2, rstd, mean, gamma, dsum?, dx, dgamma, dbeta)
void check_add_layer_grad(const Call& c) {
  int64_t rows = expect_rows(c, 1, 5);
  for (int i : {0, 2, 7}) expect_same_shape(c, i, 1);
  if (c.given(6)) expect_same_shape(c, 6, 1);
  for (int i : {3, 4}) expect_numel(c, i, rows);
  for (int i : {8, 9}) expect_same_shape(c, i, 5);
}
void add_layer_grad(Run& r) {
  Value sum = floats(r.tensor(1).shape()), dx = floats(sum.shape());
  add(sum, r.tensor(1), r.tensor(2));
  layer_norm_backward(dx, r.tensor(8), r.tensor(9), r.tensor(0), sum, r.tensor(4), r.tensor(3), r.tensor(5));
  if (r.given(6)) add(dx, dx, r.tensor(6));
  copy(r.tensor(7), dx);
}

// ---- DeepNorm: layer norm of alpha * x + gx --------------------------------------------------------------------
// (x, gx, beta, gamma, alpha, epsilon, mean, rstd, y)
void check_deep(const Call& c) {
  int64_t rows = expect_rows(c, 0, 3);
  expect_same_shape(c, 1, 0);
  expect_same_shape(c, 2, 3);
  for (int i : {6, 7}) expect_numel(c, i, rows);
  expect_same_shape(c, 8, 0);
}
void deep(Run& r) {
  Value gamma = r.tensor(3), sum = floats(r.tensor(0).shape());
  add(sum, r.tensor(1), r.tensor(0), r.call.number(4));
  layer_norm(r.tensor(8), r.tensor(6), r.tensor(7), sum, gamma, r.tensor(2), r.call.number(5), gamma.shape());
}
// (dy, x, gx, gamma, mean, rstd, alpha, dx, dgx, dbeta, dgamma)
void check_deep_grad(const Call& c) {
  int64_t rows = expect_rows(c, 1, 3);
  for (int i : {0, 2, 7, 8}) expect_same_shape(c, i, 1);
  for (int i : {4, 5}) expect_numel(c, i, rows);
  for (int i : {9, 10}) expect_same_shape(c, i, 3);
}
void deep_grad(Run& r) {
  Value sum = floats(r.tensor(1).shape()), dx = floats(sum.shape());
  double alpha = r.call.number(6);
  add(sum, r.tensor(2), r.tensor(1), alpha);
  layer_norm_backward(dx, r.tensor(10), r.tensor(9), r.tensor(0), sum, r.tensor(4), r.tensor(5), r.tensor(3));
  copy(r.tensor(8), dx);
  multiply(r.tensor(7), dx, constant(alpha));
}

// ---- AdaLayerNorm: layer norm * (1 + scale) + shift: (x, scale, shift, weight?, bias?, epsilon, out, mean?, rstd?)
// x is [B, S, H]; scale and shift have a row a batch: [B, H] or [B, 1, H].
void check_ada(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim >= 2, "x must have at least 2 dims, got %s", describe(x).c_str());
  for (int i : {1, 2}) expect_numel(c, i, x.sizes[0] * x.sizes[x.ndim - 1]);
  for (int i : {3, 4})
    if (c.given(i)) expect_numel(c, i, x.sizes[x.ndim - 1]);
  expect_same_shape(c, 6, 0);
  for (int i = 7; i < c.row->nargs; ++i) expect_stats(c, i, x.numel() / std::max<int64_t>(x.sizes[x.ndim - 1], 1));
}
void ada(Run& r) {
  Value x = r.tensor(0), y = floats(x.shape()), scale = floats(r.tensor(1).shape());
  Sizes shape{x.size(-1)}, by_batch(size_t(x.ndim), 1);
  by_batch.front() = x.size(0), by_batch.back() = x.size(-1);
  bool stats = r.call.row->nargs > 7;
  layer_norm(y, stats ? r.tensor(7) : Value(), stats ? r.tensor(8) : Value(), x, r.tensor(3), r.tensor(4),
             r.call.number(5), shape);
  add(scale, r.tensor(1), constant(1));
  multiply(y, y, scale.reshape(by_batch));
  add(y, y, r.tensor(2).reshape(by_batch));
  copy(r.tensor(6), y);
}

// ---- group norm, then y * sigmoid(scale * y) -------------------------------------------------------------------
struct Groups { int64_t batch, channels, length, groups; };
Groups expect_groups(const Call& c, int x, int gamma, int beta, int64_t groups) {
  const TensorMeta& t = c.tensor(x);
  EXPECT(t.ndim >= 2, "%s has no channels", describe(t).c_str());
  EXPECT(groups > 0 && t.sizes[1] % groups == 0, "%ld channels are not divisible by %ld groups", long(t.sizes[1]),
         long(groups));
  for (int i : {gamma, beta})
    if (c.given(i)) expect_numel(c, i, t.sizes[1]);
  int64_t rows = t.sizes[0] * t.sizes[1];
  return {t.sizes[0], t.sizes[1], rows ? t.numel() / rows : 0, groups};
}
// Where the ops keep the eps, the switch, the scale and the outputs; -1: always on, or 1.
struct GroupActivation { int eps, active, scale, out; };
constexpr GroupActivation kSilu{4, -1, -1, 5}, kSiluV2{4, 5, -1, 6}, kSwish{5, 6, 7, 8};

template <const GroupActivation& at> void check_group(const Call& c) {
  Groups g = expect_groups(c, 0, 1, 2, c.integer(3));
  expect_same_shape(c, at.out, 0);
  for (int i : {at.out + 1, at.out + 2}) expect_numel(c, i, g.batch * g.groups);
}
void swish(const Value& y, double scale) {
  float* p = y.ptr<float>();
  for (int64_t i = 0, n = y.numel(); i < n; ++i) p[i] = p[i] / (1 + std::exp(-float(scale) * p[i]));
}
template <const GroupActivation& at> void group(Run& r) {
  const Call& c = r.call;
  Value x = r.tensor(0), y = floats(x.shape());
  Groups g = expect_groups(c, 0, 1, 2, c.integer(3));
  call_kernel("native_group_norm", {y, r.tensor(at.out + 1), r.tensor(at.out + 2), x, r.tensor(1), r.tensor(2)},
              {integer(g.batch), integer(g.channels), integer(g.length), integer(g.groups), number(c.number(at.eps))});
  if (at.active < 0 || c.integer(at.active)) swish(y, at.scale < 0 ? 1 : c.number(at.scale));
  copy(r.tensor(at.out), y);
}

// (dy, mean, rstd, x, gamma, beta, numGroups, format?, swishScale, dgammaIsRequire, dbetaIsRequire, dx, dgamma, dbeta)
void check_group_grad(const Call& c) {
  Groups g = expect_groups(c, 3, 4, 5, c.integer(6));
  expect_same_shape(c, 0, 3);
  for (int i : {1, 2}) expect_numel(c, i, g.batch * g.groups);
  expect_same_shape(c, 11, 3);
  for (int k : {0, 1})
    if (c.integer(9 + k)) expect_numel(c, 12 + k, g.channels);
}
void group_grad(Run& r) {
  const Call& c = r.call;
  Groups g = expect_groups(c, 3, 4, 5, c.integer(6));
  Value x = r.tensor(3).to(mt::kFloat).dense(), dy = r.tensor(0).to(mt::kFloat).dense(), slope = floats(x.shape()),
        mean = r.tensor(1).to(mt::kFloat).dense(), rstd = r.tensor(2).to(mt::kFloat).dense(),
        gamma = r.tensor(4).to(mt::kFloat).dense(), beta = r.tensor(5).to(mt::kFloat).dense();
  float scale = float(c.number(8));
  for (int64_t i = 0, n = x.numel(); i < n; ++i) {  // through the activation: its input is made again
    int64_t row = i / g.length, ch = row % g.channels, group = row / (g.channels / g.groups);
    float y = (x.ptr<float>()[i] - mean.ptr<float>()[group]) * rstd.ptr<float>()[group] * gamma.ptr<float>()[ch] +
              beta.ptr<float>()[ch];
    float s = 1 / (1 + std::exp(-scale * y));
    slope.ptr<float>()[i] = dy.ptr<float>()[i] * s * (1 + scale * y * (1 - s));
  }
  Value dgamma = c.integer(9) ? r.tensor(12) : Value(), dbeta = c.integer(10) ? r.tensor(13) : Value();
  call_kernel("native_group_norm_backward", {r.tensor(11), dgamma, dbeta, slope, x, mean, rstd, gamma},
              {integer(g.batch), integer(g.channels), integer(g.length), integer(g.groups), none()});
}

const Op ops[] = {
    {"aclnnAddRmsNorm", check_add_rms<kAddRms>, add_rms<kAddRms>},
    {"aclnnAddRmsNormCast", check_add_rms<kCast>, add_rms<kCast>},
    {"aclnnInplaceAddRmsNorm", check_add_rms<kInPlace>, add_rms<kInPlace>},
    {"aclnnAddLayerNorm", check_add_layer, add_layer},
    {"aclnnAddLayerNormGrad", check_add_layer_grad, add_layer_grad},
    {"aclnnDeepNorm", check_deep, deep},
    {"aclnnDeepNormGrad", check_deep_grad, deep_grad},
    {"aclnnAdaLayerNorm", check_ada, ada},
    {"aclnnAdaLayerNormV2", check_ada, ada},
    {"aclnnGroupNormSilu", check_group<kSilu>, group<kSilu>},
    {"aclnnGroupNormSiluV2", check_group<kSiluV2>, group<kSiluV2>},
    {"aclnnGroupNormSwish", check_group<kSwish>, group<kSwish>},
    {"aclnnGroupNormSwishGrad", check_group_grad, group_grad},
};

}  // namespace
}  // namespace cann_sim
