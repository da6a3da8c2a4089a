// Norms whose result is scaled again: by adaptive scales and shifts, with their gradients, or quantised by blocks and channels.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }
Value wide(Run& r, int i) { return has(r.call, i) ? wide(r.tensor(i)) : Value(); }
float item(const Value& v, int64_t i, float without) { return v.given() ? v.ptr<float>()[v.numel() == 1 ? 0 : i] : without; }

// Mean (where wanted) and 1 / standard deviation of `count` items.
struct Moments {
  double mean = 0, rstd = 0;
  Moments(const float* x, int64_t count, double epsilon, bool centred) {
    for (int64_t k = 0; k < count && centred; ++k) mean += x[k] / double(count);
    double square = 0;
    for (int64_t k = 0; k < count; ++k) square += (x[k] - mean) * (x[k] - mean) / double(count);
    rstd = 1 / std::sqrt(square + epsilon);
  }
};
bool is_required_input(const Call& c, int i) {
  return i >= 0 && c.row->args[i].kind == Kind::k_tensor && !c.row->args[i].optional;
}
void expect_rows(const Call& c, std::initializer_list<int> arguments, int64_t width) {
  for (int i : arguments)
    if (has(c, i) || is_required_input(c, i)) expect_numel(c, i, width);
}

// ---- rms norm to MX: ([x1, x2 or x], gamma, beta?, epsilon, …, yOut, [xOut], mxscaleOut, rstdOut) -------------------------------
struct RmsMx {
  int x1, x2, gamma, beta, epsilon, wants_rstd, y, x, scales, rstd;
  explicit RmsMx(const Call& c)
      : x1(argument(c, {"x1", "x"})), x2(argument(c, {"x2"})), gamma(argument(c, {"gamma"})), beta(argument(c, {"beta"})),
        epsilon(argument(c, {"epsilon"})), wants_rstd(argument(c, {"outputRstd"})), y(argument(c, {"yOut"})), x(argument(c, {"xOut"})),
        scales(argument(c, {"mxscaleOut"})), rstd(argument(c, {"rstdOut"})) {}
};
void check_rms_mx(const Call& c) {
  const RmsMx at(c);
  const Sizes x = sizes_of(c.tensor(at.x1));
  EXPECT(!x.empty(), "%s: x has no dims", c.name());
  if (at.x2 >= 0) expect_same_shape(c, at.x2, at.x1);
  expect_rows(c, {at.gamma, at.beta}, x.back());
  expect_mx(c, mx_of(c, at.y), round_mode(c));
  expect_dst_type(c, dst_type(c), at.y);
  expect_mx_outputs(c, x, -1, mx_of(c, at.y), at.y, at.scales);
  if (at.x >= 0) expect_same_shape(c, at.x, at.x1);
  if (c.integer(at.wants_rstd)) expect_numel(c, at.rstd, c.tensor(at.x1).numel() / std::max<int64_t>(x.back(), 1));
}
void run_rms_mx(Run& r) {
  const Call& c = r.call;
  const RmsMx at(c);
  const Value x = at.x2 >= 0 ? pointwise("add", mt::kFloat, {r.tensor(at.x1), r.tensor(at.x2)}, {integer(1)}) : wide(r, at.x1);
  const Value gamma = wide(r, at.gamma), beta = wide(r, at.beta), y = empty(x.shape(), mt::kFloat);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  const Value rstd = empty({rows}, mt::kFloat);
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x.ptr<float>() + i * width;
    const Moments m(row, width, c.number(at.epsilon), false);
    rstd.ptr<float>()[i] = float(m.rstd);
    for (int64_t k = 0; k < width; ++k) y.ptr<float>()[i * width + k] = float(row[k] * m.rstd) * item(gamma, k, 1) + item(beta, k, 0);
  }
  if (at.x >= 0) copy(r.tensor(at.x), x);
  if (c.integer(at.wants_rstd)) copy(r.tensor(at.rstd), rstd.reshape(r.tensor(at.rstd).shape()));
  store_mx(r, y, -1, mx_of(c, at.y), round_mode(c), at.y, at.scales);
}

