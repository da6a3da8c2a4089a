// Mixture of experts: which tokens go to which expert, gathered by expert and put back. Matmuls are elsewhere.
#include <algorithm>
#include <cmath>

#include "ops/result.h"

namespace cann_sim {
namespace {

// Kernels work on int64 indices and in float for the halves.
Value whole_index(Run& r, int i) { return index_value(r, i).dense(); }
Value in_float(Run& r, int i) { return r.tensor(i).to(opmath(r.tensor(i).dtype)).dense(); }

void expect_index(const Call& c, int i) {
  const DType dtype = dtype_of(c.tensor(i).dtype);
  EXPECT(dtype == mt::kInt32 || dtype == mt::kInt64, "%s of %s is not an index", c.row->args[i].name,
         describe(c.tensor(i)).c_str());
}
void expect_matrix(const Call& c, int i) {
  expect_computes(c, i);
  EXPECT(c.tensor(i).ndim == 2, "%s of %s is not a matrix", c.row->args[i].name, describe(c.tensor(i)).c_str());
}
int64_t checked(const Call& c, int64_t index, int64_t size) {
  if (index < 0 || index >= size)
    throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": index " + std::to_string(index) +
                                                         " is out of range for " + std::to_string(size) + " rows");
  return index;
}

// The order that sorts the items, equal ones as they stood; or where each item goes.
std::vector<int64_t> sorting(const Value& items) {
  const int64_t* p = items.ptr<int64_t>();
  std::vector<int64_t> order(static_cast<size_t>(items.numel()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = int64_t(i);
  std::stable_sort(order.begin(), order.end(), [p](int64_t a, int64_t b) { return p[a] < p[b]; });
  return order;
}
void add_scaled(const Value& to, const Value& from, double scale) {
  call_pointwise("add", to.dtype, {to, to, from}, {number(scale)});
}

// ---- tokens by expert: (tokens, indices, numOutTokens, paddedMode, permuted, sortedIndices) -----------------------
// sortedIndices says where each (token, choice) went; rows of `permuted` beyond its size are dropped.
void check_permute(const Call& c) {
  const TensorMeta &tokens = c.tensor(0), &indices = c.tensor(1);
  expect_matrix(c, 0);
  expect_index(c, 1);
  EXPECT(!c.integer(3), "the padded mode is not supported");
  EXPECT((indices.ndim == 1 || indices.ndim == 2) && indices.sizes[0] == tokens.sizes[0],
         "indices of %s for tokens of %s", describe(indices).c_str(), describe(tokens).c_str());
  EXPECT(c.tensor(4).ndim == 2 && c.tensor(4).sizes[0] <= indices.numel() && c.tensor(4).sizes[1] == tokens.sizes[1],
         "permuteTokensOut of %s for tokens of %s", describe(c.tensor(4)).c_str(), describe(tokens).c_str());
  expect_same_dtype(c, 4, 0);
  expect_index(c, 5);
  expect_numel(c, 5, indices.numel());
}
void permute(Run& r) {
  Value tokens = r.tensor(0), out = r.tensor(4), sorted = empty({r.call.tensor(1).numel()}, mt::kInt64);
  const std::vector<int64_t> order = sorting(whole_index(r, 1));
  const int64_t choices = order.empty() ? 1 : int64_t(order.size()) / tokens.sizes[0];
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.ptr<int64_t>()[order[i]] = int64_t(i);
    if (int64_t(i) < out.sizes[0]) copy(out.select(0, int64_t(i)), tokens.select(0, order[i] / choices));
  }
  copy(r.tensor(5), sorted.reshape(r.tensor(5).shape()));
}

// (permutedGrad, sortedIndices, numTopk, paddedMode, out), (permuted, sortedIndices, probs?, paddedMode, shape?, out):
// the rows of a token's choices, each times its probability, are added up
void check_gathered(const Call& c, int out, int probs, int64_t choices) {
  expect_matrix(c, 0);
  expect_index(c, 1);
  EXPECT(!c.integer(3), "the padded mode is not supported");
  EXPECT(choices > 0 && c.tensor(1).numel() % choices == 0, "%ld indices for %ld choices", c.tensor(1).numel(),
         choices);
  expect_shape(c, out, {c.tensor(1).numel() / choices, c.tensor(0).sizes[1]});
  expect_castable(c, 0, out);
  if (probs >= 0 && c.given(probs)) expect_numel(c, probs, c.tensor(1).numel());
}
int64_t choices_of(const Call& c, int probs) {
  return c.given(probs) && c.tensor(probs).ndim == 2 ? c.tensor(probs).sizes[1] : 1;
}
void gather_rows(Run& r, int out, const Value& probs) {
  Value from = in_float(r, 0), index = whole_index(r, 1), sum = full(r.tensor(out).shape(), from.dtype, 0);
  if (sum.numel() == 0) return;
  const int64_t choices = index.numel() / sum.sizes[0];
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int64_t row = index.ptr<int64_t>()[i];
    if (row >= from.sizes[0]) continue;  // it was dropped
    add_scaled(sum.select(0, i / choices), from.select(0, checked(r.call, row, from.sizes[0])),
               probs.given() ? probs.ptr<double>()[i] : 1);
  }
  copy(r.tensor(out), sum);
}
void unpermute(Run& r) { gather_rows(r, 5, r.tensor(2).to(mt::kDouble).dense()); }

// aclnnMoeTokenUnpermuteGrad(permuted, grad, sortedIndices, probs?, paddedMode, shape?, permutedGrad, probsGrad)
void check_unpermute_grad(const Call& c) {
  expect_matrix(c, 0);
  expect_matrix(c, 1);
  expect_index(c, 2);
  EXPECT(!c.integer(4), "the padded mode is not supported");
  EXPECT(choices_of(c, 3) > 0, "probs of %s choose no expert", describe(c.tensor(3)).c_str());
  expect_shape(c, 1, {c.tensor(2).numel() / choices_of(c, 3), c.tensor(0).sizes[1]});
  expect_same_shape(c, 6, 0);
  if (!c.given(3)) return;
  expect_numel(c, 3, c.tensor(2).numel());
  expect_same_shape(c, 7, 3);
}
void unpermute_grad(Run& r) {
  Value rows = in_float(r, 0), grad = in_float(r, 1), index = whole_index(r, 2);
  Value probs = r.tensor(3).to(mt::kDouble).dense();
  Value rows_grad = full(rows.shape(), rows.dtype, 0), probs_grad = full({index.numel()}, rows.dtype, 0);
  const int64_t choices = choices_of(r.call, 3), width = rows.sizes[1];
  for (int64_t i = 0; i < index.numel(); ++i) {
    const int64_t row = index.ptr<int64_t>()[i];
    if (row >= rows.sizes[0]) continue;
    Value from = grad.select(0, i / choices), to = rows_grad.select(0, checked(r.call, row, rows.sizes[0]));
    add_scaled(to, from, probs.given() ? probs.ptr<double>()[i] : 1);
    Value product = empty({width}, rows.dtype);
    call_pointwise("mul", rows.dtype, {product, from, rows.select(0, row)});
    call_kernel("sum", {probs_grad.select(0, i), product});
  }
  copy(r.tensor(6), rows_grad);
  if (probs.given()) copy(r.tensor(7), probs_grad.reshape(probs.shape()));
}

// ---- aclnnMoeGatingTopKSoftmax(x, finished?, k, y, expertIdx, rowIdx) ---------------------------------------------
// The k likeliest experts of each row; a finished row goes to none, which is the number past the last.
std::vector<int64_t> chosen_sizes(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(is_float(dtype_of(x.dtype)) && x.ndim >= 2, "x of %s", describe(x).c_str());
  std::vector<int64_t> sizes = sizes_of(x);
  const int64_t k = c.integer(2), experts = sizes.back();
  EXPECT(k > 0 && k <= experts, "k of %ld for %ld experts", k, experts);
  if (c.given(1)) expect_numel(c, 1, x.numel() / experts);
  sizes.back() = k;
  return sizes;
}
void check_gating(const Call& c) {
  const std::vector<int64_t> sizes = chosen_sizes(c);
  for (int i : {3, 4, 5}) expect_shape(c, i, sizes);
}
void softmax(const Value& out, const Value& x) { call_kernel("_softmax", {out, x}, {integer(1), integer(0)}); }

// The k largest items of each row of a matrix, and whose they were; a finished row has none.
void choose(Run& r, const Value& from, const Value& values, int at) {
  const int64_t experts = from.sizes[1], k = r.call.integer(2), n = from.sizes[0];
  Value chosen = empty({n, k}, mt::kInt64), finished = r.tensor(1).to(mt::kBool).dense();
  call_kernel("topk", {values, chosen, from}, {integer(k), integer(1), integer(1), integer(1)});
  for (int64_t i = 0; finished.given() && i < n * k; ++i)
    if (finished.ptr<bool>()[i / k]) chosen.ptr<int64_t>()[i] = experts;
  copy(r.tensor(at), chosen.reshape(r.tensor(at).shape()));
}
Value rows_of(const Value& x) { return x.reshape({x.numel() / x.size(-1), x.size(-1)}); }

void gating(Run& r) {
  Value y = r.tensor(3);
  if (y.numel() == 0) return;
  Value x = rows_of(in_float(r, 0)), chances = empty(x.shape(), x.dtype);
  const int64_t k = r.call.integer(2), n = x.sizes[0];
  Value values = empty({n, k}, x.dtype), rows = empty({n, k}, mt::kInt64);
  softmax(chances, x);
  choose(r, chances, values, 4);
  for (int64_t i = 0; i < n * k; ++i) rows.ptr<int64_t>()[i] = i % k * n + i / k;
  copy(y, values.reshape(y.shape()));
  copy(r.tensor(5), rows.reshape(y.shape()));
}

// aclnnMoeGatingTopKSoftmaxV2(x, finished?, k, renorm, outputSoftmax, y, expertIdx, softmax?): with renorm, the softmax
// is that of the k chosen alone
void check_gating_v2(const Call& c) {
  const std::vector<int64_t> sizes = chosen_sizes(c);
  for (int i : {5, 6}) expect_shape(c, i, sizes);
  EXPECT(c.integer(3) == 0 || c.integer(3) == 1, "renorm of %ld", c.integer(3));
  if (c.integer(3) || !c.integer(4)) return;
  EXPECT(c.given(7), "the softmax is asked for, and its output is null");
  expect_same_shape(c, 7, 0);
}
void gating_v2(Run& r) {
  Value y = r.tensor(5);
  if (y.numel() == 0) return;
  Value x = rows_of(in_float(r, 0)), values = empty({x.sizes[0], r.call.integer(2)}, x.dtype);
  if (r.call.integer(3)) {
    Value chosen = empty(values.shape(), x.dtype);
    choose(r, x, chosen, 6);
    softmax(values, chosen);
  } else {
    Value chances = empty(x.shape(), x.dtype);
    softmax(chances, x);
    choose(r, chances, values, 6);
    if (r.call.integer(4)) copy(r.tensor(7), chances.reshape(r.tensor(7).shape()));
  }
  copy(y, values.reshape(y.shape()));
}

// ---- aclnnMoeComputeExpertTokens(sortedExperts, numExperts, out): how many rows end at or before each expert ------
void check_expert_tokens(const Call& c) {
  expect_index(c, 0);
  EXPECT(c.integer(1) > 0, "numExperts of %ld", c.integer(1));
  expect_shape(c, 2, {c.integer(1)});
}
void expert_tokens(Run& r) {
  Value experts = whole_index(r, 0), ends = full({r.call.integer(1)}, mt::kInt64, 0);
  const int64_t* p = experts.ptr<int64_t>();
  for (int64_t e = 0; e < ends.sizes[0]; ++e) ends.ptr<int64_t>()[e] = std::upper_bound(p, p + experts.numel(), e) - p;
  copy(r.tensor(2), ends);
}

// ---- aclnnMoeInitRouting(x, rowIdx, expertIdx, activeNum, expandedX, expandedRowIdx, expandedExpertIdx) -----------
// Choices sorted by expert. rowIdx numbers a choice as (choice * rows + row); expandedRowIdx says where it went.
template <bool quantised> void check_init_routing(const Call& c) {  // quantised: scale and offset come after activeNum
  const int first = quantised ? 6 : 4;
  const TensorMeta& expert = c.tensor(2);
  expect_matrix(c, 0);
  expect_index(c, 1);
  expect_index(c, 2);
  EXPECT(expert.ndim == 2 && expert.sizes[0] == c.tensor(0).sizes[0], "expertIdx of %s", describe(expert).c_str());
  expect_same_shape(c, 1, 2);
  const int64_t active = std::min(c.integer(3), c.tensor(0).sizes[0]) * expert.sizes[1];
  expect_shape(c, first, {active, c.tensor(0).sizes[1]});
  if (quantised) EXPECT(c.tensor(first).dtype == ACL_INT8, "expandedXOut is %s, expected int8", describe(c.tensor(first)).c_str());
  else expect_same_dtype(c, first, 0);
  expect_numel(c, first + 1, expert.numel());
  expect_numel(c, first + 2, expert.numel());
}
// round(x * scale + offset) as int8.
Value as_int8(Run& r) {
  const Value x = r.tensor(0).to(mt::kFloat).dense(), made = empty(x.shape(), mt::kInt8);
  for (int64_t i = 0, n = x.numel(); i < n; ++i)
    made.ptr<int8_t>()[i] = int8_t(std::min(std::max(std::nearbyint(x.ptr<float>()[i] * float(r.call.number(4)) + float(r.call.number(5))), -128.f), 127.f));
  return made;
}
template <bool quantised> void init_routing(Run& r) {
  const int first = quantised ? 6 : 4;
  Value x = quantised ? as_int8(r) : r.tensor(0), row = whole_index(r, 1), expert = whole_index(r, 2), out = r.tensor(first);
  const int64_t n = expert.numel();
  Value where = empty({n}, mt::kInt64), sorted = empty({n}, mt::kInt64);
  const std::vector<int64_t> order = sorting(expert);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = checked(r.call, row.ptr<int64_t>()[order[i]], n);
    where.ptr<int64_t>()[at] = i;
    sorted.ptr<int64_t>()[i] = expert.ptr<int64_t>()[order[i]];
    if (i < out.sizes[0] && x.sizes[0]) copy(out.select(0, i), x.select(0, at % x.sizes[0]));
  }
  copy(r.tensor(first + 1), where.reshape(r.tensor(first + 1).shape()));
  copy(r.tensor(first + 2), sorted.reshape(r.tensor(first + 2).shape()));
}

