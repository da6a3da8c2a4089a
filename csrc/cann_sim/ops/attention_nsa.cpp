// Native sparse attention: keys compressed by windows, blocks chosen by their scores, and attention to the chosen ones.
// Packed sequences (TND) only; the inference form reads keys from pages.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "ops/attention.h"
#include "ops/result.h"

namespace cann_sim {
namespace {

bool has(const Call& c, int i) { return i >= 0 && c.given(i) && c.tensor(i).numel(); }
Value wide(const Value& v) { return v.to(mt::kFloat).dense(); }

// Where every sequence begins and ends, from ends.
struct Piece { int64_t begin, length; };
std::vector<Piece> pieces(Span<int64_t> ends) {
  std::vector<Piece> made;
  int64_t last = 0;
  for (int64_t end : ends) made.push_back({last, end - last}), last = end;
  return made;
}
void expect_ends(const Call& c, int i, int64_t length) {
  EXPECT(c.given(i) && c.ints(i).size(), "%s: %s is needed", c.name(), c.row->args[i].name);
  int64_t last = 0;
  for (int64_t end : c.ints(i)) {
    EXPECT(end >= last, "%s: %s falls", c.name(), c.row->args[i].name);
    last = end;
  }
  EXPECT(last <= length, "%s: %s ends at %ld, beyond %ld", c.name(), c.row->args[i].name, long(last), long(length));
}
int64_t windows(int64_t length, int64_t size, int64_t step) { return length >= size ? (length - size) / step + 1 : 0; }

// ---- compressing: every window of a sequence to the sum of its rows times weights --------------------------------------------
struct Compress {
  int input, weight, lengths, size, step, type;
  explicit Compress(const Call& c)
      : input(argument(c, {"input"})), weight(argument(c, {"weight"})), lengths(argument(c, {"actSeqLenOptional", "actSeqLenOptionalOptional"})),
        size(argument(c, {"compressBlockSize"})), step(argument(c, {"compressStride"})), type(argument(c, {"actSeqLenType"})) {}
};
void expect_windows(const Call& c, const Compress& at, int heads_dim) {
  const TensorMeta &x = c.tensor(at.input), &w = c.tensor(at.weight);
  EXPECT(x.ndim == heads_dim + 2, "%s: input %s has no %d dims", c.name(), describe(x).c_str(), heads_dim + 2);
  EXPECT(c.integer(at.size) > 0 && c.integer(at.step) > 0, "%s: windows of %ld at a distance of %ld", c.name(), long(c.integer(at.size)), long(c.integer(at.step)));
  EXPECT(w.ndim == 2 && w.sizes[0] == c.integer(at.size) && w.sizes[1] == x.sizes[heads_dim], "%s: weight %s does not fit", c.name(), describe(w).c_str());
}
int64_t all_windows(const Call& c, const Compress& at) {
  int64_t n = 0;
  for (const Piece& p : pieces(c.ints(at.lengths))) n += windows(p.length, c.integer(at.size), c.integer(at.step));
  return n;
}
void check_compress(const Call& c) {
  const Compress at(c);
  expect_windows(c, at, 1);
  EXPECT(c.integer(at.type) == 0, "%s: actSeqLenType %ld is not 0", c.name(), long(c.integer(at.type)));
  const TensorMeta& x = c.tensor(at.input);
  expect_ends(c, at.lengths, x.sizes[0]);
  const int out = argument(c, {"output", "outputGrad"});
  EXPECT(c.tensor(out).ndim == 3 && c.tensor(out).sizes[0] >= all_windows(c, at) && c.tensor(out).sizes[1] == x.sizes[1] && c.tensor(out).sizes[2] == x.sizes[2],
         "%s: %s %s does not fit", c.name(), c.row->args[out].name, describe(c.tensor(out)).c_str());
}
// Calls visit(window, row of the input, row of the weight).
template <class F> void each_row(const Call& c, const Compress& at, F&& visit) {
  const int64_t size = c.integer(at.size), step = c.integer(at.step);
  int64_t window = 0;
  for (const Piece& p : pieces(c.ints(at.lengths)))
    for (int64_t w = 0, n = windows(p.length, size, step); w < n; ++w, ++window)
      for (int64_t k = 0; k < size; ++k) visit(window, p.begin + w * step + k, k);
}
void run_compress(Run& r) {
  const Compress at(r.call);
  const Value x = wide(r.tensor(at.input)), w = wide(r.tensor(at.weight)), out = r.tensor(7), made = full(out.shape(), mt::kFloat, 0);
  const int64_t heads = x.size(1), depth = x.size(2);
  each_row(r.call, at, [&](int64_t window, int64_t row, int64_t k) {
    for (int64_t i = 0; i < heads * depth; ++i)
      made.ptr<float>()[window * heads * depth + i] += x.ptr<float>()[row * heads * depth + i] * w.ptr<float>()[k * heads + i / depth];
  });
  copy(out, made);
}
void check_compress_grad(const Call& c) {  // (outputGrad, input, weight, …, inputGrad, weightGrad)
  check_compress(c);
  expect_same_shape(c, 8, 1);
  expect_same_shape(c, 9, 2);
}
void run_compress_grad(Run& r) {
  const Compress at(r.call);
  const Value dy = wide(r.tensor(0)), x = wide(r.tensor(1)), w = wide(r.tensor(2)), dx = full(x.shape(), mt::kFloat, 0), dw = full(w.shape(), mt::kFloat, 0);
  const int64_t heads = x.size(1), depth = x.size(2);
  each_row(r.call, at, [&](int64_t window, int64_t row, int64_t k) {
    for (int64_t i = 0; i < heads * depth; ++i) {
      const float g = dy.ptr<float>()[window * heads * depth + i];
      dx.ptr<float>()[row * heads * depth + i] += g * w.ptr<float>()[k * heads + i / depth];
      dw.ptr<float>()[k * heads + i / depth] += g * x.ptr<float>()[row * heads * depth + i];
    }
  });
  copy(r.tensor(8), dx);
  copy(r.tensor(9), dw);
}
// (input pages [blocks, page, N, D], weight, slotMapping, lengths, blockTable, …, outputCache): the newest window of a sequence that
// has just become full goes to its slot.
void check_compress_cache(const Call& c) {
  const Compress at(c);
  expect_windows(c, at, 2);
  EXPECT(c.integer(at.type) == 1, "%s: actSeqLenType %ld is not 1", c.name(), long(c.integer(at.type)));
  EXPECT(c.given(3) && has(c, 4) && c.tensor(4).ndim == 2 && c.tensor(4).sizes[0] == c.ints(3).size(), "%s: lengths and blockTable do not go together", c.name());
  EXPECT(c.tensor(2).numel() == c.ints(3).size(), "%s: slotMapping %s does not fit", c.name(), describe(c.tensor(2)).c_str());
  EXPECT(c.tensor(0).sizes[1] == c.integer(9), "%s: pages have %ld rows, pageBlockSize is %ld", c.name(), long(c.tensor(0).sizes[1]), long(c.integer(9)));
}
void run_compress_cache(Run& r) {
  const Call& c = r.call;
  const Compress at(c);
  const Value pages = r.tensor(0), w = wide(r.tensor(1)), slots = index_value(r, 2).dense(), table = index_value(r, 4).dense(), cache = r.tensor(10);
  const int64_t size = c.integer(at.size), step = c.integer(at.step), page = c.integer(9), heads = pages.size(2), depth = pages.size(3);
  for (int64_t b = 0; b < c.ints(3).size(); ++b) {
    const int64_t length = c.ints(3)[b];
    if (length < size || (length - size) % step) continue;
    const Value sum = full({heads, depth}, mt::kFloat, 0);
    for (int64_t k = 0; k < size; ++k) {
      const int64_t row = length - size + k;
      const Value from = wide(pages.select(0, table.ptr<int64_t>()[b * table.size(1) + row / page]).select(0, row % page));
      for (int64_t i = 0; i < heads * depth; ++i) sum.ptr<float>()[i] += from.ptr<float>()[i] * w.ptr<float>()[k * heads + i / depth];
    }
    Value rows = cache;
    int64_t slot = slots.ptr<int64_t>()[b];
    if (cache.ndim == 4) rows = cache.select(0, slot / cache.size(1)), slot %= cache.size(1);
    copy(rows.select(0, slot), sum);
  }
}

// ---- one query and the keys that it sees ----------------------------------------------------------------------------------------
struct Row {
  std::vector<int64_t> keys;  // rows of key and value
  std::vector<float> p;       // scores, then probabilities
  float max = -INFINITY, sum = 0;
};
float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double(a[i]) * b[i];
  return float(sum);
}
void softmax(Row& row) {
  for (float s : row.p) row.max = std::max(row.max, s);
  for (float& s : row.p) row.sum += s = std::exp(s - row.max);
  for (float& s : row.p) s /= row.sum;
}
const float* head_of(const Value& v, int64_t row, int64_t head) { return v.ptr<float>() + (row * v.size(1) + head) * v.size(2); }
float* head_of(const Value& v, int64_t row, int64_t head, bool) { return v.ptr<float>() + (row * v.size(1) + head) * v.size(2); }

// ---- attention to chosen blocks ---------------------------------------------------------------------------------------------------
struct Selected {
  int query, key, value, chosen, mask, q_ends, k_ends, scale, heads, mode, size, count;
  explicit Selected(const Call& c)
      : query(argument(c, {"query"})), key(argument(c, {"key"})), value(argument(c, {"value"})), chosen(argument(c, {"topkIndices"})),
        mask(argument(c, {"attenMaskOptional"})), q_ends(argument(c, {"actualSeqQLenOptional"})), k_ends(argument(c, {"actualSeqKvLenOptional"})),
        scale(argument(c, {"scaleValue"})), heads(argument(c, {"headNum"})), mode(argument(c, {"sparseMode"})), size(argument(c, {"selectedBlockSize"})),
        count(argument(c, {"selectedBlockCount"})) {}
};
void expect_packed(const Call& c, const Selected& at) {
  const TensorMeta &q = c.tensor(at.query), &k = c.tensor(at.key), &v = c.tensor(at.value);
  EXPECT(q.ndim == 3 && k.ndim == 3 && v.ndim == 3 && q.sizes[2] == k.sizes[2] && k.sizes[0] == v.sizes[0] && k.sizes[1] == v.sizes[1] && k.sizes[1] > 0 &&
             q.sizes[1] % k.sizes[1] == 0, "%s: query %s, key %s and value %s do not fit", c.name(), describe(q).c_str(), describe(k).c_str(), describe(v).c_str());
  EXPECT(std::string(c.string(argument(c, {"inputLayout"}))) == "TND", "%s: inputLayout is not TND", c.name());
  EXPECT(c.integer(at.heads) == q.sizes[1], "%s: headNum is %ld, query has %ld heads", c.name(), long(c.integer(at.heads)), long(q.sizes[1]));
  expect_ends(c, at.q_ends, q.sizes[0]);
}
void check_selected(const Call& c) {
  const Selected at(c);
  expect_packed(c, at);
  const TensorMeta &q = c.tensor(at.query), &k = c.tensor(at.key);
  expect_ends(c, at.k_ends, k.sizes[0]);
  EXPECT(c.ints(at.q_ends).size() == c.ints(at.k_ends).size(), "%s: the sequences of query and key differ", c.name());
  EXPECT(c.integer(at.mode) == 0 || c.integer(at.mode) == 2, "%s: sparseMode %ld is not 0 or 2", c.name(), long(c.integer(at.mode)));
  expect_shape(c, at.chosen, {q.sizes[0], k.sizes[1], c.integer(at.count)});
}
// The keys of query i of a sequence, by the blocks that were chosen for its head of keys, less what the mask hides.
Row keys_of(const Call& c, const Selected& at, const Value& chosen, const Value& mask, int64_t token, int64_t i, int64_t kv_head, const Piece& keys) {
  Row row;
  const int64_t size = c.integer(at.size), count = c.integer(at.count);
  const int64_t* blocks = chosen.ptr<int64_t>() + (token * chosen.size(1) + kv_head) * count;
  for (int64_t b = 0; b < count; ++b)
    for (int64_t j = blocks[b] * size; blocks[b] >= 0 && j < std::min((blocks[b] + 1) * size, keys.length); ++j) {
      if (mask.given() && c.integer(at.mode) == 2 && j > i) continue;
      if (mask.given() && c.integer(at.mode) == 0 && mask.ptr<uint8_t>()[i * mask.size(-1) + j]) continue;
      row.keys.push_back(keys.begin + j);
    }
  return row;
}
template <class F> void each_query(Run& r, const Selected& at, F&& visit) {
  const Call& c = r.call;
  const Value chosen = index_value(r, at.chosen).dense(), mask = has(c, at.mask) ? r.tensor(at.mask).dense() : Value();
  const std::vector<Piece> qs = pieces(c.ints(at.q_ends)), ks = pieces(c.ints(at.k_ends));
  const int64_t heads = c.integer(at.heads), kv_heads = c.tensor(at.key).sizes[1];
  for (size_t b = 0; b < qs.size(); ++b)
    for (int64_t i = 0; i < qs[b].length; ++i)
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t kv = h / (heads / kv_heads);
        visit(qs[b].begin + i, h, kv, keys_of(c, at, chosen, mask, qs[b].begin + i, i, kv, ks[b]));
      }
}
void check_selected_score(const Call& c) {
  check_selected(c);
  const Selected at(c);
  const TensorMeta& q = c.tensor(at.query);
  for (int i : {13, 14}) expect_shape(c, i, {q.sizes[0], q.sizes[1], 8});
  expect_shape(c, 15, {q.sizes[0], q.sizes[1], c.tensor(at.value).sizes[2]});
}
void run_selected_score(Run& r) {
  const Selected at(r.call);
  const Value q = wide(r.tensor(at.query)), k = wide(r.tensor(at.key)), v = wide(r.tensor(at.value));
  const Value out = full(r.tensor(15).shape(), mt::kFloat, 0), max = full(r.tensor(13).shape(), mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  each_query(r, at, [&](int64_t token, int64_t h, int64_t kv, Row row) {
    for (int64_t key : row.keys) row.p.push_back(float(r.call.number(at.scale)) * dot(head_of(q, token, h), head_of(k, key, kv), q.size(2)));
    softmax(row);
    float* y = head_of(out, token, h, true);
    for (size_t j = 0; j < row.keys.size(); ++j)
      for (int64_t d = 0; d < v.size(2); ++d) y[d] += row.p[j] * head_of(v, row.keys[j], kv)[d];
    std::fill_n(head_of(max, token, h, true), 8, row.max);
    std::fill_n(head_of(sum, token, h, true), 8, row.sum);
  });
  copy(r.tensor(15), out);
  copy(r.tensor(13), max);
  copy(r.tensor(14), sum);
}
// (query, key, value, attentionOut, attentionOutGrad, softmaxMax, softmaxSum, topkIndices, …, dq, dk, dv)
void check_selected_grad(const Call& c) {
  check_selected(c);
  const Selected at(c);
  expect_same_shape(c, 4, 3);
  for (int i : {0, 1, 2}) expect_same_shape(c, 17 + i, i);
}
void run_selected_grad(Run& r) {
  const Selected at(r.call);
  const Value q = wide(r.tensor(0)), k = wide(r.tensor(1)), v = wide(r.tensor(2)), dy = wide(r.tensor(4)), max = wide(r.tensor(5)), sum = wide(r.tensor(6));
  const Value dq = full(q.shape(), mt::kFloat, 0), dk = full(k.shape(), mt::kFloat, 0), dv = full(v.shape(), mt::kFloat, 0);
  const float scale = float(r.call.number(at.scale));
  each_query(r, at, [&](int64_t token, int64_t h, int64_t kv, Row row) {
    const float *g = head_of(dy, token, h), *query = head_of(q, token, h);
    std::vector<float> slope;
    float along = 0;
    for (int64_t key : row.keys) {
      row.p.push_back(std::exp(scale * dot(query, head_of(k, key, kv), q.size(2)) - head_of(max, token, h)[0]) / head_of(sum, token, h)[0]);
      slope.push_back(dot(g, head_of(v, key, kv), v.size(2)));
      along += row.p.back() * slope.back();
    }
    for (size_t j = 0; j < row.keys.size(); ++j) {
      const float ds = row.p[j] * (slope[j] - along) * scale;
      for (int64_t d = 0; d < q.size(2); ++d) {
        head_of(dq, token, h, true)[d] += ds * head_of(k, row.keys[j], kv)[d];
        head_of(dk, row.keys[j], kv, true)[d] += ds * query[d];
      }
      for (int64_t d = 0; d < v.size(2); ++d) head_of(dv, row.keys[j], kv, true)[d] += row.p[j] * g[d];
    }
  });
  copy(r.tensor(17), dq);
  copy(r.tensor(18), dk);
  copy(r.tensor(19), dv);
}

// ---- attention to the compressed keys, and the blocks that it chooses ----------------------------------------------------------------
// (query, key, value, attenMask?, topkMask?, q ends, compressed ends, selected ends, scale, heads, layout, mode, l, d, l', count, max, sum, out, chosen)
void check_compressed(const Call& c) {
  Selected at(c);
  expect_packed(c, at);
  if (has(c, 4)) {  // [the longest query, blocks of the longest sequence]
    EXPECT(c.tensor(4).ndim == 2, "%s: topkMask has %d dims, expected 2", c.name(), c.tensor(4).ndim);
    const int64_t per_block = std::max<int64_t>(c.integer(14) / std::max<int64_t>(c.integer(13), 1), 1);
    for (const Piece& p : pieces(c.ints(5))) EXPECT(p.length <= c.tensor(4).sizes[0], "%s: topkMask of %ld rows for %ld queries", c.name(), long(c.tensor(4).sizes[0]), long(p.length));
    for (const Piece& p : pieces(c.ints(6)))
      EXPECT(p.length <= c.tensor(4).sizes[1] * per_block, "%s: topkMask of %ld blocks for %ld keys", c.name(), long(c.tensor(4).sizes[1]), long(p.length));
  }
  const TensorMeta &q = c.tensor(0), &k = c.tensor(1);
  expect_ends(c, 6, k.sizes[0]);
  EXPECT(c.ints(5).size() == c.ints(6).size(), "%s: the sequences of query and key differ", c.name());
  const int64_t size = c.integer(12), step = c.integer(13), select = c.integer(14);
  EXPECT(step > 0 && size % step == 0 && select % step == 0, "%s: windows of %ld at %ld and blocks of %ld do not fit", c.name(), long(size), long(step), long(select));
  for (int i : {16, 17}) expect_shape(c, i, {q.sizes[0], q.sizes[1], 8});
  expect_shape(c, 18, {q.sizes[0], q.sizes[1], c.tensor(2).sizes[2]});
  expect_shape(c, 19, {q.sizes[0], k.sizes[1], c.integer(15)});
}
// The score of a block: of all windows that begin in it or reach into it.
std::vector<float> block_scores(const std::vector<float>& p, int64_t size, int64_t step, int64_t select) {
  const int64_t per_block = select / step, per_window = size / step, n = int64_t(p.size());
  std::vector<float> scores(size_t((n + per_block - 1) / per_block), 0);
  for (int64_t j = 0; j < int64_t(scores.size()); ++j)
    for (int64_t m = 0; m < per_block; ++m)
      for (int64_t w = 0; w < per_window; ++w) {
        const int64_t i = per_block * j - m - w;
        if (i >= 0 && i < n) scores[size_t(j)] += p[size_t(i)];
      }
  return scores;
}
// Writes the places of the best scores, best first.
void choose(const std::vector<float>& scores, int64_t count, int32_t* chosen) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) { return scores[size_t(x)] > scores[size_t(y)]; });
  std::copy_n(order.begin(), std::min<int64_t>(count, int64_t(order.size())), chosen);
}
void run_compressed(Run& r) {
  const Call& c = r.call;
  const Value q = wide(r.tensor(0)), k = wide(r.tensor(1)), v = wide(r.tensor(2)), mask = has(c, 3) ? r.tensor(3).dense() : Value();
  const Value always = has(c, 4) ? r.tensor(4).dense() : Value();  // blocks that are chosen whatever their score: a query's own
  const Value out = full(r.tensor(18).shape(), mt::kFloat, 0), max = full(r.tensor(16).shape(), mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  const Value chosen = full(r.tensor(19).shape(), mt::kInt32, -1);
  const std::vector<Piece> qs = pieces(c.ints(5)), ks = pieces(c.ints(6));
  const int64_t heads = q.size(1), kv_heads = k.size(1), shared = heads / kv_heads, count = c.integer(15);
  for (size_t b = 0; b < qs.size(); ++b)
    for (int64_t i = 0; i < qs[b].length; ++i)
      for (int64_t kv = 0; kv < kv_heads; ++kv) {
        const int64_t token = qs[b].begin + i;
        std::vector<float> total(size_t(ks[b].length), 0);
        for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
          Row row;
          for (int64_t j = 0; j < ks[b].length; ++j) {
            const bool hidden = mask.given() && mask.ptr<uint8_t>()[i * mask.size(-1) + j];
            row.p.push_back(hidden ? -INFINITY : float(c.number(8)) * dot(head_of(q, token, h), head_of(k, ks[b].begin + j, kv), q.size(2)));
          }
          if (std::all_of(row.p.begin(), row.p.end(), [](float s) { return s == -INFINITY; })) continue;  // it sees nothing
          softmax(row);
          for (int64_t j = 0; j < ks[b].length; ++j) {
            total[size_t(j)] += row.p[size_t(j)];
            for (int64_t d = 0; d < v.size(2); ++d) head_of(out, token, h, true)[d] += row.p[size_t(j)] * head_of(v, ks[b].begin + j, kv)[d];
          }
          std::fill_n(head_of(max, token, h, true), 8, row.max);
          std::fill_n(head_of(sum, token, h, true), 8, row.sum);
        }
        std::vector<float> scores = block_scores(total, c.integer(12), c.integer(13), c.integer(14));
        for (size_t j = 0; always.given() && j < scores.size(); ++j)
          if (always.ptr<uint8_t>()[i * always.size(-1) + int64_t(j)]) scores[j] = INFINITY;
        choose(scores, count, chosen.ptr<int32_t>() + (token * kv_heads + kv) * count);
      }
  copy(r.tensor(16), max);
  copy(r.tensor(17), sum);
  copy(r.tensor(18), out);
  copy(r.tensor(19), chosen);
}