// ---- the gradient of rms norm, dx quantised: (dy, x, rstd, gamma, scalesX, offsetX?, quantMode, divMode, dx, dgamma) ---------------
void check_rms_grad(const Call& c) {
  const int64_t width = c.tensor(3).numel();
  EXPECT(width > 0 && c.tensor(1).numel() % width == 0, "%s: gamma %s does not fit x %s", c.name(), describe(c.tensor(3)).c_str(),
         describe(c.tensor(1)).c_str());
  EXPECT(std::string(c.string(6)) == "static", "%s: quantMode %s is not static", c.name(), c.string(6));
  expect_same_shape(c, 0, 1);
  expect_numel(c, 2, c.tensor(1).numel() / width);
  expect_one_element(c, 4);
  expect_one_element(c, 5);
  if (c.tensor(8).dtype != ACL_INT8) refuse(561003, "%s to %s is not computed: only int8 is", c.name(), describe(c.tensor(8)).c_str());
  expect_same_shape(c, 8, 1);
  expect_same_shape(c, 9, 3);
}
void run_rms_grad(Run& r) {
  const Value dy = wide(r, 0), x = wide(r, 1), rstd = wide(r, 2), gamma = wide(r, 3), scale = wide(r, 4), offset = wide(r, 5);
  const int64_t width = gamma.numel(), rows = x.numel() / width;
  const Value dx = empty(x.shape(), mt::kFloat), dgamma = full({width}, mt::kFloat, 0);
  const bool divides = r.call.integer(7);
  for (int64_t i = 0; i < rows; ++i) {
    const float *g = dy.ptr<float>() + i * width, *row = x.ptr<float>() + i * width, s = rstd.ptr<float>()[i];
    double mean = 0;
    for (int64_t k = 0; k < width; ++k) mean += double(g[k]) * gamma.ptr<float>()[k] * row[k] * s / double(width);
    for (int64_t k = 0; k < width; ++k) {
      const float d = float((g[k] * gamma.ptr<float>()[k] - s * row[k] * mean) * s);
      dx.ptr<float>()[i * width + k] = (divides ? d / item(scale, 0, 1) : d * item(scale, 0, 1)) + item(offset, 0, 0);
      dgamma.ptr<float>()[k] += s * row[k] * g[k];
    }
  }
  store_low(r, 8, dx, "rint");
  copy(r.tensor(9), dgamma.reshape(r.tensor(9).shape()));
}

// ---- groups of channels, silu, int8: (self, gamma?, beta?, quantScale, group, eps, activateSilu, out, meanOut, rstdOut) ---------------
void check_group_silu(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 1 && c.integer(4) > 0 && x.sizes[1] % c.integer(4) == 0, "%s: self %s does not split into %ld groups", c.name(),
         describe(x).c_str(), long(c.integer(4)));
  expect_rows(c, {1, 2}, x.sizes[1]);
  EXPECT(c.tensor(3).numel() == 1 || c.tensor(3).numel() == x.sizes[1], "%s: quantScale %s does not fit", c.name(), describe(c.tensor(3)).c_str());
  EXPECT(c.number(5) > 0, "%s: eps %g is not above 0", c.name(), c.number(5));
  EXPECT(c.tensor(7).dtype == ACL_INT8, "%s: out is %s, expected int8", c.name(), describe(c.tensor(7)).c_str());
  expect_same_shape(c, 7, 0);
  for (int i : {8, 9}) expect_shape(c, i, {x.sizes[0], c.integer(4)});
}
void run_group_silu(Run& r) {
  const Value x = wide(r, 0), gamma = wide(r, 1), beta = wide(r, 2), scale = wide(r, 3), y = empty(x.shape(), mt::kFloat);
  const int64_t channels = x.sizes[1], groups = r.call.integer(4), batch = x.sizes[0];
  const int64_t inner = batch && channels ? x.numel() / (batch * channels) : 0, count = channels / groups * inner;
  const Value mean = empty({batch, groups}, mt::kFloat), rstd = empty({batch, groups}, mt::kFloat);
  for (int64_t g = 0; g < batch * groups; ++g) {
    const float* items = x.ptr<float>() + g * count;
    const Moments m(items, count, r.call.number(5), true);
    mean.ptr<float>()[g] = count ? float(m.mean) : 0;
    rstd.ptr<float>()[g] = count ? float(m.rstd) : NAN;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t channel = g % groups * (channels / groups) + k / inner;
      const float n = float((items[k] - m.mean) * m.rstd) * item(gamma, channel, 1) + item(beta, channel, 0);
      y.ptr<float>()[g * count + k] = (r.call.integer(6) ? n / (1 + std::exp(-n)) : n) / item(scale, channel, 1);
    }
  }
  store_low(r, 7, y, "rint");
  copy(r.tensor(8), mean);
  copy(r.tensor(9), rstd);
}

