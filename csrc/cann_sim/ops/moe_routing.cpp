// Serving language models: experts chosen by groups, tokens put back, the next step of a batch, and filtered logits.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/attention.h"  // argument()
#include "ops/pointwise.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

Value floats(Run& r, int i) { return r.tensor(i).given() ? r.tensor(i).to(mt::kFloat).dense() : Value(); }
Value whole(Run& r, int i) { return r.tensor(i).given() ? r.tensor(i).to(mt::kInt64).dense() : Value(); }

// ---- aclnnMoeGatingTopK(x, bias?, k, kGroup, groupCount, groupSelectMode, renorm, normType, outFlag, factor, eps, y, expert, norm)
// The second version has inputIds? and tid2eid? after the bias.
int gate(const Call& c, int i) { return i + argument(c, {"k"}); }
void check_gating(const Call& c) {
  for (int i = 2; i < gate(c, 0); ++i)
    if (c.given(i)) refuse(561003, "%s with %s is not computed", c.name(), c.row->args[i].name);
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim == 2, "%s: expected x of 2 dims, got %s", c.name(), describe(x).c_str());
  const int64_t experts = x.sizes[1], k = c.integer(gate(c, 0)), groups = c.integer(gate(c, 2));
  EXPECT(groups > 0 && experts % groups == 0 && c.integer(gate(c, 1)) > 0 && c.integer(gate(c, 1)) <= groups,
         "%s: %ld of %ld groups for %ld experts", c.name(), c.integer(gate(c, 1)), groups, experts);
  EXPECT(k > 0 && k <= experts / groups * c.integer(gate(c, 1)), "%s: k of %ld for %ld experts", c.name(), k, experts);
  if (c.given(1)) expect_shape(c, 1, {experts});
  for (int i : {gate(c, 9), gate(c, 10)}) expect_shape(c, i, {x.sizes[0], k});
  if (c.integer(gate(c, 6))) expect_same_shape(c, gate(c, 11), 0);
}
// The scores of a row that count for the choice: those of the best groups.
void keep_best_groups(std::vector<float>& score, const Call& c) {
  const int64_t groups = c.integer(gate(c, 2)), size = int64_t(score.size()) / groups;
  if (groups == 1) return;
  std::vector<std::pair<float, int64_t>> best;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<float> own(score.begin() + g * size, score.begin() + (g + 1) * size);
    std::sort(own.begin(), own.end(), std::greater<>());
    best.push_back({c.integer(gate(c, 3)) == 0 || size < 2 ? own[0] : own[0] + own[1], g});
  }
  std::stable_sort(best.begin(), best.end(), [](auto& a, auto& b) { return a.first > b.first; });
  for (int64_t i = c.integer(gate(c, 1)); i < groups; ++i)
    std::fill_n(score.begin() + best[size_t(i)].second * size, size, -std::numeric_limits<float>::infinity());
}
void gating(Run& r) {
  const Call& c = r.call;
  const Value x = floats(r, 0), bias = floats(r, 1);
  const int64_t rows = x.sizes[0], experts = x.sizes[1], k = c.integer(gate(c, 0));
  const Value norm = empty(x.shape(), mt::kFloat), y = empty({rows, k}, mt::kFloat), chosen = empty({rows, k}, mt::kInt64);
  if (c.integer(gate(c, 5)) == 1) call_pointwise("sigmoid", mt::kFloat, {norm, x});
  else call_kernel("_softmax", {norm, x}, {integer(1), integer(0)});
  for (int64_t i = 0; i < rows; ++i) {
    const float* p = norm.ptr<float>() + i * experts;
    std::vector<float> score(p, p + experts);
    for (int64_t e = 0; bias.given() && e < experts; ++e) score[size_t(e)] += bias.ptr<float>()[e];
    keep_best_groups(score, c);
    std::vector<int64_t> order(static_cast<size_t>(experts));
    for (int64_t e = 0; e < experts; ++e) order[size_t(e)] = e;
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[size_t(a)] > score[size_t(b)]; });
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += p[order[size_t(j)]];
    const float part = c.integer(gate(c, 5)) == 1 || c.integer(gate(c, 4)) == 1 ? sum + float(c.number(gate(c, 8))) : 1;
    for (int64_t j = 0; j < k; ++j) {
      chosen.ptr<int64_t>()[i * k + j] = order[size_t(j)];
      y.ptr<float>()[i * k + j] = p[order[size_t(j)]] / part * float(c.number(gate(c, 7)));
    }
  }
  copy(r.tensor(gate(c, 9)), y);
  copy(r.tensor(gate(c, 10)), chosen);
  if (c.integer(gate(c, 6))) copy(r.tensor(gate(c, 11)), norm);
}

