// Mixture of experts: tokens sorted by expert for the newer routing ops, quantised on the way, and the gradients of routing.
#include <algorithm>
#include <cmath>

#include "ops/attention.h"  // argument()
#include "ops/result.h"

namespace cann_sim {
namespace {

Value floats(Run& r, int i) { return i >= 0 && r.given(i) && r.call.tensor(i).numel() ? r.tensor(i).to(mt::kFloat).dense() : Value(); }
Value whole(Run& r, int i) { return r.tensor(i).to(mt::kInt64).dense(); }
bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }

// Where the versions of the op keep their arguments; -1: it has none.
struct Places {
  int scale, offset, active, capacity, experts, drops, count_kind, count_flag, quant, range, row_kind, x_out, row_out, count_out,
      before_out, scale_out;
  explicit Places(const Call& c)
      : scale(argument(c, {"scaleOptional"})), offset(argument(c, {"offsetOptional"})),
        active(argument(c, {"activeNum", "activeNumOptional"})), capacity(argument(c, {"expertCapacity", "expertCapacityOptional"})),
        experts(argument(c, {"expertNum", "expertNumOptional"})), drops(argument(c, {"dropPadMode", "dropPadModeOptional"})),
        count_kind(argument(c, {"expertTokensNumType", "expertTokensCountOrCumsumFlag", "expertTokensCountOrCumsumFlagOptional"})),
        count_flag(argument(c, {"expertTokensNumFlag"})), quant(argument(c, {"quantMode"})),
        range(argument(c, {"activeExpertRangeOptional"})), row_kind(argument(c, {"rowIdxType"})),
        x_out(argument(c, {"expandedXOut"})), row_out(argument(c, {"expandedRowIdxOut"})),
        count_out(argument(c, {"expertTokensCountOrCumsumOut", "expertTokensCountOrCumsumOutOptional"})),
        before_out(argument(c, {"expertTokensBeforeCapacityOutOptional"})),
        scale_out(argument(c, {"expandedScaleOut", "dynamicQuantScaleOutOptional"})) {}
  bool third() const { return range >= 0; }
  int64_t first(const Call& c) const { return third() && c.given(range) && c.ints(range).size() == 2 ? c.ints(range)[0] : 0; }
  int64_t last(const Call& c) const {
    return third() && c.given(range) && c.ints(range).size() == 2 ? c.ints(range)[1] : c.integer(experts);
  }
  // 0: ends of the experts' rows, 1: how many, 2: pairs of expert and number; -1: not asked for.
  int64_t counts(const Call& c) const {
    if (third()) return c.integer(count_flag) ? c.integer(count_kind) : -1;
    return c.integer(count_kind) - 1;
  }
  int64_t quantises(const Call& c) const { return quant < 0 ? -1 : c.integer(quant); }
};

void check_init(const Call& c) {
  const Places at(c);
  const TensorMeta &x = c.tensor(0), &chosen = c.tensor(1), &out = c.tensor(at.x_out);
  EXPECT(x.ndim == 2 && chosen.ndim == 2 && x.sizes[0] == chosen.sizes[0], "x %s for the choices %s", describe(x).c_str(),
         describe(chosen).c_str());
  const bool drops = c.integer(at.drops);
  EXPECT(!drops || (c.integer(at.experts) > 0 && c.integer(at.capacity) > 0), "experts %ld of capacity %ld",
         c.integer(at.experts), c.integer(at.capacity));
  EXPECT(out.ndim >= 2 && out.sizes[out.ndim - 1] == x.sizes[1], "expandedXOut %s for x %s", describe(out).c_str(),
         describe(x).c_str());
  if (drops) expect_numel(c, at.x_out, c.integer(at.experts) * c.integer(at.capacity) * x.sizes[1]);
  expect_numel(c, at.row_out, chosen.numel());
  const int64_t quant = at.quantises(c);
  EXPECT(quant >= -1 && quant <= 1, "quantMode %ld is not -1, 0 or 1", quant);
  EXPECT(quant < 0 || out.dtype == ACL_INT8, "expandedXOut of %s, expected int8", describe(out).c_str());
  EXPECT(quant != 0 || (has(c, at.scale) && has(c, at.offset)), "quantMode 0 needs a scale and an offset");
  if (quant == 1) EXPECT(c.given(at.scale_out), "quantMode 1 needs the output of the scales");
}

int8_t rounded(float x) {
  x = std::nearbyint(x);
  return int8_t(x < -128 ? -128 : x > 127 ? 127 : x == x ? x : 0);
}

// One token for one expert, as it goes out.
struct Writer {
  const Places at;
  const int64_t quant, width;
  const Value x, scale, offset, out, scales;
  Writer(Run& r, const Places& places)
      : at(places), quant(places.quantises(r.call)), width(r.call.tensor(0).sizes[1]), x(floats(r, 0)), scale(floats(r, at.scale)),
        offset(floats(r, at.offset)), out(full({r.call.tensor(at.x_out).numel() / std::max<int64_t>(width, 1), width}, mt::kFloat, 0)),
        scales(at.scale_out >= 0 && r.given(at.scale_out) ? full({out.size(0)}, mt::kFloat, 0) : Value()) {}
  void write(int64_t to, int64_t token, int64_t expert) const {  // the expert counts from the first of the range
    float* row = out.ptr<float>() + to * width;
    std::copy_n(x.ptr<float>() + token * width, width, row);
    if (quant < 0) {
      if (scales.given() && scale.given()) scales.ptr<float>()[to] = scale.ptr<float>()[token];
      return;
    }
    const bool by_expert = scale.given() && scale.numel() > width;
    if (quant == 0) {
      for (int64_t i = 0; i < width; ++i)
        row[i] = rounded(row[i] * scale.ptr<float>()[by_expert ? expert * width + i : scale.numel() == 1 ? 0 : i] +
                         offset.ptr<float>()[by_expert ? expert * width + i : offset.numel() == 1 ? 0 : i]);
      return;
    }
    float most = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (scale.given()) row[i] *= scale.ptr<float>()[by_expert ? expert * width + i : scale.numel() == 1 ? 0 : i];
      most = std::max(most, std::fabs(row[i]));
    }
    scales.ptr<float>()[to] = most / 127;
    for (int64_t i = 0; i < width; ++i) row[i] = most > 0 ? rounded(row[i] / (most / 127)) : 0;
  }
};