// (input, mean, var, inputScale, inputZeroPoint, outputScale, outputZeroPoint, weight, bias, epsilon, output), channels are dim 1.
void check_quantised_batch(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 1, "%s: input %s has too few dims", c.name(), describe(x).c_str());
  for (int i : {1, 2, 7, 8}) expect_shape(c, i, {x.sizes[1]});
  expect_same_dtype(c, 10, 0);
  expect_same_shape(c, 10, 0);
}
void run_quantised_batch(Run& r) {
  const Call& c = r.call;
  const Value x = wide(r, 0), mean = wide(r, 1), var = wide(r, 2), weight = wide(r, 7), bias = wide(r, 8), out = r.tensor(10), y = empty(x.shape(), mt::kInt32);
  const int64_t channels = x.sizes[1];
  int64_t inner = 1;
  for (int d = 2; d < x.ndim; ++d) inner *= x.sizes[d];
  const float low = out.dtype == mt::kUInt8 ? 0 : out.dtype == mt::kInt8 ? -128 : -0x1p31f;
  const float high = out.dtype == mt::kUInt8 ? 255 : out.dtype == mt::kInt8 ? 127 : 0x1p31f - 128;
  for (int64_t k = 0, n = x.numel(); k < n; ++k) {
    const int64_t channel = k / inner % channels;
    const double real = (x.ptr<float>()[k] - c.scalar(4).re) * c.scalar(3).re;
    const double normed = (real - mean.ptr<float>()[channel]) / std::sqrt(var.ptr<float>()[channel] + c.number(9)) * weight.ptr<float>()[channel] +
                          bias.ptr<float>()[channel];
    const float q = std::nearbyint(float(normed / c.scalar(5).re + c.scalar(6).re));
    y.ptr<int32_t>()[k] = int32_t(q < low ? low : q > high ? high : q);
  }
  copy(out, y);
}

