// Serving language models: experts chosen by groups, and tokens put back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

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
  if (c.integer(gate(c, 6))) {
    EXPECT(c.given(gate(c, 11)), "%s: outFlag asks for %s, which is not given", c.name(), c.row->args[gate(c, 11)].name);
    expect_same_shape(c, gate(c, 11), 0);
  }
}
// The scores of a row that count for the choice: those of the best groups.
void keep_best_groups(std::vector<float>& score, const Call& c) {
  const int64_t groups = c.integer(gate(c, 2)), size = int64_t(score.size()) / groups;
  if (groups == 1) return;
  std::vector<std::pair<float, int64_t>> best;
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<float> own(score.begin() + g * size, score.begin() + (g + 1) * size);
    std::stable_sort(own.begin(), own.end(), std::greater<>());  // std::sort leaves the range where a score is NaN
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
// Modes 0 and 1 number a choice as choice * rows + row, 2 and 3 as row * choices + choice. The fourth version has
// x?, alpha1?, alpha2?, v? after expertIdx, and after the mode the ranges of experts that give nothing, the token itself, or
// alpha1 * token + alpha2 * v; then the choices of a row, which count where there are no scales.
int mode_at(const Call& c) { return argument(c, {"dropPadMode"}); }
int out_at(const Call& c) { return argument(c, {"out"}); }
bool within(const Call& c, int i, int64_t expert) {
  const Span<int64_t> range = c.ints(i);
  return range.size() == 2 && expert >= range[0] && expert < range[1];
}
void check_own_experts(const Call& c, const Sizes& out) {
  bool any = false;
  for (int i = mode_at(c) + 1; i < mode_at(c) + 4; ++i) {
    const int64_t given = c.given(i) ? c.ints(i).size() : 0;
    EXPECT(given == 0 || given == 2, "%s: %s of %ld numbers", c.name(), c.row->args[i].name, given);
    any = any || given;
  }
  EXPECT(!any || c.given(6), "%s: ranges of experts need expertIdx", c.name());
  const Span<int64_t> copies = c.ints(mode_at(c) + 2), constants = c.ints(mode_at(c) + 3);
  if (copies.size() || constants.size()) expect_shape(c, 7, out);
  for (int i = 8; constants.size() && i < 11; ++i) expect_shape(c, i, {constants[1] - constants[0], out[1]});
}
void check_finalize(const Call& c) {
  const int at = out_at(c);
  const Sizes out = sizes_of(c.tensor(at));
  EXPECT(out.size() == 2 && c.tensor(0).sizes[c.tensor(0).ndim - 1] == out[1], "%s: out %s for expandedX %s", c.name(),
         describe(c.tensor(at)).c_str(), describe(c.tensor(0)).c_str());
  EXPECT(out[0] && c.tensor(1).numel() % out[0] == 0, "%s: %ld choices for %ld rows", c.name(), c.tensor(1).numel(), out[0]);
  for (int i : {2, 3})
    if (c.given(i)) expect_same_shape(c, i, at);
  if (c.given(4)) EXPECT(c.given(6), "%s: a bias needs expertIdx", c.name());
  for (int i : {5, 6})
    if (c.given(i)) expect_numel(c, i, c.tensor(1).numel());
  if (at > 8) check_own_experts(c, out);
}
void finalize(Run& r) {
  const Call& c = r.call;
  const Value rows = floats(r, 0), where = whole(r, 1), bias = floats(r, 4), scales = floats(r, 5), expert = whole(r, 6);
  const Value out = r.tensor(out_at(c)), sum = full(out.shape(), mt::kFloat, 0);
  const int64_t n = sum.sizes[0], width = sum.sizes[1], choices = where.numel() / n, given = width ? rows.numel() / width : 0;
  const int mode = mode_at(c);
  const bool own = out_at(c) > 8;
  Value more[4];                                            // x, alpha1, alpha2, v
  for (int i = 0; own && i < 4; ++i) more[i] = floats(r, 7 + i);
  for (int i : {2, 3})
    if (r.given(i)) call_pointwise("add", mt::kFloat, {sum, sum, r.tensor(i)}, {number(1)});
  for (int64_t i = 0; i < n * choices; ++i) {
    const int64_t row = i / choices, choice = i % choices, chosen = expert.given() ? expert.ptr<int64_t>()[i] : 0;
    const int64_t at = where.ptr<int64_t>()[c.integer(mode) < 2 ? choice * n + row : i];
    const float scale = scales.given() ? scales.ptr<float>()[i] : 1;
    const bool copies = own && within(c, mode + 2, chosen), constant = own && within(c, mode + 3, chosen);
    if (own && within(c, mode + 1, chosen)) continue;
    for (int64_t j = 0; j < width; ++j) {
      float v = at >= 0 && at < given ? rows.ptr<float>()[at * width + j] : 0;
      if (copies || constant) v = more[0].ptr<float>()[row * width + j];
      if (constant) {
        const int64_t of = (chosen - c.ints(mode + 3)[0]) * width + j;
        v = more[1].ptr<float>()[of] * v + more[2].ptr<float>()[of] * more[3].ptr<float>()[of];
      }
      if (bias.given() && chosen >= 0 && chosen < bias.sizes[0]) v += bias.ptr<float>()[chosen * width + j];
      sum.ptr<float>()[row * width + j] += v * scale;
    }
  }
  copy(out, sum);
}

// ---- aclnnMoeReRouting(tokens, counts [ranks, experts], scales?, countType, idxType, tokens, scales, index, counts) --------
// Rows that came by rank and expert, by expert and rank.
void check_re_routing(const Call& c) {
  const TensorMeta& x = c.tensor(0);
  EXPECT(x.ndim > 0, "%s: tokens %s", c.name(), describe(x).c_str());
  for (int i : {3, 4}) EXPECT(c.integer(i) == 0 || c.integer(i) == 1, "%s: %s %ld", c.name(), c.row->args[i].name, c.integer(i));
  expect_same_shape(c, 5, 0);
  expect_same_dtype(c, 5, 0);
  if (c.given(2)) {
    EXPECT(c.tensor(2).ndim > 0 && c.tensor(2).sizes[0] == x.sizes[0], "%s: perTokenScales %s", c.name(), describe(c.tensor(2)).c_str());
    expect_same_dtype(c, 6, 2);
    expect_same_shape(c, 6, 2);
  }
  expect_numel(c, 7, x.sizes[0]);
  expect_numel(c, 8, c.tensor(1).sizes[1]);
}
void re_routing(Run& r) {
  const Value counts = whole(r, 1), index = full({r.call.tensor(0).sizes[0]}, mt::kInt64, 0);
  const int64_t ranks = counts.sizes[0], experts = counts.sizes[1], n = index.numel();
  const Value of = full({experts}, mt::kInt64, 0);
  std::vector<int64_t> start(size_t(ranks * experts), 0);
  for (int64_t i = 1; i < ranks * experts; ++i) start[size_t(i)] = start[size_t(i - 1)] + counts.ptr<int64_t>()[i - 1];
  int64_t to = 0;
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t k = 0; k < counts.ptr<int64_t>()[rank * experts + e]; ++k, ++to) {
        const int64_t from = start[size_t(rank * experts + e)] + k;
        if (from < 0 || from >= n || to >= n)
          throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnMoeReRouting: more tokens are counted than given");
        copy(r.tensor(5).select(0, to), r.tensor(0).select(0, from));
        if (r.given(2)) copy(r.tensor(6).select(0, to), r.tensor(2).select(0, from));
        index.ptr<int64_t>()[r.call.integer(4) ? from : to] = r.call.integer(4) ? to : from;
        ++of.ptr<int64_t>()[e];
      }
    if (r.call.integer(3) == 0 && e) of.ptr<int64_t>()[e] += of.ptr<int64_t>()[e - 1];
  }
  copy(r.tensor(7), index);
  copy(r.tensor(8), of);
}

