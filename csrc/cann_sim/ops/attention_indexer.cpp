// The indexer that chooses keys for sparse attention: the best keys, its gradient, and the loss that trains it.
#include <cmath>
#include <numeric>

#include "ops/attention_sequences.h"
#include "ops/low_float.h"

namespace cann_sim {
namespace {

// The score of a key is the sum over heads of weight * relu(query · key).
struct Indexer {
  Value q, k, w, q_scale, k_scale;
  int64_t heads, depth;
  Indexer(Run& r, const Layouts& at)
      : q(numbers(r, at.query)), k(numbers(r, at.key)), w(floats(r, argument(r.call, {"weights", "weight"}))), heads(q.size(-2)), depth(q.size(-1)) {
    const int scale = argument(r.call, {"queryDequantScale"});
    if (scale < 0) return;
    q_scale = floats(r, scale);
    k_scale = floats(r, scale + 1);
  }
  static Value numbers(Run& r, int i) { return low_float(r.call.tensor(i).dtype) ? load_low(r, i) : floats(r, i); }
  // relu(query · key) of every head: [heads][keys]
  std::vector<float> products(int64_t row, const std::vector<int64_t>& keys) const {
    std::vector<float> p;
    for (int64_t of = row * heads; of < (row + 1) * heads; ++of)
      for (int64_t key : keys) {
        const float s = dot(q.ptr<float>() + of * depth, k.ptr<float>() + key * depth, depth);
        p.push_back(std::max(0.f, q_scale.given() ? s * q_scale.ptr<float>()[of] * k_scale.ptr<float>()[key] : s));
      }
    return p;
  }
  std::vector<float> scores(int64_t row, const std::vector<float>& p, size_t keys) const {
    std::vector<float> s(keys, 0);
    for (int64_t h = 0; h < heads; ++h)
      for (size_t j = 0; j < keys; ++j) s[j] += w.ptr<float>()[row * heads + h] * p[size_t(h) * keys + j];
    return s;
  }
  struct Gradients {
    Value q, k, w;
    explicit Gradients(const Indexer& of)
        : q(full(of.q.shape(), mt::kFloat, 0)), k(full(of.k.shape(), mt::kFloat, 0)), w(full(of.w.shape(), mt::kFloat, 0)) {}
    void store(Run& r, int first) const {
      copy(r.tensor(first), q);
      copy(r.tensor(first + 1), k);
      copy(r.tensor(first + 2), w);
    }
  };
  void add_gradients(const Gradients& to, int64_t row, const std::vector<int64_t>& keys, const std::vector<float>& p, const std::vector<float>& slope) const {
    for (int64_t h = 0; h < heads; ++h)
      for (size_t j = 0; j < keys.size(); ++j) {
        const float product = p[size_t(h) * keys.size() + j];
        if (!(product > 0)) continue;
        const int64_t of = row * heads + h;
        to.w.ptr<float>()[of] += slope[j] * product;
        const float by = slope[j] * w.ptr<float>()[of];
        for (int64_t d = 0; d < depth; ++d) {
          to.q.ptr<float>()[of * depth + d] += by * k.ptr<float>()[keys[j] * depth + d];
          to.k.ptr<float>()[keys[j] * depth + d] += by * q.ptr<float>()[of * depth + d];
        }
      }
  }
};
void expect_indexer(const Call& c, const Layouts& at) {
  expect_layouts(c, at);
  expect_depth(c, at);
  Sizes q = sizes_of(c.tensor(at.query));
  q.pop_back();
  expect_shape(c, argument(c, {"weights", "weight"}), q);
}

// ---- aclnnLightningIndexer, aclnnQuantLightningIndexer: the places of the best keys, and on request their scores ------------------
void check_indexer(const Call& c) {
  const Layouts at(c);
  expect_indexer(c, at);
  const int64_t count = c.integer(argument(c, {"sparseCount"}));
  EXPECT(count > 0, "%s: sparseCount %ld", c.name(), count);
  Sizes q = sizes_of(c.tensor(at.query)), k = sizes_of(c.tensor(at.key));
  if (const int scale = argument(c, {"queryDequantScale"}); scale >= 0) {
    expect_numel(c, scale, c.tensor(at.query).numel() / q.back());
    expect_numel(c, scale + 1, c.tensor(at.key).numel() / k.back());
  }
  q.pop_back();
  q.back() = 1;
  q.push_back(count);
  const int chosen = argument(c, {"sparseIndicesOut"}), values = argument(c, {"returnValues"});
  expect_shape(c, chosen, q);
  if (values >= 0 && c.integer(values)) expect_shape(c, chosen + 1, q);
}
void indexer(Run& r) {
  const Call& c = r.call;
  const Layouts at(c);
  const Indexer index(r, at);
  const int64_t count = c.integer(argument(c, {"sparseCount"}));
  const int out = argument(c, {"sparseIndicesOut"}), returned = argument(c, {"returnValues"});
  const Sequences sequences(r, at);
  const Value chosen = full(r.tensor(out).shape(), mt::kInt64, -1), values = full(r.tensor(out).shape(), mt::kFloat, -INFINITY);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.key_rows(c, b, seen);
    const std::vector<float> score = index.scores(row, index.products(row, keys), keys.size());
    std::vector<int64_t> order(static_cast<size_t>(seen));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t x, int64_t y) { return score[size_t(x)] > score[size_t(y)]; });
    for (int64_t n = 0; n < std::min(count, seen); ++n) {
      chosen.ptr<int64_t>()[row * count + n] = order[size_t(n)];
      values.ptr<float>()[row * count + n] = score[size_t(order[size_t(n)])];
    }
  });
  copy(r.tensor(out), chosen);
  if (returned >= 0 && c.integer(returned)) copy(r.tensor(out + 1), values);
}

