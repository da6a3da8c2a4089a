// Norms and activations whose result is quantised to int8 at once: by given scales, or by a scale found for every row.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

constexpr float kMost = 127;

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }

int8_t rounded(float x, float most = kMost) {
  x = std::nearbyint(x);
  return int8_t(x < -most - 1 ? -most - 1 : x > most ? most : x == x ? x : 0);
}
// x * scale + zero, or x / scale + zero, to int8; scale and zero are one a column, or one.
void quantise(const Value& out, const Value& x, Value scale, const Value& zero, bool divides) {
  Value q = divides ? pointwise("div", mt::kFloat, {x, scale.reshape({-1})}) : times(x, scale.reshape({-1}));
  if (zero.given()) q = plus(q, zero.reshape({-1}));
  const Value from = q.dense(), made = empty(x.shape(), mt::kInt8);
  for (int64_t i = 0, n = made.numel(); i < n; ++i) made.ptr<int8_t>()[i] = rounded(from.ptr<float>()[i]);
  copy(out, made);
}
// Every row by its largest item, or, with `offsets`, by the distance of its extremes; up to `top`, 7 of int4.
void quantise_rows(const Value& out, const Value& scales, const Value& offsets, const Value& in, float top = kMost) {
  const Value x = wide(in);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  const Value made = empty(x.shape(), mt::kInt8), scale = empty({rows}, mt::kFloat), offset = empty({rows}, mt::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.ptr<float>() + r * width;
    const auto [least, most] = std::minmax_element(row, row + width);
    float s = std::max(std::fabs(*least), std::fabs(*most)) / top, o = 0;
    if (offsets.given()) {
      s = (*most - *least) / (2 * top + 1);
      o = s ? top - *most / s : 0;
    }
    scale.ptr<float>()[r] = s;
    offset.ptr<float>()[r] = o;
    for (int64_t i = 0; i < width; ++i) made.ptr<int8_t>()[r * width + i] = rounded(s ? row[i] / s + o : 0, top);
  }
  copy(out, made);
  copy(scales, scale.reshape(scales.shape()));
  if (offsets.given()) copy(offsets, offset.reshape(offsets.shape()));
}

// Rows over the last dim: x / rms(x) * gamma + beta, or with the mean taken off.
Value normed(const Value& in, const Value& gamma, const Value& beta, double epsilon, bool centred) {
  const Value x = wide(in), g = wide(gamma), b = beta.given() ? wide(beta) : beta, made = empty(x.shape(), mt::kFloat);
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.ptr<float>() + r * width;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < width && centred; ++i) mean += row[i] / double(width);
    for (int64_t i = 0; i < width; ++i) square += (row[i] - mean) * (row[i] - mean) / double(width);
    const double rstd = 1 / std::sqrt(square + epsilon);
    for (int64_t i = 0; i < width; ++i)
      made.ptr<float>()[r * width + i] =
          float((row[i] - mean) * rstd * g.ptr<float>()[g.numel() == 1 ? 0 : i] + (b.given() ? b.ptr<float>()[b.numel() == 1 ? 0 : i] : 0));
  }
  return made;
}