void write_counts(Run& r, const Places& at, const std::vector<int64_t>& counts) {
  const int64_t kind = at.counts(r.call), n = int64_t(counts.size());
  if (kind < 0 || at.count_out < 0 || !r.given(at.count_out)) return;
  const Value out = r.tensor(at.count_out), made = full({out.numel()}, mt::kInt64, 0);
  int64_t sum = 0, k = 0;
  for (int64_t e = 0; e < n; ++e) {
    sum += counts[size_t(e)];
    if (kind == 2 && counts[size_t(e)] && 2 * k + 1 < made.numel()) {
      made.ptr<int64_t>()[2 * k] = at.first(r.call) + e;
      made.ptr<int64_t>()[2 * k++ + 1] = counts[size_t(e)];
    }
    if (kind < 2 && e < made.numel()) made.ptr<int64_t>()[e] = kind ? counts[size_t(e)] : sum;
  }
  copy(out, made.reshape(out.shape()));
}

void init(Run& r) {
  const Call& c = r.call;
  const Places at(c);
  const Value chosen = whole(r, 1);
  const int64_t n = chosen.numel(), k = c.tensor(1).sizes[1], first = at.first(c), last = at.last(c);
  const int64_t capacity = c.integer(at.capacity), drops = c.integer(at.drops);
  int64_t experts = std::max<int64_t>(last - first, 0);
  if (!at.third() && !experts)          // it need not be said where nothing is dropped or counted
    for (int64_t i = 0; i < n; ++i) experts = std::max(experts, chosen.ptr<int64_t>()[i] + 1);
  std::vector<int64_t> order, counts(size_t(experts), 0);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t e = chosen.ptr<int64_t>()[i] - first;
    if (e < 0 || e >= experts) continue;
    order.push_back(i);
    ++counts[size_t(e)];
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return chosen.ptr<int64_t>()[a] < chosen.ptr<int64_t>()[b]; });
  const Writer writer(r, at);
  const Value rows = full({n}, mt::kInt64, -1);
  std::vector<int64_t> taken(size_t(experts), 0);
  int64_t most = writer.out.size(0);
  if (!drops && c.integer(at.active) > 0) most = std::min(most, c.integer(at.active));
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t from = order[i], e = chosen.ptr<int64_t>()[from] - first, place = taken[size_t(e)]++;
    const int64_t to = drops ? (place < capacity ? e * capacity + place : -1) : int64_t(i);
    const bool listed = at.row_kind >= 0 && c.integer(at.row_kind) == 1;
    rows.ptr<int64_t>()[listed ? int64_t(i) : from] = listed ? from : to;
    if (to >= 0 && to < most) writer.write(to, from / k, e);
  }
  copy(r.tensor(at.x_out), writer.out.reshape(r.tensor(at.x_out).shape()));
  copy(r.tensor(at.row_out), rows.reshape(r.tensor(at.row_out).shape()));
  if (!drops || at.third()) write_counts(r, at, counts);
  if (drops && has(c, at.before_out)) {
    const Value before = r.tensor(at.before_out), made = full({before.numel()}, mt::kInt64, 0);
    for (int64_t e = 0; e < std::min(experts, made.numel()); ++e) made.ptr<int64_t>()[e] = counts[size_t(e)];
    copy(before, made.reshape(before.shape()));
  }
  const bool scaled = writer.scales.given() && (writer.quant == 1 || (writer.quant < 0 && writer.scale.given()));
  if (scaled) copy(r.tensor(at.scale_out), writer.scales.reshape(r.tensor(at.scale_out).shape()));
}

