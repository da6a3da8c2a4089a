// Products of groups: rows (or the inner dim) of one matrix cut by a list, each piece times a matrix of its own.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ops/pointwise.h"
#include "ops/quant_matmul.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

enum GroupType { kNoGroups = -1, kRows = 0, kInner = 2 };

int find(const Call& c, const char* name) {
  for (int i = 0; i < c.row->nargs; ++i)
    if (std::strcmp(c.row->args[i].name, name) == 0) return i;
  return -1;
}

// Where one version of aclnnGroupedMatmul keeps its arguments; the first version has no type, the last names `out`.
struct Places {
  int x = 0, weight = 1, bias = 2, scale = 3, offset = 4, restore_scale = 5, restore_offset = 6, token_scale, groups, type, list_type, activation, out;
  explicit Places(const Call& c)
      : token_scale(find(c, "perTokenScaleOptional")), groups(find(c, "groupListOptional")), type(find(c, "groupType")), list_type(find(c, "groupListType")),
        activation(find(c, "actType")), out(std::max(find(c, "y"), find(c, "out"))) {}
  int64_t group_type(const Call& c) const {
    if (type >= 0) return c.integer(type);
    return c.given(groups) && c.ints(groups).size() ? kRows : kNoGroups;
  }
};

int64_t group_count(const Call& c, const Places& at) {
  if (at.group_type(c) == kInner) {
    if (c.row->args[at.groups].kind == Kind::k_ints) return c.ints(at.groups).size();
    return c.tensor(at.groups).ndim == 2 ? c.tensor(at.groups).sizes[0] : c.tensor(at.groups).numel();
  }
  const Span<TensorMeta> weights = c.tensors(at.weight);
  return weights.size() == 1 && weights[0].ndim == 3 ? weights[0].sizes[0] : weights.size();
}

// ---- what is multiplied: floats, int8 by int8 or int4 with scales, or floats by int8 or int4 that are restored first ----
enum class Mix { plain, quantised, restored };
bool whole(aclDataType t) { return t == ACL_INT8 || t == ACL_INT4 || t == ACL_INT32; }
Mix mix_of(const Call& c, const Places& at) {
  const aclDataType x = c.tensors(at.x)[0].dtype, w = c.tensors(at.weight)[0].dtype;
  if (!whole(w)) return Mix::plain;
  return x == ACL_INT8 ? Mix::quantised : Mix::restored;
}
bool has_list(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensors(i).size() && c.tensors(i)[0].numel(); }

void expect_operands(const Call& c, const Places& at) {
  EXPECT(c.tensors(at.x).size() && c.tensors(at.weight).size() && c.tensors(at.out).size(), "x, weight and the output must not be empty");
  for (const char* name : {"activationInputOptional", "activationQuantScaleOptional", "activationQuantOffsetOptional"})
    if (has_list(c, find(c, name))) refuse(561003, "%s with %s is not computed", c.name(), name);
  EXPECT(at.activation < 0 || (c.integer(at.activation) >= 0 && c.integer(at.activation) <= 5), "actType %ld is not in [0, 5]",
         long(c.integer(at.activation)));
  const Mix mix = mix_of(c, at);
  for (int list : {at.x, at.weight})
    for (const TensorMeta& t : c.tensors(list)) {
      if (!whole(t.dtype) && !computes(t.dtype)) refuse(561003, "%s with %s of data type %d is not computed", c.name(), c.row->args[list].name, t.dtype);
      const bool fits = list == at.weight ? whole(t.dtype) == (mix != Mix::plain) : mix == Mix::quantised ? t.dtype == ACL_INT8 : is_float(dtype_of(t.dtype));
      EXPECT(fits && (whole(t.dtype) || is_float(dtype_of(t.dtype))), "%s must be float, or int8 by int8 or int4, got %s", c.row->args[list].name, describe(t).c_str());
      EXPECT(t.ndim >= 2, "%s must have at least 2 dims, got %s", c.row->args[list].name, describe(t).c_str());
    }
  EXPECT(mix != Mix::quantised || has_list(c, at.scale) || c.tensors(at.out)[0].dtype == ACL_INT32, "%s of int8 goes with scaleOptional", c.name());
  EXPECT(mix != Mix::restored || has_list(c, at.restore_scale), "%s with weights of int8 or int4 goes with antiquantScaleOptional", c.name());
  EXPECT(mix == Mix::quantised || !(has_list(c, at.scale) || has_list(c, at.token_scale)), "%s with scaleOptional goes with int8", c.name());
}