// ---- inference: one query a sequence, keys and values in pages ------------------------------------------------------------------------
struct Paged {
  int table, lengths, heads, kv_heads, page, out;
  explicit Paged(const Call& c)
      : table(argument(c, {"blockTableOptional"})), lengths(argument(c, {"actualKvSeqLenOptional", "actualCmpKvSeqLenOptional"})),
        heads(argument(c, {"numHeads"})), kv_heads(argument(c, {"numKeyValueHeads"})), page(argument(c, {"pageBlockSize"})), out(argument(c, {"output"})) {}
};
int64_t batch_of(const Call& c, const Paged& at) { return c.ints(at.lengths).size(); }
void expect_pages(const Call& c, const Paged& at) {
  const TensorMeta &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
  const int64_t heads = c.integer(at.heads), shared = c.integer(at.kv_heads), page = c.integer(at.page);
  EXPECT(c.given(at.lengths) && batch_of(c, at) && has(c, at.table), "%s: %s and the blockTable are needed", c.name(), c.row->args[at.lengths].name);
  EXPECT(heads > 0 && shared > 0 && page > 0 && heads % shared == 0, "%s: %ld heads over %ld in pages of %ld", c.name(), heads, shared, page);
  const int64_t rows = batch_of(c, at), depth = q.numel() / (rows * heads);
  EXPECT(q.numel() && q.sizes[0] == rows && q.numel() == rows * heads * depth, "%s: query %s for %ld sequences of one token", c.name(), describe(q).c_str(), rows);
  for (const TensorMeta* t : {&k, &v})
    EXPECT(t->ndim >= 3 && t->sizes[1] == page && t->sizes[0] == k.sizes[0] && t->numel() % (t->sizes[0] * page * shared) == 0, "%s: pages %s", c.name(), describe(*t).c_str());
  EXPECT(k.numel() == k.sizes[0] * page * shared * depth, "%s: key %s for a depth of %ld", c.name(), describe(k).c_str(), depth);
  EXPECT(c.tensor(at.table).ndim == 2 && c.tensor(at.table).sizes[0] == rows, "%s: blockTable %s", c.name(), describe(c.tensor(at.table)).c_str());
  for (int64_t length : c.ints(at.lengths))
    EXPECT(length >= 0 && length <= c.tensor(at.table).sizes[1] * page, "%s: a length of %ld in %ld pages", c.name(), length, c.tensor(at.table).sizes[1]);
  expect_numel(c, at.out, rows * heads * (v.numel() / (v.sizes[0] * page * shared)));
}
class Pages {
 public:
  Pages(Run& r, const Paged& at)
      : q(wide(r.tensor(0)).reshape({batch_of(r.call, at), r.call.integer(at.heads), -1})), k(laid(r, 1, at)), v(laid(r, 2, at)),
        out(full({q.size(0), q.size(1), v.size(2)}, mt::kFloat, 0)), table_(index_value(r, at.table).dense()), page_(r.call.integer(at.page)) {}
  Value q, k, v, out;                    // [sequences, heads, depth], [rows of all pages, heads, depth]
  int64_t row(const Call& c, int64_t b, int64_t at) const {
    const int64_t block = table_.ptr<int64_t>()[b * table_.size(1) + at / page_];
    if (block < 0 || block >= k.size(0) / page_)
      throw DeviceFault(ACL_ERROR_RT_AICORE_EXCEPTION, std::string(c.name()) + ": block " + std::to_string(block) + " is not in the cache");
    return block * page_ + at % page_;
  }
  // Attention of one head to row.keys; leaves the probabilities in row.p.
  void attend(Row& row, int64_t b, int64_t h, int64_t kv, double scale) const {
    if (row.keys.empty()) return;
    for (int64_t key : row.keys) row.p.push_back(float(scale) * dot(head_of(q, b, h), head_of(k, key, kv), q.size(2)));
    softmax(row);
    for (size_t j = 0; j < row.keys.size(); ++j)
      for (int64_t d = 0; d < v.size(2); ++d) head_of(out, b, h, true)[d] += row.p[j] * head_of(v, row.keys[j], kv)[d];
  }