// ---- aclnnMoeUpdateExpert(expertIds, eplbTable, scales?, threshold?, active?, localRank, worldSize, balanceMode, ids, mask) --
// A row of the table has the number of an expert's instances, then the instances: this rank's is taken.
void check_update_expert(const Call& c) {
  for (int i : {2, 3, 4})
    if (c.given(i)) refuse(561003, "%s with %s is not computed", c.name(), c.row->args[i].name);
  if (c.integer(7)) refuse(561003, "%s with balanceMode %ld is not computed", c.name(), c.integer(7));
  EXPECT(c.tensor(1).ndim == 2 && c.tensor(1).sizes[1] > 1, "%s: eplbTable %s", c.name(), describe(c.tensor(1)).c_str());
  EXPECT(c.integer(5) >= 0 && c.integer(5) < c.integer(6), "%s: rank %ld of %ld", c.name(), c.integer(5), c.integer(6));
  expect_same_shape(c, 8, 0);
}
void update_expert(Run& r) {
  const Value ids = whole(r, 0), table = whole(r, 1), made = empty(ids.shape(), mt::kInt64);
  const int64_t width = table.sizes[1], rank = r.call.integer(5), ranks = r.call.integer(6);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.ptr<int64_t>()[i];
    const int64_t* row = table.ptr<int64_t>() + id * width;
    const int64_t n = id >= 0 && id < table.sizes[0] ? row[0] : 0, at = n > 0 ? rank / ((ranks + n - 1) / n) + 1 : width;
    if (at >= width)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnMoeUpdateExpert: expert " + std::to_string(id) + " is not in the table");
    made.ptr<int64_t>()[i] = row[at];
  }
  copy(r.tensor(8), made);
}

