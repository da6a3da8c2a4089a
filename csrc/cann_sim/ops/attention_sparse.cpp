// Attention to a few keys of long sequences: the indexer that chooses them, the attention to those; and attention over triples.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ops/attention.h"  // argument()
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value floats(Run& r, int i) { return r.tensor(i).to(mt::kFloat).dense(); }
std::string layout_of(const Call& c, int i) { return c.given(i) && *c.string(i) ? c.string(i) : "BSND"; }
float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(a[i]) * b[i];
  return float(sum);
}

// ---- sequences of queries and keys in any layout: BSND, TND (lengths are ends), and pages of keys --------------------------
struct Layouts {
  int query, key, q_lengths, k_lengths, table, q_layout, k_layout, mode;
  explicit Layouts(const Call& c)
      : query(argument(c, {"query"})), key(argument(c, {"key"})),
        q_lengths(argument(c, {"actualSeqLengthsQueryOptional", "actualSeqLengthsQuery"})),
        k_lengths(argument(c, {"actualSeqLengthsKeyOptional", "actualSeqLengthsKv"})),
        table(argument(c, {"blockTableOptional", "blockTable"})), q_layout(argument(c, {"layoutQueryOptional", "layoutQuery"})),
        k_layout(argument(c, {"layoutKeyOptional", "layoutKv"})), mode(argument(c, {"sparseMode"})) {}
};
void expect_layouts(const Call& c, const Layouts& at) {
  const std::string q = layout_of(c, at.q_layout), k = layout_of(c, at.k_layout);
  const TensorMeta &query = c.tensor(at.query), &key = c.tensor(at.key);
  EXPECT(q == "BSND" || q == "TND", "%s: layout %s of queries", c.name(), q.c_str());
  EXPECT(k == "BSND" || k == "TND" || k == "PA_BSND", "%s: layout %s of keys", c.name(), k.c_str());
  EXPECT(query.ndim == (q == "TND" ? 3 : 4) && key.ndim == (k == "TND" ? 3 : 4) && query.numel() && key.numel(), "%s: query %s, key %s", c.name(),
         describe(query).c_str(), describe(key).c_str());
  EXPECT(key.sizes[key.ndim - 2] == 1 && key.sizes[key.ndim - 1] == query.sizes[query.ndim - 1], "%s: key %s has not one head of the query's depth", c.name(),
         describe(key).c_str());
  EXPECT(q != "TND" || has(c, at.q_lengths), "%s: layout TND needs the lengths of queries", c.name());
  EXPECT(k == "BSND" || has(c, at.k_lengths), "%s: layout %s needs the lengths of keys", c.name(), k.c_str());
  EXPECT((k == "PA_BSND") == has(c, at.table), "%s: a blockTable goes with layout PA_BSND", c.name());
  EXPECT(c.integer(at.mode) == 0 || c.integer(at.mode) == 3, "%s: sparseMode %ld is not 0 or 3", c.name(), c.integer(at.mode));
  const int64_t batch = q == "TND" ? c.tensor(at.q_lengths).numel() : query.sizes[0];
  for (int i : {at.q_lengths, at.k_lengths})
    if (has(c, i)) expect_numel(c, i, batch);
  EXPECT(k != "BSND" || key.sizes[0] == batch, "%s: key %s for %ld sequences", c.name(), describe(key).c_str(), batch);
}
class Sequences {
 public:
  Sequences(Run& r, const Layouts& at) : causal_(r.call.integer(at.mode) == 3), key_(layout_of(r.call, at.k_layout)) {
    const TensorMeta &q = r.call.tensor(at.query), &k = r.call.tensor(at.key);
    const bool packed = layout_of(r.call, at.q_layout) == "TND";
    page_ = key_ == "TND" ? 0 : k.sizes[1];
    rows_ = k.numel() / k.sizes[k.ndim - 1];
    if (has(r.call, at.table)) table_ = index_value(r, at.table).dense();
    const Value ql = has(r.call, at.q_lengths) ? index_value(r, at.q_lengths).dense() : Value();
    const Value kl = has(r.call, at.k_lengths) ? index_value(r, at.k_lengths).dense() : Value();
    const int64_t batch = packed ? ql.numel() : q.sizes[0];
    for (int64_t b = 0; b < batch; ++b) {
      auto from = [b](const Value& ends) { return b ? ends.ptr<int64_t>()[b - 1] : 0; };
      One one;
      one.first = packed ? from(ql) : b * q.sizes[1];
      one.queries = packed ? ql.ptr<int64_t>()[b] - from(ql) : ql.given() ? ql.ptr<int64_t>()[b] : q.sizes[1];
      one.key = key_ == "TND" ? from(kl) : b * page_;
      one.keys = key_ == "TND" ? kl.ptr<int64_t>()[b] - from(kl) : kl.given() ? kl.ptr<int64_t>()[b] : page_;
      const int64_t rows = packed ? q.sizes[0] : one.first + q.sizes[1], keys = table_.given() ? table_.size(1) * page_ : key_ == "TND" ? rows_ : page_;
      if (one.queries < 0 || one.first < 0 || one.first + one.queries > rows || one.keys < 0 || one.keys > keys)
        throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(r.call.name()) + ": the lengths of sequence " + std::to_string(b) + " do not fit");
      all_.push_back(one);
    }
  }
  // Calls visit(row of the query, sequence, how many of its keys the query sees).
  template <class F> void each(F&& visit) const {
    for (int64_t b = 0; b < int64_t(all_.size()); ++b)
      for (int64_t i = 0; i < all_[size_t(b)].queries; ++i) {
        const One& one = all_[size_t(b)];
        visit(one.first + i, b, causal_ ? std::max<int64_t>(0, std::min(one.keys, i + 1 + one.keys - one.queries)) : one.keys);
      }
  }
  int64_t key_row(const Call& c, int64_t b, int64_t at) const {
    int64_t row = all_[size_t(b)].key + at;
    if (table_.given()) row = at / page_ < table_.size(1) ? table_.ptr<int64_t>()[b * table_.size(1) + at / page_] * page_ + at % page_ : -1;
    if (row < 0 || row >= rows_)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": key " + std::to_string(at) + " of a sequence is not in the cache");
    return row;
  }

 private:
  struct One {
    int64_t first, queries, key, keys;
  };
  bool causal_;
  std::string key_;
  int64_t page_, rows_;
  Value table_;
  std::vector<One> all_;
};

