// Products of int8 matrices that end in floats or in int8 again: of whole matrices and of the rows of every expert.
#include <algorithm>
#include <cmath>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/pointwise.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(const Value& v) { return v.to(mt::kFloat).dense(); }
Value optional(Run& r, int i) { return has(r.call, i) ? floats(r.tensor(i)) : Value(); }

float rounded(float x) {
  x = std::nearbyint(x);
  return x < -128 ? -128 : x > 127 ? 127 : x == x ? x : 0;
}

// Rows to int8 numbers (held as floats), each by its largest item; gives the scales.
Value quantise_rows(const Value& x) {
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  const Value scales = empty({rows}, mt::kFloat);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = x.ptr<float>() + r * width;
    float most = 0;
    for (int64_t i = 0; i < width; ++i) most = std::max(most, std::fabs(row[i]));
    scales.ptr<float>()[r] = most / 127;
    for (int64_t i = 0; i < width; ++i) row[i] = most > 0 ? rounded(row[i] / (most / 127)) : 0;
  }
  return scales;
}

Value product(const Value& a, const Value& b) {  // exact: int8 numbers in double
  const Value made = empty({a.size(0), b.size(1)}, mt::kDouble);
  call_kernel("matmul", {made, a.to(mt::kDouble), b.to(mt::kDouble)});
  return floats(made);
}

// The rows of each group: ends, or numbers of rows.
std::vector<int64_t> ends_of(Run& r, int i, bool counts, int64_t rows) {
  const Value list = r.tensor(i).to(mt::kInt64).dense();
  std::vector<int64_t> ends(list.ptr<int64_t>(), list.ptr<int64_t>() + list.numel());
  int64_t last = 0;
  for (int64_t& end : ends) {
    if (counts) end += last;
    if (end < last || end > rows)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r.call.name()) + ": the groups do not fit the rows");
    last = end;
  }
  return ends;
}

// ---- (x, weight, weightScale, [groupList], bias?, xScale?, xOffset?, smoothScale?, xQuantMode, transposeWeight, out) ---------
struct Dequant {
  int groups, bias, x_scale, x_offset, smooth, mode, turned, out;
  explicit Dequant(const Call& c)
      : groups(argument(c, {"groupList"})), bias(argument(c, {"biasOptional"})), x_scale(argument(c, {"xScaleOptional"})),
        x_offset(argument(c, {"xOffsetOptional"})), smooth(argument(c, {"smoothScaleOptional"})), mode(argument(c, {"xQuantMode"})),
        turned(argument(c, {"transposeWeight"})), out(argument(c, {"out"})) {}
};
void check_dequant(const Call& c) {
  const Dequant at(c);
  const TensorMeta &x = c.tensor(0), &w = c.tensor(1);
  const int rank = at.groups < 0 ? 2 : 3;
  EXPECT(x.ndim == 2 && w.ndim == rank && w.dtype == ACL_INT8, "%s: x %s, weight %s", c.name(), describe(x).c_str(), describe(w).c_str());
  const bool turned = c.integer(at.turned);
  const int64_t k = w.sizes[rank - (turned ? 1 : 2)], n = w.sizes[rank - (turned ? 2 : 1)];
  EXPECT(x.sizes[1] == k, "%s: x %s and weight %s cannot be multiplied", c.name(), describe(x).c_str(), describe(w).c_str());
  if (has(c, at.x_offset) || has(c, at.bias)) refuse(561003, "%s with a bias or an offset of x is not computed", c.name());
  EXPECT(c.tensor(2).dtype == ACL_FLOAT, "%s: weightScale %s, expected float32", c.name(), describe(c.tensor(2)).c_str());
  EXPECT(c.tensor(2).numel() == n * (rank == 3 ? w.sizes[0] : 1), "%s: weightScale %s", c.name(), describe(c.tensor(2)).c_str());
  const std::string mode = c.string(at.mode);
  EXPECT(mode == "pertoken" || mode == "pertensor", "%s: xQuantMode %s is not pertoken or pertensor", c.name(), mode.c_str());
  if (has(c, at.x_scale)) EXPECT(c.tensor(at.x_scale).numel() == (mode == "pertoken" ? x.sizes[0] : 1), "%s: xScale %s", c.name(),
                                 describe(c.tensor(at.x_scale)).c_str());
  else EXPECT(mode == "pertoken", "%s: pertensor needs xScale", c.name());
  expect_shape(c, at.out, {x.sizes[0], n});
}
void dequant(Run& r) {
  const Dequant at(r.call);
  Value x = empty(r.tensor(0).shape(), mt::kFloat);
  copy(x, r.tensor(0));
  if (has(r.call, at.smooth)) x = pointwise("mul", mt::kFloat, {x, r.tensor(at.smooth)}).dense();
  const int64_t rows = x.size(0), width = x.size(1);
  Value scales = optional(r, at.x_scale);
  if (scales.given()) {
    for (int64_t i = 0; i < rows * width; ++i)
      x.ptr<float>()[i] = rounded(x.ptr<float>()[i] / scales.ptr<float>()[scales.numel() == 1 ? 0 : i / width]);
  } else {
    scales = quantise_rows(x);
  }
  const Value weight = r.tensor(1), weight_scale = floats(r.tensor(2)), made = full(r.tensor(at.out).shape(), mt::kFloat, 0);
  const int64_t n = made.size(1);
  const std::vector<int64_t> ends = at.groups < 0 ? std::vector<int64_t>{rows} : ends_of(r, at.groups, false, rows);
  for (size_t g = 0, begin = 0; g < ends.size(); begin = size_t(ends[g++])) {
    const int64_t first = int64_t(begin), count = ends[g] - first;
    if (!count) continue;
    Value w = at.groups < 0 ? weight : weight.select(0, int64_t(g));
    if (r.call.integer(at.turned)) w = w.transpose(0, 1);
    const Value y = product(x.narrow(0, first, count), w);
    for (int64_t i = 0; i < count * n; ++i) {
      const int64_t row = first + i / n;
      made.ptr<float>()[first * n + i] = y.ptr<float>()[i] * scales.ptr<float>()[scales.numel() == 1 ? 0 : row] *
                                         weight_scale.ptr<float>()[(at.groups < 0 ? 0 : int64_t(g) * n) + i % n];
    }
  }
  copy(r.tensor(at.out), made);
}