// ---- aclnnMoeGatingTopKBackward(xNorm, gradY, expertIdx, renorm, normType, factor, eps, out) -------------------------------
// Of the sigmoid, which CANN alone offers: the chosen scores were divided by their sum.
void check_gating_grad(const Call& c) {
  if (c.integer(4) != 1) refuse(561003, "%s with normType %ld is not computed", c.name(), c.integer(4));
  expect_same_shape(c, 2, 1);
  expect_same_shape(c, 7, 0);
  EXPECT(c.tensor(0).sizes[0] == c.tensor(1).sizes[0], "%s: gradY %s", c.name(), describe(c.tensor(1)).c_str());
}
void gating_grad(Run& r) {
  const Value norm = floats(r, 0), grad = floats(r, 1), expert = whole(r, 2), made = full(norm.shape(), mt::kFloat, 0);
  const int64_t experts = norm.sizes[1], k = grad.sizes[1];
  const float factor = float(r.call.number(5));
  for (int64_t row = 0; row < norm.sizes[0]; ++row) {
    const float* score = norm.ptr<float>() + row * experts;
    const int64_t* chosen = expert.ptr<int64_t>() + row * k;
    float sum = float(r.call.number(6)), mean = 0;
    for (int64_t j = 0; j < k; ++j)
      if (chosen[j] < 0 || chosen[j] >= experts)
        throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, "aclnnMoeGatingTopKBackward: expert " + std::to_string(chosen[j]) + " of " + std::to_string(experts));
    for (int64_t j = 0; j < k; ++j) sum += score[chosen[j]];
    for (int64_t j = 0; j < k; ++j) mean += score[chosen[j]] / sum * factor * grad.ptr<float>()[row * k + j];
    for (int64_t j = 0; j < k; ++j) {
      const float s = score[chosen[j]];
      made.ptr<float>()[row * experts + chosen[j]] += (factor * grad.ptr<float>()[row * k + j] - mean) / sum * s * (1 - s);
    }
  }
  copy(r.tensor(7), made);
}

const Op ops[] = {
    {"aclnnMoeGatingTopK", check_gating, gating},
    {"aclnnMoeGatingTopKV2", check_gating, gating},
    {"aclnnMoeGatingTopKBackward", check_gating_grad, gating_grad},
    {"aclnnMoeFinalizeRoutingV2", check_finalize, finalize},
    {"aclnnMoeFinalizeRoutingV4", check_finalize, finalize},
    {"aclnnMoeReRouting", check_re_routing, re_routing},
    {"aclnnMoeUpdateExpert", check_update_expert, update_expert},
};

}  // namespace
}  // namespace cann_sim
