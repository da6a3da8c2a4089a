// Gated activations with what stands before and after them in quantised networks: dequantising, weights of rows, quantising.
// The versions of an op differ in which arguments they have, so these go by name.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/low_float.h"
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// ---- the activation of a pair of items ------------------------------------------------------------------------------
// 0: silu(a) b. 1, 2: both limited, a sigmoid(alpha a) (b + bias). 3: silu(a) limited, b limited. kSitu: with tanh.
constexpr int64_t kSitu = 100;
struct Gate {
  int64_t mode = 0;
  float limit = INFINITY, alpha = 1, bias = 0;  // of kSitu: beta and linearBeta are alpha and bias
  float operator()(float a, float b) const {
    if (mode == kSitu) return alpha * std::tanh(a / alpha) * sigmoid(a) * (bias > 0 ? bias * std::tanh(b / bias) : b);
    const float up = std::min(std::max(b, -limit), limit), gate = mode == 3 ? a : std::min(a, limit);
    if (mode == 3) return std::min(gate * sigmoid(gate), limit) * up;
    return mode ? gate * sigmoid(alpha * gate) * (up + bias) : gate * sigmoid(gate) * up;
  }
};
Gate gate_of(const Call& c) {
  const int mode = argument(c, {"swigluMode"}), limit = argument(c, {"clampLimit"}), alpha = argument(c, {"gluAlpha"}), bias = argument(c, {"gluBias"});
  const int beta = argument(c, {"beta"}), linear = argument(c, {"linearBeta"});
  if (beta >= 0) return {kSitu, INFINITY, float(c.number(beta)), float(c.number(linear))};
  Gate gate;
  if (mode >= 0) gate.mode = c.integer(mode);
  if (limit >= 0 && c.number(limit) > 0 && (mode < 0 || gate.mode)) gate.limit = float(c.number(limit));
  if (alpha >= 0) gate.alpha = float(c.number(alpha));
  if (bias >= 0) gate.bias = float(c.number(bias));
  return gate;
}
void expect_gate(const Call& c, const Gate& g) {
  EXPECT(g.mode == kSitu ? g.alpha != 0 : g.mode >= 0 && g.mode <= 3, "%s: mode %ld with %g is not one that exists", c.name(), long(g.mode), g.alpha);
}

bool left_of(const Call& c) {
  const int i = argument(c, {"activateLeft"});
  return i < 0 || c.integer(i);
}
struct Pair {
  Value gate, up;
};
// The two operands along a dim: halves, or, in mode 1, neighbours.
Pair pair_of(const Value& x, int64_t dim, const Gate& g, bool left) {
  const int64_t half = x.size(dim) / 2;
  if (g.mode == 1) return {x.narrow(dim, 0, half, 2), x.narrow(dim, 1, half, 2)};
  const Value first = x.narrow(dim, 0, half), second = x.narrow(dim, half, half);
  return left ? Pair{first, second} : Pair{second, first};
}
Value gated(const Value& x, int64_t dim, const Gate& g, bool left) {
  const Pair pair = pair_of(x, dim, g, left);
  const Value a = pair.gate.to(mt::kFloat).dense(), b = pair.up.to(mt::kFloat).dense(), made = empty(a.shape(), mt::kFloat);
  for (int64_t k = 0, n = made.numel(); k < n; ++k) made.ptr<float>()[k] = g(a.ptr<float>()[k], b.ptr<float>()[k]);
  return made;
}
Sizes half_sizes(const Call& c, int x, int64_t dim) {
  Sizes sizes = sizes_of(c.tensor(x));
  EXPECT(!sizes.empty(), "%s: %s has no dims", c.name(), c.row->args[x].name);
  int64_t& n = sizes[size_t(wrap_dim(dim, int64_t(sizes.size())))];
  EXPECT(n % 2 == 0, "%s: %s does not split evenly", c.name(), describe(c.tensor(x)).c_str());
  n /= 2;
  return sizes;
}

