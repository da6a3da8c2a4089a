// Attention by the older interface: with its projections (MultiHeadAttention), without (AttentionScore), and softmax with dropout.
#include <cmath>

#include "ops/older.h"
#include "ops/pointwise.h"
#include "ops/random.h"

namespace cann_sim {
namespace {

Value floats(const Value& v) { return v.to(mt::kFloat).dense(); }
Value times(const Value& a, const Value& b) { return pointwise("mul", mt::kFloat, {a, b}); }
Value times(const Value& a, double b) { return times(a, full({}, mt::kFloat, b)); }
Value plus(const Value& a, const Value& b) { return pointwise("add", mt::kFloat, {a, b}, {integer(1)}); }
Value product(const Value& a, const Value& b) {  // of matrices, or of stacks of them
  Sizes shape = a.shape();
  shape.back() = b.size(-1);
  const Value made = empty(shape, mt::kFloat);
  call_kernel("matmul", {made, a, b});
  return made;
}
Value softmax(const Value& x) {
  const Value made = empty(x.shape(), mt::kFloat);
  call_kernel("_softmax", {made, x}, {integer(x.ndim - 1), integer(0)});
  return made;
}
Value softmax_grad(const Value& dy, const Value& y) {
  const Value made = empty(y.shape(), mt::kFloat), a = dy.dense();
  const int64_t n = y.size(-1), rows = n ? y.numel() / n : 0;
  for (int64_t r = 0; r < rows; ++r) {
    double along = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i) along += double(a.ptr<float>()[i]) * y.ptr<float>()[i];
    for (int64_t i = r * n; i < (r + 1) * n; ++i) made.ptr<float>()[i] = float(y.ptr<float>()[i] * (a.ptr<float>()[i] - along));
  }
  return made;
}
Value column_sums(const Value& v) {
  const Value made = empty({v.sizes[1]}, mt::kFloat);
  const int64_t dims[] = {0};
  call_kernel("sum", {made, v}, {list(dims, 1), integer(0), none()});
  return made;
}
// 1 / keep where an item is kept, by a byte an item or a bit an item.
Value factors(const Value& mask, const Sizes& shape, double keep) {
  const Value made = empty(shape, mt::kFloat), bits = mask.dense();
  const int64_t n = made.numel();
  const bool bytes = bits.numel() >= n;
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t kept = bytes ? bits.ptr<uint8_t>()[i] : bits.ptr<uint8_t>()[i / 8] >> (i % 8) & 1;
    made.ptr<float>()[i] = kept ? float(1 / keep) : 0;
  }
  return made;
}