// ---- aclnnMoeInitRoutingV2Grad(gradExpandedX, expandedRowIdx, topK, dropPadMode, activeNum, out) --------------------------
void check_init_grad(const Call& c) {
  const TensorMeta& out = c.tensor(5);
  EXPECT(c.integer(2) > 0 && out.ndim == 2 && c.tensor(1).numel() == out.sizes[0] * c.integer(2) &&
             c.tensor(0).sizes[c.tensor(0).ndim - 1] == out.sizes[1],
         "out %s for gradients %s of %ld choices", describe(out).c_str(), describe(c.tensor(0)).c_str(), c.integer(2));
}
void init_grad(Run& r) {
  const Value grad = floats(r, 0), where = whole(r, 1), sum = full(r.tensor(5).shape(), mt::kFloat, 0);
  const int64_t k = r.call.integer(2), width = sum.size(1), rows = width ? grad.numel() / width : 0;
  const int64_t most = r.call.integer(4) > 0 && !r.call.integer(3) ? std::min(rows, r.call.integer(4)) : rows;
  for (int64_t i = 0; i < where.numel(); ++i) {
    const int64_t at = where.ptr<int64_t>()[i];
    if (at < 0 || at >= most) continue;  // it was dropped
    for (int64_t j = 0; j < width; ++j) sum.ptr<float>()[i / k * width + j] += grad.ptr<float>()[at * width + j];
  }
  copy(r.tensor(5), sum);
}