// ---- aclnnLightningIndexer(query, key, weights, lengths?, lengths?, table?, layout?, layout?, count, mode, before, after, values?,
//                            indices, values) : the best keys by the sum over heads of weight * relu(query key) ------------------
void check_indexer(const Call& c) {
  const Layouts at(c);
  expect_layouts(c, at);
  Sizes q = sizes_of(c.tensor(at.query));
  const int64_t count = c.integer(8);
  q.pop_back();
  expect_shape(c, 2, q);
  q.back() = 1;
  q.push_back(count);
  EXPECT(count > 0, "%s: sparseCount %ld", c.name(), count);
  expect_shape(c, 13, q);
  if (c.integer(12)) expect_shape(c, 14, q);
}
void indexer(Run& r) {
  const Call& c = r.call;
  const Layouts at(c);
  const Value q = floats(r, 0), k = floats(r, 1), w = floats(r, 2);
  const int64_t heads = q.size(-2), depth = q.size(-1), count = c.integer(8);
  const Sequences sequences(r, at);
  const Value chosen = full(r.tensor(13).shape(), mt::kInt64, -1), values = full(r.tensor(13).shape(), mt::kFloat, -INFINITY);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    std::vector<float> score(size_t(seen), 0);
    for (int64_t j = 0; j < seen; ++j) {
      const float* key = k.ptr<float>() + sequences.key_row(c, b, j) * depth;
      for (int64_t h = 0; h < heads; ++h)
        score[size_t(j)] += w.ptr<float>()[row * heads + h] * std::max(0.f, dot(q.ptr<float>() + (row * heads + h) * depth, key, depth));
    }
    std::vector<int64_t> order(static_cast<size_t>(seen));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return score[size_t(x)] > score[size_t(y)]; });
    for (int64_t n = 0; n < std::min(count, seen); ++n) {
      chosen.ptr<int64_t>()[row * count + n] = order[size_t(n)];
      values.ptr<float>()[row * count + n] = score[size_t(order[size_t(n)])];
    }
  });
  copy(r.tensor(13), chosen);
  if (c.integer(12)) copy(r.tensor(14), values);
}