// ---- rows in groups ------------------------------------------------------------------------------------------------------
// Calls visit(group, first row, end) for the groups of a tensor of counts or ends; all rows are one group without it.
template <class F> void each_group(Run& r, int groups, bool counts, int64_t rows, F&& visit) {
  const Ends ends = has(r.call, groups) ? group_ends(r.tensor(groups), counts, rows) : Ends{rows};
  int64_t begin = 0;
  for (size_t g = 0; g < ends.size(); begin = ends[g++]) visit(int64_t(g), begin, ends[g]);
}
// Row g of a parameter with one row a group, or its only one; one number a group counts as a row.
struct Rows {
  Value v;
  int64_t rows = 0, width = 0;
  Rows() = default;
  Rows(const Value& given, int64_t groups, int64_t columns) : v(given.to(mt::kFloat).dense()) {
    const int64_t n = v.numel();
    width = n == 1 || (n == groups && n != columns) || (v.ndim == 2 && v.size(-1) == 1) ? 1 : columns;
    rows = width ? n / width : 0;
  }
  float at(int64_t group, int64_t column) const {
    return v.ptr<float>()[(rows > 1 ? group * width : 0) + (width > 1 ? column : 0)];
  }
};
void expect_rows(const Call& c, int i, int64_t groups, int64_t columns) {
  if (!has(c, i)) return;
  const int64_t n = c.tensor(i).numel();
  EXPECT(n == 1 || n == groups || n == columns || n == groups * columns, "%s: %s %s does not fit %ld groups of %ld columns", c.name(),
         c.row->args[i].name, describe(c.tensor(i)).c_str(), long(groups), long(columns));
}
Rows rows_of(Run& r, int i, int64_t groups, int64_t columns) { return has(r.call, i) ? Rows(r.tensor(i), groups, columns) : Rows(); }