// ---- adaptive: layer norm times (1 + scale) plus shift, both [B…, H] or [B…, 1, H] for x [B…, S, H] -----------------------------------
int64_t steps(const Sizes& x) { return x.size() > 1 ? x[x.size() - 2] : 1; }
void expect_adaptive(const Call& c, std::initializer_list<int> arguments, const Sizes& x) {
  int64_t n = 1;
  for (int64_t size : x) n *= size;
  for (int i : arguments)
    if (has(c, i) || is_required_input(c, i)) expect_numel(c, i, n / std::max<int64_t>(steps(x), 1));
}
// (x, scale, shift, weight?, bias?, smoothScales?, epsilon, quantMode, out, quantScale, quantOffset?)
void check_adaptive_quant(const Call& c) {
  const Sizes x = sizes_of(c.tensor(0));
  EXPECT(x.size() > 1, "%s: x %s has too few dims", c.name(), describe(c.tensor(0)).c_str());
  const std::string mode = c.given(7) ? c.string(7) : "";
  if (!mode.empty() && mode != "dynamic") refuse(561003, "%s is computed with quantMode dynamic", c.name());
  expect_adaptive(c, {1, 2}, x);
  expect_rows(c, {3, 4, 5}, x.back());
  expect_quantised(c, 8);
  EXPECT(c.tensor(8).dtype != ACL_INT32, "%s: out is int32", c.name());
  expect_same_shape(c, 8, 0);
  expect_shape(c, 9, Sizes(x.begin(), x.end() - 1));
}
void run_adaptive_quant(Run& r) {
  const Value x = wide(r, 0), scale = wide(r, 1), shift = wide(r, 2), weight = wide(r, 3), bias = wide(r, 4), smooth = wide(r, 5);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0, s = steps(x.shape());
  const Value q = empty(x.shape(), mt::kFloat), scales = empty({rows}, mt::kFloat);
  for (int64_t i = 0; i < rows; ++i) {
    const float *row = x.ptr<float>() + i * width, *a = scale.ptr<float>() + i / s * width, *b = shift.ptr<float>() + i / s * width;
    float *to = q.ptr<float>() + i * width, largest = 0;
    const Moments m(row, width, r.call.number(6), true);
    for (int64_t k = 0; k < width; ++k) {
      to[k] = ((float((row[k] - m.mean) * m.rstd) * item(weight, k, 1) + item(bias, k, 0)) * (1 + a[k]) + b[k]) * item(smooth, k, 1);
      largest = std::max(largest, std::fabs(to[k]));
    }
    const float found = scales.ptr<float>()[i] = largest / most_of(r.call.tensor(8).dtype);
    for (int64_t k = 0; k < width; ++k) to[k] = found ? to[k] / found : 0;
  }
  store_low(r, 8, q, "rint");
  copy(r.tensor(9), scales.reshape(r.tensor(9).shape()));
}
// (gradOut, input, normalizedShape, rstd, mean, scale, shift, weight?, bias?, gradInput, gradScale, gradShift, gradWeight, gradBias)
void check_adaptive_grad(const Call& c) {
  const Sizes x = sizes_of(c.tensor(1));
  EXPECT(x.size() > 1 && c.ints(2).size() == 1 && c.ints(2)[0] == x.back(), "%s: normalizedShape does not fit input %s", c.name(),
         describe(c.tensor(1)).c_str());
  expect_same_shape(c, 0, 1);
  for (int i : {3, 4}) expect_numel(c, i, c.tensor(1).numel() / std::max<int64_t>(x.back(), 1));
  expect_adaptive(c, {5, 6, 10, 11}, x);
  expect_rows(c, {7, 8, 12, 13}, x.back());
  expect_same_shape(c, 9, 1);
}
void run_adaptive_grad(Run& r) {
  const Value dy = wide(r, 0), x = wide(r, 1), rstd = wide(r, 3), mean = wide(r, 4), scale = wide(r, 5), weight = wide(r, 7), bias = wide(r, 8);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0, s = steps(x.shape());
  const Value dx = empty(x.shape(), mt::kFloat), dscale = full({scale.numel()}, mt::kFloat, 0), dshift = full({scale.numel()}, mt::kFloat, 0);
  const Value dweight = full({width}, mt::kFloat, 0), dbias = full({width}, mt::kFloat, 0);
  for (int64_t i = 0; i < rows; ++i) {
    const float *g = dy.ptr<float>() + i * width, *row = x.ptr<float>() + i * width, *a = scale.ptr<float>() + i / s * width;
    const float m = mean.ptr<float>()[i], f = rstd.ptr<float>()[i];
    double first = 0, second = 0;
    auto outer = [&](int64_t k) { return g[k] * item(weight, k, 1) * (1 + a[k]); };
    for (int64_t k = 0; k < width; ++k) first += outer(k) / width, second += outer(k) * (row[k] - m) * f / width;
    for (int64_t k = 0; k < width; ++k) {
      const float z = (row[k] - m) * f;
      dx.ptr<float>()[i * width + k] = float((outer(k) - (first + z * second)) * f);
      dscale.ptr<float>()[i / s * width + k] += g[k] * (z * item(weight, k, 1) + item(bias, k, 0));
      dshift.ptr<float>()[i / s * width + k] += g[k];
      dweight.ptr<float>()[k] += g[k] * (1 + a[k]) * z;
      dbias.ptr<float>()[k] += g[k] * (1 + a[k]);
    }
  }
  const Value* made[] = {&dx, &dscale, &dshift, &dweight, &dbias};
  for (int i = 0; i < 5; ++i)
    if (has(r.call, 9 + i)) copy(r.tensor(9 + i), made[i]->reshape(r.tensor(9 + i).shape()));
}

const Op ops[] = {
    {"aclnnRmsNormDynamicMxQuant", check_rms_mx, run_rms_mx},
    {"aclnnAddRmsNormDynamicMxQuant", check_rms_mx, run_rms_mx},
    {"aclnnRmsNormGradQuant", check_rms_grad, run_rms_grad},
    {"aclnnGroupNormSiluQuant", check_group_silu, run_group_silu},
    {"aclnnQuantizedBatchNorm", check_quantised_batch, run_quantised_batch},
    {"aclnnAdaLayerNormQuant", check_adaptive_quant, run_adaptive_quant},
    {"aclnnAdaLayerNormBackward", check_adaptive_grad, run_adaptive_grad},
};

}  // namespace
}  // namespace cann_sim