// ---- arguments by name: the ops' versions have more or fewer ----------------------------------------------------
Value optional(Run& r, int i) { return has(r.call, i) ? r.tensor(i) : Value(); }
void expect_row(const Call& c, int i, int64_t width) {
  if (has(c, i)) EXPECT(c.tensor(i).numel() == width || c.tensor(i).numel() == 1, "%s has %ld items, expected %ld",
                        c.row->args[i].name, long(c.tensor(i).numel()), long(width));
}
void expect_numel_of(const Call& c, int i, int64_t n) {
  EXPECT(c.tensor(i).numel() == n, "%s has %ld items, expected %ld", c.row->args[i].name, long(c.tensor(i).numel()), long(n));
}
void expect_int8(const Call& c, int i) {
  if (c.tensor(i).dtype != ACL_INT8) refuse(561003, "%s to %s is not computed: only int8 is", c.name(), describe(c.tensor(i)).c_str());
}
// int4, or int32 of eight int4 each.
bool holds_int4(const Call& c, int i) { return c.tensor(i).dtype == ACL_INT4 || c.tensor(i).dtype == ACL_INT32; }
void expect_int4_like(const Call& c, int i, int like) {
  Sizes packed = sizes_of(c.tensor(like));
  EXPECT(packed.back() % 8 == 0, "int4 needs rows of a multiple of 8 items");
  if (c.tensor(i).dtype == ACL_INT32) packed.back() /= 8;
  expect_shape(c, i, packed);
}
// Every row of x with a scale of its own, to int8 or int4.
void store_rows(Run& r, int out, int scales, const Value& x) {
  if (!holds_int4(r.call, out)) return quantise_rows(r.tensor(out), r.tensor(scales), Value(), x);
  const Value made = empty(x.shape(), mt::kInt8);
  quantise_rows(made, r.tensor(scales), Value(), x, 7);
  store_low(r, out, wide(made), "rint");
}

// (x1, x2, gamma, [beta, bias], scales…, epsilon, …, y1Out, y2Out, xOut, …)
struct Added {
  int x1, x2, gamma, beta, bias, scales1, scales2, zeros1, zeros2, divides, mode, epsilon, y1, y2, x, found1, found2, norm;
  explicit Added(const Call& c)
      : x1(argument(c, {"x1"})), x2(argument(c, {"x2"})), gamma(argument(c, {"gamma"})),
        beta(argument(c, {"beta", "betaOptional"})), bias(argument(c, {"biasOptional"})),
        scales1(argument(c, {"scales1", "scales1Optional", "smoothScale1Optional"})),
        scales2(argument(c, {"scales2Optional", "smoothScale2Optional"})), zeros1(argument(c, {"zeroPoints1Optional"})),
        zeros2(argument(c, {"zeroPoints2Optional"})), divides(argument(c, {"divMode"})), mode(argument(c, {"quantMode"})),
        epsilon(argument(c, {"epsilon"})), y1(argument(c, {"y1Out"})), y2(argument(c, {"y2Out"})), x(argument(c, {"xOut"})),
        found1(argument(c, {"scale1Out", "outScales1Out"})), found2(argument(c, {"scale2Out", "outScales2Out"})),
        norm(argument(c, {"rmsNormOut", "layernormRes"})) {}
  bool dynamic(const Call& c) const { return mode >= 0 ? std::string(c.string(mode)) == "dynamic" : found1 >= 0; }
};
void check_added(const Call& c) {
  const Added at(c);
  const TensorMeta& x = c.tensor(at.x1);
  EXPECT(x.ndim > 0, "x1 has no dims");
  const int64_t width = x.sizes[x.ndim - 1];
  expect_same_shape(c, at.x2, at.x1);
  expect_shape(c, at.gamma, {width});
  for (int i : {at.beta, at.bias, at.scales1, at.scales2, at.zeros1, at.zeros2}) expect_row(c, i, width);
  if (!at.dynamic(c) || !holds_int4(c, at.y1)) expect_int8(c, at.y1);
  const int scales[] = {at.scales1, at.scales2}, outs[] = {at.y1, at.y2}, found[] = {at.found1, at.found2};
  for (int k = 0; k < 2; ++k) {
    if (!has(c, outs[k]) || (k && !has(c, scales[k]))) continue;
    if (holds_int4(c, outs[k])) expect_int4_like(c, outs[k], at.x1);
    else expect_same_shape(c, outs[k], at.x1);
    if (at.dynamic(c)) expect_numel(c, found[k], x.numel() / std::max<int64_t>(width, 1));
  }
  for (int i : {at.x, at.norm})
    if (has(c, i)) expect_same_shape(c, i, at.x1);
  if (!at.dynamic(c)) EXPECT(has(c, at.scales1), "scales1 is needed");
}
template <bool centred> void run_added(Run& r) {
  const Call& c = r.call;
  const Added at(c);
  Value x = plus(r.tensor(at.x1), r.tensor(at.x2));
  if (has(c, at.bias)) x = plus(x, r.tensor(at.bias));
  const Value y = normed(x, r.tensor(at.gamma), optional(r, at.beta), c.number(at.epsilon), centred);
  if (has(c, at.x)) copy(r.tensor(at.x), x);
  if (has(c, at.norm)) copy(r.tensor(at.norm), y);
  const int scales[] = {at.scales1, at.scales2}, zeros[] = {at.zeros1, at.zeros2}, outs[] = {at.y1, at.y2}, found[] = {at.found1, at.found2};
  for (int k = 0; k < 2; ++k) {
    const bool scaled = has(c, scales[k]);
    if ((k && !scaled) || !has(c, outs[k])) continue;
    if (at.dynamic(c)) store_rows(r, outs[k], found[k], scaled ? times(y, r.tensor(scales[k])) : y);
    else quantise(r.tensor(outs[k]), y, r.tensor(scales[k]), optional(r, zeros[k]), at.divides >= 0 && c.integer(at.divides));
  }
}

