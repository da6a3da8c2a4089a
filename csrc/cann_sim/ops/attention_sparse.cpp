// Attention to a few chosen keys of long sequences, and its gradient; and attention over triples.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attention_sequences.h"

namespace cann_sim {
namespace {

// ---- aclnnSparseFlashAttention(query, key, value?, indices, table?, lengths?, lengths?, queryRope?, keyRope?, …, scale, block, …)
// V2 has sinks: a logit a head that takes part in the softmax and has no value. The value is the key where there is none.
struct Sparse {
  int value, chosen, q_rope, k_rope, sinks, scale, block, mode, lse, out, max, sum;
  explicit Sparse(const Call& c)
      : value(argument(c, {"value"})), chosen(argument(c, {"sparseIndices"})), q_rope(argument(c, {"queryRope"})), k_rope(argument(c, {"keyRope"})),
        sinks(argument(c, {"sinksOptional"})), scale(argument(c, {"scaleValue"})), block(argument(c, {"sparseBlockSize"})),
        mode(argument(c, {"attentionMode"})), lse(argument(c, {"returnSoftmaxLse"})), out(argument(c, {"attentionOutOut"})),
        max(argument(c, {"softmaxMaxOut", "softmaxMax"})), sum(argument(c, {"softmaxSumOut", "softmaxSum"})) {}
};
void expect_chosen(const Call& c, const Sparse& at) {
  Sizes of = sizes_of(c.tensor(0));
  EXPECT(c.integer(at.block) > 0, "%s: sparseBlockSize %ld", c.name(), c.integer(at.block));
  const TensorMeta& chosen = c.tensor(at.chosen);
  of[of.size() - 2] = 1;
  of.back() = chosen.ndim ? chosen.sizes[chosen.ndim - 1] : 0;
  expect_shape(c, at.chosen, of);
}
void expect_ropes(const Call& c, const Sparse& at) {
  EXPECT(has(c, at.q_rope) == has(c, at.k_rope), "%s: queryRope and keyRope go together", c.name());
  if (!has(c, at.q_rope)) return;
  Sizes q = sizes_of(c.tensor(0)), k = sizes_of(c.tensor(1));
  q.back() = k.back() = c.tensor(at.q_rope).sizes[c.tensor(at.q_rope).ndim - 1];
  expect_shape(c, at.q_rope, q);
  expect_shape(c, at.k_rope, k);
}
void expect_parts(const Call& c, const Sparse& at) {
  const Layouts layouts(c);
  expect_layouts(c, layouts);
  expect_depth(c, layouts);
  expect_chosen(c, at);
  expect_ropes(c, at);
}
void check_sparse(const Call& c) {
  const Sparse at(c);
  expect_parts(c, at);
  EXPECT(c.integer(at.mode) == 2, "%s: attentionMode %ld is not 2", c.name(), c.integer(at.mode));
  if (has(c, at.value)) expect_same_shape(c, at.value, 1);
  const Sizes q = sizes_of(c.tensor(0));
  expect_shape(c, at.out, q);
  if (at.sinks >= 0) expect_numel(c, at.sinks, q[q.size() - 2]);
  const int64_t rows = c.tensor(0).numel() / q.back();
  for (int i : {at.max, at.sum})
    if (c.integer(at.lse)) expect_numel(c, i, rows);
}
// The parts of a score: products of depths that lie apart.
struct Parts {
  Value q, k, qr, kr;
  int64_t heads, depth, place;
  Parts(Run& r, const Sparse& at)
      : q(floats(r, 0)), k(floats(r, 1)), qr(has(r.call, at.q_rope) ? floats(r, at.q_rope) : Value()),
        kr(has(r.call, at.q_rope) ? floats(r, at.k_rope) : Value()), heads(q.size(-2)), depth(q.size(-1)), place(qr.given() ? qr.size(-1) : 0) {}
  Parts(Value query, Value key, Value query_rope, Value key_rope)
      : q(std::move(query)), k(std::move(key)), qr(std::move(query_rope)), kr(std::move(key_rope)), heads(q.size(-2)), depth(q.size(-1)), place(qr.size(-1)) {}
  std::vector<float> scores(int64_t of, const std::vector<int64_t>& keys, double scale) const {
    std::vector<float> p;
    for (int64_t key : keys)
      p.push_back(float(scale) * (dot(q.ptr<float>() + of * depth, k.ptr<float>() + key * depth, depth) +
                                  (place ? dot(qr.ptr<float>() + of * place, kr.ptr<float>() + key * place, place) : 0)));
    return p;
  }
};
// Attention of one head to some keys: writes a row of the output; max and sum are those of the softmax.
void attend_to(std::vector<float> p, const std::vector<int64_t>& keys, const Value& v, const float* sink, float* y, float& max, float& sum) {
  max = *std::max_element(p.begin(), p.end());
  if (sink) max = std::max(max, *sink);
  sum = sink ? std::exp(*sink - max) : 0;
  for (float& s : p) sum += s = std::exp(s - max);
  const int64_t depth = v.size(-1);
  for (size_t j = 0; j < keys.size(); ++j)
    for (int64_t d = 0; d < depth; ++d) y[d] += p[j] / sum * v.ptr<float>()[keys[j] * depth + d];
}
void sparse(Run& r) {
  const Call& c = r.call;
  const Sparse at(c);
  const Parts parts(r, at);
  const Value v = has(c, at.value) ? floats(r, at.value) : parts.k, chosen = index_value(r, at.chosen).dense();
  const Value sinks = at.sinks >= 0 ? floats(r, at.sinks) : Value();
  const int64_t heads = parts.heads, count = chosen.size(-1);
  const Sequences sequences(r, Layouts(c));
  const Value out = full(parts.q.shape(), mt::kFloat, 0), max = full({parts.q.numel() / parts.depth}, mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.chosen_rows(c, b, seen, chosen.ptr<int64_t>() + row * count, count, c.integer(at.block));
    if (keys.empty()) return;
    for (int64_t of = row * heads; of < (row + 1) * heads; ++of)
      attend_to(parts.scores(of, keys, c.number(at.scale)), keys, v, sinks.given() ? sinks.ptr<float>() + of % heads : nullptr,
                out.ptr<float>() + of * parts.depth, max.ptr<float>()[of], sum.ptr<float>()[of]);
  });
  copy(r.tensor(at.out), out);
  if (!c.integer(at.lse)) return;
  for (int i : {at.max, at.sum}) {                           // [B, 1, S, N] or [1, T, N]: as the rows lie
    const Value to = r.tensor(i);
    copy(to, (i == at.max ? max : sum).reshape(to.shape()));
  }
}

// ---- aclnnKvQuantSparseFlashAttention: a key is int8 items, its rope in the query's dtype, and a float32 scale for every tile ------
void check_quantised(const Call& c) {
  const Layouts layouts(c);
  const Sparse at(c);
  expect_layouts(c, layouts);
  expect_chosen(c, at);
  const int64_t tile = c.integer(argument(c, {"tileSize"})), rope = c.integer(argument(c, {"ropeHeadDim"}));
  const TensorMeta &q = c.tensor(0), &k = c.tensor(1);
  if (k.dtype != ACL_INT8 || c.integer(argument(c, {"quantScaleRepoMode"})) != 1 || c.integer(at.mode) != 2)
    refuse(561003, "%s: only keys of int8 with their scales beside them (quantScaleRepoMode 1) in attentionMode 2 are computed", c.name());
  const int64_t depth = q.sizes[q.ndim - 1] - rope;
  EXPECT(rope >= 0 && depth > 0 && tile > 0 && depth % tile == 0, "%s: query %s with tileSize %ld and ropeHeadDim %ld", c.name(), describe(q).c_str(), tile, rope);
  EXPECT(k.sizes[k.ndim - 1] == depth + 2 * rope + depth / tile * 4, "%s: key %s, expected %ld bytes an item", c.name(), describe(k).c_str(),
         depth + 2 * rope + depth / tile * 4);
  Sizes of = sizes_of(q);
  of.back() = depth;
  expect_shape(c, at.out, of);
}
void quantised(Run& r) {
  const Call& c = r.call;
  const Sparse at(c);
  const Value query = floats(r, 0), packed = r.tensor(1).dense(), chosen = index_value(r, at.chosen).dense();
  const int64_t rope = c.integer(argument(c, {"ropeHeadDim"})), tile = c.integer(argument(c, {"tileSize"})), depth = query.size(-1) - rope;
  const int64_t bytes = packed.size(-1), rows = packed.numel() / bytes, count = chosen.size(-1);
  const Value key = empty({rows, depth}, mt::kFloat), bits = empty({rows, rope}, r.tensor(0).dtype);
  for (int64_t i = 0; i < rows; ++i) {
    const int8_t* from = packed.ptr<int8_t>() + i * bytes;
    std::memcpy(bits.ptr<char>() + i * rope * 2, from + depth, size_t(rope * 2));
    for (int64_t d = 0; d < depth; ++d) {
      float scale;
      std::memcpy(&scale, from + depth + rope * 2 + d / tile * 4, 4);
      key.ptr<float>()[i * depth + d] = float(from[d]) * scale;
    }
  }
  const Parts parts(query.narrow(-1, 0, depth).dense(), key, query.narrow(-1, depth, rope).dense(), bits.to(mt::kFloat).dense());
  const Sequences sequences(r, Layouts(c));
  const Value out = full(parts.q.shape(), mt::kFloat, 0);
  float max, sum;
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.chosen_rows(c, b, seen, chosen.ptr<int64_t>() + row * count, count, c.integer(at.block));
    if (keys.empty()) return;
    for (int64_t of = row * parts.heads; of < (row + 1) * parts.heads; ++of)
      attend_to(parts.scores(of, keys, c.number(at.scale)), keys, key, nullptr, out.ptr<float>() + of * depth, max, sum);
  });
  copy(r.tensor(at.out), out);
}