// One expert's rows: x * weight, times the scales of its columns and rows.
Value expert_rows(const Value& x, const Value& w, const Value& column_scale, const Value& row_scale, int64_t first) {
  const Value y = product(x, w);
  const int64_t n = y.size(1);
  for (int64_t i = 0; i < y.numel(); ++i) {
    if (column_scale.given()) y.ptr<float>()[i] *= column_scale.ptr<float>()[i % n];
    if (row_scale.given()) y.ptr<float>()[i] *= row_scale.ptr<float>()[first + i / n];
  }
  return y;
}

// ---- aclnnGroupedMatmulSwigluQuant(x, weight, bias?, offset?, weightScale, xScale, groupList, out, outScale, outOffset?) -----
// The second version has lists of weights and of their scales, one tensor or one an expert; and more ways to quantise.
struct Swiglu {
  int weight = 1, scale, row_scale, groups, kind, out, found;
  explicit Swiglu(const Call& c)
      : scale(argument(c, {"weightScale"})), row_scale(argument(c, {"xScale"})), groups(argument(c, {"groupList"})),
        kind(argument(c, {"groupListType"})), out(argument(c, {"output"})), found(argument(c, {"outputScale"})) {}
  bool lists() const { return kind >= 0; }
};
void expect_plain(const Call& c, const Swiglu& at) {
  for (const char* name : {"bias", "offset", "smoothScale"}) {
    const int i = argument(c, {name});
    if (i >= 0 && has(c, i)) refuse(561003, "%s with %s is not computed", c.name(), name);
  }
  if (!at.lists()) return;
  for (const char* name : {"dequantMode", "quantMode"})
    if (c.integer(argument(c, {name}))) refuse(561003, "%s with a %s other than 0 is not computed", c.name(), name);
  if (c.tensors(argument(c, {"weightAssistMatrix"})).size()) refuse(561003, "%s with weightAssistMatrix is not computed", c.name());
}
void check_swiglu(const Call& c) {
  const Swiglu at(c);
  expect_plain(c, at);
  EXPECT(c.tensors(at.weight).size(), "%s: no weight", c.name());
  const TensorMeta &x = c.tensor(0), &first = c.tensors(at.weight)[0];
  EXPECT(x.ndim == 2 && x.dtype == ACL_INT8, "%s: x %s", c.name(), describe(x).c_str());
  int64_t experts = 0, scales = 0;
  for (const TensorMeta& w : c.tensors(at.weight)) {
    experts += w.ndim == 3 ? w.sizes[0] : 1;
    EXPECT((w.ndim == 3 || (w.ndim == 2 && at.lists())) && w.dtype == ACL_INT8 && w.sizes[w.ndim - 2] == x.sizes[1] &&
               w.sizes[w.ndim - 1] == first.sizes[first.ndim - 1] && w.sizes[w.ndim - 1] % 2 == 0,
           "%s: x %s, weight %s", c.name(), describe(x).c_str(), describe(w).c_str());
  }
  for (const TensorMeta& s : c.tensors(at.scale)) scales += s.numel();
  const int64_t n = first.sizes[first.ndim - 1];
  EXPECT(experts > 0 && n > 0, "%s: weight %s", c.name(), describe(first).c_str());
  EXPECT(scales == experts * n && c.tensor(at.row_scale).numel() == x.sizes[0], "%s: %ld scales of weights, and xScale %s", c.name(),
         long(scales), describe(c.tensor(at.row_scale)).c_str());
  EXPECT(c.tensor(at.groups).numel() <= experts, "%s: more groups than experts", c.name());
  expect_shape(c, at.out, {x.sizes[0], n / 2});
  EXPECT(c.tensor(at.found).numel() == x.sizes[0], "%s: outputScale %s", c.name(), describe(c.tensor(at.found)).c_str());
}
void swiglu(Run& r) {
  const Swiglu at(r.call);
  std::vector<Value> weights, scale;
  for (const Value& w : r.tensors(at.weight))
    for (int64_t e = 0; e < (w.ndim == 3 ? w.size(0) : 1); ++e) weights.push_back(w.ndim == 3 ? w.select(0, e) : w);
  const int64_t n = weights[0].size(1);
  for (const Value& s : r.tensors(at.scale)) {
    const Value rows = floats(s).reshape({-1, n});
    for (int64_t e = 0; e < rows.size(0); ++e) scale.push_back(rows.select(0, e).dense());
  }
  const Value x = r.tensor(0), row_scale = floats(r.tensor(at.row_scale)), out = r.tensor(at.out), scales = r.tensor(at.found);
  int64_t first = 0;
  const std::vector<int64_t> ends = ends_of(r, at.groups, at.lists() && r.call.integer(at.kind) == 1, x.size(0));
  for (size_t g = 0; g < ends.size(); first = ends[g++]) {
    const int64_t count = ends[g] - first;
    if (!count) continue;
    const Value y = expert_rows(x.narrow(0, first, count), weights[g], scale[g], row_scale, first);
    const Value half = pointwise("mul", mt::kFloat, {pointwise("silu", mt::kFloat, {y.narrow(1, 0, n / 2)}), y.narrow(1, n / 2, n / 2)}).dense();
    const Value found = quantise_rows(half);
    copy(out.narrow(0, first, count), half);
    copy(scales.reshape({-1}).narrow(0, first, count), found);
  }
}