// ---- aclnnMoeFinalizeRoutingV2Grad(gradY, rowIdx, expandedX?, scales?, expertIdx?, bias?, drop, active, experts, capacity, dx, dscales)
void check_finalize_grad(const Call& c) {
  const TensorMeta& dy = c.tensor(0);
  EXPECT(dy.ndim == 2 && dy.sizes[0] && c.tensor(1).numel() % dy.sizes[0] == 0, "%ld choices for gradients %s", c.tensor(1).numel(),
         describe(dy).c_str());
  EXPECT(c.tensor(10).sizes[c.tensor(10).ndim - 1] == dy.sizes[1], "gradExpandedXOut %s", describe(c.tensor(10)).c_str());
  if (!has(c, 3)) return;
  EXPECT(has(c, 2), "scales need expandedX");
  expect_numel(c, 3, c.tensor(1).numel());
  expect_same_shape(c, 11, 3);
  if (has(c, 5)) EXPECT(has(c, 4), "a bias needs expertIdx");
}
void finalize_grad(Run& r) {
  const Value dy = floats(r, 0), where = whole(r, 1), x = floats(r, 2), scales = floats(r, 3), bias = floats(r, 5);
  const Value expert = has(r.call, 4) ? whole(r, 4) : Value();
  const int64_t width = dy.size(1), k = where.numel() / dy.size(0);
  const Value out = r.tensor(10), dx = full({width ? out.numel() / width : 0, width}, mt::kFloat, 0);
  const Value ds = scales.given() ? full({where.numel()}, mt::kFloat, 0) : Value();
  for (int64_t i = 0; i < where.numel(); ++i) {
    const int64_t at = where.ptr<int64_t>()[i];
    const float scale = scales.given() ? scales.ptr<float>()[i] : 1, *from = dy.ptr<float>() + i / k * width;
    const bool here = at >= 0 && at < dx.size(0);
    for (int64_t j = 0; j < width; ++j) {
      if (here) dx.ptr<float>()[at * width + j] = from[j] * scale;
      if (!ds.given()) continue;
      float value = here ? x.ptr<float>()[at * width + j] : 0;
      if (bias.given()) value += bias.ptr<float>()[expert.ptr<int64_t>()[i] * width + j];
      ds.ptr<float>()[i] += from[j] * value;
    }
  }
  copy(out, dx.reshape(out.shape()));
  if (ds.given()) copy(r.tensor(11), ds.reshape(r.tensor(11).shape()));
}

// ---- aclnnMoeTokenPermuteWithRoutingMap(tokens, map, probs?, numOut, dropAndPad, tokensOut, probsOut?, sortedOut) ----------
// The map has a row a token and a column an expert; what an expert gets stays in the order of the tokens.
void check_routing_map(const Call& c) {
  const TensorMeta &x = c.tensor(0), &map = c.tensor(1), &out = c.tensor(5);
  EXPECT(x.ndim == 2 && map.ndim == 2, "tokens %s, routingMap %s", describe(x).c_str(), describe(map).c_str());
  EXPECT(map.sizes[0] == x.sizes[0] || map.sizes[1] == x.sizes[0], "routingMap %s for tokens %s", describe(map).c_str(),
         describe(x).c_str());
  EXPECT(!c.integer(4) || map.sizes[0] * map.sizes[1] > 0, "dropAndPad needs experts: routingMap %s", describe(map).c_str());
  EXPECT(out.ndim == 2 && out.sizes[1] == x.sizes[1], "permuteTokensOut %s", describe(out).c_str());
  if (has(c, 2)) expect_numel(c, 2, map.numel());
  if (has(c, 2) && has(c, 6)) expect_numel(c, 6, out.sizes[0]);
  expect_numel(c, 7, c.integer(4) ? out.sizes[0] : c.tensor(7).numel());
}
void routing_map(Run& r) {
  const Value x = r.tensor(0), map = whole(r, 1), probs = floats(r, 2), out = r.tensor(5);
  const int64_t tokens = x.size(0), experts = map.size(1), capacity = r.call.integer(4) ? out.size(0) / experts : 0;
  const Value made = full({out.size(0)}, mt::kFloat, 0), sorted = full({r.tensor(7).numel()}, mt::kInt64, 0);
  std::vector<int64_t> nth(static_cast<size_t>(tokens), 0);  // of a token's choices
  int64_t most = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t chosen = 0;
    for (int64_t e = 0; e < experts; ++e) chosen += map.ptr<int64_t>()[t * experts + e] != 0;
    most = std::max(most, chosen);
  }
  fill(out, 0);
  int64_t to = 0;
  for (int64_t e = 0; e < experts; ++e) {
    int64_t taken = 0;
    if (capacity) to = e * capacity;
    for (int64_t t = 0; t < tokens; ++t) {
      if (!map.ptr<int64_t>()[t * experts + e] || (capacity && taken == capacity)) continue;
      if (to < out.size(0)) {
        copy(out.select(0, to), x.select(0, t));
        if (probs.given()) made.ptr<float>()[to] = probs.ptr<float>()[t * experts + e];
      }
      // Where each choice of a token went; with a capacity, which token each row holds.
      const int64_t at = capacity ? to : t * most + nth[size_t(t)]++;
      if (at < sorted.numel()) sorted.ptr<int64_t>()[at] = capacity ? t : to;
      ++to, ++taken;
    }
  }
  if (has(r.call, 6) && probs.given()) copy(r.tensor(6), made.reshape(r.tensor(6).shape()));
  copy(r.tensor(7), sorted.reshape(r.tensor(7).shape()));
}