// ---- with projections --------------------------------------------------------------------------------------------------
struct Heads {
  int64_t heads, depth, sources, targets;
  double keep;
  explicit Heads(const Older& o)
      : heads(o.integer("attn_head_num", 1)), depth(o.integer("attn_dim_per_head", 1)), sources(o.integer("src_len", 1)),
        targets(o.integer("tgt_len", 1)), keep(o.real("keep_prob", 1)) {}
  double scale() const { return 1 / std::sqrt(double(depth)); }
  Value split(const Value& rows, int64_t length) const {  // [batch * length, width] as [batch, heads, length, depth]
    return rows.reshape({-1, length, heads, depth}).transpose(1, 2).dense();
  }
  Value joined(const Value& v) const { return v.transpose(1, 2).dense().reshape({-1, heads * depth}); }
};
// (query, key, value, their weights, attention mask, output's weight, then in order those that are given of: the biases of
// query, key, value and output, the dropout mask): y, dropout mask, the projections, softmax, the same after dropout, context
void check_multi_head(Older& o) {
  const size_t more = o.inputs() - 8;
  if (more == 2 || more == 3) o.refuse("expected all biases or none");
}
void multi_head(Older& o) {
  const size_t more = o.inputs() - 8;
  const bool biased = more >= 4, masked = more == 1 || more == 5;
  const Heads h(o);
  Value parts[3];
  for (size_t k = 0; k < 3; ++k) {
    Value rows = product(floats(o.in(k)), floats(o.in(3 + k)).transpose(0, 1));
    if (biased) rows = plus(rows, o.in(8 + k).reshape({-1}));
    parts[k] = h.split(rows, k ? h.sources : h.targets);
  }
  const Value scores = product(times(parts[0], h.scale()), parts[1].transpose(-2, -1));
  const Value soft = softmax(o.given(6) ? plus(scores, o.in(6)) : scores), drawn = o.out(1);
  Value left = soft;
  if (h.keep >= 1) {
    fill(drawn, 255);
  } else {
    if (masked && o.in(o.inputs() - 1).numel() == drawn.numel()) copy(drawn, o.in(o.inputs() - 1));
    else copy(drawn, make_mask(drawn.numel(), std::min(soft.numel(), drawn.numel() * 8), 1 - h.keep, {0, 0}).reshape(drawn.shape()));
    left = times(soft, factors(drawn.to(mt::kUInt8), soft.shape(), h.keep));
  }
  const Value context = h.joined(product(left, parts[2]));
  Value y = product(context, floats(o.in(7)).transpose(0, 1));
  if (biased) y = plus(y, o.in(11).reshape({-1}));
  const Value results[] = {y, {}, parts[0], parts[1], parts[2], soft, left, context};
  for (size_t k = 0; k < 8; ++k)
    if (k != 1) copy(o.out(k), results[k].reshape(o.out(k).shape()));
}
// (query, key, value, their weights, output's weight, the projections, softmax, after dropout, context, gradient, dropout mask?):
// gradients of the weights of query, key, value and output, of query, key and value, and of the four biases
void multi_head_grad(Older& o) {
  const Heads h(o);
  const Value dy = floats(o.in(13)), soft = floats(o.in(10)), left = floats(o.in(11)), context = floats(o.in(12));
  Value parts[3];
  for (size_t k = 0; k < 3; ++k) parts[k] = floats(o.in(7 + k));
  const Value dcontext = h.split(product(dy, floats(o.in(6))), h.targets);
  Value dsoft = product(dcontext, parts[2].transpose(-2, -1));
  if (h.keep < 1) {
    if (!o.given(14)) o.refuse("dropout needs the mask of the forward op");
    dsoft = times(dsoft, factors(o.in(14).to(mt::kUInt8), dsoft.shape(), h.keep));
  }
  const Value dscores = times(softmax_grad(dsoft, soft), h.scale());
  const Value of_parts[] = {product(dscores, parts[1]), product(dscores.transpose(-2, -1), parts[0]), product(left.transpose(-2, -1), dcontext)};
  for (size_t k = 0; k < 3; ++k) {
    const Value rows = h.joined(of_parts[k]);
    copy(o.out(k), product(rows.transpose(0, 1), floats(o.in(k))));
    copy(o.out(4 + k), product(rows, floats(o.in(3 + k))));
    copy(o.out(7 + k), column_sums(rows).reshape(o.out(7 + k).shape()));
  }
  copy(o.out(3), product(dy.transpose(0, 1), context));
  copy(o.out(10), column_sums(dy).reshape(o.out(10).shape()));
}

// ---- without --------------------------------------------------------------------------------------------------------------
// query, key and value [batch, heads, length, depth]; results have [batch * length, heads * depth]
Value by_rows(const Value& v) { return v.transpose(1, 2).dense(); }
void attention_score(Older& o) {  // (query, key, value, mask, scale, dropout mask): the context, and the softmax
  const Value q = floats(o.in(0)), k = floats(o.in(1)), v = floats(o.in(2));
  const Value scores = times(product(q, k.transpose(-2, -1)), o.number(4));
  const Value soft = softmax(o.given(3) ? plus(scores, o.in(3)) : scores);
  const double keep = o.real("keep_prob", 1);
  const Value left = keep < 1 && o.given(5) ? times(soft, factors(o.in(5), soft.shape(), keep)) : soft;
  copy(o.out(0), by_rows(product(left, v)).reshape(o.out(0).shape()));
  copy(o.out(1), soft);
}
// (softmax, gradient [batch, heads, length, depth], value, key, query, scale, dropout mask): of value, query, key
void attention_score_grad(Older& o) {
  const Value soft = floats(o.in(0)), dy = floats(o.in(1)), v = floats(o.in(2)), k = floats(o.in(3)), q = floats(o.in(4));
  const double keep = o.real("keep_prob", 1);
  Value left = soft, dsoft = product(dy, v.transpose(-2, -1));
  if (keep < 1 && o.given(6)) {
    const Value by = factors(o.in(6), soft.shape(), keep);
    left = times(soft, by), dsoft = times(dsoft, by);
  }
  const Value dscores = times(softmax_grad(dsoft, soft), o.number(5));
  const Value results[] = {product(left.transpose(-2, -1), dy), product(dscores, k), product(dscores.transpose(-2, -1), q)};
  for (size_t i = 0; i < 3; ++i) copy(o.out(i), by_rows(results[i]).reshape(o.out(i).shape()));
}