// (x, gamma, smoothScales?, beta?, epsilon, dstType, y, scale)
void check_rms_dynamic(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 0, "x has no dims");
  for (int i : {1, 2, 3}) expect_row(c, i, x.sizes[x.ndim - 1]);
  expect_int8(c, 6);
  expect_same_shape(c, 6, 0);
  expect_numel(c, 7, x.numel() / std::max<int64_t>(x.sizes[x.ndim - 1], 1));
}
void run_rms_dynamic(Run& r) {
  const Value y = normed(r.tensor(0), r.tensor(1), optional(r, 3), r.call.number(4), false);
  quantise_rows(r.tensor(6), r.tensor(7), Value(), has(r.call, 2) ? times(y, r.tensor(2)) : y);
}

// ---- (x, smoothScales?, groupIndex?, dstType, [isSymmetrical, quantMode, dstTypeMax], y, scale, offset?) ----------
// A scale for every row of the last dim (pertoken), for every column of it (perchannel), or one for all (pertensor).
struct Dynamic {
  int smooth, group, symmetric, mode, y, scale, offset;
  explicit Dynamic(const Call& c)
      : smooth(argument(c, {"smoothScalesOptional"})), group(argument(c, {"groupIndexOptional"})),
        symmetric(argument(c, {"isSymmetrical"})), mode(argument(c, {"quantMode"})), y(argument(c, {"yOut"})),
        scale(argument(c, {"scaleOut"})), offset(argument(c, {"offsetOut"})) {}
  bool shifts(const Call& c) const { return has(c, offset) && (symmetric < 0 || !c.integer(symmetric)); }
  std::string scaled_by(const Call& c) const { return mode >= 0 && *c.string(mode) ? c.string(mode) : "pertoken"; }
};
void check_dynamic(const Call& c) {
  const Dynamic at(c);
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 0, "x has no dims");
  const int64_t width = x.sizes[x.ndim - 1];
  if (has(c, at.group)) EXPECT(has(c, at.smooth) && c.tensor(at.smooth).numel() == width * c.tensor(at.group).numel(),
                               "groupIndex needs a row of smoothScales for each of its groups");
  else expect_row(c, at.smooth, width);
  const std::string by = at.scaled_by(c);
  if (holds_int4(c, at.y)) {
    EXPECT(by == "pertoken", "int4 needs a scale for each row");
    expect_int4_like(c, at.y, 0);
  } else {
    expect_int8(c, at.y);
    expect_same_shape(c, at.y, 0);
  }
  EXPECT(by == "pertoken" || by == "pertensor" || by == "perchannel", "quantMode %s is none", by.c_str());
  const int64_t scales = by == "pertensor" ? 1 : by == "perchannel" ? x.numel() / std::max<int64_t>(x.ndim > 1 ? x.sizes[x.ndim - 2] : 1, 1) : width ? x.numel() / width : 0;
  EXPECT(c.tensor(at.scale).numel() == scales, "scaleOut %s has no %ld items", describe(c.tensor(at.scale)).c_str(), long(scales));
  if (at.shifts(c)) expect_numel(c, at.offset, scales);
}
// Rows times the scales of their group, whose ends `groups` says.
Value smoothed(Run& r, const Value& x, const Value& scales, const Value& groups) {
  const Value ends = groups.to(mt::kInt64).dense(), made = wide(x).reshape({-1, x.size(-1)});
  int64_t row = 0;
  for (int64_t g = 0; g < ends.numel(); ++g) {
    const int64_t end = ends.ptr<int64_t>()[g];
    if (end < row || end > made.size(0))
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r.call.name()) + ": groupIndex does not fit the rows of x");
    if (end > row) copy(made.narrow(0, row, end - row), times(made.narrow(0, row, end - row), scales.select(0, g)));
    row = end;
  }
  return made.reshape(x.shape());
}
void run_dynamic(Run& r) {
  const Dynamic at(r.call);
  Value x = r.tensor(0), y = holds_int4(r.call, at.y) ? Value() : r.tensor(at.y);
  if (has(r.call, at.group)) x = smoothed(r, x, wide(r.tensor(at.smooth)).reshape({-1, x.size(-1)}), r.tensor(at.group));
  else if (has(r.call, at.smooth)) x = times(x, r.tensor(at.smooth).reshape({-1}));
  const std::string by = at.scaled_by(r.call);
  if (by == "perchannel" && x.ndim > 1) x = x.transpose(-1, -2), y = y.transpose(-1, -2);
  const Value made = empty(by == "pertensor" ? Sizes{1, x.numel()} : x.shape(), mt::kInt8);
  const Value offsets = at.shifts(r.call) ? r.tensor(at.offset) : Value(), rows = by == "pertensor" ? x.dense().reshape({1, -1}) : x.dense();
  quantise_rows(made, r.tensor(at.scale), offsets, rows, holds_int4(r.call, at.y) ? 7 : kMost);
  if (holds_int4(r.call, at.y)) return store_low(r, at.y, wide(made), "rint");
  copy(y, made.reshape(y.shape()));
}