// ---- aclnnLightningIndexerGrad(query, key, dy, indices, weights, …, dq, dk, dw): dy are the gradients of the chosen scores --------
void check_indexer_grad(const Call& c) {
  const Layouts at(c);
  expect_indexer(c, at);
  expect_same_shape(c, 2, 3);
  Sizes of = sizes_of(c.tensor(0));
  of[of.size() - 2] = 1;
  of.back() = c.tensor(3).ndim ? c.tensor(3).sizes[c.tensor(3).ndim - 1] : 0;
  expect_shape(c, 3, of);
  const int first = argument(c, {"dqueryOut"});
  for (int i : {0, 1}) expect_same_shape(c, first + i, i);
  expect_same_shape(c, first + 2, 4);
}
void indexer_grad(Run& r) {
  const Call& c = r.call;
  const Layouts at(c);
  const Indexer index(r, at);
  const Indexer::Gradients made(index);
  const Value dy = floats(r, 2), chosen = index_value(r, 3).dense();
  const int64_t count = chosen.size(-1);
  const Sequences sequences(r, at);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.chosen_rows(c, b, seen, chosen.ptr<int64_t>() + row * count, count, 1);
    const float* slope = dy.ptr<float>() + row * count;
    index.add_gradients(made, row, keys, index.products(row, keys), std::vector<float>(slope, slope + keys.size()));
  });
  made.store(r, argument(c, {"dqueryOut"}));
}