 private:
  static Value laid(Run& r, int i, const Paged& at) {
    const TensorMeta& t = r.call.tensor(i);
    return wide(r.tensor(i)).reshape({t.sizes[0] * t.sizes[1], r.call.integer(at.kv_heads), -1});
  }
  Value table_;
  int64_t page_;
};
void check_selected_pages(const Call& c) {
  const Paged at(c);
  expect_pages(c, at);
  EXPECT(c.integer(11) > 0, "%s: selectedBlockSize %ld", c.name(), c.integer(11));
  expect_numel(c, 3, batch_of(c, at) * c.integer(at.kv_heads) * c.integer(12));
}
void run_selected_pages(Run& r) {
  const Call& c = r.call;
  const Paged at(c);
  const Pages pages(r, at);
  const Value chosen = index_value(r, 3).dense();
  const int64_t heads = pages.q.size(1), shared = pages.k.size(1), size = c.integer(11), count = c.integer(12);
  for (int64_t b = 0; b < pages.q.size(0); ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv = h / (heads / shared), *blocks = chosen.ptr<int64_t>() + (b * shared + kv) * count;
      Row row;
      for (int64_t n = 0; n < count; ++n)
        for (int64_t j = blocks[n] * size; blocks[n] >= 0 && j < std::min((blocks[n] + 1) * size, c.ints(at.lengths)[b]); ++j) row.keys.push_back(pages.row(c, b, j));
      pages.attend(row, b, h, kv, c.number(argument(c, {"scaleValue"})));
    }
  copy(r.tensor(at.out), pages.out.reshape(r.tensor(at.out).shape()));
}
// (…, numHeads, numKeyValueHeads, selectBlockSize, selectBlockCount, compressBlockSize, compressBlockStride, …, out, chosen blocks)
void check_compressed_pages(const Call& c) {
  const Paged at(c);
  expect_pages(c, at);
  const int64_t select = c.integer(11), size = c.integer(13), step = c.integer(14);
  EXPECT(step > 0 && size % step == 0 && select % step == 0 && select > 0, "%s: windows of %ld at %ld and blocks of %ld do not fit", c.name(), size, step, select);
  expect_numel(c, at.out + 1, batch_of(c, at) * c.integer(at.kv_heads) * c.integer(12));
}
void run_compressed_pages(Run& r) {
  const Call& c = r.call;
  const Paged at(c);
  const Pages pages(r, at);
  const int64_t heads = pages.q.size(1), shared = pages.k.size(1), group = heads / shared, count = c.integer(12);
  const Value chosen = full({pages.q.size(0) * shared * count}, mt::kInt32, -1);
  for (int64_t b = 0; b < pages.q.size(0); ++b)
    for (int64_t kv = 0; kv < shared; ++kv) {
      std::vector<float> total(size_t(c.ints(at.lengths)[b]), 0);
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        Row row;
        for (int64_t j = 0; j < int64_t(total.size()); ++j) row.keys.push_back(pages.row(c, b, j));
        pages.attend(row, b, h, kv, c.number(argument(c, {"scaleValue"})));
        for (size_t j = 0; j < row.p.size(); ++j) total[j] += row.p[j];
      }
      choose(block_scores(total, c.integer(13), c.integer(14), c.integer(11)), count, chosen.ptr<int32_t>() + (b * shared + kv) * count);
    }
  copy(r.tensor(at.out), pages.out.reshape(r.tensor(at.out).shape()));
  copy(r.tensor(at.out + 1), chosen.reshape(r.tensor(at.out + 1).shape()));
}

const Op ops[] = {
    {"aclnnNsaCompress", check_compress, run_compress},
    {"aclnnNsaCompressGrad", check_compress_grad, run_compress_grad},
    {"aclnnNsaCompressWithCache", check_compress_cache, run_compress_cache},
    {"aclnnNsaSelectedAttention", check_selected_score, run_selected_score},
    {"aclnnNsaSelectedAttentionGrad", check_selected_grad, run_selected_grad},
    {"aclnnNsaCompressAttention", check_compressed, run_compressed},
    {"aclnnNsaSelectedAttentionInfer", check_selected_pages, run_selected_pages},
    {"aclnnNsaCompressAttentionInfer", check_compressed_pages, run_compressed_pages},
};

}  // namespace
}  // namespace cann_sim