// The factors of group g fit, whatever their rows.
void expect_factors(const TensorMeta& x, const Sizes& w, bool inner) {
  const int64_t left = inner ? x.sizes[0] : x.sizes[x.ndim - 1];
  EXPECT((inner ? x.sizes[1] == w[0] && left >= 0 : left == w[w.size() - 2]), "%s and weights of %ld by %ld cannot be multiplied", describe(x).c_str(),
         long(w[w.size() - 2]), long(w.back()));
}
void check_separate(const Call& c, const Places& at) {
  const Span<TensorMeta> xs = c.tensors(at.x), weights = c.tensors(at.weight), outs = c.tensors(at.out);
  EXPECT(xs.size() == weights.size() && outs.size() == xs.size(), "%ld x, %ld weights and %ld outputs differ", long(xs.size()), long(weights.size()),
         long(outs.size()));
  for (int64_t i = 0; i < xs.size(); ++i) {
    const Sizes w = held_sizes(weights[i]);
    EXPECT(w.size() == 2, "weights must have 2 dims, got %s", describe(weights[i]).c_str());
    expect_factors(xs[i], w, false);
    Sizes want = sizes_of(xs[i]);
    want.back() = w[1];
    EXPECT(sizes_of(outs[i]) == want, "the output %s does not fit %s times %s", describe(outs[i]).c_str(), describe(xs[i]).c_str(),
           describe(weights[i]).c_str());
  }
}
void check_grouped(const Call& c) {
  const Places at(c);
  expect_operands(c, at);
  const int64_t type = at.group_type(c), groups = group_count(c, at);
  const Span<TensorMeta> xs = c.tensors(at.x), outs = c.tensors(at.out);
  EXPECT(type == kNoGroups || type == kRows || type == kInner, "groupType %ld is not -1, 0 or 2", long(type));
  if (type == kNoGroups) return check_separate(c, at);
  const bool inner = type == kInner, apart = xs.size() > 1 || outs.size() > 1;
  EXPECT(c.given(at.groups) || (apart && !inner), "groupType %ld needs a group list", long(type));
  EXPECT(!inner || !apart, "one x and one output are expected, got %ld and %ld", long(xs.size()), long(outs.size()));
  EXPECT((xs.size() == 1 || xs.size() == groups) && (outs.size() == 1 || outs.size() == groups), "%ld x and %ld outputs for %ld groups", long(xs.size()),
         long(outs.size()), long(groups));
  const Sizes w = held_sizes(c.tensors(at.weight)[0]);
  int64_t rows = 0, out_rows = 0;
  for (const TensorMeta& x : xs) {
    EXPECT(x.ndim == 2, "x must have 2 dims, got %s", describe(x).c_str());
    expect_factors(x, w, inner);
    rows += x.sizes[0];
  }
  for (const TensorMeta& y : outs) {
    out_rows += y.sizes[0];
    EXPECT(sizes_of(y) == (inner ? Sizes{groups, rows, w.back()} : Sizes{y.sizes[0], w.back()}), "the output %s does not fit", describe(y).c_str());
  }
  EXPECT(inner || rows == out_rows, "%ld rows of x and %ld of the output", long(rows), long(out_rows));
  if (at.list_type >= 0 && c.integer(at.list_type) == 2) EXPECT(c.tensor(at.groups).ndim == 2 && c.tensor(at.groups).sizes[1] == 2, "groupListOptional %s is not of pairs", describe(c.tensor(at.groups)).c_str());
}