// The weight of every row that went to an expert, in the order of the experts and, of one, of the tokens; or back from it.
template <class F> void each_weight(const Value& map, F&& visit) {
  const int64_t tokens = map.size(0), experts = map.size(1);
  int64_t row = 0;
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t t = 0; t < tokens; ++t)
      if (map.ptr<int64_t>()[t * experts + e]) visit(row++, t * experts + e);
}
// (permutedTokens, sortedIndices, routingMap?, probs?, paddedMode, restoreShape?, tokens, outIndex, permuteTokenId, permuteProbs?)
// With a capacity, sortedIndices say which token each row holds; else where each choice of a token went, -1 for none.
void check_unpermute_map(const Call& c) {
  const TensorMeta &rows = c.tensor(0), &out = c.tensor(6);
  EXPECT(rows.ndim == 2 && out.ndim == 2 && out.sizes[1] == rows.sizes[1], "%s: permutedTokens %s and unpermutedTokens %s", c.name(), describe(rows).c_str(),
         describe(out).c_str());
  EXPECT(out.sizes[0] > 0 && (c.integer(4) || c.tensor(1).numel() % out.sizes[0] == 0), "%s: sortedIndices %s does not fit", c.name(), describe(c.tensor(1)).c_str());
  if (c.integer(4)) expect_numel(c, 1, rows.sizes[0]);
  for (int i : {7, 8})
    if (has(c, i)) expect_numel(c, i, c.tensor(1).numel());
  if (has(c, 3)) EXPECT(c.tensor(3).ndim == 2 && c.tensor(3).sizes[0] == out.sizes[0] && (c.integer(4) || has(c, 2)), "%s: probs %s does not fit", c.name(),
                        describe(c.tensor(3)).c_str());
  if (has(c, 3) && has(c, 2)) expect_same_shape(c, 2, 3);
}
void unpermute_map(Run& r) {
  const Call& c = r.call;
  const Value rows = floats(r, 0), sorted = whole(r, 1), probs = floats(r, 3), out = r.tensor(6), made = full(out.shape(), mt::kFloat, 0);
  const int64_t width = rows.size(1), n = sorted.numel(), padded = c.integer(4), each = padded ? 1 : n / out.size(0);
  const Value weights = full({rows.size(0)}, mt::kFloat, 1);
  if (probs.given() && !padded)
    each_weight(whole(r, 2), [&](int64_t row, int64_t at) { if (row < rows.size(0)) weights.ptr<float>()[row] = probs.ptr<float>()[at]; });
  if (probs.given() && padded) {
    const int64_t experts = probs.size(1), capacity = std::max<int64_t>(n / experts, 1);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t token = sorted.ptr<int64_t>()[i], expert = i / capacity;
      if (token >= 0 && token < probs.size(0) && expert < experts) weights.ptr<float>()[i] = probs.ptr<float>()[token * experts + expert];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = padded ? i : sorted.ptr<int64_t>()[i], token = padded ? sorted.ptr<int64_t>()[i] : i / each;
    if (row < 0 || row >= rows.size(0) || token < 0 || token >= out.size(0)) continue;
    for (int64_t k = 0; k < width; ++k) made.ptr<float>()[token * width + k] += rows.ptr<float>()[row * width + k] * weights.ptr<float>()[row];
  }
  copy(out, made);
  if (probs.given() && has(c, 9)) copy(r.tensor(9), weights.narrow(0, 0, r.tensor(9).numel()).reshape(r.tensor(9).shape()));
  // What the gradient reads: row outIndex[i] is of token permuteTokenId[i].
  std::vector<int64_t> order(size_t(n), 0);
  for (int64_t i = 0; i < n; ++i) order[size_t(i)] = i;
  if (padded) std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return sorted.ptr<int64_t>()[a] < sorted.ptr<int64_t>()[b]; });
  const Value index = empty({n}, mt::kInt64), token = empty({n}, mt::kInt64);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = sorted.ptr<int64_t>()[order[size_t(i)]];
    index.ptr<int64_t>()[i] = padded ? order[size_t(i)] : at;
    token.ptr<int64_t>()[i] = padded ? at : i / each;
  }
  if (has(c, 7)) copy(r.tensor(7), index.reshape(r.tensor(7).shape()));
  if (has(c, 8)) copy(r.tensor(8), token.reshape(r.tensor(8).shape()));
}
// (rowsGrad, probsGrad?, sortedIndices, routingMap?, experts, tokens, dropAndPad, tokensGrad, probsGradOut?)
void check_map_grad(const Call& c) {
  EXPECT(c.tensor(0).ndim == 2 && c.integer(5) > 0, "%s: permutedTokenOutputGrad %s", c.name(), describe(c.tensor(0)).c_str());
  expect_shape(c, 7, {c.integer(5), c.tensor(0).sizes[1]});
  EXPECT(c.integer(6) || c.tensor(2).numel() % c.integer(5) == 0, "%s: sortedIndices %s does not fit", c.name(), describe(c.tensor(2)).c_str());
  if (has(c, 8)) {
    expect_shape(c, 8, {c.integer(5), c.integer(4)});
    EXPECT(has(c, 1) && (c.integer(6) || has(c, 3)), "%s: the gradient of probs needs that of the rows, and routingMap", c.name());
    if (!c.integer(6)) expect_shape(c, 3, {c.integer(5), c.integer(4)});
  }
}
void map_grad(Run& r) {
  const Call& c = r.call;
  const Value grad = floats(r, 0), sorted = whole(r, 2), out = r.tensor(7), made = full(out.shape(), mt::kFloat, 0);
  const int64_t width = grad.size(1), n = sorted.numel(), padded = c.integer(6), experts = c.integer(4), each = padded ? 1 : n / c.integer(5);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t row = padded ? i : sorted.ptr<int64_t>()[i], token = padded ? sorted.ptr<int64_t>()[i] : i / each;
    if (row < 0 || row >= grad.size(0) || token < 0 || token >= out.size(0)) continue;
    for (int64_t k = 0; k < width; ++k) made.ptr<float>()[token * width + k] += grad.ptr<float>()[row * width + k];
  }
  copy(out, made);
  if (!has(c, 8)) return;
  const Value from = floats(r, 1), probs = full(r.tensor(8).shape(), mt::kFloat, 0);
  if (padded)
    for (int64_t i = 0, capacity = std::max<int64_t>(n / experts, 1); i < std::min(n, from.numel()); ++i) {
      const int64_t token = sorted.ptr<int64_t>()[i], expert = i / capacity;
      if (token >= 0 && token < probs.size(0) && expert < experts) probs.ptr<float>()[token * experts + expert] = from.ptr<float>()[i];
    }
  else each_weight(whole(r, 3), [&](int64_t row, int64_t at) { if (row < from.numel()) probs.ptr<float>()[at] = from.ptr<float>()[row]; });
  copy(r.tensor(8), probs);
}