// ---- aclnnMoeFinalizeRoutingV2(expandedX, rowIdx, x1?, x2?, bias?, scales?, expertIdx?, dropPadMode, out) --------------
// Modes 0 and 1 number a choice as choice * rows + row, 2 and 3 as row * choices + choice.
void check_finalize(const Call& c) {
  const Sizes out = sizes_of(c.tensor(8));
  EXPECT(out.size() == 2 && c.tensor(0).sizes[c.tensor(0).ndim - 1] == out[1], "%s: out %s for expandedX %s", c.name(),
         describe(c.tensor(8)).c_str(), describe(c.tensor(0)).c_str());
  EXPECT(out[0] && c.tensor(1).numel() % out[0] == 0, "%s: %ld choices for %ld rows", c.name(), c.tensor(1).numel(), out[0]);
  for (int i : {2, 3})
    if (c.given(i)) expect_same_shape(c, i, 8);
  if (c.given(4)) EXPECT(c.given(6), "%s: a bias needs expertIdx", c.name());
  if (c.given(5)) expect_numel(c, 5, c.tensor(1).numel());
}
void finalize(Run& r) {
  const Value rows = floats(r, 0), where = whole(r, 1), bias = floats(r, 4), scales = floats(r, 5), expert = whole(r, 6);
  const Value out = r.tensor(8), sum = full(out.shape(), mt::kFloat, 0);
  const int64_t n = sum.sizes[0], width = sum.sizes[1], choices = where.numel() / n, given = width ? rows.numel() / width : 0;
  for (int i : {2, 3})
    if (r.given(i)) call_pointwise("add", mt::kFloat, {sum, sum, r.tensor(i)}, {number(1)});
  for (int64_t i = 0; i < n * choices; ++i) {
    const int64_t row = i / choices, choice = i % choices;
    const int64_t at = where.ptr<int64_t>()[r.call.integer(7) < 2 ? choice * n + row : i];
    const float scale = scales.given() ? scales.ptr<float>()[i] : 1;
    for (int64_t j = 0; j < width; ++j) {
      float v = at >= 0 && at < given ? rows.ptr<float>()[at * width + j] : 0;
      if (bias.given()) v += bias.ptr<float>()[expert.ptr<int64_t>()[i] * width + j];
      sum.ptr<float>()[row * width + j] += v * scale;
    }
  }
  copy(out, sum);
}

// ---- aclnnAdvanceStep(tokens, sampled, positions, lengths, slots, tables, numSeqs, numQueries, blockSize) --------------
void check_advance(const Call& c) {
  const int64_t n = c.integer(7);
  EXPECT(n >= 0 && n <= c.integer(6) && c.integer(8) > 0, "%s: %ld of %ld sequences in blocks of %ld", c.name(), n, c.integer(6),
         c.integer(8));
  for (int i : {0, 1, 2, 3, 4})
    EXPECT(c.tensor(i).numel() >= n, "%s: %s %s for %ld sequences", c.name(), c.row->args[i].name,
           describe(c.tensor(i)).c_str(), n);
}
void advance(Run& r) {
  int64_t* at[6];
  for (int i = 0; i < 6; ++i) at[i] = r.tensor(i).ptr<int64_t>();
  const int64_t blocks = r.call.tensor(5).sizes[1], size = r.call.integer(8);
  for (int64_t i = 0; i < r.call.integer(7); ++i) {
    const int64_t place = at[3][i];
    if (place / size >= blocks)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnAdvanceStep: a sequence is longer than its blocks");
    at[0][i] = at[1][i];
    at[2][i] = place;
    at[3][i] = place + 1;
    at[4][i] = at[5][i * blocks + place / size] * size + place % size;
  }
}

// ---- aclnnApplyTopKTopP(logits, p?, k?, out): what is not among the best becomes -inf -----------------------------------
void check_filter(const Call& c) {
  EXPECT(c.tensor(0).ndim == 2, "%s: expected logits of 2 dims, got %s", c.name(), describe(c.tensor(0)).c_str());
  for (int i : {1, 2})
    if (c.given(i)) expect_numel(c, i, c.tensor(0).sizes[0]);
  expect_same_shape(c, 3, 0);
}
void filter(Run& r) {
  const Value x = floats(r, 0), p = floats(r, 1), k = whole(r, 2), made = full(x.shape(), mt::kFloat, -INFINITY);
  const int64_t width = x.sizes[1];
  for (int64_t row = 0; row < x.sizes[0]; ++row) {
    const float* in = x.ptr<float>() + row * width;
    std::vector<int64_t> order(static_cast<size_t>(width));
    for (int64_t i = 0; i < width; ++i) order[size_t(i)] = i;
    std::stable_sort(order.begin(), order.end(), [in](int64_t a, int64_t b) { return in[a] < in[b]; });
    int64_t first = k.given() ? std::max<int64_t>(0, width - k.ptr<int64_t>()[row]) : 0;
    while (first > 0 && first < width && in[order[size_t(first - 1)]] == in[order[size_t(first)]]) --first;  // ties stay
    double total = 0, below = 0;
    for (int64_t i = first; i < width; ++i) total += std::exp(double(in[order[size_t(i)]]) - in[order.back()]);
    for (int64_t i = first; i < width; ++i) {
      below += std::exp(double(in[order[size_t(i)]]) - in[order.back()]) / total;
      const bool drops = p.given() && below <= 1 - p.ptr<float>()[row] && i + 1 < width;
      if (!drops) made.ptr<float>()[row * width + order[size_t(i)]] = in[order[size_t(i)]];
    }
  }
  copy(r.tensor(3), made);
}

const Op ops[] = {
    {"aclnnMoeGatingTopK", check_gating, gating},
    {"aclnnMoeGatingTopKV2", check_gating, gating},
    {"aclnnMoeFinalizeRoutingV2", check_finalize, finalize},
    {"aclnnAdvanceStep", check_advance, advance},
    {"aclnnApplyTopKTopP", check_filter, filter},
};

}  // namespace
}  // namespace cann_sim