// The ends of the groups, whichever way they were given.
Sizes ends_of(Run& r, int i, bool counts) {
  Sizes ends;
  if (r.call.row->args[i].kind == Kind::k_ints) {
    ends.assign(r.call.ints(i).begin(), r.call.ints(i).end());
  } else {
    Value v = r.tensor(i).to(mt::kInt64).dense();
    ends.assign(v.ptr<int64_t>(), v.ptr<int64_t>() + v.numel());
  }
  for (size_t g = 1; counts && g < ends.size(); ++g) ends[g] += ends[g - 1];
  return ends;
}

// Item g of a list, or of the first dim of its only tensor.
Value item(const std::vector<Value>& list, int64_t g, int64_t groups) {
  if (list.empty()) return Value();
  if (list.size() > 1) return list[size_t(g)];
  return groups > 1 || (list[0].ndim > 1 && list[0].size(0) == groups) ? list[0].select(0, g) : list[0];
}
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {number(1)}); }
Value activated(const Value& y, int64_t kind) {
  switch (kind) {
    case 1: return pointwise("relu", mt::kFloat, {y});
    case 2: return pointwise("gelu", mt::kFloat, {y}, {string("tanh")});
    case 3: return pointwise("gelu", mt::kFloat, {y}, {string("none")});
    case 4: return times(y, pointwise("sigmoid", mt::kFloat, {times(y, full({}, mt::kFloat, 1.702))}));
    case 5: return pointwise("silu", mt::kFloat, {y});
    default: return y;
  }
}

// The products of one call: what belongs to a group is read when its turn comes.
class Products {
 public:
  explicit Products(Run& r)
      : r_(r), c_(r.call), at_(r.call), mix_(mix_of(c_, at_)), groups_(group_count(c_, at_)), biases_(list(at_.bias)), scales_(list(at_.scale)),
        offsets_(list(at_.offset)), restore_scales_(list(at_.restore_scale)), restore_offsets_(list(at_.restore_offset)), token_scales_(list(at_.token_scale)) {}

  // x [.., rows, K] by group g's weights into out; its rows are [from, from + rows) of all.
  void put(int64_t g, const Value& out, const Value& x, const Value& weights, int64_t from, int64_t groups) {
    if (out.numel() == 0) return;
    const Value bias = item(biases_, g, groups);
    Value y;
    if (mix_ == Mix::quantised) {
      y = quantised(g, x, weights, bias, from, groups, out.dtype == mt::kInt32);
    } else {
      const Value w = mix_ == Mix::restored ? restored(g, weights, groups) : weights.to(mt::kFloat);
      y = empty(out.shape(), mt::kFloat);
      call_kernel("matmul", {y, x.to(mt::kFloat), w});
      if (bias.given()) y = plus(y, bias.reshape({-1}));
    }
    if (at_.activation >= 0) y = activated(y, c_.integer(at_.activation));
    if (out.dtype != mt::kInt8) return copy(out, y);
    const Value scale = item(scales_, g, groups), offset = item(offsets_, g, groups);
    if (scale.dtype == mt::kInt64) y = plus(y, offsets_in(scale).reshape({-1}));
    else if (offset.given()) y = plus(y, offset.reshape({-1}));
    store_int8(out, y);
  }
  Value weights(int64_t g) {
    const Span<TensorMeta> all = c_.tensors(at_.weight);
    if (all.size() > 1) return mix_ == Mix::plain ? r_.value(all[g]) : held(r_, all[g]);
    if (!only_.given()) only_ = mix_ == Mix::plain ? r_.value(all[0]) : held(r_, all[0]);
    return only_.ndim == 3 ? only_.select(0, g) : only_;
  }
  int64_t groups() const { return groups_; }
  const Places& at() const { return at_; }