// ---- aclnnMoeFinalizeRouting(expandedX, x1, x2?, bias, scales, expandedRowIdx, expertIdx, out) --------------------
void check_finalize(const Call& c) {
  const TensorMeta &scales = c.tensor(4), &out = c.tensor(7);
  for (int i : {0, 1, 3, 4}) expect_matrix(c, i);
  expect_index(c, 5);
  expect_index(c, 6);
  expect_same_shape(c, 7, 1);
  if (c.given(2)) expect_same_shape(c, 2, 1);
  EXPECT(scales.sizes[0] == out.sizes[0] && c.tensor(0).sizes[1] == out.sizes[1] &&
             c.tensor(3).sizes[1] == out.sizes[1],
         "out of %s for expandedX of %s and scales of %s", describe(out).c_str(), describe(c.tensor(0)).c_str(),
         describe(scales).c_str());
  expect_numel(c, 5, scales.numel());
  expect_same_shape(c, 6, 4);
}
void finalize(Run& r) {
  Value rows = in_float(r, 0), bias = in_float(r, 3), where = whole_index(r, 5), expert = whole_index(r, 6);
  Value scales = r.tensor(4).to(mt::kDouble).dense(), sum = empty(r.tensor(7).shape(), rows.dtype);
  copy(sum, r.tensor(1));
  if (r.given(2)) call_pointwise("add", rows.dtype, {sum, sum, r.tensor(2)}, {number(1)});
  const int64_t n = scales.sizes[0], choices = scales.sizes[1];
  for (int64_t i = 0; i < n * choices; ++i) {
    const int64_t row = i / choices, at = where.ptr<int64_t>()[i % choices * n + row];
    const double scale = scales.ptr<double>()[i];
    if (at < rows.sizes[0]) add_scaled(sum.select(0, row), rows.select(0, checked(r.call, at, rows.sizes[0])), scale);
    add_scaled(sum.select(0, row), bias.select(0, checked(r.call, expert.ptr<int64_t>()[i], bias.sizes[0])), scale);
  }
  copy(r.tensor(7), sum);
}

const Op ops[] = {
    {"aclnnMoeTokenPermute", check_permute, permute},
    {"aclnnMoeTokenPermuteGrad", [](const Call& c) { check_gathered(c, 4, -1, c.integer(2)); },
     [](Run& r) { gather_rows(r, 4, Value()); }},
    {"aclnnMoeTokenUnpermute", [](const Call& c) { check_gathered(c, 5, 2, choices_of(c, 2)); }, unpermute},
    {"aclnnMoeTokenUnpermuteGrad", check_unpermute_grad, unpermute_grad},
    {"aclnnMoeGatingTopKSoftmax", check_gating, gating},
    {"aclnnMoeGatingTopKSoftmaxV2", check_gating_v2, gating_v2},
    {"aclnnMoeComputeExpertTokens", check_expert_tokens, expert_tokens},
    {"aclnnMoeInitRouting", check_init_routing<false>, init_routing<false>},
    {"aclnnMoeInitRoutingQuant", check_init_routing<true>, init_routing<true>},
    {"aclnnMoeFinalizeRouting", check_finalize, finalize},
};

}  // namespace
}  // namespace cann_sim
