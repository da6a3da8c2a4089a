// Products of groups: rows (or the inner dim) of one matrix cut by a list, each piece times a matrix of its own.
// Plain floats only: a call with scales or an activation is refused by name.
#include <algorithm>
#include <cstring>

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
  int x = 0, weight = 1, bias = 2, groups, type, list_type, activation, out;
  explicit Places(const Call& c)
      : groups(find(c, "groupListOptional")), type(find(c, "groupType")), list_type(find(c, "groupListType")),
        activation(find(c, "actType")), out(std::max(find(c, "y"), find(c, "out"))) {}
  int64_t group_type(const Call& c) const {
    if (type >= 0) return c.integer(type);
    return c.given(groups) && c.ints(groups).size() ? kRows : kNoGroups;
  }
};

int64_t group_count(const Call& c, const Places& at) {
  if (at.group_type(c) == kInner) return c.tensor(at.groups).numel();
  const Span<TensorMeta> weights = c.tensors(at.weight);
  return weights.size() == 1 && weights[0].ndim == 3 ? weights[0].sizes[0] : weights.size();
}

void expect_plain(const Call& c, const Places& at) {
  for (int i = 0; i < c.row->nargs; ++i) {
    bool known = i == at.x || i == at.weight || i == at.bias || i == at.groups || i == at.out;
    if (!known && is_tensor_list(c.row->args[i].kind) && c.given(i) && c.tensors(i).size() && c.tensors(i)[0].numel())
      refuse(561003, "%s with %s is not computed: only plain products are", c.name(), c.row->args[i].name);
  }
  if (at.activation >= 0 && c.integer(at.activation) != 0)
    refuse(561003, "%s with actType %ld is not computed", c.name(), long(c.integer(at.activation)));
  for (int list : {at.x, at.weight})
    for (const TensorMeta& t : c.tensors(list)) {
      DType dtype = dtype_of(t.dtype);
      EXPECT(is_float(dtype), "%s must be float, got %s", c.row->args[list].name, describe(t).c_str());
    }
}

void check_grouped(const Call& c) {
  Places at(c);
  expect_plain(c, at);
  int64_t type = at.group_type(c);
  Span<TensorMeta> xs = c.tensors(at.x), weights = c.tensors(at.weight), outs = c.tensors(at.out);
  EXPECT(type == kNoGroups || type == kRows || type == kInner, "groupType %ld is not -1, 0 or 2", long(type));
  EXPECT(xs.size() && weights.size() && outs.size(), "x, weight and the output must not be empty");
  if (type == kNoGroups) {
    EXPECT(xs.size() == weights.size() && outs.size() == xs.size(), "%ld x, %ld weights and %ld outputs differ",
           long(xs.size()), long(weights.size()), long(outs.size()));
    for (int64_t i = 0; i < xs.size(); ++i) {
      const TensorMeta &x = xs[i], &w = weights[i], &y = outs[i];
      EXPECT(x.ndim >= 2 && w.ndim == 2 && x.sizes[x.ndim - 1] == w.sizes[0], "%s and %s cannot be multiplied",
             describe(x).c_str(), describe(w).c_str());
      Sizes want = sizes_of(x);
      want.back() = w.sizes[1];
      EXPECT(sizes_of(y) == want, "the output %s does not fit %s times %s", describe(y).c_str(), describe(x).c_str(),
             describe(w).c_str());
    }
    return;
  }
  EXPECT(c.given(at.groups), "groupType %ld needs a group list", long(type));
  EXPECT(xs.size() == 1 && outs.size() == 1, "one x and one output are expected, got %ld and %ld", long(xs.size()),
         long(outs.size()));
  const TensorMeta &x = xs[0], &w = weights[0], &y = outs[0];
  int64_t groups = group_count(c, at), cols = w.sizes[w.ndim - 1];
  EXPECT(x.ndim == 2 && x.sizes[1] == (type == kInner ? w.sizes[0] : w.sizes[w.ndim - 2]),
         "%s and %s cannot be multiplied", describe(x).c_str(), describe(w).c_str());
  Sizes want = type == kInner ? Sizes{groups, x.sizes[0], cols} : Sizes{x.sizes[0], cols};
  EXPECT(sizes_of(y) == want, "the output %s does not fit", describe(y).c_str());
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

void product(const Value& out, const Value& x, const Value& w, const Value& bias) {
  if (out.numel() == 0) return;
  Value made = empty(out.shape(), mt::kFloat);
  call_kernel("matmul", {made, x.to(mt::kFloat), w.to(mt::kFloat)});
  if (bias.given()) call_pointwise("add", mt::kFloat, {made, made, bias}, {number(1)});
  copy(out, made);
}

// Item g of a list, or of the first dim of its only tensor.
Value item(const std::vector<Value>& list, int64_t g, int32_t ndim) {
  if (list.empty()) return Value();
  return list.size() == 1 && list[0].ndim == ndim + 1 ? list[0].select(0, g) : list[size_t(g)];
}

void grouped(Run& r) {
  const Call& c = r.call;
  Places at(c);
  std::vector<Value> xs = r.tensors(at.x), weights = r.tensors(at.weight), outs = r.tensors(at.out), biases;
  if (r.given(at.bias)) biases = r.tensors(at.bias);
  int64_t type = at.group_type(c);
  if (type == kNoGroups) {
    for (size_t i = 0; i < xs.size(); ++i) product(outs[i], xs[i], weights[i], item(biases, int64_t(i), 1));
    return;
  }
  Sizes ends = ends_of(r, at.groups, at.list_type >= 0 && c.integer(at.list_type) == 1);
  int64_t from = 0, groups = std::min<int64_t>(int64_t(ends.size()), group_count(c, at)), dim = type == kInner ? 1 : 0;
  for (int64_t g = 0; g < groups; ++g) {
    int64_t n = ends[size_t(g)] - from;
    if (n < 0 || from + n > xs[0].size(dim)) throw std::out_of_range("grouped_matmul: the group list does not fit x");
    if (type == kInner) {
      Value out = outs[0].select(0, g);
      if (n == 0) fill(out, 0);
      else product(out, xs[0].narrow(1, from, n), weights[0].narrow(0, from, n), Value());
    } else {
      product(outs[0].narrow(0, from, n), xs[0].narrow(0, from, n), item(weights, g, 2), item(biases, g, 1));
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