 private:
  std::vector<Value> list(int i) { return has_list(c_, i) ? r_.tensors(i) : std::vector<Value>(); }
  // (weight + offset) * scale; scales are one a column, or one a column and group of rows.
  Value restored(int64_t g, const Value& weights, int64_t groups) {
    Value w = weights.to(mt::kFloat);
    const int64_t k = w.size(0), n = w.size(1);
    const Value scale = item(restore_scales_, g, groups).to(mt::kFloat), offset = item(restore_offsets_, g, groups);
    auto wide = [&](const Value& v) { return spread(v, k, n, v.numel() > n ? k / (v.numel() / n) : k); };
    if (offset.given()) w = plus(w, wide(offset.to(mt::kFloat)));
    return times(w, wide(scale));
  }
  // (sums + whole bias) * scale * the rows' scales + another bias; scales in groups of rows weigh each group's sums.
  Value quantised(int64_t g, const Value& x, const Value& weights, const Value& bias, int64_t from, int64_t groups, bool raw) {
    Sizes shape = x.shape();
    const int64_t k = shape.back(), n = weights.size(1);
    shape.back() = n;
    Value y = empty(shape, mt::kDouble);                       // sums of integers stay exact
    const Value scale = raw ? Value() : scale_of(item(scales_, g, groups));
    const bool by_group = scale.given() && scale.numel() > n;
    Value w = weights.to(mt::kDouble);
    if (by_group) w = pointwise("mul", mt::kDouble, {w, spread(scale, k, n, k / (scale.numel() / n))});
    call_kernel("matmul", {y, x.to(mt::kDouble), w});
    const bool before = bias.given() && bias.dtype == mt::kInt32;
    if (before) y = pointwise("add", mt::kDouble, {y, bias.reshape({-1})}, {integer(1)});
    if (raw) return y;
    if (!by_group) y = times(y, scale.reshape({-1}));
    if (!token_scales_.empty()) {
      const int64_t rows = shape[shape.size() - 2];
      const Value all = token_scales_.size() > 1 ? token_scales_[size_t(g)].reshape({-1}) : token_scales_[0].reshape({-1}).narrow(0, from, rows);
      y = times(y, all.reshape({rows, 1}));
    }
    return bias.given() && !before ? plus(y, bias.reshape({-1})) : y;
  }

  Run& r_;
  const Call& c_;
  const Places at_;
  const Mix mix_;
  const int64_t groups_;
  const std::vector<Value> biases_, scales_, offsets_, restore_scales_, restore_offsets_, token_scales_;
  Value only_;
};

// Which group each piece of the rows belongs to, and how many rows it has.
std::vector<std::pair<int64_t, int64_t>> pieces_of(Run& r, const Products& p, const std::vector<Value>& xs, const std::vector<Value>& outs) {
  const Places& at = p.at();
  const int64_t kind = at.list_type >= 0 ? r.call.integer(at.list_type) : 0;
  std::vector<std::pair<int64_t, int64_t>> pieces;
  if (xs.size() > 1 || outs.size() > 1) {
    for (int64_t g = 0; g < p.groups(); ++g) pieces.emplace_back(g, (xs.size() > 1 ? xs : outs)[size_t(g)].size(0));
    return pieces;
  }
  const Sizes given = ends_of(r, at.groups, kind == 1);
  if (kind == 2) {                                             // pairs of a group and its rows
    for (size_t i = 0; i + 1 < given.size(); i += 2) pieces.emplace_back(given[i], given[i + 1]);
    return pieces;
  }
  for (int64_t g = 0; g < std::min<int64_t>(int64_t(given.size()), p.groups()); ++g) pieces.emplace_back(g, given[size_t(g)] - (g ? given[size_t(g) - 1] : 0));
  return pieces;
}
void grouped(Run& r) {
  Products p(r);
  const Places& at = p.at();
  const std::vector<Value> xs = r.tensors(at.x), outs = r.tensors(at.out);
  const int64_t type = at.group_type(r.call), dim = type == kInner ? 1 : 0;
  if (type == kNoGroups) {
    for (size_t i = 0; i < xs.size(); ++i) p.put(int64_t(i), outs[i], xs[i], p.weights(int64_t(i)), 0, int64_t(xs.size()));
    return;
  }
  int64_t from = 0;
  for (const auto& [g, n] : pieces_of(r, p, xs, outs)) {
    if (g < 0 || g >= p.groups() || n < 0 || (xs.size() == 1 && from + n > xs[0].size(dim))) throw std::out_of_range("grouped_matmul: the group list does not fit x");
    const Value x = xs.size() > 1 ? xs[size_t(g)] : xs[0].narrow(dim, from, n);
    if (type == kInner) {
      const Value out = outs[0].select(0, g);
      if (n == 0) fill(out, 0);
      else p.put(g, out, x, p.weights(0).narrow(0, from, n), from, p.groups());
    } else if (n) {
      p.put(g, outs.size() > 1 ? outs[size_t(g)] : outs[0].narrow(0, from, n), x, p.weights(g), from, p.groups());
    }
    from += n;
  }
}