// The largest of a row gives its scale; the row is divided by it.
float scale_row(float* row, int64_t width, float most) {
  float largest = 0;
  for (int64_t k = 0; k < width; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float scale = largest > 0 ? largest / most : 1;
  for (int64_t k = 0; k < width; ++k) row[k] /= scale;
  return scale;
}

// ---- dequantised, activated, quantised -------------------------------------------------------------------------------------
struct Chain {
  int weight, activation, bias, scale, offset, groups, mode, dim, y, scales;
  explicit Chain(const Call& c)
      : weight(argument(c, {"weightScaleOptional"})), activation(argument(c, {"activationScaleOptional"})), bias(argument(c, {"biasOptional"})),
        scale(argument(c, {"quantScaleOptional", "smoothScalesOptional"})), offset(argument(c, {"quantOffsetOptional", "offsetsOptional"})),
        groups(argument(c, {"groupIndexOptional"})), mode(argument(c, {"quantModeOptional", "quantTypeOptional"})),
        dim(argument(c, {"activateDim"})), y(argument(c, {"yOut"})), scales(argument(c, {"scaleOut", "yScaleOut"})) {}
  std::string quant_mode(const Call& c, const char* unsaid) const { return c.given(mode) && *c.string(mode) ? c.string(mode) : unsaid; }
  int64_t group_count(const Call& c) const { return has(c, groups) ? c.tensor(groups).sizes[0] : 1; }
};
void check_chain(const Call& c, const char* unsaid) {
  const Chain at(c);
  const Sizes half = half_sizes(c, 0, at.dim >= 0 ? c.integer(at.dim) : -1);
  const std::string mode = at.quant_mode(c, unsaid);
  EXPECT(half.size() > 1, "%s: x %s has too few dims", c.name(), describe(c.tensor(0)).c_str());
  EXPECT(mode == "static" || mode == "dynamic", "%s: a mode of %s", c.name(), mode.c_str());
  EXPECT(mode == "dynamic" || has(c, at.scale), "%s: static quantising needs %s", c.name(), c.row->args[at.scale].name);
  const bool last = at.dim < 0 || wrap_dim(c.integer(at.dim), int64_t(half.size())) + 1 == int64_t(half.size());
  EXPECT(last || (!has(c, at.groups) && mode == "static"), "%s: activateDim %ld goes with static quantising and no groups", c.name(), long(c.integer(at.dim)));
  if (has(c, at.groups) && c.tensor(at.groups).ndim != 1) refuse(561003, "%s is computed with groupIndex of 1 dim", c.name());
  const bool integers = c.tensor(0).dtype == ACL_INT32 || c.tensor(0).dtype == ACL_INT8;
  EXPECT(!integers || has(c, at.weight), "%s: integers need %s", c.name(), at.weight < 0 ? "weights" : c.row->args[at.weight].name);
  const int64_t groups = at.group_count(c), columns = c.tensor(0).sizes[c.tensor(0).ndim - 1];
  for (int i : {at.weight, at.bias}) expect_rows(c, i, groups, columns);
  for (int i : {at.scale, at.offset}) expect_rows(c, i, groups, half.back());
  if (has(c, at.activation)) expect_numel(c, at.activation, c.tensor(0).numel() / std::max<int64_t>(columns, 1));
  expect_gate(c, gate_of(c));
  expect_quantised(c, at.y);
  expect_dst_type(c, dst_type(c), at.y);
  EXPECT(c.tensor(at.y).dtype != ACL_INT32, "%s: %s is int32", c.name(), c.row->args[at.y].name);
  expect_shape(c, at.y, half);
  if (mode == "dynamic") expect_shape(c, at.scales, Sizes(half.begin(), half.end() - 1));
}
// Integers times the scales of columns and rows; a bias of integers is added before, one of floats after.
Value dequantised(Run& r, const Chain& at) {
  const Value in = r.tensor(0), x = in.to(mt::kFloat).dense(), made = empty(x.shape(), mt::kFloat);
  if (in.dtype != mt::kInt32 && in.dtype != mt::kInt8) return x;
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0, groups = at.group_count(r.call);
  const Rows weight = rows_of(r, at.weight, groups, width), bias = rows_of(r, at.bias, groups, width), activation = rows_of(r, at.activation, rows, 1);
  const bool whole_bias = has(r.call, at.bias) && r.call.tensor(at.bias).dtype == ACL_INT32;
  each_group(r, at.groups, true, rows, [&](int64_t g, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < width; ++j) {
        float v = x.ptr<float>()[i * width + j] + (whole_bias ? bias.at(g, j) : 0);
        v *= weight.at(g, j) * (activation.v.given() ? activation.at(i, 0) : 1);
        made.ptr<float>()[i * width + j] = v + (bias.v.given() && !whole_bias ? bias.at(g, j) : 0);
      }
  });
  return made;
}
// How the quantised number follows: static x / scale + offset or x * scale + offset; a found scale is written as such or as
// its reciprocal.
struct Quantising {
  bool divides, reciprocal, counts;
  const char *unsaid, *round;
};
void run_chain(Run& r, const Quantising& how) {
  const Call& c = r.call;
  const Chain at(c);
  const Value q = gated(dequantised(r, at), at.dim >= 0 ? c.integer(at.dim) : -1, gate_of(c), left_of(c));
  const int64_t width = q.size(-1), rows = width ? q.numel() / width : 0, groups = at.group_count(c);
  const bool dynamic = at.quant_mode(c, how.unsaid) == "dynamic";
  const Rows scale = rows_of(r, at.scale, groups, width), offset = rows_of(r, at.offset, groups, width);
  const Value found = full({rows}, mt::kFloat, 0);
  int64_t done = 0;
  each_group(r, at.groups, how.counts, rows, [&](int64_t g, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = q.ptr<float>() + i * width;
      for (int64_t j = 0; j < width && scale.v.given(); ++j) {
        row[j] = !dynamic && how.divides ? row[j] / scale.at(g, j) : row[j] * scale.at(g, j);
        if (!dynamic && offset.v.given()) row[j] += offset.at(g, j);
      }
      if (!dynamic) continue;
      const float s = scale_row(row, width, most_of(c.tensor(at.y).dtype));
      found.ptr<float>()[i] = how.reciprocal ? 1 / s : s;
    }
    done = end;
  });
  for (int64_t k = done * width; k < rows * width; ++k) q.ptr<float>()[k] = 0;  // rows of no group; a card leaves what was there
  store_low(r, at.y, q, how.round ? how.round : round_mode(c));
  if (dynamic) copy(r.tensor(at.scales), found.reshape(r.tensor(at.scales).shape()));
}
bool groups_are_counts(const Call& c) {
  const int i = argument(c, {"groupListType"});
  return i >= 0 && c.integer(i) == 1;
}
void check_dequant_swiglu(const Call& c) { check_chain(c, "static"); }
void run_dequant_swiglu(Run& r) { run_chain(r, {true, false, true, "static", nullptr}); }
void check_dynamic_chain(const Call& c) { check_chain(c, "dynamic"); }
void run_swiglu_quant(Run& r) { run_chain(r, {false, true, groups_are_counts(r.call), "dynamic", nullptr}); }
void run_dequant_situ(Run& r) { run_chain(r, {true, false, true, "dynamic", "trunc"}); }