// ---- aclnnGroupedMatmulFinalizeRouting: the experts' rows, each times its logit, added up where they came from ---------------
struct Finalize {
  int scale, bias, offset, antiquant, row_scale, groups, shared, logit, where, weight, first, turned_x, turned_w, kind, out;
  explicit Finalize(const Call& c)
      : scale(argument(c, {"scale", "scaleOptional"})), bias(argument(c, {"bias", "biasOptional"})),
        offset(argument(c, {"offsetOptional"})), antiquant(argument(c, {"antiquantScaleOptional"})),
        row_scale(argument(c, {"pertokenScaleOptional"})), groups(argument(c, {"groupList", "groupListOptional"})),
        shared(argument(c, {"sharedInput", "sharedInputOptional"})), logit(argument(c, {"logit", "logitOptional"})),
        where(argument(c, {"rowIndex", "rowIndexOptional"})), weight(argument(c, {"sharedInputWeight"})),
        first(argument(c, {"sharedInputOffset"})), turned_x(argument(c, {"transposeX", "transposeX1"})),
        turned_w(argument(c, {"transposeW", "transposeX2"})), kind(argument(c, {"groupListType"})), out(argument(c, {"y", "out"})) {}
};
void check_finalize(const Call& c) {
  const Finalize at(c);
  const TensorMeta &x = c.tensor(0), &w = c.tensor(1), &y = c.tensor(at.out);
  if (has(c, at.bias) || has(c, at.offset) || has(c, at.antiquant) || c.integer(at.turned_x) || c.integer(at.turned_w))
    refuse(561003, "%s with a bias, an offset or turned factors is not computed", c.name());
  EXPECT(x.ndim == 2 && w.ndim == 3 && x.dtype == ACL_INT8 && w.dtype == ACL_INT8 && x.sizes[1] == w.sizes[1],
         "%s: %s %s, %s %s", c.name(), c.row->args[0].name, describe(x).c_str(), c.row->args[1].name, describe(w).c_str());
  EXPECT(y.ndim == 2 && y.sizes[1] == w.sizes[2], "%s: the output is %s", c.name(), describe(y).c_str());
  EXPECT(has(c, at.scale) && has(c, at.groups) && has(c, at.where), "%s: scale, groupList and rowIndex are needed", c.name());
  EXPECT(c.tensor(at.scale).numel() == w.sizes[0] * w.sizes[2], "%s: scale %s", c.name(), describe(c.tensor(at.scale)).c_str());
  for (int i : {at.row_scale, at.logit, at.where})
    if (has(c, i)) EXPECT(c.tensor(i).numel() == x.sizes[0], "%s: %s %s", c.name(), c.row->args[i].name, describe(c.tensor(i)).c_str());
  if (has(c, at.shared)) {
    const TensorMeta& s = c.tensor(at.shared);
    EXPECT(s.ndim == 2 && s.sizes[1] == y.sizes[1] && c.integer(at.first) + s.sizes[0] <= y.sizes[0], "%s: sharedInput %s", c.name(),
           describe(s).c_str());
  }
}
void finalize(Run& r) {
  const Call& c = r.call;
  const Finalize at(c);
  const Value x = r.tensor(0), weight = r.tensor(1), scale = floats(r.tensor(at.scale)), row_scale = optional(r, at.row_scale);
  const Value logit = optional(r, at.logit), where = r.tensor(at.where).to(mt::kInt64).dense(), out = r.tensor(at.out),
              sum = full(out.shape(), mt::kFloat, 0);
  const int64_t n = weight.size(2);
  if (has(c, at.shared)) {
    const Value part = sum.narrow(0, c.integer(at.first), c.tensor(at.shared).sizes[0]);
    call_pointwise("add", mt::kFloat, {part, part, r.tensor(at.shared)}, {number(c.number(at.weight))});
  }
  int64_t first = 0;
  const std::vector<int64_t> ends = ends_of(r, at.groups, c.integer(at.kind) == 1, x.size(0));
  for (size_t g = 0; g < ends.size(); first = ends[g++]) {
    const int64_t count = ends[g] - first;
    if (!count) continue;
    const Value y = expert_rows(x.narrow(0, first, count), weight.select(0, int64_t(g)),
                                scale.reshape({weight.size(0), n}).select(0, int64_t(g)).dense(), row_scale, first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = where.ptr<int64_t>()[first + i];
      if (to < 0 || to >= sum.size(0)) throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": rowIndex is out of range");
      const float factor = logit.given() ? logit.ptr<float>()[first + i] : 1;
      for (int64_t j = 0; j < n; ++j) sum.ptr<float>()[to * n + j] += y.ptr<float>()[i * n + j] * factor;
    }
  }
  copy(out, sum);
}

const Op ops[] = {
    {"aclnnQuantMatmulDequant", check_dequant, dequant},
    {"aclnnQuantGroupedMatmulDequant", check_dequant, dequant},
    {"aclnnGroupedMatmulSwigluQuant", check_swiglu, swiglu},
    {"aclnnGroupedMatmulSwigluQuantWeightNZ", check_swiglu, swiglu},
    {"aclnnGroupedMatmulSwigluQuantV2", check_swiglu, swiglu},
    {"aclnnGroupedMatmulSwigluQuantWeightNzV2", check_swiglu, swiglu},
    {"aclnnGroupedMatmulFinalizeRouting", check_finalize, finalize},
    {"aclnnGroupedMatmulFinalizeRoutingV2", check_finalize, finalize},
    {"aclnnGroupedMatmulFinalizeRoutingV3", check_finalize, finalize},
    {"aclnnGroupedMatmulFinalizeRoutingWeightNz", check_finalize, finalize},
    {"aclnnGroupedMatmulFinalizeRoutingWeightNzV2", check_finalize, finalize},
};

}  // namespace
}  // namespace cann_sim