// ---- aclnnSparseFlashAttention(query, key, value?, indices, table?, lengths?, lengths?, queryRope?, keyRope?, scale, block, layout?,
//                                layout?, mode, before, after, attentionMode, lse?, out, max?, sum?) -----------------------------
void check_sparse(const Call& c) {
  const Layouts at(c);
  expect_layouts(c, at);
  Sizes q = sizes_of(c.tensor(0)), of = q;
  EXPECT(c.integer(16) == 2, "%s: attentionMode %ld is not 2", c.name(), c.integer(16));
  EXPECT(c.integer(10) > 0, "%s: sparseBlockSize %ld", c.name(), c.integer(10));
  if (has(c, 2)) expect_same_shape(c, 2, 1);
  EXPECT(has(c, 7) == has(c, 8), "%s: queryRope and keyRope go together", c.name());
  if (has(c, 7)) {
    const int64_t place = c.tensor(7).sizes[c.tensor(7).ndim - 1];
    Sizes k = sizes_of(c.tensor(1));
    of.back() = k.back() = place;
    expect_shape(c, 7, of);
    expect_shape(c, 8, k);
  }
  const TensorMeta& chosen = c.tensor(3);
  of = q;
  of[of.size() - 2] = 1;
  of.back() = chosen.sizes[chosen.ndim - 1];
  expect_shape(c, 3, of);
  expect_shape(c, 18, q);
  const int64_t rows = c.tensor(0).numel() / q.back();
  for (int i : {19, 20})
    if (c.integer(17)) expect_numel(c, i, rows);
}
void sparse(Run& r) {
  const Call& c = r.call;
  const Layouts at(c);
  const Value q = floats(r, 0), k = floats(r, 1), v = has(c, 2) ? floats(r, 2) : k, chosen = index_value(r, 3).dense();
  const Value qr = has(c, 7) ? floats(r, 7) : Value(), kr = has(c, 7) ? floats(r, 8) : Value();
  const int64_t heads = q.size(-2), depth = q.size(-1), place = qr.given() ? qr.size(-1) : 0, count = chosen.size(-1), block = c.integer(10);
  const Sequences sequences(r, at);
  const Value out = full(q.shape(), mt::kFloat, 0), max = full({q.numel() / depth}, mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    std::vector<int64_t> keys;
    for (int64_t n = 0; n < count && chosen.ptr<int64_t>()[row * count + n] >= 0; ++n)
      for (int64_t j = chosen.ptr<int64_t>()[row * count + n] * block, end = std::min(j + block, seen); j < end; ++j)
        keys.push_back(sequences.key_row(c, b, j));
    if (keys.empty()) return;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t of = row * heads + h;
      std::vector<float> p;
      for (int64_t key : keys)
        p.push_back(float(c.number(9)) * (dot(q.ptr<float>() + of * depth, k.ptr<float>() + key * depth, depth) +
                                          (place ? dot(qr.ptr<float>() + of * place, kr.ptr<float>() + key * place, place) : 0)));
      const float top = max.ptr<float>()[of] = *std::max_element(p.begin(), p.end());
      float& total = sum.ptr<float>()[of];
      for (float& s : p) total += s = std::exp(s - top);
      for (size_t j = 0; j < keys.size(); ++j)
        for (int64_t d = 0; d < depth; ++d) out.ptr<float>()[of * depth + d] += p[j] / total * v.ptr<float>()[keys[j] * depth + d];
    }
  });
  copy(r.tensor(18), out);
  if (!c.integer(17)) return;
  for (int i : {19, 20}) {                                   // [B, 1, S, N] or [1, T, N]: as the rows lie
    const Value to = r.tensor(i);
    copy(to, (i == 19 ? max : sum).reshape(to.shape()));
  }
}