// ---- (self, inputScale?, inputOffset?, approximate, quantMode, roundMode, dstType, y, outScale?) ----------------------------------
void check_gelu_quant(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  const std::string mode = c.string(4), kind = c.string(3);
  EXPECT(mode == "dynamic" || mode == "static", "%s: quantMode %s", c.name(), mode.c_str());
  EXPECT(kind == "none" || kind == "tanh", "%s: approximate %s", c.name(), kind.c_str());
  if (c.string(5)[0] && std::string(c.string(5)) != "rint") refuse(561003, "%s: roundMode %s is not computed", c.name(), c.string(5));
  EXPECT(x.ndim > 0, "%s: self has no dims", c.name());
  for (int i : {1, 2}) expect_row(c, i, x.sizes[x.ndim - 1]);
  EXPECT(mode == "dynamic" || has(c, 1), "%s: quantMode static needs inputScale", c.name());
  EXPECT(mode == "static" || c.given(8), "%s: quantMode dynamic needs outScale", c.name());
  expect_int8(c, 7);
  expect_same_shape(c, 7, 0);
}
void run_gelu_quant(Run& r) {
  const Value y = pointwise("gelu", mt::kFloat, {r.tensor(0)}, {string(r.call.string(3))});
  if (std::string(r.call.string(4)) == "static") return quantise(r.tensor(7), y, r.tensor(1), optional(r, 2), false);
  quantise_rows(r.tensor(7), r.tensor(8), Value(), has(r.call, 1) ? times(y, r.tensor(1).reshape({-1})) : y);
}

// A norm of argument 0 to int8 in argument y: arguments 1 to 4 are rows, or may be absent, but for the gamma.
void expect_normed_int8(const Call& c, int y) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 0, "%s: x has no dims", c.name());
  for (int i : {1, 2, 3, 4}) expect_row(c, i, x.sizes[x.ndim - 1]);
  expect_numel_of(c, 1, x.sizes[x.ndim - 1]);
  expect_int8(c, y);
  expect_same_shape(c, y, 0);
}