// ---- activated and quantised by MX blocks ------------------------------------------------------------------------------------
void check_one_mx(const Call& c) {  // (x, [groupIndex], …, yOut, mxscaleOut or yScaleOut)
  const int y = argument(c, {"yOut"}), scales = argument(c, {"mxscaleOut", "yScaleOut"}), axis = argument(c, {"axis"}), dim = argument(c, {"activateDim"});
  const int groups = argument(c, {"groupIndexOptional"});
  const Sizes half = half_sizes(c, 0, dim >= 0 ? c.integer(dim) : -1);
  const Mx mx = mx_of(c, y);
  const int64_t along = wrap_dim(c.integer(axis), int64_t(half.size()));
  const bool apart = has(c, groups) && along == 0;
  EXPECT(!has(c, groups) || half.size() == 2, "%s: groups need 2 dims", c.name());
  expect_gate(c, gate_of(c));
  expect_mx(c, mx, round_mode(c));
  expect_dst_type(c, dst_type(c), y);
  expect_mx_outputs(c, half, along, mx, y, scales, apart ? c.tensor(groups).numel() : 0);
}
void run_one_mx(Run& r) {
  const Call& c = r.call;
  const int y = argument(c, {"yOut"}), scales = argument(c, {"mxscaleOut", "yScaleOut"}), dim = argument(c, {"activateDim"});
  const int groups = argument(c, {"groupIndexOptional"});
  const Value q = gated(r.tensor(0), dim >= 0 ? c.integer(dim) : -1, gate_of(c), left_of(c));
  const int64_t along = wrap_dim(c.integer(argument(c, {"axis"})), q.ndim);
  const bool apart = has(c, groups) && along == 0;
  const Ends ends = apart ? group_ends(r.tensor(groups), true, q.sizes[0]) : Ends();
  store_mx(r, q, along, mx_of(c, y), round_mode(c), y, scales, apart ? &ends : nullptr);
}
void check_two_mx(const Call& c) { expect_two_dims(c, half_sizes(c, 0, -1)); }
void run_two_mx(Run& r) { store_two_dims(r, gated(r.tensor(0), -1, Gate(), left_of(r.call))); }

// The gradients of gate and up, both of `grad`'s shape, concatenated as gate and up are in x.
template <class F> Value gradient(const Value& grad, const Value& x, int64_t dim, bool left, F&& slope) {
  const Gate halves;
  const Pair in = pair_of(x, dim, halves, left);
  const Value g = grad.to(mt::kFloat).dense(), a = in.gate.to(mt::kFloat).dense(), b = in.up.to(mt::kFloat).dense();
  const Value made = empty(x.shape(), mt::kFloat), da = empty(a.shape(), mt::kFloat), db = empty(a.shape(), mt::kFloat);
  for (int64_t k = 0, n = a.numel(); k < n; ++k)
    slope(k, g.ptr<float>()[k], a.ptr<float>()[k], b.ptr<float>()[k], da.ptr<float>()[k], db.ptr<float>()[k]);
  const Pair out = pair_of(made, dim, halves, left);
  copy(out.gate, da);
  copy(out.up, db);
  return made;
}
void silu_slope(float g, float a, float b, float& da, float& db) {
  const float s = sigmoid(a);
  da = g * b * s * (1 + a * (1 - s));
  db = g * a * s;
}
void check_backward_mx(const Call& c) {  // (x, yGrad, groupIndex?, …)
  expect_shape(c, 1, half_sizes(c, 0, -1));
  expect_two_dims(c, sizes_of(c.tensor(0)));
}
void run_backward_mx(Run& r) {
  store_two_dims(r, gradient(r.tensor(1), r.tensor(0), -1, left_of(r.call), [](int64_t, float g, float a, float b, float& da, float& db) {
    silu_slope(g, a, b, da, db);
  }));
}

// ---- SituGlu: beta tanh(gate / beta) sigmoid(gate), times up or linearBeta tanh(up / linearBeta) -------------------------------
void check_situ(const Call& c) {  // (x, dim, beta, linearBeta, activateLeft, out)
  expect_shape(c, 5, half_sizes(c, 0, c.integer(1)));
  expect_gate(c, gate_of(c));
  for (int i : {0, 5}) expect_computes(c, i);
}
void run_situ(Run& r) { copy(r.tensor(5), gated(r.tensor(0), r.call.integer(1), gate_of(r.call), left_of(r.call))); }
void check_situ_grad(const Call& c) {  // (gradY, x, dim, beta, linearBeta, activateLeft, out)
  expect_shape(c, 0, half_sizes(c, 1, c.integer(2)));
  expect_same_shape(c, 6, 1);
  expect_gate(c, gate_of(c));
  for (int i : {0, 1, 6}) expect_computes(c, i);
}
void run_situ_grad(Run& r) {
  const Gate gate = gate_of(r.call);
  copy(r.tensor(6), gradient(r.tensor(0), r.tensor(1), r.call.integer(2), left_of(r.call),
                             [&](int64_t, float g, float a, float b, float& da, float& db) {
    const float beta = gate.alpha, linear = gate.bias, t = std::tanh(a / beta), s = sigmoid(a), u = linear > 0 ? std::tanh(b / linear) : 0;
    da = g * (linear > 0 ? linear * u : b) * s * ((1 - t * t) + beta * t * (1 - s));
    db = g * beta * t * s * (linear > 0 ? 1 - u * u : 1);
  }));
}