// ---- (x [K, M], weight [K, N], groupList, y, transposeX, transposeWeight, groupType): y[g] += x_g^T weight_g --------
void check_grouped_add(const Call& c) {
  const TensorMeta &x = c.tensor(0), &w = c.tensor(1), &y = c.tensor(3);
  EXPECT(c.integer(4) && !c.integer(5) && c.integer(6) == kInner,
         "only transposeX true, transposeWeight false and groupType 2 are supported");
  EXPECT(x.ndim == 2 && w.ndim == 2 && x.sizes[0] == w.sizes[0], "x %s and weight %s do not share their first dim",
         describe(x).c_str(), describe(w).c_str());
  EXPECT(y.ndim >= 2 && y.sizes[y.ndim - 1] == w.sizes[1] &&
             y.numel() == c.tensor(2).numel() * x.sizes[1] * w.sizes[1],
         "y %s does not fit", describe(y).c_str());
}
void grouped_add(Run& r) {
  Value x = r.tensor(0), w = r.tensor(1), y = r.tensor(3);
  Sizes ends = ends_of(r, 2, r.call.row->nargs > 7 && r.call.integer(7) == 1);  // V2 says whether they are counts
  int64_t from = 0, groups = int64_t(ends.size());
  Value sums = y.reshape({groups, x.size(1), w.size(1)}).to(mt::kFloat).dense(),
        part = empty({x.size(1), w.size(1)}, mt::kFloat);
  for (int64_t g = 0; g < groups; from = ends[size_t(g)], ++g) {
    int64_t n = ends[size_t(g)] - from;
    if (n < 0 || from + n > x.size(0)) throw std::out_of_range("grouped_matmul_add: the group list does not fit x");
    if (n == 0) continue;
    call_kernel("mm", {part, x.narrow(0, from, n).transpose(0, 1).to(mt::kFloat), w.narrow(0, from, n).to(mt::kFloat)});
    Value sum = sums.select(0, g);
    call_pointwise("add", mt::kFloat, {sum, sum, part}, {number(1)});
  }
  copy(y, sums.reshape(y.shape()));
}

const Op ops[] = {
    {"aclnnGroupedMatmul", check_grouped, grouped},
    {"aclnnGroupedMatmulV2", check_grouped, grouped},
    {"aclnnGroupedMatmulV3", check_grouped, grouped},
    {"aclnnGroupedMatmulV4", check_grouped, grouped},
    {"aclnnGroupedMatmulV5", check_grouped, grouped},
    {"aclnnGroupedMatmulWeightNz", check_grouped, grouped},
    {"aclnnGroupedMatmulAdd", check_grouped_add, grouped_add},
    {"aclnnGroupedMatmulAddV2", check_grouped_add, grouped_add},
};

}  // namespace
}  // namespace cann_sim