// ---- projections of a normed input, and their gradients: weights are [inputs, width] --------------------------------------------
// (x, weights of query, key and value, gamma, beta, their biases?): the norm, the projections by heads, mean and variance
void norm_and_project(Older& o) {
  const Value x = floats(o.in(0)), norm = empty(x.shape(), mt::kFloat), mean = empty({x.sizes[0]}, mt::kFloat), rstd = empty({x.sizes[0]}, mt::kFloat);
  const Sizes last{x.sizes[1]};
  const double epsilon = o.real("epsilon", 1e-7);
  call_kernel("native_layer_norm", {norm, mean, rstd, x, floats(o.in(4)).reshape(last), floats(o.in(5)).reshape(last)}, {list(last), number(epsilon)});
  copy(o.out(0), norm);
  for (size_t k = 0; k < 3; ++k) {
    Value rows = product(norm, floats(o.in(1 + k)));
    if (o.given(6 + k)) rows = plus(rows, o.in(6 + k).reshape({-1}));
    const Value out = o.out(1 + k);  // [batch, heads, length, depth]
    copy(out, rows.reshape({out.sizes[0], out.sizes[2], out.sizes[1], out.sizes[3]}).transpose(1, 2));
  }
  for (int64_t r = 0; r < x.sizes[0]; ++r) rstd.ptr<float>()[r] = float(1 / (double(rstd.ptr<float>()[r]) * rstd.ptr<float>()[r]) - epsilon);
  copy(o.out(4), mean.reshape(o.out(4).shape()));
  copy(o.out(5), rstd.reshape(o.out(5).shape()));
}
void projected_input_grad(Older& o) {  // (gradient of the norm, of query, key and value, their weights)
  Value sum = floats(o.in(0));
  for (size_t k = 0; k < 3; ++k) sum = plus(sum, product(floats(o.in(1 + k)), floats(o.in(4 + k)).transpose(0, 1)));
  copy(o.out(0), sum);
}
void projected_weight_grad(Older& o) {  // (x, gradients of query, key and value): of the three weights and biases
  const Value x = floats(o.in(0)).transpose(0, 1);
  for (size_t k = 0; k < 3; ++k) {
    copy(o.out(k), product(x, floats(o.in(1 + k))));
    copy(o.out(3 + k), column_sums(floats(o.in(1 + k))).reshape(o.out(3 + k).shape()));
  }
}

// ---- softmax(x1 + alpha * x2) with dropout by a mask --------------------------------------------------------------------------
void expect_last_axis(Older& o, const char* name, int64_t dims) {
  const Sizes axes = o.list(name);
  if (axes.size() > 1 || (axes.size() == 1 && axes[0] != -1 && axes[0] != dims - 1)) o.refuse("only the last axis is computed");
}
void add_softmax_dropout(Older& o) {  // (x1, x2, mask): the softmax, and what dropout leaves of it
  expect_last_axis(o, "axis", o.in(0).ndim);
  const double keep = o.real("input_keep_prob", 1);
  const Value soft = softmax(plus(floats(o.in(0)), times(o.in(1), o.real("alpha", 1))));
  copy(o.out(0), soft);
  copy(o.out(1), keep < 1 ? times(soft, factors(o.in(2), soft.shape(), keep)) : soft);
}
void add_softmax_dropout_grad(Older& o) {  // (gradient, mask, softmax): of x2
  expect_last_axis(o, "axes", o.in(2).ndim);
  const double keep = o.real("input_keep_prob", 1);
  const Value soft = floats(o.in(2)), dy = floats(o.in(0));
  const Value dsoft = keep < 1 ? times(dy, factors(o.in(1), soft.shape(), keep)) : dy;
  copy(o.out(0), times(softmax_grad(dsoft, soft), o.real("alpha", 1)));
}

const OlderOps ops({
    {"MultiHeadAttention", 8, 13, 8, multi_head, check_multi_head}, {"MultiHeadAttentionGrad", 14, 15, 11, multi_head_grad},
    {"AttentionScore", 4, 6, 2, attention_score}, {"AttentionScoreGrad", 6, 7, 3, attention_score_grad},
    {"AttentionLnQKV", 6, 9, 6, norm_and_project}, {"AttentionQKVGradX", 7, 7, 1, projected_input_grad},
    {"AttentionQKVGradW", 4, 4, 6, projected_weight_grad},
    {"AxpyWithSoftmaxAndDropOutDoMask", 3, 3, 2, add_softmax_dropout},
    {"DropoutWithMulsAndSoftmaxGrad", 3, 3, 1, add_softmax_dropout_grad},
});

}  // namespace
}  // namespace cann_sim