// ---- SwigluGroup: the first rows only, each times its weight -------------------------------------------------------------------
int64_t counted_rows(Run& r, int groups, int64_t rows) {
  const Ends ends = has(r.call, groups) ? group_ends(r.tensor(groups), true, rows) : Ends{rows};
  return ends.empty() ? 0 : ends.back();
}
void weigh(const Value& y, const Value& weight, int64_t rows) {
  const int64_t width = y.size(-1);
  const Value w = weight.to(mt::kFloat).dense();
  for (int64_t k = 0; k < rows * width; ++k) y.ptr<float>()[k] *= w.ptr<float>()[k / width];
}
void expect_weights(const Call& c, int weight, int x) {
  const TensorMeta& t = c.tensor(x);
  if (has(c, weight)) expect_numel(c, weight, t.numel() / std::max<int64_t>(t.sizes[t.ndim - 1], 1));
}
void check_group(const Call& c) {  // (x, weight?, groupIndex?, clampLimit, out)
  expect_shape(c, 4, half_sizes(c, 0, -1));
  expect_weights(c, 1, 0);
  for (int i : {0, 4}) expect_computes(c, i);
}
void run_group(Run& r) {
  const Value y = gated(r.tensor(0), -1, gate_of(r.call), true), out = r.tensor(4);
  const int64_t width = y.size(-1), all = width ? y.numel() / width : 0, rows = counted_rows(r, 2, all);
  if (has(r.call, 1)) weigh(y, r.tensor(1), rows);
  if (rows == all) return copy(out, y);
  const Value kept = empty(out.shape(), out.dtype);  // rows of no group stay as they are
  copy(kept, out);
  copy(kept.reshape({all, width}).narrow(0, 0, rows), y.reshape({all, width}).narrow(0, 0, rows));
  copy(out, kept);
}
// (gradY, x, weight?, yOrigin?, groupIndex?, clampLimit, gradX, gradWeight?)
void check_group_grad(const Call& c) {
  expect_shape(c, 0, half_sizes(c, 1, -1));
  EXPECT(has(c, 2) == has(c, 3), "%s: weight and yOrigin go together", c.name());
  expect_weights(c, 2, 1);
  if (has(c, 3)) expect_numel(c, 3, c.tensor(0).numel());
  expect_same_shape(c, 6, 1);
  if (has(c, 2) && c.given(7)) expect_numel(c, 7, c.tensor(2).numel());
  for (int i : {0, 1, 6}) expect_computes(c, i);
}
void run_group_grad(Run& r) {
  const Call& c = r.call;
  const Value grad = r.tensor(0).to(mt::kFloat).dense();
  const float limit = gate_of(c).limit;
  const int64_t width = grad.size(-1), all = width ? grad.numel() / width : 0, rows = counted_rows(r, 4, all);
  const Value weight = has(c, 2) ? r.tensor(2).to(mt::kFloat).dense() : Value();
  copy(r.tensor(6), gradient(grad, r.tensor(1), -1, true, [&](int64_t k, float g, float a, float b, float& da, float& db) {
    if (k / width >= rows) g = 0;
    if (weight.given()) g *= weight.ptr<float>()[k / width];
    silu_slope(g, std::min(a, limit), std::min(std::max(b, -limit), limit), da, db);
    if (!(a < limit)) da = 0;
    if (!(b > -limit && b < limit)) db = 0;
  }));
  if (!has(c, 2) || !c.given(7)) return;
  const Value origin = r.tensor(3).to(mt::kFloat).dense(), sums = full({all}, mt::kFloat, 0);
  for (int64_t k = 0; k < rows * width; ++k) sums.ptr<float>()[k / width] += grad.ptr<float>()[k] * origin.ptr<float>()[k];
  copy(r.tensor(7), sums.reshape(r.tensor(7).shape()));
}