// ---- triples: query [B, H, N, M, D] with key1 [B, H, N, K, D] and key2 [B, H, K, M, D] ------------------------------------------
struct Triples {
  int64_t batch, heads, n, m, k, d;
  Triples(const TensorMeta& q, const TensorMeta& key)
      : batch(q.sizes[0]), heads(q.sizes[1]), n(q.sizes[2]), m(q.sizes[3]), k(key.sizes[3]), d(q.sizes[4]) {}
  int64_t first(int64_t h, int64_t i, int64_t j) const { return ((h * n + i) * k + j) * d; }    // of key1: n, k
  int64_t second(int64_t h, int64_t j, int64_t l) const { return ((h * k + j) * m + l) * d; }   // of key2: k, m
};
void expect_triples(const Call& c, int mask) {
  const Triples t(c.tensor(0), c.tensor(1));
  for (int i : {1, 2}) expect_shape(c, i, {t.batch, t.heads, t.n, t.k, t.d});
  for (int i : {3, 4}) expect_shape(c, i, {t.batch, t.heads, t.k, t.m, t.d});
  if (has(c, mask)) expect_shape(c, mask, {t.batch, 1, t.n, 1, t.k});
}
// The scores of query (h of all batches, i, l) with every key; -inf where the mask hides one.
std::vector<float> scores(const Triples& t, const Value& q, const Value& k1, const Value& k2, const Value& mask, double scale, int64_t h, int64_t i, int64_t l) {
  std::vector<float> s(static_cast<size_t>(t.k));
  const float* query = q.ptr<float>() + ((h * t.n + i) * t.m + l) * t.d;
  for (int64_t j = 0; j < t.k; ++j) {
    const bool hidden = mask.given() && mask.ptr<int64_t>()[(h / t.heads * t.n + i) * t.k + j];
    s[size_t(j)] = hidden ? -INFINITY : float(scale) * (dot(query, k1.ptr<float>() + t.first(h, i, j), t.d) + dot(query, k2.ptr<float>() + t.second(h, j, l), t.d));
  }
  return s;
}
template <class F> void each_triple_row(const Triples& t, F&& visit) {
  for (int64_t row = 0; row < t.batch * t.heads * t.n * t.m; ++row) visit(row, row / (t.n * t.m), row / t.m % t.n, row % t.m);
}
void check_floyd(const Call& c) {
  expect_triples(c, 5);
  const Triples t(c.tensor(0), c.tensor(1));
  for (int i : {7, 8}) expect_shape(c, i, {t.batch, t.heads, t.n, t.m, 8});
  expect_same_shape(c, 9, 0);
}
void floyd(Run& r) {
  const Triples t(r.call.tensor(0), r.call.tensor(1));
  const Value q = floats(r, 0), k1 = floats(r, 1), v1 = floats(r, 2), k2 = floats(r, 3), v2 = floats(r, 4);
  const Value mask = has(r.call, 5) ? index_value(r, 5).dense() : Value();
  const Value out = full(q.shape(), mt::kFloat, 0), max = full(r.tensor(7).shape(), mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  each_triple_row(t, [&](int64_t row, int64_t h, int64_t i, int64_t l) {
    std::vector<float> p = scores(t, q, k1, k2, mask, r.call.number(6), h, i, l);
    const float top = *std::max_element(p.begin(), p.end());
    if (top == -INFINITY) return;                            // it sees nothing
    float total = 0;
    for (float& s : p) total += s = std::exp(s - top);
    for (int64_t j = 0; j < t.k; ++j)
      for (int64_t d = 0; d < t.d; ++d)
        out.ptr<float>()[row * t.d + d] += p[size_t(j)] / total * (v1.ptr<float>()[t.first(h, i, j) + d] + v2.ptr<float>()[t.second(h, j, l) + d]);
    std::fill_n(max.ptr<float>() + row * 8, 8, top);
    std::fill_n(sum.ptr<float>() + row * 8, 8, total);
  });
  copy(r.tensor(7), max);
  copy(r.tensor(8), sum);
  copy(r.tensor(9), out);
}
void check_floyd_grad(const Call& c) {  // (query, key1, value1, key2, value2, dy, mask?, max, sum, out, scale, dq, dk1, dv1, dk2, dv2)
  expect_triples(c, 6);
  const Triples t(c.tensor(0), c.tensor(1));
  for (int i : {5, 9, 11}) expect_same_shape(c, i, 0);
  for (int i : {7, 8}) expect_shape(c, i, {t.batch, t.heads, t.n, t.m, 8});
  for (int i : {12, 13, 14, 15}) expect_same_shape(c, i, i - 11);
}
void floyd_grad(Run& r) {
  const Triples t(r.call.tensor(0), r.call.tensor(1));
  const Value q = floats(r, 0), k1 = floats(r, 1), v1 = floats(r, 2), k2 = floats(r, 3), v2 = floats(r, 4), dy = floats(r, 5);
  const Value mask = has(r.call, 6) ? index_value(r, 6).dense() : Value(), max = floats(r, 7), sum = floats(r, 8);
  const float scale = float(r.call.number(10));
  Value made[5];
  for (int i = 0; i < 5; ++i) made[i] = full(r.tensor(i).shape(), mt::kFloat, 0);
  each_triple_row(t, [&](int64_t row, int64_t h, int64_t i, int64_t l) {
    if (!(sum.ptr<float>()[row * 8] > 0)) return;
    std::vector<float> p = scores(t, q, k1, k2, mask, scale, h, i, l), slope(p.size());
    const float *g = dy.ptr<float>() + row * t.d, *query = q.ptr<float>() + row * t.d;
    float along = 0;
    for (int64_t j = 0; j < t.k; ++j) {
      p[size_t(j)] = std::exp(p[size_t(j)] - max.ptr<float>()[row * 8]) / sum.ptr<float>()[row * 8];
      slope[size_t(j)] = dot(g, v1.ptr<float>() + t.first(h, i, j), t.d) + dot(g, v2.ptr<float>() + t.second(h, j, l), t.d);
      along += p[size_t(j)] * slope[size_t(j)];
    }
    for (int64_t j = 0; j < t.k; ++j) {
      const float ds = p[size_t(j)] * (slope[size_t(j)] - along) * scale;
      const int64_t a = t.first(h, i, j), b = t.second(h, j, l);
      for (int64_t d = 0; d < t.d; ++d) {
        made[0].ptr<float>()[row * t.d + d] += ds * (k1.ptr<float>()[a + d] + k2.ptr<float>()[b + d]);
        made[1].ptr<float>()[a + d] += ds * query[d];
        made[2].ptr<float>()[a + d] += p[size_t(j)] * g[d];
        made[3].ptr<float>()[b + d] += ds * query[d];
        made[4].ptr<float>()[b + d] += p[size_t(j)] * g[d];
      }
    }
  });
  for (int i = 0; i < 5; ++i) copy(r.tensor(11 + i), made[i]);
}

const Op ops[] = {
    {"aclnnLightningIndexer", check_indexer, indexer},
    {"aclnnSparseFlashAttention", check_sparse, sparse},
    {"aclnnFusedFloydAttention", check_floyd, floyd},
    {"aclnnFusedFloydAttentionGrad", check_floyd_grad, floyd_grad},
};

}  // namespace
}  // namespace cann_sim