// ---- aclnnSparseFlashAttentionGrad(query, key, value, indices, dy, y, max, sum, …, dq, dk, dv, dqRope?, dkRope?) ---------------------
void check_sparse_grad(const Call& c) {
  const Sparse at(c);
  expect_parts(c, at);
  const int first = argument(c, {"dQueryOut"});
  for (int i : {4, 5}) expect_same_shape(c, i, 0);
  for (int i : {0, 1, 2}) expect_same_shape(c, first + i, i);
  expect_same_shape(c, at.value, 1);
  for (int i : {at.max, at.sum}) expect_numel(c, i, c.tensor(0).numel() / c.tensor(0).sizes[c.tensor(0).ndim - 1]);
  if (!has(c, at.q_rope)) return;
  expect_same_shape(c, first + 3, at.q_rope);
  expect_same_shape(c, first + 4, at.k_rope);
}
void sparse_grad(Run& r) {
  const Call& c = r.call;
  const Sparse at(c);
  const Parts parts(r, at);
  const Value v = floats(r, at.value), dy = floats(r, 4), y = floats(r, 5), max = floats(r, at.max), sum = floats(r, at.sum);
  const Value chosen = index_value(r, at.chosen).dense();
  const int64_t depth = parts.depth, place = parts.place, count = chosen.size(-1);
  const int first = argument(c, {"dQueryOut"});
  auto zeros = [](const Value& like) { return like.given() ? full(like.shape(), mt::kFloat, 0) : Value(); };
  const Value dq = zeros(parts.q), dk = zeros(parts.k), dv = zeros(v), dqr = zeros(parts.qr), dkr = zeros(parts.kr);
  const Sequences sequences(r, Layouts(c));
  auto add = [](const Value& to, int64_t row, const Value& from, int64_t of, int64_t n, float by) {
    for (int64_t d = 0; d < n; ++d) to.ptr<float>()[row * n + d] += by * from.ptr<float>()[of * n + d];
  };
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.chosen_rows(c, b, seen, chosen.ptr<int64_t>() + row * count, count, c.integer(at.block));
    for (int64_t of = row * parts.heads; of < (row + 1) * parts.heads; ++of) {
      const std::vector<float> scores = parts.scores(of, keys, c.number(at.scale));
      const float along = dot(dy.ptr<float>() + of * depth, y.ptr<float>() + of * depth, depth);
      for (size_t j = 0; j < keys.size(); ++j) {
        const float p = std::exp(scores[j] - max.ptr<float>()[of]) / sum.ptr<float>()[of];
        const float slope = p * (dot(dy.ptr<float>() + of * depth, v.ptr<float>() + keys[j] * depth, depth) - along) * float(c.number(at.scale));
        add(dv, keys[j], dy, of, depth, p);
        add(dq, of, parts.k, keys[j], depth, slope);
        add(dk, keys[j], parts.q, of, depth, slope);
        if (!place) continue;
        add(dqr, of, parts.kr, keys[j], place, slope);
        add(dkr, keys[j], parts.qr, of, place, slope);
      }
    }
  });
  const Value made[] = {dq, dk, dv, dqr, dkr};
  for (int i = 0; i < (place ? 5 : 3); ++i) copy(r.tensor(first + i), made[i]);
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
    {"aclnnSparseFlashAttention", check_sparse, sparse},
    {"aclnnSparseFlashAttentionV2", check_sparse, sparse},
    {"aclnnKvQuantSparseFlashAttention", check_quantised, quantised},
    {"aclnnSparseFlashAttentionGrad", check_sparse_grad, sparse_grad},
    {"aclnnFusedFloydAttention", check_floyd, floyd},
    {"aclnnFusedFloydAttentionGrad", check_floyd_grad, floyd_grad},
};

}  // namespace
}  // namespace cann_sim