// (x, weight?, groupIndex?, scale?, dstType, quantMode, blockSize, roundScale, clampLimit, dstTypeMax, outputOrigin, y, yScale, yOrigin)
// quantMode 0: blocks of 128 with float scales; 1: MX. 2 and 3 are for HiFloat8.
constexpr float kLeast = 1e-4f;
void check_group_quant(const Call& c) {
  Sizes half = half_sizes(c, 0, -1);
  if (c.integer(5) > 1) refuse(561003, "%s with quantMode %ld is not computed: HiFloat8 is not", c.name(), long(c.integer(5)));
  EXPECT(c.integer(5) == 0 || c.integer(7), "%s: quantMode 1 needs roundScale", c.name());
  if (!low_float(c.tensor(11).dtype)) refuse(561003, "%s to data type %d is not computed", c.name(), c.tensor(11).dtype);
  expect_dst_type(c, 4, 11);
  expect_weights(c, 1, 0);
  expect_shape(c, 11, half);
  if (c.integer(10)) expect_shape(c, 13, half);
  if (c.integer(5)) return expect_shape(c, 12, mx_scale_sizes(half, -1, 32));
  half.back() = (half.back() + 127) / 128;
  expect_shape(c, 12, half);
}
void run_group_quant(Run& r) {
  const Call& c = r.call;
  const Value q = gated(r.tensor(0), -1, gate_of(c), true), out = r.value(c.tensor(12));
  const int64_t width = q.size(-1), all = width ? q.numel() / width : 0, rows = counted_rows(r, 2, all);
  if (c.integer(10)) copy(r.tensor(13), q);
  if (has(c, 1)) weigh(q, r.tensor(1), rows);
  const bool mx = c.integer(5) == 1;
  const Mx up{c.tensor(11).dtype, 1, 0, kLeast, mx ? 32 : 128};
  const int64_t blocks = (width + up.block - 1) / up.block, wide = mx ? (blocks + 1) / 2 * 2 : blocks;
  const Value exponents = full({all, wide}, mt::kUInt8, 0), scales = full({all, wide}, mt::kFloat, 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t b = 0; b < blocks; ++b) {
      float *first = q.ptr<float>() + i * width + b * up.block, largest = 0;
      const int64_t count = std::min(up.block, width - b * up.block);
      for (int64_t k = 0; k < count; ++k) if (std::isfinite(first[k])) largest = std::max(largest, std::fabs(first[k]));
      const uint8_t e = mx_exponent(largest, up);
      const float scale = c.integer(7) ? std::ldexp(1.f, e - 127) : std::max(largest, kLeast) / most_of(c.tensor(11).dtype);
      for (int64_t k = 0; k < count; ++k) if (std::isfinite(first[k] / scale)) first[k] /= scale;
      exponents.ptr<uint8_t>()[i * wide + b] = e;
      scales.ptr<float>()[i * wide + b] = scale;
    }
  store_low(r, 11, q, "rint");
  copy(out, (mx ? exponents : scales).reshape(out.shape()));
}

const Op ops[] = {
    {"aclnnDequantSwigluQuant", check_dequant_swiglu, run_dequant_swiglu},
    {"aclnnDequantSwigluQuantV2", check_dequant_swiglu, run_dequant_swiglu},
    {"aclnnSwiGluQuant", check_dynamic_chain, run_swiglu_quant},
    {"aclnnSwiGluQuantV2", check_dynamic_chain, run_swiglu_quant},
    {"aclnnDequantSituQuant", check_dynamic_chain, run_dequant_situ},
    {"aclnnSwigluMxQuant", check_one_mx, run_one_mx},
    {"aclnnSituMxQuant", check_one_mx, run_one_mx},
    {"aclnnSwigluMxQuantWithDualAxis", check_two_mx, run_two_mx},
    {"aclnnSwigluBackwardMxQuantWithDualAxis", check_backward_mx, run_backward_mx},
    {"aclnnSituGlu", check_situ, run_situ},
    {"aclnnSituGluGrad", check_situ_grad, run_situ_grad},
    {"aclnnSwigluGroup", check_group, run_group},
    {"aclnnSwigluGroupGrad", check_group_grad, run_group_grad},
    {"aclnnSwigluGroupQuantGrad", check_group_grad, run_group_grad},
    {"aclnnSwigluGroupQuant", check_group_quant, run_group_quant},
};

}  // namespace
}  // namespace cann_sim