// (tokensGrad, outIndex, permuteTokenId, routingMap?, permutedTokens?, probs?, dropAndPad, restoreShape?, rowsGrad, probsGrad?)
// Row outIndex[i] came from token permuteTokenId[i]; with probs, rows are weighted in the order of each_weight, or of the capacity.
void check_unpermute_map_grad(const Call& c) {
  const TensorMeta &grad = c.tensor(0), &rows = c.tensor(8);
  EXPECT(rows.ndim == 2 && rows.sizes[1] == grad.sizes[1], "%s: permutedTokensGrad %s for %s", c.name(), describe(rows).c_str(), describe(grad).c_str());
  expect_numel(c, 2, c.tensor(1).numel());
  EXPECT(c.integer(6) || (grad.sizes[0] && c.tensor(1).numel() % grad.sizes[0] == 0), "%s: outIndex %s for %s", c.name(), describe(c.tensor(1)).c_str(),
         describe(grad).c_str());
  if (!has(c, 5)) return;
  EXPECT(has(c, 3) && has(c, 4) && has(c, 9), "%s: probs need routingMap, permutedTokens and probsGrad", c.name());
  expect_same_shape(c, 4, 8);
  for (int i : {3, 9}) expect_same_shape(c, i, 5);
}
void unpermute_map_grad(Run& r) {
  const Call& c = r.call;
  const Value grad = floats(r, 0), index = whole(r, 1), token = whole(r, 2), rows = floats(r, 4), probs = floats(r, 5), out = r.tensor(8);
  const Value made = full(out.shape(), mt::kFloat, 0), weights = full({out.size(0)}, mt::kFloat, 0);
  const int64_t width = grad.size(1), n = index.numel(), each = grad.size(0) ? n / grad.size(0) : 0;
  for (int64_t i = 0; i < n; ++i) {
    // Without a capacity a token's choices stand together; torch_npu passes sortedIndices for permuteTokenId then.
    const int64_t row = index.ptr<int64_t>()[i], from = c.integer(6) ? token.ptr<int64_t>()[i] : i / each;
    if (row < 0 || row >= out.size(0) || from < 0 || from >= grad.size(0)) continue;
    for (int64_t k = 0; k < width; ++k) {
      const float g = grad.ptr<float>()[from * width + k];
      made.ptr<float>()[row * width + k] = g;
      if (probs.given()) weights.ptr<float>()[row] += g * rows.ptr<float>()[row * width + k];
    }
  }
  if (probs.given()) {
    const Value slopes = full(probs.shape(), mt::kFloat, 0);
    auto weigh = [&](int64_t row, int64_t at) {
      if (row < 0 || row >= out.size(0) || at < 0 || at >= probs.numel()) return;
      slopes.ptr<float>()[at] = weights.ptr<float>()[row];
      for (int64_t k = 0; k < width; ++k) made.ptr<float>()[row * width + k] *= probs.ptr<float>()[at];
    };
    const int64_t experts = probs.size(1), capacity = std::max<int64_t>(n / experts, 1);
    if (!c.integer(6)) each_weight(whole(r, 3), weigh);
    else
      for (int64_t i = 0; i < n; ++i) weigh(index.ptr<int64_t>()[i], token.ptr<int64_t>()[i] * experts + index.ptr<int64_t>()[i] / capacity);
    copy(r.tensor(9), slopes);
  }
  copy(out, made);
}

const Op ops[] = {
    {"aclnnMoeTokenUnpermuteWithRoutingMapGrad", check_unpermute_map_grad, unpermute_map_grad},
    {"aclnnMoeInitRoutingV2", check_init, init},
    {"aclnnMoeInitRoutingQuantV2", check_init, init},
    {"aclnnMoeInitRoutingV3", check_init, init},
    {"aclnnMoeInitRoutingV2Grad", check_init_grad, init_grad},
    {"aclnnMoeFinalizeRoutingV2Grad", check_finalize_grad, finalize_grad},
    {"aclnnMoeTokenPermuteWithRoutingMap", check_routing_map, routing_map},
    {"aclnnMoeTokenPermuteWithRoutingMapGrad", check_map_grad, map_grad},
    {"aclnnMoeTokenUnpermuteWithRoutingMap", check_unpermute_map, unpermute_map},
};

}  // namespace
}  // namespace cann_sim
