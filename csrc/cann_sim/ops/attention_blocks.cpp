// Attention to the blocks of keys that a mask names for each block of queries, and its gradient.
#include <cmath>

#include "ops/attention_sequences.h"

namespace cann_sim {
namespace {

// ---- aclnnBlockSparseAttention(query, key, value, blockSparseMask, attenMask?, blockShape, lengths?, lengths?, blockTable?, layout, layout,
//                                numKeyValueHeads, maskType, scale, …), aclnnBlockSparseAttentionGrad(dout, query, key, value, out, lse, …)
struct Blocks {
  int q, mask, atten, shape, q_lengths, k_lengths, table, layout, heads, scale, out;
  explicit Blocks(const Call& c)
      : q(argument(c, {"query"})), mask(argument(c, {"blockSparseMaskOptional"})), atten(argument(c, {"attenMaskOptional"})),
        shape(argument(c, {"blockShapeOptional"})), q_lengths(argument(c, {"actualSeqLengthsOptional"})), k_lengths(argument(c, {"actualSeqLengthsKvOptional"})),
        table(argument(c, {"blockTableOptional"})), layout(argument(c, {"qInputLayout"})), heads(argument(c, {"numKeyValueHeads"})),
        scale(argument(c, {"scaleValue"})), out(argument(c, {"attentionOut"})) {}
};
int64_t side_of(const Call& c, const Blocks& at, int i) { return c.given(at.shape) && c.ints(at.shape).size() > 1 ? c.ints(at.shape)[i] : 128; }
bool packed(const Call& c, const Blocks& at) { return std::string(c.string(at.layout)) == "TND"; }
void expect_blocks(const Call& c) {
  const Blocks at(c);
  const std::string layout = c.string(at.layout), other = c.string(at.layout + 1);
  EXPECT((layout == "TND" || layout == "BNSD") && layout == other, "%s: layouts %s and %s", c.name(), layout.c_str(), other.c_str());
  const TensorMeta &q = c.tensor(at.q), &k = c.tensor(at.q + 1), &mask = c.tensor(at.mask);
  const int rank = layout == "TND" ? 3 : 4;
  EXPECT(q.ndim == rank && k.ndim == rank && q.numel() && k.numel() && k.sizes[1] == c.integer(at.heads) && q.sizes[1] % k.sizes[1] == 0 &&
             q.sizes[rank - 1] == k.sizes[rank - 1], "%s: query %s and key %s with %ld heads", c.name(), describe(q).c_str(), describe(k).c_str(), c.integer(at.heads));
  expect_same_shape(c, at.q + 2, at.q + 1);
  if (has(c, at.atten) || (at.table >= 0 && has(c, at.table))) refuse(561003, "%s with attenMask or blockTable is not computed", c.name());
  EXPECT(has(c, at.mask) && mask.ndim == 4 && mask.sizes[1] == q.sizes[1], "%s: blockSparseMask %s", c.name(), describe(mask).c_str());
  EXPECT(side_of(c, at, 0) > 0 && side_of(c, at, 1) > 0, "%s: blocks of %ld by %ld", c.name(), side_of(c, at, 0), side_of(c, at, 1));
  const bool given = has(c, at.q_lengths);
  EXPECT(given == has(c, at.k_lengths) && (given || layout == "BNSD"), "%s: both lengths are needed, or neither with layout BNSD", c.name());
  const int64_t batch = layout == "TND" ? c.ints(at.q_lengths).size() : q.sizes[0];
  EXPECT(mask.sizes[0] == batch, "%s: blockSparseMask %s for %ld sequences", c.name(), describe(mask).c_str(), batch);
  for (int i : {0, 1}) {
    const int at_lengths = i ? at.k_lengths : at.q_lengths;
    const TensorMeta& t = i ? k : q;
    EXPECT(!given || c.ints(at_lengths).size() == batch, "%s: %ld lengths for %ld sequences", c.name(), c.ints(at_lengths).size(), batch);
    int64_t total = 0, longest = given ? 0 : t.sizes[2];
    for (int64_t length : c.ints(at_lengths)) {
      EXPECT(length >= 0, "%s: a length of %ld", c.name(), length);
      total += length;
      longest = std::max(longest, length);
    }
    EXPECT(layout == "TND" ? total <= t.sizes[0] : longest <= t.sizes[2], "%s: %s do not fit %s", c.name(), c.row->args[at_lengths].name, describe(t).c_str());
    EXPECT(mask.sizes[2 + i] * side_of(c, at, i) >= longest, "%s: blockSparseMask %s for a length of %ld", c.name(), describe(mask).c_str(), longest);
  }
}
// Calls visit(place of a query, places of the keys that it sees): places count rows of one head in the dense tensors.
class Rows {
 public:
  Rows(Run& r, const Blocks& at) : c_(r.call), at_(at), packed_(packed(r.call, at)), mask_(index_value(r, at.mask).dense()) {}
  template <class F> void each(F&& visit) const {
    const TensorMeta &q = c_.tensor(at_.q), &k = c_.tensor(at_.q + 1);
    const int64_t heads = q.sizes[1], shared = k.sizes[1], batch = mask_.size(0), x = side_of(c_, at_, 0), y = side_of(c_, at_, 1);
    int64_t q_first = 0, k_first = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t queries = has(c_, at_.q_lengths) ? c_.ints(at_.q_lengths)[b] : q.sizes[2], keys = has(c_, at_.k_lengths) ? c_.ints(at_.k_lengths)[b] : k.sizes[2];
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t kv = h / (heads / shared);
          const int64_t* blocks = mask_.ptr<int64_t>() + ((b * heads + h) * mask_.size(2) + i / x) * mask_.size(3);
          std::vector<int64_t> seen;
          for (int64_t j = 0; j < keys; ++j)
            if (blocks[j / y]) seen.push_back(packed_ ? (k_first + j) * shared + kv : (b * shared + kv) * k.sizes[2] + j);
          visit(packed_ ? (q_first + i) * heads + h : (b * heads + h) * q.sizes[2] + i, seen);
        }
      q_first += queries;
      k_first += keys;
    }
  }