// ---- aclnnDenseLightningIndexerSoftmaxLse: the largest score of every query, and the sum of the exponentials --------------------
void check_lse(const Call& c) {
  const Layouts at(c);
  expect_indexer(c, at);
  const Sizes q = sizes_of(c.tensor(at.query));
  for (int i : {9, 10}) expect_shape(c, i, q.size() == 3 ? Sizes{1, q[0]} : Sizes{q[0], 1, q[1]});
}
void lse(Run& r) {
  const Layouts at(r.call);
  const Indexer index(r, at);
  const Sequences sequences(r, at);
  const Value max = full(r.tensor(9).shape(), mt::kFloat, 0), sum = full(max.shape(), mt::kFloat, 0);
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = sequences.key_rows(r.call, b, seen);
    if (keys.empty()) return;
    const std::vector<float> score = index.scores(row, index.products(row, keys), keys.size());
    const float top = max.ptr<float>()[row] = *std::max_element(score.begin(), score.end());
    for (float s : score) sum.ptr<float>()[row] += std::exp(s - top);
  });
  copy(r.tensor(9), max);
  copy(r.tensor(10), sum);
}

// ---- the loss: of every query the divergence of the softmax of its scores from what attention gives the keys, all heads together --
struct Loss {
  int chosen, max, sum, index_max, index_sum, q_rope, k_rope, scale, first;
  explicit Loss(const Call& c)
      : chosen(argument(c, {"sparseIndices"})), max(argument(c, {"softmaxMax"})), sum(argument(c, {"softmaxSum"})), index_max(argument(c, {"softmaxMaxIndex"})),
        index_sum(argument(c, {"softmaxSumIndex"})), q_rope(argument(c, {"queryRope"})), k_rope(argument(c, {"keyRope"})), scale(argument(c, {"scaleValue"})),
        first(argument(c, {"dQueryIndexOut"})) {}
};
void check_loss(const Call& c) {
  const Layouts layouts(c);
  const Loss at(c);
  expect_indexer(c, layouts);
  const TensorMeta &q = c.tensor(0), &k = c.tensor(1);
  Sizes of = sizes_of(c.tensor(layouts.query)), keys = sizes_of(c.tensor(layouts.key));
  EXPECT(q.ndim == int(of.size()) && k.ndim == q.ndim && q.numel() && k.numel(), "%s: query %s, key %s", c.name(), describe(q).c_str(), describe(k).c_str());
  const int64_t heads = q.sizes[q.ndim - 2], shared = k.sizes[k.ndim - 2];
  EXPECT(heads % shared == 0, "%s: %ld heads of queries over %ld of keys", c.name(), heads, shared);
  of[of.size() - 2] = heads;
  of.back() = keys.back() = q.sizes[q.ndim - 1];
  keys[keys.size() - 2] = shared;
  expect_shape(c, 0, of);
  expect_shape(c, 1, keys);
  for (int i : {at.max, at.sum}) expect_numel(c, i, q.numel() / q.sizes[q.ndim - 1]);
  EXPECT(has(c, at.q_rope) == has(c, at.k_rope), "%s: queryRope and keyRope go together", c.name());
  if (has(c, at.q_rope)) {
    of.back() = keys.back() = c.tensor(at.q_rope).sizes[c.tensor(at.q_rope).ndim - 1];
    expect_shape(c, at.q_rope, of);
    expect_shape(c, at.k_rope, keys);
  }
  const int64_t rows = q.numel() / q.sizes[q.ndim - 1] / heads;
  if (at.chosen >= 0) EXPECT(rows && c.tensor(at.chosen).numel() % rows == 0, "%s: sparseIndices %s", c.name(), describe(c.tensor(at.chosen)).c_str());
  else for (int i : {at.index_max, at.index_sum}) expect_numel(c, i, rows);
  expect_same_shape(c, at.first, layouts.query);
  expect_same_shape(c, at.first + 1, layouts.key);
  expect_same_shape(c, at.first + 2, argument(c, {"weights"}));
  expect_numel(c, at.first + 3, 1);
}
// What the heads of attention give to keys, all together and as shares; softmaxMax and softmaxSum lie as [B, N2, S, G] or [N2, T, G].
class Attended {
 public:
  Attended(Run& r, const Loss& at)
      : q_(floats(r, 0)), k_(floats(r, 1)), qr_(has(r.call, at.q_rope) ? floats(r, at.q_rope) : Value()),
        kr_(qr_.given() ? floats(r, at.k_rope) : Value()), max_(floats(r, at.max)), sum_(floats(r, at.sum)), scale_(float(r.call.number(at.scale))),
        heads_(q_.size(-2)), shared_(k_.size(-2)), rows_(q_.ndim == 4 ? q_.size(1) : q_.size(0)) {}
  std::vector<float> shares(int64_t row, const std::vector<int64_t>& keys) const {
    std::vector<float> p(keys.size(), 0);
    const int64_t group = heads_ / shared_, depth = q_.size(-1), place = qr_.given() ? qr_.size(-1) : 0;
    float total = 0;
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t of = row * heads_ + h, n2 = h / group, state = ((row / rows_ * shared_ + n2) * rows_ + row % rows_) * group + h % group;
      for (size_t j = 0; j < keys.size(); ++j) {
        const int64_t key = keys[j] * shared_ + n2;
        const float s = dot(q_.ptr<float>() + of * depth, k_.ptr<float>() + key * depth, depth) +
                        (place ? dot(qr_.ptr<float>() + of * place, kr_.ptr<float>() + key * place, place) : 0);
        const float given = std::exp(scale_ * s - max_.ptr<float>()[state]) / sum_.ptr<float>()[state];
        p[j] += given;
        total += given;
      }
    }
    for (float& x : p) x = total != 0 ? x / total : 0;
    return p;
  }

 private:
  Value q_, k_, qr_, kr_, max_, sum_;
  float scale_;
  int64_t heads_, shared_, rows_;
};
void loss(Run& r) {
  const Call& c = r.call;
  const Layouts layouts(c);
  const Loss at(c);
  const Indexer index(r, layouts);
  const Indexer::Gradients made(index);
  const Attended attended(r, at);
  const Value chosen = at.chosen >= 0 ? index_value(r, at.chosen).dense() : Value();
  const Value index_max = at.index_max >= 0 ? floats(r, at.index_max) : Value(), index_sum = at.index_max >= 0 ? floats(r, at.index_sum) : Value();
  const int64_t count = chosen.given() ? chosen.numel() / (index.w.numel() / index.heads) : 0;
  const Sequences sequences(r, layouts);
  double total = 0;
  sequences.each([&](int64_t row, int64_t b, int64_t seen) {
    const std::vector<int64_t> keys = chosen.given() ? sequences.chosen_rows(c, b, seen, chosen.ptr<int64_t>() + row * count, count, 1) : sequences.key_rows(c, b, seen);
    if (keys.empty()) return;
    const std::vector<float> products = index.products(row, keys), score = index.scores(row, products, keys.size()), p = attended.shares(row, keys);
    float top = index_max.given() ? index_max.ptr<float>()[row] : *std::max_element(score.begin(), score.end()), sum = 0;
    for (float s : score) sum += std::exp(s - top);
    if (index_sum.given()) sum = index_sum.ptr<float>()[row];
    std::vector<float> slope;
    for (size_t j = 0; j < keys.size(); ++j) {
      slope.push_back(std::exp(score[j] - top) / sum - p[j]);
      if (p[j] > 0) total += p[j] * (std::log(p[j]) - (score[j] - top - std::log(sum)));
    }
    index.add_gradients(made, row, keys, products, slope);
  });
  made.store(r, at.first);
  fill(r.tensor(at.first + 3), total);
}

const Op ops[] = {
    {"aclnnLightningIndexer", check_indexer, indexer},
    {"aclnnQuantLightningIndexer", check_indexer, indexer},
    {"aclnnLightningIndexerGrad", check_indexer_grad, indexer_grad},
    {"aclnnDenseLightningIndexerSoftmaxLse", check_lse, lse},
    {"aclnnDenseLightningIndexerGradKLLoss", check_loss, loss},
    {"aclnnSparseLightningIndexerGradKLLoss", check_loss, loss},
};

}  // namespace
}  // namespace cann_sim