// ---- (x, gamma, beta, scale, offset, epsilon, y): the norm times scale plus offset, to int8 ------------------------------------------
void check_rms_quant(const Call& c) { expect_normed_int8(c, 6); }
void run_rms_quant(Run& r) {
  const Value y = normed(r.tensor(0), r.tensor(1).reshape({-1}), has(r.call, 2) ? r.tensor(2).reshape({-1}) : Value(), r.call.number(5), false);
  quantise(r.tensor(6), y, r.tensor(3), optional(r, 4), false);
}

// ---- (x, gamma, scale, offset?, beta?, epsilon, divMode, outputRstd, y, rstd) ----------------------------------------------------------
void check_rms_quant_v3(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  expect_normed_int8(c, 8);
  if (c.integer(7)) expect_numel_of(c, 9, x.numel() / std::max<int64_t>(x.sizes[x.ndim - 1], 1));
}
void run_rms_quant_v3(Run& r) {
  const Value x = wide(r.tensor(0));
  const Value y = normed(x, r.tensor(1).reshape({-1}), has(r.call, 4) ? r.tensor(4).reshape({-1}) : Value(), r.call.number(5), false);
  quantise(r.tensor(8), y, r.tensor(2), optional(r, 3), r.call.integer(6));
  if (!r.call.integer(7)) return;
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  const Value rstd = empty({rows}, mt::kFloat);
  for (int64_t i = 0; i < rows; ++i) {
    double square = 0;
    for (int64_t k = 0; k < width; ++k) square += double(x.ptr<float>()[i * width + k]) * x.ptr<float>()[i * width + k] / double(width);
    rstd.ptr<float>()[i] = float(1 / std::sqrt(square + r.call.number(5)));
  }
  copy(r.tensor(9), rstd.reshape(r.tensor(9).shape()));
}

// ---- (x, gamma, beta, scale, zeroPoints?, quantMode, epsilon, res, scaleOut): 0 divides by the scale, 1 finds one a row ---------------------
void check_layer_quant(const Call& c) {
  EXPECT(c.integer(5) == 0 || c.integer(5) == 1, "%s: quantMode %ld is not 0 or 1", c.name(), long(c.integer(5)));
  expect_normed_int8(c, 7);
}
void run_layer_quant(Run& r) {
  const Value y = normed(r.tensor(0), r.tensor(1).reshape({-1}), r.tensor(2).reshape({-1}), r.call.number(6), true);
  if (!r.call.integer(5)) return quantise(r.tensor(7), y, r.tensor(3), optional(r, 4), true);
  quantise_rows(r.tensor(7), r.tensor(8), Value(), times(y, r.tensor(3).reshape({-1})));
}

const Op ops[] = {
    {"aclnnGeluQuant", check_gelu_quant, run_gelu_quant},
    {"aclnnRmsNormQuant", check_rms_quant, run_rms_quant},
    {"aclnnAddRmsNormQuant", check_added, run_added<false>},
    {"aclnnAddRmsNormQuantV2", check_added, run_added<false>},
    {"aclnnAddRmsNormDynamicQuant", check_added, run_added<false>},
    {"aclnnAddRmsNormDynamicQuantV2", check_added, run_added<false>},
    {"aclnnAddLayerNormQuant", check_added, run_added<true>},
    {"aclnnAddLayerNormQuantV2", check_added, run_added<true>},
    {"aclnnLayerNormQuant", check_layer_quant, run_layer_quant},
    {"aclnnRmsNormQuantV3", check_rms_quant_v3, run_rms_quant_v3},
    {"aclnnRmsNormDynamicQuant", check_rms_dynamic, run_rms_dynamic},
    {"aclnnDynamicQuantV2", check_dynamic, run_dynamic},
    {"aclnnDynamicQuantV3", check_dynamic, run_dynamic},
    {"aclnnDynamicQuantV4", check_dynamic, run_dynamic},
};

}  // namespace
}  // namespace cann_sim