 private:
  const Call& c_;
  const Blocks& at_;
  bool packed_;
  Value mask_;
};

void check_blocks(const Call& c) {
  expect_blocks(c);
  const Blocks at(c);
  expect_same_shape(c, at.out, at.q);
  if (c.integer(argument(c, {"softmaxLseFlag"}))) expect_numel(c, at.out + 1, c.tensor(at.q).numel() / c.tensor(at.q).sizes[c.tensor(at.q).ndim - 1]);
}
void blocks(Run& r) {
  const Blocks at(r.call);
  const Value q = floats(r, 0), k = floats(r, 1), v = floats(r, 2);
  const int64_t depth = q.size(-1);
  const Value out = full(q.shape(), mt::kFloat, 0), lse = full({q.numel() / depth}, mt::kFloat, -INFINITY);
  Rows(r, at).each([&](int64_t of, const std::vector<int64_t>& keys) {
    std::vector<float> p;
    float top = -INFINITY, sum = 0;
    for (int64_t key : keys) {
      p.push_back(float(r.call.number(at.scale)) * dot(q.ptr<float>() + of * depth, k.ptr<float>() + key * depth, depth));
      top = std::max(top, p.back());
    }
    for (float& s : p) sum += s = std::exp(s - top);
    for (size_t j = 0; j < keys.size(); ++j)
      for (int64_t d = 0; d < depth; ++d) out.ptr<float>()[of * depth + d] += p[j] / sum * v.ptr<float>()[keys[j] * depth + d];
    if (!keys.empty()) lse.ptr<float>()[of] = top + std::log(sum);
  });
  copy(r.tensor(at.out), out);
  if (r.call.integer(argument(r.call, {"softmaxLseFlag"}))) copy(r.tensor(at.out + 1), lse.reshape(r.tensor(at.out + 1).shape()));
}

void check_blocks_grad(const Call& c) {
  expect_blocks(c);
  for (int i : {0, 4}) expect_same_shape(c, i, 1);
  const int first = argument(c, {"dq"});
  for (int i : {0, 1, 2}) expect_same_shape(c, first + i, 1 + i);
  expect_numel(c, 5, c.tensor(1).numel() / c.tensor(1).sizes[c.tensor(1).ndim - 1]);
}
void blocks_grad(Run& r) {
  const Blocks at(r.call);
  const Value dy = floats(r, 0), q = floats(r, 1), k = floats(r, 2), v = floats(r, 3), y = floats(r, 4), lse = floats(r, 5);
  const Value dq = full(q.shape(), mt::kFloat, 0), dk = full(k.shape(), mt::kFloat, 0), dv = full(v.shape(), mt::kFloat, 0);
  const int64_t depth = q.size(-1);
  const auto scale = float(r.call.number(at.scale));
  Rows(r, at).each([&](int64_t of, const std::vector<int64_t>& keys) {
    const float *g = dy.ptr<float>() + of * depth, *query = q.ptr<float>() + of * depth, along = dot(g, y.ptr<float>() + of * depth, depth);
    for (int64_t key : keys) {
      const float p = std::exp(scale * dot(query, k.ptr<float>() + key * depth, depth) - lse.ptr<float>()[of]);
      const float slope = p * (dot(g, v.ptr<float>() + key * depth, depth) - along) * scale;
      for (int64_t d = 0; d < depth; ++d) {
        dq.ptr<float>()[of * depth + d] += slope * k.ptr<float>()[key * depth + d];
        dk.ptr<float>()[key * depth + d] += slope * query[d];
        dv.ptr<float>()[key * depth + d] += p * g[d];
      }
    }
  });
  const int first = argument(r.call, {"dq"});
  copy(r.tensor(first), dq);
  copy(r.tensor(first + 1), dk);
  copy(r.tensor(first + 2), dv);
}

const Op ops[] = {
    {"aclnnBlockSparseAttention", check_blocks, blocks},
    {"aclnnBlockSparseAttentionGrad", check_blocks_grad, blocks_grad},
};

}  // namespace
}  // namespace cann_sim
